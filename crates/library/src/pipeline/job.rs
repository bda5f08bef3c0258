//! Pipelines as jobs with snapshots: they resume where another run of the program stopped.
//!
//! The life of such a job is that of an INSERT with `execution.checkpointing.dir`: one run at a
//! time has its directory, `thalweg snapshot` lists and checks what it keeps, and `snapshot('…')`
//! in SQL reads it.

use thalweg_core::graph::Graph;
use thalweg_core::{Error, Result};
use thalweg_runtime::{JobControl, Report, RunOptions};

use super::build::{Node, NodeKind, Pipeline};
use super::identity;
use crate::jobs::{
    Interface, JobRuns, LookedAfter, Recovery, RestartSettings, ResumeFrom, SnapshotSettings,
};

/// How a pipeline runs as a job with snapshots.
///
/// ```
/// use std::time::Duration;
/// use thalweg::jobs::{ResumeFrom, SnapshotSettings};
/// use thalweg::pipeline::JobOptions;
/// let mut job = JobOptions::new("sensors", "state");
/// job.snapshots.interval = Some(Duration::from_secs(1));
/// job.resume = ResumeFrom::Newest;
/// assert_eq!(job.snapshots.retained, SnapshotSettings::new("state").retained);
/// ```
#[derive(Clone, Debug)]
pub struct JobOptions {
    /// The job's name: its snapshots lie in a folder of this name.
    pub name: String,
    /// Where snapshots are kept, when they are taken, and what they promise.
    pub snapshots: SnapshotSettings,
    /// What the first run resumes from.
    pub resume: ResumeFrom,
    /// State in a snapshot that a changed pipeline has no use for is dropped.
    pub drop_state: bool,
    /// What an earlier run has written where the job is to write is replaced, and what outputs hold
    /// beyond the snapshot that it goes back to.
    pub overwrites: bool,
    /// Windows are closed when the job is stopped, as if its input had ended.
    pub drains: bool,
    /// Whether a run that has failed is followed by another; for [`run_with_restarts`].
    pub restarts: RestartSettings,
}

impl JobOptions {
    /// A job that starts from scratch, with snapshots in this place (a folder, `file:///…`,
    /// `s3://bucket/prefix`) and the defaults of SQL.
    pub fn new(name: &str, location: &str) -> Self {
        JobOptions {
            name: name.to_owned(),
            snapshots: SnapshotSettings::new(location),
            resume: ResumeFrom::Nothing,
            drop_state: false,
            overwrites: false,
            drains: false,
            restarts: RestartSettings::default(),
        }
    }

    fn runs(&self, options: &RunOptions) -> JobRuns {
        let recovery = Recovery {
            resume: self.resume.clone(),
            drop_state: self.drop_state,
            overwrites: self.overwrites,
            interface: Interface::Rust,
            ..Recovery::default()
        };
        JobRuns::new(
            (self.name.clone(), Some(self.snapshots.clone())),
            (recovery, self.restarts),
            self.drains,
            options.clock.clone(),
        )
    }
}

/// Is notified of what becomes of a job that [`run_with_restarts`]. `()` ignores it.
pub trait JobObserver {
    /// A note: where a run resumes, or that it starts from scratch though there are
    /// snapshots.
    fn note(&mut self, note: &Error) {
        let _ = note;
    }
    /// A run has begun. [`JobControl::stop`] ends it with a last snapshot, and no other follows.
    fn started(&mut self, control: &JobControl) {
        let _ = control;
    }
    /// A run has failed, and another follows.
    fn restarting(&mut self, warning: &Error) {
        let _ = warning;
    }
    /// True if no other run is to follow. Asked while one is waited for.
    fn is_stopped(&self) -> bool {
        false
    }
}

impl JobObserver for () {}

/// A pipeline that runs and takes snapshots. It is given up when this is dropped, as if its process
/// had died: no last snapshot is taken.
pub struct PipelineJob {
    looked_after: LookedAfter,
    notes: Vec<Error>,
}

impl PipelineJob {
    /// A handle to watch and stop it. [`JobControl::stop`] ends it with a last snapshot,
    /// [`JobControl::cancel`] without.
    pub fn control(&self) -> JobControl {
        self.looked_after.control()
    }

    /// What is worth telling a user: where it resumes, or that it starts from scratch though there
    /// are snapshots.
    pub fn notes(&self) -> &[Error] {
        &self.notes
    }

    /// Takes a snapshot now, which stays until it is deleted. Returns its number once it is kept
    /// and what it holds of the output is visible.
    ///
    /// # Errors
    /// If it fails (the job continues, as its settings say), or the job ends before.
    pub fn take_snapshot(&self) -> Result<u64> {
        self.looked_after.take_snapshot()
    }

    /// Waits until the job is done, stopped or has failed. A job that is done or was stopped has
    /// kept a last snapshot.
    ///
    /// # Errors
    /// As [`Pipeline::run`], and what keeps snapshots from being taken.
    pub fn wait(self) -> Result<Report> {
        self.looked_after.wait()
    }
}

impl Pipeline {
    /// Runs the pipeline as a job with snapshots, to the end of its inputs or until it is stopped.
    /// It is not started again when it fails: a pipeline is used up by a run. [`run_with_restarts`]
    /// builds it again.
    ///
    /// # Errors
    /// As [`Pipeline::start_job`] and [`PipelineJob::wait`].
    pub fn run_job(self, job: &JobOptions, options: RunOptions) -> Result<Report> {
        self.start_job(job, options)?.wait()
    }

    /// Starts the pipeline as a job with snapshots, and returns while it runs.
    ///
    /// # Errors
    /// If another run has the job, there is no such snapshot or it does not fit the pipeline; if
    /// two stages have one name, or a source reports no positions; what opening a source or a sink
    /// reports.
    pub fn start_job(self, job: &JobOptions, options: RunOptions) -> Result<PipelineJob> {
        start_run(self, &mut job.runs(&options), options)
    }

    /// The graph of a job with snapshots.
    fn job_graph(self) -> Result<Graph> {
        self.check()?;
        {
            let nodes = self.nodes.borrow();
            identity::check_names(&nodes)?;
            nodes.iter().try_for_each(check_snapshots)?;
        }
        Ok(self.graph())
    }
}

/// Refuses what cannot be resumed from a snapshot.
fn check_snapshots(node: &Node) -> Result<()> {
    if let Some(refusal) = &node.refuses_snapshots {
        return Err(refusal.clone());
    }
    match &node.kind {
        NodeKind::Source { source, .. } if source.position().is_none() => {
            let name = &node.name;
            Err(Error::plan(format!(
                "a job with snapshots can't resume from the source '{name}', which reports no positions"
            ))
            .hint("implement `position` and `seek` of the source, or run the pipeline without snapshots"))
        }
        _ => Ok(()),
    }
}

fn start_run(
    pipeline: Pipeline,
    runs: &mut JobRuns,
    mut options: RunOptions,
) -> Result<PipelineJob> {
    let graph = pipeline.job_graph()?;
    let prepared = runs.prepare(&graph, &mut options)?;
    let mut notes = prepared.notes.clone();
    let agreed = runs.agree(prepared, graph, options)?;
    let mut looked_after = runs.begin(agreed)?;
    notes.extend(looked_after.note.take());
    Ok(PipelineJob { looked_after, notes })
}

/// Runs a pipeline as a job with snapshots until it is done or stopped, or has failed for good: a
/// run that fails is followed by another from the newest snapshot, as [`JobOptions::restarts`]
/// says. `build` makes the pipeline for each of them, with sources and sinks of its own.
///
/// ```
/// use thalweg::RunOptions;
/// use thalweg::pipeline::{JobOptions, Pipeline, run_with_restarts};
/// let job = JobOptions::new("numbers", "memory://restarts");
/// let report = run_with_restarts(&job, &RunOptions::default(), &mut (), || {
///     let pipeline = Pipeline::new();
///     let numbers = pipeline.read_rows("numbers", 1..=10_u32);
///     numbers.for_each("print", |number| {
///         println!("{number}");
///         Ok(())
///     });
///     Ok(pipeline)
/// })?;
/// assert_eq!(report.metrics.rows_in(), 10);
/// # Ok::<(), thalweg::Error>(())
/// ```
///
/// # Errors
/// The failure of the last run. A mistake in the pipeline is no reason to try again.
pub fn run_with_restarts(
    job: &JobOptions,
    options: &RunOptions,
    observer: &mut dyn JobObserver,
    mut build: impl FnMut() -> Result<Pipeline>,
) -> Result<Report> {
    let mut runs = job.runs(options);
    loop {
        let mut is_stopped = false;
        let ran = build().and_then(|pipeline| {
            let job = start_run(pipeline, &mut runs, options.clone())?;
            job.notes.iter().for_each(|note| observer.note(note));
            let control = job.control();
            observer.started(&control);
            let result = job.wait();
            is_stopped = control.is_stop_requested();
            result
        });
        let Err(error) = ran else { return ran };
        is_stopped |= observer.is_stopped();
        let Some(restart) = runs.failed(&error, is_stopped) else { return Err(error) };
        observer.restarting(&restart.warning);
        if !runs.pause(&restart, || observer.is_stopped()) {
            return Err(error);
        }
    }
}
