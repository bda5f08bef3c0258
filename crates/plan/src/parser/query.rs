//! Queries and expressions: the dialect's peculiarities are taken out of the token stream, the
//! rest is parsed by `sqlparser`.
//!
//! A query or an expression must take up all of its tokens: what is left over is an error at its
//! place.

use sqlparser::ast as sql;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Token, TokenWithSpan};
use thalweg_core::{Error, Result};

use super::dialect::FlinkDialect;
use super::tokens::{Cursor, SourceText, describe, span, tokenize};
use super::{asof, depth, problem, rewrite, window};
use crate::ast::Query;

/// How deep `sqlparser` may recurse.
/// Its frames are large; `depth` bounds what it does without recursion.
const RECURSION_MAX: usize = 50;

/// The query that the rest of a statement is.
pub(super) fn rest_as_query(cursor: &mut Cursor<'_>) -> Result<Query> {
    let end = problem::end_of(cursor.tokens);
    query(cursor.source, cursor.rest()).map_err(|e| e.at(end))
}

/// Parses a query that takes up all of `tokens`.
pub(super) fn query<'a>(source: &'a SourceText<'a>, tokens: &'a [TokenWithSpan]) -> Result<Query> {
    depth::check(tokens)?;
    if tokens.is_empty() {
        return Err(Error::plan("expected a query, found the end of the statement"));
    }
    let (without_windows, window::Extracted { windows, matched }) =
        window::extract(source, tokens)?;
    let rewritten = rewrite::rewrite(source, &without_windows)?;
    let query = parse_all(rewritten, |parser| parser.parse_query())?;
    Ok(Query {
        query,
        windows,
        matched,
        hints: source.hints_in(tokens),
        table_options: source.options_in(tokens),
        asof_joins: asof::places(&without_windows),
        text: source.text_of(tokens).to_owned(),
        span: problem::start_of(tokens),
    })
}

/// Parses an expression that takes up all of `tokens`.
pub(super) fn expression<'a>(
    source: &'a SourceText<'a>,
    tokens: &'a [TokenWithSpan],
) -> Result<sql::Expr> {
    depth::check(tokens)?;
    let rewritten = rewrite::rewrite(source, tokens)?;
    parse_all(rewritten, |parser| parser.parse_expr())
}

/// Parses a single expression, such as the predicate of a builder's filter.
///
/// ```
/// let expression = thalweg_plan::parser::parse_expression("delay > 15 AND origin = 'JFK'")?;
/// assert_eq!(expression.to_string(), "delay > 15 AND origin = 'JFK'");
/// # Ok::<(), thalweg_core::Error>(())
/// ```
pub fn parse_expression(text: &str) -> Result<sql::Expr> {
    let tokens = tokenize(text)?;
    expression(&SourceText::new(text), &tokens.words)
}

fn parse_all<T>(
    tokens: Vec<TokenWithSpan>,
    parse: impl FnOnce(&mut Parser<'_>) -> Result<T, ParserError>,
) -> Result<T> {
    let mut parser = Parser::new(&FlinkDialect)
        .with_recursion_limit(RECURSION_MAX)
        .with_tokens_with_locations(tokens.clone());
    let tree = parse(&mut parser).map_err(|error| problem::from_parser(error, &tokens))?;
    let next = parser.peek_token();
    if next.token == Token::EOF {
        return Ok(tree);
    }
    Err(Error::plan(format!("unexpected {}", describe(Some(&next)))).at(span(next.span)))
}
