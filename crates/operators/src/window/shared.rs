//! What the partitions of aligned windows have in common.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use chrono_tz::Tz;
use thalweg_core::TableSchema;

use super::calls::Calls;
use super::judge::Rules;
use super::key_spread::KeySpread;
use super::output::{LatePolicy, WindowColumns};
use super::spec::WindowSpec;
use super::tables::Spare;
use super::top::TopChooser;
use crate::aggregate::AggregateCall;

/// What a `WindowAggregate` computes, by columns of its input.
#[derive(Clone, Debug)]
pub struct WindowAggregateSpec {
    /// The windows.
    pub window: WindowSpec,
    /// The column of the row time: TIMESTAMP or TIMESTAMP_LTZ of at most 3 digits. Not read where
    /// there is one window of all rows.
    pub rowtime: usize,
    /// For a row time of TIMESTAMP_LTZ: the session's zone, to whose clocks windows are aligned.
    pub zone: Option<Tz>,
    /// The grouping columns.
    pub keys: Vec<usize>,
    /// The aggregates.
    pub aggregates: Vec<AggregateCall>,
    /// What happens to late rows.
    pub late: LatePolicy,
    /// The input's columns.
    pub input: TableSchema,
}

impl WindowAggregateSpec {
    pub(super) fn rules(&self) -> Rules<'_> {
        let WindowAggregateSpec { window, rowtime, late, input, .. } = self;
        Rules { window, rowtime: *rowtime, late: *late, input }
    }
}

/// Rows of one batch of results.
pub(super) const CHUNK_ROWS: usize = 16 * 1024;

/// Rows of the first batch of a window: whoever waits for the window should not wait for many.
const FIRST_ROWS: usize = 4 * 1024;

/// Up to where the batch of results that begins at this row goes, of this many in all.
pub(super) fn chunk_end(from: usize, all: usize) -> usize {
    all.min(from + if from == 0 { FIRST_ROWS } else { CHUNK_ROWS })
}

/// What the partitions of an operator have in common.
pub(super) struct WindowContext {
    pub(super) spec: WindowAggregateSpec,
    pub(super) calls: Arc<Calls>,
    pub(super) output: TableSchema,
    pub(super) arrow: SchemaRef,
    pub(super) columns: WindowColumns,
    /// All aggregates are exact: states may be merged in any order, so any partition takes any
    /// bundle.
    pub(super) exact: bool,
    /// All aggregates can subtract: hopping windows keep one running state.
    pub(super) invertible: bool,
    pub(super) key_spread: KeySpread,
    /// The columns by whose values rows may be scattered where aggregates are exact.
    pub(super) spread_by: Vec<usize>,
    /// Where all rows are of one key: tables that no partition uses.
    pub(super) spare: Spare,
    /// Where nobody wants more than the first rows of a window.
    pub(super) top: Option<TopChooser>,
    /// What a window of all rows gives where there are none.
    pub(super) otherwise: Option<RecordBatch>,
}
