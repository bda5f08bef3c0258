//! What handlers share: the server, its limits, and how bodies, parameters and lists are read.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Json;
use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;

use super::guard::Failures;
use crate::meters::Meters;
use crate::operations::{Operation, OperationState};
use crate::problem::{Outcome, Problem};
use crate::server::Server;

/// The longest that a client may have an answer held back.
const WAIT_MAX: Duration = Duration::from_secs(600);
/// Requests in work at a time.
const REQUESTS_MAX: usize = 32;
/// Bytes of bodies of rows in work at a time.
const ROWS_BYTES_IN_WORK: usize = 64 << 20;
/// Streams that are open at a time.
const STREAMS_MAX: usize = 64;

/// Which interface a request comes in by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// `/v1`, and the page.
    Rest,
    /// The SQL gateway for clients of Flink.
    Gateway,
}

/// What handlers know.
#[derive(Clone)]
pub struct App {
    /// The server.
    pub server: Arc<Server>,
    /// The interface that they are of.
    pub door: Door,
    pub(crate) limits: Arc<Limits>,
}

/// How much continues at a time.
pub(crate) struct Limits {
    pub requests: Semaphore,
    pub streams: Arc<Semaphore>,
    /// Bytes that bodies of rows may have.
    pub rows_bytes: Arc<Semaphore>,
    pub failures: Failures,
    pub meters: Meters,
}

/// The lock of an answer is held to put it there or to take it.
const NO_PANIC: &str = "nobody panics while holding the lock of an answer";

/// Runs something on a thread that may block, to its end or until it panics. Boxed, since what
/// Tokio does for a task is compiled for each kind of them.
async fn run_blocking(work: Box<dyn FnOnce() + Send>) {
    let _ = tokio::task::spawn_blocking(work).await;
}

impl App {
    /// The REST interface of a server.
    pub fn new(server: Arc<Server>) -> App {
        App::at(Door::Rest, server)
    }

    /// An interface of a server.
    pub fn at(door: Door, server: Arc<Server>) -> App {
        let limits = Limits {
            requests: Semaphore::new(REQUESTS_MAX),
            streams: Arc::new(Semaphore::new(STREAMS_MAX)),
            rows_bytes: Arc::new(Semaphore::new(ROWS_BYTES_IN_WORK)),
            failures: Failures::default(),
            meters: Meters::default(),
        };
        App { server, door, limits: Arc::new(limits) }
    }

    /// Asks the server on a thread that may block.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&Arc<Server>) -> Outcome<T> + Send + 'static,
    ) -> Outcome<T> {
        let (server, answer) = (Arc::clone(&self.server), Arc::new(Mutex::new(None)));
        let answered = Arc::clone(&answer);
        let ask = move || {
            let outcome = ask(&server);
            *answered.lock().expect(NO_PANIC) = Some(outcome);
        };
        run_blocking(Box::new(ask)).await;
        let outcome = answer.lock().expect(NO_PANIC).take();
        outcome.unwrap_or_else(|| {
            Err(Problem::new(500, "panicked", "the server has a bug: please report it"))
        })
    }

    /// The answer to a request that takes time: at once, or when it has ended, as the client
    /// prefers.
    pub(crate) async fn under_way(
        &self,
        operation: Operation,
        headers: &HeaderMap,
    ) -> Outcome<Response> {
        let operation = match wanted_wait(headers) {
            Some(wait) if operation.state == OperationState::Running => {
                let id = operation.id.clone();
                let ended = self.ask(move |server| Ok(server.operations.wait(&id, wait))).await?;
                ended.unwrap_or(operation)
            }
            _ => operation,
        };
        let status = match operation.state {
            OperationState::Running => StatusCode::ACCEPTED,
            _ => StatusCode::OK,
        };
        let place = format!("/v1/operations/{}", operation.id);
        Ok((status, [(header::LOCATION, place)], Json(operation)).into_response())
    }
}

/// `Prefer: wait=30`
fn wanted_wait(headers: &HeaderMap) -> Option<Duration> {
    let prefer = headers.get("prefer")?.to_str().ok()?;
    let wait = prefer.split(',').find_map(|one| one.trim().strip_prefix("wait="))?;
    let wait: u64 = wait.trim().parse().ok()?;
    Some(Duration::from_secs(wait).min(WAIT_MAX))
}

/// A body of JSON.
pub(crate) fn parse<T: DeserializeOwned>(bytes: &Bytes) -> Outcome<T> {
    serde_json::from_slice(bytes).map_err(|error| {
        Problem::new(400, "body-wrong", format!("the body is not what is wanted here: {error}"))
    })
}

/// The statements of a body that is no JSON but `application/sql`.
pub(crate) fn plain_sql(headers: &HeaderMap, bytes: &Bytes) -> Outcome<Option<String>> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    if !kind.is_some_and(|kind| kind.starts_with("application/sql")) {
        return Ok(None);
    }
    let sql = String::from_utf8(bytes.to_vec());
    sql.map(Some).map_err(|_| Problem::new(400, "body-wrong", "statements are UTF-8"))
}

/// Lists with a next page.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct List<T> {
    /// A page of them.
    pub items: Vec<T>,
    /// What `after` is for the next page, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Which page of a list.
#[derive(Clone, Debug, Default, serde::Deserialize)]
pub(crate) struct Page {
    pub limit: Option<usize>,
    pub after: Option<String>,
}

impl Page {
    /// The page of these, whose order `key` is.
    pub fn of<T>(&self, items: impl Iterator<Item = T>, key: impl Fn(&T) -> String) -> List<T> {
        let limit = self.limit.unwrap_or(500).clamp(1, 500);
        let behind =
            items.filter(|item| self.after.as_ref().is_none_or(|after| key(item) > *after));
        let mut items: Vec<T> = behind.take(limit + 1).collect();
        let next = (items.len() > limit).then(|| items.truncate(limit));
        let next = next.and_then(|()| items.last()).map(key);
        List { items, next }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_have_pages() {
        let page = |limit, after: Option<&str>| {
            let page = Page { limit: Some(limit), after: after.map(str::to_owned) };
            page.of(["a", "b", "c"].into_iter(), |name| (*name).to_owned())
        };
        let first = page(2, None);
        assert_eq!((first.items, first.next.as_deref()), (vec!["a", "b"], Some("b")));
        let last = page(2, Some("b"));
        assert_eq!((last.items, last.next), (vec!["c"], None));
    }
}
