//! `NOT IN` and `NOT EXISTS` over columns that can be NULL: what they give, against plain loops,
//! and how much work they are. And first rows of which there are none.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow_array::ArrayRef;
use thalweg::session::ScalarFunction;
use thalweg_core::DataType;
use thalweg_core::shim::SplitMix64;

use super::workspace::{folder, session};

fn file(name: &str, columns: &str, more: &str) -> String {
    format!(
        "CREATE TABLE {name} ({columns}) WITH ('connector' = 'filesystem', 'format' = 'csv',
           'csv.null-literal' = '-', 'path' = '{name}.csv' {more});"
    )
}

const OP: &str = ", 'changelog' = 'op'";

/// What is left of the changes in a file, sorted.
fn left(folder: &Path, name: &str) -> Vec<String> {
    let mut rows: BTreeMap<String, i64> = BTreeMap::new();
    for line in fs::read_to_string(folder.join(name)).expect("it is written").lines() {
        let (kind, row) = line.split_once(',').expect("a kind");
        *rows.entry(row.to_owned()).or_default() += if kind.starts_with('+') { 1 } else { -1 };
    }
    assert!(rows.values().all(|times| *times >= 0), "{rows:?}");
    rows.into_iter().flat_map(|(row, times)| vec![row; times as usize]).collect()
}

type Number = Option<u64>;

fn text(number: Number) -> String {
    number.map_or("-".to_owned(), |number| number.to_string())
}

/// Rows that come, some of which go again; and those that stay.
fn changes(random: &mut SplitMix64, count: u64, has_nulls: bool) -> (String, Vec<Number>) {
    let (mut lines, mut live) = (String::new(), Vec::new());
    for _ in 0..count {
        if !live.is_empty() && random.below(3) == 0 {
            let gone = live.swap_remove(random.below(live.len() as u64) as usize);
            lines += &format!("-D,{}\n", text(gone));
        } else {
            let number = (!has_nulls || random.below(4) > 0).then(|| random.below(6));
            live.push(number);
            lines += &format!("+I,{}\n", text(number));
        }
    }
    (lines, live)
}

/// `l.n NOT IN r`, of which NULL says nothing.
fn is_out(number: Number, right: &[Number]) -> bool {
    right.iter().all(|other| number.is_some() && other.is_some() && *other != number)
}

/// NULLs appear and disappear on both sides, the right side is empty at first, and perhaps in the
/// end.
#[test]
fn not_in_is_that_of_plain_loops() {
    let folder = folder("not-in-loops");
    let tables = file("l", "n INT", OP) + &file("r", "m INT", OP) + &file("o", "n INT", OP);
    let queries = [
        "SELECT n FROM l WHERE n NOT IN (SELECT m FROM r)",
        "SELECT n FROM l WHERE NOT EXISTS (SELECT 1 FROM r WHERE r.m = l.n OR r.m IS NULL OR l.n IS NULL)",
        "SELECT n FROM l WHERE n IS NOT NULL AND n NOT IN (SELECT m FROM r)",
        "SELECT n FROM l WHERE n NOT IN (SELECT m FROM r WHERE m IS NOT NULL)",
        "SELECT n FROM l WHERE NOT EXISTS (SELECT 1 FROM r WHERE r.m = l.n OR r.m IS NULL AND l.n IS NULL)",
        "SELECT n FROM l WHERE NOT EXISTS (SELECT 1 FROM r WHERE r.m = 3 AND l.n > 2)",
        "SELECT n FROM l WHERE NOT EXISTS (SELECT 1 FROM r WHERE r.m = l.n OR r.m < l.n)",
    ];
    for seed in 0..6 {
        let random = &mut SplitMix64::new(seed);
        let (lines, rows) = changes(random, 40, true);
        fs::write(folder.join("l.csv"), lines).expect("an input");
        let (lines, others) = changes(random, [0, 1, 4, 12][seed as usize % 4], seed % 2 == 0);
        fs::write(folder.join("r.csv"), lines).expect("an input");
        let any = |test: &dyn Fn(Number) -> bool| others.iter().any(|&other| test(other));
        let stays = |number: Number, query: usize| match query {
            0 | 1 => is_out(number, &others),
            2 => number.is_some() && is_out(number, &others),
            3 => {
                let there: Vec<Number> = others.iter().copied().filter(Option::is_some).collect();
                is_out(number, &there)
            }
            4 => !others.contains(&number),
            5 => !(number > Some(2) && others.contains(&Some(3))),
            _ => !any(&|m| m.is_some() && number.is_some() && m <= number),
        };
        for (number, query) in queries.iter().enumerate() {
            for mode in ["streaming", "batch"] {
                let script = format!(
                    "SET 'execution.runtime-mode' = '{mode}'; {tables} INSERT INTO o {query};"
                );
                session(&folder).execute(&script).expect("it runs");
                let rows = rows.iter().copied().filter(|&row| stays(row, number));
                let mut expected: Vec<String> = rows.map(text).collect();
                expected.sort();
                assert_eq!(left(&folder, "o.csv"), expected, "seed {seed}, {mode}, {query}");
            }
        }
    }
}

/// A function of both sides is computed once or a few times for each row, and not for each pair of
/// rows.
#[test]
fn rows_of_both_sides_are_not_compared_each_with_each() {
    const ROWS: usize = 1000;
    let folder = folder("not-in-work");
    let numbers = |from: usize| (from..from + ROWS).map(|n| format!("{n}\n")).collect::<String>();
    fs::write(folder.join("l.csv"), numbers(0) + "-\n").expect("an input");
    fs::write(folder.join("r.csv"), numbers(ROWS / 2)).expect("an input");
    let tables = file("l", "n INT", "") + &file("r", "m INT", "") + &file("o", "n INT", OP);
    let queries = [
        ("n NOT IN (SELECT m FROM r)", "same(n) NOT IN (SELECT same(m) FROM r)"),
        (
            "NOT EXISTS (SELECT 1 FROM r WHERE m = n OR m IS NULL OR n IS NULL)",
            "NOT EXISTS (SELECT 1 FROM r WHERE same(m) = same(n) OR same(m) IS NULL OR same(n) IS NULL)",
        ),
    ];
    for (plain, counted) in queries {
        let rows = Arc::new(AtomicUsize::new(0));
        let mut session = session(&folder);
        let counter = Arc::clone(&rows);
        session.register_function(ScalarFunction {
            name: "same".to_owned(),
            arguments: vec![DataType::Int],
            result: DataType::Int.nullable(),
            deterministic: true,
            function: Arc::new(move |arguments: &[ArrayRef], rows| {
                counter.fetch_add(rows, Ordering::Relaxed);
                Ok(Arc::clone(&arguments[0]))
            }),
        });
        let query = format!("{tables} INSERT INTO o SELECT n FROM l WHERE {counted};");
        session.execute(&query).expect("it runs");
        assert_eq!(left(&folder, "o.csv").len(), ROWS / 2, "{plain}");
        let evaluated = rows.load(Ordering::Relaxed);
        assert!(evaluated <= 20 * ROWS, "{evaluated} for {ROWS} rows on each side: {plain}");
    }
}

/// No first rows: nothing leaves, whatever the mode.
#[test]
fn ranks_that_no_row_can_have_give_no_rows() {
    let folder = folder("no-ranks");
    fs::write(folder.join("t.csv"), "1\n2\n3\n").expect("an input");
    let tables = file("t", "n INT, at AS PROCTIME()", "") + &file("o", "n INT", OP);
    let ranked = |order: &str, condition: &str| {
        format!(
            "SELECT n FROM (SELECT n, ROW_NUMBER() OVER (ORDER BY {order}) AS r FROM t) WHERE {condition}"
        )
    };
    let queries = [
        (ranked("n", "r <= 0"), 0),
        (ranked("n", "r < 1"), 0),
        (ranked("n", "r = 0"), 0),
        (ranked("n", "r <= -7"), 0),
        (ranked("at", "r = 0"), 0),
        (ranked("n", "r BETWEEN 5 AND 3"), 0),
        (ranked("n", "r > 1 AND r < 2"), 0),
        (ranked("n", "r BETWEEN 2 AND 3 AND r < 3"), 1),
        ("SELECT n FROM (SELECT n FROM t GROUP BY n) ORDER BY n LIMIT 0".to_owned(), 0),
        ("SELECT MAX(n) FROM t GROUP BY n ORDER BY 1 LIMIT 0".to_owned(), 0),
        ("SELECT MAX(n) FROM t GROUP BY n ORDER BY 1 LIMIT 0 OFFSET 2".to_owned(), 0),
        ("SELECT MAX(n) FROM t GROUP BY n ORDER BY 1 LIMIT 1 OFFSET 2".to_owned(), 1),
    ];
    for (query, rows) in queries {
        for mode in ["streaming", "batch"] {
            let script =
                format!("SET 'execution.runtime-mode' = '{mode}'; {tables} INSERT INTO o {query};");
            session(&folder).execute(&script).unwrap_or_else(|error| panic!("{query}: {error}"));
            assert_eq!(left(&folder, "o.csv").len(), rows, "{mode}: {query}");
        }
    }
}
