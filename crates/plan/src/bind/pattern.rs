//! `MATCH_RECOGNIZE`: keys, order, the pattern, its conditions, and what a match gives.
//!
//! Flink's subset of the standard: variables one behind the other, each with a quantifier. What
//! Flink refuses is refused here as well, at the place where it stands. What names mean inside is
//! in [`navigation`](super::navigation).
//!
//! ```sql
//! SELECT * FROM t MATCH_RECOGNIZE (
//!   PARTITION BY k ORDER BY ts
//!   MEASURES FIRST(A.v) AS low, B.v AS high
//!   PATTERN (A+ B) DEFINE A AS v < 10, B AS v >= 10)
//! -- Match: keys k; values FIRST(A.v), LAST(B.v); a projection names them k, low, high
//! ```
//!
//! **Invariants:**
//! - the node's columns are the keys, then the values that measures read, each once; a projection
//!   above computes the measures from them;
//! - variables are numbered in the order of the pattern, and conditions and values refer to them by
//!   number;
//! - a pattern takes at least one row, and its last variable is not greedy (as Flink demands).
//!
//! WITHIN is Flink's extension; the parser hands it over as a definition.

use std::collections::HashMap;
use std::sync::Arc;

use sqlparser::ast::{
    self as sql, AfterMatchSkip, MatchRecognizePattern as Syntax, MatchRecognizeSymbol,
    RepetitionQuantifier, TableFactor,
};
use thalweg_core::{Error, Result, Span};
use thalweg_expr::Expr;
use thalweg_operators::pattern::{Condition, Pattern, Skip, VARIABLES_MAX, Variable};

use super::from::BoundSource;
use super::literal::interval_ms;
use super::navigation::PatternNames;
use super::near::did_you_mean;
use super::order::sort_key;
use super::scope::{Scope, name_parts};
use super::spans::{ident_span, span_of};
use super::window::check_time;
use super::{Binder, Context, unsupported};
use crate::catalog::RuntimeMode;
use crate::logical::{Field, LogicalKind, LogicalPlan};
use crate::parser::WITHIN;

/// A variable as it stands in the pattern.
struct WrittenVariable<'a> {
    name: &'a sql::Ident,
    min: u32,
    max: Option<u32>,
    is_reluctant: bool,
}

impl Binder<'_> {
    /// Binds a table with MATCH_RECOGNIZE behind it: its keys, then the measures.
    pub(super) fn bind_match(
        &self,
        factor: &TableFactor,
        context: &Context<'_>,
    ) -> Result<BoundSource> {
        let TableFactor::MatchRecognize {
            table,
            partition_by,
            order_by,
            measures,
            after_match_skip,
            pattern,
            symbols,
            alias,
            ..
        } = factor
        else {
            return Err(Error::internal("no MATCH_RECOGNIZE"));
        };
        let BoundSource { node: input, scope } = self.bind_factor(table, context)?;
        let keys = partition_by.iter().map(|key| column(&scope, key, "PARTITION BY"));
        let keys = keys.collect::<Result<Vec<usize>>>()?;
        let (rowtime, ties) =
            order(&scope, order_by, self.mode()).map_err(|e| e.at(span_of(factor)))?;
        let mut variables = variables(pattern).map_err(|e| e.at(span_of(factor)))?;
        let (within_ms, definitions) = self.within(symbols)?;
        self.define(&scope, &mut variables, definitions)?;
        let skip = skip(after_match_skip.as_ref(), &variables)?;
        let pattern = Pattern { keys, rowtime, ties, variables, skip, within_ms };

        let mut names = PatternNames::of_measures(&scope, &pattern);
        let keys = pattern.keys.iter().enumerate();
        let mut columns: Vec<(String, Expr)> =
            keys.map(|(place, &key)| scope.fields[key].named_at(place)).collect();
        for measure in measures {
            let value = self.expression(&measure.expr, &mut names)?;
            columns.push((measure.alias.value.clone(), value));
        }
        if columns.is_empty() {
            return Err(Error::plan("MATCH_RECOGNIZE has neither PARTITION BY nor MEASURES, so its result has no column")
                .hint("say what a match gives: MEASURES LAST(A.price) AS price")
                .at(span_of(factor)));
        }
        let values = names.into_values();
        let keys = pattern.keys.iter().map(|&key| scope.fields[key].clone().without_time());
        let results = values.iter().enumerate().map(|(place, value)| Field {
            name: format!("value${place}"),
            column_type: value.column_type().clone(),
            time: super::navigation::time_of(value),
        });
        let fields: Vec<Field> = keys.chain(results).collect();
        let kind = LogicalKind::Match { input, pattern: Arc::new(pattern), values };
        let node = LogicalPlan::project(LogicalPlan::node(kind, fields), columns);
        self.named(node, alias.as_ref(), None)
    }

    /// Takes WITHIN out of the definitions.
    /// The parser has put it first.
    fn within<'q>(
        &self,
        symbols: &'q [sql::SymbolDefinition],
    ) -> Result<(Option<i64>, &'q [sql::SymbolDefinition])> {
        let Some((first, rest)) =
            symbols.split_first().filter(|(first, _)| first.symbol.value == WITHIN)
        else {
            return Ok((None, symbols));
        };
        let bound = self.without_columns(&first.definition, "WITHIN")?;
        let place = ident_span(&first.symbol);
        let within_ms = interval_ms(&bound, "WITHIN").map_err(|error| error.at(place))?;
        if within_ms <= 0 {
            return Err(Error::plan(format!(
                "WITHIN needs a time above zero, but it is {within_ms} ms"
            ))
            .at(place));
        }
        Ok((Some(within_ms), rest))
    }

    /// Binds the conditions of DEFINE.
    fn define(
        &self,
        scope: &Scope,
        variables: &mut [Variable],
        definitions: &[sql::SymbolDefinition],
    ) -> Result<()> {
        let places: HashMap<String, usize> =
            variables.iter().enumerate().map(|(i, variable)| (variable.name.clone(), i)).collect();
        for definition in definitions {
            let symbol = &definition.symbol;
            let Some(&place) = places.get(&symbol.value) else {
                return Err(unknown_variable(symbol, variables));
            };
            if variables[place].condition.is_some() {
                return Err(Error::plan(format!("variable '{}' is defined twice", symbol.value))
                    .at(ident_span(symbol)));
            }
            let mut names = PatternNames::of_definition(scope, variables, place);
            let clause = format!("the condition of {}", symbol.value);
            let predicate = self.condition(&definition.definition, &clause, &mut names)?;
            variables[place].condition = Some(Condition { values: names.into_values(), predicate });
        }
        Ok(())
    }
}

/// The column that a key names.
fn column(scope: &Scope, expr: &sql::Expr, clause: &str) -> Result<usize> {
    match name_parts(expr) {
        Some(parts) => scope.resolve(parts),
        None => Err(Error::plan(format!("{clause} of MATCH_RECOGNIZE names columns"))
            .hint("compute the value in a view or WITH query below")
            .at(span_of(expr))),
    }
}

/// The row time or processing time, and what rows of equal time are ordered by.
fn order(
    scope: &Scope,
    items: &[sql::OrderByExpr],
    mode: RuntimeMode,
) -> Result<(usize, Vec<thalweg_operators::sort::SortKey>)> {
    let Some((first, rest)) = items.split_first() else {
        return Err(Error::plan("MATCH_RECOGNIZE needs ORDER BY a row time")
            .hint("rows of a stream have no other order that comes to an end"));
    };
    let at = |error: Error| error.at(span_of(&first.expr));
    if name_parts(&first.expr).is_none() {
        return Err(at(unsupported::later(
            "MATCH_RECOGNIZE in another order than that of a row time or a processing time",
        )));
    }
    let rowtime = column(scope, &first.expr, "ORDER BY")?;
    check_time(&scope.fields[rowtime], "MATCH_RECOGNIZE", mode).map_err(at)?;
    if sort_key(first, rowtime).descending {
        return Err(at(Error::plan("MATCH_RECOGNIZE goes by ascending row time")
            .hint("leave out DESC: later rows come later")));
    }
    let ties = rest.iter().map(|item| {
        let column = column(scope, &item.expr, "ORDER BY")?;
        Ok((&sort_key(item, column)).into())
    });
    Ok((rowtime, ties.collect::<Result<_>>()?))
}

/// The variables of a pattern, without their conditions.
fn variables(pattern: &Syntax) -> Result<Vec<Variable>> {
    let mut written = Vec::new();
    flatten(pattern, &mut written)?;
    let mut variables: Vec<Variable> = Vec::with_capacity(written.len());
    for one in &written {
        let place = ident_span(one.name);
        if variables.iter().any(|other| other.name == one.name.value) {
            return Err(Error::unsupported(format!(
                "variable '{}' stands twice in the pattern, which Flink does not support either",
                one.name.value
            ))
            .hint("give the second one another name and the same condition")
            .at(place));
        }
        variables.push(variable(one).map_err(|error| error.at(place))?);
    }
    let (Some(first), Some(last)) = (written.first(), written.last()) else {
        return Err(Error::plan("the pattern has no variable"));
    };
    if variables.len() > VARIABLES_MAX {
        return Err(Error::unsupported(format!(
            "a pattern of more than {VARIABLES_MAX} variables"
        ))
        .at(ident_span(last.name)));
    }
    if variables.iter().all(|variable| variable.min == 0) {
        return Err(Error::plan(
            "the pattern matches nothing at all: every variable may be absent",
        )
        .hint("let at least one variable take a row, as A+ does")
        .at(ident_span(first.name)));
    }
    if variables.last().is_some_and(|last| last.is_greedy) {
        let name = &last.name.value;
        return Err(Error::unsupported(format!(
            "the last variable of a pattern can't be greedy, and {name} takes as many rows as it can; \
             nor can it in Flink"
        ))
        .hint(format!(
            "end with a variable for the row after it, DEFINE … AS NOT (condition of {name}), or add ? \
             to take as few rows as possible"
        ))
        .at(ident_span(last.name)));
    }
    Ok(variables)
}

/// One variable, as Flink reads its quantifier.
///
/// | written | rows | greedy |
/// |---|---|---|
/// | `A` | 1 | no |
/// | `A+`, `A*`, `A{2,}`, `A{2,5}` | as many as fit | yes |
/// | `A+?`, `A*?` | as few as possible | no |
/// | `A?` | 0 or 1 | no: both are tried |
/// | `A{3}` | 3 | no |
fn variable(written: &WrittenVariable<'_>) -> Result<Variable> {
    let WrittenVariable { name, min, max, is_reluctant } = *written;
    let is_optional = (min, max) == (0, Some(1));
    if max == Some(0) || max.is_some_and(|max| max < min) {
        return Err(Error::plan(format!(
            "the quantifier of {} allows no number of rows: at least one, and at least as many as at least",
            name.value
        )));
    }
    if is_optional && is_reluctant {
        return Err(Error::unsupported(format!(
            "{}??, a variable that is rather left out, is not supported, nor is it in Flink",
            name.value
        ))
        .hint(format!("{}? leads to whatever match is complete first", name.value)));
    }
    // As in Flink: what is just optional tries both ways.
    let is_greedy = !is_reluctant && !is_optional && max != Some(min);
    Ok(Variable { name: name.value.clone(), min, max, is_greedy, condition: None })
}

/// The variables in order. sqlparser reads `A+?` as a quantifier of a quantifier, which is how a
/// reluctant one is recognized.
fn flatten<'a>(pattern: &'a Syntax, written: &mut Vec<WrittenVariable<'a>>) -> Result<()> {
    match pattern {
        Syntax::Concat(parts) => parts.iter().try_for_each(|part| flatten(part, written)),
        Syntax::Group(inner) => flatten(inner, written),
        Syntax::Symbol(MatchRecognizeSymbol::Named(name)) => {
            written.push(WrittenVariable { name, min: 1, max: Some(1), is_reluctant: false });
            Ok(())
        }
        Syntax::Repetition(inner, quantifier) => {
            let (inner, quantifier, is_reluctant) = match inner.as_ref() {
                Syntax::Repetition(innermost, first)
                    if *quantifier == RepetitionQuantifier::AtMostOne =>
                {
                    (innermost.as_ref(), first, true)
                }
                inner => (inner, quantifier, false),
            };
            let Some(name) = single(inner) else {
                return Err(refused("a quantifier of several variables together", inner));
            };
            let (min, max) = bounds(quantifier);
            written.push(WrittenVariable { name, min, max, is_reluctant });
            Ok(())
        }
        Syntax::Alternation(_) => Err(refused("an alternative (|)", pattern)),
        Syntax::Permute(_) => Err(refused("PERMUTE", pattern)),
        Syntax::Exclude(_) => Err(refused("an exclusion ({- … -})", pattern)),
        Syntax::Symbol(MatchRecognizeSymbol::Start | MatchRecognizeSymbol::End) => {
            Err(refused("an anchor (^, $)", pattern))
        }
    }
}

/// The variable that this is, brackets aside.
fn single(pattern: &Syntax) -> Option<&sql::Ident> {
    match pattern {
        Syntax::Symbol(MatchRecognizeSymbol::Named(name)) => Some(name),
        Syntax::Group(inner) => single(inner),
        _ => None,
    }
}

/// The least number of rows and the greatest; `None` for any number.
fn bounds(quantifier: &RepetitionQuantifier) -> (u32, Option<u32>) {
    match *quantifier {
        RepetitionQuantifier::ZeroOrMore => (0, None),
        RepetitionQuantifier::OneOrMore => (1, None),
        RepetitionQuantifier::AtMostOne => (0, Some(1)),
        RepetitionQuantifier::Exactly(n) => (n, Some(n)),
        RepetitionQuantifier::AtLeast(n) => (n, None),
        RepetitionQuantifier::AtMost(n) => (0, Some(n)),
        RepetitionQuantifier::Range(n, m) => (n, Some(m)),
    }
}

fn refused(what: &str, pattern: &Syntax) -> Error {
    let error =
        Error::unsupported(format!("{what} is not supported in a PATTERN, nor is it in Flink"))
            .hint(
                "a pattern is a sequence of variables with quantifiers: PATTERN (A B+ C*? D{2,3})",
            );
    match first_name(pattern) {
        Some(place) => error.at(place),
        None => error,
    }
}

/// Where the first variable of a part of a pattern stands.
fn first_name(pattern: &Syntax) -> Option<Span> {
    let symbol = |symbol: &MatchRecognizeSymbol| match symbol {
        MatchRecognizeSymbol::Named(name) => Some(ident_span(name)),
        MatchRecognizeSymbol::Start | MatchRecognizeSymbol::End => None,
    };
    match pattern {
        Syntax::Symbol(named) | Syntax::Exclude(named) => symbol(named),
        Syntax::Permute(symbols) => symbols.iter().find_map(symbol),
        Syntax::Concat(parts) | Syntax::Alternation(parts) => parts.iter().find_map(first_name),
        Syntax::Group(inner) | Syntax::Repetition(inner, _) => first_name(inner),
    }
}

/// Where the search resumes after a match. SKIP TO FIRST of the pattern's first variable is
/// refused: it would find the same match again.
fn skip(after: Option<&AfterMatchSkip>, variables: &[Variable]) -> Result<Skip> {
    let find = |name: &sql::Ident| {
        let place = variables.iter().position(|variable| variable.name == name.value);
        place.ok_or_else(|| unknown_variable(name, variables))
    };
    let (skip, name) = match after {
        // As in Flink, and other than in the standard.
        None | Some(AfterMatchSkip::ToNextRow) => return Ok(Skip::ToNextRow),
        Some(AfterMatchSkip::PastLastRow) => return Ok(Skip::PastLastRow),
        Some(AfterMatchSkip::ToFirst(name)) => (Skip::ToFirst(find(name)?), name),
        Some(AfterMatchSkip::ToLast(name)) => (Skip::ToLast(find(name)?), name),
    };
    let is_first = matches!(skip, Skip::ToFirst(0)) && variables[0].min > 0;
    if is_first {
        return Err(Error::plan(format!(
            "AFTER MATCH SKIP TO FIRST {} would find the same match for ever: it begins there",
            name.value
        ))
        .hint("SKIP TO NEXT ROW resumes after the first row of a match")
        .at(ident_span(name)));
    }
    Ok(skip)
}

/// The error for a variable that the pattern does not have.
pub(super) fn unknown_variable(name: &sql::Ident, variables: &[Variable]) -> Error {
    let error = Error::plan(format!("there is no variable '{}' in the PATTERN", name.value));
    did_you_mean(error, &name.value, variables.iter().map(|variable| variable.name.as_str()))
        .at(ident_span(name))
}
