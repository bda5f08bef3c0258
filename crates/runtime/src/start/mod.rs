//! Jobs are started, run on their workers and are waited for.
//!
//! A start has two phases (see `opening`). [`agree_to_start`] is the first one: whoever starts
//! several jobs lets all of them agree before the first one begins.
//!
//! However a job ends (see `lifecycle`), no worker is at it any more and the sinks' threads are
//! joined before [`RunningJob::wait`] returns.

use std::time::Duration;

use thalweg_core::Result;
use thalweg_core::graph::Graph;
use thalweg_ordering::sync::{Arc, Ordering};

use crate::control::{JobControl, Report};
use crate::idleness;
use crate::job::Job;
use crate::numa_memory;
use crate::options::RunOptions;
use crate::pool::Pool;
use crate::sinks::{self, SinkReceivers, SinkThread};
use crate::stage::SinkMessage;
use crate::topology::Topology;
use build::Surroundings;

pub(crate) mod build;
pub(crate) mod opening;

pub use opening::Beginning;

/// How often the waiting thread looks at idle inputs and at the drain of a stopped job.
const TICK: Duration = Duration::from_millis(20);
/// Up to this many jobs of a pool look as often as one does; more of them share the cost.
const JOBS_PER_TICK: usize = 16;

/// A job that workers are at, its own or those of a pool.
pub struct RunningJob {
    job: Arc<Job>,
    pool: Pool,
    sinks: Vec<SinkThread>,
}

/// Starts a job. Sinks are opened and sources started before this returns, so that what is wrong
/// with them is known at once.
pub fn start(graph: Graph, options: RunOptions) -> Result<RunningJob> {
    start_from(graph, options, Beginning::default())
}

/// Starts a job where another run of it was at a cut, or with more to be done at its start.
///
/// # Errors
/// As [`start`]; if what was captured does not fit the graph; if a source cannot resume from its
/// position, or a sink cannot commit what it had prepared.
pub fn start_from(
    graph: Graph,
    options: RunOptions,
    beginning: impl Into<Beginning>,
) -> Result<RunningJob> {
    agree_to_start(graph, options, beginning)?.begin()
}

/// Does the first phase of [`start_from`]: outputs are claimed and sources begin to read. Nothing
/// outside is changed.
///
/// # Errors
/// What [`start_from`] refuses before it changes anything.
pub fn agree_to_start(
    graph: Graph,
    mut options: RunOptions,
    beginning: impl Into<Beginning>,
) -> Result<AgreedJob> {
    let beginning = beginning.into();
    let pool = pool_of(&mut options)?;
    let mut receivers = Vec::new();
    let job = built(graph, options, &beginning, (&pool, &mut receivers))?;
    opening::agree(&job, &beginning)?;
    Ok(AgreedJob { job: Some(job), pool, receivers, beginning })
}

/// A job whose parts have agreed to start. When it is dropped it gives up what it has claimed.
pub struct AgreedJob {
    /// `None` once it has begun.
    job: Option<Arc<Job>>,
    pool: Pool,
    receivers: SinkReceivers,
    beginning: Beginning,
}

impl AgreedJob {
    /// The second phase: the job runs.
    ///
    /// # Errors
    /// What opening a sink reports; if a sink cannot commit what it had prepared.
    pub fn begin(mut self) -> Result<RunningJob> {
        let job = self.job.take().expect("only beginning takes it");
        opening::open(&job, &self.beginning)?;
        let sinks = std::mem::take(&mut self.receivers)
            .into_iter()
            .map(|(stage, receiver)| sinks::spawn(&job, stage, receiver))
            .collect::<Result<Vec<_>>>();
        let sinks = sinks?;
        self.pool.join(&job);
        Ok(RunningJob { job, pool: self.pool.clone(), sinks })
    }
}

impl Drop for AgreedJob {
    fn drop(&mut self) {
        if let Some(job) = &self.job {
            opening::give_up(job);
        }
    }
}

/// Does the first phase of [`start_from`] and ends there: nothing is changed, and no row is read.
///
/// # Errors
/// What [`start_from`] would refuse before it changes anything.
pub fn rehearse_start(
    graph: Graph,
    mut options: RunOptions,
    beginning: impl Into<Beginning>,
) -> Result<()> {
    let beginning = beginning.into();
    let pool = pool_of(&mut options)?;
    let job = built(graph, options, &beginning, (&pool, &mut Vec::new()))?;
    opening::rehearse(&job, &beginning)
}

/// The workers of a job: those that it was given, or its own.
fn pool_of(options: &mut RunOptions) -> Result<Pool> {
    match options.pool.take() {
        Some(pool) => Ok(pool),
        None => Pool::new(options.workers, options.pin_workers, options.spin),
    }
}

/// Builds a job where `beginning` says, of which nothing has started yet.
fn built(
    graph: Graph,
    mut options: RunOptions,
    beginning: &Beginning,
    (pool, receivers): (&Pool, &mut SinkReceivers),
) -> Result<Arc<Job>> {
    options.workers = options.workers.min(pool.workers());
    options.partitions = Some(options.partitions());
    options.workers = pool.workers();
    let topology = Topology::detect();
    let around = Surroundings {
        numa_nodes: topology.numa_nodes(),
        numa_memory: numa_memory::of_system(&topology),
        sleep: pool.sleep(),
        receivers: Some(receivers),
    };
    Ok(Arc::new(build::build(graph, options, beginning.cut.as_ref(), around)?))
}

impl RunningJob {
    /// A handle to watch and stop it.
    pub fn control(&self) -> JobControl {
        JobControl(Arc::clone(&self.job))
    }

    /// Waits until the job is done, stopped or failed, workers have left it and its threads have
    /// ended.
    pub fn wait(mut self) -> Result<Report> {
        let waited = self.wait_for_end();
        if let Err(error) = waited {
            self.job.lifecycle.fail(error);
        }
        self.leave_pool();
        self.send_to_sinks(if self.job.lifecycle.has_failed() {
            || SinkMessage::Abort
        } else {
            || SinkMessage::Stop
        });
        // They finish at the same time.
        let until_ns = self.job.now_ns() + sinks::FINISH_TIME_NS;
        self.sinks.drain(..).for_each(|sink| sink.join(until_ns));
        opening::stop_sources(&self.job);
        self.end_sources();
        let failure = self.job.lifecycle.take_failure();
        match failure.or_else(|| self.job.unread.clone()) {
            Some(error) => Err(error),
            None => Ok(Report::of(&self.job)),
        }
    }

    /// What sources have written besides their rows is as complete as what sinks have written.
    fn end_sources(&self) {
        if self.job.lifecycle.all_sinks_finished()
            && !self.job.lifecycle.has_failed()
            && let Err(error) = opening::finish_sources(&self.job)
        {
            self.job.lifecycle.fail(error);
        }
        // What was finished has nothing to give up.
        opening::abort_sources(&self.job);
    }

    /// The job is over, and workers leave it.
    fn leave_pool(&self) {
        self.job.lifecycle.end();
        self.pool.leave(&self.job);
        self.job.memory.leave();
    }

    /// Returns when nothing is left to be done by workers.
    fn wait_for_end(&self) -> Result<()> {
        let (job, lifecycle) = (&self.job, &self.job.lifecycle);
        let mut drained_ticks = 0;
        while !lifecycle.all_sinks_finished() && !lifecycle.gives_up() {
            lifecycle.wait(TICK * self.pool.jobs().div_ceil(JOBS_PER_TICK).max(1) as u32);
            idleness::look_around(job)?;
            if !lifecycle.is_stopping() {
                continue;
            }
            // Twice in a row: a task without rows may be in no queue while it is executed.
            drained_ticks = if has_stopped(job) { drained_ticks + 1 } else { 0 };
            if drained_ticks >= 2 {
                return Ok(());
            }
        }
        Ok(())
    }

    fn send_to_sinks(&self, message: fn() -> SinkMessage) {
        let all = self.job.stages.sinks();
        for channel in all.filter_map(|(_, sink)| sink.channel.as_ref()) {
            // A sink that has finished has gone; that is fine.
            let _ = channel.send(message());
        }
    }
}

/// A job that nobody waits for any more is given up: workers of a pool must not continue with it.
impl Drop for RunningJob {
    fn drop(&mut self) {
        self.leave_pool();
    }
}

/// True if nothing is under way any more: all that a stopped job could still do is done. Rows that
/// a merge by time keeps back wait for rows that no source will deliver any more.
fn has_stopped(job: &Job) -> bool {
    job.stages.sources().all(|(_, source)| source.finished.load(Ordering::SeqCst))
        && job.is_drained()
}
