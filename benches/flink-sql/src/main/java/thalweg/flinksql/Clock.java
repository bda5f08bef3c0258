package thalweg.flinksql;

import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.util.concurrent.atomic.AtomicReference;

/**
 * What a run takes: seconds by the clock and seconds of processors, from the moment at which its first source starts.
 *
 * <p>Planning and the start of the cluster come before, so neither counts against Flink. The collector of garbage counts, since
 * it works for the query.
 */
final class Clock {
    private static final OperatingSystemMXBean SYSTEM =
            (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

    /** A point in time, both kinds in nanoseconds. */
    record Mark(long wallNanos, long processorNanos) {
        static Mark now() {
            return new Mark(System.nanoTime(), SYSTEM.getProcessCpuTime());
        }

        /** Seconds by the clock since an earlier mark. */
        double secondsSince(Mark earlier) {
            return (wallNanos - earlier.wallNanos) / 1e9;
        }

        /** Seconds of processors since an earlier mark. */
        double processorSecondsSince(Mark earlier) {
            return (processorNanos - earlier.processorNanos) / 1e9;
        }
    }

    private static final AtomicReference<Mark> STARTED = new AtomicReference<>();

    private Clock() {}

    /** Forgets the run before. */
    static void reset() {
        STARTED.set(null);
    }

    /** Called by every source; the first one counts. */
    static void sourceStarts() {
        if (STARTED.get() == null) {
            STARTED.compareAndSet(null, Mark.now());
        }
    }

    /** When the first source started. */
    static Mark started() {
        return STARTED.get();
    }
}
