//! Jobs and their stages as lines of a table.

use crate::conditions::Condition;
use crate::numbers::{bytes, percent, short_rate, span};
use crate::reading::{JobReading, StageKind, StageReading};

/// The columns of jobs.
const JOB_COLUMNS: [&str; 10] =
    ["JOB", "STATE", "IN/s", "OUT/s", "LAG", "LATE/m", "KEPT", "BUSY", "SNAPSHOT", "CONDITION"];
/// The columns of stages.
const STAGE_COLUMNS: [&str; 9] =
    ["STAGE", "KIND", "IN/s", "QUEUE", "BUSY", "BLOCKED", "IDLE", "WATERMARK", "STATE"];

/// One line for each job, below headings.
pub fn jobs<'a>(jobs: impl Iterator<Item = (&'a JobReading, &'a [Condition])>) -> String {
    let mut rows = vec![JOB_COLUMNS.map(str::to_owned).to_vec()];
    rows.extend(jobs.map(|(reading, conditions)| job_cells(reading, conditions)));
    aligned(&rows)
}

fn job_cells(reading: &JobReading, conditions: &[Condition]) -> Vec<String> {
    let in_rate = reading.total_rate(StageKind::Source, |rates| rates.rows_in);
    let out_rate = reading.total_rate(StageKind::Sink, |rates| rates.rows_out);
    let late = reading.total_rate(StageKind::Operator, |rates| rates.late);
    let busy = reading.stages.iter().filter(|stage| stage.kind != StageKind::Sink);
    let busy = busy.map(|stage| stage.recent.unwrap_or_default().busy * stage.parallelism as f64);
    let sinks = reading.sinks().filter_map(|sink| reading.stages[sink].watermark);
    let snapshot = reading.snapshots.as_ref().and_then(|of| of.number.zip(of.taken_at_ms));
    vec![
        reading.job.clone(),
        reading.state.clone(),
        short_rate(in_rate),
        short_rate(out_rate),
        sinks.min().map_or_else(dash, |watermark| span(reading.at_ms - watermark)),
        short_rate(late * 60.0),
        bytes(reading.memory.state_bytes + reading.memory.buffer_bytes),
        percent(busy.sum::<f64>() / reading.workers.max(1) as f64),
        snapshot.map_or_else(dash, |(number, at_ms)| {
            format!("{number}, {}", span(reading.at_ms - at_ms))
        }),
        conditions.first().map_or_else(dash, |condition| condition.text.clone()),
    ]
}

/// One line for each stage of a job, below headings.
pub fn stages(reading: &JobReading) -> String {
    let mut rows = vec![STAGE_COLUMNS.map(str::to_owned).to_vec()];
    rows.extend(reading.stages.iter().map(stage_cells));
    aligned(&rows)
}

fn stage_cells(stage: &StageReading) -> Vec<String> {
    let recent = stage.recent.unwrap_or_default();
    let watermark = match (stage.has_ended, stage.watermark) {
        (true, _) => "end".to_owned(),
        (_, Some(watermark)) => thalweg_core::Watermark(watermark).to_string(),
        (_, None) => dash(),
    };
    let kind = match stage.kind {
        StageKind::Source => "source",
        StageKind::Transform => "stateless",
        StageKind::Operator => "stateful",
        StageKind::Sink => "sink",
    };
    vec![
        stage.name.clone(),
        kind.to_owned(),
        short_rate(recent.rows_in),
        format!("{:.0}", stage.queued),
        percent(recent.busy),
        percent(recent.blocked_share()),
        percent(recent.idle()),
        watermark,
        bytes(stage.state_bytes),
    ]
}

fn dash() -> String {
    "–".to_owned()
}

/// The cells below one another, text to the left.
fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width =
        |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}
