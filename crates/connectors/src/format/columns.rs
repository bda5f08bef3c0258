//! The columns of files that have types of their own: found by name, checked against the
//! declaration once per file, and converted to what the table declares.

use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::Fields;
use thalweg_core::connector::nearest_or_all;
use thalweg_core::{Error, Result};

use super::bad_data::{BadFields, DecodeError};
use super::parquet::types::{convert, describe, is_readable};
use super::records::RecordLayout;

/// Where the wanted columns are.
pub struct FileColumns {
    /// Their positions in the file, ascending.
    in_file: Vec<usize>,
    /// For each wanted column, its index in `in_file`.
    indices: Vec<usize>,
}

impl FileColumns {
    /// Finds the wanted columns among those of an input: a `file`, or what else messages call it.
    ///
    /// # Errors
    /// If one is missing, or is of a type that cannot be read as the declared one.
    pub fn find(layout: &RecordLayout, fields: &Fields, input: &str) -> Result<FileColumns> {
        let mut roots = Vec::with_capacity(layout.wanted.len());
        for &position in &layout.wanted {
            let declared = &layout.schema.columns[position];
            let Some(root) = fields.iter().position(|field| *field.name() == declared.name) else {
                let names = fields.iter().map(|field| field.name().as_str());
                let message = format!("the {input} has no column {}", declared.name);
                let help = nearest_or_all(&declared.name, names, "it has");
                return Err(Error::data(message).hint(help));
            };
            let (in_file, wanted) = (fields[root].data_type(), &declared.column_type.data_type);
            if !is_readable(in_file, wanted) {
                return Err(Error::data(format!(
                    "column {} is {} in the {input}, but table {} declares it as {wanted}",
                    declared.name,
                    describe(in_file),
                    layout.table
                ))
                .hint(format!(
                    "declare the column as it is in the {input} and CAST it in the query"
                )));
            }
            roots.push(root);
        }
        let mut in_file = roots.clone();
        in_file.sort_unstable();
        in_file.dedup();
        let index = |root: &usize| in_file.partition_point(|at| at < root);
        let indices = roots.iter().map(index).collect();
        Ok(FileColumns { in_file, indices })
    }

    /// The positions in the file of what is to be read, ascending.
    pub fn in_file(&self) -> &[usize] {
        &self.in_file
    }

    /// Rows that were read, as the layout delivers them.
    ///
    /// # Errors
    /// If a value does not fit its declaration; with the row in the batch, from 0.
    pub fn delivered(
        &self,
        layout: &RecordLayout,
        batch: &RecordBatch,
    ) -> Result<RecordBatch, DecodeError> {
        let columns = self.declared(layout, batch)?;
        refuse_nulls(layout, &columns)?;
        let mut bad = BadFields::new(layout.policy);
        let delivered = layout.batch(columns, batch.num_rows(), &mut bad)?;
        match bad.into_rows().into_iter().next() {
            None => Ok(delivered),
            Some((row, reason)) => {
                let reason = reason.unwrap_or_default();
                Err(DecodeError::at(Error::data(reason).hint("correct the row"), row as u64))
            }
        }
    }

    fn declared(
        &self,
        layout: &RecordLayout,
        batch: &RecordBatch,
    ) -> Result<Vec<ArrayRef>, DecodeError> {
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(layout.wanted.len());
        for (&position, &index) in layout.wanted.iter().zip(&self.indices) {
            let declared = &layout.schema.columns[position];
            let column = convert(batch.column(index), &declared.column_type.data_type);
            columns.push(column.map_err(|(e, row)| {
                let message = format!("column {}: {}", declared.name, e.message());
                DecodeError::at(Error::new(e.kind(), message), row)
            })?);
        }
        Ok(columns)
    }
}

/// Operators downstream rely on NOT NULL. The error comes with its row.
fn refuse_nulls(layout: &RecordLayout, columns: &[ArrayRef]) -> Result<(), DecodeError> {
    for (&position, values) in layout.wanted.iter().zip(columns) {
        let declared = &layout.schema.columns[position];
        let Some(nulls) = values.nulls().filter(|_| !declared.column_type.nullable) else {
            continue;
        };
        if let Some(row) = (0..values.len()).find(|&row| nulls.is_null(row)) {
            let message = format!(
                "column {} ({}): a NULL, but the column is declared NOT NULL",
                declared.name, declared.column_type.data_type
            );
            let hint = "declare the column without NOT NULL, and leave it out of the primary key";
            return Err(DecodeError::at(Error::data(message).hint(hint), row as u64));
        }
    }
    Ok(())
}
