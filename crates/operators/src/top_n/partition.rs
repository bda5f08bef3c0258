//! The ranked rows of one key range.
//!
//! Without retractions a key has a limit: the sort key of its last row once it has all the rows
//! that it can use. A row that sorts behind is passed over with one comparison.
//!
//! Invariant between pieces: the keys in the table are those with rows; every row lies in the
//! arena.
//!
//! # A piece
//!
//! 1. Keys are interned, captures learn of the keys that may change.
//! 2. Row by row: find the place in the order, change `ordered`, list the changes of the result.
//! 3. Changes are gathered and leave. Rows that were removed can still be read.
//! 4. `finish`: rows that stay move into the arena, numbers of removed rows and keys become free.
//!
//! **Limits.** `limits[id]` is the prefix of the last row that counts once a key is full, else
//! `Prefix::MAX`. A row with a larger prefix is passed over before anything is looked up. With
//! equal prefixes the full sort key decides (`is_passed_over`): a later row with the same sort key
//! loses for ROW_NUMBER and joins for RANK and DENSE_RANK. A limit may only be used where no row is
//! ever retracted: otherwise the next row behind it might move up.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_schema::{DataType, Field, Schema};
use thalweg_core::operator::WatermarkCall;
use thalweg_core::{Output, Partition, PartitionContext, Piece, Progress, Restored, Result};

use super::changes::TopNChanges;
use super::compare::{Compare, SoughtRank};
use super::incoming::Incoming;
use super::ordered::{Cursor, Ordered, Prefix, RankedRow};
use super::ranks::{RankChange, Ranks};
use super::row_numbers::RowNumbers;
use super::snapshot::{BY_KEY, Tables};
use super::sort_keys::SortKeys;
use super::spec::{RankFunction, TopNContext, TopNSpec};
use super::store::Store;
use super::unique::Unique;
use super::windows::TopNWindows;
use crate::capture::keys::{KeyTracker, KeyedState, release, retain_empty};
use crate::expiry::Expiry;
use crate::join::regular::equal::same_row;
use crate::keys::KeyTable;
use crate::rows::arena::ArenaPlace;
use crate::rows::columns::keys_of;

/// Rows of windows leave in batches of about this many.
const WINDOW_ROWS: usize = 8192;

/// Where a row of a key has come to or gone from.
#[derive(Clone, Copy)]
struct Spot {
    at: usize,
    /// The position of the first row that sorts alike; only known where rows share ranks.
    first: usize,
}

pub(super) struct TopNPartition {
    pub shared: Arc<TopNContext>,
    pub sort: SortKeys,
    pub keys: KeyTable,
    /// The rows of each key.
    pub ordered: Vec<Ordered>,
    /// The bytes of them all.
    ordered_bytes: usize,
    /// By key: rows that sort behind are not among the first.
    limits: Vec<Prefix>,
    pub store: Store,
    pub unique: Option<Unique>,
    pub expiry: Expiry,
    pub tables: Tables,
    pub tracker: Option<KeyTracker>,
    windows: Option<TopNWindows>,
    changes: TopNChanges,
    /// The last rank that leaves.
    to: usize,
    /// The key of each row of the piece.
    pub ids: Vec<u32>,
    /// Keys that may have no row.
    emptied: Vec<u32>,
    /// Rows that have gone since the piece began, by key and serial. Only filled for captures.
    pub gone: Vec<(u32, u64)>,
}

impl TopNPartition {
    pub fn new(shared: Arc<TopNContext>, opening: PartitionContext) -> Result<Self> {
        let spec = &shared.spec;
        let sort = SortKeys::new(&spec.order, &spec.input)?;
        let mut fields = spec.input.arrow().fields().to_vec();
        if !sort.is_exact() {
            fields.push(Arc::new(Field::new("$sort", DataType::Binary, true)));
        }
        let window =
            |end| TopNWindows::new(end, shared.windows.zone, opening.order, &spec.key_types());
        let has_ranks = spec.rank_column.is_some();
        Ok(TopNPartition {
            keys: KeyTable::new(&spec.key_types())?,
            ordered: Vec::new(),
            ordered_bytes: 0,
            limits: Vec::new(),
            store: Store::new(Arc::new(Schema::new(fields))),
            unique: Unique::new(spec)?,
            expiry: Expiry::new(spec.ttl_ms()),
            tables: Tables::new(spec),
            tracker: None,
            windows: spec.window_end.map(window).transpose()?,
            changes: TopNChanges::new(shared.output.arrow(), spec.input.len(), has_ranks),
            to: usize::try_from(spec.to).unwrap_or(usize::MAX),
            ids: Vec::new(),
            emptied: Vec::new(),
            gone: Vec::new(),
            sort,
            shared,
        })
    }

    fn take(&mut self, piece: &Piece<'_>, output: &mut Output) -> Result<()> {
        let batch = &piece.bundle.batch;
        let on_time = match &mut self.windows {
            Some(windows) => Some(windows.on_time(piece, output)?),
            None => None,
        };
        let chosen = on_time.as_deref().or(piece.rows);
        let chosen = chosen.filter(|rows| rows.len() < batch.num_rows());
        let piece = Piece { rows: None, ..*piece };
        let incoming = Incoming::new(&piece, chosen, &self.sort)?;
        if incoming.len() == 0 {
            return Ok(());
        }
        let shared = Arc::clone(&self.shared);
        let columns = keys_of(batch.columns(), &shared.spec.keys);
        self.ids.clear();
        self.keys.intern_rows(&columns, chosen, batch.num_rows(), &mut self.ids)?;
        self.grow();
        self.touch_reached(&incoming)?;
        if let Some(unique) = &mut self.unique {
            unique.begin(batch, chosen)?;
        }
        match shared.spec.keeps_all() {
            true => self.take_changes(&incoming, output)?,
            false => self.take_inserts(&incoming, output)?,
        }
        self.note_windows(&piece, &incoming)?;
        self.changes.emit(&self.store.arena, &incoming.columns, output)?;
        self.finish(&incoming.columns)
    }

    pub fn grow(&mut self) {
        let limit = self.keys.id_limit();
        self.ordered.resize_with(limit, Ordered::default);
        self.limits.resize(limit, Prefix::MAX);
        self.expiry.grow(limit);
    }

    /// Captures learn of the keys that these rows may change.
    fn touch_reached(&mut self, incoming: &Incoming<'_>) -> Result<()> {
        if !self.has_captures() {
            return Ok(());
        }
        let may_change = |position: usize| {
            // With a life time a key may start from scratch, and has no limit then.
            self.expiry.expires()
                || incoming.prefixes[position] <= self.limits[self.ids[position] as usize]
        };
        let reached = (0..incoming.len()).filter(|&position| may_change(position));
        let reached: Vec<u32> = reached.map(|position| self.ids[position]).collect();
        self.touch(BY_KEY, &reached)
    }

    /// Windows learn of the keys that they have got.
    pub fn note_windows(&mut self, piece: &Piece<'_>, incoming: &Incoming<'_>) -> Result<()> {
        let Some(windows) = &mut self.windows else { return Ok(()) };
        let ends = windows.ends(&piece.bundle.batch)?;
        for (position, &id) in self.ids.iter().enumerate() {
            windows.add(id, ends[incoming.cause(position) as usize]);
        }
        Ok(())
    }

    fn take_inserts(&mut self, incoming: &Incoming<'_>, output: &mut Output) -> Result<()> {
        incoming.only_adds()?;
        let now_ms = output.wall_ms();
        for position in 0..incoming.len() {
            let (id, prefix) = (self.ids[position], incoming.prefixes[position]);
            if self.expiry.expires() {
                self.expire(id, now_ms);
            }
            let limit = self.limits[id as usize];
            // The common case of a stream with many keys: nothing but this comparison is done for
            // the row.
            if prefix > limit {
                continue;
            }
            if prefix == limit
                && limit != Prefix::MAX
                && self.is_passed_over(id, incoming, position)
            {
                continue;
            }
            self.insert(id, incoming, position, now_ms);
            if self.changes.are_many() {
                self.changes.emit(&self.store.arena, &incoming.columns, output)?;
            }
        }
        Ok(())
    }

    /// True if a row that begins like the last one of a full key is not among the first.
    fn is_passed_over(&self, id: u32, incoming: &Incoming<'_>, position: usize) -> bool {
        let Some(last) = self.ordered[id as usize].last() else { return false };
        let (prefix, piece_row) = (incoming.prefixes[position], incoming.row(position));
        match self.compare(incoming).order(&last, SoughtRank { prefix, piece_row }) {
            Ordering::Less => true,
            Ordering::Equal => self.shared.spec.function == RankFunction::RowNumber,
            Ordering::Greater => false,
        }
    }

    fn take_changes(&mut self, incoming: &Incoming<'_>, output: &mut Output) -> Result<()> {
        let now_ms = output.wall_ms();
        for position in 0..incoming.len() {
            let id = self.ids[position];
            self.expire(id, now_ms);
            let same_key = self.unique.as_mut().and_then(|unique| unique.entry(position));
            match (incoming.adds(position), same_key) {
                (true, None) => self.insert(id, incoming, position, now_ms),
                (true, Some(old)) => self.replace(id, old, incoming, position, now_ms),
                (false, Some(old)) => self.remove(id, old, incoming, position),
                (false, None) if self.unique.is_some() => self.emptied.push(id),
                (false, None) => match self.same_row(id, incoming, position) {
                    Some(old) => self.remove(id, old, incoming, position),
                    None => self.emptied.push(id),
                },
            }
            if self.changes.are_many() {
                self.changes.emit(&self.store.arena, &incoming.columns, output)?;
            }
        }
        Ok(())
    }

    /// A key whose state is too old is forgotten before a row reaches it.
    fn expire(&mut self, id: u32, now_ms: i64) {
        if self.ordered[id as usize].len() > 0 && self.expiry.is_over(id, now_ms) {
            self.forget(id);
        }
    }

    /// Empties a key, without a change.
    fn forget(&mut self, id: u32) {
        let ordered = self.change(id, std::mem::take);
        for entry in ordered.iter_from(0) {
            self.remove_row(id, entry.row);
            if let Some(unique) = &mut self.unique {
                unique.forget(entry.row);
            }
        }
        self.limits[id as usize] = Prefix::MAX;
        self.emptied.push(id);
    }

    /// Lets a row of a key go.
    fn remove_row(&mut self, id: u32, row: u32) {
        let serial = self.store.remove(row);
        self.gone.extend(serial.map(|serial| (id, serial)));
    }

    /// Changes the rows of a key.
    pub fn change<R>(&mut self, id: u32, change: impl FnOnce(&mut Ordered) -> R) -> R {
        let ordered = &mut self.ordered[id as usize];
        let before = ordered.bytes();
        let result = change(ordered);
        self.ordered_bytes = self.ordered_bytes + ordered.bytes() - before;
        result
    }

    fn compare<'a>(&'a self, incoming: &'a Incoming<'_>) -> Compare<'a> {
        let is_exact = self.sort.is_exact();
        Compare { store: &self.store, columns: &incoming.columns, is_exact }
    }

    /// A row joins those of its key, unless it is not among the first.
    fn insert(&mut self, id: u32, incoming: &Incoming<'_>, position: usize, now_ms: i64) {
        let (cursor, spot) = self.spot_for(id, incoming, position);
        if !self.shared.spec.keeps_all() && self.is_behind(id, spot, incoming) {
            return;
        }
        let piece_row = incoming.row(position);
        let row = self.store.add(piece_row);
        let entry = RankedRow { prefix: incoming.prefixes[position], row };
        self.change(id, |ordered| ordered.insert(cursor, entry));
        if let Some(unique) = &mut self.unique {
            unique.set(position, entry);
        }
        self.expiry.write(id, now_ms);
        self.inserted(id, spot, ArenaPlace::of_piece(piece_row), incoming, position);
        if !self.shared.spec.keeps_all() {
            self.evict(id, incoming);
        }
    }

    /// Where a row of the piece goes: behind those that sort alike.
    pub fn cursor_for(&self, id: u32, incoming: &Incoming<'_>, position: usize) -> Cursor {
        let sought =
            SoughtRank { prefix: incoming.prefixes[position], piece_row: incoming.row(position) };
        let compare = self.compare(incoming);
        let ordered = &self.ordered[id as usize];
        ordered.find(|entry| compare.order(entry, sought) != Ordering::Greater)
    }

    /// Where a row of the piece goes, and at which positions that is.
    fn spot_for(&self, id: u32, incoming: &Incoming<'_>, position: usize) -> (Cursor, Spot) {
        let cursor = self.cursor_for(id, incoming, position);
        let sought =
            SoughtRank { prefix: incoming.prefixes[position], piece_row: incoming.row(position) };
        let compare = self.compare(incoming);
        let ordered = &self.ordered[id as usize];
        let at = ordered.position(cursor, self.position_max());
        let first = match self.shared.spec.function {
            RankFunction::RowNumber => at,
            _ => {
                let first = ordered.find(|entry| compare.order(entry, sought) == Ordering::Less);
                ordered.position(first, usize::MAX)
            }
        };
        (cursor, Spot { at, first })
    }

    /// Positions from here on do not differ for row numbers. Others must be exact.
    fn position_max(&self) -> usize {
        match self.shared.spec.function {
            RankFunction::RowNumber => self.to,
            _ => usize::MAX,
        }
    }

    fn ranks<'a>(&'a self, id: u32, incoming: &'a Incoming<'_>) -> Ranks<'a> {
        Ranks {
            is_dense: self.shared.spec.function == RankFunction::DenseRank,
            ordered: &self.ordered[id as usize],
            compare: self.compare(incoming),
        }
    }

    /// True if a row that came here is not among the first.
    fn is_behind(&self, id: u32, spot: Spot, incoming: &Incoming<'_>) -> bool {
        match self.shared.spec.function {
            RankFunction::RowNumber => spot.at >= self.to,
            _ => self.ranks(id, incoming).at(spot.first, self.to) > self.to,
        }
    }

    /// Lets rows go that are no longer among the first, and sets the limit.
    pub fn evict(&mut self, id: u32, incoming: &Incoming<'_>) {
        let mut fill = self.fill(id, incoming);
        while fill == Ordering::Greater {
            if let Some(gone) = self.change(id, Ordered::pop) {
                self.store.remove(gone.row);
            }
            fill = self.fill(id, incoming);
        }
        let is_full = fill == Ordering::Equal;
        let last = self.ordered[id as usize].last().filter(|_| is_full);
        self.limits[id as usize] = last.map_or(Prefix::MAX, |last| last.prefix);
    }

    /// Less if a row that sorts behind all others would be among the first, greater if the last is
    /// not.
    fn fill(&self, id: u32, incoming: &Incoming<'_>) -> Ordering {
        let rows = self.ordered[id as usize].len();
        match self.shared.spec.function {
            RankFunction::RowNumber => rows.cmp(&self.to),
            function => {
                let last = self.ranks(id, incoming).of_last(self.to);
                let next_has_last = function == RankFunction::Rank && rows < self.to;
                if next_has_last { Ordering::Less } else { last.cmp(&self.to) }
            }
        }
    }

    fn is_dense(&self) -> bool {
        self.shared.spec.function == RankFunction::DenseRank
    }

    /// The first row that holds the same values as one of the piece.
    fn same_row(&self, id: u32, incoming: &Incoming<'_>, position: usize) -> Option<RankedRow> {
        let piece_row = incoming.row(position);
        let sought = SoughtRank { prefix: incoming.prefixes[position], piece_row };
        let compare = self.compare(incoming);
        let ordered = &self.ordered[id as usize];
        let first = ordered.find(|entry| compare.order(entry, sought) == Ordering::Less);
        let alike = ordered.iter_at(first).map(|(_, entry)| entry);
        let mut alike = alike.take_while(|entry| compare.order(entry, sought) == Ordering::Equal);
        alike.find(|entry| {
            let (columns, row) = self.store.find(entry.row, &incoming.columns);
            same_row(columns, row, &incoming.columns, piece_row as usize)
        })
    }

    /// Where a kept row stands.
    fn spot_of(&self, id: u32, kept: RankedRow, incoming: &Incoming<'_>) -> Option<(Cursor, Spot)> {
        let compare = self.compare(incoming);
        let ordered = &self.ordered[id as usize];
        let first = ordered.find(|entry| compare.entries(entry, &kept) == Ordering::Less);
        let mut alike = ordered.iter_at(first);
        let (cursor, _) = alike.find(|(_, entry)| entry.row == kept.row)?;
        let at = ordered.position(cursor, self.position_max());
        Some((cursor, Spot { at, first: ordered.position(first, self.position_max()) }))
    }

    /// Changes are listed after the entry has left `ordered` and before the row leaves `store`:
    /// they describe the list after the change, and they read the row.
    fn remove(&mut self, id: u32, old: RankedRow, incoming: &Incoming<'_>, position: usize) {
        let Some((cursor, spot)) = self.spot_of(id, old, incoming) else { return };
        let place = self.store.place(old.row);
        let behind = match self.shared.spec.function {
            RankFunction::RowNumber => spot.at,
            _ => {
                let compare = self.compare(incoming);
                let ordered = &self.ordered[id as usize];
                let behind =
                    ordered.find(|entry| compare.entries(entry, &old) != Ordering::Greater);
                ordered.position(behind, usize::MAX) - 1
            }
        };
        self.change(id, |ordered| ordered.remove(cursor));
        self.removed(id, spot, behind, place, incoming, position);
        self.remove_row(id, old.row);
        if let Some(unique) = &mut self.unique {
            unique.forget(old.row);
        }
        self.emptied.push(id);
    }

    /// A row takes the place of another with its upsert key.
    ///
    /// With row numbers an upsert is one change of the list, not a removal and an insertion: only
    /// the positions between the old and the new place change, and no row leaves the result for a
    /// moment. With RANK and DENSE_RANK it is both.
    fn replace(
        &mut self,
        id: u32,
        old: RankedRow,
        incoming: &Incoming<'_>,
        position: usize,
        now_ms: i64,
    ) {
        let is_numbered = self.shared.spec.function == RankFunction::RowNumber;
        let found = self.spot_of(id, old, incoming).filter(|_| is_numbered);
        let Some((cursor, from)) = found else {
            self.remove(id, old, incoming, position);
            return self.insert(id, incoming, position, now_ms);
        };
        let place = self.store.place(old.row);
        let (prefix, piece_row) = (incoming.prefixes[position], incoming.row(position));
        let compare = self.compare(incoming);
        let stays = compare.order(&old, SoughtRank { prefix, piece_row }) == Ordering::Equal;
        let row = self.store.add(piece_row);
        let entry = RankedRow { prefix, row };
        let to = if stays {
            self.change(id, |ordered| ordered.replace(cursor, entry));
            from.at
        } else {
            self.change(id, |ordered| ordered.remove(cursor));
            let (cursor, to) = self.spot_for(id, incoming, position);
            self.change(id, |ordered| ordered.insert(cursor, entry));
            to.at
        };
        if let Some(unique) = &mut self.unique {
            unique.set(position, entry);
        }
        self.expiry.write(id, now_ms);
        if self.windows.is_none() {
            self.row_numbers(id, incoming.cause(position)).replaced(from.at, place, to);
        }
        if stays { self.store.replace(old.row, row) } else { self.remove_row(id, old.row) }
    }

    fn row_numbers(&mut self, id: u32, cause: u32) -> RowNumbers<'_> {
        let TopNSpec { from, rank_column, .. } = &self.shared.spec;
        RowNumbers {
            first: usize::try_from(*from - 1).unwrap_or(usize::MAX),
            end: self.to,
            has_numbers: rank_column.is_some(),
            ordered: &self.ordered[id as usize],
            store: &self.store,
            changes: &mut self.changes,
            cause,
        }
    }

    fn rank_change<'a>(
        &'a mut self,
        id: u32,
        incoming: &'a Incoming<'_>,
        cause: u32,
    ) -> RankChange<'a> {
        let TopNSpec { from, rank_column, function, .. } = &self.shared.spec;
        let is_exact = self.sort.is_exact();
        RankChange {
            from: usize::try_from(*from).unwrap_or(usize::MAX),
            to: self.to,
            has_ranks: rank_column.is_some(),
            ranks: Ranks {
                is_dense: *function == RankFunction::DenseRank,
                ordered: &self.ordered[id as usize],
                compare: Compare { store: &self.store, columns: &incoming.columns, is_exact },
            },
            changes: &mut self.changes,
            cause,
        }
    }

    fn inserted(
        &mut self,
        id: u32,
        spot: Spot,
        row: ArenaPlace,
        incoming: &Incoming<'_>,
        position: usize,
    ) {
        let cause = incoming.cause(position);
        match self.shared.spec.function {
            _ if self.windows.is_some() => {}
            RankFunction::RowNumber => self.row_numbers(id, cause).inserted(spot.at),
            _ => self.rank_change(id, incoming, cause).inserted(spot.first, spot.at, row),
        }
    }

    fn removed(
        &mut self,
        id: u32,
        spot: Spot,
        behind: usize,
        row: ArenaPlace,
        incoming: &Incoming<'_>,
        position: usize,
    ) {
        let cause = incoming.cause(position);
        match self.shared.spec.function {
            _ if self.windows.is_some() => {}
            RankFunction::RowNumber => self.row_numbers(id, cause).removed(spot.at, row),
            _ => self.rank_change(id, incoming, cause).removed(spot.first, behind, row),
        }
    }

    /// Ends a piece of rows of these columns: those that stay move into the arena, and keys without
    /// rows are forgotten.
    pub fn finish(&mut self, columns: &[ArrayRef]) -> Result<()> {
        self.end_piece()?;
        self.store.keep(columns)?;
        if let Some(unique) = &mut self.unique {
            unique.finish();
        }
        retain_empty(&mut self.emptied, |id| self.ordered[id as usize].len() == 0);
        release(&mut self.tracker, &mut self.keys, &self.emptied)?;
        for id in self.emptied.drain(..) {
            let ordered = &mut self.ordered[id as usize];
            self.ordered_bytes -= ordered.bytes();
            *ordered = Ordered::default();
        }
        Ok(())
    }

    /// Captures learn of the keys of the window that leaves.
    fn touch_closing(&mut self) -> Result<()> {
        if !self.has_captures() {
            return Ok(());
        }
        let closing = self.windows.as_ref().and_then(|windows| windows.closing.as_ref());
        let ids = closing.map_or_else(Vec::new, |closing| closing.keys.clone());
        self.touch(BY_KEY, &ids)
    }

    /// Sends the first rows of some keys of the window that leaves; true once it has left.
    fn close_some(&mut self, output: &mut Output) -> Result<bool> {
        let Some(windows) = &mut self.windows else { return Ok(true) };
        let Some(mut closing) = windows.closing.take() else { return Ok(true) };
        let from = usize::try_from(self.shared.spec.from).unwrap_or(usize::MAX);
        while let Some(&id) = closing.keys.get(closing.next) {
            closing.next += 1;
            let is_exact = self.sort.is_exact();
            let compare = Compare { store: &self.store, columns: &[], is_exact };
            let is_dense = self.is_dense();
            let ordered = &self.ordered[id as usize];
            let is_numbered = self.shared.spec.function == RankFunction::RowNumber;
            let (store, changes, to) = (&self.store, &mut self.changes, self.to);
            let mut position = 0;
            Ranks { is_dense, ordered, compare }.each(0, 1, |entry, rank| {
                position += 1;
                let rank = if is_numbered { position } else { rank };
                if rank >= from && rank <= to {
                    let place = store.place(entry.row);
                    changes.push(thalweg_core::RowKind::Insert, place, rank, 0);
                }
                rank <= to
            });
            self.forget(id);
            if self.changes.len() >= WINDOW_ROWS {
                break;
            }
        }
        self.changes.emit_window(&self.store.arena, closing.end, output)?;
        let is_done = closing.next == closing.keys.len();
        if let Some(windows) = self.windows.as_mut().filter(|_| !is_done) {
            windows.closing = Some(closing);
        }
        Ok(is_done)
    }
}

impl Partition for TopNPartition {
    fn rows(&mut self, piece: Piece<'_>, output: &mut Output) -> Result<()> {
        output.accepted += piece.num_rows() as u64;
        if piece.num_rows() > 0 {
            self.take(&piece, output)?;
        }
        let has_state = |id: u32| self.ordered[id as usize].len() > 0;
        let over = self.expiry.sweep(piece.num_rows(), output.wall_ms(), has_state);
        if over.is_empty() {
            return Ok(());
        }
        self.touch(BY_KEY, &over)?;
        over.into_iter().for_each(|id| self.forget(id));
        self.finish(&[])
    }

    fn watermark(&mut self, call: &WatermarkCall<'_>, output: &mut Output) -> Result<Progress> {
        let Some(windows) = &mut self.windows else { return Ok(Progress::Done) };
        let mut is_closing = windows.closing.is_some();
        loop {
            if !is_closing {
                let ordered = &self.ordered;
                let is_live = |id: u32| ordered[id as usize].len() > 0;
                let Some(windows) = &mut self.windows else { return Ok(Progress::Done) };
                if !windows.close_next(call.watermark.0, &self.keys, is_live)? {
                    return Ok(Progress::Done);
                }
                self.touch_closing()?;
            }
            is_closing = !self.close_some(output)?;
            self.finish(&[])?;
            if output.time_is_up() {
                return Ok(Progress::More);
            }
        }
    }

    fn state_bytes(&self) -> usize {
        self.keys.bytes()
            + self.ordered_bytes
            + self.ordered.capacity() * size_of::<Ordered>()
            + self.limits.capacity() * size_of::<Prefix>()
            + self.store.bytes()
            + self.unique.as_ref().map_or(0, Unique::bytes)
            + self.expiry.bytes()
            + self.tracker.as_ref().map_or(0, KeyTracker::bytes)
            + self.windows.as_ref().map_or(0, TopNWindows::bytes)
            + self.changes.bytes()
            + (self.ids.capacity() + self.emptied.capacity()) * 4
            + self.gone.capacity() * size_of::<(u32, u64)>()
    }

    fn state_keys(&self) -> Option<usize> {
        Some(self.keys.len())
    }

    fn restore(&mut self, restored: &Restored) -> Result<()> {
        self.restore_state(restored)
    }
}
