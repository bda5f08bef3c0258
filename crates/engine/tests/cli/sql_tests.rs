//! `thalweg test`: tests of SQL in Markdown.

use crate::support::{Workspace, assert_holds};

const TOTALS: &str = "CREATE TABLE orders (
    ts TIMESTAMP(3), item STRING, amount DECIMAL(10, 2),
    WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
  ) WITH ('connector' = 'http', 'url' = 'http://127.0.0.1:1/orders', 'format' = 'json');
  CREATE TABLE totals (item STRING, minute_end TIMESTAMP(3), total DECIMAL(10, 2))
    WITH ('connector' = 'filesystem', 'format' = 'json', 'path' = 'totals');
  INSERT INTO totals
    SELECT item, window_end, SUM(amount)
    FROM TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '1' MINUTE)
    GROUP BY item, window_start, window_end;";

const CASE: &str = "# Totals

sql totals.sql

## A window closes when the watermark has passed its end

input orders

| at       | ts                            | item | amount |
|----------|-------------------------------|------|--------|
| 09:00:06 | 2026-01-01 09:00:05           | tea  | 2      |
| 09:00:07 | 2026-01-01 09:00:03           | tea  | 1.5    |
| 09:01:04 | 2026-01-01 09:01:02           | salt | 4      |
| 09:01:10 | watermark 2026-01-01 09:01:00 |      |        |
| 09:01:11 | 2026-01-01 09:00:59           | tea  | 7      |

expect totals

| item | minute_end          | total | at       |
|------|---------------------|-------|----------|
| tea  | 2026-01-01 09:01:00 | 3.50  | 09:01:10 |

expect late

| ts                  | item | watermark               |
|---------------------|------|-------------------------|
| 2026-01-01 09:00:59 | tea  | 2026-01-01 09:01:00.000 |
";

fn place(name: &str, test: &str) -> Workspace {
    let place = Workspace::new(name);
    place.write("totals.sql", TOTALS);
    place.write("totals.test.md", test);
    place
}

#[test]
fn tests_give_tables_their_rows_whatever_their_connectors() {
    let place = place("sql-tests-pass", CASE);
    let run = place.run(&["test"]);
    assert_eq!(run.status, Some(0), "{}{}", run.stdout, run.stderr);
    let name = "A window closes when the watermark has passed its end";
    assert_eq!(run.stdout, format!("ok   totals.test.md:5 {name}\n1 passed\n"));
    assert!(!place.has("totals"), "nothing outside is touched");
    let json = place.run(&["test", "--json", "totals.test.md"]);
    assert_holds(&json.stdout, &["\"passed\":true", "\"variants\":4", "\"line\":5"]);
}

#[test]
fn what_differs_is_shown_and_can_become_what_is_expected() {
    let wrong = CASE
        .replace("| tea  | 2026-01-01 09:01:00 | 3.50 ", "| tea  | 2026-01-01 09:01:00 | 9.99 ");
    let place = place("sql-tests-fail", &wrong);
    let run = place.run(&["test"]);
    assert_eq!(run.status, Some(1), "{}{}", run.stdout, run.stderr);
    assert_holds(
        &run.stdout,
        &[
            "FAIL totals.test.md:5",
            "totals.test.md:17: expect totals (order epoch, 1 worker): - expected, + found",
            "- | tea  | 2026-01-01 09:01:00.000 | 9.99  |",
            "+ | tea  | 2026-01-01 09:01:00.000 | 3.50  |",
            "0 passed, 1 failed\n",
        ],
    );
    assert_eq!(place.run(&["test", "--update"]).status, Some(1), "it has failed before");
    assert_eq!(place.run(&["test"]).status, Some(0));
    let text = place.read("totals.test.md");
    assert!(text.contains("| tea  | 2026-01-01 09:01:00.000 | 3.50  |"), "{text}");
    assert!(text.starts_with("# Totals\n\nsql totals.sql\n"), "the rest stays: {text}");
}

#[test]
fn mistakes_name_file_and_line() {
    for (from, to, words) in [
        ("| at       | ts ", "| at       | tz ", "it has ts, item, amount"),
        (
            "| item | amount |\n|----------",
            "| item | amuont |\n|----------",
            "did you mean 'amount'?",
        ),
        ("| tea  | 2      |", "| tea  | two    |", "column amount of orders"),
        ("expect totals", "expect to pass", "write `expect TABLE`"),
        ("sql totals.sql", "sql total.sql", "total.sql"),
        ("input orders", "input others", "no input for table orders"),
        ("| item | minute_end ", "| ite  | minute_end ", "there is no column 'ite'"),
        ("| 09:00:07 |", "| 08:00:07 |", "no time at which a row can come"),
    ] {
        let place = place("sql-tests-wrong", &CASE.replace(from, to));
        let run = place.run(&["test"]);
        assert!(matches!(run.status, Some(1 | 2)), "{to}: {}{}", run.stdout, run.stderr);
        assert_holds(&run.stdout, &[words]);
    }
    let place = Workspace::new("sql-tests-none");
    assert!(place.run(&["test"]).message(2).contains("there is no file NAME.test.md"));
    assert!(place.run(&["test", "a.test.md"]).stdout.contains("can't read a.test.md"));
}

#[test]
fn the_clock_is_virtual_and_splits_have_watermarks_of_their_own() {
    let place = Workspace::new("sql-tests-clock");
    place.write("clock.test.md", include_str!("sql_tests/clock.test.md"));
    let run = place.run(&["test"]);
    assert_eq!(run.status, Some(0), "{}{}", run.stdout, run.stderr);
    assert!(run.stdout.ends_with("3 passed\n"), "{}", run.stdout);
}

#[test]
fn changes_errors_lookups_and_tables_that_end() {
    let place = Workspace::new("sql-tests-kinds");
    place.write(
        "params.test.md",
        "# Parameters\n\n```sql\nSELECT ${n} AS n;\n```\n\nexpect result\n\n| n |\n|---|\n| 3 |\n",
    );
    place.write("kinds.test.md", include_str!("sql_tests/kinds.test.md"));
    let run = place.run(&["test", "kinds.test.md"]);
    assert_eq!(run.status, Some(0), "{}{}", run.stdout, run.stderr);
    let run = place.run(&["test", "params.test.md", "--param", "n=3"]);
    assert_eq!(run.status, Some(0), "{}{}", run.stdout, run.stderr);
    let run = place.run(&["test", "--filter", "lookup"]);
    assert!(run.stdout.ends_with("1 passed\n"), "{}{}", run.stdout, run.stderr);
}

#[test]
fn jobs_that_crash_resume_from_their_snapshot() {
    let place = Workspace::new("sql-tests-crash");
    let text = include_str!("sql_tests/crash.test.md");
    place.write("crash.test.md", text);
    let run = place.run(&["test"]);
    assert_eq!(run.status, Some(0), "{}{}", run.stdout, run.stderr);
    assert!(run.stdout.ends_with("5 passed\n"), "{}", run.stdout);
    for (from, to, words) in [
        ("09:02:05 | job crash   ", "09:02:05 | job snapshot", "the job runs, so"),
        ("09:02:06 | job restore ", "09:02:06 | job snapshot", "the job has crashed already"),
    ] {
        place.write("crash.test.md", &text.replace(from, to));
        let run = place.run(&["test"]);
        assert_eq!(run.status, Some(1), "{}{}", run.stdout, run.stderr);
        assert_holds(&run.stdout, &["crash.test.md:33", words]);
    }
}
