//! One run of a job: a session on a thread of its own, and what others see of it.
//!
//! The thread plans the statements, compares them with the snapshot that they are to resume from,
//! runs the job to its end, with restarts in between, and says how it ended. It holds no lock of
//! the server meanwhile. Whoever looks after the job asks through [`Run`]: to stop, to hold its
//! sources, how far it is.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use thalweg_core::connector::{Trouble, Waker};
use thalweg_core::graph::{Graph, Stage, StageKind};
use thalweg_core::{Error, Result, Sink};
use thalweg_library::jobs::compatibility::{Comparison, check_order};
use thalweg_library::jobs::{Interface, ResumeFrom, SnapshotReference};
use thalweg_library::session::{
    JobDescription, Observer, PlannedJob, ResultTable, Session, SessionOptions, Tz,
};
use thalweg_monitoring::{JobReading, Watch};
use thalweg_runtime::metrics::StageRole;
use thalweg_runtime::{JobControl, MetricsSnapshot, Report};
use thalweg_state::SnapshotStore;

use crate::bell::Bell;
use crate::catalogue::{OutcomeRecord, Revision, StageReference, StartFrom};
use crate::job::Job;
use crate::lifecycle::{Asked, EndKind, Phase, RunView, StopHow};
use crate::logs::Logs;
use crate::problem::Problem;

/// What a run needs to know.
pub struct RunOrder {
    /// The generation that it belongs to.
    pub generation: u64,
    /// The statements.
    pub revision: Revision,
    /// What it begins from.
    pub from: StartFrom,
    /// State may be dropped.
    pub drops_state: bool,
    /// Outputs may be replaced.
    pub overwrites: bool,
    /// The lineage before the first run of this generation, once that has begun.
    pub lineage_before: Option<String>,
    /// How its session starts.
    pub options: SessionOptions,
}

/// Readings of a run are made this often.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A run, for its own thread and for whoever looks after it.
pub struct Run {
    /// The job's name.
    job: String,
    /// The generation that it belongs to.
    pub generation: u64,
    /// When it began, in milliseconds since 1970.
    pub begun_ms: i64,
    bell: Bell,
    logs: Arc<Logs>,
    /// What workers have spent on runs that are over.
    spent_ns: Arc<AtomicU64>,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    is_started: bool,
    is_polled: bool,
    is_starting: bool,
    waiting: Option<Waiting>,
    control: Option<JobControl>,
    cancellers: Vec<Waker>,
    /// What outputs say of servers that they wait for, by the output's name.
    troubles: Vec<(String, Trouble)>,
    asked: Option<StopHow>,
    keeps_last_snapshot: bool,
    asked_since_ns: u64,
    is_held: bool,
    outcome: Option<OutcomeRecord>,
    last_metrics: Option<MetricsSnapshot>,
    restarts: u32,
    /// Readings of the job since it was started last, and when the newest was made.
    watch: Option<Watch>,
    looked_ns: u64,
    /// The last reading before that.
    earlier: Option<JobReading>,
}

impl Seen {
    /// True if the job was asked to end in a way for which it need not begin first: one that drains
    /// finishes what it has taken.
    fn need_not_start(&self) -> bool {
        self.asked.is_some_and(|how| how != StopHow::Drain)
    }
}

/// The wait before another try.
#[derive(Clone, Debug)]
pub struct Waiting {
    /// Why.
    pub cause: String,
    /// When the next try is, in milliseconds since 1970.
    pub until_ms: i64,
    /// Which try that is.
    pub count: u32,
}

/// Notes the lineage of snapshots that there was before a run begins another.
pub type NoteLineage<'a> = dyn Fn(&str) -> Result<()> + 'a;

impl Run {
    /// A run that begins. `earlier` is the last reading of the run before.
    pub fn new(
        job: &Job,
        generation: u64,
        begun_ms: i64,
        bell: Bell,
        earlier: Option<JobReading>,
    ) -> Run {
        let (logs, spent_ns) = (Arc::clone(&job.logs), Arc::clone(&job.spent_ns));
        let (job, seen) = (job.name.clone(), Mutex::new(Seen { earlier, ..Seen::default() }));
        Run { job, generation, begun_ms, bell, logs, spent_ns, seen }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().expect("no panic under this lock")
    }

    /// What the supervisor decides by.
    pub fn view(&self, now_ns: u64, stop_timeout: Duration) -> RunView {
        let mut seen = self.seen();
        if let (false, Some(control)) = (seen.is_polled, &seen.control) {
            seen.is_polled = control.are_sources_polled() || control.is_over();
        }
        let phase = match &*seen {
            Seen { outcome: Some(outcome), .. } => Phase::Ended(outcome.end),
            Seen { waiting: Some(_), .. } => Phase::Waiting,
            Seen { is_started: true, is_polled: true, .. } => Phase::Running,
            Seen { is_starting: true, .. } => Phase::Starting,
            _ => Phase::Planning,
        };
        let asked = match seen.asked {
            None => Asked::Nothing,
            Some(StopHow::Cancel) => Asked::Cancel,
            Some(_) => Asked::Stop,
        };
        let passed = Duration::from_nanos(now_ns.saturating_sub(seen.asked_since_ns));
        let is_overdue = asked == Asked::Stop && passed >= stop_timeout;
        RunView { generation: self.generation, phase, asked, is_held: seen.is_held, is_overdue }
    }

    /// Asks the job to end. The first wish for a way counts, until it is to be cut off.
    pub fn stop(&self, how: StopHow, now_ns: u64) {
        let mut seen = self.seen();
        seen.asked = Some(how);
        seen.asked_since_ns = now_ns;
        if seen.need_not_start() {
            seen.cancellers.iter().for_each(|cancel| cancel());
        }
        // Sources that are not asked would never hear that they are to end.
        let was_held = how == StopHow::Drain && std::mem::take(&mut seen.is_held);
        if let Some(control) = &seen.control {
            if was_held {
                control.release();
            }
            ask_to_end(control, how);
        }
    }

    /// The snapshot that the job ends with stays until a user deletes it. To be called before
    /// [`Run::stop`].
    pub fn keep_last_snapshot(&self) {
        let mut seen = self.seen();
        seen.keeps_last_snapshot = true;
        if let Some(control) = &seen.control {
            control.keep_last_snapshot();
        }
    }

    /// Whether sources are asked.
    pub fn hold(&self, is_held: bool) {
        let mut seen = self.seen();
        seen.is_held = is_held;
        match &seen.control {
            Some(control) if is_held => control.hold(),
            Some(control) => control.release(),
            None => {}
        }
    }

    /// What pauses a job has to be said again: whoever takes snapshots may have released its
    /// sources.
    pub fn keep_held(&self) {
        let seen = self.seen();
        if let (true, Some(control)) = (seen.is_held, &seen.control) {
            control.hold();
        }
    }

    /// How it ended, once it has.
    pub fn outcome(&self) -> Option<OutcomeRecord> {
        self.seen().outcome.clone()
    }

    /// The counters, of now or of the end.
    pub fn metrics(&self) -> Option<MetricsSnapshot> {
        let seen = self.seen();
        seen.last_metrics.clone().or_else(|| seen.control.as_ref().map(JobControl::metrics))
    }

    /// Makes a reading of what the job is doing, if the last one is old enough.
    pub fn look(&self, now_ns: u64, revision: u64) {
        let mut seen = self.seen();
        let Seen { control: Some(control), watch: Some(watch), looked_ns, .. } = &mut *seen else {
            return;
        };
        let passed = Duration::from_nanos(now_ns.saturating_sub(*looked_ns));
        if passed < LOOK_EVERY || control.is_stop_requested() || control.is_over() {
            return;
        }
        *looked_ns = now_ns;
        let mut reading = watch.read(&control.metrics());
        reading.revision = Some(revision);
        watch.take(reading);
    }

    /// What is made of the readings of the job, once there are any.
    pub fn watched<T>(&self, of: impl FnOnce(&Watch) -> T) -> Option<T> {
        self.seen().watch.as_ref().filter(|watch| watch.newest().is_some()).map(of)
    }

    /// What workers have spent on it since it was started last, as of the newest reading; what they
    /// had spent before is counted elsewhere.
    pub fn busy_ns(&self) -> u64 {
        let seen = self.seen();
        let reading = seen.watch.as_ref().and_then(Watch::newest);
        let reading = reading.filter(|_| seen.control.is_some());
        let stages = reading.into_iter().flat_map(|reading| &reading.stages);
        let of_workers =
            stages.filter(|of| of.kind != thalweg_monitoring::reading::StageKind::Sink);
        of_workers.map(|stage| stage.counters.busy_ns).sum()
    }

    /// Steers it while it runs.
    pub fn control(&self) -> Option<JobControl> {
        self.seen().control.clone()
    }

    /// The wait for another try.
    pub fn waiting(&self) -> Option<Waiting> {
        self.seen().waiting.clone()
    }

    /// An output that tries again, by its name, and why.
    pub fn trouble(&self) -> Option<(String, String)> {
        let seen = self.seen();
        seen.troubles.iter().find_map(|(name, trouble)| Some((name.clone(), trouble.get()?)))
    }

    /// How often it was started again.
    pub fn restarts(&self) -> u32 {
        self.seen().restarts
    }

    /// True once a snapshot was kept in this run.
    pub fn has_snapshot(&self) -> bool {
        let metrics = self.metrics();
        metrics.and_then(|all| all.snapshots).is_some_and(|snapshots| snapshots.taken > 0)
    }

    /// Runs the job to its end, on the thread that calls.
    pub fn carry_out(
        &self,
        order: RunOrder,
        note_lineage: &NoteLineage<'_>,
        wall_ms: impl Fn() -> i64,
    ) {
        let text = order.revision.sql.clone();
        let ran = catch_unwind(AssertUnwindSafe(|| self.try_run(order, note_lineage)));
        let ended = ran.unwrap_or_else(|_| Err(Error::internal("the job's own thread panicked")));
        let (end, problem, at_stake) = match ended {
            Ok(Ended { end, problem, at_stake }) => (end, problem, at_stake),
            Err(error) => {
                let is_stopped = self.seen().asked.is_some() && self.is_harmless(&error);
                let end = if is_stopped { EndKind::Stopped } else { EndKind::Failed };
                if end == EndKind::Failed {
                    self.logs.add("error", &error.to_string());
                }
                let problem = (!is_stopped).then(|| Problem::of_error(&error, &text));
                (end, problem, Vec::new())
            }
        };
        let mut seen = self.seen();
        seen.outcome = Some(OutcomeRecord { end, at_ms: wall_ms(), problem, at_stake });
        seen.control = None;
        seen.waiting = None;
        drop(seen);
        self.bell.ring();
    }

    /// An error of a job that was asked to end before it ran, or while it waited for another try.
    fn is_harmless(&self, error: &Error) -> bool {
        let seen = self.seen();
        let is_cut = seen.asked == Some(StopHow::Cancel);
        error.kind() == thalweg_core::ErrorKind::Cancelled
            || seen.waiting.is_some()
            || !seen.is_started
            || is_cut
    }

    fn try_run(&self, order: RunOrder, note_lineage: &NoteLineage<'_>) -> Result<Ended> {
        let mut options = order.options.clone();
        let job = planned(&options, &order.revision.sql)?;
        let store = store_of(&job)?;
        options.resume = match &store {
            Some(store) => resume_from(store, &order, note_lineage)?,
            None => ResumeFrom::Nothing,
        };
        options.overwrite = order.overwrites;
        options.drop_state = order.drops_state;
        if let (Some(store), false) = (&store, order.drops_state)
            && let Some(comparison) = compared(store, &options.resume, &job)?
            && !comparison.removed.is_empty()
        {
            return Ok(undecided(&comparison));
        }
        if self.seen().need_not_start() {
            return Ok(Ended { end: EndKind::Stopped, problem: None, at_stake: Vec::new() });
        }
        let mut session = Session::new(options)?;
        let report = session.run_script(&order.revision.sql, &mut RunObserver { run: self })?;
        let is_stopped =
            report.jobs.iter().any(|job| job.report.cancelled) || report.jobs.is_empty();
        let end = if is_stopped { EndKind::Stopped } else { EndKind::Finished };
        Ok(Ended { end, problem: None, at_stake: Vec::new() })
    }
}

/// How a run has ended without an error.
struct Ended {
    end: EndKind,
    problem: Option<Problem>,
    at_stake: Vec<StageReference>,
}

fn ask_to_end(control: &JobControl, how: StopHow) {
    match how {
        StopHow::Cancel => control.cancel(),
        StopHow::Snapshot => control.stop(),
        StopHow::Drain => control.drain(),
    }
}

/// The one job that these statements are.
///
/// # Errors
/// If they are wrong, or are no job, or several.
pub fn planned(options: &SessionOptions, sql: &str) -> Result<PlannedJob> {
    let mut jobs = Session::new(options.clone())?.planned_jobs(sql)?;
    match (jobs.len(), jobs.pop()) {
        (1, Some(job)) => Ok(job),
        (0, _) => Err(Error::plan("the statements have no INSERT, so there is nothing to run")
            .hint(
                "a job of the server is one INSERT or one statement set, behind its declarations",
            )),
        (count, _) => {
            Err(Error::plan(format!("the statements have {count} INSERTs, and a job is one"))
                .hint("put them into one statement set: EXECUTE STATEMENT SET BEGIN …; …; END"))
        }
    }
}

/// Where the snapshots of a job are, if it takes any.
///
/// # Errors
/// If the place cannot be opened.
pub fn store_of(job: &PlannedJob) -> Result<Option<SnapshotStore>> {
    let location = job.snapshot_location.as_deref();
    location.map(|location| SnapshotStore::open(location, &job.name)).transpose()
}

/// What a run resumes from. A start from scratch, or from a snapshot of choice, happens once: when
/// a lineage has begun since it was asked for, the run continues with that.
fn resume_from(
    store: &SnapshotStore,
    order: &RunOrder,
    note_lineage: &NoteLineage<'_>,
) -> Result<ResumeFrom> {
    let current = store.lineage()?.map(|lineage| lineage.id).unwrap_or_default();
    match &order.lineage_before {
        None => note_lineage(&current)?,
        Some(before) if *before != current => return Ok(ResumeFrom::Newest),
        Some(_) => {}
    }
    Ok(match order.from {
        StartFrom::Newest => ResumeFrom::Newest,
        StartFrom::Nothing => ResumeFrom::Nothing,
        StartFrom::Snapshot(number) => ResumeFrom::Snapshot(SnapshotReference::Number(number)),
    })
}

/// What becomes of the state of a snapshot under a job's statements; `None` where there is none.
///
/// # Errors
/// If the snapshot cannot be read.
pub fn compared(
    store: &SnapshotStore,
    resume: &ResumeFrom,
    job: &PlannedJob,
) -> Result<Option<Comparison>> {
    let number = match resume {
        ResumeFrom::Nothing => None,
        ResumeFrom::Newest => store.newest_number_of(store.lineage()?.as_ref())?,
        ResumeFrom::Snapshot(SnapshotReference::Number(number)) => Some(*number),
        ResumeFrom::Snapshot(SnapshotReference::Folder(_)) => None,
    };
    let Some(number) = number else { return Ok(None) };
    let details = store.describe(number)?;
    check_order(details.header.order, job.order, Interface::Server)?;
    Ok(Some(Comparison::of_details(&details, &job.graph)))
}

fn undecided(comparison: &Comparison) -> Ended {
    let at_stake: Vec<StageReference> = comparison
        .removed
        .iter()
        .map(|stage| StageReference { id: stage.id.clone(), name: stage.name.clone() })
        .collect();
    let names: Vec<&str> = at_stake.iter().map(|stage| stage.name.as_str()).collect();
    let detail = format!("these statements have no use for the state of {}", names.join(", "));
    let problem = Some(Problem::new(409, "undecided", detail));
    Ended { end: EndKind::Undecided, problem, at_stake }
}

/// Takes what a session reports.
struct RunObserver<'a> {
    run: &'a Run,
}

impl Observer for RunObserver<'_> {
    fn result(&mut self, _: &ResultTable, _: Tz) -> Result<Box<dyn Sink>> {
        Err(Error::plan("a job of the server has no result to print")
            .hint("write INSERT INTO a table; `thalweg query` answers a SELECT"))
    }

    fn explanation(&mut self, text: &str) -> Result<()> {
        self.run.logs.add("info", text);
        Ok(())
    }

    fn note(&mut self, note: &Error) {
        self.run.logs.add("info", &note.to_string());
    }

    fn warning(&mut self, warning: &Error) {
        self.run.logs.add("warning", &warning.to_string());
    }

    fn starting(&mut self, _: &JobDescription, graph: &mut Graph) {
        let mut seen = self.run.seen();
        seen.is_starting = true;
        (seen.is_started, seen.is_polled, seen.waiting) = (false, false, None);
        seen.cancellers = graph.cancellers();
        seen.troubles = troubles(graph);
        if seen.need_not_start() {
            seen.cancellers.iter().for_each(|cancel| cancel());
        }
        drop(seen);
        self.run.bell.ring();
    }

    fn started(&mut self, _: &JobDescription, control: &JobControl) {
        let mut seen = self.run.seen();
        seen.is_started = true;
        seen.cancellers.clear();
        seen.control = Some(control.clone());
        let before = seen.watch.take().and_then(|watch| watch.newest().cloned());
        let earlier = before.or_else(|| seen.earlier.take());
        seen.watch = Some(Watch::new(&self.run.job, control).with_earlier(earlier));
        seen.last_metrics = None;
        if seen.is_held {
            control.hold();
        }
        if seen.keeps_last_snapshot {
            control.keep_last_snapshot();
        }
        if let Some(how) = seen.asked {
            ask_to_end(control, how);
        }
        drop(seen);
        self.run.bell.ring();
    }

    fn ended(&mut self, _: &JobDescription, result: &Result<Report>) {
        let mut seen = self.run.seen();
        let counters = match result {
            Ok(report) => Some(report.metrics.clone()),
            Err(_) => seen.control.as_ref().map(JobControl::metrics),
        };
        if seen.control.take().is_some() {
            let spent_ns = counters.as_ref().map_or(0, |metrics| {
                let of_workers = metrics.stages.iter().filter(|of| of.role != StageRole::Sink);
                of_workers.map(|stage| stage.busy_ns).sum()
            });
            self.run.spent_ns.fetch_add(spent_ns, Ordering::Relaxed);
        }
        seen.last_metrics = counters;
    }

    fn restarting(&mut self, _: &JobDescription, cause: &Error, wait: Duration, count: u32) {
        let wait_ms = i64::try_from(wait.as_millis()).unwrap_or(i64::MAX);
        let until_ms = self.run.bell.wall_ms().saturating_add(wait_ms);
        let mut seen = self.run.seen();
        seen.waiting = Some(Waiting { cause: cause.to_string(), until_ms, count });
        seen.restarts += 1;
        drop(seen);
        self.run.bell.ring();
    }

    fn is_stopped(&self) -> bool {
        self.run.seen().need_not_start()
    }
}

/// Where outputs say what goes wrong while they try again.
fn troubles(graph: &Graph) -> Vec<(String, Trouble)> {
    let of_stage = |stage: &Stage| match &stage.kind {
        StageKind::Sink(sink) => Some((stage.name.clone(), sink.trouble()?)),
        _ => None,
    };
    graph.stages.iter().filter_map(of_stage).collect()
}
