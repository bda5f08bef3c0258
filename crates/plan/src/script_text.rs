//! The text of a script, to be edited in places and not printed again: comments and layout stay.

use std::ops::Range;

use sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};
use thalweg_core::quoting::quoted_text;
use thalweg_core::{Error, Result, Span};

use crate::parser::FlinkDialect;

/// Bytes of a text, and what stands there instead.
pub(crate) type Edit = (Range<usize>, String);

/// A script and its tokens.
pub(crate) struct ScriptText<'t> {
    pub(crate) text: &'t str,
    tokens: Vec<TokenWithSpan>,
}

impl<'t> ScriptText<'t> {
    /// A text that can be parsed.
    ///
    /// # Errors
    /// If it cannot be cut into tokens.
    pub(crate) fn new(text: &'t str) -> Result<ScriptText<'t>> {
        let tokens = Tokenizer::new(&FlinkDialect, text).tokenize_with_location();
        let tokens = tokens.map_err(|error| Error::plan(error.message))?;
        Ok(ScriptText { text, tokens })
    }

    /// The byte at a line and a column, which count from 1.
    fn offset(&self, line: u64, column: u64) -> usize {
        let lines = (line.max(1) - 1) as usize;
        let start = match lines {
            0 => 0,
            _ => self
                .text
                .match_indices('\n')
                .nth(lines - 1)
                .map_or(self.text.len(), |(at, _)| at + 1),
        };
        let rest = &self.text[start..];
        let column = (column.max(1) - 1) as usize;
        rest.char_indices().nth(column).map_or(self.text.len(), |(at, _)| start + at)
    }

    pub(crate) fn start(&self, span: Span) -> usize {
        self.offset(span.line.into(), span.column.into())
    }

    /// What a place of one line covers.
    pub(crate) fn range(&self, span: Span) -> Option<Range<usize>> {
        let end = (span.end_column > span.column)
            .then(|| self.offset(span.line.into(), span.end_column.into()))?;
        Some(self.start(span)..end)
    }

    fn bytes(&self, token: &TokenWithSpan) -> Range<usize> {
        let (start, end) = (token.span.start, token.span.end);
        self.offset(start.line, start.column)..self.offset(end.line, end.column)
    }

    /// The tokens that are words, from a place on.
    pub(crate) fn words_from(&self, start: usize) -> impl Iterator<Item = (&Token, Range<usize>)> {
        let tokens = self.tokens.iter().filter(|token| !is_space(&token.token));
        let placed = tokens.map(|token| (&token.token, self.bytes(token)));
        placed.skip_while(move |(_, range)| range.start < start)
    }

    /// Where a statement ends, its semicolon left out.
    pub(crate) fn end(&self, start: usize, next: Option<Span>) -> usize {
        let limit = next.map_or(self.text.len(), |next| self.start(next));
        let inside = self.words_from(start).take_while(|(_, range)| range.start < limit);
        let words = inside.filter(|(token, _)| **token != Token::SemiColon);
        words.last().map_or(start, |(_, range)| range.end)
    }

    /// A part of the text with its edits, which are in order. One inside of another is part of what
    /// replaces that.
    pub(crate) fn edited(&self, range: Range<usize>, edits: &[Edit]) -> String {
        let (mut result, mut at) = (String::new(), range.start);
        for (place, with) in edits {
            if place.start < at || place.end > range.end {
                continue;
            }
            result.push_str(&self.text[at..place.start]);
            result.push_str(with);
            at = place.end;
        }
        result.push_str(&self.text[at..range.end]);
        result
    }
}

fn is_space(token: &Token) -> bool {
    matches!(token, Token::Whitespace(_) | Token::EOF)
}

/// Brings edits into the order of the text. Where several begin at one place, the outer one comes
/// first: it was made later.
pub(crate) fn in_order(edits: &mut [Edit]) {
    edits.sort_by_key(|(range, _)| (range.start, range.end));
}

/// Options as they stand between the brackets of WITH.
pub(crate) fn quoted_options(options: &[(String, String)], separator: &str) -> String {
    let quoted =
        |(key, value): &(String, String)| format!("{} = {}", quoted_text(key), quoted_text(value));
    options.iter().map(quoted).collect::<Vec<_>>().join(separator)
}

/// The place of the bracket that closes the first one.
pub(crate) fn closing(words: &[(Token, Range<usize>)]) -> Option<usize> {
    let mut depth = 0usize;
    for (at, (token, _)) in words.iter().enumerate() {
        match token {
            Token::LParen => depth += 1,
            Token::RParen => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
    None
}
