//! `ALTER MATERIALIZED TABLE`: the table lives in a job of the server, so SUSPEND stops that job
//! with a snapshot, RESUME starts it from there, and AS gives it another query, with the state that
//! fits.

use std::sync::Arc;

use thalweg_library::session::materialized_table_of;

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
    let Found { job, revision, statement } = find(server, name)?;
    match change {
        TableChange::Suspend => {
            let how = StopHow::Snapshot;
            ended(server, server.stop(&job.name, &StopBody { how }, by)?)
        }
        TableChange::Resume => ended(server, server.start(&job.name, &StartBody::default(), by)?),
        TableChange::As(query) => {
            let Some(at) = place_of_as(&statement) else {
                return Err(Problem::new(500, "internal", "a table without its query"));
            };
            let new = format!("{} AS {query}", statement[..at].trim_end());
            let (tags, limits, desired) = {
                let state = job.lock();
                let record = &state.record;
                (record.tags.clone(), record.limits.clone(), record.desired)
            };
            let body = JobBody {
                sql: revision.sql.replacen(&statement, &new, 1),
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
    /// As it was written.
    statement: String,
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
        if let Ok(Some((own, statement))) = materialized_table_of(&revision.sql)
            && own == table
        {
            found.push(Found { job, revision, statement });
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

/// Where the `AS` in front of the query stands: the first one outside of brackets, quotes and
/// comments.
fn place_of_as(statement: &str) -> Option<usize> {
    let bytes = statement.as_bytes();
    let (mut depth, mut at) = (0_usize, 0);
    while at < bytes.len() {
        let rest = &statement[at..];
        let passed = match bytes[at] {
            quote @ (b'\'' | b'`' | b'"') => {
                rest[1..].find(char::from(quote)).map_or(rest.len(), |end| end + 2)
            }
            b'-' if rest.starts_with("--") => rest.find('\n').unwrap_or(rest.len()),
            b'/' if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |end| end + 2),
            b'(' => {
                depth += 1;
                1
            }
            b')' => {
                depth = depth.saturating_sub(1);
                1
            }
            byte if is_of_word(byte) => {
                let end = rest.bytes().position(|byte| !is_of_word(byte)).unwrap_or(rest.len());
                if depth == 0 && rest[..end].eq_ignore_ascii_case("as") {
                    return Some(at);
                }
                end
            }
            _ => 1,
        };
        at += passed;
    }
    None
}

/// Bytes of characters beyond ASCII are those of words.
fn is_of_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_query_begins_behind_the_first_as_that_is_no_part_of_something() {
        let text = "CREATE MATERIALIZED TABLE `as` (PRIMARY KEY (k) NOT ENFORCED) -- as it is\n\
                    COMMENT 'as ever' FRESHNESS = INTERVAL '1' SECOND As SELECT k AS x FROM t";
        let at = place_of_as(text).expect("there is one");
        assert_eq!(&text[at..], "As SELECT k AS x FROM t");
        assert_eq!(place_of_as("CREATE TABLE basé (x AS y)"), None);
    }
}
