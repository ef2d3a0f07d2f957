package board;

import java.io.BufferedWriter;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.locks.LockSupport;

/**
 * The event monitor of the application: three tab-separated files with a header line each.
 *
 * <p>A request thread only appends a string to a lock-free queue; one writer thread empties the queues
 * every 100 ms, so that a monitored request never waits for the disk.
 * Times are microseconds since the Unix epoch, UTC.
 */
final class EventLog implements AutoCloseable {
    private static final long FLUSH_NS = 100_000_000L;

    private final ConcurrentLinkedQueue<String> requests = new ConcurrentLinkedQueue<>();
    private final ConcurrentLinkedQueue<String> statements = new ConcurrentLinkedQueue<>();
    private final ConcurrentLinkedQueue<String> checkouts = new ConcurrentLinkedQueue<>();
    private final BufferedWriter requestFile;
    private final BufferedWriter statementFile;
    private final BufferedWriter checkoutFile;
    private final Thread writer;
    private volatile boolean closing;

    EventLog(Path folder) throws IOException {
        Files.createDirectories(folder);
        requestFile = open(folder.resolve("requests.tsv"),
                "request_id\tua_us\tud_us\tstatus\tworker\tinteraction");
        statementFile = open(folder.resolve("statements.tsv"),
                "request_id\tordinal\tds_us\tdr_us\tthread_id\tform");
        checkoutFile = open(folder.resolve("checkouts.tsv"),
                "request_id\tthread_id\tconnection\tborrow_us\treturn_us");
        writer = new Thread(this::drainUntilClosed, "event-log");
        writer.setDaemon(true);
        writer.start();
    }

    private static BufferedWriter open(Path file, String header) throws IOException {
        BufferedWriter out = Files.newBufferedWriter(file, StandardCharsets.UTF_8);
        out.write(header);
        out.write('\n');
        return out;
    }

    void request(String id, long uaUs, long udUs, int status, String worker, String interaction) {
        requests.add(id + '\t' + uaUs + '\t' + udUs + '\t' + status + '\t' + worker + '\t' + interaction);
    }

    void statement(String id, int ordinal, long dsUs, long drUs, long threadId, String form) {
        statements.add(id + '\t' + ordinal + '\t' + dsUs + '\t' + drUs + '\t' + threadId + '\t' + form);
    }

    void checkout(String id, Backend.Physical physical, long borrowUs, long returnUs) {
        checkouts.add(id + '\t' + physical.threadId() + '\t' + physical.name() + '\t' + borrowUs + '\t' + returnUs);
    }

    private void drainUntilClosed() {
        try {
            while (!closing) {
                LockSupport.parkNanos(FLUSH_NS);
                drain(requests, requestFile);
                drain(statements, statementFile);
                drain(checkouts, checkoutFile);
            }
        } catch (IOException e) {
            throw new IllegalStateException("event log cannot be written", e);
        }
    }

    private static void drain(ConcurrentLinkedQueue<String> lines, BufferedWriter out) throws IOException {
        boolean wrote = false;
        for (String line = lines.poll(); line != null; line = lines.poll()) {
            out.write(line);
            out.write('\n');
            wrote = true;
        }
        if (wrote) {
            out.flush();
        }
    }

    @Override
    public void close() throws IOException {
        closing = true;
        LockSupport.unpark(writer);
        boolean interrupted = false;
        while (writer.isAlive()) {
            try {
                writer.join();
            } catch (InterruptedException e) {
                interrupted = true;
            }
        }
        drain(requests, requestFile);
        drain(statements, statementFile);
        drain(checkouts, checkoutFile);
        requestFile.close();
        statementFile.close();
        checkoutFile.close();
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
    }
}
