//! What is printed, and where statements come from.

use std::io::{Read, Write};
use std::process::Stdio;
use std::time::Duration;

use crate::support::{ENDLESS, EVENTS, EVENTS_TABLE, Run, Workspace, assert_holds, until, wait};

#[test]
fn a_file_is_run_relative_to_its_own_folder() {
    let workspace = Workspace::new("file");
    workspace.write("job/events.csv", EVENTS);
    workspace.write("job/job.sql", &format!("{EVENTS_TABLE} SELECT n, k FROM events WHERE n > 1;"));
    assert_eq!(workspace.run(&["run", "job/job.sql"]).rows(), ["n,k", "2,b", "3,a"]);
}

#[test]
fn statements_come_from_standard_input_too() {
    let workspace = Workspace::new("stdin");
    workspace.write("events.csv", EVENTS);
    let mut child =
        workspace.command(&["run", "-"]).stdin(Stdio::piped()).spawn().expect("starting thalweg");
    let sql = format!("{EVENTS_TABLE} SELECT n FROM events WHERE k = 'b'");
    child.stdin.take().expect("piped").write_all(sql.as_bytes()).expect("writing");
    let run = Run::from(child.wait_with_output().expect("ends"));
    assert_eq!(run.rows(), ["n", "2"]);
}

#[test]
fn each_format_prints_the_same_rows() {
    let workspace = Workspace::new("formats");
    let sql = "SELECT 1 AS a, CAST(NULL AS STRING) AS b";
    assert_eq!(workspace.execute(sql).rows(), ["a,b", "1,"]);
    let csv = workspace.run(&["run", "--null", "\\N", "-e", sql]);
    assert_eq!(csv.rows(), ["a,b", "1,\\N"]);
    let ndjson = workspace.run(&["run", "--format", "ndjson", "-e", sql]);
    assert_eq!(ndjson.rows(), [r#"{"a":1,"b":null}"#]);
    let table = workspace.run(&["run", "--format", "table", "-e", sql]);
    assert_holds(&table.rows().join("\n"), &["a", "b", "1"]);
}

#[test]
fn results_come_one_after_another_and_show_prints_too() {
    let workspace = Workspace::new("several");
    let run = workspace.execute(&format!(
        "{EVENTS_TABLE} SELECT 1 AS x; SHOW TABLES; DESCRIBE events; SELECT 2 AS y;"
    ));
    let rows = run.rows();
    assert_eq!(rows[..2], ["x", "1"]);
    assert_eq!(rows[2..4], ["table name", "events"]);
    assert!(rows.iter().any(|row| row.starts_with("ts,TIMESTAMP(3)")), "{rows:?}");
    assert_eq!(rows[rows.len() - 2..], ["y", "2"]);
}

#[test]
fn explain_prints_a_plan_and_runs_nothing() {
    let workspace = Workspace::new("explain");
    let sql = format!("{EVENTS_TABLE} SELECT n FROM events WHERE n > 1;");
    let statement = workspace.execute(&sql.replace("SELECT", "EXPLAIN SELECT"));
    assert_holds(&statement.rows().join("\n"), &["== Stages ==", "events"]);
    workspace.write("job.sql", &sql);
    let command = workspace.run(&["explain", "job.sql"]);
    assert_eq!(command.rows(), statement.rows());
    assert!(!command.stdout.contains("batch mode"), "{}", command.stdout);
    workspace.write("batch.sql", &format!("SET 'execution.runtime-mode' = 'batch'; {sql}"));
    assert_holds(&workspace.run(&["explain", "batch.sql"]).stdout, &["its inputs, in batch mode"]);
}

#[test]
fn explain_draws_a_plan() {
    let workspace = Workspace::new("graphviz");
    workspace.write("job.sql", &format!("{EVENTS_TABLE} SELECT SUM(n) FROM events WHERE n > 1;"));
    let drawn = workspace.run(&["explain", "--format", "dot", "job.sql"]).rows().join("\n");
    assert_holds(
        &drawn,
        &["digraph plan {", "cluster_logical", "cluster_stages", "n0 -> n1;", "s0 -> s1;"],
    );
    assert_eq!(drawn.matches('{').count(), drawn.matches('}').count(), "{drawn}");
}

#[test]
fn shells_learn_the_commands() {
    let workspace = Workspace::new("completions");
    for shell in ["bash", "zsh", "fish"] {
        let script = workspace.run(&["completions", shell]).rows().join("\n");
        assert_holds(&script, &["validate", "memory-limit"]);
    }
}

#[test]
fn parameters_and_settings_reach_the_statements() {
    let workspace = Workspace::new("parameters");
    let run = workspace.run(&[
        "run",
        "--param",
        "n=41",
        "--set",
        "table.local-time-zone=Europe/Berlin",
        "-e",
        "SELECT ${n} + 1 AS n, CAST(TO_TIMESTAMP_LTZ(0, 3) AS STRING) AS t",
    ]);
    assert_eq!(run.rows(), ["n,t", "42,1970-01-01 01:00:00.000"]);
}

#[test]
fn a_result_can_be_empty() {
    let workspace = Workspace::new("empty");
    workspace.write("events.csv", EVENTS);
    let run = workspace.execute(&format!("{EVENTS_TABLE} SELECT k FROM events WHERE n > 9"));
    assert_eq!(run.rows(), ["k"]);
}

#[test]
fn limits_end_endless_queries() {
    let workspace = Workspace::new("limit");
    let sql = format!("{ENDLESS} SELECT n FROM endless");
    assert_eq!(workspace.run(&["run", "--limit", "7", "-e", &sql]).rows().len(), 8);
    assert_eq!(workspace.run(&["run", "--limit", "0", "-e", &sql]).rows(), ["n"]);
    assert_eq!(workspace.execute(&format!("{sql} LIMIT 5")).rows().len(), 6);
}

#[test]
fn metrics_are_printed_on_standard_error() {
    let workspace = Workspace::new("metrics");
    workspace.write("events.csv", EVENTS);
    let sql = format!(
        "{EVENTS_TABLE} SELECT k, COUNT(*) AS n
         FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '10' SECOND))
         GROUP BY k, window_start, window_end"
    );
    let run = workspace.run(&["run", "--metrics", "-e", &sql]);
    assert_eq!(run.status, Some(0), "{}", run.stderr);
    assert_eq!(run.stdout.lines().count(), 3, "{}", run.stdout);
    let words = ["rows in", "bundles out", "busy", "late", "partly late", "state", "queued"];
    assert_holds(&run.stderr, &words);
    assert_holds(&run.stderr, &["watermark", "p50", "p99.99", "max"]);
    let late: Vec<&str> = run.stderr.lines().filter(|line| line.ends_with("stateful")).collect();
    assert_eq!(late.len(), 1, "{}", run.stderr);
}

#[test]
fn late_rows_go_where_the_setting_says() {
    let workspace = Workspace::new("late");
    workspace.write("events.csv", EVENTS);
    let windows = "SELECT k, COUNT(*) AS n
         FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '10' SECOND))
         GROUP BY k, window_start, window_end";
    let table = "CREATE TABLE late (n INT, k STRING)
         WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'late.csv');";
    let sql = format!("{EVENTS_TABLE} {table} SET 'late.data' = 'late'; {windows}");
    let run = workspace.execute(&sql);
    assert_eq!(run.status, Some(0), "{}", run.stderr);
    assert_eq!(run.stderr, "warning: job 'SELECT': rows missing from results: 1 late\n");
    let mut rows: Vec<&str> = run.stdout.lines().collect();
    rows.sort_unstable();
    assert_eq!(rows, ["a,1", "b,1", "k,n"]);
    assert_eq!(workspace.read("late.csv"), "3,a\n");
    let fail = workspace.execute(&format!("{EVENTS_TABLE} SET 'late.data' = 'fail'; {windows}"));
    assert_holds(fail.message(1), &["late"]);
}

#[test]
fn each_job_says_off_a_terminal_which_rows_are_missing_unless_it_is_to_be_quiet() {
    let workspace = Workspace::new("missing-rows");
    workspace.write("events.csv", &format!("{EVENTS}a,4,noon\nb,5,evening\n"));
    let table = EVENTS_TABLE.replace("'format'", "'bad-data' = 'drop', 'format'");
    let sink = "CREATE TABLE sink (k STRING, n BIGINT) WITH ('connector' = 'blackhole');";
    let windows = "SELECT k, COUNT(*) AS n
         FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '10' SECOND))
         GROUP BY k, window_start, window_end";
    let sql = format!(
        "SET 'table.dml-sync' = 'true'; {table} {sink} INSERT INTO sink {windows}; SELECT k, n, ts FROM events; SELECT 1 AS one; {windows};"
    );
    workspace.write("job.sql", &sql);
    let run = workspace.run(&["run", "job.sql"]);
    assert_eq!(run.status, Some(0), "{}", run.stderr);
    let lines: Vec<&str> = run.stderr.lines().collect();
    let expected = [
        "warning: job 'job': rows missing from results: 1 late, 2 bad",
        "warning: job 'job': rows missing from results: 2 bad",
        "warning: job 'job': rows missing from results: 1 late, 2 bad",
    ];
    assert_eq!(lines, expected);
    assert_eq!(workspace.run(&["run", "--quiet", "job.sql"]).stderr, "");
}

#[test]
fn a_reader_that_leaves_ends_the_job_quietly() {
    let workspace = Workspace::new("pipe");
    let sql = format!("{ENDLESS} SELECT n FROM endless");
    let mut child = workspace.command(&["run", "-e", &sql]).spawn().expect("starting thalweg");
    let mut some = [0; 100];
    child.stdout.as_mut().expect("piped").read_exact(&mut some).expect("some rows");
    drop(child.stdout.take());
    let status = wait(&mut child);
    let mut stderr = String::new();
    child.stderr.take().expect("piped").read_to_string(&mut stderr).expect("UTF-8");
    assert_eq!((status.code(), stderr.as_str()), (Some(0), ""));
}

#[test]
fn memory_stays_flat_while_nobody_reads() {
    let workspace = Workspace::new("backpressure");
    let sql = format!("{ENDLESS} SELECT n FROM endless");
    let arguments = ["run", "--memory-limit", "64mb", "-e", &sql];
    let mut child = workspace.command(&arguments).spawn().expect("starting thalweg");
    let status = format!("/proc/{}/status", child.id());
    let peak_kib = || {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find(|line| line.starts_with("VmHWM:"));
        line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).unwrap_or(0)
    };
    until("the process has begun", || peak_kib() > 0);
    std::thread::sleep(Duration::from_millis(1500));
    let peak_kib = peak_kib();
    child.kill().expect("running still");
    wait(&mut child);
    assert!(peak_kib > 0 && peak_kib < 200 * 1024, "{peak_kib} KiB resident");
}

#[test]
fn help_and_version_are_there() {
    let workspace = Workspace::new("help");
    let help = workspace.run(&["--help"]);
    assert_eq!(help.status, Some(0));
    assert_holds(&help.stdout, &["Examples:", "thalweg run", "validate", "explain"]);
    let version = workspace.run(&["--version"]);
    let rows = version.rows();
    assert_eq!(rows[0], concat!("thalweg ", env!("CARGO_PKG_VERSION")));
    let names: Vec<_> = rows[1..].iter().filter_map(|row| row.split(": ").next()).collect();
    assert_eq!(names, ["commit", "features", "target"]);
    assert_holds(rows[2], &["http", "kafka", "postgres", "server"]);
    assert_holds(rows[3], &[std::env::consts::ARCH]);
    assert_eq!(workspace.run(&["-V"]).rows(), [rows[0]]);
}

#[test]
fn every_command_has_a_manual_page_with_its_options() {
    let workspace = Workspace::new("manual");
    workspace.run(&["man", "man1"]).rows();
    let page = |name: &str| workspace.read(&format!("man1/{name}.1")).replace("\\-", "-");
    let help = workspace.run(&["--help"]).stdout;
    let (_, commands) = help.split_once("Commands:\n").expect("a list of commands");
    let (commands, _) = commands.split_once("\n\n").expect("options follow");
    let first_word = |line: &str| line.split_whitespace().next().map(str::to_owned);
    for command in commands.lines().filter_map(first_word).filter(|name| name != "help") {
        assert_holds(&page("thalweg"), &[&format!("thalweg-{command}(1)")]);
        let page = page(&format!("thalweg-{command}"));
        let help = workspace.run(&[&command, "--help"]).stdout;
        let options = help.split_whitespace().filter(|word| word.starts_with("--"));
        let names = options.map(|word| word.trim_end_matches(|c: char| !c.is_alphanumeric()));
        for name in names.filter(|name| !help.contains(&format!("{name} ls"))) {
            assert!(page.contains(name), "{command}: {name} is not in its page: {page}");
        }
    }
    assert_holds(&page("thalweg-snapshot-ls"), &["thalweg-snapshot-ls", "--dir"]);
}

#[test]
fn validate_counts_statements_and_lists_what_flink_refuses() {
    let workspace = Workspace::new("validate");
    workspace.write("ok.sql", "SET 'late.data' = 'drop'; SELECT 1;");
    assert_eq!(workspace.run(&["validate", "ok.sql"]).rows(), ["ok: 2 statements"]);
    assert_eq!(workspace.run(&["validate", "--flink", "ok.sql"]).rows(), ["ok: 2 statements"]);
    let short = format!(
        "{EVENTS_TABLE} SELECT COUNT(*) FROM TUMBLE(events, ts, INTERVAL '1' HOUR)
         GROUP BY window_start, window_end;"
    );
    workspace.write("short.sql", &short);
    assert_eq!(workspace.run(&["validate", "short.sql"]).status, Some(0));
    let refused = workspace.run(&["validate", "--flink", "short.sql"]);
    assert_eq!(refused.status, Some(1));
    assert_holds(&refused.stdout, &["Flink", "TUMBLE", "short.sql:3"]);
    let asof = format!(
        "{EVENTS_TABLE} SELECT a.ts FROM events AS a
         ASOF JOIN events AS b MATCH_CONDITION (a.ts >= b.ts);"
    );
    workspace.write("asof.sql", &asof);
    let refused = workspace.run(&["validate", "--flink", "asof.sql"]);
    assert_eq!(refused.status, Some(1), "{}", refused.stderr);
    assert_holds(&refused.stdout, &["Flink", "no ASOF JOIN", "asof.sql:4"]);
}
