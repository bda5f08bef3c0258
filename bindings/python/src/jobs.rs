//! Jobs in the background: INSERTs that run while Python does something else.
//!
//! The session's thread is the observer's: it notes what happens, and looks at the job once a
//! second, so that `why` knows since when results stand still.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use thalweg::jobs::{ResumeFrom, SnapshotReference};
use thalweg::monitoring::{Watch, why};
use thalweg::session::{JobDescription, Observer, ResultTable, Session, Tz};
use thalweg::{Error, JobControl, Result, Sink};
use thalweg_core::quoting::quoted_text;

use crate::connection::filled;
use crate::errors;
use crate::running::{Known, LOOK_AGAIN};
use crate::taps::JobTap;

/// How often a job is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Notes that are kept.
const NOTES_MAX: usize = 100;

/// A job that was started.
#[pyclass(frozen, module = "thalweg._thalweg")]
pub struct RunningJob {
    shared: Arc<JobShared>,
    #[pyo3(get)]
    name: String,
    sql: String,
    /// Shows rows that pass; it runs nothing.
    session: Mutex<Session>,
}

#[derive(Default)]
struct JobShared {
    now: Mutex<JobNow>,
    changed: Condvar,
    stop: Arc<AtomicBool>,
}

#[derive(Default)]
struct JobNow {
    phase: Phase,
    error: Option<Error>,
    /// The jobs of its statements, by place.
    watched: BTreeMap<usize, (JobControl, Watch)>,
    notes: Vec<String>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Starting,
    Running,
    Restarting,
    Stopped,
    Finished,
    Failed,
}

impl JobShared {
    fn now(&self) -> MutexGuard<'_, JobNow> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, phase: Phase) {
        self.now().phase = phase;
        self.changed.notify_all();
    }

    fn ended(&self, result: Result<bool>) {
        let mut now = self.now();
        now.phase = match result {
            Ok(true) => Phase::Stopped,
            Ok(false) => Phase::Finished,
            Err(error) => {
                now.error = Some(error);
                Phase::Failed
            }
        };
        drop(now);
        self.changed.notify_all();
    }

    /// Waits without the interpreter's lock until it is in one of the phases. False if the time
    /// passes first.
    fn wait(
        &self,
        py: Python<'_>,
        until: Option<Instant>,
        is_there: fn(Phase) -> bool,
    ) -> PyResult<bool> {
        loop {
            let is_there = py.detach(|| {
                let now = self.now();
                if is_there(now.phase) {
                    return true;
                }
                let waited = self
                    .changed
                    .wait_timeout(now, LOOK_AGAIN)
                    .unwrap_or_else(PoisonError::into_inner);
                is_there(waited.0.phase)
            });
            if is_there {
                return Ok(true);
            }
            py.check_signals()?;
            if until.is_some_and(|until| Instant::now() >= until) {
                return Ok(false);
            }
        }
    }
}

impl Phase {
    fn is_over(self) -> bool {
        matches!(self, Phase::Stopped | Phase::Finished | Phase::Failed)
    }
}

/// How a job is started, as the package hands it over.
#[derive(FromPyObject)]
pub struct JobStart {
    name: String,
    sql: String,
    /// What is set for it.
    settings: Vec<(String, String)>,
    /// It resumes from its newest snapshot, or from the one of this number.
    resume: bool,
    number: Option<u64>,
    params: Option<BTreeMap<String, String>>,
    /// State that the statements have no use for goes.
    drop_state: bool,
    /// What an earlier run has written goes.
    overwrite: bool,
}

/// Starts INSERTs as a job in this session, and waits until it runs.
pub fn start(py: Python<'_>, mut session: Session, start: JobStart) -> PyResult<RunningJob> {
    let JobStart { name, sql, settings, resume, number, params, drop_state, overwrite } = start;
    let filled = filled(py, &sql, params.as_ref())?;
    for (key, value) in settings {
        let statement = format!("SET {} = {}", quoted_text(&key), quoted_text(&value));
        session.execute(&statement).map_err(|error| errors::to_python(py, &error, &statement))?;
    }
    let from = match (resume, number) {
        (false, _) => ResumeFrom::Nothing,
        (true, None) => ResumeFrom::Newest,
        (true, Some(number)) => ResumeFrom::Snapshot(SnapshotReference::Number(number)),
    };
    session.set_job(Some(name.clone()), from);
    session.set_replaced(drop_state, overwrite);
    let shared = Arc::new(JobShared::default());
    let shows = Mutex::new(session.fork());
    spawn(session, filled.clone(), Arc::clone(&shared))
        .map_err(|error| errors::to_python(py, &error.into(), &filled))?;
    let job = RunningJob { shared, name, sql: filled, session: shows };
    job.shared.wait(py, None, |phase| phase != Phase::Starting)?;
    let error = job.shared.now().error.clone();
    match error {
        None => Ok(job),
        Some(error) if resume => Err(errors::of_resumed(py, &error, &job.sql)),
        Some(error) => Err(errors::to_python(py, &error, &job.sql)),
    }
}

fn spawn(mut session: Session, sql: String, shared: Arc<JobShared>) -> std::io::Result<()> {
    let known = Known::new(&shared.stop);
    let body = move || {
        let mut observer =
            JobObserver { shared: Arc::clone(&shared), looked_at: Mutex::new(Instant::now()) };
        let result = session.run_script(&sql, &mut observer);
        drop(session);
        let stopped = result.map(|report| report.jobs.iter().any(|job| job.report.cancelled));
        shared.ended(stopped);
        drop(known);
    };
    std::thread::Builder::new().name("job".to_owned()).spawn(body).map(drop)
}

#[pymethods]
impl RunningJob {
    #[getter]
    fn state(&self) -> &'static str {
        let phase = self.shared.now().phase;
        match phase {
            _ if !phase.is_over() && self.shared.stop.load(Ordering::SeqCst) => "stopping",
            Phase::Starting => "starting",
            Phase::Running => "running",
            Phase::Restarting => "restarting",
            Phase::Stopped => "stopped",
            Phase::Finished => "finished",
            Phase::Failed => "failed",
        }
    }
    #[getter]
    fn notes(&self) -> Vec<String> {
        self.shared.now().notes.clone()
    }
    /// For people, and as JSON.
    fn why(&self) -> Option<(String, String)> {
        let now = self.shared.now();
        let (control, watch) = now.watched.values().next()?;
        let found = why(&watch.read(&control.metrics()))?;
        Some((found.text(), serde_json::to_string(&found).ok()?))
    }
    /// As JSON.
    fn metrics(&self) -> Option<String> {
        let now = self.shared.now();
        let (control, watch) = now.watched.values().next()?;
        serde_json::to_string(&watch.read(&control.metrics())).ok()
    }
    /// Rows as they pass from now on: those that `table` gives, or those that the outputs take.
    #[pyo3(signature = (table, condition))]
    fn tap(
        &self,
        py: Python<'_>,
        table: Option<&str>,
        condition: Option<String>,
    ) -> PyResult<JobTap> {
        let controls: Vec<JobControl> =
            self.shared.now().watched.values().map(|(control, _)| control.clone()).collect();
        let session = self.session.lock().unwrap_or_else(PoisonError::into_inner).fork();
        JobTap::begin(session, &controls, table, condition)
            .map_err(|error| errors::to_python(py, &error, ""))
    }
    fn stop(&self) {
        self.shared.stop.store(true, Ordering::SeqCst);
    }
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let until = timeout
            .map(|seconds| Instant::now() + Duration::from_secs_f64(seconds.clamp(0.0, 1e9)));
        if !self.shared.wait(py, until, Phase::is_over)? {
            return Ok(false);
        }
        self.check(py).map(|()| true)
    }
}

impl RunningJob {
    /// Raises what it has failed with.
    fn check(&self, py: Python<'_>) -> PyResult<()> {
        match &self.shared.now().error {
            None => Ok(()),
            Some(error) => Err(errors::to_python(py, error, &self.sql)),
        }
    }
}

struct JobObserver {
    shared: Arc<JobShared>,
    looked_at: Mutex<Instant>,
}

impl JobObserver {
    fn look(&self) {
        let mut looked_at = self.looked_at.lock().unwrap_or_else(PoisonError::into_inner);
        if looked_at.elapsed() < LOOK_EVERY {
            return;
        }
        *looked_at = Instant::now();
        for (control, watch) in self.shared.now().watched.values_mut() {
            if !control.is_over() {
                watch.look(&control.metrics());
            }
        }
    }

    fn keep(&self, note: String) {
        let mut now = self.shared.now();
        if now.notes.len() < NOTES_MAX {
            now.notes.push(note);
        }
    }
}

impl Observer for JobObserver {
    fn result(&mut self, _table: &ResultTable, _zone: Tz) -> Result<Box<dyn Sink>> {
        Err(Error::plan("a job writes into tables; a query has a result")
            .hint("INSERT INTO a table, or use sql() and read the result"))
    }
    fn explanation(&mut self, _text: &str) -> Result<()> {
        Ok(())
    }
    fn note(&mut self, note: &Error) {
        self.keep(note.to_string());
    }
    fn restarting(&mut self, _job: &JobDescription, cause: &Error, wait: Duration, count: u32) {
        self.keep(format!("restart {count} in {wait:?}: {cause}"));
        self.shared.set(Phase::Restarting);
    }
    fn started(&mut self, job: &JobDescription, control: &JobControl) {
        let watch = Watch::new(&*job.name, control);
        self.shared.now().watched.insert(job.place, (control.clone(), watch));
        self.shared.set(Phase::Running);
    }
    fn is_stopped(&self) -> bool {
        self.look();
        self.shared.stop.load(Ordering::SeqCst)
    }
}
