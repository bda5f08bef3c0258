//! The watermarks of a job: of each stage, of its inputs, and of the splits of sources, with what
//! each of them holds back and how far the others are ahead of it.
//!
//! A function of a reading alone, with the levels by which `why` finds what holds results back. So
//! both name the same holder.

use serde::{Deserialize, Serialize};

use super::path::{self, Holder, Levels};
use crate::reading::{JobReading, SplitReading, StageKind, StageReading};

/// The watermarks of a job at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Watermarks {
    /// Of which moment they are.
    pub at_ms: i64,
    /// Of each stage, each behind those that it takes from.
    pub stages: Vec<StageWatermark>,
}

/// The watermark of a stage.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StageWatermark {
    /// Its identifier.
    pub id: String,
    /// What it is called.
    pub name: String,
    /// What it is.
    pub kind: StageKind,
    /// The event time up to which its input is complete.
    pub watermark_ms: Option<i64>,
    /// When that moved last.
    pub moved_at_ms: Option<i64>,
    /// Its input has ended.
    pub has_ended: bool,
    /// What holds it back.
    pub held_by: Holder,
    /// Of a stage that takes from others: one for each input.
    pub inputs: Vec<InputWatermark>,
    /// Of a source.
    pub splits: Vec<SplitWatermark>,
}

/// What an input of a stage has come to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct InputWatermark {
    /// The identifier of the stage that it comes from.
    pub stage: String,
    /// What that is called.
    pub name: String,
    /// The watermark that it would pass on if all rows that are read were done.
    pub watermark_ms: Option<i64>,
    /// Nobody waits for it.
    pub is_idle: bool,
    /// It has ended.
    pub has_ended: bool,
    /// The stage waits for it.
    pub holds: bool,
    /// How far it is ahead of the input that the stage waits for.
    pub lead_ms: Option<i64>,
}

/// The watermark of a split.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SplitWatermark {
    /// Its name; empty for that of a source that opens none.
    pub name: String,
    /// No row of it to come is at or before this time.
    pub watermark_ms: Option<i64>,
    /// The latest event time of the rows that came last.
    pub last_row_time_ms: Option<i64>,
    /// When rows came last.
    pub last_row_at_ms: Option<i64>,
    /// Nobody waits for it.
    pub is_idle: bool,
    /// Since when.
    pub idle_since_ms: Option<i64>,
    /// It has no more rows.
    pub has_ended: bool,
    /// The source waits for it.
    pub holds: bool,
    /// How far it is ahead of the split that the source waits for.
    pub lead_ms: Option<i64>,
}

/// The watermarks of a job.
pub fn watermarks(reading: &JobReading) -> Watermarks {
    let levels = Levels::of(reading);
    let stages = reading.stages.iter().enumerate();
    let stages = stages.map(|(place, stage)| StageWatermark {
        id: stage.id.clone(),
        name: stage.name.clone(),
        kind: stage.kind,
        watermark_ms: stage.watermark,
        moved_at_ms: stage.watermark_at_ms,
        has_ended: stage.has_ended,
        held_by: path::find(reading, place).holder,
        inputs: inputs(reading, &levels, stage),
        splits: splits(stage),
    });
    Watermarks { at_ms: reading.at_ms, stages: stages.collect() }
}

fn inputs(reading: &JobReading, levels: &Levels, stage: &StageReading) -> Vec<InputWatermark> {
    let holding = path::holding_input(reading, levels, stage);
    let held_at = holding.and_then(|input| levels.time(input));
    let of = |&input: &usize| {
        let (from, watermark_ms) = (&reading.stages[input], levels.time(input));
        InputWatermark {
            stage: from.id.clone(),
            name: from.name.clone(),
            watermark_ms,
            is_idle: path::is_idle(reading, input),
            has_ended: levels.has_ended(input),
            holds: holding == Some(input),
            lead_ms: lead(watermark_ms, held_at),
        }
    };
    stage.inputs.iter().map(of).collect()
}

fn splits(stage: &StageReading) -> Vec<SplitWatermark> {
    let Some(source) = &stage.source else { return Vec::new() };
    let holding = path::holding_split(source).map(|(place, _)| place);
    let held_at = holding.and_then(|place| source.splits[place].watermark);
    let of = |(place, split): (usize, &SplitReading)| SplitWatermark {
        name: split.name.clone(),
        watermark_ms: split.watermark,
        last_row_time_ms: split.last_row_time_ms,
        last_row_at_ms: split.last_row_at_ms,
        is_idle: split.is_idle,
        idle_since_ms: split.idle_since_ms,
        has_ended: split.has_ended,
        holds: holding == Some(place) && split.counts(),
        lead_ms: lead(split.watermark, held_at),
    };
    source.splits.iter().enumerate().map(of).collect()
}

/// How far a watermark is ahead of that which is waited for; nothing of one that is not known.
fn lead(watermark_ms: Option<i64>, held_at_ms: Option<i64>) -> Option<i64> {
    let (own, held) = watermark_ms.zip(held_at_ms)?;
    Some(own.saturating_sub(held))
}
