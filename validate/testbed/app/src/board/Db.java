package board;

import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import tapscope.agent.Clock;

/**
 * The database as one request sees it: at most one pooled connection at a time, borrowed at the first statement.
 *
 * <p>{@code text*} sends the statement as text with its literals in it (COM_QUERY). {@code prepared*} uses a
 * server-prepared statement that each connection prepares once and then executes by number. Where the board is told
 * that all are prepared, {@code text*} does so as well; only an INSERT has no place for the id then.
 * The request id travels as a comment at the end of a text statement, which the agent's driver puts there, and as one
 * more bound string of a prepared one: the marker {@code {id}} in the SQL stands for the condition that binds it.
 * Without the agent neither is sent; where no truth is wanted prepared statements stay as they are, because the
 * condition is evaluated for every row.
 */
final class Db implements AutoCloseable {
    /** Prepared statements of a physical connection by their text; one request at a time uses them. Never emptied: a
     * pool opens few connections in the life of a testbed. */
    private static final Map<Object, Map<String, PreparedStatement>> KEPT = new ConcurrentHashMap<>();

    private final Board board;
    private final String id;
    private Connection connection;
    private Backend.Physical physical;
    private long borrowUs;
    private boolean inTransaction;
    private long lastInsertId;

    Db(Board board, String id) {
        this.board = board;
        this.id = id;
    }

    private Connection connection() throws SQLException {
        if (connection == null) {
            borrowUs = Clock.nowUs();
            connection = board.dataSource.getConnection();
            if (board.checkouts != null || keepsStatements()) {
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
        if (board.checkouts != null) {
            board.checkouts.add((id == null ? "-" : id) + '\t' + physical.threadId() + '\t' + physical.name() + '\t'
                    + borrowUs + '\t' + returnUs);
        }
        physical = null;
    }

    /** End of a group of statements; the connection goes back here when the pool habit is per group. */
    void endGroup() throws SQLException {
        if (!board.holdConnection && !inTransaction) {
            release();
        }
    }

    List<Row> text(String sql, Object... values) throws SQLException {
        if (board.allPrepared) {
            return prepared(marked(sql), values);
        }
        String full = literal(sql, values);
        try (Statement statement = connection().createStatement()) {
            try (ResultSet results = statement.executeQuery(full)) {
                return Row.all(results);
            }
        }
    }

    int textUpdate(String sql, Object... values) throws SQLException {
        boolean keys = board.backend.returnsKeys();
        int count;
        if (board.allPrepared) {
            try (Bound bound = prepare(marked(sql), keys, values)) {
                count = bound.statement().executeUpdate();
                if (keys) {
                    takeKey(bound.statement());
                }
            }
        } else {
            String full = literal(sql, values);
            try (Statement statement = connection().createStatement()) {
                count = keys ? statement.executeUpdate(full, Statement.RETURN_GENERATED_KEYS)
                        : statement.executeUpdate(full);
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
            try (ResultSet results = bound.statement().executeQuery()) {
                return Row.all(results);
            }
        }
    }

    int preparedUpdate(String sql, Object... values) throws SQLException {
        try (Bound bound = prepare(sql, false, values)) {
            int count = bound.statement().executeUpdate();
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
        boolean bindsId = mark >= 0 && id != null && board.checkouts != null;
        String full = mark < 0 ? sql
                : sql.substring(0, mark) + (bindsId ? "AND ? <> ''" : "") + sql.substring(mark + 4);
        Connection mine = connection();
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
        mine.setAutoCommit(false);
        inTransaction = true;
    }

    void commit() throws SQLException {
        connection.commit();
        connection.setAutoCommit(true);
        inTransaction = false;
    }

    long lastInsertId() {
        return lastInsertId;
    }

    /** Puts the values into the text, quoted. */
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
