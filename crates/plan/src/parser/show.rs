//! `SHOW …` and `DESCRIBE …`.
//!
//! What Flink lists and this engine has none of (procedures, models) is an empty list, as it
//! would be in a new session of Flink.

use sqlparser::tokenizer::Token;
use thalweg_core::{Error, Result};

use super::partitions::partition_values;
use super::plan::job_id;
use super::statement::option_name;
use super::tokens::Cursor;
use crate::ast::{JobCommand, ListFilter, NamePattern, PartitionValues, Show, StatementKind};

/// What SHOW can be followed by, for messages.
const KNOWN: &str = "SHOW TABLES, VIEWS, COLUMNS, PARTITIONS, FUNCTIONS, DATABASES, CATALOGS, MODULES, JARS, JOBS, CONNECTORS, CURRENT CATALOG, \
     CURRENT DATABASE and CREATE TABLE, VIEW or CATALOG are known";

/// `SHOW …`
pub(super) fn show(cursor: &mut Cursor<'_>) -> Result<StatementKind> {
    cursor.expect_words(&["SHOW"])?;
    if cursor.take_words(&["CREATE"]) {
        return show_create(cursor).map(StatementKind::Show);
    }
    if cursor.take_words(&["CURRENT"]) {
        let show = match () {
            () if cursor.take_words(&["CATALOG"]) => Show::CurrentCatalog,
            () if cursor.take_words(&["DATABASE"]) => Show::CurrentDatabase,
            () => return Err(cursor.expected("CATALOG or DATABASE")),
        };
        return Ok(StatementKind::Show(show));
    }
    if cursor.take_words(&["FULL"]) {
        cursor.expect_words(&["MODULES"])?;
        return Ok(StatementKind::Show(Show::Modules { is_full: true }));
    }
    if cursor.take_words(&["USER"]) {
        cursor.expect_words(&["FUNCTIONS"])?;
        let filter = filter(cursor)?;
        return Ok(StatementKind::Show(Show::Functions { is_user: true, filter }));
    }
    if cursor.take_words(&["MATERIALIZED", "TABLES"]) {
        let filter = filter(cursor)?;
        return Ok(StatementKind::Show(Show::MaterializedTables(filter)));
    }
    if cursor.take_words(&["JOBS"]) {
        return Ok(StatementKind::Jobs(JobCommand::Show));
    }
    listed(cursor).map(StatementKind::Show)
}

/// `SHOW CREATE …`
fn show_create(cursor: &mut Cursor<'_>) -> Result<Show> {
    match () {
        () if cursor.take_words(&["TABLE"]) || cursor.take_words(&["MATERIALIZED", "TABLE"]) => {
            Ok(Show::CreateTable(cursor.table_name()?))
        }
        () if cursor.take_words(&["VIEW"]) => Ok(Show::CreateView(cursor.table_name()?)),
        () if cursor.take_words(&["CATALOG"]) => {
            Ok(Show::CreateCatalog(cursor.name("a catalog's name")?))
        }
        () => Err(cursor.expected("TABLE, VIEW or CATALOG")),
    }
}

/// `SHOW names [FROM place] [LIKE pattern]`
fn listed(cursor: &mut Cursor<'_>) -> Result<Show> {
    let what = cursor.name("TABLES, VIEWS, FUNCTIONS, CONNECTORS or CREATE TABLE")?;
    let show = match what.text.to_ascii_uppercase().as_str() {
        "TABLES" => Show::Tables(filter(cursor)?),
        "VIEWS" => Show::Views(filter(cursor)?),
        "FUNCTIONS" => Show::Functions { is_user: false, filter: filter(cursor)? },
        "DATABASES" => Show::Databases(filter(cursor)?),
        "CATALOGS" => Show::Catalogs(filter(cursor)?),
        "COLUMNS" => {
            let filter = filter(cursor)?;
            if filter.of.is_none() {
                return Err(cursor.expected("FROM and a table's name"));
            }
            Show::Columns(filter)
        }
        "MODULES" => Show::Modules { is_full: false },
        "PROCEDURES" => {
            filter(cursor)?;
            Show::Nothing("procedure name")
        }
        "MODELS" => {
            filter(cursor)?;
            Show::Nothing("model name")
        }
        "PARTITIONS" => {
            let name = cursor.table_name()?;
            let only = match cursor.take_words(&["PARTITION"]) {
                true => partition_values(cursor)?,
                false => PartitionValues::new(),
            };
            Show::Partitions { name, only }
        }
        "JARS" => Show::Jars,
        "CONNECTORS" => Show::Connectors,
        other => {
            return Err(Error::unsupported(format!("SHOW {other} is not supported"))
                .hint(KNOWN)
                .at(what.span));
        }
    };
    Ok(show)
}

/// `[FROM | IN place] [[NOT] LIKE | ILIKE 'pattern']`
fn filter(cursor: &mut Cursor<'_>) -> Result<ListFilter> {
    let mut filter = ListFilter::default();
    if cursor.take_words(&["FROM"]) || cursor.take_words(&["IN"]) {
        filter.of = Some(cursor.table_name()?);
    }
    let is_negated = cursor.take_words(&["NOT"]);
    let ignores_case = cursor.is_word("ILIKE");
    if cursor.take_words(&["LIKE"]) || cursor.take_words(&["ILIKE"]) {
        let pattern = cursor.string("a pattern in single quotes")?.text;
        filter.pattern = Some(NamePattern { pattern, is_negated, ignores_case });
    } else if is_negated {
        return Err(cursor.expected("LIKE"));
    }
    Ok(filter)
}

/// `DESCRIBE …`
pub(super) fn describe(cursor: &mut Cursor<'_>) -> Result<StatementKind> {
    cursor.next();
    // A table may be called so.
    let has_more = cursor.peek_at(1).is_some() && cursor.peek_at(1) != Some(&Token::Period);
    let is_extended = cursor.is_word_at(1, "EXTENDED");
    if has_more && cursor.take_words(&["JOB"]) {
        return Ok(StatementKind::Jobs(JobCommand::Describe(job_id(cursor)?)));
    }
    if has_more && cursor.take_words(&["CONNECTOR"]) {
        let name = option_name(cursor, "a connector's name", Token::SemiColon)?;
        return Ok(StatementKind::Show(Show::Connector(name)));
    }
    if has_more && cursor.take_words(&["CATALOG"]) {
        cursor.take_words(&["EXTENDED"]);
        let name = cursor.name("a catalog's name")?;
        return Ok(StatementKind::Show(Show::Catalog { name, is_extended }));
    }
    if has_more && cursor.take_words(&["DATABASE"]) {
        cursor.take_words(&["EXTENDED"]);
        let name = cursor.table_name()?;
        return Ok(StatementKind::Show(Show::Database { name, is_extended }));
    }
    if has_more && cursor.take_words(&["FUNCTION"]) {
        cursor.take_words(&["EXTENDED"]);
        return Ok(StatementKind::Show(Show::Function(cursor.table_name()?)));
    }
    cursor.take_words(&["EXTENDED"]);
    Ok(StatementKind::Describe(cursor.table_name()?))
}
