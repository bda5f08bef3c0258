//! What is written is read back alike, in every format.

use std::fs;

use arrow_array::builder::{ListBuilder, MapBuilder, StringViewBuilder};
use arrow_array::{
    ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Float64Array, Int32Array,
    Int64Array, StringViewArray, Time32MillisecondArray, TimestampMicrosecondArray,
    TimestampMillisecondArray,
};
use proptest::prelude::*;
use thalweg_core::connector::Sink;
use thalweg_core::{ErrorKind, RowKind};

use super::*;
use crate::filesystem::Filesystem;
use thalweg_core::connector::Connector;

fn sink(request: &TableRequest) -> Box<dyn Sink> {
    Filesystem::default().sink(request).expect("a sink")
}

fn write(request: &TableRequest, batch: &RecordBatch) {
    let mut sink = sink(request);
    sink.open().expect("opened");
    sink.write(batch, None).expect("written");
    sink.finish().expect("finished");
}

fn scalar_schema() -> TableSchema {
    schema(&[
        ("s", DataType::STRING),
        ("i", DataType::Int),
        ("d", DataType::Double),
        ("dec", DataType::Decimal(12, 3)),
        ("b", DataType::Boolean),
        ("day", DataType::Date),
        ("tm", DataType::Time(0)),
        ("ts", DataType::Timestamp(6)),
        ("ltz", DataType::TimestampLtz(3)),
        ("bin", DataType::BYTES),
    ])
}

fn scalars(strings: Vec<Option<String>>, numbers: &[i32]) -> RecordBatch {
    let rows = strings.len();
    let number = |i: usize| numbers[i % numbers.len()];
    let null_at = |i: usize| i % 4 == 3;
    fn some<T>(
        rows: usize,
        null_at: impl Fn(usize) -> bool,
        f: impl Fn(usize) -> T,
    ) -> Vec<Option<T>> {
        (0..rows).map(|i| (!null_at(i)).then(|| f(i))).collect()
    }
    let decimals = some(rows, null_at, |i| i128::from(number(i)) * 7);
    let binary = some(rows, null_at, |i| number(i).to_le_bytes().to_vec());
    let binary: Vec<Option<&[u8]>> = binary.iter().map(|bytes| bytes.as_deref()).collect();
    let millis = some(rows, null_at, |i| i64::from(number(i)) * 1_001);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(StringViewArray::from_iter(strings)),
        Arc::new(Int32Array::from(some(rows, null_at, number))),
        Arc::new(Float64Array::from(some(rows, null_at, |i| f64::from(number(i)) / 3e5))),
        Arc::new(Decimal128Array::from(decimals).with_precision_and_scale(12, 3).expect("fits")),
        Arc::new(BooleanArray::from(some(rows, null_at, |i| number(i) % 2 == 0))),
        Arc::new(Date32Array::from(some(rows, null_at, |i| number(i) % 100_000))),
        Arc::new(Time32MillisecondArray::from(some(rows, null_at, |i| {
            number(i).rem_euclid(86_400) * 1_000
        }))),
        Arc::new(TimestampMicrosecondArray::from(millis.clone())),
        Arc::new(TimestampMillisecondArray::from(millis).with_timezone("UTC")),
        Arc::new(BinaryArray::from(binary)),
    ];
    RecordBatch::try_new(scalar_schema().arrow(), columns).expect("matches")
}

fn check_round_trip(batch: &RecordBatch, schema: &TableSchema, options: &[(&str, &str)]) {
    let dir = tempfile::tempdir().expect("a folder");
    let request = request(dir.path(), schema.clone(), options);
    write(&request, batch);
    let expected = texts(std::slice::from_ref(batch), schema);
    assert_eq!(read(&request).expect("readable"), expected, "{options:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn every_format_returns_what_it_was_given(
        strings in prop::collection::vec(
            prop::option::of("[a-zé\"\\\\,;|#\r\n 'N]{0,12}"), 1..30),
        numbers in prop::collection::vec(any::<i32>(), 1..10),
    ) {
        let batch = scalars(strings, &numbers);
        let schema = scalar_schema();
        for path in ["a.csv", "a.csv.gz", "a.csv.zst"] {
            let options = [("path", path), ("csv.null-literal", "NULL"), ("csv.header", "true")];
            check_round_trip(&batch, &schema, &options);
        }
        let escaped = [
            ("csv.null-literal", "\u{1}"), ("csv.escape-character", "\\"),
            ("csv.field-delimiter", "|"), ("csv.allow-comments", "true"),
        ];
        check_round_trip(&batch, &schema, &escaped);
        check_round_trip(&batch, &schema, &[("format", "json"), ("path", "a.json.zst")]);
        let iso = [("format", "json"), ("json.timestamp-format.standard", "ISO-8601")];
        check_round_trip(&batch, &schema, &iso);
        check_round_trip(&batch, &schema, &[("format", "parquet")]);
    check_round_trip(&batch, &schema, &[("format", "arrow")]);
        check_round_trip(&batch, &schema, &[("format", "arrow")]);
    }
}

#[test]
fn nested_values_return() {
    let array = DataType::Array(Box::new(DataType::STRING.nullable()));
    let mut arrays = ListBuilder::new(StringViewBuilder::new());
    arrays.append_value([Some("a"), None, Some("\"b\"")]);
    arrays.append_null();
    let key = Box::new(DataType::STRING.not_null());
    let map = DataType::Map(key, Box::new(DataType::STRING.nullable()));
    let mut maps = MapBuilder::new(None, StringViewBuilder::new(), StringViewBuilder::new());
    maps.keys().append_value("k");
    maps.values().append_value("v");
    maps.append(true).expect("even");
    maps.append(false).expect("even");
    let schema = schema(&[("a", array.clone()), ("m", map.clone())]);
    let maps = arrow_cast::cast(&maps.finish(), &map.arrow()).expect("renamed");
    let batch = RecordBatch::try_new(schema.arrow(), vec![Arc::new(arrays.finish()), maps]);
    let batch = batch.expect("matches");
    check_round_trip(&batch, &schema, &[("format", "json")]);
    check_round_trip(&batch, &schema, &[("format", "parquet")]);
    check_round_trip(&batch, &schema, &[("format", "arrow")]);
}

#[test]
fn single_column_files_keep_empty_strings() {
    let schema = schema(&[("s", DataType::STRING)]);
    let strings: ArrayRef = Arc::new(StringViewArray::from(vec!["a", "", "b"]));
    let batch = RecordBatch::try_new(schema.arrow(), vec![strings]).expect("matches");
    check_round_trip(&batch, &schema, &[]);
}

#[test]
fn output_appears_only_when_finished() {
    let dir = tempfile::tempdir().expect("a folder");
    let request = request(dir.path(), scalar_schema(), &[("path", "out/x.csv")]);
    let batch = scalars(vec![Some("a".to_string())], &[1]);
    let (whole, partial) = (dir.path().join("out/x.csv"), dir.path().join("out/x.csv.partial"));
    let mut stopped = sink(&request);
    stopped.open().expect("opened");
    stopped.write(&batch, None).expect("written");
    let error = sink(&request).open().expect_err("two sinks on one file");
    assert!(error.is_plan_error());
    stopped.abort();
    assert!(!whole.exists() && partial.exists());
    let mut finished = sink(&request);
    finished.open().expect("opened");
    finished.write(&batch, None).expect("written");
    finished.flush().expect("flushed");
    assert!(!whole.exists());
    assert!(fs::read_to_string(&partial).expect("text").starts_with("a,1,"));
    finished.finish().expect("finished");
    assert!(whole.exists() && !partial.exists());
}

#[test]
fn a_planted_link_is_not_followed() {
    let outside = tempfile::tempdir().expect("a folder");
    let dir = tempfile::tempdir().expect("a folder");
    let victim = outside.path().join("victim");
    fs::write(&victim, "untouched").expect("written");
    std::os::unix::fs::symlink(&victim, dir.path().join("in.csv.partial")).expect("a link");
    write(&request(dir.path(), scalar_schema(), &[]), &scalars(vec![None], &[1]));
    assert_eq!(fs::read_to_string(&victim).expect("text"), "untouched");
}

#[test]
fn updates_are_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut sink = sink(&request(dir.path(), scalar_schema(), &[]));
    sink.open().expect("opened");
    let batch = scalars(vec![None], &[1]);
    let error = sink.write(&batch, Some(&[RowKind::Delete])).expect_err("a deletion");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    sink.write(&batch, Some(&[RowKind::Insert])).expect("an insert");
}

#[test]
fn parquet_columns_are_checked_against_the_declaration() {
    let dir = tempfile::tempdir().expect("a folder");
    let options = [("format", "parquet"), ("path", "x.parquet")];
    write(&request(dir.path(), scalar_schema(), &options), &scalars(vec![Some("a".into())], &[5]));
    let read_as = |name: &str, data_type: DataType| {
        read(&request(dir.path(), schema(&[(name, data_type)]), &options))
    };
    assert_eq!(read_as("i", DataType::BigInt).expect("wider"), [["5"]]);
    let text = read_as("ts", DataType::TimestampLtz(3)).expect("milliseconds");
    assert_eq!(text, [["1970-01-01 00:00:00.005"]]);
    assert_eq!(read_as("dec", DataType::Decimal(10, 2)).expect("rescaled"), [["0.04"]]);
    let error = read_as("i", DataType::SmallInt).expect_err("narrower");
    assert!(error.message().contains("column i is INT in the file"), "{error}");
    let error = read_as("dayy", DataType::Date).expect_err("missing");
    assert_eq!(error.help(), Some("did you mean 'day'?"));
    fs::write(dir.path().join("x.parquet"), b"PAR1 this is none").expect("written");
    let error = read_as("i", DataType::Int).expect_err("damaged");
    assert_eq!(error.kind(), ErrorKind::Data);
}

#[test]
fn parquet_files_are_compressed_as_the_table_says() {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    let dir = tempfile::tempdir().expect("a folder");
    let rows = scalars((0..50).map(|n| Some(format!("text {n}"))).collect(), &[5, 6]);
    let mut found = Vec::new();
    for codec in ["UNCOMPRESSED", "SNAPPY", "ZSTD", "GZIP", "LZ4_RAW"] {
        let path = format!("{codec}.parquet");
        let options = [("format", "parquet"), ("path", &path), ("parquet.compression", codec)];
        let table = request(dir.path(), scalar_schema(), &options);
        write(&table, &rows);
        found.push(read(&table).expect(codec));
        let file = fs::File::open(dir.path().join(&path)).expect("the file");
        let file = SerializedFileReader::new(file).expect("Parquet");
        let column = file.metadata().row_group(0).column(0).compression().to_string();
        assert!(column.starts_with(codec), "{column}");
    }
    assert_eq!(found[0].len(), 50);
    assert!(found.iter().all(|rows| rows == &found[0]));
}

#[test]
fn parquet_row_groups_come_in_order() {
    let dir = tempfile::tempdir().expect("a folder");
    let schema = schema(&[("n", DataType::Int)]);
    let numbers: ArrayRef = Arc::new(Int32Array::from_iter_values(0..600_000));
    let batch = RecordBatch::try_new(schema.arrow(), vec![numbers]).expect("matches");
    let mut request = request(dir.path(), schema, &[("format", "parquet"), ("path", "d/")]);
    write(&request, &batch);
    assert!(dir.path().join("d/part-0.parquet").exists());
    request.parallelism = 3;
    let mut source = open_source(&request, None).expect("opened");
    let batches = drain(&mut source, 10_000).expect("rows");
    let read = arrow_select::concat::concat_batches(&batches[0].schema(), &batches);
    assert_eq!(read.expect("one schema"), batch);
}

#[test]
fn arrow_files_of_others_are_read_and_damaged_ones_are_errors() {
    use arrow_array::DictionaryArray;
    use arrow_array::types::Int32Type;
    use arrow_ipc::CompressionType;
    use arrow_ipc::writer::{FileWriter, IpcWriteOptions};
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("x.arrow");
    let options = [("format", "arrow"), ("path", "x.arrow")];
    let table =
        request(dir.path(), schema(&[("n", DataType::BigInt), ("s", DataType::STRING)]), &options);
    let texts: ArrayRef = Arc::new(arrow_array::StringArray::from(vec!["a", "b", "a"]));
    let words: DictionaryArray<Int32Type> = ["a", "b", "a"].into_iter().collect();
    let numbers: ArrayRef = Arc::new(Int32Array::from(vec![1, 2, 3]));
    let write = |texts: ArrayRef, compression: Option<CompressionType>| {
        let batch =
            RecordBatch::try_from_iter([("s", texts), ("n", numbers.clone())]).expect("rows");
        let file = fs::File::create(&path).expect("created");
        let options = IpcWriteOptions::default().try_with_compression(compression).expect("known");
        let mut writer =
            FileWriter::try_new_with_options(file, &batch.schema(), options).expect("a writer");
        (0..20).for_each(|_| writer.write(&batch).expect("written"));
        writer.finish().expect("finished");
    };
    for compression in [None, Some(CompressionType::ZSTD)] {
        write(texts.clone(), compression);
        let rows = read(&table).expect("readable");
        assert_eq!((rows.len(), &rows[1][..]), (60, &["2".to_owned(), "b".to_owned()][..]));
    }
    write(Arc::new(words), None);
    let error = read(&table).expect_err("a dictionary is another type");
    assert!(error.message().contains("column s"), "{error}");
    write(texts, None);
    let whole = fs::read(&path).expect("bytes");
    for length in [0, 3, 40, whole.len() / 2, whole.len() - 1] {
        fs::write(&path, &whole[..length]).expect("written");
        let error = read(&table).expect_err("damaged");
        assert!(error.to_string().contains("x.arrow"), "{error}");
    }
}

/// A record batch of 400 MB took 426 MiB under a memory limit of 64 MB. What counts is its size
/// decompressed.
#[test]
fn a_record_batch_is_no_larger_than_an_eighth_of_the_memory_limit() {
    for compression in [None, Some(arrow_ipc::CompressionType::ZSTD)] {
        check_record_batch_sizes(compression);
    }
}

fn check_record_batch_sizes(compression: Option<arrow_ipc::CompressionType>) {
    use arrow_ipc::writer::{FileWriter, IpcWriteOptions};
    let dir = tempfile::tempdir().expect("a folder");
    let options = [("format", "arrow"), ("path", "x.arrow")];
    let table = request(dir.path(), schema(&[("n", DataType::BigInt)]), &options);
    let file = fs::File::create(dir.path().join("x.arrow")).expect("created");
    let batch = |rows: i64| -> RecordBatch {
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows));
        RecordBatch::try_from_iter([("n", numbers)]).expect("rows")
    };
    let options = IpcWriteOptions::default().try_with_compression(compression).expect("known");
    let mut writer =
        FileWriter::try_new_with_options(file, &batch(1).schema(), options).expect("a writer");
    [10, 1000].iter().for_each(|&rows| writer.write(&batch(rows)).expect("written"));
    writer.finish().expect("finished");
    let read = |limit_bytes: usize| {
        let mut source = super::open_source(&table, None)?.with_memory_limit(limit_bytes);
        super::drain(&mut source, 1 << 16)
    };
    let rows = read(8 * 9_000).expect("it fits").iter().map(RecordBatch::num_rows).sum::<usize>();
    assert_eq!(rows, 1010);
    let error = read(8 * 7_000).expect_err("too large").to_string();
    assert!(error.contains("record batch 2") && error.contains("memory limit"), "{error}");
}
