//! `INSERT INTO …` and `INSERT OVERWRITE …`.

use sqlparser::tokenizer::Token;
use thalweg_core::Result;

use super::query::{expression, rest_as_query};
use super::tokens::Cursor;
use crate::ast::{CreateTable, Insert, Name};

/// `INSERT INTO | OVERWRITE table [PARTITION (…)] [(columns)] query`, the whole of the cursor.
pub(super) fn insert(cursor: &mut Cursor<'_>) -> Result<Insert> {
    cursor.expect_words(&["INSERT"])?;
    let overwrites = cursor.take_words(&["OVERWRITE"]);
    if !overwrites {
        cursor.expect_words(&["INTO"])?;
    }
    let table = cursor.table_name()?;
    let options = cursor.source.options_behind(table.span).cloned().unwrap_or_default();
    let partition = match cursor.take_words(&["PARTITION"]) {
        true => partition(cursor)?,
        false => Vec::new(),
    };
    // `INSERT INTO t (SELECT …)` has no column list.
    let is_query = |word| cursor.is_word_at(1, word);
    let bracket_is_query = ["SELECT", "WITH", "VALUES"].into_iter().any(is_query)
        || cursor.peek_at(1) == Some(&Token::LParen);
    let columns = if cursor.is_token(&Token::LParen) && !bracket_is_query {
        cursor.parenthesized_names("a column name")?
    } else {
        Vec::new()
    };
    let query = rest_as_query(cursor)?;
    Ok(Insert { table, columns, overwrites, partition, is_by_name: false, options, query })
}

/// `(column [= value], …)`. A column without a value is one of the query's.
fn partition(cursor: &mut Cursor<'_>) -> Result<Vec<(Name, sqlparser::ast::Expr)>> {
    let columns = cursor.parenthesized(|cursor| {
        let column = cursor.name("a column of PARTITIONED BY")?;
        if !cursor.take_token(&Token::Eq) {
            return Ok(None);
        }
        let here = cursor.here();
        let tokens = cursor.take_until(&[Token::Comma, Token::RParen]);
        if tokens.is_empty() {
            return Err(cursor.expected("a value"));
        }
        Ok(Some((column, expression(cursor.source, tokens).map_err(|e| e.at(here))?)))
    })?;
    Ok(columns.into_iter().flatten().collect())
}

/// The INSERT that fills the table of CREATE TABLE AS.
pub(crate) fn insert_of_table(table: &CreateTable) -> Option<Insert> {
    let clause = table.as_query.as_ref()?;
    Some(Insert {
        table: table.name.clone(),
        columns: Vec::new(),
        overwrites: false,
        partition: Vec::new(),
        is_by_name: true,
        options: Vec::new(),
        query: clause.query.clone(),
    })
}
