//! INSERTs of a file that run at the same time: all of them run, none takes the others' turn, and
//! one that fails ends them or leaves them alone.

use std::io::Read;
use std::process::Child;

use crate::support::{Workspace, assert_holds, end, interrupt, table, until, wait};

/// Numbers from 1 on; the rate is rows in a second.
fn numbers(name: &str, rate: &str, last: usize) -> String {
    format!(
        "CREATE TABLE {name} (n BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '{rate}',
           'fields.n.kind' = 'sequence', 'fields.n.start' = '1', 'fields.n.end' = '{last}');\n"
    )
}

/// Numbers without end.
fn endless(name: &str, rate: &str) -> String {
    format!(
        "CREATE TABLE {name} (n BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '{rate}', 'seed' = '1');\n"
    )
}

fn start(workspace: &Workspace, sql: &str, more: &[&str]) -> Child {
    workspace.write("q.sql", sql);
    let words = [&["run"], more, &["q.sql"]].concat();
    workspace.command(&words).spawn().expect("starting thalweg")
}

fn lines(workspace: &Workspace, name: &str) -> usize {
    if workspace.has(name) { workspace.read(name).lines().count() } else { 0 }
}

/// The second of two INSERTs without end never began.
#[test]
fn inserts_without_end_run_at_the_same_time_and_ctrl_c_stops_them() {
    let workspace = Workspace::new("at-once");
    let sql = endless("fast", "1000") + &endless("slow", "100") + &table("a", "a.csv");
    let sql = sql
        + &table("b", "b.csv")
        + "INSERT INTO a SELECT n FROM fast;\n\
           EXECUTE STATEMENT SET BEGIN INSERT INTO b SELECT n FROM slow; END;\n";
    let mut child = start(&workspace, &sql, &[]);
    let written = |name| lines(&workspace, name) > 0;
    until("both write", || written("a.csv.partial") && written("b.csv.partial"));
    interrupt(&child);
    let run = end(&mut child);
    assert_eq!((run.status, run.stderr.as_str()), (Some(130), ""));
    for name in ["a.csv", "b.csv"] {
        assert!(!workspace.has(name));
        assert!(workspace.read(&format!("{name}.partial")).ends_with('\n'), "no line is cut");
    }
}

/// One worker, and a job that always has work: another one ends all the same.
#[test]
fn a_job_with_much_to_do_does_not_starve_another() {
    let workspace = Workspace::new("at-once-greedy");
    let sql = endless("greedy", "unlimited")
        + "CREATE TABLE nowhere (n BIGINT) WITH ('connector' = 'blackhole');\n"
        + &numbers("few", "unlimited", 50_000)
        + &table("o", "o.csv")
        + "INSERT INTO nowhere SELECT n * n FROM greedy WHERE MOD(n, 7) < 5;\n"
        + "INSERT INTO o SELECT n FROM few;\n";
    let mut child = start(&workspace, &sql, &["--workers", "1"]);
    until("the second job ends", || workspace.has("o.csv"));
    assert_eq!(lines(&workspace, "o.csv"), 50_000);
    assert!(child.try_wait().expect("asking").is_none(), "the first one continues");
    interrupt(&child);
    assert_eq!(end(&mut child).status, Some(130));
}

/// A SELECT is awaited while INSERTs before it continue; what follows begins behind it.
#[test]
fn a_query_is_awaited_while_inserts_run() {
    let workspace = Workspace::new("at-once-select");
    let sql = endless("e", "1000") + &table("a", "a.csv") + &table("b", "b.csv");
    let sql = sql
        + &numbers("few", "10", 5)
        + "INSERT INTO a SELECT n FROM e;\nSELECT n FROM few;\nSHOW TABLES;\nINSERT INTO b SELECT n + 1 FROM few;\n";
    let mut child = start(&workspace, &sql, &[]);
    until("the first INSERT writes", || lines(&workspace, "a.csv.partial") > 0);
    assert!(!workspace.has("b.csv.partial"), "the query comes first");
    until("the last INSERT ends", || workspace.has("b.csv"));
    assert_eq!(workspace.read("b.csv"), "2\n3\n4\n5\n6\n");
    interrupt(&child);
    let run = end(&mut child);
    assert_eq!(run.status, Some(130));
    assert!(run.stdout.starts_with("n\n1\n2\n3\n4\n5\n"), "{}", run.stdout);
    assert_holds(&run.stdout, &["few"]);
}

/// The first Ctrl-C stops an INSERT, but not a query whose rows nobody reads; the second ends the
/// process.
#[test]
fn the_second_ctrl_c_ends_jobs_that_cannot_stop() {
    let workspace = Workspace::new("at-once-twice");
    let sql = endless("e", "unlimited") + &endless("slow", "1000") + &table("a", "a.csv");
    let sql = sql + "INSERT INTO a SELECT n FROM slow;\nSELECT n FROM e;\n";
    let mut child = start(&workspace, &sql, &[]);
    let mut first = [0; 1];
    child.stdout.as_mut().expect("piped").read_exact(&mut first).expect("a row");
    until("the INSERT writes", || lines(&workspace, "a.csv.partial") > 0);
    let stops = || {
        let before = lines(&workspace, "a.csv.partial");
        std::thread::sleep(std::time::Duration::from_millis(300));
        lines(&workspace, "a.csv.partial") == before
    };
    interrupt(&child);
    until("the INSERT stops", stops);
    assert!(child.try_wait().expect("asking").is_none(), "the query's sink is stuck");
    interrupt(&child);
    assert_eq!(wait(&mut child).code(), Some(130));
}

/// A job whose input has a bad row, one that takes a while, and one without end.
fn failing(workspace: &Workspace, last: &str) -> String {
    workspace.write("bad.csv", "1\nx\n");
    table("bad", "bad.csv")
        + &numbers("slow", "1000", 500)
        + &endless("e", "1000")
        + &["a", "b"].map(|name| table(name, &format!("{name}.csv"))).concat()
        + "CREATE TABLE kept (n BIGINT) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'kept/');\n"
        + "SET 'restart-strategy.type' = 'none';\n"
        + last
}

#[test]
fn a_job_that_fails_stops_the_others_with_a_last_snapshot() {
    let workspace = Workspace::new("at-once-fails");
    let sql = failing(
        &workspace,
        "SET 'execution.checkpointing.dir' = 'state'; SET 'execution.checkpointing.interval' = '0 s';\n\
         INSERT INTO kept SELECT n FROM e;\nRESET 'execution.checkpointing.dir';\nINSERT INTO b SELECT n FROM bad;\n\
         SET 'pipeline.name' = 'last';\nINSERT INTO a SELECT n FROM e;\n",
    );
    let run = end(&mut start(&workspace, &sql, &[]));
    let text = run.message(1);
    assert_holds(text, &["warning: ", "the other jobs are stopped", "error: ", "bad.csv, row 2"]);
    assert_holds(text, &["operator bad", "job q-2)", "--> q.sql:12:1", "INSERT INTO b"]);
    assert!(!workspace.has("a.csv"), "it was stopped");
    let kept = workspace.run(&["snapshot", "ls", "q", "--dir", "state", "--format", "ndjson"]);
    assert_eq!(kept.rows().len(), 1, "a last snapshot is kept: {}", kept.stdout);
    assert!(!workspace.has("b.csv"));
}

#[test]
fn others_continue_after_a_job_has_failed_if_they_are_to() {
    let workspace = Workspace::new("at-once-keeps-going");
    let sql = failing(
        &workspace,
        "INSERT INTO b SELECT n FROM bad;\nINSERT INTO a SELECT n FROM slow;\n\
         CREATE TABLE c (n BIGINT) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'c.csv');\n\
         INSERT INTO c SELECT 1 / (n - 500) FROM slow;\n",
    );
    let run = end(&mut start(&workspace, &sql, &["--keep-going"]));
    let text = run.message(1);
    assert_holds(text, &["warning: ", "the other jobs continue", "job q)", "bad.csv, row 2"]);
    assert_holds(text, &["division by zero", "job q-3)"]);
    assert_eq!(text.matches("error: ").count(), 2, "each failure is listed once: {text}");
    assert_eq!(lines(&workspace, "a.csv"), 500, "it has ended");
    // What follows an INSERT that was awaited may depend on it.
    let awaited = failing(
        &workspace,
        "INSERT INTO a SELECT n FROM slow;\nSET 'table.dml-sync' = 'true';\nINSERT INTO b SELECT n FROM bad;\nSELECT n FROM b;\n",
    );
    workspace.write("b.csv", "77\n");
    let run = end(&mut start(&workspace, &awaited, &["--keep-going", "--overwrite"]));
    assert_eq!((run.status, run.stdout.as_str()), (Some(1), ""), "{}", run.stderr);
    assert_eq!(lines(&workspace, "a.csv"), 500, "it has ended");
}

/// The start of a file is refused as a whole: outputs of jobs that would have started are as they
/// were.
#[test]
fn a_refused_start_changes_no_output_of_any_job() {
    let workspace = Workspace::new("at-once-refused");
    let writer = endless("e", "1000") + &table("b", "b.csv") + "INSERT INTO b SELECT n FROM e;";
    let mut first = start(&workspace, &writer, &[]);
    until("the first one writes", || workspace.has("b.csv.partial"));
    workspace.write("a.csv", "rows of an earlier run\n");
    let sql = numbers("few", "unlimited", 5) + &table("a", "a.csv") + &table("b", "b.csv");
    let sql = sql + "INSERT INTO a SELECT n FROM few;\nINSERT INTO b SELECT n FROM few;\n";
    let refused = workspace.execute(&sql);
    let process = format!("being written by process {}", first.id());
    assert_holds(refused.message(1), &["table b", &process]);
    assert_eq!(workspace.read("a.csv"), "rows of an earlier run\n");
    assert!(!workspace.has("a.csv.partial"), "nothing was begun");
    interrupt(&first);
    assert_eq!(end(&mut first).status, Some(130));
    assert_eq!(workspace.execute(&sql).status, Some(0));
    assert_eq!(workspace.read("a.csv"), workspace.read("b.csv"));
}

/// Each job alone has room enough; together they have no more.
#[test]
fn jobs_at_the_same_time_have_one_memory_limit() {
    let workspace = Workspace::new("at-once-memory");
    let sink = |name: &str| {
        format!("CREATE TABLE {name} (n BIGINT, c BIGINT) WITH ('connector' = 'blackhole');\n")
    };
    let tables = numbers("many", "100000", 200_000) + &sink("a") + &sink("b");
    let insert =
        |name: &str| format!("INSERT INTO {name} SELECT n, COUNT(*) FROM many GROUP BY n;\n");
    let run = |settings: &str| {
        let sql = format!("{settings}{tables}{}{}", insert("a"), insert("b"));
        workspace.run(&["run", "--memory-limit", "24mb", "-e", &sql])
    };
    let awaited = run("SET 'table.dml-sync' = 'true';\n");
    assert_eq!(awaited.status, Some(0), "{}", awaited.stderr);
    let text = run("").message(1).to_owned();
    assert_holds(&text, &["the state of the jobs that run at the same time has grown to"]);
    assert_holds(&text, &["the memory limit is 24 MiB", "raise 'memory.limit'"]);
}

/// Steps of jobs that run at the same time are taken down in one file, and followed by each.
#[test]
fn recordings_hold_jobs_that_run_at_the_same_time() {
    let workspace = Workspace::new("at-once-record");
    let inputs = numbers("x", "20000", 3_000) + &numbers("y", "30000", 3_000);
    let sql = "SET 'pipeline.order' = 'arrival';\n".to_owned()
        + &inputs
        + &table("a", "${dir}/a.csv")
        + &table("b", "${dir}/b.csv")
        + "INSERT INTO a SELECT n FROM x UNION ALL SELECT -n FROM y;\n\
           INSERT INTO b SELECT -n FROM y UNION ALL SELECT n FROM x;\n";
    workspace.write("q.sql", &sql);
    let run = |dir: &str, option: &str| {
        let parameter = format!("dir={dir}");
        let run = workspace.run(&["run", "--param", &parameter, option, "steps.txt", "q.sql"]);
        assert_eq!(run.status, Some(0), "{}", run.stderr);
        ["a", "b"].map(|name| workspace.read(&format!("{dir}/{name}.csv")))
    };
    let recorded = run("one", "--record");
    assert_eq!(lines(&workspace, "one/a.csv"), 6_000);
    assert_eq!(run("two", "--replay"), recorded);
}
