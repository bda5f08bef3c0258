//! Batches as rows that compare.

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type, TimestampMillisecondType};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::DataType;

/// A value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cell {
    Number(i64),
    Text(String),
}

impl Cell {
    pub fn number(&self) -> i64 {
        match self {
            Cell::Number(number) => *number,
            Cell::Text(text) => panic!("'{text}' is no number"),
        }
    }
    pub fn text(&self) -> &str {
        match self {
            Cell::Text(text) => text,
            Cell::Number(number) => panic!("{number} is no text"),
        }
    }
}

/// Values in the order of the columns.
pub type Row = Vec<Cell>;

fn cell(column: &ArrayRef, row: usize) -> Cell {
    assert!(column.is_valid(row), "nothing here is NULL");
    match column.data_type() {
        DataType::Int32 => Cell::Number(column.as_primitive::<Int32Type>().value(row).into()),
        DataType::Int64 => Cell::Number(column.as_primitive::<Int64Type>().value(row)),
        DataType::Timestamp(..) => {
            Cell::Number(column.as_primitive::<TimestampMillisecondType>().value(row))
        }
        DataType::Utf8View => Cell::Text(column.as_string_view().value(row).to_owned()),
        other => panic!("no benchmark has {other}"),
    }
}

/// The rows of batches.
pub fn rows_of(batches: &[RecordBatch]) -> Vec<Row> {
    let row = |batch: &RecordBatch, row: usize| -> Row {
        batch.columns().iter().map(|column| cell(column, row)).collect()
    };
    batches.iter().flat_map(|batch| (0..batch.num_rows()).map(move |n| row(batch, n))).collect()
}

/// The rows of a table, for an oracle.
pub fn read(batches: &[RecordBatch]) -> Vec<Row> {
    rows_of(batches)
}
