//! The first pass: rows change the state of their key and list their candidates.
//!
//! **Invariants**
//! - `steps` and `candidates` describe the rows since the last `flush`, in their order. Candidates
//!   of step `n` are those from `steps[n - 1].end` to `steps[n].end`.
//! - Places of candidates stay valid until `finish`: no row moves within a piece, and the number of
//!   a removed row is not used again before its end. So a row that a later row of the piece removes
//!   can still be gathered for an earlier one.
//! - A key with a row on either side is in `keys`. Keys that may have lost their last row wait in
//!   `emptied`, each once (`is_listed`), and are released only at the end of the piece: `arrivals`
//!   holds their ids until then.

use std::sync::Arc;

use arrow_array::BooleanArray;
use thalweg_core::operator::WatermarkCall;
use thalweg_core::{
    Captured, Extent, Output, Partition, Piece, Progress, Restored, Result, TableChanges,
};

use super::changes::JoinChanges;
use super::expiry::RowExpiry;
use super::incoming::{Arrivals, JoinArrival, adds};
use super::plan::RegularJoinPlan;
use super::settle::{Candidates, JoinStep, Settlement};
use super::snapshot::{capture_state, changes, stop_tracking};
use super::state::{Chain, Incoming, SideState};
use crate::capture::keys::{KeyTracker, KeyedState};
use crate::capture::shared::{SharedCapture, SharedState};
use crate::gradual::Pages;
use crate::join::sides::Side;
use crate::keys::KeyTable;
use crate::rows::arena::{ArenaPlace, NIL};

/// Candidates are settled when they are this many: that bounds memory, and keeps them in the cache.
const CANDIDATES_MAX: usize = 1 << 15;

/// The rows of one key.
#[derive(Clone, Copy)]
pub(super) struct Slot {
    pub chains: [Chain; 2],
    /// True while it waits in `emptied`.
    is_listed: bool,
}

impl Slot {
    pub const EMPTY: Slot = Slot { chains: [Chain::EMPTY; 2], is_listed: false };

    fn is_empty(&self) -> bool {
        self.chains.iter().all(|chain| chain.length == 0)
    }
}

/// The rows of both sides of one key range.
pub(super) struct JoinState {
    pub plan: Arc<RegularJoinPlan>,
    pub keys: KeyTable,
    pub slots: Pages<Slot>,
    pub sides: [SideState; 2],
    /// Keys that may have no row left at the end of the piece.
    emptied: Vec<u32>,
    /// Where one side is only counted: set once there has been a capture.
    pub lengths: Option<KeyTracker>,
    /// Keys that may have no row of that side left at the end of the piece. Only filled for
    /// captures.
    uncounted: Vec<u32>,
    steps: Vec<JoinStep>,
    candidates: Candidates,
    changes: JoinChanges,
}

impl JoinState {
    pub fn new(plan: Arc<RegularJoinPlan>) -> Result<Self> {
        let state = |side, is_unique| {
            let expiry = plan.ttl_ms(side).map(RowExpiry::new);
            SideState::new(plan.side_table(side), is_unique, expiry)
        };
        Ok(JoinState {
            keys: KeyTable::new(&plan.key_types)?,
            slots: Pages::default(),
            sides: [
                state(Side::Left, plan.spec.left_unique),
                state(Side::Right, plan.spec.right_unique),
            ],
            emptied: Vec::new(),
            lengths: None,
            uncounted: Vec::new(),
            steps: Vec::new(),
            candidates: Candidates::default(),
            changes: JoinChanges::default(),
            plan,
        })
    }

    fn take(&mut self, arrivals: &Arrivals<'_>, arrival: JoinArrival) -> Result<()> {
        let JoinArrival { row, side, kind, key, .. } = arrival;
        let mut step = JoinStep { row, side, kind, own: NIL, end: 0, flag: false };
        if key != NIL {
            self.meet(arrivals, arrival, &mut step)?;
        }
        step.end = self.candidates.places.len();
        self.steps.push(step);
        Ok(())
    }

    /// Changes the state of the key and lists the rows of the other side.
    ///
    /// `step.flag` is what the second pass cannot see any more, as later rows have changed the
    /// chain by then:
    ///
    /// | the row | `flag` |
    /// |---|---|
    /// | is added | its chain had no row before it |
    /// | is retracted | its chain has no row after it |
    /// | left row of a semi or anti join, partners not counted | the other chain has rows |
    fn meet(
        &mut self,
        arrivals: &Arrivals<'_>,
        arrival: JoinArrival,
        step: &mut JoinStep,
    ) -> Result<()> {
        let JoinArrival { row, side, kind, key, .. } = arrival;
        let slot = &mut self.slots[key as usize];
        let chain = &mut slot.chains[side as usize];
        let state = &mut self.sides[side as usize];
        let hash = || arrivals.hash(arrival);
        let incoming = Incoming { columns: arrivals.columns(side), row, key, hash: &hash };
        match (adds(kind), self.plan.keeps(side)) {
            (true, true) => {
                step.own = state.add(chain, &incoming)?;
                step.flag = chain.length == 1;
            }
            (true, false) => {
                chain.length += 1;
                step.flag = chain.length == 1;
            }
            (false, true) => {
                let is_removed = state.remove(chain, &incoming)?;
                step.flag = is_removed && chain.length == 0;
            }
            (false, false) => {
                step.flag = chain.length == 1;
                chain.length = chain.length.saturating_sub(1);
                if self.lengths.is_some() && chain.length == 0 {
                    self.uncounted.push(key);
                }
            }
        }
        let other = slot.chains[side.other() as usize];
        if !slot.is_listed && slot.is_empty() {
            slot.is_listed = true;
            self.emptied.push(key);
        }
        self.list_candidates(step, other);
        Ok(())
    }

    /// Lists the rows of the other chain, unless its length says enough.
    fn list_candidates(&mut self, step: &mut JoinStep, other: Chain) {
        if !self.plan.is_counted() && !self.plan.spec.join.kind.has_right_columns() {
            if step.side == Side::Left {
                step.flag = other.length > 0;
                return;
            }
            if !step.flag {
                return;
            }
        }
        let state = &self.sides[step.side.other() as usize];
        let is_counted = self.plan.is_counted();
        let mut row = other.head;
        while row != NIL {
            self.candidates.places.push(state.place(row));
            if is_counted {
                self.candidates.rows.push(row);
            }
            row = state.next(row);
        }
    }

    /// Settles the steps so far and sends out what they change.
    fn flush(&mut self, arrivals: &Arrivals<'_>, output: &mut Output) -> Result<()> {
        if self.plan.residual.is_some() && !self.candidates.places.is_empty() {
            let mask = self.partners(arrivals, output.wall_ms())?;
            self.keep_partners(&mask);
        }
        let JoinState { plan, sides, candidates, changes, .. } = self;
        Settlement { plan, sides, candidates, changes }.settle(&self.steps);
        self.steps.clear();
        self.candidates.truncate(0);
        self.changes.emit(&self.plan, &self.sides, arrivals, output)
    }

    /// Which candidates meet the residual condition.
    fn partners(&self, arrivals: &Arrivals<'_>, wall_ms: i64) -> Result<BooleanArray> {
        let Some(residual) = &self.plan.residual else {
            return Ok(BooleanArray::from(vec![true; self.candidates.places.len()]));
        };
        let mut places: [Vec<ArenaPlace>; 2] = Default::default();
        let mut causes = Vec::with_capacity(self.candidates.places.len());
        let mut from = 0;
        for step in &self.steps {
            let others = &self.candidates.places[from..step.end];
            from = step.end;
            let own = std::iter::repeat_n(ArenaPlace::of_piece(step.row), others.len());
            places[step.side as usize].extend(own);
            places[step.side.other() as usize].extend_from_slice(others);
            causes.resize(causes.len() + others.len(), step.row);
        }
        let gather = |side: Side| {
            let (at, piece) = (side as usize, arrivals.columns(side));
            self.sides[at].arena.gather(&places[at], piece, residual.columns(side))
        };
        let pairs = residual.pairs(gather(Side::Left)?, gather(Side::Right)?, causes.len())?;
        let watermark_before = arrivals.piece.bundle.stamps.watermark_before.take(&causes);
        residual.holds(&pairs, &watermark_before, wall_ms)
    }

    /// Drops the candidates that are no partners.
    fn keep_partners(&mut self, mask: &BooleanArray) {
        let (mut from, mut kept) = (0, 0);
        for step in &mut self.steps {
            for at in std::mem::replace(&mut from, step.end)..step.end {
                if mask.value(at) {
                    self.candidates.copy(at, kept);
                    kept += 1;
                }
            }
            step.end = kept;
        }
        self.candidates.truncate(kept);
    }

    /// Ends a piece: rows that stay move into the arenas, and keys without rows are forgotten.
    fn finish(&mut self, arrivals: &Arrivals<'_>) -> Result<()> {
        let bundle_rows = arrivals.piece.bundle.num_rows();
        for side in [Side::Left, Side::Right] {
            self.sides[side as usize].keep(arrivals.columns(side), bundle_rows, &self.keys)?;
        }
        self.end_piece()?;
        self.release_keys();
        Ok(())
    }

    /// Captures learn of the keys of which there is nothing left to count.
    fn end_piece(&mut self) -> Result<()> {
        let mut gone = std::mem::take(&mut self.uncounted);
        gone.retain(|&key| !self.has(Side::Right as usize, key));
        self.lengths.as_mut().map_or(Ok(()), |tracker| tracker.go(&self.keys, &gone))
    }

    fn release_keys(&mut self) {
        for key in self.emptied.drain(..) {
            let slot = &mut self.slots[key as usize];
            slot.is_listed = false;
            if slot.is_empty() {
                self.keys.release(key);
            }
        }
    }

    /// Frees the rows whose time is over; [`Progress::More`] if time is up before.
    ///
    /// Expired rows leave without a change in the output, as in Flink: state with a TTL may give
    /// results that are no longer complete, but it never retracts because of the clock.
    fn expire(&mut self, now_ms: i64, time_is_up: impl Fn() -> bool) -> Result<Progress> {
        let mut count = 0_usize;
        let mut progress = Progress::Done;
        if !self.plan.expires() {
            return Ok(progress);
        }
        for (side, state) in self.sides.iter_mut().enumerate() {
            if let Some(expiry) = &mut state.expiry {
                expiry.set_now(now_ms);
            }
            while let Some((row, key)) = state.expiry.as_mut().and_then(RowExpiry::next_expired) {
                let slot = &mut self.slots[key as usize];
                state.expire(&mut slot.chains[side], row, key)?;
                if !slot.is_listed && slot.is_empty() {
                    slot.is_listed = true;
                    self.emptied.push(key);
                }
                count += 1;
                if count.is_multiple_of(1024) && time_is_up() {
                    progress = Progress::More;
                    break;
                }
            }
            state.keep(&[], 0, &self.keys)?;
        }
        self.release_keys();
        Ok(progress)
    }
}

impl Partition for JoinState {
    fn rows(&mut self, piece: Piece<'_>, output: &mut Output) -> Result<()> {
        let _ = self.expire(output.wall_ms(), || false)?;
        if piece.num_rows() == 0 {
            return Ok(());
        }
        let plan = Arc::clone(&self.plan);
        let arrivals = Arrivals::new(&plan, piece, &mut self.keys)?;
        self.slots.grow(self.keys.id_limit(), Slot::EMPTY);
        if !plan.keeps(Side::Right) {
            self.touch(Side::Right as usize, arrivals.keys(Side::Right))?;
        }
        let mut taken = 0;
        for arrival in arrivals.iter() {
            self.take(&arrivals, arrival)?;
            taken += 1;
            if self.candidates.places.len() >= CANDIDATES_MAX {
                self.flush(&arrivals, output)?;
                // The rows behind `taken` come again. They have changed nothing so far, as `take`
                // runs row by row.
                if output.is_full() {
                    output.stop_at(taken);
                    break;
                }
            }
        }
        self.flush(&arrivals, output)?;
        output.accepted += taken as u64;
        self.finish(&arrivals)
    }

    fn state_bytes(&self) -> usize {
        let work = self.steps.capacity() * size_of::<JoinStep>()
            + self.candidates.places.capacity() * size_of::<ArenaPlace>()
            + (self.candidates.rows.capacity() + self.emptied.capacity()) * size_of::<u32>()
            + self.changes.bytes();
        self.keys.bytes()
            + self.slots.bytes()
            + self.sides.iter().map(SideState::bytes).sum::<usize>()
            + self.lengths.as_ref().map_or(0, KeyTracker::bytes)
            + work
    }

    fn state_keys(&self) -> Option<usize> {
        Some(self.keys.len())
    }

    fn watermark(&mut self, _call: &WatermarkCall<'_>, output: &mut Output) -> Result<Progress> {
        self.expire(output.wall_ms(), || output.time_is_up())
    }

    fn table_changes(&mut self) -> Vec<TableChanges> {
        changes(self)
    }

    fn stop_tracking(&mut self, table: &str) {
        stop_tracking(self, table);
    }

    fn restore(&mut self, restored: &Restored) -> Result<()> {
        self.restore_state(restored)
    }
}

impl SharedCapture for JoinState {
    fn capture_shared(shared: &Arc<SharedState<Self>>, extent: Extent) -> Result<Captured> {
        capture_state(shared, extent)
    }
}
