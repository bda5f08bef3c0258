//! One key range of an interval join.
//!
//! A stretch of rows of one side first looks for partners among the other side's rows, then joins
//! its own side's: rows of one side never meet. Pairs are collected over the stretches of a bundle
//! and put side by side together.
//!
//! **Invariants:**
//! - each entry of an index, each waiting row and each row about to leave holds its chunk once;
//! - pairs stand in the order of the rows that caused them, those of one row in the order in which
//!   the partners came.
//!
//! A stretch that ends early (`is_full`) is not lost: the rows behind it come again with the next
//! call. They are already in the chunk that `arrive` added, so they are noted as left out of it,
//! and a capture skips them.
//!
//! Inputs are append-only: `input::inserts_only` guards the runtime's promise.

use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray};
use arrow_buffer::{NullBuffer, ScalarBuffer};
use arrow_select::filter::filter_record_batch;
use thalweg_core::operator::WatermarkCall;
use thalweg_core::{
    Captured, Extent, Output, Partition, PartitionContext, Piece, Place, Progress, Restored,
    Result, TableChanges, WatermarkBefore,
};

use super::IntervalContext;
use super::index::{Chains, Places, SoughtTimes, Timeline};
use crate::join::JoinKind;
use crate::join::bounded::PAIRS_MAX;
use crate::join::bounded::side_rows::{self, SideRows, SideStretch};
use crate::join::sides::Side;
use crate::keys::hash_keys;
use crate::keys::ranks::KeyRanks;
use crate::rows::chunk_capture::Notes;
use crate::rows::chunks::{Chunks, RowRef};
use crate::rows::columns::keys_of;
use crate::rows::due_queue::DueQueue;
use crate::rows::input;

/// At most this many rows are looked up together, where one set of buckets holds their partners.
const BLOCK_ROWS: usize = 256;

/// What is kept of one side.
pub(super) struct KeptSide {
    pub(super) chunks: Chunks,
    pub(super) timeline: Timeline,
    /// Rows that leave without a partner unless they find one.
    pub(super) waiting: DueQueue<RowRef>,
    /// True if such rows leave.
    pub(super) pads: bool,
    /// True if it matters who has found a partner.
    pub(super) marks: bool,
    /// Where nobody reads the columns: a capture has the rows that were there.
    pub(super) is_captured: bool,
}

/// Rows of one side of a piece, ready to be looked up.
struct Arrived<'a> {
    side: Side,
    chunk: u32,
    rows: &'a [u32],
    times: ScalarBuffer<i64>,
    hashes: Vec<u64>,
    joinable: Option<NullBuffer>,
    before: &'a WatermarkBefore,
}

impl Arrived<'_> {
    #[inline]
    fn before(&self, place: usize) -> i64 {
        self.before.at(self.rows[place] as usize).0
    }
    #[inline]
    fn joins(&self, place: usize) -> bool {
        self.joinable.as_ref().is_none_or(|nulls| nulls.is_valid(place))
    }
}

/// Pairs, and the row of the bundle that caused each.
#[derive(Default)]
struct IntervalPairs {
    left: Vec<RowRef>,
    right: Vec<RowRef>,
    causes: Vec<u32>,
}

/// A row that leaves without a partner.
struct Leaving {
    due: i64,
    side: Side,
    row: RowRef,
}

/// One key range.
pub(super) struct IntervalPartition {
    pub(super) shared: Arc<IntervalContext>,
    left: KeptSide,
    right: KeptSide,
    pub(super) watermark: i64,
    pairs: IntervalPairs,
    partners: Vec<RowRef>,
    chains: Chains,
    ranks: KeyRanks,
    /// In the order in which they leave.
    leaving: Vec<Leaving>,
    /// How many of them have left.
    left_already: usize,
}

impl IntervalPartition {
    pub fn new(shared: Arc<IntervalContext>, opening: PartitionContext) -> Result<Self> {
        let kind = shared.spec.join.kind;
        let shift = shared.bounds.bucket_shift();
        let kept = |side, pads, marks| KeptSide {
            chunks: Chunks::new(shared.spec.join.sides.schema(side)),
            timeline: Timeline::new(shift),
            waiting: DueQueue::new(),
            pads,
            marks,
            is_captured: false,
        };
        let selects = matches!(kind, JoinKind::Semi | JoinKind::Anti);
        let pads_left = kind.pads_left_rows() || kind == JoinKind::Anti;
        let pads_right = kind.pads_right_rows();
        Ok(IntervalPartition {
            left: kept(Side::Left, pads_left, pads_left || selects),
            right: kept(Side::Right, pads_right, pads_right),
            watermark: i64::MIN,
            pairs: IntervalPairs::default(),
            partners: Vec::new(),
            chains: Chains::default(),
            ranks: KeyRanks::new(opening.order, &shared.joined.key_types)?,
            leaving: Vec::new(),
            left_already: 0,
            shared,
        })
    }

    pub fn kept(&mut self, side: Side) -> &mut KeptSide {
        side.pick(&mut self.left, &mut self.right)
    }

    fn arrive<'a>(
        &mut self,
        side: Side,
        of_side: &'a SideRows,
        before: &'a WatermarkBefore,
    ) -> Result<Arrived<'a>> {
        let shared = Arc::clone(&self.shared);
        let (keys, time) = side.pick(
            (&shared.spec.join.left_keys, shared.spec.left_time),
            (&shared.spec.join.right_keys, shared.spec.right_time),
        );
        let rows = &of_side.rows;
        let times = input::times(&of_side.columns, time, shared.spec.join.sides.schema(side))?;
        let keys = keys_of(&of_side.columns, keys);
        let hashes = hash_keys(&keys, rows.len())?;
        let columns = if shared.joined.reads(side) { of_side.columns.clone() } else { Vec::new() };
        let kept = self.kept(side);
        let chunk = kept.chunks.add(columns, rows.len(), kept.marks);
        Ok(Arrived { side, chunk, rows, times, hashes, joinable: input::joinable(&keys), before })
    }

    /// Looks for partners from the row at `from` on, until the rows or the room for pairs are used
    /// up; says how far it came.
    ///
    /// Consecutive rows mostly ask for the same buckets. The heads of their chains are read for a
    /// block of rows at once, and blocks grow while the buckets stay the same: for times that
    /// alternate, a large block would be read in vain.
    fn look_up(&mut self, arrived: &Arrived<'_>, from: usize, to: usize) -> usize {
        let bounds = self.shared.bounds;
        let selects = matches!(self.shared.spec.join.kind, JoinKind::Semi | JoinKind::Anti);
        let (left, partners) = (&self.left.chunks, &mut self.partners);
        let others = arrived.side.pick(&self.right, &self.left);
        let mut places = Places::none();
        // The chains of these rows are begun; few at first, for times that go to and fro.
        let (mut begun, mut block) = (from..from, 1);
        for place in from..to {
            let (time, before) = (arrived.times[place], arrived.before(place));
            if !arrived.joins(place) || bounds.is_late(arrived.side, time, before) {
                continue;
            }
            let (low, high) = bounds.partners(arrived.side, time, before);
            if low > high {
                continue;
            }
            let moved = !others.timeline.are_places(&places, low, high);
            if moved {
                places = others.timeline.places(low, high);
            }
            if moved || place >= begun.end {
                block = if moved { 1 } else { BLOCK_ROWS.min(block * 4) };
                begun = place..to.min(place + block);
                let hashes = &arrived.hashes[begun.clone()];
                others.timeline.begin(&places, hashes, &mut self.chains);
            }
            let sought = SoughtTimes { hash: arrived.hashes[place], time, low, high };
            let chain = (&self.chains, place - begun.start);
            others.timeline.find(&places, chain, &sought, |row| partners.push(row));
            if partners.is_empty() {
                continue;
            }
            if selects && arrived.side == Side::Right {
                // A semi join emits a left row once, an anti join drops it for good: further
                // partners change nothing.
                partners.retain(|&row| !left.is_matched(row));
            }
            // Chains run from new to old, and several buckets may have been asked: arrival order is
            // the only one that does not depend on how rows are indexed.
            if partners.len() > 1 {
                partners.sort_unstable_by_key(|&row| others.chunks.arrival(row));
            }
            self.pairs.add(arrived, place, partners);
            if self.pairs.causes.len() >= PAIRS_MAX {
                return place + 1;
            }
        }
        to
    }

    /// Keeps rows for partners to come.
    fn keep(&mut self, arrived: &Arrived<'_>, from: usize, to: usize) {
        let bounds = self.shared.bounds;
        let (watermark, side) = (self.watermark, arrived.side);
        let kept = self.kept(side);
        let (mut holds, mut notes) = (0, Notes::default());
        for place in from..to {
            if (place - from).is_multiple_of(BLOCK_ROWS) {
                kept.timeline.warm(&arrived.hashes[place..to.min(place + BLOCK_ROWS)]);
            }
            let (time, before) = (arrived.times[place], arrived.before(place));
            if bounds.is_late(side, time, before) {
                notes.left_out.push(place as u32);
                continue;
            }
            let row = RowRef { chunk: arrived.chunk, row: place as u32 };
            let done_at = bounds.done_at(side, time);
            if kept.pads {
                kept.waiting.push(done_at, row);
                holds += 1;
                if done_at <= watermark {
                    // It leaves at the next watermark, whatever its time says.
                    notes.dues.push((row.row, watermark.saturating_add(1)));
                }
            }
            if arrived.joins(place) && done_at > watermark {
                let reach = (time <= before).then(|| bounds.reach(side, time, before));
                notes.reaches.extend(reach.map(|reach| (row.row, reach)));
                kept.timeline.insert(arrived.hashes[place], time, row, reach);
                holds += 1;
            }
        }
        kept.chunks.note(arrived.chunk, notes);
        kept.chunks.hold(arrived.chunk, holds);
    }

    /// Joins a stretch of rows, at least one of them, until the output is full; says how far it
    /// came.
    fn stretch(
        &mut self,
        arrived: &Arrived<'_>,
        stretch: SideStretch,
        output: &mut Output,
    ) -> Result<usize> {
        let mut from = stretch.from;
        while from < stretch.to {
            from = self.look_up(arrived, from, stretch.to);
            if self.pairs.causes.len() >= PAIRS_MAX {
                self.flush(output)?;
            }
            if output.is_full() {
                break;
            }
        }
        self.keep(arrived, stretch.from, from);
        Ok(from)
    }

    /// Joins the stretches of a piece. The row of the bundle that is next, if the output is full
    /// before the last.
    fn stretches(
        &mut self,
        stretches: &[SideStretch],
        all: [Option<&Arrived<'_>>; 2],
        output: &mut Output,
    ) -> Result<Option<u32>> {
        let row_of = |side: Side, place: usize| {
            all[side as usize].and_then(|arrived| arrived.rows.get(place).copied())
        };
        for (number, &stretch) in stretches.iter().enumerate() {
            let Some(arrived) = all[stretch.side as usize] else { continue };
            let reached = self.stretch(arrived, stretch, output)?;
            let next = match stretches.get(number + 1) {
                _ if reached < stretch.to => row_of(stretch.side, reached),
                Some(next) if output.is_full() => row_of(next.side, next.from),
                _ => None,
            };
            if let Some(next) = next {
                all.into_iter().flatten().for_each(|arrived| self.leave_out(arrived, next));
                return Ok(Some(next));
            }
        }
        Ok(None)
    }

    /// Rows from this one of the bundle on come once more: they are not kept.
    fn leave_out(&mut self, arrived: &Arrived<'_>, next: u32) {
        let from = arrived.rows.partition_point(|&row| row < next);
        let left_out = (from as u32..arrived.rows.len() as u32).collect();
        let notes = Notes { left_out, ..Notes::default() };
        self.kept(arrived.side).chunks.note(arrived.chunk, notes);
    }

    /// Puts the pairs side by side and sends them on.
    fn flush(&mut self, output: &mut Output) -> Result<()> {
        let pairs = std::mem::take(&mut self.pairs);
        for from in (0..pairs.causes.len()).step_by(PAIRS_MAX) {
            let to = pairs.causes.len().min(from + PAIRS_MAX);
            let causes = &pairs.causes[from..to];
            self.flush_some(&pairs.left[from..to], &pairs.right[from..to], causes, output)?;
        }
        if pairs.causes.len() <= 2 * PAIRS_MAX {
            self.pairs = pairs;
            self.pairs.clear();
        }
        Ok(())
    }

    fn flush_some(
        &mut self,
        left: &[RowRef],
        right: &[RowRef],
        causes: &[u32],
        output: &mut Output,
    ) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        let joined = &shared.joined;
        let leaves_in_pairs = joined.kind.has_right_columns();
        let (mut columns, mut mask) = ([Vec::new(), Vec::new()], None);
        if leaves_in_pairs || joined.has_mask() {
            columns = [self.left.chunks.gather(left)?, self.right.chunks.gather(right)?];
            mask = joined.mask(&columns[0], &columns[1], left.len(), output.wall_ms())?;
        }
        let stays = |n: usize| mask.as_ref().is_none_or(|mask| mask.value(n));
        let mut chosen = (Vec::new(), Vec::new());
        if self.left.marks || self.right.marks {
            for n in (0..left.len()).filter(|&n| stays(n)) {
                if joined.kind == JoinKind::Semi && !self.left.chunks.is_matched(left[n]) {
                    chosen.0.push(left[n]);
                    chosen.1.push(causes[n]);
                }
                self.left.mark(left[n]);
                self.right.mark(right[n]);
            }
        }
        if !leaves_in_pairs {
            let (rows, causes) = chosen;
            let columns = self.left.chunks.gather(&rows)?;
            let batch = joined.batch(columns, Vec::new(), rows.len())?;
            output.emit_at(batch, Place::Caused(causes));
            return Ok(());
        }
        let [left_columns, right_columns] = columns;
        let batch = joined.batch(left_columns, right_columns, left.len())?;
        let Some(mask) = &mask else {
            output.emit_at(batch, Place::Caused(causes.to_vec()));
            return Ok(());
        };
        let batch = filter_record_batch(&batch, &BooleanArray::new(mask.clone(), None))?;
        let causes = mask.set_indices().map(|n| causes[n]).collect();
        output.emit_at(batch, Place::Caused(causes));
        Ok(())
    }

    /// Counts rows, and treats those that are late.
    fn judge(
        &self,
        piece: &Piece<'_>,
        all: [Option<&Arrived<'_>>; 2],
        next: Option<u32>,
        output: &mut Output,
    ) -> Result<()> {
        let mut late = Vec::new();
        let is_taken = |row: u32| next.is_none_or(|next| row < next);
        for arrived in all.into_iter().flatten() {
            let lowest = arrived.times.iter().min().copied().unwrap_or(i64::MAX);
            if matches!(arrived.before, WatermarkBefore::All(before) if before.0 < lowest) {
                continue;
            }
            for (place, &time) in arrived.times.iter().enumerate() {
                let row = arrived.rows[place];
                let is_late = self.shared.bounds.is_late(arrived.side, time, arrived.before(place));
                if is_late && is_taken(row) {
                    late.push((row, time));
                }
            }
        }
        late.sort_unstable();
        let taken: usize = all
            .into_iter()
            .flatten()
            .map(|arrived| arrived.rows.partition_point(|&row| is_taken(row)))
            .sum();
        if next.is_some() {
            output.stop_at(taken);
        }
        output.accepted += (taken - late.len()) as u64;
        input::treat_late(self.shared.spec.late, &late, piece, output)
    }

    // --- at watermarks ---

    /// Finds the rows that are done without a partner, in the order in which they leave.
    ///
    /// The order is (due, rank of the key, left before right, arrival). The rank is 0 for all keys
    /// where no sequence is promised.
    fn find_leaving(&mut self) -> Result<()> {
        let mut leaving = Vec::new();
        for side in [Side::Left, Side::Right] {
            let watermark = self.watermark;
            let KeptSide { chunks, waiting, .. } = self.kept(side);
            waiting.pop_due(watermark, |due, row| match chunks.is_matched(row) {
                true => chunks.release(row.chunk, 1),
                false => leaving.push(Leaving { due, side, row }),
            });
        }
        if leaving.is_empty() {
            return Ok(());
        }
        let ranks = self.ranks_of(&leaving)?;
        let arrival = |leaving: &Leaving| {
            leaving.side.pick(&self.left, &self.right).chunks.arrival(leaving.row)
        };
        let keyed = leaving.into_iter().zip(ranks);
        let mut keyed: Vec<_> =
            keyed.map(|(row, rank)| (row.due, rank, row.side, arrival(&row), row)).collect();
        keyed.sort_unstable_by_key(|&(due, rank, side, arrival, _)| (due, rank, side, arrival));
        self.leaving = keyed.into_iter().map(|(.., row)| row).collect();
        self.left_already = 0;
        Ok(())
    }

    /// The rank of each one's key.
    fn ranks_of(&self, leaving: &[Leaving]) -> Result<Vec<u32>> {
        if !self.ranks.is_ordered() {
            return Ok(vec![0; leaving.len()]);
        }
        let keys =
            |side: Side, kept: &KeptSide, keys: &[usize]| -> Result<(Vec<ArrayRef>, usize)> {
                let rows: Vec<RowRef> =
                    leaving.iter().filter(|row| row.side == side).map(|row| row.row).collect();
                Ok((kept.chunks.gather_columns(&rows, keys)?, rows.len()))
            };
        let spec = &self.shared.spec;
        let left = keys(Side::Left, &self.left, &spec.join.left_keys)?;
        let right = keys(Side::Right, &self.right, &spec.join.right_keys)?;
        let [left, right] = self.ranks.of_rows([left, right])?;
        let (mut left, mut right) = (left.into_iter(), right.into_iter());
        let next = |row: &Leaving| match row.side {
            Side::Left => left.next().unwrap_or(0),
            Side::Right => right.next().unwrap_or(0),
        };
        Ok(leaving.iter().map(next).collect())
    }

    /// Sends rows without a partner on, until time is up.
    fn emit_leaving(&mut self, output: &mut Output) -> Result<Progress> {
        while self.left_already < self.leaving.len() {
            let to = self.leaving.len().min(self.left_already + PAIRS_MAX);
            let some = &self.leaving[self.left_already..to];
            let of = |side: Side| -> Vec<RowRef> {
                some.iter().map(|l| if l.side == side { l.row } else { RowRef::NONE }).collect()
            };
            let left = self.left.chunks.gather(&of(Side::Left))?;
            let right = match self.shared.joined.kind.has_right_columns() {
                true => self.right.chunks.gather(&of(Side::Right))?,
                false => Vec::new(),
            };
            let batch = self.shared.joined.batch(left, right, some.len())?;
            output.emit_at(batch, Place::WindowEnds(some.iter().map(|l| l.due).collect()));
            for place in self.left_already..to {
                let Leaving { side, row, .. } = self.leaving[place];
                self.kept(side).chunks.release(row.chunk, 1);
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
}

impl KeptSide {
    fn mark(&mut self, row: RowRef) {
        if self.marks {
            self.chunks.set_matched(row);
        }
    }

    fn bytes(&self) -> usize {
        self.chunks.bytes() + self.timeline.bytes() + self.waiting.bytes()
    }
}

impl IntervalPairs {
    /// Adds a row with its partners.
    #[inline]
    fn add(&mut self, arrived: &Arrived<'_>, place: usize, partners: &mut Vec<RowRef>) {
        let row = RowRef { chunk: arrived.chunk, row: place as u32 };
        let (own, others) = match arrived.side {
            Side::Left => (&mut self.left, &mut self.right),
            Side::Right => (&mut self.right, &mut self.left),
        };
        own.extend(std::iter::repeat_n(row, partners.len()));
        self.causes.extend(std::iter::repeat_n(arrived.rows[place], partners.len()));
        others.append(partners);
    }

    fn clear(&mut self) {
        self.left.clear();
        self.right.clear();
        self.causes.clear();
    }
}

impl Partition for IntervalPartition {
    fn rows(&mut self, piece: Piece<'_>, output: &mut Output) -> Result<()> {
        if piece.num_rows() == 0 {
            return Ok(());
        }
        input::inserts_only(&piece, "an interval join")?;
        let split = side_rows::split(&self.shared.spec.join.sides, &piece)?;
        let before = &piece.bundle.stamps.watermark_before;
        let [left, right] = [Side::Left, Side::Right].map(|side| {
            let of_side = split.of(side);
            (!of_side.rows.is_empty()).then(|| self.arrive(side, of_side, before))
        });
        let (left, right) = (left.transpose()?, right.transpose()?);
        let all = [left.as_ref(), right.as_ref()];
        let next = self.stretches(&split.stretches, all, output)?;
        self.flush(output)?;
        self.judge(&piece, all, next, output)?;
        for arrived in [left, right].into_iter().flatten() {
            self.kept(arrived.side).chunks.release(arrived.chunk, 1);
        }
        Ok(())
    }

    fn watermark(&mut self, call: &WatermarkCall<'_>, output: &mut Output) -> Result<Progress> {
        if self.leaving.is_empty() {
            self.watermark = self.watermark.max(call.watermark.0);
            self.find_leaving()?;
            let (bounds, watermark) = (self.shared.bounds, self.watermark);
            for side in [Side::Left, Side::Right] {
                let KeptSide { chunks, timeline, .. } = self.kept(side);
                timeline.drop_until(
                    |last| bounds.done_at(side, last) <= watermark,
                    |chunk, count| chunks.release(chunk, count),
                );
                if watermark == i64::MAX {
                    timeline.shrink();
                }
            }
            if watermark == i64::MAX {
                (self.pairs, self.partners) = (IntervalPairs::default(), Vec::new());
            }
        }
        self.emit_leaving(output)
    }

    fn state_bytes(&self) -> usize {
        let pairs = self.pairs.causes.capacity() * (4 + 2 * size_of::<RowRef>());
        self.left.bytes()
            + self.right.bytes()
            + pairs
            + self.leaving.capacity() * size_of::<Leaving>()
            + self.chains.bytes()
    }

    fn state_keys(&self) -> Option<usize> {
        Some(self.left.timeline.rows() + self.right.timeline.rows())
    }
    fn capture(&mut self, extent: Extent) -> Result<Captured> {
        self.capture_state(extent)
    }

    fn table_changes(&mut self) -> Vec<TableChanges> {
        self.changes()
    }

    fn stop_tracking(&mut self, table: &str) {
        self.stop_tracking_of(table);
    }

    fn restore(&mut self, restored: &Restored) -> Result<()> {
        self.restore_state(restored)
    }
}
