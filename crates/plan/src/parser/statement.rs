//! Statements by their first words.
//!
//! Everything but queries is read by hand, since Flink's statements differ from what `sqlparser`
//! knows. A statement ends at a semicolon, except for statement sets and what EXPLAIN explains,
//! which read their own end.
//!
//! A statement of Flink that is not supported is recognized by its first words, so that the message
//! says "not supported" and not "unknown".

use sqlparser::tokenizer::Token;
use thalweg_core::{Error, Result};

use super::alter::alter;
use super::create::{create_materialized_table, create_table, create_view};
use super::declare::{self, FunctionWords};
use super::insert::{insert, insert_of_table};
use super::partitions::analyze;
use super::plan::{compile_plan, execute_plan, jar, stop_job};
use super::problem::start_of;
use super::query::rest_as_query;
use super::show::{describe as describe_statement, show};
use super::tokens::{Cursor, describe};
use crate::ast::{ExplainDetails, Explained, Insert, Name, Show, Statement, StatementKind};
use crate::diagnostic::nearest;

/// Words that begin a statement that is understood.
const KNOWN: [&str; 24] = [
    "ADD", "ANALYZE", "CREATE", "REPLACE", "DROP", "ALTER", "USE", "LOAD", "UNLOAD", "REMOVE",
    "SHOW", "DESCRIBE", "DESC", "SET", "RESET", "INSERT", "EXECUTE", "BEGIN", "COMPILE", "STOP",
    "EXPLAIN", "SELECT", "WITH", "VALUES",
];

/// Words that begin a statement of Flink's that is not.
const UNSUPPORTED: [&str; 11] = [
    "CALL", "TRUNCATE", "UPDATE", "DELETE", "MERGE", "GRANT", "REVOKE", "QUIT", "EXIT", "HELP",
    "SOURCE",
];

/// The statements of a script.
pub(super) fn statements(cursor: &mut Cursor<'_>) -> Result<Vec<Statement>> {
    let mut statements = Vec::new();
    loop {
        while cursor.take_token(&Token::SemiColon) {}
        if cursor.at_end() {
            return Ok(statements);
        }
        let statement = statement(cursor)?;
        let filled = match &statement.kind {
            StatementKind::CreateTable(table) => insert_of_table(table),
            _ => None,
        };
        let span = statement.span;
        statements.push(statement);
        let insert = filled.map(|insert| Statement { kind: StatementKind::Insert(insert), span });
        statements.extend(insert);
    }
}

/// The next statement. The semicolon behind it is left, but for that of a statement set.
///
/// `EXPLAIN`, `COMPILE` and statement sets come first: they may hold semicolons.
fn statement(cursor: &mut Cursor<'_>) -> Result<Statement> {
    let span = cursor.here();
    if cursor.is_words(&["EXECUTE", "STATEMENT", "SET"])
        || cursor.is_words(&["BEGIN", "STATEMENT", "SET"])
    {
        return Ok(Statement { kind: StatementKind::StatementSet(statement_set(cursor)?), span });
    }
    if cursor.is_words(&["EXECUTE", "INSERT"])
        || cursor.is_words(&["EXECUTE", "SELECT"])
        || cursor.is_words(&["EXECUTE", "VALUES"])
        || cursor.is_words(&["EXECUTE", "WITH"])
    {
        cursor.next();
    }
    if cursor.take_words(&["EXPLAIN"]) {
        return Ok(Statement { kind: StatementKind::Explain(Box::new(explained(cursor)?)), span });
    }
    if cursor.is_word("COMPILE") {
        return Ok(Statement { kind: StatementKind::CompilePlan(compile_plan(cursor)?), span });
    }
    let mut cursor = cursor.statement();
    let kind = kind(&mut cursor).map_err(|e| e.at(span))?;
    cursor.expect_end()?;
    Ok(Statement { kind, span })
}

fn kind(cursor: &mut Cursor<'_>) -> Result<StatementKind> {
    let word = cursor.peek().map(|t| t.token.to_string().to_ascii_uppercase()).unwrap_or_default();
    match word.as_str() {
        "SELECT" | "WITH" | "VALUES" | "TABLE" | "(" => {
            Ok(StatementKind::Select(rest_as_query(cursor)?))
        }
        "INSERT" => Ok(StatementKind::Insert(insert(cursor)?)),
        "CREATE" | "REPLACE" => create(cursor),
        "DROP" => drop_statement(cursor),
        "ALTER" => alter(cursor).map(StatementKind::Declare),
        "USE" => declare::use_statement(cursor).map(StatementKind::Declare),
        "LOAD" | "UNLOAD" => declare::module(cursor).map(StatementKind::Declare),
        "ANALYZE" => analyze(cursor).map(StatementKind::Declare),
        "SHOW" => show(cursor),
        "DESCRIBE" | "DESC" => describe_statement(cursor),
        "SET" => set(cursor),
        "RESET" => reset(cursor),
        "EXECUTE" if cursor.is_word_at(1, "PLAN") => execute_plan(cursor),
        "STOP" => stop_job(cursor),
        "ADD" | "REMOVE" => jar(cursor),
        _ => Err(unknown(cursor, &word)),
    }
}

/// Second words that distinguish statements.
const OBJECTS: &str = "TABLE VIEW FUNCTION DATABASE CATALOG MODEL MODULE MODULES JAR JOB PLAN \
    STATEMENT MATERIALIZED FROM INTO PROCEDURE";

/// The error for first words that begin no statement.
fn unknown(cursor: &Cursor<'_>, word: &str) -> Error {
    let here = cursor.here();
    if UNSUPPORTED.contains(&word) || word == "EXECUTE" || word == "BEGIN" {
        let second = cursor.peek_at(1).and_then(super::tokens::upper_word).unwrap_or_default();
        let is_part = OBJECTS.split(' ').any(|object| object == second);
        let name = if is_part { format!("{word} {second}") } else { word.to_owned() };
        return Error::unsupported(format!("the statement {name} is not supported")).at(here);
    }
    if cursor.at_end() {
        return cursor.expected("a statement");
    }
    let error =
        Error::plan(format!("no statement begins with {}", describe(cursor.peek()))).at(here);
    match (nearest(word, KNOWN), word) {
        (_, "FROM") => error.hint("a query begins with SELECT: SELECT * FROM …"),
        (Some(near), _) => error.hint(format!("did you mean {near}?")),
        (None, _) => error.hint("is a semicolon in the wrong place?"),
    }
}

/// Behind EXPLAIN.
fn explained(cursor: &mut Cursor<'_>) -> Result<Explained> {
    let mut details = ExplainDetails::default();
    loop {
        let detail = match () {
            () if cursor.take_words(&["ESTIMATED_COST"]) => &mut details.shows_cost,
            () if cursor.take_words(&["CHANGELOG_MODE"]) => &mut details.shows_changes,
            () if cursor.take_words(&["JSON_EXECUTION_PLAN"]) => &mut details.shows_json,
            () if cursor.take_words(&["PLAN_ADVICE"]) => &mut details.shows_advice,
            () => break,
        };
        *detail = true;
        cursor.take_token(&Token::Comma);
    }
    cursor.take_words(&["PLAN", "FOR"]);
    let span = cursor.here();
    if cursor.is_words(&["STATEMENT", "SET"]) {
        let inserts = inserts_of_set(cursor, false)?;
        let statement = Statement { kind: StatementKind::StatementSet(inserts), span };
        return Ok(Explained { statement, details });
    }
    if cursor.is_word("EXPLAIN") {
        return Err(cursor.expected("a statement to explain"));
    }
    Ok(Explained { statement: statement(cursor)?, details })
}

/// `EXECUTE STATEMENT SET BEGIN … END` or `BEGIN STATEMENT SET; … END`
fn statement_set(cursor: &mut Cursor<'_>) -> Result<Vec<Insert>> {
    let begin_first = cursor.is_word("BEGIN");
    cursor.index += 1;
    inserts_of_set(cursor, begin_first)
}

/// From STATEMENT SET to the end of the set.
pub(super) fn inserts_of_set(cursor: &mut Cursor<'_>, begin_first: bool) -> Result<Vec<Insert>> {
    cursor.expect_words(&["STATEMENT", "SET"])?;
    if begin_first {
        cursor.expect_token(&Token::SemiColon)?;
    } else {
        cursor.expect_words(&["BEGIN"])?;
    }
    let mut inserts = Vec::new();
    loop {
        while cursor.take_token(&Token::SemiColon) {}
        let here = cursor.here();
        if cursor.take_words(&["END"]) {
            if !cursor.take_token(&Token::SemiColon) {
                cursor.expect_end()?;
            }
            return if inserts.is_empty() {
                Err(Error::plan("this statement set is empty").at(here))
            } else {
                Ok(inserts)
            };
        }
        if !cursor.is_word("INSERT") {
            return Err(set_member(cursor));
        }
        let mut member = cursor.statement();
        inserts.push(insert(&mut member).map_err(|e| e.at(here))?);
    }
}

fn set_member(cursor: &Cursor<'_>) -> Error {
    let error = cursor.expected("INSERT INTO or END");
    if cursor.at_end() {
        return error.hint("a statement set is closed by END;");
    }
    error.hint("a statement set holds INSERT statements only; to print, insert into a table WITH ('connector' = 'print')")
}

/// `CREATE …` and `REPLACE TABLE …`
fn create(cursor: &mut Cursor<'_>) -> Result<StatementKind> {
    let start = start_of(cursor.tokens);
    let is_replace = cursor.take_words(&["REPLACE"]);
    if is_replace {
        cursor.expect_words(&["TABLE"])?;
        return Ok(StatementKind::CreateTable(create_table(cursor, true)?));
    }
    cursor.expect_words(&["CREATE"])?;
    if cursor.take_words(&["OR", "ALTER"]) {
        cursor.expect_words(&["MATERIALIZED", "TABLE"])?;
        return Ok(StatementKind::CreateTable(create_materialized_table(cursor, true)?));
    }
    let or_replace = cursor.take_words(&["OR", "REPLACE"]);
    let is_temporary = cursor.take_words(&["TEMPORARY"]);
    let is_system = cursor.take_words(&["SYSTEM"]);
    if cursor.take_words(&["VIEW"]) {
        return create_view(cursor, or_replace);
    }
    if cursor.take_words(&["TABLE"]) {
        return Ok(StatementKind::CreateTable(create_table(cursor, or_replace)?));
    }
    if !or_replace && cursor.take_words(&["MATERIALIZED", "TABLE"]) {
        return Ok(StatementKind::CreateTable(create_materialized_table(cursor, false)?));
    }
    let declaration = match or_replace {
        true => None,
        false if cursor.take_words(&["FUNCTION"]) => {
            let words = FunctionWords { is_temporary, is_system, is_alteration: false };
            Some(declare::create_function(cursor, words)?)
        }
        false if cursor.take_words(&["CATALOG"]) => Some(declare::create_catalog(cursor)?),
        false if cursor.take_words(&["DATABASE"]) => Some(declare::create_database(cursor)?),
        false => None,
    };
    if let Some(declaration) = declaration {
        return Ok(StatementKind::Declare(declaration));
    }
    let what = cursor.name("TABLE or VIEW")?.text.to_ascii_uppercase();
    let replace = if or_replace { "OR REPLACE " } else { "" };
    match what.as_str() {
        "FUNCTION" | "CATALOG" | "DATABASE" | "MODEL" | "MATERIALIZED" | "CONNECTION" => {
            Err(Error::unsupported(format!("CREATE {replace}{what} is not supported")).at(start))
        }
        _ => Err(Error::plan(format!("there is no CREATE {what}"))
            .hint("CREATE TABLE, VIEW, FUNCTION, DATABASE and CATALOG are known")
            .at(start)),
    }
}

fn drop_statement(cursor: &mut Cursor<'_>) -> Result<StatementKind> {
    cursor.expect_words(&["DROP"])?;
    cursor.take_words(&["TEMPORARY"]);
    let is_system = cursor.take_words(&["SYSTEM"]);
    let declaration = match () {
        () if cursor.take_words(&["FUNCTION"]) => declare::drop_function(cursor, is_system)?,
        () if cursor.take_words(&["DATABASE"]) => declare::drop_database(cursor)?,
        () if cursor.take_words(&["CATALOG"]) => declare::drop_catalog(cursor)?,
        () => return drop_relation(cursor),
    };
    Ok(StatementKind::Declare(declaration))
}

fn drop_relation(cursor: &mut Cursor<'_>) -> Result<StatementKind> {
    cursor.take_words(&["MATERIALIZED"]);
    let is_view = cursor.take_words(&["VIEW"]);
    if !is_view && !cursor.take_words(&["TABLE"]) {
        let what = cursor.name("TABLE, VIEW, FUNCTION, DATABASE or CATALOG")?;
        return Err(Error::unsupported(format!(
            "DROP {} is not supported",
            what.text.to_ascii_uppercase()
        ))
        .at(what.span));
    }
    let if_exists = cursor.take_words(&["IF", "EXISTS"]);
    Ok(StatementKind::Drop { name: cursor.table_name()?, is_view, if_exists })
}

/// `SET 'key' = 'value'`, or SET alone. A value without quotes is the text up to the semicolon.
fn set(cursor: &mut Cursor<'_>) -> Result<StatementKind> {
    cursor.expect_words(&["SET"])?;
    if cursor.at_end() {
        return Ok(StatementKind::Show(Show::Settings));
    }
    let key = option_name(cursor, "an option's name", Token::Eq)?;
    cursor.expect_token(&Token::Eq)?;
    let value = match cursor.peek_at(0) {
        Some(Token::SingleQuotedString(_)) => cursor.string("a value")?.text,
        None => return Err(cursor.expected("a value in single quotes")),
        Some(_) => cursor.source.text_of(cursor.rest()).to_owned(),
    };
    Ok(StatementKind::Set { key, value })
}

fn reset(cursor: &mut Cursor<'_>) -> Result<StatementKind> {
    cursor.expect_words(&["RESET"])?;
    if cursor.at_end() {
        return Ok(StatementKind::Reset(None));
    }
    Ok(StatementKind::Reset(Some(option_name(cursor, "an option's name", Token::SemiColon)?)))
}

/// `'a.b-c'` or `a.b-c`
/// Unquoted names are several tokens (`-` is an operator), so the text is taken as it stands.
pub(super) fn option_name(cursor: &mut Cursor<'_>, what: &str, stop: Token) -> Result<Name> {
    if matches!(cursor.peek_at(0), Some(Token::SingleQuotedString(_))) {
        return cursor.string(what);
    }
    let here = cursor.here();
    let tokens = cursor.take_until(&[stop]);
    if tokens.is_empty() {
        return Err(cursor.expected(&format!("{what} in single quotes")));
    }
    let text = cursor.source.text_of(tokens).trim().to_owned();
    let one_line = tokens.iter().all(|t| t.span.start.line == tokens[0].span.start.line);
    let end = super::tokens::span(tokens[tokens.len() - 1].span).end_column;
    Ok(Name {
        text,
        span: thalweg_core::Span { end_column: if one_line { end } else { 0 }, ..here },
    })
}
