//! `IN` over many literals: one look-up in a hash set, or one comparison where texts are short and
//! few.

use std::sync::Arc;

use arrow_array::builder::make_view;
use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, Int8Type, Int16Type, Int32Type, Int64Type};
use arrow_array::{Array, ArrayRef, BooleanArray, StringViewArray};
use arrow_buffer::{BooleanBuffer, NullBuffer};
use arrow_schema::DataType as Arrow;
use hashbrown::HashSet;
use thalweg_core::shim::mix64;
use thalweg_core::{ColumnType, DataType, Result};

use super::definition::Call;
use crate::build::{common_type, implicit_cast_in};
use crate::expr::{Expr, Scalar, Session};
use crate::function::Arguments;

/// Fewer values are compared one by one.
const SMALLEST_SET: usize = 4;

/// The values of a set.
enum Members {
    Integers(HashSet<i64>),
    Texts(Texts),
}

/// Texts. A view holds a short one as a whole (and zeros behind it), so views are compared in their
/// place.
struct Texts {
    short: Short,
    long: HashSet<Arc<str>>,
}

/// The views of short texts.
enum Short {
    Few(Places),
    Many(HashSet<u128>),
}

impl Texts {
    /// The longest text that lies in its view, in bytes.
    const SHORT_BYTES_MAX: u32 = 12;

    fn new(texts: &[Arc<str>]) -> Self {
        let is_short = |text: &&Arc<str>| text.len() <= Self::SHORT_BYTES_MAX as usize;
        let (short, long): (Vec<_>, Vec<_>) = texts.iter().partition(is_short);
        let views = short.into_iter().map(|text| make_view(text.as_bytes(), 0, 0));
        let views: HashSet<u128> = views.collect();
        let short = Places::new(&views).map_or_else(|| Short::Many(views), Short::Few);
        Texts { short, long: long.into_iter().cloned().collect() }
    }

    #[inline]
    fn contains(&self, array: &StringViewArray, row: usize) -> bool {
        let view = array.views()[row];
        // The lowest bits are the length.
        if view as u32 > Self::SHORT_BYTES_MAX {
            return !self.long.is_empty() && self.long.contains(array.value(row));
        }
        match &self.short {
            Short::Few(places) => places.contains(view),
            Short::Many(views) => views.contains(&view),
        }
    }
}

/// A table of few views in which each has a place that no other has: one comparison decides whether
/// a view is among them, and no branch depends on it.
struct Places {
    factor: u64,
    /// The highest bits of a product are the place.
    shift: u32,
    table: Vec<u128>,
}

impl Places {
    const VIEWS_MAX: usize = 32;
    /// The most table slots for each view.
    const PLACES_OF_VIEW: usize = 16;
    /// How many factors are tried with a table before it grows.
    const FACTORS: u64 = 64;
    /// What is at other places: a view of a text that is not short.
    const NONE: u128 = u128::MAX;

    /// `None` if there are too many, or no table is found.
    fn new(views: &HashSet<u128>) -> Option<Self> {
        if views.len() > Self::VIEWS_MAX {
            return None;
        }
        let least = (2 * views.len()).max(2).next_power_of_two();
        let sizes = (0..).map(|doubled| least << doubled);
        sizes
            .take_while(|size| *size <= least.max(Self::PLACES_OF_VIEW * views.len()))
            .find_map(|size| (0..Self::FACTORS).find_map(|n| Self::with(views, size, mix64(n) | 1)))
    }

    fn with(views: &HashSet<u128>, size: usize, factor: u64) -> Option<Self> {
        let shift = u64::BITS - size.ilog2();
        let mut places = Places { factor, shift, table: vec![Self::NONE; size] };
        for &view in views {
            let place = places.place_of(view);
            if places.table[place] != Self::NONE {
                return None;
            }
            places.table[place] = view;
        }
        Some(places)
    }

    #[inline]
    fn place_of(&self, view: u128) -> usize {
        let folded = view as u64 ^ ((view >> 64) as u64).rotate_left(29);
        (folded.wrapping_mul(self.factor) >> self.shift) as usize
    }

    #[inline]
    fn contains(&self, view: u128) -> bool {
        self.table[self.place_of(view)] == view
    }
}

/// `expr IN (list)` by a set, where the list is of literals of one kind; else `None`.
pub(crate) fn in_set(expr: &Expr, list: &[Expr], session: &Session) -> Result<Option<Expr>> {
    if list.len() < SMALLEST_SET {
        return Ok(None);
    }
    let types: Vec<ColumnType> =
        [expr].into_iter().chain(list).map(|item| item.column_type.clone()).collect();
    let Ok(common) = common_type(&types) else { return Ok(None) };
    let mut has_null = false;
    let mut integers = HashSet::new();
    let mut texts = Vec::new();
    for item in list {
        let item = implicit_cast_in(item.clone(), &common.data_type, session);
        match item.as_literal() {
            Some(Scalar::Null) => has_null = true,
            Some(Scalar::Integer(value)) => drop(integers.insert(*value)),
            Some(Scalar::String(value)) => texts.push(value.clone()),
            _ => return Ok(None),
        }
    }
    let members = match &common.data_type {
        t if t.is_integer() => Members::Integers(integers),
        t if t.is_string() => Members::Texts(Texts::new(&texts)),
        _ => return Ok(None),
    };
    let value = implicit_cast_in(expr.clone(), &common.data_type, session);
    let nullable = expr.column_type.nullable || has_null;
    let kernel = move |a: &Arguments<'_>| Ok(contains(a, &members, has_null));
    // The list is part of the name, so that it is shown and compared but not evaluated.
    let items: Vec<String> = list.iter().map(Expr::to_string).collect();
    let name = format!("IN ({})", items.join(", "));
    let call = Call { name: "IN", args: vec![value], session };
    let column_type = DataType::Boolean.nullable().with_nullable(nullable);
    Ok(Some(call.with_function(column_type, kernel, |function| function.name = name)))
}

fn contains(a: &Arguments<'_>, members: &Members, has_null: bool) -> ArrayRef {
    let array = a.value(0).array();
    let found = match (members, array.data_type()) {
        (Members::Texts(set), _) => {
            let texts = array.as_string_view();
            BooleanBuffer::collect_bool(texts.len(), |row| set.contains(texts, row))
        }
        (Members::Integers(set), Arrow::Int8) => integers::<Int8Type>(&array, set),
        (Members::Integers(set), Arrow::Int16) => integers::<Int16Type>(&array, set),
        (Members::Integers(set), Arrow::Int32) => integers::<Int32Type>(&array, set),
        (Members::Integers(set), _) => integers::<Int64Type>(&array, set),
    };
    let nulls = match has_null {
        false => array.nulls().cloned(),
        // A value that is not in a set with NULL may or may not be in it.
        true => {
            let is_known = NullBuffer::new(found.clone());
            NullBuffer::union(Some(&is_known), array.nulls())
        }
    };
    Arc::new(BooleanArray::new(found, nulls))
}

fn integers<T: ArrowPrimitiveType>(array: &dyn Array, set: &HashSet<i64>) -> BooleanBuffer
where
    i64: From<T::Native>,
{
    let values = array.as_primitive::<T>().values();
    BooleanBuffer::collect_bool(values.len(), |row| set.contains(&i64::from(values[row])))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Any number of texts of any kind are found, and no others.
    #[test]
    fn texts_are_found_by_their_places_or_by_hashes() {
        for count in [0, 1, 2, 8, 37, 38, 39, 200] {
            let text = |n: usize| match n % 7 {
                0 => format!("a text longer than its view {n}"),
                1 => format!("{n}"),
                _ => format!("word {n}"),
            };
            let texts: Vec<Arc<str>> = (0..count).map(|n| text(n).into()).collect();
            let set = Texts::new(&texts);
            let short = texts.iter().filter(|text| text.len() <= 12).count();
            assert_eq!(matches!(set.short, Short::Few(_)), short <= 32, "{short} texts of {count}");
            let all: Vec<String> = (0..2 * count + 5).map(text).chain([String::new()]).collect();
            let array = StringViewArray::from_iter_values(&all);
            for (row, text) in all.iter().enumerate() {
                assert_eq!(set.contains(&array, row), texts.iter().any(|one| **one == **text));
            }
        }
    }
}
