//! Inputs that change between a position and the run that resumes there, or while they are
//! followed.
//!
//! Once, only a kilobyte before the block was compared, and the rows that had been given of it were
//! dropped by their number: a file of 3.7 MB that was cut to 50 kB, or that had lost a hundred
//! lines, was read on in silence. A followed file that had vanished half-read was forgotten, and
//! one that was renamed was read twice.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::PathBuf;

use super::*;
use crate::conformance::Started;

fn two() -> TableSchema {
    schema(&[("s", DataType::STRING), ("n", DataType::BigInt)])
}

fn lines(from: usize, to: usize) -> String {
    (from..to).map(|n| format!("text of row {n},{n}\n")).collect()
}

fn append(path: &Path, text: &str) {
    let mut file = OpenOptions::new().create(true).append(true).open(path).expect("a file");
    file.write_all(text.as_bytes()).expect("written");
}

/// Reads this many of the next numbers.
fn numbers(started: &mut Started, count: usize) -> Result<Vec<usize>> {
    let mut numbers = Vec::new();
    while numbers.len() < count {
        let left = count - numbers.len();
        let batch = started.next(left.min(1_000))?.expect("more rows");
        let rows = texts(&[batch], &two()).into_iter();
        numbers.extend(rows.map(|row| row[1].parse::<usize>().expect("a number")));
    }
    Ok(numbers)
}

fn rest(started: &mut Started) -> Result<usize> {
    let mut rows = 0;
    while let Some(batch) = started.next(1_000)? {
        rows += batch.num_rows();
    }
    Ok(rows)
}

const ROWS: usize = 160_000;
const READ: usize = 90_000;

/// How many rows come behind a position after [`READ`] rows of a large file that is changed
/// meanwhile.
fn resumed(name: &str, change: impl FnOnce(&Path)) -> Result<usize> {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join(name);
    let text = lines(0, ROWS);
    assert!(text.len() > 3_700_000);
    let bytes = match name.ends_with(".zst") {
        true => zstd::encode_all(text.as_bytes(), 1).expect("compressed"),
        false => text.into_bytes(),
    };
    fs::write(&path, bytes).expect("written");
    let request = request(dir.path(), two(), &[("path", name)]);
    let mut started = Started::new(Box::new(open_source(&request, None)?), None)?;
    assert_eq!(numbers(&mut started, READ)?, (0..READ).collect::<Vec<_>>());
    let position = started.source().position().expect("a position");
    drop(started);
    change(&path);
    let mut source = open_source(&request, None)?;
    // A refusal comes before anything is started.
    source.seek(&position)?;
    rest(&mut Started::new(Box::new(open_source(&request, None)?), Some(&position))?)
}

fn rewrite(change: impl FnOnce(String) -> String) -> impl FnOnce(&Path) {
    move |path| {
        let text = fs::read_to_string(path).expect("text");
        fs::write(path, change(text)).expect("written");
    }
}

#[test]
fn a_file_that_lost_or_changed_what_was_read_is_refused() {
    assert_eq!(resumed("in.csv", |_| {}).expect("the rest"), ROWS - READ);
    let grown = resumed("in.csv", |path| append(path, &lines(0, 7))).expect("the rest");
    assert_eq!(grown, ROWS - READ + 7);
    let cut = rewrite(|text| text[..50_000].to_owned());
    let without = |from: usize| {
        move |text: String| {
            let kept = text.split_inclusive('\n').enumerate();
            kept.filter(|(at, _)| !(from..from + 100).contains(at)).map(|(_, line)| line).collect()
        }
    };
    let edited = rewrite(|text| text.replacen("row 1000,1000", "row 1000,1001", 1));
    let more = rewrite(|text| format!("{}{text}", lines(0, 1)));
    type Change = Box<dyn FnOnce(&Path)>;
    let changes: Vec<(&str, Change)> = vec![
        ("cut", Box::new(cut)),
        ("100 lines less at the beginning", Box::new(rewrite(without(10)))),
        ("100 lines less in the block", Box::new(rewrite(without(READ - 150)))),
        ("edited", Box::new(edited)),
        ("a line more", Box::new(more)),
    ];
    for (what, change) in changes {
        let error = resumed("in.csv", change).expect_err(what);
        assert!(error.to_string().contains("in.csv"), "{what}: {error}");
        assert!(error.help().is_some_and(|help| help.contains("without the snapshot")), "{what}");
    }
    let text = lines(0, ROWS).replacen("row 1000,1000", "row 1000,1001", 1);
    let other = zstd::encode_all(text.as_bytes(), 1).expect("compressed");
    let change = |path: &Path| fs::write(path, other).expect("written");
    assert!(resumed("in.csv.zst", change).expect_err("edited").to_string().contains("in.csv.zst"));
    assert_eq!(resumed("in.csv.zst", |_| {}).expect("the rest"), ROWS - READ);
}

/// Once, only rows behind the end were looked for: other contents of the same length, or fewer,
/// passed.
#[test]
fn a_resume_behind_the_end_refuses_a_file_that_is_another() {
    let dir = tempfile::tempdir().expect("a folder");
    let write = |text: String| fs::write(dir.path().join("in.csv"), text).expect("written");
    write(lines(0, 100));
    let request = request(dir.path(), two(), &[]);
    let mut source = open_source(&request, None).expect("opened");
    drain(&mut source, 1_000).expect("rows");
    let position = source.position().expect("a position");
    let check = || open_source(&request, None).expect("opened").check_ended(&position);
    check().expect("nothing has changed");
    write(lines(0, 100));
    check().expect("the same rows once more");
    for other in [lines(1, 100), lines(0, 36), lines(0, 100).replace("row 7,", "row x,")] {
        write(other);
        let error = check().expect_err("another file");
        assert!(error.to_string().contains("in.csv"), "{error}");
    }
    write(lines(0, 101));
    assert!(check().is_err(), "a row more");
}

/// A folder whose files are followed.
struct Followed {
    dir: tempfile::TempDir,
    request: TableRequest,
    block_bytes: usize,
}

impl Followed {
    fn new(path: &str) -> Followed {
        let dir = tempfile::tempdir().expect("a folder");
        fs::create_dir(dir.path().join("in")).expect("a folder");
        let options = [("path", path), ("source.monitor-interval", "5 ms")];
        let request = request(dir.path(), two(), &options);
        Followed { dir, request, block_bytes: 64 }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("in").join(name)
    }

    fn start(&self, position: Option<&str>) -> Result<Started> {
        let source = open_source(&self.request, Some(self.block_bytes))?;
        Started::new(Box::new(source), position)
    }
}

fn position(started: &mut Started) -> String {
    started.source().position().expect("a position")
}

fn range(from: usize, to: usize) -> Vec<usize> {
    (from..to).collect()
}

#[test]
fn a_followed_file_that_vanished_half_read_is_refused() {
    let followed = Followed::new("in/");
    fs::write(followed.path("a.csv"), lines(0, 100)).expect("written");
    let mut started = followed.start(None).expect("started");
    assert_eq!(numbers(&mut started, 41).expect("rows"), range(0, 41));
    let half = position(&mut started);
    assert_eq!(numbers(&mut started, 59).expect("rows"), range(41, 100));
    let whole = position(&mut started);
    drop(started);
    fs::remove_file(followed.path("a.csv")).expect("removed");
    let error = followed.start(Some(&half)).err().expect("41 rows of 100 were read");
    assert!(error.to_string().contains("a.csv"), "{error}");
    // One that was read to its end may be removed.
    fs::write(followed.path("b.csv"), lines(100, 110)).expect("written");
    let mut started = followed.start(Some(&whole)).expect("started");
    assert_eq!(numbers(&mut started, 10).expect("rows"), range(100, 110));
}

#[test]
fn a_followed_file_that_is_renamed_is_not_read_again() {
    for read in [41, 100] {
        let followed = Followed::new("in/");
        fs::write(followed.path("b.csv"), lines(0, 100)).expect("written");
        let mut started = followed.start(None).expect("started");
        numbers(&mut started, read).expect("rows");
        let earlier = position(&mut started);
        numbers(&mut started, 100 - read).expect("rows");
        fs::rename(followed.path("b.csv"), followed.path("c.csv")).expect("renamed");
        append(&followed.path("c.csv"), &lines(100, 103));
        assert_eq!(numbers(&mut started, 3).expect("rows"), range(100, 103), "while it runs");
        fs::rename(followed.path("c.csv"), followed.path("a.csv")).expect("renamed");
        append(&followed.path("d.csv"), &lines(103, 105));
        assert_eq!(numbers(&mut started, 2).expect("rows"), range(103, 105), "while it runs");
        let later = position(&mut started);
        drop(started);
        let mut started = followed.start(Some(&earlier)).expect("started");
        assert_eq!(numbers(&mut started, 105 - read).expect("rows"), range(read, 105), "resumed");
        drop(started);
        append(&followed.path("d.csv"), &lines(105, 106));
        let mut started = followed.start(Some(&later)).expect("started");
        assert_eq!(numbers(&mut started, 1).expect("rows"), range(105, 106), "resumed later");
    }
}

#[test]
fn rotation_by_renaming_loses_and_doubles_nothing() {
    for path in ["in/", "in/app.log", "in/*.log"] {
        let followed = Followed::new(path);
        let log = followed.path("app.log");
        append(&log, &lines(0, 10));
        let mut started = followed.start(None).expect("started");
        assert_eq!(numbers(&mut started, 10).expect("rows"), range(0, 10));
        let mut positions = vec![position(&mut started)];
        for round in 1..6 {
            let first = round * 10;
            // The last rows of the old file may come after the renaming, and before any look.
            append(&log, &lines(first, first + 3));
            for number in (1..round).rev() {
                let name = |number: usize| followed.path(&format!("app.log.{number}"));
                fs::rename(name(number), name(number + 1)).expect("renamed");
            }
            let old = followed.path("app.log.1");
            fs::rename(&log, &old).expect("renamed");
            append(&old, &lines(first + 3, first + 5));
            append(&log, &lines(first + 5, first + 10));
            let rows = numbers(&mut started, 10).expect("rows");
            assert_eq!(rows, range(first, first + 10), "{path}: the old one first");
            positions.push(position(&mut started));
        }
        drop(started);
        let (mut seen, mut from) = (Vec::new(), positions[4].clone());
        append(&log, &lines(60, 64));
        while seen.len() < 14 {
            let mut started = followed.start(Some(&from)).expect("started");
            seen.extend(numbers(&mut started, 3.min(14 - seen.len())).expect("rows"));
            from = position(&mut started);
        }
        assert_eq!(seen, range(50, 64), "{path}: resumed again and again");
    }
}

#[test]
fn the_rest_of_a_file_that_is_deleted_is_read_through_its_handle() {
    let mut followed = Followed::new("in/");
    let interval = "100 ms".to_owned();
    followed.request.options.insert("source.monitor-interval".to_owned(), interval);
    append(&followed.path("a.log"), &lines(0, 10));
    let mut started = followed.start(None).expect("started");
    assert_eq!(numbers(&mut started, 10).expect("rows"), range(0, 10));
    let mut writer = OpenOptions::new().append(true).open(followed.path("a.log")).expect("a file");
    fs::remove_file(followed.path("a.log")).expect("removed");
    writer.write_all(lines(10, 20).as_bytes()).expect("written");
    assert_eq!(numbers(&mut started, 10).expect("rows"), range(10, 20));
    append(&followed.path("a.log"), &lines(20, 22));
    assert_eq!(numbers(&mut started, 2).expect("rows"), range(20, 22));
}

#[test]
fn rotation_by_copying_and_truncating_begins_at_the_beginning() {
    let followed = Followed::new("in/app.log");
    let log = followed.path("app.log");
    append(&log, &lines(0, 100));
    let mut started = followed.start(None).expect("started");
    assert_eq!(numbers(&mut started, 100).expect("rows"), range(0, 100));
    let before = position(&mut started);
    // Shorter than before, and then longer than before, between two looks.
    for (from, to) in [(100, 103), (103, 1_000)] {
        let file = OpenOptions::new().write(true).open(&log).expect("a file");
        file.set_len(0).expect("truncated");
        append(&log, &lines(from, to));
        assert_eq!(numbers(&mut started, to - from).expect("rows"), range(from, to));
    }
    let after = position(&mut started);
    drop(started);
    append(&log, &lines(1_000, 1_010));
    let mut started = followed.start(Some(&after)).expect("started");
    assert_eq!(numbers(&mut started, 10).expect("rows"), range(1_000, 1_010));
    let mut started = followed.start(Some(&before)).expect("started");
    assert_eq!(numbers(&mut started, 907).expect("rows"), range(103, 1_010), "truncated meanwhile");
}

#[test]
fn a_followed_file_that_was_cut_or_edited_is_no_rotation() {
    let changes: [fn(String) -> String; 4] = [
        |text| text[..900].to_owned(),
        |text| text[..30].to_owned(),
        |text| text.replacen("row 90,90", "row 90,91", 1),
        |text| text.split_inclusive('\n').filter(|line| !line.contains("row 5")).collect(),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let followed = Followed::new("in/");
        let path = followed.path("a.csv");
        append(&path, &lines(0, 100));
        let mut started = followed.start(None).expect("started");
        assert_eq!(numbers(&mut started, 100).expect("rows"), range(0, 100));
        let position = position(&mut started);
        let text = change(fs::read_to_string(&path).expect("text"));
        fs::write(&path, text).expect("written");
        let error = numbers(&mut started, 1).expect_err("what was read has changed");
        assert!(error.to_string().contains("in/a.csv"), "{number}: {error}");
        let error = followed.start(Some(&position)).err().expect("what was read has changed");
        assert!(error.to_string().contains("in/a.csv"), "{number}: {error}");
    }
}

#[test]
fn a_copy_under_the_same_name_is_read_on_and_an_edited_one_is_refused() {
    let followed = Followed::new("in/");
    let path = followed.path("a.csv");
    append(&path, &lines(0, 100));
    let replace = |text: String| {
        fs::write(followed.path(".new"), text).expect("written");
        fs::rename(followed.path(".new"), &path).expect("renamed");
    };
    let mut started = followed.start(None).expect("started");
    assert_eq!(numbers(&mut started, 100).expect("rows"), range(0, 100));
    let before = position(&mut started);
    // As rsync and editors do it: the file of this name is another one, with the same lines and
    // more.
    replace(lines(0, 110));
    assert_eq!(numbers(&mut started, 10).expect("rows"), range(100, 110));
    let mut resumed = followed.start(Some(&before)).expect("started");
    assert_eq!(numbers(&mut resumed, 10).expect("rows"), range(100, 110));
    drop(resumed);
    replace(lines(0, 120).replace("row 90,90", "row 90,91"));
    let error = numbers(&mut started, 1).expect_err("an edited copy");
    assert!(error.to_string().contains("in/a.csv"), "{error}");
    assert!(followed.start(Some(&before)).is_err(), "an edited copy");
}

#[test]
fn a_compressed_file_that_vanished_half_read_is_refused() {
    // Its length says nothing of its text: it was taken for read when as many bytes of the text
    // were.
    for (path, interval) in [("in/", None), ("in/", Some("5 ms"))] {
        let mut followed = Followed::new(path);
        if interval.is_none() {
            followed.request.options.remove("source.monitor-interval");
        }
        let zipped = zstd::encode_all(lines(0, 1_000).as_bytes(), 1).expect("compressed");
        fs::write(followed.path("a.csv.zst"), zipped).expect("written");
        append(&followed.path("b.csv"), &lines(1_000, 1_010));
        let mut started = followed.start(None).expect("started");
        numbers(&mut started, 900).expect("rows");
        let half = position(&mut started);
        numbers(&mut started, 105).expect("rows");
        let behind = position(&mut started);
        drop(started);
        fs::remove_file(followed.path("a.csv.zst")).expect("removed");
        let error = followed.start(Some(&half)).err().expect("100 rows are gone");
        assert!(error.to_string().contains("a.csv.zst"), "{error}");
        let mut started = followed.start(Some(&behind)).expect("it was read to its end");
        assert_eq!(numbers(&mut started, 5).expect("rows"), range(1_005, 1_010));
    }
}

#[test]
fn a_file_that_lies_where_a_deleted_one_lay_is_another() {
    let followed = Followed::new("in/");
    let mut started = followed.start(None).expect("started");
    for round in 0..20 {
        let zipped = zstd::encode_all(lines(round * 10, round * 10 + 10).as_bytes(), 1);
        let name = format!("{round}.csv.zst");
        fs::write(followed.path(".new"), zipped.expect("compressed")).expect("written");
        fs::rename(followed.path(".new"), followed.path(&name)).expect("renamed");
        let rows = numbers(&mut started, 10).expect("rows");
        assert_eq!(rows, range(round * 10, round * 10 + 10));
        fs::remove_file(followed.path(&name)).expect("removed");
    }
}

#[test]
fn a_compressed_file_that_is_replaced_by_one_of_its_length_is_an_error() {
    let followed = Followed::new("in/");
    let write = |rows: &str| {
        // Stored as it is, so that the length does not depend on the text.
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::none());
        encoder.write_all(rows.as_bytes()).expect("compressed");
        fs::write(followed.path(".new"), encoder.finish().expect("compressed")).expect("written");
        fs::rename(followed.path(".new"), followed.path("a.csv.gz")).expect("renamed");
    };
    write(&lines(10, 20));
    let mut started = followed.start(None).expect("started");
    assert_eq!(numbers(&mut started, 10).expect("rows"), range(10, 20));
    std::thread::sleep(Duration::from_millis(20));
    write(&lines(20, 30));
    let error = numbers(&mut started, 1).expect_err("other rows");
    assert!(
        error.to_string().contains("a.csv.gz") && error.message().contains("replaced"),
        "{error}"
    );
}

#[test]
fn a_file_of_rows_that_is_replaced_while_it_is_read_is_an_error() {
    use crate::filesystem::Filesystem;
    use thalweg_core::connector::Connector;
    let dir = tempfile::tempdir().expect("a folder");
    for format in ["parquet", "arrow"] {
        let target = request(dir.path(), two(), &[("path", format), ("format", format)]);
        let write = |rows: usize| {
            fs::write(dir.path().join("in.csv"), lines(0, rows)).expect("written");
            let mut sink = Filesystem::default().sink(&target).expect("a sink");
            sink.open().expect("opened");
            let mut source = open_source(&request(dir.path(), two(), &[]), None).expect("opened");
            for batch in drain(&mut source, 1_000).expect("rows") {
                sink.write(&batch, None).expect("written");
            }
            sink.finish().expect("finished");
        };
        write(100);
        let source = open_source(&target, None).expect("opened");
        write(50);
        let mut started = Started::new(Box::new(source), None).expect("started");
        let error = rest(&mut started).expect_err("another file");
        assert!(error.message().contains("replaced"), "{error}");
    }
}

#[test]
fn a_file_that_is_cut_while_it_is_read_is_an_error() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("in.csv");
    fs::write(&path, lines(0, 100)).expect("written");
    let request = request(dir.path(), two(), &[]);
    let source = open_source(&request, Some(64)).expect("opened");
    // Between planning and reading.
    fs::write(&path, lines(0, 50)).expect("written");
    let mut started = Started::new(Box::new(source), None).expect("started");
    let error = rest(&mut started).expect_err("50 rows are gone");
    assert!(error.to_string().contains("in.csv") && error.message().contains("shorter"), "{error}");
}
