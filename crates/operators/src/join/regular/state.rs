//! What one side of a join keeps: its rows in the order of their arrival, chained by key.
//!
//! A row has a number (reused after the piece in which it is removed), a place in the [`Arena`],
//! and neighbours in the chain of its key. A retraction removes the *newest* row that is equal
//! to it. Short chains are searched; once a chain is long, its rows are found by their hash in
//! [`Contents`], so that a skewed key costs no more per retraction than others.
//!
//! **Invariants:**
//! - a chain is in the order of arrival, and its length is the number of its rows;
//! - rows that arrive in the piece in hand lie in its bundle until [`SideState::keep`] moves them
//!   into the arena: until then no row moves, and no number is reused.
//!
//! ```text
//! Slot of a key ── Chain { head, tail } ── RowNode ⇄ RowNode ⇄ RowNode     oldest to newest
//!                                             │         │         │
//!                                          ArenaPlace: a row of the piece, or of a segment
//! ```
//!
//! Nodes are separate from the rows, so that a row that moves changes one field.
//!
//! Why the newest of equal rows is removed: it needs no order between equal rows beyond their
//! arrival, and chains are searched from the tail, where the row of a recent update stands.

use arrow_array::ArrayRef;
use thalweg_core::Result;

use super::contents::Contents;
use super::equal::same_row;
use super::expiry::RowExpiry;
use super::tables::{CapturedRow, SideTable};
use crate::capture::rows::RowTracker;
use crate::gradual::Pages;
use crate::keys::{KeyTable, hash_keys};
use crate::rows::arena::{Arena, ArenaPlace, NIL};
use crate::rows::columns::take_all;
use crate::tables::virtual_partition;

/// The rows of one key on one side. Where rows are only counted, only the length counts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chain {
    pub head: u32,
    pub tail: u32,
    pub length: u32,
    /// True while its rows stand in [`Contents`].
    pub is_indexed: bool,
}

impl Chain {
    pub const EMPTY: Chain = Chain { head: NIL, tail: NIL, length: 0, is_indexed: false };
}

/// Chains longer than this are searched by hash.
const SEARCHED_MAX: u32 = 8;

#[derive(Clone, Copy)]
struct RowNode {
    previous: u32,
    next: u32,
    place: ArenaPlace,
}

/// A row of the bundle in hand, as one of its side: the columns of the side, and what is known of
/// it.
pub(super) struct Incoming<'a> {
    pub columns: &'a [ArrayRef],
    pub row: u32,
    pub key: u32,
    /// The hash of all of its columns; only asked for where a chain is long.
    pub hash: &'a dyn Fn() -> Result<u64>,
}

/// The rows of one side.
pub(super) struct SideState {
    nodes: Pages<RowNode>,
    /// How many partners each row has, where that is not the length of the other chain.
    counts: Option<Pages<u32>>,
    free: Vec<u32>,
    /// Numbers that become free with the end of the piece.
    released: Vec<u32>,
    /// Rows that arrived in this piece.
    arrived: Vec<u32>,
    contents: Contents,
    /// True if the key is unique on this side: the only row of a chain is the one that is meant.
    is_unique: bool,
    pub arena: Arena,
    pub expiry: Option<RowExpiry>,
    /// How rows are captured.
    pub table: SideTable,
    /// Set once there has been a capture.
    pub tracker: Option<RowTracker>,
    /// Rows as they were at the capture that is under way, which this piece has changed or removed.
    changed: Vec<CapturedRow>,
    /// Keys and serials of captured rows that this piece has removed.
    gone: Vec<(u32, u64)>,
}

impl SideState {
    pub fn new(table: SideTable, is_unique: bool, expiry: Option<RowExpiry>) -> Self {
        let (arena, is_counted) = (Arena::new(table.rows_schema()), table.is_counted);
        SideState {
            nodes: Pages::default(),
            counts: is_counted.then(Pages::default),
            free: Vec::new(),
            released: Vec::new(),
            arrived: Vec::new(),
            contents: Contents::default(),
            is_unique,
            arena,
            expiry,
            table,
            tracker: None,
            changed: Vec::new(),
            gone: Vec::new(),
        }
    }

    /// The row that follows in its chain, or [`NIL`].
    #[inline]
    pub fn next(&self, row: u32) -> u32 {
        self.nodes[row as usize].next
    }

    /// Where a row lies.
    #[inline]
    pub fn place(&self, row: u32) -> ArenaPlace {
        self.nodes[row as usize].place
    }

    /// Appends a row to the chain of its key; returns its number.
    pub fn add(&mut self, chain: &mut Chain, incoming: &Incoming<'_>) -> Result<u32> {
        let row = self.take_in(incoming.row, incoming.key);
        self.link(chain, row);
        if chain.is_indexed {
            self.index(incoming, row)?;
        }
        if let Some(tracker) = &mut self.tracker {
            tracker.add(row);
        }
        Ok(row)
    }

    /// Takes a row of the bundle in that stands in no chain yet; returns its number.
    pub fn take_in(&mut self, of_bundle: u32, key: u32) -> u32 {
        let row = self.number(RowNode {
            previous: NIL,
            next: NIL,
            place: ArenaPlace::of_piece(of_bundle),
        });
        self.arrived.push(row);
        if let Some(expiry) = &mut self.expiry {
            expiry.add(row, key);
        }
        row
    }

    /// Puts a row at the end of a chain.
    pub fn link(&mut self, chain: &mut Chain, row: u32) {
        match chain.tail {
            NIL => chain.head = row,
            tail => self.nodes[tail as usize].next = row,
        }
        self.nodes[row as usize].previous = chain.tail;
        chain.tail = row;
        chain.length += 1;
    }

    fn number(&mut self, node: RowNode) -> u32 {
        if let Some(row) = self.free.pop() {
            self.nodes[row as usize] = node;
            return row;
        }
        self.nodes.push(node);
        if let Some(counts) = &mut self.counts {
            counts.push(0);
        }
        self.nodes.len() as u32 - 1
    }

    fn index(&mut self, incoming: &Incoming<'_>, row: u32) -> Result<()> {
        let SideState { nodes, arena, contents, .. } = self;
        let same = |other: u32| is_row(nodes, arena, other, incoming);
        contents.insert((incoming.hash)()?, row, same);
        Ok(())
    }

    /// Retracts the newest row that is equal to this one; false if there is none.
    pub fn remove(&mut self, chain: &mut Chain, incoming: &Incoming<'_>) -> Result<bool> {
        let found = match chain.length {
            1 if self.is_unique && !chain.is_indexed => chain.tail,
            length if length <= SEARCHED_MAX && !chain.is_indexed => self.search(chain, incoming),
            _ => self.look_up(chain, incoming)?,
        };
        if found == NIL {
            return Ok(false);
        }
        self.unlink(chain, found, incoming.key);
        Ok(true)
    }

    fn search(&self, chain: &Chain, incoming: &Incoming<'_>) -> u32 {
        let mut row = chain.tail;
        while row != NIL && !is_row(&self.nodes, &self.arena, row, incoming) {
            row = self.nodes[row as usize].previous;
        }
        row
    }

    fn look_up(&mut self, chain: &mut Chain, incoming: &Incoming<'_>) -> Result<u32> {
        if !chain.is_indexed {
            self.index_chain(chain, incoming.columns)?;
        }
        let SideState { nodes, arena, contents, .. } = self;
        let same = |other: u32| is_row(nodes, arena, other, incoming);
        Ok(contents.take_newest((incoming.hash)()?, same).unwrap_or(NIL))
    }

    /// Hashes the rows of a chain that has become long.
    fn index_chain(&mut self, chain: &mut Chain, piece: &[ArrayRef]) -> Result<()> {
        let rows: Vec<u32> = self.chain(chain).collect();
        let places: Vec<ArenaPlace> = rows.iter().map(|&row| self.place(row)).collect();
        let all: Vec<usize> = (0..piece.len()).collect();
        let columns = self.arena.gather(&places, piece, &all)?;
        let hashes = hash_keys(&columns, rows.len())?;
        let SideState { nodes, arena, contents, .. } = self;
        for (at, (&row, &hash)) in rows.iter().zip(&hashes).enumerate() {
            let same = |other: u32| {
                let (stored, place) = arena.find(nodes[other as usize].place, piece);
                same_row(stored, place, &columns, at)
            };
            contents.insert(hash, row, same);
        }
        chain.is_indexed = true;
        Ok(())
    }

    fn chain(&self, chain: &Chain) -> impl Iterator<Item = u32> + '_ {
        let next = |&row: &u32| Some(self.next(row)).filter(|&next| next != NIL);
        std::iter::successors(Some(chain.head).filter(|&head| head != NIL), next)
    }

    /// Takes a row out of its chain. Its number stays until the end of the piece.
    ///
    /// The row's place becomes `NONE`, but whoever listed it before still holds the old place,
    /// which the arena can read until `tidy`.
    fn unlink(&mut self, chain: &mut Chain, row: u32, key: u32) {
        self.touch(row);
        let serial = self.tracker.as_mut().and_then(|tracker| tracker.remove(row));
        self.gone.extend(serial.map(|serial| (key, serial)));
        let RowNode { previous, next, place } = self.nodes[row as usize];
        match previous {
            NIL => chain.head = next,
            previous => self.nodes[previous as usize].next = next,
        }
        match next {
            NIL => chain.tail = previous,
            next => self.nodes[next as usize].previous = previous,
        }
        chain.length -= 1;
        if chain.length == 0 {
            *chain = Chain::EMPTY;
        }
        if place.is_kept() {
            self.arena.remove(place);
        }
        self.nodes[row as usize].place = ArenaPlace::NONE;
        self.released.push(row);
        if let Some(expiry) = &mut self.expiry {
            expiry.forget(row);
        }
    }

    /// Removes a row whose time is over: between two pieces, the oldest of its equals.
    pub fn expire(&mut self, chain: &mut Chain, row: u32, key: u32) -> Result<()> {
        if chain.is_indexed {
            let (columns, at) = self.arena.find(self.place(row), &[]);
            let columns = take_all(columns, &[at as u32])?;
            self.contents.remove(hash_keys(&columns, 1)?[0], row);
        }
        self.unlink(chain, row, key);
        Ok(())
    }

    /// A row is about to change: it is captured as it is if a capture has yet to read it.
    #[inline]
    fn touch(&mut self, row: u32) {
        let Some(tracker) = &mut self.tracker else { return };
        if tracker.touch(row) {
            self.changed.push(self.captured_row(row));
        }
    }

    /// What is captured of a row.
    fn captured_row(&self, row: u32) -> CapturedRow {
        CapturedRow {
            serial: self.tracker.as_ref().map_or(0, |tracker| tracker.serial(row)),
            place: self.place(row),
            partners: self.counts.as_ref().map_or(0, |counts| counts[row as usize]),
            written_ms: self.expiry.as_ref().map_or(0, |expiry| expiry.written_ms(row)),
        }
    }

    /// Writes some rows to the capture under way; false once there are none left. Between
    /// two pieces.
    pub fn read_some(&mut self, most: usize) -> Result<bool> {
        let Some(tracker) = &mut self.tracker else { return Ok(false) };
        let unread = tracker.take_unread(most, self.nodes.len());
        let is_more = !unread.is_empty();
        let live = unread.into_iter().filter(|&row| self.place(row).is_kept());
        let rows: Vec<CapturedRow> = live.map(|row| self.captured_row(row)).collect();
        self.hand_over(&rows)?;
        Ok(is_more)
    }

    fn hand_over(&mut self, rows: &[CapturedRow]) -> Result<()> {
        if let (Some(tracker), [_, ..]) = (&mut self.tracker, rows) {
            tracker.write(self.table.batch(rows, &self.arena)?);
        }
        Ok(())
    }

    /// Begins to watch rows, which are those of these chains.
    pub fn begin_tracking<'a>(&mut self, chains: impl Iterator<Item = &'a Chain>) {
        if self.tracker.is_none() {
            self.tracker = Some(RowTracker::of(chains.flat_map(|chain| self.chain(chain))));
        }
    }

    /// Begins to watch rows, which are these, in this order.
    pub fn begin_tracking_of(&mut self, rows: impl Iterator<Item = u32>) {
        self.tracker = Some(RowTracker::of(rows));
    }

    /// How many numbers rows have.
    pub fn limit(&self) -> usize {
        self.nodes.len()
    }

    /// How many rows there are.
    pub fn live(&self) -> usize {
        self.nodes.len() - self.free.len() - self.released.len()
    }

    /// What is known of the row that was added last, where that is not what a new row has.
    pub fn set_known(&mut self, row: u32, count: Option<u32>, written_ms: Option<i64>) {
        if let (Some(counts), Some(count)) = (&mut self.counts, count) {
            counts[row as usize] = count;
        }
        if let (Some(expiry), Some(written_ms)) = (&mut self.expiry, written_ms) {
            expiry.set_written(row, written_ms);
        }
    }

    /// True if rows count their partners one by one.
    pub fn counts(&self) -> bool {
        self.counts.is_some()
    }

    /// How many partners a row has, where rows count their own.
    pub fn count_mut(&mut self, row: u32) -> Option<&mut u32> {
        let is_live = self.place(row) != ArenaPlace::NONE;
        if is_live {
            self.touch(row);
            self.expiry.iter_mut().for_each(|expiry| expiry.touch(row));
        }
        self.counts.as_mut().map(|counts| &mut counts[row as usize])
    }

    /// Ends a piece: moves the rows that it brought into the arena, and frees the numbers of those
    /// that it took. `bundle_rows` is the length of the columns.
    ///
    /// The order matters: captures read changed rows where they lie (`end_piece`), then new rows
    /// enter the arena, then it compacts, and only then numbers become free.
    pub fn keep(
        &mut self,
        columns: &[ArrayRef],
        bundle_rows: usize,
        keys: &KeyTable,
    ) -> Result<()> {
        self.end_piece(keys)?;
        let SideState { nodes, arena, arrived, .. } = self;
        let mut rows = Vec::with_capacity(arrived.len());
        let mut owners = Vec::with_capacity(arrived.len());
        for row in arrived.drain(..) {
            if let Some(of_bundle) = nodes[row as usize].place.piece_row() {
                rows.push(of_bundle);
                owners.push(row);
            }
        }
        let mut set = |row: u32, place| nodes[row as usize].place = place;
        if !rows.is_empty() {
            arena.append(columns, &rows, owners, bundle_rows, &mut set)?;
        }
        arena.tidy(&mut set)?;
        self.free.append(&mut self.released);
        Ok(())
    }

    /// What a capture asks of a piece, while the rows that it took still lie where they were.
    fn end_piece(&mut self, keys: &KeyTable) -> Result<()> {
        if self.tracker.is_none() {
            return Ok(());
        }
        let changed = std::mem::take(&mut self.changed);
        self.hand_over(&changed)?;
        let live = self.live();
        if let Some(tracker) = &mut self.tracker {
            let name = |(key, serial): (u32, u64)| (virtual_partition(keys.hash_of(key)), serial);
            tracker.gone(self.gone.drain(..).map(name), live);
            tracker.end_piece();
        }
        Ok(())
    }

    pub fn bytes(&self) -> usize {
        let tracker = self.tracker.as_ref().map_or(0, RowTracker::bytes)
            + self.gone.capacity() * size_of::<(u32, u64)>();
        let numbers = self.free.capacity() + self.released.capacity() + self.arrived.capacity();
        self.nodes.bytes()
            + self.counts.as_ref().map_or(0, Pages::bytes)
            + numbers * size_of::<u32>()
            + self.contents.bytes()
            + self.arena.bytes()
            + self.expiry.as_ref().map_or(0, RowExpiry::bytes)
            + tracker
    }
}

fn is_row(nodes: &Pages<RowNode>, arena: &Arena, row: u32, incoming: &Incoming<'_>) -> bool {
    let (stored, at) = arena.find(nodes[row as usize].place, incoming.columns);
    same_row(stored, at, incoming.columns, incoming.row as usize)
}
