//! Keys in tables of state: their owners, and columns by the names and types that the input has.
//!
//! Dense ids are not captured: a key is named by its values, and restoring interns them again.
//!
//! Restoring finds the columns by name and checks their types, so their place in the table means
//! nothing.

use arrow_array::{ArrayRef, RecordBatch};
use thalweg_core::{DataType, Result, TableSchema};

use crate::keys::KeyTable;
use crate::tables::{column, does_not_fit, owners, unique_names};

/// How an operator's keys are captured.
#[derive(Clone, Debug)]
pub(crate) struct KeyColumns {
    names: Vec<String>,
    types: Vec<DataType>,
}

impl KeyColumns {
    /// Keys of these columns of the input, which must be there.
    pub fn new(input: &TableSchema, keys: &[usize]) -> Self {
        let columns = || keys.iter().map(|&key| &input.columns[key]);
        KeyColumns {
            names: unique_names(columns().map(|column| &column.name[..])),
            types: columns().map(|column| column.column_type.data_type.clone()).collect(),
        }
    }

    /// Names for other columns next to the keys.
    pub fn names_besides_keys<'a>(&'a self, wanted: impl Iterator<Item = &'a str>) -> Vec<String> {
        let keys = self.names.iter().map(|name| &name[..]);
        unique_names(keys.chain(wanted)).split_off(self.names.len())
    }

    /// How many columns a key has.
    pub fn width(&self) -> usize {
        self.names.len()
    }

    /// The virtual partitions of these keys, and the keys as named columns.
    ///
    /// # Errors
    /// If the keys cannot be decoded.
    pub fn columns_of(
        &self,
        keys: &KeyTable,
        ids: &[u32],
    ) -> Result<(ArrayRef, Vec<(String, ArrayRef)>)> {
        let columns = keys.take_keys(ids)?;
        let named = self.names.iter().cloned().zip(columns).collect();
        Ok((owners(ids.iter().map(|&id| keys.hash_of(id))), named))
    }

    /// The key columns of some rows of a table.
    ///
    /// # Errors
    /// If one is not there, or of another type.
    pub fn columns(&self, rows: &RecordBatch) -> Result<Vec<ArrayRef>> {
        let found = |(name, data_type): (&String, &DataType)| {
            let found = column(rows, name)?;
            if found.data_type().equals_datatype(&data_type.arrow()) {
                return Ok(ArrayRef::clone(found));
            }
            let other = found.data_type();
            Err(does_not_fit(format!("key '{name}' is of type {other} and not {data_type}")))
        };
        self.names.iter().zip(&self.types).map(found).collect()
    }

    /// Interns the keys of some rows of a table, which are restored now, and appends their ids.
    ///
    /// # Errors
    /// As [`KeyColumns::columns`].
    pub fn intern(
        &self,
        rows: &RecordBatch,
        keys: &mut KeyTable,
        ids: &mut Vec<u32>,
    ) -> Result<()> {
        keys.intern_owned(&self.columns(rows)?, rows.num_rows(), ids)
    }
}
