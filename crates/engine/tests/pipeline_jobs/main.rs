//! Pipelines in Rust as jobs with snapshots: stopped or given up, and resumed by other numbers
//! of workers.
//!
//! What is visible in the end is compared with plain loops over the rows: the very sequence in
//! `arrival` and `event_time`, the rows in `epoch`. Sources give as many rows as a test lets them,
//! so it is certain that snapshots lie in the middle.
//!
//! | module | holds |
//! |---|---|
//! | `cases` | pipelines, and the loops that say what is to come of them |
//! | `extents` | which tables are captured in full |
//! | `gate` | a source that gives as many rows as a test lets it |
//! | `golden` | snapshots of earlier versions |
//! | `lifecycle` | what is refused and why, restarts, modes, what is kept |
//! | `two_inputs` | cases with several streams: joins, co-aggregation, processors |

mod cases;
mod extents;
mod gate;
mod golden;
mod lifecycle;
mod two_inputs;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use thalweg::jobs::ResumeFrom;
use thalweg::pipeline::{JobOptions, Pipeline};
use thalweg::{OrderContract, Result, RunOptions};
use thalweg_core::shim::SplitMix64;

use cases::{CASES, Case, readings};
use gate::Gate;

/// How a run ends before its input does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// Asked to, with a last snapshot.
    Stopped,
    /// Nobody waits for it any more.
    GivenUp,
}

/// A folder that is empty at first.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pipeline_jobs").join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a temporary folder");
    folder
}

/// A job that takes snapshots where it is asked to, in a folder inside this one.
fn job_in(folder: &Path) -> JobOptions {
    let mut job = JobOptions::new("job", folder.join("state").to_str().expect("a name"));
    job.snapshots.interval = None;
    job
}

/// How a job runs; small bundles, so that much is under way.
fn options(order: OrderContract, workers: usize) -> RunOptions {
    RunOptions { order, workers, bundle_rows_max: 7, pin_workers: false, ..RunOptions::default() }
}

/// The rows that readers of a folder see, parts in the order of their names.
fn visible(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut parts: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    parts.retain(|path| {
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        !name.starts_with(['.', '_']) && !name.ends_with(".partial")
    });
    parts.sort();
    let read = |path: &PathBuf| fs::read_to_string(path).expect("a part is text");
    let texts: Vec<String> = parts.iter().map(read).collect();
    texts.iter().flat_map(|text| text.lines().map(str::to_owned)).collect()
}

/// Runs a case to its end, though its runs end early. The endings, in their order.
fn run(case: &Case, order: OrderContract, seed: u64, folder: &Path) -> Result<Vec<Ending>> {
    let rows = readings();
    let mut random = SplitMix64::new(seed);
    let mut endings = Vec::new();
    let mut job = job_in(folder);
    job.resume = ResumeFrom::Newest;
    let build = |gate: &Arc<Gate>| -> Result<Pipeline> {
        let pipeline = Pipeline::new();
        (case.build)(&pipeline, gate, &rows, folder)?;
        Ok(pipeline)
    };
    for workers in [1, 3, 2] {
        let gate = Gate::closed();
        let running = build(&gate)?.start_job(&job, options(order, workers))?;
        gate.open(random.below(rows.len() as u64 / 4));
        gate.await_held(&running.control());
        running.take_snapshot()?;
        // What comes behind the snapshot is to come again.
        gate.open(random.below(20));
        gate.await_held(&running.control());
        if random.below(2) == 0 {
            running.control().stop();
            assert!(running.wait()?.cancelled);
            endings.push(Ending::Stopped);
        } else {
            std::thread::sleep(Duration::from_micros(random.below(3000)));
            drop(running);
            endings.push(Ending::GivenUp);
        }
    }
    let gate = Gate::closed();
    gate.open(u64::MAX);
    let report = build(&gate)?.run_job(&job, options(order, 2))?;
    assert!(!report.cancelled);
    Ok(endings)
}

#[test]
fn pipelines_that_end_early_and_resume_give_what_a_loop_gives() {
    let mut endings = Vec::new();
    for case in CASES {
        for (place, order) in case.orders.iter().copied().enumerate() {
            for seed in 0..2 {
                let folder = folder(&format!("{}-{order}-{seed}", case.name));
                let ran = run(case, order, seed * 3 + place as u64, &folder);
                let what = format!("{}, {order}, seed {seed}", case.name);
                endings.extend(ran.unwrap_or_else(|error| panic!("{what}: {error}")));
                let (mut got, mut expected) =
                    (visible(&folder.join("out")), (case.expected)(&readings()));
                assert!(expected.len() > 30, "{what}: {} rows prove little", expected.len());
                if order == OrderContract::Epoch {
                    got.sort();
                    expected.sort();
                }
                let first = expected.iter().zip(&got).position(|(one, other)| one != other);
                assert!(
                    got == expected,
                    "{what}: {} of {} rows, at {first:?}: {:?}, not {:?}",
                    got.len(),
                    expected.len(),
                    first.map(|at| &got[at]),
                    first.map(|at| &expected[at])
                );
            }
        }
    }
    let stopped = endings.iter().filter(|&&ending| ending == Ending::Stopped).count();
    assert!(stopped > 5 && endings.len() - stopped > 5, "{stopped} of {}", endings.len());
}
