//! UNNEST: one row per element of an array or map.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, Int32Array, UInt32Array};
use arrow_schema::{DataType, Schema};
use arrow_select::take::take;
use thalweg_core::{Column, Error, Result, TableSchema};

use super::rows::{Rows, batch_of};

pub(super) fn unnest(
    rows: &mut Rows,
    array: &ArrayRef,
    columns: &[Column],
    outer: bool,
    ordinality: bool,
) -> Result<()> {
    let (offsets, elements) = elements_of(array)?;
    let all_stay =
        array.null_count() == 0 && !(outer && offsets.windows(2).any(|ends| ends[0] == ends[1]));
    let (origins, mut appended) = match all_stay && !ordinality {
        true => in_place(offsets, &elements),
        false => by_place(places(array, offsets, outer), &elements, ordinality)?,
    };
    if appended.len() != columns.len() {
        return Err(Error::internal(format!(
            "UNNEST gives {} columns where {} are expected",
            appended.len(),
            columns.len()
        )));
    }
    let origins = UInt32Array::from(origins);
    let mut all = rows
        .batch
        .columns()
        .iter()
        .map(|column| Ok(take(column.as_ref(), &origins, None)?))
        .collect::<Result<Vec<_>>>()?;
    all.append(&mut appended);
    let fields = rows.batch.schema_ref().fields().iter().cloned();
    let more = TableSchema::new(columns.to_vec()).arrow();
    let schema = Schema::new(fields.chain(more.fields().iter().cloned()).collect::<Vec<_>>());
    let batch = batch_of(Arc::new(schema), all, origins.len())?;
    rows.replace(batch, origins.values());
    Ok(())
}

/// The row of each element, and the elements as they lie: each of them is an output row.
fn in_place(offsets: &[i32], elements: &[ArrayRef]) -> (Vec<u32>, Vec<ArrayRef>) {
    let (first, last) = (offsets[0] as usize, offsets[offsets.len() - 1] as usize);
    let mut origins = Vec::with_capacity(last - first);
    for (row, ends) in offsets.windows(2).enumerate() {
        origins.resize(ends[1] as usize - first, row as u32);
    }
    (origins, elements.iter().map(|element| element.slice(first, last - first)).collect())
}

/// The row of each output row, and what is appended to it.
fn by_place(
    places: Places,
    elements: &[ArrayRef],
    ordinality: bool,
) -> Result<(Vec<u32>, Vec<ArrayRef>)> {
    let taken = elements.iter().map(|element| Ok(take(element.as_ref(), &places.elements, None)?));
    let mut appended = taken.collect::<Result<Vec<_>>>()?;
    if ordinality {
        appended.push(Arc::new(places.ordinals));
    }
    Ok((places.origins, appended))
}

/// The offsets of an array or map, and its elements as columns.
fn elements_of(array: &ArrayRef) -> Result<(&[i32], Vec<ArrayRef>)> {
    match array.data_type() {
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            let columns = match list.values().as_struct_opt() {
                // The fields of a NULL element are NULL.
                Some(rows) => fields_of(rows)?,
                None => vec![list.values().clone()],
            };
            Ok((list.value_offsets(), columns))
        }
        DataType::Map(..) => {
            let map = array.as_map();
            Ok((map.value_offsets(), vec![map.keys().clone(), map.values().clone()]))
        }
        other => Err(Error::internal(format!("UNNEST over {other}"))),
    }
}

fn fields_of(rows: &arrow_array::StructArray) -> Result<Vec<ArrayRef>> {
    let Some(nulls) = rows.nulls().filter(|nulls| nulls.null_count() > 0) else {
        return Ok(rows.columns().to_vec());
    };
    // Taking by an index that is NULL where the row is gives NULL there.
    let places: UInt32Array =
        (0..rows.len()).map(|i| nulls.is_valid(i).then_some(i as u32)).collect();
    rows.columns().iter().map(|column| Ok(take(column.as_ref(), &places, None)?)).collect()
}

/// Where each output row comes from.
struct Places {
    origins: Vec<u32>,
    elements: UInt32Array,
    ordinals: Int32Array,
}

fn places(array: &ArrayRef, offsets: &[i32], outer: bool) -> Places {
    let total = (offsets[offsets.len() - 1] - offsets[0]) as usize;
    let mut origins = Vec::with_capacity(total);
    let mut elements = Vec::with_capacity(total);
    let mut ordinals = Vec::with_capacity(total);
    for row in 0..array.len() {
        let range = if array.is_null(row) { 0..0 } else { offsets[row]..offsets[row + 1] };
        if range.is_empty() && outer {
            origins.push(row as u32);
            elements.push(None);
            ordinals.push(None);
        }
        for (ordinal, element) in range.enumerate() {
            origins.push(row as u32);
            elements.push(Some(element as u32));
            ordinals.push(Some(ordinal as i32 + 1));
        }
    }
    Places { origins, elements: elements.into(), ordinals: ordinals.into() }
}
