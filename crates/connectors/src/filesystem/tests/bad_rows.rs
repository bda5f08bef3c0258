//! Which rows are bad: the same ones in every query over a table, in every format that can say so.
//!
//! Once, a row was bad by the columns that a query read, so that `COUNT(b)` was 3 where `COUNT(*)`
//! was 2; and a DECIMAL out of range was NULL, whatever `'bad-data'` said.

use super::*;

fn columns() -> TableSchema {
    schema(&[
        ("n", DataType::BigInt),
        ("s", DataType::STRING),
        ("d", DataType::Decimal(4, 2)),
        ("f", DataType::Boolean),
    ])
}

/// Rows 2, 4 and 6 are bad: by the first column, by the third, and by one that is out of range.
const CSV: &str = "1,a,1.5,true\nx,b,1.5,true\n3,c,1.5,true\n4,d,y,true\n5,e,,true\n6,f,123.45,true\n7,g,99.99,\n";
const JSON: &str = r#"{"n":1,"s":"a","d":1.5,"f":true}
{"n":"x","s":"b","d":1.5,"f":true}
{"n":3,"s":"c","d":1.5,"f":true}
{"n":4,"s":"d","d":"y","f":true}
{"n":5,"s":"e","d":null,"f":true}
{"n":6,"s":"f","d":123.45,"f":true}
{"n":7,"s":"g","d":99.99}
"#;

/// The table over these files, of which a query reads some columns.
fn table(dir: &Path, format: &str, options: &[(&str, &str)], read: &[usize]) -> TableRequest {
    let mut all = vec![("path", "in"), ("format", format)];
    all.extend(options);
    if format == "csv" {
        all.push(("csv.null-literal", ""));
    }
    TableRequest { projection: Some(read.to_vec()), ..request(dir, columns(), &all) }
}

/// The texts of the first column that was read, and how many rows were bad.
fn result(request: &TableRequest) -> Result<(Vec<String>, u64)> {
    let mut source = open_source(request, Some(16))?;
    let rows = texts(&drain(&mut source, 100)?, &request.delivered());
    Ok((rows.into_iter().map(|row| row[0].clone()).collect(), source.bad_rows()))
}

/// The files in all the ways in which they can lie: one, several, compressed.
fn written(format: &str, shape: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a folder");
    let text = if format == "csv" { CSV } else { JSON };
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let path = dir.path().join("in");
    match shape {
        "one file" => fs::write(&path, text).expect("written"),
        "a folder" | "a glob" => {
            fs::create_dir(&path).expect("a folder");
            fs::write(path.join("a"), lines[..3].concat()).expect("written");
            fs::write(path.join("b"), lines[3..].concat()).expect("written");
        }
        _ => {
            fs::create_dir(&path).expect("a folder");
            let zipped = zstd::encode_all(text.as_bytes(), 1).expect("compressed");
            fs::write(path.join("a.zst"), zipped).expect("written");
        }
    }
    dir
}

#[test]
fn the_same_rows_are_bad_whichever_columns_are_read() {
    for (format, shape) in ["csv", "json"]
        .into_iter()
        .flat_map(|f| ["one file", "a folder", "zst", "a glob"].map(|s| (f, s)))
    {
        let dir = written(format, shape);
        let path = ("path", if shape == "a glob" { "in/?" } else { "in" });
        let drop = [path, ("bad-data", "drop")];
        let letters = [path, ("bad-data", "dead-letter"), ("dead-letter.path", "bad.jsonl")];
        let what = |read: &[usize]| format!("{format}, {shape}, columns {read:?}");
        for read in [&[0][..], &[1], &[2], &[3], &[1, 2], &[0, 1, 2, 3]] {
            for options in [&drop[..], &letters] {
                let (rows, bad) = result(&table(dir.path(), format, options, read)).expect("rows");
                assert_eq!((rows.len(), bad), (4, 3), "{}", what(read));
            }
            let text = fs::read_to_string(dir.path().join("bad.jsonl")).expect("letters");
            assert_eq!(text.lines().count(), 3, "{}", what(read));
            assert!(text.contains("123.45") && text.contains("column d (DECIMAL(4,2))"), "{text}");
            let fail = result(&table(dir.path(), format, &[path, ("bad-data", "fail")], read));
            let error = fail.expect_err("the second row is bad");
            assert!(error.to_string().contains("row 2"), "{}: {error}", what(read));
        }
        // Without a word on bad rows, or where it is said, only what is read is checked.
        let (rows, _) = result(&table(dir.path(), format, &[path], &[1])).expect("rows");
        assert_eq!(rows.len(), 7, "{format}, {shape}");
        let read_only = [path, ("bad-data", "drop"), ("bad-data.check", "read")];
        let (rows, bad) = result(&table(dir.path(), format, &read_only, &[0])).expect("rows");
        assert_eq!((rows.len(), bad), (6, 1), "{format}, {shape}");
    }
}

#[test]
fn partitioned_folders_leave_out_the_same_rows() {
    let dir = tempfile::tempdir().expect("a folder");
    for day in [1, 2] {
        let folder = dir.path().join(format!("in/day={day}"));
        fs::create_dir_all(&folder).expect("a folder");
        fs::write(folder.join("part-0.csv"), "1,a\nx,b\n3,c\n").expect("written");
    }
    let columns = schema(&[("n", DataType::Int), ("s", DataType::STRING), ("day", DataType::Int)]);
    for read in [0, 1, 2] {
        let options = [("path", "in"), ("bad-data", "drop")];
        let request = TableRequest {
            partitioned_by: vec![2],
            projection: Some(vec![read]),
            ..request(dir.path(), columns.clone(), &options)
        };
        let (rows, bad) = result(&request).expect("rows");
        assert_eq!((rows.len(), bad), (4, 2), "column {read}");
    }
}

#[test]
fn a_decimal_out_of_range_is_bad_and_null_where_bad_fields_are() {
    for format in ["csv", "json"] {
        let dir = tempfile::tempdir().expect("a folder");
        let text = match format {
            "csv" => "1,a,99.99,true\n2,b,-100,true\n3,c,1e400,true\n",
            _ => "{\"n\":1,\"d\":\"99.99\"}\n{\"n\":2,\"d\":-100}\n{\"n\":3,\"d\":1e400}\n",
        };
        fs::write(dir.path().join("in"), text).expect("written");
        let error = result(&table(dir.path(), format, &[], &[2])).expect_err("out of range");
        assert!(
            error.to_string().contains("row 2") && error.to_string().contains("-100"),
            "{error}"
        );
        let ignore = format!("{format}.ignore-parse-errors");
        let request = table(dir.path(), format, &[(&ignore, "true")], &[2]);
        assert_eq!(
            result(&request).expect("rows"),
            (vec!["99.99".into(), "\\N".into(), "\\N".into()], 0)
        );
        let request = table(dir.path(), format, &[("bad-data", "drop")], &[0]);
        assert_eq!(result(&request).expect("rows"), (vec!["1".into()], 2));
    }
    let array = [("a", DataType::Array(Box::new(DataType::Decimal(4, 2).nullable())))];
    assert!(read_text("1.5;100.5\n", &array, &[]).is_err());
}

#[test]
fn options_that_mean_nothing_are_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    for options in [
        &[("bad-data.check", "some")][..],
        &[("bad-data.check", "all"), ("csv.ignore-parse-errors", "true")],
        &[("format", "parquet"), ("bad-data.check", "all")],
    ] {
        let error = thalweg_core::connector::Connector::validate(
            &crate::filesystem::Filesystem::default(),
            &request(dir.path(), columns(), options),
            false,
        );
        assert!(error.is_err_and(|error| error.is_plan_error()), "{options:?}");
    }
}

#[test]
fn a_decimal_of_a_parquet_file_that_is_out_of_range_is_an_error_with_its_row() {
    use thalweg_core::connector::Connector;
    let dir = tempfile::tempdir().expect("a folder");
    for format in ["parquet", "arrow"] {
        let wide = schema(&[("d", DataType::Decimal(10, 2))]);
        fs::write(dir.path().join("in.csv"), "1.5\n99.99\n100.00\n2\n").expect("written");
        let rows = request(dir.path(), wide.clone(), &[]);
        let mut source = open_source(&rows, None).expect("opened");
        let options = [("path", format), ("format", format)];
        let target = request(dir.path(), wide, &options);
        let mut sink = crate::filesystem::Filesystem::default().sink(&target).expect("a sink");
        sink.open().expect("opened");
        for batch in drain(&mut source, 100).expect("rows") {
            sink.write(&batch, None).expect("written");
        }
        sink.finish().expect("finished");
        let narrow = schema(&[("d", DataType::Decimal(4, 2))]);
        let error = read(&request(dir.path(), narrow, &options)).expect_err("100.00 does not fit");
        assert!(error.message().contains("column d"), "{error}");
        if format == "parquet" {
            assert!(error.to_string().contains("row 3"), "{error}");
        }
    }
}

#[test]
fn empty_lines_at_the_end_of_a_file_are_no_rows() {
    let two = [("a", DataType::BigInt), ("b", DataType::STRING)];
    let expected = [["1", "x"], ["2", "y"]];
    for text in ["1,x\n2,y\n\n", "1,x\n2,y\n\r\n\n\n", "1,x\r\n2,y\r\n\r\n"] {
        for block_bytes in [Some(1), Some(4), Some(9), None] {
            let dir = tempfile::tempdir().expect("a folder");
            fs::write(dir.path().join("in.csv"), text).expect("written");
            let request = request(dir.path(), schema(&two), &[("bad-data", "fail")]);
            assert_eq!(read_with(&request, block_bytes).expect("rows"), expected, "{text:?}");
        }
    }
    // Elsewhere they are rows with too few fields.
    assert!(read_text("1,x\n\n2,y\n", &two, &[]).is_err());
    assert_eq!(read_text("\n\n", &two, &[]).expect("no rows"), Vec::<Vec<String>>::new());
}

#[test]
fn an_empty_line_of_a_single_column_is_null_where_the_empty_text_is() {
    let one = [("a", DataType::STRING)];
    let null = [("csv.null-literal", "")];
    assert_eq!(read_text("x\n\ny\n", &one, &null).expect("rows"), [["x"], ["\\N"], ["y"]]);
    assert_eq!(read_text("x\n\ny\n\n", &one, &null).expect("rows").len(), 4);
    assert_eq!(read_text("x\n\ny\n", &one, &[]).expect("rows"), [["x"], ["y"]]);
}

#[test]
fn how_a_parquet_file_may_be_compressed_is_said() {
    let dir = tempfile::tempdir().expect("a folder");
    let columns = schema(&[("n", DataType::BigInt), ("s", DataType::STRING)]);
    let files: [(&str, &[u8]); 6] = [
        ("uncompressed", include_bytes!("parquet/uncompressed.parquet")),
        ("snappy", include_bytes!("parquet/snappy.parquet")),
        ("zstd", include_bytes!("parquet/zstd.parquet")),
        ("gzip", include_bytes!("parquet/gzip.parquet")),
        ("lz4_raw", include_bytes!("parquet/lz4_raw.parquet")),
        ("BROTLI", include_bytes!("parquet/brotli.parquet")),
    ];
    for (codec, bytes) in files {
        fs::write(dir.path().join("in.parquet"), bytes).expect("written");
        let options = [("path", "in.parquet"), ("format", "parquet")];
        let rows = read(&request(dir.path(), columns.clone(), &options));
        if !codec.chars().any(char::is_uppercase) {
            assert_eq!(rows.expect(codec), [["1", "a"], ["2", "b"]], "{codec}");
            continue;
        }
        let error = rows.expect_err(codec);
        assert!(error.message().contains(codec), "{error}");
        assert!(error.to_string().contains("in.parquet"), "{error}");
        assert!(error.help().is_some_and(|help| help.contains("Zstandard, Snappy")), "{error}");
    }
}

/// They were kept with `?` for each byte alone, so that a binary record could not be had back.
#[test]
fn bytes_of_dead_letters_that_are_no_text_are_kept() {
    let dir = tempfile::tempdir().expect("a folder");
    fs::write(dir.path().join("in.csv"), b"1\nx\xff\n").expect("written");
    let options = [("bad-data", "dead-letter"), ("dead-letter.path", "bad.jsonl")];
    let request = request(dir.path(), schema(&[("n", DataType::Int)]), &options);
    assert_eq!(read(&request).expect("a row"), [["1"]]);
    let letters = fs::read_to_string(dir.path().join("bad.jsonl")).expect("letters");
    let letter: serde_json::Value = serde_json::from_str(&letters).expect("JSON");
    assert_eq!((&letter["raw"], &letter["raw-base64"]), (&"x?".into(), &"eP8=".into()));
}
