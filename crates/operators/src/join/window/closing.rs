//! A window that leaves, a few thousand rows at a time.
//!
//! Rows lie by key, and each key is visited once, in the order of keys. A step continues until it
//! has found enough pairs; the rows of one key may need many steps, and one row of the left side
//! always meets all its partners in one. [`ClosingWindow::emit_some`] keeps its place between
//! calls.
//!
//! **Invariants**
//! - `order[at]` is the key in work, and `visited` of its left rows have been sent.
//! - `matched` belongs to right rows. It is complete for a key when its last left row has been
//!   visited, so the right rows without a partner are emitted last (`Token::Rights`).
//! - Tokens keep the order of rows when a residual condition removes pairs: whether a left row
//!   leaves alone is known only after the mask.

use std::ops::Range;

use arrow_buffer::BooleanBuffer;
use thalweg_core::{Output, Place, Result};

use super::WindowJoinContext;
use super::state::{KeptRow, Window};
use crate::join::JoinKind;
use crate::join::bounded::PAIRS_MAX;
use crate::join::sides::Side;
use crate::keys::ranks::KeyRanks;
use crate::rows::chunks::{Chunks, RowRef};

/// Where the rows of each key begin among those of a side, and the end of the last.
struct Offsets(Vec<u32>);

impl Offsets {
    /// Sorts rows by key and, where it matters, by start within each.
    fn sort(
        rows: &mut [KeptRow],
        keys: usize,
        has_several_starts: bool,
        unsorted: &mut Vec<KeptRow>,
    ) -> Self {
        let mut offsets = vec![0u32; keys + 1];
        if keys == 1 {
            offsets[1] = rows.len() as u32;
        } else {
            rows.iter().for_each(|kept| offsets[kept.key as usize + 1] += 1);
            (0..keys).for_each(|key| offsets[key + 1] += offsets[key]);
            unsorted.clear();
            unsorted.extend_from_slice(rows);
            let mut next = offsets.clone();
            for kept in unsorted {
                let place = &mut next[kept.key as usize];
                rows[*place as usize] = *kept;
                *place += 1;
            }
        }
        let offsets = Offsets(offsets);
        if has_several_starts {
            (0..keys as u32).for_each(|key| rows[offsets.of(key)].sort_by_key(|kept| kept.start));
        }
        offsets
    }

    fn of(&self, key: u32) -> Range<usize> {
        let key = key as usize;
        self.0[key] as usize..self.0[key + 1] as usize
    }
}

/// A row of the left side with its pairs, or the rows of the right side that end a key.
enum Token {
    Left { row: RowRef, pairs: Range<usize>, first_partner: usize },
    Rights(Range<usize>),
}

/// What a step has found.
#[derive(Default)]
struct Found {
    left: Vec<RowRef>,
    right: Vec<RowRef>,
    /// How many rows of the left side were visited.
    visited: usize,
    /// Where more than pairs is wanted.
    tokens: Vec<Token>,
}

/// A window that leaves.
pub(super) struct ClosingWindow {
    end: i64,
    /// Its rows are sorted by key.
    window: Window,
    /// By side.
    offsets: [Offsets; 2],
    /// Keys in the order in which they leave.
    order: Vec<u32>,
    /// The key that is next, and how many of its left rows have been visited.
    at: usize,
    visited: usize,
    /// By place among the right rows: whether it has found a partner.
    matched: Vec<bool>,
}

impl ClosingWindow {
    /// A window that is to leave. What `unsorted` holds is overwritten.
    pub fn new(
        end: i64,
        mut window: Window,
        ranks: &KeyRanks,
        unsorted: &mut Vec<KeptRow>,
    ) -> Result<Self> {
        let keys = window.keys.id_limit();
        let ids: Vec<u32> = (0..keys as u32).collect();
        let order = ranks.sorted(&window.keys, &ids)?;
        let has_several_starts = window.has_several_starts;
        let mut sort =
            |rows: &mut [KeptRow]| Offsets::sort(rows, keys, has_several_starts, unsorted);
        let offsets = window.rows.each_mut().map(|rows| sort(rows));
        let matched = vec![false; window.rows[Side::Right as usize].len()];
        Ok(ClosingWindow { end, window, offsets, order, at: 0, visited: 0, matched })
    }

    /// Sends some rows on; true once the window has left.
    pub fn emit_some(
        &mut self,
        shared: &WindowJoinContext,
        chunks: &[Chunks; 2],
        output: &mut Output,
    ) -> Result<bool> {
        let found = self.find(shared);
        let joined = &shared.joined;
        let mut mask = None;
        if joined.has_mask() && !found.left.is_empty() {
            let columns = |side| joined.residual_columns(side);
            let left = chunks[0].gather_columns(&found.left, columns(Side::Left))?;
            let right = chunks[1].gather_columns(&found.right, columns(Side::Right))?;
            let pairs = found.left.len();
            mask = joined.mask_of_equal(None, left, right, pairs, output.wall_ms())?;
        }
        let (left, right) = match (joined.kind, mask) {
            (JoinKind::Inner, None) => (found.left, found.right),
            (JoinKind::Inner, Some(mask)) => found.pairs(&mask),
            (kind, mask) => self.choose(&found, mask.as_ref(), kind),
        };
        let columns = chunks[0].gather(&left)?;
        let of_right = match joined.kind.has_right_columns() {
            true => chunks[1].gather(&right)?,
            false => Vec::new(),
        };
        let batch = joined.batch(columns, of_right, left.len())?;
        output.emit_at(batch, Place::WindowEnd(self.end));
        Ok(self.at == self.order.len())
    }

    /// Visits rows until there are enough pairs.
    fn find(&mut self, shared: &WindowJoinContext) -> Found {
        let kind = shared.joined.kind;
        let needs_left = kind != JoinKind::Inner && kind != JoinKind::Right;
        // Without a residual condition one partner decides over the row: further ones would only be
        // dropped.
        let needs_one =
            matches!(kind, JoinKind::Semi | JoinKind::Anti) && !shared.joined.has_mask();
        let mut found = Found::default();
        let [all_left, all_right] = &self.window.rows;
        while let Some(&key) = self.order.get(self.at) {
            let [lefts, rights] = self.offsets.each_ref().map(|offsets| offsets.of(key));
            let joins = self.window.joins.get(key as usize).is_none_or(|&joins| joins);
            let is_alone = rights.is_empty() || !joins;
            if is_alone && !needs_left {
                self.visited = lefts.len();
            }
            while self.visited < lefts.len() {
                let left = all_left[lefts.start + self.visited];
                let mut partners =
                    if is_alone { 0..0 } else { self.partners(left.start, rights.clone()) };
                partners.end =
                    if needs_one { partners.end.min(partners.start + 1) } else { partners.end };
                self.visited += 1;
                if kind != JoinKind::Inner {
                    found.note(left.row, &partners);
                }
                found.add(left.row, &all_right[partners]);
                if found.is_enough() {
                    return found;
                }
            }
            if kind.pads_right_rows() && !rights.is_empty() {
                found.tokens.push(Token::Rights(rights));
            }
            self.at += 1;
            self.visited = 0;
            if found.is_enough() {
                return found;
            }
        }
        found
    }

    /// The right rows of the same window among those of the same key.
    fn partners(&self, start: i64, rights: Range<usize>) -> Range<usize> {
        if !self.window.has_several_starts {
            return rights;
        }
        let rows = &self.window.rows[Side::Right as usize][rights.clone()];
        let from = rows.partition_point(|kept| kept.start < start);
        let to = rows.partition_point(|kept| kept.start <= start);
        rights.start + from..rights.start + to
    }

    /// What leaves of what was found.
    fn choose(
        &mut self,
        found: &Found,
        mask: Option<&BooleanBuffer>,
        kind: JoinKind,
    ) -> (Vec<RowRef>, Vec<RowRef>) {
        let (mut left, mut right) = (Vec::new(), Vec::new());
        let stays = |pair: usize| mask.is_none_or(|mask| mask.value(pair));
        for token in &found.tokens {
            match token {
                Token::Left { row, pairs, first_partner } => {
                    let before = left.len();
                    let mut is_matched = false;
                    for pair in pairs.clone().filter(|&pair| stays(pair)) {
                        is_matched = true;
                        self.matched[first_partner + pair - pairs.start] = true;
                        if kind.has_right_columns() {
                            left.push(*row);
                            right.push(found.right[pair]);
                        }
                    }
                    let leaves_alone = match kind {
                        JoinKind::Semi => is_matched,
                        JoinKind::Anti => !is_matched,
                        kind => kind.pads_left_rows() && left.len() == before,
                    };
                    if leaves_alone {
                        left.push(*row);
                        right.push(RowRef::NONE);
                    }
                }
                Token::Rights(rights) => {
                    for place in rights.clone().filter(|&place| !self.matched[place]) {
                        left.push(RowRef::NONE);
                        right.push(self.window.rows[Side::Right as usize][place].row);
                    }
                }
            }
        }
        (left, right)
    }

    /// Gives the rows back. What is left of the window names them still.
    pub fn release(self, chunks: &mut [Chunks; 2]) -> Window {
        let mut window = self.window;
        for side in [Side::Left, Side::Right] {
            for (chunk, count) in window.holds[side as usize].drain(..) {
                chunks[side as usize].release(chunk, count as usize);
            }
        }
        window
    }

    /// How many keys it has.
    pub fn keys(&self) -> usize {
        self.window.keys.len()
    }

    pub fn bytes(&self) -> usize {
        let offsets: usize = self.offsets.iter().map(|offsets| offsets.0.capacity()).sum();
        self.window.bytes() + (offsets + self.order.capacity()) * 4 + self.matched.capacity()
    }
}

impl Found {
    /// Notes which pairs and which partners the next row of the left side has.
    fn note(&mut self, row: RowRef, partners: &Range<usize>) {
        let pairs = self.left.len()..self.left.len() + partners.len();
        self.tokens.push(Token::Left { row, pairs, first_partner: partners.start });
    }

    /// Adds a row of the left side with its partners.
    fn add(&mut self, row: RowRef, partners: &[KeptRow]) {
        self.visited += 1;
        self.left.extend(std::iter::repeat_n(row, partners.len()));
        self.right.extend(partners.iter().map(|kept| kept.row));
    }

    /// Some of the pairs.
    fn pairs(&self, mask: &BooleanBuffer) -> (Vec<RowRef>, Vec<RowRef>) {
        mask.set_indices().map(|pair| (self.left[pair], self.right[pair])).unzip()
    }

    fn is_enough(&self) -> bool {
        [self.left.len(), self.visited, self.tokens.len()].into_iter().any(|many| many >= PAIRS_MAX)
    }
}
