//! The token stream: reading it, finding one's way in it, and where its tokens stand in the text.
//!
//! White space and comments are dropped, so that the rest of the parser sees words only. Every
//! token keeps its place in the file. A [`Cursor`] never reads beyond its slice and never panics.
//!
//! Hints (`/*+ … */`) are comments to the tokenizer, so they are collected here, with their places,
//! and handed to the query whose tokens surround them.
//!
//! The methods of a [`Cursor`]: `is_…` looks, `take_…` passes what it names if it is there,
//! `expect_…` fails if it is not, and everything else reads one thing or fails.

use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{
    Location, Span as TokenSpan, Token, TokenWithSpan, Tokenizer, TokenizerError, Whitespace, Word,
};
use thalweg_core::{Error, Result, Span};

use crate::ast::{JoinHint, Name, OptionList, TableOptions};
use crate::catalog::path;

use super::dialect::FlinkDialect;
use super::hint;

/// A quoted name as a token.
pub(super) fn quoted_word(text: String, place: TokenSpan) -> TokenWithSpan {
    let word = Word { value: text, quote_style: Some('`'), keyword: Keyword::NoKeyword };
    TokenWithSpan::new(Token::Word(word), place)
}

/// The longest text that is read, in bytes.
pub const TEXT_BYTES_MAX: usize = 1 << 20;

/// Something to report that is no error.
#[derive(Clone, Debug, PartialEq)]
pub struct Note {
    /// Where it stands.
    pub span: Span,
    /// What it is.
    pub message: String,
}

/// The text of a script with an index of its lines.
pub(super) struct SourceText<'a> {
    text: &'a str,
    line_starts: Vec<usize>,
    /// Hints that say how to join, with their places.
    hints: Vec<(Location, JoinHint)>,
    /// The options of hints, with where the token before each ends.
    options: Vec<(Location, OptionList)>,
}

impl<'a> SourceText<'a> {
    /// Indexes the lines of a text.
    pub(super) fn new(text: &'a str) -> Self {
        let line_starts =
            std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        SourceText { text, line_starts, hints: Vec::new(), options: Vec::new() }
    }

    /// The same with the hints that were found in it.
    pub(super) fn with_hints(
        mut self,
        hints: Vec<(Location, JoinHint)>,
        options: Vec<(Location, OptionList)>,
    ) -> Self {
        (self.hints, self.options) = (hints, options);
        self
    }

    /// The options of the hint right behind a name.
    pub(super) fn options_behind(&self, name: Span) -> Option<&OptionList> {
        let is_end = |at: &Location| {
            (at.line, at.column) == (u64::from(name.line), u64::from(name.end_column))
        };
        self.options.iter().find(|(at, _)| is_end(at)).map(|(_, options)| options)
    }

    /// The hints with options that stand among these tokens, with where the names before them end.
    pub(super) fn options_in(&self, tokens: &[TokenWithSpan]) -> Vec<TableOptions> {
        let (Some(first), Some(last)) = (tokens.first(), tokens.last()) else { return Vec::new() };
        let range = first.span.start..=last.span.end;
        let inside = self.options.iter().filter(|(at, _)| range.contains(at));
        let narrow = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        let found = |(at, options): &(Location, OptionList)| TableOptions {
            behind: (narrow(at.line), narrow(at.column)),
            options: options.clone(),
        };
        inside.map(found).collect()
    }

    /// The hints that stand among these tokens.
    /// A query inside of a window call has those inside of its own tokens; the query around has
    /// them too.
    pub(super) fn hints_in(&self, tokens: &[TokenWithSpan]) -> Vec<JoinHint> {
        let (Some(first), Some(last)) = (tokens.first(), tokens.last()) else { return Vec::new() };
        let range = first.span.start..last.span.end;
        let inside = self.hints.iter().filter(|(at, _)| range.contains(at));
        inside.map(|(_, hint)| hint.clone()).collect()
    }

    fn byte_offset(&self, location: Location) -> usize {
        let line = (location.line.max(1) - 1) as usize;
        let Some(&start) = self.line_starts.get(line) else { return self.text.len() };
        let column = (location.column.max(1) - 1) as usize;
        let rest = &self.text[start..];
        rest.char_indices().nth(column).map_or(self.text.len(), |(at, _)| start + at)
    }

    /// The text from the first of these tokens to the last.
    pub(super) fn text_of(&self, tokens: &[TokenWithSpan]) -> &'a str {
        let (Some(first), Some(last)) = (tokens.first(), tokens.last()) else { return "" };
        let (start, end) = (self.byte_offset(first.span.start), self.byte_offset(last.span.end));
        self.text.get(start..end).unwrap_or("")
    }
}

/// Turns a place in the token stream into a place in an error.
/// A place over several lines has no end: one caret is shown then.
pub fn span(place: TokenSpan) -> Span {
    let narrow = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
    let one_line = place.start.line == place.end.line && place.end.column > place.start.column;
    Span {
        line: narrow(place.start.line),
        column: narrow(place.start.column),
        end_column: if one_line { narrow(place.end.column) } else { 0 },
    }
}

/// What a text consists of.
pub(super) struct Tokens {
    /// The words.
    pub(super) words: Vec<TokenWithSpan>,
    /// Reports hints that are ignored.
    pub(super) notes: Vec<Note>,
    /// Hints that say how to join, with their places.
    pub(super) hints: Vec<(Location, JoinHint)>,
    /// The options of hints, with where the token before each ends.
    pub(super) options: Vec<(Location, OptionList)>,
}

/// Reads the tokens of a text.
pub(super) fn tokenize(text: &str) -> Result<Tokens> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(Error::plan(format!(
            "the SQL text has {} bytes; at most {TEXT_BYTES_MAX} are read",
            text.len()
        ))
        .hint("split it into several files, or move data out of it"));
    }
    let all =
        Tokenizer::new(&FlinkDialect, text).tokenize_with_location().map_err(cannot_be_cut)?;
    let mut tokens = Vec::with_capacity(all.len() / 2);
    let (mut notes, mut hints, mut options) = (Vec::new(), Vec::new(), Vec::new());
    for token in all {
        match &token.token {
            Token::Whitespace(Whitespace::MultiLineComment(comment))
                if comment.starts_with('+') =>
            {
                let place = span(token.span);
                let of_table = hint::options(comment, place)?;
                let is_of_table = of_table.is_some();
                let behind = tokens.last().map(|before: &TokenWithSpan| before.span.end);
                options.extend(behind.zip(of_table));
                match hint::read(comment, place)? {
                    Some(found) => {
                        hints.extend(found.into_iter().map(|hint| (token.span.start, hint)));
                    }
                    None if is_of_table => {}
                    None => notes.push(Note {
                        span: span(token.span),
                        message: format!("the hint /*{comment}*/ changes nothing here"),
                    }),
                }
            }
            Token::Whitespace(_) => {}
            // A byte order mark.
            Token::Char('\u{feff}') if tokens.is_empty() => {}
            Token::DoubleQuotedString(quoted) => return Err(double_quotes(quoted, token.span)),
            Token::EOF => break,
            _ => tokens.push(token),
        }
    }
    Ok(Tokens { words: tokens, notes, hints, options })
}

/// A text that can't be cut into words.
pub(crate) fn cannot_be_cut(error: TokenizerError) -> Error {
    let message = match error.message.as_str() {
        m if m.starts_with("Unterminated string literal") => "this string has no closing quote",
        m if m.starts_with("Unterminated encoded string literal") => {
            "this string has no closing quote"
        }
        m if m.starts_with("Unexpected EOF while in a multi-line comment") => {
            "a comment /* … is not closed by */"
        }
        m if m.starts_with("Expected close delimiter") => "this name has no closing quote",
        other => &lower_first(other),
    };
    Error::plan(message.to_owned()).at(span(TokenSpan::new(error.location, error.location)))
}

/// A text that begins with a lower-case letter.
pub(super) fn lower_first(text: &str) -> String {
    let mut characters = text.chars();
    match characters.next() {
        Some(first) => first.to_lowercase().chain(characters).collect(),
        None => "this can't be parsed".to_owned(),
    }
}

fn double_quotes(quoted: &str, place: TokenSpan) -> Error {
    Error::plan("double quotes mean nothing in this dialect")
        .hint(format!("write '{quoted}' for a string or `{quoted}` for a name"))
        .at(span(place))
}

/// How a token is named in a message.
pub(super) fn describe(token: Option<&TokenWithSpan>) -> String {
    match token.map(|t| &t.token) {
        None | Some(Token::EOF) => "the end of the statement".to_owned(),
        Some(Token::SingleQuotedString(text)) => format!("the string '{}'", shorten(text)),
        Some(token) => format!("'{}'", shorten(&token.to_string())),
    }
}

fn shorten(text: &str) -> String {
    if text.chars().count() <= 40 {
        return text.to_owned();
    }
    text.chars().take(40).chain(std::iter::once('…')).collect()
}

/// True for this unquoted word, whatever its case.
pub(super) fn is_word(token: &Token, word: &str) -> bool {
    matches!(token, Token::Word(Word { value, quote_style: None, .. }) if value.eq_ignore_ascii_case(word))
}

/// The unquoted word in upper case, if the token is one.
pub(super) fn upper_word(token: &Token) -> Option<String> {
    match token {
        Token::Word(Word { value, quote_style: None, .. }) => Some(value.to_ascii_uppercase()),
        _ => None,
    }
}

/// The place among `tokens` of the bracket that closes the one at `open`.
/// All kinds of bracket count alike; `depth::check` has made sure that they match.
pub(super) fn closing(tokens: &[TokenWithSpan], open: usize) -> Option<usize> {
    let mut depth = 0usize;
    for (i, token) in tokens.iter().enumerate().skip(open) {
        match token.token {
            Token::LParen | Token::LBracket | Token::LBrace => depth += 1,
            Token::RParen | Token::RBracket | Token::RBrace => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(i);
                }
            }
            _ => {}
        }
    }
    None
}

/// A reading position in a slice of tokens.
#[derive(Clone)]
pub(super) struct Cursor<'a> {
    pub(super) source: &'a SourceText<'a>,
    pub(super) tokens: &'a [TokenWithSpan],
    pub(super) index: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(source: &'a SourceText<'a>, tokens: &'a [TokenWithSpan]) -> Self {
        Cursor { source, tokens, index: 0 }
    }
    pub(super) fn peek(&self) -> Option<&'a TokenWithSpan> {
        self.tokens.get(self.index)
    }
    pub(super) fn peek_at(&self, ahead: usize) -> Option<&'a Token> {
        self.tokens.get(self.index + ahead).map(|t| &t.token)
    }
    pub(super) fn at_end(&self) -> bool {
        self.index >= self.tokens.len()
    }
    /// Where the next token stands, or where the text ended.
    pub(super) fn here(&self) -> Span {
        match (self.peek(), self.tokens.last()) {
            (Some(token), _) => span(token.span),
            (None, Some(last)) => span(TokenSpan::new(last.span.end, last.span.end)),
            (None, None) => Span::default(),
        }
    }
    pub(super) fn next(&mut self) -> Option<&'a TokenWithSpan> {
        let token = self.peek();
        self.index += usize::from(token.is_some());
        token
    }
    /// "expected …, found …" at the next token.
    pub(super) fn expected(&self, what: &str) -> Error {
        Error::plan(format!("expected {what}, found {}", describe(self.peek()))).at(self.here())
    }
    /// True if the next token is this unquoted word.
    pub(super) fn is_word(&self, word: &str) -> bool {
        self.is_word_at(0, word)
    }
    pub(super) fn is_word_at(&self, ahead: usize, word: &str) -> bool {
        self.peek_at(ahead).is_some_and(|token| is_word(token, word))
    }
    pub(super) fn is_words(&self, words: &[&str]) -> bool {
        words.iter().enumerate().all(|(ahead, word)| self.is_word_at(ahead, word))
    }
    pub(super) fn is_token(&self, token: &Token) -> bool {
        self.peek_at(0) == Some(token)
    }
    /// Takes these words if they all come next.
    pub(super) fn take_words(&mut self, words: &[&str]) -> bool {
        let found = self.is_words(words);
        self.index += if found { words.len() } else { 0 };
        found
    }
    pub(super) fn take_token(&mut self, token: &Token) -> bool {
        let found = self.is_token(token);
        self.index += usize::from(found);
        found
    }
    pub(super) fn expect_words(&mut self, words: &[&str]) -> Result<()> {
        for word in words {
            if !self.take_words(&[word]) {
                return Err(self.expected(word));
            }
        }
        Ok(())
    }
    pub(super) fn expect_token(&mut self, token: &Token) -> Result<()> {
        if self.take_token(token) { Ok(()) } else { Err(self.expected(&format!("'{token}'"))) }
    }
    /// Fails unless everything was read.
    pub(super) fn expect_end(&self) -> Result<()> {
        if self.at_end() { Ok(()) } else { Err(self.expected("the end of the statement")) }
    }
    /// A name, in backticks or not. `what` says of what, for the message.
    pub(super) fn name(&mut self, what: &str) -> Result<Name> {
        match self.peek() {
            Some(TokenWithSpan { token: Token::Word(word), span: place }) => {
                self.index += 1;
                Ok(Name { text: word.value.clone(), span: span(*place) })
            }
            _ => Err(self.expected(what)),
        }
    }
    /// The name of a table or view, which may be preceded by those of catalog and database.
    pub(super) fn table_name(&mut self) -> Result<Name> {
        self.path("a table name")
    }
    /// A name with dots, as one text (`catalog::path`).
    pub(super) fn path(&mut self, what: &str) -> Result<Name> {
        let first = self.name(what)?;
        let mut parts = vec![first.text];
        let mut span = first.span;
        while self.take_token(&Token::Period) {
            let next = self.name(what)?;
            if next.span.line == span.line {
                span.end_column = next.span.end_column;
            }
            parts.push(next.text);
        }
        Ok(Name { text: path::dotted(&parts), span })
    }
    /// A string in single quotes.
    pub(super) fn string(&mut self, what: &str) -> Result<Name> {
        match self.peek() {
            Some(TokenWithSpan {
                token: Token::SingleQuotedString(text) | Token::UnicodeStringLiteral(text),
                span: place,
            }) => {
                self.index += 1;
                Ok(Name { text: text.clone(), span: span(*place) })
            }
            _ => Err(self.expected(what)),
        }
    }
    /// `(a, b, …)`
    pub(super) fn parenthesized_names(&mut self, what: &str) -> Result<Vec<Name>> {
        self.parenthesized(|cursor| cursor.name(what))
    }
    /// `(item, …)`, at least one.
    pub(super) fn parenthesized<T>(
        &mut self,
        item: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<Vec<T>> {
        self.expect_token(&Token::LParen)?;
        let items = self.list(item)?;
        self.expect_token(&Token::RParen)?;
        Ok(items)
    }
    /// `item, …`, at least one.
    pub(super) fn list<T>(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<Vec<T>> {
        let mut items = vec![item(self)?];
        while self.take_token(&Token::Comma) {
            items.push(item(self)?);
        }
        Ok(items)
    }
    /// Takes the tokens up to one of `stops` outside of any bracket, or to the end.
    pub(super) fn take_until(&mut self, stops: &[Token]) -> &'a [TokenWithSpan] {
        let start = self.index;
        let mut depth = 0usize;
        while let Some(token) = self.peek() {
            match &token.token {
                token if depth == 0 && stops.contains(token) => break,
                Token::LParen | Token::LBracket | Token::LBrace => depth += 1,
                Token::RParen | Token::RBracket | Token::RBrace => depth = depth.saturating_sub(1),
                _ => {}
            }
            self.index += 1;
        }
        &self.tokens[start..self.index]
    }
    /// A cursor over the tokens up to the next semicolon, which are passed here. The semicolon
    /// itself is left: `statements` skips any number of them.
    pub(super) fn statement(&mut self) -> Cursor<'a> {
        let start = self.index;
        while self.peek().is_some_and(|t| t.token != Token::SemiColon) {
            self.index += 1;
        }
        Cursor::new(self.source, &self.tokens[start..self.index])
    }
    /// What is left.
    pub(super) fn rest(&mut self) -> &'a [TokenWithSpan] {
        let rest = &self.tokens[self.index..];
        self.index = self.tokens.len();
        rest
    }
}
