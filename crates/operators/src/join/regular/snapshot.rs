//! What captures write of a regular join: a table for each side.
//!
//! | column | |
//! |---|---|
//! | `$serial` | names a row, and goes up in the order of arrival |
//! | `$partners` | how many partners a row has, where rows count theirs |
//! | `$written` | when it was last written, in milliseconds since 1970, where state is kept for a limited time |
//! | the columns of the side | |
//!
//! The rows of a key come back in the order of their serials, however they stand in the table. A
//! side of which nothing but the number of rows of each key is kept has the columns of the key and
//! `$rows`. Everything else follows: chains, what they are searched by, and the queue of times come
//! again with the rows. Between two pieces, when this is asked, no candidate and no change waits.
//!
//! Rows are captured incrementally, and read while rows are processed ([`crate::capture`]). A row
//! that counts its partners is captured again when their number has changed.

use std::sync::Arc;

use arrow_array::types::{Int64Type, UInt32Type, UInt64Type};
use arrow_array::{ArrayRef, RecordBatch, UInt32Array};
use thalweg_core::snapshot::CapturedTable;
use thalweg_core::{Captured, Error, Extent, Restored, Result, TableChanges};

use super::expiry::RowExpiry;
use super::partition::{JoinState, Slot};
use super::tables::{PARTNERS, ROWS, WRITTEN};
use crate::capture::keys::{KeyTracker, KeyedState, capture, key_changes, stop_tracking_keys};
use crate::capture::rows::{RowTracker, RowsBegun, SERIAL};
use crate::capture::shared::SharedState;
use crate::join::sides::Side;
use crate::keys::KeyTable;
use crate::rows::columns::keys_of;
use crate::tables::{does_not_fit, kept_columns, numbers_of, owners};

/// The tables of state, by side.
const TABLES: [&str; 2] = ["left", "right"];

/// Captures both sides.
pub(super) fn capture_state(
    state: &Arc<SharedState<JoinState>>,
    extent: Extent,
) -> Result<Captured> {
    let plan = Arc::clone(&state.lock().plan);
    let table = |side: Side| match plan.keeps(side) {
        true => capture_rows(state, side, extent),
        false => capture(state, side as usize, TABLES[side as usize], extent),
    };
    Ok(Captured { tables: vec![table(Side::Left)?, table(Side::Right)?] })
}

fn capture_rows(
    shared: &Arc<SharedState<JoinState>>,
    side: Side,
    extent: Extent,
) -> Result<CapturedTable> {
    let mut state = shared.lock();
    let JoinState { sides, slots, .. } = &mut *state;
    let of_side = &mut sides[side as usize];
    while of_side.read_some(usize::MAX)? {}
    of_side.begin_tracking(slots.iter().map(|slot| &slot.chains[side as usize]));
    let (limit, live) = (of_side.limit(), of_side.live());
    let begin = |tracker: &mut RowTracker| tracker.begin(extent, limit, live);
    let begun: Option<RowsBegun> = of_side.tracker.as_mut().map(begin);
    let begun = begun.ok_or_else(|| Error::internal("rows are not watched"))?;
    let schema = Arc::clone(&of_side.table.schema);
    drop(state);
    Ok(begun.table(TABLES[side as usize], schema, shared, move |state, begun, most| {
        let of_side = &mut state.sides[side as usize];
        let is_reading = of_side.tracker.as_ref().is_some_and(|tracker| tracker.is_reading(begun));
        Ok(is_reading && of_side.read_some(most)?)
    }))
}

/// What is known of both sides before a capture.
pub(super) fn changes(state: &mut JoinState) -> Vec<TableChanges> {
    let of_side = |side: Side| {
        let name = TABLES[side as usize];
        if !state.plan.keeps(side) {
            return key_changes(state, side as usize, name);
        }
        let of_side = &state.sides[side as usize];
        of_side.tracker.as_ref().map(|tracker| tracker.changes(name, of_side.live()))
    };
    [Side::Left, Side::Right].into_iter().filter_map(of_side).collect()
}

/// Stops tracking the changes of a side, by the name of its table.
pub(super) fn stop_tracking(state: &mut JoinState, table: &str) {
    for side in [Side::Left, Side::Right].into_iter().filter(|side| TABLES[*side as usize] == table)
    {
        match state.plan.keeps(side) {
            true => state.sides[side as usize].tracker.iter_mut().for_each(RowTracker::stop),
            false => stop_tracking_keys(state, side as usize),
        }
    }
}

/// What is counted of one side: the right one, where it is not kept.
impl KeyedState for JoinState {
    fn keys(&self) -> &KeyTable {
        &self.keys
    }
    fn has(&self, side: usize, id: u32) -> bool {
        self.slots.get(id as usize).is_some_and(|slot| slot.chains[side].length > 0)
    }
    fn rows_of_keys(&self, side: usize, ids: &[u32]) -> Result<RecordBatch> {
        let lengths = ids.iter().map(|&id| self.slots[id as usize].chains[side].length);
        let lengths: ArrayRef = Arc::new(UInt32Array::from_iter_values(lengths));
        let owners = owners(ids.iter().map(|&id| self.keys.hash_of(id)));
        let table = self.plan.lengths_table(Side::Right);
        table.batch(owners, vec![lengths], self.keys.take_keys(ids)?)
    }
    fn tracker(&mut self, _: usize) -> &mut Option<KeyTracker> {
        &mut self.lengths
    }
}

impl JoinState {
    /// Restores what partitions captured.
    pub fn restore_state(&mut self, restored: &Restored) -> Result<()> {
        for side in [Side::Left, Side::Right] {
            let batches = restored.table(TABLES[side as usize]);
            if !self.plan.keeps(side) {
                batches.iter().try_for_each(|batch| self.restore_lengths(side, batch))?;
                continue;
            }
            let mut taken = Vec::new();
            for batch in batches {
                self.restore_rows(side, batch, &mut taken)?;
            }
            self.link(side, taken);
            self.sides[side as usize].expiry.as_mut().map(RowExpiry::put_in_order);
        }
        Ok(())
    }

    /// Puts rows, given as serials, keys and numbers, into the chains of their keys.
    fn link(&mut self, side: Side, mut taken: Vec<(u64, u32, u32)>) {
        if !taken.is_sorted_by_key(|(serial, ..)| *serial) {
            taken.sort_unstable_by_key(|(serial, ..)| *serial);
        }
        let state = &mut self.sides[side as usize];
        for &(_, key, row) in &taken {
            state.link(&mut self.slots[key as usize].chains[side as usize], row);
        }
        state.begin_tracking_of(taken.into_iter().map(|(.., row)| row));
    }

    fn restore_rows(
        &mut self,
        side: Side,
        batch: &RecordBatch,
        taken: &mut Vec<(u64, u32, u32)>,
    ) -> Result<()> {
        let count = self.spec_columns(side);
        let columns = kept_columns(batch, &self.sides[side as usize].table.schema, count)?;
        let ids = self.intern(&keys_of(&columns, self.plan.keys(side)), batch.num_rows())?;
        let state = &mut self.sides[side as usize];
        let serials = numbers_of::<UInt64Type>(batch, SERIAL)?;
        let partners = match state.counts() {
            true => Some(numbers_of::<UInt32Type>(batch, PARTNERS)?),
            false => None,
        };
        let written_ms = match state.expiry {
            Some(_) => Some(numbers_of::<Int64Type>(batch, WRITTEN)?),
            None => None,
        };
        for (row, &key) in ids.iter().enumerate() {
            let number = state.take_in(row as u32, key);
            state.set_known(number, partners.map(|p| p[row]), written_ms.map(|w| w[row]));
            taken.push((serials[row], key, number));
        }
        state.keep(&columns, batch.num_rows(), &self.keys)
    }

    fn spec_columns(&self, side: Side) -> usize {
        self.plan.spec.join.sides.schema(side).len()
    }

    fn restore_lengths(&mut self, side: Side, batch: &RecordBatch) -> Result<()> {
        let keys = self.plan.lengths_table(side).columns(batch)?;
        let lengths = numbers_of::<UInt32Type>(batch, ROWS)?;
        if lengths.contains(&0) {
            return Err(does_not_fit("a key has no rows".to_owned()));
        }
        let ids = self.intern(&keys, batch.num_rows())?;
        for (&id, &length) in ids.iter().zip(lengths) {
            self.slots[id as usize].chains[side as usize].length = length;
        }
        Ok(())
    }

    fn intern(&mut self, keys: &[ArrayRef], rows: usize) -> Result<Vec<u32>> {
        let mut ids = Vec::with_capacity(rows);
        self.keys.intern_rows(keys, None, rows, &mut ids)?;
        self.slots.grow(self.keys.id_limit(), Slot::EMPTY);
        Ok(ids)
    }
}
