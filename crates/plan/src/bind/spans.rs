//! Places of syntax nodes in the text, in the engine's terms.
//!
//! Lines and columns count from 1, columns in characters; a place with line 0 is unknown. The
//! placeholders and markers of the parser stand where the user's text stood, so these places are
//! always places of the file.

use sqlparser::ast::{Ident, Spanned};
use thalweg_core::Span;

/// Where a node stands.
pub fn span_of(node: &impl Spanned) -> Span {
    convert(node.span())
}

/// Where a name stands.
pub fn ident_span(ident: &Ident) -> Span {
    convert(ident.span)
}

/// From the first to the last part of a dotted name.
pub fn idents_span(parts: &[Ident]) -> Span {
    match (parts.first(), parts.last()) {
        (Some(first), Some(last)) => {
            convert(sqlparser::tokenizer::Span::new(first.span.start, last.span.end))
        }
        _ => Span::default(),
    }
}

/// Converts a place of the tokenizer, whose end lies just behind the last character.
pub fn convert(span: sqlparser::tokenizer::Span) -> Span {
    let (start, end) = (span.start, span.end);
    let end_column = if start.line == end.line { end.column as u32 } else { 0 };
    Span { line: start.line as u32, column: start.column as u32, end_column }
}
