//! Every kind of table that holds changes, in every mode and contract: what is left of a query over
//! its changes is the answer of the same query over a plain table of the rows that are left.
//!
//! A seed makes a changelog and, with plain loops, the rows that it leaves. The changelog is read
//! from each of [`SOURCES`] as each of [`CHANGELOGS`], in each of [`MODES`] and [`CONTRACTS`]; each
//! of these combinations runs some of [`QUERIES`], and together they run all. The answers to
//! compare with come from plain tables, whose queries [`super::grammar`] compares with DuckDB.
//!
//! - `THALWEG_MATRIX_SEEDS=10`: ten seeds, and each combination runs every query.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::data::Dice;
use super::engine::{self, Configuration, Row, final_rows};

/// How many queries a combination runs, if it is not asked for all.
const QUERIES_OF_COMBINATION: usize = 3;
const STEPS: usize = 60;
const KEYS: usize = 7;

/// Where the changes lie.
const SOURCES: [&str; 4] = ["csv", "json", "parquet", "folder"];
/// What the rows of a table are.
const CHANGELOGS: [&str; 3] = ["inserts", "op", "upsert"];
/// How results leave. `file` writes the changes to a file and reads them back; `final` is
/// `--final`.
const MODES: [&str; 5] = ["streaming", "mini-batch", "batch", "file", "final"];
const CONTRACTS: [&str; 3] = ["epoch", "arrival", "event_time"];

/// Queries over a table `t (k, c, v, ts)`. The time of a change is no part of the row, so nobody
/// reads `ts`.
const QUERIES: [&str; 20] = [
    "SELECT k, c, v FROM t",
    "SELECT c FROM t",
    "SELECT k, v + 1 FROM t WHERE c <> 'a'",
    "SELECT c, COUNT(*) FROM t GROUP BY c",
    "SELECT c, SUM(v), MIN(v), MAX(v), AVG(v) FROM t GROUP BY c",
    "SELECT k, COUNT(DISTINCT c) FROM t GROUP BY k",
    "SELECT COUNT(*), COUNT(v), SUM(v) FROM t",
    "SELECT c, SUM(v) FROM t GROUP BY c HAVING COUNT(*) > 1",
    "SELECT n, COUNT(*) FROM (SELECT c, COUNT(*) AS n FROM t GROUP BY c) GROUP BY n",
    "SELECT DISTINCT c FROM t",
    "SELECT a.k, b.c FROM t a JOIN t b ON a.v = b.k",
    "SELECT a.k, a.v, p.name FROM t a LEFT JOIN plain p ON a.v = p.k",
    "SELECT p.name, a.c FROM plain p LEFT JOIN t a ON a.k = p.k AND a.v > 1",
    "SELECT p.name FROM plain p WHERE p.k IN (SELECT v FROM t)",
    "SELECT p.name FROM plain p WHERE p.k NOT IN (SELECT v FROM t WHERE v IS NOT NULL)",
    "SELECT k, c FROM t UNION ALL SELECT k, name FROM plain",
    "SELECT k FROM t EXCEPT SELECT v FROM t",
    "SELECT k FROM t INTERSECT SELECT v FROM t",
    "SELECT c, v, n FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY c ORDER BY v DESC, k) AS n FROM t) WHERE n < 3",
    "SELECT k, v FROM t ORDER BY v, k, c LIMIT 4",
];

/// What only batch mode can do with rows that change.
const QUERIES_OF_BATCHES: [&str; 2] =
    ["SELECT k, v FROM t ORDER BY v, k, c", "SELECT COUNT(*) FROM (SELECT k FROM t LIMIT 1)"];

/// A row: `k`, `c` and `v`, of which the last may be NULL.
type Values = (usize, &'static str, Option<i64>);

/// A changelog, and the rows that it leaves.
struct Log {
    /// What each row does, and the row.
    changes: Vec<(&'static str, Values)>,
    left: Vec<Values>,
}

impl Log {
    fn random(changelog: &str, dice: &mut Dice) -> Log {
        match changelog {
            "inserts" => {
                let left: Vec<Values> = (0..STEPS / 2).map(|_| values(dice)).collect();
                Log { changes: left.iter().map(|&row| ("+I", row)).collect(), left }
            }
            "op" => Log::of_rows(dice),
            _ => Log::of_keys(dice),
        }
    }

    /// Rows are added, replaced and deleted by all of their values, of which many are equal.
    fn of_rows(dice: &mut Dice) -> Log {
        let (mut changes, mut left) = (Vec::new(), Vec::new());
        while changes.len() < STEPS || left.is_empty() {
            let row = values(dice);
            if left.is_empty() || dice.percent(50) {
                left.push(row);
                changes.push(("+I", row));
                continue;
            }
            let gone = left.swap_remove(dice.below(left.len()));
            if dice.percent(50) {
                changes.push(("-D", gone));
                continue;
            }
            changes.extend([("-U", gone), ("+U", row)]);
            left.push(row);
        }
        Log { changes, left }
    }

    /// Rows are identified by their key alone: inserted twice, updated before they are there,
    /// deleted with values that they never had, and deleted when they are gone.
    fn of_keys(dice: &mut Dice) -> Log {
        let (mut changes, mut left) = (Vec::new(), BTreeMap::new());
        while changes.len() < STEPS || left.is_empty() {
            let row = values(dice);
            let op = dice.pick(&["+I", "+U", "+U", "-D"]);
            match op {
                "-D" => left.remove(&row.0),
                _ => left.insert(row.0, row),
            };
            changes.push((op, row));
        }
        Log { changes, left: left.into_values().collect() }
    }
}

fn values(dice: &mut Dice) -> Values {
    let v = (!dice.percent(10)).then(|| dice.below(6) as i64);
    (dice.below(KEYS), dice.pick(&["a", "b", "c"]), v)
}

/// The rows of a file in CSV, each with the second in which it was written.
fn csv_rows(log: &Log, has_op: bool) -> Vec<String> {
    let row = |(second, (op, (k, c, v))): (usize, &(&str, Values))| {
        let v = v.map(|v| v.to_string()).unwrap_or_default();
        let op = if has_op { format!("{op},") } else { String::new() };
        format!("{op}{k},{c},{v},1970-01-01 00:{:02}:{:02}\n", second / 60, second % 60)
    };
    log.changes.iter().enumerate().map(row).collect()
}

const COLUMNS: &str = "k INT NOT NULL, c STRING, v INT, ts TIMESTAMP(3)";

/// Writes a log as this source under a name and declares it as table `t`, next to the table
/// `plain`.
fn declaration(folder: &Path, log: &Log, name: &str, (source, changelog): (&str, &str)) -> String {
    let has_op = changelog != "inserts";
    let rows = csv_rows(log, has_op);
    let key = if changelog == "upsert" { ", PRIMARY KEY (k) NOT ENFORCED" } else { "" };
    let option = if has_op { format!(", 'changelog' = '{changelog}'") } else { String::new() };
    let path = format!("{name}-{source}-{changelog}");
    let format = if source == "folder" { "csv" } else { source };
    let null = if format == "csv" { ", 'csv.null-literal' = ''" } else { "" };
    let path = match source {
        "csv" => {
            fs::write(folder.join(format!("{path}.csv")), rows.concat()).expect("a table");
            format!("{path}.csv")
        }
        "folder" => {
            fs::create_dir_all(folder.join(&path)).expect("a folder");
            for (part, rows) in rows.chunks(7).enumerate() {
                let name = folder.join(&path).join(format!("part-{part:03}.csv"));
                fs::write(name, rows.concat()).expect("a part");
            }
            path
        }
        _ => {
            convert(folder, &rows, has_op, (&path, format));
            format!("{path}.{format}")
        }
    };
    format!(
        "CREATE TABLE t ({COLUMNS}, WATERMARK FOR ts AS ts {key}) WITH ('connector' = 'filesystem',
           'format' = '{format}', 'path' = '{path}' {option} {null});
         CREATE TABLE plain (k INT NOT NULL, name STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH
           ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'plain.csv');"
    )
}

/// Writes rows in another format, through a table in which what a row does is a column like any
/// other.
fn convert(folder: &Path, rows: &[String], has_op: bool, (path, format): (&str, &str)) {
    fs::write(folder.join("rows.csv"), rows.concat()).expect("rows to convert");
    let op = if has_op { "op STRING, " } else { "" };
    let script = format!(
        "CREATE TABLE r ({op}{COLUMNS}) WITH ('connector' = 'filesystem', 'format' = 'csv',
           'path' = 'rows.csv', 'csv.null-literal' = '');
         CREATE TABLE f ({op}{COLUMNS}) WITH ('connector' = 'filesystem', 'format' = '{format}',
           'path' = '{path}.{format}');
         INSERT INTO f SELECT * FROM r"
    );
    let _ = fs::remove_file(folder.join(format!("{path}.{format}")));
    engine::run_script(folder, &script).expect("rows are converted");
}

/// One way to read and to run.
#[derive(Clone, Copy, Debug)]
struct Combination {
    source: &'static str,
    changelog: &'static str,
    mode: &'static str,
    contract: &'static str,
}

fn combinations() -> Vec<Combination> {
    let mut all = Vec::new();
    for source in SOURCES {
        for changelog in CHANGELOGS {
            for mode in MODES {
                for contract in CONTRACTS {
                    all.push(Combination { source, changelog, mode, contract });
                }
            }
        }
    }
    all
}

/// The rows that are left when a query ran this way.
fn left(
    folder: &Path,
    declaration: &str,
    query: &str,
    combination: Combination,
    dice: &mut Dice,
) -> Result<Vec<Row>, String> {
    let (workers, rows_max) = (dice.pick(&[1, 2, 4]), dice.pick(&[1, 2, 5, 1_000]));
    let mut configuration = Configuration::new(combination.contract, workers, rows_max);
    match combination.mode {
        "final" => return left_of_final(folder, declaration, query, &configuration),
        "mini-batch" => configuration.mini_batch = true,
        "batch" => configuration.is_batch = true,
        // What is read back has no times any more.
        "file" if combination.contract == "event_time" => {}
        "file" => configuration.file = Some(dice.pick(&["csv", "json", "parquet"])),
        _ => {}
    }
    let outcome = engine::run(folder, declaration, query, &configuration);
    final_rows(&outcome.map_err(|error| format!("{error} {:?}", error.help()))?)
}

/// The same from the command line.
fn left_of_final(
    folder: &Path,
    declaration: &str,
    query: &str,
    configuration: &Configuration,
) -> Result<Vec<Row>, String> {
    let file = folder.join("query.sql");
    fs::write(&file, format!("{declaration}\n{query};")).map_err(|error| error.to_string())?;
    let output = Command::new(env!("CARGO_BIN_EXE_thalweg"))
        .args(["run", "--final", "--format", "csv", "--null", "\\N"])
        .args(["--workers", &configuration.workers.to_string()])
        .args(["--set", &format!("pipeline.order={}", configuration.order)])
        .args(["--set", &format!("pipeline.bundle-rows-max={}", configuration.bundle_rows_max)])
        .arg(&file)
        .output()
        .map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let mut rows: Vec<Row> = Vec::new();
    for line in text.lines().skip(1) {
        rows.push(line.split(',').map(str::to_owned).collect());
    }
    rows.sort();
    Ok(rows)
}

fn folder(seed: usize) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("matrix-{seed}"));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a temporary folder");
    let plain: String =
        (0..KEYS).map(|k| format!("{k},name {k},1970-01-01 00:00:{k:02}\n")).collect();
    fs::write(folder.join("plain.csv"), plain).expect("a plain table");
    folder
}

/// A log in each source, and the answers that are wanted over what it leaves.
struct Logs {
    folder: PathBuf,
    declarations: HashMap<(&'static str, &'static str), String>,
    wanted: HashMap<(&'static str, &'static str), Vec<Row>>,
}

impl Logs {
    fn of_seed(seed: usize) -> Logs {
        let folder = folder(seed);
        let mut dice = Dice::new(seed as u64);
        let (mut declarations, mut wanted) = (HashMap::new(), HashMap::new());
        for changelog in CHANGELOGS {
            let log = Log::random(changelog, &mut dice);
            let changes = log.left.iter().map(|&row| ("+I", row)).collect();
            let left = Log { changes, left: Vec::new() };
            let plain = declaration(&folder, &left, changelog, ("csv", "inserts"));
            let configuration =
                Configuration { is_batch: true, ..Configuration::new("epoch", 1, 1_000) };
            for query in QUERIES.into_iter().chain(QUERIES_OF_BATCHES) {
                let outcome = engine::run(&folder, &plain, query, &configuration);
                let outcome = outcome.unwrap_or_else(|error| panic!("{query}: {error}"));
                let rows = final_rows(&outcome).expect("rows that stay");
                wanted.insert((changelog, query), rows);
            }
            for source in SOURCES {
                let declared = declaration(&folder, &log, "t", (source, changelog));
                declarations.insert((source, changelog), declared);
            }
        }
        Logs { folder, declarations, wanted }
    }
}

#[test]
fn every_changelog_means_the_same_in_every_mode_and_contract() {
    let seeds = std::env::var("THALWEG_MATRIX_SEEDS").ok();
    let runs_all = seeds.is_some();
    let seeds: usize = seeds.map_or(1, |text| text.parse().expect("a number of seeds"));
    let (mut runs, mut wrong) = (0, Vec::new());
    let combinations = combinations();
    for seed in 0..seeds {
        let logs = Logs::of_seed(seed);
        let mut dice = Dice::new(seed as u64);
        for (number, &combination) in combinations.iter().enumerate() {
            let mut queries = QUERIES.to_vec();
            if combination.mode == "batch" {
                queries.extend(QUERIES_OF_BATCHES);
            }
            if !runs_all {
                // Neighbors differ, and the first queries move on from source to source.
                let first = number * QUERIES_OF_COMBINATION + number / 15;
                let chosen = (first..).take(QUERIES_OF_COMBINATION);
                queries = chosen.map(|place| queries[place % queries.len()]).collect();
            }
            let declaration = &logs.declarations[&(combination.source, combination.changelog)];
            for query in queries {
                runs += 1;
                let got = left(&logs.folder, declaration, query, combination, &mut dice);
                let wanted = &logs.wanted[&(combination.changelog, query)];
                if got.as_ref() != Ok(wanted) {
                    let what = format!("seed {seed}, {combination:?}: {query}");
                    wrong.push(format!("{what}\n  got    {got:?}\n  wanted {wanted:?}"));
                }
            }
        }
    }
    println!("{} combinations, {runs} runs", combinations.len());
    assert!(wrong.is_empty(), "{} of {runs} runs:\n{}", wrong.len(), wrong.join("\n"));
}
