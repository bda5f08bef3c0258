package thalweg.flinksql;

import java.util.List;
import java.util.Set;
import org.apache.flink.configuration.ConfigOption;
import org.apache.flink.configuration.ConfigOptions;
import org.apache.flink.table.connector.ChangelogMode;
import org.apache.flink.table.connector.source.DynamicTableSource;
import org.apache.flink.table.connector.source.ScanTableSource;
import org.apache.flink.table.connector.source.SourceProvider;
import org.apache.flink.table.connector.source.abilities.SupportsProjectionPushDown;
import org.apache.flink.table.factories.DynamicTableSourceFactory;
import org.apache.flink.table.factories.FactoryUtil;
import org.apache.flink.table.types.DataType;

/**
 * A table of events, which the queries declare with connector {@code nexmark}. Like the engine's it brings only the columns that
 * a query reads. Watermarks are those of the declaration; Flink makes them behind the source.
 */
final class EventTable implements ScanTableSource, SupportsProjectionPushDown {
    private final String folder;
    private final String kind;
    private List<String> columns;

    private EventTable(String folder, String kind, List<String> columns) {
        this.folder = folder;
        this.kind = kind;
        this.columns = columns;
    }

    @Override
    public boolean supportsNestedProjection() {
        return false;
    }

    @Override
    public void applyProjection(int[][] projected, DataType produced) {
        columns = DataType.getFieldNames(produced);
    }

    @Override
    public ChangelogMode getChangelogMode() {
        return ChangelogMode.insertOnly();
    }

    @Override
    public ScanRuntimeProvider getScanRuntimeProvider(ScanContext context) {
        return SourceProvider.of(new EventSource(Events.load(folder, kind, columns)));
    }

    @Override
    public DynamicTableSource copy() {
        return new EventTable(folder, kind, columns);
    }

    @Override
    public String asSummaryString() {
        return kind;
    }

    /** Makes such tables. */
    public static final class Factory implements DynamicTableSourceFactory {
        private static final ConfigOption<String> FOLDER =
                ConfigOptions.key("folder").stringType().noDefaultValue();
        private static final ConfigOption<String> KIND = ConfigOptions.key("kind").stringType().noDefaultValue();

        @Override
        public String factoryIdentifier() {
            return "nexmark";
        }

        @Override
        public Set<ConfigOption<?>> requiredOptions() {
            return Set.of(FOLDER, KIND);
        }

        @Override
        public Set<ConfigOption<?>> optionalOptions() {
            return Set.of();
        }

        @Override
        public DynamicTableSource createDynamicTableSource(Context context) {
            FactoryUtil.TableFactoryHelper helper = FactoryUtil.createTableFactoryHelper(this, context);
            helper.validate();
            List<String> columns = DataType.getFieldNames(context.getPhysicalRowDataType());
            return new EventTable(helper.getOptions().get(FOLDER), helper.getOptions().get(KIND), columns);
        }
    }
}
