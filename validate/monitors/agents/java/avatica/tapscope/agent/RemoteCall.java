package tapscope.agent;

import java.io.IOException;
import java.util.List;
import java.util.concurrent.atomic.AtomicLong;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.calcite.avatica.remote.Service;
import org.apache.calcite.avatica.remote.TypedValue;

/** One remote call that an Avatica server answers on the current thread: a row of rpc.tsv. */
final class RemoteCall {
    private static final Pattern COMMENT = Pattern.compile("/\\*\\s*ID=([^*\\s]+)\\s*\\*/");
    private static final Pattern BOUND =
            Pattern.compile("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[0-9a-f]{32}");
    private static final AtomicLong CALLS = new AtomicLong();
    private static final ThreadLocal<RemoteCall> NOW = new ThreadLocal<>();

    /** Opened with the first call. */
    private static final class Log {
        static final Recorder.Rows CALLS = open();

        private static Recorder.Rows open() {
            try {
                return Recorder.open("rpc.tsv", "request_id", "ua_us", "ud_us", "connection", "rpc", "ds_us", "dr_us",
                        "number");
            } catch (IOException e) {
                throw new IllegalStateException("the agent cannot write its log", e);
            }
        }
    }

    private final long arrivalUs = Clock.nowUs();
    private final long number = CALLS.incrementAndGet();
    private Current current;
    private String name;
    private String connection;

    private RemoteCall() {
    }

    /** The call of this thread, or null. */
    static RemoteCall now() {
        return NOW.get();
    }

    static RemoteCall begin() {
        RemoteCall call = new RemoteCall();
        NOW.set(call);
        return call;
    }

    /** The decoded request: from here on statements are sent for it. */
    void serves(Object request) {
        String simple = request.getClass().getSimpleName().replace("Request", "");
        name = Character.toLowerCase(simple.charAt(0)) + simple.substring(1);
        connection = connection(request);
        current = Current.begin(identity(request), "\t" + number);
    }

    /** Logs the call, if it was one. */
    void end() {
        NOW.remove();
        if (current != null) {
            Log.CALLS.add(current.logged() + '\t' + arrivalUs + '\t' + Clock.nowUs() + '\t' + connection + '\t' + name
                    + '\t' + current.firstUs() + '\t' + current.lastUs() + '\t' + number);
        }
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
