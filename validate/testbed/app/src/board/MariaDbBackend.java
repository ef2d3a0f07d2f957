package board;

import java.sql.Connection;
import java.sql.SQLException;
import org.mariadb.jdbc.MariaDbConnection;

/** The database itself, by its own protocol. */
final class MariaDbBackend implements Backend {
    @Override
    public Physical physical(Connection pooled) throws SQLException {
        MariaDbConnection connection = Backend.behind(pooled).unwrap(MariaDbConnection.class);
        long threadId = connection.getServerThreadId();
        return new Physical(connection, Long.toString(threadId), threadId);
    }

    @Override
    public boolean keepsStatements() {
        return true;
    }

    @Override
    public boolean returnsKeys() {
        return true;
    }
}
