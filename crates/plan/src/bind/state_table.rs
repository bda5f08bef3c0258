//! `snapshot('PLACE', 'OPERATOR' [, 'TABLE'] [, NUMBER])` in FROM: the state that an operator had
//! in a snapshot, as a table that ends.
//!
//! Where the snapshot lies and which columns its table has is asked of [`Connectors::state_table`]
//! while the query is bound, so that columns have names and types; rows are read when the job runs.
//!
//! [`Connectors::state_table`]: thalweg_core::connector::Connectors::state_table

use std::sync::Arc;

use sqlparser::ast::{self as sql, TableFactor};
use thalweg_core::connector::StateTableRequest;
use thalweg_core::{Error, Result};

use super::Binder;
use super::spans::span_of;
use crate::logical::{LogicalPlan, Node};
use crate::resolved_table::{ColumnOrigin, Reading, ResolvedColumn, ResolvedTable, TableSpans};

const FORM: &str = "snapshot('FOLDER OR JOB', 'OPERATOR' [, 'TABLE'] [, NUMBER])";

/// The arguments of `snapshot(…)` and its alias, if the factor is a call of it.
pub(crate) fn state_call(
    factor: &TableFactor,
) -> Option<(&[sql::FunctionArg], Option<&sql::TableAlias>)> {
    let (name, arguments, alias) = match factor {
        TableFactor::Table { name, args: Some(args), alias, .. } => (name, &args.args, alias),
        TableFactor::Function { name, args, alias, .. } => (name, args, alias),
        _ => return None,
    };
    let is_ours = name.to_string().eq_ignore_ascii_case("snapshot");
    is_ours.then_some((arguments, alias.as_ref()))
}

impl Binder<'_> {
    /// Binds a call with these arguments.
    pub(super) fn bind_state_table(
        &self,
        factor: &TableFactor,
        arguments: &[sql::FunctionArg],
    ) -> Result<Node> {
        let at = |error: Error| error.at(span_of(factor));
        let mut request = read_arguments(arguments).map_err(at)?;
        let places = self.places.ok_or_else(|| {
            at(Error::unsupported("a snapshot can only be read where tables can"))
        })?;
        request.location = self.catalog.settings().snapshots().map(|settings| settings.location);
        places.base_dir.clone_into(&mut request.base_dir);
        places.allowed_roots.clone_into(&mut request.allowed_roots);
        request.access = places.access.clone();
        let found = places.connectors.state_table(&request).map_err(at)?;
        let physical = |(place, column)| {
            let origin = ColumnOrigin::Physical(place);
            ResolvedColumn { column, origin }
        };
        let table = ResolvedTable {
            name: found.name,
            columns: found.schema.columns.into_iter().enumerate().map(physical).collect(),
            watermark: None,
            options: found.options,
            spans: TableSpans { name: span_of(factor), ..TableSpans::default() },
            primary_key: Vec::new(),
            partitioned_by: Vec::new(),
            reading: Reading::default(),
        };
        Ok(LogicalPlan::scan(Arc::new(table)))
    }
}

/// What is asked for: two texts, perhaps a third, perhaps a number behind them.
fn read_arguments(arguments: &[sql::FunctionArg]) -> Result<StateTableRequest> {
    let wrong = |what: String| Error::plan(what).hint(format!("write {FORM}"));
    let mut texts = Vec::new();
    let mut number = None;
    for argument in arguments {
        let value = match argument {
            sql::FunctionArg::Unnamed(sql::FunctionArgExpr::Expr(sql::Expr::Value(value))) => {
                &value.value
            }
            other => return Err(wrong(format!("snapshot takes literals, not {other}"))),
        };
        match value {
            sql::Value::SingleQuotedString(text) if number.is_none() => texts.push(text.clone()),
            sql::Value::Number(text, _) if number.is_none() => {
                let parsed = text.parse::<u64>();
                number =
                    Some(parsed.map_err(|_| wrong(format!("{text} is no snapshot's number")))?);
            }
            other => return Err(wrong(format!("snapshot does not take {other} here"))),
        }
    }
    let mut texts = texts.into_iter();
    match (texts.next(), texts.next(), texts.next(), texts.next()) {
        (Some(place), Some(operator), table, None) => {
            Ok(StateTableRequest { place, operator, table, number, ..StateTableRequest::default() })
        }
        _ => Err(wrong("snapshot takes a folder or a job, and an operator".to_owned())),
    }
}
