//! Maps: their keys, values and entries, and maps made of values, arrays, maps and text.
//!
//! A map that is made has each key once, with the last of its values, where the key stood first.
//! Arrow's maps have no NULL as a key: such an entry is left out.

use std::sync::Arc;

use arrow_array::builder::StringViewBuilder;
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, Int32Array, ListArray, MapArray, StructArray, UInt32Array};
use arrow_buffer::OffsetBuffer;
use arrow_row::Rows;
use arrow_schema::DataType as Arrow;
use arrow_select::interleave::interleave;
use arrow_select::take::take;
use hashbrown::HashMap;
use thalweg_core::{Column, ColumnType, DataType, Error, Result};

use super::array_elements::{Picks, bounds, converter, encoded};
use super::arrays::{Lists, element_type};
use super::definition::{Call, Definition, custom};
use super::java_pattern::JavaPattern;
use super::regexps::{PatternArgument, java_split};
use crate::build::implicit_cast_in;
use crate::expr::Expr;
use crate::function::Arguments;
use crate::kernels::map_array;

pub(super) const DEFINITIONS: &[Definition] = &[
    custom("MAP", "any any any*", map),
    custom("MAP_KEYS", "map", |call| part(call, 0)),
    custom("MAP_VALUES", "map", |call| part(call, 1)),
    custom("MAP_ENTRIES", "map", entries),
    custom("MAP_FROM_ARRAYS", "array array", from_arrays),
    custom("MAP_UNION", "map map*", union),
    custom("MULTISET$", "array", counted),
    custom("STR_TO_MAP", "string string? string?", from_text),
];

fn key_and_value(call: &Call<'_>) -> Result<(ColumnType, ColumnType)> {
    match call.arg_type(0) {
        DataType::Map(key, value) => Ok((key.as_ref().clone(), value.as_ref().clone())),
        other => Err(call.error(format!("{other} is not a map"))),
    }
}

/// The keys or the values as an array: the map's own columns.
fn part(call: Call<'_>, column: usize) -> Result<Expr> {
    let (key, value) = key_and_value(&call)?;
    let element = if column == 0 { key } else { value };
    Ok(call.strict(DataType::Array(Box::new(element)), move |a| {
        list_of(a, |map| Ok(ArrayRef::clone(map.entries().column(column))))
    }))
}

/// The entries as an array of rows `(key, value)`.
fn entries(call: Call<'_>) -> Result<Expr> {
    let (key, value) = key_and_value(&call)?;
    let row = DataType::Row(vec![Column::new("key", key), Column::new("value", value)]);
    let Arrow::Struct(fields) = row.arrow() else {
        return Err(Error::internal("MAP_ENTRIES without the type of a row"));
    };
    Ok(call.strict(DataType::Array(Box::new(row.nullable())), move |a| {
        list_of(a, |map| {
            let columns = map.entries().columns().to_vec();
            Ok(Arc::new(StructArray::try_new(fields.clone(), columns, None)?))
        })
    }))
}

/// An array for each map, of elements made of all entries.
fn list_of(
    a: &Arguments<'_>,
    elements: impl Fn(&MapArray) -> Result<ArrayRef>,
) -> Result<ArrayRef> {
    let Arrow::List(field) = a.result.arrow() else {
        return Err(Error::internal("an array without the type of one"));
    };
    let maps = a.value(0).clone().into_rows(a.rows)?;
    let map = maps.as_map();
    let (offsets, nulls) = (map.offsets().clone(), map.nulls().cloned());
    Ok(Arc::new(ListArray::try_new(field, offsets, elements(map)?, nulls)?))
}

/// The entries of maps that are made row by row.
#[derive(Default)]
struct Entries {
    keys: Picks,
    values: Picks,
}

impl Entries {
    /// Adds the entries of a row: places of the keys and of the values, of which the keys are those
    /// of `rows[argument]`.
    fn add(
        &mut self,
        pairs: impl Iterator<Item = ((usize, usize), (usize, usize))>,
        keys: &[Rows],
        sources: &[&ArrayRef],
    ) {
        let mut seen: HashMap<&[u8], usize> = HashMap::new();
        for (key, value) in pairs {
            // An array of type NULL has no mask of NULLs.
            if sources[key.0].is_null(key.1) || *sources[key.0].data_type() == Arrow::Null {
                continue;
            }
            match seen.get(keys[key.0].row(key.1).data()) {
                Some(&place) => self.values.places[place] = value,
                None => {
                    seen.insert(keys[key.0].row(key.1).data(), self.values.places.len());
                    self.keys.places.push(key);
                    self.values.places.push(value);
                }
            }
        }
    }

    fn end_row(&mut self, row: Option<()>) {
        self.keys.end_row(row);
        self.values.end_row(row);
    }

    fn finish(
        self,
        keys: &[&ArrayRef],
        values: &[&ArrayRef],
        a: &Arguments<'_>,
    ) -> Result<ArrayRef> {
        let gathered = |sources: &[&ArrayRef], places: &[(usize, usize)]| -> Result<ArrayRef> {
            let sources: Vec<&dyn Array> = sources.iter().map(|source| source.as_ref()).collect();
            Ok(interleave(&sources, places)?)
        };
        let keys = gathered(keys, &self.keys.places)?;
        let values = gathered(values, &self.values.places)?;
        let (offsets, nulls) = self.keys.bounds()?;
        map_array(a.result, keys, values, offsets, nulls)
    }
}

/// `MAP[key, value, …]`
fn map(call: Call<'_>) -> Result<Expr> {
    if !call.args.len().is_multiple_of(2) {
        return Err(call.error("needs a value for each key"));
    }
    let unified = |start: usize| call.common_type(call.args[start..].iter().step_by(2));
    let (key, value) = (unified(0)?, unified(1)?);
    let cast = |(index, arg): (usize, &Expr)| {
        let to = if index % 2 == 0 { &key.data_type } else { &value.data_type };
        implicit_cast_in(arg.clone(), to, call.session)
    };
    let args: Vec<Expr> = call.args.iter().enumerate().map(cast).collect();
    let column_type = DataType::Map(Box::new(key), Box::new(value)).not_null();
    Ok(Call { args, ..call }.with_kernel(column_type, |a| {
        let arrays = |first: usize| -> Vec<&ArrayRef> {
            a.values.iter().skip(first).step_by(2).map(|value| value.array()).collect()
        };
        let (keys, values) = (arrays(0), arrays(1));
        let rows = encoded_keys(&keys)?;
        let mut entries = Entries::default();
        for row in 0..a.rows {
            let place = |index: usize| a.value(index).place(row);
            let pairs =
                (0..keys.len()).map(|pair| ((pair, place(pair * 2)), (pair, place(pair * 2 + 1))));
            entries.add(pairs, &rows, &keys);
            entries.end_row(Some(()));
        }
        entries.finish(&keys, &values, a)
    }))
}

/// Keys in an encoding that compares as they do.
fn encoded_keys(keys: &[&ArrayRef]) -> Result<Vec<Rows>> {
    let converter = converter(keys[0])?;
    let encode = |keys: &&ArrayRef| converter.convert_columns(std::slice::from_ref(*keys));
    Ok(keys.iter().map(encode).collect::<std::result::Result<_, _>>()?)
}

fn from_arrays(call: Call<'_>) -> Result<Expr> {
    let key = element_type(&call)?;
    let DataType::Array(value) = call.arg_type(1).clone() else {
        return Err(call.error("takes two arrays"));
    };
    let map = DataType::Map(Box::new(key), value).nullable();
    let column_type = map.with_nullable(call.nullable());
    let kernel = |a: &Arguments<'_>| {
        let (keys, values) = (Lists::new(a, 0), Lists::new(a, 1));
        let rows = encoded_keys(&[&keys.values])?;
        let mut entries = Entries::default();
        for row in 0..a.rows {
            let both = keys.range(row).zip(values.range(row));
            if let Some((keys, values)) = both.as_ref().filter(|(k, v)| k.len() != v.len()) {
                return Err(Error::data(format!(
                    "MAP_FROM_ARRAYS got {} keys and {} values",
                    keys.len(),
                    values.len()
                )));
            }
            let added = both.map(|(k, v)| {
                let pairs = k.zip(v).map(|(k, v)| ((0, k), (0, v)));
                entries.add(pairs, &rows, &[&keys.values]);
            });
            entries.end_row(added);
        }
        entries.finish(&[&keys.values], &[&values.values], a)
    };
    Ok(call.with_function(column_type, kernel, |function| function.can_fail = true))
}

/// The entries of all maps; of a key that several have, the last one's value.
fn union(call: Call<'_>) -> Result<Expr> {
    let (call, common) = call.unified()?;
    Ok(call.with_kernel(common, |a| {
        let maps: Vec<Lists<'_>> = (0..a.len()).map(|index| Lists::new(a, index)).collect();
        let columns = |column: usize| -> Vec<&ArrayRef> {
            maps.iter().map(|map| map.values.as_struct().column(column)).collect()
        };
        let (keys, values) = (columns(0), columns(1));
        let rows = encoded_keys(&keys)?;
        let mut entries = Entries::default();
        for row in 0..a.rows {
            let ranges: Option<Vec<_>> = maps.iter().map(|map| map.range(row)).collect();
            let added = ranges.map(|ranges| {
                let all = ranges.into_iter().enumerate();
                let places = all.flat_map(|(map, range)| range.map(move |at| (map, at)));
                entries.add(places.map(|place| (place, place)), &rows, &keys);
            });
            entries.end_row(added);
        }
        entries.finish(&keys, &values, a)
    }))
}

/// What COLLECT makes of the values of a group: how often each is there. A group of none is empty.
fn counted(call: Call<'_>) -> Result<Expr> {
    let value = element_type(&call)?.with_nullable(false);
    let count = DataType::Int.not_null();
    let column_type = DataType::Map(Box::new(value), Box::new(count)).not_null();
    Ok(call.with_kernel(column_type, |a| {
        let lists = Lists::new(a, 0);
        let [rows] = encoded([&lists.values])?;
        let (mut places, mut counts) = (Vec::new(), Vec::new());
        let mut lengths = Vec::with_capacity(a.rows);
        let mut known: HashMap<&[u8], usize> = HashMap::new();
        for row in 0..a.rows {
            known.clear();
            for at in lists.range(row).unwrap_or(0..0).filter(|&at| lists.values.is_valid(at)) {
                let place = *known.entry(rows.row(at).data()).or_insert(counts.len());
                if place == counts.len() {
                    places.push(at as u32);
                    counts.push(0);
                }
                counts[place] += 1;
            }
            lengths.push(known.len());
        }
        let keys = take(&lists.values, &UInt32Array::from(places), None)?;
        let counts = Arc::new(Int32Array::from(counts));
        map_array(a.result, keys, counts, OffsetBuffer::from_lengths(lengths), None)
    }))
}

/// `STR_TO_MAP(text [, between entries [, between key and value]])`; both are regular expressions.
fn from_text(call: Call<'_>) -> Result<Expr> {
    let text = DataType::STRING.nullable();
    let map = DataType::Map(Box::new(text.clone()), Box::new(text)).nullable();
    let entry = PatternArgument::new(&call, 1, ",")?;
    let pair = PatternArgument::new(&call, 2, "=")?;
    let can_fail = entry.can_fail() || pair.can_fail();
    let kernel = move |a: &Arguments<'_>| -> Result<ArrayRef> {
        let (s, mut entry, mut pair) = (a.texts(0), entry.of_rows(a), pair.of_rows(a));
        let mut keys = StringViewBuilder::new();
        let mut values = StringViewBuilder::new();
        let mut lengths = Vec::with_capacity(a.rows);
        for row in 0..a.rows {
            let all = (s.get(row), entry.get(row)?, pair.get(row)?);
            let (Some(text), Some(entry), Some(pair)) = all else {
                lengths.push(None);
                continue;
            };
            let map = entries_of(text, entry, pair)?;
            lengths.push(Some(map.len()));
            for (key, value) in map {
                keys.append_value(key);
                values.append_option(value);
            }
        }
        let (offsets, nulls) = bounds(&lengths);
        map_array(a.result, Arc::new(keys.finish()), Arc::new(values.finish()), offsets, nulls)
    };
    Ok(call.with_function(map, kernel, |function| function.can_fail = can_fail))
}

/// The entries of a text; of a key that stands there again, the last value.
fn entries_of<'t>(
    text: &'t str,
    entry: &JavaPattern,
    pair: &JavaPattern,
) -> Result<Vec<(&'t str, Option<&'t str>)>> {
    let mut map: Vec<(&str, Option<&str>)> = Vec::new();
    let mut places: HashMap<&str, usize> = HashMap::new();
    if text.is_empty() {
        return Ok(map);
    }
    for part in java_split(entry, text, usize::MAX)? {
        let mut key_and_value = java_split(pair, part, 2)?.into_iter();
        let (key, value) = (key_and_value.next().unwrap_or(""), key_and_value.next());
        match places.get(key) {
            Some(&place) => map[place].1 = value,
            None => {
                places.insert(key, map.len());
                map.push((key, value));
            }
        }
    }
    Ok(map)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_split_into_entries_as_by_java() {
        type Map<'t> = Vec<(&'t str, Option<&'t str>)>;
        let cases: [(&str, &str, &str, Map<'_>); 6] = [
            (
                "a=1,b,c=,=d",
                ",",
                "=",
                vec![("a", Some("1")), ("b", None), ("c", Some("")), ("", Some("d"))],
            ),
            ("", ",", "=", vec![]),
            ("a=1=2,a=3", ",", "=", vec![("a", Some("3"))]),
            ("a=1,,", ",", "=", vec![("a", Some("1"))]),
            ("a1b2", "[0-9]", "", vec![("a", Some("")), ("b", Some(""))]),
            ("ab", "", "x", vec![("a", None), ("b", None)]),
        ];
        for (text, entry, pair, expected) in cases {
            let [entry, pair] = [entry, pair].map(|pattern| JavaPattern::new(pattern).unwrap());
            assert_eq!(entries_of(text, &entry, &pair).unwrap(), expected, "{text}");
        }
    }
}
