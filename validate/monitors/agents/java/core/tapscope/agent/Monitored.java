package tapscope.agent;

import java.io.IOException;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.sql.CallableStatement;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.sql.Statement;
import java.sql.Wrapper;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.regex.Pattern;

/**
 * A connection whose statements are timed around the driver's call, and carry the request ID.
 *
 * <p>A statement sent as text gets the comment at its end. The text of a prepared statement stays as it is, or it
 * would have to be prepared anew for every request; its ID is known from the log by connection and time. What is sent
 * while no request is on the thread is not logged, nor is a pool's own question whether the connection is alive.
 */
final class Monitored {
    private static final Pattern PING = Pattern.compile("\\s*SELECT 1\\s*;?\\s*", Pattern.CASE_INSENSITIVE);
    /** Statements of a connection that are remembered as prepared; drivers keep fewer. */
    private static final int REMEMBERED = 1000;
    /** How drivers call the number that the server gave the connection. */
    private static final String[] NUMBER = {"getServerThreadId", "getThreadId", "getId"};

    /** Further columns of statements.tsv, each with a tab in front; set before the first connection is made. */
    static volatile String moreColumns = "";

    private final Connection inner;
    private final Connection outer;
    private final Map<String, Boolean> prepared = new LinkedHashMap<>(16, 0.75f, true) {
        private static final long serialVersionUID = 1L;

        @Override
        protected boolean removeEldestEntry(Map.Entry<String, Boolean> eldest) {
            return size() > REMEMBERED;
        }
    };
    private long number = -2;
    private boolean commits = true;

    private Monitored(Connection inner) {
        this.inner = inner;
        this.outer = proxy(Connection.class, inner, this::onConnection);
    }

    static Connection connection(Connection inner) {
        return new Monitored(inner).outer;
    }

    /** Opened with the first connection. */
    private static final class Log {
        static final Recorder.Rows STATEMENTS = open();

        private static Recorder.Rows open() {
            try {
                return Recorder.open("statements.tsv",
                        "request_id\tordinal\tds_us\tdr_us\tthread_id\tform" + moreColumns);
            } catch (IOException e) {
                throw new IllegalStateException("the agent cannot write its log", e);
            }
        }
    }

    private Object onConnection(Object proxy, Method method, Object[] arguments) throws Throwable {
        switch (method.getName()) {
            case "createStatement":
                return statement(Statement.class, call(inner, method, arguments));
            case "prepareStatement":
                return statement(PreparedStatement.class, prepare(method, arguments));
            case "prepareCall":
                return statement(CallableStatement.class, prepare(method, arguments));
            case "commit":
                return timed("commit", inner, method, arguments);
            case "rollback":
                return timed("rollback", inner, method, arguments);
            case "setAutoCommit":
                boolean wanted = (Boolean) arguments[0];
                if (wanted == commits) {
                    return call(inner, method, arguments);
                }
                commits = wanted;
                return timed(wanted ? "autocommit" : "begin", inner, method, arguments);
            default:
                return call(inner, method, arguments);
        }
    }

    /** The driver asks the server only for a text that it has not prepared on this connection. */
    private Object prepare(Method method, Object[] arguments) throws Throwable {
        boolean known = prepared.put((String) arguments[0], Boolean.TRUE) != null;
        return known ? call(inner, method, arguments) : timed("prepare", inner, method, arguments);
    }

    private <T extends Statement> T statement(Class<T> kind, Object made) {
        return proxy(kind, made, (proxy, method, arguments) -> {
            String name = method.getName();
            if (name.equals("getConnection")) {
                return outer;
            }
            boolean text = arguments != null && arguments.length > 0 && arguments[0] instanceof String;
            if (text && PING.matcher((String) arguments[0]).matches()) {
                return call(made, method, arguments);
            }
            if (text && (name.startsWith("execute") || name.equals("addBatch"))) {
                Current now = Current.now();
                // A middleware has the comment from its client.
                if (now != null && !((String) arguments[0]).contains("/*ID=")) {
                    arguments[0] = arguments[0] + now.comment();
                }
            }
            if (!name.startsWith("execute")) {
                return call(made, method, arguments);
            }
            return timed(text ? "text" : name.contains("Batch") ? "batch" : "execute", made, method, arguments);
        });
    }

    private Object timed(String form, Object target, Method method, Object[] arguments) throws Throwable {
        Current now = Current.now();
        if (now == null) {
            return call(target, method, arguments);
        }
        long sentUs = Clock.nowUs();
        try {
            return call(target, method, arguments);
        } finally {
            Log.STATEMENTS.add(now.row(sentUs, Clock.nowUs(), number(), form));
        }
    }

    private long number() {
        if (number == -2) {
            number = -1;
            for (String name : NUMBER) {
                try {
                    // Behind whatever wraps the driver's own connection.
                    Connection own = inner.unwrap(Connection.class);
                    number = ((Number) own.getClass().getMethod(name).invoke(own)).longValue();
                    break;
                } catch (ReflectiveOperationException | ClassCastException | SQLException e) {
                    // Not this driver's name for it.
                }
            }
        }
        return number;
    }

    private static Object call(Object target, Method method, Object[] arguments) throws Throwable {
        try {
            return method.invoke(target, arguments);
        } catch (InvocationTargetException e) {
            throw e.getCause();
        }
    }

    private static <T> T proxy(Class<T> kind, Object target, InvocationHandler rest) {
        InvocationHandler handler = (proxy, method, arguments) -> {
            switch (method.getName()) {
                case "equals":
                    return proxy == arguments[0];
                case "hashCode":
                    return System.identityHashCode(proxy);
                case "unwrap":
                    return unwrap((Wrapper) target, (Class<?>) arguments[0]);
                case "isWrapperFor":
                    return ((Class<?>) arguments[0]).isInstance(target)
                            || ((Wrapper) target).isWrapperFor((Class<?>) arguments[0]);
                default:
                    return rest.invoke(proxy, method, arguments);
            }
        };
        return kind.cast(Proxy.newProxyInstance(Monitored.class.getClassLoader(), new Class<?>[] {kind}, handler));
    }

    private static Object unwrap(Wrapper target, Class<?> kind) throws SQLException {
        return kind.isInstance(target) ? target : target.unwrap(kind);
    }
}
