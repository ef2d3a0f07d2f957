package tapscope.agent;

import java.io.IOException;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.util.List;
import java.util.concurrent.atomic.AtomicLong;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.calcite.avatica.remote.Service;
import org.apache.calcite.avatica.remote.TypedValue;

/**
 * Logs every remote call of an Avatica server into rpc.tsv:
 * {@code withHandler(MonitoredService.of(new LocalService(meta)), coding)}.
 *
 * <p>The request ID is the comment of the call's SQL text, else a bound string that looks like an ID: a UUID, or
 * 32 hexadecimal digits. Calls that have neither (open, fetch, close, commit) are logged without.
 */
public final class MonitoredService {
    private static final Pattern COMMENT = Pattern.compile("/\\*\\s*ID=([^*\\s]+)\\s*\\*/");
    private static final Pattern BOUND =
            Pattern.compile("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[0-9a-f]{32}");
    private static final AtomicLong CALLS = new AtomicLong();

    private MonitoredService() {
    }

    /** The service, logged; the service itself where the agent is switched off. */
    public static Service of(Service inner) throws IOException {
        if (!Recorder.enabled()) {
            return inner;
        }
        Monitored.moreColumns = "\trpc";
        Recorder.Rows calls = Recorder.open("rpc.tsv", "request_id", "ua_us", "ud_us", "connection", "rpc", "ds_us",
                "dr_us", "number");
        return (Service) Proxy.newProxyInstance(MonitoredService.class.getClassLoader(), new Class<?>[] {Service.class},
                (proxy, method, arguments) -> {
                    if (!method.getName().equals("apply")) {
                        return call(inner, method, arguments);
                    }
                    long arrivalUs = Clock.nowUs();
                    long number = CALLS.incrementAndGet();
                    Current current = Current.begin(identity(arguments[0]), "\t" + number);
                    try {
                        return call(inner, method, arguments);
                    } finally {
                        Current.end();
                        calls.add(current.logged() + '\t' + arrivalUs + '\t' + Clock.nowUs() + '\t'
                                + connection(arguments[0]) + '\t' + name(arguments[0]) + '\t' + current.firstUs() + '\t'
                                + current.lastUs() + '\t' + number);
                    }
                });
    }

    private static Object call(Object target, java.lang.reflect.Method method, Object[] arguments) throws Throwable {
        try {
            return method.invoke(target, arguments);
        } catch (InvocationTargetException e) {
            throw e.getCause();
        }
    }

    private static String name(Object request) {
        String name = request.getClass().getSimpleName().replace("Request", "");
        return Character.toLowerCase(name.charAt(0)) + name.substring(1);
    }

    private static String identity(Object request) {
        if (request instanceof Service.PrepareAndExecuteRequest) {
            return inText(((Service.PrepareAndExecuteRequest) request).sql);
        }
        if (request instanceof Service.PrepareRequest) {
            return inText(((Service.PrepareRequest) request).sql);
        }
        if (request instanceof Service.ExecuteRequest) {
            return inValues(((Service.ExecuteRequest) request).parameterValues);
        }
        return null;
    }

    private static String inText(String sql) {
        Matcher found = COMMENT.matcher(sql);
        return found.find() ? found.group(1) : null;
    }

    private static String inValues(List<TypedValue> values) {
        if (values != null) {
            for (TypedValue value : values) {
                if (value != null && value.value instanceof String && BOUND.matcher((String) value.value).matches()) {
                    return (String) value.value;
                }
            }
        }
        return null;
    }

    private static String connection(Object request) {
        if (request instanceof Service.PrepareAndExecuteRequest) {
            return ((Service.PrepareAndExecuteRequest) request).connectionId;
        }
        if (request instanceof Service.PrepareRequest) {
            return ((Service.PrepareRequest) request).connectionId;
        }
        if (request instanceof Service.ExecuteRequest) {
            return ((Service.ExecuteRequest) request).statementHandle.connectionId;
        }
        if (request instanceof Service.FetchRequest) {
            return ((Service.FetchRequest) request).connectionId;
        }
        return "-";
    }
}
