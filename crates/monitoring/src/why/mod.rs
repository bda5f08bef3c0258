//! Which input holds the results of a job back, since when, why, and what would happen without it.
//!
//! A function of a reading alone; no job is touched. `path` finds what holds results back: from a
//! sink it goes to the input whose watermark is the least, and on to a split, or to a stage that
//! does not keep up. `reason` finds out why. `text` writes it down for people.
//!
//! **Invariant:** the holder is an argument of the minimum: no other split that counts gets less
//! watermark to the sink, unless a stage on the way has its own work outstanding.
//!
//! What it does not do: it knows event time only by watermarks. It does not say which windows are
//! open or how many rows they have.

mod next;
mod path;
mod reason;
mod text;

use serde::{Deserialize, Serialize};

pub use next::NextResult;
pub use path::Holder;
pub use reason::Reason;

use crate::reading::JobReading;

/// A watermark that moved this long ago moves: the least that is waited for before anybody says
/// that it stands still.
pub const STANDS_AFTER_MS: i64 = 5_000;

/// Why the results of a sink are where they are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Why {
    /// The job.
    pub job: String,
    /// Of which moment this is true.
    pub at_ms: i64,
    /// The sink.
    pub sink: String,
    /// Whether its watermark moves.
    pub verdict: Verdict,
    /// Up to which time its inputs are complete.
    pub watermark: Option<i64>,
    /// Since when that has not moved.
    pub since_ms: Option<i64>,
    /// What holds it back.
    pub holder: Holder,
    /// The places of the stages from the sink to the holder.
    pub path: Vec<usize>,
    /// How much is held back by design on this way, by stages with their names.
    pub by_design: Vec<(String, i64)>,
    /// The first reason that fits.
    pub reason: Reason,
    /// Splits of the holder's source, the holder first, then by watermark.
    pub evidence: Vec<Evidence>,
    /// What would happen without the holder.
    pub without: Option<Without>,
    /// The next result by event time.
    pub next: Option<NextResult>,
    /// What a person can do.
    pub advice: Option<String>,
    /// The whole as one sentence.
    pub sentence: String,
    /// The names of the stages of `path`.
    pub path_names: Vec<String>,
}

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

/// What would happen without the holder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Without {
    /// Where the watermark would be; `None` if nothing else would hold it.
    pub watermark: Option<i64>,
    /// How much further that is.
    pub gain_ms: Option<i64>,
    /// How many window ends lie between.
    pub windows: u64,
}

/// The sink whose watermark is the least, and why it is there. `None` for a job without sinks.
pub fn why(reading: &JobReading) -> Option<Why> {
    let levels = path::Levels::of(reading);
    let sink = reading.sinks().min_by_key(|&sink| (levels.at(sink), sink))?;
    Some(why_sink(reading, sink))
}

/// Why the results of the sink at this place are where they are.
pub fn why_sink(reading: &JobReading, sink: usize) -> Why {
    let found = path::find(reading, sink);
    let (reason, verdict) = reason::find(reading, &found);
    let without = next::without(reading, sink, &found);
    let next = next::next_result(reading, &found);
    let mut why = Why {
        job: reading.job.clone(),
        at_ms: reading.at_ms,
        sink: reading.stages[sink].name.clone(),
        verdict,
        watermark: found.watermark,
        since_ms: found.since_ms,
        by_design: path::by_design(reading, &found),
        evidence: reason::evidence(reading, &found.holder),
        without,
        next,
        advice: reason::advice(reading, &found.holder, &reason),
        path_names: found.path.iter().map(|&stage| reading.stages[stage].name.clone()).collect(),
        path: found.path,
        holder: found.holder,
        reason,
        sentence: String::new(),
    };
    why.sentence = text::sentence(&why);
    why
}

impl Why {
    /// For how long the watermark has not moved.
    pub fn standing_ms(&self) -> Option<i64> {
        self.since_ms.map(|since_ms| (self.at_ms - since_ms).max(0))
    }

    /// All of it for a terminal.
    pub fn text(&self) -> String {
        text::whole(self)
    }
}
