//! What an OVER window computes, and what follows from it: the output columns, which rows are late.

use thalweg_core::{Column, ColumnType, DataType, Error, Result, TableSchema};

use crate::aggregate::{AggregateCall, first_value, last_value};
use crate::keys::KeyTable;
use crate::rows::columns::{check_columns, types_of};
use crate::window::LatePolicy;

/// What rows are ordered by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverTime {
    /// The row time in this input column.
    EventTime(usize),
    /// The order in which rows arrive (processing time).
    Arrival,
}

/// Which rows a result is computed from: some before the row, up to the row itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A number of rows.
    Rows {
        /// How many rows before the row itself; `None` is all.
        preceding: Option<u64>,
    },
    /// A stretch of time. Rows of equal time are peers: each sees all of them.
    Range {
        /// How far back from the row's own time, inclusive; `None` is all.
        preceding_ms: Option<i64>,
    },
}

/// A function of the rows of a frame, or of the rows before.
#[derive(Clone, Debug)]
pub enum OverFunction {
    /// An aggregate over the frame.
    Aggregate(AggregateCall),
    /// `ROW_NUMBER()`
    RowNumber,
    /// `RANK()`
    Rank,
    /// `DENSE_RANK()`
    DenseRank,
    /// `LAG(x, n, default)`: the value of a row before, whatever the frame.
    Lag {
        /// The input column.
        column: usize,
        /// How many rows before; 0 is the row itself.
        offset: u64,
        /// The input column whose value stands in where there is no such row; NULL without.
        default: Option<usize>,
    },
    /// `LEAD(x, n, default)`: the value of a row behind, for which the row waits.
    Lead {
        /// The input column.
        column: usize,
        /// How many rows behind; 0 is the row itself.
        offset: u64,
        /// The input column whose value stands in where there is no such row; NULL without.
        default: Option<usize>,
    },
    /// The first value of the frame that is not NULL.
    FirstValue(usize),
    /// The last value of the frame that is not NULL.
    LastValue(usize),
}

/// One result column.
#[derive(Clone, Debug)]
pub struct OverCall {
    /// What is computed.
    pub function: OverFunction,
    /// The type of the result.
    pub result: ColumnType,
    /// The name of the output column.
    pub name: String,
}

/// What is computed over which rows.
#[derive(Clone, Debug)]
pub struct OverSpec {
    /// The input columns of PARTITION BY; none for one partition.
    pub keys: Vec<usize>,
    /// What rows are ordered by.
    pub time: OverTime,
    /// Which rows aggregates see.
    pub frame: Frame,
    /// What is computed.
    pub calls: Vec<OverCall>,
    /// The columns that come in.
    pub input: TableSchema,
    /// How long a key is kept without a row, in processing time; `None` and 0 for ever. Frames of a
    /// stretch of event time forget by that time alone.
    pub state_ttl_ms: Option<i64>,
    /// What late rows lead to.
    pub late: LatePolicy,
}

impl Frame {
    /// True if rows leave the frame.
    pub(super) fn is_bounded(self) -> bool {
        !matches!(self, Frame::Rows { preceding: None } | Frame::Range { preceding_ms: None })
    }
}

impl OverCall {
    /// The aggregate over the frame that computes this call, if one does.
    pub(super) fn aggregate(&self) -> Option<AggregateCall> {
        let of = |function, column| AggregateCall {
            function,
            argument: Some(column),
            distinct: false,
            filter: None,
            result: self.result.clone(),
            name: self.name.clone(),
        };
        match &self.function {
            OverFunction::Aggregate(call) => Some(call.clone()),
            OverFunction::FirstValue(column) => Some(of(first_value(), *column)),
            OverFunction::LastValue(column) => Some(of(last_value(), *column)),
            _ => None,
        }
    }

    /// The input columns that it reads.
    pub(super) fn columns(&self) -> Vec<usize> {
        match &self.function {
            OverFunction::Aggregate(call) => call.argument.into_iter().chain(call.filter).collect(),
            OverFunction::FirstValue(column) | OverFunction::LastValue(column) => vec![*column],
            OverFunction::Lag { column, default, .. }
            | OverFunction::Lead { column, default, .. } => {
                std::iter::once(*column).chain(*default).collect()
            }
            OverFunction::RowNumber | OverFunction::Rank | OverFunction::DenseRank => Vec::new(),
        }
    }
}

impl OverSpec {
    pub(super) fn key_types(&self) -> Vec<DataType> {
        types_of(&self.input, &self.keys)
    }

    pub(super) fn data_type(&self, column: usize) -> &DataType {
        &self.input.columns[column].column_type.data_type
    }

    /// True if rows are late by what has left for their key, and not by the watermark: for
    /// aggregates over frames that rows leave, as in Flink.
    pub(super) fn late_by_key(&self) -> bool {
        let is_event_time = matches!(self.time, OverTime::EventTime(_));
        let aggregates = self.calls.iter().any(|call| call.aggregate().is_some());
        is_event_time && aggregates && self.frame.is_bounded()
    }

    /// True if rows wait for rows behind them.
    pub(super) fn has_lead(&self) -> bool {
        self.calls.iter().any(|call| matches!(call.function, OverFunction::Lead { .. }))
    }

    /// How long a key stays without rows, in event time, where that is bounded.
    ///
    /// Only for bounded RANGE frames without LAG, LEAD or numbers: those look at rows beyond any
    /// stretch of time.
    pub(super) fn reach_ms(&self) -> Option<i64> {
        let counts_on = |call: &OverCall| call.aggregate().is_none();
        match self.frame {
            Frame::Range { preceding_ms: Some(reach_ms) } if !self.calls.iter().any(counts_on) => {
                Some(reach_ms)
            }
            _ => None,
        }
    }

    /// The input columns, then the results.
    pub(super) fn output(&self) -> TableSchema {
        let results = self.calls.iter().map(|call| Column::new(&call.name, call.result.clone()));
        TableSchema::new(self.input.columns.iter().cloned().chain(results).collect())
    }

    pub(super) fn check(&self) -> Result<()> {
        let time = match self.time {
            OverTime::EventTime(column) => Some(column),
            OverTime::Arrival => None,
        };
        let named = self.calls.iter().flat_map(OverCall::columns);
        check_columns(&self.input, named.chain(self.keys.iter().copied()).chain(time))?;
        if let Frame::Range { preceding_ms: Some(..0) } = self.frame {
            return Err(Error::plan("a RANGE must begin before the row, not after it"));
        }
        if matches!(self.time, OverTime::Arrival) && self.has_lead() {
            return Err(Error::unsupported("LEAD in processing time")
                .hint("order by a row time: a row then waits for the one after it"));
        }
        KeyTable::new(&self.key_types())?;
        Ok(())
    }
}
