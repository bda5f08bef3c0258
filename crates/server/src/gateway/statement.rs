//! What each statement of a client does.
//!
//! A statement is carried out on a thread of its own, for planning takes time and a query lasts.
//! Those that change what later ones mean hold the session meanwhile; queries and INSERTs work on a
//! copy of it.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BooleanArray, RecordBatch, StringViewArray};
use thalweg_core::graph::Graph;
use thalweg_core::quoting::quoted_name;
use thalweg_core::{Column, DataType, Error, Result, Sink, TableSchema};
use thalweg_library::session::{
    JobDescription, Observer, ResultTable, Session, StatementClass, Tz,
};
use thalweg_runtime::JobControl;

use super::command::Command;
use super::jobs::{self, text_column, texts};
use super::materialized;
use super::operation::{Answer, Operation};
use super::registry::Gateway;
use super::rows::{WaitingRows, WaitingSink};
use super::session::{Engine, GatewaySession, Turn};
use crate::problem::{Outcome, Problem};
use crate::requests::{SQL_BYTES_MAX, check_sql_length};

/// A statement as it was sent.
pub struct Sent {
    /// Its text.
    pub text: String,
    /// Options for it alone.
    pub options: BTreeMap<String, String>,
}

/// Begins to carry out a statement.
///
/// # Errors
/// If too much is in work.
pub fn begin(
    gateway: &Arc<Gateway>,
    session: &Arc<GatewaySession>,
    sent: Sent,
) -> Outcome<Arc<Operation>> {
    check_sql_length(&sent.text)?;
    let in_work = gateway.begin_statement()?;
    let operation = session.begin()?;
    let (own, of, op) = (Arc::clone(gateway), Arc::clone(session), Arc::clone(&operation));
    let turn = session.turn();
    let body = move || {
        turn.wait();
        let ran = catch_unwind(AssertUnwindSafe(|| carry_out(&own, (&of, turn), &sent, &op)));
        match ran {
            Ok(Ok(answer)) => op.answer(answer),
            Ok(Err(problem)) => op.fail(problem),
            Err(_) => {
                op.fail(Problem::new(500, "panicked", "the server has a bug: please report it"))
            }
        }
        drop(in_work);
    };
    let thread = std::thread::Builder::new().name("gateway statement".to_owned()).spawn(body);
    thread.map_err(|error| Problem::new(503, "no-threads", error.to_string()))?;
    Ok(operation)
}

/// Changes what later statements mean; nothing else is carried out.
///
/// # Errors
/// If it is another statement, or wrong.
pub fn configure(session: &GatewaySession, text: &str) -> Outcome<()> {
    check_sql_length(text)?;
    let of_text = |error: Error| Problem::of_error(&error, text);
    let class = StatementClass::of(text).map_err(of_text)?;
    let changes = matches!(
        class,
        StatementClass::Set { .. } | StatementClass::Reset(_) | StatementClass::Declaration
    );
    if !changes {
        let detail = format!("Unsupported statement for configuring session: {}", text.trim());
        return Err(Problem::new(422, "statement-wrong", detail));
    }
    declare(&mut session.engine(), class, text)
}

fn carry_out(
    gateway: &Gateway,
    (session, turn): (&GatewaySession, Turn),
    sent: &Sent,
    operation: &Arc<Operation>,
) -> Outcome<Answer> {
    let text = sent.text.as_str();
    if let Some(command) = Command::of(text)? {
        return command_of(gateway, session, &command, operation);
    }
    if operation.is_left() {
        return ok();
    }
    let class = StatementClass::of(text).map_err(|error| Problem::of_error(&error, text))?;
    if session.engine().statement_set.is_some() {
        return add_to_set(session, class, text);
    }
    match class {
        StatementClass::Query => {
            let mut engine = session.engine().fork(&sent.options)?;
            engine.session.set_readable(gateway.server.readable_tables())?;
            // Later statements need not wait until the query has ended.
            drop(turn);
            query(gateway, engine, text, operation)
        }
        StatementClass::Job { table, is_created } => {
            let engine = session.engine().fork(&sent.options)?;
            let job = jobs::submit(gateway, &engine, (text, &table), &session.by)?;
            if is_created {
                declare_filled(&mut session.engine(), &table, text)?;
            }
            jobs::started(&engine, &job, operation)
        }
        StatementClass::Answer => {
            let mut engine = session.engine().fork(&sent.options)?;
            engine.session.set_readable(gateway.server.readable_tables())?;
            shown(engine.session, text)
        }
        changing => {
            declare(&mut session.engine(), changing, text)?;
            ok()
        }
    }
}

/// Declares and sets.
fn declare(engine: &mut Engine, class: StatementClass, text: &str) -> Outcome<()> {
    engine.session.declare(text).map_err(|error| Problem::of_error(&error, text))?;
    match class {
        StatementClass::Set { key, value } => {
            engine.settings.insert(key.clone(), value.clone());
            engine.note_property(key, value)
        }
        StatementClass::Reset(key) => {
            engine.forget_property(key.as_deref());
            Ok(())
        }
        _ => engine.note_declaration(text),
    }
}

/// The table of CREATE TABLE AS, whose job runs: jobs to come declare it and do not fill it.
fn declare_filled(engine: &mut Engine, table: &str, text: &str) -> Outcome<()> {
    let of_text = |error: Error| Problem::of_error(&error, text);
    engine.session.declare(text).map_err(of_text)?;
    let quoted = table.split('.').map(quoted_name);
    let question = format!("SHOW CREATE TABLE {}", quoted.collect::<Vec<_>>().join("."));
    let rows = engine.session.execute(&question).map_err(of_text)?;
    let declaration = rows.first().and_then(|batch| batch.column(0).as_string_view_opt());
    let declaration = declaration.filter(|column| !column.is_empty()).map(|column| column.value(0));
    let declaration = declaration
        .ok_or_else(|| Problem::new(500, "internal", "a table that was declared is not shown"))?;
    engine.note_declaration(declaration)
}

fn command_of(
    gateway: &Gateway,
    session: &GatewaySession,
    command: &Command,
    operation: &Operation,
) -> Outcome<Answer> {
    let server = &gateway.server;
    match command {
        Command::ShowJobs => jobs::show(server, None),
        Command::DescribeJob(id) => jobs::show(server, Some(id)),
        Command::StopJob { id, with_savepoint, with_drain } => {
            let stopped = jobs::stop(server, (id, *with_savepoint, *with_drain), &session.by)?;
            stopped.map_or_else(ok, Ok)
        }
        Command::AlterMaterializedTable { name, change } => {
            materialized::alter(server, name, change, &session.by)?;
            ok()
        }
        Command::BeginStatementSet => {
            session.engine().statement_set = Some(Vec::new());
            ok()
        }
        Command::EndStatementSet => end_set(gateway, session, operation),
    }
}

/// An INSERT of a statement set that comes statement by statement.
fn add_to_set(session: &GatewaySession, class: StatementClass, text: &str) -> Outcome<Answer> {
    let StatementClass::Job { is_created: false, .. } = class else {
        let detail = "only INSERTs stand between BEGIN STATEMENT SET and END";
        return Err(Problem::new(422, "statement-wrong", detail));
    };
    let mut engine = session.engine();
    let planned = engine.session.planned_jobs(text);
    planned.map_err(|error| Problem::of_error(&error, text))?;
    if let Some(set) = &mut engine.statement_set {
        let bytes: usize = set.iter().map(String::len).sum();
        check_sql_length(text)?;
        if bytes + text.len() > SQL_BYTES_MAX {
            return Err(Problem::new(413, "too-large", "the statement set is too long"));
        }
        set.push(text.trim().trim_end_matches(';').to_owned());
    }
    drop(engine);
    ok()
}

fn end_set(gateway: &Gateway, session: &GatewaySession, operation: &Operation) -> Outcome<Answer> {
    let (set, engine) = {
        let mut engine = session.engine();
        (engine.statement_set.take(), engine.fork(&BTreeMap::new())?)
    };
    let set = set.filter(|set| !set.is_empty()).ok_or_else(|| {
        Problem::new(422, "statement-wrong", "there is no statement set with INSERTs to end")
    })?;
    let text = format!("EXECUTE STATEMENT SET BEGIN\n{};\nEND", set.join(";\n"));
    let first = StatementClass::of(&set[0]).map_err(|error| Problem::of_error(&error, &set[0]))?;
    let table = match first {
        StatementClass::Job { table, .. } => table,
        _ => "statement-set".to_owned(),
    };
    let job = jobs::submit(gateway, &engine, (&text, &table), &session.by)?;
    jobs::started(&engine, &job, operation)
}

/// The answer to what changes something.
fn ok() -> Outcome<Answer> {
    let schema = TableSchema::new(vec![text_column("result")]);
    let batch = texts(&schema, &[vec!["OK".to_owned()]])?;
    Ok(Answer { is_plain: true, ..Answer::of(schema, batch) })
}

/// Runs a query to its end. Its rows can be fetched once its job runs.
fn query(
    gateway: &Gateway,
    mut engine: Engine,
    text: &str,
    operation: &Arc<Operation>,
) -> Outcome<Answer> {
    let mut observer = QueryObserver { gateway, operation, answer: None };
    let ran = engine.session.run_script(text, &mut observer);
    let answer = observer.answer;
    match (ran, answer) {
        (Ok(report), Some(answer)) => {
            let is_cut = report.jobs.iter().any(|job| job.report.cancelled);
            if is_cut && !operation.is_left() {
                return Err(Problem::new(503, "closing", "the server is about to end"));
            }
            answer.rows.end(Ok(()));
            Ok(answer)
        }
        (Ok(_), None) => Err(Problem::new(500, "internal", "a query has no result")),
        (Err(error), _) => Err(Problem::of_error(&error, text)),
    }
}

struct QueryObserver<'a> {
    gateway: &'a Gateway,
    operation: &'a Arc<Operation>,
    answer: Option<Answer>,
}

impl Observer for QueryObserver<'_> {
    fn result(&mut self, table: &ResultTable, zone: Tz) -> Result<Box<dyn Sink>> {
        let rows = Arc::new(WaitingRows::default());
        let mut job_id = crate::tokens::digest(&self.operation.handle);
        job_id.truncate(32);
        self.answer = Some(Answer {
            is_query: true,
            is_plain: false,
            job_id: Some(job_id),
            schema: table.schema.clone(),
            zone,
            rows: Arc::clone(&rows),
        });
        Ok(Box::new(WaitingSink(rows)))
    }

    fn explanation(&mut self, _: &str) -> Result<()> {
        Err(Error::internal("a query explains nothing"))
    }

    fn starting(&mut self, _: &JobDescription, graph: &mut Graph) {
        self.operation.note_start(graph.cancellers());
    }

    fn started(&mut self, _: &JobDescription, control: &JobControl) {
        self.operation.note_run(control);
        if let Some(answer) = &self.answer {
            self.operation.answer(answer.clone());
        }
    }

    fn is_stopped(&self) -> bool {
        self.operation.is_left() || self.gateway.server.is_closing()
    }
}

/// Runs a statement that answers at once.
fn shown(mut session: Session, text: &str) -> Outcome<Answer> {
    let mut observer = ShownObserver::default();
    let ran = session.run_script(text, &mut observer);
    ran.map_err(|error| Problem::of_error(&error, text))?;
    observer.answer.map_or_else(ok, Ok)
}

#[derive(Default)]
struct ShownObserver {
    answer: Option<Answer>,
}

impl Observer for ShownObserver {
    fn result(&mut self, _: &ResultTable, _: Tz) -> Result<Box<dyn Sink>> {
        Err(Error::internal("a statement that only answers has no job"))
    }

    fn rows(&mut self, table: &ResultTable, _: Tz, rows: &RecordBatch) -> Result<()> {
        let (schema, batch) = as_flink_shows(&table.schema, rows)?;
        self.answer = Some(Answer::of(schema, batch));
        Ok(())
    }

    fn explanation(&mut self, text: &str) -> Result<()> {
        let schema = TableSchema::new(vec![text_column("result")]);
        let column: ArrayRef = Arc::new(StringViewArray::from(vec![text]));
        let batch = RecordBatch::try_new(schema.arrow(), vec![column])?;
        self.answer = Some(Answer::of(schema, batch));
        Ok(())
    }
}

/// Rows of SHOW and DESCRIBE with the types of Flink: what is true or false is BOOLEAN, and what
/// is not there is NULL. Declarations are in a column `result`.
fn as_flink_shows(schema: &TableSchema, rows: &RecordBatch) -> Result<(TableSchema, RecordBatch)> {
    let (mut columns, mut arrays) = (Vec::new(), Vec::new());
    for (column, array) in schema.columns.iter().zip(rows.columns()) {
        let Some(texts) = array.as_string_view_opt() else {
            return Err(Error::internal("SHOW and DESCRIBE answer with texts"));
        };
        let is_declaration = column.name.starts_with("create ");
        let name = if is_declaration { "result" } else { &column.name };
        if matches!(name, "null" | "used") {
            let truths = texts.iter().map(|text| text.filter(|text| !text.is_empty()));
            let truths = truths.map(|text| text.map(|text| text == "TRUE"));
            columns.push(Column::new(name, DataType::Boolean.nullable()));
            arrays.push(Arc::new(truths.collect::<BooleanArray>()) as ArrayRef);
        } else {
            let present = texts.iter().map(|text| text.filter(|text| !text.is_empty()));
            columns.push(text_column(name));
            arrays.push(Arc::new(present.collect::<StringViewArray>()));
        }
    }
    let schema = TableSchema::new(columns);
    let batch = RecordBatch::try_new(schema.arrow(), arrays)?;
    Ok((schema, batch))
}

/// Names that the word in front of a place may become.
///
/// # Errors
/// Those of the engine.
pub fn candidates(session: &GatewaySession, text: &str, place: usize) -> Outcome<Vec<String>> {
    let before: String = text.chars().take(place).collect();
    let is_of_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '$');
    let word = before.rsplit(|c| !is_of_word(c)).next().unwrap_or_default();
    if word.is_empty() {
        return Ok(Vec::new());
    }
    let mut fork = session.engine().fork(&BTreeMap::new())?.session;
    let first = |fork: &mut Session, question: &str| -> Outcome<Vec<String>> {
        let batches = fork.execute(question)?;
        let columns = batches.iter().filter_map(|batch| batch.column(0).as_string_view_opt());
        Ok(columns.flat_map(|column| column.iter().flatten()).map(str::to_owned).collect())
    };
    let place = [
        first(&mut fork, "SHOW CURRENT CATALOG")?.concat(),
        first(&mut fork, "SHOW CURRENT DATABASE")?.concat(),
    ]
    .join(".");
    let tables = first(&mut fork, "SHOW TABLES")?;
    let mut found: Vec<String> = tables
        .into_iter()
        .map(|table| (format!("{place}.{table}"), table))
        .filter(|(full, table)| table.starts_with(word) || full.starts_with(word))
        .map(|(full, _)| full)
        .collect();
    let upper = word.to_uppercase();
    let functions = first(&mut fork, "SHOW FUNCTIONS")?;
    found.extend(functions.into_iter().filter(|name| name.to_uppercase().starts_with(&upper)));
    Ok(found)
}
