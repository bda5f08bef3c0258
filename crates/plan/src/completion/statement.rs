//! The tokens of a statement that is being written, and what they say about a place in it.

use sqlparser::tokenizer::{Token, Tokenizer, Word};

use crate::catalog::path;
use crate::parser::FlinkDialect;

/// Words that end a list of tables, or stand behind a table without being its alias.
const NO_ALIASES: &str = "ON WHERE GROUP ORDER HAVING JOIN LEFT RIGHT FULL INNER CROSS UNION \
    INTERSECT EXCEPT LIMIT FOR SELECT FROM WITH SET VALUES USING MATCH_RECOGNIZE";
/// Words that begin an entry of a table's definition which is no column.
const NO_COLUMNS: [&str; 6] = ["WATERMARK", "PRIMARY", "CONSTRAINT", "UNIQUE", "PERIOD", "LIKE"];

/// A table or view that a statement names, with its alias, or its own last name in place of one.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Named {
    pub table: String,
    pub alias: String,
}

/// The tokens of a statement, or of its beginning.
pub(super) struct StatementText(Vec<Token>);

impl StatementText {
    /// Of a text that ends between two tokens.
    pub fn new(text: &str) -> StatementText {
        let tokens = Tokenizer::new(&FlinkDialect, text).tokenize().unwrap_or_default();
        let counts = |token: &Token| !matches!(token, Token::Whitespace(_) | Token::EOF);
        StatementText(tokens.into_iter().filter(counts).collect())
    }

    /// Of a whole statement, of which the end may be missing: as far as it can be cut into tokens.
    pub fn around(text: &str) -> StatementText {
        let mut tokens = Vec::new();
        // On an error the tokens before it stay.
        let _ = Tokenizer::new(&FlinkDialect, text).tokenize_with_location_into_buf(&mut tokens);
        let tokens = tokens.into_iter().map(|token| token.token);
        let counts = |token: &Token| !matches!(token, Token::Whitespace(_) | Token::EOF);
        StatementText(tokens.filter(counts).collect())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if it begins with one of these words.
    pub fn is_first(&self, words: &[&str]) -> bool {
        self.0.first().is_some_and(|token| is_word_of(token, words))
    }

    pub fn ends_with_word(&self, words: &[&str]) -> bool {
        self.0.last().is_some_and(|token| is_word_of(token, words))
    }

    /// True behind `WORD(`.
    pub fn ends_with_call(&self, word: &str) -> bool {
        matches!(&self.0[..], [.., before, Token::LParen] if is_word_of(before, &[word]))
    }

    /// The name before the point at the end.
    pub fn qualifier(&self) -> Option<String> {
        let [before @ .., Token::Period] = &self.0[..] else { return None };
        let mut parts = Vec::new();
        for (at, token) in before.iter().rev().enumerate() {
            match (at % 2, token) {
                (0, Token::Word(word)) => parts.insert(0, word.value.clone()),
                (1, Token::Period) => {}
                _ => break,
            }
        }
        (!parts.is_empty()).then(|| path::dotted(&parts))
    }

    /// The key of `'key' =` at the end.
    pub fn key_before_equals(&self) -> Option<String> {
        match &self.0[..] {
            [.., Token::SingleQuotedString(key), Token::Eq] => Some(key.clone()),
            _ => None,
        }
    }

    /// True where a key of the options of a table stands: `WITH (`, or behind a comma of it.
    pub fn is_in_options(&self) -> bool {
        let is_begun = matches!(self.0.last(), Some(Token::LParen | Token::Comma));
        let opened = self.open_bracket();
        let before = opened.and_then(|at| at.checked_sub(1)).map(|at| &self.0[at]);
        is_begun
            && before.is_some_and(|token| is_word_of(token, &["WITH", "OPTIONS", "SET", "RESET"]))
    }

    /// The place of the bracket that is open at the end.
    fn open_bracket(&self) -> Option<usize> {
        let mut depth = 0usize;
        for (at, token) in self.0.iter().enumerate().rev() {
            match token {
                Token::RParen => depth += 1,
                Token::LParen if depth == 0 => return Some(at),
                Token::LParen => depth -= 1,
                _ => {}
            }
        }
        None
    }

    /// The tables and views that it names, of those that `is_known` knows.
    pub fn named(&self, is_known: impl Fn(&str) -> bool) -> Vec<Named> {
        let mut found = Vec::new();
        let mut at = 0;
        while at < self.0.len() {
            let (name, next) = self.path_at(at);
            let is_part = at > 0 && self.0[at - 1] == Token::Period;
            if !name.is_empty() && !is_part && is_known(&path::dotted(&name)) {
                let (table, last) = (path::dotted(&name), name[name.len() - 1].clone());
                let alias = self.alias_at(next).unwrap_or(last);
                found.push(Named { table, alias });
            }
            at = next.max(at + 1);
        }
        found
    }

    /// The parts of a name with points, and the place behind it.
    fn path_at(&self, at: usize) -> (Vec<String>, usize) {
        let (mut parts, mut next) = (Vec::new(), at);
        while let Some(Token::Word(word)) = self.0.get(next) {
            parts.push(word.value.clone());
            next += 1;
            match (self.0.get(next), self.0.get(next + 1)) {
                (Some(Token::Period), Some(Token::Word(_))) => next += 1,
                _ => break,
            }
        }
        (parts, next)
    }

    /// `[AS] alias`
    fn alias_at(&self, at: usize) -> Option<String> {
        let is_no_alias =
            |token: &Token| NO_ALIASES.split(' ').any(|word| is_word_of(token, &[word]));
        let is_as = self.0.get(at).is_some_and(|token| is_word_of(token, &["AS"]));
        match self.0.get(at + usize::from(is_as)) {
            Some(token @ Token::Word(word)) if !is_no_alias(token) => Some(word.value.clone()),
            _ => None,
        }
    }

    /// The columns of a table that it declares, with the first word of each one's type.
    pub fn declared(&self) -> Vec<(String, String)> {
        let mut columns = Vec::new();
        if !self.is_first(&["CREATE"])
            || !self.0.iter().take(4).any(|token| is_word_of(token, &["TABLE"]))
        {
            return columns;
        }
        let mut depth = 0usize;
        for (at, token) in self.0.iter().enumerate() {
            let is_behind_comma = depth == 1 && *token == Token::Comma;
            match token {
                Token::LParen | Token::Lt => depth += 1,
                Token::RParen | Token::Gt => depth = depth.saturating_sub(1),
                _ if is_word_of(token, &["WITH"]) && depth == 0 => break,
                _ => {}
            }
            let begins = is_behind_comma || (depth == 1 && *token == Token::LParen);
            if let (true, Some(name @ Token::Word(word)), Some(Token::Word(kind))) =
                (begins, self.0.get(at + 1), self.0.get(at + 2))
                && !is_word_of(name, &NO_COLUMNS)
            {
                columns.push((word.value.clone(), kind.value.clone()));
            }
        }
        columns
    }
}

fn is_word_of(token: &Token, words: &[&str]) -> bool {
    matches!(token, Token::Word(Word { value, quote_style: None, .. })
        if words.iter().any(|word| value.eq_ignore_ascii_case(word)))
}

/// The value of an option in a text: `'key' = 'value'`.
pub(super) fn option_of(text: &str, key: &str) -> Option<String> {
    let quoted = format!("'{key}'");
    let (_, rest) = text.split_once(&quoted)?;
    let rest = rest.trim_start().strip_prefix('=')?.trim_start().strip_prefix('\'')?;
    rest.split_once('\'').map(|(value, _)| value.to_owned())
}
