//! A window that leaves, a few thousand rows at a time.
//!
//! Rows lie by key, and each key is visited once, in the order of keys. A step goes on until it has
//! found enough pairs; the rows of one key may need many steps, and one row of the left side always
//! meets all its partners in one. [`Closing::emit_some`] keeps its place between calls.

use arrow_buffer::BooleanBuffer;
use thalweg_core::{Output, Place, Result};

use super::Shared;
use super::state::{Kept, Window};
use crate::join::JoinKind;
use crate::join::bounded::PAIRS_MAX;
use crate::join::bounded::chunks::{Chunks, RowRef};
use crate::join::bounded::order::KeyRanks;
use crate::join::sides::Side;

/// The rows of one side by key.
struct ByKey {
    rows: Vec<Kept>,
    /// Where the rows of each key begin, and the end of the last.
    offsets: Vec<u32>,
}

impl ByKey {
    fn new(rows: Vec<Kept>, keys: usize, has_several_starts: bool) -> Self {
        let mut offsets = vec![0u32; keys + 1];
        rows.iter().for_each(|kept| offsets[kept.key as usize + 1] += 1);
        (0..keys).for_each(|key| offsets[key + 1] += offsets[key]);
        let mut next = offsets.clone();
        let mut sorted = rows.clone();
        for kept in rows {
            let place = &mut next[kept.key as usize];
            sorted[*place as usize] = kept;
            *place += 1;
        }
        if has_several_starts {
            for key in 0..keys {
                sorted[offsets[key] as usize..offsets[key + 1] as usize]
                    .sort_by_key(|kept| kept.start);
            }
        }
        ByKey { rows: sorted, offsets }
    }

    fn range(&self, key: u32) -> std::ops::Range<usize> {
        let key = key as usize;
        self.offsets[key] as usize..self.offsets[key + 1] as usize
    }
}

/// A row of the left side with its pairs, or the rows of the right side that end a key.
enum Token {
    Left { row: RowRef, pairs: std::ops::Range<usize>, first_partner: usize },
    Rights(std::ops::Range<usize>),
}

/// What a step has found.
#[derive(Default)]
struct Found {
    left: Vec<RowRef>,
    right: Vec<RowRef>,
    tokens: Vec<Token>,
}

/// A window that leaves.
pub(super) struct Closing {
    end: i64,
    /// Keys in the order in which they leave.
    order: Vec<u32>,
    joins: Vec<bool>,
    left: ByKey,
    right: ByKey,
    holds: [Vec<(u32, u32)>; 2],
    has_several_starts: bool,
    /// The key that is next, and how many of its left rows have been visited.
    at: usize,
    visited: usize,
    /// By place among the right rows: whether it has found a partner.
    matched: Vec<bool>,
}

impl Closing {
    pub(super) fn new(end: i64, window: Window, ranks: &KeyRanks) -> Result<Self> {
        let keys = window.keys.id_limit();
        let ids: Vec<u32> = (0..keys as u32).collect();
        let order = ranks.sorted(&window.keys, &ids)?;
        let [left, right] = window.rows;
        let has_several_starts = window.has_several_starts;
        Ok(Closing {
            end,
            order,
            joins: window.joins,
            matched: vec![false; right.len()],
            left: ByKey::new(left, keys, has_several_starts),
            right: ByKey::new(right, keys, has_several_starts),
            holds: window.holds,
            has_several_starts,
            at: 0,
            visited: 0,
        })
    }

    /// Sends some rows on; true once the window has left.
    pub(super) fn emit_some(
        &mut self,
        shared: &Shared,
        chunks: &[Chunks; 2],
        output: &mut Output,
    ) -> Result<bool> {
        let found = self.find(shared);
        let joined = &shared.joined;
        let mut mask = None;
        if joined.has_mask() && !found.left.is_empty() {
            let left = chunks[0].gather(&found.left)?;
            let right = chunks[1].gather(&found.right)?;
            mask = joined.mask(&left, &right, found.left.len(), output.wall_ms())?;
        }
        let is_plain = joined.kind == JoinKind::Inner && mask.is_none();
        let (left, right) = match is_plain {
            true => (found.left, found.right),
            false => self.choose(&found, mask.as_ref(), joined.kind),
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
    fn find(&mut self, shared: &Shared) -> Found {
        let kind = shared.joined.kind;
        let needs_left = kind != JoinKind::Inner && kind != JoinKind::Right;
        let needs_one =
            matches!(kind, JoinKind::Semi | JoinKind::Anti) && !shared.joined.has_mask();
        let mut found = Found::default();
        while let Some(&key) = self.order.get(self.at) {
            let (lefts, rights) = (self.left.range(key), self.right.range(key));
            let joins = self.joins.get(key as usize).is_none_or(|&joins| joins);
            let is_alone = rights.is_empty() || !joins;
            if is_alone && !needs_left {
                self.visited = lefts.len();
            }
            while self.visited < lefts.len() {
                let left = self.left.rows[lefts.start + self.visited];
                let mut partners =
                    if is_alone { 0..0 } else { self.partners(left.start, rights.clone()) };
                partners.end =
                    if needs_one { partners.end.min(partners.start + 1) } else { partners.end };
                self.visited += 1;
                found.add(left.row, partners, &self.right.rows);
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
    fn partners(&self, start: i64, rights: std::ops::Range<usize>) -> std::ops::Range<usize> {
        if !self.has_several_starts {
            return rights;
        }
        let rows = &self.right.rows[rights.clone()];
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
                        right.push(self.right.rows[place].row);
                    }
                }
            }
        }
        (left, right)
    }

    /// Gives the rows back.
    pub(super) fn release(&mut self, chunks: &mut [Chunks; 2]) {
        for side in [Side::Left, Side::Right] {
            for (chunk, count) in std::mem::take(&mut self.holds[side as usize]) {
                chunks[side as usize].release(chunk, count as usize);
            }
        }
    }

    pub(super) fn bytes(&self) -> usize {
        let rows = self.left.rows.capacity() + self.right.rows.capacity();
        let keys = self.left.offsets.capacity() + self.right.offsets.capacity();
        let holds: usize = self.holds.iter().map(Vec::capacity).sum();
        rows * size_of::<Kept>()
            + (keys + self.order.capacity()) * 4
            + self.joins.capacity()
            + self.matched.capacity()
            + holds * 8
    }
}

impl Found {
    /// Adds a row of the left side with its partners.
    fn add(&mut self, row: RowRef, partners: std::ops::Range<usize>, rights: &[Kept]) {
        let from = self.left.len();
        let first_partner = partners.start;
        self.left.extend(std::iter::repeat_n(row, partners.len()));
        self.right.extend(rights[partners].iter().map(|kept| kept.row));
        self.tokens.push(Token::Left { row, pairs: from..self.left.len(), first_partner });
    }

    fn is_enough(&self) -> bool {
        self.left.len() >= PAIRS_MAX || self.tokens.len() >= PAIRS_MAX
    }
}
