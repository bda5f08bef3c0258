//! The jobs of a script: those that have agreed to start, those that run, and what becomes of the
//! script when one of them ends.
//!
//! # Protocol
//! 1. A job agrees to start where its statement stands: outputs are claimed, and nothing is
//!    changed.
//! 2. Jobs that have agreed begin together, with the next statement that is awaited or at the end
//!    of the script. So where one of them is refused, none has touched what was there.
//! 3. A thread for each job waits for its end and says so. The thread of the session does all the
//!    rest, also what follows a failure: another run, or the end of the others.
//! 4. A job that has failed for good stops the others gracefully, or leaves them alone
//!    (`keep_going`). Then no statement begins that could depend on it.
//!
//! # Invariants
//! - The observer is called by the session's thread only.
//! - When a script returns, none of its jobs runs.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use arrow_array::{ArrayRef, RecordBatch, StringViewArray, TimestampMicrosecondArray};
use thalweg_core::{Column, DataType, Error, Result, Span, TableSchema};
use thalweg_plan::ResultTable;
use thalweg_plan::ast::{JobCommand, Name};
use thalweg_runtime::{AgreedJob, JobControl, MemoryBudget, Pool, Report, RunOptions};

use crate::jobs::{AgreedRun, LookedAfter, newest_number, open_snapshots};

use super::job_names::{no_job, no_snapshots};
use super::rehearsal::{Rehearsal, Sharing};
use super::statement::{InsertJob, text_rows};
use super::{JobDescription, JobReport, Observer, Session, SessionOptions};

/// How often it is looked whether the script is to stop, or a job to start again.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// A job that has agreed to start.
pub(super) struct Agreed {
    pub job: JobDescription,
    /// Its section of the recording.
    pub section: Option<usize>,
    pub start: AgreedStart,
}

/// What begins it.
pub(super) enum AgreedStart {
    /// A query.
    Query(AgreedJob),
    /// A run of INSERTs.
    Inserts(Box<AgreedRun>),
}

struct ScriptJob {
    job: JobDescription,
    span: Span,
    section: Option<usize>,
    /// What makes its next run, if it can have another one.
    maker: Option<InsertJob>,
    state: JobState,
    /// When it has begun, in milliseconds since 1970.
    begun_ms: Option<i64>,
    /// STOP JOB has named it: no run follows this one.
    is_stopped: bool,
}

enum JobState {
    Agreed(AgreedStart),
    Running(JobControl, JoinHandle<()>),
    /// It has failed, and is started again then.
    Pausing {
        until_ns: u64,
        error: Error,
    },
    /// `None`: it has failed, or has never begun.
    Ended(Option<Box<Report>>),
}

/// A job that runs.
struct Begun {
    control: JobControl,
    note: Option<Error>,
    wait: Box<dyn FnOnce() -> Result<Report> + Send>,
}

/// The place of a job that has ended, and how.
type JobEnd = (usize, Result<Report>);

/// The jobs of a script so far, by place.
pub(super) struct ScriptJobs {
    jobs: Vec<ScriptJob>,
    pool: Option<Pool>,
    budget: Option<MemoryBudget>,
    ends: (Sender<JobEnd>, Receiver<JobEnd>),
    /// Errors name the job.
    is_one_of_several: bool,
    keeps_going: bool,
    /// No other statement begins.
    pub is_over: bool,
    is_stopping: bool,
    failures: Vec<Error>,
}

impl ScriptJobs {
    /// # Errors
    /// If the system gives no threads for workers that are shared.
    pub(super) fn new(rehearsal: &Rehearsal, options: &SessionOptions) -> Result<Self> {
        let sharing = rehearsal.sharing.as_ref();
        // Where the caller gave workers, jobs have those in their options.
        let own = sharing.filter(|_| options.pool.is_none());
        let new = |sharing: &Sharing| {
            Pool::new(sharing.workers, RunOptions::default().pin_workers, sharing.spin)
        };
        Ok(ScriptJobs {
            jobs: Vec::new(),
            pool: own.map(new).transpose()?,
            budget: sharing.map(|sharing| MemoryBudget::new(sharing.memory_limit_bytes)),
            ends: mpsc::channel(),
            is_one_of_several: rehearsal.jobs > 1,
            keeps_going: options.keep_going,
            is_over: false,
            is_stopping: false,
            failures: Vec::new(),
        })
    }

    /// The options of a job that may run while others do.
    pub(super) fn shared(&self, options: RunOptions) -> RunOptions {
        let pool = options.pool.or_else(|| self.pool.clone());
        RunOptions { pool, memory_budget: self.budget.clone(), ..options }
    }

    /// Plans something. The observer knows of it while no job runs.
    pub(super) fn planning<T>(
        &self,
        observer: &mut dyn Observer,
        plan: impl FnOnce(&mut dyn Observer) -> Result<T>,
    ) -> Result<T> {
        let is_alone = !self.jobs.iter().any(|job| matches!(job.state, JobState::Running(..)));
        if is_alone {
            observer.planning(true);
        }
        let planned = plan(observer);
        if is_alone {
            observer.planning(false);
        }
        planned
    }

    /// The place of the next job.
    pub(super) fn next_place(&self) -> usize {
        self.jobs.len()
    }

    /// Adds a job that has agreed to start. Its place.
    pub(super) fn add(&mut self, agreed: Agreed, span: Span, maker: Option<InsertJob>) -> usize {
        let Agreed { job, section, start } = agreed;
        let state = JobState::Agreed(start);
        let (begun_ms, is_stopped) = (None, false);
        self.jobs.push(ScriptJob { job, span, section, maker, state, begun_ms, is_stopped });
        self.jobs.len() - 1
    }

    /// A statement could not begin: neither do those that were to begin with it.
    pub(super) fn refuse(&mut self, error: Error, observer: &mut dyn Observer) {
        self.give_up_agreed();
        observer.failed(&error);
        self.failures.push(error);
        self.is_over = true;
        if !self.keeps_going {
            self.stop(observer);
        }
    }

    /// A job has failed for good.
    fn fail(&mut self, place: usize, error: Error, observer: &mut dyn Observer) {
        let error = self.named(place, error);
        self.jobs[place].state = JobState::Ended(None);
        observer.failed(&error);
        self.failures.push(error);
        if !self.keeps_going {
            self.is_over = true;
            self.stop(observer);
        }
    }

    fn named(&self, place: usize, error: Error) -> Error {
        match (self.is_one_of_several, &self.jobs[place]) {
            (true, own) => error.in_job(&own.job.name).at(own.span),
            (false, own) if error.is_plan_error() => error.at(own.span),
            _ => error,
        }
    }

    /// Stops all jobs gracefully. Those that have not begun never do.
    pub(super) fn stop(&mut self, observer: &mut dyn Observer) {
        if std::mem::replace(&mut self.is_stopping, true) {
            return;
        }
        self.give_up_agreed();
        for place in 0..self.jobs.len() {
            match &self.jobs[place].state {
                JobState::Running(control, _) => control.stop(),
                JobState::Pausing { error, .. } => self.fail(place, error.clone(), observer),
                JobState::Agreed(_) | JobState::Ended(_) => {}
            }
        }
    }

    fn give_up_agreed(&mut self) {
        let agreed = self.jobs.iter_mut().filter(|job| matches!(job.state, JobState::Agreed(_)));
        agreed.for_each(|job| job.state = JobState::Ended(None));
    }

    fn has_ended(&self, place: usize) -> bool {
        matches!(self.jobs[place].state, JobState::Ended(_))
    }

    /// What the jobs did that have not failed; else the first failure.
    pub(super) fn reports(mut self) -> Result<Vec<JobReport>> {
        if let Some(error) = self.failures.drain(..).next() {
            return Err(error);
        }
        let report = |own: ScriptJob| match own.state {
            JobState::Ended(Some(report)) => Some(JobReport { job: own.job, report: *report }),
            _ => None,
        };
        Ok(std::mem::take(&mut self.jobs).into_iter().filter_map(report).collect())
    }
}

/// Whoever panics leaves no job behind.
impl Drop for ScriptJobs {
    fn drop(&mut self) {
        for own in self.jobs.drain(..) {
            if let JobState::Running(control, thread) = own.state {
                control.fail(Error::user("the job was given up"));
                // It has nobody to notify.
                drop(thread.join());
            }
        }
    }
}

impl AgreedStart {
    fn begin(self, maker: Option<&mut InsertJob>) -> Result<Begun> {
        match (self, maker) {
            (AgreedStart::Query(agreed), _) => {
                let running = agreed.begin()?;
                let control = running.control();
                Ok(Begun { control, note: None, wait: Box::new(|| running.wait()) })
            }
            (AgreedStart::Inserts(run), Some(maker)) => {
                let mut running: LookedAfter = maker.runs.begin(*run)?;
                let (control, note) = (running.control(), running.note.take());
                Ok(Begun { control, note, wait: Box::new(|| running.wait()) })
            }
            (AgreedStart::Inserts(_), None) => Err(Error::internal("INSERTs have what makes them")),
        }
    }
}

impl Session {
    /// Begins all jobs that have agreed, and waits for this one.
    pub(super) fn run_to_end(
        &mut self,
        place: usize,
        jobs: &mut ScriptJobs,
        observer: &mut dyn Observer,
    ) {
        self.begin_agreed(jobs, observer);
        self.wait_until(jobs, observer, |jobs| jobs.has_ended(place));
        let own = &jobs.jobs[place];
        // What follows an INSERT that was awaited may read what it was to write.
        jobs.is_over |= own.maker.is_some() && matches!(own.state, JobState::Ended(None));
    }

    /// Begins what has agreed, unless the script is over, and waits for the end of all jobs.
    pub(super) fn finish_jobs(&mut self, jobs: &mut ScriptJobs, observer: &mut dyn Observer) {
        if jobs.is_over {
            jobs.give_up_agreed();
        }
        if observer.is_stopped() {
            jobs.stop(observer);
        }
        self.begin_agreed(jobs, observer);
        let all_ended = |jobs: &ScriptJobs| (0..jobs.jobs.len()).all(|place| jobs.has_ended(place));
        self.wait_until(jobs, observer, all_ended);
    }

    fn begin_agreed(&mut self, jobs: &mut ScriptJobs, observer: &mut dyn Observer) {
        for place in 0..jobs.jobs.len() {
            self.begin(place, jobs, observer);
        }
    }

    /// Begins a job if it has agreed to start.
    fn begin(&mut self, place: usize, jobs: &mut ScriptJobs, observer: &mut dyn Observer) {
        let own = &mut jobs.jobs[place];
        if !matches!(own.state, JobState::Agreed(_)) {
            return;
        }
        let state = std::mem::replace(&mut own.state, JobState::Ended(None));
        let JobState::Agreed(start) = state else { return };
        let ends = jobs.ends.0.clone();
        let begun = start.begin(own.maker.as_mut()).and_then(|Begun { control, note, wait }| {
            let thread = await_end(place, wait, ends)?;
            Ok((control, note, thread))
        });
        match begun {
            Ok((control, note, thread)) => {
                note.iter().for_each(|note| observer.note(note));
                own.state = JobState::Running(control.clone(), thread);
                own.begun_ms.get_or_insert(self.clock.wall_ms());
                observer.started(&own.job, &control);
            }
            Err(error) => self.job_ended((place, Err(error)), jobs, observer),
        }
    }

    fn wait_until(
        &mut self,
        jobs: &mut ScriptJobs,
        observer: &mut dyn Observer,
        is_done: impl Fn(&ScriptJobs) -> bool,
    ) {
        while !is_done(jobs) {
            if observer.is_stopped() {
                jobs.stop(observer);
            }
            match jobs.ends.1.recv_timeout(LOOK_AGAIN) {
                Ok(end) => self.job_ended(end, jobs, observer),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
            self.start_again(jobs, observer);
        }
    }

    fn job_ended(
        &mut self,
        (place, result): JobEnd,
        jobs: &mut ScriptJobs,
        observer: &mut dyn Observer,
    ) {
        let own = &mut jobs.jobs[place];
        let result = self.end_recording(own.section, result);
        observer.ended(&own.job, &result);
        match result {
            Ok(report) => own.state = JobState::Ended(Some(Box::new(report))),
            Err(error) => self.job_failed((place, error), jobs, observer),
        }
    }

    fn job_failed(
        &mut self,
        (place, error): (usize, Error),
        jobs: &mut ScriptJobs,
        observer: &mut dyn Observer,
    ) {
        let own = &mut jobs.jobs[place];
        let is_stopped = jobs.is_stopping || own.is_stopped || observer.is_stopped();
        let maker = own.maker.as_mut();
        match maker.and_then(|maker| maker.runs.failed(&error, is_stopped)) {
            Some(restart) => {
                let until_ns = restart.until_ns;
                observer.warning(&jobs.named(place, restart.warning));
                observer.restarting(&jobs.jobs[place].job, &error, restart.wait, restart.count);
                jobs.jobs[place].state = JobState::Pausing { until_ns, error };
            }
            None => jobs.fail(place, error, observer),
        }
    }

    /// Starts jobs again whose time has come.
    fn start_again(&mut self, jobs: &mut ScriptJobs, observer: &mut dyn Observer) {
        for place in 0..jobs.jobs.len() {
            let JobState::Pausing { until_ns, .. } = jobs.jobs[place].state else { continue };
            if self.clock.now_ns() < until_ns {
                continue;
            }
            let Some(mut maker) = jobs.jobs[place].maker.take() else { continue };
            let agreed = self.agree_to_inserts(&mut maker, place, jobs, observer);
            jobs.jobs[place].maker = Some(maker);
            match agreed {
                Ok(Agreed { job, section, start }) => {
                    let own = &mut jobs.jobs[place];
                    (own.job, own.section) = (job, section);
                    own.state = JobState::Agreed(start);
                    self.begin(place, jobs, observer);
                }
                Err(error) => self.job_failed((place, error), jobs, observer),
            }
        }
    }
}

impl Session {
    /// Carries out a statement about the jobs of the script. Those that have agreed to start begin
    /// before it, for it is about what runs.
    ///
    /// # Errors
    /// If there is no such job, or it does not stop as it was asked to.
    pub(super) fn job_command(
        &mut self,
        command: &JobCommand,
        jobs: &mut ScriptJobs,
        observer: &mut dyn Observer,
    ) -> Result<()> {
        self.begin_agreed(jobs, observer);
        while let Ok(end) = jobs.ends.1.try_recv() {
            self.job_ended(end, jobs, observer);
        }
        match command {
            JobCommand::Show => self.show_jobs(&jobs.jobs, observer),
            JobCommand::Describe(id) => {
                let place = jobs.place_of(id)?;
                self.show_jobs(&jobs.jobs[place..=place], observer)
            }
            JobCommand::Stop { id, with_savepoint, with_drain } => {
                let place = jobs.place_of(id)?;
                self.stop_job(place, (*with_savepoint, *with_drain), (jobs, observer))?;
                match with_savepoint {
                    true => self.show_savepoint(id, &jobs.jobs[place], observer),
                    false => Ok(()),
                }
            }
        }
    }

    /// Stops a job, and waits for that.
    fn stop_job(
        &mut self,
        place: usize,
        (with_savepoint, with_drain): (bool, bool),
        (jobs, observer): (&mut ScriptJobs, &mut dyn Observer),
    ) -> Result<()> {
        let own = &mut jobs.jobs[place];
        own.is_stopped = true;
        match &own.state {
            JobState::Running(control, _) => match (with_savepoint, with_drain) {
                (_, true) => control.drain(),
                (true, false) => control.stop(),
                (false, false) => control.cancel(),
            },
            JobState::Pausing { .. } => own.state = JobState::Ended(None),
            JobState::Agreed(_) | JobState::Ended(_) => {}
        }
        self.wait_until(jobs, observer, |jobs| jobs.has_ended(place));
        Ok(())
    }

    fn show_savepoint(
        &self,
        id: &Name,
        own: &ScriptJob,
        observer: &mut dyn Observer,
    ) -> Result<()> {
        let runs = own.maker.as_ref().map(|maker| &maker.runs);
        let Some((name, settings)) =
            runs.and_then(|runs| Some((&runs.name, runs.snapshots.as_ref()?)))
        else {
            return Err(no_snapshots(id));
        };
        let store = open_snapshots(&settings.location, name, &settings.access)?;
        let number = newest_number(&store)?.ok_or_else(|| {
            Error::user(format!("the job '{name}' has ended without a snapshot")).at(id.span)
        })?;
        let place = match store.snapshot_directory(number) {
            Some(folder) => folder.display().to_string(),
            None => format!("{}/{name}/{number}", settings.location.trim_end_matches('/')),
        };
        let (schema, batch) = text_rows(&["savepoint path".to_owned()], &[vec![place]])?;
        observer.rows(&ResultTable { schema, has_updates: false }, self.planner.zone(), &batch)
    }

    fn show_jobs(&self, jobs: &[ScriptJob], observer: &mut dyn Observer) -> Result<()> {
        let text = |name: &str| Column::new(name, DataType::STRING.not_null());
        let schema = TableSchema::new(vec![
            text("job id"),
            text("job name"),
            text("status"),
            Column::new("start time", DataType::TimestampLtz(6).nullable()),
        ]);
        let names: ArrayRef =
            Arc::new(jobs.iter().map(|own| Some(&own.job.name)).collect::<StringViewArray>());
        let status: ArrayRef =
            Arc::new(jobs.iter().map(|own| Some(own.status())).collect::<StringViewArray>());
        let begun = jobs.iter().map(|own| own.begun_ms.map(|ms| ms.saturating_mul(1_000)));
        let begun = begun.collect::<TimestampMicrosecondArray>().with_timezone("UTC");
        let arrays = vec![Arc::clone(&names), names, status, Arc::new(begun)];
        let batch = RecordBatch::try_new(schema.arrow(), arrays)?;
        observer.rows(&ResultTable { schema, has_updates: false }, self.planner.zone(), &batch)
    }
}

impl ScriptJobs {
    fn place_of(&self, id: &Name) -> Result<usize> {
        let found = self.jobs.iter().position(|own| own.job.name == id.text);
        found.ok_or_else(|| no_job(id, self.jobs.iter().map(|own| own.job.name.as_str())))
    }
}

impl ScriptJob {
    /// Flink's word for its state.
    fn status(&self) -> &'static str {
        match &self.state {
            JobState::Agreed(_) => "CREATED",
            JobState::Running(..) => "RUNNING",
            JobState::Pausing { .. } => "RESTARTING",
            JobState::Ended(Some(report)) if report.cancelled => "CANCELED",
            JobState::Ended(Some(_)) => "FINISHED",
            JobState::Ended(None) if self.is_stopped => "CANCELED",
            JobState::Ended(None) => "FAILED",
        }
    }
}

/// A thread that waits for the end of a job.
fn await_end(
    place: usize,
    wait: Box<dyn FnOnce() -> Result<Report> + Send>,
    ends: Sender<JobEnd>,
) -> Result<JoinHandle<()>> {
    let body = move || {
        let panicked = || Error::internal("whoever waits for a job panicked");
        let result = catch_unwind(AssertUnwindSafe(wait)).unwrap_or_else(|_| Err(panicked()));
        // Where nobody listens the session has given the job up.
        drop(ends.send((place, result)));
    };
    let thread = std::thread::Builder::new().name(format!("job-{place}")).spawn(body);
    thread.map_err(|error| Error::io(format!("can't start a thread for a job: {error}")))
}
