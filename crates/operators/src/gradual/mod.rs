//! State that grows for as long as a job runs, without ever stopping to move: columns by number
//! ([`Pages`]) and hash tables ([`GradualTable`]).
//!
//! A vector that is full takes twice its memory and copies what it has, and so does a hash table,
//! which looks for a new place for each element besides. With some million elements that is 20 to
//! 100 milliseconds in which nothing else is done, and cells that fill alike stop at the same
//! moment. Here no step moves more than some ten thousand elements, which is less than a
//! millisecond, and steps are as far apart as elements are added.
//!
//! Small state costs what it cost: up to one page, and one part, these are a vector and a table.

mod pages;
mod table;

pub(crate) use pages::Pages;
pub(crate) use table::{Entry, GradualTable};

/// Gives each group up to this number a place in a vector, where groups are small or few.
pub(crate) fn grow<T: Default>(all: &mut Vec<T>, groups: usize) {
    if all.len() < groups {
        all.resize_with(groups, T::default);
    }
}
