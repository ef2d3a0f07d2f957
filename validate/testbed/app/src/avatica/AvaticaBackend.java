package board;

import java.sql.Connection;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.calcite.avatica.AvaticaConnection;

/**
 * A database behind an Avatica server, which opens one connection of its own for each of its clients' connections.
 * The number of that connection is asked for once, so that the checkout log can name both.
 */
final class AvaticaBackend implements Backend {
    /** Never emptied: a pool opens few connections in the life of a testbed. */
    private final Map<Connection, Physical> known = new ConcurrentHashMap<>();

    @Override
    public Physical physical(Connection pooled) throws SQLException {
        AvaticaConnection connection = Backend.behind(pooled).unwrap(AvaticaConnection.class);
        Physical physical = known.get(connection);
        if (physical == null) {
            try (Statement statement = connection.createStatement();
                    ResultSet rows = statement.executeQuery("SELECT CONNECTION_ID()")) {
                rows.next();
                physical = new Physical(Backend.behind(pooled), connection.id, rows.getLong(1));
            }
            known.put(connection, physical);
        }
        return physical;
    }

    @Override
    public boolean keepsStatements() {
        return false;
    }

    @Override
    public boolean returnsKeys() {
        return false;
    }
}
