//! The oracle: for one key, start by start, every way to give rows to variables is tried.
//!
//! A way is a list: the variable of each row. Nothing is shared with the operator, which knows
//! counts only and takes all runs on together.

use super::fixture::{Case, Fits, Row};
use crate::pattern::Skip;

/// A match, and when it leaves.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) rows: Vec<Row>,
    pub(super) variables: Vec<usize>,
    pub(super) time: i64,
}

/// What becomes of the ways from one row on.
struct Ways<'a> {
    case: &'a Case,
    rows: &'a [Row],
    complete: Vec<Vec<usize>>,
    /// When the last way came to nothing; `None` if none was begun.
    ended: Option<i64>,
    is_open: bool,
}

/// The matches of a key, whose rows are in their order, as they leave.
pub(super) fn search(case: &Case, rows: &[Row], until: i64) -> Vec<Found> {
    let (mut found, mut from, mut clock) = (Vec::new(), 0, i64::MIN);
    for start in 0..rows.len() {
        if start < from {
            continue;
        }
        let (complete, ended, is_open) = ways(case, &rows[start..], until);
        let best = complete.into_iter().min_by(|a, b| better(case, a).cmp(&better(case, b)));
        let Some(variables) = best else {
            if is_open {
                break;
            }
            clock = clock.max(ended.unwrap_or(i64::MIN));
            continue;
        };
        let count = variables.len();
        clock = clock.max(rows[start + count - 1].time);
        from = start
            + match case.skip {
                Skip::PastLastRow => count,
                Skip::ToNextRow => 1,
                Skip::ToFirst(v) => variables.iter().position(|&other| other == v).unwrap(),
                Skip::ToLast(v) => variables.iter().rposition(|&other| other == v).unwrap(),
            };
        found.push(Found { rows: rows[start..start + count].to_vec(), variables, time: clock });
    }
    found
}

/// Fewer rows are better, then more rows of earlier variables.
fn better(case: &Case, variables: &[usize]) -> (usize, Vec<i64>) {
    let count = |v: usize| -(variables.iter().filter(|&&other| other == v).count() as i64);
    (variables.len(), (0..case.parts.len()).map(count).collect())
}

fn ways(case: &Case, rows: &[Row], until: i64) -> (Vec<Vec<usize>>, Option<i64>, bool) {
    let mut ways = Ways { case, rows, complete: Vec::new(), ended: None, is_open: false };
    ways.go(&mut Vec::new(), 0, until);
    (ways.complete, ways.ended, ways.is_open)
}

impl Ways<'_> {
    /// Continues behind these rows, with a current variable.
    fn go(&mut self, taken: &mut Vec<usize>, variable: usize, until: i64) {
        if self.complete.iter().any(|way| way.len() <= taken.len()) {
            return;
        }
        let ends = self.case.within_ms.map(|within_ms| self.rows[0].time + within_ms);
        let next = self.rows.get(taken.len());
        if !taken.is_empty() && ends.is_some_and(|ends| next.map_or(until, |row| row.time) >= ends)
        {
            self.ended = self.ended.max(ends);
            return;
        }
        let Some(next) = next else {
            self.is_open |= !taken.is_empty();
            return;
        };
        if !taken.is_empty() {
            self.ended = self.ended.max(Some(next.time));
        }
        for candidate in variable..self.case.parts.len() {
            let part = &self.case.parts[candidate];
            let count = taken.iter().filter(|&&other| other == candidate).count() as u32;
            let fits = self.fits(taken, candidate);
            if fits {
                let is_full = part.max == Some(count + 1);
                let can_end = is_full || (count + 1 >= part.min && !part.is_greedy);
                if can_end && self.rest_is_absent(taken, candidate + 1) {
                    let way = taken.iter().copied().chain([candidate]).collect();
                    self.complete.push(way);
                }
                let continues_with = candidate + usize::from(is_full);
                if continues_with < self.case.parts.len() {
                    taken.push(candidate);
                    self.go(taken, continues_with, until);
                    taken.pop();
                }
            }
            if count < part.min || (part.is_greedy && fits) {
                return;
            }
        }
    }

    /// True if the match may be complete with the next row although these variables have none. As
    /// in Flink, a greedy one is asked about that very row.
    fn rest_is_absent(&self, taken: &[usize], from: usize) -> bool {
        let is_absent = |v: usize| {
            let part = &self.case.parts[v];
            part.min == 0 && !(part.is_greedy && self.fits(taken, v))
        };
        (from..self.case.parts.len()).all(is_absent)
    }

    /// True if the next row fits a variable.
    fn fits(&self, taken: &[usize], variable: usize) -> bool {
        let labels: Vec<usize> = taken.iter().copied().chain([variable]).collect();
        let of = |wanted: Option<usize>| -> Vec<Option<i64>> {
            let with_rows = labels.iter().zip(self.rows);
            let wanted = with_rows.filter(|&(&label, _)| wanted.is_none_or(|v| v == label));
            wanted.map(|(_, row)| row.n).collect()
        };
        let last = |values: &[Option<i64>], back: usize| -> Option<i64> {
            values.len().checked_sub(1 + back).and_then(|place| values[place])
        };
        let own = self.rows[taken.len()].n;
        let both = |a: Option<i64>, b: Option<i64>, holds: fn(i64, i64) -> bool| {
            a.zip(b).is_some_and(|(a, b)| holds(a, b))
        };
        match self.case.parts[variable].fits {
            Fits::All => true,
            Fits::Is(n) => own == Some(n),
            Fits::AtLeast(n) => own.is_some_and(|own| own >= n),
            Fits::Rises => {
                let before = last(&of(Some(variable)), 1);
                before.is_none() || both(own, before, |a, b| a > b)
            }
            Fits::AboveLast(v) => both(own, last(&of(Some(v)), 0), |a, b| a > b),
            Fits::NotBelowFirst => both(own, self.rows[0].n, |a, b| a >= b),
            Fits::SumBelow(v, n) => {
                let values: Vec<i64> = of(v).into_iter().flatten().collect();
                !values.is_empty() && values.iter().sum::<i64>() < n
            }
        }
    }
}
