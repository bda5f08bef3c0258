//! What leaves when a row comes, goes, or takes another's place, where each row has a number of its
//! own. Positions count from 0, numbers from 1; the list is always the one after the change.
//!
//! ```text
//! inserted at 1, positions 0..3 leave     before  a c d e
//!                                         after   a b c d e
//!                                         changes     ^ ^    1: c -> b, 2: d -> c, d falls out
//! ```
//!
//! Each position is compared with what stood there before, which is its neighbour in the new list.

use std::cmp::Ordering;

use thalweg_core::RowKind;

use super::changes::TopNChanges;
use super::ordered::Ordered;
use super::store::Store;
use crate::rows::arena::ArenaPlace;

/// A change of the rows of one key, and where it is written down.
pub(super) struct RowNumbers<'a> {
    /// The positions that leave: from the first to before the end.
    pub first: usize,
    pub end: usize,
    pub has_numbers: bool,
    pub ordered: &'a Ordered,
    pub store: &'a Store,
    pub changes: &'a mut TopNChanges,
    pub cause: u32,
}

impl RowNumbers<'_> {
    fn place_at(&self, position: usize) -> Option<ArenaPlace> {
        self.ordered.get(position).map(|entry| self.store.place(entry.row))
    }

    fn push(&mut self, kind: RowKind, place: ArenaPlace, position: usize) {
        self.changes.push(kind, place, position + 1, self.cause);
    }

    /// Another row has this position now.
    fn renumber(&mut self, position: usize, before: Option<ArenaPlace>, after: Option<ArenaPlace>) {
        match (before, after) {
            (Some(before), Some(after)) => {
                self.push(RowKind::UpdateBefore, before, position);
                self.push(RowKind::UpdateAfter, after, position);
            }
            (Some(before), None) => self.push(RowKind::Delete, before, position),
            (None, Some(after)) => self.push(RowKind::Insert, after, position),
            (None, None) => {}
        }
    }

    /// Without numbers only rows that come in or fall out are seen.
    fn exchange(&mut self, leaves: Option<ArenaPlace>, enters: Option<ArenaPlace>) {
        if let Some(leaves) = leaves {
            self.push(RowKind::Delete, leaves, 0);
        }
        if let Some(enters) = enters {
            self.push(RowKind::Insert, enters, 0);
        }
    }

    /// A row has come to this position.
    pub fn inserted(&mut self, at: usize) {
        let first = self.first.max(at);
        if first >= self.end {
            return;
        }
        if !self.has_numbers {
            let (leaves, enters) = (self.place_at(self.end), self.place_at(first));
            return self.exchange(leaves, enters);
        }
        let (ordered, store) = (self.ordered, self.store);
        let mut rows = ordered.iter_from(first).map(|entry| store.place(entry.row));
        let mut after = rows.next();
        for position in first..self.end {
            let before = rows.next();
            if after.is_none() {
                break;
            }
            self.renumber(position, before, after);
            after = before;
        }
    }

    /// This row has gone from this position.
    pub fn removed(&mut self, at: usize, row: ArenaPlace) {
        let first = self.first.max(at);
        if first >= self.end {
            return;
        }
        let moved_up = || self.place_at(first - 1);
        let mut before = if first == at { Some(row) } else { moved_up() };
        if !self.has_numbers {
            let enters = self.place_at(self.end - 1).filter(|_| before.is_some());
            return self.exchange(before, enters);
        }
        let (ordered, store) = (self.ordered, self.store);
        let mut rows = ordered.iter_from(first).map(|entry| store.place(entry.row));
        for position in first..self.end {
            if before.is_none() {
                break;
            }
            let after = rows.next();
            self.renumber(position, before, after);
            before = after;
        }
    }

    /// This row has gone from one position, and another has come to a position of the list that
    /// then was left.
    pub fn replaced(&mut self, from: usize, row: ArenaPlace, to: usize) {
        if !self.has_numbers {
            return self.replaced_unseen(from, row, to);
        }
        let (low, high) = (from.min(to).max(self.first), from.max(to));
        for position in low..self.end.min(high + 1) {
            let before = match from.cmp(&to) {
                _ if position == from => Some(row),
                Ordering::Less => self.place_at(position - 1),
                _ => self.place_at(position + 1),
            };
            self.renumber(position, before, self.place_at(position));
        }
    }

    fn replaced_unseen(&mut self, from: usize, row: ArenaPlace, to: usize) {
        let seen = self.first..self.end;
        if seen.contains(&from) && seen.contains(&to) {
            let after = self.place_at(to);
            return self.renumber(to, Some(row), after);
        }
        let is_before = |position: usize| position < self.first;
        let leaves = if seen.contains(&from) {
            Some(row)
        } else if is_before(from) && !is_before(to) {
            self.place_at(self.first - 1)
        } else if !is_before(from) && to < self.end {
            self.place_at(self.end)
        } else {
            return;
        };
        let enters = if seen.contains(&to) {
            to
        } else if is_before(to) {
            self.first
        } else {
            self.end - 1
        };
        let enters = self.place_at(enters);
        self.exchange(leaves, enters);
    }
}
