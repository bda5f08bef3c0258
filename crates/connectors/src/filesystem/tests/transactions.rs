//! Files that are written in transactions: whatever happens at whatever call, a reader sees each
//! committed row once and none that is not.

use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arrow_array::{ArrayRef, Int64Array, StringViewArray};
use thalweg_core::connector::Sink;
use thalweg_core::snapshot::{OutputMark, OutputStart, SinkGuarantee};

use super::faulty::{Fault, FaultyFiles};
use super::*;
use crate::conformance::{SinkCase, Visibility, check_sink};
use crate::filesystem::files::Files;
use crate::filesystem::options::FileOptions;
use crate::filesystem::{Filesystem, open_sink};
use thalweg_core::connector::Connector;

fn two() -> TableSchema {
    schema(&[("s", DataType::STRING), ("n", DataType::BigInt)])
}

fn rows(range: std::ops::Range<i64>) -> RecordBatch {
    let texts: ArrayRef =
        Arc::new(StringViewArray::from_iter_values(range.clone().map(|n| format!("p{}", n % 3))));
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(range));
    RecordBatch::try_new(two().arrow(), vec![texts, numbers]).expect("two columns")
}

/// How a table is written.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Folder,
    Partitioned,
    Single,
}

/// Rows of a transaction.
const STEP: i64 = 6;
const STEPS: i64 = 3;

struct Job {
    files: FaultyFiles,
    kind: Kind,
    /// Two sinks of one process cannot write the same folder.
    number: u64,
    handle: Option<String>,
    /// Transactions whose snapshot is kept.
    kept: i64,
    /// Transactions of which the input has the rows.
    steps: i64,
}

impl Job {
    fn sink(&self) -> Box<dyn Sink> {
        let end = if self.kind == Kind::Single { ".csv" } else { "/" };
        let path = format!("no-such-folder-{}{end}", self.number);
        let mut request = request(Path::new("/"), two(), &[("path", &path)]);
        if self.kind == Kind::Partitioned {
            request.partitioned_by = vec![0];
        }
        // A part for every row or two.
        request.options.insert("sink.rolling-policy.file-size".into(), "9b".into());
        let options = FileOptions::read(&request, true).expect("options");
        open_sink(&request, options, &(Arc::new(self.files.clone()) as Arc<dyn Files>))
            .expect("a sink")
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
        for step in self.kept..self.steps {
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
        let text: Vec<u8> = self.files.visible().concat();
        let text = String::from_utf8(text).expect("text");
        let number =
            |line: &str| line.rsplit(',').next().and_then(|n| n.parse().ok()).expect("a row");
        let mut numbers: Vec<i64> = text.lines().map(number).collect();
        numbers.sort_unstable();
        numbers
    }

    fn check(&self, place: &str) {
        let seen = self.seen();
        let kept: Vec<i64> = (0..self.kept * STEP).collect();
        assert!(seen.len() <= kept.len(), "{place}: {seen:?} of {kept:?}");
        assert!(seen.windows(2).all(|pair| pair[0] < pair[1]), "{place}: twice in {seen:?}");
        assert!(seen.iter().all(|n| *n < self.kept * STEP), "{place}: not committed: {seen:?}");
    }

    fn check_end(&self, place: &str) {
        assert_eq!(self.seen(), (0..STEPS * STEP).collect::<Vec<_>>(), "{place}");
        let hidden = self.files.count() - self.files.visible().len();
        assert_eq!(hidden, 1, "{place}: hidden files are left besides the mark");
    }
}

fn job(kind: Kind) -> Job {
    let files = FaultyFiles::default();
    files.create_folder(Path::new("/")).expect("a root");
    files.sync_folder(Path::new("/")).expect("a root");
    static JOBS: AtomicU64 = AtomicU64::new(0);
    let number = JOBS.fetch_add(1, Ordering::Relaxed);
    Job { files, kind, number, handle: None, kept: 0, steps: STEPS }
}

fn fail_everywhere(kind: Kind) -> u64 {
    let mut runs = 0;
    for fault in Fault::ALL {
        for call in 1.. {
            let mut job = job(kind);
            job.files.fail_at(call, fault);
            let place = format!("{fault:?} at call {call}");
            let first = job.attempt();
            if !job.files.has_failed() {
                first.expect(&place);
                break;
            }
            if fault == Fault::Short {
                // Whoever writes must write the rest.
                first.expect(&place);
                job.check_end(&place);
                continue;
            }
            job.check(&place);
            job.files.restart();
            job.check(&place);
            job.attempt().expect(&place);
            job.check_end(&place);
            runs += 1;
        }
    }
    runs
}

/// Fails while it recovers from a failure.
fn fail_twice(kind: Kind) {
    let places = [Fault::KillAfter, Fault::PowerBefore];
    for (first, second) in places.into_iter().flat_map(|a| places.map(|b| (a, b))) {
        for call in 1.. {
            let mut job = job(kind);
            job.files.fail_at(call, first);
            let _ = job.attempt();
            if !job.files.has_failed() {
                break;
            }
            for again in 1..25 {
                let place = format!("{first:?} at call {call}, then {second:?} at call {again}");
                let mut job = super::transactions::job(kind);
                job.files.fail_at(call, first);
                let _ = job.attempt();
                job.files.restart();
                job.files.fail_at(again, second);
                let _ = job.attempt();
                job.check(&place);
                job.files.restart();
                job.attempt().expect(&place);
                job.check_end(&place);
            }
        }
    }
}

#[test]
fn a_folder_survives_a_fault_at_every_call() {
    assert!(fail_everywhere(Kind::Folder) > 250);
}

#[test]
fn a_partitioned_folder_survives_a_fault_at_every_call() {
    assert!(fail_everywhere(Kind::Partitioned) > 250);
}

#[test]
fn a_single_file_survives_a_fault_at_every_call() {
    assert!(fail_everywhere(Kind::Single) > 50);
}

#[test]
fn a_failure_during_recovery_is_survived() {
    fail_twice(Kind::Folder);
    fail_twice(Kind::Single);
}

#[test]
fn an_output_that_was_complete_is_continued() {
    for kind in [Kind::Folder, Kind::Partitioned, Kind::Single] {
        let mut job = job(kind);
        job.steps = 1;
        job.attempt().expect("the end of the input as it was");
        job.steps = STEPS;
        job.attempt().expect("the input has grown");
        job.check_end("after the end");
    }
}

/// The conformance suite over real files.
fn check_real(options: &[(&str, &str)], by: Vec<usize>, visibility: Visibility) {
    let input = rows(0..120);
    let make = || tempfile::tempdir().expect("a folder");
    let open = |dir: &tempfile::TempDir, as_source: bool| {
        let mut request = request(dir.path(), two(), options);
        request.partitioned_by = by.clone();
        if as_source && request.options["path"].ends_with('/') {
            fs::create_dir_all(dir.path().join("out")).expect("a folder");
        }
        request
    };
    let case = SinkCase {
        make: &make,
        open: &|dir| Filesystem::default().sink(&open(dir, false)),
        read: &|dir| {
            let request = open(dir, true);
            let is_there = dir.path().join(&request.options["path"]).exists();
            if is_there { drain(&mut open_source(&request, None)?, 1_000) } else { Ok(Vec::new()) }
        },
        rows: &input,
        kinds: None,
        guarantee: SinkGuarantee::Transactional,
        visibility,
        in_order: true,
        key: &[],
    };
    check_sink(&case, 4).expect("no error");
}

#[test]
fn folders_and_files_keep_the_contract_of_transactions() {
    for format in ["csv", "json", "parquet", "arrow"] {
        check_real(&[("path", "out/"), ("format", format)], Vec::new(), Visibility::AtCommit);
    }
    check_real(&[("path", "out.csv")], Vec::new(), Visibility::AtEnd);
    check_real(&[("path", "out.json"), ("format", "json")], Vec::new(), Visibility::AtEnd);
    check_real(&[("path", "out.csv"), ("csv.header", "true")], Vec::new(), Visibility::AtEnd);
}

#[test]
fn what_others_have_hidden_stays_and_what_they_show_is_not_replaced() {
    let dir = tempfile::tempdir().expect("a folder");
    let out = dir.path().join("out");
    fs::create_dir(&out).expect("a folder");
    let others =
        [".part-000001-00000000-0123456789abcdef.csv", ".part-1.csv", ".hidden", "x.csv.partial"];
    others.iter().for_each(|name| fs::write(out.join(name), "x,1\n").expect("written"));
    let request = request(dir.path(), two(), &[("path", "out/")]);
    let begin = |request: &TableRequest| -> Result<Box<dyn Sink>> {
        let mut sink = Filesystem::default().sink(request)?;
        sink.use_transactions();
        sink.check_start(None, &OutputStart::default())?;
        sink.recover(None)?;
        sink.open()?;
        Ok(sink)
    };
    let mut sink = begin(&request).expect("hidden files are no rows");
    sink.write(&rows(0..2), None).expect("written");
    let handle = sink.prepare().expect("prepared").expect("a handle");
    sink.commit(&handle).expect("committed");
    sink.finish().expect("finished");
    let names = || -> Vec<String> {
        let entries = fs::read_dir(&out).expect("a folder").flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    };
    assert!(others.iter().all(|name| names().iter().any(|found| found == name)), "{:?}", names());
    let Err(error) = begin(&request) else { panic!("the folder has rows") };
    assert!(error.help().is_some_and(|help| help.contains("--overwrite")), "{error}");
    let mut appending = request.clone();
    appending.options.insert("sink.append".into(), "true".into());
    let mut sink = begin(&appending).expect("rows are added");
    sink.write(&rows(2..4), None).expect("written");
    let later = sink.prepare().expect("prepared").expect("a handle");
    sink.commit(&later).expect("committed");
    sink.write(&rows(4..6), None).expect("written");
    let newest = sink.prepare().expect("prepared").expect("a handle");
    sink.commit(&newest).expect("committed");
    sink.finish().expect("finished");
    // Behind that snapshot rows are visible already.
    let mut sink = Filesystem::default().sink(&appending).expect("a sink");
    sink.use_transactions();
    let error = sink.recover(Some(&later)).expect_err("a snapshot that is not the newest");
    assert!(error.message().contains("committed after"), "{error}");
    for damaged in
        ["", "{}", "{\"run\":\"x\",\"next\":1,\"parts\":[{\"folder\":\"..\",\"name\":\"part-1\"}]}"]
    {
        assert!(sink.recover(Some(damaged)).is_err(), "{damaged}");
    }
}

#[test]
fn a_file_that_cannot_be_continued_is_refused_at_planning() {
    let dir = tempfile::tempdir().expect("a folder");
    let refused = |options: &[(&str, &str)], has_snapshots: bool| {
        let request = request(dir.path(), two(), options);
        let result = Filesystem::default().validate(&request, true).and_then(|()| {
            if has_snapshots {
                Filesystem::default().check_snapshots(&request, true)
            } else {
                Ok(())
            }
        });
        result.err().is_some_and(|error| {
            assert!(
                error.is_plan_error() && error.help().is_some_and(|help| help.contains("folder")),
                "{error}"
            );
            true
        })
    };
    let parquet = [("path", "out.parquet"), ("format", "parquet")];
    let zipped = [("path", "out.csv.gz")];
    for options in [&parquet[..], &zipped] {
        assert!(!refused(options, false) && refused(options, true));
        let explicit = [options, &[("sink.delivery-guarantee", "exactly-once")]].concat();
        assert!(refused(&explicit, false));
        let none = [options, &[("sink.delivery-guarantee", "none")]].concat();
        assert!(!refused(&none, true));
        let append = [options, &[("sink.append", "true")]].concat();
        assert!(refused(&append, false));
    }
    assert!(!refused(&[("path", "out/"), ("format", "parquet")], true));
    assert!(!refused(&[("path", "out.csv")], true));
}

#[test]
fn rows_are_added_to_what_is_there() {
    let dir = tempfile::tempdir().expect("a folder");
    let write = |options: &[(&str, &str)], from: i64| {
        let append = [options, &[("sink.append", "true")]].concat();
        let mut sink =
            Filesystem::default().sink(&request(dir.path(), two(), &append)).expect("a sink");
        sink.open().expect("opened");
        sink.write(&rows(from..from + 2), None).expect("written");
        sink.finish().expect("finished");
    };
    fs::write(dir.path().join("out.csv"), "s,n\nx,9").expect("written");
    write(&[("path", "out.csv"), ("csv.header", "true")], 0);
    let text = fs::read_to_string(dir.path().join("out.csv")).expect("text");
    assert_eq!(text, "s,n\nx,9\np0,0\np1,1\n");
    (0..3).for_each(|run| write(&[("path", "folder/"), ("format", "parquet")], run * 2));
    let read = request(dir.path(), two(), &[("path", "folder/"), ("format", "parquet")]);
    let mut source = open_source(&read, None).expect("opened");
    assert_eq!(texts(&drain(&mut source, 10).expect("rows"), &two()).len(), 6);
    assert!(dir.path().join("folder/part-2.parquet").exists());
}

#[test]
fn at_least_once_shows_rows_when_they_are_prepared() {
    let dir = tempfile::tempdir().expect("a folder");
    let options = [("path", "out/"), ("sink.delivery-guarantee", "at-least-once")];
    let request = request(dir.path(), two(), &options);
    let mut sink = Filesystem::default().sink(&request).expect("a sink");
    assert_eq!(sink.use_transactions(), SinkGuarantee::AtLeastOnce);
    sink.recover(None).expect("an empty folder");
    sink.open().expect("opened");
    sink.write(&rows(0..3), None).expect("written");
    let handle = sink.prepare().expect("prepared").expect("a handle");
    assert_eq!(visible_parts(dir.path()), 0, "this job could not be resumed");
    sink.commit(&handle).expect("committed");
    assert_eq!(visible_parts(dir.path()), 1);
    sink.write(&rows(3..4), None).expect("written");
    let handle = sink.prepare().expect("prepared").expect("a handle");
    assert_eq!(visible_parts(dir.path()), 2);
    sink.commit(&handle).expect("done already");
}

/// How many files of the folder a reader looks at.
fn visible_parts(dir: &Path) -> usize {
    let entries = fs::read_dir(dir.join("out")).expect("a folder").flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| !name.starts_with('.')).count()
}

/// Rows are shown although no snapshot is taken, in few files; the next snapshot knows these files.
#[test]
fn at_least_once_shows_rows_by_time() {
    let dir = tempfile::tempdir().expect("a folder");
    let soon = ("sink.rolling-policy.rollover-interval", "1 ms");
    let request_soon = request(dir.path(), two(), &[("path", "out/"), soon]);
    let mut sink = Filesystem::default().sink(&request_soon).expect("a sink");
    sink.write_at_least_once();
    sink.recover(None).expect("an empty folder");
    sink.open().expect("opened");
    let handle = sink.prepare().expect("prepared").expect("a handle");
    sink.commit(&handle).expect("nothing is in it");
    sink.write(&rows(0..3), None).expect("written");
    std::thread::sleep(Duration::from_millis(2));
    sink.flush().expect("flushed");
    assert_eq!(visible_parts(dir.path()), 1, "no snapshot was taken");
    sink.flush().expect("flushed");
    sink.write(&rows(3..4), None).expect("written");
    let handle = sink.prepare().expect("prepared").expect("a handle");
    assert_eq!(handle.matches("\"name\"").count(), 2, "{handle}");
    sink.commit(&handle).expect("done already");
    assert_eq!(visible_parts(dir.path()), 2);
    drop(sink);

    let dir = tempfile::tempdir().expect("a folder");
    let request = request(dir.path(), two(), &[("path", "out/")]);
    let mut sink = Filesystem::default().sink(&request).expect("a sink");
    sink.write_at_least_once();
    sink.recover(None).expect("an empty folder");
    sink.open().expect("opened");
    let begun = Instant::now();
    let handle = sink.prepare().expect("prepared").expect("a handle");
    sink.commit(&handle).expect("nothing is in it");
    for n in 0..50 {
        sink.write(&rows(n..n + 1), None).expect("written");
        sink.flush().expect("flushed");
    }
    let seconds = begun.elapsed().as_secs() as usize;
    assert!(visible_parts(dir.path()) <= seconds, "one a second");
}

/// Such a run may have shown more than the snapshot covers that another resumes from.
#[test]
fn at_least_once_keeps_what_was_shown_behind_the_snapshot() {
    let dir = tempfile::tempdir().expect("a folder");
    let request = request(dir.path(), two(), &[("path", "out/")]);
    let mut handle = None;
    for run in 0..3 {
        let mut sink = Filesystem::default().sink(&request).expect("a sink");
        sink.write_at_least_once();
        sink.recover(handle.as_deref()).expect("what is there stays");
        sink.open().expect("opened");
        sink.write(&rows(run * 2..run * 2 + 1), None).expect("written");
        let prepared = sink.prepare().expect("prepared");
        handle = prepared.filter(|_| run == 0).or(handle);
        sink.write(&rows(9..10), None).expect("written");
        // The process dies.
        sink.abort();
    }
    assert_eq!(visible_parts(dir.path()), 3);
}
