//! The second pass: what rows and their partners become in the result.
//!
//! The kind of a pair:
//!
//! | the row that came | its own side is padded | the other side is padded | neither |
//! |---|---|---|---|
//! | `+I`, `+U` | `+I` | `+I` | its kind |
//! | `-D`, `-U` | `-D` | its kind | its kind |
//!
//! A padded row turns when its first partner comes or its last one goes: `-D` of the padded row
//! stands right before the first pair, `+I` right behind the last. A consumer that applies changes
//! one by one therefore never sees a row both padded and paired.

use std::ops::Range;

use thalweg_core::RowKind;

use super::changes::JoinChanges;
use super::incoming::adds;
use super::plan::RegularJoinPlan;
use super::state::SideState;
use crate::join::sides::Side;
use crate::rows::arena::{ArenaPlace, NIL};

/// What the first pass found out about a row.
#[derive(Clone, Copy)]
pub(super) struct JoinStep {
    /// Its row in the bundle.
    pub row: u32,
    pub side: Side,
    pub kind: RowKind,
    /// Its number, if it was added and is kept.
    pub own: u32,
    /// Where its candidates end in the list of all; they begin where those of the step before end.
    pub end: usize,
    /// Where partners are not counted one by one: for a row of the left side of a semi or an anti
    /// join that it has partners; else that its chain had no row before it, or has none after it.
    pub flag: bool,
}

/// Rows of the other side with the key of a row.
#[derive(Default)]
pub(super) struct Candidates {
    pub places: Vec<ArenaPlace>,
    /// Their numbers, where a row's number of partners is not the length of a chain.
    pub rows: Vec<u32>,
}

impl Candidates {
    /// Puts one in the place of another.
    pub fn copy(&mut self, from: usize, to: usize) {
        self.places[to] = self.places[from];
        if let Some(&row) = self.rows.get(from) {
            self.rows[to] = row;
        }
    }

    /// Drops all from here on.
    pub fn truncate(&mut self, length: usize) {
        self.places.truncate(length);
        self.rows.truncate(length);
    }
}

/// Makes changes of steps whose candidates are their partners.
pub(super) struct Settlement<'a> {
    pub plan: &'a RegularJoinPlan,
    pub sides: &'a mut [SideState; 2],
    pub candidates: &'a Candidates,
    pub changes: &'a mut JoinChanges,
}

impl Settlement<'_> {
    pub fn settle(&mut self, steps: &[JoinStep]) {
        let mut from = 0;
        for step in steps {
            let partners = from..step.end;
            from = step.end;
            self.count_own(step, partners.len());
            if !self.plan.spec.join.kind.has_right_columns() {
                self.existence(step, partners);
            } else if partners.is_empty() {
                self.lone(step);
            } else if self.plan.pads(step.side.other()) {
                self.pairs_of_padded(step, partners);
            } else {
                self.pairs(step, partners);
            }
        }
    }

    /// A row that was added knows how many partners it has.
    fn count_own(&mut self, step: &JoinStep, partners: usize) {
        if step.own != NIL
            && self.plan.counts(step.side)
            && let Some(count) = self.sides[step.side as usize].count_mut(step.own)
        {
            *count = partners as u32;
        }
    }

    /// A row without partners.
    fn lone(&mut self, step: &JoinStep) {
        if self.plan.pads(step.side) {
            let kind = if adds(step.kind) { RowKind::Insert } else { RowKind::Delete };
            let own = ArenaPlace::of_piece(step.row);
            self.changes.pair(step.side, own, ArenaPlace::NULLS, kind, step.row);
        }
    }

    /// Pairs with rows that do not leave without a partner.
    fn pairs(&mut self, step: &JoinStep, partners: Range<usize>) {
        let kind = self.kind_of_pairs(step);
        let own = ArenaPlace::of_piece(step.row);
        for &other in &self.candidates.places[partners] {
            self.changes.pair(step.side, own, other, kind, step.row);
        }
    }

    fn kind_of_pairs(&self, step: &JoinStep) -> RowKind {
        let padded = self.plan.pads(step.side);
        match adds(step.kind) {
            true if padded || self.plan.pads(step.side.other()) => RowKind::Insert,
            false if padded => RowKind::Delete,
            _ => step.kind,
        }
    }

    /// Pairs with rows that leave padded while they have no partner.
    fn pairs_of_padded(&mut self, step: &JoinStep, partners: Range<usize>) {
        let kind = self.kind_of_pairs(step);
        let own = ArenaPlace::of_piece(step.row);
        let is_added = adds(step.kind);
        for at in partners {
            let other = self.candidates.places[at];
            let turns = self.turns(step, at);
            if turns && is_added {
                let kind = RowKind::Delete;
                self.changes.pair(step.side, ArenaPlace::NULLS, other, kind, step.row);
            }
            self.changes.pair(step.side, own, other, kind, step.row);
            if turns && !is_added {
                let kind = RowKind::Insert;
                self.changes.pair(step.side, ArenaPlace::NULLS, other, kind, step.row);
            }
        }
    }

    /// Counts a partner of the row at this place in the list; true if it is its first, or was its
    /// last.
    fn turns(&mut self, step: &JoinStep, at: usize) -> bool {
        let Some(&other) = self.candidates.rows.get(at) else { return step.flag };
        let Some(count) = self.sides[step.side.other() as usize].count_mut(other) else {
            return step.flag;
        };
        if adds(step.kind) {
            *count += 1;
            *count == 1
        } else {
            *count = count.saturating_sub(1);
            *count == 0
        }
    }

    /// Semi and anti joins.
    fn existence(&mut self, step: &JoinStep, partners: Range<usize>) {
        let is_anti = self.plan.is_anti();
        if step.side == Side::Left {
            let is_counted = self.plan.is_counted();
            let has_partner = if is_counted { !partners.is_empty() } else { step.flag };
            if has_partner != is_anti {
                self.changes.left(ArenaPlace::of_piece(step.row), step.kind, step.row);
            }
            return;
        }
        let kind = match (is_anti, adds(step.kind)) {
            (false, _) => step.kind,
            (true, true) => RowKind::Delete,
            (true, false) => RowKind::Insert,
        };
        for at in partners {
            if self.turns(step, at) {
                self.changes.left(self.candidates.places[at], kind, step.row);
            }
        }
    }
}
