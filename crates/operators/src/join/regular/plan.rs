//! What is joined, and what follows from that for each side.

use arrow_schema::SchemaRef;
use thalweg_core::{DataType, TableSchema};

use crate::join::JoinKind;
use crate::join::equi::EquiJoin;
use crate::join::residual::Residual;
use crate::join::sides::Side;

/// What is joined, and how.
#[derive(Clone, Debug)]
pub struct JoinSpec {
    /// The inputs, their keys, and which rows leave.
    pub join: EquiJoin,
    /// For each key whether NULL equals NULL (`IS NOT DISTINCT FROM`).
    pub null_equals_null: Vec<bool>,
    /// True if no two live rows of the left side have the same key. Only makes retractions cheaper.
    pub left_unique: bool,
    /// The same for the right side.
    pub right_unique: bool,
    /// How long rows of the left and of the right side are kept without being written.
    pub state_ttl_ms: (Option<i64>, Option<i64>),
}

/// What all partitions share.
pub(super) struct RegularJoinPlan {
    pub(super) spec: JoinSpec,
    pub(super) output: TableSchema,
    pub(super) schema: SchemaRef,
    pub(super) key_types: Vec<DataType>,
    /// The positions of all columns, by side.
    pub(super) columns: [Vec<usize>; 2],
    pub(super) residual: Option<Residual>,
}

impl RegularJoinPlan {
    /// True if rows of this side leave without a partner, padded.
    pub fn pads(&self, side: Side) -> bool {
        side.pick(self.spec.join.kind.pads_left_rows(), self.spec.join.kind.pads_right_rows())
    }

    pub fn is_anti(&self) -> bool {
        self.spec.join.kind == JoinKind::Anti
    }

    pub fn keys(&self, side: Side) -> &[usize] {
        self.spec.join.keys(side)
    }

    pub fn ttl_ms(&self, side: Side) -> Option<i64> {
        side.pick(self.spec.state_ttl_ms.0, self.spec.state_ttl_ms.1)
    }

    /// True if a row's number of partners is not the length of the other chain: not all rows there
    /// are partners, or some have left without a word.
    pub fn is_counted(&self) -> bool {
        self.residual.is_some() || self.expires()
    }

    pub fn expires(&self) -> bool {
        self.spec.state_ttl_ms != (None, None)
    }

    /// True if rows of this side count their partners one by one.
    pub fn counts(&self, side: Side) -> bool {
        let is_of_interest = match self.spec.join.kind.has_right_columns() {
            true => self.pads(side),
            false => side == Side::Left,
        };
        self.is_counted() && is_of_interest
    }

    /// True if the rows of this side are kept; else they are only counted by key.
    pub fn keeps(&self, side: Side) -> bool {
        side == Side::Left || self.spec.join.kind.has_right_columns() || self.is_counted()
    }

    /// True if the result is a changelog whatever the input is.
    pub fn retracts(&self) -> bool {
        !matches!(self.spec.join.kind, JoinKind::Inner | JoinKind::Semi)
    }
}
