//! Aggregates in batch mode, which give each result once: it is what is left of the changes of a
//! stream, and that is what golden cases and DuckDB say.

use thalweg_core::shim::SplitMix64;

use crate::Inputs;
use crate::engine::{Configuration, Row, final_rows};

const COLUMNS: &str = "k STRING, g INT, v BIGINT, p DECIMAL(20, 4), d DOUBLE, day DATE";

/// All that can be grouped by and aggregated in another way.
const QUERIES: [&str; 16] = [
    "SELECT k, COUNT(*), COUNT(v), SUM(v), MIN(g), MAX(g) FROM t GROUP BY k",
    "SELECT g, k, day, COUNT(*), SUM(v) FROM t GROUP BY g, k, day",
    "SELECT p, d, COUNT(*) FROM t GROUP BY p, d",
    "SELECT COUNT(*), COUNT(k), SUM(v), MIN(k), MAX(day), SUM(p) FROM t",
    "SELECT g, SUM(p), AVG(p), MIN(p), AVG(v) FROM t GROUP BY g",
    "SELECT g, SUM(d), AVG(d), STDDEV_POP(d) FROM t GROUP BY g",
    "SELECT g, MIN(k), MAX(k), COUNT(DISTINCT k), SUM(DISTINCT g) FROM t GROUP BY g",
    "SELECT k, COUNT(*) FILTER (WHERE v > 0), SUM(v) FILTER (WHERE g = 1) FROM t GROUP BY k",
    "SELECT k, COUNT(*) AS n FROM t GROUP BY k HAVING COUNT(*) > 2 AND MIN(v) < 0",
    "SELECT g, LAST_VALUE(DISTINCT k), FIRST_VALUE(DISTINCT k) FROM t GROUP BY g",
    "SELECT k, g, COUNT(*), SUM(v) FROM t GROUP BY GROUPING SETS ((k, g), (k), ())",
    "SELECT k, g, GROUPING_ID(k, g), COUNT(*) FROM t GROUP BY CUBE (k, g)",
    "SELECT n, COUNT(*) FROM (SELECT k, COUNT(*) AS n FROM t GROUP BY k) GROUP BY n",
    "SELECT t.k, t.v FROM t JOIN (SELECT k, MAX(v) AS v FROM t GROUP BY k) AS m ON t.k = m.k AND t.v = m.v",
    "SELECT k, v FROM t WHERE v IN (SELECT MIN(v) FROM t GROUP BY g)",
    "SELECT UPPER(k), COUNT(*) FROM t WHERE g <> 2 GROUP BY UPPER(k)",
];

/// A table of this many rows, of which any value but the day may be NULL.
fn inputs(name: &str, rows: u64) -> Inputs {
    let mut random = SplitMix64::new(rows);
    let texts = ["tea", "coffee", "a text of more than twelve bytes", "a text of more than 12"];
    let mut text = String::new();
    for _ in 0..rows {
        let (k, g) = (texts[random.below(4) as usize], random.below(5));
        let (v, units) = (random.below(2_000) as i64, random.below(1 << 40));
        let values = [
            k.to_owned(),
            g.to_string(),
            (v - 1_000).to_string(),
            format!("{}.{:04}", units / 10_000, units % 10_000),
            format!("{}.25", v % 17),
        ];
        for value in values {
            text.push_str(if random.below(7) > 0 { &value } else { "" });
            text.push(',');
        }
        text.push_str(&format!("2026-01-{:02}\n", 1 + g));
    }
    let options = "'format' = 'csv', 'csv.null-literal' = ''";
    Inputs::new(name).table_with("t", COLUMNS, options, &text)
}

/// What is left of a query, in some order.
fn left(inputs: &Inputs, query: &str, configuration: &Configuration) -> Vec<Row> {
    let outcome = inputs.run_with(query, configuration);
    let outcome = outcome.unwrap_or_else(|error| panic!("{query}: {error}"));
    assert!(!configuration.is_batch || !outcome.has_updates, "{query}: rows that stay");
    let rows = final_rows(&outcome).unwrap_or_else(|error| panic!("{query}: {error}"));
    // Sums of DOUBLE agree to nine digits.
    let rounded = |text: String| match text.parse::<f64>() {
        Ok(number) if text.contains(['.', 'E']) && !text.ends_with("0000") => {
            format!("{number:.9e}")
        }
        _ => text,
    };
    let rounded = |row: Row| row.into_iter().map(rounded).collect();
    let mut rows: Vec<Row> = rows.into_iter().map(rounded).collect();
    rows.sort();
    rows
}

#[test]
fn results_given_once_are_what_is_left_of_a_stream() {
    for rows in [1, 300] {
        let inputs = inputs(&format!("batch-{rows}"), rows);
        for query in QUERIES {
            let stream = left(&inputs, query, &Configuration::new("arrival", 1, 3));
            for (order, workers, bundle_rows) in
                [("epoch", 1, 1000), ("epoch", 2, 3), ("epoch", 4, 64), ("arrival", 3, 7)]
            {
                let configuration = Configuration::new(order, workers, bundle_rows);
                let configuration = Configuration { is_batch: true, ..configuration };
                let batch = left(&inputs, query, &configuration);
                assert_eq!(batch, stream, "{query} over {rows} rows: {configuration:?}");
            }
        }
    }
}

/// In a contract that promises a sequence it depends on the rows alone.
#[test]
fn results_given_once_have_one_sequence() {
    let inputs = inputs("batch-sequence", 200);
    let sequence = |workers, bundle_rows| {
        let configuration = Configuration::new("arrival", workers, bundle_rows);
        let configuration = Configuration { is_batch: true, ..configuration };
        let outcome = inputs.run_with("SELECT v, COUNT(*) FROM t GROUP BY v", &configuration);
        outcome.expect("it runs").sequence
    };
    let one = sequence(1, 1000);
    assert!(one.len() > 100, "{} rows", one.len());
    for (workers, bundle_rows) in [(1, 3), (2, 7), (4, 64)] {
        assert_eq!(sequence(workers, bundle_rows), one, "{workers} workers");
    }
}

#[test]
fn aggregates_of_nothing_are_a_row() {
    let inputs = inputs("batch-nothing", 0);
    let null = "\\N";
    let all = "SELECT COUNT(*), COUNT(DISTINCT v), SUM(v), MIN(k), SUM(p) FROM t";
    assert_eq!(inputs.batch(all), [["0", "0", null, null, null]]);
    let none = inputs.batch(&format!("{all} HAVING COUNT(*) > 0"));
    assert!(none.is_empty(), "{none:?}");
    assert_eq!(inputs.batch("SELECT COUNT(*) + 1, AVG(d) FROM t WHERE v > 5"), [["1", null]]);
    let keyed = inputs.batch("SELECT k, COUNT(*) FROM t GROUP BY k");
    assert!(keyed.is_empty(), "{keyed:?}");
}

/// More keys than leave at a time, and most of them new: rows then go to the owners of their keys.
#[test]
fn many_keys_are_given_once() {
    let numbers: Vec<u64> = (0..200_000).map(|n| n * 7 % 150_001).collect();
    let text: String = numbers.iter().map(|n| format!("{n},1\n")).collect();
    let inputs = Inputs::new("batch-many").table("t", "n BIGINT, one INT", &text);
    for workers in [1, 2] {
        let configuration = Configuration::new("epoch", workers, 65_536);
        let configuration = Configuration { is_batch: true, ..configuration };
        let rows = left(&inputs, "SELECT n, SUM(one) FROM t GROUP BY n", &configuration);
        assert_eq!(rows.len(), 150_001);
        let sum: u64 = rows.iter().map(|row| row[1].parse::<u64>().expect("a number")).sum();
        assert_eq!(sum, 200_000);
        let twice = rows.iter().filter(|row| row[1] == "2").count();
        assert_eq!(twice, 200_000 - 150_001);
    }
}
