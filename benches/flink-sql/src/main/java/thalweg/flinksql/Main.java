package thalweg.flinksql;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import org.apache.flink.api.common.RuntimeExecutionMode;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.ExecutionOptions;
import org.apache.flink.configuration.PipelineOptions;
import org.apache.flink.configuration.StateBackendOptions;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.api.Table;
import org.apache.flink.table.api.TableDescriptor;
import org.apache.flink.table.api.TableResult;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;

/**
 * Runs one of the queries in {@code benches/nexmark} on Flink, in a cluster within this process, over events in memory.
 *
 * <pre>Main query=FILE folder=FOLDER workers=N [flink.setting=value …]</pre>
 *
 * <p>{@code folder} holds the events (see {@link Events}). First comes a run that writes to a table that counts: it warms up and
 * says how many rows are left in the end. Then each line on standard input asks for one run into {@code blackhole}. Every run
 * answers with a line of JSON. State is on the heap, objects are reused, there are no checkpoints.
 *
 * <p>Why runs are asked for one by one: so that another engine can run in between, and this one stays warm.
 */
public final class Main {
    private final Map<String, String> arguments;
    private final List<String> statements;

    private Main(Map<String, String> arguments) throws IOException {
        this.arguments = arguments;
        this.statements = statements(Files.readString(Path.of(argument("query"))));
    }

    /** See the class. */
    public static void main(String[] words) throws Exception {
        Map<String, String> arguments = new LinkedHashMap<>();
        for (String word : words) {
            String[] parts = word.split("=", 2);
            if (parts.length != 2) {
                throw new IllegalArgumentException(word + ": key=value is expected");
            }
            arguments.put(parts[0], parts[1]);
        }
        Main main = new Main(arguments);
        System.out.println(main.run("count"));
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in));
        while (requests.readLine() != null) {
            System.out.println(main.run("blackhole"));
        }
        // Threads of Flink's clusters would keep the process alive.
        System.exit(0);
    }

    private String argument(String name) {
        String value = arguments.get(name);
        if (value == null) {
            throw new IllegalArgumentException(name + "=… is missing");
        }
        return value;
    }

    /** The statements of a script, its comments left out and its tables told where their events are. */
    private List<String> statements(String script) {
        String[] lines = script.split("\n");
        String text = String.join("\n", Arrays.stream(lines).filter(line -> !line.startsWith("--")).toList());
        text = text.replace("${events}", "'folder' = '" + argument("folder") + "'");
        return Arrays.stream(text.split(";")).map(String::strip).filter(part -> !part.isEmpty()).toList();
    }

    /** One run into a table of this connector. */
    private String run(String connector) throws Exception {
        StreamTableEnvironment tables = environment();
        for (String declaration : statements.subList(0, statements.size() - 1)) {
            tables.executeSql(declaration);
        }
        Table query = tables.sqlQuery(statements.get(statements.size() - 1));
        TableDescriptor sink = TableDescriptor.forConnector(connector).build();
        // What the run before has left would otherwise be collected at the cost of this one.
        System.gc();
        Clock.reset();
        Events.resetRead();
        CountTable.reset();
        Clock.Mark asked = Clock.Mark.now();
        TableResult result = query.executeInsert(sink);
        result.await();
        return line(connector, asked, Clock.Mark.now());
    }

    private String line(String connector, Clock.Mark asked, Clock.Mark ended) {
        Clock.Mark started = Clock.started();
        boolean counts = connector.equals("count");
        return String.format(
                Locale.ROOT,
                "{\"query\": \"%s\", \"sink\": \"%s\", \"events\": %d, \"seconds\": %.4f, "
                        + "\"processor_seconds\": %.4f, \"seconds_with_planning\": %.4f, "
                        + "\"rows_out\": %s, \"rows_left\": %s}",
                Path.of(argument("query")).getFileName().toString().replace(".sql", ""),
                connector,
                Events.read(),
                ended.secondsSince(started),
                ended.processorSecondsSince(started),
                ended.secondsSince(asked),
                counts ? CountTable.written() : "null",
                counts ? CountTable.left() : "null");
    }

    private StreamTableEnvironment environment() {
        Configuration configuration = new Configuration();
        configuration.set(ExecutionOptions.RUNTIME_MODE, RuntimeExecutionMode.STREAMING);
        configuration.set(PipelineOptions.OBJECT_REUSE, true);
        configuration.set(StateBackendOptions.STATE_BACKEND, "hashmap");
        configuration.setString("table.local-time-zone", "UTC");
        arguments.forEach((key, value) -> {
            if (key.contains(".")) {
                configuration.setString(key, value);
            }
        });
        int workers = Integer.parseInt(argument("workers"));
        return StreamTableEnvironment.create(
                StreamExecutionEnvironment.createLocalEnvironment(workers, configuration));
    }
}
