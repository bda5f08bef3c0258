//! Rewrites of the token stream for what `sqlparser` has no words for:
//!
//! | Flink | becomes |
//! |---|---|
//! | `CAST(x AS ROW<a INT>)` | `` CAST(x AS `ROW<a INT>`) ``: the type as one name, read by [`super::data_type`] |
//! | `MAP['a', 1]` | `MAP('a', 1)` |
//! | `VALUES 1, 2` | `VALUES (1), (2)` |
//! | `CEILING(x TO HOUR)` | `CEIL(x TO HOUR)` |
//! | `a ASOF LEFT JOIN b MATCH_CONDITION (m) ON c` | ``a LEFT JOIN b ON `ASOF$`(m) AND c`` (see `asof`) |
//! | clauses of `MATCH_RECOGNIZE` | see [`super::pattern`] |
//! | clauses of JSON_VALUE and its kin, `BETWEEN SYMMETRIC`, … | see [`super::clauses`] |
//!
//! The tokens that replace others stand where the first of those stood, so that errors point at
//! the user's text.
//!
//! One pass with a stack of open brackets, since `AS` means a type only inside of CAST, and clauses
//! are only those of MATCH_RECOGNIZE inside of its bracket. Arguments of window calls have been
//! taken out before and are rewritten when they are parsed.

use sqlparser::tokenizer::{Span as TokenSpan, Token, TokenWithSpan};
use thalweg_core::Result;

use super::asof::AsofJoins;
use super::clauses;
use super::pattern;
use super::tokens::{Cursor, SourceText, is_word, quoted_word};
use super::types::column_type;

/// What a bracket belongs to.
#[derive(Clone, Copy, PartialEq)]
enum Bracket {
    Cast,
    Map,
    /// Of MATCH_RECOGNIZE; true between WITHIN and DEFINE.
    Match(bool),
    /// A row of VALUES; true if its bracket was not written.
    Row(bool),
    Other,
}

impl Bracket {
    /// Of a round bracket behind this token.
    fn behind(before: Option<&Token>) -> Self {
        let is = |word| before.is_some_and(|token| is_word(token, word));
        match () {
            () if is("CAST") || is("TRY_CAST") => Bracket::Cast,
            () if is("MATCH_RECOGNIZE") => Bracket::Match(false),
            () => Bracket::Other,
        }
    }
}

/// Applies all rewrites.
pub(super) fn rewrite<'a>(
    source: &'a SourceText<'a>,
    tokens: &'a [TokenWithSpan],
) -> Result<Vec<TokenWithSpan>> {
    let mut output: Vec<TokenWithSpan> = Vec::with_capacity(tokens.len());
    let mut open = Vec::new();
    let mut asof = AsofJoins::default();
    let mut cursor = Cursor::new(source, tokens);
    while let Some(token) = cursor.next() {
        if asof.take(&mut cursor, token, open.len(), &mut output)? {
            continue;
        }
        let is_taken = clauses::take(&mut cursor, token, &mut output)?;
        if is_taken || row_of_values(&cursor, token, &mut open, &mut output) {
            continue;
        }
        let before = cursor.index.checked_sub(2).map(|i| &tokens[i].token);
        match &token.token {
            Token::LParen => {
                open.push(Bracket::behind(before));
                output.push(token.clone());
            }
            Token::LBracket if before.is_some_and(|t| is_word(t, "MAP")) => {
                open.push(Bracket::Map);
                output.push(TokenWithSpan::new(Token::LParen, token.span));
            }
            Token::LBracket => {
                open.push(Bracket::Other);
                output.push(token.clone());
            }
            Token::LBrace if cursor.is_token(&Token::Minus) => {
                return Err(pattern::exclusion(token));
            }
            Token::RBracket if open.last() == Some(&Bracket::Map) => {
                open.pop();
                output.push(TokenWithSpan::new(Token::RParen, token.span));
            }
            Token::RParen | Token::RBracket => {
                open.pop();
                output.push(token.clone());
            }
            Token::Word(_)
                if is_word(&token.token, "AS") && open.last() == Some(&Bracket::Cast) =>
            {
                output.push(token.clone());
                cast_type(&mut cursor, &mut output)?;
            }
            Token::Word(_)
                if is_word(&token.token, "CEILING") && cursor.is_token(&Token::LParen) =>
            {
                output.push(TokenWithSpan::new(Token::make_keyword("CEIL"), token.span));
            }
            Token::Word(_) => match open.last_mut() {
                Some(Bracket::Match(is_within)) => {
                    pattern::clause(&mut cursor, token, is_within, &mut output)?;
                }
                _ => output.push(token.clone()),
            },
            _ => output.push(token.clone()),
        }
    }
    if let Some(last) = tokens.last() {
        close_row(last, &mut open, &mut output);
    }
    Ok(output)
}

/// Puts brackets around rows of VALUES that have none. True if the token has been passed on.
fn row_of_values(
    cursor: &Cursor<'_>,
    token: &TokenWithSpan,
    open: &mut Vec<Bracket>,
    output: &mut Vec<TokenWithSpan>,
) -> bool {
    let begins = match &token.token {
        Token::Comma => matches!(open.last(), Some(Bracket::Row(_))),
        word => is_word(word, "VALUES"),
    };
    let is_behind = BEHIND_VALUES.iter().any(|word| is_word(&token.token, word));
    if begins || is_behind || matches!(token.token, Token::RParen | Token::SemiColon) {
        close_row(token, open, output);
    }
    if begins {
        output.push(token.clone());
        let has_bracket = cursor.is_token(&Token::LParen)
            || cursor.peek_at(0).is_none_or(|token| is_word(token, "ROW"));
        if !has_bracket {
            output.push(TokenWithSpan::new(Token::LParen, token.span));
        }
        open.push(Bracket::Row(!has_bracket));
    }
    begins
}

/// Ends a row of VALUES, if one is open.
fn close_row(at: &TokenWithSpan, open: &mut Vec<Bracket>, output: &mut Vec<TokenWithSpan>) {
    let Some(Bracket::Row(is_bare)) = open.last().copied() else { return };
    open.pop();
    if is_bare {
        output.push(TokenWithSpan::new(Token::RParen, at.span));
    }
}

/// Words that can follow the rows of VALUES.
const BEHIND_VALUES: [&str; 7] =
    ["UNION", "EXCEPT", "INTERSECT", "ORDER", "LIMIT", "OFFSET", "FETCH"];

/// Words of types that `sqlparser` reads differently or not at all.
/// A type without any of them goes through as it is, so that `sqlparser`'s own messages stay.
const OWN_WORDS: [&str; 9] =
    ["ROW", "MAP", "ARRAY", "MULTISET", "INTERVAL", "NOT", "NULL", "WITH", "WITHOUT"];

/// Passes the type behind AS, as it stands or as one name.
/// The type is read here once to find its end, and once more from its text by the binder.
fn cast_type(cursor: &mut Cursor<'_>, output: &mut Vec<TokenWithSpan>) -> Result<()> {
    let start = cursor.index;
    column_type(cursor)?;
    let tokens = &cursor.tokens[start..cursor.index];
    let is_plain = tokens.iter().all(|token| match &token.token {
        Token::Word(_) => !OWN_WORDS.iter().any(|word| is_word(&token.token, word)),
        Token::LParen | Token::RParen | Token::Number(..) | Token::Comma => true,
        _ => false,
    });
    if is_plain {
        output.extend_from_slice(tokens);
        return Ok(());
    }
    let (first, last) = (tokens[0].span, tokens[tokens.len() - 1].span);
    let text = cursor.source.text_of(tokens).to_owned();
    output.push(quoted_word(text, TokenSpan::new(first.start, last.end)));
    Ok(())
}
