//! The partitions of windows that share no slice: tumbling ones, hops with gaps between them, and
//! the one of all rows; over a changelog also of those that do, each of which takes all its rows
//! ([`super::changelog`]).
//!
//! Each open window has a [`WindowTable`] of its own, which is emitted by walking it and then
//! emptied as a whole. A partition has two sets of them where aggregates are exact and there are
//! other partitions: of the keys that it owns, and of the bundles that it took because it was at
//! hand. At a watermark the latter are handed over in the first phase, in the second the windows
//! that close are emitted.
//!
//! **Invariants.** A piece that is not local holds keys of the partition only; a local one may hold
//! any. Where there are no keys all rows are taken locally, and a piece that is not local has
//! distinct values of the partition's range only. A window is
//! in `open` until a watermark closes it, then in `sealing` or `emitting`, and no row reaches it
//! any more: such a row is late. Between two calls there may be a table half handed over or half
//! emitted; the call is then repeated until it is done.
//!
//! A window leaves in the order in which its keys came, or in ordered contracts in the canonical
//! one.
//!
//! All stands behind a lock ([`SharedState`]), since captures read windows while rows are processed
//! ([`crate::capture`]). What a capture has yet to read may meanwhile be on its way out: it is read
//! there, or captured before it is handed over.
//!
//! # Protocol of a watermark
//!
//! | step | phase | who |
//! |---|---|---|
//! | `seal`: closed windows of `foreign` are cut by owner and exchanged | 0 | each partition |
//! | the runtime waits until all partitions have finished phase 0 | | |
//! | `receive`: parcels go to `inbox`; then `agree` | 1 | the owner |
//! | `close`: merge the inbox, emit windows by ascending end | 1 | the owner |
//!
//! Rows of later epochs may come between the phases. They cannot reach a window that is on its way:
//! their `watermark_before` is at least the watermark of the phase, so they are late for it.
//!
//! A partition without `foreign` has nothing to hand over. Phase 0 ends at once then, or is not
//! asked for.

use std::sync::Arc;

use arrow_array::RecordBatch;
use thalweg_core::operator::WatermarkCall;
use thalweg_core::snapshot::{CapturedTable, TableRows};
use thalweg_core::{
    Captured, Error, Exchange, Extent, Output, Partition, PartitionContext, Piece, Place, Progress,
    Restored, Result, TableChanges, Watermark,
};

use super::calls::bounds;
use super::changelog::rows_by_window;
use super::judge::{Judge, SliceKey};
use super::output::WindowRows;
use super::shared::{CHUNK_ROWS, WindowContext, chunk_end};
use super::slices::RowsOf;
use super::snapshot::{SLICES, SliceRows, TAKEN, restored_slices};
use super::spec::{WHOLE_END, WindowSpec};
use super::tables::{Spare, Tables, WindowParcel, WindowTable};
use crate::capture::READ_ROWS;
use crate::capture::shared::{SharedCapture, SharedState};
use crate::capture::tracker::BegunCapture;
use crate::keys::{CanonicalOrder, partition_of};
use crate::rows::columns::keys_of;
use crate::tables::does_not_fit;

/// A closed window that is being handed over.
struct Sealing {
    end: i64,
    table: WindowTable,
    /// The keys before this one are.
    from: usize,
}

/// A closed window that is being emitted.
struct Emitting {
    end: i64,
    table: WindowTable,
    /// How many rows are out.
    from: usize,
    /// The keys that are emitted, if not all as they stand: those that have rows, over a changelog;
    /// in ordered contracts in their order.
    chosen: Option<Vec<u32>>,
}

/// A range of keys, or what any partition took of them.
pub(super) struct TumblingWindows {
    shared: Arc<WindowContext>,
    partition: usize,
    partitions: usize,
    /// Windows of the keys that this partition owns.
    owned: Tables,
    /// Where any partition may take a bundle: the windows of those that were taken here.
    foreign: Option<Tables>,
    sealing: Option<Sealing>,
    emitting: Option<Emitting>,
    inbox: Vec<WindowParcel>,
    /// Windows with ends before this have closed, and no row opens them again.
    kept_from: i64,
    /// The emptied tables that count as this partition's.
    spare: Vec<Spare>,
    /// Set in ordered contracts.
    canonical: Option<CanonicalOrder>,
    /// What is given at the end if no window has been.
    otherwise: Option<RecordBatch>,
    judge: Judge,
}

impl TumblingWindows {
    /// A table of some of the windows, which are read later: of those of keys that are owned, which
    /// expire, or of those of rows that were taken locally.
    fn table(
        &self,
        name: &'static str,
        shared: &Arc<SharedState<Self>>,
        begun: BegunCapture,
        kept_from: Option<i64>,
    ) -> Result<CapturedTable> {
        let calls = &self.shared.calls;
        let marks = bounds(SliceKey { enter: 0, leave: 0 }, 0);
        let identity_columns = match kept_from {
            Some(_) => 1 + marks.len() + calls.key_columns.width(),
            // Several partitions may have taken rows of one key.
            None => 0,
        };
        let schema = calls.no_rows(marks)?.schema();
        let shared = Arc::clone(shared);
        let extent = begun.extent;
        let rows = Box::new(move || {
            let rows = begun.read(&shared, |windows| windows.read_some(&begun, READ_ROWS))?;
            Ok(TableRows { rows, removed: Vec::new() })
        });
        Ok(CapturedTable { name, schema, extent, identity_columns, kept_from, rows })
    }

    pub fn new(shared: Arc<WindowContext>, opening: PartitionContext) -> Result<Self> {
        let PartitionContext { partition, partitions, order } = opening;
        let mut spare = vec![Spare::default(), Spare::default()];
        if shared.spec.keys.is_empty() {
            // Tables go from the partition that filled them to the first, and so back.
            spare = vec![shared.spare.clone(); if partition == 0 { 1 } else { 0 }];
        }
        let tables = |place: usize| {
            let spare = spare.get(place).unwrap_or(&shared.spare);
            Tables::new(Arc::clone(&shared.calls), spare.clone())
        };
        Ok(TumblingWindows {
            partition,
            partitions,
            owned: tables(0),
            foreign: (shared.exact && partitions > 1).then(|| tables(1)),
            spare,
            sealing: None,
            emitting: None,
            inbox: Vec::new(),
            kept_from: i64::MIN,
            canonical: CanonicalOrder::wanted(order, &shared.calls.key_types)?,
            otherwise: shared.otherwise.clone().filter(|_| partition == 0),
            judge: Judge::new(shared.spec.zone),
            shared,
        })
    }

    /// Phase one: hands closed windows to the owners of their keys.
    fn seal(&mut self, watermark: i64, exchange: &Exchange, output: &Output) -> Result<Progress> {
        let Some(foreign) = &mut self.foreign else { return Ok(Progress::Done) };
        loop {
            let mut sealing = match self.sealing.take() {
                Some(unfinished) => unfinished,
                None => {
                    let Some((end, table)) = foreign.pop_closed(watermark) else {
                        if self.shared.key_spread.is_by_key() {
                            foreign.rest();
                        }
                        return Ok(Progress::Done);
                    };
                    let (rows, values) = (table.rows, table.distinct());
                    self.shared.key_spread.handed_over(rows, values);
                    if self.shared.spec.keys.is_empty() {
                        self.shared.key_spread.scattered(rows, values, self.partitions);
                    }
                    Sealing { end, table, from: 0 }
                }
            };
            if self.shared.spec.keys.is_empty() {
                let Sealing { end, mut table, .. } = sealing;
                foreign.touch(end, &mut table, &[0])?;
                let table = Box::new(table);
                exchange.put(0, Box::new(WindowParcel::Whole { end, table }));
            } else if sealing.hand_over(foreign, self.partitions, exchange)? {
                foreign.recycle(sealing.end, sealing.table);
            } else {
                self.sealing = Some(sealing);
            }
            if output.time_is_up() {
                return Ok(Progress::More);
            }
        }
    }

    fn receive(&mut self, exchange: &Exchange) -> Result<()> {
        for parcel in exchange.take(self.partition) {
            let parcel = parcel
                .downcast::<WindowParcel>()
                .map_err(|_| Error::internal("a window got another operator's parcel"))?;
            self.inbox.push(*parcel);
        }
        WindowParcel::agree(&mut self.inbox);
        Ok(())
    }

    /// Phase two: takes in what was handed over, and emits the windows that close.
    fn close(&mut self, watermark: i64, output: &mut Output) -> Result<Progress> {
        while let Some(parcel) = self.inbox.pop() {
            self.owned.absorb(parcel)?;
            if output.time_is_up() {
                return Ok(Progress::More);
            }
        }
        loop {
            let mut emitting = match self.emitting.take() {
                Some(unfinished) => unfinished,
                None => {
                    let Some((end, table)) = self.owned.pop_closed(watermark) else {
                        // Windows with ends up to watermark + 1 have closed, as a window closes a
                        // millisecond before its end. The first end that can still be open is the
                        // next millisecond.
                        self.kept_from = self.kept_from.max(watermark.saturating_add(2));
                        self.give_otherwise(watermark, output);
                        return Ok(Progress::Done);
                    };
                    self.otherwise = None;
                    self.emitting(end, table)?
                }
            };
            let zone = &mut self.judge.zone;
            let WindowContext { arrow: schema, columns, .. } = self.shared.as_ref();
            let mut rows = WindowRows { schema, columns, zone, top: None };
            if emitting.emit(&self.shared, &mut rows, output)? {
                self.owned.recycle(emitting.end, emitting.table);
            } else {
                self.emitting = Some(emitting);
            }
            if output.time_is_up() {
                return Ok(Progress::More);
            }
        }
    }

    /// At the end, where nothing has been given.
    fn give_otherwise(&mut self, watermark: i64, output: &mut Output) {
        if watermark == Watermark::END.0
            && let Some(rows) = self.otherwise.take()
        {
            output.emit_at(rows, Place::WindowEnd(WHOLE_END));
        }
    }

    /// A window's rows of a table of state, as if another partition had handed them over.
    ///
    /// A snapshot may come from another number of partitions, and `taken` has keys of any owner.
    /// The owner of the keys absorbs all of them, so one path restores both tables. The ends are
    /// checked: the rows of other windows would open a window that no row reaches.
    fn parcel_of(&self, part: &SliceRows) -> Result<WindowParcel> {
        let SliceKey { enter, leave: end } = part.key;
        let last = self.shared.spec.window.slice(end.saturating_sub(1));
        if (last.enter, enter) != (end, end) {
            return Err(does_not_fit(format!(
                "no window is from the end {enter} to the end {end}"
            )));
        }
        let (keys, mut partial) = self.shared.calls.restored(&part.rows)?;
        partial.ids = (0..part.rows.num_rows() as u32).collect();
        if !self.shared.calls.count_rows() {
            partial.counts.clear();
        }
        Ok(WindowParcel::Some { end, keys, partial })
    }

    /// Begins to capture the windows of keys that are owned, and those of rows that were taken at
    /// hand.
    ///
    /// A capture never begins in the middle of a watermark, so the exchange is empty and no state
    /// is between two partitions: the tables hold all there is.
    ///
    /// `foreign` is always captured in full. The tables of several partitions may have the same
    /// key, so no identity names one row of the table of state.
    fn begin(&mut self, extent: Extent) -> Result<(BegunCapture, Option<BegunCapture>)> {
        if self.sealing.is_some() || self.emitting.is_some() || !self.inbox.is_empty() {
            return Err(Error::internal("a window was asked for its state in a watermark"));
        }
        let owned = self.owned.begin(extent)?;
        let Some(foreign) = &mut self.foreign else { return Ok((owned, None)) };
        let taken = foreign.begin(Extent::Full)?;
        // The next one is full, too.
        foreign.stop_tracking();
        Ok((owned, Some(taken)))
    }

    /// Writes this capture some keys that it has yet to read; false if there are none.
    fn read_some(&mut self, begun: &BegunCapture, most: usize) -> Result<bool> {
        if self.owned.is_reading(begun) {
            if let Some(Emitting { end, table, .. }) = &mut self.emitting
                && self.owned.read_some_of(*end, table, most)?
            {
                return Ok(true);
            }
            return self.owned.read_some(most);
        }
        let foreign = self.foreign.as_mut().filter(|foreign| foreign.is_reading(begun));
        let Some(foreign) = foreign else { return Ok(false) };
        if let Some(Sealing { end, table, .. }) = &mut self.sealing
            && foreign.read_some_of(*end, table, most)?
        {
            return Ok(true);
        }
        foreign.read_some(most)
    }

    fn emitting(&self, end: i64, table: WindowTable) -> Result<Emitting> {
        if self.foreign.is_some() && !table.has_absorbed && !self.shared.spec.keys.is_empty() {
            self.shared.key_spread.scattered(table.rows, table.len(), self.partitions);
        }
        let with_rows = self.shared.calls.retracts().then(|| table.keys_with_rows());
        let chosen = match &self.canonical {
            Some(canonical) => {
                let keys = with_rows.unwrap_or_else(|| (0..table.len() as u32).collect());
                let places = canonical.permutation(&table.keys, &keys, |_| 0)?;
                Some(places.into_iter().map(|place| keys[place as usize]).collect())
            }
            None => with_rows,
        };
        Ok(Emitting { end, table, from: 0, chosen })
    }
}

impl Sealing {
    /// Hands the next keys over; true if they were the last.
    fn hand_over(
        &mut self,
        foreign: &mut Tables,
        partitions: usize,
        exchange: &Exchange,
    ) -> Result<bool> {
        let to = self.table.len().min(self.from + CHUNK_ROWS);
        let ids: Vec<u32> = (self.from as u32..to as u32).collect();
        foreign.touch(self.end, &mut self.table, &ids)?;
        let mut shares: Vec<Vec<u32>> = vec![Vec::new(); partitions];
        for id in ids {
            shares[partition_of(self.table.keys.hash_of(id), partitions)].push(id);
        }
        for (owner, ids) in shares.into_iter().enumerate().filter(|(_, ids)| !ids.is_empty()) {
            exchange.put(owner, Box::new(self.table.take(self.end, ids)?));
        }
        self.from = to;
        Ok(to == self.table.len())
    }
}

impl Emitting {
    /// Emits the next rows; true if they were the last.
    fn emit(
        &mut self,
        shared: &WindowContext,
        rows: &mut WindowRows<'_>,
        output: &mut Output,
    ) -> Result<bool> {
        let rows_of_all = self.chosen.as_ref().map_or(self.table.len(), Vec::len);
        let to = chunk_end(self.from, rows_of_all);
        if to == self.from {
            return Ok(true);
        }
        let ids: Vec<u32> = match &self.chosen {
            Some(chosen) => chosen[self.from..to].to_vec(),
            None => (self.from as u32..to as u32).collect(),
        };
        let results = self.table.evaluate(&shared.calls, &ids)?;
        let keys = self.table.keys.take_keys(&ids)?;
        let batch = match shared.spec.window {
            WindowSpec::Whole => {
                let columns = keys.into_iter().chain(results).collect();
                RecordBatch::try_new(Arc::clone(rows.schema), columns)?
            }
            window => rows.batch(keys, results, ids.len(), window.start_of(self.end), self.end)?,
        };
        output.emit_at(batch, Place::WindowEnd(self.end));
        self.from = to;
        Ok(to == rows_of_all)
    }
}

impl Partition for TumblingWindows {
    fn rows(&mut self, piece: Piece<'_>, output: &mut Output) -> Result<()> {
        let spec = &self.shared.spec;
        let judged = match spec.window {
            WindowSpec::Whole => self.judge.whole(&piece, output),
            _ => self.judge.piece(&spec.rules(), &piece, output)?,
        };
        if judged.runs.is_empty() {
            return Ok(());
        }
        let (tables, is_foreign) = match &mut self.foreign {
            Some(foreign) if piece.is_local || spec.keys.is_empty() => (foreign, true),
            _ => (&mut self.owned, false),
        };
        let keys = keys_of(piece.bundle.batch.columns(), &spec.keys);
        let of = RowsOf::new(&self.shared.calls, piece.bundle);
        let is_scattered = !piece.is_local;
        if self.shared.calls.retracts() {
            let windows = rows_by_window(judged, piece.rows, spec.window.step_ms());
            for (end, rows) in windows {
                tables.update(end, of, &keys, Some(&rows), is_scattered)?;
            }
            return Ok(());
        }
        for run in &judged.runs {
            let rows = judged.rows_of(run, piece.rows);
            let (after, before) = tables.update(run.key.leave, of, &keys, rows, is_scattered)?;
            if is_foreign {
                self.shared.key_spread.taken(run.to - run.from, after, after - before);
            }
        }
        Ok(())
    }

    fn watermark(&mut self, call: &WatermarkCall<'_>, output: &mut Output) -> Result<Progress> {
        let watermark = self.judge.zone.local_watermark(call.watermark.0);
        match call.phase {
            0 if self.shared.exact => self.seal(watermark, call.exchange, output),
            _ => {
                if self.foreign.is_some() {
                    self.receive(call.exchange)?;
                }
                self.close(watermark, output)
            }
        }
    }

    fn state_bytes(&self) -> usize {
        let tables = self.owned.bytes() + self.foreign.as_ref().map_or(0, Tables::bytes);
        let sealing = self.sealing.as_ref().map_or(0, |sealing| sealing.table.bytes());
        let emitting = self.emitting.as_ref().map_or(0, |emitting| {
            emitting.table.bytes() + emitting.chosen.as_ref().map_or(0, |ids| ids.capacity() * 4)
        });
        let inbox: usize = self.inbox.iter().map(WindowParcel::bytes).sum();
        let spare: usize = self.spare.iter().map(Spare::bytes).sum();
        tables + sealing + emitting + inbox + spare
    }

    fn state_keys(&self) -> Option<usize> {
        let sealing = self.sealing.as_ref().map_or(0, |sealing| sealing.table.len());
        let emitting = self.emitting.as_ref().map_or(0, |emitting| emitting.table.len());
        Some(self.owned.keys() + self.foreign.as_ref().map_or(0, Tables::keys) + sealing + emitting)
    }

    fn table_changes(&mut self) -> Vec<TableChanges> {
        self.owned.changes(SLICES).into_iter().collect()
    }

    fn stop_tracking(&mut self, table: &str) {
        if table == SLICES {
            self.owned.stop_tracking();
        }
    }

    fn restore(&mut self, restored: &Restored) -> Result<()> {
        for part in restored_slices(restored, self.shared.spec.window.span_ms())? {
            let parcel = self.parcel_of(&part)?;
            self.owned.absorb(parcel)?;
        }
        Ok(())
    }
}

impl SharedCapture for TumblingWindows {
    /// Captures all open windows, whoever's keys they hold: each is one slice. How rows are judged
    /// depends on the rows alone, how they are spread is no state, and between two watermarks
    /// nothing is on its way.
    fn capture_shared(shared: &Arc<SharedState<Self>>, extent: Extent) -> Result<Captured> {
        let mut windows = shared.lock();
        let (owned, taken) = windows.begin(extent)?;
        let kept_from = Some(windows.kept_from);
        let mut captured = Captured::default();
        captured.tables.push(windows.table(SLICES, shared, owned, kept_from)?);
        if let Some(taken) = taken {
            captured.tables.push(windows.table(TAKEN, shared, taken, None)?);
        }
        Ok(captured)
    }
}
