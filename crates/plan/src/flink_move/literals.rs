//! Times as they stand in the text of a script.

use thalweg_core::text::format_timestamp_millis;
use thalweg_core::{DataType, Error, Result};

use crate::ast::{Statement, StatementKind};
use crate::parser::parse_script;
use crate::planner::Planner;

pub(super) fn literal(at_ms: i64, is_instant: bool) -> String {
    match is_instant {
        true => format!("TO_TIMESTAMP_LTZ({at_ms}, 3)"),
        false => format!("TIMESTAMP '{}'", format_timestamp_millis(at_ms, 3)),
    }
}

/// Whether the one column of a query is a TIMESTAMP_LTZ.
pub(super) fn is_instant(planner: &Planner, query: &str) -> Result<bool> {
    let statements = parse_script(query)?;
    let [Statement { kind: StatementKind::Select(query), .. }] = &statements[..] else {
        return Err(Error::internal(format!("one query was expected: {query}")));
    };
    let schema = planner.result_schema(query)?;
    let first = schema.columns.first().map(|column| &column.column_type.data_type);
    Ok(matches!(first, Some(DataType::TimestampLtz(_))))
}
