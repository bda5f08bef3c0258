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

mod answer;
mod next;
mod path;
mod reason;
mod text;
mod watermarks;

pub use answer::Why;
pub use next::{NextResult, Without};
pub use path::Holder;
pub use reason::{Evidence, Reason, STANDS_AFTER_MS, Verdict};
pub use watermarks::{InputWatermark, SplitWatermark, StageWatermark, Watermarks, watermarks};

use crate::reading::JobReading;

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
    /// All of it for a terminal.
    pub fn text(&self) -> String {
        text::whole(self)
    }
}
