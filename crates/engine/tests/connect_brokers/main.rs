//! `redis`, `mqtt` and `nats` against real servers (`tests/services`).
//!
//! These servers are not fetched by a plain `cargo test`: `make connect-test` runs what is ignored
//! here. A machine without one skips its tests and says so; with `THALWEG_SKIPS=refuse` they fail
//! then.
#![cfg(all(feature = "redis", feature = "mqtt", feature = "nats"))]

mod mqtt;
mod nats;
mod redis;
#[path = "../connect_kafka/services.rs"]
mod services;

use std::collections::BTreeMap;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Waits until something holds; what is there else.
fn wait_for(what: &str, mut holds: impl FnMut() -> Result<(), String>) {
    let start = Instant::now();
    loop {
        match holds() {
            Ok(()) => return,
            Err(found) if start.elapsed() > Duration::from_secs(90) => panic!("{what}: {found}"),
            Err(_) => sleep(Duration::from_millis(50)),
        }
    }
}

/// The lines of all files of a folder that are visible, and how often each is there.
fn lines(folder: &Path) -> BTreeMap<String, usize> {
    let mut lines = BTreeMap::new();
    for file in std::fs::read_dir(folder).into_iter().flatten() {
        let file = file.expect("a file");
        let name = file.file_name();
        if name.to_string_lossy().starts_with(['.', '_']) {
            continue;
        }
        for line in std::fs::read_to_string(file.path()).expect("text").lines() {
            *lines.entry(line.to_owned()).or_default() += 1;
        }
    }
    lines
}

/// A job with snapshots that copies `i` (`n BIGINT`) into files.
fn copying(folder: &Path, source: &str) -> String {
    format!(
        "SET 'execution.checkpointing.dir' = '{0}/snapshots'; \
         SET 'execution.checkpointing.interval' = '100 ms'; CREATE TABLE i (n BIGINT) WITH ({source}); \
         CREATE TABLE o (n BIGINT) WITH ('connector' = 'filesystem', 'path' = '{0}/out/', 'format' = 'csv', \
         'sink.rolling-policy.rollover-interval' = '100 ms'); INSERT INTO o SELECT n FROM i;",
        folder.display()
    )
}

/// Waits until a number of different rows are there. Those that are there twice.
fn wait_for_rows(folder: &Path, count: usize) -> Vec<String> {
    wait_for("rows", || match lines(&folder.join("out")).len() {
        rows if rows == count => Ok(()),
        rows => Err(format!("{rows} of {count}")),
    });
    let doubled = lines(&folder.join("out")).into_iter().filter(|(_, times)| *times > 1);
    doubled.map(|(row, _)| row).collect()
}
