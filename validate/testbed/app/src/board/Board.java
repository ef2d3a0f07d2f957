package board;

import jakarta.servlet.ServletContext;
import jakarta.servlet.ServletContextEvent;
import jakarta.servlet.ServletContextListener;
import javax.naming.InitialContext;
import javax.sql.DataSource;
import tapscope.agent.Recorder;

/** What all requests share: data source, settings, caches, checkout log. Made once when the application starts. */
public final class Board implements ServletContextListener {
    private static final String KEY = "board";

    private Pauses pauses;
    DataSource dataSource;
    /** Who had which pooled connection when: the testbed's own log, for the truth. Null when none is wanted. */
    Recorder.Rows checkouts;
    /** True: a connection is held until the request ends. False: it goes back after each group of statements. */
    boolean holdConnection;
    /** True: every statement is prepared once per connection and executed by number. */
    boolean allPrepared;
    Backend backend;
    /** Passes of the text formatter over each rendered piece; more passes, more CPU per page. */
    int work;
    final Cache<Long, String> nicks = new Cache<>(200, 3_000);
    final Cache<String, Row> sessions = new Cache<>(300, 10_000);
    final Cache<String, java.util.List<Row>> lists = new Cache<>(64, 5_000);

    static Board of(ServletContext context) {
        return (Board) context.getAttribute(KEY);
    }

    @Override
    public void contextInitialized(ServletContextEvent event) {
        ServletContext context = event.getServletContext();
        try {
            dataSource = (DataSource) new InitialContext().lookup("java:comp/env/jdbc/board");
            holdConnection = !"statement".equals(context.getInitParameter("pool-habit"));
            work = Integer.parseInt(context.getInitParameter("work"));
            allPrepared = "prepared".equals(context.getInitParameter("statements"));
            backend = (Backend) Class.forName("board." + context.getInitParameter("backend"))
                    .getDeclaredConstructor().newInstance();
            pauses = new Pauses(Integer.parseInt(context.getInitParameter("ballast-mib")),
                    Long.parseLong(context.getInitParameter("collect-every-ms")),
                    Long.parseLong(context.getInitParameter("collect-seed")));
            checkouts = Recorder.enabled() && Boolean.parseBoolean(context.getInitParameter("truth"))
                    ? Recorder.open("checkouts.tsv", "request_id", "thread_id", "connection", "borrow_us", "return_us")
                    : null;
        } catch (Exception e) {
            throw new IllegalStateException("board cannot start", e);
        }
        context.setAttribute(KEY, this);
    }

    @Override
    public void contextDestroyed(ServletContextEvent event) {
        pauses.close();
    }
}
