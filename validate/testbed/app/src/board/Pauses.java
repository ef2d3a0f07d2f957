package board;

import java.util.Random;

/**
 * Stop-the-world pauses on demand: a full garbage collection at random moments, over live objects that make it last.
 * A full collection marks and moves every live object, so its length grows with their number, not with the garbage.
 */
final class Pauses implements AutoCloseable {
    private static final int OBJECT_BYTES = 64;

    /** Alive until the application ends. */
    private final Object[] ballast;
    private final Thread thread;

    /** everyMs: mean time between two collections, half of it at least and an exponential time on top; 0: none. */
    Pauses(int ballastMib, long everyMs, long seed) {
        ballast = new Object[ballastMib * (1 << 20) / OBJECT_BYTES];
        for (int i = 0; i < ballast.length; i++) {
            // 16 bytes of header and length, and as many bytes of content as fill it up.
            ballast[i] = new byte[OBJECT_BYTES - 16];
        }
        if (everyMs == 0) {
            thread = null;
            return;
        }
        thread = new Thread(() -> collectAgainAndAgain(everyMs, seed), "pauses");
        thread.setDaemon(true);
        thread.start();
    }

    private static void collectAgainAndAgain(long everyMs, long seed) {
        Random random = new Random(seed);
        try {
            while (true) {
                Thread.sleep((long) ((1 - Math.log(1 - random.nextDouble())) * everyMs / 2));
                System.gc();
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    @Override
    public void close() {
        if (thread != null) {
            thread.interrupt();
        }
    }
}
