//! Snapshots of pipelines as earlier versions wrote them, from which those of this one resume:
//! `tests/golden-snapshots/rust`. Here is what only the Rust interface has; the README there says
//! what lies where.

use std::fs;
use std::path::{Path, PathBuf};

use thalweg::OrderContract;
use thalweg::jobs::{ResumeFrom, SnapshotReference};
use thalweg::pipeline::Pipeline;

use super::cases::{CASES, Case, Reading, readings};
use super::gate::Gate;
use super::{folder, job_in, options, visible};

/// The kinds of state that SQL has no word for.
const KEPT: [&str; 2] = ["count-windows", "sliding-counts"];
/// Rows before the first snapshot, between it and the second, and behind that.
const ROWS: [u64; 3] = [50, 25, 5];
const INPUT: &str = "readings.csv";
const EXPECTED: &str = "expected.csv";
const WRITE: &str = "THALWEG_WRITE_GOLDEN_SNAPSHOTS";
/// No sequence of a snapshot is lost on it.
const ORDER: OrderContract = OrderContract::Arrival;

fn home() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden-snapshots/rust")
}

fn name(path: &Path) -> String {
    path.file_name().expect("a name").to_string_lossy().into_owned()
}

fn folders(of: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(of).expect("a folder").flatten().map(|entry| entry.path());
    let mut folders: Vec<PathBuf> = entries.filter(|path| path.is_dir()).collect();
    folders.sort();
    folders
}

fn case(name: &str) -> &'static Case {
    CASES.iter().find(|case| case.name == name).expect("a case of this name")
}

fn read(path: &Path) -> Vec<Reading> {
    let text = fs::read_to_string(path).expect("the input");
    let reading = |line: &str| {
        let mut numbers = line.split(',').map(|number| number.parse().expect("a number"));
        let mut next = || numbers.next().expect("three numbers");
        Reading { time_ms: next(), sensor: next(), level: next() }
    };
    text.lines().map(reading).collect()
}

/// Copies a folder, hidden files included.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for entry in fs::read_dir(from).expect("a folder").flatten() {
        let (path, to) = (entry.path(), to.join(entry.file_name()));
        match path.is_dir() {
            true => copy(&path, &to),
            false => drop(fs::copy(&path, to).expect("copying a file")),
        }
    }
}

fn build(case: &Case, readings: &[Reading], folder: &Path, rows: u64) -> Pipeline {
    let (pipeline, gate) = (Pipeline::new(), Gate::closed());
    gate.open(rows);
    (case.build)(&pipeline, &gate, readings, folder).expect("it is built");
    pipeline
}

#[test]
fn pipelines_resume_from_the_golden_snapshots_of_earlier_versions() {
    let versions = folders(&home());
    let kept: Vec<PathBuf> = versions.iter().flat_map(|version| folders(version)).collect();
    assert!(kept.len() >= KEPT.len(), "{kept:?}");
    for kept in kept {
        let case = case(&name(&kept));
        let readings = read(&kept.parent().expect("a version").join(INPUT));
        let expected = fs::read_to_string(kept.join(EXPECTED)).expect("what is expected");
        let expected: Vec<&str> = expected.lines().collect();
        assert_eq!(expected, (case.expected)(&readings), "the loop gives it too");
        for workers in [1, 3] {
            let folder = folder(&format!("golden-{}", case.name));
            copy(&kept.join("state"), &folder.join("state"));
            copy(&kept.join("out"), &folder.join("out"));
            let mut job = job_in(&folder);
            job.resume = ResumeFrom::Snapshot(SnapshotReference::Number(2));
            let pipeline = build(case, &readings, &folder, u64::MAX);
            let what = || format!("{} with {workers} workers", kept.display());
            let ran = pipeline.run_job(&job, options(ORDER, workers));
            ran.unwrap_or_else(|error| panic!("{}: {error}", what()));
            assert_eq!(visible(&folder.join("out")), expected, "{}", what());
        }
    }
}

/// Writes the snapshots of this version; by hand.
#[test]
fn new_golden_snapshots_of_pipelines_are_written_where_that_is_asked_for() {
    let Ok(version) = std::env::var(WRITE) else { return };
    let to = home().join(version);
    fs::create_dir_all(&to).expect("a folder");
    if !to.join(INPUT).exists() {
        let lines = readings().into_iter().take(150);
        let lines = lines.map(|r| format!("{},{},{}\n", r.time_ms, r.sensor, r.level));
        fs::write(to.join(INPUT), lines.collect::<String>()).expect("a file");
    }
    let readings = read(&to.join(INPUT));
    // What was written once stays.
    for case in KEPT.map(case).iter().filter(|case| !to.join(case.name).exists()) {
        let folder = folder(&format!("golden-new-{}", case.name));
        let (pipeline, gate) = (Pipeline::new(), Gate::closed());
        (case.build)(&pipeline, &gate, &readings, &folder).expect("it is built");
        let running = pipeline.start_job(&job_in(&folder), options(ORDER, 2)).expect("it starts");
        let [before, between, behind] = ROWS;
        for rows in [before, between] {
            gate.open(rows);
            gate.await_held(&running.control());
            running.take_snapshot().expect("it is kept");
        }
        gate.open(behind);
        gate.await_held(&running.control());
        drop(running);
        let own = to.join(case.name);
        copy(&folder.join("out"), &own.join("out"));
        let snapshots = own.join("state/job/snapshots");
        copy(&folder.join("state/job/snapshots"), &snapshots);
        // The one before is gone but for the files that the newest one shares.
        fs::remove_file(snapshots.join("0000000001/manifest.json")).expect("the older snapshot");
        let expected = (case.expected)(&readings).join("\n") + "\n";
        fs::write(own.join(EXPECTED), expected).expect("a file");
    }
}
