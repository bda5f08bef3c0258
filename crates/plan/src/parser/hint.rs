//! Hints that say how to join: `/*+ BROADCAST(t, u), SHUFFLE_HASH(v) */`, with the words of Flink,
//! and how long state lives: `/*+ STATE_TTL('t' = '1d', 'u' = '12h') */`.
//!
//! A comment without any of these returns `None` and is reported as a note: a query that was
//! written for Flink runs, with the same result. Whether a table of that name takes part in a join
//! is known to the binder only.

use thalweg_core::{Error, Result, Span};

use crate::ast::JoinHint;
use crate::catalog::parse_duration;

/// Words whose tables are to be read before what they are joined with.
/// Flink's strategies differ in how rows reach machines; here there is one.
const READ_FIRST: [&str; 3] = ["BROADCAST", "SHUFFLE_HASH", "NEST_LOOP"];

/// Reads the text of a hint, beginning with its `+`. `None` if it says nothing of that.
pub(super) fn read(text: &str, span: Span) -> Result<Option<Vec<JoinHint>>> {
    let mut hints = Vec::new();
    let mut rest = text.trim_start_matches('+').trim();
    while let Some((word, behind)) = rest.split_once('(') {
        let Some((arguments, behind)) = behind.split_once(')') else {
            return Err(Error::plan(format!("the hint /*{text}*/ has no closing bracket")).at(span));
        };
        let word = word.trim_matches(|c: char| c == ',' || c.is_whitespace()).to_ascii_uppercase();
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
