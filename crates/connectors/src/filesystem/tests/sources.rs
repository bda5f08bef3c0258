//! Order, threads, compression, dead letters, metadata, projection.

use std::fs::{self, File};
use std::io::Write;

use flate2::write::GzEncoder;
use thalweg_core::connector::SourcePoll;
use thalweg_core::{Column, DataType};

use super::*;

fn two() -> TableSchema {
    schema(&[("s", DataType::STRING), ("n", DataType::BigInt)])
}

const PAIR: [(&str, DataType); 2] = [("s", DataType::STRING), ("n", DataType::BigInt)];

/// Rows with quotes, doubled quotes, delimiters and line ends in fields.
fn tricky(rows: usize) -> String {
    let mut text = String::new();
    for n in 0..rows {
        let field = match n % 5 {
            0 => format!("plain{n}"),
            1 => format!("\"a,\n\"\"b\"\"\r\n{n}\""),
            2 => "\"\"".to_string(),
            3 => format!("mid\"quote{n}"),
            _ => "\"\"\"\"".to_string(),
        };
        text.push_str(&format!("{field},{n}{}", if n % 3 == 0 { "\r\n" } else { "\n" }));
    }
    text
}

#[test]
fn blocks_and_threads_change_nothing() {
    let dir = tempfile::tempdir().expect("a folder");
    fs::write(dir.path().join("in.csv"), tricky(500)).expect("written");
    let mut request = request(dir.path(), two(), &[]);
    let expected = read(&request).expect("rows");
    assert_eq!(expected.len(), 500);
    assert_eq!(expected[1][0], "a,\n\"b\"\r\n1");
    assert_eq!(expected[4][0], "\"");
    for block_bytes in [1, 2, 7, 64, 1_000] {
        for parallelism in [1, 4] {
            request.parallelism = parallelism;
            assert_eq!(read_with(&request, Some(block_bytes)).expect("rows"), expected);
        }
    }
}

#[test]
fn folders_are_one_sequence_whatever_their_compression() {
    let dir = tempfile::tempdir().expect("a folder");
    let folder = dir.path().join("in.csv");
    fs::create_dir(&folder).expect("a folder");
    fs::write(folder.join("a.csv"), "x,1\nx,2").expect("written");
    let mut gzip = GzEncoder::new(
        File::create(folder.join("b.csv.gz")).expect("created"),
        flate2::Compression::fast(),
    );
    gzip.write_all(b"x,3\nx,4\n").expect("written");
    gzip.finish().expect("written");
    let zstd = zstd::encode_all(&b"x,5\n"[..], 1).expect("compressed");
    fs::write(folder.join("c.csv.zst"), zstd).expect("written");
    fs::write(folder.join("d.csv.partial"), "x,6\n").expect("written");
    fs::write(folder.join("e.csv"), "").expect("written");
    fs::write(folder.join("f.csv"), "\u{feff}x,7\n").expect("written");
    for parallelism in [1, 3] {
        let mut request = request(dir.path(), two(), &[]);
        request.parallelism = parallelism;
        let rows = read(&request).expect("rows");
        let numbers: Vec<&str> = rows.iter().map(|row| row[1].as_str()).collect();
        assert_eq!(numbers, ["1", "2", "3", "4", "5", "7"]);
        assert!(rows.iter().all(|row| row[0] == "x"));
    }
}

#[test]
fn projection_and_metadata() {
    let dir = tempfile::tempdir().expect("a folder");
    fs::write(dir.path().join("in.csv"), "not read,1\nx,2\n").expect("written");
    let mut request =
        request(dir.path(), schema(&[("s", DataType::Int), ("n", DataType::BigInt)]), &[]);
    request.projection = Some(vec![1]);
    for (key, data_type) in [("file.name", DataType::STRING), ("file.size", DataType::BigInt)] {
        request.metadata.push((key.to_string(), Column::new(key, data_type.nullable())));
    }
    assert_eq!(read(&request).expect("rows"), [["1", "in.csv", "15"], ["2", "in.csv", "15"]]);
    request.projection = Some(Vec::new());
    request.metadata.clear();
    let mut source = open_source(&request, None).expect("opened");
    let counted: usize =
        drain(&mut source, 1).expect("rows").iter().map(RecordBatch::num_rows).sum();
    assert_eq!(counted, 2);
}

#[test]
fn dead_letters_hold_file_line_reason_and_text() {
    let dir = tempfile::tempdir().expect("a folder");
    let text = "a,1\nb,x\n\"c\nd\",3\ne\nf,6\n\"g\"h,7\ni,y\n";
    fs::write(dir.path().join("in.csv"), text).expect("written");
    let options = [("bad-data", "dead-letter"), ("dead-letter.path", "bad.jsonl")];
    let request = request(dir.path(), two(), &options);
    for block_bytes in [Some(1), None] {
        let mut source = open_source(&request, block_bytes).expect("opened");
        let rows = texts(&drain(&mut source, 100).expect("rows"), &two());
        assert_eq!(rows, [["a", "1"], ["c\nd", "3"], ["f", "6"]]);
        assert_eq!(source.bad_rows(), 4);
        assert!(!dir.path().join("bad.jsonl.partial").exists());
        let letters = fs::read_to_string(dir.path().join("bad.jsonl")).expect("letters");
        let letters: Vec<serde_json::Value> =
            letters.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        let lines: Vec<u64> = letters.iter().map(|l| l["line"].as_u64().expect("a line")).collect();
        assert_eq!(lines, [2, 5, 7, 8]);
        assert_eq!(letters[0]["file"], "in.csv");
        assert_eq!(letters[0]["raw"], "b,x");
        assert!(letters[0]["reason"].as_str().is_some_and(|reason| reason.contains("column n")));
    }
}

#[test]
fn json_dead_letters_and_drops() {
    let dir = tempfile::tempdir().expect("a folder");
    let text = "{\"s\":\"a\",\"n\":1}\n[1]\n{\"s\":\"b\",\"n\":\"x\"}\n{\"s\":\n{\"n\":5}\n";
    fs::write(dir.path().join("in.csv"), text).expect("written");
    let drop = request(dir.path(), two(), &[("format", "json"), ("bad-data", "drop")]);
    let mut source = open_source(&drop, None).expect("opened");
    let rows = texts(&drain(&mut source, 100).expect("rows"), &two());
    assert_eq!(rows, [["a", "1"], ["\\N", "5"]]);
    assert_eq!(source.bad_rows(), 3);
    let ignore =
        request(dir.path(), two(), &[("format", "json"), ("json.ignore-parse-errors", "true")]);
    assert_eq!(read(&ignore).expect("rows"), [["a", "1"], ["b", "\\N"], ["\\N", "5"]]);
    let fail = request(dir.path(), two(), &[("format", "json")]);
    assert!(read(&fail).expect_err("bad").to_string().contains("in.csv, row 2"));
    fs::write(dir.path().join("in.csv"), "{\"s\":\"a\",\"n\":1}\n{\"n\":5}\n").expect("written");
    let options = [("format", "json"), ("json.fail-on-missing-field", "true")];
    let error = read(&request(dir.path(), two(), &options)).expect_err("missing");
    assert!(error.to_string().contains("column s (STRING): the field is missing (in.csv, row 2)"));
}

#[test]
fn the_first_bad_row_fails_whichever_column_it_is_in() {
    let columns = [("a", DataType::Int), ("b", DataType::Int)];
    let error = read_text("1,2\n3,x\ny,4\n", &columns, &[]).expect_err("bad");
    assert!(error.to_string().contains("column b"), "{error}");
    assert!(error.to_string().contains("row 2"), "{error}");
}

#[test]
fn text_that_is_not_utf8_is_an_error() {
    let dir = tempfile::tempdir().expect("a folder");
    fs::write(dir.path().join("in.csv"), b"a,1\n\xff,2\n").expect("written");
    let error = read(&request(dir.path(), two(), &[])).expect_err("not UTF-8");
    assert!(error.to_string().contains("row 2"), "{error}");
}

#[test]
fn arrays_have_their_own_delimiter() {
    let array = DataType::Array(Box::new(DataType::Int.nullable()));
    let rows = read_text("1;2;3,x\n,y\n", &[("a", array), ("s", DataType::STRING)], &[]);
    assert_eq!(rows.expect("rows"), [["[1, 2, 3]", "x"], ["[]", "y"]]);
}

#[test]
fn a_stopped_source_ends_its_threads() {
    let dir = tempfile::tempdir().expect("a folder");
    fs::write(dir.path().join("in.csv"), tricky(20_000)).expect("written");
    let mut source = open_source(&request(dir.path(), two(), &[]), Some(64)).expect("opened");
    let (alive, gone) = bounded::<()>(0);
    // The waker is held by the threads alone once the test has dropped it.
    source
        .start(Arc::new(move || {
            let _ = &alive;
        }))
        .expect("started");
    while !matches!(source.poll(10).expect("rows"), SourcePoll::Batch(_)) {}
    source.stop();
    drop(source);
    let ended = gone.recv_timeout(Duration::from_secs(20));
    assert_eq!(ended, Err(crossbeam_channel::RecvTimeoutError::Disconnected));
}

#[test]
fn wrong_options_are_plan_errors() {
    let dir = tempfile::tempdir().expect("a folder");
    let cases: &[(&[(&str, &str)], &str)] = &[
        (&[("csv.heder", "true")], "csv.header"),
        (&[("format", "cvs")], "csv"),
        (&[("format", "json"), ("csv.header", "true")], "no effect"),
        (&[("csv.field-delimiter", ",,")], "one ASCII character"),
        (&[("csv.quote-character", ",")], "must differ"),
        (&[("bad-data", "dead-letter")], "dead-letter.path"),
        (&[("bad-data", "ignore")], "'drop'"),
        (&[("format", "parquet"), ("path", "-")], "pipe"),
        (&[("path", "ftp://bucket/x")], "no files at 'ftp://"),
        (&[("source.path.regex-pattern", "x")], "not supported"),
    ];
    for (options, part) in cases {
        let request = request(dir.path(), two(), options);
        let error = super::super::options::FileOptions::read(&request, false).err().expect("wrong");
        assert!(error.is_plan_error());
        let text = format!("{error} {}", error.help().unwrap_or_default());
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn the_first_mistake_of_a_file_is_the_one_that_is_named() {
    let csv = read_text("a,1\nb,x\nc\n", &PAIR, &[]).expect_err("bad");
    assert_eq!(csv.to_string(), "column n (BIGINT): cannot read 'x' (in.csv, row 2)");
    let json = "{\"s\":\"a\",\"n\":1}\n{\"n\":\"x\"}\n{bad\n";
    let json = read_text(json, &PAIR, &[("format", "json")]).expect_err("bad");
    assert!(json.to_string().ends_with("(in.csv, row 2)"), "{json}");
}

#[test]
fn text_of_another_encoding_is_a_bad_row() {
    let dir = tempfile::tempdir().expect("a folder");
    let letters = [("bad-data", "dead-letter"), ("dead-letter.path", "dead.json")];
    let written = |bytes: &[u8], options: &[(&str, &str)]| {
        fs::write(dir.path().join("in.csv"), bytes).expect("written");
        read(&request(dir.path(), two(), options))
    };
    let csv: &[u8] = b"a,1\nM\xFCnchen,2\nc,3\n";
    assert_eq!(written(csv, &letters).expect("rows"), [["a", "1"], ["c", "3"]]);
    let dead = fs::read_to_string(dir.path().join("dead.json")).expect("dead letters");
    assert!(dead.contains("\"line\":2,\"reason\":\"the text is not valid UTF-8\""), "{dead}");
    assert!(dead.contains("M?nchen,2"), "{dead}");
    assert!(written(csv, &[]).expect_err("bad").to_string().ends_with("(in.csv, row 2)"));
    let json: &[u8] = b"{\"s\":\"M\xFCn\",\"n\":1}\n{\"s\":\"b\",\"n\":2}\n";
    let options = [("format", "json"), ("bad-data", "drop")];
    assert_eq!(written(json, &options).expect("rows"), [["b", "2"]]);
}

#[test]
fn not_null_is_kept_at_the_source() {
    let columns = vec![
        Column::new("s", DataType::STRING.nullable()),
        Column::new("n", DataType::BigInt.not_null()),
    ];
    let dir = tempfile::tempdir().expect("a folder");
    let read = |text: &str, options: &[(&str, &str)]| {
        fs::write(dir.path().join("in.csv"), text).expect("written");
        super::read(&request(dir.path(), TableSchema::new(columns.clone()), options))
    };
    let csv = "a,1\nb,-\nc,3\n";
    let null = ("csv.null-literal", "-");
    let error = read(csv, &[null]).expect_err("a NULL");
    assert!(error.to_string().contains("declared NOT NULL (in.csv, row 2)"), "{error}");
    let kept = [["a", "1"], ["c", "3"]];
    assert_eq!(read(csv, &[null, ("bad-data", "drop")]).expect("rows"), kept);
    let ignore = ("csv.ignore-parse-errors", "true");
    assert_eq!(read("a,1\nb,x\nc,3\n", &[ignore]).expect("rows"), kept);
    let json = "{\"s\":\"a\",\"n\":1}\n{\"s\":\"b\"}\n{\"s\":\"c\",\"n\":3}\n";
    assert!(read(json, &[("format", "json")]).is_err());
    assert_eq!(read(json, &[("format", "json"), ("bad-data", "drop")]).expect("rows"), kept);
}
