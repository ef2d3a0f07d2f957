package middle;

import java.sql.DriverManager;
import java.util.List;
import org.apache.calcite.avatica.jdbc.JdbcMeta;
import org.apache.calcite.avatica.remote.Driver;
import org.apache.calcite.avatica.remote.LocalService;
import org.apache.calcite.avatica.server.HttpServer;
import org.eclipse.jetty.server.Server;
import tapscope.agent.MonitoredServer;
import tapscope.agent.MonitoredService;

/** The JDBC middleware tier: java middle.Middleware json|protobuf PORT JDBC-URL USER PASSWORD, until it is ended. */
public final class Middleware {
    private Middleware() {
    }

    public static void main(String[] args) throws Exception {
        Driver.Serialization coding = Driver.Serialization.valueOf(args[0].toUpperCase());
        DriverManager.registerDriver(new Described());
        JdbcMeta meta = new JdbcMeta(args[2], args[3], args[4]);
        HttpServer server = new HttpServer.Builder<Server>()
                .withHandler(MonitoredService.of(new LocalService(meta)), coding)
                .withServerCustomizers(List.of(new MonitoredServer()), Server.class)
                .withPort(Integer.parseInt(args[1]))
                .build();
        server.start();
        System.out.println("Middleware ready");
        server.join();
    }
}
