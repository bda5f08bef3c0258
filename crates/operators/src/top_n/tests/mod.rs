//! What leaves for which rows, against Flink's answers and against lists that are sorted again.

mod captures;
mod deduplicate;
mod golden;
mod random;
mod reference;
mod state;
mod upserts;

use arrow_array::{ArrayRef, RecordBatch};
use thalweg_core::{Column, DataType, Operator, TableSchema};

use super::{RankFunction, TopN, TopNSpec};
use crate::sort::SortKey;
use crate::test_kit::{DriveOptions, Event, changes, check_captures, inserts, lines, lines_of};

/// One partition, so that what leaves has a sequence, with restores or without.
fn in_sequence(bundle_rows: usize, restores: bool) -> DriveOptions {
    DriveOptions { bundle_rows, restores, keeps_partitions: true, ..DriveOptions::default() }
}

const FUNCTIONS: [RankFunction; 3] =
    [RankFunction::RowNumber, RankFunction::Rank, RankFunction::DenseRank];

/// How many rows a bundle has, and whether there are restores.
const SEQUENCES: [(usize, bool); 6] =
    [(1, false), (7, false), (64, false), (usize::MAX, false), (7, true), (64, true)];

/// Captures of what has changed, read while rows come, are the whole.
fn check_changes(operator: &dyn Operator, script: &[Event]) {
    for (partitions, bundle_rows) in [(1, 1), (2, 5), (3, 20)] {
        let seed = bundle_rows as u64;
        let options = DriveOptions { partitions, bundle_rows, seed, ..DriveOptions::default() };
        check_captures(operator, script, &options);
    }
}

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
