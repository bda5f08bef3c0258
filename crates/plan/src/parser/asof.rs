//! `ASOF JOIN`, in the words of Snowflake and of DuckDB, as a join whose condition says so:
//!
//! | written | becomes |
//! |---|---|
//! | `a ASOF JOIN b MATCH_CONDITION (m) ON c` | ``a JOIN b ON `ASOF$`(m) AND c`` |
//! | `a ASOF JOIN b MATCH_CONDITION (m)` | ``a JOIN b ON `ASOF$`(m)`` |
//! | `a ASOF LEFT JOIN b ON c` | ``a LEFT JOIN b ON `ASOF$`() AND c`` |
//!
//! There is no function [`ASOF`]: it only marks the join. A text that names it means the same.
//!
//! `MATCH_CONDITION` stands in the place of ON and before it, so both forms become one ON. The
//! binder takes the function out again (`bind::asof`). Without MATCH_CONDITION, as in DuckDB, the
//! function has no argument, and the binder finds the comparison of times among the conjuncts.

use sqlparser::tokenizer::{Token, TokenWithSpan};
use thalweg_core::{Error, Result, Span};

use super::tokens::{Cursor, is_word, quoted_word, span};

/// The function that marks the condition of an ASOF JOIN; its argument is the match condition.
pub const ASOF: &str = "ASOF$";

/// The words that may follow `ASOF`.
const FOLLOWING: [&str; 3] = ["JOIN", "LEFT", "INNER"];

/// Where such joins stand, before they are rewritten.
pub(super) fn places(tokens: &[TokenWithSpan]) -> Vec<Span> {
    let begins = |pair: &&[TokenWithSpan]| {
        is_word(&pair[0].token, "ASOF")
            && FOLLOWING.iter().any(|word| is_word(&pair[1].token, word))
    };
    tokens.windows(2).filter(begins).map(|pair| span(pair[0].span)).collect()
}

/// The ASOF JOINs whose condition has not come yet: how many brackets were open where each stands.
/// A stack, since the right side of one may be a sub-query with another.
#[derive(Default)]
pub(super) struct AsofJoins {
    depths: Vec<usize>,
}

impl AsofJoins {
    /// Rewrites what begins with this token, if it belongs to such a join. `depth` brackets are
    /// open.
    pub(super) fn take(
        &mut self,
        cursor: &mut Cursor<'_>,
        token: &TokenWithSpan,
        depth: usize,
        output: &mut Vec<TokenWithSpan>,
    ) -> Result<bool> {
        let begins = FOLLOWING.iter().any(|word| cursor.is_word(word));
        if is_word(&token.token, "ASOF") && begins {
            self.depths.push(depth);
            return Ok(true);
        }
        if self.depths.last() != Some(&depth) {
            return Ok(false);
        }
        if is_word(&token.token, "USING") {
            return Err(Error::unsupported("ASOF JOIN … USING is not supported")
                .hint("write the equalities after ON")
                .at(span(token.span)));
        }
        let matches = is_word(&token.token, "MATCH_CONDITION");
        if !matches && !is_word(&token.token, "ON") {
            return Ok(false);
        }
        self.depths.pop();
        let word = |word: &str| TokenWithSpan::new(Token::make_keyword(word), token.span);
        output.push(word("ON"));
        output.push(quoted_word(ASOF.to_owned(), token.span));
        output.push(TokenWithSpan::new(Token::LParen, token.span));
        let mut has_more = !matches;
        if matches {
            condition(cursor, output)?;
            has_more = cursor.is_word("ON");
            cursor.index += usize::from(has_more);
        }
        output.push(TokenWithSpan::new(Token::RParen, token.span));
        if has_more {
            output.push(word("AND"));
        }
        Ok(true)
    }
}

/// Passes what stands in the brackets behind MATCH_CONDITION.
fn condition(cursor: &mut Cursor<'_>, output: &mut Vec<TokenWithSpan>) -> Result<()> {
    let is_open = cursor.is_token(&Token::LParen);
    let end = super::tokens::closing(cursor.tokens, cursor.index).filter(|_| is_open);
    let Some(end) = end else {
        return Err(cursor.expected("(left.time >= right.time) after MATCH_CONDITION"));
    };
    output.extend_from_slice(&cursor.tokens[cursor.index + 1..end]);
    cursor.index = end + 1;
    Ok(())
}
