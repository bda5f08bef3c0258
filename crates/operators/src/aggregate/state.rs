//! The states of an aggregate as columns of a table of state, and back.
//!
//! A state is one or more columns with a row per group. What is a number is captured as a number,
//! so that a person who opens a snapshot sees sums and counts: the columns of an aggregate named
//! `total` are `total.sum` and `total.count`, or just `total` where there is only one. Whoever
//! reads looks for columns by name and type, and what is not there is an error of the snapshot.
//!
//! What it does not do: it knows neither keys nor windows; whoever holds the groups adds them.
//!
//! Columns describe values and not the layout in memory, so another implementation of a function
//! can restore them.

use arrow_array::cast::AsArray;
use arrow_array::types::ArrowPrimitiveType;
use arrow_array::{Array, ArrayRef, ListArray, PrimitiveArray, RecordBatch};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{DataType as Arrow, Field};
use std::sync::Arc;
use thalweg_core::{Error, Result};

use crate::tables::{column, does_not_fit, numbers_of, typed};

/// The columns that hold the states of some groups.
#[derive(Debug, Default)]
pub struct StateColumns {
    name: String,
    columns: Vec<(String, ArrayRef)>,
}

impl StateColumns {
    /// The columns added from now on are those of the aggregate with this name.
    pub fn begin(&mut self, name: &str) {
        name.clone_into(&mut self.name);
    }

    /// Adds a column. The part of the state that it holds is empty where it is the only one.
    pub fn add(&mut self, part: &str, column: ArrayRef) {
        self.columns.push((column_name(&self.name, part), column));
    }

    /// Adds a column of numbers.
    pub fn add_numbers<T: ArrowPrimitiveType>(
        &mut self,
        part: &str,
        numbers: impl Iterator<Item = T::Native>,
    ) {
        self.add_numbers_of::<T>(part, T::DATA_TYPE, numbers);
    }

    /// The same, of a type with parameters.
    pub fn add_numbers_of<T: ArrowPrimitiveType>(
        &mut self,
        part: &str,
        of: Arrow,
        numbers: impl Iterator<Item = T::Native>,
    ) {
        let numbers = PrimitiveArray::<T>::from_iter_values(numbers);
        self.add(part, Arc::new(numbers.with_data_type(of)));
    }

    /// The columns by name.
    pub fn finish(self) -> Vec<(String, ArrayRef)> {
        self.columns
    }
}

/// Rows of a table of state that hold an aggregate's columns.
#[derive(Clone, Copy, Debug)]
pub struct StateRows<'a> {
    batch: &'a RecordBatch,
    name: &'a str,
}

impl<'a> StateRows<'a> {
    /// The columns in these rows of the aggregate with this name.
    pub fn new(batch: &'a RecordBatch, name: &'a str) -> Self {
        StateRows { batch, name }
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.batch.num_rows()
    }

    /// True without rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A column, which must be of this type.
    ///
    /// # Errors
    /// If it is not there, or of another type.
    pub fn column(&self, part: &str, of: &Arrow) -> Result<&'a ArrayRef> {
        let name = column_name(self.name, part);
        let column = column(self.batch, &name)?;
        if column.data_type().equals_datatype(of) {
            return Ok(column);
        }
        let found = column.data_type();
        Err(does_not_fit(format!("column '{name}' is of type {found} and not {of}")))
    }

    /// A column of numbers, some of which may be NULL. Its precision and zone are not looked at.
    ///
    /// # Errors
    /// As [`StateRows::column`].
    pub fn primitive<T: ArrowPrimitiveType>(&self, part: &str) -> Result<&'a PrimitiveArray<T>> {
        typed(self.batch, &column_name(self.name, part))
    }

    /// A column of numbers, none of which is NULL.
    ///
    /// # Errors
    /// As [`StateRows::column`], or if there is a NULL.
    pub fn numbers<T: ArrowPrimitiveType>(&self, part: &str) -> Result<&'a [T::Native]> {
        numbers_of::<T>(self.batch, &column_name(self.name, part))
    }

    /// A column of lists of values of this type.
    ///
    /// # Errors
    /// As [`StateRows::column`].
    pub fn lists(&self, part: &str, of: &Arrow) -> Result<&'a ListArray> {
        let name = column_name(self.name, part);
        let column = column(self.batch, &name)?;
        let lists = column.as_list_opt::<i32>();
        lists.filter(|lists| lists.value_type().equals_datatype(of)).ok_or_else(|| {
            let found = column.data_type();
            does_not_fit(format!("column '{name}' is of type {found} and not a list of {of}"))
        })
    }

    /// The error of a column whose values cannot be those of a state.
    pub fn damaged(&self, part: &str, what: &str) -> Error {
        does_not_fit(format!("column '{}' {what}", column_name(self.name, part)))
    }
}

fn column_name(name: &str, part: &str) -> String {
    if part.is_empty() { name.to_owned() } else { format!("{name}.{part}") }
}

/// A list for each group, which divide these values among them.
pub(crate) fn lists(lengths: Vec<usize>, values: ArrayRef) -> Result<ArrayRef> {
    if i32::try_from(lengths.iter().sum::<usize>()).is_err() {
        return Err(Error::data(
            "some keys keep more than 2^31 values together, too many for a snapshot",
        )
        .hint("aggregate fewer rows: per window, or with FILTER (WHERE …)"));
    }
    let element = Arc::new(Field::new("item", values.data_type().clone(), true));
    let offsets = OffsetBuffer::from_lengths(lengths);
    Ok(Arc::new(ListArray::try_new(element, offsets, values, None)?))
}

/// The elements of lists, which stand in sequence, and to which of `ids` each belongs.
pub(crate) fn elements_of(lists: &ListArray, ids: &[u32]) -> (ArrayRef, Vec<u32>) {
    let offsets = lists.value_offsets();
    let (first, last) = (offsets[0] as usize, offsets[offsets.len() - 1] as usize);
    let elements = lists.values().slice(first, last - first);
    let length = |row: usize| (offsets[row + 1] - offsets[row]) as usize;
    let owners = ids.iter().enumerate().flat_map(|(row, &id)| std::iter::repeat_n(id, length(row)));
    (elements, owners.collect())
}
