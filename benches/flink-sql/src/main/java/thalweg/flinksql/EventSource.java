package thalweg.flinksql;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.apache.flink.api.connector.source.Boundedness;
import org.apache.flink.api.connector.source.ReaderOutput;
import org.apache.flink.api.connector.source.Source;
import org.apache.flink.api.connector.source.SourceReader;
import org.apache.flink.api.connector.source.SourceReaderContext;
import org.apache.flink.api.connector.source.SourceSplit;
import org.apache.flink.api.connector.source.SplitEnumerator;
import org.apache.flink.api.connector.source.SplitEnumeratorContext;
import org.apache.flink.core.io.InputStatus;
import org.apache.flink.core.io.SimpleVersionedSerializer;
import org.apache.flink.table.data.RowData;

/**
 * A bounded source that hands out rows from memory: of P readers number i gives rows i, i + P, i + 2 P and so on, so that event
 * time advances alike in all.
 *
 * <p>There are no checkpoints, so it can't be restored.
 */
final class EventSource implements Source<RowData, EventSource.Share, Void> {
    private static final long serialVersionUID = 1;

    /** Rows that a reader gives between two looks at its mailbox; Flink looks after each call. */
    private static final int ROWS_PER_POLL = 64;

    private final String events;

    /** Of the rows that {@link Events#load} calls by this name. */
    EventSource(String events) {
        this.events = events;
    }

    /** Every {@code step}-th row, from {@code first} on. */
    record Share(int first, int step) implements SourceSplit {
        @Override
        public String splitId() {
            return first + " of " + step;
        }
    }

    @Override
    public Boundedness getBoundedness() {
        return Boundedness.BOUNDED;
    }

    @Override
    public SourceReader<RowData, Share> createReader(SourceReaderContext context) {
        return new Reader(Events.rows(events));
    }

    @Override
    public SplitEnumerator<Share, Void> createEnumerator(SplitEnumeratorContext<Share> context) {
        return new Shares(context);
    }

    @Override
    public SplitEnumerator<Share, Void> restoreEnumerator(SplitEnumeratorContext<Share> context, Void state) {
        throw new UnsupportedOperationException("there are no checkpoints");
    }

    @Override
    public SimpleVersionedSerializer<Share> getSplitSerializer() {
        return new ShareSerializer();
    }

    @Override
    public SimpleVersionedSerializer<Void> getEnumeratorCheckpointSerializer() {
        return new NothingSerializer();
    }

    private static final class Reader implements SourceReader<RowData, Share> {
        private final RowData[] rows;
        private final List<Share> shares = new ArrayList<>();
        private CompletableFuture<Void> available = new CompletableFuture<>();
        private int next;

        Reader(RowData[] rows) {
            this.rows = rows;
        }

        @Override
        public void start() {
            Clock.sourceStarts();
        }

        @Override
        public InputStatus pollNext(ReaderOutput<RowData> output) {
            if (shares.isEmpty()) {
                return InputStatus.NOTHING_AVAILABLE;
            }
            int step = shares.get(0).step();
            int given = 0;
            while (given < ROWS_PER_POLL && next < rows.length) {
                output.collect(rows[next]);
                next += step;
                given++;
            }
            Events.countRead(given);
            return next < rows.length ? InputStatus.MORE_AVAILABLE : InputStatus.END_OF_INPUT;
        }

        @Override
        public void addSplits(List<Share> added) {
            shares.addAll(added);
            next = shares.get(0).first();
            available.complete(null);
        }

        @Override
        public CompletableFuture<Void> isAvailable() {
            return available;
        }

        @Override
        public List<Share> snapshotState(long checkpoint) {
            throw new UnsupportedOperationException("there are no checkpoints");
        }

        @Override
        public void notifyNoMoreSplits() {}

        @Override
        public void close() {}
    }

    /** Gives each reader its share. */
    private record Shares(SplitEnumeratorContext<Share> context) implements SplitEnumerator<Share, Void> {
        @Override
        public void addReader(int reader) {
            context.assignSplit(new Share(reader, context.currentParallelism()), reader);
            context.signalNoMoreSplits(reader);
        }

        @Override
        public void start() {}

        @Override
        public void handleSplitRequest(int reader, String host) {}

        @Override
        public void addSplitsBack(List<Share> shares, int reader) {
            throw new UnsupportedOperationException("a reader has failed");
        }

        @Override
        public Void snapshotState(long checkpoint) {
            return null;
        }

        @Override
        public void close() {}
    }

    private static final class ShareSerializer implements SimpleVersionedSerializer<Share> {
        @Override
        public int getVersion() {
            return 1;
        }

        @Override
        public byte[] serialize(Share share) {
            return ByteBuffer.allocate(2 * Integer.BYTES).putInt(share.first()).putInt(share.step()).array();
        }

        @Override
        public Share deserialize(int version, byte[] bytes) {
            ByteBuffer buffer = ByteBuffer.wrap(bytes);
            return new Share(buffer.getInt(), buffer.getInt());
        }
    }

    private static final class NothingSerializer implements SimpleVersionedSerializer<Void> {
        @Override
        public int getVersion() {
            return 1;
        }

        @Override
        public byte[] serialize(Void nothing) {
            return new byte[0];
        }

        @Override
        public Void deserialize(int version, byte[] bytes) {
            return null;
        }
    }
}
