//! What a record of a file holds: the declared columns without those that folders name, and in
//! front of them `op` where the file is a changelog.

use thalweg_core::connector::TableRequest;
use thalweg_core::{Column, DataType, TableSchema};

use crate::format::encoding::OP;

/// The columns of a record.
pub struct Record {
    /// The columns in their order in the file.
    pub schema: TableSchema,
    /// For each declared column, where it stands in the record; `None` if the folder names it.
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
