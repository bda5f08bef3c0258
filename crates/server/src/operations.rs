//! Requests that take time: each is an operation with a name, which clients wait for.
//!
//! **Invariant:** a request that is under way already is answered with the same operation.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thalweg_core::shim::unique_name;

use crate::lifecycle::State;
use crate::problem::Problem;

/// How many are remembered.
const OPERATIONS_MAX: usize = 1_000;

/// What was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum OperationKind {
    /// A job is to run.
    Start,
    /// A job is to end.
    Stop,
    /// Sources are not to be asked.
    Pause,
    /// Sources are to be asked again.
    Resume,
    /// A job is to end and to run again.
    Restart,
    /// New statements are to take the place of those that run.
    Upgrade,
    /// A snapshot is to be taken.
    Snapshot,
    /// Dead letters are to be read again.
    Replay,
    /// New statements are tried.
    Trial,
}

impl OperationKind {
    /// The word for it.
    #[cfg(feature = "otlp")]
    pub fn word(self) -> &'static str {
        match self {
            OperationKind::Start => "start",
            OperationKind::Stop => "stop",
            OperationKind::Pause => "pause",
            OperationKind::Resume => "resume",
            OperationKind::Restart => "restart",
            OperationKind::Upgrade => "upgrade",
            OperationKind::Snapshot => "snapshot request",
            OperationKind::Replay => "replay",
            OperationKind::Trial => "trial",
        }
    }

    /// True if it is about a new run of a job.
    #[cfg(feature = "otlp")]
    pub fn begins_run(self) -> bool {
        matches!(self, OperationKind::Start | OperationKind::Restart | OperationKind::Upgrade)
    }
}

/// What came of a request to read letters again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct ReplayedLetters {
    /// Rows that are in a snapshot now.
    pub rows: u64,
    /// Letters that could not be read this time either.
    pub refused: u64,
    /// Why, of the first of them: its name and the reason.
    pub reasons: Vec<(String, String)>,
}

/// How far an operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum OperationState {
    /// Under way.
    Running,
    /// What was asked for has happened.
    Done,
    /// It has not, and does not any more.
    Failed,
}

/// A request that takes time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct Operation {
    /// Its name.
    pub id: String,
    /// What was asked for.
    pub kind: OperationKind,
    /// Of which job.
    pub job: String,
    /// The generation of the job that it is about.
    pub generation: u64,
    /// How far it is.
    pub state: OperationState,
    /// What the job is called at the moment, or was at the end.
    pub job_state: State,
    /// When it was asked for, in milliseconds since 1970.
    pub asked_ms: i64,
    /// A person does not want it any more.
    #[serde(default)]
    pub is_cancelled: bool,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ms: Option<i64>,
    /// The number of the snapshot that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<u64>,
    /// What became of the dead letters that were to be read again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub letters: Option<ReplayedLetters>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schema(value_type = Option<Object>))]
    pub problem: Option<Problem>,
}

/// The last operations.
#[derive(Default)]
pub struct Operations {
    all: Mutex<VecDeque<Operation>>,
    changed: Condvar,
}

/// What an operation of this kind comes to when the job is in this state; `None` while it is under
/// way.
fn verdict(kind: OperationKind, state: State) -> Option<bool> {
    use OperationKind::{Replay, Snapshot, Trial, Upgrade};
    use State::{Draft, Failed, Finished, Paused, Running, Stopped, Undecided};
    match (kind, state) {
        // Whoever carries these out says so.
        (Snapshot | Upgrade | Replay | Trial, _) => None,
        (OperationKind::Stop, Draft | Stopped | Finished) => Some(true),
        (OperationKind::Stop, Failed) => Some(false),
        (OperationKind::Pause, Paused) => Some(true),
        (OperationKind::Pause, Finished | Stopped | Failed | Undecided) => Some(false),
        (_, Running | Finished) => Some(true),
        // A start of a job that is to be paused.
        (OperationKind::Start | OperationKind::Restart, Paused) => Some(true),
        (_, Failed | Undecided | Stopped) => Some(false),
        _ => None,
    }
}

impl Operation {
    fn begun(
        id: String,
        kind: OperationKind,
        (job, generation): (&str, u64),
        (job_state, asked_ms): (State, i64),
    ) -> Operation {
        Operation {
            id,
            kind,
            job: job.to_owned(),
            generation,
            state: OperationState::Running,
            job_state,
            asked_ms,
            is_cancelled: false,
            ended_ms: None,
            snapshot: None,
            letters: None,
            problem: None,
        }
    }
}

fn add_to(all: &mut VecDeque<Operation>, operation: Operation) -> Operation {
    all.push_back(operation.clone());
    if all.len() > OPERATIONS_MAX {
        all.pop_front();
    }
    operation
}

impl Operations {
    fn all(&self) -> MutexGuard<'_, VecDeque<Operation>> {
        self.all.lock().expect("no panic under this lock")
    }

    /// The operation of this kind that is under way for a job and its generation, or a new one.
    pub fn begin(&self, kind: OperationKind, about: (&str, u64), at: (State, i64)) -> Operation {
        let is_same = |own: &&Operation| {
            (own.job.as_str(), own.generation) == about
                && own.kind == kind
                && own.state == OperationState::Running
        };
        let mut all = self.all();
        if let Some(same) = all.iter().find(is_same) {
            return same.clone();
        }
        add_to(&mut all, Operation::begun(unique_name(), kind, about, at))
    }

    /// A new operation.
    pub fn add(&self, kind: OperationKind, about: (&str, u64), at: (State, i64)) -> Operation {
        self.add_named(unique_name(), kind, about, at)
    }

    /// A new operation with this name, which no other has.
    pub fn add_named(
        &self,
        id: String,
        kind: OperationKind,
        about: (&str, u64),
        at: (State, i64),
    ) -> Operation {
        add_to(&mut self.all(), Operation::begun(id, kind, about, at))
    }

    /// A job is in this state now. Those that a later request has replaced have failed.
    pub fn settle(
        &self,
        (job, generation): (&str, u64),
        (state, now_ms): (State, i64),
        problem: Option<&Problem>,
    ) {
        let mut all = self.all();
        let own =
            all.iter_mut().filter(|own| own.job == job && own.state == OperationState::Running);
        for operation in own {
            operation.job_state = state;
            let is_replaced = operation.generation < generation
                && !matches!(
                    operation.kind,
                    OperationKind::Stop
                        | OperationKind::Snapshot
                        | OperationKind::Replay
                        | OperationKind::Trial
                );
            let (is_done, problem) = match verdict(operation.kind, state) {
                _ if is_replaced => {
                    let detail = "a later request for the same job has taken its place";
                    (false, Some(Problem::new(409, "replaced", detail)))
                }
                Some(true) => (true, None),
                Some(false) => (false, problem.cloned()),
                None => continue,
            };
            operation.state = if is_done { OperationState::Done } else { OperationState::Failed };
            operation.ended_ms = Some(now_ms);
            operation.problem = problem;
        }
        drop(all);
        self.changed.notify_all();
    }

    /// The upgrade of a job has ended.
    pub fn end_upgrade(&self, job: &str, ended: Result<(), Problem>, now_ms: i64) {
        let is_own = |own: &&Operation| {
            own.job == job
                && own.kind == OperationKind::Upgrade
                && own.state == OperationState::Running
        };
        let ids: Vec<String> = self.all().iter().filter(is_own).map(|own| own.id.clone()).collect();
        for id in ids {
            self.end(&id, ended.clone().map(|()| None), now_ms);
        }
    }

    /// An operation has ended, perhaps with a snapshot.
    pub fn end(&self, id: &str, ended: Result<Option<u64>, Problem>, now_ms: i64) {
        if let Some(own) = self.all().iter_mut().find(|own| own.id == id) {
            own.ended_ms = Some(now_ms);
            match ended {
                Ok(snapshot) => (own.state, own.snapshot) = (OperationState::Done, snapshot),
                Err(problem) => {
                    (own.state, own.problem) = (OperationState::Failed, Some(problem));
                }
            }
        }
        self.changed.notify_all();
    }

    /// True while a request is under way that is about the run of this generation.
    #[cfg(feature = "otlp")]
    pub fn begins(&self, job: &str, generation: u64) -> bool {
        let is_own = |own: &Operation| {
            own.job == job
                && own.generation == generation
                && own.kind.begins_run()
                && own.state == OperationState::Running
        };
        self.all().iter().any(is_own)
    }

    /// Dead letters were read again, or will not be.
    pub fn end_replay(&self, id: &str, ended: Result<ReplayedLetters, Problem>, now_ms: i64) {
        if let (Ok(letters), Some(own)) = (&ended, self.all().iter_mut().find(|own| own.id == id)) {
            own.letters = Some(letters.clone());
        }
        self.end(id, ended.map(|_| None), now_ms);
    }

    /// An operation is not wanted any more. Whoever carries it out asks for that.
    pub fn cancel(&self, id: &str) -> Option<Operation> {
        let mut all = self.all();
        let own = all.iter_mut().find(|own| own.id == id)?;
        own.is_cancelled = true;
        Some(own.clone())
    }

    /// True if an operation is not wanted any more.
    pub fn is_cancelled(&self, id: &str) -> bool {
        self.all().iter().any(|own| own.id == id && own.is_cancelled)
    }

    /// The operation of this name.
    pub fn get(&self, id: &str) -> Option<Operation> {
        self.all().iter().find(|own| own.id == id).cloned()
    }

    /// All of them, newest first.
    pub fn list(&self) -> Vec<Operation> {
        self.all().iter().rev().cloned().collect()
    }

    /// Waits until an operation has ended, or for this long.
    pub fn wait(&self, id: &str, timeout: Duration) -> Option<Operation> {
        let is_under_way = |all: &mut VecDeque<Operation>| {
            all.iter().any(|own| own.id == id && own.state == OperationState::Running)
        };
        let waited = self.changed.wait_timeout_while(self.all(), timeout, is_under_way);
        let (all, _) = waited.expect("no panic under this lock");
        all.iter().find(|own| own.id == id).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_request_twice_is_one_operation() {
        let operations = Operations::default();
        let begin = |kind, generation| {
            operations.begin(kind, ("orders", generation), (State::Running, 1)).id
        };
        let stop = begin(OperationKind::Stop, 1);
        assert_eq!(begin(OperationKind::Stop, 1), stop);
        assert_ne!(begin(OperationKind::Start, 1), stop);
        operations.settle(("orders", 1), (State::Stopped, 2), None);
        assert_eq!(operations.get(&stop).map(|own| own.state), Some(OperationState::Done));
        assert_ne!(begin(OperationKind::Stop, 1), stop, "that one has ended");
    }

    #[test]
    fn who_waits_for_a_start_that_was_overtaken_is_informed() {
        let operations = Operations::default();
        let id = operations.begin(OperationKind::Start, ("a", 1), (State::Planning, 1)).id;
        operations.settle(("a", 2), (State::Planning, 2), None);
        let own = operations.wait(&id, Duration::ZERO).expect("known");
        assert_eq!(own.problem.map(|problem| problem.code).as_deref(), Some("replaced"));
    }
}
