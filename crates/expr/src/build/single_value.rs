//! The value of a sub-query, which has one row at most.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use thalweg_core::{Error, Result};

use crate::expr::{Expr, ExprKind, Session};
use crate::function::{Arguments, Function};

/// The value, where `rows` (a BIGINT) is at most 1; NULL where there is no row. More rows fail.
pub fn single_value(value: Expr, rows: Expr, session: &Session) -> Expr {
    let column_type = value.column_type.clone().with_nullable(true);
    let kernel = |arguments: &Arguments<'_>| -> Result<_> {
        let rows = arguments.values[1].clone().into_rows(arguments.rows)?;
        let found = rows.as_primitive::<Int64Type>().iter().flatten().find(|rows| *rows > 1);
        match found {
            None => arguments.values[0].clone().into_rows(arguments.rows),
            Some(rows) => {
                Err(Error::data(format!("a sub-query that stands for one value has {rows} rows"))
                    .hint("aggregate its rows (MAX, MIN), or choose one with a condition"))
            }
        }
    };
    let function = Function {
        name: "SINGLE_VALUE".to_owned(),
        kernel: Arc::new(kernel),
        zone: session.zone,
        deterministic: true,
        uses_wall_clock: false,
        uses_watermark: false,
        can_fail: true,
        executor: None,
    };
    Expr::new(ExprKind::Call { function: Arc::new(function), args: vec![value, rows] }, column_type)
}
