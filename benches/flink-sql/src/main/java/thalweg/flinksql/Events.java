package thalweg.flinksql;

import java.io.BufferedInputStream;
import java.io.DataInputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.LongAdder;
import org.apache.flink.table.data.GenericRowData;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.data.TimestampData;
import org.apache.flink.table.data.binary.BinaryStringData;

/**
 * Events as rows of Flink in memory: what a query reads of a table, and no other column.
 *
 * <p>They come from a file {@code TABLE.columns}, which {@code benches/src/nexmark/export.rs} writes and describes.
 * They are loaded while the query is planned, before any clock starts, and stay for all runs. Sources are in the same process as
 * the cluster, so they find them here by name.
 */
final class Events {
    private static final Map<String, RowData[]> LOADED = new ConcurrentHashMap<>();

    /** Rows that sources have handed out since {@link #resetRead}. */
    private static final LongAdder READ = new LongAdder();

    private Events() {}

    /** Loads some columns of a table unless they are there; the name under which sources find them. */
    static String load(String folder, String table, List<String> columns) {
        String name = folder + "/" + table + columns;
        LOADED.computeIfAbsent(name, key -> read(Path.of(folder, table + ".columns"), columns));
        return name;
    }

    /** The rows that were loaded under a name. */
    static RowData[] rows(String name) {
        return LOADED.get(name);
    }

    static void countRead(long rows) {
        READ.add(rows);
    }

    static void resetRead() {
        READ.reset();
    }

    static long read() {
        return READ.sum();
    }

    private static RowData[] read(Path file, List<String> columns) {
        try (DataInputStream input =
                new DataInputStream(new BufferedInputStream(Files.newInputStream(file), 1 << 20))) {
            int[] places = new int[input.readInt()];
            byte[] types = new byte[places.length];
            for (int column = 0; column < places.length; column++) {
                places[column] = columns.indexOf(input.readUTF());
                types[column] = input.readByte();
            }
            long found = Arrays.stream(places).filter(place -> place >= 0).count();
            if (found != columns.size()) {
                throw new IOException(file + " has not all of the columns " + columns);
            }
            List<RowData> rows = new ArrayList<>();
            for (int count = input.readInt(); count > 0; count = input.readInt()) {
                readBatch(input, count, columns.size(), places, types, rows);
            }
            return rows.toArray(new RowData[0]);
        } catch (IOException problem) {
            throw new UncheckedIOException(problem);
        }
    }

    private static void readBatch(
            DataInputStream input, int count, int width, int[] places, byte[] types, List<RowData> rows)
            throws IOException {
        GenericRowData[] batch = new GenericRowData[count];
        Arrays.setAll(batch, row -> new GenericRowData(width));
        for (int column = 0; column < places.length; column++) {
            int length = input.readInt();
            if (places[column] < 0) {
                input.skipNBytes(length);
                continue;
            }
            byte[] bytes = new byte[length];
            input.readFully(bytes);
            fill(batch, places[column], types[column], ByteBuffer.wrap(bytes));
        }
        rows.addAll(Arrays.asList(batch));
    }

    private static void fill(GenericRowData[] batch, int place, byte type, ByteBuffer values) throws IOException {
        for (GenericRowData row : batch) {
            row.setField(place, value(type, values));
        }
    }

    private static Object value(byte type, ByteBuffer values) throws IOException {
        switch (type) {
            case 'l':
                return values.getLong();
            case 't':
                return TimestampData.fromEpochMillis(values.getLong());
            case 's':
                byte[] text = new byte[values.getInt()];
                values.get(text);
                // Flink's own form; from a String it would have to be encoded within the run.
                return BinaryStringData.fromBytes(text);
            default:
                throw new IOException(
                        "no type '" + new String(new byte[] {type}, StandardCharsets.ISO_8859_1) + "'");
        }
    }
}
