//! Files that are followed: new ones, growth, last lines that are not complete, and positions on
//! the way.

use std::fs::{self, OpenOptions};
use std::io::Write;

use super::*;
use crate::conformance::Started;
use crate::filesystem::Filesystem;
use thalweg_core::connector::{Connector, SplitId};

fn two() -> TableSchema {
    schema(&[("s", DataType::STRING), ("n", DataType::BigInt)])
}

fn following(dir: &Path, options: &[(&str, &str)]) -> TableRequest {
    let options = [&[("path", "in/"), ("source.monitor-interval", "5 ms")], options].concat();
    request(dir, two(), &options)
}

fn append(path: &Path, text: &str) {
    let mut file = OpenOptions::new().create(true).append(true).open(path).expect("a file");
    file.write_all(text.as_bytes()).expect("written");
}

fn start(request: &TableRequest, position: Option<&str>) -> Result<Started> {
    Started::new(Box::new(open_source(request, Some(8))?), position)
}

/// This many of the next numbers.
fn numbers(started: &mut Started, count: usize) -> Result<Vec<String>> {
    let mut numbers = Vec::new();
    while numbers.len() < count {
        let batch = started.next(1)?.expect("followed files do not end");
        numbers.extend(texts(&[batch], &two()).into_iter().map(|row| row[1].clone()));
    }
    Ok(numbers)
}

#[test]
fn files_are_read_as_they_appear_and_grow() {
    let dir = tempfile::tempdir().expect("a folder");
    let folder = dir.path().join("in");
    fs::create_dir(&folder).expect("a folder");
    let request = following(dir.path(), &[]);
    assert!(!Filesystem::default().is_bounded(&request));
    append(&folder.join("b.csv"), "b,1\nb,2\nb,");
    let mut started = start(&request, None).expect("started");
    assert_eq!(numbers(&mut started, 2).expect("rows"), ["1", "2"]);
    append(&folder.join(".hidden.csv"), "h,9\n");
    fs::write(folder.join(".c.csv"), "c,4\n").expect("written");
    append(&folder.join("b.csv"), "3\nb");
    assert_eq!(numbers(&mut started, 1).expect("rows"), ["3"]);
    fs::rename(folder.join(".c.csv"), folder.join("c.csv")).expect("renamed");
    assert_eq!(numbers(&mut started, 1).expect("rows"), ["4"]);
    append(&folder.join("b.csv"), ",5\n");
    assert_eq!(numbers(&mut started, 1).expect("rows"), ["5"]);
    let zipped = zstd::encode_all(&b"a,6\n"[..], 1).expect("compressed");
    fs::write(folder.join(".a"), zipped).expect("written");
    fs::rename(folder.join(".a"), folder.join("a.csv.zst")).expect("renamed");
    assert_eq!(numbers(&mut started, 1).expect("rows"), ["6"]);
    // A file of that name that comes again is another one.
    fs::remove_file(folder.join("c.csv")).expect("removed");
    std::thread::sleep(Duration::from_millis(200));
    append(&folder.join("c.csv"), "c,7\n");
    assert_eq!(numbers(&mut started, 1).expect("rows"), ["7"]);
    // The one that was removed may still get rows for a while, and is forgotten then.
    while started.source().position().expect("a position").matches("c.csv").count() > 1 {
        std::thread::sleep(Duration::from_millis(5));
        started.source().poll(1).expect("nothing more");
    }
}

#[test]
fn a_position_holds_how_far_each_file_was_read() {
    let dir = tempfile::tempdir().expect("a folder");
    let folder = dir.path().join("in");
    fs::create_dir(&folder).expect("a folder");
    let request = following(dir.path(), &[]);
    let mut expected: Vec<String> = Vec::new();
    let mut seen: Vec<String> = Vec::new();
    let mut position: Option<String> = None;
    for round in 0..30 {
        let mut started = start(&request, position.as_deref()).expect("started");
        for (file, name) in ["a.csv", "b.csv", "c.csv"].into_iter().enumerate() {
            if (round + file) % 3 != 0 {
                let n = round * 10 + file;
                append(&folder.join(name), &format!("x,{n}\ny,{n}\nz,{n}\n"));
                expected.extend(std::iter::repeat_n(n.to_string(), 3));
            }
        }
        // Some rows are left for the next round, which may begin in the middle of a block.
        let wanted = expected.len() - seen.len() - (round * 7) % 5;
        seen.extend(numbers(&mut started, wanted).expect("rows"));
        position = started.source().position();
        // What was read on is forgotten.
        let left = expected.len() - seen.len();
        numbers(&mut started, left).expect("rows");
    }
    let mut started = start(&request, position.as_deref()).expect("started");
    seen.extend(numbers(&mut started, expected.len() - seen.len()).expect("rows"));
    seen.sort();
    expected.sort();
    assert_eq!(seen, expected);
}

#[test]
fn a_file_that_was_cut_or_replaced_is_reported() {
    let dir = tempfile::tempdir().expect("a folder");
    let folder = dir.path().join("in");
    fs::create_dir(&folder).expect("a folder");
    let request = following(dir.path(), &[]);
    for replaced in ["a,1\n", "a,1\na,2\na,4\na,5\n"] {
        fs::write(folder.join("a.csv"), "a,1\na,2\na,3\n").expect("written");
        let mut started = start(&request, None).expect("started");
        numbers(&mut started, 3).expect("rows");
        let position = started.source().position().expect("a position");
        fs::write(folder.join("a.csv"), replaced).expect("written");
        let error = numbers(&mut started, 1).expect_err("another file");
        assert!(error.to_string().contains("in/a.csv"), "{error}");
        let error = start(&request, Some(&position)).and_then(|mut s| numbers(&mut s, 1));
        assert!(error.expect_err("another file").help().is_some());
    }
}

#[test]
fn wrong_intervals_are_reported() {
    let dir = tempfile::tempdir().expect("a folder");
    for (interval, path) in [("0 s", "in/"), ("often", "in/"), ("1 s", "-")] {
        let options = [("path", path), ("source.monitor-interval", interval)];
        let error = Filesystem::default().validate(&request(dir.path(), two(), &options), false);
        assert!(error.is_err_and(|error| error.is_plan_error()), "{interval} {path}");
    }
}

/// Looks for files until this many bytes are known to be left.
fn await_lag(started: &mut Started, expected: u64) {
    let lag = |started: &mut Started| started.source().split_status(SplitId::ONLY).lag_bytes;
    for _ in 0..1_000 {
        if lag(started) == Some(expected) {
            return;
        }
        let polled = started.source().poll(1).expect("no error");
        assert!(!matches!(polled, SourcePoll::Batch(_)), "rows that were not expected");
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("{:?} bytes are left, not {expected}", lag(started));
}

#[test]
fn the_bytes_that_are_left_follow_what_appears_grows_and_goes() {
    let dir = tempfile::tempdir().expect("a folder");
    let folder = dir.path().join("in");
    fs::create_dir(&folder).expect("a folder");
    append(&folder.join("a.csv"), "a,1\na,2\n");
    let mut started = start(&following(dir.path(), &[]), None).expect("started");
    numbers(&mut started, 2).expect("rows");
    await_lag(&mut started, 0);
    // A record without an end waits for it.
    append(&folder.join("a.csv"), "a,");
    await_lag(&mut started, 2);
    append(&folder.join("a.csv"), "3\n");
    assert_eq!(numbers(&mut started, 1).expect("rows"), ["3"]);
    await_lag(&mut started, 0);
    let zipped = zstd::encode_all(&b"b,4\n"[..], 1).expect("compressed");
    fs::write(folder.join(".b"), zipped).expect("written");
    fs::rename(folder.join(".b"), folder.join("b.csv.zst")).expect("renamed");
    assert_eq!(numbers(&mut started, 1).expect("rows"), ["4"]);
    await_lag(&mut started, 0);
    // What is restarted is new, and what was read of it before counts no more.
    fs::write(folder.join("a.csv"), "c,5").expect("written");
    await_lag(&mut started, 3);
    fs::remove_file(folder.join("b.csv.zst")).expect("removed");
    append(&folder.join("a.csv"), "6\n");
    assert_eq!(numbers(&mut started, 1).expect("rows"), ["56"]);
    await_lag(&mut started, 0);
    let position = started.source().position();
    append(&folder.join("a.csv"), "d,7\nd,8\n");
    let mut resumed = start(&following(dir.path(), &[]), position.as_deref()).expect("started");
    numbers(&mut resumed, 2).expect("rows");
    await_lag(&mut resumed, 0);
}
