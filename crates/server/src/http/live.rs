//! `GET /v1/live`: one stream for all that a page shows.

use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;

use super::app::App;
use super::extract::Query;
use super::guard::Caller;
use super::stream::{Writer, stream};
use crate::problem::{Outcome, Problem};
use crate::server::Server;

/// Counters are sent so often; a change of state at once.
const EVERY: Duration = Duration::from_secs(1);

/// What is to be sent.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LiveQuery {
    topics: Option<String>,
}

/// A stream of messages: `jobs` (the list), `job:NAME` (one with its stages). As server-sent
/// events, or a line of JSON each, as `Accept` says. Each message is whole, so a client that comes
/// back misses nothing; with `Last-Event-ID` the numbers continue. A slow reader loses messages and
/// is informed `{"dropped": n}`.
#[cfg_attr(test, utoipa::path(get, path = "/v1/live", tag = "live",
    params(("topics" = Option<String>, Query, description = "such as `jobs,job:orders`; default `jobs`")),
    responses((status = 200, content_type = "text/event-stream"))))]
pub async fn live(
    app: App,
    caller: Caller,
    headers: HeaderMap,
    Query(asked): Query<LiveQuery>,
) -> Outcome<Response> {
    let topics = asked.topics.unwrap_or_else(|| "jobs".to_owned());
    let topics: Vec<String> = topics.split(',').map(|topic| topic.trim().to_owned()).collect();
    for topic in &topics {
        let job = topic.strip_prefix("job:");
        match job {
            Some(job) if caller.sees(job) => drop(app.server.job(job)?),
            None if topic == "jobs" => {}
            _ => {
                let detail = format!("there is no topic '{topic}': there are jobs and job:NAME");
                return Err(Problem::new(400, "parameter-wrong", detail));
            }
        }
    }
    let (writer, response) = open_stream(&app, &headers)?;
    tokio::spawn(write(app, (caller, topics), last_event_id(&headers), writer));
    Ok(response)
}

/// What a client has read last that comes back: numbers continue behind it.
pub(crate) fn last_event_id(headers: &HeaderMap) -> u64 {
    let id = headers.get("last-event-id").and_then(|id| id.to_str().ok());
    id.and_then(|id| id.trim().parse().ok()).unwrap_or(0)
}

/// A stream of the kind that the client wants.
pub(crate) fn open_stream(app: &App, headers: &HeaderMap) -> Outcome<(Writer, Response)> {
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or("");
    let is_sse = accept.contains("text/event-stream");
    let kind = if is_sse { "text/event-stream" } else { "application/x-ndjson" };
    let permit = std::sync::Arc::clone(&app.limits.streams).try_acquire_owned();
    let permit =
        permit.map_err(|_| Problem::new(429, "too-many-streams", "too many streams are open"))?;
    let dropped = std::sync::Arc::clone(&app.limits.meters.dropped);
    let (writer, body) = stream(permit, dropped, is_sse);
    let mut response = (StatusCode::OK, body).into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    Ok((writer, response))
}

async fn write(
    app: App,
    (caller, topics): (Caller, Vec<String>),
    mut number: u64,
    mut writer: Writer,
) {
    let mut changed = app.server.changed.subscribe();
    loop {
        let (caller, asked) = (caller.clone(), topics.clone());
        // A job may be held for as long as a file is written.
        let shown = app.ask(move |server| {
            Ok(asked.iter().map(|topic| message(server, &caller, topic)).collect::<Vec<_>>())
        });
        for (topic, data) in topics.iter().zip(shown.await.unwrap_or_default()) {
            number += 1;
            if !writer.send(topic, number, &data) {
                return;
            }
        }
        if app.server.is_closing() {
            return;
        }
        tokio::select! {
            _ = changed.changed() => {}
            () = tokio::time::sleep(EVERY) => {}
            () = writer.closed() => return,
        }
    }
}

/// What is said about a topic.
fn message(server: &Server, caller: &Caller, topic: &str) -> serde_json::Value {
    let Some(job) = topic.strip_prefix("job:") else {
        let jobs = server.all_jobs();
        let own = jobs.iter().filter(|job| caller.sees(&job.name));
        let summaries: Vec<_> = own.map(|job| job.lock().summary()).collect();
        let now = server.now(summaries.iter());
        return serde_json::json!({ "jobs": summaries, "server": now });
    };
    match server.job(job) {
        Ok(job) => {
            let state = job.lock();
            serde_json::json!({ "job": state.summary(), "stages": state.stages() })
        }
        Err(problem) => serde_json::json!({ "problem": problem }),
    }
}
