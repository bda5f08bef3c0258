//! What leaves for which rows, against Flink's answers and against a table that is computed anew.

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

use super::{GroupAggregate, GroupSpec};
use crate::aggregate::{AggregateCall, resolve};
use crate::test_kit::{Driven, Event};

/// A call of a function on a column of this table.
fn call(input: &TableSchema, name: &str, argument: Option<usize>) -> AggregateCall {
    let types: Vec<_> = argument.iter().map(|&at| input.columns[at].column_type.clone()).collect();
    let (function, result) = resolve(name, false, &types).expect("a known aggregate");
    let name = name.to_lowercase();
    AggregateCall { function, argument, distinct: false, filter: None, result, name }
}

fn distinct(call: AggregateCall) -> AggregateCall {
    AggregateCall { distinct: true, ..call }
}

fn filtered(call: AggregateCall, filter: usize) -> AggregateCall {
    AggregateCall { filter: Some(filter), ..call }
}

fn table(columns: &[(&str, DataType)]) -> TableSchema {
    let column =
        |(name, data_type): &(&str, DataType)| Column::new(*name, data_type.clone().nullable());
    TableSchema::new(columns.iter().map(column).collect())
}

fn spec(input: &TableSchema, keys: &[usize], calls: Vec<AggregateCall>) -> GroupSpec {
    GroupSpec {
        keys: keys.to_vec(),
        calls,
        input: input.clone(),
        retracts: false,
        state_ttl_ms: None,
        mini_batch: false,
    }
}

fn operator(spec: GroupSpec) -> GroupAggregate {
    GroupAggregate::new(spec).expect("a valid specification")
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
