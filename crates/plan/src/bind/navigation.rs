//! What names mean in DEFINE and MEASURES of `MATCH_RECOGNIZE`.
//!
//! | written | is |
//! |---|---|
//! | `A.price` | of the last row of A |
//! | `price` | of the last row of all: in a condition the row in question |
//! | `LAST(A.price, n)`, `FIRST(A.price, n)` | of another row of A, counted from an end; NULL if there is none |
//! | `SUM(A.price * A.tax)` | over the rows of A |
//! | `MATCH_ROWTIME()` | when the match was found, a row time |
//!
//! In the condition of A the row in question is the last one of A. FIRST and LAST reach into
//! expressions: `LAST(A.x + A.y, 1)` is `LAST(A.x, 1) + LAST(A.y, 1)`.
//!
//! Expressions are bound over the values that they read, which are collected on the way: those of a
//! condition count from 0, those of measures stand behind the keys.

use sqlparser::ast::{self as sql, Expr as SqlExpr, Ident};
use thalweg_core::{Error, Result};
use thalweg_expr::{Expr, Scalar, build};
use thalweg_operators::pattern::{End, Pattern, PatternValue, Variable};

use super::functions::{
    function_name, is_aggregate, is_later_aggregate, is_star_call, plain_arguments,
};
use super::names::Names;
use super::pattern::unknown_variable;
use super::scope::{Scope, name_parts};
use super::spans::{idents_span, span_of};
use super::{Binder, unsupported};
use crate::logical::TimeAttribute;
use crate::logical::pattern::value_key;

/// Which row a name means.
#[derive(Clone, Copy)]
struct RowReference {
    end: End,
    offset: u32,
}

const LAST_ROW: RowReference = RowReference { end: End::Last, offset: 0 };

/// A variable, or all of them together.
type Of = Option<usize>;

/// Names in a condition or in measures, and the values that they mean.
pub(super) struct PatternNames<'a> {
    scope: &'a Scope,
    variables: &'a [Variable],
    /// The variable whose condition this is; `None` in measures.
    tested: Option<usize>,
    /// The row time of the pattern, for measures.
    rowtime: Option<usize>,
    /// How many columns stand before the values.
    first: usize,
    values: Vec<PatternValue>,
    /// Inside of FIRST or LAST.
    row: Option<RowReference>,
    /// The variables that names have had since FIRST, LAST or an aggregate began.
    /// More than one is an error: the function goes over the rows of one variable.
    seen: Vec<Of>,
}

/// The columns of one row, inside of an aggregate.
struct RowNames<'a, 'b> {
    around: &'b mut PatternNames<'a>,
}

impl<'a> PatternNames<'a> {
    /// Names in the condition of a variable.
    pub(super) fn of_definition(
        scope: &'a Scope,
        variables: &'a [Variable],
        tested: usize,
    ) -> Self {
        let values = Vec::new();
        let (tested, rowtime) = (Some(tested), None);
        PatternNames {
            scope,
            variables,
            tested,
            rowtime,
            first: 0,
            values,
            row: None,
            seen: Vec::new(),
        }
    }

    /// Names in measures.
    pub(super) fn of_measures(scope: &'a Scope, pattern: &'a Pattern) -> Self {
        PatternNames {
            rowtime: Some(pattern.rowtime),
            tested: None,
            first: pattern.keys.len(),
            ..PatternNames::of_definition(scope, &pattern.variables, 0)
        }
    }

    /// What the expressions read, in the order of their columns.
    pub(super) fn into_values(self) -> Vec<PatternValue> {
        self.values
    }

    /// The column of a value; equal ones are one.
    /// Compared by `value_key`, which the pattern's identity uses too.
    fn value(&mut self, value: PatternValue) -> Expr {
        let key = value_key(self.variables, &value);
        let is_same = |other: &PatternValue| value_key(self.variables, other) == key;
        let column_type = value.column_type().clone();
        let place = self.values.iter().position(is_same).unwrap_or_else(|| {
            self.values.push(value);
            self.values.len() - 1
        });
        Expr::column(self.first + place, column_type)
    }

    /// The variable and the input column of a name.
    fn resolve(&mut self, parts: &[Ident]) -> Result<(Of, usize)> {
        let (of, column) = match parts {
            [variable, column] => {
                let place = self.variables.iter().position(|v| v.name == variable.value);
                let place = place.ok_or_else(|| unknown_variable(variable, self.variables))?;
                (Some(place), std::slice::from_ref(column))
            }
            other => (None, other),
        };
        if !self.seen.contains(&of) {
            self.seen.push(of);
        }
        Ok((of, self.scope.resolve(column)?))
    }

    /// A name outside of aggregates: the value of one row.
    fn name(&mut self, parts: &[Ident]) -> Result<Expr> {
        let (variable, column) = self.resolve(parts)?;
        let RowReference { end, offset } = self.row.unwrap_or(LAST_ROW);
        let column_type = &self.scope.fields[column].column_type;
        let is_there = offset == 0 && self.has_rows(variable, end);
        let nullable = column_type.nullable || !is_there;
        let column_type = column_type.clone().with_nullable(nullable);
        Ok(self.value(PatternValue::Row { variable, end, offset, column, column_type }))
    }

    /// True if there is certainly a row, where this is evaluated.
    /// Otherwise the value is nullable. In measures the match is complete, so a variable with at
    /// least one row has one; in a condition only the row in question is certain.
    fn has_rows(&self, variable: Of, end: End) -> bool {
        match (self.tested, variable) {
            (None, Some(variable)) => self.variables[variable].min > 0,
            (Some(tested), Some(variable)) => tested == variable && end == End::Last,
            (_, None) => true,
        }
    }

    /// `FIRST(x [, n])`, `LAST(x [, n])`
    ///
    /// The argument is bound with `row` set, so that each name in it means that row; names outside
    /// are not affected.
    fn navigate(&mut self, binder: &Binder<'_>, call: &sql::Function, end: End) -> Result<Expr> {
        let name = function_name(call);
        if self.row.is_some() {
            return Err(Error::plan(format!("{name} can't stand inside of FIRST or LAST")));
        }
        let arguments = plain_arguments(call)?;
        let (value, offset) = match arguments[..] {
            [value] => (value, 0),
            [value, offset] => (value, constant(binder, offset, &name)?),
            _ => {
                return Err(Error::plan(format!(
                    "{name} takes a value, and how many rows from the {} one",
                    if end == End::First { "first" } else { "last" }
                )));
            }
        };
        let around = std::mem::take(&mut self.seen);
        self.row = Some(RowReference { end, offset });
        let bound = binder.expression(value, self);
        self.row = None;
        self.one_variable(&name, value)?;
        self.seen = around;
        bound
    }

    /// Fails if names of several variables were seen.
    fn one_variable(&self, name: &str, argument: &SqlExpr) -> Result<()> {
        if self.seen.len() < 2 {
            return Ok(());
        }
        Err(Error::plan(format!("{name} goes over the rows of one variable, but reads several"))
            .hint("qualify all columns by the same variable, or none of them")
            .at(span_of(argument)))
    }

    /// An aggregate over the rows of one variable, or of all. Its argument is over the columns of
    /// the input (`RowNames`), not over values of the match.
    fn aggregate(&mut self, binder: &Binder<'_>, call: &sql::Function, name: &str) -> Result<Expr> {
        if is_later_aggregate(name) {
            return Err(unsupported::aggregate(name));
        }
        if self.row.is_some() {
            return Err(Error::plan(format!("{name} can't stand inside of FIRST or LAST")));
        }
        let treatment = super::aggregate::treatment(call, name)?;
        if treatment.distinct {
            return Err(Error::unsupported(format!(
                "{name}(DISTINCT …) is not supported in MATCH_RECOGNIZE, nor is it in Flink"
            )));
        }
        if call.filter.is_some() {
            return Err(unsupported::later("FILTER in MATCH_RECOGNIZE"));
        }
        let around = std::mem::take(&mut self.seen);
        let mut arguments = Vec::new();
        if !is_star_call(call) {
            for argument in plain_arguments(call)? {
                arguments.push(binder.expression(argument, &mut RowNames { around: self })?);
                self.one_variable(name, argument)?;
            }
        }
        let variable = self.seen.first().copied().flatten();
        self.seen = around;
        let (function, column_type) =
            binder.resolve_aggregate(name, false, treatment.skips_nulls, &arguments)?;
        let argument = arguments.into_iter().next();
        Ok(self.value(PatternValue::Aggregate { variable, function, argument, column_type }))
    }

    fn function(&mut self, binder: &Binder<'_>, call: &sql::Function) -> Result<Option<Expr>> {
        let name = function_name(call);
        match name.as_str() {
            "FIRST" => self.navigate(binder, call, End::First).map(Some),
            "LAST" => self.navigate(binder, call, End::Last).map(Some),
            "PREV" | "NEXT" => Err(no_such_function(&name).hint(format!(
                "rows of the match are reached by LAST(A.x, n): {name} would reach any row of the table"
            ))),
            "CLASSIFIER" | "MATCH_NUMBER" => Err(no_such_function(&name)),
            "MATCH_ROWTIME" => self.match_time(call).map(Some),
            "MATCH_PROCTIME" if self.tested.is_none() => {
                build::call("PROCTIME", Vec::new(), binder.session).map(Some)
            }
            "MATCH_PROCTIME" => Err(only_in_measures(&name)),
            _ if call.over.is_some() => Err(Error::plan(format!(
                "{name} OVER (…) can't stand in MATCH_RECOGNIZE"
            ))
            .hint("compute it in a view or WITH query below")),
            _ if is_aggregate(binder, &name) => self.aggregate(binder, call, &name).map(Some),
            _ => Ok(None),
        }
    }

    /// `MATCH_ROWTIME([row time])`
    fn match_time(&mut self, call: &sql::Function) -> Result<Expr> {
        let Some(rowtime) = self.rowtime else { return Err(only_in_measures("MATCH_ROWTIME")) };
        if self.scope.fields[rowtime].time.is_proctime() {
            return Err(Error::plan("MATCH_ROWTIME is for patterns in the order of a row time")
                .hint("write MATCH_PROCTIME()"));
        }
        let arguments = plain_arguments(call)?;
        let is_rowtime = |argument: &SqlExpr| {
            let column = name_parts(argument).and_then(|parts| self.scope.resolve(parts).ok());
            column == Some(rowtime)
        };
        let is_known = match arguments[..] {
            [] => true,
            [argument] => is_rowtime(argument),
            _ => false,
        };
        if !is_known {
            return Err(Error::plan(format!(
                "MATCH_ROWTIME takes nothing, or the row time '{}' of the pattern",
                self.scope.fields[rowtime].name
            )));
        }
        let column_type = self.scope.fields[rowtime].column_type.clone().with_nullable(false);
        Ok(self.value(PatternValue::Time { column_type }))
    }
}

/// What a value means for time.
pub(super) fn time_of(value: &PatternValue) -> TimeAttribute {
    match value {
        PatternValue::Time { .. } => TimeAttribute::RowTime,
        PatternValue::Row { .. } | PatternValue::Aggregate { .. } => TimeAttribute::None,
    }
}

/// How many rows from an end.
fn constant(binder: &Binder<'_>, expr: &SqlExpr, name: &str) -> Result<u32> {
    let bound = binder.without_columns(expr, name)?;
    match bound.as_literal() {
        Some(&Scalar::Integer(n)) if u32::try_from(n).is_ok() => Ok(n as u32),
        _ => Err(Error::plan(format!("{name} takes a constant number of rows, from 0"))
            .at(span_of(expr))),
    }
}

fn no_such_function(name: &str) -> Error {
    Error::unsupported(format!("{name} is not supported in MATCH_RECOGNIZE, nor is it in Flink"))
}

fn only_in_measures(name: &str) -> Error {
    Error::plan(format!(
        "{name} stands in MEASURES only: a condition is tested before there is a match"
    ))
}

impl Names for PatternNames<'_> {
    fn intercept(&mut self, binder: &Binder<'_>, expr: &SqlExpr) -> Result<Option<Expr>> {
        if let Some(parts) = name_parts(expr) {
            return self.name(parts).map(Some).map_err(|error| error.at(idents_span(parts)));
        }
        match expr {
            SqlExpr::Function(call) => self.function(binder, call),
            _ => Ok(None),
        }
    }

    fn column(&mut self, _: usize) -> Result<Expr> {
        Err(Error::plan("'*' can't stand in MATCH_RECOGNIZE").hint("name the columns"))
    }
}

impl Names for RowNames<'_, '_> {
    fn intercept(&mut self, binder: &Binder<'_>, expr: &SqlExpr) -> Result<Option<Expr>> {
        if let Some(parts) = name_parts(expr) {
            let (_, column) = self.around.resolve(parts)?;
            return Ok(Some(self.around.scope.column(column)));
        }
        if let SqlExpr::Function(call) = expr {
            let name = function_name(call);
            if ["FIRST", "LAST"].contains(&&name[..]) || is_aggregate(binder, &name) {
                return Err(Error::plan(format!("{name} can't stand inside of an aggregate")));
            }
            if ["PREV", "NEXT", "CLASSIFIER", "MATCH_NUMBER"].contains(&&name[..]) {
                return Err(no_such_function(&name));
            }
        }
        Ok(None)
    }

    fn column(&mut self, input: usize) -> Result<Expr> {
        Ok(self.around.scope.column(input))
    }
}
