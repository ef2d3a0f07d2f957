package board;

import jakarta.servlet.Filter;
import jakarta.servlet.FilterChain;
import jakarta.servlet.ServletException;
import jakarta.servlet.ServletRequest;
import jakarta.servlet.ServletResponse;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;

/** Logs upstream arrival and upstream departure of every request with microsecond precision. */
public final class MonitorFilter implements Filter {
    @Override
    public void doFilter(ServletRequest request, ServletResponse response, FilterChain chain)
            throws IOException, ServletException {
        Board board = Board.of(request.getServletContext());
        EventLog events = board.events;
        if (events == null) {
            chain.doFilter(request, response);
            return;
        }
        long uaUs = Clock.nowUs();
        HttpServletRequest http = (HttpServletRequest) request;
        String id = http.getHeader("X-Request-ID");
        try {
            chain.doFilter(request, response);
            // Not after a failure: what is flushed then would be an answer of status 200 without an end.
            response.flushBuffer();
        } finally {
            String interaction = http.getPathInfo() == null ? "/" : http.getPathInfo();
            events.request(id == null ? "-" : id, uaUs, Clock.nowUs(),
                    ((HttpServletResponse) response).getStatus(), Thread.currentThread().getName(), interaction);
        }
    }
}
