//! From what SET has set to what a job runs with.

use std::path::PathBuf;

use thalweg_connectors::filesystem::{Filesystem, OtherFile};
use thalweg_core::Result;
use thalweg_core::connector::Connectors;
use thalweg_plan::catalog::{MemoryLimit, Scheduler, Settings};
use thalweg_runtime::{RunOptions, SchedulerPolicy, memory};

use super::SessionOptions;

/// How many workers a job has if nobody says.
pub(super) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// How a job runs under these settings. What the session's options say wins.
pub(super) fn run_options(settings: &Settings, session: &SessionOptions) -> Result<RunOptions> {
    let limit = match &session.memory_limit {
        Some(text) => parse_memory_limit(text)?,
        None => settings.memory_limit(),
    };
    Ok(RunOptions {
        workers: session.workers.or(settings.workers()).unwrap_or_else(cores),
        spin: settings.spin(),
        pool: session.pool.clone(),
        scheduler: match settings.scheduler() {
            Scheduler::Nem => SchedulerPolicy::Nem,
            Scheduler::RoundRobin => SchedulerPolicy::RoundRobin,
            Scheduler::LastInPipeline => SchedulerPolicy::LastInPipeline,
            Scheduler::CurrentThroughput => SchedulerPolicy::CurrentThroughput,
            Scheduler::EstimatedTime => SchedulerPolicy::EstimatedTime,
            Scheduler::QueueSizeThrottling => SchedulerPolicy::QueueSizeThrottling,
        },
        scheduler_window: settings.scheduler_window(),
        order: settings.order(),
        bundle_rows_max: settings.bundle_rows_max(),
        bundle_linger: settings.bundle_linger(),
        memory_limit_bytes: limit_bytes(limit, memory::available_bytes()),
        idle_timeout: settings.idle_timeout(),
        // Which rows come while an input is idle depends on when the job runs.
        allow_nondeterministic_order: settings.allows_nondeterministic(),
        ..RunOptions::default()
    })
}

/// A limit as `SET 'memory.limit'` takes it.
pub(super) fn parse_memory_limit(text: &str) -> Result<MemoryLimit> {
    let mut settings = Settings::default();
    settings.set("memory.limit", text)?;
    Ok(settings.memory_limit())
}

fn limit_bytes(limit: MemoryLimit, available_bytes: usize) -> usize {
    match limit {
        MemoryLimit::Percent(percent) => available_bytes / 100 * usize::from(percent),
        MemoryLimit::Bytes(bytes) => usize::try_from(bytes).unwrap_or(usize::MAX),
    }
}

/// The built-in connectors for a session with these options.
pub(super) fn builtin_connectors(options: &SessionOptions) -> Connectors {
    let file = |what: &str, path: &Option<PathBuf>, is_written| {
        let what = what.to_owned();
        path.clone().map(|path| OtherFile { what, path, is_written })
    };
    let others = [
        file("the SQL file", &options.script, false),
        file("the recording to be followed (--replay)", &options.replay, false),
        file("the recording (--record)", &options.record, true),
    ];
    let others = others.into_iter().flatten().collect();
    thalweg_connectors::builtin(Filesystem::with_other_files(others))
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_core::OrderContract;

    #[test]
    fn the_command_line_wins_over_set() {
        let mut settings = Settings::default();
        settings.set("pipeline.workers", "3").expect("a count");
        settings.set("memory.limit", "1 gb").expect("a size");
        settings.set("pipeline.scheduler", "round-robin").expect("a policy");
        settings.set("watermark.idle-timeout", "0 s").expect("a duration");
        let session = SessionOptions::default();
        let options = run_options(&settings, &session).expect("valid");
        assert_eq!((options.workers, options.memory_limit_bytes), (3, 1 << 30));
        assert_eq!(options.scheduler, SchedulerPolicy::RoundRobin);
        assert_eq!(options.idle_timeout, None);
        let session =
            SessionOptions { workers: Some(2), memory_limit: Some("64mb".to_owned()), ..session };
        let options = run_options(&settings, &session).expect("valid");
        assert_eq!((options.workers, options.memory_limit_bytes), (2, 64 << 20));
    }

    #[test]
    fn the_clock_has_no_say_in_ordered_contracts_unless_it_is_allowed() {
        let mut settings = Settings::default();
        let options =
            |settings: &Settings| run_options(settings, &SessionOptions::default()).expect("valid");
        for order in [OrderContract::Arrival, OrderContract::EventTime] {
            settings.set("pipeline.order", &order.to_string()).expect("a contract");
            assert_eq!(options(&settings).order, order);
            assert!(!options(&settings).allow_nondeterministic_order);
        }
        settings.set("pipeline.order.allow-nondeterministic", "true").expect("a switch");
        assert!(options(&settings).allow_nondeterministic_order);
    }

    #[test]
    fn a_share_is_of_what_there_is() {
        assert_eq!(limit_bytes(MemoryLimit::Percent(50), 1000), 500);
        assert!(parse_memory_limit("lots").is_err());
    }
}
