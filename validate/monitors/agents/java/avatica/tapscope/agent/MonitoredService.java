package tapscope.agent;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import org.apache.calcite.avatica.remote.Service;

/**
 * Logs every remote call of an Avatica server into rpc.tsv:
 * {@code withHandler(MonitoredService.of(new LocalService(meta)), coding)}.
 *
 * <p>The request ID is the comment of the call's SQL text, else a bound string that looks like an ID: a UUID, or
 * 32 hexadecimal digits. Calls that have neither (open, fetch, close, commit) are logged without. Alone, it stamps
 * the decoded request and the answer before it is coded; with {@link MonitoredServer} the HTTP request and its answer.
 */
public final class MonitoredService {
    private MonitoredService() {
    }

    /** The service, logged; the service itself where the agent is switched off. */
    public static Service of(Service inner) {
        if (!Recorder.enabled()) {
            return inner;
        }
        Monitored.moreColumns = "\trpc";
        return (Service) Proxy.newProxyInstance(MonitoredService.class.getClassLoader(), new Class<?>[] {Service.class},
                (proxy, method, arguments) -> method.getName().equals("apply")
                        ? served(inner, method, arguments) : call(inner, method, arguments));
    }

    private static Object served(Service inner, Method method, Object[] arguments) throws Throwable {
        RemoteCall outer = RemoteCall.now();
        RemoteCall call = outer == null ? RemoteCall.begin() : outer;
        call.serves(arguments[0]);
        try {
            return call(inner, method, arguments);
        } finally {
            Current.end();
            if (outer == null) {
                call.end();
            }
        }
    }

    private static Object call(Object target, Method method, Object[] arguments) throws Throwable {
        try {
            return method.invoke(target, arguments);
        } catch (InvocationTargetException e) {
            throw e.getCause();
        }
    }
}
