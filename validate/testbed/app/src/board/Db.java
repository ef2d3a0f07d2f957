package board;

import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.WeakHashMap;
import java.util.concurrent.ConcurrentHashMap;

/**
 * The database as one request sees it: at most one pooled connection at a time, borrowed at the first statement.
 *
 * <p>{@code text*} sends the statement as text with its literals in it (COM_QUERY). {@code prepared*} uses a
 * server-prepared statement that each connection prepares once and then executes by number. Where the board is told
 * that all are prepared, {@code text*} does so as well; only an INSERT has no place for the id then.
 * The request id travels as a comment at the end of a text statement, and as one more bound string of a
 * prepared one: the marker {@code {id}} in the SQL stands for the condition that binds it. Without event monitors
 * neither is sent.
 */
final class Db implements AutoCloseable {
    /** Which statements a physical connection has prepared already; only used to name the prepare in the log. */
    private static final Map<Object, Set<String>> PREPARED = Collections.synchronizedMap(new WeakHashMap<>());

    /** Prepared statements of a physical connection by their text; one request at a time uses them. Never emptied: a
     * pool opens few connections in the life of a testbed. */
    private static final Map<Object, Map<String, PreparedStatement>> KEPT = new ConcurrentHashMap<>();

    private final Board board;
    private final EventLog events;
    private final String id;
    private Connection connection;
    private Backend.Physical physical;
    private long borrowUs;
    private boolean inTransaction;
    private int ordinal;
    private long lastInsertId;

    Db(Board board, String id) {
        this.board = board;
        this.events = id == null ? null : board.events;
        this.id = id;
    }

    private Connection connection() throws SQLException {
        if (connection == null) {
            borrowUs = Clock.nowUs();
            connection = board.dataSource.getConnection();
            if (board.events != null || keepsStatements()) {
                physical = board.backend.physical(connection);
            }
        }
        return connection;
    }

    /** Returns the connection to the pool. */
    private void release() throws SQLException {
        if (connection == null) {
            return;
        }
        long returnUs = Clock.nowUs();
        connection.close();
        connection = null;
        if (board.events != null) {
            board.events.checkout(id == null ? "-" : id, physical, borrowUs, returnUs);
        }
        physical = null;
    }

    /** End of a group of statements; the connection goes back here when the pool habit is per group. */
    void endGroup() throws SQLException {
        if (!board.holdConnection && !inTransaction) {
            release();
        }
    }

    private void log(long dsUs, String form) {
        if (events != null) {
            events.statement(id, ordinal++, dsUs, Clock.nowUs(), physical.threadId(), form);
        }
    }

    List<Row> text(String sql, Object... values) throws SQLException {
        if (board.allPrepared) {
            return prepared(marked(sql), values);
        }
        String full = literal(sql, values);
        try (Statement statement = connection().createStatement()) {
            long dsUs = Clock.nowUs();
            try (ResultSet results = statement.executeQuery(full)) {
                log(dsUs, "text");
                return Row.all(results);
            }
        }
    }

    int textUpdate(String sql, Object... values) throws SQLException {
        boolean keys = board.backend.returnsKeys();
        int count;
        if (board.allPrepared) {
            try (Bound bound = prepare(marked(sql), keys, values)) {
                long dsUs = Clock.nowUs();
                count = bound.statement().executeUpdate();
                log(dsUs, "execute");
                if (keys) {
                    takeKey(bound.statement());
                }
            }
        } else {
            String full = literal(sql, values);
            try (Statement statement = connection().createStatement()) {
                long dsUs = Clock.nowUs();
                count = keys ? statement.executeUpdate(full, Statement.RETURN_GENERATED_KEYS)
                        : statement.executeUpdate(full);
                log(dsUs, "text");
                if (keys) {
                    takeKey(statement);
                }
            }
        }
        if (!keys && sql.startsWith("INSERT")) {
            lastInsertId = text("SELECT LAST_INSERT_ID() AS id FROM DUAL WHERE 1 = 1").get(0).number("id");
        }
        return count;
    }

    private void takeKey(Statement statement) throws SQLException {
        try (ResultSet keys = statement.getGeneratedKeys()) {
            if (keys.next()) {
                lastInsertId = keys.getLong(1);
            }
        }
    }

    /** The statement with the marker where one more condition can stand: behind the last one of its WHERE. */
    private static String marked(String sql) {
        if (!sql.contains(" WHERE ")) {
            return sql;
        }
        int at = sql.length();
        for (String clause : List.of(" GROUP BY ", " ORDER BY ", " LIMIT ")) {
            int found = sql.indexOf(clause);
            at = found < 0 ? at : Math.min(at, found);
        }
        return sql.substring(0, at) + " {id}" + sql.substring(at);
    }

    List<Row> prepared(String sql, Object... values) throws SQLException {
        try (Bound bound = prepare(sql, false, values)) {
            long dsUs = Clock.nowUs();
            try (ResultSet results = bound.statement().executeQuery()) {
                log(dsUs, "execute");
                return Row.all(results);
            }
        }
    }

    int preparedUpdate(String sql, Object... values) throws SQLException {
        try (Bound bound = prepare(sql, false, values)) {
            long dsUs = Clock.nowUs();
            int count = bound.statement().executeUpdate();
            log(dsUs, "execute");
            return count;
        }
    }

    /** A prepared statement with its values. Closed after use, unless it is kept for the next one. */
    private record Bound(PreparedStatement statement, boolean kept) implements AutoCloseable {
        @Override
        public void close() throws SQLException {
            if (!kept) {
                statement.close();
            }
        }
    }

    /** Whether statements are kept here: all are to be prepared once, and the driver does not see to it. */
    private boolean keepsStatements() {
        return board.allPrepared && !board.backend.keepsStatements();
    }

    private PreparedStatement prepareOn(Connection mine, String sql, boolean keys) throws SQLException {
        return keys ? mine.prepareStatement(sql, Statement.RETURN_GENERATED_KEYS) : mine.prepareStatement(sql);
    }

    private Bound prepare(String sql, boolean keys, Object... values) throws SQLException {
        int mark = sql.indexOf("{id}");
        if (mark < 0 && !board.allPrepared) {
            throw new IllegalArgumentException("statement without the id marker: " + sql);
        }
        boolean bindsId = mark >= 0 && events != null;
        String full = mark < 0 ? sql
                : sql.substring(0, mark) + (bindsId ? "AND ? <> ''" : "") + sql.substring(mark + 4);
        Connection mine = connection();
        long dsUs = Clock.nowUs();
        PreparedStatement statement;
        if (keepsStatements()) {
            // On the connection behind the pooled one: what the pool hands out is closed when it goes back.
            Map<String, PreparedStatement> kept = KEPT.computeIfAbsent(physical.key(), c -> new HashMap<>());
            statement = kept.get(full);
            if (statement == null) {
                statement = prepareOn((Connection) physical.key(), full, keys);
                kept.put(full, statement);
            }
        } else {
            statement = prepareOn(mine, full, keys);
        }
        if (events != null && PREPARED.computeIfAbsent(physical.key(), c -> new HashSet<>()).add(full)) {
            log(dsUs, "prepare");
        }
        int beforeMark = (int) sql.substring(0, Math.max(mark, 0)).chars().filter(c -> c == '?').count();
        int position = 1;
        for (int i = 0; i <= values.length; i++) {
            if (i == beforeMark && bindsId) {
                statement.setString(position++, id);
            }
            if (i < values.length) {
                statement.setObject(position++, values[i]);
            }
        }
        return new Bound(statement, keepsStatements());
    }

    void begin() throws SQLException {
        Connection mine = connection();
        long dsUs = Clock.nowUs();
        mine.setAutoCommit(false);
        inTransaction = true;
        log(dsUs, "begin");
    }

    void commit() throws SQLException {
        long dsUs = Clock.nowUs();
        connection.commit();
        log(dsUs, "commit");
        dsUs = Clock.nowUs();
        connection.setAutoCommit(true);
        inTransaction = false;
        log(dsUs, "autocommit");
    }

    long lastInsertId() {
        return lastInsertId;
    }

    /** Puts the values into the text, quoted, and the id comment at its end. */
    private String literal(String sql, Object... values) {
        StringBuilder out = new StringBuilder(sql.length() + 64);
        int next = 0;
        for (int i = 0; i < sql.length(); i++) {
            char c = sql.charAt(i);
            if (c != '?') {
                out.append(c);
                continue;
            }
            Object value = values[next++];
            if (value instanceof Number) {
                out.append(value);
            } else {
                out.append('\'');
                out.append(value.toString().replace("\\", "\\\\").replace("'", "''"));
                out.append('\'');
            }
        }
        if (events != null) {
            out.append(" /*ID=").append(id).append("*/");
        }
        return out.toString();
    }

    @Override
    public void close() throws SQLException {
        if (inTransaction) {
            connection.rollback();
            connection.setAutoCommit(true);
            inTransaction = false;
        }
        release();
    }
}
