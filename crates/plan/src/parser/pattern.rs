//! Clauses of `MATCH_RECOGNIZE` that `sqlparser` has no words for.
//!
//! | Flink | becomes |
//! |---|---|
//! | `PATTERN (…) WITHIN INTERVAL '1' HOUR DEFINE A AS …` | ``PATTERN (…) DEFINE `{WITHIN}` AS INTERVAL '1' HOUR, A AS …``: a definition under a name of its own, which the binder takes out again |
//!
//! What Flink has not either is refused here, where its words still have a place.
//!
//! `WITHIN` without an INTERVAL behind it may be a name, so it is left alone.

use sqlparser::tokenizer::{Token, TokenWithSpan};
use thalweg_core::{Error, Result, Span};

use super::tokens::{Cursor, is_word, quoted_word};

/// The name under which WITHIN is handed over as a definition.
pub const WITHIN: &str = "{WITHIN}";

/// Passes a clause of `MATCH_RECOGNIZE`, of which the cursor has taken the first word, if it is one
/// that has to be rewritten. `is_within` remembers that DEFINE is still to come.
pub(super) fn clause(
    cursor: &mut Cursor<'_>,
    word: &TokenWithSpan,
    is_within: &mut bool,
    output: &mut Vec<TokenWithSpan>,
) -> Result<()> {
    let is_new = |token: Token| TokenWithSpan::new(token, word.span);
    let place = super::tokens::span(word.span);
    if is_word(&word.token, "ALL") && cursor.is_words(&["ROWS", "PER", "MATCH"]) {
        return Err(refused("ALL ROWS PER MATCH", place).hint(
            "ONE ROW PER MATCH gives a row for each match; its MEASURES can aggregate the rows",
        ));
    }
    if is_word(&word.token, "SUBSET") {
        return Err(refused("SUBSET", place)
            .hint("name each variable of the pattern, or none, which means all of them"));
    }
    if is_word(&word.token, "WITHIN") && cursor.is_word("INTERVAL") {
        output.push(is_new(Token::make_keyword("DEFINE")));
        output.push(quoted_word(WITHIN.to_owned(), word.span));
        output.push(is_new(Token::make_keyword("AS")));
        *is_within = true;
        return Ok(());
    }
    if is_word(&word.token, "DEFINE") && std::mem::take(is_within) {
        output.push(is_new(Token::Comma));
        return Ok(());
    }
    output.push(word.clone());
    Ok(())
}

/// `{- A -}`, which `sqlparser` takes for a quantifier of what stands before.
pub(super) fn exclusion(brace: &TokenWithSpan) -> Error {
    refused("an exclusion ({- … -})", super::tokens::span(brace.span))
        .hint("ONE ROW PER MATCH shows no rows that could be left out: name the variable alone")
}

fn refused(what: &str, place: Span) -> Error {
    Error::unsupported(format!("{what} is not supported in MATCH_RECOGNIZE, nor is it in Flink"))
        .at(place)
}
