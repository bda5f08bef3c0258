//! The lengths of text and bytes in front of a table, where a misfit fails the job.

use arrow_array::ArrayRef;
use arrow_array::cast::AsArray;
use thalweg_core::{DataType, Error, Result};

use super::definition::Call;
use crate::expr::{Expr, Session};
use crate::function::Arguments;

/// The same value, or an error that names the column.
pub(crate) fn checked(
    expr: Expr,
    target: &DataType,
    column: &str,
    session: &Session,
) -> Result<Expr> {
    let column_type = target.clone().nullable().with_nullable(expr.column_type.nullable);
    let column = column.to_owned();
    let kernel = move |a: &Arguments<'_>| -> Result<ArrayRef> {
        let array = a.value(0).array();
        let misfit =
            match a.result.is_string() {
                true => array.as_string_view().iter().flatten().find_map(|text| {
                    let length = text.chars().count();
                    (!fits(length, a.result)).then_some((length, "characters"))
                }),
                false => array.as_binary::<i32>().iter().flatten().find_map(|bytes| {
                    (!fits(bytes.len(), a.result)).then_some((bytes.len(), "bytes"))
                }),
            };
        match misfit {
            None => Ok(array.clone()),
            Some((length, unit)) => Err(Error::data(format!(
                "column {column} is {}, but a value of {length} {unit} is to be written into it",
                a.result
            ))
            .hint(
                "'table.exec.sink.type-length-enforcer' = 'TRIM_PAD' cuts it, 'IGNORE' writes it",
            )),
        }
    };
    let call = Call { name: "CHECK_LENGTH", args: vec![expr], session };
    Ok(call.with_function(column_type, kernel, |function| function.can_fail = true))
}

fn fits(length: usize, data_type: &DataType) -> bool {
    match data_type {
        DataType::Char(of_type) | DataType::Binary(of_type) => length == *of_type as usize,
        DataType::Varchar(most) | DataType::Varbinary(most) => length <= *most as usize,
        _ => true,
    }
}
