//! CSV in which nothing is special is read faster, and not otherwise: the same records come as they
//! are and with a quoted field in each, which only the walker takes.

use std::fs;

use thalweg_core::DataType;
use thalweg_core::shim::SplitMix64;

use super::{read_with, request, schema};

const COLUMNS: [(&str, DataType); 6] = [
    ("name", DataType::STRING),
    ("n", DataType::BigInt),
    ("small", DataType::SmallInt),
    ("d", DataType::Double),
    ("ts", DataType::Timestamp(3)),
    ("last", DataType::STRING),
];

/// Texts that columns may hold: what nearly all rows have, and what few have.
const USUAL: [&[&str]; 6] = [
    &["a", "", "é", "NULL", "a longer text than a view holds"],
    &["1", "-20", "9223372036854775807", "0", "NULL"],
    &["7", "-32768", "+5", " 9 ", "NULL"],
    &["1.5", "-0.0", "123456789012345", "1e300", "0.1234567890123456789", ".5", "NaN", "NULL"],
    &["2026-01-01 00:00:00.123", "1969-12-31 23:59:59", "NULL"],
    &["x", "", "y z", "NULL"],
];
const BAD: [&[&str]; 6] = [
    &["a"],
    &["9223372036854775808", "x", "", "1.0"],
    &["32768", "--1", "-"],
    &["1,5", "1.2.3", "infinity", ""],
    &["2026-02-30 00:00:00", "now", ""],
    &["x"],
];

/// Records, a few of them bad; the second text has the first field of each in quotes.
fn texts(random: &mut SplitMix64, bad_in: u64) -> (String, String) {
    let (mut plain, mut quoted) = (String::new(), String::new());
    for _ in 0..200 + random.below(200) {
        let mut fields: Vec<&str> = Vec::new();
        for column in 0..COLUMNS.len() {
            let is_bad = random.below(bad_in) == 0;
            let among = if is_bad { BAD[column] } else { USUAL[column] };
            fields.push(among[random.below(among.len() as u64) as usize]);
        }
        let end = if random.below(3) == 0 { "\r\n" } else { "\n" };
        let rest = fields[1..].join(",");
        plain.push_str(&format!("{},{rest}{end}", fields[0]));
        quoted.push_str(&format!("\"{}\",{rest}{end}", fields[0]));
    }
    if random.below(2) == 0 {
        plain.pop();
        quoted.pop();
    }
    (plain, quoted)
}

/// What is read: the rows, or the error with its place.
fn outcome(text: &str, options: &[(&str, &str)], block_bytes: usize) -> String {
    let dir = tempfile::tempdir().expect("a folder");
    fs::write(dir.path().join("in.csv"), text).expect("written");
    let options: Vec<_> =
        [("csv.null-literal", "NULL")].into_iter().chain(options.iter().copied()).collect();
    let request = request(dir.path(), schema(&COLUMNS), &options);
    match read_with(&request, Some(block_bytes)) {
        Ok(rows) => format!("{rows:?}"),
        Err(error) => {
            let folder = dir.path().to_string_lossy().into_owned();
            error.to_string().replace(&folder, "")
        }
    }
}

#[test]
fn quotes_around_a_field_change_no_value_and_no_error() {
    let mut random = SplitMix64::new(3);
    let mut failed = 0;
    for round in 0..60 {
        // A quoted NULL is NULL as well, so nothing but the way of reading differs.
        let (plain, quoted) = texts(&mut random, if round % 2 == 0 { 2_000 } else { 60 });
        for block_bytes in [64, 1_000, 1 << 20] {
            for options in [
                &[][..],
                &[("csv.ignore-parse-errors", "true")],
                &[("bad-data", "drop")],
                &[("csv.allow-comments", "true")],
            ] {
                let (of_plain, of_quoted) =
                    (outcome(&plain, options, block_bytes), outcome(&quoted, options, block_bytes));
                failed += usize::from(of_plain.contains("cannot read"));
                assert_eq!(of_plain, of_quoted, "blocks of {block_bytes}, {options:?}:\n{plain}");
            }
        }
    }
    assert!(failed > 50, "{failed} runs failed");
}
