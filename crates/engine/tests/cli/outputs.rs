//! Outputs of a run and those of another one, its inputs, its dead letters: nothing takes the place
//! of anything else.

use std::process::Child;

use crate::support::{Workspace, assert_holds, table, until, wait};

const NUMBERS: &str = "CREATE TABLE numbers (n BIGINT)
WITH ('connector' = 'datagen', 'rows-per-second' = 'unlimited', 'number-of-rows' = '3', 'fields.n.kind' = 'sequence',
      'fields.n.start' = '1', 'fields.n.end' = '3');
CREATE TABLE slow (n BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '100', 'seed' = '1');
";

/// Each INSERT is awaited.
const AWAITED: &str = "SET 'table.dml-sync' = 'true';\n";

/// A table of one column over files.
/// A process that writes `slow` to a table until it is killed.
fn writer(workspace: &Workspace, name: &str, path: &str, arguments: &[&str]) -> Child {
    let sql = format!("{NUMBERS}{}INSERT INTO {name} SELECT n FROM slow;", table(name, path));
    let mut all = vec!["run", "-e", &sql];
    all.extend(arguments);
    workspace.command(&all).spawn().expect("starting thalweg")
}

fn kill(child: &mut Child) {
    child.kill().expect("running");
    wait(child);
}

/// Two processes wrote one file: the first ended with status 0, and its rows were gone.
#[test]
fn an_output_is_written_by_one_process() {
    let workspace = Workspace::new("outputs-lock");
    for (path, begun, inner) in [
        ("out.csv", "out.csv.partial", "out.csv"),
        ("folder/", "folder/part-0.csv.partial", "folder/sub/other.csv"),
    ] {
        let mut first = writer(&workspace, "t", path, &[]);
        until("the first one writes", || workspace.has(begun));
        for path in [path, inner] {
            let sql = format!(
                "{NUMBERS}{}{}EXECUTE STATEMENT SET BEGIN INSERT INTO a SELECT n FROM numbers; \
                 INSERT INTO t SELECT n FROM numbers; END;",
                table("a", "earlier/a.csv"),
                table("t", path)
            );
            let second = workspace.execute(&sql);
            let process = format!("being written by process {}", first.id());
            assert_holds(second.message(1), &["table t", &process, "wait until"]);
            assert!(!workspace.has("earlier"), "the other output was not begun");
        }
        kill(&mut first);
        // Whoever was killed is in nobody's way.
        let again = workspace
            .execute(&format!("{NUMBERS}{}INSERT INTO t SELECT n FROM numbers;", table("t", path)));
        assert_eq!((again.status, again.stderr.as_str()), (Some(0), ""));
        let folder = workspace.folder.join(path);
        let folder = if folder.is_dir() { folder } else { workspace.folder.clone() };
        let locks = std::fs::read_dir(folder).expect("a folder").flatten();
        let locks = locks.filter(|entry| entry.file_name().to_string_lossy().contains("lock"));
        assert_eq!(locks.count(), 0, "no lock is left");
    }
    assert_eq!(workspace.read("out.csv"), "1\n2\n3\n");
    assert_eq!(workspace.read("folder/part-0.csv"), "1\n2\n3\n");
}

/// The same for parts that are written in transactions, under another job's name.
#[test]
fn a_folder_in_a_job_with_snapshots_is_written_by_one_process() {
    let workspace = Workspace::new("outputs-lock-parts");
    let snapshots = ["--set", "execution.checkpointing.dir=state"];
    let first_name = ["--set", "pipeline.name=first"];
    let mut first = writer(&workspace, "t", "out/", &[snapshots, first_name].concat());
    until("the first one writes", || {
        let parts = std::fs::read_dir(workspace.folder.join("out")).into_iter().flatten().flatten();
        parts.filter(|entry| entry.file_name().to_string_lossy().starts_with(".part-")).count() > 0
    });
    let sql = format!("{NUMBERS}{}INSERT INTO t SELECT n FROM numbers;", table("t", "out/"));
    let mut arguments = vec!["run", "-e", &sql, "--set", "pipeline.name=second"];
    arguments.extend(snapshots);
    let second = workspace.run(&arguments);
    let process = format!("being written by process {}", first.id());
    assert_holds(second.message(1), &["table t", &process]);
    assert!(first.try_wait().expect("asking").is_none(), "the first one is not disturbed");
    crate::support::interrupt(&first);
    assert_eq!(wait(&mut first).code(), Some(130), "it could take its last snapshot");
}

#[test]
fn a_recording_is_written_by_one_process_and_replaces_only_recordings() {
    let workspace = Workspace::new("outputs-record");
    let order = ["--set", "pipeline.order=arrival", "--record", "steps.txt"];
    let mut first = writer(&workspace, "t", "out.csv", &order);
    until("the first one writes", || workspace.has("out.csv.partial"));
    let sql = format!("{NUMBERS}{}INSERT INTO t SELECT n FROM numbers;", table("t", "other.csv"));
    let mut arguments = vec!["run", "-e", &sql];
    arguments.extend(order);
    let second = workspace.run(&arguments);
    let process = format!("being written by process {}", first.id());
    assert_holds(second.message(1), &["--record", &process]);
    assert!(!workspace.has("other.csv"));
    kill(&mut first);
    assert_eq!(workspace.run(&arguments).status, Some(0));
    let recorded = workspace.read("steps.txt");
    assert!(recorded.ends_with("done\n"), "{recorded}");
    workspace.write("steps.txt", "1\n2\n");
    let refused = workspace.run(&arguments);
    assert_holds(refused.message(2), &["steps.txt is there, and is no recording", "another file"]);
    assert_eq!(workspace.read("steps.txt"), "1\n2\n");
}

/// A table that sends what it cannot read to a file.
fn quarantined(name: &str, path: &str, letters: &str) -> String {
    format!(
        "CREATE TABLE {name} (n BIGINT) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = '{path}', \
         'bad-data' = 'dead-letter', 'dead-letter.path' = '{letters}');\n"
    )
}

const INPUT: &str = "1\nx\n2\n";
const SELECT: &str = "SELECT n FROM t;\n";
const INSERT: &str = "INSERT INTO o SELECT n FROM t;\n";

/// Inputs, each with several names; 7 names in all with the SQL file.
fn with_links(test: &str) -> Workspace {
    let workspace = Workspace::new(test);
    let path = |name: &str| workspace.folder.join(name);
    for name in ["in.csv", "sub/a.csv", "in.csv.partial"] {
        workspace.write(name, INPUT);
    }
    std::os::unix::fs::symlink(path("in.csv"), path("link.csv")).expect("a link");
    std::os::unix::fs::symlink(path("sub"), path("linked")).expect("a link");
    std::fs::hard_link(path("in.csv"), path("hard.csv")).expect("a link");
    workspace
}

/// Checks that statements are refused with this message, and that nothing is changed or made.
fn check_refused(workspace: &Workspace, sql: &str, message: &str) {
    workspace.write("query.sql", sql);
    for command in ["validate", "run"] {
        let refused = workspace.run(&[command, "query.sql"]);
        let said = || format!("{command}: {sql}{}{}", refused.stdout, refused.stderr);
        assert_eq!(refused.status, Some(2), "{}", said());
        assert_holds(&refused.stderr, &[message, "name another file"]);
        let marked = marked(&refused.stderr);
        let is_option =
            ["'path' = ", "'dead-letter.path' = "].iter().any(|o| marked.starts_with(o));
        assert!(is_option, "the option is marked, not {marked}: {}", refused.stderr);
    }
    assert_eq!(workspace.read("query.sql"), sql);
    for name in ["in.csv", "sub/a.csv", "in.csv.partial"] {
        assert_eq!(workspace.read(name), INPUT, "{sql}");
    }
    let there = std::fs::read_dir(&workspace.folder).expect("a folder").count();
    assert_eq!(there, 7, "nothing was made: {sql}");
}

/// What the carets of an error stand under.
fn marked(message: &str) -> String {
    let lines: Vec<&str> = message.lines().collect();
    let carets = lines.iter().position(|line| line.contains('^')).expect("a place");
    let is_marked = lines[carets].chars().map(|c| c == '^');
    let marked = lines[carets - 1].chars().zip(is_marked).filter(|(_, is_marked)| *is_marked);
    marked.map(|(character, _)| character).collect()
}

/// Dead letters truncated the input that they were named after, by whatever spelling.
#[test]
fn dead_letters_take_the_place_of_nothing_else() {
    let workspace = with_links("outputs-letters-names");
    let dead = |path: &str, letters: &str| quarantined("t", path, letters);
    for (path, letters, message) in [
        ("in.csv", "in.csv", "'dead-letter.path' of table t names what table t reads"),
        ("in.csv", "sub/../in.csv", "names what table t reads"),
        ("in.csv", "link.csv", "names what table t reads"),
        ("in.csv", "hard.csv", "names what table t reads"),
        ("link.csv", "in.csv", "names what table t reads"),
        ("in.csv.partial", "in.csv", "names what table t reads"),
        ("sub", "sub/bad.jsonl", "names what table t reads"),
        ("linked/", "sub/bad.jsonl", "names what table t reads"),
        ("*.csv", "bad.csv", "names what table t reads"),
        ("in.csv", "query.sql", "names the SQL file"),
        ("in.csv", "./sub/../query.sql", "names the SQL file"),
    ] {
        check_refused(&workspace, &(dead(path, letters) + SELECT), message);
    }
    for (letters, path) in [("o.csv", "o.csv"), ("o/bad.jsonl", "o/")] {
        let sql = dead("in.csv", letters) + &table("o", path) + INSERT;
        check_refused(&workspace, &sql, "table o names what 'dead-letter.path' of table t writes");
    }
    let two = dead("in.csv", "b.jsonl") + &quarantined("u", "sub/a.csv", "b.jsonl");
    let sql = two + "SELECT t.n FROM t JOIN u ON t.n = u.n;";
    check_refused(&workspace, &sql, "names what 'dead-letter.path' of table");
    // What readers pass over may lie in their folder, and a later job may read a result.
    let sql =
        dead("sub", "sub/_bad.jsonl") + &table("o", "in2.csv") + &table("p", "p.csv") + INSERT;
    workspace.write("query.sql", &(AWAITED.to_owned() + &sql + "INSERT INTO p SELECT n FROM o;"));
    let run = workspace.run(&["run", "query.sql"]);
    assert_eq!(run.status, Some(0), "{}", run.stderr);
}

/// The second INSERT of a run replaced the rows of the first one, and a result could take the place
/// of a file that an earlier statement had read; both with status 0.
#[test]
fn no_statement_replaces_what_an_earlier_one_read_or_wrote() {
    let workspace = with_links("outputs-statements");
    let tables = table("t", "in.csv") + &table("u", "sub/a.csv") + &table("o", "o.csv");
    for (more, statements, message) in [
        (
            "",
            "INSERT INTO o SELECT n FROM t;\nINSERT INTO o SELECT n FROM u;",
            "table o would replace what an earlier statement of this run wrote",
        ),
        (
            "",
            "INSERT INTO o SELECT n FROM t;\nINSERT INTO t SELECT n FROM o;",
            "table t would replace what an earlier statement of this run read",
        ),
        (
            &table("p", "./sub/../o.csv"),
            "INSERT INTO o SELECT n FROM t;\nINSERT INTO p SELECT n FROM u;",
            "table p would replace what table o of an earlier statement wrote",
        ),
        (
            &table("p", "hard.csv"),
            "SELECT n FROM t;\nINSERT INTO p SELECT n FROM u;",
            "table p would replace what table t of an earlier statement read",
        ),
        (
            &table("p", "sub/"),
            "SELECT n FROM u;\nINSERT INTO p SELECT n FROM t;",
            "table p would replace what table u of an earlier statement read",
        ),
    ] {
        for awaited in ["", AWAITED] {
            let sql = awaited.to_owned() + &tables + more + statements;
            check_refused(&workspace, &sql, message);
        }
    }
    let adding = "CREATE TABLE o (n BIGINT) WITH ('connector' = 'filesystem', 'format' = 'csv', \
                  'path' = 'o.csv', 'sink.append' = 'true');\n";
    workspace.write("numbers.csv", "1\n2\n");
    let sql = AWAITED.to_owned()
        + &table("t", "numbers.csv")
        + adding
        + "INSERT INTO o SELECT n FROM t;\nINSERT INTO o SELECT n + 10 FROM t;";
    let run = workspace.execute(&sql);
    assert_eq!(run.status, Some(0), "{}", run.stderr);
    assert_eq!(workspace.read("o.csv"), "1\n2\n11\n12\n");
}

/// Jobs that run at the same time have nothing to do with each other's outputs. What would be half
/// written when it is read, or written by two, is refused before anything runs, and the error names
/// both statements.
#[test]
fn statements_that_do_not_wait_leave_alone_what_an_insert_writes() {
    let workspace = with_links("outputs-at-once");
    let adding = "CREATE TABLE o (n BIGINT) WITH ('connector' = 'filesystem', 'format' = 'csv', \
                  'path' = 'o.csv', 'sink.append' = 'true');\n";
    let dead = quarantined("t", "in.csv", "bad.jsonl");
    let plain = |more: &str| table("t", "in.csv") + &table("o", "o.csv") + more;
    let set = "EXECUTE STATEMENT SET BEGIN INSERT INTO o SELECT n FROM t; END;\n";
    for (tables, statements, message) in [
        (
            plain(""),
            "INSERT INTO o SELECT n FROM t;\nSELECT n FROM o;",
            "table o reads what table o writes: the SELECT of line 4 does not wait for the INSERT INTO o of line 3",
        ),
        (
            plain(&table("p", "./sub/../o.csv")),
            "INSERT INTO o SELECT n FROM t;\nSELECT 1;\nSELECT n FROM p;",
            "table p reads what table o writes: the SELECT of line 6",
        ),
        (
            plain(&table("p", "p.csv")),
            "EXECUTE STATEMENT SET BEGIN INSERT INTO o SELECT n FROM t; END;\nINSERT INTO p SELECT n FROM o;",
            "the INSERT INTO p of line 5 does not wait for the STATEMENT SET of line 4",
        ),
        (
            table("t", "in.csv") + adding,
            "INSERT INTO o SELECT n FROM t;\nINSERT INTO o SELECT n FROM t;",
            "table o writes what table o writes",
        ),
        (
            table("t", "in.csv") + adding + &table("r", "o.csv") + &table("p", "p.csv"),
            "INSERT INTO p SELECT n FROM r;\nINSERT INTO o SELECT n FROM t;",
            "table o writes what table r reads",
        ),
        (
            dead + &table("o", "o.csv"),
            "INSERT INTO o SELECT n FROM t;\nSELECT n FROM t;",
            "'dead-letter.path' of table t writes what 'dead-letter.path' of table t writes",
        ),
        (
            plain(""),
            "INSERT INTO o SELECT n FROM t;\nSET 'table.dml-sync' = 'true';\nSELECT n FROM o;",
            "the SELECT of line 5 does not wait for the INSERT INTO o of line 3",
        ),
        (
            plain(""),
            "SET 'table.dml-sync' = 'true';\nRESET 'table.dml-sync';\nINSERT INTO o SELECT n FROM t;\nSELECT n FROM o;",
            "does not wait for the INSERT INTO o of line 5",
        ),
    ] {
        workspace.write("query.sql", &(tables + statements));
        for command in ["run", "validate"] {
            let run = workspace.run(&[command, "query.sql"]);
            assert_holds(run.message(2), &[message, "SET 'table.dml-sync' = 'true' before the "]);
        }
        assert!(!workspace.has("o.csv") && !workspace.has("o.csv.partial"), "{message}");
    }
    // Set back, it counts from there on; what was awaited may be read.
    let sql = plain("")
        + AWAITED
        + set
        + "SET 'table.dml-sync' = 'false';\nSELECT n FROM o;\nINSERT INTO p SELECT n FROM o;";
    workspace.write("in.csv", "1\n2\n");
    workspace.write("query.sql", &(table("p", "p.csv") + &sql));
    assert_eq!(workspace.run(&["run", "query.sql"]).rows(), ["n", "1", "2"]);
    assert_eq!(workspace.read("p.csv"), "1\n2\n");
}

#[test]
fn no_output_names_an_input_or_another_output() {
    let workspace = with_links("outputs-inputs");
    let read = |path: &str| table("t", path);
    for (path, output, message) in [
        ("in.csv", "in.csv", "table o names what table t reads"),
        ("in.csv", "hard.csv", "table o names what table t reads"),
        ("sub", "sub/", "table o names what table t reads"),
        ("sub/*.csv", "linked/c.csv", "table o names what table t reads"),
        ("sub/a.csv", "sub/", "table o names what table t reads"),
        ("in.csv", "query.sql", "table o names the SQL file"),
    ] {
        check_refused(&workspace, &(read(path) + &table("o", output) + INSERT), message);
    }
    let own = read("in.csv") + "INSERT INTO t SELECT n FROM t;";
    check_refused(&workspace, &own, "table t is read and written by the same job");
    let set = "EXECUTE STATEMENT SET BEGIN INSERT INTO o SELECT n FROM t; \
               INSERT INTO p SELECT n FROM t; END;\n";
    for (path, other) in [("out.csv", "./sub/../out.csv"), ("out/", "out/p.csv")] {
        let sql = read("in.csv") + &table("o", path) + &table("p", other) + set;
        check_refused(&workspace, &sql, "table p names what table o writes");
    }
    let kept = "SET 'execution.checkpointing.dir' = 'state';\n".to_owned() + &read("in.csv");
    let sql = kept + &table("o", "state/o.csv") + INSERT;
    check_refused(&workspace, &sql, "the folder of snapshots");
    let record = ["run", "query.sql", "--set", "pipeline.order=arrival", "--record", "hard.csv"];
    workspace.write("query.sql", &(read("in.csv") + SELECT));
    assert_holds(workspace.run(&record).message(2), &["--record", "table t reads"]);
    assert_eq!(workspace.read("in.csv"), INPUT);
}

fn letters(workspace: &Workspace, name: &str) -> Vec<String> {
    let text = workspace.read(name);
    text.lines()
        .map(|line| {
            let raw = line.split("\"raw\":\"").nth(1).expect("a dead letter");
            raw.trim_end_matches("\"}").to_owned()
        })
        .collect()
}

/// Each job of a file truncated the dead letters of the one before.
#[test]
fn jobs_of_a_run_add_to_their_dead_letters() {
    let workspace = Workspace::new("outputs-letters");
    workspace.write("a.csv", "1\nx\n2\ny\n");
    workspace.write("b.csv", "z\n3\n");
    let sql = AWAITED.to_owned()
        + &quarantined("a", "a.csv", "bad.jsonl")
        + &quarantined("b", "b.csv", "bad.jsonl")
        + &table("o", "o.csv")
        + &table("p", "p.csv")
        + "INSERT INTO o SELECT n FROM a;\nINSERT INTO p SELECT n FROM b;\nSELECT n FROM a;\n";
    for _ in 0..2 {
        // The second run replaces what the first one has written.
        let run = workspace.execute(&sql);
        assert_eq!((run.status, run.stdout.as_str()), (Some(0), "n\n1\n2\n"), "{}", run.stderr);
        assert_eq!(letters(&workspace, "bad.jsonl"), ["x", "y", "z", "x", "y"]);
        assert!(!workspace.has("bad.jsonl.partial"));
    }
    // A limit ends the job; what was read is complete.
    let one = workspace.run(&[
        "run",
        "--limit",
        "1",
        "-e",
        &(quarantined("a", "a.csv", "bad.jsonl") + "SELECT n FROM a;"),
    ]);
    assert_eq!(one.status, Some(0), "{}", one.stderr);
    assert!(!workspace.has("bad.jsonl.partial"));
    // A file without dead letters is a user's data.
    workspace.write("data.json", "{\"a\":1}\n");
    let other = workspace.execute(&(quarantined("a", "a.csv", "data.json") + "SELECT n FROM a;"));
    assert_holds(other.message(2), &["something else than dead letters", "data.json"]);
    assert_eq!(workspace.read("data.json"), "{\"a\":1}\n");
}

/// A job that had failed left a file that looked complete.
#[test]
fn dead_letters_of_a_job_that_fails_have_no_name_of_their_own() {
    let workspace = Workspace::new("outputs-letters-failed");
    workspace.write("a.csv", "1\nx\n0\n");
    let sql = quarantined("a", "a.csv", "bad.jsonl") + "SELECT 1 / n AS m FROM a;";
    let failed = workspace.execute(&sql);
    assert_eq!(failed.status, Some(1), "{}", failed.stderr);
    assert!(!workspace.has("bad.jsonl"));
    assert_eq!(letters(&workspace, "bad.jsonl.partial"), ["x"]);
    let mut first = {
        let slow =
            format!("{NUMBERS}{}{}", quarantined("a", "a.csv", "bad.jsonl"), table("t", "out.csv"));
        let sql = slow + "INSERT INTO t SELECT slow.n FROM slow LEFT JOIN a ON slow.n = a.n;";
        workspace.command(&["run", "-e", &sql]).spawn().expect("starting thalweg")
    };
    until("the first one writes", || workspace.has("out.csv.partial"));
    let second = workspace.execute(&(quarantined("a", "a.csv", "bad.jsonl") + "SELECT n FROM a;"));
    let process = format!("being written by process {}", first.id());
    assert_holds(second.message(1), &["'dead-letter.path'", &process]);
    kill(&mut first);
}

/// `| head` stopped a statement set with status 0; the file was not complete, and later statements
/// did not run.
#[test]
fn an_output_whose_reader_has_gone_ends_alone() {
    let workspace = Workspace::new("outputs-head");
    let many = "CREATE TABLE many (n BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = 'unlimited',
        'number-of-rows' = '300000', 'fields.n.kind' = 'sequence', 'fields.n.start' = '1', 'fields.n.end' = '300000');\n";
    let printing = "CREATE TABLE shown (n BIGINT) WITH ('connector' = 'print');\n";
    let run = |sql: &str, arguments: &[&str]| {
        let mut child = workspace
            .command(&[&["run", "-e", sql], arguments].concat())
            .spawn()
            .expect("starting thalweg");
        // Nobody reads a byte.
        drop(child.stdout.take());
        let status = wait(&mut child).code();
        let mut stderr = String::new();
        std::io::Read::read_to_string(&mut child.stderr.take().expect("piped"), &mut stderr)
            .expect("UTF-8");
        (status, stderr)
    };
    let set = "EXECUTE STATEMENT SET BEGIN INSERT INTO shown SELECT n FROM many; INSERT INTO hd SELECT n FROM many; END;\n";
    let later =
        "SHOW TABLES;\nSELECT n FROM many;\nINSERT INTO later SELECT n FROM many WHERE n < 4;\n";
    let sql = format!(
        "{many}{printing}{}{}{set}{later}",
        table("hd", "hd.csv"),
        table("later", "later.csv")
    );
    for (place, name) in [(printing, "shown"), (&table("shown", "-"), "shown")] {
        let (status, stderr) = run(&sql.replace(printing, place), &[]);
        assert_eq!(status, Some(141), "{stderr}");
        assert_holds(&stderr, &["not all was written to", name, "the other outputs are complete"]);
        assert_eq!(workspace.read("hd.csv").lines().count(), 300_000);
        assert_eq!(workspace.read("later.csv"), "1\n2\n3\n");
        assert!(!workspace.has("hd.csv.partial"));
    }
    // The same in a job with snapshots.
    let sql = format!("{many}{printing}{}{set}", table("hd", "kept.csv"));
    let (status, stderr) = run(&sql, &["--set", "execution.checkpointing.dir=state"]);
    assert_eq!(status, Some(141), "{stderr}");
    assert_eq!(workspace.read("kept.csv").lines().count(), 300_000);
    // Whoever has read enough of all there is knows it.
    for sql in [
        format!("{many}SELECT n FROM many"),
        format!("{many}{printing}INSERT INTO shown SELECT n FROM many;"),
    ] {
        assert_eq!(run(&sql, &[]), (Some(0), String::new()));
    }
}
