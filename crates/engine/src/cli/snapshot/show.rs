//! `thalweg snapshot show`: the stages of a snapshot and the tables that they keep.

use thalweg_connectors::output::Format;
use thalweg_core::snapshot::{SinkGuarantee, SourceState, StageState};
use thalweg_core::text::format_timestamp_millis;
use thalweg_core::{Result, Watermark};
use thalweg_state::{SnapshotHeader, SnapshotStore, TableSummary};

use super::super::terminal::print;
use super::super::units;
use super::listing::{Cell, ColumnKind, Heading, print_rows};
use super::newest;

const SHOWN: [Heading; 8] = [
    ("operator", "operator", ColumnKind::Text),
    ("id", "id", ColumnKind::Text),
    ("watermark", "watermark", ColumnKind::Text),
    ("position", "position", ColumnKind::Text),
    ("table", "table", ColumnKind::Text),
    ("rows", "rows", ColumnKind::Number),
    ("size", "bytes", ColumnKind::Number),
    ("columns", "columns", ColumnKind::Text),
];

/// Prints a snapshot, the newest if none is named; returns the exit status.
///
/// # Errors
/// If there is no such snapshot, or its manifest cannot be read.
pub fn show(store: &SnapshotStore, number: Option<u64>, format: Format) -> Result<u8> {
    let number = number.map_or_else(|| newest(store), Ok)?;
    let details = store.describe(number)?;
    if format == Format::Table {
        print(&heading(&details.header))?;
    }
    let rows: Vec<Vec<Cell>> = details.stages.iter().flat_map(stage_rows).collect();
    print_rows(format, &SHOWN, &rows)?;
    Ok(0)
}

fn heading(header: &SnapshotHeader) -> String {
    let ended = if header.is_complete { ", input had ended" } else { "" };
    format!(
        "snapshot {} of job '{}' ({}{ended}), taken {} UTC by version {}, order {}, {}\n",
        header.number,
        header.job,
        header.kind.as_str(),
        format_timestamp_millis(header.taken_at_ms, 3),
        header.engine,
        header.order,
        units::bytes(header.bytes as usize),
    )
}

/// A line for the stage, and one for each of its tables.
fn stage_rows(stage: &StageState<Vec<TableSummary>>) -> Vec<Vec<Cell>> {
    let row = |watermark, position, table: [Cell; 4]| {
        let mut row = vec![Cell::text(&stage.name), Cell::text(&stage.id), watermark, position];
        row.extend(table);
        row
    };
    let nothing = [Cell::Nothing, Cell::Nothing, Cell::Nothing, Cell::Nothing];
    let mut rows = vec![row(watermark(stage), position(stage), nothing)];
    let own = stage.state.iter().map(|table| (table.name.clone(), table));
    let waiting = stage.waiting.iter().map(|table| (format!("waiting.{}", table.name), table));
    for (name, table) in own.chain(waiting) {
        // Where changes lie on top, some of the rows have been replaced.
        let columns = Cell::Text(table.columns.join(", "));
        let cells = [Cell::Text(name), Cell::Number(table.rows), Cell::Bytes(table.bytes), columns];
        rows.push(row(Cell::Nothing, Cell::Nothing, cells));
    }
    rows
}

fn watermark(stage: &StageState<Vec<TableSummary>>) -> Cell {
    let of_source = |source: &SourceState| match source.finished {
        true => Watermark::END,
        false => source.assigner.map_or(Watermark::MIN, |assigner| assigner.running),
    };
    let known = stage.source.as_ref().map(of_source);
    let known = known.or_else(|| stage.inputs.as_ref().map(|inputs| inputs.joint));
    known.map_or(Cell::Nothing, |watermark| Cell::Text(watermark.to_string()))
}

fn position(stage: &StageState<Vec<TableSummary>>) -> Cell {
    if let Some(source) = &stage.source {
        let position = source.position.clone();
        return Cell::Text(position.unwrap_or_else(|| "cannot be read again".to_owned()));
    }
    let Some(sink) = &stage.sink else { return Cell::Nothing };
    Cell::text(match sink.guarantee {
        SinkGuarantee::AtLeastOnce => "at least once",
        SinkGuarantee::Idempotent => "once by key",
        SinkGuarantee::Transactional => "exactly once",
    })
}
