//! A partition of windows that share slices: hopping and cumulating ones.
//!
//! Slices of the keys that the partition owns stand in `owned`, from where [`Assembly`] takes them;
//! where any partition takes any bundle, those of the bundles that it took stand in `foreign` until
//! a watermark hands them to the owners. Which way rows come is chosen as in `key_spread.rs`.
//!
//! All stands behind a lock ([`SharedState`]), since captures read slices, and the parts of the
//! window that leaves next, while rows are processed (`slice_capture.rs`, `snapshot.rs`).
//!
//! The order of a watermark is that of `tumbling.rs`: `seal` in phase 0, `receive` and `assemble`
//! in phase 1. Here a slice is handed over when its *first* window closes, not its last: from then
//! on no row joins it (a row that is late for the first window goes to a slice of its own).

use std::sync::Arc;

use arrow_array::ArrayRef;
use thalweg_core::operator::WatermarkCall;
use thalweg_core::{
    Captured, Error, Extent, Output, Partition, PartitionContext, Piece, Progress, Restored, Result,
};

use super::assembly::{Assembly, Combining, Entered};
use super::calls::{Partial, bounds};
use super::judge::{Judge, SliceKey};
use super::output::WindowRows;
use super::shared::WindowContext;
use super::slices::{RowsOf, Slices};
use super::snapshot::{
    ENTERED, PartRows, SLICES, TAKEN, capture_later, capture_next_end, capture_parts, part_marks,
    restored_entered, restored_slices,
};
use crate::capture::READ_ROWS;
use crate::capture::shared::{SharedCapture, SharedState};
use crate::capture::tracker::BegunCapture;
use crate::keys::{CanonicalOrder, KeyTable, partition_of};
use crate::rows::columns::keys_of;

/// The states of one slice for one owner.
struct Parcel {
    key: SliceKey,
    keys: Vec<ArrayRef>,
    partial: Partial,
}

/// A range of keys, or what any partition took of them.
pub(super) struct SlicedWindows {
    shared: Arc<WindowContext>,
    opening: PartitionContext,
    /// Slices of the keys that this partition owns.
    owned: Slices,
    /// Where any partition takes any row: the slices of what was taken here.
    foreign: Option<Slices>,
    assembly: Assembly,
    inbox: Vec<Parcel>,
    judge: Judge,
    /// What slices of each kind got since the watermark before.
    seen_locally: Seen,
    seen_of_owned: Seen,
}

/// How many rows slices got, and how often a key was new to one.
#[derive(Default)]
struct Seen {
    rows: u64,
    keys: usize,
}

impl SlicedWindows {
    pub fn new(shared: Arc<WindowContext>, opening: PartitionContext) -> Result<Self> {
        let owned = Slices::new(Arc::clone(&shared.calls))?;
        let canonical = CanonicalOrder::wanted(opening.order, &shared.calls.key_types)?;
        let combining = match (shared.invertible, shared.exact) {
            (true, _) => Combining::Subtract,
            (false, false) if opening.order.is_ordered() => Combining::InOrder,
            (false, _) => Combining::Tree,
        };
        let assembly = Assembly::new(shared.spec.window, &owned, combining, canonical)?;
        let assembly = assembly.with_top(shared.top.as_ref(), &owned);
        let foreign = match shared.exact && opening.partitions > 1 {
            true => Some(Slices::new(Arc::clone(&shared.calls))?),
            false => None,
        };
        let judge = Judge::new(shared.spec.zone);
        let inbox = Vec::new();
        let (seen_locally, seen_of_owned) = Default::default();
        Ok(SlicedWindows {
            shared,
            opening,
            owned,
            foreign,
            assembly,
            inbox,
            judge,
            seen_locally,
            seen_of_owned,
        })
    }
}

impl Partition for SlicedWindows {
    fn rows(&mut self, piece: Piece<'_>, output: &mut Output) -> Result<()> {
        let spec = &self.shared.spec;
        let judged = self.judge.piece(&spec.rules(), &piece, output)?;
        if judged.runs.is_empty() {
            return Ok(());
        }
        let keys = keys_of(piece.bundle.batch.columns(), &spec.keys);
        let (slices, seen) = match &mut self.foreign {
            Some(foreign) if piece.is_local => (foreign, &mut self.seen_locally),
            _ => (&mut self.owned, &mut self.seen_of_owned),
        };
        slices.intern(&keys, judged.taken(piece.rows), piece.bundle.num_rows())?;
        let of = RowsOf::new(&self.shared.calls, piece.bundle);
        for run in &judged.runs {
            let rows = judged.rows_of(run, piece.rows);
            let new_keys = slices.update(run.key, of, run.from..run.to, rows)?;
            seen.rows += (run.to - run.from) as u64;
            seen.keys += new_keys;
        }
        Ok(())
    }

    fn watermark(&mut self, call: &WatermarkCall<'_>, output: &mut Output) -> Result<Progress> {
        let watermark = self.judge.zone.local_watermark(call.watermark.0);
        let exchanges = self.foreign.is_some();
        match call.phase {
            0 if exchanges => {
                self.compare_ways();
                self.seal(watermark, call, output)
            }
            0 if self.shared.exact => Ok(Progress::Done),
            _ => {
                if exchanges {
                    let parcels = call.exchange.take(self.opening.partition);
                    self.receive(parcels)?;
                }
                self.assemble(watermark, output)
            }
        }
    }

    fn state_bytes(&self) -> usize {
        let foreign = self.foreign.as_ref().map_or(0, Slices::bytes);
        self.owned.bytes() + foreign + self.assembly.bytes()
    }

    fn state_keys(&self) -> Option<usize> {
        Some(self.owned.keys() + self.foreign.as_ref().map_or(0, Slices::keys))
    }

    fn restore(&mut self, restored: &Restored) -> Result<()> {
        let (calls, span_ms) = (&self.shared.calls, self.shared.spec.window.span_ms());
        for slice in restored_slices(restored, span_ms)? {
            let (keys, partial) = calls.restored(&slice.rows)?;
            self.owned.absorb(slice.key, &keys, partial)?;
        }
        // Parts come in the order of their numbers, which is the order in which they are added up:
        // sums of doubles are then the same as without the restart.
        let Some((next_end, parts)) = restored_entered(restored, span_ms)? else { return Ok(()) };
        let adopt = |part: PartRows| {
            let (keys, partial) = calls.restored(&part.rows)?;
            Ok((part.leave, self.owned.adopt(&keys, partial)?))
        };
        let parts = parts.into_iter().map(adopt).collect::<Result<_>>()?;
        self.assembly.resume(next_end, parts, &self.owned)
    }
}

impl SharedCapture for SlicedWindows {
    /// Captures the states of all slices, whoever's keys they hold. How rows are judged depends on
    /// the rows alone, and between two watermarks no parcel waits.
    fn capture_shared(shared: &Arc<SharedState<Self>>, extent: Extent) -> Result<Captured> {
        let mut windows = shared.lock();
        let calls = Arc::clone(&windows.shared.calls);
        let mut captured = Captured::default();
        let (owned, foreign) = windows.begin_slices()?;
        let none = calls.no_rows(bounds(SliceKey { enter: 0, leave: 0 }, 0))?;
        capture_later(&mut captured, SLICES, &none, (owned, shared), |windows, begun| {
            windows.owned.read_some(begun, READ_ROWS)
        });
        if let Some(taken) = foreign {
            capture_later(
                &mut captured,
                TAKEN,
                &none,
                (taken, shared),
                SlicedWindows::read_foreign,
            );
        }
        match windows.assembly.entered()? {
            Entered::Changing => {
                let running = (windows.begin_running()?, shared);
                let none = calls.no_rows(part_marks(0, 0, 0))?;
                capture_later(&mut captured, ENTERED, &none, running, SlicedWindows::read_running);
            }
            Entered::Parts(parts) => {
                let since = windows.assembly.begin_capture(extent);
                let held = windows.owned.hold_keys();
                let shared = Arc::clone(shared);
                let read = move |some: &mut dyn FnMut(&KeyTable) -> Result<bool>| {
                    shared.read(|windows| some(&windows.owned.keys))?;
                    drop(held);
                    Ok(())
                };
                capture_parts(&mut captured, &calls, (parts, since), windows.opening, read)?;
            }
        }
        if let Some(next_end) = windows.assembly.next_end_of_entered() {
            capture_next_end(&mut captured, next_end)?;
        }
        Ok(captured)
    }
}

impl SlicedWindows {
    /// Begins to capture the slices that are in no window so far: of keys that are owned, and of
    /// rows that were taken locally.
    fn begin_slices(&mut self) -> Result<(BegunCapture, Option<BegunCapture>)> {
        if !self.inbox.is_empty() {
            return Err(Error::internal("a window was asked for its state in a watermark"));
        }
        let foreign = self.foreign.as_mut().map(Slices::begin_capture).transpose()?;
        Ok((self.owned.begin_capture()?, foreign))
    }

    fn read_foreign(&mut self, begun: &BegunCapture) -> Result<bool> {
        let foreign = self.foreign.as_mut();
        foreign.map_or(Ok(false), |foreign| foreign.read_some(begun, READ_ROWS))
    }

    /// Begins to capture what has entered windows that cumulate.
    fn begin_running(&mut self) -> Result<BegunCapture> {
        self.assembly.begin_running(&self.owned)
    }

    fn read_running(&mut self, begun: &BegunCapture) -> Result<bool> {
        self.assembly.read_some(begun, &self.owned, READ_ROWS)
    }

    /// Phase one: hands closed slices to the owners of their keys.
    fn seal(
        &mut self,
        watermark: i64,
        call: &WatermarkCall<'_>,
        output: &Output,
    ) -> Result<Progress> {
        let Some(slices) = &mut self.foreign else { return Ok(Progress::Done) };
        // Reached are the slices whose first window ends at or before the watermark + 1.
        while let Some((key, mut slice)) = slices.pop_entered(watermark.saturating_add(1))? {
            let mut shares: Vec<Vec<u32>> = vec![Vec::new(); self.opening.partitions];
            for id in std::mem::take(&mut slice.keys) {
                shares[partition_of(slices.keys.hash_of(id), self.opening.partitions)].push(id);
            }
            for (owner, ids) in shares.into_iter().enumerate().filter(|(_, ids)| !ids.is_empty()) {
                let keys = slices.keys.take_keys(&ids)?;
                let partial = slice.take(ids)?;
                slices.release(&partial.ids);
                call.exchange.put(owner, Box::new(Parcel { key, keys, partial }));
            }
            slices.recycle(slice);
            slices.sweep();
            if output.time_is_up() {
                return Ok(Progress::More);
            }
        }
        if self.shared.key_spread.is_by_key() && slices.first_end().is_none() {
            // Rows may go to the owners of their keys for long: keys that came here would never be
            // forgotten.
            slices.sweep();
        }
        Ok(Progress::Done)
    }

    /// Reports which rows and keys came, locally and at their owner, for choosing between the ways.
    fn compare_ways(&mut self) {
        let key_spread = &self.shared.key_spread;
        let local = std::mem::take(&mut self.seen_locally);
        let of_owned = std::mem::take(&mut self.seen_of_owned);
        if local.rows > 0 {
            key_spread.handed_over(local.rows, local.keys);
        }
        if of_owned.rows > 0 {
            key_spread.scattered(of_owned.rows, of_owned.keys, self.opening.partitions);
        }
    }

    fn receive(&mut self, parcels: Vec<Box<dyn std::any::Any + Send>>) -> Result<()> {
        for parcel in parcels {
            let parcel = parcel
                .downcast::<Parcel>()
                .map_err(|_| Error::internal("a window got another operator's parcel"))?;
            self.inbox.push(*parcel);
        }
        Ok(())
    }

    /// Phase two: merges what came in, and emits what closes.
    fn assemble(&mut self, watermark: i64, output: &mut Output) -> Result<Progress> {
        while let Some(Parcel { key, keys, partial }) = self.inbox.pop() {
            self.owned.absorb(key, &keys, partial)?;
            if output.time_is_up() {
                return Ok(Progress::More);
            }
        }
        let WindowContext { arrow: schema, columns, top, .. } = self.shared.as_ref();
        let (zone, top) = (&mut self.judge.zone, top.as_ref());
        let mut rows = WindowRows { schema, columns, zone, top };
        self.assembly.advance(watermark, &mut self.owned, &mut rows, output)
    }
}
