//! The main example end to end: exact late counts, whatever the workers and however long we wait.
//!
//! The numbers come from `examples/flights/check_late_counts.py`, which counts one row at a time.
//! They depend on the data alone.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const ROWS: usize = 328_521;

/// Minutes to wait, and the late rows for `departed - wait` and for `sched - wait`.
const LATE: [(u32, usize, usize); 9] = [
    (0, 53_548, 75_629),
    (15, 36_425, 38_920),
    (30, 26_924, 29_021),
    (60, 15_710, 15_893),
    (2 * 60, 5_988, 5_360),
    (3 * 60, 2_314, 1_946),
    (6 * 60, 153, 117),
    (12 * 60, 27, 28),
    (24 * 60, 0, 0),
];

#[test]
fn late_rows_are_counted_exactly_for_every_wait() {
    for (wait_minutes, by_departure, by_schedule) in LATE {
        assert_eq!(
            late_rows("departed", wait_minutes, 2),
            by_departure,
            "departed - {wait_minutes}"
        );
        assert_eq!(late_rows("sched", wait_minutes, 2), by_schedule, "sched - {wait_minutes}");
    }
}

#[test]
fn workers_do_not_show_in_the_result() {
    let mut results = Vec::new();
    for workers in [1, 2, 4] {
        let folder = copy_of_example(&format!("workers-{workers}"));
        let printed = run(&folder.join("delays.sql"), workers);
        let mut hours = lines(&folder.join("hours.csv"));
        let late = lines(&folder.join("late_departures.csv"));
        assert_eq!(hours.len() - 1, 19_404);
        assert_eq!(late.len() - 1, 15_710);
        hours[1..].sort();
        results.push((printed, hours));
    }
    assert_eq!(worst(&results[0].0), "EWR,2013-12-17 19:00:00.000,12,69.2");
    assert!(
        results.windows(2).all(|pair| pair[0] == pair[1]),
        "results differ between worker counts"
    );
}

#[test]
fn with_a_day_of_patience_nothing_is_late() {
    let folder = copy_of_example("patience");
    let printed = run(&folder.join("delays_24h.sql"), 4);
    let hours = lines(&folder.join("hours_24h.csv"));
    assert_eq!(hours.len() - 1, 19_434);
    let flights: usize = hours[1..]
        .iter()
        .map(|hour| hour.split(',').nth(2).map_or(0, |n| n.parse().expect("a count")))
        .sum();
    assert_eq!(flights, ROWS);
    assert_eq!(worst(&printed), "LGA,2013-09-02 16:00:00.000,13,250.3");
    assert!(printed.contains("LGA,2013-07-28 19:00:00.000,14,239.5"), "{printed}");
    assert!(printed.contains("EWR,2013-03-08 12:00:00.000,10,224.8"), "{printed}");
    assert_eq!(printed.lines().count(), 11, "a header and ten hours:\n{printed}");
}

/// The first row below the header, as far as the mean delay.
fn worst(printed: &str) -> String {
    let row = printed.lines().nth(1).unwrap_or_default();
    row.split(',').take(4).collect::<Vec<_>>().join(",")
}

/// How many rows go to the table of late rows.
fn late_rows(clock: &str, wait_minutes: u32, workers: usize) -> usize {
    let folder = copy_of_example(&format!("late-{clock}-{wait_minutes}"));
    let query = format!(
        "CREATE TABLE departures (departed TIMESTAMP(3), sched TIMESTAMP(3), origin STRING, delay INT,
           WATERMARK FOR sched AS {clock} - INTERVAL '{wait_minutes}' MINUTE(4))
         WITH ('connector' = 'filesystem', 'format' = 'parquet', 'path' = 'departures.parquet');
         SET 'late.data' = 'late';
         CREATE TABLE late (sched TIMESTAMP(3), origin STRING)
         WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'late.csv');
         CREATE TABLE hours (n BIGINT)
         WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'hours.csv');
         INSERT INTO hours
         SELECT COUNT(*) FROM TABLE(TUMBLE(TABLE departures, DESCRIPTOR(sched), INTERVAL '1' HOUR))
         GROUP BY origin, window_start, window_end;"
    );
    let file = folder.join("query.sql");
    fs::write(&file, query).expect("writing the query");
    run(&file, workers);
    let late = lines(&folder.join("late.csv")).len();
    let accepted: usize =
        lines(&folder.join("hours.csv")).iter().map(|n| n.parse::<usize>().expect("a count")).sum();
    assert_eq!(accepted + late, ROWS, "{clock} - {wait_minutes}");
    late
}

/// A copy of the example's files, so that its outputs do not land in the repository.
fn copy_of_example(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("flights-{name}"));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a temporary folder");
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/flights");
    for file in ["delays.sql", "delays_24h.sql", "departures.parquet"] {
        fs::copy(example.join(file), folder.join(file)).expect("copying the example");
    }
    folder
}

/// Runs a file and returns what it printed.
fn run(file: &Path, workers: usize) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg"));
    command.args(["run", "--format", "csv", "--workers", &workers.to_string()]).arg(file);
    let output = command.output().expect("starting thalweg");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {}\n{stderr}", file.display(), output.status);
    String::from_utf8(output.stdout).expect("printed text is UTF-8")
}

fn lines(path: &Path) -> Vec<String> {
    let text =
        fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.lines().map(str::to_string).collect()
}
