//! What comes next, and what would come without the holder.

use serde::{Deserialize, Serialize};

use super::path::{Found, Levels};
use crate::reading::{JobReading, StageReading};

/// The next window that closes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NextResult {
    /// The stage whose window it is.
    pub stage: String,
    /// Where the window ends; it closes when the watermark is at this less 1 ms.
    pub window_end_ms: i64,
    /// How long the steps between window ends are. The window may be longer.
    pub step_ms: i64,
    /// How long that takes at the present pace.
    pub in_ms: Option<i64>,
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

/// Operators with windows on the way from the sink to the holder, with their watermarks.
fn windows<'a>(
    reading: &'a JobReading,
    found: &'a Found,
    levels: &'a Levels,
) -> impl Iterator<Item = (&'a StageReading, i64)> {
    found.path.iter().filter_map(move |&place| {
        let stage = &reading.stages[place];
        let level = levels.time(place)?.saturating_add(stage.held_back_ms);
        (!stage.windows.is_empty()).then_some((stage, level))
    })
}

/// The window that closes next.
pub(super) fn next_result(reading: &JobReading, found: &Found) -> Option<NextResult> {
    let levels = Levels::of(reading);
    let ends = windows(reading, found, &levels).flat_map(|(stage, level)| {
        stage.windows.iter().map(move |grid| (grid.next_end(level), level, grid.period_ms, stage))
    });
    let (window_end_ms, level, step_ms, stage) = ends.min_by_key(|(end, ..)| *end)?;
    let pace = pace(reading, found).filter(|&pace| pace > 0.01);
    let left_ms = window_end_ms.saturating_sub(1).saturating_sub(level);
    Some(NextResult {
        stage: stage.name.clone(),
        window_end_ms,
        step_ms,
        in_ms: pace.map(|pace| (left_ms as f64 / pace) as i64),
    })
}

/// How many seconds of event time pass in a second.
pub(super) fn pace(reading: &JobReading, found: &Found) -> Option<f64> {
    let (split, _) = found.holder.split.as_ref()?;
    let source = reading.stages[found.holder.stage].source.as_ref()?;
    Some(source.splits.get(*split)?.recent?.pace)
}

/// Where the watermark of a sink would be without the holder, if that is a split.
pub(super) fn without(reading: &JobReading, sink: usize, found: &Found) -> Option<Without> {
    let (split, _) = found.holder.split.as_ref()?;
    let now = Levels::of(reading);
    let then = Levels::without(reading, Some((found.holder.stage, *split)));
    let (from, to) = (now.time(sink), then.time(sink));
    let closed = windows(reading, found, &now).flat_map(|(stage, level)| {
        let gain = to.zip(from).map_or(0, |(to, from)| to.saturating_sub(from));
        let until = level.saturating_add(gain);
        stage.windows.iter().map(move |grid| grid.closed_between(level, until))
    });
    let gain_ms = to.zip(from).map(|(to, from)| to.saturating_sub(from));
    Some(Without { watermark: to, gain_ms, windows: closed.sum() })
}
