//! The golden cases whose query is a plain list of columns: what a real Flink read from these
//! files. The rows are those of `tests/golden/NAME/{in.csv,expected.csv}`.

use thalweg_core::{DataType, ErrorKind};

use super::read_text;

fn bid() -> Vec<(&'static str, DataType)> {
    vec![
        ("bidtime", DataType::Timestamp(3)),
        ("item", DataType::STRING),
        ("price", DataType::Decimal(10, 2)),
        ("qty", DataType::Int),
    ]
}

/// Reads and compares with the lines of an expected file, fields between `|`.
fn check(text: &str, columns: &[(&str, DataType)], options: &[(&str, &str)], expected: &[&str]) {
    let rows = read_text(text, columns, options).expect("readable");
    let lines: Vec<String> = rows.iter().map(|row| row.join("|")).collect();
    assert_eq!(lines, expected);
}

#[test]
fn csv_quirks() {
    check(
        "2026-01-01 00:00:00.000,\"a,b\",1.5,1\n\
         2026-01-01 00:00:01.000,\"say \"\"hi\"\"\",1.555,2\n\
         2026-01-01 00:00:02, padded ,3,4\n\
         2026-01-01 00:00:03.1234,z,5,5\n\
         2026-01-01 00:00:04,x'y,1e2,7\n\
         2026-01-01 00:00:05,pre\"mid\"post,1,8\n",
        &bid(),
        &[],
        &[
            "2026-01-01 00:00:00.000|a,b|1.50|1",
            "2026-01-01 00:00:01.000|say \"hi\"|1.56|2",
            "2026-01-01 00:00:02.000| padded |3.00|4",
            "2026-01-01 00:00:03.123|z|5.00|5",
            "2026-01-01 00:00:04.000|x'y|100.00|7",
            "2026-01-01 00:00:05.000|pre\"mid\"post|1.00|8",
        ],
    );
}

#[test]
fn csv_bool_ts_ltz() {
    let columns = [
        ("b", DataType::Boolean),
        ("l", DataType::TimestampLtz(3)),
        ("tm", DataType::Time(0)),
        ("d", DataType::Date),
    ];
    check(
        "true,2026-01-01 00:00:01Z,10:11:12,2026-01-02\n\
         TRUE,2026-01-01 00:00:01.5Z,10:11:12.9,2026-01-03\n\
         yes,2026-01-01 00:00:01Z,00:00:00,2026-01-03\n",
        &columns,
        &[],
        &[
            "TRUE|2026-01-01 00:00:01.000|10:11:12|2026-01-02",
            "TRUE|2026-01-01 00:00:01.500|10:11:12|2026-01-03",
            "FALSE|2026-01-01 00:00:01.000|00:00:00|2026-01-03",
        ],
    );
}

#[test]
fn csv_decimals() {
    let columns = [("price", DataType::Decimal(10, 2))];
    check(
        "1.555\n1.545\n1e2\n-0.005\n123456789012.5\n",
        &columns,
        &[("csv.ignore-parse-errors", "true")],
        &["1.56", "1.55", "100.00", "-0.01", "\\N"],
    );
}

#[test]
fn csv_doubles() {
    let columns = [("d", DataType::Double)];
    check("1.0\n0\n-0.0\nNaN\n", &columns, &[], &["1.0", "0.0", "-0.0", "NaN"]);
}

#[test]
fn csv_blank_lines_comments() {
    let comments = [("csv.allow-comments", "true")];
    check("7\n\n#8\n9\n", &[("id", DataType::STRING)], &comments, &["7", "9"]);
}

#[test]
fn csv_ignore_parse_errors() {
    check(
        "2026-01-01 00:00:00.000,A,1,1\n\
         2026-01-01 00:00:01.000,B,1,x\n\
         2026-01-01 00:00:02.000,C\n\
         not a time,D,1,1\n\
         2026-01-01 00:00:03.000,E,1,2,extra\n",
        &bid(),
        &[("csv.ignore-parse-errors", "true")],
        &[
            "2026-01-01 00:00:00.000|A|1.00|1",
            "2026-01-01 00:00:01.000|B|1.00|\\N",
            "2026-01-01 00:00:02.000|C|\\N|\\N",
            "\\N|D|1.00|1",
        ],
    );
}

#[test]
fn null_literals() {
    let columns = [("item", DataType::STRING), ("qty", DataType::Int)];
    let named = [("csv.null-literal", "NULL")];
    check("NULL,NULL\n,2\n", &columns, &named, &["\\N|\\N", "|2"]);
    let empty = [("csv.null-literal", "")];
    check("A,1\n,\n\"\",3\nNULL,4", &columns, &empty, &["A|1", "\\N|\\N", "\\N|3", "NULL|4"]);
}

#[test]
fn json_quirks() {
    check(
        "{\"bidtime\":\"2026-01-01 00:00:00.000\",\"item\":\"A\",\"price\":1.5,\"qty\":1,\"zz\":1}\n\
         {\"bidtime\":\"2026-01-01 00:00:01\",\"item\":null,\"price\":\"2.555\",\"qty\":\"7\"}\n\
         {\"bidtime\":\"2026-01-01 00:00:02.5\",\"price\":3}\n\
         \n\
         {\"bidtime\":\"2026-01-01 00:00:03\",\"item\":12,\"price\":1e1,\"qty\":2.9}\n\
         {\"bidtime\":\"2026-01-01 00:00:04\",\"item\":{\"k\":1},\"price\":null,\"qty\":null}\n",
        &bid(),
        &[("format", "json")],
        &[
            "2026-01-01 00:00:00.000|A|1.50|1",
            "2026-01-01 00:00:01.000|\\N|2.56|7",
            "2026-01-01 00:00:02.500|\\N|3.00|\\N",
            "2026-01-01 00:00:03.000|12|10.00|2",
            "2026-01-01 00:00:04.000|{\"k\":1}|\\N|\\N",
        ],
    );
}

/// Each fails in Flink; here with the row and the column.
#[test]
fn bad_rows_fail_with_their_place() {
    let good = "2026-01-01 00:00:00,A,1,1\n";
    let cases = [
        ("2026-01-01 00:00:01.000,B,1,x\n", "qty"),
        ("2026-01-01 00:00:00.000,A,1.00,\n", "qty"),
        ("\n", "bidtime"),
        ("2026-01-01 00:00:01.000,B,1,2,extra\n", "5 fields"),
        ("2026-01-01 00:00:00.000,A\n", "price is missing"),
        ("2026-01-01 00:00:00.000,A, 3 ,1\n", "price"),
        ("2026-01-01T00:00:04,x,1,7\n", "bidtime"),
        ("2026-01-01 00:00:00,\"A\"x,1,1\n", "quote"),
        ("2026-01-01 00:00:00,\"A,1,1\n", "quote"),
        ("2026-01-01 00:00:00,A,1,2147483648\n", "qty"),
    ];
    for (bad, part) in cases {
        // An empty line at the end is none; elsewhere it is a row, as for Flink.
        let text = if bad == "\n" { format!("{good}{bad}{good}") } else { format!("{good}{bad}") };
        let error = read_text(&text, &bid(), &[]).expect_err(bad);
        assert_eq!(error.kind(), ErrorKind::Data, "{bad}");
        let shown = error.to_string();
        assert!(shown.contains("in.csv, row 2"), "{shown}");
        let found = shown.contains(part) || (bad == "\n" && shown.contains("1 fields"));
        assert!(found, "{shown}");
        assert!(error.help().is_some());
    }
    let ltz = [("l", DataType::TimestampLtz(3))];
    assert!(read_text("2026-01-01 00:00:01\n", &ltz, &[]).is_err());
}

#[test]
fn a_header_is_skipped_only_on_request() {
    let text = "bidtime,item,price,qty\n2026-01-01 00:00:01.000,B,1,2\n";
    let error = read_text(text, &bid(), &[]).expect_err("a header");
    assert!(error.help().is_some_and(|help| help.contains("'csv.header'")));
    check(text, &bid(), &[("csv.header", "true")], &["2026-01-01 00:00:01.000|B|1.00|2"]);
    let swapped = "item,bidtime,price,qty\nB,2026-01-01 00:00:01.000,1,2\n";
    let others = [
        (swapped, "'item' at position 1, where table t declares column bidtime"),
        ("bidtime,item,cost,qty\n2026-01-01 00:00:01.000,B,1,2\n", "'cost' at position 3"),
        ("bidtime,item,price\n2026-01-01 00:00:01.000,B,1,2\n", "3 names"),
        ("bidtime,item,price,qty,note\n2026-01-01 00:00:01.000,B,1,2\n", "5 names"),
        ("2026-01-01 00:00:01.000,B,1,2\n", "'2026-01-01 00:00:01.000' at position 1"),
    ];
    for (text, reason) in others {
        let error = read_text(text, &bid(), &[("csv.header", "true")]).expect_err(reason);
        assert!(error.message().contains(reason), "{error}");
        assert!(error.to_string().contains("in.csv, row 1"), "{error}");
    }
    let spelt = "BIDTIME, Item,price,qty\n2026-01-01 00:00:01.000,B,1,2\n";
    check(spelt, &bid(), &[("csv.header", "true")], &["2026-01-01 00:00:01.000|B|1.00|2"]);
}
