//! Tables that are written and read, whatever fails; and that Iceberg's library for Python reads
//! what is written here, and writes what is read here.

mod changes;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arrow_array::{ArrayRef, BooleanArray, Date32Array, Decimal128Array, Int64Array, RecordBatch};
use arrow_array::{Float64Array, StringViewArray, TimestampMillisecondArray};
use crossbeam_channel::bounded;
use thalweg_core::connector::{Connector, Sink, Source, SourcePoll, TableRequest};
use thalweg_core::snapshot::{OutputMark, OutputStart, SinkGuarantee};
use thalweg_core::{Column, DataType, Result, TableSchema};

use super::Iceberg;
use crate::conformance::{SinkCase, Visibility, check_sink};
use crate::format::tests::python;

fn columns() -> TableSchema {
    TableSchema::new(vec![
        Column::new("n", DataType::BigInt.not_null()),
        Column::new("k", DataType::STRING.nullable()),
        Column::new("d", DataType::Decimal(20, 2).nullable()),
        Column::new("day", DataType::Date.nullable()),
        Column::new("ts", DataType::Timestamp(3).nullable()),
        Column::new("x", DataType::Double.nullable()),
        Column::new("b", DataType::Boolean.nullable()),
    ])
}

/// Every seventh value is NULL, but in the first column.
fn rows(range: std::ops::Range<i64>) -> RecordBatch {
    let some = |n: i64| (n % 7 != 0).then_some(n);
    let decimals = range.clone().map(|n| some(n).map(|n| i128::from(n) * 100 - 500));
    let decimals: Decimal128Array = decimals.collect();
    let columns_of: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(range.clone())),
        Arc::new(StringViewArray::from_iter(
            range.clone().map(|n| some(n).map(|n| format!("k/{}", n % 3))),
        )),
        Arc::new(decimals.with_precision_and_scale(20, 2).expect("it fits")),
        Arc::new(Date32Array::from_iter(range.clone().map(|n| some(n).map(|n| n as i32 % 5)))),
        Arc::new(TimestampMillisecondArray::from_iter(
            range.clone().map(|n| some(n).map(|n| n * 1_000 + 1)),
        )),
        Arc::new(Float64Array::from_iter(range.clone().map(|n| some(n).map(|n| n as f64 / 4.0)))),
        Arc::new(BooleanArray::from_iter(range.map(|n| some(n).map(|n| n % 2 == 0)))),
    ];
    RecordBatch::try_new(columns().arrow(), columns_of).expect("these columns")
}

fn request(warehouse: &str, by: Vec<usize>, options: &[(&str, &str)]) -> TableRequest {
    let mut all = vec![
        ("connector", "iceberg"),
        ("catalog-type", "hadoop"),
        ("warehouse", warehouse),
        ("catalog-database", "db"),
    ];
    all.extend_from_slice(options);
    TableRequest {
        table: "t".to_owned(),
        schema: columns(),
        options: all.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
        partitioned_by: by,
        base_dir: "/".into(),
        allowed_roots: vec!["/".into()],
        parallelism: 2,
        ..TableRequest::default()
    }
}

/// A store in memory that no other test uses.
fn bucket() -> String {
    static BUCKETS: AtomicU64 = AtomicU64::new(0);
    format!("memory://lake-{}/warehouse", BUCKETS.fetch_add(1, Ordering::Relaxed))
}

fn started(source: &mut dyn Source) -> Result<crossbeam_channel::Receiver<()>> {
    let (wake, woken) = bounded(1);
    source.start(Arc::new(move || {
        let _ = wake.try_send(());
    }))?;
    source.open()?;
    Ok(woken)
}

/// The rows up to an end, or this many.
fn drain(
    source: &mut dyn Source,
    woken: &crossbeam_channel::Receiver<()>,
    wanted: usize,
) -> Result<Vec<RecordBatch>> {
    let (mut batches, mut count) = (Vec::new(), 0);
    while count < wanted {
        match source.poll(1_000)? {
            SourcePoll::Batch(batch) => {
                count += batch.batch.num_rows();
                batches.push(batch.batch);
            }
            SourcePoll::Pending => woken.recv_timeout(Duration::from_secs(30)).expect("a wake-up"),
            SourcePoll::End => break,
            SourcePoll::Heartbeat(..) | SourcePoll::Split(..) => {}
        }
    }
    Ok(batches)
}

fn read(request: &TableRequest) -> Result<Vec<RecordBatch>> {
    let mut source = Iceberg.source(request)?;
    let woken = started(source.as_mut())?;
    drain(source.as_mut(), &woken, usize::MAX)
}

/// The numbers of rows, sorted.
fn numbers(batches: &[RecordBatch]) -> Vec<i64> {
    let mut numbers: Vec<i64> = batches
        .iter()
        .flat_map(|batch| {
            let column = batch.column(0).as_any().downcast_ref::<Int64Array>();
            column.expect("numbers").values().to_vec()
        })
        .collect();
    numbers.sort_unstable();
    numbers
}

/// Writes rows without snapshots of the job.
fn write(request: &TableRequest, batch: &RecordBatch) -> Result<()> {
    let mut sink = Iceberg.sink(request)?;
    sink.check_start(None, &OutputStart::default())?;
    sink.open()?;
    sink.write(batch, None)?;
    sink.finish()
}

fn mark(snapshot: u64) -> OutputMark {
    OutputMark { lineage: "one".to_owned(), snapshot }
}

/// A sink in a job with snapshots that starts, or resumes from this one.
fn resumed(request: &TableRequest, handle: Option<&str>, snapshot: u64) -> Result<Box<dyn Sink>> {
    let start = OutputStart { accepted: vec![mark(snapshot)], ..OutputStart::default() };
    let mut sink = Iceberg.sink(request)?;
    assert_eq!(sink.use_transactions(), SinkGuarantee::Transactional);
    sink.check_start(handle, &start)?;
    sink.mark(&mark(snapshot))?;
    sink.recover(handle)?;
    sink.open()?;
    Ok(sink)
}

#[test]
fn rows_of_all_types_return_from_folders_and_stores() {
    let dir = tempfile::tempdir().expect("a folder");
    let local = dir.path().to_str().expect("UTF-8").to_owned();
    for (warehouse, by) in [(local, vec![1, 3]), (bucket(), vec![]), (bucket(), vec![6])] {
        let request = request(&warehouse, by, &[]);
        Iceberg.validate(&request, true).expect("it can be written");
        assert!(Iceberg.is_bounded(&request));
        write(&request, &rows(0..3_000)).expect("written");
        write(&request, &rows(3_000..3_100)).expect("added");
        let found = read(&request).expect("read");
        assert_eq!(numbers(&found), (0..3_100).collect::<Vec<_>>());
        let mut seen = Vec::new();
        for batch in found {
            for row in 0..batch.num_rows() {
                let row = batch.slice(row, 1);
                let n = numbers(std::slice::from_ref(&row))[0];
                assert_eq!(row, rows(n..n + 1));
                seen.push(n);
            }
        }
        assert_eq!(seen.len(), 3_100);
        // Some of the columns.
        let some = TableRequest { projection: Some(vec![0, 5]), ..request };
        assert_eq!(read(&some).expect("read")[0].num_columns(), 2);
    }
}

#[test]
fn tables_keep_the_contract_of_transactions() {
    let input = rows(0..60);
    for by in [vec![], vec![1]] {
        let open = |bucket: &String| request(bucket, by.clone(), &[]);
        let case = SinkCase {
            make: &bucket,
            open: &|bucket| Iceberg.sink(&open(bucket)),
            read: &|bucket| match read(&open(bucket)) {
                Err(error) if error.message().contains("there is no table") => Ok(Vec::new()),
                found => found,
            },
            rows: &input,
            kinds: None,
            guarantee: SinkGuarantee::Transactional,
            visibility: Visibility::AtCommit,
            in_order: false,
            key: &[],
        };
        check_sink(&case, 2).expect("no error");
    }
}

#[test]
fn a_commit_that_was_made_is_not_made_again() {
    let request = request(&bucket(), vec![], &[]);
    let mut sink = resumed(&request, None, 0).expect("started");
    sink.write(&rows(0..10), None).expect("written");
    let handle = sink.prepare().expect("prepared").expect("a transaction");
    assert!(read(&request).expect("an empty table").is_empty());
    sink.mark(&mark(1)).expect("marked");
    sink.commit(&handle).expect("committed");
    // The job dies before it knows, and others write meanwhile.
    drop(sink);
    write(&request, &rows(10..20)).expect("written");
    let mut sink = resumed(&request, Some(&handle), 1).expect("resumed");
    assert_eq!(numbers(&read(&request).expect("read")), (0..20).collect::<Vec<_>>());
    sink.write(&rows(20..30), None).expect("written");
    let next = sink.prepare().expect("prepared").expect("a transaction");
    sink.mark(&mark(2)).expect("marked");
    sink.commit(&next).expect("committed");
    drop(sink);
    // What was committed since would be added again.
    let error = resumed(&request, Some(&handle), 1).map(drop).expect_err("an older snapshot");
    assert!(error.message().contains("snapshot 2"), "{error}");
    let other = self::request(&bucket(), vec![], &[]);
    assert!(resumed(&other, Some(&next), 2).is_err(), "another table");
    resumed(&request, Some(&next), 2).map(drop).expect("the newest one");
    assert_eq!(numbers(&read(&request).expect("read")), (0..30).collect::<Vec<_>>());
}

#[test]
fn writers_at_the_same_time_lose_nothing() {
    let dir = tempfile::tempdir().expect("a folder");
    for warehouse in [bucket(), dir.path().to_str().expect("UTF-8").to_owned()] {
        let request = request(&warehouse, vec![], &[]);
        std::thread::scope(|scope| {
            for writer in 0..4 {
                let request = &request;
                scope.spawn(move || {
                    for step in 0..5 {
                        let first = writer * 100 + step * 10;
                        write(request, &rows(first..first + 10)).expect("written");
                    }
                });
            }
        });
        let found = numbers(&read(&request).expect("read"));
        assert_eq!(found.len(), 200);
        assert!(found.windows(2).all(|pair| pair[0] < pair[1]), "{found:?}");
    }
}

#[test]
fn new_snapshots_are_read_once_also_by_a_job_that_resumes() {
    let warehouse = bucket();
    let table = request(&warehouse, vec![], &[]);
    write(&table, &rows(0..10)).expect("written");
    write(&table, &rows(10..20)).expect("written");
    let streaming = [("streaming", "true"), ("monitor-interval", "20 ms")];
    for strategy in [
        "TABLE_SCAN_THEN_INCREMENTAL",
        "INCREMENTAL_FROM_EARLIEST_SNAPSHOT",
        "INCREMENTAL_FROM_LATEST_SNAPSHOT",
    ] {
        let options = [&streaming[..], &[("starting-strategy", strategy)]].concat();
        let followed = request(&warehouse, vec![], &options);
        assert!(!Iceberg.is_bounded(&followed));
        let mut source = Iceberg.source(&followed).expect("a source");
        let woken = started(source.as_mut()).expect("started");
        let end = numbers(&read(&table).expect("read")).len() as i64;
        let first = if strategy.contains("LATEST") { end - 10 } else { 0 };
        let found = drain(source.as_mut(), &woken, (end - first) as usize).expect("rows");
        let expected: Vec<i64> = (first..end).collect();
        assert_eq!(numbers(&found), expected, "{strategy}");
        let position = source.position().expect("a position");
        source.stop();
        write(&table, &rows(end..end + 10)).expect("written");
        let mut source = Iceberg.source(&followed).expect("a source");
        source.seek(&position).expect("resumed");
        let woken = started(source.as_mut()).expect("started");
        let found = drain(source.as_mut(), &woken, 10).expect("rows");
        assert_eq!(numbers(&found), (end..end + 10).collect::<Vec<_>>(), "{strategy}");
        write(&table, &rows(end + 10..end + 20)).expect("written");
        let found = drain(source.as_mut(), &woken, 10).expect("rows");
        assert_eq!(numbers(&found), (end + 10..end + 20).collect::<Vec<_>>(), "{strategy}");
        source.stop();
    }
}

#[test]
fn what_does_not_fit_a_table_is_refused_with_what_to_do() {
    let warehouse = bucket();
    write(&request(&warehouse, vec![1], &[]), &rows(0..10)).expect("written");
    let changed = |change: &dyn Fn(&mut TableRequest)| {
        let mut request = request(&warehouse, vec![1], &[]);
        change(&mut request);
        let mut sink = Iceberg.sink(&request).expect("a sink");
        sink.check_start(None, &OutputStart::default()).expect_err("it does not fit")
    };
    let renamed = changed(&|request| request.schema.columns[1].name = "other".to_owned());
    let retyped = changed(&|request| {
        request.schema.columns[0] = Column::new("n", DataType::Int.not_null());
    });
    let nullable = changed(&|request| {
        request.schema.columns[0] = Column::new("n", DataType::BigInt.nullable());
    });
    let partitions = changed(&|request| request.partitioned_by = vec![3]);
    for (error, says) in
        [(renamed, "other"), (retyped, "long"), (nullable, "NULL"), (partitions, "(k)")]
    {
        assert!(error.message().contains(says) && error.help().is_some(), "{error}");
        assert!(error.message().contains("table t"), "{error}");
    }
    let none = request(&warehouse, vec![], &[("catalog-table", "none")]);
    assert!(read(&none).expect_err("no table").message().contains("there is no table"));
    for (name, value) in
        [("catalog-type", "hive"), ("catalog-table", "../x"), ("monitor-interval", "0 s")]
    {
        assert!(Iceberg.validate(&request(&warehouse, vec![], &[(name, value)]), true).is_err());
    }
}

/// Runs statements of Python with arguments; what they print.
fn run(python: &Path, statements: &str, arguments: &[&str]) -> String {
    let output = Command::new(python).arg("-c").arg(statements).args(arguments).output();
    let output = output.expect("Python");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{statements}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
#[ignore = "needs pyiceberg: make connect-test"]
fn pyiceberg_reads_what_is_written() {
    let Some(python) = python::python_with("pyiceberg") else { return };
    let dir = tempfile::tempdir().expect("a folder");
    let warehouse = dir.path().to_str().expect("UTF-8");
    for (name, by) in [("flat", vec![]), ("parts", vec![1, 3]), ("times", vec![4, 6])] {
        let table = request(warehouse, by, &[("catalog-table", name)]);
        for step in 0..3 {
            write(&table, &rows(step * 100..step * 100 + 100)).expect("written");
        }
        let metadata = dir.path().join(format!("db/{name}/metadata/v4.metadata.json"));
        let said = run(
            &python,
            "import sys, datetime, decimal\n\
             from pyiceberg.table import StaticTable\n\
             table = StaticTable.from_metadata(sys.argv[1])\n\
             rows = sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row['n'])\n\
             epoch = datetime.datetime(1970, 1, 1)\n\
             for at, row in enumerate(rows):\n\
             \x20   n = None if at % 7 == 0 else at\n\
             \x20   assert row['n'] == at, row\n\
             \x20   assert row['k'] == (None if n is None else f'k/{n % 3}'), row\n\
             \x20   assert row['d'] == (None if n is None else decimal.Decimal(n - 5)), row\n\
             \x20   assert row['day'] == (None if n is None else datetime.date(1970, 1, 1 + n % 5)), row\n\
             \x20   assert row['ts'] == (None if n is None else epoch + datetime.timedelta(milliseconds=n * 1000 + 1)), row\n\
             \x20   assert row['x'] == (None if n is None else n / 4), row\n\
             \x20   assert row['b'] == (None if n is None else n % 2 == 0), row\n\
             count = lambda filter: table.scan(row_filter=filter).to_arrow().num_rows\n\
             files = lambda filter: len(list(table.scan(row_filter=filter).plan_files()))\n\
             print(len(rows), count('n >= 250'), files('n >= 250') < files('n >= 0'), count(\"k = 'k/1'\"), count('k is null'),\n\
             \x20     count('d > 200'), count(\"day = '1970-01-03'\"), len(table.history()), count('x < 1.0'))",
            &[metadata.to_str().expect("UTF-8")],
        );
        let live = || (0..300_i64).filter(|n| n % 7 != 0);
        let expected = format!(
            "300 50 True {} {} {} {} 3 {}\n",
            live().filter(|n| n % 3 == 1).count(),
            300 - live().count(),
            live().filter(|n| n - 5 > 200).count(),
            live().filter(|n| n % 5 == 2).count(),
            live().filter(|n| *n < 4).count()
        );
        assert_eq!(said, expected, "{name}");
    }
}

/// Makes a table with a catalog of its own, and shows its versions as a catalog of type `hadoop`
/// does.
const WRITE: &str = "import sys, os, shutil\n\
    import pyarrow\n\
    from pyiceberg.catalog.sql import SqlCatalog\n\
    warehouse = sys.argv[1]\n\
    catalog = SqlCatalog('c', uri=f'sqlite:///{warehouse}/catalog.db', warehouse=f'file://{warehouse}')\n\
    catalog.create_namespace_if_not_exists('db')\n\
    fields = [pyarrow.field('n', pyarrow.int64(), nullable=False), pyarrow.field('k', pyarrow.string())]\n\
    table = catalog.create_table_if_not_exists('db.t', schema=pyarrow.schema(fields), location=f'file://{warehouse}/db/t')\n\
    first, count, what = int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]\n\
    rows = pyarrow.Table.from_pylist([{'n': n, 'k': f'k{n}'} for n in range(first, first + count)], schema=pyarrow.schema(fields))\n\
    if what == 'append': table.append(rows)\n\
    if what == 'overwrite': table.overwrite(rows)\n\
    folder = f'{warehouse}/db/t/metadata'\n\
    number = len([name for name in os.listdir(folder) if name.startswith('v') and name.endswith('.metadata.json')]) + 1\n\
    shutil.copy(table.metadata_location.removeprefix('file://'), f'{folder}/v{number}.metadata.json')\n\
    open(f'{folder}/version-hint.text', 'w').write(str(number))\n";

#[test]
#[ignore = "needs pyiceberg: make connect-test"]
fn what_pyiceberg_writes_is_read_and_added_to() {
    let Some(python) = python::python_with("pyiceberg") else { return };
    let dir = tempfile::tempdir().expect("a folder");
    let warehouse = dir.path().to_str().expect("UTF-8");
    let two = |options: &[(&str, &str)]| TableRequest {
        schema: TableSchema::new(columns().columns[..2].to_vec()),
        ..request(warehouse, vec![], options)
    };
    for first in [0, 50] {
        run(&python, WRITE, &[warehouse, &first.to_string(), "50", "append"]);
    }
    assert_eq!(numbers(&read(&two(&[])).expect("read")), (0..100).collect::<Vec<_>>());
    let options = [
        ("streaming", "true"),
        ("monitor-interval", "20 ms"),
        ("starting-strategy", "TABLE_SCAN_THEN_INCREMENTAL"),
    ];
    let mut source = Iceberg.source(&two(&options)).expect("a source");
    let woken = started(source.as_mut()).expect("started");
    drain(source.as_mut(), &woken, 100).expect("rows");
    run(&python, WRITE, &[warehouse, "100", "20", "append"]);
    let found = drain(source.as_mut(), &woken, 20).expect("rows");
    assert_eq!(numbers(&found), (100..120).collect::<Vec<_>>());
    // What takes rows back ends a reader that follows, and no other one.
    run(&python, WRITE, &[warehouse, "0", "10", "overwrite"]);
    let error = drain(source.as_mut(), &woken, 1).expect_err("no append");
    assert!(error.message().contains("no append") && error.help().is_some(), "{error}");
    source.stop();
    assert_eq!(numbers(&read(&two(&[])).expect("read")), (0..10).collect::<Vec<_>>());
    // Our own rows behind those.
    write(&two(&[]), &rows(10..20).project(&[0, 1]).expect("two columns")).expect("written");
    assert_eq!(numbers(&read(&two(&[])).expect("read")), (0..20).collect::<Vec<_>>());
    let newest = fs::read_to_string(dir.path().join("db/t/metadata/version-hint.text"));
    let newest = newest.expect("a hint");
    let metadata = dir.path().join(format!("db/t/metadata/v{newest}.metadata.json"));
    let said = run(
        &python,
        "import sys\nfrom pyiceberg.table import StaticTable\n\
         print(sorted(StaticTable.from_metadata(sys.argv[1]).scan().to_arrow()['n'].to_pylist()))",
        &[metadata.to_str().expect("UTF-8")],
    );
    assert_eq!(said.trim(), format!("{:?}", (0..20).collect::<Vec<_>>()));
}
