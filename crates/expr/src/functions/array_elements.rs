//! Functions that choose, add, remove and order the elements of arrays. Elements count from 1.
//!
//! A result is made of *picks*: where each of its elements stands among the elements of the
//! arguments. They are gathered for all rows, and then copied at once. Elements are compared by
//! their row encoding, in which NULL equals NULL and NaN equals NaN.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow_array::builder::StringViewBuilder;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type, Int32Type};
use arrow_array::{Array, ArrayRef, ListArray, UInt32Array};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_ord::ord::{DynComparator, make_comparator};
use arrow_row::{RowConverter, Rows, SortField};
use arrow_schema::SortOptions;
use arrow_select::interleave::interleave;
use arrow_select::take::take;
use thalweg_core::{ColumnType, DataType, Error, Result};

use super::arrays::{Lists, element_type};
use super::definition::{Call, Definition, custom};
use crate::build::{cast, coerce};
use crate::expr::Expr;
use crate::function::Arguments;

pub(super) const DEFINITIONS: &[Definition] = &[
    custom("ARRAY_APPEND", "array any", |call| with_element(call, append)),
    custom("ARRAY_PREPEND", "array any", |call| with_element(call, prepend)),
    custom("ARRAY_REMOVE", "array any", |call| without_element(call, remove)),
    custom("ARRAY_POSITION", "array any", position),
    custom("ARRAY_CONCAT", "array array*", concat),
    custom("ARRAY_REVERSE", "array", |call| same_array(call, reverse)),
    custom("ARRAY_SLICE", "array int int?", |call| same_array(call, slice)),
    custom("ARRAY_SORT", "array boolean? boolean?", sort),
    custom("ARRAY_MAX", "array", |call| extreme(call, Ordering::Greater)),
    custom("ARRAY_MIN", "array", |call| extreme(call, Ordering::Less)),
    custom("ARRAY_JOIN", "array string string?", |call| {
        let element = element_type(&call)?.data_type;
        if !element.is_string() {
            return Err(call.error(format!("takes an array of texts, not of {element}")));
        }
        Ok(call.strict(DataType::STRING, join))
    }),
];

/// The most elements of a column of arrays.
const ELEMENTS_MAX: usize = i32::MAX as usize;

/// The elements of a result by their places in the arguments.
#[derive(Default)]
pub(super) struct Picks {
    /// The argument, and the place among its elements.
    pub places: Vec<(usize, usize)>,
    /// Where the array of the row begins.
    begin: usize,
    lengths: Vec<Option<usize>>,
}

impl Picks {
    /// The arrays that `row` picks from the elements of `sources` for each row; NULL if it gives
    /// `None`.
    pub fn arrays(
        a: &Arguments<'_>,
        sources: &[&ArrayRef],
        mut row: impl FnMut(&mut Picks, usize) -> Option<()>,
    ) -> Result<ArrayRef> {
        let mut picks = Picks::default();
        for at in 0..a.rows {
            let picked = row(&mut picks, at);
            picks.end_row(picked);
        }
        let arrow_schema::DataType::List(field) = a.result.arrow() else {
            return Err(Error::internal("an array without the type of one"));
        };
        let sources: Vec<&dyn Array> = sources.iter().map(|source| source.as_ref()).collect();
        let values = interleave(&sources, &picks.places)?;
        let (offsets, nulls) = picks.bounds()?;
        Ok(Arc::new(ListArray::try_new(field, offsets, values, nulls)?))
    }
    /// Ends the array of a row, whose elements have been added; `None` is NULL.
    pub fn end_row(&mut self, row: Option<()>) {
        if row.is_none() {
            self.places.truncate(self.begin);
        }
        self.lengths.push(row.map(|()| self.places.len() - self.begin));
        self.begin = self.places.len();
    }
    /// Adds elements of an argument.
    pub fn extend(&mut self, argument: usize, places: impl Iterator<Item = usize>) {
        self.places.extend(places.map(|place| (argument, place)));
    }
    /// The offsets of the arrays, and which of them are NULL.
    pub fn bounds(self) -> Result<(OffsetBuffer<i32>, Option<NullBuffer>)> {
        if self.places.len() > ELEMENTS_MAX {
            return Err(Error::data("arrays of one batch of rows would have over 2^31 elements"));
        }
        Ok(bounds(&self.lengths))
    }
}

/// The offsets of lists of these lengths, and which of them are NULL: those that have none.
pub(super) fn bounds(lengths: &[Option<usize>]) -> (OffsetBuffer<i32>, Option<NullBuffer>) {
    let nulls: NullBuffer = lengths.iter().map(Option::is_some).collect();
    let offsets = OffsetBuffer::from_lengths(lengths.iter().map(|length| length.unwrap_or(0)));
    (offsets, Some(nulls).filter(|nulls| nulls.null_count() > 0))
}

/// Values by an encoding that compares as they do.
pub(super) fn encoded<const N: usize>(arrays: [&ArrayRef; N]) -> Result<[Rows; N]> {
    let converter = converter(arrays[0])?;
    let mut rows = Vec::with_capacity(N);
    for array in arrays {
        rows.push(converter.convert_columns(std::slice::from_ref(array))?);
    }
    rows.try_into().map_err(|_| Error::internal("columns that were lost"))
}

/// What encodes values of an array's type.
pub(super) fn converter(array: &ArrayRef) -> Result<RowConverter> {
    let fields = vec![SortField::new(array.data_type().clone())];
    if !RowConverter::supports_fields(&fields) {
        let message = format!("values of {} cannot be compared", array.data_type());
        return Err(Error::unsupported(message));
    }
    Ok(RowConverter::new(fields)?)
}

type ListKernel = fn(&Arguments<'_>) -> Result<ArrayRef>;

/// The second argument, cast to the type of the elements, where it goes into a column of it: a text
/// is cut, as in Flink.
fn fit_element(mut call: Call<'_>) -> Result<(Call<'_>, ColumnType)> {
    let element = element_type(&call)?;
    let (target, given) = (element.data_type.clone(), call.arg_type(1).clone());
    let is_text = given.is_string() && target.is_string();
    call.args[1] = match is_text {
        true => cast(call.args[1].clone(), target, false, call.session)?,
        false => coerce(call.args[1].clone(), &target.nullable(), call.session).map_err(|_| {
            let expected = &element.data_type;
            call.error(format!("the array is of {expected}, got an element {given}"))
                .hint("cast one to the type of the other")
        })?,
    };
    Ok((call, element))
}

/// A function whose arrays hold the second argument as well.
fn with_element(call: Call<'_>, kernel: ListKernel) -> Result<Expr> {
    let (call, element) = fit_element(call)?;
    let nullable = element.nullable || call.args[1].column_type.nullable;
    Ok(call.strict(DataType::Array(Box::new(element.with_nullable(nullable))), kernel))
}

/// A function whose arrays hold no more than the first argument's.
fn without_element(call: Call<'_>, kernel: ListKernel) -> Result<Expr> {
    let (call, _) = fit_element(call)?;
    let column_type = call.args[0].column_type.clone();
    Ok(call.with_kernel(column_type, kernel))
}

/// A function whose arrays are of the first argument's type.
fn same_array(call: Call<'_>, kernel: ListKernel) -> Result<Expr> {
    let array = call.arg_type(0).clone();
    Ok(call.strict(array, kernel))
}

fn append(a: &Arguments<'_>) -> Result<ArrayRef> {
    let (lists, element) = (Lists::new(a, 0), a.value(1));
    Picks::arrays(a, &[&lists.values, element.array()], |picks, row| {
        picks.extend(0, lists.range(row)?);
        picks.places.push((1, element.place(row)));
        Some(())
    })
}

fn prepend(a: &Arguments<'_>) -> Result<ArrayRef> {
    let (lists, element) = (Lists::new(a, 0), a.value(1));
    Picks::arrays(a, &[&lists.values, element.array()], |picks, row| {
        picks.places.push((1, element.place(row)));
        picks.extend(0, lists.range(row)?);
        Some(())
    })
}

fn remove(a: &Arguments<'_>) -> Result<ArrayRef> {
    let (lists, element) = (Lists::new(a, 0), a.value(1));
    let [elements, removed] = encoded([&lists.values, element.array()])?;
    Picks::arrays(a, &[&lists.values], |picks, row| {
        let unwanted = removed.row(element.place(row));
        picks.extend(0, lists.range(row)?.filter(|&at| elements.row(at) != unwanted));
        Some(())
    })
}

/// The first place of the element; 0 without one, NULL if it is NULL.
fn position(call: Call<'_>) -> Result<Expr> {
    let (call, _) = fit_element(call)?;
    Ok(call.strict(DataType::Int, |a| {
        let (lists, element) = (Lists::new(a, 0), a.value(1));
        let sought = element.array();
        let [elements, wanted] = encoded([&lists.values, sought])?;
        a.number_result::<Int32Type>(|row| {
            let (range, wanted_at) = (lists.range(row)?, element.place(row));
            let wanted = sought.is_valid(wanted_at).then(|| wanted.row(wanted_at))?;
            let start = range.start;
            let found = range.into_iter().find(|&at| elements.row(at) == wanted);
            Some(found.map_or(0, |at| (at - start + 1) as i32))
        })
    }))
}

fn concat(call: Call<'_>) -> Result<Expr> {
    let (call, common) = call.unified()?;
    Ok(call.with_kernel(common, |a| {
        let lists: Vec<Lists<'_>> = (0..a.len()).map(|index| Lists::new(a, index)).collect();
        let sources: Vec<&ArrayRef> = lists.iter().map(|lists| &lists.values).collect();
        Picks::arrays(a, &sources, |picks, row| {
            lists.iter().enumerate().try_for_each(|(argument, lists)| {
                picks.extend(argument, lists.range(row)?);
                Some(())
            })
        })
    }))
}

fn reverse(a: &Arguments<'_>) -> Result<ArrayRef> {
    let lists = Lists::new(a, 0);
    Picks::arrays(a, &[&lists.values], |picks, row| {
        picks.extend(0, lists.range(row)?.rev());
        Some(())
    })
}

/// The elements between two places, both included. A place of 0 means the first, a negative one
/// counts from the end.
fn slice(a: &Arguments<'_>) -> Result<ArrayRef> {
    let (lists, from, to) = (Lists::new(a, 0), a.ints(1), a.ints_or(2, -1));
    Picks::arrays(a, &[&lists.values], |picks, row| {
        let (range, from, to) = (lists.range(row)?, from.get(row)?, to.get(row)?);
        let (start, end) = slice_of(range.len() as i64, from.into(), to.into());
        picks.extend(0, range.start + start..range.start + end);
        Some(())
    })
}

/// Where a slice of an array begins and ends, counted from 0, the end excluded.
fn slice_of(length: i64, from: i64, to: i64) -> (usize, usize) {
    let place = |place: i64| if place < 0 { length + place + 1 } else { place };
    let from = place(from).max(1);
    // An end at place 0 is at the first one, as in Flink.
    let to = match place(to) {
        0 => 1,
        to => to.min(length),
    };
    if length == 0 || from > to {
        return (0, 0);
    }
    ((from - 1) as usize, to as usize)
}

/// `ARRAY_SORT(array [, ascending [, nulls first]])`: NULLs are first if ascending, unless said.
fn sort(call: Call<'_>) -> Result<Expr> {
    let element = element_type(&call)?;
    check_order(&call, &element)?;
    same_array(call, |a| {
        let lists = Lists::new(a, 0);
        let flag = |index: usize| (a.len() > index).then(|| a.booleans(index));
        let (ascending, nulls_first) = (flag(1), flag(2));
        let orders = [false, true].map(|descending| comparator(&lists.values, descending));
        let [up, down] = orders;
        let (up, down) = (up?, down?);
        let values = &lists.values;
        Picks::arrays(a, &[values], |picks, row| {
            let is_up = ascending.as_ref().map_or(Some(true), |flags| flags.get(row))?;
            let first = nulls_first.as_ref().map_or(Some(is_up), |flags| flags.get(row))?;
            let (mut places, nulls): (Vec<usize>, Vec<usize>) =
                lists.range(row)?.partition(|&at| values.is_valid(at));
            let order = if is_up { &up } else { &down };
            places.sort_by(|&left, &right| order(left, right));
            let (front, back) = if first { (&nulls, &places) } else { (&places, &nulls) };
            picks.extend(0, front.iter().chain(back).copied());
            Some(())
        })
    })
}

fn comparator(values: &ArrayRef, descending: bool) -> Result<DynComparator> {
    let options = SortOptions { descending, nulls_first: false };
    Ok(make_comparator(values, values, options)?)
}

/// The order of elements as Java's `<` and `>` see it: NaN is neither larger nor smaller.
fn java_order(values: &ArrayRef) -> Result<DynComparator> {
    let is_nan = |at: usize, values: &ArrayRef| match values.data_type() {
        arrow_schema::DataType::Float32 => values.as_primitive::<Float32Type>().value(at).is_nan(),
        arrow_schema::DataType::Float64 => values.as_primitive::<Float64Type>().value(at).is_nan(),
        _ => false,
    };
    let (order, values) = (comparator(values, false)?, ArrayRef::clone(values));
    Ok(Box::new(move |left, right| match is_nan(left, &values) || is_nan(right, &values) {
        true => Ordering::Equal,
        false => order(left, right),
    }))
}

/// Refuses elements that have no order.
fn check_order(call: &Call<'_>, element: &ColumnType) -> Result<()> {
    match element.data_type {
        DataType::Null
        | DataType::Variant
        | DataType::Array(_)
        | DataType::Map(..)
        | DataType::Row(_) => {
            Err(call.error(format!("values of type {} have no order", element.data_type)))
        }
        _ => Ok(()),
    }
}

/// The largest or smallest element that is not NULL.
fn extreme(call: Call<'_>, wanted: Ordering) -> Result<Expr> {
    let element = element_type(&call)?;
    check_order(&call, &element)?;
    Ok(call.with_kernel(element.with_nullable(true), move |a| {
        let lists = Lists::new(a, 0);
        let order = java_order(&lists.values)?;
        let values = &lists.values;
        let mut chosen: Vec<Option<u32>> = Vec::with_capacity(a.rows);
        for row in 0..a.rows {
            let valid = lists.range(row).into_iter().flatten().filter(|&at| values.is_valid(at));
            let best = valid.reduce(|best, at| if order(at, best) == wanted { at } else { best });
            chosen.push(best.map(|at| at as u32));
        }
        Ok(take(values, &UInt32Array::from(chosen), None)?)
    }))
}

/// The texts of an array with a separator between them; NULLs are passed over, or replaced.
fn join(a: &Arguments<'_>) -> Result<ArrayRef> {
    let (lists, separator) = (Lists::new(a, 0), a.texts(1));
    let replacement = (a.len() > 2).then(|| a.texts(2));
    let values = lists.values.as_string_view();
    let mut out = StringViewBuilder::with_capacity(a.rows);
    for row in 0..a.rows {
        let instead = replacement.as_ref().map(|texts| texts.get(row));
        let all = lists.range(row).zip(separator.get(row)).filter(|_| instead != Some(None));
        let instead = instead.flatten();
        out.append_option(all.map(|(range, separator)| {
            let text = |at: usize| values.is_valid(at).then(|| values.value(at)).or(instead);
            range.filter_map(text).collect::<Vec<&str>>().join(separator)
        }));
    }
    Ok(Arc::new(out.finish()))
}

#[cfg(test)]
mod tests {
    use super::slice_of;

    #[test]
    fn slices_keep_to_the_array() {
        let cases = [
            ((4, 2, 3), (1, 3)),
            ((4, -2, -1), (2, 4)),
            ((4, 0, 2), (0, 2)),
            ((4, 2, 10), (1, 4)),
            ((4, 3, 2), (0, 0)),
            ((4, -10, 2), (0, 2)),
            ((4, -10, -10), (0, 0)),
            ((4, 10, -1), (0, 0)),
            ((4, 1, 0), (0, 1)),
            ((1, -100, -2), (0, 1)),
            ((0, 1, 1), (0, 0)),
            ((4, i64::from(i32::MIN), i64::from(i32::MAX)), (0, 4)),
        ];
        for ((length, from, to), expected) in cases {
            assert_eq!(slice_of(length, from, to), expected, "{length}, {from}, {to}");
        }
    }
}
