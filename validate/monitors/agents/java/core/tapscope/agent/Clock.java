package tapscope.agent;

import java.time.Instant;

/** Wall clock in microseconds since the Unix epoch, UTC: what all event monitors stamp with. */
public final class Clock {
    private Clock() {
    }

    public static long nowUs() {
        Instant now = Instant.now();
        return now.getEpochSecond() * 1_000_000L + now.getNano() / 1_000L;
    }
}
