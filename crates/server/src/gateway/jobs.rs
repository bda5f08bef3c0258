//! INSERTs of clients become jobs of the server, and SHOW JOBS, DESCRIBE JOB and STOP JOB are
//! about all of its jobs.
//!
//! A job is named by `pipeline.name`, or by the table that it writes. A name whose job is at rest
//! is used again, from scratch, as a job that Flink is sent; one whose job runs gets a number
//! behind it. `execution.state-recovery.path`, as STOP JOB WITH SAVEPOINT has answered it,
//! continues the job of that place.

use std::sync::Arc;
use std::time::Duration;

use arrow_array::{ArrayRef, RecordBatch, StringViewArray, TimestampMicrosecondArray};
use thalweg_core::{Column, DataType, TableSchema};

use super::operation::{Answer, Operation};
use super::registry::Gateway;
use super::session::Engine;
use crate::catalogue::{NAME_MAX, StartFrom};
use crate::job::Job;
use crate::lifecycle::{State, StopHow};
use crate::operations::OperationState;
use crate::problem::{Outcome, Problem};
use crate::requests::{JobBody, PutQuery, StartBody, StopBody};
use crate::server::Server;
use crate::tokens::digest;

/// What finds the jobs of clients among others.
const TAG: &str = "flink-gateway";
/// The option that names a job.
const NAME: &str = "pipeline.name";
/// The options that say where a job continues from.
const RECOVERY_PATHS: [&str; 2] = ["execution.state-recovery.path", "execution.savepoint.path"];
/// The option that lets INSERTs be awaited.
const SYNC: &str = "table.dml-sync";
/// How often it is looked whether a job has ended.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// How many jobs of one name there are.
const NUMBER_MAX: u32 = 1_000;

/// Makes a job of statements and starts it.
///
/// # Errors
/// If the statements are wrong, or there is no room.
pub fn submit(
    gateway: &Gateway,
    engine: &Engine,
    (statements, table): (&str, &str),
    by: &str,
) -> Outcome<Arc<Job>> {
    let server = &gateway.server;
    let wanted = engine
        .properties
        .get(NAME)
        .map_or_else(|| slug(&format!("insert-into-{table}")), |name| slug(name));
    let path = RECOVERY_PATHS.iter().find_map(|key| engine.properties.get(*key));
    let body = JobBody {
        sql: engine.job_text(statements),
        settings: engine.settings.clone(),
        tags: vec![TAG.to_owned()],
        ..JobBody::default()
    };
    let _one_at_a_time = gateway.submitting.lock().expect("no panic under this lock");
    let (name, from) = match path {
        Some(path) => place_of(server, path)?,
        None => (free_name(server, &wanted)?, StartFrom::Nothing),
    };
    let query = PutQuery { approve: Some("drop-state".to_owned()), ..PutQuery::default() };
    server.put_job(&name, body, &query, by)?;
    let drop_state = from == StartFrom::Nothing;
    server.start(&name, &StartBody { from, drop_state, overwrite: false }, by)?;
    server.job(&name)
}

/// The answer to statements that have started a job: at once, or when it has ended, as its
/// settings say.
///
/// # Errors
/// Why a job that was waited for has failed.
pub fn started(engine: &Engine, job: &Job, operation: &Operation) -> Outcome<Answer> {
    let id = id_of(job);
    if engine.properties.get(SYNC).is_some_and(|value| value == "true") {
        await_end(job, operation)?;
    }
    let schema = TableSchema::new(vec![text_column("job id")]);
    let batch = texts(&schema, &[vec![id.clone()]])?;
    Ok(Answer { job_id: Some(id), ..Answer::of(schema, batch) })
}

fn await_end(job: &Job, operation: &Operation) -> Outcome<()> {
    loop {
        let state = job.lock();
        let outcome = state.record.outcome.clone();
        let is_over = state.shown.is_at_rest() || state.shown == State::Undecided;
        if let Some(outcome) = outcome.filter(|_| is_over) {
            return match (state.shown, outcome.problem) {
                (State::Failed | State::Undecided, Some(problem)) => Err(problem),
                _ => Ok(()),
            };
        }
        drop(state);
        if operation.is_left() {
            return Ok(());
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// A name that no job has which is not at rest.
fn free_name(server: &Server, wanted: &str) -> Outcome<String> {
    let numbered = |number: u32| match number {
        1 => wanted.to_owned(),
        _ => {
            let end = format!("-{number}");
            let length = wanted.len().min(NAME_MAX - end.len());
            format!("{}{end}", &wanted[..length])
        }
    };
    let is_free = |name: &String| {
        server.job(name).map_or(true, |job| {
            let state = job.lock();
            let is_ours = state.record.tags.iter().any(|tag| tag == TAG);
            is_ours && state.run.is_none() && state.shown.is_at_rest()
        })
    };
    (1..=NUMBER_MAX).map(numbered).find(is_free).ok_or_else(|| {
        Problem::new(409, "in-use", format!("{NUMBER_MAX} jobs have the name '{wanted}'"))
    })
}

/// The job and the snapshot of a place that STOP JOB has answered.
fn place_of(server: &Server, path: &str) -> Outcome<(String, StartFrom)> {
    let plain = path.strip_prefix("file://").unwrap_or(path);
    let number = plain.rsplit_once('/').and_then(|(_, number)| number.parse().ok());
    let is_of = |job: &&Arc<Job>| {
        number.is_some_and(|number| {
            snapshot_path(server, &job.name, number).as_deref() == Some(plain)
        })
    };
    let jobs = server.all_jobs();
    let (Some(job), Some(number)) = (jobs.iter().find(is_of), number) else {
        let detail = format!(
            "'{path}' is no snapshot of a job of this server: STOP JOB 'id' WITH SAVEPOINT answers such places"
        );
        return Err(Problem::new(422, "statement-wrong", detail));
    };
    if job.lock().run.is_some() {
        return Err(Problem::new(409, "runs", format!("the job '{}' still runs", job.name)));
    }
    Ok((job.name.clone(), StartFrom::Snapshot(number)))
}

fn snapshot_path(server: &Server, job: &str, number: u64) -> Option<String> {
    let store = server.store(job).ok().flatten()?;
    Some(store.snapshot_directory(number)?.display().to_string())
}

/// The name that a job of this server can have.
fn slug(name: &str) -> String {
    let plain = name.to_lowercase().replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    let plain: Vec<&str> = plain.split('-').filter(|part| !part.is_empty()).collect();
    let mut plain = plain.join("-");
    plain.truncate(NAME_MAX);
    if plain.is_empty() { "job".to_owned() } else { plain }
}

/// The id of a job: another one for each time that it was asked to start.
fn id_of(job: &Job) -> String {
    let state = job.lock();
    let record = &state.record;
    let mut id = digest(&format!("{} {} {}", job.name, record.created_ms, record.generation));
    id.truncate(32);
    id
}

/// The job of an id.
fn job_of(server: &Server, id: &str) -> Outcome<Arc<Job>> {
    let found = server.all_jobs().into_iter().find(|job| id_of(job).eq_ignore_ascii_case(id));
    found.ok_or_else(|| {
        let shown: String = id.chars().take(40).filter(|c| !c.is_control()).collect();
        let detail = format!("there is no job '{shown}'; SHOW JOBS lists them");
        Problem::new(422, "statement-wrong", detail)
    })
}

/// The answer to SHOW JOBS, or to DESCRIBE JOB.
///
/// # Errors
/// If there is no such job.
pub fn show(server: &Server, id: Option<&str>) -> Outcome<Answer> {
    let jobs = match id {
        Some(id) => vec![job_of(server, id)?],
        None => server.all_jobs(),
    };
    let mut columns = vec![text_column("job id"), text_column("job name"), text_column("status")];
    columns.push(Column::new("start time", DataType::TimestampLtz(6).nullable()));
    let schema = TableSchema::new(columns);
    let rows: Vec<(Vec<String>, i64)> = jobs.iter().map(|job| row_of(server, job)).collect();
    let text = |place: usize| {
        let values = rows.iter().map(|(texts, _)| Some(texts[place].as_str()));
        Arc::new(values.collect::<StringViewArray>()) as ArrayRef
    };
    let begun = rows.iter().map(|(_, begun_ms)| begun_ms.saturating_mul(1_000));
    let begun = TimestampMicrosecondArray::from_iter_values(begun).with_timezone("UTC");
    let arrays = vec![text(0), text(1), text(2), Arc::new(begun)];
    let batch = RecordBatch::try_new(schema.arrow(), arrays).map_err(thalweg_core::Error::from)?;
    Ok(Answer::of(schema, batch))
}

fn row_of(server: &Server, job: &Job) -> (Vec<String>, i64) {
    let id = id_of(job);
    let state = job.lock();
    let revision = server.catalogue.revision(&job.name, state.record.revision).ok().flatten();
    let own_name = revision.and_then(|revision| revision.settings.get(NAME).cloned());
    let begun_ms = state.run.as_ref().map_or(state.since_ms, |run| run.begun_ms);
    let name = own_name.unwrap_or_else(|| job.name.clone());
    (vec![id, name, status(state.shown).to_owned()], begun_ms)
}

/// Flink's word for the state of a job.
fn status(state: State) -> &'static str {
    match state {
        State::Draft | State::Planning | State::Undecided => "CREATED",
        State::Starting => "INITIALIZING",
        State::Running => "RUNNING",
        State::Paused => "SUSPENDED",
        State::Stopping => "CANCELLING",
        State::Restarting => "RESTARTING",
        State::Stopped => "CANCELED",
        State::Finished => "FINISHED",
        State::Failed => "FAILED",
    }
}

/// Stops a job, and waits for that. The answer is the place of its snapshot, if one was wanted.
///
/// # Errors
/// If there is no such job, or it does not stop as it was asked to.
pub fn stop(
    server: &Server,
    (id, with_savepoint, with_drain): (&str, bool, bool),
    by: &str,
) -> Outcome<Option<Answer>> {
    let job = job_of(server, id)?;
    let how = match (with_savepoint, with_drain) {
        (_, true) => StopHow::Drain,
        (true, false) => StopHow::Snapshot,
        (false, false) => StopHow::Cancel,
    };
    if let (true, Some(run)) = (with_savepoint, &job.lock().run) {
        // Flink's savepoints stay until a user deletes them.
        run.keep_last_snapshot();
    }
    let operation = server.stop(&job.name, &StopBody { how }, by)?;
    let patience = server.config.stop_timeout().saturating_mul(2);
    let ended = server.operations.wait(&operation.id, patience).unwrap_or(operation);
    match (ended.state, ended.problem) {
        (OperationState::Done, _) => {}
        (_, Some(problem)) => return Err(problem),
        _ => return Err(Problem::new(409, "job-failed", "the job has not stopped in time")),
    }
    if !with_savepoint {
        return Ok(None);
    }
    let store = server.store(&job.name)?;
    let number = store.as_ref().map(|store| store.newest_number_of(store.lineage()?.as_ref()));
    let place = number.transpose()?.flatten();
    let place = place.and_then(|number| snapshot_path(server, &job.name, number));
    let place =
        place.ok_or_else(|| Problem::new(409, "no-snapshots", "the job keeps no snapshots"))?;
    let schema = TableSchema::new(vec![text_column("savepoint path")]);
    let batch = texts(&schema, &[vec![place]])?;
    Ok(Some(Answer::of(schema, batch)))
}

/// A column of texts.
pub fn text_column(name: &str) -> Column {
    Column::new(name, DataType::STRING.nullable())
}

/// Rows of texts.
///
/// # Errors
/// None, as long as the rows have as many texts as there are columns.
pub fn texts(schema: &TableSchema, rows: &[Vec<String>]) -> Outcome<RecordBatch> {
    let column = |place: usize| {
        let values = rows.iter().map(|row| row.get(place).map(String::as_str));
        Arc::new(values.collect::<StringViewArray>()) as ArrayRef
    };
    let arrays = (0..schema.len()).map(column).collect();
    Ok(RecordBatch::try_new(schema.arrow(), arrays).map_err(thalweg_core::Error::from)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_flink_become_names_of_jobs() {
        assert_eq!(slug("Orders per Hour!"), "orders-per-hour");
        assert_eq!(slug("insert-into-`a`.`b`.`c`"), "insert-into-a-b-c");
        assert_eq!(slug("…"), "job");
        assert_eq!(slug(&"x".repeat(200)).len(), NAME_MAX);
        crate::catalogue::check_name(&slug("-_Ä x")).expect("a name");
    }
}
