//! Trials: new statements run for a while from a copy of a job's state, next to the job, and
//! nothing of that is seen outside ([`thalweg_library::session::Trial`]). So a person knows what
//! a change does before it is made.
//!
//! Where the sequence of results is decided by the rows alone, the statements that the job has now
//! run next to the new ones, from the same snapshot, and the first rows that differ are shown.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use thalweg_core::connector::Waker;
use thalweg_core::graph::{Graph, StageKind};
use thalweg_core::shim::{Clock, unique_name};
use thalweg_core::{Error, OrderContract, Result, Sink, Watermark, WatermarkBefore};
use thalweg_library::jobs::{ResumeFrom, SnapshotReference};
use thalweg_library::session::{
    JobDescription, Observer, PlannedJob, ResultTable, Session, SessionOptions, Trial, Tz,
};
use thalweg_runtime::metrics::StageRole;
use thalweg_runtime::{JobControl, MetricsSnapshot, Report};
use thalweg_state::SnapshotStore;

use crate::catalogue::{JobRecord, Revision};
use crate::operations::{Operation, OperationKind};
use crate::problem::{Outcome, Problem};
use crate::requests::JobBody;
use crate::run::store_of;
use crate::server::Server;
use crate::trials::{
    TrialBody, TrialDifference, TrialInput, TrialOutcome, TrialRow, TrialTable, TrialView,
};

/// How long a trial lasts unless it says so, and at most, in seconds.
const SECONDS: u64 = 60;
const SECONDS_MAX: u64 = 600;
/// Rows of an output that are compared.
const COMPARED_ROWS: usize = 1_000;
/// Rows of an output that are shown.
const SHOWN_ROWS: usize = 20;
/// How often a trial is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);

impl Server {
    /// New statements run for a while from a copy of a job's state, next to the job.
    ///
    /// # Errors
    /// If they are wrong; if the job has no such snapshot; if too many trials run.
    pub fn try_out(self: &Arc<Self>, name: &str, body: &TrialBody, by: &str) -> Outcome<Operation> {
        self.check_open()?;
        let job = self.job(name)?;
        let record = job.lock().record.clone();
        let (sql, params, settings) =
            (body.sql.clone(), body.params.clone(), body.settings.clone());
        let new = self.new_revision(&JobBody { sql, params, settings, ..JobBody::default() }, by);
        let plan = self.plan(&record, &new)?;
        let now = self.catalogue.revision(name, record.revision)?;
        let now = now.ok_or_else(|| {
            Problem::new(409, "no-snapshots", "the job has no statements, so it has no state")
        })?;
        let (store, snapshot) = self.begin_of(&record, &now, body.snapshot)?;
        let diff = self.diff_with(&store, snapshot, &plan)?;
        let (began_ms, state) = (self.clock.wall_ms(), job.lock().shown);
        let about = (name, record.generation);
        let seconds = body.seconds.unwrap_or(SECONDS).clamp(1, SECONDS_MAX);
        let view = |id: String| TrialView {
            id,
            job: name.to_owned(),
            began_ms,
            seconds,
            snapshot,
            diff: diff.clone(),
            ..TrialView::default()
        };
        let id = unique_name();
        self.trials.begin(view(id.clone()))?;
        let operation =
            self.operations.add_named(id, OperationKind::Trial, about, (state, began_ms));
        self.event(&job, "request", "trial", None, by);
        let compares = is_decided_by_rows(&plan);
        let id = operation.id.clone();
        let order = TrialOrder { id, record, now, new, compares, store, snapshot, seconds };
        let own = Arc::clone(self);
        let run = move || {
            let ended = own.tried(&order);
            own.trials.end(&order.id, &ended);
            own.operations.end(&order.id, ended.map(|_| None), own.clock.wall_ms());
        };
        let thread = std::thread::Builder::new().name("trial".to_owned()).spawn(run);
        if let Err(error) = thread {
            let problem = Problem::new(503, "no-threads", error.to_string());
            self.trials.end(&operation.id, &Err(problem.clone()));
            self.operations.end(&operation.id, Err(problem.clone()), self.clock.wall_ms());
            return Err(problem);
        }
        Ok(operation)
    }

    /// The snapshot that a trial begins from.
    fn begin_of(
        &self,
        record: &JobRecord,
        now: &Revision,
        wanted: Option<u64>,
    ) -> Outcome<(SnapshotStore, u64)> {
        let Some(store) = store_of(&self.plan(record, now)?)? else {
            let detail = "the job takes no snapshots, and a trial begins from one";
            return Err(Problem::new(409, "no-snapshots", detail));
        };
        let newest = store.newest_number_of(store.lineage()?.as_ref())?;
        let Some(number) = wanted.or(newest) else {
            let detail = "the job has kept no snapshot yet, and a trial begins from one";
            return Err(Problem::new(409, "no-snapshots", detail));
        };
        store.describe(number).map_err(|error| {
            Problem::new(404, "no-such-snapshot", format!("snapshot {number}: {error}"))
        })?;
        Ok((store, number))
    }

    /// Runs a trial to its end.
    fn tried(&self, order: &TrialOrder) -> Outcome<TrialOutcome> {
        let folder = self.catalogue.folder(&order.record.name).join("trials").join(&order.id);
        let ran = self.run_both(&folder, order);
        // Nobody needs it; a folder that stays takes room, and no more.
        let _ = std::fs::remove_dir_all(&folder);
        ran
    }

    fn run_both(&self, folder: &std::path::Path, order: &TrialOrder) -> Outcome<TrialOutcome> {
        let (new, now) = std::thread::scope(|scope| {
            let now = order.compares.then(|| {
                scope.spawn(|| self.run_one(&folder.join("now"), order, order.now.clone()))
            });
            let new = self.run_one(&folder.join("new"), order, order.new.clone());
            (new, now.map(std::thread::ScopedJoinHandle::join))
        });
        let new = new?;
        let mut outcome = new.outcome();
        let session = Session::default();
        outcome.outputs = new.tables(&session, SHOWN_ROWS)?;
        // Where the statements of now fail, there is nothing to compare with.
        if let Some(Ok(Ok(now))) = now {
            let (now, new) = (&now, &new);
            let now_rows = now.tables(&session, COMPARED_ROWS)?;
            let new_rows = new.tables(&session, COMPARED_ROWS)?;
            outcome.differences = Some(differences(&now_rows, &new_rows));
        }
        Ok(outcome)
    }

    fn run_one(
        &self,
        folder: &std::path::Path,
        order: &TrialOrder,
        revision: Revision,
    ) -> Outcome<Ran> {
        std::fs::create_dir_all(folder).map_err(Error::from)?;
        let trial = Arc::new(Trial::new(folder.to_owned(), COMPARED_ROWS));
        let snapshot = order.store.snapshot_directory(order.snapshot).ok_or_else(|| {
            Problem::new(
                409,
                "no-snapshots",
                "the snapshots of the job are in no folder of this machine",
            )
        })?;
        let options = SessionOptions {
            trial: Some(Arc::clone(&trial)),
            resume: ResumeFrom::Snapshot(SnapshotReference::Folder(snapshot)),
            drop_state: true,
            // The least share of the workers that a job can have.
            workers: Some(1),
            ..self.session_options(&order.record, &revision)?
        };
        let text = revision.sql.clone();
        let revision = self.with_params(revision)?;
        let watched = Watched::default();
        let until_ns = self.clock.now_ns() + order.seconds * 1_000_000_000;
        let ran = std::thread::scope(|scope| {
            let run = scope.spawn(|| {
                let mut session = Session::new(options)?;
                session.run_script(&revision.sql, &mut TrialObserver(&watched))
            });
            while !run.is_finished() {
                watched.look();
                let is_over = self.clock.now_ns() >= until_ns
                    || self.is_closing()
                    || self.operations.is_cancelled(&order.id);
                if is_over {
                    watched.end();
                }
                std::thread::sleep(LOOK_EVERY);
            }
            run.join()
        });
        let ran = ran.unwrap_or_else(|_| Err(Error::internal("the trial's thread panicked")));
        let (is_over, cause) = {
            let mut seen = watched.seen();
            (seen.is_over, seen.cause.take())
        };
        if let Some(cause) = cause {
            return Err(Problem::of_error(&cause, &text));
        }
        match ran {
            Ok(report) => {
                let report = report.jobs.into_iter().next().map(|job| job.report);
                Ok(Ran { trial, metrics: watched.metrics(), report })
            }
            // It did not come to run in its time.
            Err(_) if is_over => Ok(Ran { trial, metrics: watched.metrics(), report: None }),
            Err(error) => Err(Problem::of_error(&error, &text)),
        }
    }
}

/// What a trial needs to know.
struct TrialOrder {
    /// The name of the operation.
    id: String,
    record: JobRecord,
    /// The statements of now.
    now: Revision,
    new: Revision,
    /// Both are run, and what they write is compared.
    compares: bool,
    store: SnapshotStore,
    snapshot: u64,
    seconds: u64,
}

/// True if the sequence of results depends on the rows alone.
fn is_decided_by_rows(plan: &PlannedJob) -> bool {
    let is_source = |kind: &StageKind| matches!(kind, StageKind::Source { .. });
    let sources = plan.graph.stages.iter().filter(|stage| is_source(&stage.kind)).count();
    match plan.order {
        OrderContract::EventTime => true,
        OrderContract::Arrival => sources == 1,
        _ => false,
    }
}

/// What is seen of a run on trial.
#[derive(Default)]
struct Watched(Mutex<WatchedRun>);

#[derive(Default)]
struct WatchedRun {
    control: Option<JobControl>,
    cancellers: Vec<Waker>,
    metrics: MetricsSnapshot,
    is_over: bool,
    /// Why the job would be started again: a trial that fails has failed.
    cause: Option<Error>,
}

impl Watched {
    fn seen(&self) -> MutexGuard<'_, WatchedRun> {
        self.0.lock().expect("no panic under this lock")
    }

    fn look(&self) {
        let mut seen = self.seen();
        if let Some(metrics) = seen.control.as_ref().map(JobControl::metrics) {
            seen.metrics = metrics;
        }
    }

    /// Its time is over.
    fn end(&self) {
        let mut seen = self.seen();
        seen.is_over = true;
        seen.cancellers.iter().for_each(|cancel| cancel());
        seen.control.iter().for_each(JobControl::cancel);
    }

    fn metrics(&self) -> MetricsSnapshot {
        self.seen().metrics.clone()
    }
}

struct TrialObserver<'a>(&'a Watched);

impl Observer for TrialObserver<'_> {
    fn result(&mut self, _: &ResultTable, _: Tz) -> Result<Box<dyn Sink>> {
        Err(Error::plan("a job of the server has no result to print")
            .hint("write INSERT INTO a table"))
    }
    fn explanation(&mut self, _: &str) -> Result<()> {
        Ok(())
    }
    fn restarting(&mut self, _: &JobDescription, cause: &Error, _: Duration, _: u32) {
        self.0.seen().cause = Some(cause.clone());
    }
    fn starting(&mut self, _: &JobDescription, graph: &mut Graph) {
        self.0.seen().cancellers = graph.cancellers();
    }
    fn started(&mut self, _: &JobDescription, control: &JobControl) {
        let mut seen = self.0.seen();
        seen.cancellers.clear();
        seen.control = Some(control.clone());
        if seen.is_over {
            control.cancel();
        }
    }
    fn ended(&mut self, _: &JobDescription, result: &Result<Report>) {
        let mut seen = self.0.seen();
        if let Ok(report) = result {
            seen.metrics = report.metrics.clone();
        }
        seen.control = None;
    }
    fn is_stopped(&self) -> bool {
        let seen = self.0.seen();
        seen.is_over || seen.cause.is_some()
    }
}

/// A run that was on trial.
struct Ran {
    trial: Arc<Trial>,
    metrics: MetricsSnapshot,
    report: Option<Report>,
}

impl Ran {
    fn outcome(&self) -> TrialOutcome {
        let (metrics, report) = (&self.metrics, self.report.as_ref());
        let total = |of: fn(&thalweg_runtime::StageSnapshot) -> u64| {
            metrics.stages.iter().map(of).sum::<u64>()
        };
        let inputs = metrics.stages.iter().filter(|stage| stage.role == StageRole::Source);
        let inputs = inputs.map(|stage| TrialInput {
            table: stage.name.clone(),
            rows: stage.rows_out,
            bad: stage.bad_rows,
        });
        let latency = report.and_then(|report| report.latency.as_ref());
        let ran_ns = metrics.job.now_ns.saturating_sub(metrics.job.started_ns);
        TrialOutcome {
            has_ended: report.is_some_and(|report| !report.cancelled),
            ran_ms: (ran_ns / 1_000_000) as i64,
            inputs: inputs.collect(),
            outputs: Vec::new(),
            accepted: total(|stage| stage.accepted),
            late: total(|stage| stage.late),
            state_bytes: total(|stage| stage.state_bytes),
            memory_bytes: report.map_or(0, |report| report.peak_bytes as u64),
            latency_us: latency.map(|own| (own.p50_us, own.p99_us, own.max_us)),
            differences: None,
        }
    }

    /// What outputs were given, with their first rows.
    fn tables(&self, session: &Session, rows_max: usize) -> Outcome<Vec<TrialTable>> {
        let mut tables = Vec::new();
        for (table, output) in self.trial.outputs() {
            let mut first = Vec::new();
            for (batch, kinds) in &output.first {
                let shown = session.shown_rows(batch.schema_ref(), None)?;
                let before = WatermarkBefore::All(Watermark::MIN);
                let rows = shown.show(batch, kinds.as_deref(), &before)?;
                first.extend(rows.into_iter().map(|row| TrialRow {
                    kind: row.kind.short().to_owned(),
                    row: serde_json::from_str(&row.json).unwrap_or_default(),
                }));
            }
            first.truncate(rows_max);
            tables.push(TrialTable { table, rows: output.rows, first });
        }
        Ok(tables)
    }
}

/// The first place of each output at which rows differ. Both were cut off somewhere: what only one
/// of them has come to is no difference.
fn differences(now: &[TrialTable], new: &[TrialTable]) -> Vec<TrialDifference> {
    let mut found = Vec::new();
    for own in new {
        let before = now.iter().find(|other| other.table == own.table);
        let before = before.map_or(&[][..], |before| &before.first);
        let place = own.first.iter().zip(before).position(|(new, now)| new != now);
        found.extend(place.map(|place| TrialDifference {
            table: own.table.clone(),
            place: place as u64 + 1,
            now: before.get(place).cloned(),
            new: own.first.get(place).cloned(),
        }));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(name: &str, rows: &[i64]) -> TrialTable {
        let row = |n: &i64| TrialRow { kind: "+I".to_owned(), row: (*n).into() };
        let first = rows.iter().map(row).collect();
        TrialTable { table: name.to_owned(), rows: rows.len() as u64, first }
    }

    #[test]
    fn the_first_row_that_differs_is_found_and_the_end_of_one_is_none() {
        let now = [table("a", &[1, 2, 3]), table("b", &[1])];
        let new = [table("a", &[1, 4, 5]), table("b", &[1, 2]), table("c", &[1])];
        let found = differences(&now, &new);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].table.as_str(), found[0].place), ("a", 2));
        assert_eq!(found[0].new.as_ref().map(|row| row.row.clone()), Some(4.into()));
    }
}
