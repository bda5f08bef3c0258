//! Which row of each key is kept.

use thalweg_core::{DataType, Error, Result, TableSchema};

use crate::rows::columns::{check_columns, schema_of, types_of};
use crate::window::LatePolicy;

/// Which row of a key is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Keep {
    /// The first one.
    First,
    /// The last one.
    Last,
}

/// Which row is first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeduplicateBy {
    /// The row time in this column, then the order of arrival.
    EventTime(usize),
    /// The order of arrival: processing time.
    Arrival,
    /// The order of arrival, of rows that are upserts: each takes the place of the row with its
    /// key, and `-D` takes the row of a key away. Only for the last one.
    Upserts,
}

/// What is kept.
#[derive(Clone, Debug)]
pub struct DeduplicateSpec {
    /// `PARTITION BY`; without, one row is kept.
    pub keys: Vec<usize>,
    /// Which row.
    pub keep: Keep,
    /// Which row is first.
    pub by: DeduplicateBy,
    /// The columns that come in.
    pub input: TableSchema,
    /// How long a key is kept, in processing time; `None` and 0 for ever.
    pub state_ttl_ms: Option<i64>,
    /// What happens to late rows.
    pub late: LatePolicy,
}

impl DeduplicateSpec {
    pub(super) fn key_types(&self) -> Vec<DataType> {
        types_of(&self.input, &self.keys)
    }

    /// The columns of the key.
    pub(super) fn key_schema(&self) -> TableSchema {
        schema_of(&self.input, &self.keys)
    }

    /// As in Flink, a time of 0 means for ever.
    pub(super) fn ttl_ms(&self) -> Option<i64> {
        self.state_ttl_ms.filter(|&ttl_ms| ttl_ms > 0)
    }

    /// The column of the row time, if rows wait for the watermark.
    pub(super) fn waits_for(&self) -> Option<usize> {
        match (self.keep, self.by) {
            (Keep::First, DeduplicateBy::EventTime(column)) => Some(column),
            _ => None,
        }
    }

    pub(super) fn check(&self) -> Result<()> {
        check_columns(&self.input, self.keys.iter().copied())?;
        if (self.keep, self.by) == (Keep::First, DeduplicateBy::Upserts) {
            return Err(Error::internal("the first of upserts"));
        }
        let DeduplicateBy::EventTime(column) = self.by else { return Ok(()) };
        check_columns(&self.input, std::iter::once(column))?;
        match self.input.columns[column].column_type.data_type {
            DataType::Timestamp(0..=3) | DataType::TimestampLtz(0..=3) => Ok(()),
            _ => Err(Error::internal("a row time finer than milliseconds")),
        }
    }
}
