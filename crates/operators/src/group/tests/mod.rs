//! What leaves for which rows, against Flink's answers and against a table that is recomputed.

mod golden;
mod random;
mod reference;
mod state;

use arrow_array::{ArrayRef, RecordBatch};
use thalweg_core::{Column, DataType, TableSchema};

use super::{GroupAggregate, GroupSpec};
use crate::aggregate::{AggregateCall, resolve};
use crate::test_kit::{changes, inserts, lines, lines_of};

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
