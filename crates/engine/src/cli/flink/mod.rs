//! The commands that talk to an Apache Flink cluster: `submit`, `status`, `stop`, `cancel` and
//! `logs` with `--flink URL`, `translate`, `compare` and `move`.
//!
//! Exit statuses are those of the other commands; a job that has failed or was cancelled while it
//! was followed is a failure.

mod compare;
mod follow;
mod move_job;
mod sent_secrets;
mod stopped;
mod submit;
mod translate;

use thalweg_core::text::{format_timestamp_millis, without_controls};
use thalweg_core::{Error, Result};
use thalweg_flink::Deadline;
use thalweg_flink::gateway::Session;
use thalweg_flink::http::Place;
use thalweg_flink::job_manager::{JobManager, ListedJob};
use thalweg_flink::report::{Failure as Failed, JobReport};

use super::exit::{FAILED, ended};
use super::flink_arguments::FlinkArguments;
use super::server_arguments::{
    CancelArguments, LogsArguments, StatusArguments, StopArguments, StopWay,
};
use super::terminal::print;
use super::text_table::table;
use super::units;

pub use compare::compare;
pub use move_job::move_job;
pub use submit::submit;
pub use translate::translate;

/// How long a savepoint may take, in seconds.
const SAVEPOINT_S: u64 = 600;

/// The place of the gateway.
fn place(arguments: &FlinkArguments) -> Result<Place> {
    let url = arguments.flink.as_deref().ok_or_else(|| Error::plan("--flink names a cluster"))?;
    Place::new(url, arguments.flink_headers.clone())
}

/// The job manager: as `--flink-rest` says, or behind the gateway, or `--flink` itself.
fn job_manager(arguments: &FlinkArguments) -> Result<JobManager> {
    if let Some(url) = &arguments.flink_rest {
        return JobManager::at(Place::new(url, arguments.flink_headers.clone())?);
    }
    let place = place(arguments)?;
    match Session::open(&place, "thalweg", &[]) {
        Ok(session) => {
            let manager = JobManager::behind(&place, &session);
            let _ = session.close();
            manager
        }
        Err(error) => JobManager::at(place).map_err(|_| error),
    }
}

fn run(body: impl FnOnce() -> Result<u8>) -> u8 {
    ended(body())
}

/// `thalweg status --flink URL [JOB]`
pub fn status(arguments: &StatusArguments) -> u8 {
    run(|| {
        let manager = job_manager(&arguments.flink)?;
        match &arguments.job {
            Some(job) => {
                let job = manager.find(job)?;
                print(&without_controls(&description(&JobReport::of(&manager, &job.id, true)?)))?;
            }
            None => print(&without_controls(&overview(&manager)?))?,
        }
        Ok(0)
    })
}

fn overview(manager: &JobManager) -> Result<String> {
    let overview = manager.overview()?;
    let mut text = format!(
        "Flink {} at {}: {} task managers, {} of {} slots free\n",
        overview["flink-version"].as_str().unwrap_or_default(),
        manager.url(),
        overview["taskmanagers"],
        overview["slots-available"],
        overview["slots-total"],
    );
    let jobs = manager.jobs()?;
    if !jobs.is_empty() {
        let row = |job: ListedJob| {
            let since = format!("{} UTC", format_timestamp_millis(job.start_ms, 0));
            [shortened(&job.name), job.state, since, duration(job.duration_ms), job.id]
        };
        let head = ["job", "state", "since", "for", "id"];
        text.push_str(&table(head, jobs.into_iter().map(row), |_| true));
    }
    Ok(text)
}

fn duration(milliseconds: i64) -> String {
    let milliseconds = u64::try_from(milliseconds).unwrap_or(0);
    units::duration(std::time::Duration::from_millis(milliseconds))
}

fn time(at_ms: Option<i64>) -> String {
    match at_ms {
        None => "–".to_owned(),
        // What a source sends when its input has ended.
        Some(i64::MAX) => "end".to_owned(),
        Some(at_ms) => format!("{} UTC", format_timestamp_millis(at_ms, 3)),
    }
}

fn bytes(number: u64) -> String {
    units::bytes(usize::try_from(number).unwrap_or(usize::MAX))
}

fn description(report: &JobReport) -> String {
    let JobReport { name, id, state, duration_ms, checkpoints, .. } = report;
    let mut text = format!("{name} ({id}): {state} for {}\n", duration(*duration_ms));
    text.push_str(&format!(
        "checkpoints: {} complete, {} failed, {} restored; newest {} of {}\n",
        checkpoints.completed,
        checkpoints.failed,
        checkpoints.restored,
        checkpoints.newest.as_deref().unwrap_or("–"),
        bytes(checkpoints.state_bytes),
    ));
    if let Some(stage) = report.bottleneck() {
        text.push_str(&format!("held back by {}\n", stage.name));
    }
    text.push_str(&failure_lines(&report.failures));
    let head = ["stage", "state", "tasks", "in", "out", "busy", "back pressure", "watermark"];
    let rows = report.stages.iter().map(|stage| {
        [
            shortened(&stage.name),
            stage.state.clone(),
            stage.parallelism.to_string(),
            units::short_count(stage.rows_in as f64),
            units::short_count(stage.rows_out as f64),
            stage.busy_percent.map_or("–".to_owned(), |percent| format!("{percent} %")),
            Some(stage.backpressure.clone())
                .filter(|shown| !shown.is_empty())
                .unwrap_or("–".to_owned()),
            time(stage.watermark_ms),
        ]
    });
    text + "\n" + &table(head, rows, |column| matches!(column, 0 | 1 | 6 | 7))
}

/// Failures, the newest first. A job that restarts fails with the same cause again and again, which
/// is said once.
fn failure_lines(failures: &[Failed]) -> String {
    let mut text = String::new();
    for same in failures.chunk_by(|one, next| one.cause == next.cause) {
        text.push_str(&failure_line(&same[0]));
        if let [_, .., first] = same {
            let since = format_timestamp_millis(first.at_ms, 0);
            text.push_str(&format!("  {} times since {since} UTC\n", same.len()));
        }
    }
    text
}

fn failure_line(failure: &Failed) -> String {
    let place = [&failure.task, &failure.endpoint].into_iter().flatten().cloned();
    let place = place.collect::<Vec<_>>().join(" on ");
    let at = format_timestamp_millis(failure.at_ms, 0);
    match place.is_empty() {
        true => format!("failed at {at} UTC: {}\n", failure.cause),
        false => format!("failed at {at} UTC in {place}: {}\n", failure.cause),
    }
}

/// The name of a stage of Flink is its whole plan, and that of a query's job its text.
fn shortened(name: &str) -> String {
    let name = name.split_whitespace().collect::<Vec<_>>().join(" ");
    match name.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name,
    }
}

/// `thalweg stop --flink URL JOB`
pub fn stop(arguments: &StopArguments) -> u8 {
    run(|| {
        let manager = job_manager(&arguments.flink)?;
        let job = running(&manager, &arguments.job)?;
        if matches!(arguments.how, StopWay::Cancel) {
            return cancel_job(&manager, &job.id, &job.name);
        }
        let drain = matches!(arguments.how, StopWay::Drain);
        let folder = arguments.savepoint_dir.as_deref();
        let wait = &mut Deadline::after_seconds(SAVEPOINT_S);
        let location = manager.stop(&job.id, folder, drain, wait)?;
        print(&format!("{}: stopped; savepoint {location}\n", job.name))?;
        Ok(0)
    })
}

/// `thalweg cancel --flink URL JOB`
pub fn cancel(arguments: &CancelArguments) -> u8 {
    run(|| {
        let manager = job_manager(&arguments.flink)?;
        let job = running(&manager, &arguments.job)?;
        cancel_job(&manager, &job.id, &job.name)
    })
}

fn running(manager: &JobManager, job: &str) -> Result<ListedJob> {
    let found = manager.find(job)?;
    match found.is_over() {
        true => Err(Error::plan(format!("the job '{}' is {} already", found.name, found.state))),
        false => Ok(found),
    }
}

fn cancel_job(manager: &JobManager, id: &str, name: &str) -> Result<u8> {
    use thalweg_flink::Wait;
    manager.cancel(id)?;
    let wait = &mut Deadline::after_seconds(60);
    loop {
        let state = manager.state(id)?;
        if thalweg_flink::job_manager::is_final(&state) || !wait.pause(200) {
            print(&format!("{name}: {state}\n"))?;
            return Ok(if state == "CANCELED" { 0 } else { FAILED });
        }
    }
}

/// `thalweg logs --flink URL JOB`: why the job failed, and what the cluster has logged of it.
pub fn logs(arguments: &LogsArguments) -> u8 {
    run(|| {
        let manager = job_manager(&arguments.flink)?;
        let job = manager.find(&arguments.job)?;
        let report = JobReport::of(&manager, &job.id, false)?;
        let mut text = failure_lines(&report.failures);
        let files = manager.log_files()?;
        for file in &files {
            let log = manager.log(file)?;
            let lines =
                log.lines().filter(|line| line.contains(&job.id) || line.contains(&job.name));
            let lines: Vec<&str> = lines.collect();
            if !lines.is_empty() {
                text.push_str(&format!("{file}:\n{}\n", lines.join("\n")));
            }
        }
        if text.is_empty() {
            text = format!("none of the cluster's {} log files names the job\n", files.len());
        }
        print(&without_controls(&text))?;
        Ok(0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_that_repeats_is_said_once() {
        let failure =
            |at_ms, cause: &str| Failed { at_ms, cause: cause.to_owned(), ..Failed::default() };
        let failures = [failure(7_000, "a"), failure(5_000, "a"), failure(3_000, "b")];
        let text = failure_lines(&failures);
        let expected = "failed at 1970-01-01 00:00:07 UTC: a\n  2 times since 1970-01-01 00:00:05 UTC\n\
             failed at 1970-01-01 00:00:03 UTC: b\n";
        assert_eq!(text, expected);
    }
}
