//! Arrays as sets: what is in one, in both, in either. Elements keep the order in which they stand
//! first; NULL is an element like any other.

use arrow_array::ArrayRef;
use hashbrown::HashSet;
use thalweg_core::Result;

use super::array_elements::{Picks, encoded};
use super::arrays::Lists;
use super::definition::{Call, Definition, custom};
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
        let mut seen: HashSet<&[u8]> = HashSet::new();
        Picks::arrays(a, &[&lists.values], |picks, row| {
            seen.clear();
            picks.extend(0, lists.range(row)?.filter(|&at| seen.insert(elements.row(at).data())));
            Some(())
        })
    }))
}

/// Casts both arrays to one type.
fn of_two(call: Call<'_>, kernel: fn(&Arguments<'_>) -> Result<ArrayRef>) -> Result<Expr> {
    let (call, common) = call.unified()?;
    Ok(call.with_kernel(common, kernel))
}

fn union(a: &Arguments<'_>) -> Result<ArrayRef> {
    let (left, right) = (Lists::new(a, 0), Lists::new(a, 1));
    let [lefts, rights] = encoded([&left.values, &right.values])?;
    let mut seen: HashSet<&[u8]> = HashSet::new();
    Picks::arrays(a, &[&left.values, &right.values], |picks, row| {
        let (ours, theirs) = (left.range(row)?, right.range(row)?);
        seen.clear();
        picks.extend(0, ours.filter(|&at| seen.insert(lefts.row(at).data())));
        picks.extend(1, theirs.filter(|&at| seen.insert(rights.row(at).data())));
        Some(())
    })
}

/// The elements of the first array that are in the second one, or are not, each once.
fn chosen(a: &Arguments<'_>, if_found: bool) -> Result<ArrayRef> {
    let (left, right) = (Lists::new(a, 0), Lists::new(a, 1));
    let [lefts, rights] = encoded([&left.values, &right.values])?;
    let (mut seen, mut others): (HashSet<&[u8]>, HashSet<&[u8]>) = Default::default();
    Picks::arrays(a, &[&left.values], |picks, row| {
        let (ours, theirs) = (left.range(row)?, right.range(row)?);
        seen.clear();
        others.clear();
        others.extend(theirs.map(|at| rights.row(at).data()));
        let wanted = |at: &usize| others.contains(lefts.row(*at).data()) == if_found;
        picks.extend(0, ours.filter(wanted).filter(|&at| seen.insert(lefts.row(at).data())));
        Some(())
    })
}
