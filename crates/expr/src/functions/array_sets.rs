//! Arrays as sets: what is in one, in both, in either. Elements keep the order in which they stand
//! first; NULL is an element like any other.

use arrow_array::ArrayRef;
use hashbrown::HashSet;
use thalweg_core::{ColumnType, Result};

use super::array_elements::{Picks, encoded};
use super::arrays::Lists;
use super::definition::{Call, Definition, custom};
use crate::build::{common_type, implicit_cast_in};
use crate::expr::Expr;
use crate::function::Arguments;

pub(super) const DEFINITIONS: &[Definition] = &[
    custom("ARRAY_DISTINCT", "array", distinct),
    custom("ARRAY_UNION", "array array", |call| of_two(call, union)),
    custom("ARRAY_INTERSECT", "array array", |call| of_two(call, |a| chosen(a, true))),
    custom("ARRAY_EXCEPT", "array array", |call| of_two(call, |a| chosen(a, false))),
];

fn distinct(call: Call<'_>) -> Result<Expr> {
    let column_type = call.args[0].column_type.clone();
    Ok(call.with_kernel(column_type, |a| {
        let lists = Lists::new(a, 0);
        let [elements] = encoded([&lists.values])?;
        let mut picks = Picks::default();
        let mut seen: HashSet<&[u8]> = HashSet::new();
        for row in 0..a.rows {
            seen.clear();
            let kept = lists.range(row).map(|range| {
                let new = range.filter(|&at| seen.insert(elements.row(at).data()));
                picks.places.extend(new.map(|at| (0, at)));
            });
            picks.end_row(kept);
        }
        picks.finish(&[&lists.values], a)
    }))
}

/// Casts both arrays to one type.
fn of_two(call: Call<'_>, kernel: fn(&Arguments<'_>) -> Result<ArrayRef>) -> Result<Expr> {
    let types: Vec<ColumnType> = call.args.iter().map(|arg| arg.column_type.clone()).collect();
    let common = common_type(&types).map_err(|error| call.error(error.message()))?;
    let Call { name, args, session } = call;
    let cast = |arg: Expr| implicit_cast_in(arg, &common.data_type, session);
    let args = args.into_iter().map(cast).collect();
    Ok(Call { name, args, session }.with_kernel(common, kernel))
}

fn union(a: &Arguments<'_>) -> Result<ArrayRef> {
    let (left, right) = (Lists::new(a, 0), Lists::new(a, 1));
    let [lefts, rights] = encoded([&left.values, &right.values])?;
    let mut picks = Picks::default();
    let mut seen: HashSet<&[u8]> = HashSet::new();
    for row in 0..a.rows {
        seen.clear();
        let kept = left.range(row).zip(right.range(row)).map(|(ours, theirs)| {
            let new = ours.filter(|&at| seen.insert(lefts.row(at).data()));
            picks.places.extend(new.map(|at| (0, at)));
            let new = theirs.filter(|&at| seen.insert(rights.row(at).data()));
            picks.places.extend(new.map(|at| (1, at)));
        });
        picks.end_row(kept);
    }
    picks.finish(&[&left.values, &right.values], a)
}

/// The elements of the first array that are in the second one, or are not, each once.
fn chosen(a: &Arguments<'_>, if_found: bool) -> Result<ArrayRef> {
    let (left, right) = (Lists::new(a, 0), Lists::new(a, 1));
    let [lefts, rights] = encoded([&left.values, &right.values])?;
    let mut picks = Picks::default();
    let (mut seen, mut others): (HashSet<&[u8]>, HashSet<&[u8]>) = Default::default();
    for row in 0..a.rows {
        seen.clear();
        others.clear();
        let kept = left.range(row).zip(right.range(row)).map(|(ours, theirs)| {
            others.extend(theirs.map(|at| rights.row(at).data()));
            let wanted = |at: &usize| others.contains(lefts.row(*at).data()) == if_found;
            let new = ours.filter(wanted).filter(|&at| seen.insert(lefts.row(at).data()));
            picks.places.extend(new.map(|at| (0, at)));
        });
        picks.end_row(kept);
    }
    picks.finish(&[&left.values], a)
}
