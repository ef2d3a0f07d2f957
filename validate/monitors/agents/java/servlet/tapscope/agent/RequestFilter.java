package tapscope.agent;

import jakarta.servlet.AsyncEvent;
import jakarta.servlet.AsyncListener;
import jakarta.servlet.Filter;
import jakarta.servlet.FilterChain;
import jakarta.servlet.ServletException;
import jakarta.servlet.ServletRequest;
import jakarta.servlet.ServletResponse;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;

/**
 * Logs when each request came to the application and went from it, into requests.tsv.
 *
 * <p>Its ID is the header X-Request-ID, else the request attribute UNIQUE_ID (AJP: {@code JkEnvVar UNIQUE_ID -}).
 * Departure is when the application is done; what the container still has in its buffer leaves a little later,
 * which its access log knows.
 */
public final class RequestFilter implements Filter {
    private final Recorder.Rows requests;

    RequestFilter() throws IOException {
        requests = Recorder.open("requests.tsv", "request_id", "ua_us", "ud_us", "status", "worker", "interaction");
    }

    @Override
    public void doFilter(ServletRequest request, ServletResponse response, FilterChain chain)
            throws IOException, ServletException {
        long arrivalUs = Clock.nowUs();
        HttpServletRequest http = (HttpServletRequest) request;
        Current current = Current.begin(identity(http), "");
        try {
            chain.doFilter(request, response);
        } finally {
            Current.end();
            if (request.isAsyncStarted()) {
                request.getAsyncContext().addListener(new AtEnd(current, arrivalUs, http, response));
            } else {
                log(current, arrivalUs, http, response);
            }
        }
    }

    private static String identity(HttpServletRequest request) {
        String header = request.getHeader("X-Request-ID");
        return header != null ? header : (String) request.getAttribute("UNIQUE_ID");
    }

    private void log(Current current, long arrivalUs, HttpServletRequest request, ServletResponse response) {
        String path = request.getPathInfo() != null ? request.getPathInfo() : request.getServletPath();
        requests.add(current.logged() + '\t' + arrivalUs + '\t' + Clock.nowUs() + '\t'
                + ((HttpServletResponse) response).getStatus() + '\t' + Thread.currentThread().getName() + '\t'
                + (path.isEmpty() ? "/" : path.replaceAll("[\\t\\r\\n]", " ")));
    }

    /** Logs a request that goes on after its thread. */
    private final class AtEnd implements AsyncListener {
        private final Current current;
        private final long arrivalUs;
        private final HttpServletRequest request;
        private final ServletResponse response;

        AtEnd(Current current, long arrivalUs, HttpServletRequest request, ServletResponse response) {
            this.current = current;
            this.arrivalUs = arrivalUs;
            this.request = request;
            this.response = response;
        }

        @Override
        public void onComplete(AsyncEvent event) {
            log(current, arrivalUs, request, response);
        }

        @Override
        public void onTimeout(AsyncEvent event) {
            // onComplete follows.
        }

        @Override
        public void onError(AsyncEvent event) {
            // onComplete follows.
        }

        @Override
        public void onStartAsync(AsyncEvent event) {
            event.getAsyncContext().addListener(this);
        }
    }
}
