//! The rows of one window, and the rows of a bundle by window.
//!
//! Windows are grouped by end alone. Only sessions of different starts may share an end:
//! `has_several_starts` is set as soon as two starts differ, and only then are rows compared by
//! start.

use arrow_array::ArrayRef;
use arrow_buffer::{NullBuffer, ScalarBuffer};
use hashbrown::HashMap;
use thalweg_core::{DataType, Result};

use crate::aggregate::RowOrder;
use crate::join::sides::Side;
use crate::keys::KeyTable;
use crate::rows::chunks::{Chunks, RowRef};
use crate::spares::{Spares, is_oversized};

/// A row in a window.
#[derive(Clone, Copy)]
pub(super) struct KeptRow {
    pub(super) key: u32,
    pub(super) row: RowRef,
    pub(super) start: i64,
}

/// Rows of one side, with what decides where they belong.
pub(super) struct WindowRows {
    pub(super) starts: ScalarBuffer<i64>,
    pub(super) ends: ScalarBuffer<i64>,
    pub(super) keys: Vec<ArrayRef>,
    /// Where the key has no NULL; `None` where none has.
    pub(super) joinable: Option<NullBuffer>,
}

impl WindowRows {
    /// True if a row can have a partner.
    #[inline]
    pub fn joins(&self, place: usize) -> bool {
        self.joinable.as_ref().is_none_or(|nulls| nulls.is_valid(place))
    }
}

/// The rows of windows with one end.
pub(super) struct Window {
    pub(super) keys: KeyTable,
    /// By key: false where a column of it is NULL.
    pub(super) joins: Vec<bool>,
    /// The rows of the left and of the right side, as they came.
    pub(super) rows: [Vec<KeptRow>; 2],
    /// How many rows of which chunk, for each side.
    pub(super) holds: [Vec<(u32, u32)>; 2],
    /// The start of the first row, as long as all have the same.
    start: Option<i64>,
    pub(super) has_several_starts: bool,
    ids: Vec<u32>,
}

impl Window {
    pub fn new(key_types: &[DataType]) -> Result<Self> {
        Ok(Window {
            keys: KeyTable::new(key_types)?,
            joins: Vec::new(),
            rows: Default::default(),
            holds: Default::default(),
            start: None,
            has_several_starts: false,
            ids: Vec::new(),
        })
    }

    /// Forgets the rows, not the memory.
    pub fn clear(&mut self) {
        self.keys.clear();
        self.joins.clear();
        self.rows.iter_mut().for_each(Vec::clear);
        self.holds.iter_mut().for_each(Vec::clear);
        (self.start, self.has_several_starts) = (None, false);
    }

    /// True if it has memory for far more than its rows and keys need.
    pub fn is_oversized(&self) -> bool {
        let rows = |rows: &Vec<KeptRow>| is_oversized(rows.capacity(), rows.len());
        self.rows.iter().any(rows) || is_oversized(self.keys.capacity(), self.keys.len())
    }

    /// Takes some rows of a chunk.
    pub fn take(
        &mut self,
        side: Side,
        of_side: &WindowRows,
        rows: &[u32],
        chunk: u32,
    ) -> Result<()> {
        let WindowRows { starts, keys, joinable, .. } = of_side;
        self.ids.clear();
        self.keys.intern_rows(keys, Some(rows), starts.len(), &mut self.ids)?;
        self.joins.resize(self.keys.id_limit(), true);
        if let Some(joinable) = joinable {
            for (&row, &id) in rows.iter().zip(&self.ids) {
                self.joins[id as usize] = joinable.is_valid(row as usize);
            }
        }
        let first = *self.start.get_or_insert(starts[rows[0] as usize]);
        let same = rows.iter().all(|&row| starts[row as usize] == first);
        self.has_several_starts |= !same;
        let kept = rows.iter().zip(&self.ids).map(|(&row, &key)| KeptRow {
            key,
            row: RowRef { chunk, row },
            start: starts[row as usize],
        });
        self.rows[side as usize].extend(kept);
        self.holds[side as usize].push((chunk, rows.len() as u32));
        Ok(())
    }

    /// Puts the rows of each side into the order of their bundles, whichever came first.
    pub fn settle(&mut self, orders: &BundleOrders) {
        for (side, holds) in self.holds.iter_mut().enumerate() {
            let order_of = |&(chunk, _): &(u32, u32)| orders.of(side, chunk);
            if holds.is_sorted_by_key(order_of) {
                continue;
            }
            let rows = std::mem::take(&mut self.rows[side]);
            let mut rest = &rows[..];
            let mut runs: Vec<((u32, u32), &[KeptRow])> = Vec::with_capacity(holds.len());
            for &hold in &*holds {
                let (run, behind) = rest.split_at(hold.1 as usize);
                runs.push((hold, run));
                rest = behind;
            }
            runs.sort_by_key(|(hold, _)| order_of(hold));
            self.rows[side] = runs.iter().flat_map(|(_, run)| run.iter().copied()).collect();
            *holds = runs.iter().map(|&(hold, _)| hold).collect();
        }
    }

    pub fn bytes(&self) -> usize {
        let rows: usize = self.rows.iter().map(Vec::capacity).sum();
        let holds: usize = self.holds.iter().map(Vec::capacity).sum();
        size_of::<Self>()
            + self.keys.bytes()
            + self.joins.capacity()
            + rows * size_of::<KeptRow>()
            + holds * 8
            + self.ids.capacity() * 4
    }
}

/// Which place in its lane the bundle of each chunk has, by side. Rows of any epoch are taken in
/// any order, and their windows leave as if they had come in the order of the lane. Chunks of which
/// nothing is said came before all others, in the order of their arrivals.
#[derive(Default)]
pub(super) struct BundleOrders([Vec<Option<RowOrder>>; 2]);

impl BundleOrders {
    /// What a chunk holds is of this bundle.
    pub fn note(&mut self, side: Side, chunk: u32, order: Option<RowOrder>) {
        let orders = &mut self.0[side as usize];
        if orders.len() <= chunk as usize {
            orders.resize(chunk as usize + 1, None);
        }
        orders[chunk as usize] = order;
    }

    fn of(&self, side: usize, chunk: u32) -> Option<RowOrder> {
        self.0[side].get(chunk as usize).copied().flatten()
    }

    /// The arrivals of rows become their order, those of windows included.
    pub fn settle<'a>(
        &mut self,
        windows: impl Iterator<Item = &'a mut Window>,
        chunks: &mut [Chunks; 2],
    ) {
        let mut unsettled: [Vec<(RowOrder, u32)>; 2] = Default::default();
        for window in windows {
            window.settle(self);
            for (side, holds) in window.holds.iter().enumerate() {
                let order_of = |&(chunk, _): &(u32, u32)| Some((self.of(side, chunk)?, chunk));
                unsettled[side].extend(holds.iter().filter_map(order_of));
            }
        }
        for (mut unsettled, chunks) in unsettled.into_iter().zip(chunks) {
            unsettled.sort_unstable();
            unsettled.dedup();
            chunks.rearrange(unsettled.iter().map(|&(_, chunk)| chunk));
        }
        self.0.iter_mut().for_each(Vec::clear);
    }

    pub fn bytes(&self) -> usize {
        self.0.iter().map(Vec::capacity).sum::<usize>() * size_of::<Option<RowOrder>>()
    }
}

/// What is kept for its memory.
#[derive(Default)]
pub(super) struct SpareRows {
    windows: Spares<Window>,
    pub(super) rows: Vec<KeptRow>,
}

impl SpareRows {
    /// A window without rows.
    pub fn window(&mut self, key_types: &[DataType]) -> Result<Window> {
        self.windows.pop().map_or_else(|| Window::new(key_types), Ok)
    }

    /// Keeps a window that has left, unless it needed far less than its memory.
    pub fn keep(&mut self, mut window: Window) {
        if !window.is_oversized() {
            window.clear();
            let bytes = window.bytes();
            self.windows.push(window, bytes);
        }
        if is_oversized(self.rows.capacity(), self.rows.len()) {
            self.rows = Vec::new();
        }
    }

    pub fn bytes(&self) -> usize {
        self.windows.bytes() + self.rows.capacity() * size_of::<KeptRow>()
    }
}

/// The rows of a bundle by window end.
#[derive(Default)]
pub(super) struct Grouping {
    places: HashMap<i64, usize>,
    groups: Vec<(i64, Vec<u32>)>,
    used: usize,
    last: usize,
}

impl Grouping {
    /// Forgets the rows, not the memory.
    pub fn clear(&mut self) {
        self.places.clear();
        self.groups.truncate(64);
        self.groups.iter_mut().for_each(|(_, rows)| rows.clear());
        (self.used, self.last) = (0, 0);
    }

    #[inline]
    pub fn add(&mut self, end: i64, row: u32) {
        let is_last = self.last < self.used && self.groups[self.last].0 == end;
        if !is_last {
            self.last = self.place_of(end);
        }
        self.groups[self.last].1.push(row);
    }

    fn place_of(&mut self, end: i64) -> usize {
        let (groups, used) = (&mut self.groups, &mut self.used);
        *self.places.entry(end).or_insert_with(|| {
            if *used == groups.len() {
                groups.push((end, Vec::new()));
            }
            groups[*used].0 = end;
            *used += 1;
            *used - 1
        })
    }

    /// Each window end with its rows.
    pub fn groups(&self) -> impl Iterator<Item = (i64, &[u32])> {
        self.groups[..self.used].iter().map(|(end, rows)| (*end, rows.as_slice()))
    }

    pub fn bytes(&self) -> usize {
        let rows: usize = self.groups.iter().map(|(_, rows)| 32 + rows.capacity() * 4).sum();
        rows + self.places.allocation_size()
    }
}
