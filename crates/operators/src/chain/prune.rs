//! Drops columns that nobody reads any more right behind the filter that read them last, so that
//! compacting does not copy them.
//!
//! UNNEST repeats the columns of a row for each element, so it is given the columns that are read
//! behind it.
//!
//! Works backwards over the steps to find what is read later, then forwards to renumber. How wide
//! the input is stays unknown, so nothing is dropped unless a projection further down says which
//! columns matter.
//!
//! `SELECT a FROM t WHERE b > 0` over columns `a, b, c`: `c` is dropped before the filter's rows
//! are compacted, and so is `b`, which the filter has read already.

use std::collections::BTreeSet;

use super::unnest::Unnest;
use super::{NotNull, Step};
use thalweg_expr::Expr;

pub(super) enum Pruned {
    Step(Step),
    Unnest(Unnest),
    /// Continues with these columns only.
    Keep(Vec<usize>),
}

/// The columns read from some point on; `None` means all.
pub(super) type Live = Option<BTreeSet<usize>>;

pub(super) fn prune(steps: Vec<Step>) -> Vec<Pruned> {
    let live_after = live_after_each(&steps);
    let mut pruned = Vec::with_capacity(steps.len());
    // Where the columns of the original numbering stand now; `None` means unchanged.
    let mut places: Option<Vec<usize>> = None;
    for (step, live) in steps.into_iter().zip(live_after) {
        let is_filter = matches!(step, Step::Filter(_));
        let ends_numbering = matches!(step, Step::Project(_));
        if let Step::Unnest { array, columns, outer, ordinality } = step {
            // Columns have their first numbers: nothing is dropped in front of it.
            pruned.push(Pruned::Unnest(Unnest { array, columns, outer, ordinality, read: live }));
            continue;
        }
        pruned.push(Pruned::Step(match &places {
            Some(places) => renumber(step, places),
            None => step,
        }));
        if ends_numbering {
            places = None;
        }
        if let (true, Some(live)) = (is_filter, live) {
            let kept: Vec<usize> = live.into_iter().collect();
            let unchanged = places.as_ref().is_some_and(|places| *places == kept);
            if !unchanged {
                pruned.push(Pruned::Keep(match &places {
                    Some(places) => kept.iter().map(|&column| place_of(column, places)).collect(),
                    None => kept.clone(),
                }));
                places = Some(kept);
            }
        }
    }
    pruned
}

fn live_after_each(steps: &[Step]) -> Vec<Live> {
    let mut live: Live = None;
    let mut result: Vec<Live> = Vec::with_capacity(steps.len());
    for step in steps.iter().rev() {
        result.push(live.clone());
        live = live_before(step, live);
    }
    result.reverse();
    result
}

fn live_before(step: &Step, after: Live) -> Live {
    match step {
        Step::Project(columns) => {
            Some(columns.iter().flat_map(|(_, expr)| expr.columns()).collect())
        }
        Step::Filter(predicate) => after.map(|mut live| {
            live.extend(predicate.columns());
            live
        }),
        Step::CheckNotNull { columns, .. } => after.map(|mut live| {
            live.extend(columns.iter().map(|checked| checked.column));
            live
        }),
        Step::TakeKinds(column) => after.map(|mut live| {
            live.insert(*column);
            live
        }),
        Step::Unnest { .. }
        | Step::WindowRows { .. }
        | Step::Select { .. }
        | Step::Custom { .. }
        | Step::FlatMap { .. }
        | Step::Probe { .. } => None,
    }
}

fn renumber(step: Step, places: &[usize]) -> Step {
    let renumber_expr = |expr: &Expr| expr.remap(&|column| place_of(column, places));
    match step {
        Step::Filter(predicate) => Step::Filter(renumber_expr(&predicate)),
        Step::Project(columns) => Step::Project(
            columns.into_iter().map(|(column, expr)| (column, renumber_expr(&expr))).collect(),
        ),
        Step::CheckNotNull { columns, sink } => Step::CheckNotNull {
            columns: columns
                .into_iter()
                .map(|checked| NotNull { column: place_of(checked.column, places), ..checked })
                .collect(),
            sink,
        },
        Step::TakeKinds(column) => Step::TakeKinds(place_of(column, places)),
        // Nothing is dropped in front of these: they read all columns.
        other => other,
    }
}

fn place_of(column: usize, places: &[usize]) -> usize {
    places.iter().position(|&kept| kept == column).expect("a column that is read later was kept")
}
