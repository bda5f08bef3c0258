//! Late rows: which of their columns a table wants, and how they get there.
//!
//! `SET 'late.data' = 'late_rows'` sends the late rows of every operator of a statement to one
//! table. The columns of the table are matched by name with those of the rows that are judged, that
//! is, with the operator's input:
//!
//! ```text
//! window over (ts, k, v) ──port 1──▶ chain: project, check NOT NULL ──▶ sink late_rows
//! ```
//!
//! **Invariants:**
//! - `logical::demand` has asked for these columns before pruning, so they are still there;
//! - each operator has a chain of its own, since its late rows have columns of their own; the two
//!   sides of an interval join have one each;
//! - an operator whose time can't be late (that of a window) asks for no columns, and a statement
//!   in which nothing judges lateness may not name a table;
//! - a late row that lacks a NOT NULL column fails the job or is left out
//!   (`table.exec.sink.not-null-enforcer`), like any row written to a sink.

use std::sync::Arc;

use thalweg_core::graph::Input;
use thalweg_core::{Column, DataType, Error, Result, TableSchema};
use thalweg_expr::{Expr, ExprKind, build};
use thalweg_operators::chain::{NotNull, Step};
use thalweg_operators::join::sides::Side;

use super::LateData;
use super::late_rows::{LateOperator, can_be_late};
use super::lower::{Edges, Lowering};
use crate::bind::near::did_you_mean;
use crate::logical::Field;
use crate::resolved_table::ResolvedTable;

impl LateData {
    /// For a table of late rows, where its columns stand in the input of an operator.
    /// In the order of the table's columns. Empty if late rows go to no table.
    pub(super) fn columns(&self, fields: &[Field], rowtime: usize) -> Result<Vec<usize>> {
        let columns = self.columns_of_side(fields, &[], rowtime)?;
        Ok(columns.into_iter().flatten().collect())
    }

    /// The same for a side of a join, which lacks the columns that only the other side has.
    /// A column that neither side has is an error; one of the other side is NULL in this side's
    /// rows.
    pub(super) fn columns_of_side(
        &self,
        fields: &[Field],
        other: &[Field],
        rowtime: usize,
    ) -> Result<Vec<Option<usize>>> {
        let LateData::Table(table) = self else { return Ok(Vec::new()) };
        if !can_be_late(fields, rowtime) {
            return Ok(Vec::new());
        }
        let place = |column: &Column, fields: &[Field]| {
            fields.iter().position(|field| field.name == column.name)
        };
        let position = |column: &Column| match place(column, fields) {
            None if place(column, other).is_none() => {
                let error = Error::plan(format!(
                    "late rows go to '{}' ('late.data'), but its column '{}' is no column of the rows that are judged",
                    table.name, column.name
                ));
                let names = || fields.iter().chain(other).map(|f| f.name.as_str());
                let listed = names().collect::<Vec<_>>().join(", ");
                Err(did_you_mean(error, &column.name, names())
                    .hint(format!("these rows have {listed}"))
                    .at(table.spans.column(&column.name)))
            }
            found => Ok(found),
        };
        table.written_schema().columns.iter().map(position).collect()
    }
}

impl Lowering<'_> {
    /// The edges by which late rows arrive at their table.
    pub(super) fn late_edges(&mut self, table: &Arc<ResolvedTable>) -> Result<Edges> {
        let operators = std::mem::take(&mut self.late).operators;
        if operators.is_empty() {
            return Err(Error::plan(format!(
                "'late.data' names table '{}', but nothing in this statement judges rows late",
                table.name
            ))
            .hint("RESET 'late.data' before statements without windows"));
        }
        let mut edges = Vec::new();
        for operator in operators {
            edges.extend(self.late_chain(table, &operator)?);
        }
        Ok(edges)
    }

    /// From port 1 of an operator to the table's columns. The identifier is derived from that of
    /// the operator.
    fn late_chain(&mut self, table: &Arc<ResolvedTable>, operator: &LateOperator) -> Result<Edges> {
        let LateOperator { stage, input, columns, side } = operator;
        let wanted = table.written_schema();
        let mut projected = Vec::with_capacity(columns.len());
        let (mut checked, mut is_there) = (Vec::new(), Vec::new());
        for (position, (column, &from)) in wanted.columns.iter().zip(columns).enumerate() {
            let (written, expr) = self.late_value(table, column, from, input)?;
            if written.column_type.nullable && !column.column_type.nullable {
                let is_key = table.primary_key.contains(&position);
                let span = table.spans.column(&column.name);
                checked.push(NotNull { column: position, is_key, span });
                is_there.push(Step::Filter(build::is_null(written, true)));
            }
            projected.push((column.clone(), expr));
        }
        let mut steps: Vec<Step> = side.iter().map(|side| of_side(*side)).collect();
        let drops_nulls = self.environment.drops_nulls;
        steps.extend(is_there.into_iter().filter(|_| drops_nulls));
        steps.push(Step::Project(projected));
        if !checked.is_empty() && !drops_nulls {
            steps.push(Step::CheckNotNull { columns: checked, sink: table.name.clone() });
        }
        let judge = self.stage_name(*stage);
        let id = self.identities.give("late", &judge, &[]);
        let name = format!("late rows for {}", table.name);
        Ok(self.add_chain(id, name, vec![Input { from: *stage, port: 1 }], steps))
    }

    /// What a late row has for a column of the table, and the same in the column's type. The cast
    /// is that of INSERT: a type that does not fit is an error of the plan.
    fn late_value(
        &self,
        table: &ResolvedTable,
        column: &Column,
        from: Option<usize>,
        input: &TableSchema,
    ) -> Result<(Expr, Expr)> {
        let written = match from {
            Some(from) => Expr::column(from, input.columns[from].column_type.clone()),
            None if column.column_type.nullable => Expr::null(column.column_type.data_type.clone()),
            None => return Err(missing_on_a_side(table, column)),
        };
        let found = written.column_type.clone();
        let expr = build::coerce(written.clone(), &column.column_type, self.environment.session)
            .map_err(|_| late_type_error(table, column, &found))?;
        Ok((written, expr))
    }
}

/// Keeps the rows of one side of a join.
/// Column 0 of a tagged row is its side, TRUE for the right one.
fn of_side(side: Side) -> Step {
    let is_right = Expr::column(0, DataType::Boolean.not_null());
    Step::Filter(match side {
        Side::Right => is_right,
        Side::Left => {
            let column_type = is_right.column_type.clone();
            Expr::new(ExprKind::Not(Box::new(is_right)), column_type)
        }
    })
}

fn missing_on_a_side(table: &ResolvedTable, column: &Column) -> Error {
    Error::plan(format!(
        "late rows go to '{}' ('late.data'), but its column '{}' is NOT NULL, and one side of the join has no such \
         column",
        table.name, column.name
    ))
    .hint("declare the column without NOT NULL: it is NULL in rows of the other side")
    .at(table.spans.column(&column.name))
}

fn late_type_error(
    table: &ResolvedTable,
    column: &Column,
    found: &thalweg_core::ColumnType,
) -> Error {
    Error::plan(format!(
        "column '{}' of '{}' is {}, but late rows have {found} there",
        column.name, table.name, column.column_type
    ))
    .at(table.spans.column(&column.name))
}
