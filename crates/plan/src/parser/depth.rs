//! Bounds how deep a statement's tree can become, before it is built.
//!
//! `sqlparser` bounds its own recursion, but `a + a + a + …` builds a tree as deep as the chain is
//! long without recursing, and every later walk over it (dropping it, too) does recurse. So the
//! operators on the way from the root to a leaf are counted here in the token stream. The count is
//! an upper bound: it may exceed the true depth, it never falls short of it. Brackets that do not
//! match are found on the way, because their message is better here.

use sqlparser::tokenizer::{Token, TokenWithSpan};
use thalweg_core::{Error, Result};

use super::problem;
use super::tokens::{span, upper_word};

/// Operators on one path.
const CHAIN_MAX: usize = 500;
/// Brackets within brackets.
const BRACKETS_MAX: usize = 100;

/// Operators within one bracket: `sets` join queries, `chain` joins expressions of one clause.
#[derive(Clone, Copy, Default)]
struct Level {
    outside: usize,
    sets: usize,
    chain: usize,
}

impl Level {
    fn total(self) -> usize {
        self.outside + self.sets + self.chain
    }
}

/// Fails if brackets don't match or the tree of these tokens could become too deep.
pub(super) fn check(tokens: &[TokenWithSpan]) -> Result<()> {
    let mut outer: Vec<(Level, &TokenWithSpan)> = Vec::new();
    let mut level = Level::default();
    for token in tokens {
        match &token.token {
            Token::LParen | Token::LBracket | Token::LBrace => {
                outer.push((level, token));
                level = Level { outside: level.total() + 1, ..Level::default() };
            }
            Token::RParen | Token::RBracket | Token::RBrace => {
                let opened = outer.pop();
                level = match opened {
                    Some((level, open)) if matches(&open.token, &token.token) => level,
                    _ => return Err(stray(token, opened.map(|(_, open)| open))),
                };
            }
            Token::Comma => level.chain = 0,
            Token::Word(_) => count_word(&mut level, &token.token),
            Token::Period | Token::Number(..) | Token::SingleQuotedString(_) => {}
            _ => level.chain += 1,
        }
        if level.total() > CHAIN_MAX || outer.len() > BRACKETS_MAX {
            return Err(problem::too_deep().at(span(token.span)));
        }
    }
    match outer.pop() {
        Some((_, open)) => {
            Err(Error::plan(format!("this '{}' is never closed", open.token)).at(span(open.span)))
        }
        None => Ok(()),
    }
}

fn matches(open: &Token, close: &Token) -> bool {
    matches!(
        (open, close),
        (Token::LParen, Token::RParen)
            | (Token::LBracket, Token::RBracket)
            | (Token::LBrace, Token::RBrace)
    )
}

fn stray(close: &TokenWithSpan, open: Option<&TokenWithSpan>) -> Error {
    let message = match open {
        Some(open) => format!("'{}' can't close '{}'", close.token, open.token),
        None => format!("this '{}' closes nothing", close.token),
    };
    Error::plan(message).at(span(close.span))
}

fn count_word(level: &mut Level, token: &Token) {
    let Some(word) = upper_word(token) else { return };
    match word.as_str() {
        "UNION" | "INTERSECT" | "EXCEPT" | "MINUS" => level.sets += 1,
        // A new expression begins, as behind a comma.
        "SELECT" | "FROM" | "WHERE" | "GROUP" | "HAVING" | "ORDER" | "ON" | "LIMIT" => {
            level.chain = 0
        }
        // They join two expressions.
        "AND" | "OR" | "XOR" | "NOT" | "IS" | "LIKE" | "ILIKE" | "RLIKE" | "REGEXP" | "SIMILAR"
        | "BETWEEN" | "IN" | "AT" | "COLLATE" | "DIV" | "OVERLAPS" | "MEMBER" | "OPERATOR"
        | "NOTNULL" | "ISNULL" => level.chain += 1,
        _ => {}
    }
}
