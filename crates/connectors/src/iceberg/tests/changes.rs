//! Rows that replace others and are deleted, by their key: what is written is what is read, however
//! it is cut into transactions and row deltas.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, Int64Array, RecordBatch, StringViewArray};
use thalweg_core::connector::{AcceptedChanges, Connector, Sink, TableRequest};
use thalweg_core::shim::SplitMix64;
use thalweg_core::snapshot::{OutputStart, SinkGuarantee};
use thalweg_core::{Column, DataType, RowKind, TableSchema};

use super::{Iceberg, bucket, drain, mark, read, request, resumed, started};
use crate::conformance::{SinkCase, Visibility, check_sink};

use RowKind::{Delete, Insert, UpdateAfter, UpdateBefore};

/// A row: its shop, its number, its value.
pub type Row = (&'static str, i64, i64);

/// What happens to a row.
pub type Change = (RowKind, Row);

/// The options of a table whose rows replace those of their key.
pub const UPSERT: [(&str, &str); 2] = [("write.upsert.enabled", "true"), ("format-version", "2")];

/// A table with a key of a text and a number, which is partitioned by these columns.
pub fn table(warehouse: &str, by: &[usize], options: &[(&str, &str)]) -> TableRequest {
    let columns = vec![
        Column::new("shop", DataType::STRING.not_null()),
        Column::new("n", DataType::BigInt.not_null()),
        Column::new("v", DataType::BigInt.nullable()),
    ];
    TableRequest {
        schema: TableSchema::new(columns),
        primary_key: vec![0, 1],
        has_updates: true,
        ..request(warehouse, by.to_vec(), options)
    }
}

pub fn batch(rows: &[Row]) -> RecordBatch {
    let columns: Vec<ArrayRef> = vec![
        Arc::new(StringViewArray::from_iter_values(rows.iter().map(|row| row.0))),
        Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.1))),
        Arc::new(Int64Array::from_iter(rows.iter().map(|row| Some(row.2)))),
    ];
    RecordBatch::try_new(table("", &[], &[]).schema.arrow(), columns).expect("these columns")
}

pub fn change(sink: &mut dyn Sink, changes: &[Change]) {
    let (kinds, rows): (Vec<RowKind>, Vec<Row>) = changes.iter().copied().unzip();
    sink.write(&batch(&rows), Some(&kinds)).expect("written");
}

/// Writes changes as one transaction.
pub fn commit(request: &TableRequest, changes: &[Change]) {
    let mut sink = Iceberg.sink(request).expect("a sink");
    sink.check_start(None, &OutputStart::default()).expect("it fits");
    sink.open().expect("opened");
    change(sink.as_mut(), changes);
    sink.finish().expect("committed");
}

/// Rows as they are compared.
fn texts(batches: &[RecordBatch]) -> Vec<String> {
    let mut found = Vec::new();
    for batch in batches {
        let (shops, numbers) = (batch.column(0).as_string_view(), batch.column(1));
        let numbers = numbers.as_primitive::<Int64Type>();
        let values = batch.column(2).as_primitive::<Int64Type>();
        let value = |row| match values.is_null(row) {
            true => "null".to_owned(),
            false => values.value(row).to_string(),
        };
        let rows = (0..batch.num_rows())
            .map(|row| format!("{} {} {}", shops.value(row), numbers.value(row), value(row)));
        found.extend(rows);
    }
    found.sort_unstable();
    found
}

/// What a table holds.
pub fn rows(request: &TableRequest) -> Vec<String> {
    texts(&read(request).expect("read"))
}

/// Changes of few keys, each of which is one of the row before, and the rows that are left.
fn random_changes(seed: u64, count: i64) -> (Vec<Change>, Vec<String>) {
    let mut random = SplitMix64::new(seed);
    let mut live = BTreeMap::new();
    let mut changes = Vec::new();
    for v in 0..count {
        let key = (["a", "b"][random.below(2) as usize], random.below(6) as i64);
        let kind = match (live.get(&key), random.below(3)) {
            (None, _) => Insert,
            (Some(_), 0) => Delete,
            (Some(_), _) => UpdateAfter,
        };
        match kind {
            Delete => drop(live.remove(&key)),
            _ => drop(live.insert(key, v)),
        }
        changes.push((kind, (key.0, key.1, v)));
    }
    let row = |((shop, n), v): (&(&str, i64), &i64)| format!("{shop} {n} {v}");
    (changes, live.iter().map(row).collect())
}

#[test]
fn a_row_replaces_that_of_its_key_in_the_same_and_in_a_later_transaction() {
    for by in [&[][..], &[0], &[1, 0]] {
        let table = table(&bucket(), by, &UPSERT);
        Iceberg.validate(&table, true).expect("it can be written");
        assert_eq!(Iceberg.accepted_changes(&table), AcceptedChanges::Upserts);
        commit(&table, &[(Insert, ("a", 1, 1)), (Insert, ("a", 2, 1)), (Insert, ("b", 1, 1))]);
        assert_eq!(rows(&table), ["a 1 1", "a 2 1", "b 1 1"]);
        // In the same transaction: replaced, deleted, inserted again.
        commit(
            &table,
            &[
                (UpdateBefore, ("a", 1, 1)),
                (UpdateAfter, ("a", 1, 2)),
                (UpdateAfter, ("a", 1, 3)),
                (Delete, ("a", 2, 1)),
                (Insert, ("c", 1, 1)),
                (Delete, ("c", 1, 1)),
                (Insert, ("d", 1, 1)),
                (Delete, ("d", 1, 1)),
                (Insert, ("d", 1, 2)),
            ],
        );
        assert_eq!(rows(&table), ["a 1 3", "b 1 1", "d 1 2"]);
        // In a later one: inserted again, and replaced by an insert.
        commit(&table, &[(Insert, ("a", 2, 9)), (Insert, ("b", 1, 9)), (Delete, ("d", 1, 2))]);
        assert_eq!(rows(&table), ["a 1 3", "a 2 9", "b 1 9"]);
        // Deletions alone.
        commit(&table, &[(Delete, ("a", 1, 3)), (Delete, ("never", 1, 3))]);
        assert_eq!(rows(&table), ["a 2 9", "b 1 9"]);
    }
}

#[test]
fn columns_of_the_key_are_compared_also_where_nobody_asks_for_them() {
    let table = table(&bucket(), &[0], &UPSERT);
    commit(&table, &[(Insert, ("a", 1, 1)), (Insert, ("a", 2, 2)), (Insert, ("b", 1, 3))]);
    commit(&table, &[(Insert, ("a", 1, 4))]);
    for (projection, columns) in [(vec![2], 1), (vec![], 0), (vec![1, 2], 2)] {
        let some = TableRequest { projection: Some(projection), ..table.clone() };
        let found = read(&some).expect("read");
        assert_eq!(found.iter().map(RecordBatch::num_rows).sum::<usize>(), 3);
        assert!(found.iter().all(|batch| batch.num_columns() == columns));
    }
    // They need not even be declared.
    let mut undeclared = table.clone();
    undeclared.schema = TableSchema::new(vec![table.schema.columns[2].clone()]);
    (undeclared.primary_key, undeclared.partitioned_by) = (Vec::new(), Vec::new());
    let mut found: Vec<i64> = (read(&undeclared).expect("read").iter())
        .flat_map(|batch| batch.column(0).as_primitive::<Int64Type>().values().to_vec())
        .collect();
    found.sort_unstable();
    assert_eq!(found, [2, 3, 4]);
}

#[test]
fn without_upserts_a_key_is_for_updates_and_deletions_alone() {
    let table = table(&bucket(), &[], &[]);
    commit(&table, &[(Insert, ("a", 1, 1)), (Insert, ("a", 2, 1))]);
    commit(&table, &[(UpdateAfter, ("a", 1, 2)), (Delete, ("a", 2, 1)), (Insert, ("b", 1, 1))]);
    assert_eq!(rows(&table), ["a 1 2", "b 1 1"]);
    // As in Flink nothing looks for an earlier row of a key that is inserted.
    commit(&table, &[(Insert, ("b", 1, 2))]);
    assert_eq!(rows(&table), ["a 1 2", "b 1 1", "b 1 2"]);
    // Rows that are only added need no memory for their keys, and may be partitioned by any column.
    let added = TableRequest { has_updates: false, ..self::table(&bucket(), &[2], &[]) };
    commit(&added, &[(Insert, ("a", 1, 1)), (Insert, ("a", 1, 2))]);
    assert_eq!(rows(&added), ["a 1 1", "a 1 2"]);
}

#[test]
fn the_property_of_a_table_makes_rows_replace_others() {
    let warehouse = bucket();
    commit(&table(&warehouse, &[], &UPSERT), &[(Insert, ("a", 1, 1))]);
    let silent = TableRequest { has_updates: false, ..table(&warehouse, &[], &[]) };
    commit(&silent, &[(Insert, ("a", 1, 2))]);
    assert_eq!(rows(&silent), ["a 1 2"]);
    let mut keyless = silent.clone();
    keyless.primary_key.clear();
    let mut sink = Iceberg.sink(&keyless).expect("a sink");
    let error = sink.check_start(None, &OutputStart::default()).expect_err("no key");
    assert!(error.help().is_some_and(|help| help.contains("PRIMARY KEY")), "{error}");
    let unwilling = table(&warehouse, &[], &[("upsert-enabled", "false")]);
    commit(&unwilling, &[(Insert, ("a", 1, 3))]);
    assert_eq!(rows(&silent), ["a 1 2", "a 1 3"]);
}

#[test]
fn what_has_no_key_that_fits_is_refused_with_what_to_do() {
    let warehouse = bucket();
    let changed = |change: &dyn Fn(&mut TableRequest)| {
        let mut request = table(&warehouse, &[0], &UPSERT);
        change(&mut request);
        Iceberg.validate(&request, true).expect_err("it does not fit")
    };
    let partition = changed(&|request| request.partitioned_by = vec![2]);
    let none = changed(&|request| request.primary_key.clear());
    let inexact = changed(&|request| {
        request.schema.columns[1] = Column::new("n", DataType::Double.not_null());
    });
    let set = |request: &mut TableRequest, name: &str, value: &str| {
        request.options.insert(name.to_owned(), value.to_owned());
    };
    let version = changed(&|request| set(request, "format-version", "1"));
    let format = changed(&|request| set(request, "write.format.default", "avro"));
    for (error, says) in [
        (partition, "partitioned by v"),
        (none, "there is none"),
        (inexact, "double"),
        (version, "format-version"),
        (format, "write.format.default"),
    ] {
        assert!(error.to_string().contains(says) && error.help().is_some(), "{error}");
    }
}

#[test]
fn tables_of_other_format_versions_are_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    let table = table(dir.path().to_str().expect("UTF-8"), &[], &UPSERT);
    commit(&table, &[(Insert, ("a", 1, 1))]);
    let metadata = dir.path().join("db/t/metadata/v2.metadata.json");
    let text = fs::read_to_string(&metadata).expect("metadata");
    for version in [1, 3] {
        let number = format!("\"format-version\":{version}");
        fs::write(&metadata, text.replace("\"format-version\":2", &number)).expect("written");
        let mut sink = Iceberg.sink(&table).expect("a sink");
        let written = sink.check_start(None, &OutputStart::default()).expect_err("it is refused");
        for error in [read(&table).expect_err("it is refused"), written] {
            assert!(error.message().contains(&format!("version {version}")), "{error}");
            assert!(error.help().is_some(), "{error}");
        }
    }
}

#[test]
fn keys_whose_older_rows_deletions_would_miss_are_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    let table = table(dir.path().to_str().expect("UTF-8"), &[0], &UPSERT);
    commit(&table, &[(Insert, ("a", 1, 1))]);
    let metadata = dir.path().join("db/t/metadata/v2.metadata.json");
    let text = fs::read_to_string(&metadata).expect("metadata");
    let before = "\"partition-specs\":[";
    let other = format!("{before}{{\"spec-id\":7,\"fields\":[]}},");
    fs::write(&metadata, text.replace(before, &other)).expect("written");
    assert_eq!(rows(&table), ["a 1 1"]);
    let mut sink = Iceberg.sink(&table).expect("a sink");
    let error = sink.check_start(None, &OutputStart::default()).expect_err("it is refused");
    assert!(error.message().contains("partitioned in another way"), "{error}");
    assert!(error.help().is_some(), "{error}");
}

#[test]
fn tables_with_keys_keep_the_contract_of_transactions() {
    let (changes, _) = random_changes(11, 90);
    let (kinds, input): (Vec<RowKind>, Vec<Row>) = changes.into_iter().unzip();
    let input = batch(&input);
    // With little memory a transaction is many row deltas.
    for (by, options, memory_limit_bytes) in
        [(vec![], &UPSERT[..], usize::MAX), (vec![0], &UPSERT[..], 8_000), (vec![], &[], 4_000)]
    {
        let open =
            |bucket: &String| TableRequest { memory_limit_bytes, ..table(bucket, &by, options) };
        let case = SinkCase {
            make: &bucket,
            open: &|bucket| Iceberg.sink(&open(bucket)),
            read: &|bucket| {
                let request = TableRequest { memory_limit_bytes: 1 << 20, ..open(bucket) };
                match read(&request) {
                    Err(error) if error.message().contains("there is no table") => Ok(Vec::new()),
                    found => found,
                }
            },
            rows: &input,
            kinds: Some(&kinds),
            guarantee: SinkGuarantee::Transactional,
            visibility: Visibility::AtCommit,
            in_order: false,
            key: &[0, 1],
        };
        check_sink(&case, 2).expect("no error");
    }
}

#[test]
fn keys_that_memory_does_not_hold_are_several_snapshots_of_one_commit() {
    let warehouse = bucket();
    let table = TableRequest { memory_limit_bytes: 4_000, ..table(&warehouse, &[], &UPSERT) };
    let mut sink = resumed(&table, None, 0).expect("started");
    for v in 0..3 {
        for n in 0..20 {
            change(sink.as_mut(), &[(UpdateAfter, ("a", n, v))]);
        }
    }
    let handle = sink.prepare().expect("prepared").expect("a transaction");
    let whole = TableRequest { memory_limit_bytes: 1 << 20, ..table.clone() };
    assert!(rows(&whole).is_empty());
    sink.mark(&mark(1)).expect("marked");
    sink.commit(&handle).expect("committed");
    let expected: Vec<String> = (0..20).map(|n| format!("a {n} 2")).collect();
    let sorted = |mut rows: Vec<String>| {
        rows.sort_unstable();
        rows
    };
    assert_eq!(rows(&whole), sorted(expected.clone()));
    // The same commit again is known by its name.
    drop(sink);
    resumed(&table, Some(&handle), 1).map(drop).expect("resumed");
    assert_eq!(rows(&whole), sorted(expected));
    // A reader with too little memory for the deletions says so.
    let error = read(&TableRequest { memory_limit_bytes: 400, ..table }).expect_err("too many");
    assert!(error.message().contains("deletions"), "{error}");
    assert!(error.help().is_some_and(|help| help.contains("compact")), "{error}");
}

#[test]
fn a_table_with_deletions_is_followed_until_one_takes_rows_back() {
    let warehouse = bucket();
    let table = table(&warehouse, &[], &UPSERT);
    commit(&table, &[(Insert, ("a", 1, 1)), (Insert, ("a", 2, 1))]);
    commit(&table, &[(Insert, ("a", 1, 2))]);
    let options = [
        ("streaming", "true"),
        ("monitor-interval", "20 ms"),
        ("starting-strategy", "TABLE_SCAN_THEN_INCREMENTAL"),
        ("upsert-enabled", "false"),
    ];
    let followed = self::table(&warehouse, &[], &options);
    let mut source = Iceberg.source(&followed).expect("a source");
    let woken = started(source.as_mut()).expect("started");
    assert_eq!(texts(&drain(source.as_mut(), &woken, 2).expect("rows")), ["a 1 2", "a 2 1"]);
    let position = source.position().expect("a position");
    source.stop();
    commit(&followed, &[(Insert, ("b", 1, 1))]);
    let mut source = Iceberg.source(&followed).expect("a source");
    source.seek(&position).expect("resumed");
    let woken = started(source.as_mut()).expect("started");
    assert_eq!(texts(&drain(source.as_mut(), &woken, 1).expect("a row")), ["b 1 1"]);
    commit(&table, &[(Delete, ("a", 2, 1))]);
    let error = drain(source.as_mut(), &woken, 1).expect_err("a deletion");
    assert!(error.message().contains("no append (delete)"), "{error}");
    assert!(error.help().is_some_and(|help| help.contains("TABLE_SCAN")), "{error}");
    source.stop();
}

/// Runs the program of tests that has Iceberg's library for Java; what it prints.
fn run_java(class_path: &str, arguments: &[&str]) -> String {
    let program = Path::new(SERVICES).join("IcebergTable.java");
    let output = Command::new("java")
        .args(["-Xmx256m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", class_path])
        .arg(program)
        .args(arguments)
        .output()
        .expect("Java");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

const SERVICES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/services");

/// The class path of Iceberg's library for Java; `None` on a machine that cannot have it.
fn iceberg_java() -> Option<String> {
    let found = Command::new(Path::new(SERVICES).join("iceberg-java")).output().expect("bash runs");
    let why = String::from_utf8_lossy(&found.stderr);
    if found.status.code() == Some(3) {
        assert!(std::env::var("THALWEG_SKIPS").as_deref() != Ok("refuse"), "{why}");
        println!("SKIPPED: {why}");
        return None;
    }
    assert!(found.status.success(), "{why}");
    Some(String::from_utf8_lossy(&found.stdout).trim().to_owned())
}

/// The columns of the key, what each snapshot does, and the rows, as Java reads them.
fn java_rows(class_path: &str, folder: &Path) -> (String, String, Vec<String>) {
    let said = run_java(class_path, &["read", folder.to_str().expect("UTF-8")]);
    let mut lines = said.lines().map(str::to_owned);
    let (key, snapshots) = (lines.next().expect("a line"), lines.next().expect("a line"));
    let mut rows: Vec<String> = lines.collect();
    rows.sort_unstable();
    (key, snapshots, rows)
}

#[test]
#[ignore = "needs Iceberg's library for Java: make connect-test"]
fn iceberg_java_reads_what_is_written() {
    let Some(class_path) = iceberg_java() else { return };
    let dir = tempfile::tempdir().expect("a folder");
    let warehouse = dir.path().to_str().expect("UTF-8");
    for (name, by, options, memory_limit_bytes) in [
        ("flat", vec![], &UPSERT[..], usize::MAX),
        ("parts", vec![0], &UPSERT[..], usize::MAX),
        ("deltas", vec![1, 0], &UPSERT[..], 4_000),
        ("updates", vec![], &[], usize::MAX),
    ] {
        let options = [options, &[("catalog-table", name)]].concat();
        let table = TableRequest { memory_limit_bytes, ..table(warehouse, &by, &options) };
        let (changes, left) = random_changes(5, 200);
        changes.chunks(45).for_each(|changes| commit(&table, changes));
        let folder = dir.path().join("db").join(name);
        let (key, snapshots, rows) = java_rows(&class_path, &folder);
        assert_eq!(rows, left, "{name}");
        assert_eq!(key, "key n shop");
        let snapshots = snapshots.split(' ').count() - 1;
        let expected = 200_usize.div_ceil(45);
        assert!(snapshots == expected || (name == "deltas" && snapshots > expected), "{snapshots}");
        let whole = TableRequest { memory_limit_bytes: usize::MAX, ..table };
        assert_eq!(self::rows(&whole), left, "{name}");
    }
}

#[test]
#[ignore = "needs Iceberg's library for Java: make connect-test"]
fn what_iceberg_java_deletes_is_left_out() {
    let Some(class_path) = iceberg_java() else { return };
    let dir = tempfile::tempdir().expect("a folder");
    let warehouse = dir.path().to_str().expect("UTF-8");
    for (spec, by) in [("flat", &[][..]), ("shop", &[0])] {
        let folder = dir.path().join("db").join(spec);
        let commits = [
            // Keys are deleted of files before, not of those of the same commit.
            "+a:1:1,+a:2:1,+a:3:1,+b:1:1,+b:2:1,+c:1:1",
            "-a:1,+a:1:2,@b:1,-never:1",
            "-a:1,+a:1:3,+d:1:1",
            // By another column: in this partition, or in all.
            "~a:2",
            "@d:1,+d:1:2",
            // NULL is equal to NULL.
            "+a:8,+b:8,+c:9",
            "%b:0",
        ];
        let place = folder.to_str().expect("UTF-8");
        run_java(&class_path, &[&["write", place, spec][..], &commits].concat());
        let table = table(warehouse, by, &[("catalog-table", spec), ("upsert-enabled", "true")]);
        let mut expected = match spec {
            "flat" => vec!["a 1 3", "a 3 1", "c 1 1", "d 1 2"],
            _ => vec!["a 1 3", "a 3 1", "a 8 null", "b 2 1", "c 1 1", "c 9 null", "d 1 2"],
        };
        assert_eq!(rows(&table), expected, "{spec}");
        assert_eq!(java_rows(&class_path, &folder).2, expected, "{spec}");
        // Our own changes behind those.
        commit(&table, &[(UpdateAfter, ("a", 3, 7)), (Delete, ("c", 1, 1)), (Insert, ("e", 1, 1))]);
        expected.retain(|row| !["a 3 1", "c 1 1"].contains(row));
        expected.extend(["a 3 7", "e 1 1"]);
        expected.sort_unstable();
        assert_eq!(rows(&table), expected, "{spec}");
        assert_eq!(java_rows(&class_path, &folder).2, expected, "{spec}");
    }
}
