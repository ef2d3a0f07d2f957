package board;

import java.time.Instant;

/** Wall clock in microseconds since the Unix epoch; the clock that the tap and the other servers stamp with. */
final class Clock {
    private Clock() {
    }

    static long nowUs() {
        Instant now = Instant.now();
        return now.getEpochSecond() * 1_000_000L + now.getNano() / 1_000L;
    }
}
