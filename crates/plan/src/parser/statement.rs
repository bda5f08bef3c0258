//! Statements by their first words.

use sqlparser::tokenizer::Token;
use thalweg_core::{Error, Result};

use super::create::{create_table, create_view};
use super::problem::{end_of, start_of};
use super::query::query;
use super::tokens::{Cursor, describe};
use crate::ast::{Insert, Name, Query, Show, Statement, StatementKind};
use crate::diagnostic::nearest;

/// Words that begin a statement that is understood.
const KNOWN: [&str; 14] = [
    "CREATE", "DROP", "SHOW", "DESCRIBE", "DESC", "SET", "RESET", "INSERT", "EXECUTE", "BEGIN",
    "EXPLAIN", "SELECT", "WITH", "VALUES",
];

/// Words that begin a statement of Flink's that is not.
const UNSUPPORTED: [&str; 20] = [
    "ALTER", "USE", "LOAD", "UNLOAD", "CALL", "ANALYZE", "TRUNCATE", "UPDATE", "DELETE", "STOP",
    "ADD", "REMOVE", "COMPILE", "MERGE", "GRANT", "REVOKE", "QUIT", "EXIT", "HELP", "SOURCE",
];

/// The statements of a script.
pub(super) fn statements(cursor: &mut Cursor<'_>) -> Result<Vec<Statement>> {
    let mut statements = Vec::new();
    loop {
        while cursor.take_token(&Token::SemiColon) {}
        if cursor.at_end() {
            return Ok(statements);
        }
        statements.push(statement(cursor)?);
    }
}

/// The next statement, semicolon included.
fn statement(cursor: &mut Cursor<'_>) -> Result<Statement> {
    let span = cursor.here();
    if cursor.is_words(&["EXECUTE", "STATEMENT", "SET"])
        || cursor.is_words(&["BEGIN", "STATEMENT", "SET"])
    {
        return Ok(Statement { kind: StatementKind::StatementSet(statement_set(cursor)?), span });
    }
    if cursor.take_words(&["EXPLAIN"]) {
        return Ok(Statement { kind: StatementKind::Explain(Box::new(explained(cursor)?)), span });
    }
    let mut cursor = cursor.statement();
    let kind = kind(&mut cursor).map_err(|e| e.at(span))?;
    cursor.expect_end()?;
    Ok(Statement { kind, span })
}

fn kind(cursor: &mut Cursor<'_>) -> Result<StatementKind> {
    let word = cursor.peek().map(|t| t.token.to_string().to_ascii_uppercase()).unwrap_or_default();
    match word.as_str() {
        "SELECT" | "WITH" | "VALUES" | "(" => Ok(StatementKind::Select(rest_as_query(cursor)?)),
        "INSERT" => Ok(StatementKind::Insert(insert(cursor)?)),
        "CREATE" => create(cursor),
        "DROP" => drop_statement(cursor),
        "SHOW" => show(cursor),
        "DESCRIBE" | "DESC" => {
            cursor.next();
            if cursor.is_word("CONNECTOR") && cursor.peek_at(1).is_some() {
                cursor.next();
                let name = option_name(cursor, "a connector's name", Token::SemiColon)?;
                return Ok(StatementKind::Show(Show::Connector(name)));
            }
            cursor.take_words(&["EXTENDED"]);
            Ok(StatementKind::Describe(cursor.table_name()?))
        }
        "SET" => set(cursor),
        "RESET" => reset(cursor),
        _ => Err(unknown(cursor, &word)),
    }
}

/// Second words that distinguish statements.
const OBJECTS: &str = "TABLE VIEW FUNCTION DATABASE CATALOG MODEL MODULE MODULES JAR JOB PLAN \
    STATEMENT MATERIALIZED FROM INTO PROCEDURE";

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
        (_, "TABLE" | "FROM") => error.hint("a query begins with SELECT: SELECT * FROM …"),
        (Some(near), _) => error.hint(format!("did you mean {near}?")),
        (None, _) => error.hint("is a semicolon in the wrong place?"),
    }
}

fn rest_as_query(cursor: &mut Cursor<'_>) -> Result<Query> {
    let end = end_of(cursor.tokens);
    query(cursor.source, cursor.rest()).map_err(|e| e.at(end))
}

/// Behind EXPLAIN.
fn explained(cursor: &mut Cursor<'_>) -> Result<Statement> {
    const DETAILS: [&str; 4] =
        ["ESTIMATED_COST", "CHANGELOG_MODE", "JSON_EXECUTION_PLAN", "PLAN_ADVICE"];
    while DETAILS.iter().any(|detail| cursor.take_words(&[detail])) {
        cursor.take_token(&Token::Comma);
    }
    cursor.take_words(&["PLAN", "FOR"]);
    let span = cursor.here();
    if cursor.is_words(&["STATEMENT", "SET"]) {
        let inserts = inserts_of_set(cursor, false)?;
        return Ok(Statement { kind: StatementKind::StatementSet(inserts), span });
    }
    if cursor.is_word("EXPLAIN") {
        return Err(cursor.expected("a statement to explain"));
    }
    statement(cursor)
}

/// `EXECUTE STATEMENT SET BEGIN … END` or `BEGIN STATEMENT SET; … END`
fn statement_set(cursor: &mut Cursor<'_>) -> Result<Vec<Insert>> {
    let begin_first = cursor.is_word("BEGIN");
    cursor.index += 1;
    inserts_of_set(cursor, begin_first)
}

/// From STATEMENT SET to the end of the set.
fn inserts_of_set(cursor: &mut Cursor<'_>, begin_first: bool) -> Result<Vec<Insert>> {
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

fn insert(cursor: &mut Cursor<'_>) -> Result<Insert> {
    cursor.expect_words(&["INSERT"])?;
    if cursor.is_word("OVERWRITE") {
        return Err(Error::unsupported("INSERT OVERWRITE is not supported")
            .hint("a file sink replaces its file: INSERT INTO does it")
            .at(cursor.here()));
    }
    cursor.expect_words(&["INTO"])?;
    let table = cursor.table_name()?;
    if cursor.is_word("PARTITION") {
        return Err(Error::unsupported("INSERT INTO … PARTITION is not supported")
            .hint("select the constant as a column")
            .at(cursor.here()));
    }
    let is_query = |word| cursor.is_word_at(1, word);
    let bracket_is_query = ["SELECT", "WITH", "VALUES"].into_iter().any(is_query)
        || cursor.peek_at(1) == Some(&Token::LParen);
    let columns = if cursor.is_token(&Token::LParen) && !bracket_is_query {
        cursor.parenthesized_names("a column name")?
    } else {
        Vec::new()
    };
    Ok(Insert { table, columns, query: rest_as_query(cursor)? })
}

fn create(cursor: &mut Cursor<'_>) -> Result<StatementKind> {
    let start = start_of(cursor.tokens);
    cursor.expect_words(&["CREATE"])?;
    let or_replace = cursor.take_words(&["OR", "REPLACE"]);
    cursor.take_words(&["TEMPORARY"]);
    cursor.take_words(&["SYSTEM"]);
    if cursor.take_words(&["VIEW"]) {
        return create_view(cursor, or_replace);
    }
    if cursor.is_word("TABLE") && !or_replace {
        cursor.next();
        return Ok(StatementKind::CreateTable(create_table(cursor)?));
    }
    let what = cursor.name("TABLE or VIEW")?.text.to_ascii_uppercase();
    let replace = if or_replace { "OR REPLACE " } else { "" };
    match what.as_str() {
        "TABLE" | "FUNCTION" | "CATALOG" | "DATABASE" | "MODEL" | "MATERIALIZED" | "CONNECTION" => {
            Err(Error::unsupported(format!("CREATE {replace}{what} is not supported")).at(start))
        }
        _ => Err(Error::plan(format!("there is no CREATE {what}"))
            .hint("CREATE TABLE and CREATE VIEW are known")
            .at(start)),
    }
}

fn drop_statement(cursor: &mut Cursor<'_>) -> Result<StatementKind> {
    cursor.expect_words(&["DROP"])?;
    cursor.take_words(&["TEMPORARY"]);
    let is_view = cursor.take_words(&["VIEW"]);
    if !is_view && !cursor.take_words(&["TABLE"]) {
        let what = cursor.name("TABLE or VIEW")?;
        return Err(Error::unsupported(format!(
            "DROP {} is not supported",
            what.text.to_ascii_uppercase()
        ))
        .at(what.span));
    }
    let if_exists = cursor.take_words(&["IF", "EXISTS"]);
    Ok(StatementKind::Drop { name: cursor.table_name()?, is_view, if_exists })
}

fn show(cursor: &mut Cursor<'_>) -> Result<StatementKind> {
    cursor.expect_words(&["SHOW"])?;
    if cursor.take_words(&["CREATE", "TABLE"]) {
        return Ok(StatementKind::Show(Show::CreateTable(cursor.table_name()?)));
    }
    if cursor.take_words(&["CREATE", "VIEW"]) {
        return Ok(StatementKind::Show(Show::CreateView(cursor.table_name()?)));
    }
    cursor.take_words(&["USER"]);
    let what = cursor.name("TABLES, VIEWS, FUNCTIONS, CONNECTORS or CREATE TABLE")?;
    match what.text.to_ascii_uppercase().as_str() {
        "TABLES" => Ok(StatementKind::Show(Show::Tables)),
        "VIEWS" => Ok(StatementKind::Show(Show::Views)),
        "FUNCTIONS" => Ok(StatementKind::Show(Show::Functions)),
        "CONNECTORS" => Ok(StatementKind::Show(Show::Connectors)),
        other => Err(Error::unsupported(format!("SHOW {other} is not supported"))
            .hint(
                "SHOW TABLES, VIEWS, FUNCTIONS, CONNECTORS, CREATE TABLE and CREATE VIEW are known",
            )
            .at(what.span)),
    }
}

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
fn option_name(cursor: &mut Cursor<'_>, what: &str, stop: Token) -> Result<Name> {
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
