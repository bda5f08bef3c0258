//! One key range of a temporal join.
//!
//! **Invariants:**
//! - rows wait for the first watermark beyond their time (or beyond the watermark before them):
//!   none of those that wait could have left already;
//! - a key is known as long as it has a version or a row waits for it;
//! - versions are dropped only when all rows that the watermark lets go have met theirs.
//!
//! # A watermark
//!
//! 1. `find` collects the rows that are due and the keys with versions that are now seen.
//! 2. `emit_leaving` sends rows with their versions. It may stop when time is up.
//! 3. `waiting.pass` and `prune`, only when all rows have left: a row that still waits to be
//!    emitted may need a version that `prune` would drop.
//!
//! A row waits until `max(time, watermark before it) + 1`: at equality with its time another
//! version of the same time may still come.

use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray};
use thalweg_core::operator::WatermarkCall;
use thalweg_core::{
    Captured, Error, Extent, Output, Partition, PartitionContext, Piece, Place, Progress, Restored,
    Result, RowKind,
};

use super::TemporalContext;
use super::snapshot::VERSIONS;
use super::versions::Versions;
use crate::capture::keys::{KeyTracker, KeyedState};
use crate::join::JoinKind;
use crate::join::bounded::PAIRS_MAX;
use crate::join::bounded::side_rows::{self, SideRows, Split};
use crate::join::sides::Side;
use crate::keys::KeyTable;
use crate::keys::ranks::KeyRanks;
use crate::rows::chunks::RowRef;
use crate::rows::columns::keys_of;
use crate::rows::due_queue::DueQueue;
use crate::rows::event_time::{EventTimeBuffer, WaitingRow};
use crate::rows::input;

/// How many keys are pruned between two looks at the clock.
const PRUNED_AT_ONCE: usize = 1024;

/// A row of the left side that waits; with false where a key column is NULL.
pub(super) type Left = WaitingRow<bool>;

/// One key range.
pub(super) struct TemporalPartition {
    pub(super) shared: Arc<TemporalContext>,
    pub(super) keys: KeyTable,
    pub(super) ids: Vec<u32>,
    /// By key: how many rows wait.
    pub(super) waits: Vec<u32>,
    /// By key: whether it is known.
    pub(super) is_known: Vec<bool>,
    /// Rows of the left side.
    pub(super) waiting: EventTimeBuffer<bool>,
    pub(super) versions: Versions,
    /// Keys with versions, by when these are seen.
    pub(super) fresh: DueQueue<u32>,
    ranks: KeyRanks,
    /// Rows that leave, in order, with the time at which they could.
    leaving: Vec<(i64, Left)>,
    left_already: usize,
    /// Keys whose older versions are no longer needed.
    to_prune: Vec<u32>,
    pub(super) tracker: Option<KeyTracker>,
}

impl TemporalPartition {
    pub fn new(shared: Arc<TemporalContext>, opening: PartitionContext) -> Result<Self> {
        Ok(TemporalPartition {
            keys: KeyTable::new(&shared.joined.key_types)?,
            ids: Vec::new(),
            waits: Vec::new(),
            is_known: Vec::new(),
            waiting: EventTimeBuffer::new(shared.waiting_shape()),
            versions: Versions::new(shared.spec.join.sides.schema(Side::Right)),
            fresh: DueQueue::new(),
            ranks: KeyRanks::new(opening.order, &shared.joined.key_types)?,
            leaving: Vec::new(),
            left_already: 0,
            to_prune: Vec::new(),
            tracker: None,
            shared,
        })
    }

    /// Numbers the keys of the rows in `ids`; says which columns hold no NULL.
    pub fn intern(
        &mut self,
        columns: &[ArrayRef],
        keys: &[usize],
        rows: usize,
    ) -> Result<Vec<bool>> {
        let keys = keys_of(columns, keys);
        self.ids.clear();
        self.keys.intern_rows(&keys, None, rows, &mut self.ids)?;
        let limit = self.keys.id_limit();
        self.versions.reserve_keys(limit);
        self.waits.resize(limit, 0);
        self.is_known.resize(limit, false);
        self.ids.iter().for_each(|&id| self.is_known[id as usize] = true);
        let joinable = input::joinable(&keys);
        Ok((0..rows).map(|row| joinable.as_ref().is_none_or(|nulls| nulls.is_valid(row))).collect())
    }

    fn take_left(&mut self, of_side: &SideRows, piece: &Piece<'_>) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        let spec = &shared.spec;
        let times =
            input::times(&of_side.columns, spec.left_time, spec.join.sides.schema(Side::Left))?;
        let joins = self.intern(&of_side.columns, &spec.join.left_keys, of_side.rows.len())?;
        let mut added = self.waiting.add(of_side.columns.clone(), of_side.rows.len());
        for (place, &row) in of_side.rows.iter().enumerate() {
            let (time, key) = (times[place], self.ids[place]);
            let kind = piece.bundle.kinds.as_ref().map_or(RowKind::Insert, |k| k[row as usize]);
            let before = piece.bundle.stamps.watermark_before.at(row as usize).0;
            let due = time.max(before).saturating_add(1);
            let row = added.row(place);
            self.waits[key as usize] += 1;
            let left = Left { time, key, row, kind, extra: joins[place] };
            self.waiting.wait(&mut added, due, left);
        }
        self.waiting.finish(added);
        Ok(())
    }

    fn take_right(&mut self, of_side: &SideRows, piece: &Piece<'_>) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        let spec = &shared.spec;
        let schema = spec.join.sides.schema(Side::Right);
        let times = input::times(&of_side.columns, spec.right_time, schema)?;
        let joins = self.intern(&of_side.columns, &spec.join.right_keys, of_side.rows.len())?;
        let ids = std::mem::take(&mut self.ids);
        self.touch(VERSIONS, &ids)?;
        self.ids = ids;
        let chunk = self.versions.add_rows(of_side.columns.clone(), of_side.rows.len());
        let mut unused = Vec::new();
        for (place, &row) in of_side.rows.iter().enumerate() {
            let (time, key) = (times[place], self.ids[place]);
            let kind = piece.bundle.kinds.as_ref().map_or(RowKind::Insert, |k| k[row as usize]);
            if self.shared.append_only_versions && kind != RowKind::Insert {
                return Err(Error::internal("an asof join met an update of its right side"));
            }
            let before = piece.bundle.stamps.watermark_before.at(row as usize).0;
            let version = match kind {
                RowKind::Delete => RowRef::NONE,
                _ => RowRef { chunk, row: place as u32 },
            };
            if joins[place] && kind != RowKind::UpdateBefore {
                self.versions.insert(key, time, before, version);
                self.fresh.push(time.max(before), key);
            } else {
                unused.push(key);
            }
        }
        unused.into_iter().for_each(|key| self.forget_if_unused(key));
        self.versions.finish_rows(chunk)
    }

    /// Forgets a key that has no version and that no row waits for.
    fn forget_if_unused(&mut self, key: u32) {
        let at = key as usize;
        if self.is_known[at] && self.waits[at] == 0 && self.versions.is_empty(key) {
            self.is_known[at] = false;
            self.keys.release(key);
        }
    }

    // --- at watermarks ---

    /// Finds the rows that leave, in their order, and the keys with versions to drop.
    fn find(&mut self, watermark: i64) -> Result<()> {
        let (leaving, to_prune) = (&mut self.leaving, &mut self.to_prune);
        self.waiting.pop_due(watermark, |due, left| leaving.push((due, left)));
        self.fresh.pop_due(watermark.saturating_sub(1), |_, key| to_prune.push(key));
        to_prune.sort_unstable();
        to_prune.dedup();
        let chunks = self.waiting.rows();
        let ids: Vec<u32> = leaving.iter().map(|(_, left)| left.key).collect();
        let ranks = self.ranks.of_ids(&self.keys, &ids)?;
        let rows = std::mem::take(leaving).into_iter().zip(ranks);
        let mut rows: Vec<_> = rows
            .map(|((due, left), rank)| {
                let order = (due, rank, left.time, chunks.arrival(left.row));
                (order, left)
            })
            .collect();
        rows.sort_unstable_by_key(|&(order, _)| order);
        *leaving = rows.into_iter().map(|(order, left)| (order.0, left)).collect();
        Ok(())
    }

    /// The version that each row meets, if any.
    fn partners(&self, rows: &[(i64, Left)], wall_ms: i64) -> Result<Vec<RowRef>> {
        let partner = |(due, left): &(i64, Left)| {
            let found = left.extra.then(|| self.versions.as_of(left.key, due - 1)).flatten();
            found.filter(|(time, _)| *time <= left.time).map_or(RowRef::NONE, |(_, row)| row)
        };
        let mut partners: Vec<RowRef> = rows.iter().map(partner).collect();
        if !self.shared.joined.has_mask() {
            return Ok(partners);
        }
        let places: Vec<usize> =
            (0..rows.len()).filter(|&place| partners[place].is_some()).collect();
        let left: Vec<RowRef> = places.iter().map(|&place| rows[place].1.row).collect();
        let right: Vec<RowRef> = places.iter().map(|&place| partners[place]).collect();
        let joined = &self.shared.joined;
        let left =
            self.waiting.rows().gather_columns(&left, joined.residual_columns(Side::Left))?;
        let right = self.versions.gather_columns(&right, joined.residual_columns(Side::Right))?;
        if let Some(mask) = joined.mask_of_equal(None, left, right, places.len(), wall_ms)? {
            let mask = BooleanArray::new(mask, None);
            let fails = places.iter().enumerate().filter(|&(n, _)| !mask.value(n));
            fails.for_each(|(_, &place)| partners[place] = RowRef::NONE);
        }
        Ok(partners)
    }

    /// Sends rows on with their versions, until time is up.
    fn emit_leaving(&mut self, output: &mut Output) -> Result<Progress> {
        while self.left_already < self.leaving.len() {
            let to = self.leaving.len().min(self.left_already + PAIRS_MAX);
            let rows = &self.leaving[self.left_already..to];
            let mut partners = self.partners(rows, output.wall_ms())?;
            let stays = |partner: &RowRef| partner.is_some();
            let is_inner = self.shared.joined.kind == JoinKind::Inner;
            let kept =
                rows.iter().zip(&partners).filter(|(_, partner)| !is_inner || stays(partner));
            let kept: Vec<(i64, Left)> = kept.map(|(row, _)| *row).collect();
            partners.retain(|partner| !is_inner || stays(partner));
            let refs: Vec<RowRef> = kept.iter().map(|(_, left)| left.row).collect();
            let (left, right) =
                (self.waiting.rows().gather(&refs)?, self.versions.gather(&partners)?);
            let batch = self.shared.joined.batch(left, right, kept.len())?;
            let place = Place::WindowEnds(kept.iter().map(|(due, _)| *due).collect());
            match kept.iter().any(|(_, left)| left.kind != RowKind::Insert) {
                true => {
                    let kinds = kept.iter().map(|(_, left)| left.kind).collect();
                    output.emit_changes(batch, kinds, place);
                }
                false => output.emit_at(batch, place),
            }
            for place in self.left_already..to {
                let Left { key, row, .. } = self.leaving[place].1;
                self.waiting.release(std::iter::once(row));
                self.waits[key as usize] -= 1;
                self.forget_if_unused(key);
            }
            self.left_already = to;
            if to < self.leaving.len() && output.time_is_up() {
                return Ok(Progress::More);
            }
        }
        self.leaving = Vec::new();
        self.left_already = 0;
        Ok(Progress::Done)
    }

    /// Drops versions, until time is up.
    fn prune(&mut self, watermark: i64, output: &Output) -> Result<Progress> {
        while !self.to_prune.is_empty() {
            let from = self.to_prune.len().saturating_sub(PRUNED_AT_ONCE);
            let keys = self.to_prune.split_off(from);
            self.touch(VERSIONS, &keys)?;
            let mut gone = Vec::new();
            for &key in &keys {
                let is_empty = self.versions.prune(key, watermark.saturating_sub(1));
                // Named twice, it may have been forgotten already.
                if is_empty && self.is_known[key as usize] {
                    gone.push(key);
                }
            }
            if let Some(tracker) = &mut self.tracker {
                tracker.go(&self.keys, &gone)?;
            }
            gone.into_iter().for_each(|key| self.forget_if_unused(key));
            self.versions.merge_sparse()?;
            if !self.to_prune.is_empty() && output.time_is_up() {
                return Ok(Progress::More);
            }
        }
        self.to_prune = Vec::new();
        Ok(Progress::Done)
    }
}

impl Partition for TemporalPartition {
    fn rows(&mut self, piece: Piece<'_>, output: &mut Output) -> Result<()> {
        if piece.num_rows() == 0 {
            return Ok(());
        }
        let Split { left, right, .. } = side_rows::split(&self.shared.spec.join.sides, &piece)?;
        if !right.rows.is_empty() {
            self.take_right(&right, &piece)?;
        }
        if !left.rows.is_empty() {
            self.take_left(&left, &piece)?;
        }
        output.accepted += piece.num_rows() as u64;
        Ok(())
    }

    fn watermark(&mut self, call: &WatermarkCall<'_>, output: &mut Output) -> Result<Progress> {
        if self.leaving.is_empty() && self.to_prune.is_empty() {
            self.find(call.watermark.0)?;
        }
        if self.emit_leaving(output)? == Progress::More {
            return Ok(Progress::More);
        }
        self.waiting.pass(call.watermark.0);
        self.prune(call.watermark.0, output)
    }

    fn state_bytes(&self) -> usize {
        self.keys.bytes()
            + self.ids.capacity() * 4
            + self.waits.capacity() * 4
            + self.is_known.capacity()
            + self.waiting.bytes()
            + self.versions.bytes()
            + self.fresh.bytes()
            + self.leaving.capacity() * size_of::<(i64, Left)>()
            + self.to_prune.capacity() * 4
            + self.tracker.as_ref().map_or(0, KeyTracker::bytes)
    }

    fn state_keys(&self) -> Option<usize> {
        Some(self.keys.len())
    }
    /// Without keys, versions at once.
    fn capture(&mut self, extent: Extent) -> Result<Captured> {
        self.capture_state(extent)
    }

    fn restore(&mut self, restored: &Restored) -> Result<()> {
        self.restore_state(restored)
    }
}
