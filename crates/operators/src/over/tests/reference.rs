//! OVER windows in plain loops, one row at a time.

use std::collections::BTreeMap;

use super::fixture::Row;
use crate::over::Frame;

#[derive(Clone)]
struct Taken {
    row: Row,
    before: i64,
}

/// The rows of a key in the order in which they are fired; a new part begins where what was before
/// is forgotten.
#[derive(Default)]
struct Key {
    waiting: Vec<Taken>,
    fired: Vec<Vec<Taken>>,
}

impl Key {
    fn fire(&mut self, watermark: i64) {
        let is_due = |taken: &Taken| taken.row.time <= watermark && taken.before < watermark;
        let (mut due, rest): (Vec<Taken>, Vec<Taken>) =
            std::mem::take(&mut self.waiting).into_iter().partition(is_due);
        self.waiting = rest;
        due.sort_by_key(|taken| taken.row.time);
        self.fired.last_mut().unwrap().extend(due);
    }
}

/// What a plain OVER window gives: for each key its parts, in order; and how many rows were late.
pub(super) fn fired(
    rows: &[Row],
    befores: &[i64],
    late_by_key: bool,
    reach_ms: Option<i64>,
) -> (BTreeMap<Option<String>, Vec<Vec<Row>>>, u64) {
    let mut keys: BTreeMap<Option<String>, Key> = BTreeMap::new();
    let mut late = 0;
    for (row, &before) in rows.iter().zip(befores) {
        let key = keys.entry(row.key.clone()).or_default();
        if key.fired.is_empty() {
            key.fired.push(Vec::new());
        }
        key.fire(before);
        let newest = |key: &Key| key.fired.last().unwrap().last().map(|taken| taken.row.time);
        let is_forgotten =
            reach_ms.is_some_and(|reach| newest(key).is_some_and(|newest| newest + reach < before));
        if is_forgotten && row.time <= before {
            key.fired.push(Vec::new());
        }
        let is_late = match late_by_key {
            true => newest(key).is_some_and(|newest| row.time <= newest),
            false => row.time <= before,
        };
        match is_late {
            true => late += 1,
            false => key.waiting.push(Taken { row: row.clone(), before }),
        }
    }
    let parts = |mut key: Key| {
        key.fire(i64::MAX);
        let rows = |part: Vec<Taken>| part.into_iter().map(|taken| taken.row).collect();
        key.fired.into_iter().map(rows).collect()
    };
    (keys.into_iter().map(|(name, key)| (name, parts(key))).collect(), late)
}

/// The numbers in the frame of a row.
pub(super) fn frame(part: &[Row], at: usize, frame: Frame) -> Vec<Option<i64>> {
    let holds = |place: usize| match frame {
        Frame::Rows { preceding } => {
            place <= at && preceding.is_none_or(|preceding| place as u64 + preceding >= at as u64)
        }
        Frame::Range { preceding_ms } => {
            let (time, own) = (part[place].time, part[at].time);
            time <= own && preceding_ms.is_none_or(|reach| time >= own - reach)
        }
    };
    (0..part.len()).filter(|&place| holds(place)).map(|place| part[place].n).collect()
}
