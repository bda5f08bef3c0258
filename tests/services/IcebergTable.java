import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.FileFormat;
import org.apache.iceberg.PartitionKey;
import org.apache.iceberg.PartitionSpec;
import org.apache.iceberg.RowDelta;
import org.apache.iceberg.Schema;
import org.apache.iceberg.Snapshot;
import org.apache.iceberg.Table;
import org.apache.iceberg.catalog.TableIdentifier;
import org.apache.iceberg.data.GenericAppenderFactory;
import org.apache.iceberg.data.GenericRecord;
import org.apache.iceberg.data.IcebergGenerics;
import org.apache.iceberg.data.Record;
import org.apache.iceberg.deletes.PositionDelete;
import org.apache.iceberg.encryption.EncryptedOutputFile;
import org.apache.iceberg.hadoop.HadoopTables;
import org.apache.iceberg.io.OutputFileFactory;
import org.apache.iceberg.rest.RESTCatalog;
import org.apache.iceberg.types.Types;

/**
 * Reads and writes tables as Iceberg's own library does.
 *
 * <pre>
 * read FOLDER                prints the columns of the key, what each snapshot does, then the rows
 * read-rest URI NAME         the same of a table that a server knows
 * write FOLDER SPEC COMMIT…  makes a table (shop, n, v) with these commits; SPEC: flat, or shop
 * </pre>
 *
 * <p>A commit is one word of changes with commas between them: {@code +shop:n:v} adds a row, {@code -shop:n} deletes by the
 * key, {@code ~shop:n} by the number alone and {@code %shop:n:v} by the value (in the partition of the shop, if there are any),
 * {@code @shop:n} deletes the place where the key's row was written last. No value is NULL.
 */
public class IcebergTable {
  static final Schema SCHEMA = new Schema(
      List.of(
          Types.NestedField.required(1, "shop", Types.StringType.get()),
          Types.NestedField.required(2, "n", Types.LongType.get()),
          Types.NestedField.optional(3, "v", Types.LongType.get())),
      java.util.Set.of(1, 2));

  /** A place of a row. */
  record Place(CharSequence file, long row) {}

  public static void main(String[] arguments) throws Exception {
    switch (arguments[0]) {
      case "read" -> print(new HadoopTables(new Configuration()).load(arguments[1]));
      case "read-rest" -> {
        try (var catalog = new RESTCatalog()) {
          catalog.setConf(new Configuration());
          catalog.initialize("server", Map.of("uri", arguments[1], "io-impl", "org.apache.iceberg.hadoop.HadoopFileIO"));
          print(catalog.loadTable(TableIdentifier.parse(arguments[2])));
        }
      }
      case "write" -> {
        var spec = arguments[2].equals("shop")
            ? PartitionSpec.builderFor(SCHEMA).identity("shop").build()
            : PartitionSpec.unpartitioned();
        var table = new HadoopTables(new Configuration())
            .create(SCHEMA, spec, Map.of("format-version", "2"), arguments[1]);
        var places = new HashMap<String, Place>();
        for (int at = 3; at < arguments.length; at++) {
          commit(table, arguments[at].split(","), places);
        }
      }
      default -> throw new IllegalArgumentException(arguments[0]);
    }
  }

  static void print(Table table) throws Exception {
    System.out.println("key " + String.join(" ", new java.util.TreeSet<>(table.schema().identifierFieldNames())));
    var operations = new ArrayList<String>();
    for (Snapshot snapshot : table.snapshots()) {
      operations.add(snapshot.operation());
    }
    System.out.println("snapshots " + String.join(" ", operations));
    try (var rows = IcebergGenerics.read(table).build()) {
      for (Record row : rows) {
        var values = new ArrayList<String>();
        // Where places were deleted a row has one more column: its own.
        for (var column : table.schema().columns()) {
          values.add(String.valueOf(row.getField(column.name())));
        }
        System.out.println(String.join(" ", values));
      }
    }
  }

  static Record row(String text) {
    var parts = text.split(":");
    Record row = GenericRecord.create(SCHEMA);
    row.setField("shop", parts[0]);
    row.setField("n", Long.valueOf(parts[1]));
    row.setField("v", parts.length > 2 ? Long.valueOf(parts[2]) : null);
    return row;
  }

  static void commit(Table table, String[] changes, Map<String, Place> places) throws Exception {
    var byPartition = new TreeMap<String, List<String>>();
    for (String change : changes) {
      var partition = table.spec().isUnpartitioned() ? "" : change.substring(1).split(":")[0];
      byPartition.computeIfAbsent(partition, key -> new ArrayList<>()).add(change);
    }
    var delta = table.newRowDelta();
    for (var part : byPartition.values()) {
      write(table, delta, part, places);
    }
    delta.commit();
  }

  static void write(Table table, RowDelta delta, List<String> changes, Map<String, Place> places) throws Exception {
    PartitionKey partition = null;
    if (!table.spec().isUnpartitioned()) {
      partition = new PartitionKey(table.spec(), SCHEMA);
      partition.partition(row(changes.get(0).substring(1)));
    }
    var files = OutputFileFactory.builderFor(table, 1, System.nanoTime()).format(FileFormat.PARQUET).build();
    var deleted = new ArrayList<Place>();
    var byKey = new ArrayList<Record>();
    var byNumber = new ArrayList<Record>();
    var byValue = new ArrayList<Record>();
    var added = new ArrayList<Record>();
    for (String change : changes) {
      Record row = row(change.substring(1));
      switch (change.charAt(0)) {
        case '+' -> added.add(row);
        case '-' -> byKey.add(row);
        case '~' -> byNumber.add(row);
        case '%' -> byValue.add(row);
        case '@' -> deleted.add(places.get(change.substring(1)));
        default -> throw new IllegalArgumentException(change);
      }
    }
    if (!added.isEmpty()) {
      var writer = new GenericAppenderFactory(SCHEMA, table.spec())
          .newDataWriter(file(files, partition), FileFormat.PARQUET, partition);
      for (Record row : added) {
        writer.write(row);
      }
      writer.close();
      for (int at = 0; at < added.size(); at++) {
        var row = added.get(at);
        places.put(row.getField("shop") + ":" + row.getField("n"), new Place(writer.toDataFile().location(), at));
      }
      delta.addRows(writer.toDataFile());
    }
    deleteEqual(table, delta, file(files, partition), partition, new int[] {1, 2}, byKey);
    deleteEqual(table, delta, file(files, partition), partition, new int[] {2}, byNumber);
    deleteEqual(table, delta, file(files, partition), partition, new int[] {3}, byValue);
    if (!deleted.isEmpty()) {
      var writer = new GenericAppenderFactory(SCHEMA, table.spec(), null, null, null)
          .newPosDeleteWriter(file(files, partition), FileFormat.PARQUET, partition);
      deleted.sort(java.util.Comparator.comparing((Place place) -> place.file().toString()).thenComparing(Place::row));
      for (Place place : deleted) {
        writer.write(PositionDelete.<Record>create().set(place.file(), place.row()));
      }
      writer.close();
      delta.addDeletes(writer.toDeleteFile());
    }
  }

  static void deleteEqual(
      Table table, RowDelta delta, EncryptedOutputFile file, PartitionKey partition, int[] ids, List<Record> rows)
      throws Exception {
    if (rows.isEmpty()) {
      return;
    }
    var columns = SCHEMA.select(java.util.Arrays.stream(ids).mapToObj(SCHEMA::findColumnName).toList());
    var writer = new GenericAppenderFactory(SCHEMA, table.spec(), ids, columns, null)
        .newEqDeleteWriter(file, FileFormat.PARQUET, partition);
    for (Record row : rows) {
      Record key = GenericRecord.create(columns);
      columns.columns().forEach(column -> key.setField(column.name(), row.getField(column.name())));
      writer.write(key);
    }
    writer.close();
    delta.addDeletes(writer.toDeleteFile());
  }

  static EncryptedOutputFile file(OutputFileFactory files, PartitionKey partition) {
    return partition == null ? files.newOutputFile() : files.newOutputFile(partition);
  }
}
