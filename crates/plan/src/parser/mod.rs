//! From the text of a script to [`crate::ast`] statements.
//!
//! The text is cut into tokens once, with places, and every later step works on slices of that
//! stream, so that an error anywhere points at the user's own line. Statements are read by hand;
//! queries and expressions by `sqlparser`, after what it can't read was taken out (window calls) or
//! rewritten (types of CAST, MAP literals).
//!
//! The steps of a query, all on tokens until the last:
//!
//! ```text
//! text ──▶ tokens ──▶ depth::check ──▶ window::extract ──▶ rewrite ──▶ sqlparser ──▶ sql::Query
//!            └─▶ hints, notes            └─▶ WindowCalls      (ASOF, MATCH_RECOGNIZE, CAST, MAP)
//! ```
//!
//! **Invariants:**
//! - no input makes the parser panic or overflow the stack of a thread with 2 MiB, and the text is
//!   at most 1 MiB. That holds for everything that walks a tree later, dropping it included, since
//!   `depth` bounds the tree before it exists;
//! - a token that a rewrite adds has the place of a token that it replaces;
//! - names that rewrites make up (`tumble@1:21`, `ASOF$`, `{WITHIN}`) are those of no table, column
//!   or function;
//! - the order of steps matters: window calls are extracted first, since their arguments are parsed
//!   as expressions and queries of their own, each with all steps.
//!
//! Names are resolved and types are derived by the binder, not here. Nothing here knows the
//! catalog.

mod alter;
mod asof;
mod clauses;
mod create;
mod declare;
mod depth;
mod dialect;
mod hint;
mod insert;
mod like;
mod materialized;
mod partitions;
mod pattern;
mod plan;
mod problem;
mod query;
mod rewrite;
mod show;
mod statement;
mod tokens;
mod types;
mod window;

#[cfg(test)]
mod tests;

use thalweg_core::Result;

pub use clauses::{MINUS, SYMMETRIC, WHEN};
pub use dialect::FlinkDialect;
pub use pattern::WITHIN;
pub use query::parse_expression;
pub use tokens::{Note, TEXT_BYTES_MAX, span};
pub use types::{data_type, parse_type};

pub use asof::ASOF;
pub(crate) use insert::insert_of_table;
pub(crate) use tokens::cannot_be_cut;

use crate::ast::Statement;

/// A parsed text.
#[derive(Clone, Debug)]
pub struct Script {
    /// Its statements in order.
    pub statements: Vec<Statement>,
    /// What was passed over, such as hints.
    /// Hints that have no effect here, with their places.
    pub notes: Vec<Note>,
}

/// The statements of a text.
///
/// ```
/// let statements = thalweg_plan::parser::parse_script("SET 'pipeline.workers' = '2'; SELECT 1;")?;
/// assert_eq!(statements.len(), 2);
/// let error = thalweg_plan::parser::parse_script("SELECT 1\nFORM t").unwrap_err();
/// assert_eq!(error.span().map(|span| (span.line, span.column)), Some((2, 6)));
/// # Ok::<(), thalweg_core::Error>(())
/// ```
pub fn parse_script(text: &str) -> Result<Vec<Statement>> {
    Ok(parse_script_with_notes(text)?.statements)
}

/// The statements of a text, and what was passed over in it.
pub fn parse_script_with_notes(text: &str) -> Result<Script> {
    let tokens::Tokens { words, notes, hints, options } = tokens::tokenize(text)?;
    let source = tokens::SourceText::new(text).with_hints(hints, options);
    let mut cursor = tokens::Cursor::new(&source, &words);
    Ok(Script { statements: statement::statements(&mut cursor)?, notes })
}
