//! The REST interface: `/v1`, and the few addresses besides.
//!
//! A request goes through [`guard`] (who asks, from where, may they, how large is it), to a handler
//! of one of the modules, which asks the server on a thread that may block, and back through the
//! guard, which writes it down.

mod admin;
mod guard;
mod jobs;
mod listen;
mod live;
mod statements;
mod stream;

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;
use utoipa::OpenApi;

use crate::operations::{Operation, OperationState};
use crate::problem::{Outcome, Problem};
use crate::server::Server;

pub use guard::Caller;
pub use listen::{Listeners, accept};

/// The longest that a client may have an answer held back.
const WAIT_MAX: Duration = Duration::from_secs(600);
/// Requests in work at a time.
const REQUESTS_MAX: usize = 32;
/// Streams that are open at a time.
const STREAMS_MAX: usize = 64;

/// What handlers know.
#[derive(Clone)]
pub struct App {
    /// The server.
    pub server: Arc<Server>,
    pub(crate) limits: Arc<Limits>,
}

/// How much goes on at a time.
pub(crate) struct Limits {
    pub requests: Semaphore,
    pub streams: Arc<Semaphore>,
    pub failures: guard::Failures,
}

impl App {
    /// For a server.
    pub fn new(server: Arc<Server>) -> App {
        let limits = Limits {
            requests: Semaphore::new(REQUESTS_MAX),
            streams: Arc::new(Semaphore::new(STREAMS_MAX)),
            failures: guard::Failures::default(),
        };
        App { server, limits: Arc::new(limits) }
    }

    /// Asks the server on a thread that may block.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&Arc<Server>) -> Outcome<T> + Send + 'static,
    ) -> Outcome<T> {
        let server = Arc::clone(&self.server);
        let asked = tokio::task::spawn_blocking(move || ask(&server)).await;
        asked.unwrap_or_else(|_| {
            Err(Problem::new(500, "panicked", "the server has a bug: please report it"))
        })
    }

    /// The answer to a request that takes time: at once, or when it has ended, as the client prefers.
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
        let mut response = (status, Json(operation)).into_response();
        if let Ok(place) = HeaderValue::from_str(&place) {
            response.headers_mut().insert(header::LOCATION, place);
        }
        Ok(response)
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

/// A body of JSON that may be left out.
pub(crate) fn parse_or_default<T: DeserializeOwned + Default>(bytes: &Bytes) -> Outcome<T> {
    if bytes.is_empty() { Ok(T::default()) } else { parse(bytes) }
}

/// The parameters behind the `?`.
pub(crate) fn query<T: DeserializeOwned>(uri: &Uri) -> Outcome<T> {
    let query = axum::extract::Query::try_from_uri(uri);
    query.map(|axum::extract::Query(query)| query).map_err(|error| {
        Problem::new(400, "parameter-wrong", format!("a parameter is wrong: {error}"))
    })
}

/// Lists with a next page.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
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
    #[serde(default)]
    pub limit: Option<usize>,
    #[serde(default)]
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

/// All addresses.
pub fn router(app: App) -> Router {
    let job = Router::new()
        .route("/", get(jobs::get_job).put(jobs::put_job).delete(jobs::delete_job))
        .route("/start", post(jobs::start))
        .route("/stop", post(jobs::stop))
        .route("/pause", post(jobs::pause))
        .route("/resume", post(jobs::resume))
        .route("/restart", post(jobs::restart))
        .route("/approve", post(jobs::approve))
        .route("/revisions", get(jobs::revisions))
        .route("/revisions/{revision}", get(jobs::revision))
        .route("/revisions/{revision}/diff", get(jobs::revision_diff))
        .route("/revisions/{revision}/activate", post(jobs::activate))
        .route("/snapshots", get(jobs::snapshots).post(jobs::take_snapshot))
        .route("/events", get(jobs::events))
        .route("/logs", get(jobs::logs))
        .route("/runs", get(jobs::runs));
    Router::new()
        .route("/healthz", get(admin::healthz))
        .route("/readyz", get(admin::readyz))
        .route("/openapi.json", get(admin::openapi_json))
        .route("/v1/jobs", get(jobs::list))
        .nest("/v1/jobs/{job}", job)
        .route("/v1/validate", post(statements::validate))
        .route("/v1/explain", post(statements::explain))
        .route("/v1/query", post(statements::query_rows))
        .route("/v1/settings", get(statements::settings))
        .route("/v1/functions", get(statements::functions))
        .route("/v1/connectors", get(statements::connectors))
        .route("/v1/live", get(live::live))
        .route("/v1/operations", get(admin::operations))
        .route("/v1/operations/{id}", get(admin::operation))
        .route("/v1/tokens", get(admin::tokens).post(admin::create_token))
        .route("/v1/tokens/{name}", axum::routing::delete(admin::delete_token))
        .route("/v1/config", get(admin::config))
        .route("/v1/version", get(admin::version))
        .route("/v1/audit", get(admin::audit))
        .fallback(nothing_here)
        .method_not_allowed_fallback(wrong_method)
        .layer(axum::middleware::from_fn_with_state(app.clone(), guard::guard))
        .with_state(app)
}

async fn nothing_here(State(_): State<App>, uri: Uri) -> Problem {
    let detail = format!("there is nothing at {}; /openapi.json lists what there is", uri.path());
    Problem::new(404, "no-such-address", detail)
}

async fn wrong_method() -> Problem {
    Problem::new(405, "method-wrong", "this address knows other methods; see /openapi.json")
}

/// The description of the interface.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Thalweg",
        description = "Jobs of stream processing, in one process",
        license(name = "Apache-2.0")
    ),
    paths(
        jobs::list,
        jobs::get_job,
        jobs::put_job,
        jobs::delete_job,
        jobs::start,
        jobs::stop,
        jobs::pause,
        jobs::resume,
        jobs::restart,
        jobs::approve,
        jobs::revisions,
        jobs::revision,
        jobs::revision_diff,
        jobs::activate,
        jobs::snapshots,
        jobs::take_snapshot,
        jobs::events,
        jobs::logs,
        jobs::runs,
        statements::validate,
        statements::explain,
        statements::query_rows,
        statements::settings,
        statements::functions,
        statements::connectors,
        live::live,
        admin::operations,
        admin::operation,
        admin::tokens,
        admin::create_token,
        admin::delete_token,
        admin::config,
        admin::version,
        admin::audit,
        admin::healthz,
        admin::readyz,
        admin::openapi_json,
    )
)]
struct Description;

/// The OpenAPI document, as it is committed and served.
pub fn openapi() -> String {
    let mut text = Description::openapi().to_pretty_json().unwrap_or_default();
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn the_description_is_the_committed_one() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("openapi.json");
        let text = openapi();
        if std::env::var_os("THALWEG_WRITE_DOCS").is_some() {
            std::fs::write(&file, &text).expect("written");
        }
        let committed = std::fs::read_to_string(&file).unwrap_or_default();
        assert!(
            committed == text,
            "the interface has changed: THALWEG_WRITE_DOCS=1 cargo test -p thalweg-server --locked writes it down"
        );
    }

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
