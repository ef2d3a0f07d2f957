package board;

import java.sql.Connection;
import java.sql.SQLException;

/** What the drivers do differently: how a pooled connection is told apart from others, and what it cannot do. */
interface Backend {
    /**
     * The connection behind a pooled one.
     *
     * @param key what is remembered per connection hangs on this object
     * @param name its name on the wire between application and next tier
     * @param threadId MariaDB's number of the connection that does the work
     */
    record Physical(Object key, String name, long threadId) {
    }

    Physical physical(Connection pooled) throws SQLException;

    /** Whether an INSERT can return the key it made without another statement. */
    boolean returnsKeys();
}
