//! The tokens of a text as a layout sees them: their text, and what of the white space around them
//! counts.

use sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer, Whitespace, Word};
use thalweg_core::{Error, Result};

use crate::parser::{FlinkDialect, TEXT_BYTES_MAX, cannot_be_cut};

/// A token or a comment.
#[derive(Clone, Debug)]
pub(super) struct Piece<'t> {
    /// As it was written; a line comment without the end of its line.
    pub text: &'t str,
    pub token: Token,
    /// A space belongs before it.
    pub is_apart: bool,
    /// Of a comment: nothing stands before it in its line.
    pub stands_alone: bool,
    /// A blank line stands before it.
    pub is_behind_blank_line: bool,
}

impl Piece<'_> {
    pub fn is_semicolon(&self) -> bool {
        self.token == Token::SemiColon
    }

    /// True of a comment. A hint is none: it means something where it stands.
    pub fn is_comment(&self) -> bool {
        is_comment(&self.token)
    }

    fn is_line_comment(&self) -> bool {
        matches!(self.token, Token::Whitespace(Whitespace::SingleLineComment { .. }))
    }

    /// A comment that stands behind something in its line.
    pub fn is_trailing_comment(&self) -> bool {
        self.is_comment() && !self.stands_alone
    }

    /// True for this word without quotes, in any case.
    pub fn is_word(&self, word: &str) -> bool {
        matches!(&self.token, Token::Word(Word { value, quote_style: None, .. })
            if value.eq_ignore_ascii_case(word))
    }

    pub fn is_word_of(&self, words: &[&str]) -> bool {
        words.iter().any(|word| self.is_word(word))
    }

    /// Nothing can stand behind it in its line.
    pub fn ends_line(&self) -> bool {
        self.is_line_comment() || (self.is_comment() && self.stands_alone)
    }

    /// How wide it is with the space before it; none if it needs a line of its own, or ends one.
    pub fn flat_width(&self) -> Option<usize> {
        let is_flat = !self.ends_line() && !self.text.contains('\n');
        is_flat.then(|| self.text.chars().count() + usize::from(self.is_apart))
    }
}

/// The pieces of a text.
///
/// # Errors
/// If it cannot be cut into tokens, or is too long.
pub(super) fn pieces(text: &str) -> Result<Vec<Piece<'_>>> {
    if text.len() > TEXT_BYTES_MAX {
        let message =
            format!("the text has {} bytes; at most {TEXT_BYTES_MAX} are read", text.len());
        return Err(Error::plan(message));
    }
    let tokens = Tokenizer::new(&FlinkDialect, text).tokenize_with_location();
    let tokens = tokens.map_err(cannot_be_cut)?;
    let mut reader = Reader { text, line: 1, column: 1, byte: 0 };
    let mut pieces: Vec<Piece<'_>> = Vec::new();
    let (mut newlines, mut touches) = (0, false);
    for token in &tokens {
        match &token.token {
            Token::Whitespace(Whitespace::Newline) => (newlines, touches) = (newlines + 1, false),
            Token::Whitespace(Whitespace::Space | Whitespace::Tab) => touches = false,
            Token::EOF => {}
            // A byte order mark.
            Token::Char('\u{feff}') if pieces.is_empty() => {}
            _ => {
                let own = piece(&mut reader, token, (pieces.last(), newlines, touches));
                (newlines, touches) = (0, !own.is_line_comment());
                pieces.push(own);
            }
        }
    }
    Ok(pieces)
}

fn piece<'t>(
    reader: &mut Reader<'t>,
    token: &TokenWithSpan,
    (before, newlines, touches): (Option<&Piece<'_>>, usize, bool),
) -> Piece<'t> {
    let (start, end) = (token.span.start, token.span.end);
    let text = reader.between((start.line, start.column), (end.line, end.column));
    let is_comment = is_comment(&token.token);
    let text = if is_comment { text.trim_end() } else { text };
    Piece {
        is_apart: before.is_some_and(|before| is_apart(&before.token, &token.token, touches)),
        stands_alone: is_comment && (before.is_none() || newlines > 0),
        is_behind_blank_line: newlines > 1,
        token: token.token.clone(),
        text,
    }
}

fn is_comment(token: &Token) -> bool {
    match token {
        Token::Whitespace(Whitespace::MultiLineComment(text)) => !text.starts_with('+'),
        Token::Whitespace(_) => true,
        _ => false,
    }
}

/// True if a space belongs between two tokens, which touch in the text or do not.
fn is_apart(before: &Token, token: &Token, touches: bool) -> bool {
    use Token::{Comma, Eq, LBracket, LParen, Period, RArrow, RBracket, RParen, SemiColon};
    match (before, token) {
        (_, Token::Whitespace(_)) | (Token::Whitespace(_), _) => true,
        (LParen | LBracket, _) | (_, Comma | SemiColon | RParen | RBracket) => false,
        // Next to a digit a point would become part of the number.
        (Period, Token::Word(_) | Token::Mul) | (Token::Word(_) | RParen | RBracket, Period) => {
            false
        }
        (Comma | Eq | RArrow, _) | (_, Eq | RArrow) => true,
        // `_UTF8'ä'` is one literal.
        (Token::Word(_), Token::SingleQuotedString(_)) => !touches,
        _ => !touches || (is_of_words(before) && is_of_words(token)),
    }
}

/// Words and literals, and brackets that end something: two of them never touch.
fn is_of_words(token: &Token) -> bool {
    matches!(
        token,
        Token::Word(_)
            | Token::Number(..)
            | Token::SingleQuotedString(_)
            | Token::UnicodeStringLiteral(_)
            | Token::HexStringLiteral(_)
            | Token::RParen
    )
}

/// A place in a text that only moves on, by lines and columns.
struct Reader<'t> {
    text: &'t str,
    /// From 1, as tokens count.
    line: u64,
    column: u64,
    byte: usize,
}

impl<'t> Reader<'t> {
    /// The byte at a line and a column.
    fn advance_to(&mut self, (line, column): (u64, u64)) -> usize {
        let rest = self.text[self.byte..].chars();
        for character in rest {
            if (self.line, self.column) >= (line, column) {
                break;
            }
            self.byte += character.len_utf8();
            (self.line, self.column) = match character {
                '\n' => (self.line + 1, 1),
                _ => (self.line, self.column + 1),
            };
        }
        self.byte
    }

    fn between(&mut self, start: (u64, u64), end: (u64, u64)) -> &'t str {
        let start = self.advance_to(start);
        let end = self.advance_to(end);
        &self.text[start..end]
    }
}
