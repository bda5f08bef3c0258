//! What leaves when a row comes or goes where rows that sort alike share a rank: RANK and
//! DENSE_RANK. The list is always the one after the change.
//!
//! ```text
//! sort key   10   20   20   30
//! RANK        1    2    2    4     one more than the number of rows before
//! DENSE_RANK  1    2    2    3     one more than the number of sort keys before
//! ```
//!
//! Unlike a row number, a rank may belong to many rows, so more than `to` rows may be kept.

use std::cmp::Ordering;

use thalweg_core::RowKind;

use super::changes::TopNChanges;
use super::compare::Compare;
use super::ordered::{Ordered, RankedRow};
use crate::rows::arena::ArenaPlace;

/// Ranks of the rows of one key, from 1.
#[derive(Clone, Copy)]
pub(super) struct Ranks<'a> {
    pub is_dense: bool,
    pub ordered: &'a Ordered,
    pub compare: Compare<'a>,
}

impl Ranks<'_> {
    /// Where the first row behind those that sort like this one stands.
    fn behind(&self, like: &RankedRow) -> usize {
        let compare = |entry: &RankedRow| self.compare.entries(entry, like) != Ordering::Greater;
        self.ordered.position(self.ordered.find(compare), usize::MAX)
    }

    /// The rank of rows that would stand here and sort like none before; a number above `most` if
    /// it is above that.
    pub fn at(&self, position: usize, most: usize) -> usize {
        if !self.is_dense {
            return position + 1;
        }
        let (mut rank, mut at) = (1, 0);
        while let Some(entry) = self.ordered.get(at).filter(|_| at < position && rank <= most) {
            at = self.behind(&entry);
            rank += 1;
        }
        rank
    }

    /// The rank of the last row, or one above `most`; 0 of none.
    pub fn of_last(&self, most: usize) -> usize {
        let Some(last) = self.ordered.last() else { return 0 };
        let before = |entry: &RankedRow| self.compare.entries(entry, &last) == Ordering::Less;
        self.at(self.ordered.position(self.ordered.find(before), usize::MAX), most)
    }

    /// Calls with each row from a position on and its rank, given that of the first, until it says
    /// that it has seen enough.
    pub fn each(&self, from: usize, rank: usize, mut take: impl FnMut(&RankedRow, usize) -> bool) {
        let mut rank = rank;
        let mut last: Option<RankedRow> = None;
        for (position, entry) in (from..).zip(self.ordered.iter_from(from)) {
            let is_new = |last: &RankedRow| self.compare.entries(last, &entry) != Ordering::Equal;
            if last.as_ref().is_some_and(is_new) {
                rank = if self.is_dense { rank + 1 } else { position + 1 };
            }
            if !take(&entry, rank) {
                return;
            }
            last = Some(entry);
        }
    }
}

/// A change of the rows of one key, and where it is written down.
pub(super) struct RankChange<'a> {
    /// The ranks that leave, both included.
    pub from: usize,
    pub to: usize,
    pub has_ranks: bool,
    pub ranks: Ranks<'a>,
    pub changes: &'a mut TopNChanges,
    pub cause: u32,
}

impl RankChange<'_> {
    fn is_seen(&self, rank: usize) -> bool {
        (self.from..=self.to).contains(&rank)
    }

    fn moved(&mut self, row: ArenaPlace, old: usize, new: usize) {
        let (was_seen, is_seen) = (self.is_seen(old), self.is_seen(new));
        let mut push = |kind, rank| self.changes.push(kind, row, rank, self.cause);
        match (was_seen, is_seen) {
            (true, true) if self.has_ranks => {
                push(RowKind::UpdateBefore, old);
                push(RowKind::UpdateAfter, new);
            }
            (true, false) => push(RowKind::Delete, old),
            (false, true) => push(RowKind::Insert, new),
            _ => {}
        }
    }

    /// A row has come to a position; `first` is that of the first row that sorts alike.
    pub fn inserted(&mut self, first: usize, at: usize, row: ArenaPlace) {
        let ranks = self.ranks;
        let rank = ranks.at(first, self.to);
        if rank > self.to {
            return;
        }
        if !ranks.is_dense || first == at {
            let next = if ranks.is_dense { rank + 1 } else { at + 2 };
            self.later(at + 1, next, |rank| (rank - 1, rank));
        }
        if self.is_seen(rank) {
            self.changes.push(RowKind::Insert, row, rank, self.cause);
        }
    }

    /// A row has gone; `first` is the position of the first row that sorts alike, and `behind` of
    /// the first that sorts behind.
    pub fn removed(&mut self, first: usize, behind: usize, row: ArenaPlace) {
        let ranks = self.ranks;
        let rank = ranks.at(first, self.to);
        if rank > self.to {
            return;
        }
        if self.is_seen(rank) {
            self.changes.push(RowKind::Delete, row, rank, self.cause);
        }
        if !ranks.is_dense || first == behind {
            let next = if ranks.is_dense { rank } else { behind + 1 };
            self.later(behind, next, |rank| (rank + 1, rank));
        }
    }

    /// The rows from a position on, the first of which has this rank, have moved.
    fn later(&mut self, from: usize, rank: usize, old_and_new: impl Fn(usize) -> (usize, usize)) {
        let ranks = self.ranks;
        ranks.each(from, rank, |entry, rank| {
            let (old, new) = old_and_new(rank);
            if old.min(new) > self.to {
                return false;
            }
            self.moved(ranks.compare.store.place(entry.row), old, new);
            true
        });
    }
}
