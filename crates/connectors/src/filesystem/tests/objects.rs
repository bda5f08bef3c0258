//! Files in object stores: what is written is read again, whatever fails at whatever call, and
//! nothing is left behind.

use std::sync::atomic::{AtomicU64, Ordering};

use arrow_array::{ArrayRef, Int64Array, StringViewArray};
use object_store::ObjectStoreExt;
use object_store::memory::InMemory;
use object_store::path::Path as Key;
use thalweg_core::connector::{Connector, Sink};
use thalweg_core::snapshot::{OutputMark, OutputStart, SinkGuarantee};

use super::faulty_store::{Fault, FaultyStore};
use super::*;
use crate::conformance::{SinkCase, Started, Visibility, check_sink};
use crate::filesystem::files::Files;
use crate::filesystem::objects::{ObjectFiles, Objects};
use crate::filesystem::options::FileOptions;
use crate::filesystem::{Filesystem, open_sink, parquet_source};

fn two() -> TableSchema {
    schema(&[("s", DataType::STRING), ("n", DataType::BigInt)])
}

fn rows(range: std::ops::Range<i64>) -> RecordBatch {
    let texts: ArrayRef =
        Arc::new(StringViewArray::from_iter_values(range.clone().map(|n| format!("p/{}", n % 3))));
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(range));
    RecordBatch::try_new(two().arrow(), vec![texts, numbers]).expect("two columns")
}

/// A bucket in memory that no other test uses.
fn bucket() -> String {
    static BUCKETS: AtomicU64 = AtomicU64::new(0);
    format!("memory://bucket-{}", BUCKETS.fetch_add(1, Ordering::Relaxed))
}

fn table(path: &str, options: &[(&str, &str)]) -> TableRequest {
    let options = [&[("path", path)], options].concat();
    request(Path::new("/"), two(), &options)
}

/// Writes rows without snapshots.
fn write(request: &TableRequest, batch: &RecordBatch) -> Result<()> {
    let mut sink = Filesystem::default().sink(request)?;
    sink.check_start(None, &OutputStart::default())?;
    sink.open()?;
    sink.write(batch, None)?;
    sink.finish()
}

/// Puts an object as another program would.
fn put(url: &str, text: &str) {
    let request = table(url, &[]);
    let objects = Objects::of(&request, url).expect("a store").expect("a URL");
    ObjectFiles::new(objects).replace(Path::new(url), text.as_bytes()).expect("written");
}

fn sorted(mut rows: Vec<Vec<String>>) -> Vec<Vec<String>> {
    rows.sort();
    rows
}

#[test]
fn every_format_is_read_as_it_was_written() {
    let expected = texts(&[rows(0..5_000)], &two());
    for (path, format) in [
        ("a.csv", "csv"),
        ("a.csv.gz", "csv"),
        ("a.json.zst", "json"),
        ("a.parquet", "parquet"),
        ("a.arrow", "arrow"),
        ("a.avro", "avro"),
        ("out/", "csv"),
        ("out/", "parquet"),
    ] {
        let path = format!("{}/x/{path}", bucket());
        let request = table(&path, &[("format", format)]);
        write(&request, &rows(0..5_000)).expect(&path);
        assert_eq!(read(&request).expect(&path), expected, "{path}");
    }
}

#[test]
fn partitions_with_any_text_return() {
    let mut request = table(&format!("{}/out/", bucket()), &[]);
    request.partitioned_by = vec![0];
    write(&request, &rows(0..30)).expect("written");
    let expected = sorted(texts(&[rows(0..30)], &two()));
    assert_eq!(sorted(read(&request).expect("read")), expected);
}

#[test]
fn folders_patterns_and_hidden_names_are_as_on_a_disk() {
    let bucket = bucket();
    for name in ["in/b.csv", "in/a.csv", "in/.h.csv", "in/_SUCCESS", "in/sub/z.csv", "inner/x.csv"]
    {
        put(&format!("{bucket}/{name}"), &format!("{name},1\n"));
    }
    let names = |path: &str| -> Vec<String> {
        let found = read(&table(&format!("{bucket}/{path}"), &[])).expect(path);
        found.into_iter().map(|row| row[0].clone()).collect()
    };
    assert_eq!(names("in/"), ["in/a.csv", "in/b.csv", "in/sub/z.csv"]);
    assert_eq!(names("in"), ["in/a.csv", "in/b.csv", "in/sub/z.csv"]);
    assert_eq!(names("in/[b-c].csv"), ["in/b.csv"]);
    assert_eq!(names("i*/*.csv"), ["in/a.csv", "in/b.csv", "inner/x.csv"]);
    assert_eq!(names("in/a.csv"), ["in/a.csv"]);
    for path in ["in/c.csv", "out/", "in/x*.csv"] {
        let error = read(&table(&format!("{bucket}/{path}"), &[])).expect_err(path);
        assert!(error.message().contains("no object"), "{error}");
    }
}

#[test]
fn a_position_resumes_at_the_same_object_alone() {
    for format in ["csv", "parquet"] {
        let bucket = bucket();
        let request = table(&format!("{bucket}/a.{format}"), &[("format", format)]);
        write(&request, &rows(0..100)).expect("written");
        let open = || Box::new(open_source(&request, Some(64)).expect("a source"));
        let mut started = Started::new(open(), None).expect("started");
        let first = started.next(30).expect("read").expect("rows");
        let position = started.source().position().expect("a position");
        let mut resumed = Started::new(open(), Some(&position)).expect("the same object");
        let mut found = texts(&[first], &two());
        while let Some(batch) = resumed.next(1_000).expect("read") {
            found.extend(texts(&[batch], &two()));
        }
        assert_eq!(found, texts(&[rows(0..100)], &two()), "{format}");
        // Written again: the same length, and another object.
        write(&request, &rows(0..100)).expect("written");
        let error = Started::new(open(), Some(&position)).map(drop).expect_err("another object");
        assert!(error.message().contains("was replaced"), "{error}");
    }
}

#[test]
fn new_objects_are_found_and_each_is_read_once() {
    let bucket = bucket();
    let options = [("source.monitor-interval", "5 ms")];
    let request = table(&format!("{bucket}/in/"), &options);
    assert!(!Filesystem::default().is_bounded(&request));
    let start = |position: Option<&str>| {
        Started::new(Box::new(open_source(&request, Some(8)).expect("a source")), position)
    };
    let next = |started: &mut Started| -> Result<String> {
        let batch = started.next(1)?.expect("followed objects do not end");
        Ok(texts(&[batch], &two())[0][1].clone())
    };
    put(&format!("{bucket}/in/b.csv"), "b,1\nb,2");
    let mut started = start(None).expect("started");
    assert_eq!([next(&mut started), next(&mut started)].map(|n| n.expect("a row")), ["1", "2"]);
    put(&format!("{bucket}/in/a.csv"), "a,3\na,4\n");
    assert_eq!(next(&mut started).expect("a row"), "3");
    let position = started.source().position().expect("a position");
    let mut resumed = start(Some(&position)).expect("resumed");
    assert_eq!(next(&mut resumed).expect("a row"), "4");
    put(&format!("{bucket}/in/c.csv"), "c,5\n");
    assert_eq!(next(&mut resumed).expect("a row"), "5");
    // Another object under a name that was read.
    put(&format!("{bucket}/in/b.csv"), "b,1\nb,2\nb,6\n");
    let error = next(&mut resumed).expect_err("it was replaced");
    assert!(error.to_string().contains("in/b.csv"), "{error}");
    let error = start(Some(&position)).map(drop).expect_err("it was replaced");
    assert!(error.message().contains("was replaced"), "{error}");
}

#[test]
fn one_object_is_never_continued_and_web_servers_are_only_read() {
    let at = |path: &str, options: &[(&str, &str)], as_sink: bool| {
        let request = table(path, options);
        Filesystem::default()
            .validate(&request, as_sink)
            .and_then(|()| Filesystem::default().check_snapshots(&request, as_sink))
    };
    assert!(at("memory://b/out/", &[], true).is_ok());
    for (path, options, as_sink) in [
        ("memory://b/a.csv", &[][..], true),
        ("memory://b/a.csv", &[("sink.append", "true")], true),
        ("https://127.0.0.1/a/", &[], true),
        ("https://127.0.0.1/*.csv", &[], false),
        ("s4://b/a.csv", &[], false),
    ] {
        let error = at(path, options, as_sink).expect_err(path);
        assert!(error.help().is_some(), "{path}: {error}");
    }
    let letters = [("bad-data", "dead-letter"), ("dead-letter.path", "memory://b/bad.jsonl")];
    put("memory://letters/a.csv", "a,1\n");
    let error = open_source(&table("memory://letters/a.csv", &letters), None).map(drop);
    assert!(error.expect_err("no file").message().contains("dead-letter.path"));
}

#[test]
fn folders_in_stores_keep_the_contract_of_transactions() {
    let input = rows(0..120);
    for format in ["csv", "parquet"] {
        let open = |bucket: &String| table(&format!("{bucket}/out/"), &[("format", format)]);
        let case = SinkCase {
            make: &bucket,
            open: &|bucket| Filesystem::default().sink(&open(bucket)),
            read: &|bucket| match open_source(&open(bucket), None) {
                Err(error) if error.message().contains("no object") => Ok(Vec::new()),
                source => drain(&mut source?, 1_000),
            },
            rows: &input,
            kinds: None,
            guarantee: SinkGuarantee::Transactional,
            visibility: Visibility::AtCommit,
            in_order: true,
            key: &[],
        };
        check_sink(&case, 4).expect("no error");
    }
}

/// Rows of a transaction.
const STEP: i64 = 6;
const STEPS: i64 = 3;

/// A job that writes a folder of a store.
struct Job {
    store: Arc<FaultyStore>,
    handle: Option<String>,
    /// Transactions whose snapshot is kept.
    kept: i64,
}

impl Job {
    fn sink(&self) -> Box<dyn Sink> {
        let options = [("sink.rolling-policy.file-size", "9b")];
        let request = table("memory://faulty/out/", &options);
        // A piece for every few bytes.
        let objects = Objects::in_memory(&self.store, "memory://faulty", 7);
        let files: Arc<dyn Files> = Arc::new(ObjectFiles::new(Arc::new(objects)));
        let options = FileOptions::read(&request, true).expect("options");
        open_sink(&request, options, &files).expect("a sink")
    }

    /// Resumes from the newest snapshot and runs to the end, or to the first error.
    fn attempt(&mut self) -> Result<()> {
        let mut sink = self.sink();
        assert_eq!(sink.use_transactions(), SinkGuarantee::Transactional);
        let mark =
            |kept: i64| OutputMark { lineage: "l".to_owned(), snapshot: kept.unsigned_abs() };
        let (accepted, is_marked) = (vec![mark(self.kept)], self.handle.is_some());
        let start = OutputStart { accepted, is_marked, ..OutputStart::default() };
        sink.check_start(self.handle.as_deref(), &start)?;
        sink.mark(&mark(self.kept))?;
        sink.recover(self.handle.as_deref())?;
        sink.open()?;
        for step in self.kept..STEPS {
            for row in 0..STEP {
                let n = step * STEP + row;
                sink.write(&rows(n..n + 1), None)?;
            }
            let handle = sink.prepare()?.expect("a folder has a handle");
            (self.handle, self.kept) = (Some(handle.clone()), step + 1);
            sink.mark(&mark(self.kept))?;
            sink.commit(&handle)?;
        }
        sink.finish()
    }

    /// The numbers that a reader sees, sorted.
    fn seen(&self) -> Vec<i64> {
        let visible = self.store.visible();
        let number = |line: &str| line.rsplit(',').next().and_then(|n| n.parse().ok());
        let mut numbers: Vec<i64> =
            visible.lines().map(|line| number(line).expect("a row")).collect();
        numbers.sort_unstable();
        numbers
    }

    fn check(&self, place: &str) {
        let seen = self.seen();
        assert!(seen.windows(2).all(|pair| pair[0] < pair[1]), "{place}: twice in {seen:?}");
        assert!(seen.iter().all(|n| *n < self.kept * STEP), "{place}: not committed: {seen:?}");
    }

    fn check_end(&self, place: &str) {
        assert_eq!(self.seen(), (0..STEPS * STEP).collect::<Vec<_>>(), "{place}");
        assert_eq!(self.store.hidden(), 1, "{place}: more is left than the mark");
    }
}

fn job() -> Job {
    Job { store: Arc::default(), handle: None, kept: 0 }
}

#[test]
fn a_folder_of_a_store_survives_a_fault_at_every_call() {
    let mut runs = 0;
    for fault in Fault::ALL {
        for call in 1.. {
            let mut job = job();
            job.store.fail_at(call, fault);
            let place = format!("{fault:?} at call {call}");
            let first = job.attempt();
            if !job.store.has_failed() {
                first.expect(&place);
                break;
            }
            job.check(&place);
            job.store.restart();
            if first.is_err() {
                job.attempt().expect(&place);
            }
            job.check_end(&place);
            // An upload whose name the process never learned holds nothing, and nobody can end it.
            let unknown = job.store.unfinished_with_pieces();
            assert_eq!(unknown, 0, "{place}: uploads are left");
            runs += 1;
        }
    }
    assert!(runs > 300, "{runs}");
}

#[test]
fn a_failure_while_a_store_recovers_is_survived() {
    for call in (1..).step_by(5) {
        let mut reached = false;
        for again in 1..20 {
            let place = format!("call {call}, then call {again}");
            let mut job = job();
            job.store.fail_at(call, Fault::KillAfter);
            let _ = job.attempt();
            reached = job.store.has_failed();
            job.store.restart();
            job.store.fail_at(again, Fault::KillAfter);
            let _ = job.attempt();
            job.check(&place);
            job.store.restart();
            job.attempt().expect(&place);
            job.check_end(&place);
        }
        if !reached {
            return;
        }
    }
}

#[test]
fn a_run_that_failed_leaves_no_upload_and_gives_way() {
    let store: Arc<FaultyStore> = Arc::default();
    let sink = || {
        let request = table("memory://faulty/a.csv", &[]);
        let objects = Objects::in_memory(&store, "memory://faulty", 7);
        let files: Arc<dyn Files> = Arc::new(ObjectFiles::new(Arc::new(objects)));
        open_sink(&request, FileOptions::read(&request, true).expect("options"), &files)
    };
    let mut first = sink().expect("a sink");
    first.open().expect("open");
    first.write(&rows(0..1_000), None).expect("written");
    first.flush().expect("flushed");
    first.abort();
    drop(first);
    assert_eq!((store.visible().as_str(), store.hidden()), ("", 0));
    assert_eq!(store.unfinished_with_pieces(), 0);
    // One that was killed leaves its note; the next run aborts what it names.
    let mut killed = sink().expect("a sink");
    killed.open().expect("open");
    killed.write(&rows(0..1_000), None).expect("written");
    killed.flush().expect("flushed");
    store.fail_at(1, Fault::KillBefore);
    drop(killed);
    store.restart();
    assert_eq!(store.hidden(), 1);
    let mut last = sink().expect("a sink");
    last.open().expect("open");
    last.write(&rows(0..10), None).expect("written");
    last.finish().expect("finished");
    assert_eq!(store.visible().lines().count(), 10);
    assert_eq!((store.hidden(), store.unfinished_with_pieces()), (0, 0));
}

#[test]
fn what_is_fetched_ahead_and_what_is_not_read_the_same() {
    let store = Arc::new(InMemory::new());
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
    futures_executor::block_on(store.put(&Key::from("a"), bytes.clone().into())).expect("put");
    let size = futures_executor::block_on(store.head(&Key::from("a"))).expect("there").size;
    assert_eq!(size, bytes.len() as u64);
    let objects = Arc::new(Objects::in_memory(&store, "memory://x", 7));
    let file = objects.present(&table("memory://x/a", &[]), "memory://x/a").expect("listed");
    let handle = file[0].open().expect("open");
    let parts = [10..2_000, 1_048_000..1_049_000, 2_999_000..3_000_000];
    for ahead in [&[][..], &[0..1_500, 1_048_500..1_048_600, 2_999_990..3_000_000]] {
        handle.expect(ahead, 1 << 20).expect("fetched");
        for part in &parts {
            use parquet::file::reader::ChunkReader;
            let length = (part.end - part.start) as usize;
            let found = handle.get_bytes(part.start, length).expect("read");
            assert_eq!(found, bytes[part.start as usize..part.end as usize], "{part:?}");
        }
    }
    assert!(parquet::file::reader::ChunkReader::get_bytes(&handle, size - 1, 2).is_err());
}

#[test]
fn of_parquet_the_wanted_columns_are_fetched_a_row_group_at_a_time() {
    let store: Arc<FaultyStore> = Arc::default();
    let objects = Arc::new(Objects::in_memory(&store, "memory://faulty", 5 << 20));
    let options = [
        ("format", "parquet"),
        ("parquet.compression", "UNCOMPRESSED"),
        ("parquet.enable.dictionary", "false"),
        ("parquet.block.size", "2000000"),
    ];
    let request = table("memory://faulty/wide.parquet", &options);
    let files: Arc<dyn Files> = Arc::new(ObjectFiles::new(objects.clone()));
    let read_options = FileOptions::read(&request, true).expect("options");
    let mut sink = open_sink(&request, read_options, &files).expect("a sink");
    sink.open().expect("open");
    for step in 0..30_i64 {
        let numbers = step * 2_000..(step + 1) * 2_000;
        let wide = numbers.clone().map(|n| format!("{n:0200}"));
        let columns: Vec<ArrayRef> = vec![
            Arc::new(StringViewArray::from_iter_values(wide)),
            Arc::new(Int64Array::from_iter_values(numbers)),
        ];
        let batch = RecordBatch::try_new(two().arrow(), columns).expect("two columns");
        sink.write(&batch, None).expect("written");
    }
    sink.finish().expect("finished");
    let found = objects.present(&request, "memory://faulty/wide.parquet").expect("listed");
    let (size, handle) = (found[0].size, found[0].open().expect("open"));
    let reader = parquet::file::reader::SerializedFileReader::new(handle).expect("Parquet");
    let groups = parquet::file::reader::FileReader::metadata(&reader).num_row_groups() as u64;
    assert!(groups >= 4 && size > 12_000_000, "{groups} groups, {size} bytes");
    store.take_reads();
    let numbers = TableRequest { projection: Some(vec![1]), ..request };
    let mut source = parquet_source(&numbers, found, Some(objects), None);
    let rows = drain(&mut source, 10_000).expect("rows");
    assert_eq!(rows.iter().map(RecordBatch::num_rows).sum::<usize>(), 60_000);
    let (reads, bytes) = store.take_reads();
    // The end of the file, and a piece of each group.
    assert!(reads <= groups + 2, "{reads} reads of {groups} groups");
    assert!(bytes < size / 4, "{bytes} of {size} bytes");
}
