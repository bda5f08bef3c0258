//! Hints that say how to join: `/*+ BROADCAST(t, u), SHUFFLE_HASH(v) */`, with the words of Flink,
//! and how long state lives: `/*+ STATE_TTL('t' = '1d', 'u' = '12h') */`.
//!
//! `/*+ OPTIONS('key' = 'value') */` behind a table's name says what is read or written, so it is
//! never passed over: whoever binds the table finds it by the place of the name.
//!
//! A comment without any of these returns `None` and is reported as a note: a query that was
//! written for Flink runs, with the same result. Whether a table of that name takes part in a join
//! is known to the binder only.

use sqlparser::tokenizer::{Token, Tokenizer};
use thalweg_core::{Error, Result, Span};

use super::dialect::FlinkDialect;
use super::tokens::is_word;
use crate::ast::{JoinHint, Name, OptionList};
use crate::catalog::parse_duration;

/// Words whose tables are to be read before what they are joined with.
/// Flink's strategies differ in how rows reach machines; here there is one.
const READ_FIRST: [&str; 3] = ["BROADCAST", "SHUFFLE_HASH", "NEST_LOOP"];

/// The word of a hint with options.
const OPTIONS: &str = "OPTIONS";

/// The options in the text of a hint. `None` if it has no OPTIONS.
pub(super) fn options(text: &str, span: Span) -> Result<Option<OptionList>> {
    let wrong = || {
        Error::plan("the hint OPTIONS takes options of a table")
            .hint("write t /*+ OPTIONS('key' = 'value', …) */")
            .at(span)
    };
    let tokens = Tokenizer::new(&FlinkDialect, text.trim_start_matches('+')).tokenize();
    let Ok(tokens) = tokens else { return Ok(None) };
    let tokens: Vec<&Token> =
        tokens.iter().filter(|token| !matches!(token, Token::Whitespace(_))).collect();
    let Some(word) = tokens.iter().position(|token| is_word(token, OPTIONS)) else {
        return Ok(None);
    };
    let mut rest = tokens[word + 1..].iter();
    if rest.next() != Some(&&Token::LParen) {
        return Err(wrong());
    }
    let mut options = OptionList::new();
    loop {
        let pair = (rest.next(), rest.next(), rest.next());
        let (
            Some(Token::SingleQuotedString(key)),
            Some(Token::Eq),
            Some(Token::SingleQuotedString(value)),
        ) = pair
        else {
            return Err(wrong());
        };
        let name = |text: &String| Name { text: text.clone(), span };
        options.push((name(key), name(value)));
        match rest.next() {
            Some(Token::Comma) => {}
            Some(Token::RParen) => return Ok(Some(options)),
            _ => return Err(wrong()),
        }
    }
}

/// Reads the text of a hint, beginning with its `+`. `None` if it says nothing of that.
pub(super) fn read(text: &str, span: Span) -> Result<Option<Vec<JoinHint>>> {
    let mut hints = Vec::new();
    let mut rest = text.trim_start_matches('+').trim();
    while let Some((word, behind)) = rest.split_once('(') {
        let Some((arguments, behind)) = behind.split_once(')') else {
            return Err(Error::plan(format!("the hint /*{text}*/ has no closing bracket")).at(span));
        };
        let word = word.trim_matches(|c: char| c == ',' || c.is_whitespace()).to_ascii_uppercase();
        if word == OPTIONS {
            // Its values may hold brackets, so what follows it can't be found this way.
            break;
        }
        if READ_FIRST.contains(&word.as_str()) {
            let name = |name: &str| name.trim().trim_matches(['`', '\'']).to_owned();
            let tables: Vec<String> = arguments.split(',').map(name).collect();
            if tables.iter().any(String::is_empty) {
                return Err(Error::plan(format!("the hint {word} names tables"))
                    .hint(format!("write {word}(t), with the name or the alias of a table"))
                    .at(span));
            }
            hints.push(JoinHint { word, tables, state_ttl_ms: None, span });
        } else if word == "STATE_TTL" {
            for pair in arguments.split(',') {
                hints.push(lifetime(pair, span)?);
            }
        }
        rest = behind;
    }
    Ok((!hints.is_empty()).then_some(hints))
}

/// One `'t' = '1d'` of STATE_TTL.
fn lifetime(pair: &str, span: Span) -> Result<JoinHint> {
    let wrong = |why: String| {
        Error::plan(format!("STATE_TTL: {why}"))
            .hint(
                "write STATE_TTL('t' = '1d'), with the name or the alias of a table and a duration",
            )
            .at(span)
    };
    let plain = |text: &str| text.trim().trim_matches(['`', '\'']).trim().to_owned();
    let (table, duration) =
        pair.split_once('=').ok_or_else(|| wrong(format!("'{}' is no pair", pair.trim())))?;
    let duration = parse_duration(&plain(duration)).map_err(|error| wrong(error.to_string()))?;
    let state_ttl_ms = i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
    let word = "STATE_TTL".to_owned();
    Ok(JoinHint { word, tables: vec![plain(table)], state_ttl_ms: Some(state_ttl_ms), span })
}
