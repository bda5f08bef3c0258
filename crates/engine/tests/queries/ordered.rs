//! Contracts `arrival` and `event_time` through the command line: the bytes of every output are
//! those of one worker that takes one row at a time.
//!
//! The flights job runs in both contracts, late rows and files included, with sampled combinations
//! of workers, bundle sizes and policies, and so do branches and unions; the golden cases do in
//! `golden/ordered.rs`. In the suite few combinations are sampled; `make sweep`
//! (THALWEG_SWEEP_SEEDS=50) takes many. A failure prints the seed and the combination.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use thalweg_core::shim::SplitMix64;

const WORKERS: [usize; 5] = [1, 2, 3, 4, 8];
const BUNDLE_ROWS: [usize; 4] = [1, 7, 1000, 65_536];
const POLICIES: [&str; 6] = ["nem", "round-robin", "lp", "ct", "et", "qst"];

/// How one run differs from another: in nothing that may show.
#[derive(Clone, Copy, Debug)]
struct Combination {
    workers: usize,
    bundle_rows: usize,
    policy: &'static str,
}

const ONE_BY_ONE: Combination = Combination { workers: 1, bundle_rows: 1, policy: "nem" };

impl Combination {
    fn sample(random: &mut SplitMix64) -> Self {
        Combination {
            workers: WORKERS[random.below(WORKERS.len() as u64) as usize],
            bundle_rows: BUNDLE_ROWS[random.below(BUNDLE_ROWS.len() as u64) as usize],
            policy: POLICIES[random.below(POLICIES.len() as u64) as usize],
        }
    }
}

/// How many combinations per case; the sweep asks for more.
fn seeds(in_suite: u64) -> u64 {
    let asked = std::env::var("THALWEG_SWEEP_SEEDS").ok();
    asked.and_then(|text| text.parse().ok()).unwrap_or(in_suite)
}

fn run(order: &str, file: &Path, how: Combination) -> Output {
    run_with(order, file, how, &[])
}

fn run_with(order: &str, file: &Path, how: Combination, options: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg"));
    let settings = [
        format!("pipeline.order={order}"),
        format!("pipeline.scheduler={}", how.policy),
        format!("pipeline.bundle-rows-max={}", how.bundle_rows),
    ];
    command.args(["run", "--quiet", "--format", "csv", "--workers", &how.workers.to_string()]);
    for setting in &settings {
        command.args(["--set", setting]);
    }
    command.args(options).arg(file).stdin(Stdio::null()).output().expect("running thalweg")
}

#[test]
fn the_flights_job_keeps_its_bytes() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/flights");
    let sorted = |text: &str| {
        text.replace("'departures.parquet'", "'departures.parquet', 'source.sort-within' = '22 h'")
    };
    for order in ["arrival", "event_time"] {
        let mut expected = None;
        for seed in 0..seeds(4) {
            let how = Combination::sample(&mut SplitMix64::new(seed + 100));
            // One row at a time takes minutes in a build without optimization.
            let bundle_rows = how.bundle_rows.max(if cfg!(debug_assertions) { 1000 } else { 1 });
            let how = Combination { bundle_rows, ..how };
            let folder = copy(&source, &format!("ordered-flights-{order}"));
            let file = folder.join("delays.sql");
            if order == "event_time" {
                let text = fs::read_to_string(&file).expect("the example");
                fs::write(&file, sorted(&text)).expect("written");
            }
            let output = run(order, &file, how);
            let problem = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "{order}, {how:?}: {problem}");
            let read = |name: &str| fs::read(folder.join(name)).expect("an output file");
            let got = (output.stdout, read("hours.csv"), read("late_departures.csv"));
            assert!(got.1.len() > 100_000, "the hours are there");
            match &expected {
                None => expected = Some(got),
                Some(expected) => assert!(got == *expected, "{order}, seed {seed}, {how:?}"),
            }
        }
    }
}

/// Matches leave at watermarks, and those of one time in the order of their keys.
#[test]
fn patterns_keep_their_bytes() {
    let folder = copy(&golden_dir().join("tumble_basic"), "ordered-patterns");
    let mut random = SplitMix64::new(7);
    let mut now = 0;
    let mut row = |_| {
        now += random.below(3);
        let (second, key, n) = (now + random.below(12), random.below(9), random.below(5));
        format!(
            "2024-01-01 {:02}:{:02}:{:02},{key},{n}\n",
            second / 3600,
            second / 60 % 60,
            second % 60
        )
    };
    fs::write(folder.join("rows.csv"), (0..4000).map(&mut row).collect::<String>())
        .expect("written");
    let table = "CREATE TABLE t (ts TIMESTAMP(0), k INT, n INT, WATERMARK FOR ts AS ts - INTERVAL '8' SECOND) \
         WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'rows.csv');\n";
    for (number, clauses) in [
        "AFTER MATCH SKIP TO LAST C PATTERN (A B*? C) WITHIN INTERVAL '40' SECOND \
         DEFINE A AS A.n < 2, C AS C.n > A.n + 1 AND SUM(B.n) > 3",
        "AFTER MATCH SKIP PAST LAST ROW PATTERN (A+ B{1,2} C) \
         DEFINE A AS LAST(A.n, 1) IS NULL OR A.n >= LAST(A.n, 1), B AS n < LAST(A.n), C AS AVG(n) > 1",
    ]
    .iter()
    .enumerate()
    {
        let file = folder.join(format!("pattern{number}.sql"));
        let query = format!(
            "{table}SELECT * FROM t MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts, n DESC \
             MEASURES FIRST(ts) AS since, MATCH_ROWTIME() AS found, COUNT(*) AS c, SUM(B.n) AS s {clauses});"
        );
        fs::write(&file, query).expect("written");
        let expected = run("arrival", &file, ONE_BY_ONE);
        assert!(expected.status.success(), "{}", String::from_utf8_lossy(&expected.stderr));
        let matches = expected.stdout.split(|&byte| byte == b'\n').count();
        assert!(matches > 200, "only {matches} matches of pattern {number}");
        for seed in 0..seeds(8) {
            let how = Combination::sample(&mut SplitMix64::new(seed + 700));
            let output = run("arrival", &file, how);
            assert!(output.stdout == expected.stdout, "pattern {number}, seed {seed}, {how:?}");
        }
    }
}

#[test]
fn branches_of_one_table_meet_row_by_row() {
    let folder = copy(&golden_dir().join("tumble_basic"), "ordered-branches");
    let rows: String = (0..3000)
        .map(|n: i64| format!("2024-01-01 00:{:02}:{:02},{}\n", n / 60 % 60, n * 7 % 60, n % 11))
        .collect();
    fs::write(folder.join("rows.csv"), rows).expect("written");
    let file = folder.join("branches.sql");
    fs::write(
        &file,
        "CREATE TABLE t (ts TIMESTAMP(0), k INT, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND) \
         WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'rows.csv');\n\
         SELECT ts, k, 0 AS n FROM t WHERE k > 4 UNION ALL \
         SELECT window_end, k, CAST(COUNT(*) AS INT) FROM \
         TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND)) \
         GROUP BY k, window_start, window_end;",
    )
    .expect("written");
    let expected = run("arrival", &file, ONE_BY_ONE);
    assert!(expected.status.success(), "{}", String::from_utf8_lossy(&expected.stderr));
    for seed in 0..seeds(12) {
        let how = Combination::sample(&mut SplitMix64::new(seed + 200));
        let output = run("arrival", &file, how);
        assert!(output.stdout == expected.stdout, "seed {seed}, {how:?}");
    }
}

#[test]
fn sorted_inputs_meet_by_time_and_others_are_refused() {
    let folder = copy(&golden_dir().join("tumble_basic"), "ordered-inputs");
    let write = |name: &str, step: i64, of: &str| {
        let time = |n: i64| format!("2024-01-01 {:02}:{:02}:{:02}", n / 3600, n / 60 % 60, n % 60);
        let rows: String = (0..2000).map(|n| format!("{},{of}{n}\n", time(n * step / 2))).collect();
        fs::write(folder.join(name), rows).expect("written");
    };
    write("a.csv", 3, "a");
    write("b.csv", 2, "b");
    let table = |name: &str| {
        format!(
            "CREATE TABLE {name} (ts TIMESTAMP(0), n STRING, WATERMARK FOR ts AS ts) WITH \
             ('connector' = 'filesystem', 'format' = 'csv', 'path' = '{name}.csv');\n"
        )
    };
    let query = "SELECT * FROM a UNION ALL SELECT * FROM b;";
    let file = folder.join("union.sql");
    fs::write(&file, [&table("a"), &table("b"), query].concat()).expect("written");
    let expected = run("event_time", &file, ONE_BY_ONE);
    let text = String::from_utf8_lossy(&expected.stdout).into_owned();
    let times: Vec<&str> = text.lines().skip(1).filter_map(|row| row.split(',').next()).collect();
    assert_eq!(times.len(), 4000, "{}", String::from_utf8_lossy(&expected.stderr));
    assert!(times.is_sorted(), "by time");
    for seed in 0..seeds(8) {
        let how = Combination::sample(&mut SplitMix64::new(seed + 300));
        assert!(run("event_time", &file, how).stdout == expected.stdout, "seed {seed}, {how:?}");
    }
    fs::write(folder.join("b.csv"), "2024-01-01 00:00:05,x\n2024-01-01 00:00:04,y\n")
        .expect("written");
    let refused = run("event_time", &file, ONE_BY_ONE);
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1));
    assert!(message.contains("b.csv") && message.contains("source.sort-within"), "{message}");
}

#[test]
fn constants_come_before_everything_that_has_a_time() {
    let folder = copy(&golden_dir().join("tumble_basic"), "ordered-constants");
    let rows = "1969-12-31 23:00:00,1\n1970-01-01 00:00:05,2\n";
    fs::write(folder.join("a.csv"), rows).expect("written");
    let table = "CREATE TABLE a (ts TIMESTAMP(0), n INT, WATERMARK FOR ts AS ts) WITH \
                 ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'a.csv');\n";
    let constants = "SELECT * FROM (VALUES (7), (8), (9)) AS t(n)";
    for query in [
        format!("SELECT n FROM a UNION ALL {constants}"),
        format!("{constants} UNION ALL SELECT n FROM a"),
    ] {
        let file = folder.join("constants.sql");
        fs::write(&file, format!("{table}{query};")).expect("written");
        for seed in 0..seeds(8) {
            let how = Combination::sample(&mut SplitMix64::new(seed + 500));
            let output = run("event_time", &file, how);
            let printed = String::from_utf8_lossy(&output.stdout).into_owned();
            assert_eq!(
                printed.lines().collect::<Vec<_>>(),
                ["n", "7", "8", "9", "1", "2"],
                "{how:?}"
            );
        }
    }
}

/// Two tables of this many rows each in `folder`, and a file of statements that unites them.
fn united(folder: &Path, rows: usize) -> PathBuf {
    let table = |name: &str| {
        let lines: String = (0..rows).map(|n| format!("{name}{n}\n")).collect();
        fs::write(folder.join(format!("{name}.csv")), lines).expect("written");
        format!(
            "CREATE TABLE {name} (n STRING) WITH \
             ('connector' = 'filesystem', 'format' = 'csv', 'path' = '{name}.csv');\n"
        )
    };
    let file = folder.join("united.sql");
    let query = "SELECT * FROM a UNION ALL SELECT * FROM b;\n";
    fs::write(&file, [&table("a"), &table("b"), query, query].concat()).expect("written");
    file
}

#[test]
fn a_recorded_interleaving_is_replayed() {
    let folder = copy(&golden_dir().join("tumble_basic"), "ordered-replay");
    let file = united(&folder, 2000);
    let path = |name: &str| folder.join(name).display().to_string();
    let (recording, again) = (path("recording.txt"), path("again.txt"));
    for seed in 0..seeds(8) {
        let mut random = SplitMix64::new(seed + 400);
        let how = Combination::sample(&mut random);
        let recorded = run_with("arrival", &file, how, &["--record", &recording]);
        let printed = String::from_utf8_lossy(&recorded.stdout).into_owned();
        assert_eq!(printed.lines().count(), 2 + 2 * 2 * 2000, "seed {seed}, {how:?}");
        let how = Combination::sample(&mut random);
        let options = ["--replay", &recording, "--record", &again];
        let replayed = run_with("arrival", &file, how, &options);
        assert!(replayed.stdout == recorded.stdout, "seed {seed}, {how:?}");
        assert!(
            fs::read(&recording).expect("recorded") == fs::read(&again).expect("recorded"),
            "seed {seed}, {how:?}"
        );
    }
}

#[test]
fn a_replay_of_something_else_is_refused() {
    let folder = copy(&golden_dir().join("tumble_basic"), "ordered-replay-refused");
    let file = united(&folder, 100);
    let recording = folder.join("recording.txt").display().to_string();
    let replay = |order: &str| {
        let output = run_with(order, &file, ONE_BY_ONE, &["--replay", &recording]);
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let expect = |order: &str, status: i32, words: &str| {
        let (code, message) = replay(order);
        assert!(code == Some(status) && message.contains(words), "{code:?}: {message}");
    };
    expect("arrival", 2, "can't read");
    assert!(run_with("arrival", &file, ONE_BY_ONE, &["--record", &recording]).status.success());
    expect("epoch", 2, "no sequence is promised");
    let text = fs::read_to_string(&recording).expect("the recording");
    fs::write(&recording, text.trim_end().trim_end_matches("done")).expect("written");
    expect("arrival", 2, "cut off");
    fs::write(&recording, text.replace("input b", "input c")).expect("written");
    expect("arrival", 2, "'c'");
    fs::write(&recording, text).expect("written");
    fs::write(folder.join("b.csv"), "fewer\nrows\n").expect("written");
    expect("arrival", 1, "input 'b' ends");
}

#[test]
fn what_the_data_do_not_decide_is_refused_unless_allowed() {
    for undecided in ["RAND()", "NOW()", "UUID()", "CURRENT_TIMESTAMP"] {
        let sql = |allow: bool| {
            format!(
                "SET 'pipeline.order' = 'arrival'; \
                 SET 'pipeline.order.allow-nondeterministic' = '{allow}'; SELECT {undecided};"
            )
        };
        let run = |sql: String| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg"));
            command.args(["run", "-e", &sql]).stdin(Stdio::null()).output().expect("run")
        };
        let refused = run(sql(false));
        assert_eq!(refused.status.code(), Some(2), "{undecided}");
        assert!(String::from_utf8_lossy(&refused.stderr).contains("arrival"), "{undecided}");
        assert!(run(sql(true)).status.success(), "{undecided}");
    }
}

fn golden_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden")
}

/// A fresh copy of a folder's files.
fn copy(source: &Path, name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    if folder.exists() {
        fs::remove_dir_all(&folder).expect("removing a temporary folder");
    }
    fs::create_dir_all(&folder).expect("a temporary folder");
    for entry in fs::read_dir(source).expect("the folder").flatten() {
        if entry.path().is_file() {
            fs::copy(entry.path(), folder.join(entry.file_name())).expect("copying a file");
        }
    }
    folder
}
