//! What is written down about a job: events, runs and log lines; events and log lines also as they
//! come, a line of JSON or a server-sent event each.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::Path;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;

use super::app::{App, List};
use super::extract::{JobRequest, Query};
use super::live::{last_event_id, open_stream};
use super::stream::Writer;
use crate::catalogue::EVENTS;
use crate::job::{Event, RunLine};
#[cfg(test)]
use crate::logs::LogLine;
use crate::problem::Outcome;
use crate::server::Server;

/// New lines are looked for this often.
const EVERY: Duration = Duration::from_millis(200);
const LINES_MAX: usize = 1_000;

/// Which lines, and whether those to come as well.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LinesQuery {
    since: Option<i64>,
    follow: bool,
}

/// The runs of a job, oldest first.
#[cfg_attr(test, utoipa::path(get, path = "/v1/jobs/{job}/runs", tag = "jobs", params(("job" = String, Path)),
    responses((status = 200, body = List<RunLine>))))]
pub async fn runs(app: App, Path(job): Path<String>) -> Outcome<Json<List<RunLine>>> {
    app.ask(move |server| {
        server.job(&job)?;
        let items = server.catalogue.tail(&job, "runs.ndjson", LINES_MAX);
        Ok(Json(List { items, next: None }))
    })
    .await
}

/// What happened to a job, oldest first; `since` is a time in milliseconds since 1970. With
/// `follow` also what is to come, a line of JSON each. The number of a server-sent event is its
/// time.
#[cfg_attr(test, utoipa::path(get, path = "/v1/jobs/{job}/events", tag = "jobs",
    params(("job" = String, Path), ("since" = Option<i64>, Query), ("follow" = Option<bool>, Query)),
    responses((status = 200, body = List<Event>))))]
pub async fn events(request: JobRequest, Query(wanted): Query<LinesQuery>) -> Outcome<Response> {
    let JobRequest { app, job, headers, .. } = request;
    // What came in the very millisecond that a client has read last may be new to it.
    let read = i64::try_from(last_event_id(&headers)).unwrap_or(0);
    let since_ms = wanted.since.unwrap_or(0).max(read);
    let mut log = EventLog { job, bytes: 0, last: None };
    let (log, mut items) = app
        .ask(move |server| {
            server.job(&log.job)?;
            let items = log.fresh(server);
            Ok((log, items))
        })
        .await?;
    items.retain(|event| event.at_ms >= since_ms);
    if !wanted.follow {
        return Ok(Json(List { items, next: None }).into_response());
    }
    let (writer, response) = open_stream(&app, &headers)?;
    tokio::spawn(follow_events(app, log, items, writer));
    Ok(response)
}

async fn follow_events(app: App, mut log: EventLog, mut items: Vec<Event>, mut writer: Writer) {
    loop {
        for event in items {
            let at_ms = u64::try_from(event.at_ms).unwrap_or(0);
            if !writer.send_when_room("event", at_ms, &event).await {
                return;
            }
        }
        if app.server.is_closing() || !pause(&writer).await {
            return;
        }
        let asked = app.ask(move |server| {
            let items = log.fresh(server);
            Ok((log, items))
        });
        let Ok((read, fresh)) = asked.await else { return };
        (log, items) = (read, fresh);
    }
}

/// The events of a job, as far as they were read.
struct EventLog {
    job: String,
    /// How long the file was.
    bytes: u64,
    last: Option<Event>,
}

impl EventLog {
    /// What has come since the last call, at most the last [`LINES_MAX`].
    fn fresh(&mut self, server: &Server) -> Vec<Event> {
        let bytes = server.catalogue.bytes(&self.job, EVENTS);
        if bytes == self.bytes {
            return Vec::new();
        }
        self.bytes = bytes;
        let all: Vec<Event> = server.catalogue.tail(&self.job, EVENTS, LINES_MAX);
        let fresh = behind(all, self.last.as_ref());
        self.last = fresh.last().cloned().or(self.last.take());
        fresh
    }
}

/// The events behind one that was read. If that is gone, those that are not older.
fn behind(mut events: Vec<Event>, last: Option<&Event>) -> Vec<Event> {
    let Some(last) = last else { return events };
    match events.iter().rposition(|event| event == last) {
        Some(place) => events.split_off(place + 1),
        None => {
            events.retain(|event| event.at_ms >= last.at_ms);
            events
        }
    }
}

/// What a job has said: its last lines, or those behind a number; with `follow` also those to come,
/// a line of JSON each.
#[cfg_attr(test, utoipa::path(get, path = "/v1/jobs/{job}/logs", tag = "jobs",
    params(("job" = String, Path), ("since" = Option<i64>, Query), ("follow" = Option<bool>, Query)),
    responses((status = 200, body = List<LogLine>))))]
pub async fn logs(request: JobRequest, Query(wanted): Query<LinesQuery>) -> Outcome<Response> {
    let JobRequest { app, job, headers, .. } = request;
    let since = u64::try_from(wanted.since.unwrap_or(0)).unwrap_or(0);
    let since = since.max(last_event_id(&headers));
    let job = app.server.job(&job)?;
    if !wanted.follow {
        let items = job.logs.since(since);
        return Ok(Json(List { items, next: None }).into_response());
    }
    let (mut writer, response) = open_stream(&app, &headers)?;
    let server = Arc::clone(&app.server);
    tokio::spawn(async move {
        let mut last = since;
        while !server.is_closing() {
            for line in job.logs.since(last) {
                last = line.number;
                if !writer.send("log", last, &line) {
                    return;
                }
            }
            if !pause(&writer).await {
                return;
            }
        }
    });
    Ok(response)
}

/// A while without lines. False if nobody reads any more.
async fn pause(writer: &Writer) -> bool {
    tokio::select! {
        () = tokio::time::sleep(EVERY) => true,
        () = writer.closed() => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(at_ms: i64, text: &str) -> Event {
        let (kind, text) = ("state".to_owned(), text.to_owned());
        Event { at_ms, kind, text, detail: None, code: None, by: None }
    }

    #[test]
    fn each_event_comes_once() {
        let all = || vec![event(1, "a"), event(2, "b"), event(2, "c"), event(2, "b")];
        assert_eq!(behind(all(), None), all());
        assert_eq!(behind(all(), Some(&event(1, "a"))), all()[1..]);
        assert_eq!(behind(all(), Some(&event(2, "c"))), [event(2, "b")]);
        assert_eq!(behind(all(), Some(&event(2, "b"))), []);
        // The file was cut behind what was read last.
        assert_eq!(behind(all(), Some(&event(2, "gone"))), all()[1..]);
    }
}
