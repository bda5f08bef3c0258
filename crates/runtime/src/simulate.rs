//! The real dispatcher, containers and operators on one thread, driven by a seed.
//!
//! Each step a seeded generator chooses which of the job's workers comes next (their cells and
//! NUMA nodes differ) and how many tasks it does before another takes over. Sinks run inline. With
//! a manual clock nothing depends on real time, so a seed reproduces a run; a failing test prints
//! its seed.
//!
//! Only bounded sources that are always ready (memory, datagen) can be simulated: a source on a
//! thread of its own brings back the timing that a simulation is there to remove.

use std::sync::Arc;

use thalweg_core::graph::Graph;
use thalweg_core::shim::SplitMix64;
use thalweg_core::{Error, Result};

use crate::dispatcher::WorkerPlace;
use crate::job::{self, Report};
use crate::options::RunOptions;

/// Steps without a task after which a simulation that is not done counts as stuck. A source that
/// is refused for want of memory makes empty steps too, but never without work in between.
const IDLE_STEPS_MAX: usize = 10_000;

/// Runs a job to its end.
pub fn simulate(graph: Graph, options: RunOptions, numa_nodes: usize, seed: u64) -> Result<Report> {
    let workers = options.workers.max(1);
    let mut job = job::build_job(graph, options, numa_nodes, None)?;
    // Where each task does one element, workers mix most.
    let elements_max = if seed.is_multiple_of(2) { 1 } else { 3 };
    job.elements_per_task = job.elements_per_task.min(elements_max);
    let job = Arc::new(job);
    job::open_job(&job)?;
    let mut random = SplitMix64::new(seed);
    let mut idle_steps = 0;
    while !job.is_over() && !job.all_sinks_finished() {
        let worker = random.below(workers as u64) as usize;
        let place = WorkerPlace { worker, numa_node: worker % numa_nodes.max(1) };
        for _ in 0..=random.below(3) {
            match job.next_task(place) {
                Some(task) => {
                    idle_steps = 0;
                    job.execute(task, place);
                }
                None => idle_steps += 1,
            }
        }
        if idle_steps > IDLE_STEPS_MAX {
            job.fail(Error::internal(format!("the simulation with seed {seed} is stuck")));
        }
    }
    job::stop_sources(&job);
    match job.take_failure() {
        Some(error) => Err(error),
        None => Ok(job::report_job(&job)),
    }
}
