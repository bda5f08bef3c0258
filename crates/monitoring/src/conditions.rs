//! What is wrong with a job at a moment: conditions next to its state, each with a sentence and the
//! moment since which it has held.
//!
//! Each reading is compared with a window of earlier totals. [`Conditions`] keeps that window and
//! since when each condition holds; which conditions hold is a function of both.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use crate::numbers::{bytes, count, percent, plural, rate, span};
use crate::reading::{JobReading, StageKind, StageReading};
use crate::why::{Reason, Verdict, Why, why};

/// How far back totals are compared.
const WINDOW_MS: i64 = 600_000;
/// How often totals are kept for that.
const WINDOW_STEP_MS: i64 = 10_000;
/// A watermark that stands for so long, while rows are there, is held.
const HELD_AFTER_MS: i64 = 10_000;
/// A source that is blocked for this share of the time is blocked.
const BLOCKED_SHARE: f64 = 0.8;
/// Above this share of the rows that a stage judges, many are late.
const LATE_SHARE: f64 = 0.01;
/// State above this share of the limit is near it.
const NEAR_LIMIT_SHARE: f64 = 0.9;
/// A partition with this many times the work of the average one, that is busy most of the time.
const SKEW: f64 = 4.0;
const SKEWED_SHARE: f64 = 0.5;
/// More restarts than this within [`FLAPPING_MS`] are too many.
const FLAPPING_RESTARTS: u64 = 3;
const FLAPPING_MS: i64 = 900_000;

/// What can be wrong with a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ConditionKind {
    /// The watermark of an output stands still while rows are there.
    Held,
    /// There is more to read, and it grows.
    Behind,
    /// A sink or a stage slows its sources down.
    Blocked,
    /// Many rows are late.
    Late,
    /// Rows cannot be read.
    BadData,
    /// Snapshots fail, or none was kept for long.
    SnapshotsFailing,
    /// State is near the memory limit, at which the job fails.
    NearMemoryLimit,
    /// One partition has most of the work of a stage.
    Skewed,
    /// The job was started again often.
    Flapping,
}

impl ConditionKind {
    /// All of them.
    pub const ALL: [ConditionKind; 9] = [
        ConditionKind::Held,
        ConditionKind::Behind,
        ConditionKind::Blocked,
        ConditionKind::Late,
        ConditionKind::BadData,
        ConditionKind::SnapshotsFailing,
        ConditionKind::NearMemoryLimit,
        ConditionKind::Skewed,
        ConditionKind::Flapping,
    ];
    /// Its name in metrics and JSON.
    pub fn name(self) -> &'static str {
        match self {
            ConditionKind::Held => "held",
            ConditionKind::Behind => "behind",
            ConditionKind::Blocked => "blocked",
            ConditionKind::Late => "late",
            ConditionKind::BadData => "bad-data",
            ConditionKind::SnapshotsFailing => "snapshots-failing",
            ConditionKind::NearMemoryLimit => "near-memory-limit",
            ConditionKind::Skewed => "skewed",
            ConditionKind::Flapping => "flapping",
        }
    }
}

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Condition {
    /// What.
    pub kind: ConditionKind,
    /// Since when.
    pub since_ms: i64,
    /// In a sentence.
    pub text: String,
}

/// Totals at a moment, as far as conditions compare them.
#[derive(Clone, Debug)]
struct Totals {
    at_ms: i64,
    bad_rows: u64,
    restarts: u64,
    /// By stage: late rows, and all that were judged.
    late: Vec<(u64, u64)>,
    /// By stage: what is there to read.
    lag_rows: Vec<Option<u64>>,
}

/// What is wrong with a job, reading after reading.
#[derive(Clone, Debug, Default)]
pub struct Conditions {
    /// Oldest first.
    window: VecDeque<Totals>,
    since_ms: BTreeMap<ConditionKind, i64>,
}

impl Conditions {
    /// Nothing is known yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// What is wrong now. Readings come in the order of their moments.
    pub fn update(&mut self, reading: &JobReading) -> Vec<Condition> {
        let answer = why(reading);
        let now = Totals::of(reading);
        let found = find(reading, answer.as_ref(), &now, &self.window);
        self.keep(now);
        self.since_ms.retain(|kind, _| found.iter().any(|(of, ..)| of == kind));
        let dated = found.into_iter().map(|(kind, since_ms, text)| {
            let first_ms = *self.since_ms.entry(kind).or_insert(reading.at_ms);
            Condition { kind, since_ms: since_ms.unwrap_or(first_ms), text }
        });
        dated.collect()
    }

    fn keep(&mut self, now: Totals) {
        let oldest_ms = now.at_ms - FLAPPING_MS.max(WINDOW_MS);
        self.window.retain(|totals| totals.at_ms >= oldest_ms);
        // Another run counts from zero.
        if self.window.back().is_some_and(|last| last.late.len() != now.late.len()) {
            self.window.clear();
        }
        if self.window.back().is_none_or(|last| now.at_ms - last.at_ms >= WINDOW_STEP_MS) {
            self.window.push_back(now);
        }
    }
}

impl Totals {
    fn of(reading: &JobReading) -> Totals {
        let counters = || reading.stages.iter().map(|stage| &stage.counters);
        let lag_rows = |stage: &StageReading| stage.source.as_ref()?.lag_rows();
        Totals {
            at_ms: reading.at_ms,
            bad_rows: counters().map(|of| of.bad_rows).sum(),
            restarts: reading.restarts.values().sum(),
            late: counters().map(|of| (of.late, of.late + of.accepted)).collect(),
            lag_rows: reading.stages.iter().map(lag_rows).collect(),
        }
    }
}

/// What is wrong, with since when where the reading says so.
type Found = (ConditionKind, Option<i64>, String);

fn find(
    reading: &JobReading,
    why: Option<&Why>,
    now: &Totals,
    window: &VecDeque<Totals>,
) -> Vec<Found> {
    let before = window.iter().find(|totals| now.at_ms - totals.at_ms <= WINDOW_MS);
    let found = [
        why.and_then(|why| held(reading, why)),
        before.and_then(|before| behind(reading, before, now)),
        why.and_then(|why| blocked(reading, why)),
        before.and_then(|before| late(reading, before, now)),
        before.and_then(|before| bad_data(before, now)),
        snapshots_failing(reading),
        near_memory_limit(reading),
        skewed(reading),
        flapping(now, window),
    ];
    found.into_iter().flatten().collect()
}

/// The watermark stands still, and rows have come since, or are there to be read.
fn held(reading: &JobReading, why: &Why) -> Option<Found> {
    let standing_ms = why.standing_ms()?;
    if why.verdict != Verdict::StandingStill || standing_ms < HELD_AFTER_MS {
        return None;
    }
    let since_ms = why.since_ms?;
    let has_rows = |stage: &StageReading| {
        let source = stage.source.as_ref();
        let given = source.is_some_and(|source| {
            source.splits.iter().any(|split| split.last_row_at_ms > Some(since_ms))
        });
        given || stage.queued >= 1.0 || source.and_then(|source| source.lag_rows()) > Some(0)
    };
    let is_felt = reading.stages.iter().any(has_rows);
    is_felt.then(|| (ConditionKind::Held, Some(since_ms), why.sentence.clone()))
}

/// There is more to read than some minutes ago.
fn behind(reading: &JobReading, before: &Totals, now: &Totals) -> Option<Found> {
    let minutes = (now.at_ms - before.at_ms) as f64 / 60_000.0;
    if minutes < 1.0 {
        return None;
    }
    let lags = before.lag_rows.iter().zip(&now.lag_rows).zip(&reading.stages);
    let grown = lags.filter_map(|((before, now), stage)| {
        let grown = now.as_ref()?.saturating_sub((*before)?);
        let rows_per_s = stage.recent.map_or(0.0, |recent| recent.rows_in);
        let is_much = grown as f64 > rows_per_s.max(100.0);
        is_much.then_some((grown, now.unwrap_or(0), stage))
    });
    let (grown, lag, stage) = grown.max_by_key(|(grown, ..)| *grown)?;
    let text = format!(
        "{} is {} behind, {} more than {} ago",
        stage.name,
        plural(lag, "row"),
        count(grown),
        span(now.at_ms - before.at_ms)
    );
    Some((ConditionKind::Behind, None, text))
}

/// Sources wait for room most of the time.
fn blocked(reading: &JobReading, why: &Why) -> Option<Found> {
    let is_blocked = |stage: &&StageReading| {
        let recent = stage.recent.unwrap_or_default();
        stage.kind == StageKind::Source && recent.blocked.output > BLOCKED_SHARE
    };
    let source = reading.stages.iter().find(is_blocked)?;
    let share = source.recent.unwrap_or_default().blocked.output;
    let by = match &why.reason {
        Reason::SlowSink { .. } | Reason::SlowStage { .. } | Reason::WaitsForAnswer { .. } => {
            format!(" by {}", why.holder.label())
        }
        _ => String::new(),
    };
    let text = format!("{} is blocked{by} {} of the time", source.name, percent(share));
    Some((ConditionKind::Blocked, None, text))
}

fn late(reading: &JobReading, before: &Totals, now: &Totals) -> Option<Found> {
    let stages = before.late.iter().zip(&now.late).zip(&reading.stages);
    let shares = stages.filter_map(|((before, now), stage)| {
        let late = now.0.saturating_sub(before.0);
        let judged = now.1.saturating_sub(before.1).max(1);
        let share = late as f64 / judged as f64;
        (share > LATE_SHARE).then_some((late, share, stage))
    });
    let (late, share, stage) = shares.max_by(|(_, a, _), (_, b, _)| a.total_cmp(b))?;
    let text =
        format!("{} at {} ({:.1} % of them)", plural(late, "late row"), stage.name, share * 100.0);
    Some((ConditionKind::Late, None, text))
}

fn bad_data(before: &Totals, now: &Totals) -> Option<Found> {
    let bad = now.bad_rows.saturating_sub(before.bad_rows);
    let time = span(now.at_ms - before.at_ms);
    (bad > 0).then(|| {
        let text = format!("{} could not be read in the last {time}", plural(bad, "row"));
        (ConditionKind::BadData, None, text)
    })
}

fn snapshots_failing(reading: &JobReading) -> Option<Found> {
    let problem = reading.snapshots.as_ref()?.problem.clone()?;
    Some((ConditionKind::SnapshotsFailing, None, problem))
}

fn near_memory_limit(reading: &JobReading) -> Option<Found> {
    let memory = &reading.memory;
    let kept_bytes = memory.state_bytes + memory.buffer_bytes;
    let share = kept_bytes as f64 / memory.limit_bytes.max(1) as f64;
    (share > NEAR_LIMIT_SHARE && memory.limit_bytes > 0).then(|| {
        let (kept, limit) = (bytes(kept_bytes), bytes(memory.limit_bytes));
        let text =
            format!("state takes {kept} of {limit} ({}), and the job fails there", percent(share));
        (ConditionKind::NearMemoryLimit, None, text)
    })
}

fn skewed(reading: &JobReading) -> Option<Found> {
    let skewed = reading.stages.iter().filter_map(|stage| {
        let recent = stage.recent?;
        let is_skewed = recent.skew > SKEW && recent.busiest_partition > SKEWED_SHARE;
        is_skewed.then_some((recent, stage))
    });
    let (recent, stage) = skewed.max_by(|(a, _), (b, _)| a.skew.total_cmp(&b.skew))?;
    let text = format!(
        "one partition of {} has {} times the work of the average one",
        stage.name,
        rate(recent.skew)
    );
    Some((ConditionKind::Skewed, None, text))
}

fn flapping(now: &Totals, window: &VecDeque<Totals>) -> Option<Found> {
    let before = window.iter().find(|totals| now.at_ms - totals.at_ms <= FLAPPING_MS)?;
    let restarts = now.restarts.saturating_sub(before.restarts);
    (restarts > FLAPPING_RESTARTS).then(|| {
        let time = span(now.at_ms - before.at_ms);
        let text = format!("started again {} in {time}", plural(restarts, "time"));
        (ConditionKind::Flapping, None, text)
    })
}
