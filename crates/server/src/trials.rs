//! What is known of trials: what is to be tried, how far they are, what came of them.
//!
//! Trials are remembered until the server ends, the last ones of each job.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::catalogue::StateDiff;
use crate::problem::{Outcome, Problem};

/// Trials that run at a time, of all jobs.
const RUNNING_MAX: usize = 4;
/// Trials of a job that are remembered.
const KEPT_MAX: usize = 20;

/// What is to be tried.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct TrialBody {
    /// The statements.
    pub sql: String,
    /// What `${NAME}` stands for.
    #[serde(default)]
    pub params: BTreeMap<String, String>,
    /// Options that are set before the first statement.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
    /// For how many seconds, at most 600. Default: 60.
    pub seconds: Option<u64>,
    /// The snapshot that it begins from. Default: the newest.
    pub snapshot: Option<u64>,
}

/// How far a trial is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum TrialState {
    /// Under way.
    #[default]
    Running,
    /// Its time is over, or its inputs have ended.
    Done,
    /// The statements failed.
    Failed,
}

/// A trial of new statements.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct TrialView {
    /// What it is called: as the operation that it is.
    pub id: String,
    /// The job.
    pub job: String,
    /// How far it is.
    pub state: TrialState,
    /// When it began, in milliseconds since 1970.
    pub began_ms: i64,
    /// For how many seconds it was to run.
    pub seconds: u64,
    /// The snapshot that it began from.
    pub snapshot: u64,
    /// What would become of the state of that snapshot.
    pub diff: StateDiff,
    /// What came of it, once it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<TrialOutcome>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schema(value_type = Option<Object>))]
    pub problem: Option<Problem>,
}

/// What came of a trial.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct TrialOutcome {
    /// All inputs have ended.
    pub has_ended: bool,
    /// For how many milliseconds it ran.
    pub ran_ms: i64,
    /// What was read.
    pub inputs: Vec<TrialInput>,
    /// What was written, to nowhere.
    pub outputs: Vec<TrialTable>,
    /// Rows that were taken into state.
    pub accepted: u64,
    /// Rows that came too late.
    pub late: u64,
    /// What state takes at the end, in bytes.
    pub state_bytes: u64,
    /// The most memory that it took, in bytes.
    pub memory_bytes: u64,
    /// From the row that completes a result to the result, in microseconds: half of them, 99 of
    /// 100, and the longest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_us: Option<(u64, u64, u64)>,
    /// The outputs whose rows are not those that the statements of now write, each with the first
    /// place where they differ. None where they were not compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub differences: Option<Vec<TrialDifference>>,
}

/// An input of a trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct TrialInput {
    /// The table.
    pub table: String,
    /// Rows that were read.
    pub rows: u64,
    /// Rows that could not be read.
    pub bad: u64,
}

/// An output of a trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct TrialTable {
    /// The table.
    pub table: String,
    /// How many rows it was given.
    pub rows: u64,
    /// The first of them.
    pub first: Vec<TrialRow>,
}

/// A row of an output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct TrialRow {
    /// What it does: `+I`, `-U`, `+U`, `-D`.
    pub kind: String,
    /// Its columns.
    pub row: Value,
}

/// Where the rows of an output differ.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct TrialDifference {
    /// The table.
    pub table: String,
    /// The place of the first row that differs, from 1.
    pub place: u64,
    /// The row of the statements that the job has now; none if those write none there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now: Option<TrialRow>,
    /// The row of the new statements.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new: Option<TrialRow>,
}

/// The trials of all jobs.
#[derive(Default)]
pub struct Trials(Mutex<VecDeque<TrialView>>);

impl Trials {
    fn all(&self) -> MutexGuard<'_, VecDeque<TrialView>> {
        self.0.lock().expect("no panic under this lock")
    }

    /// The trial of this name.
    pub fn get(&self, job: &str, id: &str) -> Option<TrialView> {
        self.all().iter().find(|own| own.job == job && own.id == id).cloned()
    }

    /// Those of a job, newest first.
    pub fn list(&self, job: &str) -> Vec<TrialView> {
        self.all().iter().rev().filter(|own| own.job == job).cloned().collect()
    }

    /// Remembers a trial that begins, if it may.
    ///
    /// # Errors
    /// If too many run.
    pub fn begin(&self, view: TrialView) -> Outcome<()> {
        let mut all = self.all();
        let runs = |own: &&TrialView| own.state == TrialState::Running;
        if all.iter().filter(runs).any(|own| own.job == view.job) {
            let detail = "a trial of the job is under way: wait for its end";
            return Err(Problem::new(409, "trial-runs", detail));
        }
        if all.iter().filter(runs).count() >= RUNNING_MAX {
            let detail = format!("{RUNNING_MAX} trials run at a time");
            return Err(Problem::new(429, "too-many-requests", detail));
        }
        let of_job = all.iter().filter(|own| own.job == view.job).count();
        if of_job >= KEPT_MAX
            && let Some(oldest) = all.iter().position(|own| own.job == view.job)
        {
            all.remove(oldest);
        }
        all.push_back(view);
        Ok(())
    }

    /// A trial has ended.
    pub fn end(&self, id: &str, ended: &Outcome<TrialOutcome>) {
        if let Some(own) = self.all().iter_mut().find(|own| own.id == id) {
            match ended {
                Ok(outcome) => {
                    (own.state, own.outcome) = (TrialState::Done, Some(outcome.clone()));
                }
                Err(problem) => {
                    (own.state, own.problem) = (TrialState::Failed, Some(problem.clone()));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_trial_of_a_job_runs_and_four_of_all() {
        let trials = Trials::default();
        let begin = |job: &str, id: &str| {
            trials.begin(TrialView { id: id.into(), job: job.into(), ..TrialView::default() })
        };
        assert!(begin("a", "1").is_ok());
        assert_eq!(begin("a", "2").map_err(|problem| problem.code), Err("trial-runs".into()));
        for job in ["b", "c", "d"] {
            assert!(begin(job, job).is_ok());
        }
        assert_eq!(begin("e", "e").map_err(|problem| problem.status), Err(429));
        let mut last = "1".to_owned();
        for number in 2..=KEPT_MAX + 1 {
            trials.end(&last, &Ok(TrialOutcome::default()));
            last = number.to_string();
            assert!(begin("a", &last).is_ok());
        }
        assert_eq!(trials.list("a").len(), KEPT_MAX);
        assert_eq!(trials.get("a", "1"), None);
        assert!(trials.get("a", &last).is_some());
        assert_eq!(trials.get("b", &last), None, "it is of another job");
    }
}
