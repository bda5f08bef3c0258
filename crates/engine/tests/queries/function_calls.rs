//! Every function that SHOW FUNCTIONS lists, called from SQL with columns of every type: a call may
//! be refused or fail on the data, but nothing panics and nothing is an internal error. What each
//! call computes is the business of `crates/expr/tests/function_fuzz.rs`, of golden cases and of
//! DuckDB.
//!
//! `THALWEG_FUNCTION_CALLS=100000` makes 100,000 random calls.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use thalweg::ErrorKind;
use thalweg::session::Session;
use thalweg_core::shim::SplitMix64;

#[path = "../differential/engine.rs"]
#[allow(dead_code, reason = "the other half is for random queries")]
mod engine;

use engine::Configuration;

use super::workspace;

/// A column's type, and its values in four rows, next to NULL.
const COLUMNS: [(&str, [&str; 4]); 21] = [
    ("BOOLEAN", ["true", "false", "true", "false"]),
    ("TINYINT", ["-128", "127", "0", "1"]),
    ("SMALLINT", ["-32768", "32767", "0", "1"]),
    ("INT", ["-2147483648", "2147483647", "0", "-1"]),
    ("BIGINT", ["-9223372036854775808", "9223372036854775807", "0", "3"]),
    ("FLOAT", ["NaN", "Infinity", "-0.0", "3.4e38"]),
    ("DOUBLE", ["NaN", "-Infinity", "1.7e308", "-1.7e308"]),
    ("DECIMAL(38, 0)", ["9", "-9", "0", "99999999999999999999999999999999999999"]),
    ("DECIMAL(38, 38)", ["0.99999999999999999999999999999999999999", "-0.5", "0", "0.1"]),
    ("DECIMAL(10, 2)", ["99999999.99", "-99999999.99", "0", "1.5"]),
    ("STRING", ["", "äöü \u{1F600}", "%_\\$1[(", "2024-02-29 10:11:12"]),
    ("VARCHAR(3)", ["a", "$.a", "UTC", "1"]),
    ("BYTES", ["", "ab", "ä", "x"]),
    ("DATE", ["0001-01-01", "9999-12-31", "1970-01-01", "2024-02-29"]),
    ("TIME", ["00:00:00", "23:59:59", "10:11:12", "01:00:00"]),
    ("TIMESTAMP(0)", ["0001-01-01 00:00:00", "9999-12-31 23:59:59", "1970-01-01", "2024-02-29"]),
    ("TIMESTAMP(3)", ["0001-01-01 00:00:00", "9999-12-31 23:59:59", "1969-12-31", "2024-02-29"]),
    ("TIMESTAMP(6)", ["0001-01-01 00:00:00", "9999-12-31 23:59:59", "1969-12-31", "2024-02-29"]),
    ("TIMESTAMP(9)", ["1678-01-01", "2262-01-01", "1969-12-31", "2024-02-29 23:59:59.999999999"]),
    (
        "TIMESTAMP_LTZ(3)",
        ["0001-01-02", "9999-12-30", "2024-03-10 02:30:00", "2024-11-03 01:30:00"],
    ),
    ("TIMESTAMP_LTZ(9)", ["1678-01-01", "2262-01-01", "1969-12-31", "2024-11-03 01:30:00"]),
];

/// Columns made of others.
const MADE: [(&str, &str); 8] = [
    ("m0", "ARRAY[c3, NULL, 5]"),
    ("m1", "SPLIT(c10, ',')"),
    ("m2", "MAP[c10, c3]"),
    ("m3", "ROW(c3, c10)"),
    ("m4", "ARRAY[ROW(c3, c10)]"),
    ("m5", "NULL"),
    ("m6", "INTERVAL '1' SECOND * c4"),
    ("m7", "INTERVAL '1' MONTH * c1"),
];

const LITERALS: [&str; 18] = [
    "NULL",
    "0",
    "-1",
    "2147483648",
    "1.5",
    "0e0",
    "TRUE",
    "''",
    "'a'",
    "'$.a'",
    "'DAY'",
    "'yyyy-MM'",
    "'UTC'",
    "'('",
    "DATE '9999-12-31'",
    "TIMESTAMP '0001-01-01 00:00:00'",
    "INTERVAL '1' YEAR",
    "X'00ff'",
];

/// Where a call of an aggregate stands: what is in front of it, behind it, and what it reads.
const PLACES: [(&str, &str, &str); 5] = [
    ("DISTINCT ", "", "v"),
    ("", "", "v GROUP BY c0"),
    ("", " OVER (ORDER BY pt ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)", "v"),
    ("", " FILTER (WHERE c3 > 0)", "v"),
    // Rows that are updated: the aggregate takes rows out.
    ("", "", "(SELECT id / 2 AS k, {latest} FROM v GROUP BY id / 2)"),
];

/// The table's file and the statements before each query.
fn declarations(folder: &Path) -> String {
    let mut rows = String::new();
    for row in 0..4 {
        let value = |(_, values): &(&str, [&str; 4])| format!("\"{}\"", values[row]);
        let values: Vec<String> = COLUMNS.iter().map(value).collect();
        rows.push_str(&format!("{row},{}\n", values.join(",")));
    }
    rows.push_str(&format!("4{}\n", ",NULL".repeat(COLUMNS.len())));
    fs::write(folder.join("t.csv"), rows).expect("writing an input");
    let texts: Vec<String> = (0..COLUMNS.len()).map(|n| format!("s{n} STRING")).collect();
    let cast = |(n, (of, _)): (usize, &(&str, _))| format!("CAST(s{n} AS {of}) AS c{n}");
    let typed: Vec<String> = COLUMNS.iter().enumerate().map(cast).collect();
    let made: Vec<String> = MADE.iter().map(|(name, text)| format!("{text} AS {name}")).collect();
    format!(
        "SET 'table.local-time-zone' = 'America/New_York';
         CREATE TABLE t (id INT, {}, pt AS PROCTIME()) WITH ('connector' = 'filesystem',
           'path' = 't.csv', 'format' = 'csv', 'csv.null-literal' = 'NULL');
         CREATE VIEW typed AS SELECT id, pt, {} FROM t;
         CREATE VIEW v AS SELECT *, {} FROM typed;\n",
        texts.join(", "),
        typed.join(", "),
        made.join(", "),
    )
}

fn columns() -> Vec<String> {
    let declared = (0..COLUMNS.len()).map(|n| format!("c{n}"));
    declared.chain(MADE.iter().map(|(name, _)| (*name).to_owned())).collect()
}

/// What is wrong with a query, if anything is.
fn wrong(folder: &Path, declarations: &str, query: &str) -> Option<String> {
    let configuration = Configuration::new("arrival", 1, 2);
    let run = || engine::run(folder, declarations, query, &configuration);
    match catch_unwind(AssertUnwindSafe(run)) {
        Err(_) => Some(format!("{query}: panicked while it was planned")),
        Ok(Err(error)) if error.kind() == ErrorKind::Internal => Some(format!("{query}: {error}")),
        Ok(_) => None,
    }
}

fn function_names() -> Vec<String> {
    let shown = Session::default().execute("SHOW FUNCTIONS").expect("it shows");
    let column = |batch: &arrow_array::RecordBatch| {
        let names = arrow_array::cast::AsArray::as_string_view(batch.column(0)).clone();
        names.iter().flatten().map(str::to_owned).collect::<Vec<_>>()
    };
    shown.iter().flat_map(column).collect()
}

fn folder(name: &str) -> PathBuf {
    workspace::folder(&format!("function-calls-{name}"))
}

#[test]
fn no_call_from_sql_is_an_internal_error() {
    let folder = folder("random");
    let (declarations, columns, names) = (declarations(&folder), columns(), function_names());
    assert!(names.len() > 150, "{} functions", names.len());
    let asked = std::env::var("THALWEG_FUNCTION_CALLS").ok();
    let calls = asked.and_then(|text| text.parse().ok()).unwrap_or(2 * names.len());
    let mut random = SplitMix64::new(calls as u64);
    let mut below = |bound: usize| random.below(bound as u64) as usize;
    let mut found = Vec::new();
    for number in 0..calls {
        let name = &names[number % names.len()];
        let args: Vec<&str> = (0..below(4))
            .map(|_| match below(3) {
                0 => LITERALS[below(LITERALS.len())],
                _ => columns[below(columns.len())].as_str(),
            })
            .collect();
        let query = format!("SELECT {name}({}) AS r FROM v", args.join(", "));
        found.extend(wrong(&folder, &declarations, &query));
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// Each aggregate of each column, in each place that it may stand in.
#[test]
fn aggregates_take_every_type_or_refuse_it() {
    let folder = folder("aggregates");
    let (declarations, columns) = (declarations(&folder), columns());
    let mut planner = workspace::session(&folder);
    planner.execute(&declarations).expect("it declares");
    let planned = |query: &str, found: &mut Vec<String>| {
        match catch_unwind(AssertUnwindSafe(|| planner.result_schema(query))) {
            Err(_) => found.push(format!("{query}: panicked while it was planned")),
            Ok(Err(error)) if error.kind() == ErrorKind::Internal => {
                found.push(format!("{query}: {error}"));
            }
            Ok(Err(_)) => {}
            Ok(Ok(_)) => return true,
        }
        false
    };
    let (mut found, mut calls) = (Vec::new(), 0);
    for name in thalweg_operators::aggregate::names() {
        for (before, behind, from) in PLACES {
            let query = |columns: &[&String]| {
                let fraction = if name == "PERCENTILE" { ", 0.5" } else { "" };
                let call = |column: &&String| format!("{name}({before}{column}{fraction}){behind}");
                let list: Vec<String> = columns.iter().map(call).collect();
                let latest = |column: &&String| format!("LAST_VALUE({column}) AS {column}");
                let latest: Vec<String> = columns.iter().map(latest).collect();
                let from = from.replace("{latest}", &latest.join(", "));
                let named = list.iter().enumerate().map(|(n, call)| format!("{call} AS r{n}"));
                format!("SELECT {} FROM {from}", named.collect::<Vec<_>>().join(", "))
            };
            let taken: Vec<&String> =
                columns.iter().filter(|column| planned(&query(&[column]), &mut found)).collect();
            calls += taken.len();
            if !taken.is_empty() {
                found.extend(wrong(&folder, &declarations, &query(&taken)));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
    assert!(calls > 400, "{calls} calls");
}
