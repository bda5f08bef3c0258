//! Windows over a changelog: rows are added to their windows, and retracted from them.
//!
//! A retraction has the row time of the row that it retracts, so it reaches the same windows. A
//! window is emitted once, when it closes, with what is left; keys that all rows have left are not
//! emitted. A retraction that comes when its window is closed is late, as any row.
//!
//! | | append-only | over a changelog |
//! |---|---|---|
//! | windows that overlap | slices, put together at the end | a table for each window: a row is added to all that hold it |
//! | any partition takes any row | where aggregates are exact | no: rows go to the owner of their key |
//! | states | subtract, or are only added to | retract ([`Calls::of_changelog`]) |
//! | sessions | last row plus gap | the same: a session whose rows are retracted keeps its bounds |
//!
//! Why not slices: a row that is late for some of its windows stands in another slice than the row
//! it retracts, and a state would have to lose what it never had.
//!
//! **Invariant.** A retraction for a key that has no rows in the window is ignored. The changes of
//! a key come in order, so its row was late, which it can be if another split of the source, whose
//! watermark is further on, brought it.

use std::collections::BTreeMap;

use thalweg_core::{Bundle, Result, RowKind};

use super::calls::Calls;
use super::judge::Judged;
use super::slices::{RowsOf, pass_rows, update_accumulators};
use crate::aggregate::Accumulator;

/// The kinds of a bundle's rows, where any row of it may retract another.
pub(super) fn kinds_of<'a>(calls: &Calls, bundle: &'a Bundle) -> Option<&'a [RowKind]> {
    bundle.kinds.as_deref().filter(|_| calls.retracts())
}

/// Rows of groups, with the group of each.
#[derive(Default)]
struct GroupRows {
    ids: Vec<u32>,
    rows: Vec<u32>,
}

impl GroupRows {
    fn push(&mut self, id: u32, row: u32) {
        self.ids.push(id);
        self.rows.push(row);
    }
}

/// Counts rows of a changelog, adds them to their groups and retracts them.
///
/// Rows are added first, which gives the same states as one by one: what is retracted is the oldest
/// of equal values.
pub(super) fn apply_changes(
    calls: &Calls,
    of: RowsOf<'_>,
    kinds: &[RowKind],
    (ids, rows): (&[u32], Option<&[u32]>),
    (counts, accumulators): (&mut [i64], &mut [Box<dyn Accumulator>]),
) -> Result<()> {
    let (mut added, mut retracted) = (GroupRows::default(), GroupRows::default());
    for (place, &id) in ids.iter().enumerate() {
        let row = rows.map_or(place as u32, |rows| rows[place]);
        let count = &mut counts[id as usize];
        match kinds[row as usize] {
            RowKind::Insert | RowKind::UpdateAfter => {
                *count += 1;
                added.push(id, row);
            }
            RowKind::UpdateBefore | RowKind::Delete if *count > 0 => {
                *count -= 1;
                retracted.push(id, row);
            }
            RowKind::UpdateBefore | RowKind::Delete => {}
        }
    }
    let GroupRows { ids, rows } = added;
    update_accumulators(accumulators, calls, of, &ids, Some(&rows))?;
    let GroupRows { ids, rows } = retracted;
    pass_rows(accumulators, calls, of, (&ids, Some(&rows)), |states, input| states.retract(input))
}

/// The rows of each window, by its end: those of all slices that it holds, in the order of the
/// bundle.
pub(super) fn rows_by_window(
    judged: &Judged,
    given: Option<&[u32]>,
    step_ms: i64,
) -> BTreeMap<i64, Vec<u32>> {
    let mut windows: BTreeMap<i64, Vec<u32>> = BTreeMap::new();
    for run in &judged.runs {
        let mut end = run.key.enter;
        while end <= run.key.leave {
            let rows = windows.entry(end).or_default();
            match judged.rows_of(run, given) {
                Some(of_run) => rows.extend_from_slice(of_run),
                None => rows.extend(run.from as u32..run.to as u32),
            }
            end += step_ms;
        }
    }
    // A window that holds several slices has their rows one slice after the other.
    windows.values_mut().for_each(|rows| rows.sort_unstable());
    windows
}
