package middle;

import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.sql.Connection;
import java.sql.Driver;
import java.sql.DriverPropertyInfo;
import java.sql.ParameterMetaData;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.sql.SQLFeatureNotSupportedException;
import java.sql.Types;
import java.util.Properties;
import java.util.logging.Logger;

/**
 * MariaDB's driver, under jdbc:described:mariadb:, with prepared statements that describe their parameters.
 *
 * <p>Avatica asks for the type of each parameter of a statement it prepares. MariaDB's server does not know it before
 * execution, and its driver refuses to answer; here every parameter of an unknown type is a string, which the server
 * converts. Nothing else of the driver changes, and nothing on the wire.
 */
final class Described implements Driver {
    static final String PREFIX = "jdbc:described:";

    private final Driver inner = new org.mariadb.jdbc.Driver();

    @Override
    public Connection connect(String url, Properties info) throws SQLException {
        if (!acceptsURL(url)) {
            return null;
        }
        return (Connection) wrap(Connection.class, inner.connect("jdbc:" + url.substring(PREFIX.length()), info));
    }

    @Override
    public boolean acceptsURL(String url) {
        return url.startsWith(PREFIX);
    }

    private static Object wrap(Class<?> kind, Object target) {
        InvocationHandler handler = (proxy, method, arguments) -> {
            Object result;
            try {
                result = method.invoke(target, arguments);
            } catch (InvocationTargetException e) {
                if (kind == ParameterMetaData.class && e.getCause() instanceof SQLFeatureNotSupportedException) {
                    return unknown(method.getName());
                }
                throw e.getCause();
            }
            if (result instanceof PreparedStatement && kind == Connection.class) {
                return wrap(PreparedStatement.class, result);
            }
            return result instanceof ParameterMetaData ? wrap(ParameterMetaData.class, result) : result;
        };
        return Proxy.newProxyInstance(Described.class.getClassLoader(), new Class<?>[] {kind}, handler);
    }

    private static Object unknown(String question) {
        return switch (question) {
            case "getParameterType" -> Types.VARCHAR;
            case "getParameterTypeName" -> "VARCHAR";
            case "getParameterClassName" -> "java.lang.String";
            case "isSigned" -> true;
            default -> 0;
        };
    }

    @Override
    public DriverPropertyInfo[] getPropertyInfo(String url, Properties info) {
        return new DriverPropertyInfo[0];
    }

    @Override
    public int getMajorVersion() {
        return inner.getMajorVersion();
    }

    @Override
    public int getMinorVersion() {
        return inner.getMinorVersion();
    }

    @Override
    public boolean jdbcCompliant() {
        return false;
    }

    @Override
    public Logger getParentLogger() throws SQLFeatureNotSupportedException {
        return inner.getParentLogger();
    }
}
