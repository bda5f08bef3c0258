//! StreamBox's benchmarks (Miao et al., "StreamBox: Modern Stream Processing on a Multicore
//! Machine", USENIX ATC 2017, §9): seeded data, and each benchmark as SQL over it.
//!
//! | Module | Benchmark | Window |
//! |---|---|---|
//! | [`grep`] | records of 1 KB that contain a literal, or match a regular expression | 30 s sliding by 1 s |
//! | [`wordcount`] | words of 100-byte records, counted | 30 s sliding by 1 s |
//! | [`join`] | two streams with unique 64-bit keys, or with skewed ones | ±0.5 s per record |
//! | [`distinct`] | different URL ids | 1 s |
//! | [`netmon`] | mean latency by pair of hosts | 1 s |
//! | [`tweets`] | windows in which the mood turns, with their most frequent words | 1 s |
//!
//! [`pipelines`] has three of them as pipelines whose input can be varied: rows that come early,
//! more watermarks. [`floors`] has the same by hand, [`text`] has the words, [`words`] splits them,
//! [`job`] runs what the modules describe.
//!
//! Invariants: every record depends on the seed and its number alone; a second of event time has a
//! million records, as in the paper, where nothing else is said.
//!
//! What this is not: the paper's data (reviews, URLs and latencies that are not public, or too
//! large to carry). Only rates per core and record are comparable, and those with care.

pub mod distinct;
pub mod floors;
pub mod grep;
pub mod job;
pub mod join;
pub mod netmon;
pub mod pipelines;
pub mod text;
pub mod tweets;
pub mod wordcount;
pub mod words;

pub use job::{Job, RunSettings, Table};

use std::sync::Arc;

use arrow_array::{ArrayRef, TimestampMillisecondArray};
use thalweg::{Column, DataType};

/// Records that a millisecond of event time has: a million span one second, as in the paper.
pub const RECORDS_PER_MS: u64 = 1000;

/// The most rows of a batch that a generator makes.
pub(crate) const BATCH_ROWS: u64 = 16_384;

/// The row time, the first column of every table.
pub(crate) fn time_column() -> Column {
    Column::new("ts", DataType::Timestamp(3).not_null())
}

/// A column of 64-bit integers.
pub(crate) fn long_column(name: &str) -> Column {
    Column::new(name, DataType::BigInt.not_null())
}

/// Row times in milliseconds.
pub(crate) fn times(of: impl Iterator<Item = i64>) -> ArrayRef {
    Arc::new(TimestampMillisecondArray::from_iter_values(of))
}

/// The numbers of the records of each batch, in order.
pub(crate) fn batches_of(records: u64) -> impl Iterator<Item = std::ops::Range<u64>> {
    (0..records).step_by(BATCH_ROWS as usize).map(move |from| from..records.min(from + BATCH_ROWS))
}
