//! Whole jobs in a store: their snapshots, partitions that are declared complete, and tables of
//! Iceberg, each row once although the job is killed.

use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use thalweg_core::shim::SplitMix64;

use super::server::Server;
use super::services::{Job, check_example, text};

const NUMBERS: &str = "CREATE TABLE numbers (n BIGINT NOT NULL) WITH ('connector' = 'datagen', 'rows-per-second' = '4000', \
    'fields.n.kind' = 'sequence', 'fields.n.start' = '1', 'fields.n.end' = '12000');\n";

/// Settings of a job whose snapshots are in the store.
fn with_snapshots(server: &Server) -> String {
    format!(
        "{}SET 'execution.checkpointing.dir' = 's3://thalweg/state'; SET 'execution.checkpointing.interval' = '200 ms';\n",
        server.settings()
    )
}

/// Kills a job some times, and lets it end.
fn end_after_kills(file: &std::path::Path, seed: u64) {
    let mut random = SplitMix64::new(seed);
    for _ in 0..4 {
        let job = Job::start(file, &["--resume"]);
        sleep(Duration::from_millis(300 + random.below(1_500)));
        job.kill();
    }
    let (is_right, said) = Job::start(file, &["--resume"]).wait();
    assert!(is_right, "{said}");
}

#[test]
#[ignore = "fetches a server: make connect-test"]
fn snapshots_in_a_store_are_reached_by_the_settings_of_the_session() {
    let Some(server) = Server::start() else { return };
    let table = "CREATE TABLE days (n BIGINT NOT NULL, k BIGINT) PARTITIONED BY (k) WITH ('connector' = 'filesystem', \
        'format' = 'csv', 'path' = 's3://thalweg/days/', 'sink.partition-commit.policy.kind' = 'success-file', \
        'sink.partition-commit.delay' = '1 h');\n";
    let begin =
        format!("{}SET 'pipeline.name' = 'days';\n{NUMBERS}{table}", with_snapshots(&server));
    let file =
        server.file("days", &format!("{begin}INSERT INTO days SELECT n, n % 2 FROM numbers;"));
    let job = Job::start(&file, &["--resume"]);
    sleep(Duration::from_millis(1_500));
    job.kill();
    assert!(!server.keys("state/days/").is_empty(), "the snapshots are in the store");
    assert!(!server.keys("days/").iter().any(|key| key.ends_with("_SUCCESS")));
    // Its outputs are uploads, which no copy can hold.
    let export = Command::new(env!("CARGO_BIN_EXE_thalweg"))
        .args(["snapshot", "export", "days"])
        .arg(server.folder("export").join("backup"))
        .args(["--dir", "s3://thalweg/state"])
        .env("AWS_ENDPOINT", server.value("ENDPOINT"))
        .env("AWS_REGION", "us-east-1")
        .env("AWS_ACCESS_KEY_ID", "reader")
        .env("AWS_SECRET_ACCESS_KEY", "s3cret")
        .output()
        .expect("it runs");
    let said = text(&export.stderr);
    assert!(!export.status.success() && said.contains("s3://thalweg/days"), "{said}");
    end_after_kills(&file, 3);
    let keys = server.keys("days/");
    assert_eq!(keys.iter().filter(|key| key.ends_with("_SUCCESS")).count(), 2, "{keys:?}");
    let said = server.output(
        "audit",
        &format!(
            "{}{table}SET 'execution.runtime-mode' = 'batch'; SELECT COUNT(*), COUNT(DISTINCT n), SUM(n) FROM days;",
            server.settings()
        ),
    );
    assert!(said.matches("12000").count() == 2 && said.contains("72006000"), "{said}");
}

#[test]
#[ignore = "fetches a server: make connect-test"]
fn a_table_of_iceberg_in_a_store_holds_each_row_once() {
    let Some(server) = Server::start() else { return };
    let table = "CREATE TABLE lake (n BIGINT NOT NULL, k BIGINT) PARTITIONED BY (k) WITH ('connector' = 'iceberg', \
        'catalog-type' = 'hadoop', 'warehouse' = 's3://thalweg/warehouse');\n";
    let begin = format!("{}{NUMBERS}{table}", with_snapshots(&server));
    let file =
        server.file("lake", &format!("{begin}INSERT INTO lake SELECT n, n % 3 FROM numbers;"));
    end_after_kills(&file, 4);
    let said = server.output(
        "audit",
        &format!(
            "{}{table}SET 'execution.runtime-mode' = 'batch'; SELECT COUNT(*), COUNT(DISTINCT n), SUM(n) FROM lake;",
            server.settings()
        ),
    );
    assert!(said.matches("12000").count() == 2 && said.contains("72006000"), "{said}");
    let versions = server.keys("warehouse/default/lake/metadata/v");
    assert!(versions.len() > 2, "{versions:?}");
}

#[test]
#[ignore = "fetches a server: make connect-test"]
fn the_example_runs() {
    // Its script starts servers of its own: this one says whether there can be any.
    let Some(server) = Server::start() else { return };
    check_example("lake", &server.folder("example"), &[]);
}
