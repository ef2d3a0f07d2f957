package tapscope.agent;

import java.sql.Connection;
import java.sql.Driver;
import java.sql.DriverManager;
import java.sql.DriverPropertyInfo;
import java.sql.SQLException;
import java.util.Properties;
import java.util.ServiceLoader;
import java.util.logging.Logger;

/**
 * JDBC driver {@code jdbc:tapscope:REST}: the driver of {@code jdbc:REST}, every statement timed and named.
 *
 * <p>With the agent switched off the connections are those of the other driver, untouched.
 */
public final class MonitoredDriver implements Driver {
    private static final String PREFIX = "jdbc:tapscope:";

    static {
        try {
            DriverManager.registerDriver(new MonitoredDriver());
        } catch (SQLException e) {
            throw new ExceptionInInitializerError(e);
        }
    }

    @Override
    public Connection connect(String url, Properties info) throws SQLException {
        if (!acceptsURL(url)) {
            return null;
        }
        String rest = "jdbc:" + url.substring(PREFIX.length());
        Connection connection = driver(rest).connect(rest, info);
        return connection == null || !Recorder.enabled() ? connection : Monitored.connection(connection);
    }

    /** The driver of a URL: from the application's libraries, else a registered one. */
    private static Driver driver(String url) throws SQLException {
        for (Driver driver : ServiceLoader.load(Driver.class, Thread.currentThread().getContextClassLoader())) {
            if (driver.acceptsURL(url)) {
                return driver;
            }
        }
        return DriverManager.getDriver(url);
    }

    @Override
    public boolean acceptsURL(String url) {
        return url != null && url.startsWith(PREFIX);
    }

    @Override
    public DriverPropertyInfo[] getPropertyInfo(String url, Properties info) throws SQLException {
        String rest = "jdbc:" + url.substring(PREFIX.length());
        return driver(rest).getPropertyInfo(rest, info);
    }

    @Override
    public int getMajorVersion() {
        return 1;
    }

    @Override
    public int getMinorVersion() {
        return 0;
    }

    @Override
    public boolean jdbcCompliant() {
        return false;
    }

    @Override
    public Logger getParentLogger() {
        return Logger.getLogger("tapscope.agent");
    }
}
