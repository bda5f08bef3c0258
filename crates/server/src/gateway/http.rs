//! Addresses and bodies of the interface. `/v1` to `/v4` differ in what there is: V1 writes values
//! as JSON only, and an address without a version is of V4.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;
use axum::http::{HeaderValue, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use serde::Deserialize;
use serde_json::{Value, json};
use thalweg_connectors::output::ValueForm;

use super::logical_type::column;
use super::operation::{Answer, Page, Status};
use super::registry::Gateway;
use super::rows::Piece;
use super::session::GatewaySession;
use super::statement::{self, Sent};
use crate::http::{App, Caller, Door, JsonBody, OptionalBody, guard};
use crate::problem::{Outcome, Problem};
use crate::server::Server;

/// What clients are informed of: they go by it, so it is the version whose interface this is.
const PRODUCT: (&str, &str) = ("Apache Flink", "2.3.0");
/// Versions of the interface.
const VERSIONS: [&str; 4] = ["V1", "V2", "V3", "V4"];
/// How often it is looked for sessions that nobody uses.
const LOOK_FOR_IDLE: Duration = Duration::from_secs(5);

#[derive(Clone)]
struct Known {
    app: App,
    gateway: Arc<Gateway>,
}

impl FromRequestParts<Known> for Known {
    type Rejection = Infallible;
    async fn from_request_parts(_: &mut Parts, known: &Known) -> Result<Known, Infallible> {
        Ok(known.clone())
    }
}

/// All addresses. Idle sessions are closed by a task of `runtime`.
pub fn router(server: Arc<Server>, runtime: &tokio::runtime::Handle) -> Router {
    let app = App::at(Door::Gateway, Arc::clone(&server));
    let gateway = Arc::new(Gateway::new(server));
    let own = Arc::clone(&gateway);
    runtime.spawn(async move {
        loop {
            tokio::time::sleep(LOOK_FOR_IDLE).await;
            own.close_idle();
        }
    });
    let known = Known { app: app.clone(), gateway };
    ["", "/v1", "/v2", "/v3", "/v4"]
        .into_iter()
        .fold(Router::new(), addresses)
        .fallback(nothing_here)
        .method_not_allowed_fallback(nothing_here)
        .layer(axum::middleware::from_fn_with_state(app, guard))
        .with_state(known)
}

fn addresses(router: Router<Known>, version: &str) -> Router<Known> {
    let session = format!("{version}/sessions/{{session}}");
    let of_session = |what: &str| format!("{session}/{what}");
    let of_operation = |what: &str| format!("{session}/operations/{{operation}}/{what}");
    router
        .route(&format!("{version}/info"), get(info))
        .route(&format!("{version}/api_versions"), get(versions))
        .route(&format!("{version}/sessions"), post(open_session))
        .route(&session, get(properties).delete(close_session))
        .route(&of_session("heartbeat"), post(heartbeat))
        .route(&of_session("configure-session"), post(configure))
        .route(&of_session("statements"), post(send_statement))
        .route(&of_session("complete-statement"), get(complete))
        .route(&of_session("scripts"), post(scripts))
        .route(&of_operation("status"), get(status))
        .route(&of_operation("cancel"), post(cancel))
        .route(&of_operation("close"), delete(close_operation))
        .route(&of_operation("result/{token}"), get(result))
}

async fn nothing_here(uri: Uri) -> Problem {
    Problem::new(404, "no-such-address", format!("Not found: {}", uri.path()))
}

fn answer(value: &Value) -> Response {
    text(value.to_string())
}

fn text(text: String) -> Response {
    let kind = HeaderValue::from_static("application/json; charset=UTF-8");
    ([(header::CONTENT_TYPE, kind)], text).into_response()
}

async fn info() -> Response {
    answer(&json!({ "productName": PRODUCT.0, "version": PRODUCT.1 }))
}

async fn versions() -> Response {
    answer(&json!({ "versions": VERSIONS }))
}

#[derive(Default, Deserialize)]
struct OpenBody {
    properties: Option<BTreeMap<String, String>>,
}

async fn open_session(
    known: Known,
    caller: Caller,
    OptionalBody(body): OptionalBody<OpenBody>,
) -> Outcome<Response> {
    let gateway = Arc::clone(&known.gateway);
    let opened = known.app.ask(move |server| {
        let properties = body.properties.unwrap_or_default();
        let session = gateway.add(GatewaySession::open(server, properties, &caller.name)?)?;
        gateway.session(&session.handle)
    });
    Ok(answer(&json!({ "sessionHandle": opened.await?.handle })))
}

async fn properties(known: Known, Path(session): Path<String>) -> Outcome<Response> {
    let session = known.gateway.session(&session)?;
    let properties = known.app.ask(move |_| Ok(session.engine().properties.clone())).await?;
    Ok(answer(&json!({ "properties": properties })))
}

async fn close_session(known: Known, Path(session): Path<String>) -> Outcome<Response> {
    known.gateway.close(&session)?;
    Ok(answer(&json!({ "status": "CLOSED" })))
}

async fn heartbeat(known: Known, Path(session): Path<String>) -> Outcome<Response> {
    known.gateway.session(&session)?;
    Ok(answer(&json!({})))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StatementBody {
    statement: String,
    execution_config: Option<BTreeMap<String, String>>,
    execution_timeout: Option<i64>,
}

impl StatementBody {
    fn check(&self) -> Outcome<()> {
        match self.execution_timeout.is_some_and(|timeout| timeout > 0) {
            false => Ok(()),
            true => {
                let detail = "SqlGatewayService doesn't support timeout mechanism now.";
                Err(Problem::new(422, "not-supported", detail))
            }
        }
    }
}

async fn configure(
    known: Known,
    Path(session): Path<String>,
    JsonBody(body): JsonBody<StatementBody>,
) -> Outcome<Response> {
    body.check()?;
    let session = known.gateway.session(&session)?;
    known.app.ask(move |_| statement::configure(&session, &body.statement)).await?;
    Ok(answer(&json!({})))
}

async fn send_statement(
    known: Known,
    Path(session): Path<String>,
    JsonBody(body): JsonBody<StatementBody>,
) -> Outcome<Response> {
    body.check()?;
    let session = known.gateway.session(&session)?;
    let options = body.execution_config.unwrap_or_default();
    let sent = Sent { text: body.statement, options };
    let operation = statement::begin(&known.gateway, &session, sent)?;
    Ok(answer(&json!({ "operationHandle": operation.handle })))
}

#[derive(Deserialize)]
struct CompleteBody {
    statement: String,
    position: usize,
}

async fn complete(
    known: Known,
    Path(session): Path<String>,
    JsonBody(body): JsonBody<CompleteBody>,
) -> Outcome<Response> {
    let session = known.gateway.session(&session)?;
    let candidates = known
        .app
        .ask(move |_| statement::candidates(&session, &body.statement, body.position))
        .await?;
    Ok(answer(&json!({ "candidates": candidates })))
}

async fn scripts() -> Problem {
    Problem::new(
        422,
        "not-supported",
        "there is no application mode here: send statements one by one, or a file to `thalweg submit`",
    )
}

type OperationPath = Path<(String, String)>;

async fn status(known: Known, Path((session, operation)): OperationPath) -> Outcome<Response> {
    let operation = known.gateway.session(&session)?.operation(&operation)?;
    Ok(answer(&json!({ "status": operation.status().word() })))
}

async fn cancel(known: Known, Path((session, operation)): OperationPath) -> Outcome<Response> {
    let operation = known.gateway.session(&session)?.operation(&operation)?;
    operation.leave(Status::Canceled);
    Ok(answer(&json!({ "status": "CANCELED" })))
}

async fn close_operation(
    known: Known,
    Path((session, operation)): OperationPath,
) -> Outcome<Response> {
    known.gateway.session(&session)?.close_operation(&operation)?;
    Ok(answer(&json!({ "status": "CLOSED" })))
}

async fn result(
    known: Known,
    uri: Uri,
    Path((session, operation, token)): Path<(String, String, String)>,
) -> Outcome<Response> {
    let session = known.gateway.session(&session)?;
    let operation = session.operation(&operation)?;
    let token: u64 = token.parse().map_err(|_| {
        Problem::new(
            400,
            "parameter-wrong",
            "the number of a page stands at the end of the address",
        )
    })?;
    let wanted = Wanted::of(&uri)?;
    let page = operation.fetch(token).await?;
    known.app.ask(move |_| wanted.shown(token, page)).await
}

/// How a page is wanted.
struct Wanted {
    /// The address of pages, up to their number.
    base: String,
    form: ValueForm,
    is_v1: bool,
}

impl Wanted {
    fn of(uri: &Uri) -> Outcome<Wanted> {
        let path = uri.path();
        let base = path.rsplit_once('/').map_or(path, |(base, _)| base).to_owned();
        let is_v1 = path.starts_with("/v1/");
        let query = uri.query().unwrap_or_default();
        let mut named = query.split('&').filter_map(|pair| pair.split_once('='));
        let named = named.find(|(key, _)| *key == "rowFormat").map(|(_, form)| form);
        let form = match named {
            _ if is_v1 => ValueForm::Json,
            None => ValueForm::Json,
            Some(form) if form.eq_ignore_ascii_case("JSON") => ValueForm::Json,
            Some(form) if form.eq_ignore_ascii_case("PLAIN_TEXT") => ValueForm::Text,
            Some(_) => {
                let detail = "rowFormat is JSON or PLAIN_TEXT";
                return Err(Problem::new(400, "parameter-wrong", detail));
            }
        };
        Ok(Wanted { base, form, is_v1 })
    }

    fn form_name(&self) -> &'static str {
        match self.form {
            ValueForm::Json => "JSON",
            ValueForm::Text => "PLAIN_TEXT",
        }
    }

    fn address(&self, token: u64) -> String {
        let end =
            if self.is_v1 { String::new() } else { format!("?rowFormat={}", self.form_name()) };
        format!("{}/{token}{end}", self.base)
    }

    fn shown(&self, token: u64, page: Page) -> Outcome<Response> {
        match page {
            Page::NotReady => {
                let next = self.address(token);
                Ok(answer(&json!({ "resultType": "NOT_READY", "nextResultUri": next })))
            }
            Page::Rows(found, pieces) => {
                self.payload("PAYLOAD", &found, &pieces, Some(self.address(token + 1)))
            }
            Page::End(found) => self.payload("EOS", &found, &[], None),
        }
    }

    fn payload(
        &self,
        kind: &str,
        found: &Answer,
        pieces: &[Piece],
        next: Option<String>,
    ) -> Outcome<Response> {
        let mut rows = Vec::new();
        for piece in pieces {
            rows.extend(piece.shown(self.form, &found.schema, found.zone)?);
        }
        let columns: Vec<Value> = found.schema.columns.iter().map(column).collect();
        let mut body = json!({
            "resultType": kind,
            "isQueryResult": found.is_query,
            "resultKind": if found.is_plain { "SUCCESS" } else { "SUCCESS_WITH_CONTENT" },
        });
        if let Some(id) = &found.job_id {
            body["jobID"] = json!(id);
        }
        if let Some(next) = next {
            body["nextResultUri"] = json!(next);
        }
        // Rows are JSON already.
        let mut body = body.to_string();
        body.pop();
        let results = format!(
            r#","results":{{"columns":{},"rowFormat":"{}","data":[{}]}}}}"#,
            Value::Array(columns),
            self.form_name(),
            rows.join(",")
        );
        Ok(text(body + &results))
    }
}
