//! One thread that brings every job to what is wanted of it.
//!
//! It looks at each job in turn, asks [`decide`] what is next, and does that. It waits for nothing:
//! runs have threads of their own, and ring its bell. What cannot be written down now is tried
//! again at the next look, because the facts are still the same then.

use std::sync::Arc;
use std::time::Duration;

use thalweg_core::shim::Clock;
use thalweg_core::{Error, Result};
use thalweg_library::session::SessionOptions;

use crate::catalogue::OutcomeRecord;
use crate::job::{Event, Job, JobState, RunLine};
use crate::lifecycle::{Action, Around, EndKind, Phase, RunView, State, decide};
use crate::problem::Problem;
use crate::run::{Run, RunOrder};
use crate::server::Server;

/// How often all jobs are looked at, with no news.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// A reading that is older is none of now.
const FRESH_MS: i64 = 5_000;
/// A run that has lasted so long has proved itself.
const PROVEN_AFTER_MS: i64 = 60_000;

/// Looks after all jobs until the server has closed and none is left.
pub fn supervise(server: &Arc<Server>) {
    loop {
        let jobs = server.all_jobs();
        let mut slots = Slots::count(server, &jobs);
        let mut runs = 0;
        for job in &jobs {
            let mut state = job.lock();
            if let Err(error) = look(server, job, &mut state, &mut slots) {
                job.logs
                    .add_once("error", &format!("cannot write down what became of it: {error}"));
            }
            runs += usize::from(state.run.is_some());
        }
        if server.is_closing() && runs == 0 {
            return;
        }
        server.note_look();
        server.bell.wait(LOOK_AGAIN);
    }
}

/// How many jobs may begin now.
struct Slots {
    free: usize,
    /// A job whose start the process has died of runs and has not proved itself.
    suspect_is_out: bool,
    is_held: bool,
}

/// After this many deaths a job is started when no other suspect is.
const SUSPECT_DEATHS: u32 = 2;

impl Slots {
    fn count(server: &Server, jobs: &[Arc<Job>]) -> Slots {
        let (mut busy, mut suspect_is_out) = (0, false);
        for job in jobs {
            let state = job.lock();
            busy += usize::from(
                matches!(state.shown, State::Planning | State::Starting) && state.run.is_some(),
            );
            suspect_is_out |= state.run.is_some()
                && state.record.deaths >= SUSPECT_DEATHS
                && state.record.unproven_since_ms.is_some();
        }
        let free = server.config.start_concurrency().saturating_sub(busy);
        Slots { free, suspect_is_out, is_held: server.config.hold }
    }

    fn may_begin(&self, state: &JobState) -> bool {
        let is_suspect = state.record.deaths >= SUSPECT_DEATHS;
        self.free > 0
            && (!self.is_held || state.is_asked_here)
            && !(is_suspect && self.suspect_is_out)
    }

    fn take(&mut self, state: &JobState) {
        self.free -= 1;
        self.suspect_is_out |= state.record.deaths >= SUSPECT_DEATHS;
    }
}

/// Takes one job one step further.
fn look(
    server: &Arc<Server>,
    job: &Arc<Job>,
    state: &mut JobState,
    slots: &mut Slots,
) -> Result<()> {
    let now_ns = server.clock.now_ns();
    let view = state.run.as_ref().map(|run| run.view(now_ns, server.config.stop_timeout()));
    let around = Around { may_begin: slots.may_begin(state), is_closing: server.is_closing() };
    let (shown, action) = decide(state.record.wish(), view, around);
    let begins = action == Action::Begin;
    let done = perform(server, job, state, action);
    if done.is_ok() && begins {
        slots.take(state);
    }
    if let Some(view) = view {
        prove(server, state, view)?;
    }
    server.look_after_upgrade(job, state)?;
    show(server, job, state, shown);
    if let Some(run) = state.run.clone() {
        run.look(now_ns, state.record.revision);
        keep_history(server, state, &run);
    }
    done
}

/// Writes down what a job is doing, from time to time.
fn keep_history(server: &Server, state: &mut JobState, run: &Run) {
    let now_ms = server.clock.wall_ms();
    if !state.history.is_due(now_ms) {
        return;
    }
    let folder = server.catalogue.folder(&state.record.name);
    run.watched(|watch| {
        // While a job waits for another try its newest reading is an old one.
        let reading = watch.newest().filter(|reading| now_ms - reading.at_ms <= FRESH_MS);
        reading.into_iter().for_each(|reading| state.history.keep(&folder, reading));
    });
}

fn perform(
    server: &Arc<Server>,
    job: &Arc<Job>,
    state: &mut JobState,
    action: Action,
) -> Result<()> {
    let now_ns = server.clock.now_ns();
    match (action, state.run.clone()) {
        (Action::Begin, None) => match begin(server, job, state) {
            // Another try would come to the same.
            Err(error) if error.is_plan_error() => fail(server, state, &error),
            begun => begun,
        },
        (Action::Stop(how), Some(run)) => {
            run.stop(how, now_ns);
            Ok(())
        }
        (Action::Cancel, Some(run)) => {
            run.stop(crate::lifecycle::StopHow::Cancel, now_ns);
            Ok(())
        }
        (Action::Hold, Some(run)) => {
            run.hold(true);
            Ok(())
        }
        (Action::Release, Some(run)) => {
            run.hold(false);
            Ok(())
        }
        (Action::Note(_), Some(run)) => note(server, job, state, &run),
        (Action::Forget, Some(run)) => forget(server, state, &run, None),
        (_, Some(run)) => {
            run.keep_held();
            Ok(())
        }
        (_, None) => Ok(()),
    }
}

/// Begins a run. That it begins is durable before it does: whoever finds it so knows that the
/// process has died of it, or with it.
fn begin(server: &Arc<Server>, job: &Arc<Job>, state: &mut JobState) -> Result<()> {
    let now_ms = server.clock.wall_ms();
    let record = &state.record;
    let revision = server.catalogue.revision(&job.name, record.revision)?.ok_or_else(|| {
        Error::plan(format!("the statements of revision {} are not there", record.revision))
    })?;
    let order = RunOrder {
        generation: record.generation,
        options: SessionOptions {
            live: Arc::clone(&job.live),
            inlets: Some(job.inlets.clone()),
            ..server.session_options(record, &revision)?
        },
        from: record.from,
        drops_state: record.drops_state,
        overwrites: record.overwrites,
        lineage_before: record.lineage_before.clone(),
        revision: server.with_params(revision)?,
    };
    state.change(&server.catalogue, |record| record.unproven_since_ms = Some(now_ms))?;
    let earlier = crate::history::newest(&server.catalogue.folder(&job.name));
    let run = Arc::new(Run::new(job, order.generation, now_ms, server.bell.clone(), earlier));
    let (own, server, its_job) = (Arc::clone(&run), Arc::clone(server), Arc::clone(job));
    let body = move || {
        let note_lineage = |lineage: &str| {
            let mut state = its_job.lock();
            state.change(&server.catalogue, |record| {
                record.lineage_before = Some(lineage.to_owned());
            })
        };
        own.carry_out(order, &note_lineage, || server.clock.wall_ms());
    };
    let named = std::thread::Builder::new().name(format!("job {}", job.name));
    let thread = named.spawn(body);
    let failed = |error| Error::io(format!("can't start a thread for a job: {error}"));
    (state.thread, state.run) = (Some(thread.map_err(failed)?), Some(run));
    Ok(())
}

/// A job cannot begin.
fn fail(server: &Server, state: &mut JobState, error: &Error) -> Result<()> {
    let problem = Some(Problem::of_error(error, ""));
    let at_ms = server.clock.wall_ms();
    let outcome = OutcomeRecord { end: EndKind::Failed, at_ms, problem, at_stake: Vec::new() };
    state.is_touched = true;
    state.change(&server.catalogue, |record| record.outcome = Some(outcome))
}

/// A run is over, and what is wanted has come to this.
fn note(server: &Server, job: &Job, state: &mut JobState, run: &Arc<Run>) -> Result<()> {
    let Some(outcome) = run.outcome() else { return Ok(()) };
    if outcome.end == EndKind::Finished {
        job.logs.add("info", "all inputs have ended, and everything is written");
    }
    forget(server, state, run, Some(outcome))
}

fn forget(
    server: &Server,
    state: &mut JobState,
    run: &Arc<Run>,
    outcome: Option<OutcomeRecord>,
) -> Result<()> {
    let ended = run.outcome();
    state.change(&server.catalogue, |record| {
        record.unproven_since_ms = None;
        record.deaths = 0;
        if outcome.is_some() {
            record.outcome = outcome;
        }
    })?;
    let line = RunLine {
        generation: run.generation,
        begun_ms: run.begun_ms,
        ended_ms: server.clock.wall_ms(),
        end: ended.as_ref().map_or(EndKind::Stopped, |ended| ended.end),
        restarts: run.restarts(),
    };
    server.catalogue.append(&state.record.name, "runs.ndjson", &line);
    state.last_metrics = run.metrics();
    state.run = None;
    if let Some(thread) = state.thread.take() {
        // It has said how it ended.
        drop(thread.join());
    }
    Ok(())
}

/// A run that keeps a snapshot, or lasts, is not what the process dies of.
fn prove(server: &Server, state: &mut JobState, view: RunView) -> Result<()> {
    let (Some(since_ms), Phase::Running, Some(run)) =
        (state.record.unproven_since_ms, view.phase, &state.run)
    else {
        return Ok(());
    };
    let is_old = server.clock.wall_ms() - since_ms >= PROVEN_AFTER_MS;
    if !is_old && !run.has_snapshot() {
        return Ok(());
    }
    state.change(&server.catalogue, |record| {
        record.unproven_since_ms = None;
        record.deaths = 0;
    })
}

/// Reports of a new state.
fn show(server: &Server, job: &Job, state: &mut JobState, shown: State) {
    let problem = state.record.outcome.as_ref().and_then(|outcome| outcome.problem.clone());
    let now_ms = server.clock.wall_ms();
    let generation = state.record.generation;
    if state.shown != shown {
        #[cfg(feature = "otlp")]
        if state.shown.is_on_the_way() && server.spans.is_on() {
            let times = (state.since_ms, now_ms);
            let has_root = server.operations.begins(&job.name, generation);
            let of = (job.name.as_str(), generation);
            server.spans.add(crate::otlp::Span::of_state(of, has_root, state.shown.word(), times));
        }
        state.shown = shown;
        state.since_ms = now_ms;
        let problem = problem.as_ref().filter(|_| shown.is_at_rest());
        let waiting = state.run.as_ref().and_then(|run| run.waiting());
        let cause = waiting.filter(|_| shown == State::Restarting).map(|waiting| waiting.cause);
        let event = Event {
            at_ms: now_ms,
            kind: "state".to_owned(),
            text: shown.word().to_owned(),
            detail: problem.map(|problem: &Problem| problem.detail.clone()).or(cause),
            code: problem.map(|problem| problem.code.clone()),
            by: None,
        };
        server.note_event(&job.name, Some(generation), &event);
        server.changed.send_modify(|version| *version += 1);
        state.is_touched = true;
    }
    if std::mem::take(&mut state.is_touched) {
        server.operations.settle((&job.name, generation), (shown, now_ms), problem.as_ref());
    }
}
