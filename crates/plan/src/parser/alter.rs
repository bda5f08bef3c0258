//! `ALTER …`
//!
//! Columns, watermark and key of ADD and MODIFY are read as those of CREATE TABLE, each with its
//! position.

use sqlparser::tokenizer::Token;
use thalweg_core::{Error, Result};

use super::create::{element, option_list};
use super::declare::{FunctionWords, create_function, option_change, option_names};
use super::materialized;
use super::partitions::{distribution, partition_list};
use super::problem::{end_of, start_of};
use super::query::query;
use super::tokens::Cursor;
use crate::ast::{
    ColumnPosition, CreateTable, Declaration, Name, TableChange, TableParts, ViewChange,
};

/// `ALTER …`
pub(super) fn alter(cursor: &mut Cursor<'_>) -> Result<Declaration> {
    let start = start_of(cursor.tokens);
    cursor.expect_words(&["ALTER"])?;
    let is_temporary = cursor.take_words(&["TEMPORARY"]);
    let is_system = cursor.take_words(&["SYSTEM"]);
    if cursor.take_words(&["FUNCTION"]) {
        let words = FunctionWords { is_temporary, is_system, is_alteration: true };
        return create_function(cursor, words);
    }
    if cursor.take_words(&["TABLE"]) {
        return alter_table(cursor);
    }
    if cursor.take_words(&["MATERIALIZED", "TABLE"]) {
        return materialized::alter(cursor, start);
    }
    if cursor.take_words(&["VIEW"]) {
        return alter_view(cursor);
    }
    if cursor.take_words(&["DATABASE"]) {
        let name = cursor.path("a database's name")?;
        return Ok(Declaration::AlterDatabase { name, change: option_change(cursor)? });
    }
    if cursor.take_words(&["CATALOG"]) {
        let name = cursor.name("a catalog's name")?;
        return Ok(Declaration::AlterCatalog { name, change: option_change(cursor)? });
    }
    let what = cursor.name("TABLE, VIEW, FUNCTION, DATABASE or CATALOG")?;
    Err(Error::unsupported(format!("ALTER {} is not supported", what.text.to_ascii_uppercase()))
        .at(start))
}

fn alter_view(cursor: &mut Cursor<'_>) -> Result<Declaration> {
    let if_exists = cursor.take_words(&["IF", "EXISTS"]);
    let name = cursor.table_name()?;
    let change = if cursor.take_words(&["RENAME", "TO"]) {
        ViewChange::RenameTo(cursor.table_name()?)
    } else if cursor.take_words(&["AS"]) {
        let (source, end) = (cursor.source, end_of(cursor.tokens));
        ViewChange::Query(query(source, cursor.rest()).map_err(|error| error.at(end))?)
    } else {
        return Err(cursor.expected("RENAME TO or AS"));
    };
    Ok(Declaration::AlterView { name, if_exists, change })
}

fn alter_table(cursor: &mut Cursor<'_>) -> Result<Declaration> {
    let if_exists = cursor.take_words(&["IF", "EXISTS"]);
    let name = cursor.table_name()?;
    let change = table_change(cursor, &name)?;
    Ok(Declaration::AlterTable { name, if_exists, change: Box::new(change) })
}

fn table_change(cursor: &mut Cursor<'_>, table: &Name) -> Result<TableChange> {
    if let Some(change) = bucket_change(cursor)? {
        return Ok(change);
    }
    if cursor.take_words(&["RENAME"]) {
        if cursor.take_words(&["TO"]) {
            return cursor.table_name().map(TableChange::RenameTo);
        }
        let column = cursor.name("a column, or TO")?;
        cursor.expect_words(&["TO"])?;
        return Ok(TableChange::RenameColumn(column, cursor.name("the column's new name")?));
    }
    if cursor.take_words(&["ADD"]) {
        return parts(cursor, table).map(TableChange::Add);
    }
    if cursor.take_words(&["MODIFY"]) {
        return parts(cursor, table).map(TableChange::Modify);
    }
    if cursor.take_words(&["SET"]) {
        return option_list(cursor).map(TableChange::SetOptions);
    }
    if cursor.take_words(&["RESET"]) {
        return option_names(cursor).map(TableChange::ResetOptions);
    }
    if cursor.take_words(&["DROP"]) {
        return dropped(cursor);
    }
    Err(cursor.expected("ADD, MODIFY, DROP, RENAME, SET or RESET"))
}

/// A change of buckets or partitions. A column may be called PARTITION or DISTRIBUTION.
fn bucket_change(cursor: &mut Cursor<'_>) -> Result<Option<TableChange>> {
    let if_not_exists = cursor.take_words(&["ADD", "IF", "NOT", "EXISTS"]);
    let has_values = cursor.peek_at(2) == Some(&Token::LParen);
    if if_not_exists || (cursor.is_words(&["ADD", "PARTITION"]) && has_values) {
        if !if_not_exists {
            cursor.next();
        }
        let partitions = partition_list(cursor)?;
        return Ok(Some(TableChange::AddPartitions { partitions, if_not_exists }));
    }
    let if_exists = cursor.take_words(&["DROP", "IF", "EXISTS"]);
    if if_exists || (cursor.is_words(&["DROP", "PARTITION"]) && has_values) {
        if !if_exists {
            cursor.next();
        }
        let partitions = partition_list(cursor)?;
        return Ok(Some(TableChange::DropPartitions { partitions, if_exists }));
    }
    let says_how = cursor.is_word_at(2, "BY") || cursor.is_word_at(2, "INTO");
    for (word, replaces) in [("ADD", false), ("MODIFY", true)] {
        if says_how && cursor.take_words(&[word, "DISTRIBUTION"]) {
            let distribution = distribution(cursor)?;
            return Ok(Some(TableChange::SetDistribution { distribution, replaces }));
        }
    }
    if cursor.is_words(&["DROP", "DISTRIBUTION"]) && cursor.peek_at(2).is_none() {
        cursor.next();
        let place = cursor.name("DISTRIBUTION")?;
        return Ok(Some(TableChange::DropDistribution(place)));
    }
    Ok(None)
}

fn dropped(cursor: &mut Cursor<'_>) -> Result<TableChange> {
    if cursor.take_words(&["PRIMARY", "KEY"]) {
        return Ok(TableChange::DropPrimaryKey(None));
    }
    if cursor.take_words(&["CONSTRAINT"]) {
        return cursor.name("the constraint's name").map(Some).map(TableChange::DropPrimaryKey);
    }
    if cursor.is_word("WATERMARK") && cursor.peek_at(1).is_none() {
        let span = cursor.here();
        cursor.next();
        return Ok(TableChange::DropWatermark(Name { text: "WATERMARK".to_owned(), span }));
    }
    if cursor.is_token(&Token::LParen) {
        return cursor.parenthesized_names("a column").map(TableChange::DropColumns);
    }
    Ok(TableChange::DropColumns(vec![cursor.name("a column")?]))
}

/// One column, watermark or key, or several in brackets.
fn parts(cursor: &mut Cursor<'_>, table: &Name) -> Result<TableParts> {
    let mut parts = TableParts { table: CreateTable::new(table.clone()), positions: Vec::new() };
    if !cursor.is_token(&Token::LParen) {
        part(cursor, &mut parts)?;
        return Ok(parts);
    }
    cursor.parenthesized(|cursor| part(cursor, &mut parts))?;
    Ok(parts)
}

fn part(cursor: &mut Cursor<'_>, parts: &mut TableParts) -> Result<()> {
    element(cursor, &mut parts.table)?;
    if parts.table.columns.len() == parts.positions.len() {
        return Ok(());
    }
    let position = if cursor.take_words(&["FIRST"]) {
        ColumnPosition::First
    } else if cursor.take_words(&["AFTER"]) {
        ColumnPosition::After(cursor.name("a column")?)
    } else {
        ColumnPosition::Unchanged
    };
    parts.positions.push(position);
    Ok(())
}
