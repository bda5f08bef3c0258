//! Buckets and partitions of tables: `DISTRIBUTED …`, `PARTITION (…)`, and `ANALYZE TABLE`.

use sqlparser::tokenizer::Token;
use thalweg_core::Result;

use super::tokens::Cursor;
use crate::ast::{AnalyzedColumns, Declaration, Distribution, PartitionValues};

/// Behind `DISTRIBUTED` or `DISTRIBUTION`: `[BY [HASH | RANGE] (columns)] [INTO n BUCKETS]`
pub(super) fn distribution(cursor: &mut Cursor<'_>) -> Result<Distribution> {
    let mut distribution =
        Distribution { function: None, columns: Vec::new(), buckets: None, span: cursor.here() };
    if cursor.take_words(&["BY"]) {
        distribution.function = match () {
            () if cursor.take_words(&["HASH"]) => Some("HASH"),
            () if cursor.take_words(&["RANGE"]) => Some("RANGE"),
            () => None,
        };
        distribution.columns = cursor.parenthesized_names("a column")?;
    }
    if cursor.take_words(&["INTO"]) {
        distribution.buckets = Some(bucket_count(cursor)?);
        cursor.expect_words(&["BUCKETS"])?;
    }
    if distribution.columns.is_empty() && distribution.buckets.is_none() {
        return Err(cursor.expected("BY and columns, or INTO and a number of BUCKETS"));
    }
    Ok(distribution)
}

fn bucket_count(cursor: &mut Cursor<'_>) -> Result<u32> {
    let count = match cursor.peek_at(0) {
        Some(Token::Number(digits, _)) => digits.parse().ok().filter(|count| *count > 0),
        _ => None,
    };
    match count {
        Some(count) => {
            cursor.index += 1;
            Ok(count)
        }
        None => Err(cursor.expected("a number of buckets above zero")),
    }
}

/// `(column = value, …)`, each value a text or a number.
pub(super) fn partition_values(cursor: &mut Cursor<'_>) -> Result<PartitionValues> {
    cursor.parenthesized(|cursor| {
        let column = cursor.name("a column of PARTITIONED BY")?;
        cursor.expect_token(&Token::Eq)?;
        Ok((column, partition_value(cursor)?))
    })
}

fn partition_value(cursor: &mut Cursor<'_>) -> Result<String> {
    let value = match cursor.peek_at(0) {
        Some(Token::SingleQuotedString(text) | Token::Number(text, _)) => text.clone(),
        _ => return Err(cursor.expected("a text in single quotes or a number")),
    };
    cursor.index += 1;
    Ok(value)
}

/// `PARTITION (…) [, PARTITION (…)]…`; options of each are read and dropped.
pub(super) fn partition_list(cursor: &mut Cursor<'_>) -> Result<Vec<PartitionValues>> {
    let mut partitions = Vec::new();
    loop {
        cursor.expect_words(&["PARTITION"])?;
        partitions.push(partition_values(cursor)?);
        super::declare::with_options(cursor)?;
        let has_more = cursor.take_token(&Token::Comma) || cursor.is_word("PARTITION");
        if !has_more {
            return Ok(partitions);
        }
    }
}

/// `ANALYZE TABLE table [PARTITION (…)] COMPUTE STATISTICS [FOR COLUMNS a, b | FOR ALL COLUMNS]`
pub(super) fn analyze(cursor: &mut Cursor<'_>) -> Result<Declaration> {
    cursor.expect_words(&["ANALYZE", "TABLE"])?;
    let name = cursor.table_name()?;
    let mut partition = Vec::new();
    if cursor.take_words(&["PARTITION"]) {
        partition = named_columns(cursor)?;
    }
    cursor.expect_words(&["COMPUTE", "STATISTICS"])?;
    let columns = match () {
        () if cursor.take_words(&["FOR", "ALL", "COLUMNS"]) => AnalyzedColumns::All,
        () if cursor.take_words(&["FOR", "COLUMNS"]) => {
            AnalyzedColumns::Named(cursor.list(|cursor| cursor.name("a column"))?)
        }
        () => AnalyzedColumns::None,
    };
    Ok(Declaration::AnalyzeTable { name, partition, columns })
}

/// `(column [= value], …)`, of which only the names count.
fn named_columns(cursor: &mut Cursor<'_>) -> Result<Vec<crate::ast::Name>> {
    cursor.parenthesized(|cursor| {
        let column = cursor.name("a column of PARTITIONED BY")?;
        if cursor.take_token(&Token::Eq) {
            partition_value(cursor)?;
        }
        Ok(column)
    })
}
