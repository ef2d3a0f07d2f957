package board;

import java.sql.Connection;
import java.sql.SQLException;
import javax.sql.PooledConnection;

/** What the drivers do differently: how a pooled connection is told apart from others, and what it cannot do. */
interface Backend {
    /**
     * The connection behind a pooled one.
     *
     * @param key the driver's own connection; what is remembered per connection hangs on it
     * @param name its name on the wire between application and next tier
     * @param threadId MariaDB's number of the connection that does the work
     */
    record Physical(Object key, String name, long threadId) {
    }

    Physical physical(Connection pooled) throws SQLException;

    /** What the pool has its connection from: the driver's, or the agent's around it. The pool unwraps no further. */
    static Connection behind(Connection pooled) throws SQLException {
        return ((PooledConnection) pooled).getConnection();
    }

    /** Whether the driver keeps prepared statements by their text, so that preparing again costs nothing. */
    boolean keepsStatements();

    /** Whether an INSERT can return the key it made without another statement. */
    boolean returnsKeys();
}
