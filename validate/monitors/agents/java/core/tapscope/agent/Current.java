package tapscope.agent;

import java.util.regex.Pattern;

/** The request that the current thread serves. */
public final class Current {
    /** What may stand in an SQL comment: nothing that could end it. */
    private static final Pattern SAFE = Pattern.compile("[A-Za-z0-9_.:@-]{1,128}");
    private static final ThreadLocal<Current> NOW = new ThreadLocal<>();

    private final String id;
    private final String more;
    private int ordinal;
    private long firstUs = -1;
    private long lastUs = -1;

    private Current(String id, String more) {
        this.id = id;
        this.more = more;
    }

    /**
     * Begins a request on this thread.
     *
     * @param id its request ID, null if it has none
     * @param more further columns of its rows in statements.tsv, each with a tab in front
     */
    public static Current begin(String id, String more) {
        Current current = new Current(id != null && SAFE.matcher(id).matches() ? id : null, more);
        NOW.set(current);
        return current;
    }

    /** Ends the request of this thread. */
    public static void end() {
        NOW.remove();
    }

    /** The request of this thread, or null. */
    static Current now() {
        return NOW.get();
    }

    /** Its ID as a log has it: a dash for none. */
    public String logged() {
        return id == null ? "-" : id;
    }

    /** What is put behind the text of a statement. */
    String comment() {
        return id == null ? "" : " /*ID=" + id + "*/";
    }

    /** The row of one statement in statements.tsv. */
    String row(long sentUs, long receivedUs, long connection, String form) {
        if (firstUs < 0) {
            firstUs = sentUs;
        }
        lastUs = receivedUs;
        return logged() + '\t' + ordinal++ + '\t' + sentUs + '\t' + receivedUs + '\t' + connection + '\t' + form + more;
    }

    /** When the first statement was sent; -1 if there was none. */
    public long firstUs() {
        return firstUs;
    }

    /** When the last statement was answered; -1 if there was none. */
    public long lastUs() {
        return lastUs;
    }
}
