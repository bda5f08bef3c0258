//! ROW_NUMBER, RANK and DENSE_RANK: counters by key.
//!
//! Ranks look at the row time: rows of a key and of one time share a rank. By arrival no rows are
//! peers, and each has a rank of its own.

use std::sync::Arc;

use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array};
use thalweg_core::Result;

use crate::aggregate::{StateColumns, StateRows};
use crate::gradual::grow;
use crate::rows::event_time::DueRows;

/// Which number is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Numbering {
    Row,
    Rank,
    DenseRank,
}

/// Where a key is.
#[derive(Clone, Copy, Default)]
struct Counter {
    rows: i64,
    /// The numbers of the newest time.
    rank: i64,
    dense_rank: i64,
    time: i64,
}

/// Numbers rows by key.
pub(super) struct Numbers {
    numbering: Numbering,
    has_peers: bool,
    counters: Vec<Counter>,
}

impl Numbers {
    pub fn new(numbering: Numbering, has_peers: bool) -> Self {
        Numbers { numbering, has_peers, counters: Vec::new() }
    }

    pub fn grow(&mut self, groups: usize) {
        grow(&mut self.counters, groups);
    }

    pub fn run(&mut self, fired: &DueRows) -> ArrayRef {
        let (numbering, has_peers, counters) = (self.numbering, self.has_peers, &mut self.counters);
        let number = |(&id, &time): (&u32, &i64)| {
            let counter = &mut counters[id as usize];
            counter.rows += 1;
            if counter.rows == 1 || !has_peers || counter.time != time {
                counter.rank = counter.rows;
                counter.dense_rank += 1;
                counter.time = time;
            }
            match numbering {
                Numbering::Row => counter.rows,
                Numbering::Rank => counter.rank,
                Numbering::DenseRank => counter.dense_rank,
            }
        };
        Arc::new(Int64Array::from_iter_values(fired.ids.iter().zip(&fired.times).map(number)))
    }

    pub fn reset(&mut self, ids: &[u32]) {
        ids.iter().for_each(|&id| self.counters[id as usize] = Counter::default());
    }

    pub fn capture(&self, ids: &[u32], columns: &mut StateColumns) {
        let counters = || ids.iter().map(|&id| &self.counters[id as usize]);
        columns.add_numbers::<Int64Type>("rows", counters().map(|counter| counter.rows));
        columns.add_numbers::<Int64Type>("rank", counters().map(|counter| counter.rank));
        columns
            .add_numbers::<Int64Type>("dense_rank", counters().map(|counter| counter.dense_rank));
        columns.add_numbers::<Int64Type>("time_ms", counters().map(|counter| counter.time));
    }

    pub fn restore(&mut self, ids: &[u32], state: &StateRows<'_>) -> Result<()> {
        let (rows, rank) =
            (state.numbers::<Int64Type>("rows")?, state.numbers::<Int64Type>("rank")?);
        let dense_rank = state.numbers::<Int64Type>("dense_rank")?;
        let time = state.numbers::<Int64Type>("time_ms")?;
        for (row, &id) in ids.iter().enumerate() {
            self.counters[id as usize] = Counter {
                rows: rows[row],
                rank: rank[row],
                dense_rank: dense_rank[row],
                time: time[row],
            };
        }
        Ok(())
    }

    pub fn bytes(&self) -> usize {
        self.counters.capacity() * size_of::<Counter>()
    }
}
