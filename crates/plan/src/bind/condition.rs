//! A condition over rows that are no table: a person looks at rows of a running job.

use sqlparser::ast as sql;
use thalweg_core::{Error, Result, TableSchema};
use thalweg_expr::Expr;

use super::Binder;
use super::names::PlainNames;
use super::scope::Scope;
use crate::ast::{Statement, StatementKind};
use crate::logical::Field;
use crate::parser::parse_script;

/// Whether a text is a condition, over whatever columns.
///
/// # Errors
/// If it is none.
pub fn check_condition(text: &str) -> Result<()> {
    condition_of(&parsed(text)?.kind).map(drop).ok_or_else(no_condition)
}

fn no_condition() -> Error {
    Error::plan("one condition was expected")
}

/// What a condition is, the grammar of SELECT says.
fn parsed(text: &str) -> Result<Statement> {
    let mut statements = parse_script(&format!("SELECT * FROM shown WHERE ({text}\n)"))?;
    match (statements.pop(), statements.is_empty()) {
        (Some(statement), true) => Ok(statement),
        _ => Err(no_condition()),
    }
}

impl Binder<'_> {
    /// The condition of this text over rows with these columns.
    ///
    /// # Errors
    /// If it is none, or names a column that there is not.
    pub fn row_condition(&self, columns: &TableSchema, text: &str) -> Result<Expr> {
        let statement = parsed(text)?;
        let condition = condition_of(&statement.kind).ok_or_else(no_condition)?;
        let columns = columns.columns.iter();
        let fields: Vec<Field> = columns
            .map(|column| Field::plain(column.name.clone(), column.column_type.clone()))
            .collect();
        let scope = Scope::of(None, fields.into());
        self.condition(condition, "this condition", &mut PlainNames::of(&scope, "this condition"))
    }
}

/// The condition of a SELECT that has nothing else.
fn condition_of(statement: &StatementKind) -> Option<&sql::Expr> {
    let StatementKind::Select(query) = statement else { return None };
    let sql::SetExpr::Select(select) = &*query.query.body else { return None };
    let is_bare = select.having.is_none()
        && matches!(&select.group_by, sql::GroupByExpr::Expressions(by, _) if by.is_empty());
    select.selection.as_ref().filter(|_| is_bare)
}
