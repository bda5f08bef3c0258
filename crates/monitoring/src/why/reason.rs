//! Why the holder holds: the first reason that fits.

use serde::{Deserialize, Serialize};

use super::path::{self, BUSY, Found, Holder};
use crate::reading::{JobReading, SourceReading, SplitReading, StageKind, StageReading};

/// A watermark that moved this long ago moves: the least that is waited for before anybody says
/// that it stands still.
pub const STANDS_AFTER_MS: i64 = 5_000;
/// Event time that passes more slowly than this share of real time is a slow clock.
const SLOW_PACE: f64 = 0.9;
/// A split with fewer rows to read than it reads in this time is not behind.
const SMALL_LAG_S: f64 = 10.0;
/// How many splits are shown.
const EVIDENCE_MAX: usize = 8;

/// Whether a watermark moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It moves.
    Flowing,
    /// It moves, and there is more to read than is read.
    Behind,
    /// It stands still.
    StandingStill,
    /// All input has ended.
    Ended,
}

/// What is known of a split that is compared with others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// Its name.
    pub split: String,
    /// Its watermark.
    pub watermark: Option<i64>,
    /// When rows came last.
    pub last_row_at_ms: Option<i64>,
    /// Rows a second, where a reading before it is known.
    pub rows_per_s: Option<f64>,
    /// Rows that are there and were not read.
    pub lag_rows: Option<u64>,
    /// What is special about it.
    pub note: String,
}

/// Why the holder holds results back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Reason {
    /// It does not: the watermark moves.
    Flowing,
    /// All input has ended.
    AllEnded,
    /// The job has failed and is about to be started again.
    Failing {
        /// Why it failed.
        message: String,
        /// Which try comes.
        attempt: u64,
        /// When.
        next_at_ms: i64,
    },
    /// Sources are not asked.
    Paused {
        /// By whom, or why.
        by: String,
    },
    /// A snapshot is being taken.
    Cut {
        /// Since when.
        since_ms: i64,
        /// The stages that it has not come by.
        missing: Vec<String>,
    },
    /// The connection is being made again, or something outside fails and is tried again.
    Reconnecting {
        /// What goes wrong.
        message: String,
    },
    /// Another input comes first.
    WaitsForInput {
        /// Which.
        input: String,
        /// In which way: `reads first`, `alignment`.
        how: String,
    },
    /// A lookup has no answer.
    WaitsForAnswer {
        /// How many have none.
        unanswered: usize,
        /// How old the oldest is.
        oldest_ms: i64,
    },
    /// A stage has more work than it gets done.
    SlowStage {
        /// The share of the time in which it is busy.
        busy: f64,
        /// Bundles that wait.
        queued: f64,
    },
    /// A sink takes rows more slowly than they come.
    SlowSink {
        /// The share of the time in which it is busy.
        busy: f64,
        /// For how long it is in one call.
        in_call_ms: i64,
        /// What it reports.
        problem: Option<String>,
    },
    /// A stage gives results when its input has ended, and it has not.
    AtEnd,
    /// The source is not asked for rows, and no stage is seen to be the cause.
    NotAsked,
    /// There is more to read than is read.
    FarBehind {
        /// Rows that are there and were not read.
        lag_rows: u64,
        /// Rows read a second.
        rows_per_s: f64,
        /// By how many rows that grows a second.
        lag_per_s: f64,
    },
    /// Times lie too far in the future: the clock of a device.
    FutureRows {
        /// Rows a second that are left out.
        rows_per_s: f64,
    },
    /// Rows come, and their times hardly advance.
    SlowClock {
        /// Seconds of event time in a second.
        pace: f64,
    },
    /// Nothing has come yet.
    NoRowYet,
    /// Other inputs have ended; this one does not end by itself.
    OthersEnded,
    /// Nothing comes, and nothing is there to read.
    Silent {
        /// Since when.
        since_ms: Option<i64>,
        /// All that is there is read, as far as the connector can say.
        is_caught_up: bool,
    },
}

/// The first reason that fits, and whether results move.
pub(super) fn find(reading: &JobReading, found: &Found) -> (Reason, Verdict) {
    let stage = &reading.stages[found.holder.stage];
    let is_moving = is_moving(reading, found, stage);
    if let Some(reason) = of_job(reading, is_moving) {
        return (reason, Verdict::StandingStill);
    }
    let Some(source) = &stage.source else { return of_stage(reading, stage, is_moving) };
    if source.has_ended {
        return (Reason::AllEnded, Verdict::Ended);
    }
    let split = found.holder.split.as_ref().and_then(|(place, _)| source.splits.get(*place));
    let behind = split.and_then(far_behind);
    match (is_moving, behind) {
        (true, Some(behind)) => (behind, Verdict::Behind),
        (true, None) => (Reason::Flowing, Verdict::Flowing),
        (false, behind) => {
            (standing_reason(reading, stage, (source, split), behind), Verdict::StandingStill)
        }
    }
}

/// True if the watermark has moved as it usually does.
fn is_moving(reading: &JobReading, found: &Found, stage: &StageReading) -> bool {
    let patience_ms = stage.mean_step_ms.unwrap_or(0).saturating_mul(2).max(STANDS_AFTER_MS);
    let has_time = found.watermark.is_some() || stage.watermark.is_some();
    let since_ms = match &stage.source {
        // Without event time rows are what moves.
        Some(source) if !source.has_time => {
            source.splits.iter().filter_map(|split| split.last_row_at_ms).max()
        }
        _ => found.since_ms.filter(|_| has_time),
    };
    since_ms.is_some_and(|since_ms| reading.at_ms - since_ms <= patience_ms)
}

/// What concerns the job as a whole.
fn of_job(reading: &JobReading, is_moving: bool) -> Option<Reason> {
    if let Some(restart) = &reading.restarting {
        let (message, attempt) = (restart.cause.clone(), restart.attempt);
        return Some(Reason::Failing { message, attempt, next_at_ms: restart.next_at_ms });
    }
    if let Some(by) = &reading.paused_by {
        return Some(Reason::Paused { by: by.clone() });
    }
    let cut = reading.cut.as_ref().filter(|_| path::is_cutting(reading) && !is_moving)?;
    let missing = cut.missing.iter().filter_map(|&stage| reading.stages.get(stage));
    let missing = missing.map(|stage| stage.name.clone()).collect();
    Some(Reason::Cut { since_ms: cut.since_ms, missing })
}

/// Why a stage that is no source holds.
fn of_stage(reading: &JobReading, stage: &StageReading, is_moving: bool) -> (Reason, Verdict) {
    if stage.has_ended {
        return (Reason::AllEnded, Verdict::Ended);
    }
    let busy = stage.recent.map_or(0.0, |recent| recent.busy);
    let verdict = if is_moving { Verdict::Behind } else { Verdict::StandingStill };
    let reason = if path::waits_for_answer(reading, stage) {
        let since_ms = stage.unanswered_since_ms.unwrap_or(reading.at_ms);
        Reason::WaitsForAnswer { unanswered: stage.unanswered, oldest_ms: reading.at_ms - since_ms }
    } else if stage.kind == StageKind::Sink {
        let (in_call_ms, problem) = (stage.in_call_ms, stage.problem.clone());
        Reason::SlowSink { busy, in_call_ms, problem }
    } else if stage.passes_at_end && busy <= BUSY {
        Reason::AtEnd
    } else {
        Reason::SlowStage { busy, queued: stage.queued }
    };
    (reason, verdict)
}

/// Why a source whose watermark stands still does not move it.
fn standing_reason(
    reading: &JobReading,
    stage: &StageReading,
    (source, split): (&SourceReading, Option<&SplitReading>),
    behind: Option<Reason>,
) -> Reason {
    let trouble =
        split.and_then(|split| split.last_error.clone()).or_else(|| stage.problem.clone());
    if let Some(message) = trouble {
        return Reason::Reconnecting { message };
    }
    if let Some(input) = waits_for(reading, stage, source, split) {
        return input;
    }
    if path::is_not_asked(reading, stage) {
        return Reason::NotAsked;
    }
    let recent = split.and_then(|split| split.recent).unwrap_or_default();
    if let Some(behind) = behind {
        return behind;
    }
    if let Some(rates) = stage.recent.filter(|recent| recent.quarantined > 0.0) {
        return Reason::FutureRows { rows_per_s: rates.quarantined };
    }
    if recent.rows > 0.0 && recent.pace < SLOW_PACE {
        return Reason::SlowClock { pace: recent.pace };
    }
    let Some(split) = split.filter(|split| split.last_row_at_ms.is_some()) else {
        return Reason::NoRowYet;
    };
    if others_have_ended(reading, stage) && !source.is_bounded {
        return Reason::OthersEnded;
    }
    Reason::Silent { since_ms: split.last_row_at_ms, is_caught_up: split.is_caught_up }
}

/// The input that comes before this one.
fn waits_for(
    reading: &JobReading,
    stage: &StageReading,
    source: &SourceReading,
    split: Option<&SplitReading>,
) -> Option<Reason> {
    if let Some(opener) = stage.waits_for.and_then(|input| reading.stages.get(input)) {
        return Some(Reason::WaitsForInput {
            input: opener.name.clone(),
            how: "reads first".to_owned(),
        });
    }
    let is_held = source.is_held || split.is_some_and(|split| split.is_paused);
    is_held.then(|| {
        let others = reading.stages.iter().filter(|other| {
            other.name != stage.name
                && other.source.as_ref().is_some_and(|of| !of.has_ended && !of.is_idle)
        });
        let slowest = others.min_by_key(|other| other.watermark.unwrap_or(i64::MAX));
        let input = slowest.map_or("its alignment group", |other| other.name.as_str());
        Reason::WaitsForInput { input: input.to_owned(), how: "alignment".to_owned() }
    })
}

/// True if there are other sources, and all of them have ended.
fn others_have_ended(reading: &JobReading, stage: &StageReading) -> bool {
    let others = reading.stages.iter().filter(|other| other.id != stage.id);
    let mut others = others.filter_map(|other| other.source.as_ref()).peekable();
    others.peek().is_some() && others.all(|source| source.has_ended)
}

/// A split with more rows to read than it reads in a moment.
fn far_behind(split: &SplitReading) -> Option<Reason> {
    let lag_rows = split.lag_rows.filter(|&lag| lag > 0)?;
    let recent = split.recent.unwrap_or_default();
    let is_small = (lag_rows as f64) < recent.rows * SMALL_LAG_S && recent.lag <= recent.rows * 0.1;
    (!is_small).then_some(Reason::FarBehind {
        lag_rows,
        rows_per_s: recent.rows,
        lag_per_s: recent.lag,
    })
}

/// The splits of the holder's source, the holder first, then by watermark.
pub(super) fn evidence(reading: &JobReading, holder: &Holder) -> Vec<Evidence> {
    let stage = &reading.stages[holder.stage];
    let Some(source) = &stage.source else { return Vec::new() };
    let holding = holder.split.as_ref().map(|(place, _)| *place);
    let mut splits: Vec<(usize, &SplitReading)> = source.splits.iter().enumerate().collect();
    splits.sort_by_key(|(place, split)| (Some(*place) != holding, split.watermark));
    let shown = splits.into_iter().take(EVIDENCE_MAX).map(|(place, split)| Evidence {
        split: if split.name.is_empty() { stage.name.clone() } else { split.name.clone() },
        watermark: split.watermark,
        last_row_at_ms: split.last_row_at_ms,
        rows_per_s: split.recent.map(|recent| recent.rows),
        lag_rows: split.lag_rows,
        note: match split {
            _ if Some(place) == holding => "holds",
            SplitReading { has_ended: true, .. } => "ended",
            SplitReading { is_idle: true, .. } => "idle",
            SplitReading { is_paused: true, .. } => "paused",
            _ => "",
        }
        .to_owned(),
    });
    shown.collect()
}

/// What a person can do about it.
pub(super) fn advice(reading: &JobReading, holder: &Holder, reason: &Reason) -> Option<String> {
    let stage = &reading.stages[holder.stage];
    let advice = match reason {
        Reason::Silent { .. } | Reason::NoRowYet | Reason::OthersEnded => {
            return Some(advice_on_silence(reading, stage));
        }
        Reason::SlowClock { .. } => {
            "the times of its rows hardly advance: look at how the producer sets them"
        }
        Reason::FarBehind { lag_per_s, .. } if *lag_per_s > 0.0 => {
            "rows come faster than they are read: give the job more workers, or split the input"
        }
        Reason::FarBehind { .. } => "wait: it is catching up",
        Reason::SlowSink { problem: Some(_), .. } | Reason::Reconnecting { .. } => {
            "look at the other side: what it answers is in the message"
        }
        Reason::SlowSink { .. } => {
            "the target takes rows more slowly than they come: give it more room, or write less often"
        }
        Reason::SlowStage { .. } => {
            "this stage has more work than it gets done: more workers, fewer keys or shorter windows help"
        }
        Reason::FutureRows { .. } => {
            "the clock of a device is wrong: its rows are left out ('watermark.max-future-skew')"
        }
        Reason::AtEnd => {
            "its results come when its input ends: bound the input, or use windows over time"
        }
        Reason::WaitsForAnswer { .. } => "look at the table that is asked, and at its time-out",
        Reason::Failing { .. }
        | Reason::Paused { .. }
        | Reason::Cut { .. }
        | Reason::WaitsForInput { .. }
        | Reason::NotAsked
        | Reason::Flowing
        | Reason::AllEnded => return None,
    };
    Some(advice.to_owned())
}

fn advice_on_silence(reading: &JobReading, stage: &StageReading) -> String {
    let timeout_ms = stage.source.as_ref().and_then(|source| source.idle_timeout_ms);
    match timeout_ms {
        Some(timeout_ms) => format!(
            "it falls idle after {} of silence, if it has read all that is there",
            crate::numbers::span(timeout_ms)
        ),
        None if reading.may_use_clock => {
            "send heartbeats, or let quiet inputs fall idle: SET 'watermark.idle-timeout' = '30 s';"
                .to_owned()
        }
        None => format!(
            "idle timeout is off (contract {}): send heartbeats, or allow it by\n\
             SET 'pipeline.order.allow-nondeterministic' = 'true'; SET 'watermark.idle-timeout' = '30 s';",
            reading.order
        ),
    }
}
