//! Top-N with plain lists: after each change the rows of the key are ranked again, and what was
//! seen before is compared with what is seen after.

use std::collections::BTreeMap;

use crate::top_n::RankFunction;

/// Key, what it is sorted by, upsert key, another value.
pub(super) type Row = (Option<i64>, Option<i64>, i64, i64);

pub(super) struct Reference {
    pub function: RankFunction,
    pub from: usize,
    pub to: usize,
    pub has_ranks: bool,
    pub is_upsert: bool,
    /// What rows are sorted by.
    pub order: fn(&Row) -> (i64, i64),
    pub text: fn(&Row) -> String,
    lists: BTreeMap<Option<i64>, Vec<(usize, Row)>>,
    count: usize,
    pub lines: Vec<String>,
}

/// A row as it is seen: its identity, its values, its rank.
type Seen = (usize, Row, usize);

impl Reference {
    pub fn new(
        function: RankFunction,
        (from, to): (usize, usize),
        has_ranks: bool,
        is_upsert: bool,
        order: fn(&Row) -> (i64, i64),
        text: fn(&Row) -> String,
    ) -> Self {
        let (lists, count, lines) = (BTreeMap::new(), 0, Vec::new());
        Reference { function, from, to, has_ranks, is_upsert, order, text, lists, count, lines }
    }

    fn ranked(&self, key: Option<i64>) -> Vec<Seen> {
        let mut ranked: Vec<Seen> = Vec::new();
        let mut dense = 0;
        let list = self.lists.get(&key).map_or(&[][..], |list| &list[..]);
        for (position, &(id, row)) in list.iter().enumerate() {
            let is_alike =
                position > 0 && (self.order)(&list[position - 1].1) == (self.order)(&row);
            dense += usize::from(!is_alike);
            let rank = match self.function {
                RankFunction::RowNumber => position + 1,
                RankFunction::Rank if is_alike => ranked[position - 1].2,
                RankFunction::Rank => position + 1,
                RankFunction::DenseRank => dense,
            };
            ranked.push((id, row, rank));
        }
        ranked
    }

    fn is_seen(&self, rank: usize) -> bool {
        (self.from..=self.to).contains(&rank)
    }

    fn write(&mut self, kind: &str, row: &Row, rank: usize) {
        let rank = if self.has_ranks { format!(",{rank}") } else { String::new() };
        self.lines.push(format!("{kind},{}{rank}", (self.text)(row)));
    }

    /// A row comes, or takes the place of the one with its upsert key.
    pub fn add(&mut self, row: Row) {
        let old = self.lists.get(&row.0).and_then(|list| list.iter().position(|r| r.1.2 == row.2));
        let old = old.filter(|_| self.is_upsert);
        if old.is_some() && self.function != RankFunction::RowNumber {
            self.retract(row);
            return self.add(row);
        }
        let before = self.ranked(row.0);
        self.count += 1;
        let new = (self.count, row);
        let order = self.order;
        let list = self.lists.entry(row.0).or_default();
        match old {
            Some(old) if order(&list[old].1) == order(&row) => list[old] = new,
            old => {
                old.map(|old| list.remove(old));
                let place = list.partition_point(|other| order(&other.1) <= order(&row));
                list.insert(place, new);
            }
        }
        let after = self.ranked(row.0);
        self.compare(&before, &after);
    }

    /// A row goes: the first that is the same, or the one with its upsert key.
    pub fn retract(&mut self, row: Row) {
        let before = self.ranked(row.0);
        let is_upsert = self.is_upsert;
        let Some(list) = self.lists.get_mut(&row.0) else { return };
        let is_it = |r: &(usize, Row)| if is_upsert { r.1.2 == row.2 } else { r.1 == row };
        let Some(place) = list.iter().position(is_it) else { return };
        list.remove(place);
        let after = self.ranked(row.0);
        self.compare(&before, &after);
    }

    fn compare(&mut self, before: &[Seen], after: &[Seen]) {
        match (self.function, self.has_ranks) {
            (RankFunction::RowNumber, true) => self.compare_numbers(before, after),
            (RankFunction::RowNumber, false) => self.compare_rows(before, after),
            _ => self.compare_ranks(before, after),
        }
    }

    fn compare_numbers(&mut self, before: &[Seen], after: &[Seen]) {
        for rank in self.from..=self.to.min(before.len().max(after.len())) {
            match (before.get(rank - 1), after.get(rank - 1)) {
                (Some(before), Some(after)) if before.0 == after.0 => {}
                (Some(before), Some(after)) => {
                    self.write("-U", &before.1, rank);
                    self.write("+U", &after.1, rank);
                }
                (Some(before), None) => self.write("-D", &before.1, rank),
                (None, Some(after)) => self.write("+I", &after.1, rank),
                (None, None) => {}
            }
        }
    }

    fn compare_rows(&mut self, before: &[Seen], after: &[Seen]) {
        let gone = |these: &[Seen], others: &[Seen]| -> Vec<Seen> {
            let has = |rows: &[Seen], id| rows.iter().any(|r| r.0 == id && self.is_seen(r.2));
            let seen = these.iter().filter(|r| self.is_seen(r.2));
            seen.filter(|r| !has(others, r.0)).copied().collect()
        };
        let (leave, enter) = (gone(before, after), gone(after, before));
        let exists = |rows: &[Seen], id| rows.iter().any(|r| r.0 == id);
        let is_update = |leave: &[Seen], enter: &[Seen]| {
            let left = leave.first().is_some_and(|row| !exists(after, row.0));
            left && enter.first().is_some_and(|row| !exists(before, row.0))
        };
        let kinds = if is_update(&leave, &enter) { ("-U", "+U") } else { ("-D", "+I") };
        leave.iter().for_each(|row| self.write(kinds.0, &row.1, 0));
        enter.iter().for_each(|row| self.write(kinds.1, &row.1, 0));
    }

    fn compare_ranks(&mut self, before: &[Seen], after: &[Seen]) {
        let by_id = |rows: &[Seen]| rows.iter().map(|r| (r.0, r.2)).collect::<BTreeMap<_, _>>();
        let (old, new) = (by_id(before), by_id(after));
        let (from, to) = (self.from, self.to);
        let is_seen = |rank: usize| (from..=to).contains(&rank);
        for gone in before.iter().filter(|r| !new.contains_key(&r.0) && is_seen(r.2)) {
            self.write("-D", &gone.1, gone.2);
        }
        for &(id, row, new) in after {
            let Some(&old) = old.get(&id) else { continue };
            match (self.is_seen(old), self.is_seen(new)) {
                (true, true) if self.has_ranks && old != new => {
                    self.write("-U", &row, old);
                    self.write("+U", &row, new);
                }
                (true, false) => self.write("-D", &row, old),
                (false, true) => self.write("+I", &row, new),
                _ => {}
            }
        }
        for come in after.iter().filter(|r| !old.contains_key(&r.0) && is_seen(r.2)) {
            self.write("+I", &come.1, come.2);
        }
    }
}
