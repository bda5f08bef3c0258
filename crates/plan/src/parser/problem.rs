//! `sqlparser`'s complaints in our words: its location becomes a span, its jargon goes.
//!
//! `sqlparser` reports a text with a location at its end, and nothing else. What is matched here
//! are the forms of its messages, so an update of that crate may need changes; a form that is not
//! known passes as it is, with its place.

use sqlparser::parser::ParserError;
use sqlparser::tokenizer::{Location, Span as TokenSpan, TokenWithSpan};
use thalweg_core::{Error, Span};

use super::tokens::{describe, lower_first, span};

/// A query or expression that can't be parsed; `tokens` are what the parser was given.
pub(super) fn from_parser(error: ParserError, tokens: &[TokenWithSpan]) -> Error {
    let text = match error {
        ParserError::RecursionLimitExceeded => return too_deep().at(start_of(tokens)),
        ParserError::TokenizerError(text) | ParserError::ParserError(text) => text,
    };
    let (message, location) = split_location(&text);
    let found = location.and_then(|at| culprit(message, tokens, at));
    let place = match (found, location) {
        (Some(token), _) => span(token.span),
        (None, Some(at)) => span(TokenSpan::new(at, at)),
        (None, None) => end_of(tokens),
    };
    Error::plan(humane(message, found)).at(place)
}

/// The token that a complaint is about. Some name one token and give the place of the next.
/// So the token before is taken if it is the one that is named.
fn culprit<'t>(
    message: &str,
    tokens: &'t [TokenWithSpan],
    at: Location,
) -> Option<&'t TokenWithSpan> {
    let index = tokens.iter().position(|token| token.span.start == at)?;
    let named = message.rsplit_once("found: ").map(|(_, named)| named);
    let is_named = |token: &TokenWithSpan| named == Some(token.token.to_string().as_str());
    let before = index.checked_sub(1).and_then(|i| tokens.get(i));
    match before {
        Some(before) if !is_named(&tokens[index]) && is_named(before) => Some(before),
        _ => tokens.get(index),
    }
}

/// The complaint about a statement that is nested too deeply.
pub(super) fn too_deep() -> Error {
    Error::plan("this statement is nested too deeply")
        .hint("split it with CREATE VIEW, or write long chains of OR with IN (…)")
}

/// Where these tokens begin.
pub(super) fn start_of(tokens: &[TokenWithSpan]) -> Span {
    tokens.first().map_or(Span::default(), |t| span(t.span))
}

/// Just behind the last of these tokens.
pub(super) fn end_of(tokens: &[TokenWithSpan]) -> Span {
    tokens.last().map_or(Span::default(), |t| span(TokenSpan::new(t.span.end, t.span.end)))
}

fn humane(message: &str, found: Option<&TokenWithSpan>) -> String {
    let message = message.replace(", but found: ", ", found: ");
    if message.starts_with("No infix parser for token") {
        return format!("{} is no operator here", describe(found));
    }
    let Some(rest) = message.strip_prefix("Expected") else { return lower_first(&message) };
    let rest = rest.trim_start_matches([':', ' ']);
    let wanted = rest.rsplit_once(", found: ").map_or(rest, |(wanted, _)| wanted);
    let wanted = match wanted {
        "end of statement" => "the end of the statement".to_owned(),
        "identifier" => "a name".to_owned(),
        "date/time field" => "a unit of time such as SECOND or DAY".to_owned(),
        "literal string" => "a string in single quotes".to_owned(),
        "literal int" => "a whole number".to_owned(),
        symbol if !symbol.contains(char::is_alphanumeric) => format!("'{symbol}'"),
        other => other.to_owned(),
    };
    format!("expected {wanted}, found {}", describe(found))
}

/// Takes `sqlparser`'s " at Line: 3, Column: 7" off its message.
fn split_location(text: &str) -> (&str, Option<Location>) {
    let Some((message, place)) = text.rsplit_once(" at Line: ") else { return (text, None) };
    let numbers = place.split_once(", Column: ").and_then(|(line, column)| {
        Some(Location::new(line.trim().parse().ok()?, column.trim().parse().ok()?))
    });
    match numbers {
        Some(location) => (message, Some(location)),
        None => (text, None),
    }
}
