//! Arrays and rows: construction and access. Elements count from 1.

use std::sync::Arc;

use arrow_array::builder::{ArrayBuilder, StringViewBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use arrow_array::{
    Array, ArrayRef, BooleanArray, ListArray, StructArray, UInt32Array, new_null_array,
};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_ord::cmp;
use arrow_ord::ord::make_comparator;
use arrow_schema::SortOptions;
use arrow_select::interleave::interleave;
use arrow_select::nullif::nullif;
use arrow_select::take::take;
use thalweg_core::search::for_each_place;
use thalweg_core::{Column, ColumnType, DataType, Error, Result};

use super::array_elements::bounds;
use super::definition::{Call, Definition, Returns, custom, plain};
use crate::build::{common_type, implicit_cast_in};
use crate::expr::Expr;
use crate::function::Arguments;

pub(super) const DEFINITIONS: &[Definition] = &[
    custom("ARRAY", "any any*", array),
    custom("ROW", "any any*", row),
    custom("ROW_FIELD", "any string", field),
    plain("CARDINALITY", "collection", Returns::Int, |a| {
        let lists = Lists::new(a, 0);
        a.number_result::<Int32Type>(|row| Some(lists.range(row)?.len() as i32))
    }),
    custom("ARRAY_AT", "any any", |call| match call.arg_type(0) {
        DataType::Map(..) => map_value(call),
        DataType::Variant => super::variants::access(call),
        _ => element(call, false),
    }),
    custom("ELEMENT", "array", |call| element(call, true)),
    custom("ARRAY_CONTAINS", "array any", contains),
    custom("SPLIT", "string string", split),
];

/// An argument of arrays or maps.
pub(super) struct Lists<'a> {
    offsets: &'a [i32],
    nulls: Option<&'a NullBuffer>,
    /// The elements of all rows; of a map its entries.
    pub values: ArrayRef,
    constant: bool,
}

impl<'a> Lists<'a> {
    pub fn new(a: &'a Arguments<'_>, index: usize) -> Self {
        let value = a.value(index);
        let (array, constant) = (value.array(), value.is_constant());
        let nulls = array.nulls();
        match array.as_map_opt() {
            Some(map) => {
                let values = Arc::new(map.entries().clone());
                Lists { offsets: map.value_offsets(), nulls, values, constant }
            }
            None => {
                let list = array.as_list::<i32>();
                let values = list.values().clone();
                Lists { offsets: list.value_offsets(), nulls, values, constant }
            }
        }
    }
    /// Where the elements of a row stand among all elements.
    pub fn range(&self, row: usize) -> Option<std::ops::Range<usize>> {
        let row = if self.constant { 0 } else { row };
        let valid = self.nulls.is_none_or(|nulls| nulls.is_valid(row));
        valid.then(|| self.offsets[row] as usize..self.offsets[row + 1] as usize)
    }
}

/// Each element paired with the value of the second argument in its row: the elements' places, and
/// whether they are equal, NULL being equal to NULL.
fn equal_to_second(a: &Arguments<'_>, lists: &Lists<'_>, elements: &ArrayRef) -> Result<Matches> {
    let mut places = Vec::new();
    let mut rows = Vec::new();
    let constant = a.value(1).is_constant();
    for row in 0..a.rows {
        for place in lists.range(row).unwrap_or(0..0) {
            places.push(place as u32);
            rows.push(if constant { 0 } else { row as u32 });
        }
    }
    if elements.data_type().is_nested() {
        let order = make_comparator(elements, a.value(1).array(), SortOptions::default())?;
        let pairs = places.iter().zip(&rows);
        let is_equal = |(place, row): (&u32, &u32)| order(*place as usize, *row as usize).is_eq();
        let equal = BooleanArray::from(pairs.map(is_equal).collect::<Vec<bool>>());
        return Ok(Matches { places, equal });
    }
    let elements = take(elements, &UInt32Array::from(places.clone()), None)?;
    let sought = take(a.value(1).array(), &UInt32Array::from(rows), None)?;
    Ok(Matches { places, equal: cmp::not_distinct(&elements, &sought)? })
}

struct Matches {
    places: Vec<u32>,
    equal: BooleanArray,
}

/// The type of the elements of the first argument.
pub(super) fn element_type(call: &Call<'_>) -> Result<ColumnType> {
    match call.arg_type(0) {
        DataType::Array(element) => Ok((**element).clone()),
        other => Err(call.error(format!("{other} is not an array"))),
    }
}

fn array(call: Call<'_>) -> Result<Expr> {
    let (call, element) = call.unified()?;
    let column_type = DataType::Array(Box::new(element.clone())).not_null();
    Ok(call.with_kernel(column_type, move |a| {
        let width = a.len();
        let values = interleaved(a)?;
        let offsets = OffsetBuffer::from_lengths(std::iter::repeat_n(width, a.rows));
        Ok(Arc::new(ListArray::new(Arc::new(element.field("item")), offsets, values, None)))
    }))
}

fn row(call: Call<'_>) -> Result<Expr> {
    let columns: Vec<Column> = call
        .args
        .iter()
        .enumerate()
        .map(|(index, arg)| Column::new(format!("EXPR${index}"), arg.column_type.clone()))
        .collect();
    let column_type = DataType::Row(columns).not_null();
    Ok(call.with_kernel(column_type, |a| {
        let arrow_schema::DataType::Struct(fields) = a.result.arrow() else {
            return Err(Error::internal("ROW without the type of a row"));
        };
        let mut arrays = Vec::with_capacity(a.len());
        for value in a.values {
            arrays.push(value.clone().into_rows(a.rows)?);
        }
        Ok(Arc::new(StructArray::try_new(fields, arrays, None)?))
    }))
}

/// `row.name`: NULL where the row is.
fn field(call: Call<'_>) -> Result<Expr> {
    let name = call.text(1).ok_or_else(|| call.error("a field is named by a text"))?;
    let DataType::Row(columns) = call.arg_type(0) else {
        let message = format!("there is no field '{name}' in a value of type {}", call.arg_type(0));
        return Err(Error::plan(message).hint("only a ROW has fields"));
    };
    let Some(at) = columns.iter().position(|column| column.name == name) else {
        let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
        return Err(Error::plan(format!("there is no field '{name}' in this ROW"))
            .hint(format!("its fields are {}", names.join(", "))));
    };
    let own = &columns[at].column_type;
    let column_type = own.clone().with_nullable(own.nullable || call.args[0].column_type.nullable);
    Ok(call.with_kernel(column_type, move |a| {
        let rows = a.value(0).clone().into_rows(a.rows)?;
        let rows = rows.as_struct();
        let values = rows.column(at);
        match rows.nulls().filter(|nulls| nulls.null_count() > 0) {
            None => Ok(values.clone()),
            Some(valid) => Ok(nullif(values, &BooleanArray::new(!valid.inner(), None))?),
        }
    }))
}

/// `array[n]`, NULL beyond its ends; or the only element, an error where there are more.
fn element(mut call: Call<'_>, only: bool) -> Result<Expr> {
    let column_type = element_type(&call)?.with_nullable(true);
    if !only {
        if !call.arg_type(1).is_integer() {
            let got = call.arg_type(1);
            return Err(Error::plan(format!("the index of an array must be INT, got {got}")));
        }
        call.args[1] = implicit_cast_in(call.args[1].clone(), &DataType::Int, call.session);
    }
    let kernel = move |a: &Arguments<'_>| -> Result<ArrayRef> {
        let lists = Lists::new(a, 0);
        let position = (!only).then(|| a.ints(1));
        let mut picks: Vec<Option<u32>> = Vec::with_capacity(a.rows);
        for row in 0..a.rows {
            let Some(range) = lists.range(row) else {
                picks.push(None);
                continue;
            };
            if only && range.len() > 1 {
                let message = format!("ELEMENT of an array with {} elements", range.len());
                return Err(Error::data(message));
            }
            let place = match &position {
                Some(position) => position.get(row).and_then(|p| usize::try_from(p).ok()),
                None => Some(1),
            };
            let place = place.filter(|place| (1..=range.len()).contains(place));
            picks.push(place.map(|place| (range.start + place - 1) as u32));
        }
        if lists.values.is_empty() {
            return Ok(new_null_array(&a.result.arrow(), a.rows));
        }
        Ok(take(&lists.values, &UInt32Array::from(picks), None)?)
    };
    Ok(call.with_function(column_type, kernel, |function| function.can_fail = only))
}

/// `map[key]`, NULL where the key is missing.
fn map_value(mut call: Call<'_>) -> Result<Expr> {
    let DataType::Map(key, value) = call.arg_type(0).clone() else {
        return Err(Error::internal("map access without a map"));
    };
    let column_type = value.with_nullable(true);
    let types = [key.as_ref().clone(), call.args[1].column_type.clone()];
    let misfit = || {
        let got = call.arg_type(1);
        Error::plan(format!("the keys of the map are {}, got {got}", key.data_type))
    };
    let common = common_type(&types).map_err(|_| misfit())?;
    if common.data_type.arrow() != key.data_type.arrow() {
        return Err(misfit().hint("cast the key to the type of the map's keys"));
    }
    call.args[1] = implicit_cast_in(call.args[1].clone(), &key.data_type, call.session);
    Ok(call.with_kernel(column_type, |a| {
        let lists = Lists::new(a, 0);
        let entries = lists.values.as_struct();
        let matches = equal_to_second(a, &lists, entries.column(0))?;
        let mut next = 0;
        let mut picks: Vec<Option<u32>> = Vec::with_capacity(a.rows);
        for row in 0..a.rows {
            let count = lists.range(row).map_or(0, |range| range.len());
            let found = (next..next + count).find(|place| matches.equal.value(*place));
            picks.push(found.map(|place| matches.places[place]));
            next += count;
        }
        Ok(take(entries.column(1), &UInt32Array::from(picks), None)?)
    }))
}

/// The arguments of each row, one row after the other.
fn interleaved(a: &Arguments<'_>) -> Result<ArrayRef> {
    let arrays: Vec<&dyn Array> = a.values.iter().map(|value| value.array().as_ref()).collect();
    let mut places = Vec::with_capacity(a.rows * a.len());
    for row in 0..a.rows {
        for (index, value) in a.values.iter().enumerate() {
            places.push((index, value.place(row)));
        }
    }
    Ok(interleave(&arrays, &places)?)
}

/// True if an element equals the value; a NULL is found among NULLs.
fn contains(mut call: Call<'_>) -> Result<Expr> {
    let element = element_type(&call)?;
    let nullable = call.args[0].column_type.nullable;
    let types = [element.clone(), call.args[1].column_type.clone()];
    let common = common_type(&types).map_err(|error| call.error(error.message()))?;
    let array_type = DataType::Array(Box::new(common.clone()));
    call.args[1] = implicit_cast_in(call.args[1].clone(), &common.data_type, call.session);
    if element.data_type != common.data_type {
        call.args[0] = implicit_cast_in(call.args[0].clone(), &array_type, call.session);
    }
    let kernel = |a: &Arguments<'_>| -> Result<ArrayRef> {
        let lists = Lists::new(a, 0);
        let matches = equal_to_second(a, &lists, &lists.values)?;
        let mut next = 0;
        a.boolean_result(|row| {
            let count = lists.range(row)?.len();
            let found = (next..next + count).any(|place| matches.equal.value(place));
            next += count;
            Some(found)
        })
    };
    let column_type = DataType::Boolean.nullable().with_nullable(nullable);
    Ok(call.with_kernel(column_type, kernel))
}

/// The most parts made for rows that are computed together: 1 GiB of views.
const ALL_PARTS_MAX: usize = 1 << 26;

/// The parts of a text between separators, as an array; an empty separator parts characters.
fn split(call: Call<'_>) -> Result<Expr> {
    let nullable = call.nullable();
    let element = DataType::STRING.nullable();
    let column_type = DataType::Array(Box::new(element.clone())).nullable().with_nullable(nullable);
    let kernel = move |a: &Arguments<'_>| -> Result<ArrayRef> {
        let (s, separator) = (a.texts(0), a.texts(1));
        let mut parts = StringViewBuilder::with_capacity(about_parts(a));
        let mut lengths = Vec::with_capacity(a.rows);
        for row in 0..a.rows {
            let before = parts.len();
            let both = s.get(row).zip(separator.get(row));
            if let Some((text, separator)) = both {
                for_each_part(text, separator, |part| parts.append_value(part));
            }
            lengths.push(both.map(|_| parts.len() - before));
            if parts.len() > ALL_PARTS_MAX {
                let message = "SPLIT would make more than 67,108,864 parts of one batch of rows";
                return Err(Error::data(message));
            }
        }
        let values = Arc::new(parts.finish());
        let field = Arc::new(element.field("item"));
        let (offsets, nulls) = bounds(&lengths);
        Ok(Arc::new(ListArray::new(field, offsets, values, nulls)))
    };
    Ok(call.with_function(column_type, kernel, |function| function.can_fail = true))
}

/// About how many parts the texts have, and some more: by those of the first. What is asked for in
/// the beginning need not be copied each time that it has grown.
fn about_parts(a: &Arguments<'_>) -> usize {
    const COUNTED_ROWS: usize = 64;
    // The first texts may be the longest by far: 16 MiB of views and no more are asked for on their
    // word.
    const PARTS_MAX: usize = 1 << 20;
    let (s, separator) = (a.texts(0), a.texts(1));
    let counted = a.rows.min(COUNTED_ROWS);
    let mut parts = 0;
    for row in 0..counted {
        if let Some((text, separator)) = s.get(row).zip(separator.get(row)) {
            for_each_part(text, separator, |_| parts += 1);
        }
    }
    let all = (parts * a.rows).checked_div(counted).unwrap_or(0);
    (all + all / 8).min(PARTS_MAX)
}

/// Calls `part` with each part of a text between separators; see [`split`].
fn for_each_part<'a>(text: &'a str, separator: &str, mut part: impl FnMut(&'a str)) {
    match separator.as_bytes() {
        [] => {
            let ends = |(at, c): (usize, char)| &text[at..at + c.len_utf8()];
            text.char_indices().map(ends).for_each(part);
        }
        &[byte] => {
            let mut from = 0;
            for_each_place(text.as_bytes(), byte, |at| {
                part(&text[from..at]);
                from = at + 1;
            });
            part(&text[from..]);
        }
        _ => text.split(separator).for_each(part),
    }
}
