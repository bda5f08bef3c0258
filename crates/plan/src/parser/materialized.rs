//! `CREATE MATERIALIZED TABLE` and what else names such tables.
//!
//! It is read as CREATE TABLE AS, with two clauses more, and becomes a table of the connector
//! [`LIVE_CONNECTOR`] with the INSERT that fills it. The engine keeps its rows, so WITH cannot name
//! a connector.

use std::time::Duration;

use sqlparser::tokenizer::Token;
use thalweg_core::connector::LIVE_CONNECTOR;
use thalweg_core::{Error, Result, Span};

use super::tokens::Cursor;
use crate::ast::{CreateTable, Declaration, Materialization, Name};
use crate::catalog::parse_duration;

/// `FRESHNESS = INTERVAL '1' SECOND` or `REFRESH_MODE = CONTINUOUS`; false for anything else.
pub(super) fn clause(cursor: &mut Cursor<'_>, own: &mut Materialization) -> Result<bool> {
    if cursor.take_words(&["FRESHNESS"]) {
        own.freshness = Some(freshness(cursor)?);
        return Ok(true);
    }
    if !cursor.take_words(&["REFRESH_MODE"]) {
        return Ok(false);
    }
    cursor.expect_token(&Token::Eq)?;
    let here = cursor.here();
    if cursor.take_words(&["FULL"]) {
        return Err(Error::unsupported("REFRESH_MODE = FULL is not supported")
            .hint("leave it out: the table is kept current all the time (CONTINUOUS)")
            .at(here));
    }
    cursor.expect_words(&["CONTINUOUS"])?;
    Ok(true)
}

fn freshness(cursor: &mut Cursor<'_>) -> Result<Duration> {
    cursor.expect_token(&Token::Eq)?;
    cursor.expect_words(&["INTERVAL"])?;
    let count = cursor.string("a number in single quotes")?;
    let unit = cursor.name("SECOND, MINUTE, HOUR or DAY")?;
    let is_unit = ["SECOND", "MINUTE", "HOUR", "DAY"].iter().any(|known| {
        let word = unit.text.to_ascii_uppercase();
        word.strip_suffix('S').unwrap_or(&word) == *known
    });
    let length = parse_duration(&format!("{} {}", count.text, unit.text));
    match length {
        Ok(length) if is_unit && !length.is_zero() => Ok(length),
        _ => Err(Error::plan(format!("INTERVAL '{}' {} is no freshness", count.text, unit.text))
            .hint("write a whole number above 0, such as INTERVAL '10' SECOND")
            .at(count.span)),
    }
}

/// Checks the statement as a whole, and gives the table its connector.
pub(super) fn finish(table: &mut CreateTable) -> Result<()> {
    if table.materialized.is_none() {
        return Ok(());
    }
    if table.as_query.is_none() {
        return Err(Error::plan(format!(
            "the materialized table {} has no query",
            table.name.text
        ))
        .hint("end the statement with AS SELECT …")
        .at(table.name.span));
    }
    if let Some((key, _)) = table.options.first() {
        return Err(Error::plan(format!(
            "a materialized table has no option '{}': the engine keeps its rows",
            key.text
        ))
        .hint("leave WITH (…) out; to write to a connector, CREATE TABLE … AS SELECT …")
        .at(key.span));
    }
    let text = |text: &str| Name { text: text.to_owned(), span: Span::default() };
    let name = table.name.text.clone();
    table.options = vec![(text("connector"), text(LIVE_CONNECTOR)), (text("table"), text(&name))];
    Ok(())
}

/// `ALTER MATERIALIZED TABLE …`: the life of the table is that of its job.
pub(super) fn alter(cursor: &mut Cursor<'_>, start: Span) -> Result<Declaration> {
    let name = cursor.table_name()?;
    let what = match () {
        () if cursor.take_words(&["SUSPEND"]) => "stop its job: thalweg stop JOB",
        () if cursor.take_words(&["RESUME"]) => "start its job: thalweg start JOB",
        () if cursor.take_words(&["AS"]) => {
            "give its job the new statement: thalweg submit JOB FILE.sql keeps what state it can"
        }
        () => return Err(cursor.expected("SUSPEND, RESUME or AS")),
    };
    Err(Error::unsupported(format!("ALTER MATERIALIZED TABLE {} is not supported", name.text))
        .hint(what)
        .at(start))
}
