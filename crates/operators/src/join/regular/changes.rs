//! Changes that wait to leave: where their rows lie, what they do, and what caused them.
//!
//! Changes name places and not values. All columns are gathered once for a batch, at the end of a
//! flush: until then no row moves.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::RecordBatch;
use thalweg_core::{Output, Place, Result, RowKind};

use super::incoming::Arrivals;
use super::plan::RegularJoinPlan;
use super::state::SideState;
use crate::join::sides::Side;
use crate::rows::arena::ArenaPlace;
use crate::rows::columns::batch_of;

/// The most rows of one batch.
const BATCH_ROWS_MAX: usize = 1 << 16;

/// Changes in the order in which they leave.
#[derive(Default)]
pub(super) struct JoinChanges {
    /// The rows of each side; none of the right side where its columns do not leave.
    places: [Vec<ArenaPlace>; 2],
    kinds: Vec<RowKind>,
    causes: Vec<u32>,
}

impl JoinChanges {
    /// A pair, or a padded row, whose own side is that of the row that caused it.
    #[inline]
    pub fn pair(
        &mut self,
        side: Side,
        own: ArenaPlace,
        other: ArenaPlace,
        kind: RowKind,
        cause: u32,
    ) {
        self.places[side as usize].push(own);
        self.places[side.other() as usize].push(other);
        self.kinds.push(kind);
        self.causes.push(cause);
    }

    /// A row of the left side.
    #[inline]
    pub fn left(&mut self, row: ArenaPlace, kind: RowKind, cause: u32) {
        self.places[Side::Left as usize].push(row);
        self.kinds.push(kind);
        self.causes.push(cause);
    }

    /// Sends all out.
    pub fn emit(
        &mut self,
        plan: &RegularJoinPlan,
        sides: &[SideState; 2],
        arrivals: &Arrivals<'_>,
        output: &mut Output,
    ) -> Result<()> {
        let count = self.kinds.len();
        for start in (0..count).step_by(BATCH_ROWS_MAX) {
            let range = start..count.min(start + BATCH_ROWS_MAX);
            let batch = self.batch(range.clone(), plan, sides, arrivals)?;
            let place = Place::Caused(self.causes[range.clone()].to_vec());
            if plan.retracts() || arrivals.piece.bundle.kinds.is_some() {
                output.emit_changes(batch, Arc::from(&self.kinds[range]), place);
            } else {
                output.emit_at(batch, place);
            }
        }
        self.places.iter_mut().for_each(Vec::clear);
        self.kinds.clear();
        self.causes.clear();
        Ok(())
    }

    fn batch(
        &self,
        range: Range<usize>,
        plan: &RegularJoinPlan,
        sides: &[SideState; 2],
        arrivals: &Arrivals<'_>,
    ) -> Result<RecordBatch> {
        let of_side = |side: Side| {
            let places = &self.places[side as usize][range.clone()];
            let arena = &sides[side as usize].arena;
            arena.gather(places, arrivals.columns(side), &plan.columns[side as usize])
        };
        let mut columns = of_side(Side::Left)?;
        if plan.spec.join.kind.has_right_columns() {
            columns.extend(of_side(Side::Right)?);
        }
        batch_of(&plan.schema, columns, range.len())
    }

    pub fn bytes(&self) -> usize {
        let places: usize = self.places.iter().map(Vec::capacity).sum();
        places * size_of::<ArenaPlace>() + self.kinds.capacity() + self.causes.capacity() * 4
    }
}
