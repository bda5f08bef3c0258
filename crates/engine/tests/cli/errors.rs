//! Errors: whose fault, where, what to do, and the exit status.

use crate::support::{EVENTS, EVENTS_TABLE, Run, Workspace, assert_holds};

#[test]
fn an_error_in_the_sql_shows_its_place() {
    let workspace = Workspace::new("place");
    workspace.write("job.sql", &format!("{EVENTS_TABLE}SELECT nn,\n  k FROM events;\n"));
    let run = workspace.run(&["run", "job.sql"]);
    let message = run.message(2);
    assert_holds(message, &["error: ", "nn", "job.sql:3:8", "3 | SELECT nn,", "help: "]);
    let lines: Vec<&str> = message.lines().collect();
    let at = lines.iter().position(|line| line.contains("SELECT nn,")).expect("the source line");
    let column = lines[at].find("nn").expect("the culprit");
    assert_eq!(lines[at + 1].find("^^"), Some(column), "{message}");
    assert_eq!(run.stdout, "");
}

#[test]
fn an_error_anywhere_runs_nothing() {
    let workspace = Workspace::new("nothing-runs");
    workspace.write("events.csv", EVENTS);
    let table = "CREATE TABLE copy (k STRING)
        WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'copy.csv');";
    let insert = "INSERT INTO copy SELECT k FROM events;";
    for wrong in ["SELECT FROM WHERE;", "SELECT nowhere FROM events;", "SET 'late.dat' = 'fail';"] {
        let run = workspace.execute(&format!("{EVENTS_TABLE} {table} SELECT 1; {insert} {wrong}"));
        run.message(2);
        assert_eq!(run.stdout, "", "{wrong}");
        assert!(!workspace.has("copy.csv"), "{wrong}");
    }
}

#[test]
fn near_misses_are_named() {
    let workspace = Workspace::new("near");
    let option = workspace.run(&["run", "--formt", "csv", "-e", "SELECT 1"]);
    assert_holds(option.message(2), &["--formt", "--format"]);
    let setting = workspace.run(&["run", "--set", "late.dat=fail", "-e", "SELECT 1"]);
    assert_holds(setting.message(2), &["late.dat", "did you mean", "late.data"]);
    let parameter = workspace.run(&["run", "--param", "day=1", "-e", "SELECT ${dya}"]);
    assert_holds(parameter.message(2), &["dya", "day"]);
    let connector = workspace.execute(
        "CREATE TABLE t (n INT) WITH ('connector' = 'filesistem', 'format' = 'csv', 'path' = 'x');
         SELECT n FROM t",
    );
    assert_holds(connector.message(2), &["filesistem", "filesystem"]);
    let file = workspace.execute("SELECT * FROM 'trips/a.csv'");
    assert_holds(file.message(2), &["no table or view 'trips/a.csv'", "'path' = 'trips/a.csv'"]);
}

/// What others write, what the hint shows, and the same for the table `t`.
const DIALECTS: &[(&str, &str, &str)] = &[
    (
        "SELECT DATE_TRUNC('hour', ts) FROM t",
        "FLOOR(time TO HOUR)",
        "SELECT FLOOR(ts TO HOUR) FROM t",
    ),
    ("SELECT MEDIAN(a) FROM t", "PERCENTILE(x, 0.5)", "SELECT PERCENTILE(a, 0.5) FROM t"),
    ("SELECT a::STRING FROM t", "write CAST(a AS STRING)", "SELECT CAST(a AS STRING) FROM t"),
    (
        "SELECT a FROM t WHERE s NOT ILIKE 'x%'",
        "write UPPER(s) NOT LIKE UPPER('x%')",
        "SELECT a FROM t WHERE UPPER(s) NOT LIKE UPPER('x%')",
    ),
    (
        "SELECT s, UPPER(s) AS u, COUNT(*) FROM t GROUP BY ALL",
        "write GROUP BY s, UPPER(s)",
        "SELECT s, UPPER(s) AS u, COUNT(*) FROM t GROUP BY s, UPPER(s)",
    ),
    ("SELECT STRING_AGG(s, ',') FROM t", "LISTAGG(x, ', ')", "SELECT LISTAGG(s, ', ') FROM t"),
    ("SELECT NVL(a, 1) FROM t", "IFNULL(x, y)", "SELECT IFNULL(a, 1) FROM t"),
    (
        "SELECT DATEDIFF(ts, ts) FROM t",
        "TIMESTAMPDIFF(DAY",
        "SELECT TIMESTAMPDIFF(DAY, ts, ts) FROM t",
    ),
    (
        "SELECT DATE_PART('hour', ts) FROM t",
        "EXTRACT(HOUR FROM time)",
        "SELECT EXTRACT(HOUR FROM ts) FROM t",
    ),
    (
        "SELECT STRFTIME(ts, '%Y') FROM t",
        "DATE_FORMAT(time,",
        "SELECT DATE_FORMAT(ts, 'yyyy-MM-dd HH:mm') FROM t",
    ),
    (
        "SELECT COUNT_IF(a > 1) FROM t",
        "FILTER (WHERE",
        "SELECT COUNT(*) FILTER (WHERE a > 1) FROM t",
    ),
    (
        "SELECT SPLIT_PART(s, ',', 1) FROM t",
        "SPLIT_INDEX(text,",
        "SELECT SPLIT_INDEX(s, ',', 0) FROM t",
    ),
    (
        "SELECT DATE_ADD(ts, 1) FROM t",
        "TIMESTAMPADD(DAY, 1,",
        "SELECT TIMESTAMPADD(DAY, 1, ts) FROM t",
    ),
    ("SELECT STRPOS(s, 'x') FROM t", "POSITION(part IN text)", "SELECT POSITION('x' IN s) FROM t"),
];

/// Whoever comes from another dialect is shown what to write here, and what is shown is valid.
#[test]
fn what_other_dialects_write_is_answered_with_what_to_write_here() {
    let workspace = Workspace::new("dialects");
    let table = "CREATE TABLE t (a INT, s STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
      WITH ('connector' = 'datagen', 'number-of-rows' = '3');\n";
    let validate = |sql: &str| workspace.run(&["validate", "-e", &format!("{table}{sql}")]);
    for (written, hint, instead) in DIALECTS.iter().copied() {
        assert_holds(validate(written).message(2), &[hint]);
        let right = validate(instead);
        assert_eq!(right.status, Some(0), "{instead}: {}", right.stderr);
    }
}

#[test]
fn a_name_that_is_there_twice_is_refused() {
    let workspace = Workspace::new("twice");
    let table = "CREATE TABLE t (a INT) WITH ('connector' = 'datagen', 'number-of-rows' = '3');\n";
    for (sql, message, culprit) in [
        ("SELECT 1 FROM t AS x, t AS x", "two relations 'x' in FROM", "t AS x"),
        ("SELECT 1 FROM t AS x JOIN (SELECT 2 AS b) AS x ON x.a = x.b", "two relations 'x'", ""),
        ("SELECT 1 FROM t, t", "two relations 't' in FROM", "t"),
        (
            "WITH c AS (SELECT 1 AS x), c AS (SELECT 2 AS x) SELECT x FROM c",
            "two common table",
            "c",
        ),
    ] {
        let run = workspace.run(&["validate", "-e", &format!("{table}{sql}")]);
        let text = run.message(2);
        assert_holds(text, &[message, "another name"]);
        assert!(culprit.is_empty() || underlined(text) == culprit, "{text}");
    }
    let fine = "SELECT 1 FROM t AS x, t AS y WHERE x.a IN (SELECT x.a FROM t AS x)";
    assert_eq!(workspace.run(&["validate", "-e", &format!("{table}{fine}")]).stderr, "");
}

#[test]
fn a_word_too_many_is_unexpected() {
    let workspace = Workspace::new("unexpected");
    let run = workspace.execute("SELECT 1 AS a NOT");
    assert_holds(run.message(2), &["error: unexpected 'NOT'", "command line:1:15"]);
}

#[test]
fn an_output_that_cannot_be_written_is_named() {
    let workspace = Workspace::new("write-error");
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full");
    let Ok(full) = full else { return };
    let mut command = workspace.command(&["run", "-e", "SELECT 1 AS a"]);
    let run = Run::from(command.stdout(full).output().expect("starting thalweg"));
    assert_holds(run.message(1), &["cannot write: No space left", "standard output"]);
    // As where a quota is used up: files end at a number of blocks.
    for format in ["csv", "json", "parquet", "arrow"] {
        let sql = format!(
            "CREATE TABLE g (n BIGINT, s STRING) WITH ('connector' = 'datagen', 'number-of-rows' = '20000',
               'fields.s.length' = '30');
             CREATE TABLE o (n BIGINT, s STRING)
             WITH ('connector' = 'filesystem', 'format' = '{format}', 'path' = 'o.{format}');
             INSERT INTO o SELECT n, s FROM g;"
        );
        let limited = format!(
            "trap '' XFSZ; ulimit -f 8; exec {} run -e \"$0\"",
            env!("CARGO_BIN_EXE_thalweg")
        );
        let mut command = std::process::Command::new("bash");
        command.args(["-c", &limited, &sql]).current_dir(&workspace.folder);
        let run = Run::from(command.output().expect("starting bash"));
        assert_holds(run.message(1), &["File too large", &format!("o.{format}.partial")]);
    }
}

/// What a table that is read, written or unused is answered about a wrong option, and what the
/// carets underline.
#[test]
fn a_wrong_option_is_shown_where_it_stands() {
    let workspace = Workspace::new("options");
    let file = "'connector' = 'filesystem', 'path' = 'x.csv', 'format'";
    let cases = [
        (
            format!("{file} = 'csv', 'csv.header' = 'yes'"),
            "invalid value 'yes' for option 'csv.header' of table t; expected true or false",
            "'csv.header' = 'yes'",
        ),
        (
            format!("{file} = 'path'"),
            "invalid value 'path' for option 'format'",
            "'format' = 'path'",
        ),
        (format!("{file} = 'csv', 'csv.heder' = 'true'"), "'csv.heder'", "'csv.heder' = 'true'"),
        (
            format!("{file} = 'csv', 'changelog' = 'upsert'"),
            "primary key",
            "'changelog' = 'upsert'",
        ),
        (
            "'connector' = 'datagen', 'fields.n.lenght' = '3'".to_owned(),
            "lenght",
            "'fields.n.lenght' = '3'",
        ),
        (
            "'connector' = 'nowhere'".to_owned(),
            "invalid value 'nowhere' for option 'connector'",
            "'connector' = 'nowhere'",
        ),
        ("'connector' = 'filesystem', 'format' = 'csv'".to_owned(), "needs the option 'path'", "t"),
    ];
    for (options, message, culprit) in cases {
        let table = format!("CREATE TABLE t (n INT)\nWITH ({options});\n");
        for (command, use_of_it) in [
            ("run", "SELECT n FROM t"),
            ("run", "INSERT INTO t SELECT 1"),
            ("validate", "SELECT 1"),
        ] {
            let run = workspace.run(&[command, "-e", &format!("{table}{use_of_it};")]);
            let text = run.message(2);
            if culprit == "'fields.n.lenght' = '3'" && use_of_it.starts_with("INSERT") {
                continue;
            }
            assert_holds(text, &[message]);
            let is_insert = culprit == "t" && use_of_it.starts_with("INSERT");
            assert!(underlined(text) == culprit || is_insert, "{text}");
        }
    }
}

#[test]
fn a_type_that_a_format_cannot_hold_is_shown_where_it_stands() {
    let workspace = Workspace::new("column-type");
    let run = workspace.execute(
        "CREATE TABLE t (n INT,\n  m MAP<STRING, INT>)
         WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'x.csv');
         SELECT n FROM t",
    );
    assert_holds(run.message(2), &["column m", "command line:2:3"]);
}

#[test]
fn a_wrong_command_line_is_reported_with_status_2() {
    let workspace = Workspace::new("usage");
    for arguments in [
        &["run"][..],
        &["run", "a.sql", "-e", "SELECT 1"],
        &["run", "-e", "SELECT 1", "--workers", "0"],
        &["run", "-e", "SELECT 1", "--memory-limit", "lots"],
        &["run", "-e", "SELECT 1", "--set", "novalue"],
        &["run", "-e", "SELECT 1", "--allow-path", "nowhere"],
        &["wander"],
    ] {
        let run = workspace.run(arguments);
        assert_holds(run.message(2), &["error"]);
        assert_eq!(run.stdout, "", "{arguments:?}");
    }
    let missing = workspace.run(&["run", "nowhere.sql"]);
    assert_holds(missing.message(2), &["there is no file nowhere.sql"]);
}

#[test]
fn a_missing_input_is_named() {
    let workspace = Workspace::new("missing");
    let run = workspace.execute(&format!("{EVENTS_TABLE} SELECT k FROM events"));
    assert!(matches!(run.status, Some(1 | 2)), "{:?}", run.status);
    assert_holds(&run.stderr, &["events.csv"]);
}

#[test]
fn paths_outside_the_allowed_folders_are_refused() {
    let workspace = Workspace::new("paths");
    workspace.write("outside/events.csv", EVENTS);
    let table = EVENTS_TABLE.replace("'events.csv'", "'../outside/events.csv'");
    workspace.write("inside/job.sql", &format!("{table} SELECT k FROM events;"));
    let inside = Workspace { folder: workspace.folder.join("inside") };
    let refused = inside.run(&["run", "job.sql"]);
    assert_holds(refused.message(2), &["outside", "--allow-path"]);
    let allowed = inside.run(&["run", "--allow-path", "../outside", "job.sql"]);
    assert_eq!(allowed.rows().len(), 4);
}

#[test]
fn a_bad_row_fails_the_job_and_leaves_nothing_that_looks_finished() {
    let workspace = Workspace::new("partial");
    workspace.write("events.csv", &format!("{EVENTS}b,four,2026-01-01 00:00:30.000\n"));
    let run = workspace.execute(&format!(
        "{EVENTS_TABLE} CREATE TABLE copy (k STRING, n INT)
         WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'copy.csv');
         INSERT INTO copy SELECT k, n FROM events;"
    ));
    assert_holds(run.message(1), &["error: ", "four", "events.csv", "row 4"]);
    assert!(!workspace.has("copy.csv"));
    assert!(workspace.has("copy.csv.partial"));
}

#[test]
fn colors_come_when_asked_for() {
    let workspace = Workspace::new("color");
    let plain = workspace.run(&["run", "-e", "SELECT nowhere"]);
    assert!(!plain.message(2).contains('\x1b'));
    let colored = workspace.run(&["run", "--color", "always", "-e", "SELECT nowhere"]);
    assert!(colored.message(2).contains("\x1b["));
}

#[test]
fn a_text_that_would_fill_the_memory_is_refused() {
    let workspace = Workspace::new("huge-text");
    let run = workspace.execute("SELECT REPEAT('aa', 1500000000) AS t");
    assert_holds(run.message(1), &["column 't'", "REPEAT would make a text of more than"]);
}

/// What the carets of a message underline.
fn underlined(message: &str) -> &str {
    let lines: Vec<&str> = message.lines().collect();
    let at =
        lines.iter().position(|line| line.contains('^')).unwrap_or_else(|| panic!("{message}"));
    let from = lines[at].find('^').expect("carets");
    &lines[at - 1][from..from + lines[at].matches('^').count()]
}

const NUMBERS: &str = "CREATE TABLE numbers (n INT, s STRING)
  WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'numbers.csv');
";

#[test]
fn an_expression_that_fails_while_the_job_runs_is_shown_with_its_row() {
    let workspace = Workspace::new("running-expression");
    workspace.write("numbers.csv", "5,a\n4,b\n0,c\n3,d\n");
    for (query, culprit) in [
        ("SELECT 1 + 10 / n AS q FROM numbers", "10 / n"),
        ("SELECT n FROM numbers WHERE s <> 'x' AND 10 / n > 2", "10 / n"),
        ("SELECT SUM(10 / n) AS q FROM numbers", "10 / n"),
        ("SELECT s, COUNT(*) FROM numbers GROUP BY s, 10 / n", "10 / n"),
        ("SELECT a.n FROM numbers a JOIN numbers b ON 10 / a.n = b.n", "10 / a.n"),
        ("SELECT MAX(n) OVER (PARTITION BY 10 / n ORDER BY PROCTIME()) FROM numbers", "10 / n"),
        ("SELECT CASE WHEN n > -1 THEN MOD(7, n) END AS m FROM numbers", "MOD(7, n"),
        ("SELECT q FROM (SELECT 10 / n AS q FROM numbers) WHERE q > 3", "10 / n"),
    ] {
        let run = workspace.execute(&format!("{NUMBERS}{query};"));
        let message = run.message(1);
        assert_holds(message, &["division by zero", "numbers.csv, row 3", "command line:3:"]);
        assert_eq!(underlined(message), culprit, "{message}");
        assert!(!message.contains('$'), "{message}");
    }
    let message = workspace.execute(&format!("{NUMBERS}SELECT CAST(s AS INT) AS i FROM numbers"));
    assert_holds(message.message(1), &["column 'i': 'a' is not a value", "numbers.csv, row 1"]);
    let message = workspace.execute("SELECT 1 AS a,\n 7 / 0 AS b");
    assert_holds(message.message(1), &["column 'b': division by zero", "command line:2:2"]);
}

#[test]
fn a_null_that_may_not_be_written_is_shown_with_its_row_and_what_can_be_done() {
    let workspace = Workspace::new("not-null");
    workspace.write("numbers.csv", "5,a\n0,b\n");
    let sink = "CREATE TABLE keyed (k INT, v STRING NOT NULL, PRIMARY KEY (k) NOT ENFORCED)
      WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'keyed.csv');\n";
    let insert = |query: &str| {
        let run = workspace.execute(&format!("{NUMBERS}{sink}INSERT INTO keyed {query};"));
        run.message(1).to_owned()
    };
    let key = insert("SELECT NULLIF(n, 0), s FROM numbers");
    assert_holds(&key, &["'k' of table 'keyed' is part of the primary key", "numbers.csv, row 2"]);
    assert_eq!(underlined(&key), "NULLIF(n, 0");
    assert!(!key.contains("without NOT NULL"), "{key}");
    let value = insert("SELECT n, NULLIF(s, 'b') AS v FROM numbers");
    assert_holds(
        &value,
        &["'v' of table 'keyed' is NOT NULL", "declare the column without NOT NULL"],
    );
    assert_eq!(underlined(&value), "NULLIF(s, 'b'");
}

#[test]
fn an_expression_that_fails_names_column_file_and_row() {
    let workspace = Workspace::new("failing-expression");
    workspace.write("numbers.csv", "5\n4\nx\n3\n");
    let run = workspace.execute(
        "CREATE TABLE numbers (n STRING)
           WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'numbers.csv');
         SELECT CAST(n AS INT) AS i FROM numbers",
    );
    assert_holds(run.message(1), &["column 'i'", "'x'", "numbers.csv, row 3"]);
}
