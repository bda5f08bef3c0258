//! `CREATE TABLE` and `CREATE VIEW`.
//!
//! Only what the text says is checked here: names that are there twice, keys that name no column.
//! Types of expressions, options and connectors are checked by the binder.
//!
//! What is kept and what is dropped: comments of columns and names of constraints are read and
//! dropped; the statement's text is kept for SHOW CREATE TABLE. Options keep their order and their
//! places, which errors of connectors point at (`TableSpans::locate`).
//!
//! A column of a primary key becomes NOT NULL, whether it says so or not.

use sqlparser::tokenizer::{Token, TokenWithSpan};
use thalweg_core::{Error, Result};

use super::like::{as_clause, like};
use super::materialized;
use super::partitions::distribution;
use super::problem::end_of;
use super::query::{expression, query};
use super::tokens::Cursor;
use super::types::column_type;
use crate::ast::{
    CreateTable, Materialization, Name, OptionList, StatementKind, TableColumn, TableColumnKind,
    WatermarkSpec,
};
use crate::diagnostic::nearest;

/// Behind CREATE [OR REPLACE] [TEMPORARY] VIEW.
pub(super) fn create_view(cursor: &mut Cursor<'_>, or_replace: bool) -> Result<StatementKind> {
    let if_not_exists = cursor.take_words(&["IF", "NOT", "EXISTS"]);
    let name = cursor.table_name()?;
    let columns = if cursor.is_token(&Token::LParen) {
        cursor.parenthesized_names("a column name")?
    } else {
        Vec::new()
    };
    refuse_duplicates(&columns)?;
    if cursor.take_words(&["COMMENT"]) {
        cursor.string("a comment in single quotes")?;
    }
    cursor.expect_words(&["AS"])?;
    let source = cursor.source;
    let end = end_of(cursor.tokens);
    let query = query(source, cursor.rest()).map_err(|e| e.at(end))?;
    Ok(StatementKind::CreateView { name, columns, query, if_not_exists, or_replace })
}

impl CreateTable {
    /// A table of this name without anything.
    pub(crate) fn new(name: Name) -> Self {
        CreateTable {
            name,
            columns: Vec::new(),
            watermark: None,
            primary_key: Vec::new(),
            partitioned_by: Vec::new(),
            distribution: None,
            partitions: Vec::new(),
            options: Vec::new(),
            comment: None,
            if_not_exists: false,
            is_replacing: false,
            like: None,
            as_query: None,
            materialized: None,
            text: String::new(),
        }
    }
}

/// Behind CREATE [OR REPLACE] [TEMPORARY] TABLE, or REPLACE TABLE.
pub(super) fn create_table(cursor: &mut Cursor<'_>, is_replacing: bool) -> Result<CreateTable> {
    definition(cursor, is_replacing, None)
}

/// Behind CREATE [OR ALTER] MATERIALIZED TABLE.
pub(super) fn create_materialized_table(
    cursor: &mut Cursor<'_>,
    is_replacing: bool,
) -> Result<CreateTable> {
    definition(cursor, is_replacing, Some(Materialization::default()))
}

fn definition(
    cursor: &mut Cursor<'_>,
    is_replacing: bool,
    materialized: Option<Materialization>,
) -> Result<CreateTable> {
    let if_not_exists = cursor.take_words(&["IF", "NOT", "EXISTS"]);
    let text = cursor.source.text_of(cursor.tokens).to_owned();
    let name = cursor.table_name()?;
    let mut table =
        CreateTable { if_not_exists, is_replacing, materialized, text, ..CreateTable::new(name) };
    let mut order = Vec::new();
    if cursor.is_token(&Token::LParen) && is_list_of_names(cursor) {
        order = cursor.parenthesized_names("a column")?;
    } else if cursor.take_token(&Token::LParen) {
        cursor.list(|cursor| element(cursor, &mut table))?;
        if !cursor.take_token(&Token::RParen) {
            return Err(cursor.expected("',' or ')' after a column"));
        }
    }
    clauses(cursor, &mut table)?;
    materialized::finish(&mut table)?;
    finish_as(&mut table, order)?;
    check(&mut table)?;
    Ok(table)
}

/// True for `(a, b)`: the order of the columns of CREATE TABLE AS.
fn is_list_of_names(cursor: &Cursor<'_>) -> bool {
    matches!(cursor.peek_at(1), Some(Token::Word(_)))
        && matches!(cursor.peek_at(2), Some(Token::Comma | Token::RParen))
}

fn finish_as(table: &mut CreateTable, order: Vec<Name>) -> Result<()> {
    match (&mut table.as_query, order.first()) {
        (Some(clause), _) => clause.order = order,
        (None, None) => {}
        (None, Some(first)) => {
            return Err(Error::plan(format!("the column {} has no type", first.text))
                .hint("names alone are for CREATE TABLE t (a, b) AS SELECT …")
                .at(first.span));
        }
    }
    if table.is_replacing && table.as_query.is_none() {
        return Err(Error::unsupported("CREATE OR REPLACE TABLE without AS is not supported")
            .hint("DROP TABLE IF EXISTS, then CREATE TABLE")
            .at(table.name.span));
    }
    Ok(())
}

/// One entry between the brackets.
/// A column that is called CONSTRAINT needs backticks.
pub(super) fn element(cursor: &mut Cursor<'_>, table: &mut CreateTable) -> Result<()> {
    if cursor.is_words(&["WATERMARK", "FOR"]) {
        return watermark(cursor, table);
    }
    if cursor.take_words(&["CONSTRAINT"]) {
        cursor.name("the constraint's name")?;
        if !cursor.is_words(&["PRIMARY", "KEY"]) {
            return Err(cursor.expected("PRIMARY KEY"));
        }
    }
    if cursor.is_words(&["PRIMARY", "KEY"]) {
        let here = cursor.here();
        cursor.index += 2;
        let names = cursor.parenthesized_names("a column of the key")?;
        not_enforced(cursor)?;
        return set_primary_key(table, names).map_err(|e| e.at(here));
    }
    column(cursor, table)
}

fn set_primary_key(table: &mut CreateTable, names: Vec<Name>) -> Result<()> {
    if !table.primary_key.is_empty() {
        return Err(Error::plan(format!("table {} has two primary keys", table.name.text)));
    }
    table.primary_key = names;
    Ok(())
}

fn not_enforced(cursor: &mut Cursor<'_>) -> Result<()> {
    if cursor.take_words(&["NOT", "ENFORCED"]) {
        return Ok(());
    }
    Err(cursor
        .expected("NOT ENFORCED after PRIMARY KEY")
        .hint("a stream's keys are not checked, and the statement has to say so"))
}

/// `WATERMARK FOR column AS expression`. The column may be declared before or after it.
fn watermark(cursor: &mut Cursor<'_>, table: &mut CreateTable) -> Result<()> {
    let here = cursor.here();
    cursor.index += 2;
    let column = cursor.name("the row time column")?;
    cursor.expect_words(&["AS"])?;
    let tokens = cursor.take_until(&[Token::Comma, Token::RParen]);
    if tokens.is_empty() {
        return Err(cursor.expected("the watermark's expression"));
    }
    let expression = expression(cursor.source, tokens)?;
    if table.watermark.is_some() {
        return Err(Error::plan(format!("table {} has two watermarks", table.name.text)).at(here));
    }
    table.watermark = Some(WatermarkSpec { column, expression });
    Ok(())
}

/// A physical, metadata or computed column.
fn column(cursor: &mut Cursor<'_>, table: &mut CreateTable) -> Result<()> {
    let name = cursor.name("a column name")?;
    if cursor.take_words(&["AS"]) {
        let kind = computed(cursor)?;
        table.columns.push(TableColumn { name, kind });
        return Ok(());
    }
    let mut column_type = column_type(cursor)?;
    let kind = if cursor.take_words(&["METADATA"]) {
        let key = if cursor.take_words(&["FROM"]) {
            cursor.string("the metadata key in single quotes")?.text
        } else {
            name.text.clone()
        };
        let is_virtual = cursor.take_words(&["VIRTUAL"]);
        TableColumnKind::Metadata { column_type, key, is_virtual }
    } else {
        if cursor.take_words(&["PRIMARY", "KEY"]) {
            not_enforced(cursor)?;
            set_primary_key(table, vec![name.clone()]).map_err(|e| e.at(name.span))?;
        }
        if cursor.take_words(&["NOT", "NULL"]) {
            column_type.nullable = false;
        }
        TableColumnKind::Physical(column_type)
    };
    if cursor.take_words(&["COMMENT"]) {
        cursor.string("a comment in single quotes")?;
    }
    table.columns.push(TableColumn { name, kind });
    Ok(())
}

/// `AS expression [COMMENT 'text']`
fn computed(cursor: &mut Cursor<'_>) -> Result<TableColumnKind> {
    let mut tokens = cursor.take_until(&[Token::Comma, Token::RParen]);
    if let [before @ .., comment, text] = tokens
        && super::tokens::is_word(&comment.token, "COMMENT")
        && matches!(text.token, Token::SingleQuotedString(_))
    {
        tokens = before;
    }
    let position = position_words(tokens);
    cursor.index -= position;
    tokens = &tokens[..tokens.len() - position];
    if tokens.is_empty() {
        return Err(cursor.expected("an expression"));
    }
    Ok(TableColumnKind::Computed(expression(cursor.source, tokens)?))
}

/// How many of the last tokens say where ALTER TABLE puts the column: `FIRST`, `AFTER name`.
fn position_words(tokens: &[TokenWithSpan]) -> usize {
    use super::tokens::is_word;
    let is_value = |token: &Token| {
        matches!(token, Token::Word(_) | Token::RParen | Token::RBracket | Token::Number(..))
            || matches!(token, Token::SingleQuotedString(_))
    };
    match tokens {
        [.., before, first] if is_word(&first.token, "FIRST") && is_value(&before.token) => 1,
        [.., before, after, _] if is_word(&after.token, "AFTER") && is_value(&before.token) => 2,
        _ => 0,
    }
}

/// What stands behind the columns.
fn clauses(cursor: &mut Cursor<'_>, table: &mut CreateTable) -> Result<()> {
    loop {
        if cursor.take_words(&["COMMENT"]) {
            table.comment = Some(cursor.string("a comment in single quotes")?.text);
        } else if cursor.take_words(&["PARTITIONED", "BY"]) {
            table.partitioned_by = cursor.parenthesized_names("a column")?;
        } else if cursor.take_words(&["WITH"]) {
            table.options = option_list(cursor)?;
        } else if cursor.at_end() {
            return Ok(());
        } else if cursor.take_words(&["DISTRIBUTED"]) {
            table.distribution = Some(distribution(cursor)?);
        } else if cursor.take_words(&["LIKE"]) {
            table.like = Some(like(cursor)?);
        } else if cursor.take_words(&["AS"]) {
            table.as_query = Some(Box::new(as_clause(cursor)?));
        } else if let Some(materialization) = &mut table.materialized {
            if !materialized::clause(cursor, materialization)? {
                return Err(cursor.expected("FRESHNESS, COMMENT, PARTITIONED BY or AS"));
            }
        } else {
            return Err(cursor.expected("WITH, COMMENT or PARTITIONED BY"));
        }
    }
}

/// `('name' = 'value', …)`, both in quotes, as in Flink.
pub(super) fn option_list(cursor: &mut Cursor<'_>) -> Result<OptionList> {
    let mut options = OptionList::new();
    cursor.parenthesized(|cursor| {
        let key = cursor.string("an option's name in single quotes")?;
        cursor.expect_token(&Token::Eq)?;
        let value = cursor.string("an option's value in single quotes")?;
        if options.iter().any(|(known, _)| known.text == key.text) {
            return Err(
                Error::plan(format!("the option '{}' is there twice", key.text)).at(key.span)
            );
        }
        options.push((key, value));
        Ok(())
    })?;
    Ok(options)
}

/// What can be checked only when all columns are read.
/// A table whose columns come from another one or from a query is checked when they are known.
fn check(table: &mut CreateTable) -> Result<()> {
    if table.like.is_some() || table.as_query.is_some() {
        return Ok(());
    }
    table.check()
}

impl CreateTable {
    /// Checks names, and makes the columns of the key NOT NULL.
    pub(crate) fn check(&mut self) -> Result<()> {
        check_complete(self)
    }
}

fn check_complete(table: &mut CreateTable) -> Result<()> {
    if table.columns.is_empty() {
        return Err(Error::plan(format!("table {} has no columns", table.name.text))
            .hint("declare them: CREATE TABLE name (column TYPE, …)")
            .at(table.name.span));
    }
    let names: Vec<Name> = table.columns.iter().map(|column| column.name.clone()).collect();
    refuse_duplicates(&names)?;
    let bucketed = table.distribution.iter().flat_map(|distribution| &distribution.columns);
    for key in table.primary_key.iter().chain(&table.partitioned_by).chain(bucketed) {
        if !names.iter().any(|name| name.text == key.text) {
            let error =
                Error::plan(format!("table {} has no column {}", table.name.text, key.text));
            let near = nearest(&key.text, names.iter().map(|name| name.text.as_str()));
            let error = near.map_or_else(
                || error.clone(),
                |near| error.clone().hint(format!("did you mean {near}?")),
            );
            return Err(error.at(key.span));
        }
    }
    // As in Flink, a key's columns are never NULL.
    for column in &mut table.columns {
        let is_key = table.primary_key.iter().any(|key| key.text == column.name.text);
        if let (true, TableColumnKind::Physical(column_type)) = (is_key, &mut column.kind) {
            column_type.nullable = false;
        }
    }
    Ok(())
}

fn refuse_duplicates(names: &[Name]) -> Result<()> {
    let mut seen = std::collections::HashSet::new();
    match names.iter().find(|name| !seen.insert(name.text.as_str())) {
        None => Ok(()),
        Some(name) => {
            Err(Error::plan(format!("the column {} is there twice", name.text)).at(name.span))
        }
    }
}
