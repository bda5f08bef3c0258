//! What leaves for which rows, against Flink's answers and against lists that are sorted anew.

mod deduplicate;
mod golden;
mod random;
mod reference;
mod state;

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::TimestampMillisecondType;
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_cast::display::array_value_to_string;
use thalweg_core::text::format_timestamp_millis;
use thalweg_core::{Column, DataType, RowKind, TableSchema, Watermark, WatermarkBefore};

use super::{RankFunction, TopN, TopNSpec};
use crate::sort::SortKey;
use crate::test_kit::{Driven, Event};

fn table(columns: &[(&str, DataType)]) -> TableSchema {
    let column =
        |(name, data_type): &(&str, DataType)| Column::new(*name, data_type.clone().nullable());
    TableSchema::new(columns.iter().map(column).collect())
}

/// The first `to` rows by key and order, of inserts, without a rank.
fn spec(input: &TableSchema, keys: &[usize], order: Vec<SortKey>, to: u64) -> TopNSpec {
    TopNSpec {
        keys: keys.to_vec(),
        order,
        function: RankFunction::RowNumber,
        from: 1,
        to,
        rank_column: None,
        input: input.clone(),
        retracts: false,
        unique: None,
        state_ttl_ms: None,
        window_end: None,
    }
}

fn numbered(spec: TopNSpec) -> TopNSpec {
    TopNSpec { rank_column: Some("rn".to_owned()), ..spec }
}

fn operator(spec: TopNSpec) -> TopN {
    TopN::new(spec).expect("a valid specification")
}

fn batch(input: &TableSchema, columns: Vec<ArrayRef>) -> RecordBatch {
    RecordBatch::try_new(input.arrow(), columns).expect("columns of the table")
}

const NO_WATERMARK: WatermarkBefore = WatermarkBefore::All(Watermark::MIN);

fn inserts(batch: &RecordBatch) -> Vec<Event> {
    vec![Event::Rows { lane: 0, batch: batch.clone(), watermark_before: NO_WATERMARK }]
}

fn changes(batch: &RecordBatch, kinds: &[RowKind]) -> Vec<Event> {
    let (batch, kinds) = (batch.clone(), kinds.to_vec());
    vec![Event::Changes { lane: 0, batch, kinds, watermark_before: NO_WATERMARK }]
}

/// One line per change, as a golden case has it.
fn lines(driven: &Driven) -> Vec<String> {
    let mut lines = Vec::new();
    for (batch, kinds) in driven.emitted.iter().zip(&driven.kinds) {
        lines.extend(lines_of(batch, kinds.as_ref()));
    }
    lines
}

fn lines_of(batch: &RecordBatch, kinds: Option<&Arc<[RowKind]>>) -> Vec<String> {
    let line = |row: usize| {
        let kind = kinds.map_or(RowKind::Insert, |kinds| kinds[row]);
        let values = batch.columns().iter().map(|column| text(column, row));
        std::iter::once(kind.short().to_string()).chain(values).collect::<Vec<_>>().join(",")
    };
    (0..batch.num_rows()).map(line).collect()
}

fn text(column: &ArrayRef, row: usize) -> String {
    if column.is_null(row) {
        return "\\N".to_string();
    }
    match column.as_primitive_opt::<TimestampMillisecondType>() {
        Some(times) => format_timestamp_millis(times.value(row), 3),
        None => array_value_to_string(column, row).expect("a printable value"),
    }
}
