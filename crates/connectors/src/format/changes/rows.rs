//! Which rows the objects of a block make, and their columns.

use std::collections::HashMap;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, StructArray};
use arrow_select::interleave::interleave;
use regex::Regex;
use thalweg_core::{Column, Error, Result, RowKind};

use super::dialect::{AFTER, BEFORE, ChangeOptions, KIND};
use crate::format::bad_data::BadFields;
use crate::format::builder::{ColumnBuilder, Field, Values};

/// True for rows that say what is not there any more.
pub fn is_gone(kind: RowKind) -> bool {
    matches!(kind, RowKind::UpdateBefore | RowKind::Delete)
}

/// A row that an object makes.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The object.
    pub message: usize,
    /// What the row does.
    pub kind: RowKind,
    /// Where it is among the images of its side.
    image: usize,
    /// Where what it became is, in dialects that write only differences.
    after: usize,
    /// True if its values are those of `after` as a whole.
    is_after: bool,
}

/// The rows of a block, in order.
#[derive(Default)]
pub struct Rows {
    pub rows: Vec<Row>,
}

impl Rows {
    /// A NULL in a column that is declared NOT NULL makes the whole object a bad one: half an
    /// update would be wrong.
    pub fn refuse_nulls(&self, values: &dyn Array, declared: &Column, bad: &mut BadFields) {
        let Some(nulls) = values.nulls().filter(|_| !declared.column_type.nullable) else { return };
        for (_, row) in self.rows.iter().enumerate().filter(|(at, _)| nulls.is_null(*at)) {
            let name = &declared.name;
            let what = if is_gone(row.kind) { "before" } else { "after" };
            let reason = format!(
                "column {name}: a NULL in the row {what} the change, but the column is declared NOT NULL"
            );
            bad.refuse(row.message, reason);
        }
    }

    /// The places of the rows of all objects but these.
    pub fn without(&self, bad: impl Iterator<Item = usize>) -> Vec<u64> {
        let bad: Vec<usize> = bad.collect();
        let is_kept = |row: &Row| bad.is_empty() || bad.binary_search(&row.message).is_err();
        let rows = self.rows.iter().enumerate();
        rows.filter(|(_, row)| is_kept(row)).map(|(place, _)| place as u64).collect()
    }
}

/// Asks the fields of what rows were to note what is not there.
pub fn note_missing(fields: &mut [Field]) {
    for field in fields {
        match (&mut field.column.values, field.name.as_str()) {
            (Values::Row(inner), "payload") => note_missing(inner),
            (values, "old") => {
                if let Some(inner) = fields_of(values) {
                    inner.iter_mut().for_each(|field| field.missing = Some(Vec::new()));
                }
            }
            _ => {}
        }
    }
}

/// The fields of a ROW, or of the rows of an ARRAY.
fn fields_of(values: &mut Values) -> Option<&mut Vec<Field>> {
    match values {
        Values::Row(fields) => Some(fields),
        Values::Array(_, element) => fields_of(&mut element.values),
        _ => None,
    }
}

/// What rows were and are, and what else was read of the objects.
pub struct Images {
    parts: HashMap<String, ArrayRef>,
    before: Side,
    after: Side,
    kinds: ArrayRef,
    has_differences: bool,
}

/// The images of one side.
struct Side {
    /// By object: an image, or a list of them.
    whole: ArrayRef,
    rows: StructArray,
    /// For each column, in which images it is missing.
    missing: Vec<Vec<usize>>,
}

impl Side {
    fn of(mut column: ColumnBuilder) -> Result<Side> {
        let fields = fields_of(&mut column.values).into_iter().flatten();
        let missing = fields.map(|field| field.missing.take().unwrap_or_default()).collect();
        let whole = column.finish()?;
        let rows = match whole.as_list_opt::<i32>() {
            Some(lists) => lists.values().as_struct().clone(),
            None => whole.as_struct().clone(),
        };
        Ok(Side { whole, rows, missing })
    }

    /// Where the images of an object are; none if it has none.
    fn places(&self, message: usize) -> std::ops::Range<usize> {
        if self.whole.is_null(message) {
            return 0..0;
        }
        match self.whole.as_list_opt::<i32>() {
            Some(lists) => {
                let offsets = lists.offsets();
                offsets[message] as usize..offsets[message + 1] as usize
            }
            None => message..message + 1,
        }
    }
}

impl Images {
    /// The columns of objects, taken apart.
    ///
    /// # Errors
    /// As [`ColumnBuilder::finish`].
    pub fn of(options: &ChangeOptions, fields: Vec<Field>) -> Result<Images> {
        let mut fields = fields;
        let mut outside = Vec::new();
        if options.has_schema {
            outside = fields.split_off(1);
            fields = match fields.pop().map(|payload| payload.column.values) {
                Some(Values::Row(inner)) => inner,
                _ => return Err(Error::internal("a payload that is no object")),
            };
        }
        let mut rest = fields.split_off(KIND);
        let (after, before) = (fields.remove(AFTER), fields.remove(BEFORE));
        let kinds = rest.remove(0).column.finish()?;
        let parts = rest.into_iter().chain(outside);
        let parts = parts.map(|field| Ok((field.name, field.column.finish()?)));
        Ok(Images {
            parts: parts.collect::<Result<_>>()?,
            before: Side::of(before.column)?,
            after: Side::of(after.column)?,
            kinds,
            has_differences: options.dialect.has_differences(),
        })
    }

    /// What was read under a key.
    pub fn part(&self, key: &str) -> Option<&ArrayRef> {
        self.parts.get(key)
    }

    /// True if filters let an object through.
    pub fn is_wanted(&self, options: &ChangeOptions, message: usize) -> bool {
        let filters = [("database", &options.databases), ("table", &options.tables)];
        filters.iter().all(|(key, pattern)| self.is_included(message, key, pattern.as_ref()))
    }

    /// Adds the rows that an object makes.
    ///
    /// # Errors
    /// If it says nothing that is known, or lacks a row: why.
    pub fn rows_of(
        &self,
        options: &ChangeOptions,
        message: usize,
        rows: &mut Rows,
    ) -> Result<(), String> {
        let dialect = options.dialect;
        let key = dialect.kind_key();
        let kinds = self.kinds.as_string_view();
        if kinds.is_null(message) {
            return Err(format!(
                "the key '{key}' is missing: this is no change of {}",
                dialect.name()
            ));
        }
        let word = kinds.value(message);
        let change = dialect.change(word);
        let change =
            change.ok_or_else(|| format!("'{key}' is '{word}', which is no change of rows"))?;
        let before = self.before.places(message);
        let after = self.after.places(message);
        let (before_key, after_key) = dialect.image_keys();
        let started = rows.rows.len();
        let count = match change.kinds() {
            [RowKind::Delete] if !self.has_differences => before.len(),
            _ => after.len(),
        };
        for place in 0..count.max(usize::from(!change.kinds().is_empty())) {
            for &kind in change.kinds() {
                let is_after = match kind {
                    RowKind::UpdateBefore => false,
                    RowKind::Delete => self.has_differences,
                    RowKind::Insert | RowKind::UpdateAfter => true,
                };
                let (side, key, images) = match is_after {
                    true => (&after, after_key, &self.after.rows),
                    false => (&before, before_key, &self.before.rows),
                };
                let image = side.start + place;
                if place >= side.len() || images.is_null(image) {
                    rows.rows.truncate(started);
                    return Err(missing_image(word, key));
                }
                let after = after.start + place;
                rows.rows.push(Row { message, kind, image, after, is_after });
            }
        }
        Ok(())
    }

    fn is_included(&self, message: usize, key: &str, pattern: Option<&Regex>) -> bool {
        let Some(pattern) = pattern else { return true };
        let Some(names) = self.parts.get(key).map(|names| names.as_string_view()) else {
            return false;
        };
        !names.is_null(message) && pattern.is_match(names.value(message))
    }

    /// A column of the rows.
    ///
    /// # Errors
    /// If there are too many rows for an array.
    pub fn column(&self, at: usize, rows: &Rows) -> Result<ArrayRef> {
        let (before, after) = (self.before.rows.column(at), self.after.rows.column(at));
        let missing = &self.before.missing[at];
        let is_missing = |image: usize| {
            self.has_differences && before.is_null(image) && missing.binary_search(&image).is_ok()
        };
        let place = |row: &Row| match row.is_after {
            true => (1, row.image),
            false if is_missing(row.image) => (1, row.after),
            false => (0, row.image),
        };
        let places: Vec<(usize, usize)> = rows.rows.iter().map(place).collect();
        Ok(interleave(&[before.as_ref(), after.as_ref()], &places)?)
    }
}

fn missing_image(word: &str, key: &str) -> String {
    let why = match key {
        "before" => "; the database must log whole rows (in PostgreSQL: REPLICA IDENTITY FULL)",
        _ => "",
    };
    format!("a change '{word}' needs the row in '{key}', which is null or missing{why}")
}
