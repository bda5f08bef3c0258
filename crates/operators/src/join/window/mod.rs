//! Joins of windows: rows of both sides with equal keys in the same window (`ON l.k = r.k AND
//! l.window_start = r.window_start AND l.window_end = r.window_end`).
//!
//! Rows wait until the watermark closes their window; then the window leaves as a whole: by key,
//! and for each key by window start (sessions of different starts may share an end), then the rows
//! of the left side as they came with their partners as they came, then the rows of the right side
//! that found none.
//!
//! Rows commute: nothing leaves but at a watermark, and a row that is not late for a window comes
//! before the watermark that closes it, so whichever of them comes first, the window has the same
//! rows when it leaves. In which order those came is noted by bundle ([`BundleOrders`]).
//!
//! **Invariants:**
//! - a row is late if its window is closed for the watermark before it; late rows are dropped and
//!   counted, and nothing else decides which window a row joins;
//! - keys are numbered window by window, so nothing of a key outlives its window.
//!
//! Keys are compared with `=`: NULL meets nobody. Changes are not taken.
//!
//! The windows need not come from this crate's aggregates: start and end are ordinary columns of
//! either side, made by a windowing function or by an aggregate. Two windows are the same if both
//! their starts and their ends are equal.

mod closing;
mod snapshot;
mod state;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::ArrayRef;
use thalweg_core::operator::{WatermarkCall, WatermarkInterest};
use thalweg_core::{
    Bundle, Captured, Extent, Operator, OperatorClass, Output, Partition, PartitionContext, Piece,
    Progress, Restored, Result, Route, TableSchema, Watermark,
};

use super::JoinKind;
use super::bounded::side_rows;
use super::sides::Side;
use crate::aggregate::RowOrder;
use crate::capture::serials::ExpiringSerials;
use crate::join::equi::EquiJoin;
use crate::join::pairs::Joined;
use crate::keys::ranks::KeyRanks;
use crate::rows::chunks::Chunks;
use crate::rows::columns::keys_of;
use crate::rows::input;
use crate::window::{KnownWindows, Zone};
use closing::ClosingWindow;
use state::{BundleOrders, Grouping, SpareRows, Window, WindowRows};

/// What is joined.
pub struct WindowJoinSpec {
    /// The inputs, their keys, and which rows leave.
    pub join: EquiJoin,
    /// Window start and end of the left side, positions in its own columns.
    pub left_window: (usize, usize),
    /// Window start and end of the right side.
    pub right_window: (usize, usize),
}

struct WindowJoinContext {
    spec: WindowJoinSpec,
    joined: Joined,
    windows: KnownWindows,
}

impl WindowJoinContext {
    /// True if rows of a side leave although they have no partner.
    fn pads(&self, side: Side) -> bool {
        let kind = self.joined.kind;
        side.pick(kind.pads_left_rows() || kind == JoinKind::Anti, kind.pads_right_rows())
    }

    /// Window start and end of a side, positions in its own columns.
    fn window(&self, side: Side) -> (usize, usize) {
        side.pick(self.spec.left_window, self.spec.right_window)
    }

    /// What decides where rows belong, from the columns of their side.
    fn window_rows(&self, side: Side, columns: &[ArrayRef]) -> Result<WindowRows> {
        let window = self.window(side);
        let schema = self.spec.join.sides.schema(side);
        let starts = input::times(columns, window.0, schema)?;
        let ends = input::times(columns, window.1, schema)?;
        let keys = keys_of(columns, self.spec.join.keys(side));
        let joinable = input::joinable(&keys);
        Ok(WindowRows { starts, ends, keys, joinable })
    }
}

/// A join of rows in the same window.
pub struct WindowJoin {
    shared: Arc<WindowJoinContext>,
}

impl WindowJoin {
    /// An operator; an error if the specification does not fit together.
    pub fn new(spec: WindowJoinSpec) -> Result<Self> {
        let joined = Joined::new(&spec.join, true)?;
        let shared = WindowJoinContext { spec, joined, windows: KnownWindows::default() };
        Ok(WindowJoin { shared: Arc::new(shared) })
    }

    /// The same for windows of which more is known.
    #[must_use]
    pub fn of(mut self, windows: KnownWindows) -> Self {
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            shared.windows = windows;
        }
        self
    }

    /// The columns that leave: the left side's, then the right side's.
    pub fn output_schema(&self) -> &TableSchema {
        &self.shared.joined.output
    }
}

impl Operator for WindowJoin {
    fn name(&self) -> String {
        "window join".to_owned()
    }
    fn class(&self) -> OperatorClass {
        OperatorClass::Commuting
    }
    fn is_singleton(&self) -> bool {
        self.shared.joined.key_types.is_empty()
    }
    fn watermark_interest(&self) -> WatermarkInterest {
        self.shared.windows.interest()
    }
    fn route(&self, bundle: &Bundle, partitions: usize) -> Result<Route> {
        self.shared.spec.join.route(bundle, partitions)
    }
    fn open(&self, opening: PartitionContext) -> Result<Box<dyn Partition>> {
        let spec = &self.shared.spec;
        let chunks = |side| Chunks::new(spec.join.sides.schema(side));
        Ok(Box::new(WindowJoinPartition {
            chunks: [chunks(Side::Left), chunks(Side::Right)],
            windows: BTreeMap::new(),
            closing: None,
            spare: SpareRows::default(),
            zone: Zone::new(self.shared.windows.zone),
            ranks: KeyRanks::new(opening.order, &self.shared.joined.key_types)?,
            grouping: Grouping::default(),
            orders: BundleOrders::default(),
            serials: ExpiringSerials::default(),
            shared: Arc::clone(&self.shared),
        }))
    }
    fn judges_lateness(&self) -> bool {
        true
    }
}

struct WindowJoinPartition {
    shared: Arc<WindowJoinContext>,
    /// The rows of the left and of the right side.
    chunks: [Chunks; 2],
    /// By window end.
    windows: BTreeMap<i64, Window>,
    closing: Option<ClosingWindow>,
    spare: SpareRows,
    zone: Zone,
    ranks: KeyRanks,
    grouping: Grouping,
    /// In `epoch`, where bundles come in any order.
    orders: BundleOrders,
    /// Which rows of each side the last capture has.
    serials: ExpiringSerials<[u64; 2]>,
}

impl WindowJoinPartition {
    /// Takes the rows of one side; says how many of them are late.
    fn take(
        &mut self,
        side: Side,
        split: &side_rows::Split,
        piece: &Piece<'_>,
    ) -> Result<Vec<(u32, i64)>> {
        let of_side = split.of(side);
        let mut late = Vec::new();
        if of_side.rows.is_empty() {
            return Ok(late);
        }
        let rows = self.shared.window_rows(side, &of_side.columns)?;
        let before = &piece.bundle.stamps.watermark_before;
        let (zone, pads) = (&mut self.zone, self.shared.pads(side));
        self.grouping.clear();
        for (place, &end) in rows.ends.iter().enumerate() {
            let (row, time) = (of_side.rows[place], zone.last_instant_before(end));
            if time <= before.at(row as usize).0 {
                late.push((row, time));
            } else if pads || rows.joins(place) {
                self.grouping.add(end, place as u32);
            }
        }
        let columns = match self.shared.joined.reads(side) {
            true => of_side.columns.clone(),
            false => Vec::new(),
        };
        let order = (!self.ranks.is_ordered()).then(|| RowOrder::of(piece.bundle));
        self.keep(side, &rows, columns, order)?;
        Ok(late)
    }

    /// Puts the rows that are grouped into their windows.
    fn keep(
        &mut self,
        side: Side,
        rows: &WindowRows,
        columns: Vec<ArrayRef>,
        order: Option<RowOrder>,
    ) -> Result<()> {
        let chunks = &mut self.chunks[side as usize];
        let chunk = chunks.add(columns, rows.ends.len(), false);
        self.orders.note(side, chunk, order);
        for (end, of_window) in self.grouping.groups() {
            let window = match self.windows.entry(end) {
                std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
                std::collections::btree_map::Entry::Vacant(entry) => {
                    entry.insert(self.spare.window(&self.shared.joined.key_types)?)
                }
            };
            window.take(side, rows, of_window, chunk)?;
            chunks.hold(chunk, of_window.len());
        }
        chunks.release(chunk, 1);
        Ok(())
    }

    /// The first window, if this watermark closes it.
    fn next_closed(&mut self, watermark: i64) -> Result<Option<ClosingWindow>> {
        let Some(entry) = self.windows.first_entry() else { return Ok(None) };
        if self.zone.last_instant_before(*entry.key()) > watermark {
            return Ok(None);
        }
        let (end, mut window) = entry.remove_entry();
        window.settle(&self.orders);
        self.serials.leave(end);
        ClosingWindow::new(end, window, &self.ranks, &mut self.spare.rows).map(Some)
    }
}

impl Partition for WindowJoinPartition {
    fn rows(&mut self, piece: Piece<'_>, output: &mut Output) -> Result<()> {
        if piece.num_rows() == 0 {
            return Ok(());
        }
        input::inserts_only(&piece, "a window join")?;
        let split = side_rows::split(&self.shared.spec.join.sides, &piece)?;
        let mut late = Vec::new();
        for side in [Side::Left, Side::Right] {
            late.extend(self.take(side, &split, &piece)?);
        }
        output.accepted += (piece.num_rows() - late.len()) as u64;
        output.count_late(piece.bundle, &late)
    }

    fn watermark(&mut self, call: &WatermarkCall<'_>, output: &mut Output) -> Result<Progress> {
        loop {
            let unfinished = self.closing.take();
            let closing = match unfinished {
                Some(_) => unfinished,
                None => self.next_closed(call.watermark.0)?,
            };
            let Some(mut closing) = closing else {
                let watermark = self.zone.local_watermark(call.watermark.0);
                let first = self.windows.keys().next().copied().unwrap_or(i64::MAX);
                // A window closes a millisecond before its end.
                self.serials.pass(watermark.saturating_add(2).min(first));
                if call.watermark == Watermark::END {
                    self.spare = SpareRows::default();
                    self.orders = BundleOrders::default();
                }
                return Ok(Progress::Done);
            };
            if closing.emit_some(&self.shared, &self.chunks, output)? {
                self.spare.keep(closing.release(&mut self.chunks));
            } else {
                self.closing = Some(closing);
            }
            if output.time_is_up() {
                return Ok(Progress::More);
            }
        }
    }

    fn state_bytes(&self) -> usize {
        let windows: usize = self.windows.values().map(Window::bytes).sum();
        let closing = self.closing.as_ref().map_or(0, ClosingWindow::bytes);
        let chunks: usize = self.chunks.iter().map(Chunks::bytes).sum();
        let orders = self.orders.bytes();
        windows + closing + chunks + orders + self.grouping.bytes() + self.spare.bytes()
    }

    fn state_keys(&self) -> Option<usize> {
        let open: usize = self.windows.values().map(|window| window.keys.len()).sum();
        Some(open + self.closing.as_ref().map_or(0, ClosingWindow::keys))
    }

    fn capture(&mut self, extent: Extent) -> Result<Captured> {
        self.capture_state(extent)
    }

    fn restore(&mut self, restored: &Restored) -> Result<()> {
        self.restore_state(restored)
    }
}
