//! TYPEOF: the type of an expression as Flink writes it. CURRENT_DATABASE: the one that there is.

use thalweg_core::quoting::quoted_name;
use thalweg_core::types::MAX_LENGTH;
use thalweg_core::{Column, ColumnType, DataType, Result};

use super::definition::{Call, Definition, custom};
use crate::build::string_literal;
use crate::expr::Expr;

pub(super) const DEFINITIONS: &[Definition] = &[
    custom("TYPEOF", "any boolean?", type_of),
    custom("CURRENT_DATABASE", "", |_| {
        let mut name = string_literal("default_database");
        name.column_type.data_type = DataType::STRING;
        Ok(name)
    }),
];

/// `TYPEOF(x [, serializable])`; both forms are the same for the types that there are.
fn type_of(call: Call<'_>) -> Result<Expr> {
    let name = name_of(&call.args[0].column_type);
    let mut literal = string_literal(&name);
    literal.column_type = DataType::STRING.nullable();
    Ok(literal)
}

fn name_of(column_type: &ColumnType) -> String {
    let name = match &column_type.data_type {
        DataType::Null => return "NULL".to_owned(),
        DataType::Decimal(precision, scale) => format!("DECIMAL({precision}, {scale})"),
        DataType::Varchar(MAX_LENGTH) => "STRING".to_owned(),
        DataType::IntervalDayTime => "INTERVAL SECOND(3)".to_owned(),
        DataType::IntervalYearMonth => "INTERVAL MONTH".to_owned(),
        DataType::Array(element) => format!("ARRAY<{}>", name_of(element)),
        DataType::Map(key, value) => format!("MAP<{}, {}>", name_of(key), name_of(value)),
        DataType::Row(columns) => {
            let field = |column: &Column| {
                format!("{} {}", quoted_name(&column.name), name_of(&column.column_type))
            };
            format!("ROW<{}>", columns.iter().map(field).collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    };
    if column_type.nullable { name } else { format!("{name} NOT NULL") }
}
