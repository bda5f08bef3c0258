//! What leaves for which rows, against Flink's answers and against lists that are sorted anew.

mod deduplicate;
mod golden;
mod random;
mod reference;
mod state;
mod upserts;

use arrow_array::{ArrayRef, RecordBatch};
use thalweg_core::{Column, DataType, TableSchema};

use super::{RankFunction, TopN, TopNSpec};
use crate::sort::SortKey;
use crate::test_kit::{changes, inserts, lines, lines_of};

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
