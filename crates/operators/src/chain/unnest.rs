//! UNNEST: one row per element of an array or map.
//!
//! | array | inner | outer (LEFT JOIN) |
//! |---|---|---|
//! | `[a, b]` | 2 rows | 2 rows |
//! | `[]` or NULL | no row | 1 row, NULL for the element |
//! | `[NULL]` | 1 row, NULL | 1 row, NULL |
//!
//! The elements of a batch lie in one array already. Where each of them becomes a row, that array
//! is the result column, and only the other columns are repeated.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, Int32Array, NullArray, RecordBatch, UInt32Array};
use arrow_schema::{DataType, Field, FieldRef, Schema};
use arrow_select::take::{take, take_arrays};
use thalweg_core::{Column, Error, Result, TableSchema};
use thalweg_expr::Expr;

use super::parts::{Budget, Cursor};
use super::prune::Live;
use super::rows::Rows;
use crate::rows::columns::batch_of;

/// How rows are repeated for the elements of an array or map.
pub(super) struct Unnest {
    pub array: Expr,
    /// What is appended to a row.
    pub columns: Vec<Column>,
    /// A row without elements stays, with NULL.
    pub outer: bool,
    /// The last column is the number of the element.
    pub ordinality: bool,
    /// The columns that are read behind it; `None` means all.
    pub read: Live,
}

impl Unnest {
    /// Repeats rows from a place on, as long as there is room; where to continue if there is not
    /// for all.
    pub fn apply(
        &self,
        rows: &mut Rows,
        wall_ms: i64,
        from: &Cursor,
        room_bytes: usize,
    ) -> Result<Option<Cursor>> {
        let array = match &from.array {
            Some(array) => Arc::clone(array),
            None => rows.evaluate(&self.array, wall_ms)?,
        };
        let (offsets, elements) = elements_of(&array)?;
        let is_empty = |ends: &[i32]| ends[0] == ends[1];
        let all_stay = array.null_count() == 0 && !(self.outer && offsets.windows(2).any(is_empty));
        let span = self.span(&rows.batch, &array, offsets, from, room_bytes);
        let (origins, appended) = match all_stay && !self.ordinality {
            true => in_place(offsets, &elements, &span),
            false => {
                let places = places(&array, offsets, self.outer, &span);
                by_place(places, &elements, self.ordinality)?
            }
        };
        if appended.len() != self.columns.len() {
            return Err(Error::internal(format!(
                "UNNEST gives {} columns where {} are expected",
                appended.len(),
                self.columns.len()
            )));
        }
        let origins = UInt32Array::from(origins);
        let (mut fields, mut columns) = self.repeated(&rows.batch, &origins)?;
        fields.extend(TableSchema::new(self.columns.clone()).arrow().fields().iter().cloned());
        columns.extend(appended);
        let batch = batch_of(&Arc::new(Schema::new(fields)), columns, origins.len())?;
        rows.replace(batch, origins.values());
        let (row, nth) = span.to;
        let next = Cursor { row, nth, array: Some(Arc::clone(&array)), rows_max: None };
        Ok((row < array.len()).then_some(next))
    }

    /// How far the room goes.
    fn span(
        &self,
        batch: &RecordBatch,
        array: &ArrayRef,
        offsets: &[i32],
        from: &Cursor,
        room_bytes: usize,
    ) -> Span {
        let is_read = |place| self.read.as_ref().is_none_or(|read| read.contains(&place));
        let appended = 16 * self.columns.len();
        let mut budget = Budget::new(batch, is_read, appended, room_bytes);
        let first = (from.row, from.nth);
        let most = (offsets[offsets.len() - 1] - offsets[0]) as usize + array.len();
        if from.is_start() && budget.is_plenty(most) {
            return Span { from: first, to: (array.len(), 0) };
        }
        for row in from.row..array.len() {
            let made = if row == from.row { from.nth } else { 0 };
            let wanted = copies(array, offsets, self.outer, row) - made;
            let taken = budget.take(row, wanted);
            if taken < wanted {
                return Span { from: first, to: (row, made + taken) };
            }
        }
        Span { from: first, to: (array.len(), 0) }
    }

    /// The columns of rows for each of their elements. One that nobody reads keeps its place,
    /// without values.
    fn repeated(
        &self,
        batch: &RecordBatch,
        origins: &UInt32Array,
    ) -> Result<(Vec<FieldRef>, Vec<ArrayRef>)> {
        let schema = batch.schema_ref();
        let one = |(place, column): (usize, &ArrayRef)| -> Result<(FieldRef, ArrayRef)> {
            let field = &schema.fields()[place];
            if self.read.as_ref().is_some_and(|read| !read.contains(&place)) {
                let empty = Field::new(field.name(), DataType::Null, true);
                return Ok((Arc::new(empty), Arc::new(NullArray::new(origins.len()))));
            }
            Ok((Arc::clone(field), take(column.as_ref(), origins, None)?))
        };
        let repeated = batch.columns().iter().enumerate().map(one);
        Ok(repeated.collect::<Result<Vec<_>>>()?.into_iter().unzip())
    }
}

/// Output rows: from one of a row to before one of another.
struct Span {
    from: (usize, usize),
    to: (usize, usize),
}

impl Span {
    /// Which of the copies of a row, of this many, belong to it.
    fn of_row(&self, row: usize, copies: usize) -> std::ops::Range<usize> {
        let from = if row == self.from.0 { self.from.1 } else { 0 };
        let to = if row == self.to.0 { self.to.1 } else { copies };
        from..to
    }

    /// The rows that it has copies of.
    fn rows(&self) -> std::ops::Range<usize> {
        self.from.0..self.to.0 + usize::from(self.to.1 > 0)
    }
}

/// How often a row is repeated.
fn copies(array: &ArrayRef, offsets: &[i32], outer: bool, row: usize) -> usize {
    let elements = if array.is_null(row) { 0 } else { offsets[row + 1] - offsets[row] };
    (elements as usize).max(usize::from(outer))
}

/// The row of each element, and the elements as they lie: each of them is an output row.
fn in_place(offsets: &[i32], elements: &[ArrayRef], span: &Span) -> (Vec<u32>, Vec<ArrayRef>) {
    let at = |(row, nth): (usize, usize)| offsets[row] as usize + nth;
    let (first, last) = (at(span.from), at(span.to));
    let mut origins = Vec::with_capacity(last - first);
    for row in span.rows() {
        let end = (offsets[row + 1] as usize).min(last);
        origins.resize(end - first, row as u32);
    }
    (origins, elements.iter().map(|element| element.slice(first, last - first)).collect())
}

/// The row of each output row, and what is appended to it.
fn by_place(
    places: Places,
    elements: &[ArrayRef],
    ordinality: bool,
) -> Result<(Vec<u32>, Vec<ArrayRef>)> {
    let mut appended = take_arrays(elements, &places.elements, None)?;
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
    Ok(take_arrays(rows.columns(), &places, None)?)
}

/// Where each output row comes from.
struct Places {
    origins: Vec<u32>,
    elements: UInt32Array,
    ordinals: Int32Array,
}

fn places(array: &ArrayRef, offsets: &[i32], outer: bool, span: &Span) -> Places {
    let (mut origins, mut elements, mut ordinals) = (Vec::new(), Vec::new(), Vec::new());
    for row in span.rows() {
        let copies = copies(array, offsets, outer, row);
        let is_without = array.is_null(row) || offsets[row] == offsets[row + 1];
        for nth in span.of_row(row, copies) {
            origins.push(row as u32);
            elements.push((!is_without).then_some(offsets[row] as u32 + nth as u32));
            ordinals.push((!is_without).then_some(nth as i32 + 1));
        }
    }
    Places { origins, elements: elements.into(), ordinals: ordinals.into() }
}
