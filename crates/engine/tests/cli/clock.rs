//! Windows over processing time, and batch mode, as users meet them.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use crate::support::Workspace;

/// Numbers of two kinds with a column of processing time.
const NUMBERS: &str = "CREATE TABLE numbers (n BIGINT, p AS PROCTIME(), ts TIMESTAMP(3), \
     WATERMARK FOR ts AS ts - INTERVAL '1' SECOND) WITH (\
     'connector' = 'datagen', 'number-of-rows' = '1000', 'rows-per-second' = 'unlimited', \
     'fields.n.kind' = 'sequence', 'fields.n.start' = '0', 'fields.n.end' = '999');\n";

fn counted(workspace: &Workspace, query: &str) -> u64 {
    let run = workspace.execute(&format!("{NUMBERS}{query}"));
    let rows = run.rows();
    let count = |row: &&str| -> u64 {
        row.split(',').next().expect("a column").parse().expect("a count comes first")
    };
    rows[1..].iter().map(count).sum()
}

#[test]
fn each_row_is_counted_in_each_form_of_a_window() {
    let workspace = Workspace::new("clock-forms");
    let by_window = "GROUP BY window_start, window_end";
    let of = |function: &str| {
        format!(
            "SELECT COUNT(*), window_start, window_end, window_time FROM TABLE({function}) {by_window}, window_time"
        )
    };
    let hour = "INTERVAL '1' HOUR";
    let tumble = of(&format!("TUMBLE(TABLE numbers, DESCRIPTOR(p), {hour})"));
    assert_eq!(counted(&workspace, &tumble), 1000);
    let hop = of(&format!("HOP(TABLE numbers, DESCRIPTOR(p), {hour}, INTERVAL '3' HOURS)"));
    assert_eq!(counted(&workspace, &hop), 3000);
    let session = of(&format!("SESSION(TABLE numbers, DESCRIPTOR(p), {hour})"));
    assert_eq!(counted(&workspace, &session), 1000);
    let cumulate = of("CUMULATE(TABLE numbers, DESCRIPTOR(p), INTERVAL '1' DAY, INTERVAL '1' DAY)");
    assert_eq!(counted(&workspace, &cumulate), 1000);
    let old = "SELECT COUNT(*), n / 500, TUMBLE_START(p, INTERVAL '1' HOUR), TUMBLE_PROCTIME(p, INTERVAL '1' HOUR) \
        FROM numbers GROUP BY n / 500, TUMBLE(p, INTERVAL '1' HOUR)";
    assert_eq!(counted(&workspace, old), 1000);
    let view = format!(
        "CREATE VIEW later AS SELECT n AS m, PROCTIME() AS q FROM numbers; \
         SELECT COUNT(*) FROM TABLE(TUMBLE(TABLE later, DESCRIPTOR(q), {hour})) WHERE m < 10 {by_window}"
    );
    assert_eq!(counted(&workspace, &view), 10);
}

#[test]
fn a_window_closes_while_the_input_is_silent() {
    let workspace = Workspace::new("clock-silence");
    let sql = "CREATE TABLE words (word STRING, p AS PROCTIME()) WITH (\
        'connector' = 'filesystem', 'format' = 'csv', 'path' = '-');\
        SELECT word, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE words, DESCRIPTOR(p), INTERVAL '1' SECOND)) \
        GROUP BY word, window_start, window_end";
    let mut child = workspace
        .command(&["run", "--format", "csv", "-e", sql])
        .stdin(Stdio::piped())
        .spawn()
        .expect("starting thalweg");
    let mut input = child.stdin.take().expect("piped");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let mut next = || lines.next().map(|line| line.expect("text"));
    input.write_all(b"tea\n").expect("writing");
    input.flush().expect("writing");
    assert_eq!(next().as_deref(), Some("word,n"));
    assert_eq!(next().as_deref(), Some("tea,1"), "while the input is open");
    input.write_all(b"coffee\n").expect("writing");
    drop(input);
    assert_eq!(next().as_deref(), Some("coffee,1"), "at the end of the input");
    assert_eq!(next(), None);
    assert!(child.wait().expect("it ends").success());
}

#[test]
fn days_of_the_clock_begin_at_midnight_of_the_session() {
    let workspace = Workspace::new("clock-zone");
    let query = "SELECT n, window_start, window_end FROM TABLE(\
        TUMBLE(TABLE numbers, DESCRIPTOR(p), INTERVAL '1' DAY)) WHERE n = 1";
    let zone = "SET 'table.local-time-zone' = 'Asia/Kolkata';";
    let grouped = "SELECT COUNT(*), window_start, window_end FROM TABLE(\
        TUMBLE(TABLE numbers, DESCRIPTOR(p), INTERVAL '1' DAY)) GROUP BY window_start, window_end";
    for query in [query, grouped] {
        let run = workspace.execute(&format!("{NUMBERS}{zone}{query}"));
        let rows = run.rows();
        assert!(rows.len() > 1 && rows[1].matches(" 00:00:00.000").count() == 2, "{rows:?}");
    }
}

#[test]
fn what_the_clock_can_not_give_is_refused() {
    let workspace = Workspace::new("clock-refused");
    let refused = |query: &str, words: &str| {
        let run = workspace.execute(&format!("{NUMBERS}{query}"));
        assert_eq!(run.status, Some(2), "{}", run.stdout);
        assert!(run.stderr.contains(words) && run.stderr.contains(":2:"), "{}", run.stderr);
    };
    refused(
        "SELECT TUMBLE_ROWTIME(p, INTERVAL '1' HOUR) FROM numbers GROUP BY TUMBLE(p, INTERVAL '1' HOUR)",
        "TUMBLE_PROCTIME",
    );
    refused(
        "SELECT TUMBLE_PROCTIME(ts, INTERVAL '1' HOUR) FROM numbers GROUP BY TUMBLE(ts, INTERVAL '1' HOUR)",
        "TUMBLE_ROWTIME",
    );
}

const LATE: &str = "CREATE TABLE r (ts TIMESTAMP(3), item STRING, WATERMARK FOR ts AS ts) WITH (\
    'connector' = 'filesystem', 'format' = 'csv', 'path' = 'rows.csv');\
    SET 'execution.runtime-mode' = 'batch';\n";

fn late_rows(test: &str) -> Workspace {
    let workspace = Workspace::new(test);
    let minutes = [9, 1, 8, 0, 9];
    let rows = minutes.map(|minute| format!("2026-01-01 00:0{minute}:00,tea {minute}\n"));
    workspace.write("rows.csv", &rows.concat());
    workspace
}

#[test]
fn in_batch_mode_no_row_is_late() {
    let workspace = late_rows("batch-late");
    let windows = "SELECT window_start, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE r, DESCRIPTOR(ts), \
        INTERVAL '5' MINUTES)) GROUP BY window_start, window_end ORDER BY window_start DESC";
    let run = workspace.execute(&format!("{LATE}SET 'late.data' = 'fail';{windows}"));
    let rows = ["window_start,n", "2026-01-01 00:05:00.000,3", "2026-01-01 00:00:00.000,2"];
    assert_eq!(run.rows(), rows);
    let order = "SELECT item, CURRENT_WATERMARK(ts) AS w FROM r ORDER BY item OFFSET 2";
    let run = workspace.execute(&format!("{LATE}{order}"));
    assert_eq!(run.rows(), ["item,w", "tea 8,", "tea 9,", "tea 9,"]);
}

#[test]
fn in_batch_mode_results_are_final() {
    let workspace = late_rows("batch-final");
    let counts = "SELECT item, COUNT(*) AS n FROM r GROUP BY item";
    let run =
        workspace.execute(&format!("{LATE}SELECT n, COUNT(*) AS items FROM ({counts}) GROUP BY n"));
    let mut rows = run.rows();
    rows.sort_unstable();
    assert_eq!(rows, ["1,3", "2,1", "n,items"]);
    let top = format!("{LATE}{counts} ORDER BY n DESC, item LIMIT 2");
    assert_eq!(workspace.execute(&top).rows(), ["item,n", "tea 9,2", "tea 0,1"]);
    let nothing =
        format!("{LATE}SELECT COUNT(*) AS n, MAX(item) AS last FROM r WHERE item = 'coffee'");
    assert_eq!(workspace.execute(&nothing).rows(), ["n,last", "0,"]);
}

#[test]
fn batch_mode_needs_inputs_that_end() {
    let workspace = Workspace::new("batch-endless");
    let run = workspace.execute(
        "SET 'execution.runtime-mode' = 'batch';\n\
         CREATE TABLE endless (n BIGINT) WITH ('connector' = 'datagen');\n\
         SELECT MAX(n) FROM endless",
    );
    assert_eq!(run.status, Some(2), "{}", run.stdout);
    for words in ["'endless' never ends", "number-of-rows", ":3:1"] {
        assert!(run.stderr.contains(words), "{words}: {}", run.stderr);
    }
}
