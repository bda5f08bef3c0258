//! A job of the server: what is wanted, the run that there is, and how both are shown.

use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;

use serde::{Deserialize, Serialize};
use thalweg_core::Result;
use thalweg_core::inlets::RowInlets;
use thalweg_core::live::LiveTables;
use thalweg_monitoring::Watch;
use thalweg_runtime::metrics::StageRole;
use thalweg_runtime::{JobControl, MetricsSnapshot};

use crate::catalogue::{Catalogue, JobRecord, Limits, OutcomeRecord};
use crate::history::Recorder;
use crate::lifecycle::{Desired, EndKind, State};
use crate::logs::Logs;
use crate::now::{ConditionView, JobNow, StageNow};
use crate::run::Run;

/// A job.
pub struct Job {
    /// Its name.
    pub name: String,
    /// What it has said.
    pub logs: Arc<Logs>,
    /// What workers have spent on runs that are over, of all jobs, in nanoseconds.
    pub spent_ns: Arc<AtomicU64>,
    /// How many look at its rows.
    pub taps: AtomicUsize,
    /// Rows that were shown to them.
    pub tap_rows: AtomicU64,
    /// The materialized tables that it keeps current, or has kept while this server runs.
    pub live: Arc<LiveTables>,
    /// Where its sources take rows that clients post.
    pub inlets: RowInlets,
    state: Mutex<JobState>,
}

/// What is known of a job, under its lock.
#[derive(Default)]
pub struct JobState {
    /// What is wanted. Changed by [`JobState::change`] only.
    pub record: JobRecord,
    /// The run that there is.
    pub run: Option<Arc<Run>>,
    /// Its thread.
    pub thread: Option<JoinHandle<()>>,
    /// What the job is called.
    pub shown: State,
    /// Since when, in milliseconds since 1970.
    pub since_ms: i64,
    /// The counters of the last run.
    pub last_metrics: Option<MetricsSnapshot>,
    /// A person has asked for something that the supervisor has not looked at.
    pub is_touched: bool,
    /// A person has asked this server for a start: `--hold` is not about it.
    pub is_asked_here: bool,
    /// Writes down what it is doing.
    pub history: Recorder,
    /// It was deleted.
    pub is_gone: bool,
}

impl Job {
    /// A job as it was read.
    /// `spent_ns` counts what workers have spent on runs that are over, of all jobs.
    pub fn new(record: JobRecord, logs: Logs, spent_ns: Arc<AtomicU64>, now_ms: i64) -> Job {
        let shown = match (&record.outcome, record.desired) {
            (Some(outcome), _) => match outcome.end {
                EndKind::Stopped => State::Stopped,
                EndKind::Finished => State::Finished,
                EndKind::Failed => State::Failed,
                EndKind::Undecided => State::Undecided,
            },
            (None, Desired::Running) => State::Planning,
            (None, Desired::Paused) => State::Paused,
            (None, Desired::Stopped) if record.generation == 0 => State::Draft,
            (None, Desired::Stopped) => State::Stopped,
        };
        let name = record.name.clone();
        let state = JobState { record, shown, since_ms: now_ms, ..JobState::default() };
        let (taps, tap_rows) = (AtomicUsize::new(0), AtomicU64::new(0));
        let (logs, state) = (Arc::new(logs), Mutex::new(state));
        let (live, inlets) = (Arc::default(), RowInlets::default());
        Job { name, logs, spent_ns, taps, tap_rows, live, inlets, state }
    }

    /// Its state. Held for as long as a file is written, and never for longer.
    pub fn lock(&self) -> MutexGuard<'_, JobState> {
        self.state.lock().expect("no panic under this lock")
    }

    /// The run that there is.
    pub fn run(&self) -> Option<Arc<Run>> {
        self.lock().run.clone()
    }

    /// What is made of the readings of its run, once there are any.
    pub fn watched<T>(&self, of: impl FnOnce(&Watch) -> Option<T>) -> Option<T> {
        self.run()?.watched(of).flatten()
    }

    /// Its run, with what steers it while it runs.
    pub fn control(&self) -> Option<(Arc<Run>, JobControl)> {
        let run = self.run()?;
        run.control().map(|control| (run, control))
    }
}

impl JobState {
    /// Changes what is wanted, durably: where that fails nothing has changed.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn change(
        &mut self,
        catalogue: &Catalogue,
        change: impl FnOnce(&mut JobRecord),
    ) -> Result<()> {
        let mut changed = self.record.clone();
        change(&mut changed);
        if changed != self.record {
            catalogue.save(&changed)?;
            self.record = changed;
        }
        Ok(())
    }

    /// The counters of now, or of the last run.
    pub fn metrics(&self) -> Option<MetricsSnapshot> {
        let current = self.run.as_ref().and_then(|run| run.metrics());
        current.or_else(|| self.last_metrics.clone())
    }

    /// The job as clients see it.
    pub fn summary(&self) -> JobSummary {
        let metrics = self.metrics().unwrap_or_default();
        let snapshots = metrics.snapshots.clone().unwrap_or_default();
        let total =
            |of: fn(&thalweg_runtime::StageSnapshot) -> u64| metrics.stages.iter().map(of).sum();
        JobSummary {
            name: self.record.name.clone(),
            state: self.shown,
            since_ms: self.since_ms,
            desired: self.record.desired,
            revision: self.record.revision,
            generation: self.record.generation,
            tags: self.record.tags.clone(),
            limits: self.record.limits.clone(),
            waits_for: self.waits_for(),
            outcome: self.record.outcome.clone(),
            restarts: self.run.as_ref().map_or(0, |run| run.restarts()),
            rows_in: metrics.rows_in(),
            rows_out: metrics.rows_out(),
            late_rows: metrics.late(),
            bad_rows: total(|stage| stage.bad_rows),
            state_bytes: total(|stage| stage.state_bytes),
            watermark_ms: shown_time(metrics.watermark().0),
            snapshot: snapshots.number,
            snapshot_taken_ms: snapshots.taken_at_ms,
            snapshot_problem: snapshots.problem,
            conditions: self.watched(|watch| watch.conditions().iter().map(Into::into).collect()),
            now: self.watched(|watch| watch.newest().map(JobNow::of)),
        }
    }

    /// What is made of the readings of the run that there is.
    fn watched<T: Default>(&self, of: impl FnOnce(&Watch) -> T) -> T {
        self.run.as_ref().and_then(|run| run.watched(of)).unwrap_or_default()
    }

    /// Its stages, with their counters.
    pub fn stages(&self) -> Vec<StageView> {
        let metrics = self.metrics().unwrap_or_default();
        let now: Vec<Option<StageNow>> = self.watched(|watch| {
            let stages = watch.newest().map(|reading| reading.stages.iter().map(StageNow::of));
            stages.into_iter().flatten().collect()
        });
        let mut now = now.into_iter();
        let stage = |stage: thalweg_runtime::StageSnapshot| StageView {
            now: now.next().flatten(),
            watermark_ms: shown_time(stage.watermark.0),
            role: match stage.role {
                StageRole::Source => "source",
                StageRole::Transform => "transform",
                StageRole::Operator => "operator",
                StageRole::Sink => "sink",
            }
            .to_owned(),
            id: stage.id,
            name: stage.name,
            rows_in: stage.rows_in,
            rows_out: stage.rows_out,
            bytes_out: stage.bytes_out,
            busy_ns: stage.busy_ns,
            accepted_rows: stage.accepted,
            late_rows: stage.late,
            bad_rows: stage.bad_rows,
            state_bytes: stage.state_bytes,
            state_keys: stage.state_keys,
            queued_bundles: stage.queued as u64,
            is_idle: stage.idle,
            held_by: stage.held_by,
            problem: stage.problem,
        };
        metrics.stages.into_iter().map(stage).collect()
    }

    /// What a job that is under way waits for.
    fn waits_for(&self) -> Option<String> {
        match self.shown {
            State::Planning if self.run.is_none() => Some(
                "its turn to start: other jobs are starting, or the server was started with --hold"
                    .to_owned(),
            ),
            State::Starting => {
                let trouble = self.run.as_ref().and_then(|run| run.trouble());
                Some(trouble.map_or_else(
                    || "restoring its state, and every input to be asked once".to_owned(),
                    |(output, what)| format!("the output {output}, which tries again: {what}"),
                ))
            }
            State::Stopping => Some("its last snapshot".to_owned()),
            State::Restarting => self.run.as_ref().and_then(|run| run.waiting()).map(|wait| {
                let until = thalweg_core::text::format_timestamp_millis(wait.until_ms, 3);
                format!("try {} at {until} UTC, because: {}", wait.count, wait.cause)
            }),
            State::Undecided => Some("a person to approve that state is dropped".to_owned()),
            State::Paused if self.run.is_none() => {
                Some("a person to resume it; it was paused before the server began".to_owned())
            }
            State::Paused => Some("a person to resume it".to_owned()),
            _ => None,
        }
    }
}

/// A time of rows, unless it is none.
pub(crate) fn shown_time(watermark: i64) -> Option<i64> {
    const FAR: i64 = 253_402_300_800_000;
    (-FAR..FAR).contains(&watermark).then_some(watermark)
}

/// A job in a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct JobSummary {
    /// Its name.
    pub name: String,
    /// What it is called.
    pub state: State,
    /// Since when, in milliseconds since 1970.
    pub since_ms: i64,
    /// What is wanted.
    pub desired: Desired,
    /// The statements that count.
    pub revision: u64,
    /// Raised by each request to start.
    pub generation: u64,
    /// Words of the user.
    pub tags: Vec<String>,
    /// What it may use.
    pub limits: Limits,
    /// What it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
    /// How its last run ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<OutcomeRecord>,
    /// How often this run was started again.
    pub restarts: u32,
    /// Rows that were read.
    pub rows_in: u64,
    /// Rows that were written.
    pub rows_out: u64,
    /// Rows that came too late.
    pub late_rows: u64,
    /// Rows that could not be read.
    pub bad_rows: u64,
    /// Bytes of state.
    pub state_bytes: u64,
    /// The least watermark of its sources, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watermark_ms: Option<i64>,
    /// The number of its newest snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<u64>,
    /// When that was taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_taken_ms: Option<i64>,
    /// Why snapshots fail or come late.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_problem: Option<String>,
    /// What is wrong with it, or will be.
    #[serde(default)]
    pub conditions: Vec<ConditionView>,
    /// What it is doing at the moment, while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now: Option<JobNow>,
}

/// A stage of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct StageView {
    /// Its identifier, which snapshots know it by.
    pub id: String,
    /// What it is called.
    pub name: String,
    /// `source`, `transform`, `operator` or `sink`.
    pub role: String,
    /// Rows taken.
    pub rows_in: u64,
    /// Rows passed on.
    pub rows_out: u64,
    /// Bytes passed on.
    pub bytes_out: u64,
    /// Time that workers have spent.
    pub busy_ns: u64,
    /// Rows taken into state.
    pub accepted_rows: u64,
    /// Rows that came too late.
    pub late_rows: u64,
    /// Rows that could not be read.
    pub bad_rows: u64,
    /// Bytes of state.
    pub state_bytes: u64,
    /// Entries of state, where they are counted: keys, each in each window that is open; rows where
    /// rows are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_keys: Option<u64>,
    /// Bundles that wait.
    pub queued_bundles: u64,
    /// The watermark, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watermark_ms: Option<i64>,
    /// An input without rows at the moment.
    pub is_idle: bool,
    /// The input that it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_by: Option<String>,
    /// What went wrong without stopping the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// What it is doing at the moment, while the job runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now: Option<StageNow>,
}

/// Something that happened to a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct Event {
    /// When, in milliseconds since 1970.
    pub at_ms: i64,
    /// `state`, `request` or `upgrade`.
    pub kind: String,
    /// What.
    pub text: String,
    /// More of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// A stable word for programs, where something went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Who asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// A run that is over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct RunLine {
    /// The generation that it belonged to.
    pub generation: u64,
    /// When it began, in milliseconds since 1970.
    pub begun_ms: i64,
    /// When it ended.
    pub ended_ms: i64,
    /// How it ended.
    pub end: EndKind,
    /// How often it was started again meanwhile.
    pub restarts: u32,
}
