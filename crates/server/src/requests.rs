//! What clients ask of jobs. Each request is durable before it is answered, and asking twice comes
//! to the same as asking once.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thalweg_core::Error;
use thalweg_core::shim::Clock;
use thalweg_library::jobs::compatibility::{Comparison, StageName};
use thalweg_library::jobs::{ResumeFrom, SnapshotReference};
use thalweg_library::session::{PlannedJob, Session};
use thalweg_state::SnapshotStore;

use crate::catalogue::{
    EVENTS, JobRecord, Limits, Revision, StageReference, StartFrom, StateDiff, UpgradeRecord,
    check_name,
};
use crate::job::{Event, Job, JobState};
use crate::jobs_dir;
use crate::lifecycle::{Desired, EndKind, State, StopHow};
use crate::operations::{Operation, OperationKind};
use crate::problem::{Outcome, Problem};
use crate::run::{compared, planned, store_of};
use crate::server::Server;
use crate::tokens::digest;

/// The longest text of statements, in bytes.
pub const SQL_BYTES_MAX: usize = 1 << 20;

/// What a job is to be.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct JobBody {
    /// The statements: one INSERT or statement set, behind its declarations.
    pub sql: String,
    /// What `${NAME}` stands for.
    #[serde(default)]
    pub params: BTreeMap<String, String>,
    /// Options that are set before the first statement.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
    /// What it may use.
    #[serde(default)]
    pub limits: Limits,
    /// Words to find it by.
    #[serde(default)]
    pub tags: Vec<String>,
    /// What is wanted. Default: as it was; `stopped` for a new job.
    pub desired: Option<Desired>,
}

/// How a job is changed.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PutQuery {
    /// Only says what would happen.
    pub dry_run: bool,
    /// What may be lost: `drop-state`.
    pub approve: Option<String>,
    /// The revision that is to be replaced, as its ETag names it.
    #[serde(skip)]
    pub if_match: Option<String>,
}

/// What came of changing a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct PutAnswer {
    /// The job.
    pub name: String,
    /// It was made.
    pub is_new: bool,
    /// The statements that count now, or would.
    pub revision: u64,
    /// What becomes of its state.
    pub diff: StateDiff,
    /// The upgrade of a job that runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<Operation>,
}

/// How a job is to start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct StartBody {
    /// What it begins from.
    #[serde(default)]
    pub from: StartFrom,
    /// State that the statements have no use for may be dropped.
    #[serde(default)]
    pub drop_state: bool,
    /// What its outputs hold of earlier runs may be replaced.
    #[serde(default)]
    pub overwrite: bool,
}

/// How a job is to end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct StopBody {
    /// In which way.
    #[serde(default)]
    pub how: StopHow,
}

/// What is approved of a job that is undecided.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ApproveBody {
    /// The identifiers of the stages whose state may be dropped: all that are at stake.
    pub what: Vec<String>,
}

impl Server {
    /// Makes a job, or changes it: new statements of a job that runs take their place with its
    /// state.
    ///
    /// # Errors
    /// If the statements are wrong; if state would be dropped and nobody has approved that.
    pub fn put_job(
        &self,
        name: &str,
        body: JobBody,
        query: &PutQuery,
        by: &str,
    ) -> Outcome<PutAnswer> {
        self.check_open()?;
        check_name(name)?;
        check_body(&body)?;
        let put = self.plan_and_put(name, body, query, by);
        if self.job(name).is_err() {
            self.catalogue.remove_empty(name);
        }
        put
    }

    fn plan_and_put(
        &self,
        name: &str,
        body: JobBody,
        query: &PutQuery,
        by: &str,
    ) -> Outcome<PutAnswer> {
        let revision = self.new_revision(&body, by);
        let record = JobRecord { limits: body.limits.clone(), ..JobRecord::new(name, 0) };
        let plan = self.plan(&record, &revision)?;
        if query.dry_run {
            let known = self.job(name).ok();
            let number = known.as_ref().map_or(0, |job| job.lock().record.revision);
            let diff = self.diff(&plan)?;
            return Ok(PutAnswer {
                name: name.to_owned(),
                is_new: known.is_none(),
                revision: number + 1,
                diff,
                operation: None,
            });
        }
        let (job, is_new) = self.job_or_new(name);
        let mut state = job.lock();
        if state.is_gone {
            return Err(Problem::new(409, "being-deleted", "the job is being deleted"));
        }
        let put = self.put_locked(&job, &mut state, (body, revision, &plan), query);
        if put.is_err() && state.record.revision == 0 {
            state.is_gone = true;
            self.forget(name);
        }
        self.touched(&mut state);
        put.map(|answer| PutAnswer { is_new, ..answer })
    }

    fn put_locked(
        &self,
        job: &Job,
        state: &mut JobState,
        (body, mut revision, plan): (JobBody, Revision, &PlannedJob),
        query: &PutQuery,
    ) -> Outcome<PutAnswer> {
        let record = &state.record;
        let is_file = revision.by == jobs_dir::BY;
        if record.is_file && !is_file {
            return Err(is_a_file());
        }
        let etag = format!("\"r{}\"", record.revision);
        if query.if_match.as_ref().is_some_and(|wanted| *wanted != etag) {
            let detail = format!("the job has revision {etag} by now");
            return Err(Problem::new(412, "changed-meanwhile", detail));
        }
        let before = match record.revision {
            0 => None,
            number => self.catalogue.revision(&job.name, number)?,
        };
        let is_same = before.as_ref().is_some_and(|before| {
            (&before.digest, &before.params, &before.settings)
                == (&revision.digest, &revision.params, &revision.settings)
        });
        let runs = state.run.is_some() && record.desired != Desired::Stopped;
        let diff = if is_same { StateDiff::default() } else { self.diff(plan)? };
        let approves = query.approve.as_deref().is_some_and(|what| what.contains("drop-state"));
        let will_run = body.desired.unwrap_or(record.desired) != Desired::Stopped;
        if will_run && !diff.dropped.is_empty() && !approves {
            return Err(undecided(&diff));
        }
        let is_upgrade = runs && !is_same && will_run;
        if is_upgrade && plan.snapshot_location.is_none() {
            return Err(Problem::new(
                409,
                "no-snapshots",
                "the job takes no snapshots, so new statements cannot continue where it stands: stop it first",
            ));
        }
        if !is_same {
            revision.number = record.revision + 1;
            self.catalogue.add_revision(&job.name, &revision)?;
        }
        let old = record.revision;
        let number = if is_same { old } else { revision.number };
        let desired = body.desired;
        state.change(&self.catalogue, |record| {
            (record.revision, record.is_file) = (number, is_file);
            (record.tags, record.limits) = (body.tags, body.limits);
            if is_upgrade {
                record.ask_to_run(StartFrom::Newest, approves, false);
                record.upgrade = Some(UpgradeRecord { revision: old, ..UpgradeRecord::default() });
            } else {
                wish(record, desired, approves);
            }
        })?;
        state.is_asked_here |= will_run;
        let operation = is_upgrade.then(|| {
            self.event(job, "upgrade", &format!("revision {old} → {number}"), None, &revision.by);
            self.begin(OperationKind::Upgrade, state)
        });
        let name = job.name.clone();
        Ok(PutAnswer { name, is_new: false, revision: number, diff, operation })
    }

    pub(crate) fn new_revision(&self, body: &JobBody, by: &str) -> Revision {
        Revision {
            number: 1,
            at_ms: self.clock.wall_ms(),
            by: by.to_owned(),
            digest: digest(&body.sql),
            params: body.params.clone(),
            settings: body.settings.clone(),
            sql: body.sql.clone(),
        }
    }

    /// Plans a job; nothing is opened.
    ///
    /// # Errors
    /// If the statements are wrong.
    pub fn plan(&self, record: &JobRecord, revision: &Revision) -> Outcome<PlannedJob> {
        let with_params = self.with_params(revision.clone());
        let revision = with_params.map_err(|error| Problem::of_error(&error, &revision.sql))?;
        let of_text = |error: Error| Problem::of_error(&error, &revision.sql);
        let options = self.session_options(record, &revision).map_err(of_text)?;
        Session::new(options.clone())
            .and_then(|mut session| session.validate(&revision.sql))
            .map_err(of_text)?;
        planned(&options, &revision.sql).map_err(of_text)
    }

    /// What becomes of the state in the newest snapshot.
    fn diff(&self, plan: &PlannedJob) -> Outcome<StateDiff> {
        let Some(store) = store_of(plan)? else { return Ok(StateDiff::default()) };
        match store.newest_number_of(store.lineage()?.as_ref())? {
            Some(number) => self.diff_with(&store, number, plan),
            None => Ok(StateDiff::default()),
        }
    }

    /// What becomes of the state in a snapshot.
    pub(crate) fn diff_with(
        &self,
        store: &SnapshotStore,
        number: u64,
        plan: &PlannedJob,
    ) -> Outcome<StateDiff> {
        let resume = ResumeFrom::Snapshot(SnapshotReference::Number(number));
        let compared = compared(store, &resume, plan)?;
        let Some(Comparison { kept, added, removed, changed_stages, .. }) = compared else {
            return Ok(StateDiff::default());
        };
        let names = |stages: Vec<StageName>| -> Vec<StageReference> {
            stages.into_iter().map(|own| StageReference { id: own.id, name: own.name }).collect()
        };
        let mut dropped = names(removed);
        dropped.extend(names(changed_stages));
        let snapshot = Some(number);
        Ok(StateDiff { snapshot, kept: names(kept), empty: names(added), dropped })
    }

    /// A job is to run.
    ///
    /// # Errors
    /// If there is no room for it.
    pub fn start(&self, name: &str, body: &StartBody, by: &str) -> Outcome<Operation> {
        self.check_open()?;
        let job = self.job(name)?;
        self.check_room(&job)?;
        let mut state = job.lock();
        let is_under_way =
            state.record.desired != Desired::Stopped && state.record.outcome.is_none();
        if !is_under_way || *body != StartBody::default() {
            if is_under_way && body.from != StartFrom::Newest {
                return Err(Problem::new(
                    409,
                    "runs",
                    "the job runs: stop it before it starts elsewhere",
                ));
            }
            state.change(&self.catalogue, |record| {
                record.ask_to_run(body.from, body.drop_state, body.overwrite);
            })?;
            self.event(&job, "request", "start", None, by);
        }
        self.answer(OperationKind::Start, &mut state)
    }

    /// A job is to end.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn stop(&self, name: &str, body: &StopBody, by: &str) -> Outcome<Operation> {
        self.check_open()?;
        let job = self.job(name)?;
        let mut state = job.lock();
        if state.record.desired != Desired::Stopped || body.how > state.record.how {
            state.change(&self.catalogue, |record| {
                (record.desired, record.how) = (Desired::Stopped, body.how);
                record.upgrade = None;
            })?;
            self.event(&job, "request", "stop", Some(format!("{:?}", body.how)), by);
            self.operations.end_upgrade(
                name,
                Err(Problem::new(409, "replaced", "the job was stopped")),
                self.clock.wall_ms(),
            );
        }
        self.answer(OperationKind::Stop, &mut state)
    }

    /// The sources of a job are not to be asked, or to be asked again.
    ///
    /// # Errors
    /// If the job is at rest.
    pub fn pause(&self, name: &str, is_paused: bool, by: &str) -> Outcome<Operation> {
        self.check_open()?;
        let job = self.job(name)?;
        let mut state = job.lock();
        if state.record.desired == Desired::Stopped || state.record.outcome.is_some() {
            let detail = format!("the job is {}: it can be started", state.shown.word());
            return Err(Problem::new(409, "at-rest", detail));
        }
        let (desired, kind, what) = match is_paused {
            true => (Desired::Paused, OperationKind::Pause, "pause"),
            false => (Desired::Running, OperationKind::Resume, "resume"),
        };
        if state.record.desired != desired {
            state.change(&self.catalogue, |record| record.desired = desired)?;
            self.event(&job, "request", what, None, by);
        }
        self.answer(kind, &mut state)
    }

    /// A job is to end, with a snapshot, and to run again from that.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn restart(&self, name: &str, by: &str) -> Outcome<Operation> {
        self.check_open()?;
        let job = self.job(name)?;
        let mut state = job.lock();
        // One that is under way already is the same.
        let is_under_way =
            state.run.as_ref().is_some_and(|run| run.generation < state.record.generation);
        if !is_under_way {
            state.change(&self.catalogue, |record| {
                record.ask_to_run(StartFrom::Newest, false, false);
            })?;
            self.event(&job, "request", "restart", None, by);
        }
        self.answer(OperationKind::Restart, &mut state)
    }

    /// State may be dropped.
    ///
    /// # Errors
    /// If the job is not undecided, or something else is at stake.
    pub fn approve(&self, name: &str, body: &ApproveBody, by: &str) -> Outcome<Operation> {
        self.check_open()?;
        let job = self.job(name)?;
        let mut state = job.lock();
        let undecided =
            state.record.outcome.as_ref().filter(|outcome| outcome.end == EndKind::Undecided);
        let Some(outcome) = undecided.filter(|_| state.record.desired != Desired::Stopped) else {
            let detail = format!("the job is {}: there is nothing to approve", state.shown.word());
            return Err(Problem::new(409, "not-undecided", detail));
        };
        let open: Vec<&str> = outcome
            .at_stake
            .iter()
            .map(|stage| stage.id.as_str())
            .filter(|id| !body.what.iter().any(|approved| approved == id))
            .collect();
        if !open.is_empty() {
            let detail =
                format!("the state of these stages is at stake as well: {}", open.join(", "));
            return Err(Problem::new(409, "more-at-stake", detail));
        }
        state.change(&self.catalogue, |record| {
            record.ask_to_run(StartFrom::Newest, true, false);
        })?;
        self.event(&job, "request", "approve", Some(body.what.join(", ")), by);
        self.answer(OperationKind::Start, &mut state)
    }

    /// Puts a job that is at rest away.
    ///
    /// # Errors
    /// If it runs.
    pub fn delete_job(&self, name: &str, keeps_state: bool) -> Outcome<()> {
        self.check_open()?;
        let job = self.job(name)?;
        let mut state = job.lock();
        if state.record.is_file {
            return Err(is_a_file());
        }
        if state.run.is_some() || (!state.shown.is_at_rest() && state.shown != State::Paused) {
            return Err(Problem::new(409, "runs", "the job runs: stop it first"));
        }
        self.catalogue.remove(name, keeps_state, self.clock.wall_ms())?;
        state.is_gone = true;
        self.forget(name);
        self.changed.send_modify(|version| *version += 1);
        Ok(())
    }

    /// Statements of a job become those that count again.
    ///
    /// # Errors
    /// As [`Server::put_job`].
    pub fn activate(
        &self,
        name: &str,
        number: u64,
        query: &PutQuery,
        by: &str,
    ) -> Outcome<PutAnswer> {
        let (tags, limits) = {
            let job = self.job(name)?;
            let state = job.lock();
            (state.record.tags.clone(), state.record.limits.clone())
        };
        let revision = self.catalogue.revision(name, number)?.ok_or_else(|| no_revision(number))?;
        let Revision { sql, params, settings, .. } = revision;
        let body = JobBody { sql, params, settings, limits, tags, desired: None };
        self.put_job(name, body, query, by)
    }

    /// A job takes a snapshot now; whoever asked waits for the operation.
    ///
    /// # Errors
    /// If it does not run.
    pub fn take_snapshot(self: &Arc<Self>, name: &str) -> Outcome<Operation> {
        self.check_open()?;
        let job = self.job(name)?;
        let state = job.lock();
        if !matches!(state.shown, State::Running | State::Paused) || state.run.is_none() {
            let detail =
                format!("the job is {}: only a job that runs takes snapshots", state.shown.word());
            return Err(Problem::new(409, "does-not-run", detail));
        }
        let revision = self.catalogue.revision(name, state.record.revision)?;
        let revision = revision.ok_or_else(|| no_revision(state.record.revision))?;
        let plan = self.plan(&state.record, &revision)?;
        let store = store_of(&plan)?;
        let Some(directory) = store.as_ref().and_then(|store| store.directory()) else {
            return Err(Problem::new(
                409,
                "no-snapshots",
                "the job takes no snapshots into a folder",
            ));
        };
        let operation = self.begin(OperationKind::Snapshot, &state);
        let (own, id, directory) = (Arc::clone(self), operation.id.clone(), directory.to_owned());
        let timeout = self.config.stop_timeout();
        let take = move || {
            let taken = thalweg_library::jobs::ask_for_snapshot(&directory, timeout);
            own.operations.end(&id, taken.map(Some).map_err(Problem::from), own.clock.wall_ms());
        };
        let thread = std::thread::Builder::new().name("snapshot request".to_owned()).spawn(take);
        thread.map_err(|error| Problem::new(503, "no-threads", error.to_string()))?;
        Ok(operation)
    }

    /// Takes an upgrade that is under way further: it proves itself, or is undone.
    pub(crate) fn look_after_upgrade(
        &self,
        job: &Job,
        state: &mut JobState,
    ) -> thalweg_core::Result<()> {
        let Some(upgrade) = state.record.upgrade.clone() else { return Ok(()) };
        let now_ms = self.clock.wall_ms();
        let own =
            state.run.as_ref().filter(|run| run.generation == state.record.generation).cloned();
        let end = state.record.outcome.as_ref().map(|outcome| outcome.end);
        let is_proven = end == Some(EndKind::Finished)
            || own.as_ref().is_some_and(|run| state.shown == State::Running && run.has_snapshot());
        if is_proven {
            state.change(&self.catalogue, |record| record.upgrade = None)?;
            self.event(job, "upgrade", "the new statements have proved themselves", None, "server");
            self.operations.end_upgrade(&job.name, Ok(()), now_ms);
            return Ok(());
        }
        // The run before has ended: what it kept last is where both ways continue from.
        if let (Some(_), None) = (&own, upgrade.until_ms) {
            let within =
                i64::try_from(self.config.confirm_within().as_millis()).unwrap_or(i64::MAX);
            let stopped_with = self.newest_snapshot(state).ok().flatten();
            return state.change(&self.catalogue, |record| {
                record.upgrade = Some(UpgradeRecord {
                    stopped_with,
                    until_ms: Some(now_ms.saturating_add(within)),
                    ..upgrade
                });
            });
        }
        let is_late =
            upgrade.is_cancelled || upgrade.until_ms.is_some_and(|until_ms| now_ms >= until_ms);
        let has_failed = matches!(end, Some(EndKind::Failed | EndKind::Undecided));
        if !is_late && !has_failed {
            return Ok(());
        }
        let why = match state.record.outcome.as_ref().and_then(|outcome| outcome.problem.as_ref()) {
            Some(problem) => problem.detail.clone(),
            None if upgrade.is_cancelled => "a person has cancelled the upgrade".to_owned(),
            None => "the new statements kept no snapshot in time".to_owned(),
        };
        state.change(&self.catalogue, |record| {
            let from = upgrade.stopped_with.map_or(StartFrom::Newest, StartFrom::Snapshot);
            record.ask_to_run(from, false, false);
            record.revision = upgrade.revision;
            record.cuts_replaced = true;
        })?;
        state.is_touched = true;
        let text = format!("back to revision {}", upgrade.revision);
        let event = Event {
            at_ms: now_ms,
            kind: "upgrade".to_owned(),
            text: text.clone(),
            detail: Some(why.clone()),
            code: Some("went-back".to_owned()),
            by: Some("server".to_owned()),
        };
        self.note_event(&job.name, None, &event);
        let problem = Problem::new(409, "went-back", format!("{text}: {why}"));
        self.operations.end_upgrade(&job.name, Err(problem), now_ms);
        Ok(())
    }

    /// The newest snapshot of a job's lineage.
    fn newest_snapshot(&self, state: &JobState) -> Outcome<Option<u64>> {
        let record = &state.record;
        let Some(revision) = self.catalogue.revision(&record.name, record.revision)? else {
            return Ok(None);
        };
        let plan = self.plan(record, &revision)?;
        let Some(store) = store_of(&plan)? else { return Ok(None) };
        Ok(store.newest_number_of(store.lineage()?.as_ref())?)
    }

    /// The snapshots of a job.
    ///
    /// # Errors
    /// If its statements are not there any more.
    pub fn store(&self, name: &str) -> Outcome<Option<SnapshotStore>> {
        let job = self.job(name)?;
        let record = job.lock().record.clone();
        let revision = self.catalogue.revision(name, record.revision)?;
        let revision = revision.ok_or_else(|| no_revision(record.revision))?;
        Ok(store_of(&self.plan(&record, &revision)?)?)
    }

    /// Refuses a start for which there is no memory.
    fn check_room(&self, job: &Arc<Job>) -> Outcome<()> {
        let limit = |job: &Job| {
            let state = job.lock();
            self.memory_limit(&state.record)
        };
        let own = limit(job)?;
        let (mut taken, mut holders) = (0, Vec::new());
        for other in self.all_jobs() {
            if other.name != job.name && other.lock().run.is_some() {
                let bytes = limit(&other)?;
                taken += bytes;
                holders.push((bytes, other.name.clone()));
            }
        }
        let all = self.config.admitted_bytes();
        if own.saturating_add(taken) <= all || holders.is_empty() {
            return Ok(());
        }
        holders.sort_by(|one, other| other.cmp(one));
        let largest: Vec<String> =
            holders.iter().take(5).map(|(bytes, name)| format!("{name} {bytes}")).collect();
        let detail = format!(
            "the job may keep {own} bytes in memory, others may keep {taken} of {all}: {}; give it a smaller \
             limit, or raise 'memory.limit' or 'admission.overcommit'",
            largest.join(", ")
        );
        Err(Problem::new(409, "no-room", detail))
    }

    pub(crate) fn check_open(&self) -> Outcome<()> {
        match self.is_closing() {
            true => Err(Problem::new(503, "closing", "the server is about to end")),
            false => Ok(()),
        }
    }

    fn begin(&self, kind: OperationKind, state: &JobState) -> Operation {
        let record = &state.record;
        let now_ms = self.clock.wall_ms();
        self.operations.begin(kind, (&record.name, record.generation), (state.shown, now_ms))
    }

    fn answer(&self, kind: OperationKind, state: &mut JobState) -> Outcome<Operation> {
        state.is_asked_here = true;
        let operation = self.begin(kind, state);
        self.touched(state);
        Ok(operation)
    }

    /// A person waits for what comes of a request.
    fn touched(&self, state: &mut JobState) {
        state.is_touched = true;
        self.bell.ring();
    }

    pub(crate) fn event(
        &self,
        job: &Job,
        kind: &str,
        text: &str,
        detail: Option<String>,
        by: &str,
    ) {
        let event = Event {
            at_ms: self.clock.wall_ms(),
            kind: kind.to_owned(),
            text: text.to_owned(),
            detail,
            code: None,
            by: Some(by.to_owned()),
        };
        self.note_event(&job.name, None, &event);
    }

    /// Something has happened to a job, in the run of this generation if it is about one.
    pub(crate) fn note_event(&self, job: &str, generation: Option<u64>, event: &Event) {
        self.catalogue.append(job, EVENTS, event);
        #[cfg(feature = "otlp")]
        self.events.add(crate::otlp::EventRecord::of(job, generation, event));
        #[cfg(not(feature = "otlp"))]
        let _ = generation;
    }
}

fn no_revision(number: u64) -> Problem {
    Problem::new(404, "no-such-revision", format!("there is no revision {number}"))
}

fn is_a_file() -> Problem {
    Problem::new(
        409,
        "is-a-file",
        "the job is a file of 'jobs-dir': change the file and start the server again",
    )
}

fn undecided(diff: &StateDiff) -> Problem {
    let names: Vec<String> =
        diff.dropped.iter().map(|stage| format!("{} ({})", stage.name, stage.id)).collect();
    let detail = format!(
        "the new statements have no use for the state of {}; approve=drop-state drops it",
        names.join(", ")
    );
    Problem::new(409, "undecided", detail)
}

/// Refuses statements that are too long.
pub(crate) fn check_sql_length(sql: &str) -> Outcome<()> {
    if sql.len() <= SQL_BYTES_MAX {
        return Ok(());
    }
    Err(Problem::new(413, "too-large", format!("statements have at most {SQL_BYTES_MAX} bytes")))
}

fn check_body(body: &JobBody) -> Outcome<()> {
    check_sql_length(&body.sql)?;
    let is_short = |text: &String| text.len() <= 4096;
    let pairs = body.params.iter().chain(&body.settings);
    if !pairs.clone().all(|(key, value)| is_short(key) && is_short(value)) || pairs.count() > 256 {
        let detail = "there are at most 256 parameters and settings, each of 4096 bytes";
        return Err(Problem::new(413, "too-large", detail));
    }
    match body.tags.len() <= 32 && body.tags.iter().all(|tag| tag.len() <= 64) {
        true => Ok(()),
        false => Err(Problem::new(413, "too-large", "there are at most 32 tags, each of 64 bytes")),
    }
}

/// What a client wants of a job whose statements do not change under it.
fn wish(record: &mut JobRecord, desired: Option<Desired>, drops_state: bool) {
    match desired {
        Some(Desired::Stopped) => record.desired = Desired::Stopped,
        Some(desired) => {
            if record.desired == Desired::Stopped || record.outcome.is_some() {
                record.ask_to_run(StartFrom::Newest, drops_state, false);
            }
            record.desired = desired;
        }
        None => {}
    }
}
