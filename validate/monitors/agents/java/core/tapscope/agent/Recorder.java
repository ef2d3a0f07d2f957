package tapscope.agent;

import java.io.BufferedWriter;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;

/**
 * The logs of the agent: tab-separated files with a header line, in one folder.
 *
 * <p>The folder is the system property {@code tapscope.events}; without it, {@code logs/tapscope} below Tomcat's
 * {@code catalina.base}. An empty property switches the agent off. A request thread only puts a row into a bounded
 * queue and never waits: what does not fit is lost, and a line {@code #lost N} says so where it was. One thread
 * writes every 100 ms; what is left is written when the JVM ends.
 */
public final class Recorder {
    private static final int CAPACITY = 1 << 16;
    private static final long PAUSE_NS = 100_000_000L;
    private static final List<Rows> OPEN = new ArrayList<>();
    private static final Path FOLDER = folder();

    private Recorder() {
    }

    private static Path folder() {
        String told = System.getProperty("tapscope.events");
        String base = System.getProperty("catalina.base");
        if (told == null && base != null) {
            return Path.of(base, "logs", "tapscope");
        }
        return told == null || told.isEmpty() ? null : Path.of(told);
    }

    /** Whether anything is to be logged. */
    public static boolean enabled() {
        return FOLDER != null;
    }

    /**
     * A file of the folder; new rows go to its end.
     *
     * @param columns names for the header line, which a file that is not empty has already
     * @throws IOException if it cannot be written
     */
    public static Rows open(String name, String... columns) throws IOException {
        if (FOLDER == null) {
            throw new IOException("the agent is switched off: -Dtapscope.events is empty");
        }
        Files.createDirectories(FOLDER);
        Path file = FOLDER.resolve(name);
        boolean fresh = !Files.exists(file) || Files.size(file) == 0;
        BufferedWriter out = Files.newBufferedWriter(file, StandardCharsets.UTF_8, StandardOpenOption.CREATE,
                StandardOpenOption.APPEND);
        if (fresh) {
            out.write(String.join("\t", columns));
            out.write('\n');
            out.flush();
        }
        Rows rows = new Rows(out);
        synchronized (OPEN) {
            if (OPEN.isEmpty()) {
                start();
            }
            OPEN.add(rows);
        }
        return rows;
    }

    private static void start() {
        Thread writer = new Thread(Recorder::writeForEver, "tapscope-agent");
        writer.setDaemon(true);
        writer.setContextClassLoader(null);
        writer.start();
        Runtime.getRuntime().addShutdownHook(new Thread(Recorder::writeOut, "tapscope-agent-end"));
    }

    private static void writeForEver() {
        while (true) {
            LockSupport.parkNanos(PAUSE_NS);
            writeOut();
        }
    }

    private static void writeOut() {
        synchronized (OPEN) {
            for (Rows rows : OPEN) {
                rows.writeOut();
            }
        }
    }

    /** One file. */
    public static final class Rows {
        private final ConcurrentLinkedQueue<String> waiting = new ConcurrentLinkedQueue<>();
        private final AtomicInteger length = new AtomicInteger();
        private final AtomicLong lost = new AtomicLong();
        private final List<String> taken = new ArrayList<>();
        private final BufferedWriter out;

        private Rows(BufferedWriter out) {
            this.out = out;
        }

        /** Adds a row; never waits. */
        public void add(String row) {
            if (length.incrementAndGet() > CAPACITY) {
                length.decrementAndGet();
                lost.incrementAndGet();
            } else {
                waiting.add(row);
            }
        }

        private void writeOut() {
            for (String row = waiting.poll(); row != null; row = taken.size() < CAPACITY ? waiting.poll() : null) {
                taken.add(row);
            }
            length.addAndGet(-taken.size());
            long gone = lost.getAndSet(0);
            try {
                for (String row : taken) {
                    out.write(row);
                    out.write('\n');
                }
                if (gone > 0) {
                    out.write("#lost " + gone + '\n');
                }
                if (gone > 0 || !taken.isEmpty()) {
                    out.flush();
                }
            } catch (IOException e) {
                // A full disk must not end the server; the next line that can be written tells of it.
                lost.addAndGet(gone + taken.size());
            }
            taken.clear();
        }
    }
}
