//! How names in an expression become columns.
//!
//! One walk over expressions serves all clauses; what differs is what a name means there:
//!
//! | clause | implementation |
//! |---|---|
//! | WHERE, ON, GROUP BY, VALUES, arguments | [`PlainNames`]: columns of one scope |
//! | SELECT, HAVING, ORDER BY of a grouped query | `Grouping`: keys, window columns, aggregates |
//! | SELECT of any other query | `OverCalls`: columns, and calls OVER rows |
//! | DEFINE, MEASURES | `PatternNames`: values of the rows of a match |

use sqlparser::ast::Expr as SqlExpr;
use thalweg_core::{Error, Result};
use thalweg_expr::Expr;

use super::Binder;
use super::functions::{function_name, is_aggregate, is_group_window_function};
use super::scope::{Scope, name_parts};
use super::spans::span_of;
use crate::windows::WindowFunction;

/// Decides what names (and, in an aggregation, whole sub-expressions) mean. Asked for every node of
/// an expression, top down, before the node is bound by its own rule.
pub trait Names {
    /// What the node means, if this knows.
    ///
    /// `None` leaves the node to the rule of its kind, which asks again for each operand. An error
    /// ends the walk.
    fn intercept(&mut self, binder: &Binder<'_>, expr: &SqlExpr) -> Result<Option<Expr>>;
    /// The column at this position of the input, as `*` means it.
    fn column(&mut self, input: usize) -> Result<Expr>;
    /// True if the column at this position (of the expressions made here) is a row time.
    fn is_rowtime(&self, _column: usize) -> bool {
        false
    }
}

/// Names of one scope; aggregates are not allowed.
pub struct PlainNames<'a> {
    scope: &'a Scope,
    clause: &'a str,
}

impl<'a> PlainNames<'a> {
    /// The names that `clause` (as used in messages) can see.
    pub fn of(scope: &'a Scope, clause: &'a str) -> Self {
        PlainNames { scope, clause }
    }
}

impl Names for PlainNames<'_> {
    fn intercept(&mut self, binder: &Binder<'_>, expr: &SqlExpr) -> Result<Option<Expr>> {
        if let Some(parts) = name_parts(expr) {
            let (column, fields) = self.scope.resolve_path(parts)?;
            return binder.fields(self.scope.column(column), fields).map(Some);
        }
        if let SqlExpr::Function(function) = expr {
            let name = function_name(function);
            if function.over.is_none() && is_aggregate(binder, &name) {
                return Err(Error::plan(format!(
                    "{name} is an aggregate and can't stand in {}",
                    self.clause
                ))
                .at(span_of(function)));
            }
            if is_group_window_function(&name) {
                let windows = WindowFunction::names_in_group_by().join(" or ");
                return Err(Error::plan(format!("{name} needs GROUP BY with the same window"))
                    .hint(format!(
                        "it can stand in SELECT and HAVING of a query that groups by {windows}"
                    ))
                    .at(span_of(function)));
            }
        }
        Ok(None)
    }

    fn column(&mut self, input: usize) -> Result<Expr> {
        Ok(self.scope.column(input))
    }

    fn is_rowtime(&self, column: usize) -> bool {
        self.scope.fields[column].time.is_rowtime()
    }
}
