//! `ALTER MATERIALIZED TABLE`: the table lives in a job of the server, so SUSPEND stops that job
//! with a snapshot, RESUME starts it from there, and AS gives it another query, with the state that
//! fits.

use std::sync::Arc;

use thalweg_library::session::{MaterializedTable, materialized_table_of};

use crate::catalogue::Revision;
use crate::job::Job;
use crate::lifecycle::{State, StopHow};
use crate::operations::{Operation, OperationState};
use crate::problem::{Outcome, Problem};
use crate::requests::{JobBody, PutQuery, StartBody, StopBody};
use crate::server::Server;

/// What a statement does to a materialized table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TableChange {
    /// It is not kept current for a while.
    Suspend,
    /// It is again.
    Resume,
    /// Its query becomes this one.
    As(String),
}

/// Changes the table of this name: `t`, or `job.t`.
///
/// # Errors
/// If no job, or several, keep such a table; if the job does not do as it was asked to.
pub fn alter(server: &Server, name: &str, change: &TableChange, by: &str) -> Outcome<()> {
    let Found { job, revision, table } = find(server, name)?;
    match change {
        TableChange::Suspend => {
            let how = StopHow::Snapshot;
            ended(server, server.stop(&job.name, &StopBody { how }, by)?)
        }
        TableChange::Resume => ended(server, server.start(&job.name, &StartBody::default(), by)?),
        TableChange::As(query) => {
            let Some(before) = table.text.strip_suffix(&table.query) else {
                return Err(Problem::new(500, "internal", "a table without its query"));
            };
            let new = format!("{before}{query}");
            let (tags, limits, desired) = {
                let state = job.lock();
                let record = &state.record;
                (record.tags.clone(), record.limits.clone(), record.desired)
            };
            let body = JobBody {
                sql: revision.sql.replacen(&table.text, &new, 1),
                params: revision.params,
                settings: revision.settings,
                limits,
                tags,
                desired: Some(desired),
            };
            let put = server.put_job(&job.name, body, &PutQuery::default(), by)?;
            put.operation.map_or(Ok(()), |operation| ended(server, operation))
        }
    }
}

/// A table, and the job that keeps it.
struct Found {
    job: Arc<Job>,
    revision: Revision,
    table: MaterializedTable,
}

fn find(server: &Server, name: &str) -> Outcome<Found> {
    let parts: Vec<String> =
        name.split('.').map(|part| part.trim_matches('`').to_owned()).collect();
    let table = parts.last().cloned().unwrap_or_default();
    let of_job = parts.len().checked_sub(2).map(|at| parts[at].clone());
    let mut found = Vec::new();
    for job in server.all_jobs() {
        let number = job.lock().record.revision;
        if of_job.as_ref().is_some_and(|own| *own != job.name) {
            continue;
        }
        let Some(revision) = server.catalogue.revision(&job.name, number)? else { continue };
        // Statements that are wrong keep no table.
        if let Ok(Some(own)) = materialized_table_of(&revision.sql)
            && own.name == table
        {
            found.push(Found { job, revision, table: own });
        }
    }
    match (found.len(), found.pop()) {
        (1, Some(found)) => Ok(found),
        (0, _) => {
            let detail = format!(
                "no job of this server keeps a materialized table {name}; SHOW MATERIALIZED TABLES FROM JOB lists them"
            );
            Err(Problem::new(422, "statement-wrong", detail))
        }
        (count, _) => {
            let detail =
                format!("{count} jobs keep a materialized table {table}: write JOB.{table}");
            Err(Problem::new(422, "statement-wrong", detail))
        }
    }
}

fn ended(server: &Server, operation: Operation) -> Outcome<()> {
    let patience = server.config.stop_timeout().saturating_mul(2);
    let ended = server.operations.wait(&operation.id, patience).unwrap_or(operation);
    let is_right = match ended.state {
        OperationState::Done => true,
        // A start that is slow is one all the same.
        OperationState::Running => ended.job_state != State::Stopping,
        OperationState::Failed => false,
    };
    match (is_right, ended.problem) {
        (true, _) => Ok(()),
        (false, Some(problem)) => Err(problem),
        (false, None) => {
            let detail = format!("the job is {}", ended.job_state.word());
            Err(Problem::new(409, "job-failed", detail))
        }
    }
}
