//! What jobs are doing at the moment, as a list shows it: rates, shares of time, what is wrong.

use serde::{Deserialize, Serialize};
use thalweg_monitoring::conditions::Condition;
use thalweg_monitoring::reading::{
    DistributionReading, JobReading, StageKind, StageRates, StageReading,
};

/// What a job is doing at the moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct JobNow {
    /// Rows read a second.
    pub in_per_s: f64,
    /// Rows written a second.
    pub out_per_s: f64,
    /// Late rows a minute.
    pub late_per_min: f64,
    /// Rows a minute that could not be read.
    pub bad_per_min: f64,
    /// The share of all workers that works for it.
    pub busy: f64,
    /// Seconds by which the watermark of the output that is furthest behind is behind the clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag_s: Option<f64>,
    /// Seconds in which 99 % of the results of the last minute were written, as exact as the
    /// buckets of its histogram.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_s: Option<f64>,
    /// Bytes of rows on the way, of state and of buffers.
    pub memory_bytes: u64,
}

impl JobNow {
    /// Of a reading.
    pub fn of(reading: &JobReading) -> JobNow {
        let rate = |kind, of: fn(&StageRates) -> f64| reading.total_rate(kind, of);
        let all = |of: fn(&StageRates) -> f64| {
            reading.stages.iter().filter_map(|stage| stage.recent.as_ref()).map(of).sum::<f64>()
        };
        let works = reading.stages.iter().filter(|stage| stage.kind != StageKind::Sink);
        let busy: f64 = works
            .map(|stage| stage.recent.unwrap_or_default().busy * stage.parallelism as f64)
            .sum();
        let watermarks = reading.sinks().filter_map(|sink| reading.stages[sink].watermark);
        let memory = &reading.memory;
        JobNow {
            in_per_s: rate(StageKind::Source, |rates| rates.rows_in),
            out_per_s: rate(StageKind::Sink, |rates| rates.rows_out),
            late_per_min: all(|rates| rates.late) * 60.0,
            bad_per_min: all(|rates| rates.bad) * 60.0,
            busy: (busy / reading.workers.max(1) as f64).min(1.0),
            lag_s: watermarks.min().map(|at_ms| (reading.at_ms - at_ms) as f64 / 1_000.0),
            p99_s: recent_latency(reading).quantile_us(0.99).map(|time_us| time_us / 1e6),
            memory_bytes: memory.in_flight_bytes + memory.state_bytes + memory.buffer_bytes,
        }
    }
}

/// The latencies of all outputs in the last minute.
fn recent_latency(reading: &JobReading) -> DistributionReading {
    let mut all = DistributionReading::default();
    let sinks = reading.stages.iter().filter_map(|stage| stage.sink.as_ref());
    sinks.for_each(|sink| all.add(&sink.recent_latency));
    all
}

/// What a stage is doing at the moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct StageNow {
    /// Rows taken a second.
    pub in_per_s: f64,
    /// Rows passed on a second.
    pub out_per_s: f64,
    /// Bundles that a bundle found before it, on average.
    pub queued: f64,
    /// The share of the time in which it was busy.
    pub busy: f64,
    /// The share of the time in which it could not do work that was there.
    pub blocked: f64,
    /// The reason that took most of that: `output`, `memory`, `order`, `lookup` or `cut`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked_by: Option<String>,
    /// The share of the time that is left.
    pub idle: f64,
}

impl StageNow {
    /// Of a reading that was compared with an earlier one.
    pub fn of(stage: &StageReading) -> Option<StageNow> {
        let recent = stage.recent?;
        let most = recent.blocked.named().into_iter().max_by(|(_, a), (_, b)| a.total_cmp(b));
        Some(StageNow {
            in_per_s: recent.rows_in,
            out_per_s: recent.rows_out,
            queued: stage.queued,
            busy: recent.busy,
            blocked: recent.blocked_share(),
            blocked_by: most.filter(|(_, share)| *share > 0.0).map(|(by, _)| by.to_owned()),
            idle: recent.idle(),
        })
    }
}

/// Something that is wrong with a job, or will be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct ConditionView {
    /// `held`, `behind`, `blocked`, `late`, `bad-data`, `snapshots-failing`, `near-memory-limit`,
    /// `skewed` or `flapping`.
    pub kind: String,
    /// Since when, in milliseconds since 1970.
    pub since_ms: i64,
    /// In a sentence.
    pub text: String,
}

impl From<&Condition> for ConditionView {
    fn from(of: &Condition) -> Self {
        let kind = of.kind.name().to_owned();
        ConditionView { kind, since_ms: of.since_ms, text: of.text.clone() }
    }
}

/// The server itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct ServerNow {
    /// The version of the program.
    pub version: String,
    /// When the server began, in milliseconds since 1970.
    pub began_ms: i64,
    /// When this was read.
    pub at_ms: i64,
    /// Its worker threads.
    pub workers: u64,
    /// The share of them that works for jobs.
    pub busy: f64,
    /// What its jobs keep in memory.
    pub memory_bytes: u64,
    /// What they may keep.
    pub memory_limit_bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_monitoring::reading::{BlockedShares, SinkReading};

    fn stage(kind: StageKind, recent: StageRates) -> StageReading {
        StageReading { kind, parallelism: 1, recent: Some(recent), ..StageReading::default() }
    }

    #[test]
    fn a_job_is_summed_up() {
        let rates = StageRates { rows_in: 300.0, busy: 0.5, bad: 0.5, ..StageRates::default() };
        let source = stage(StageKind::Source, rates);
        let late = StageRates { rows_in: 300.0, late: 2.0, busy: 1.0, ..StageRates::default() };
        let window = stage(StageKind::Operator, late);
        let written = StageRates { rows_out: 7.0, busy: 1.0, ..StageRates::default() };
        let mut counts = vec![0; 17];
        counts[0] = 10;
        let sink = SinkReading {
            recent_latency: DistributionReading { counts, ..DistributionReading::default() },
            ..SinkReading::default()
        };
        let sink = StageReading {
            watermark: Some(60_000),
            sink: Some(sink),
            ..stage(StageKind::Sink, written)
        };
        let reading = JobReading {
            at_ms: 61_500,
            workers: 2,
            stages: vec![source, window, sink],
            ..JobReading::default()
        };
        let now = JobNow::of(&reading);
        assert_eq!((now.in_per_s, now.out_per_s, now.busy), (300.0, 7.0, 0.75));
        assert_eq!((now.late_per_min, now.bad_per_min, now.lag_s), (120.0, 30.0, Some(1.5)));
        assert!(now.p99_s.is_some_and(|p99| p99 <= 0.001), "{now:?}");
    }

    #[test]
    fn a_blocked_stage_says_by_what() {
        let blocked = BlockedShares { output: 0.2, order: 0.6, ..BlockedShares::default() };
        let rates = StageRates { busy: 0.3, blocked, ..StageRates::default() };
        let now = StageNow::of(&stage(StageKind::Operator, rates)).expect("rates");
        assert_eq!((now.blocked, now.blocked_by.as_deref()), (0.6, Some("order")));
        assert!((now.idle - 0.1).abs() < 1e-9);
        let idle = StageNow::of(&stage(StageKind::Operator, StageRates::default()));
        assert_eq!(idle.expect("rates").blocked_by, None);
    }
}
