//! What a record of a file holds: the declared columns without those that folders tell, and in front
//! of them `op` where the file is a changelog.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, Int8Array};
use thalweg_core::connector::TableRequest;
use thalweg_core::{Column, DataType, Error, Result, RowKind, TableSchema};

use super::csv::values::BadFields;

/// The name of the column that tells what a row does.
pub const OP: &str = "op";

/// The columns of a record.
pub struct Record {
    /// The columns in their order in the file.
    pub schema: TableSchema,
    /// For each declared column, where it stands in the record; `None` if the folder tells it.
    pub places: Vec<Option<usize>>,
}

impl Record {
    /// The records of a table.
    pub fn of(request: &TableRequest, has_op: bool) -> Record {
        let op = Column::new(OP, DataType::STRING.nullable());
        let mut columns: Vec<Column> = has_op.then_some(op).into_iter().collect();
        let mut places = Vec::with_capacity(request.schema.len());
        for (position, column) in request.schema.columns.iter().enumerate() {
            let in_folder = request.partitioned_by.contains(&position);
            places.push((!in_folder).then_some(columns.len()));
            columns.extend((!in_folder).then(|| column.clone()));
        }
        Record { schema: TableSchema::new(columns), places }
    }
}

/// Turns the texts of `op` into the codes of row kinds. An unknown text is a bad row, whatever
/// becomes of values that cannot be read: nobody knows what the row does.
pub fn kinds(ops: &ArrayRef, bad: &mut BadFields) -> Result<ArrayRef> {
    let texts = ops.as_string_view_opt().ok_or_else(|| Error::internal("'op' is no text"))?;
    let mut codes = Vec::with_capacity(texts.len());
    for row in 0..texts.len() {
        let text = (!texts.is_null(row)).then(|| texts.value(row));
        let kind = text.and_then(RowKind::from_short);
        if kind.is_none() {
            let found = text.map_or("missing".to_owned(), |text| format!("'{text}'"));
            bad.refuse(row, format!("op is {found}: it must be +I, -U, +U or -D"));
        }
        codes.push(kind.unwrap_or(RowKind::Insert).code());
    }
    Ok(Arc::new(Int8Array::from(codes)))
}
