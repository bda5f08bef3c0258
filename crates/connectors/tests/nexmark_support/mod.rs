//! Reads a NEXMark table whole, as the engine would.

// Each test binary uses its part.
#![allow(dead_code)]

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, TimestampMillisecondType};
use arrow_schema::DataType as Arrow;
use arrow_select::concat::concat_batches;
use thalweg_connectors::builtin;
use thalweg_core::connector::{SourcePoll, TableRequest};
use thalweg_core::{Column, DataType, TableSchema};

/// All rows of a table.
pub struct Table(pub RecordBatch);

impl Table {
    /// How many rows.
    pub fn rows(&self) -> usize {
        self.0.num_rows()
    }
    /// A BIGINT, or a time in milliseconds.
    pub fn number(&self, column: usize, row: usize) -> i64 {
        self.numbers(column)[row]
    }
    /// A column of BIGINT, or of times in milliseconds.
    pub fn numbers(&self, column: usize) -> &[i64] {
        let column = self.0.column(column);
        match column.data_type() {
            Arrow::Int64 => column.as_primitive::<Int64Type>().values(),
            _ => column.as_primitive::<TimestampMillisecondType>().values(),
        }
    }
    /// A text.
    pub fn text(&self, column: usize, row: usize) -> &str {
        self.0.column(column).as_string_view().value(row)
    }
    /// A column of text.
    pub fn texts(&self, column: usize) -> Vec<&str> {
        self.0.column(column).as_string_view().iter().flatten().collect()
    }
}

/// A table of these columns, with the types that they have in Flink's suite.
pub fn request(kind: &str, columns: &[&str], options: &[(&str, &str)]) -> TableRequest {
    let data_type = |name: &str| match name {
        "dateTime" | "expires" => DataType::Timestamp(3),
        "name" | "emailAddress" | "creditCard" | "city" | "state" | "itemName" | "description"
        | "channel" | "url" | "extra" => DataType::STRING,
        "event_type" => DataType::Int,
        _ => DataType::BigInt,
    };
    let columns = columns.iter().map(|name| Column::new(*name, data_type(name).nullable()));
    let mut request = TableRequest {
        table: "events".to_string(),
        schema: TableSchema::new(columns.collect()),
        options: options.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect(),
        ..TableRequest::default()
    };
    for (name, value) in [("connector", "nexmark"), ("kind", kind)] {
        request.options.insert(name.to_string(), value.to_string());
    }
    request
}

/// All rows, in bundles of at most `rows_max`.
pub fn read_by(request: &TableRequest, rows_max: usize) -> Table {
    let mut source = builtin(Default::default()).source(request).expect("valid");
    assert!(source.is_bounded());
    source.start(Arc::new(|| {})).expect("started");
    let mut batches = Vec::new();
    loop {
        match source.poll(rows_max).expect("rows") {
            SourcePoll::Batch(batch) => batches.push(batch.batch),
            SourcePoll::End => break,
            _ => thread::sleep(Duration::from_millis(1)),
        }
    }
    let schema = request.delivered().arrow();
    assert!(batches.iter().all(|batch| batch.schema() == schema));
    assert!(batches.iter().all(|batch| (1..=rows_max).contains(&batch.num_rows())));
    Table(concat_batches(&schema, &batches).expect("one schema"))
}

/// All rows of a table.
pub fn read(kind: &str, columns: &[&str], options: &[(&str, &str)]) -> Table {
    read_by(&request(kind, columns, options), 10_000)
}
