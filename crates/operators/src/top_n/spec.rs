//! What Top-N computes, and what its partitions have in common.

use thalweg_core::{Column, DataType, Error, Result, TableSchema};

use crate::rows::columns::{check_columns, types_of};
use crate::sort::SortKey;
use crate::window::KnownWindows;

/// How rows are numbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RankFunction {
    /// `ROW_NUMBER()`: each row has a number of its own.
    RowNumber,
    /// `RANK()`: rows that sort alike have one rank; the next has that of its row number.
    Rank,
    /// `DENSE_RANK()`: rows that sort alike have one rank; the next has the next.
    DenseRank,
}

/// What is ranked, and which ranks leave.
#[derive(Clone, Debug)]
pub struct TopNSpec {
    /// `PARTITION BY`; without, there is one partition.
    pub keys: Vec<usize>,
    /// `ORDER BY`; without, rows rank as they come.
    pub order: Vec<SortKey>,
    /// How rows are numbered.
    pub function: RankFunction,
    /// The first rank that leaves, from 1.
    pub from: u64,
    /// The last rank that leaves.
    pub to: u64,
    /// The name of a column `BIGINT NOT NULL` with the rank behind those of the input; `None` for
    /// no such column.
    pub rank_column: Option<String>,
    /// The columns that come in.
    pub input: TableSchema,
    /// True if the input may hold `-U` and `-D`.
    pub retracts: bool,
    /// The upsert key of an input whose updates come as `+U` alone: it takes the place of the row
    /// of the same partition with the same values here.
    pub unique: Option<Vec<usize>>,
    /// How long a key is kept after its last row, in processing time; `None` and 0 for ever.
    pub state_ttl_ms: Option<i64>,
    /// The key column that is the end of the window that a row belongs to. Its first rows then
    /// leave when the watermark closes the window, and nothing is kept after that.
    pub window_end: Option<usize>,
}

impl TopNSpec {
    pub(super) fn key_types(&self) -> Vec<DataType> {
        types_of(&self.input, &self.keys)
    }

    /// True if rows may be retracted or replaced, so that any of them may move up.
    pub(super) fn keeps_all(&self) -> bool {
        self.retracts || self.unique.is_some()
    }

    /// True if the same rows leave in whatever order rows come: with the window, and rows that sort
    /// alike together. Row numbers of such rows depend on who came first.
    pub(super) fn commutes(&self) -> bool {
        self.window_end.is_some() && self.function != RankFunction::RowNumber && !self.keeps_all()
    }

    /// As in Flink, a time of 0 means for ever. Windows go with their watermark.
    pub(super) fn ttl_ms(&self) -> Option<i64> {
        self.state_ttl_ms.filter(|&ttl_ms| ttl_ms > 0 && self.window_end.is_none())
    }

    pub(super) fn check(&self) -> Result<()> {
        let order = self.order.iter().map(|key| key.column);
        let unique = self.unique.iter().flatten().copied();
        check_columns(&self.input, self.keys.iter().copied().chain(order).chain(unique))?;
        if self.from == 0 || self.from > self.to {
            return Err(Error::internal(format!("no ranks from {} to {}", self.from, self.to)));
        }
        let Some(end) = self.window_end else { return Ok(()) };
        if !self.keys.contains(&end) {
            return Err(Error::internal("the end of a window is not among the keys"));
        }
        match self.input.columns[end].column_type.data_type {
            DataType::Timestamp(3) | DataType::TimestampLtz(3) => Ok(()),
            _ => Err(Error::internal("the end of a window is not a time in milliseconds")),
        }
    }

    pub(super) fn output(&self) -> TableSchema {
        let rank =
            self.rank_column.iter().map(|name| Column::new(name, DataType::BigInt.not_null()));
        TableSchema::new(self.input.columns.iter().cloned().chain(rank).collect())
    }
}

/// What all partitions share.
pub(super) struct TopNContext {
    pub(super) spec: TopNSpec,
    pub(super) output: TableSchema,
    pub(super) windows: KnownWindows,
}
