//! Compiled plans, jobs and jars: statements about what runs.

use thalweg_core::{Result, Span};

use super::insert::insert;
use super::statement::inserts_of_set;
use super::tokens::Cursor;
use crate::ast::{CompilePlan, Declaration, JobCommand, Name, Statement, StatementKind};

/// `COMPILE PLAN 'file' [IF NOT EXISTS] FOR …`, `COMPILE AND EXECUTE PLAN 'file' FOR …`. The
/// semicolon behind it is left, but for that of a statement set.
pub(super) fn compile_plan(cursor: &mut Cursor<'_>) -> Result<CompilePlan> {
    cursor.expect_words(&["COMPILE"])?;
    let is_executed = cursor.take_words(&["AND", "EXECUTE"]);
    cursor.expect_words(&["PLAN"])?;
    let path = plan_file(cursor)?;
    let if_not_exists = !is_executed && cursor.take_words(&["IF", "NOT", "EXISTS"]);
    cursor.expect_words(&["FOR"])?;
    let (start, span) = (cursor.index, cursor.here());
    let (before, kind) = compiled(cursor, span)?;
    let tokens = &cursor.tokens[start..cursor.index];
    let text = cursor.source.text_of(tokens).trim_end_matches(';');
    Ok(CompilePlan {
        path,
        if_not_exists,
        is_executed,
        statement: Box::new(Statement { kind, span }),
        text: format!("{before}{text}"),
    })
}

/// What is compiled, and what its text lacks to be a statement of its own.
fn compiled(cursor: &mut Cursor<'_>, span: Span) -> Result<(&'static str, StatementKind)> {
    if cursor.is_words(&["STATEMENT", "SET"]) {
        let inserts = inserts_of_set(cursor, false)?;
        return Ok(("EXECUTE ", StatementKind::StatementSet(inserts)));
    }
    if !cursor.is_word("INSERT") {
        return Err(cursor.expected("INSERT or STATEMENT SET"));
    }
    let inserted = insert(&mut cursor.statement()).map_err(|error| error.at(span))?;
    Ok(("", StatementKind::Insert(inserted)))
}

/// `EXECUTE PLAN 'file'`
pub(super) fn execute_plan(cursor: &mut Cursor<'_>) -> Result<StatementKind> {
    cursor.expect_words(&["EXECUTE", "PLAN"])?;
    Ok(StatementKind::ExecutePlan(plan_file(cursor)?))
}

fn plan_file(cursor: &mut Cursor<'_>) -> Result<Name> {
    cursor.string("the file of the plan in single quotes")
}

/// `STOP JOB 'id' [WITH SAVEPOINT] [WITH DRAIN]`
pub(super) fn stop_job(cursor: &mut Cursor<'_>) -> Result<StatementKind> {
    cursor.expect_words(&["STOP", "JOB"])?;
    let id = job_id(cursor)?;
    let with_savepoint = cursor.take_words(&["WITH", "SAVEPOINT"]);
    let with_drain = cursor.take_words(&["WITH", "DRAIN"]);
    Ok(StatementKind::Jobs(JobCommand::Stop { id, with_savepoint, with_drain }))
}

pub(super) fn job_id(cursor: &mut Cursor<'_>) -> Result<Name> {
    cursor.string("the id of a job in single quotes")
}

/// `ADD JAR 'file'`, `REMOVE JAR 'file'`
pub(super) fn jar(cursor: &mut Cursor<'_>) -> Result<StatementKind> {
    let is_added = cursor.take_words(&["ADD"]);
    if !is_added {
        cursor.expect_words(&["REMOVE"])?;
    }
    cursor.expect_words(&["JAR"])?;
    let file = cursor.string("the file of the jar in single quotes")?;
    Ok(StatementKind::Declare(match is_added {
        true => Declaration::AddJar(file),
        false => Declaration::RemoveJar(file),
    }))
}
