//! Which tables of a job are captured in full, and which incrementally: by how much of each has
//! changed.

use std::path::Path;
use std::sync::Arc;

use thalweg::pipeline::{Pipeline, Window, count};
use thalweg::{OrderContract, Result};
use thalweg_state::SnapshotStore;

use super::cases::{Build, Reading, given, numbers, read, write};
use super::gate::Gate;
use super::{folder, job_in, options};

/// Keys with a state.
const KEYS: i64 = 2000;

/// Counts of each key in a session that stays open.
fn sessions(pipeline: &Pipeline, gate: &Arc<Gate>, rows: &[Reading], folder: &Path) -> Result<()> {
    let session = Window::session(1_000_000);
    let sessions = read(pipeline, gate, rows)?.window(session, "ts")?.key_by(&["sensor"])?;
    write(sessions.aggregate(vec![count()])?, folder)
}

/// Sums of each key in a function in Rust.
fn states(pipeline: &Pipeline, gate: &Arc<Gate>, rows: &[Reading], folder: &Path) -> Result<()> {
    let source = given(rows, gate);
    let sums = pipeline
        .read_timed_row_source("readings", source, |reading: &Reading| reading.time_ms, 0)
        .key_by(16, |reading: &Reading| reading.sensor)
        .stateful("total", |sensor: &i64, total: &mut i64, reading: Reading, out| {
            *total += reading.level;
            out.emit((*sensor, *total));
        });
    write(sums.into_columns("columns", numbers(&["sensor", "total"])), folder)
}

/// Of a table in a snapshot: how many snapshots of changes lie on the full one, and rows in all
/// files.
fn table_of(folder: &Path, number: u64, name: &str) -> (usize, u64) {
    let location = folder.join("state");
    let store = SnapshotStore::open(location.to_str().expect("a name"), "job").expect("a place");
    let stages = store.describe(number).expect("it is kept").stages;
    let mut tables = stages.iter().flat_map(|stage| &stage.state);
    let table = tables.find(|table| table.name == name).expect("it has state");
    assert!(table.files <= 1 + 2 * table.changes, "{table:?}");
    (table.changes, table.rows)
}

#[test]
fn a_table_is_captured_in_full_while_most_of_its_keys_change_and_incrementally_when_few_do() {
    let cases: [(&str, Build); 2] = [("sessions", sessions), ("states", states)];
    for (table, build) in cases {
        let folder = folder(&format!("extents-{table}"));
        let every = || 0..KEYS;
        // In turn: all keys, all keys, and one in a hundred four times.
        let few = (0..4).flat_map(|_| 0..KEYS / 100);
        let keys = every().chain(every()).chain(few);
        let readings: Vec<Reading> =
            keys.map(|sensor| Reading { time_ms: 1, sensor, level: 1 }).collect();
        let gate = Gate::closed();
        let pipeline = Pipeline::new();
        build(&pipeline, &gate, &readings, &folder).expect("it is built");
        let job = job_in(&folder);
        let running = pipeline.start_job(&job, options(OrderContract::Arrival, 2));
        let running = running.expect("it starts");
        let mut captured = Vec::new();
        for rows in [KEYS, KEYS, 20, 20, 20] {
            gate.open(rows as u64);
            gate.await_held(&running.control());
            let number = running.take_snapshot().expect("it is kept");
            captured.push(table_of(&folder, number, table));
        }
        // The second says that all has changed, so the third has no changes to build on.
        let expected = [(0, 2000), (0, 2000), (0, 2000), (1, 2020), (2, 2040)];
        assert_eq!(captured, expected, "{table}");
    }
}
