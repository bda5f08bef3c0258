package thalweg.flinksql;

import java.util.Set;
import java.util.concurrent.atomic.LongAdder;
import org.apache.flink.api.connector.sink2.Sink;
import org.apache.flink.api.connector.sink2.SinkWriter;
import org.apache.flink.api.connector.sink2.WriterInitContext;
import org.apache.flink.configuration.ConfigOption;
import org.apache.flink.table.connector.ChangelogMode;
import org.apache.flink.table.connector.sink.DynamicTableSink;
import org.apache.flink.table.connector.sink.SinkV2Provider;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.factories.DynamicTableSinkFactory;
import org.apache.flink.types.RowKind;

/**
 * A table that counts what is written to it, and what is left once all changes are applied. For runs that check; those that are
 * timed write to Flink's {@code blackhole}, which also spares Flink the old forms of rows.
 */
final class CountTable implements DynamicTableSink {
    private static final LongAdder WRITTEN = new LongAdder();
    private static final LongAdder LEFT = new LongAdder();

    private CountTable() {}

    static void reset() {
        WRITTEN.reset();
        LEFT.reset();
    }

    /** Rows and changes of rows that came since {@link #reset}. */
    static long written() {
        return WRITTEN.sum();
    }

    /** Rows that are left of them. */
    static long left() {
        return LEFT.sum();
    }

    @Override
    public ChangelogMode getChangelogMode(ChangelogMode requested) {
        return requested;
    }

    @Override
    public SinkRuntimeProvider getSinkRuntimeProvider(Context context) {
        return SinkV2Provider.of(new CountSink());
    }

    @Override
    public DynamicTableSink copy() {
        return new CountTable();
    }

    @Override
    public String asSummaryString() {
        return "count";
    }

    private static final class CountSink implements Sink<RowData> {
        private static final long serialVersionUID = 1;

        @Override
        public SinkWriter<RowData> createWriter(WriterInitContext context) {
            return new CountWriter();
        }
    }

    private static final class CountWriter implements SinkWriter<RowData> {
        @Override
        public void write(RowData row, Context context) {
            RowKind kind = row.getRowKind();
            WRITTEN.increment();
            LEFT.add(kind == RowKind.INSERT || kind == RowKind.UPDATE_AFTER ? 1 : -1);
        }

        @Override
        public void flush(boolean isEnd) {}

        @Override
        public void close() {}
    }

    /** Makes such tables. */
    public static final class Factory implements DynamicTableSinkFactory {
        @Override
        public String factoryIdentifier() {
            return "count";
        }

        @Override
        public Set<ConfigOption<?>> requiredOptions() {
            return Set.of();
        }

        @Override
        public Set<ConfigOption<?>> optionalOptions() {
            return Set.of();
        }

        @Override
        public DynamicTableSink createDynamicTableSink(Context context) {
            return new CountTable();
        }
    }
}
