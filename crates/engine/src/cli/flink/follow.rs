//! Follows jobs of a cluster: a line when something changes, until all have ended.
//!
//! A job manager that does not answer for a while is asked again: with high availability another
//! takes its place, and the job continues.

use std::time::Duration;

use thalweg_core::shim::{Clock, SystemClock};
use thalweg_core::text::without_controls;
use thalweg_core::{Error, Result};
use thalweg_flink::job_manager::{JobManager, is_final};
use thalweg_flink::report::{Failure, JobReport, StageReport};

use super::super::exit::FAILED;
use super::super::terminal::say;
use super::super::units;
use super::{failure_line, time};

/// Between two questions.
const PAUSE: Duration = Duration::from_millis(1000);
/// Between two lines of a job that only runs.
const LINE_EVERY: Duration = Duration::from_secs(10);
/// How long the job manager may be away.
const SILENCE_MAX: Duration = Duration::from_secs(120);

/// What has been said of a job.
#[derive(Default)]
struct Said {
    state: String,
    failures: usize,
    failed_checkpoints: u64,
    bottleneck: Option<String>,
    /// In nanoseconds of the clock.
    line_at: Option<u64>,
}

/// Follows these jobs, by identifier and name, until all have ended; the exit status.
pub fn follow(manager: &JobManager, jobs: &[(String, String)]) -> Result<u8> {
    let mut open: Vec<(&(String, String), Said)> =
        jobs.iter().map(|job| (job, Said::default())).collect();
    let (mut status, mut silent_since, clock) = (0, None, SystemClock::default());
    while !open.is_empty() {
        let mut left = Vec::with_capacity(open.len());
        for (job, mut said) in open {
            match JobReport::of(manager, &job.0, true) {
                Ok(report) => {
                    silent_since = None;
                    say_news(&job.1, &report, &mut said, clock.now_ns());
                    match is_final(&report.state) {
                        true if report.state != "FINISHED" => status = FAILED,
                        true => {}
                        false => left.push((job, said)),
                    }
                }
                Err(error) => {
                    is_patient(&mut silent_since, &error, clock.now_ns())?;
                    left.push((job, said));
                }
            }
        }
        open = left;
        if !open.is_empty() {
            std::thread::sleep(PAUSE);
        }
    }
    Ok(status)
}

/// Says once that nobody answers; an error once that lasts too long.
fn is_patient(silent_since: &mut Option<u64>, error: &Error, now_ns: u64) -> Result<()> {
    let since = match silent_since {
        Some(since) => *since,
        None => {
            say(&format!("{}; asking again\n", without_controls(error.message())));
            *silent_since.insert(now_ns)
        }
    };
    if passed(since, now_ns) > SILENCE_MAX {
        let silence = SILENCE_MAX.as_secs();
        return Err(Error::io(format!("no answer for {silence} s: {}", error.message())));
    }
    Ok(())
}

fn passed(since_ns: u64, now_ns: u64) -> Duration {
    Duration::from_nanos(now_ns.saturating_sub(since_ns))
}

/// Says what is new.
fn say_news(name: &str, report: &JobReport, said: &mut Said, now_ns: u64) {
    let mut lines = String::new();
    for failure in new_failures(report, said.failures) {
        lines.push_str(&format!("{name}: {}", failure_line(failure)));
    }
    said.failures = report.failures.len();
    if report.state != said.state {
        said.state.clone_from(&report.state);
        lines.push_str(&format!("{name}: {}\n", report.state));
    }
    let is_due = said.line_at.is_none_or(|at| passed(at, now_ns) >= LINE_EVERY);
    // A job that restarts fails one after the other.
    let is_news = is_due || said.failed_checkpoints == 0 || is_final(&report.state);
    if is_news && report.checkpoints.failed > said.failed_checkpoints {
        said.failed_checkpoints = report.checkpoints.failed;
        lines.push_str(&format!("{name}: {} checkpoints have failed\n", said.failed_checkpoints));
    }
    let bottleneck = report.bottleneck().map(|stage| super::shortened(&stage.name));
    if bottleneck.is_some() && bottleneck != said.bottleneck {
        lines.push_str(&format!("{name}: held back by {}\n", bottleneck.as_deref().unwrap_or("")));
    }
    said.bottleneck = bottleneck;
    if is_due && report.state == "RUNNING" || is_final(&report.state) {
        said.line_at = Some(now_ns);
        lines.push_str(&progress(name, report));
    }
    if !lines.is_empty() {
        say(&without_controls(&lines));
    }
}

/// The failures that came after the first `seen`, the oldest first.
fn new_failures(report: &JobReport, seen: usize) -> impl Iterator<Item = &Failure> {
    let new = report.failures.len().saturating_sub(seen);
    report.failures[..new].iter().rev()
}

fn progress(name: &str, report: &JobReport) -> String {
    // What a source writes is what the operators in its chain leave of its rows, for each reader.
    let sources = report.stages.iter().filter(|stage| stage.name.starts_with("Source: "));
    let rows =
        |source: &StageReport| if source.rows_in > 0 { source.rows_in } else { source.rows_out };
    let read: u64 = sources.map(rows).sum();
    let written = report.stages.last().map_or(0, |stage| stage.rows_in);
    format!(
        "{name}: {} rows read, {} written, watermark {}, {} checkpoints\n",
        units::short_count(read as f64),
        units::short_count(written as f64),
        time(report.watermark_ms()),
        report.checkpoints.completed,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_reported_once_and_in_order() {
        let failure = |cause: &str| Failure { cause: cause.to_owned(), ..Failure::default() };
        let report = JobReport {
            failures: vec![failure("second"), failure("first")],
            ..JobReport::default()
        };
        let causes =
            |seen| new_failures(&report, seen).map(|f| f.cause.as_str()).collect::<Vec<_>>();
        assert_eq!(causes(0), ["first", "second"]);
        assert_eq!(causes(1), ["second"]);
        assert!(causes(2).is_empty());
    }
}
