//! The server itself: is it well, what takes time, tokens, options, the audit log.

use axum::Json;
use axum::extract::Path;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use thalweg_core::shim::Clock;

use super::app::{App, List, Page};
use super::extract::{JsonBody, Query};
use super::guard::Caller;
use crate::audit::AuditLine;
use crate::config::ConfigEntry;
use crate::operations::Operation;
use crate::problem::{Outcome, Problem};
use crate::tokens::{Role, TokenView};

/// The process answers.
#[cfg_attr(test, utoipa::path(get, path = "/healthz", tag = "server", responses((status = 200, content_type = "text/plain"))))]
pub async fn healthz() -> &'static str {
    "ok\n"
}

/// The catalogue is read, and requests are taken. It says nothing of jobs: one bad input must not
/// take the interface away.
#[cfg_attr(test, utoipa::path(get, path = "/readyz", tag = "server",
    responses((status = 200, content_type = "text/plain"), (status = 503, content_type = "text/plain"))))]
pub async fn readyz(app: App, uri: Uri) -> Response {
    let is_verbose = uri.query().is_some_and(|query| query.contains("verbose"));
    let is_closing = app.server.is_closing();
    let status = if is_closing { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
    let mut text = if is_closing { "closing\n" } else { "ready\n" }.to_owned();
    if is_verbose {
        let jobs = app.server.all_jobs().len();
        text.push_str(&format!(
            "catalogue: {jobs} jobs, {} not readable\n",
            app.server.problems.len()
        ));
    }
    (status, text).into_response()
}

/// This description.
#[cfg_attr(test, utoipa::path(get, path = "/openapi.json", tag = "server", responses((status = 200, content_type = "application/json"))))]
pub async fn openapi_json() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], super::openapi()).into_response()
}

/// The last requests that took time, newest first.
#[cfg_attr(test, utoipa::path(get, path = "/v1/operations", tag = "operations",
    responses((status = 200, body = List<Operation>))))]
pub async fn operations(app: App, caller: Caller) -> Json<List<Operation>> {
    let mut items = app.server.operations.list();
    items.retain(|operation| caller.sees(&operation.job));
    Json(List { items, next: None })
}

/// A request that takes time.
#[cfg_attr(test, utoipa::path(get, path = "/v1/operations/{id}", tag = "operations", params(("id" = String, Path)),
    responses((status = 200, body = Operation))))]
pub async fn operation(
    app: App,
    caller: Caller,
    Path(id): Path<String>,
) -> Outcome<Json<Operation>> {
    operation_of(&app, &caller, &id).map(Json)
}

/// An operation that a caller may see.
fn operation_of(app: &App, caller: &Caller, id: &str) -> Outcome<Operation> {
    let found = app.server.operations.get(id).filter(|operation| caller.sees(&operation.job));
    found.ok_or_else(|| {
        let detail =
            "there is no such operation; the last 1,000 since the server began are remembered";
        Problem::new(404, "no-such-operation", detail)
    })
}

/// Ends a request that takes time, where that can be: a trial ends early, with what it has found; a
/// start ends with the job stopped; an upgrade goes back to the statements before. What the answer
/// shows of the operation is not yet its end.
#[cfg_attr(test, utoipa::path(delete, path = "/v1/operations/{id}", tag = "operations", params(("id" = String, Path)),
    responses((status = 200, body = Operation), (status = 202, body = Operation))))]
pub async fn cancel_operation(
    app: App,
    caller: Caller,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Outcome<Response> {
    let found = operation_of(&app, &caller, &id)?;
    let asked = app.ask(move |server| server.cancel_operation(&found, &caller.name));
    app.under_way(asked.await?, &headers).await
}

/// A token that is to be made.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct TokenBody {
    /// Its name.
    pub name: String,
    /// What it allows.
    pub role: Role,
    /// After how many seconds it ends. Default: never.
    pub lifetime: Option<u64>,
    /// What the names of jobs begin with that it is for. Default: all.
    pub jobs: Option<String>,
}

/// A token that was made.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct NewToken {
    /// What is kept of it.
    #[serde(flatten)]
    pub about: TokenView,
    /// Its text. Nobody sees it again.
    pub token: String,
}

/// All tokens, without their texts.
#[cfg_attr(test, utoipa::path(get, path = "/v1/tokens", tag = "server", responses((status = 200, body = List<TokenView>))))]
pub async fn tokens(app: App) -> Json<List<TokenView>> {
    Json(List { items: app.server.tokens.list(), next: None })
}

/// Makes a token.
#[cfg_attr(test, utoipa::path(post, path = "/v1/tokens", tag = "server", request_body = TokenBody,
    responses((status = 201, body = NewToken))))]
pub async fn create_token(
    app: App,
    JsonBody(body): JsonBody<TokenBody>,
) -> Outcome<(StatusCode, Json<NewToken>)> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || "._-@".contains(c);
    if body.name.is_empty() || body.name.len() > 63 || !body.name.chars().all(is_name) {
        let detail = "names of tokens have up to 63 letters, digits and the characters . _ - @";
        return Err(Problem::new(400, "name-wrong", detail));
    }
    let made = app
        .ask(move |server| {
            let created_ms = server.clock.wall_ms();
            let lifetime_ms = body
                .lifetime
                .map(|seconds| i64::try_from(seconds).unwrap_or(i64::MAX).saturating_mul(1000));
            let expires_ms = lifetime_ms.map(|lifetime_ms| created_ms.saturating_add(lifetime_ms));
            let TokenBody { name, role, jobs, .. } = body;
            let about = TokenView { name, role, created_ms, expires_ms, jobs };
            let token = server.tokens.create(about.clone())?;
            Ok(NewToken { about, token })
        })
        .await?;
    Ok((StatusCode::CREATED, Json(made)))
}

/// Does away with a token.
#[cfg_attr(test, utoipa::path(delete, path = "/v1/tokens/{name}", tag = "server", params(("name" = String, Path)),
    responses((status = 204))))]
pub async fn delete_token(app: App, Path(name): Path<String>) -> Outcome<StatusCode> {
    app.ask(move |server| server.tokens.delete(&name)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The options of the server, each with where its value came from.
#[cfg_attr(test, utoipa::path(get, path = "/v1/config", tag = "server", responses((status = 200, body = List<ConfigEntry>))))]
pub async fn config(app: App) -> Json<List<ConfigEntry>> {
    Json(List { items: app.server.config.entries(), next: None })
}

/// What runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct Version {
    /// The version of the program.
    pub version: String,
    /// The version of this interface.
    pub interface: String,
    /// How many jobs there are.
    pub jobs: usize,
}

/// What runs.
#[cfg_attr(test, utoipa::path(get, path = "/v1/version", tag = "server", responses((status = 200, body = Version))))]
pub async fn version(app: App) -> Json<Version> {
    Json(Version {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        interface: "v1".to_owned(),
        jobs: app.server.all_jobs().len(),
    })
}

/// Who has asked for what, newest first.
#[cfg_attr(test, utoipa::path(get, path = "/v1/audit", tag = "server", params(("limit" = Option<usize>, Query)),
    responses((status = 200, body = List<AuditLine>))))]
pub async fn audit(app: App, Query(page): Query<Page>) -> Outcome<Json<List<AuditLine>>> {
    let limit = page.limit.unwrap_or(500).clamp(1, 500);
    app.ask(move |server| Ok(Json(List { items: server.audit.tail(limit), next: None }))).await
}
