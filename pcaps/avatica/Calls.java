// Serves HSQLDB by an Avatica server and makes every kind of call to it: java Calls json|protobuf PORT
import java.sql.Connection;
import java.sql.Date;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.sql.Types;
import org.apache.calcite.avatica.jdbc.JdbcMeta;
import org.apache.calcite.avatica.remote.Driver;
import org.apache.calcite.avatica.remote.LocalService;
import org.apache.calcite.avatica.server.HttpServer;

public final class Calls {
    public static void main(String[] args) throws Exception {
        String coding = args[0];
        int port = Integer.parseInt(args[1]);
        JdbcMeta meta = new JdbcMeta("jdbc:hsqldb:mem:board;sql.syntax_mys=true", "SA", "");
        HttpServer server = new HttpServer.Builder<>()
            .withHandler(new LocalService(meta), Driver.Serialization.valueOf(coding.toUpperCase()))
            .withPort(port)
            .build();
        server.start();
        String url = "jdbc:avatica:remote:url=http://127.0.0.1:" + port + "/;serialization=" + coding;
        try (Connection connection = DriverManager.getConnection(url)) {
            calls(connection);
        }
        server.stop();
    }

    static void calls(Connection connection) throws SQLException {
        try (Statement statement = connection.createStatement()) {
            statement.executeUpdate("CREATE TABLE story(id INT PRIMARY KEY, title VARCHAR(200), votes BIGINT, "
                + "score DOUBLE, open BOOLEAN, posted DATE, body VARBINARY(100))");
            statement.executeUpdate("INSERT INTO story(id, title) VALUES(42, 'it''s \u00e9\u4e2d\ud83d\ude00')");
            count(statement.executeQuery("SELECT id, title FROM story WHERE id = 42 /*ID=s42*/"));
            statement.addBatch("INSERT INTO story(id, title) VALUES(43, 'a')");
            statement.addBatch("INSERT INTO story(id, title) VALUES(44, 'b \"quoted\" \\ back')");
            statement.executeBatch();
            statement.addBatch("UPDATE story SET votes = 1 WHERE id = 43");
            statement.addBatch("DELETE FROM story WHERE id = 44");
            statement.executeBatch();
            try {
                statement.executeQuery("SELECT nope FROM story");
                throw new IllegalStateException("no error");
            } catch (SQLException expected) {
                // that is the point
            }
        }
        String insert = "INSERT INTO story(id, title, votes, score, open, posted, body) VALUES(?, ?, ?, ?, ?, ?, ?)";
        try (PreparedStatement prepared = connection.prepareStatement(insert)) {
            values(prepared, 45, "prepared", 2);
            prepared.executeUpdate();
            prepared.setInt(1, 46);
            prepared.setNull(2, Types.VARCHAR);
            prepared.executeUpdate();
            for (int i = 1000; i < 1350; i++) {
                values(prepared, i, "story " + i + " " + "x".repeat(i % 150), i);
                prepared.addBatch();
                if (i % 50 == 49) {
                    prepared.executeBatch();
                }
            }
        }
        try (PreparedStatement prepared = connection.prepareStatement("SELECT title, votes FROM story WHERE id = ?")) {
            for (int id : new int[] {42, 45, 1001, 7}) {
                prepared.setInt(1, id);
                count(prepared.executeQuery());
            }
        }
        connection.setAutoCommit(false);
        try (Statement statement = connection.createStatement()) {
            statement.executeUpdate("UPDATE story SET votes = 99 WHERE id = 45");
            connection.commit();
            statement.executeUpdate("UPDATE story SET votes = -1 WHERE id = 45");
            connection.rollback();
            count(statement.executeQuery("SELECT id, title, votes FROM story WHERE id >= 1000 ORDER BY id"));
        }
        connection.setAutoCommit(true);
        count(connection.getMetaData().getTables(null, null, "STORY", new String[] {"TABLE"}));
        count(connection.getMetaData().getColumns(null, null, "STORY", "%"));
        count(connection.getMetaData().getCatalogs());
        count(connection.getMetaData().getSchemas());
        count(connection.getMetaData().getTableTypes());
        count(connection.getMetaData().getTypeInfo());
        connection.getMetaData().getDatabaseProductName();
    }

    static void values(PreparedStatement prepared, int id, String title, long votes) throws SQLException {
        prepared.setInt(1, id);
        prepared.setString(2, title);
        prepared.setLong(3, votes);
        prepared.setDouble(4, votes / 4.0);
        prepared.setBoolean(5, votes % 2 == 0);
        prepared.setDate(6, Date.valueOf("2024-02-29"));
        prepared.setBytes(7, new byte[] {1, 2, (byte) id});
    }

    static int count(ResultSet rows) throws SQLException {
        int n = 0;
        while (rows.next()) {
            n++;
        }
        rows.close();
        return n;
    }
}
