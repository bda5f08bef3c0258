//! Which rows of a table a query needs at most, for connectors that know more than one row at a
//! time: files of Parquet have the least and the largest value of each part.
//!
//! Bounds are taken from the filter right above a scan, if nobody else reads the scan. The filter
//! stays: a source may leave rows out, and need not.
//!
//! A table with a watermark is left whole in a job that streams. Its watermark depends on all rows,
//! also on those that a query does not need, and with it which of the other rows are late: results
//! would depend on how rows lie in files. In batch mode no row is late.

use chrono_tz::Tz;
use thalweg_core::TableSchema;
use thalweg_core::connector::{AcceptedChanges, ColumnBound};
use thalweg_core::text::TextColumn;
use thalweg_expr::{CompareOp, Expr, ExprKind};

use crate::catalog::RuntimeMode;
use crate::logical::column_of;
use crate::logical::join::conjuncts;
use crate::resolved_table::{ColumnOrigin, ResolvedTable};

/// The bounds that a filter over the scan of these declared columns sets.
pub(super) fn bounds_of(
    predicate: &Expr,
    table: &ResolvedTable,
    columns: &[usize],
    mode: RuntimeMode,
) -> Vec<ColumnBound> {
    let is_timed = table.watermark.is_some() && mode == RuntimeMode::Streaming;
    if is_timed || table.reading.changes != AcceptedChanges::Inserts {
        return Vec::new();
    }
    conjuncts(predicate.clone()).iter().flat_map(|part| bounds(part, table, columns)).collect()
}

/// For EXPLAIN: what the bounds say.
pub(super) fn describe_bounds(bounds: &[ColumnBound], schema: &TableSchema) -> String {
    let text = |bound: &ColumnBound| {
        let op = match (bound.is_lower, bound.is_inclusive) {
            (true, true) => ">=",
            (true, false) => ">",
            (false, true) => "<=",
            (false, false) => "<",
        };
        let declared = schema.columns.iter().find(|column| column.name == bound.column)?;
        let mut value = String::new();
        let data_type = &declared.column_type.data_type;
        TextColumn::new(bound.value.as_ref(), data_type, Tz::UTC).append(&mut value, 0);
        Some(format!("{} {op} {value}", bound.column))
    };
    bounds.iter().filter_map(text).collect::<Vec<_>>().join(" AND ")
}

/// Those of one condition: two of `=`, one of `<` and the like, none of others.
fn bounds(condition: &Expr, table: &ResolvedTable, columns: &[usize]) -> Vec<ColumnBound> {
    let ExprKind::Compare { op, left, right } = &condition.kind else { return Vec::new() };
    let found = match (column_of(left), column_of(right)) {
        (Some(column), None) => Some((column, *op, right)),
        (None, Some(column)) => mirrored(*op).map(|op| (column, op, left)),
        _ => None,
    };
    let Some((column, op, value)) = found else { return Vec::new() };
    let declared = &table.columns[columns[column]];
    let (ColumnOrigin::Physical(_), Some(value)) = (&declared.origin, value.constant()) else {
        return Vec::new();
    };
    if *value.data_type() != declared.column.column_type.data_type.arrow() {
        return Vec::new();
    }
    let bound = |is_lower, is_inclusive| ColumnBound {
        column: declared.column.name.clone(),
        is_lower,
        is_inclusive,
        value: value.clone(),
    };
    match op {
        CompareOp::Equal => vec![bound(true, true), bound(false, true)],
        CompareOp::Greater => vec![bound(true, false)],
        CompareOp::GreaterOrEqual => vec![bound(true, true)],
        CompareOp::Less => vec![bound(false, false)],
        CompareOp::LessOrEqual => vec![bound(false, true)],
        CompareOp::NotEqual | CompareOp::Distinct | CompareOp::NotDistinct => Vec::new(),
    }
}

/// The comparison with its sides exchanged.
fn mirrored(op: CompareOp) -> Option<CompareOp> {
    Some(match op {
        CompareOp::Equal => CompareOp::Equal,
        CompareOp::Less => CompareOp::Greater,
        CompareOp::LessOrEqual => CompareOp::GreaterOrEqual,
        CompareOp::Greater => CompareOp::Less,
        CompareOp::GreaterOrEqual => CompareOp::LessOrEqual,
        CompareOp::NotEqual | CompareOp::Distinct | CompareOp::NotDistinct => return None,
    })
}
