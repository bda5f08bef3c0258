//! The real dispatcher, containers and operators on one thread, driven by a seed.
//!
//! Each step a seeded generator chooses which of the job's workers comes next (their cells and
//! NUMA nodes differ) and how many tasks it does before another takes over. Sinks run inline. With
//! a manual clock nothing depends on real time, so a seed reproduces a run; a failing test prints
//! its seed.
//!
//! [`run_on`] runs the same on the virtual cores of a made-up machine and reports how long that
//! takes.
//!
//! Only sources that are ready when they say so (memory, datagen) can be simulated: a source on a
//! thread of its own brings back the timing that a simulation is there to remove. With bounded ones
//! a job is stepped to its end; with others it [settles](Simulation::settle), and whoever drives it
//! moves the clock or gives its inputs more.

mod costs;
mod virtual_cores;

use std::sync::Arc;
use std::time::Duration;

use thalweg_core::graph::Graph;
use thalweg_core::shim::SplitMix64;
use thalweg_core::snapshot::{
    Captured, Extent, Restored, RestoredCut, StageState, TableExtent, TakenCut,
};
use thalweg_core::{Error, Result};
use thalweg_ordering::Sleep;

use crate::control::{JobControl, Report};
use crate::dispatcher::next_task;
use crate::idleness::{due_ns, look_around};
use crate::job::Job;
use crate::options::RunOptions;
use crate::snapshots::capture::Cut;
use crate::start::build::{Surroundings, build};
use crate::start::opening::{Beginning, agree_and_open, stop_sources};
use crate::task::execute;
use crate::topology::WorkerPlace;

pub use costs::{AssumedCosts, Costs, RowCosts, Total, VirtualClock, Work};
pub use virtual_cores::{VirtualMachine, VirtualReport, run_on};

/// Steps without a task after which a simulation that is not done counts as stuck. A source that
/// is refused for want of memory makes empty steps too, but never without work in between.
const IDLE_STEPS_MAX: usize = 10_000;

/// How long it is waited for the answer to a lookup before it is looked again.
const ANSWER_WAIT: Duration = Duration::from_millis(1);

/// Steps after which a simulation that is never at rest counts as broken.
const SETTLE_STEPS_MAX: usize = 10_000_000;

/// Runs a job to its end.
pub fn simulate(graph: Graph, options: RunOptions, numa_nodes: usize, seed: u64) -> Result<Report> {
    let mut simulation = Simulation::begin(graph, options, numa_nodes, seed, None)?;
    while !simulation.is_over() {
        simulation.step();
    }
    simulation.end()
}

/// A cut as another run gets it, without a way through files.
///
/// # Errors
/// If the rows of a table can't be made.
pub fn restored(cut: TakenCut) -> Result<RestoredCut> {
    let all = |captured: Vec<Captured>| -> Result<Restored> {
        let mut all = Restored::default();
        for table in captured.into_iter().flat_map(|captured| captured.tables) {
            all.add(table.name, (table.rows)()?.rows);
        }
        Ok(all)
    };
    let stage = |stage: StageState<Vec<Captured>>| -> Result<StageState<Restored>> {
        Ok(StageState {
            state: all(stage.state)?,
            waiting: all(stage.waiting)?,
            id: stage.id,
            name: stage.name,
            ended: stage.ended,
            inputs: stage.inputs,
            places: stage.places,
            source: stage.source,
            sink: stage.sink,
        })
    };
    let stages = cut.stages.into_iter().map(stage).collect::<Result<_>>()?;
    Ok(RestoredCut { stages, serial: cut.serial, is_complete: cut.is_complete })
}

/// A job in a simulation, of which cuts can be taken, and which can be dropped at any step as if it
/// had been killed.
pub struct Simulation {
    job: Arc<Job>,
    random: SplitMix64,
    seed: u64,
    numa_nodes: u64,
    idle_steps: usize,
    fails_in: Option<(u64, Error)>,
}

impl Simulation {
    /// Opens sinks and starts sources; where another run was, if `restored` says so.
    ///
    /// # Errors
    /// As [`start_from`](crate::start_from).
    pub fn begin(
        graph: Graph,
        options: RunOptions,
        numa_nodes: usize,
        seed: u64,
        restored: Option<&RestoredCut>,
    ) -> Result<Self> {
        let sleep = Arc::new(Sleep::new());
        let around = Surroundings { numa_nodes, numa_memory: None, sleep, receivers: None };
        let mut job = build(graph, options, restored, around)?;
        // Where each task does one element, workers mix most.
        let elements_max = if seed.is_multiple_of(2) { 1 } else { 3 };
        job.settings.elements_per_task = job.settings.elements_per_task.min(elements_max);
        let job = Arc::new(job);
        agree_and_open(&job, &Beginning::from(restored.cloned()))?;
        let (random, numa_nodes) = (SplitMix64::new(seed), numa_nodes.max(1) as u64);
        Ok(Simulation { job, random, seed, numa_nodes, idle_steps: 0, fails_in: None })
    }

    /// True once the job has ended or failed.
    pub fn is_over(&self) -> bool {
        self.job.lifecycle.is_over() || self.job.lifecycle.all_sinks_finished()
    }

    /// True once all input of a job with snapshots is written: a last cut, its commit and
    /// [`JobControl::complete`] are left.
    pub fn has_ended(&self) -> bool {
        self.job.lifecycle.have_sinks_ended()
    }

    /// The job fails after this many steps, those of a cut included.
    pub fn fail_in(&mut self, steps: u64, error: Error) {
        self.fails_in = Some((steps, error));
    }

    /// Some worker does a few tasks.
    pub fn step(&mut self) {
        match self.fails_in.take() {
            Some((0, error)) => self.job.lifecycle.fail(error),
            Some((steps, error)) => self.fails_in = Some((steps - 1, error)),
            None => {}
        }
        let workers = self.job.settings.workers.max(1) as u64;
        let worker = self.random.below(workers) as usize;
        let place = WorkerPlace { worker, numa_node: worker % self.numa_nodes as usize };
        for _ in 0..=self.random.below(3) {
            match next_task(&self.job, place) {
                Some(task) => {
                    self.idle_steps = 0;
                    execute(&self.job, task, place, None);
                }
                None => self.idle_steps += 1,
            }
        }
        if self.idle_steps > IDLE_STEPS_MAX {
            self.job
                .lifecycle
                .fail(Error::internal(format!("the simulation with seed {} is stuck", self.seed)));
        }
    }

    /// Lets all workers do what there is to do now, and looks for what the clock has made due.
    /// Returns when nothing is left, which is until the clock moves or an input has more.
    pub fn settle(&mut self) {
        for _ in 0..SETTLE_STEPS_MAX {
            if self.is_over() {
                return;
            }
            self.step();
            if self.idle_steps == 0 || self.do_any_task() {
                continue;
            }
            if let Err(error) = look_around(&self.job) {
                self.job.lifecycle.fail(error);
            }
            if self.do_any_task() {
                continue;
            }
            self.idle_steps = 0;
            if !self.awaits_answer() {
                return;
            }
            self.job.lifecycle.wait(ANSWER_WAIT);
        }
        let seed = self.seed;
        let what = format!("the simulation with seed {seed} does not come to rest");
        self.job.lifecycle.fail(Error::internal(what));
    }

    /// A lookup is under way. Its answer comes on a thread of its own.
    fn awaits_answer(&self) -> bool {
        self.job.stages.iter().any(|stage| stage.metrics.unanswered.oldest().0 > 0)
    }

    /// A task of whichever worker has one.
    fn do_any_task(&mut self) -> bool {
        for worker in 0..self.job.settings.workers.max(1) {
            let place = WorkerPlace { worker, numa_node: worker % self.numa_nodes as usize };
            if let Some(task) = next_task(&self.job, place) {
                self.idle_steps = 0;
                execute(&self.job, task, place, None);
                return true;
            }
        }
        false
    }

    /// When the clock will have made something due, on the clock of the job: an input that falls
    /// idle, a window or timer of processing time.
    pub fn due_ns(&self) -> Option<u64> {
        due_ns(&self.job)
    }

    /// Takes a cut and continues.
    ///
    /// # Errors
    /// As [`JobControl::take_cut`](crate::JobControl::take_cut).
    pub fn take_cut(&mut self, extent: Extent) -> Result<TakenCut> {
        let job = Arc::clone(&self.job);
        let choose = Box::new(move |_: &str, _| TableExtent { extent, tracks: true });
        let taken = Cut::new(&job, choose, extent).take(u64::MAX, || self.step());
        taken.map(|taken| taken.cut)
    }

    /// The job's handle.
    pub fn control(&self) -> JobControl {
        JobControl(Arc::clone(&self.job))
    }

    /// What the job did, or why it failed.
    ///
    /// # Errors
    /// The error that ended it.
    pub fn end(self) -> Result<Report> {
        stop_sources(&self.job);
        match self.job.lifecycle.take_failure() {
            Some(error) => Err(error),
            None => Ok(Report::of(&self.job)),
        }
    }
}
