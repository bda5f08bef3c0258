//! The answer: what `why` gives.

use serde::{Deserialize, Serialize};

use super::next::{NextResult, Without};
use super::path::Holder;
use super::reason::{Evidence, Reason, Verdict};

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

impl Why {
    /// For how long the watermark has not moved.
    pub fn standing_ms(&self) -> Option<i64> {
        self.since_ms.map(|since_ms| (self.at_ms - since_ms).max(0))
    }
}
