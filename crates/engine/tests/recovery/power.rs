//! Whole jobs on a machine that goes off: at a random call of what sinks and snapshots ask of the
//! file system, and again while the job is restored. What was not synced is lost, as far as chance
//! has it (`killed/disk.rs`).
//!
//! `THALWEG_POWER_ROUNDS=N` runs N jobs (20), `THALWEG_POWER_FIRST_SEED` says where to begin.

use std::path::Path;
use std::sync::Arc;

use thalweg::jobs::ResumeFrom;
use thalweg::{Column, DataType, Sink, TableSchema};
use thalweg_connectors::filesystem::{files::Files, sink_through};
use thalweg_core::connector::TableRequest;
use thalweg_core::shim::{SplitMix64, mix64};

use super::cells::{Cell, Kind, cells};
use super::jobs::{Workspace, rows};
use super::killed::disk::Disk;
use super::killed::{AtHold, Kill, Run, await_snapshot, run};

/// Rows of an input, and its number of files.
const ROWS: usize = 240;
const FILES: usize = 4;
/// How often sources hold still until a snapshot is kept.
const HOLDS: usize = 5;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
fn jobs_survive_the_loss_of_power() {
    let first = setting("THALWEG_POWER_FIRST_SEED", 1);
    let cells = cells();
    let (mut losses, mut early) = (0, 0);
    let rounds = setting("THALWEG_POWER_ROUNDS", 20);
    for seed in first..first + rounds {
        let cell = &cells[mix64(seed) as usize % cells.len()];
        let machine = Machine::new(cell, seed);
        let (expected, calls) = machine.straight();
        let tally = machine.lose_power(&expected, calls);
        (losses, early) = (losses + tally.0, early + tally.1);
    }
    println!("{rounds} jobs lost power {losses} times, {early} times before anything was visible");
    assert!(losses as u64 >= rounds && early < losses, "{losses} losses, {early} early");
}

/// A machine with a job and its inputs.
struct Machine<'a> {
    cell: &'a Cell,
    seed: u64,
    workspace: Workspace,
}

impl<'a> Machine<'a> {
    fn new(cell: &'a Cell, seed: u64) -> Self {
        let workspace = Workspace::new(&format!("power-{seed}"));
        let mut random = SplitMix64::new(seed);
        for input in &["a", "b"][..cell.query.inputs] {
            let texts = rows(&mut random, FILES, ROWS / FILES);
            for (number, text) in texts.iter().enumerate() {
                workspace.write(&format!("{input}/{number:03}.csv"), text);
            }
        }
        Machine { cell, seed, workspace }
    }

    fn visible(&self, disk: &Disk) -> Vec<String> {
        let parts = disk.visible(&self.workspace.path("out"));
        parts.iter().flat_map(|part| part.lines().map(str::to_owned)).collect()
    }

    /// The output of the job on a machine that stays on, and how many calls it makes.
    fn straight(&self) -> (Vec<String>, u64) {
        let disk = Disk::with_folder(&self.workspace.folder);
        let mut random = SplitMix64::new(self.seed);
        assert!(self.attempt(&disk, "straight", &mut random), "it stays on");
        (self.visible(&disk), disk.calls())
    }

    /// Runs the job until it ends. How often the machine went off, and how often before anything
    /// was visible.
    fn lose_power(&self, expected: &[String], calls: u64) -> (usize, usize) {
        let disk = Disk::with_folder(&self.workspace.folder);
        let mut random = SplitMix64::new(mix64(self.seed));
        let (mut losses, mut early) = (0, 0);
        let mut seen: Vec<String> = Vec::new();
        let what = |losses| format!("{}, seed {}, loss {losses}", self.cell.name(), self.seed);
        loop {
            // Long runs and short ones, which end while the job is restored.
            let calls = (calls >> random.below(4)).max(40);
            let is_last = losses == 6;
            disk.go_off_at((!is_last).then(|| 1 + random.below(calls)));
            let has_ended = self.attempt(&disk, "losing", &mut random);
            let was_on = !disk.is_off();
            if !was_on {
                disk.come_on(&mut random);
                losses += 1;
            }
            let visible = self.visible(&disk);
            early += usize::from(visible.is_empty() && !was_on);
            assert!(visible.starts_with(&seen), "{}: what was committed is lost", what(losses));
            if let Some(why) = self.cell.equality().excess(expected, &visible) {
                panic!("{}: {why}", what(losses));
            }
            seen = visible;
            if has_ended && was_on {
                let difference = self.cell.equality().difference(expected, &seen);
                assert_eq!(difference, None, "{}", what(losses));
                return (losses, early);
            }
        }
    }

    /// Runs the job until it ends or the machine goes off. True if it has ended.
    fn attempt(&self, disk: &Disk, purpose: &str, random: &mut SplitMix64) -> bool {
        let state = format!("{purpose}-{}", self.seed);
        thalweg_state::storage::offer_files(&state, Arc::new(disk.clone()));
        let rows = (ROWS / (HOLDS + 1)) as u64;
        let settings = vec![
            ("execution.checkpointing.dir", format!("test://{state}")),
            ("execution.checkpointing.interval", "1 ms".to_owned()),
            ("execution.checkpointing.on-failure", "fail".to_owned()),
            ("execution.checkpointing.tolerable-failed-checkpoints", "0".to_owned()),
            ("execution.checkpointing.incremental", (random.below(2) == 0).to_string()),
            ("pipeline.bundle-rows-max", [7, 100, 65_536][random.below(3) as usize].to_string()),
        ];
        let pace = Kill {
            holds: vec![vec![rows; self.cell.query.inputs]; HOLDS],
            is_spared: true,
            ..Kill::default()
        };
        let own = Run {
            folder: self.workspace.folder.clone(),
            settings,
            workers: 1 + random.below(3) as usize,
            resume: ResumeFrom::Newest,
            overwrite: false,
            kill: Some(pace),
        };
        let at_hold: AtHold = Box::new(|_, control| {
            await_snapshot(control);
        });
        let mut wrap = |_| self.sink(disk);
        match run(&self.cell.script(), own, &mut wrap, at_hold) {
            Ok(has_ended) => has_ended,
            Err(_) if disk.is_off() => false,
            Err(error) => panic!("{}, seed {}: {error}", self.cell.name(), self.seed),
        }
    }

    /// The sink of the table `result`, on the disk.
    fn sink(&self, disk: &Disk) -> Box<dyn Sink> {
        let mut options = vec![("connector", "filesystem"), ("format", "csv"), ("path", "out/")];
        options.extend((self.cell.query.kind == Kind::Changes).then_some(("changelog", "op")));
        let own = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
        let folder: &Path = &self.workspace.folder;
        let request = TableRequest {
            table: "result".to_owned(),
            schema: schema(self.cell.query.columns),
            options: options.into_iter().map(own).collect(),
            has_updates: self.cell.query.kind == Kind::Changes,
            base_dir: folder.to_path_buf(),
            allowed_roots: vec![folder.to_path_buf()],
            parallelism: 1,
            ..TableRequest::default()
        };
        let files: Arc<dyn Files> = Arc::new(disk.clone());
        sink_through(&request, &files).expect("a table that can be written")
    }
}

/// The columns of a table, from their declaration.
fn schema(columns: &str) -> TableSchema {
    let column = |text: &str| {
        let (name, declared) = text.trim().split_once(' ').expect("a name and a type");
        let data_type = match declared {
            "STRING" => DataType::STRING,
            "INT" => DataType::Int,
            "BIGINT" => DataType::BigInt,
            "DOUBLE" => DataType::Double,
            "TIMESTAMP(3)" => DataType::Timestamp(3),
            other => panic!("no query of this test has columns of type {other}"),
        };
        Column::new(name, data_type.nullable())
    };
    TableSchema::new(columns.split(", ").map(column).collect())
}
