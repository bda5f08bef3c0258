//! The columns of files that have types of their own: found by name, checked against the declaration once per
//! file, and turned into what the table declares.

use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::Fields;
use thalweg_core::{Error, Result};

use super::csv::values::BadFields;
use super::parquet::types::{convert, describe, is_readable};
use super::paths::InputFile;
use super::source::Reading;
use crate::options::near_miss;

/// Where the wanted columns are.
pub struct FileColumns {
    /// Their positions in the file, ascending.
    in_file: Vec<usize>,
    /// For each wanted column, its place among those.
    places: Vec<usize>,
}

impl FileColumns {
    /// Finds the wanted columns among those of a file.
    ///
    /// # Errors
    /// If one is missing, or is of a type that cannot be read as the declared one.
    pub fn find(reading: &Reading, fields: &Fields) -> Result<FileColumns> {
        let mut roots = Vec::with_capacity(reading.wanted.len());
        for &position in &reading.wanted {
            let declared = &reading.schema.columns[position];
            let Some(root) = fields.iter().position(|field| *field.name() == declared.name) else {
                let names = fields.iter().map(|field| field.name().as_str());
                let help = match near_miss(&declared.name, names.clone()) {
                    Some(near) => format!("did you mean '{near}'?"),
                    None => format!("it has {}", names.collect::<Vec<_>>().join(", ")),
                };
                let message = format!("the file has no column {}", declared.name);
                return Err(Error::data(message).hint(help));
            };
            let (in_file, wanted) = (fields[root].data_type(), &declared.column_type.data_type);
            if !is_readable(in_file, wanted) {
                return Err(Error::data(format!(
                    "column {} is {} in the file, but table {} declares it as {wanted}",
                    declared.name,
                    describe(in_file),
                    reading.table
                ))
                .hint("declare the column as it is in the file and CAST it in the query"));
            }
            roots.push(root);
        }
        let mut in_file = roots.clone();
        in_file.sort_unstable();
        in_file.dedup();
        let place = |root: &usize| in_file.partition_point(|at| at < root);
        let places = roots.iter().map(place).collect();
        Ok(FileColumns { in_file, places })
    }

    /// The positions in the file of what is to be read, ascending.
    pub fn in_file(&self) -> &[usize] {
        &self.in_file
    }

    /// Rows that were read as the table delivers them.
    ///
    /// # Errors
    /// If a value does not fit its declaration; with the row in the batch, from 0.
    pub fn delivered(
        &self,
        reading: &Reading,
        file: &InputFile,
        batch: &RecordBatch,
    ) -> Result<RecordBatch, (Error, u64)> {
        let mut columns = self.declared(reading, batch)?;
        refuse_nulls(reading, &columns)?;
        let mut bad = BadFields::new(reading.on_bad);
        let kinds = reading.take_kinds(&mut columns, &mut bad).map_err(|e| (e, 0))?;
        if let Some((row, reason)) = bad.into_rows().into_iter().next() {
            return Err((Error::data(reason).hint("correct the row"), row as u64));
        }
        reading.batch(columns, kinds, batch.num_rows(), file).map_err(|e| (e, 0))
    }

    fn declared(
        &self,
        reading: &Reading,
        batch: &RecordBatch,
    ) -> Result<Vec<ArrayRef>, (Error, u64)> {
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(reading.wanted.len());
        for (&position, &place) in reading.wanted.iter().zip(&self.places) {
            let declared = &reading.schema.columns[position];
            let column = convert(batch.column(place), &declared.column_type.data_type);
            columns.push(column.map_err(|(e, row)| {
                let message = format!("column {}: {}", declared.name, e.message());
                (Error::new(e.kind(), message), row)
            })?);
        }
        Ok(columns)
    }
}

/// Everything behind the source relies on NOT NULL. The error comes with its row.
fn refuse_nulls(reading: &Reading, columns: &[ArrayRef]) -> Result<(), (Error, u64)> {
    for (&position, values) in reading.wanted.iter().zip(columns) {
        let declared = &reading.schema.columns[position];
        let Some(nulls) = values.nulls().filter(|_| !declared.column_type.nullable) else {
            continue;
        };
        if let Some(row) = (0..values.len()).find(|&row| nulls.is_null(row)) {
            let message = format!(
                "column {} ({}): a NULL, but the column is declared NOT NULL",
                declared.name, declared.column_type.data_type
            );
            let hint = "declare the column without NOT NULL, and leave it out of the primary key";
            return Err((Error::data(message).hint(hint), row as u64));
        }
    }
    Ok(())
}
