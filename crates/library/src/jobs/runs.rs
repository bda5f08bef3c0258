//! Run after run of a job: each is prepared, started and looked after, and one that fails may be
//! followed by another.
//!
//! SQL and pipelines in Rust share it: they differ in where graphs come from, and in whom they
//! notify what happens.

use std::panic::AssertUnwindSafe;
use std::sync::mpsc::{self, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use thalweg_core::graph::Graph;
use thalweg_core::shim::SharedClock;
use thalweg_core::snapshot::OutputStart;
use thalweg_core::{Error, Result};
use thalweg_plan::catalog::{RestartSettings, SnapshotSettings};
use thalweg_runtime::{
    AgreedJob, Beginning, JobControl, Report, RunOptions, RunningJob, SnapshotMode,
};
use thalweg_state::Lineage;

use super::compatibility::notes_of;
use super::coordinator::{Asked, Coordinator};
use super::recovery::{Choice, Recovery, begin, state_rows};
use super::restarts::Restarts;

/// How often it is looked whether a pause is to end early.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// What the runs of a job have in common.
pub(crate) struct JobRuns {
    /// What it is called among snapshots.
    pub name: String,
    /// `None`: none are taken, and no run follows one that has failed.
    pub snapshots: Option<SnapshotSettings>,
    /// A graceful stop lets windows close first.
    pub drains: bool,
    pub clock: SharedClock,
    /// What the next run is to do about earlier ones.
    pub recovery: Recovery,
    pub restarts: Restarts,
}

/// A run whose directory is ours, before it begins.
pub(crate) struct Prepared {
    choice: Option<Choice>,
    coordinator: Option<Coordinator>,
    ask: Option<Sender<Asked>>,
    begin_ns: u64,
    /// Notes for the user.
    pub notes: Vec<Error>,
}

/// A run whose parts have agreed to start; nothing was changed. It is given up when it is dropped.
pub(crate) struct AgreedRun {
    agreed: AgreedJob,
    coordinator: Option<Coordinator>,
    ask: Option<Sender<Asked>>,
    /// The lineage that the run begins.
    begins: Option<Lineage>,
    state_rows: usize,
    begin_ns: u64,
}

/// A run that follows one that has failed.
pub(crate) struct Restart {
    /// What is reported of it.
    pub warning: Error,
    pub wait: Duration,
    /// How many there were with it.
    pub count: u32,
    /// When that is over.
    pub until_ns: u64,
}

impl JobRuns {
    /// Runs of a job that have not begun.
    pub(crate) fn new(
        (name, snapshots): (String, Option<SnapshotSettings>),
        (recovery, restarts): (Recovery, RestartSettings),
        drains: bool,
        clock: SharedClock,
    ) -> Self {
        let restarts = Restarts::new(restarts);
        JobRuns { name, snapshots, drains, clock, recovery, restarts }
    }

    /// Takes the job's directory and finds out where the next run resumes.
    ///
    /// # Errors
    /// As [`begin`]; if the run is to record or to replay.
    pub(crate) fn prepare(&mut self, graph: &Graph, options: &mut RunOptions) -> Result<Prepared> {
        let begin_ns = self.clock.now_ns();
        let Some(settings) = &self.snapshots else {
            let notes = Vec::new();
            return Ok(Prepared { choice: None, coordinator: None, ask: None, begin_ns, notes });
        };
        if options.record.is_some() || options.replay.is_some() {
            return Err(self.recovery.interface.no_interleaving());
        }
        options.snapshots = Some(match settings.exactly_once {
            true => SnapshotMode::ExactlyOnce,
            false => SnapshotMode::AtLeastOnce,
        });
        let begun = begin(settings, &self.name, options.order, graph, &self.recovery)?;
        let (ask, asked) = mpsc::channel();
        let coordinator = Coordinator {
            store: begun.store,
            settings: settings.clone(),
            order: options.order,
            clock: self.clock.clone(),
            drains: self.drains,
            asked,
            notes: notes_of(graph),
            lineage: begun.choice.lineage.id.clone(),
            parent: begun.choice.parent.or(begun.choice.lineage.origin_here()),
            lock: begun.lock,
        };
        Ok(Prepared {
            choice: Some(begun.choice),
            coordinator: Some(coordinator),
            ask: Some(ask),
            begin_ns,
            notes: begun.notes.into_iter().map(Error::plan).collect(),
        })
    }

    /// Says what [`Self::prepare`] and [`Self::agree`] would refuse.
    ///
    /// # Errors
    /// Theirs; the kind is [`ErrorKind::Resource`](thalweg_core::ErrorKind) where another run holds
    /// the job or one of its outputs.
    pub(crate) fn rehearse(&mut self, graph: Graph, mut options: RunOptions) -> Result<()> {
        // It holds the lock of the job's directory meanwhile.
        let Prepared { choice, coordinator: _lock, .. } = self.prepare(&graph, &mut options)?;
        let (beginning, _) = beginning(choice, self.recovery.overwrites);
        thalweg_runtime::rehearse_start(graph, options, beginning)
    }

    /// The first phase of the start: nothing is changed.
    ///
    /// # Errors
    /// What a source or a sink refuses.
    pub(crate) fn agree(
        &self,
        prepared: Prepared,
        graph: Graph,
        options: RunOptions,
    ) -> Result<AgreedRun> {
        let Prepared { choice, coordinator, ask, begin_ns, .. } = prepared;
        let cut = choice.as_ref().and_then(|choice| choice.cut.as_ref());
        let state_rows = cut.map_or(0, state_rows);
        let (beginning, begins) = beginning(choice, self.recovery.overwrites);
        let agreed = thalweg_runtime::agree_to_start(graph, options, beginning)?;
        Ok(AgreedRun { agreed, coordinator, ask, begins, state_rows, begin_ns })
    }

    /// The second phase: a new lineage becomes durable, what unfinished snapshots left behind is
    /// removed, and the job runs.
    ///
    /// # Errors
    /// What opening a sink reports.
    pub(crate) fn begin(&mut self, run: AgreedRun) -> Result<LookedAfter> {
        let AgreedRun { agreed, mut coordinator, ask, begins, state_rows, begin_ns } = run;
        if let Some(Coordinator { store, .. }) = &mut coordinator {
            begins.map_or(Ok(()), |lineage| store.begin_lineage(&lineage))?;
            store.clean()?;
        }
        let running = agreed.begin();
        // What a sink or a source refuses at the start it refuses again.
        self.recovery.has_started = running.is_ok();
        let mut looked_after = LookedAfter::new(running?, coordinator, ask);
        if state_rows > 0 && !self.recovery.is_restart {
            let took_ms = (self.clock.now_ns() - begin_ns) / 1_000_000;
            let note = format!("{state_rows} rows of state were restored in {took_ms} ms");
            looked_after.note = Some(Error::plan(note));
        }
        Ok(looked_after)
    }

    /// A run has failed. How the next one comes; `None` if there is to be none.
    pub(crate) fn failed(&mut self, error: &Error, is_stopped: bool) -> Option<Restart> {
        if self.snapshots.is_none() || error.is_plan_error() || is_stopped {
            return None;
        }
        let now_ns = self.clock.now_ns();
        let wait = self.restarts.failed(now_ns)?;
        self.recovery = self.recovery.clone().again()?;
        let count = self.restarts.count();
        let message = format!("{error}; started again in {wait:?} (restart {count})");
        let wait_ns = u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX);
        let until_ns = now_ns.saturating_add(wait_ns);
        Some(Restart { warning: Error::user(message), wait, count, until_ns })
    }

    /// Lets the time before a restart pass. False if there is to be none after all.
    pub(crate) fn pause(&self, restart: &Restart, is_stopped: impl Fn() -> bool) -> bool {
        while self.clock.now_ns() < restart.until_ns {
            if is_stopped() {
                return false;
            }
            std::thread::sleep(restart.wait.min(LOOK_AGAIN));
        }
        true
    }
}

/// How the runtime is to start a run, and the lineage that begins with it.
fn beginning(choice: Option<Choice>, overwrites: bool) -> (Beginning, Option<Lineage>) {
    let Some(choice) = choice else {
        let outputs = OutputStart { overwrites, ..OutputStart::default() };
        return (Beginning { outputs, ..Beginning::default() }, None);
    };
    let mark = Some(choice.mark());
    let Choice { cut, lineage, is_new, outputs, .. } = choice;
    (Beginning { cut, outputs, mark }, is_new.then_some(lineage))
}

/// A job that runs, and the thread that takes its snapshots, if it takes any.
///
/// **Invariant:** the job's directory is free only when nothing is written there any more.
pub(crate) struct LookedAfter {
    /// `None` once it was waited for.
    running: Option<RunningJob>,
    coordinator: Option<JoinHandle<Coordinator>>,
    ask: Option<Sender<Asked>>,
    /// Notes for the user.
    pub note: Option<Error>,
}

impl LookedAfter {
    fn new(running: RunningJob, own: Option<Coordinator>, ask: Option<Sender<Asked>>) -> Self {
        let coordinator = own.and_then(|own| look_after(own, &running.control()));
        LookedAfter { running: Some(running), coordinator, ask, note: None }
    }

    /// A handle to watch and stop it.
    pub(crate) fn control(&self) -> JobControl {
        self.running.as_ref().expect("only waiting takes it").control()
    }

    /// Takes a snapshot that stays until it is deleted. Its number.
    ///
    /// # Errors
    /// If it fails, or the job ends before.
    pub(crate) fn take_snapshot(&self) -> Result<u64> {
        let over = || Error::user("the job has ended before a snapshot could be taken");
        let (reply, taken) = mpsc::channel();
        let ask = self.ask.as_ref().ok_or_else(over)?;
        ask.send(reply).map_err(|_| over())?;
        self.control().wake();
        taken.recv().map_err(|_| over())?
    }

    /// Waits until the job is done, stopped or has failed.
    pub(crate) fn wait(mut self) -> Result<Report> {
        self.end().expect("it was not waited for yet")
    }

    fn end(&mut self) -> Option<Result<Report>> {
        let result = self.running.take()?.wait();
        if let Some(coordinator) = self.coordinator.take() {
            // Its panics have failed the job.
            drop(coordinator.join());
        }
        Some(result)
    }
}

/// A job that nobody waits for any more is given up, as if it had failed: no last snapshot is
/// taken.
impl Drop for LookedAfter {
    fn drop(&mut self) {
        if let Some(running) = &self.running {
            running.control().fail(Error::user("the job was given up"));
            let _failure = self.end();
        }
    }
}

/// Starts the thread that takes snapshots. Where that fails the job does.
fn look_after(
    mut coordinator: Coordinator,
    control: &JobControl,
) -> Option<JoinHandle<Coordinator>> {
    let own = control.clone();
    let body = move || {
        let looked = std::panic::catch_unwind(AssertUnwindSafe(|| coordinator.run(&own)));
        if looked.is_err() {
            own.fail(Error::internal("whoever takes snapshots panicked"));
        }
        coordinator
    };
    let thread = std::thread::Builder::new().name("snapshots".to_owned()).spawn(body);
    let failed = |error| {
        control.fail(Error::io(format!("can't start the thread of snapshots: {error}")));
    };
    thread.map_err(failed).ok()
}
