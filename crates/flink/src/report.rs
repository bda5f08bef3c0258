//! What the job manager knows of a job, as one value: state, stages with watermarks and back
//! pressure, checkpoints, failures.
//!
//! Its answers come from several requests, so they are of slightly different moments.

use serde_json::Value;
use thalweg_core::Result;

use crate::causes;
use crate::http::encoded;
use crate::job_manager::{JobManager, text};

/// A job at a moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobReport {
    /// Its identifier.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its state.
    pub state: String,
    /// For how long it has run, in milliseconds.
    pub duration_ms: i64,
    /// Its stages, from sources to sinks.
    pub stages: Vec<StageReport>,
    /// Its checkpoints.
    pub checkpoints: CheckpointReport,
    /// Its failures, the newest first.
    pub failures: Vec<Failure>,
}

/// A vertex of the job.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StageReport {
    /// What it does.
    pub name: String,
    /// How many tasks it has.
    pub parallelism: u64,
    /// Its state.
    pub state: String,
    /// Rows that came in.
    pub rows_in: u64,
    /// Rows that went out.
    pub rows_out: u64,
    /// `ok`, `low` or `high`; empty if it is not known yet.
    pub backpressure: String,
    /// The share of time that its tasks are busy, in percent.
    pub busy_percent: Option<u64>,
    /// The least watermark of its tasks, in milliseconds since 1970.
    pub watermark_ms: Option<i64>,
}

/// The checkpoints of a job.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CheckpointReport {
    /// How many are complete.
    pub completed: u64,
    /// How many have failed.
    pub failed: u64,
    /// How often state was restored.
    pub restored: u64,
    /// Where the newest complete one lies.
    pub newest: Option<String>,
    /// How many bytes of state that has.
    pub state_bytes: u64,
    /// How long that took, in milliseconds.
    pub duration_ms: u64,
}

/// A failure of a job.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Failure {
    /// When, in milliseconds since 1970.
    pub at_ms: i64,
    /// The root cause.
    pub cause: String,
    /// The task that failed, if one did.
    pub task: Option<String>,
    /// Where that ran.
    pub endpoint: Option<String>,
}

impl JobReport {
    /// Asks about a job. Watermarks and back pressure take a request for each stage.
    ///
    /// # Errors
    /// If there is no such job, or no answer.
    pub fn of(manager: &JobManager, job: &str, with_stages: bool) -> Result<JobReport> {
        let about = manager.about(job, "")?;
        let mut report = JobReport {
            id: text(&about["jid"]),
            name: text(&about["name"]),
            state: text(&about["state"]),
            duration_ms: about["duration"].as_i64().unwrap_or(0),
            stages: list(&about["vertices"]).map(stage).collect(),
            checkpoints: checkpoints(&manager.checkpoints(job)?),
            failures: failures(&manager.about(job, "/exceptions?maxExceptions=10")?),
        };
        if with_stages {
            for (vertex, stage) in list(&about["vertices"]).zip(&mut report.stages) {
                look_at(manager, job, &text(&vertex["id"]), stage);
            }
        }
        Ok(report)
    }

    /// The least watermark of stages that have one.
    pub fn watermark_ms(&self) -> Option<i64> {
        self.stages.iter().filter_map(|stage| stage.watermark_ms).min()
    }

    /// The first stage, from the sinks up, that holds others back.
    pub fn bottleneck(&self) -> Option<&StageReport> {
        let is_held = |stage: &StageReport| matches!(stage.backpressure.as_str(), "low" | "high");
        let last_held = self.stages.iter().rposition(is_held)?;
        self.stages.get(last_held + 1)
    }
}

/// What only the requests about a stage say. A stage that has just ended may know nothing.
fn look_at(manager: &JobManager, job: &str, vertex: &str, stage: &mut StageReport) {
    let path = format!("/vertices/{}", encoded(vertex));
    if let Ok(answer) = manager.about(job, &format!("{path}/watermarks")) {
        stage.watermark_ms = watermark(&answer);
    }
    if let Ok(answer) = manager.about(job, &format!("{path}/backpressure")) {
        stage.backpressure = text(&answer["backpressureLevel"]);
        let busy = list(&answer["subtasks"]).filter_map(|task| task["busyRatio"].as_f64());
        let busiest =
            busy.fold(None, |most: Option<f64>, ratio| Some(most.map_or(ratio, |m| m.max(ratio))));
        stage.busy_percent = busiest.map(|ratio| (ratio * 100.0).clamp(0.0, 100.0) as u64);
    }
}

fn stage(vertex: &Value) -> StageReport {
    let count = |name: &str| vertex["metrics"][name].as_u64().unwrap_or(0);
    StageReport {
        name: text(&vertex["name"]),
        parallelism: vertex["parallelism"].as_u64().unwrap_or(1),
        state: text(&vertex["status"]),
        rows_in: count("read-records"),
        rows_out: count("write-records"),
        ..StageReport::default()
    }
}

/// The least watermark of the tasks; none as long as one of them has none.
fn watermark(answer: &Value) -> Option<i64> {
    let values = list(answer).filter_map(|task| text(&task["value"]).parse::<i64>().ok());
    values.min().filter(|&at| at != i64::MIN)
}

fn checkpoints(answer: &Value) -> CheckpointReport {
    let count = |name: &str| answer["counts"][name].as_u64().unwrap_or(0);
    let newest = [&answer["latest"]["completed"], &answer["latest"]["savepoint"]];
    let newest = newest.into_iter().max_by_key(|one| one["id"].as_i64().unwrap_or(-1));
    let newest = newest.filter(|one| one.is_object()).unwrap_or(&Value::Null);
    let path = text(&newest["external_path"]);
    CheckpointReport {
        completed: count("completed"),
        failed: count("failed"),
        restored: count("restored"),
        newest: (!path.is_empty()).then_some(path),
        state_bytes: newest["state_size"].as_u64().unwrap_or(0),
        duration_ms: newest["end_to_end_duration"].as_u64().unwrap_or(0),
    }
}

fn failures(answer: &Value) -> Vec<Failure> {
    let some = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    let failure = |entry: &Value| Failure {
        at_ms: entry["timestamp"].as_i64().unwrap_or(0),
        cause: match some(&entry["stacktrace"]) {
            Some(trace) => causes::of_trace(&trace),
            None => text(&entry["exceptionName"]),
        },
        task: some(&entry["taskName"]),
        endpoint: some(&entry["endpoint"]),
    };
    let mut failures: Vec<Failure> =
        list(&answer["exceptionHistory"]["entries"]).map(failure).collect();
    failures.sort_by_key(|failure| std::cmp::Reverse(failure.at_ms));
    failures
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_watermark_is_the_least_of_its_tasks_and_none_until_all_have_one() {
        let task = |value: &str| json!({ "id": "0.currentInputWatermark", "value": value });
        assert_eq!(watermark(&json!([task("20"), task("10")])), Some(10));
        assert_eq!(watermark(&json!([task("20"), task("-9223372036854775808")])), None);
        assert_eq!(watermark(&json!([])), None);
    }

    #[test]
    fn the_stage_behind_the_last_one_that_is_held_back_is_the_bottleneck() {
        let stage = |name: &str, level: &str| StageReport {
            name: name.to_owned(),
            backpressure: level.to_owned(),
            ..StageReport::default()
        };
        let stages = vec![stage("source", "high"), stage("map", "low"), stage("sink", "ok")];
        let report = JobReport { stages, ..JobReport::default() };
        assert_eq!(report.bottleneck().map(|stage| stage.name.as_str()), Some("sink"));
        assert_eq!(JobReport::default().bottleneck(), None);
    }

    #[test]
    fn failures_come_newest_first_with_their_root_cause() {
        let entry = |at: i64, trace: &str| json!({ "timestamp": at, "exceptionName": "x.Y", "stacktrace": trace, "taskName": "sink" });
        let answer = json!({ "exceptionHistory": { "entries": [
            entry(1, "x.Y: first"), entry(2, "x.Y: outer\n\tat a.B\nCaused by: x.Z: why\n\tat c.D"),
        ] } });
        let causes: Vec<String> = failures(&answer).into_iter().map(|f| f.cause).collect();
        assert_eq!(causes, ["Z: why", "Y: first"]);
    }

    #[test]
    fn a_savepoint_that_is_newer_than_the_last_checkpoint_is_the_newest() {
        let answer = json!({ "counts": { "completed": 2, "failed": 1, "restored": 0 }, "latest": {
            "completed": { "id": 1, "external_path": "file:/c/1", "state_size": 5 },
            "savepoint": { "id": 2, "external_path": "file:/s/2", "state_size": 7 },
        } });
        let report = checkpoints(&answer);
        assert_eq!((report.newest.as_deref(), report.state_bytes), (Some("file:/s/2"), 7));
        assert_eq!(checkpoints(&json!({ "latest": { "completed": null } })).newest, None);
    }
}
