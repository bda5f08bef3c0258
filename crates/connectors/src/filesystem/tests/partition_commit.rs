//! Partitions that are declared complete by a file.

use std::fs;

use arrow_array::{ArrayRef, Int64Array, StringViewArray};
use thalweg_core::connector::{Connector, Sink};
use thalweg_core::snapshot::{OutputMark, OutputStart};

use super::*;
use crate::filesystem::Filesystem;

fn rows(range: std::ops::Range<i64>) -> RecordBatch {
    let texts: ArrayRef =
        Arc::new(StringViewArray::from_iter_values(range.clone().map(|n| format!("p{}", n % 2))));
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(range));
    let schema = schema(&[("s", DataType::STRING), ("n", DataType::BigInt)]);
    RecordBatch::try_new(schema.arrow(), vec![texts, numbers]).expect("two columns")
}

fn table(dir: &Path, options: &[(&str, &str)]) -> TableRequest {
    let kind = ("sink.partition-commit.policy.kind", "success-file");
    let options = [&[("path", "out/"), kind], options].concat();
    let schema = schema(&[("s", DataType::STRING), ("n", DataType::BigInt)]);
    TableRequest { partitioned_by: vec![0], ..request(dir, schema, &options) }
}

/// A sink in a job with snapshots that starts, or resumes from a handle.
fn started(request: &TableRequest, handle: Option<&str>) -> Box<dyn Sink> {
    let mark = OutputMark { lineage: "one".to_owned(), snapshot: 1 };
    let start = OutputStart { accepted: vec![mark.clone()], ..OutputStart::default() };
    let mut sink = Filesystem::default().sink(request).expect("a sink");
    let _guarantee = sink.use_transactions();
    sink.claim().expect("claimed");
    sink.check_start(handle, &start).expect("it may start");
    sink.mark(&mark).expect("marked");
    sink.recover(handle).expect("recovered");
    sink.open().expect("open");
    sink
}

fn complete(dir: &Path) -> Vec<bool> {
    ["s=p0", "s=p1"].map(|name| dir.join("out").join(name).join("_SUCCESS").exists()).to_vec()
}

#[test]
fn a_run_without_snapshots_completes_partitions_at_its_end() {
    let dir = tempfile::tempdir().expect("a folder");
    let request = table(dir.path(), &[]);
    let mut sink = Filesystem::default().sink(&request).expect("a sink");
    sink.check_start(None, &OutputStart::default()).expect("nothing is there");
    sink.open().expect("open");
    sink.write(&rows(0..1), None).expect("written");
    assert_eq!(complete(dir.path()), [false, false]);
    sink.finish().expect("finished");
    assert_eq!(complete(dir.path()), [true, false], "the other one got no rows");
    assert_eq!(read(&request).expect("rows").len(), 1, "the file is no file of rows");
}

#[test]
fn a_partition_is_complete_when_its_rows_are_visible_and_its_delay_has_passed() {
    let dir = tempfile::tempdir().expect("a folder");
    let request = table(dir.path(), &[]);
    let mut sink = started(&request, None);
    sink.write(&rows(0..4), None).expect("written");
    let handle = sink.prepare().expect("prepared").expect("a transaction");
    assert_eq!(complete(dir.path()), [false, false]);
    // The run dies between the snapshot and its commit.
    drop(sink);
    let mut sink = started(&request, Some(&handle));
    assert_eq!(complete(dir.path()), [true, true]);
    for name in ["s=p0", "s=p1"] {
        fs::remove_file(dir.path().join("out").join(name).join("_SUCCESS")).expect("removed");
    }
    // Late rows complete their partition again, and no other.
    sink.write(&rows(5..6), None).expect("written");
    let handle = sink.prepare().expect("prepared").expect("a transaction");
    sink.commit(&handle).expect("committed");
    assert_eq!(complete(dir.path()), [false, true]);
}

#[test]
fn what_waits_continues_to_wait_in_another_run_and_ends_with_the_job() {
    let dir = tempfile::tempdir().expect("a folder");
    let request = table(dir.path(), &[("sink.partition-commit.delay", "1 h")]);
    let mut sink = started(&request, None);
    sink.write(&rows(0..4), None).expect("written");
    let handle = sink.prepare().expect("prepared").expect("a transaction");
    sink.commit(&handle).expect("committed");
    assert_eq!(complete(dir.path()), [false, false]);
    drop(sink);
    let mut sink = started(&request, Some(&handle));
    assert_eq!(complete(dir.path()), [false, false]);
    sink.finish().expect("finished");
    assert_eq!(complete(dir.path()), [true, true]);
}

#[test]
fn what_is_not_there_is_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    for (name, value) in [
        ("sink.partition-commit.policy.kind", "metastore,success-file"),
        ("sink.partition-commit.policy.kind", "done"),
        ("sink.partition-commit.trigger", "partition-time"),
        ("sink.partition-commit.success-file.name", "../_x"),
    ] {
        let request = table(dir.path(), &[(name, value)]);
        let error = Filesystem::default().validate(&request, true).expect_err(value);
        assert!(error.message().contains(value) || error.help().is_some(), "{error}");
    }
    let flat = TableRequest { partitioned_by: Vec::new(), ..table(dir.path(), &[]) };
    assert!(Filesystem::default().validate(&flat, true).is_err());
}
