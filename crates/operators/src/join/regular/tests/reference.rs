//! A join by plain loops, one row at a time: each side is a list of rows with their numbers of
//! partners.

use thalweg_core::RowKind;

use super::{Change, JoinKind, Row};
use crate::join::sides::Side;
use crate::reference::Value;
use crate::test_kit::sorted;

pub(super) struct Naive {
    pub kind: JoinKind,
    pub keys: Vec<usize>,
    pub null_equals_null: bool,
    /// `a < b`
    pub residual: bool,
    sides: [Vec<(Row, usize)>; 2],
    out: Vec<Row>,
}

impl Naive {
    pub fn new(kind: JoinKind, keys: &[usize], null_equals_null: bool, residual: bool) -> Self {
        let sides = [Vec::new(), Vec::new()];
        Naive { kind, keys: keys.to_vec(), null_equals_null, residual, sides, out: Vec::new() }
    }

    /// The changes that the result has, each with its kind in front.
    pub fn run(mut self, changes: &[Change]) -> Vec<Row> {
        for (side, kind, row) in changes {
            self.apply(*side, *kind, row);
        }
        self.out
    }

    /// The join of what is left of both sides, sorted.
    pub fn final_rows(mut self, changes: &[Change]) -> Vec<Row> {
        for (side, kind, row) in changes {
            self.update(*side, *kind, row, 0);
        }
        let mut rows = Vec::new();
        let [left, right] = &self.sides;
        for (l, _) in left {
            let partners = right.iter().filter(|(r, _)| self.matches(l, r));
            let pairs: Vec<Row> = partners.map(|(r, _)| [&l[..], &r[..]].concat()).collect();
            match self.kind {
                JoinKind::Semi if !pairs.is_empty() => rows.push(l.clone()),
                JoinKind::Anti if pairs.is_empty() => rows.push(l.clone()),
                JoinKind::Semi | JoinKind::Anti => {}
                kind if kind.pads_left_rows() && pairs.is_empty() => {
                    rows.push([&l[..], &nulls()].concat());
                }
                _ => rows.extend(pairs),
            }
        }
        if self.kind.pads_right_rows() {
            let lone = right.iter().filter(|(r, _)| !left.iter().any(|(l, _)| self.matches(l, r)));
            rows.extend(lone.map(|(r, _)| [&nulls()[..], &r[..]].concat()));
        }
        sorted(rows)
    }

    fn matches(&self, left: &Row, right: &Row) -> bool {
        let equal = |&key: &usize| {
            left[key] == right[key] && (self.null_equals_null || !left[key].is_null())
        };
        self.keys.iter().all(equal) && (!self.residual || left[1] < right[1])
    }

    fn pads(&self, side: Side) -> bool {
        match side {
            Side::Left => self.kind.pads_left_rows(),
            Side::Right => self.kind.pads_right_rows(),
        }
    }

    fn update(&mut self, side: Side, kind: RowKind, row: &Row, partners: usize) {
        let rows = &mut self.sides[side as usize];
        if adds(kind) {
            rows.push((row.clone(), partners));
        } else {
            let newest = rows.iter().rposition(|(other, _)| other == row);
            rows.remove(newest.expect("a retraction names a row that is there"));
        }
    }

    fn apply(&mut self, side: Side, kind: RowKind, row: &Row) {
        let others = &self.sides[side.other() as usize];
        let is_partner = |other: &Row| match side {
            Side::Left => self.matches(row, other),
            Side::Right => self.matches(other, row),
        };
        let partners: Vec<usize> =
            (0..others.len()).filter(|&at| is_partner(&others[at].0)).collect();
        self.update(side, kind, row, partners.len());
        if !self.kind.has_right_columns() {
            return self.existence(side, kind, row, &partners);
        }
        if partners.is_empty() && self.pads(side) {
            let kind = if adds(kind) { RowKind::Insert } else { RowKind::Delete };
            self.emit(side, kind, row, &nulls());
        }
        let either = self.pads(side) || self.pads(side.other());
        let of_pair = match adds(kind) {
            true if either => RowKind::Insert,
            false if self.pads(side) => RowKind::Delete,
            _ => kind,
        };
        for at in partners {
            let (other, count) = self.sides[side.other() as usize][at].clone();
            let turns = self.pads(side.other()) && count == usize::from(!adds(kind));
            if adds(kind) && turns {
                self.emit(side.other(), RowKind::Delete, &other, &nulls());
            }
            self.emit(side, of_pair, row, &other);
            if !adds(kind) && turns {
                self.emit(side.other(), RowKind::Insert, &other, &nulls());
            }
            self.count(side.other(), at, kind);
        }
    }

    fn count(&mut self, side: Side, at: usize, kind: RowKind) {
        let count = &mut self.sides[side as usize][at].1;
        *count = if adds(kind) { *count + 1 } else { *count - 1 };
    }

    fn existence(&mut self, side: Side, kind: RowKind, row: &Row, partners: &[usize]) {
        let is_anti = self.kind == JoinKind::Anti;
        if side == Side::Left {
            if partners.is_empty() == is_anti {
                self.emit_left(kind, row);
            }
            return;
        }
        for &at in partners {
            let (other, count) = self.sides[Side::Left as usize][at].clone();
            if count == usize::from(!adds(kind)) {
                let of_row = match (is_anti, adds(kind)) {
                    (false, _) => kind,
                    (true, true) => RowKind::Delete,
                    (true, false) => RowKind::Insert,
                };
                self.emit_left(of_row, &other);
            }
            self.count(Side::Left, at, kind);
        }
    }

    fn emit(&mut self, side: Side, kind: RowKind, own: &Row, other: &Row) {
        let (left, right) = if side == Side::Left { (own, other) } else { (other, own) };
        let kind = [Value::text(kind.short())];
        self.out.push([&kind[..], &left[..], &right[..]].concat());
    }

    fn emit_left(&mut self, kind: RowKind, row: &Row) {
        self.out.push([&[Value::text(kind.short())][..], &row[..]].concat());
    }
}

fn nulls() -> Row {
    vec![Value::Null; 3]
}

fn adds(kind: RowKind) -> bool {
    matches!(kind, RowKind::Insert | RowKind::UpdateAfter)
}
