//! Hints that say how to join: `/*+ BROADCAST(t, u), SHUFFLE_HASH(v) */`, with the words of Flink.

use thalweg_core::{Error, Result, Span};

use crate::ast::JoinHint;

/// Words whose tables are to be read before what they are joined with.
const READ_FIRST: [&str; 3] = ["BROADCAST", "SHUFFLE_HASH", "NEST_LOOP"];

/// Reads the text of a hint, beginning with its `+`. `None` if it says nothing about the order in which
/// tables are read.
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
            hints.push(JoinHint { word, tables, span });
        }
        rest = behind;
    }
    Ok((!hints.is_empty()).then_some(hints))
}
