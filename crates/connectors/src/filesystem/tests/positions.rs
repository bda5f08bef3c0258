//! Reading resumes behind the last row that was delivered, whatever had been read ahead, and finds
//! out when the file is not the same any more.

use std::fs::{self, OpenOptions};
use std::io::Write;

use super::*;
use crate::conformance::{Started, check_replayable};
use crate::filesystem::Filesystem;
use serde_json::Value;
use thalweg_core::connector::{Connector, SplitId};

fn two() -> TableSchema {
    schema(&[("s", DataType::STRING), ("n", DataType::BigInt)])
}

fn lines(from: usize, to: usize) -> String {
    (from..to).map(|n| format!("\"text,\n{n}\",{n}\n")).collect()
}

fn check(request: &TableRequest, block_bytes: Option<usize>) {
    let make = || Ok(Box::new(open_source(request, block_bytes)?) as Box<dyn Source>);
    check_replayable(&make, 12).expect("readable");
}

#[test]
fn texts_resume_from_every_position() {
    let dir = tempfile::tempdir().expect("a folder");
    let folder = dir.path().join("in.csv");
    fs::create_dir(&folder).expect("a folder");
    fs::write(folder.join("a.csv"), format!("\u{feff}{}", lines(0, 300))).expect("written");
    let zipped = zstd::encode_all(lines(300, 600).as_bytes(), 1).expect("compressed");
    fs::write(folder.join("b.csv.zst"), zipped).expect("written");
    fs::write(folder.join("c.csv"), "").expect("written");
    fs::write(folder.join("d.csv"), lines(600, 650).trim_end()).expect("written");
    for (block_bytes, parallelism) in [(Some(1), 1), (Some(700), 3), (None, 2)] {
        let mut request = request(dir.path(), two(), &[]);
        request.parallelism = parallelism;
        check(&request, block_bytes);
    }
    let header: String = format!("s,n\n{}", lines(0, 200));
    fs::write(dir.path().join("header.csv"), header).expect("written");
    check(&request(dir.path(), two(), &[("path", "header.csv"), ("csv.header", "true")]), Some(64));
    let json: String = (0..300).map(|n| format!("{{\"n\":{n},\"s\":\"x\"}}\n")).collect();
    fs::write(dir.path().join("in.json"), json).expect("written");
    check(&request(dir.path(), two(), &[("path", "in.json"), ("format", "json")]), Some(500));
}

#[test]
fn files_of_rows_resume_from_every_position() {
    let dir = tempfile::tempdir().expect("a folder");
    let text: String = (0..900).map(|n| format!("x{n},{n}\n")).collect();
    fs::write(dir.path().join("in.csv"), text).expect("written");
    for format in ["parquet", "arrow"] {
        for name in ["a", "b"] {
            let path = format!("{format}/{name}");
            let request = request(dir.path(), two(), &[("path", &path), ("format", format)]);
            let mut sink = Filesystem::default().sink(&request).expect("a sink");
            sink.open().expect("opened");
            let mut source =
                open_source(&super::request(dir.path(), two(), &[]), None).expect("opened");
            for batch in drain(&mut source, 100).expect("rows") {
                sink.write(&batch, None).expect("written");
            }
            sink.finish().expect("finished");
        }
        check(&request(dir.path(), two(), &[("path", format), ("format", format)]), None);
    }
}

#[test]
fn dead_letters_are_written_once() {
    let dir = tempfile::tempdir().expect("a folder");
    let text: String = (0..400)
        .map(|n| if n % 7 == 3 { format!("x,bad{n}\n") } else { format!("x,{n}\n") })
        .collect();
    fs::write(dir.path().join("in.csv"), text).expect("written");
    let options = [("bad-data", "dead-letter"), ("dead-letter.path", "bad.jsonl")];
    let request = request(dir.path(), two(), &options);
    let letters = || fs::read_to_string(dir.path().join("bad.jsonl")).expect("letters");
    let mut source = open_source(&request, Some(50)).expect("opened");
    drain(&mut source, 100).expect("rows");
    let expected = letters();
    assert_eq!(expected.lines().count() as u64, source.bad_rows());
    // All rows of a block come at once, so a position lies between blocks.
    for rows in 1..40 {
        let source = open_source(&request, Some(50)).expect("opened");
        let mut started = Started::new(Box::new(source), None).expect("started");
        for _ in 0..rows {
            started.next(100).expect("rows");
        }
        let position = started.source().position().expect("a position");
        // What was read on is forgotten.
        started.next(100).expect("rows");
        drop(started);
        let source = open_source(&request, Some(50)).expect("opened");
        let mut started = Started::new(Box::new(source), Some(&position)).expect("started");
        while started.next(100).expect("rows").is_some() {}
        let end = started.source().position().expect("a position");
        if rows % 2 == 0 {
            started.source().finish().expect("a line for each bad row");
        }
        drop(started);
        if rows % 3 == 0 {
            // The run that ended the input is restored, whether it could name the file or not.
            let mut source = open_source(&request, Some(50)).expect("opened");
            source.check_ended(&end).expect("it had ended");
            source.claim().expect("free");
            source.finish().expect("it is there, or is renamed");
        }
        if rows % 2 == 1 && rows % 3 != 0 {
            let partial = dir.path().join("bad.jsonl.partial");
            assert_eq!(fs::read_to_string(&partial).expect("letters"), expected);
            fs::remove_file(partial).expect("removed");
            let source = open_source(&request, Some(50)).expect("opened");
            // What a former run has left under the name is not what this position counts.
            fs::write(dir.path().join("bad.jsonl"), "{\"file\":1}\n").expect("written");
            let lost = Started::new(Box::new(source), Some(&end));
            assert!(lost.is_err_and(|error| error.message().contains("dead letters")));
            continue;
        }
        assert_eq!(letters(), expected);
    }
}

/// What becomes of a position half way when the file is changed.
fn after(change: impl FnOnce(&Path), name: &str) -> Result<usize, Error> {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join(name);
    let text: String = (0..500).map(|n| format!("x{n},{n}\n")).collect();
    let bytes = if name.ends_with(".zst") {
        zstd::encode_all(text.as_bytes(), 1).expect("compressed")
    } else {
        text.into_bytes()
    };
    fs::write(&path, bytes).expect("written");
    let request = request(dir.path(), two(), &[("path", name)]);
    let source = open_source(&request, Some(100)).expect("opened");
    let mut started = Started::new(Box::new(source), None).expect("started");
    for _ in 0..40 {
        started.next(10).expect("rows");
    }
    let position = started.source().position().expect("a position");
    drop(started);
    change(&path);
    let source = open_source(&request, Some(100))?;
    let mut started = Started::new(Box::new(source), Some(&position))?;
    let mut rows = 0;
    while let Some(batch) = started.next(1_000)? {
        rows += batch.num_rows();
    }
    Ok(rows)
}

#[test]
fn another_file_is_an_error_and_one_that_has_grown_is_not() {
    let append = |text: &'static str| {
        move |path: &Path| {
            let mut file = OpenOptions::new().append(true).open(path).expect("a file");
            file.write_all(text.as_bytes()).expect("written");
        }
    };
    let untouched = after(|_| {}, "in.csv").expect("the rest");
    assert!(untouched > 0 && untouched < 500);
    assert_eq!(after(append("more,1\n"), "in.csv").expect("the rest"), untouched + 1);
    let replaced: fn(&Path) = |path| fs::write(path, "y,1\n".repeat(2_000)).expect("written");
    let shortened: fn(&Path) = |path| fs::write(path, "x0,0\n").expect("written");
    let emptied: fn(&Path) = |path| fs::write(path, "").expect("written");
    let shifted: fn(&Path) = |path| {
        let text = fs::read_to_string(path).expect("text");
        fs::write(path, text.replacen("x200", "xx200", 1)).expect("written");
    };
    for change in [replaced, shortened, emptied, shifted] {
        let error = after(change, "in.csv").expect_err("another file");
        assert!(error.to_string().contains("in.csv"), "{error}");
        assert!(error.help().is_some_and(|help| help.contains("without the snapshot")), "{error}");
    }
    let other = zstd::encode_all("y,1\n".repeat(2_000).as_bytes(), 1).expect("compressed");
    let error =
        after(|path| fs::write(path, other).expect("written"), "in.csv.zst").expect_err("other");
    assert!(error.message().contains("other contents"), "{error}");
    let gone = |path: &Path| {
        fs::write(path.with_file_name("other.csv"), "x,1\n").expect("written");
        fs::remove_file(path).expect("removed");
    };
    assert!(after(gone, "in.csv").is_err());
}

#[test]
fn a_last_line_that_was_not_complete_is_an_error_when_it_grows() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("in.csv");
    fs::write(&path, "a,1\nb,2").expect("written");
    let request = request(dir.path(), two(), &[]);
    let mut source = open_source(&request, None).expect("opened");
    drain(&mut source, 10).expect("rows");
    let position = source.position().expect("a position");
    fs::write(&path, "a,1\nb,23\n").expect("written");
    let source = open_source(&request, None).expect("opened");
    let error = Started::new(Box::new(source), Some(&position)).err();
    let error = error.expect("a number that was read too early");
    assert!(error.message().contains("grown"), "{error}");
}

#[test]
fn files_that_came_later_are_not_read() {
    let dir = tempfile::tempdir().expect("a folder");
    let folder = dir.path().join("in.csv");
    fs::create_dir(&folder).expect("a folder");
    fs::write(folder.join("b.csv"), "b,1\nb,2\n").expect("written");
    fs::write(folder.join("d.csv"), "d,1\n").expect("written");
    let request = request(dir.path(), two(), &[]);
    let source = open_source(&request, None).expect("opened");
    let mut started = Started::new(Box::new(source), None).expect("started");
    started.next(1).expect("rows");
    let position = started.source().position().expect("a position");
    for name in ["a.csv", "c.csv", "e.csv"] {
        fs::write(folder.join(name), "new,1\n").expect("written");
    }
    let source = open_source(&request, None).expect("opened");
    let mut started = Started::new(Box::new(source), Some(&position)).expect("started");
    let mut batches = Vec::new();
    while let Some(batch) = started.next(10).expect("rows") {
        batches.push(batch);
    }
    assert_eq!(texts(&batches, &two()), [["b", "2"], ["d", "1"]]);
}

fn lag_bytes(started: &mut Started) -> Option<u64> {
    started.source().split_status(SplitId::ONLY).lag_bytes
}

/// Bytes behind a position, worked out from its text and the lengths of the files of a folder.
fn bytes_behind(folder: &Path, position: &str) -> u64 {
    let position: Value = serde_json::from_str(position).expect("JSON");
    let files = position["files"].as_array().expect("files");
    let left = |file: &Value| {
        let name = Path::new(file["path"].as_str().expect("a path")).file_name().expect("a name");
        let length = fs::metadata(folder.join(name)).expect("a file").len();
        match file["done"] == true {
            true => 0,
            false => length - file["at"]["offset"].as_u64().unwrap_or(0),
        }
    };
    files.iter().map(left).sum()
}

#[test]
fn the_bytes_behind_a_position_are_known() {
    let dir = tempfile::tempdir().expect("a folder");
    let folder = dir.path().join("in.csv");
    fs::create_dir(&folder).expect("a folder");
    fs::write(folder.join("a.csv"), "a,1\na,2\na,3\na,4\n").expect("written");
    fs::write(folder.join("b.csv"), "\u{feff}b,5\nb,6").expect("written");
    let request = request(dir.path(), two(), &[]);
    let start = |position: Option<&str>| {
        let source = open_source(&request, Some(8)).expect("opened");
        Started::new(Box::new(source), position).expect("started")
    };
    let mut started = start(None);
    assert_eq!(lag_bytes(&mut started), Some(26));
    let mut seen = vec![26];
    while started.next(1).expect("rows").is_some() {
        let position = started.source().position().expect("a position");
        let lag = lag_bytes(&mut started);
        assert_eq!(lag, Some(bytes_behind(&folder, &position)), "{position}");
        // A run that resumes there has as much before it.
        assert_eq!(lag_bytes(&mut start(Some(&position))), lag, "{position}");
        seen.extend(lag);
    }
    seen.dedup();
    assert_eq!((seen[1], lag_bytes(&mut started)), (18, Some(0)), "{seen:?}");
}

#[test]
fn a_compressed_file_counts_until_it_is_read() {
    let dir = tempfile::tempdir().expect("a folder");
    let zipped = zstd::encode_all(lines(0, 100).as_bytes(), 1).expect("compressed");
    fs::write(dir.path().join("in.csv.zst"), &zipped).expect("written");
    let request = request(dir.path(), two(), &[("path", "in.csv.zst")]);
    let source = open_source(&request, Some(64)).expect("opened");
    let mut started = Started::new(Box::new(source), None).expect("started");
    let all = Some(zipped.len() as u64);
    for _ in 0..50 {
        started.next(1).expect("rows").expect("no end");
        assert_eq!(lag_bytes(&mut started), all);
    }
    while started.next(10).expect("rows").is_some() {}
    assert_eq!(lag_bytes(&mut started), Some(0));
}
