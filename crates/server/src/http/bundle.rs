//! `GET /v1/jobs/JOB/bundle.zip`: what a bug report about a job needs, in one file.

use axum::extract::Path;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::json;
use thalweg_library::session::{ExplainFormat, Session};
use thalweg_monitoring::{Profile, why};

use super::app::App;
use crate::catalogue::EVENTS;
use crate::job::{Event, RunLine};
use crate::problem::Outcome;
use crate::server::Server;
use crate::zip::archive;

/// Lines of events and of runs.
const LINES_MAX: usize = 10_000;
/// The newest revisions.
const REVISIONS_MAX: u64 = 5;

/// A ZIP file with the statements of a job, its plan, its counters and readings, why its results
/// are where they are, a flame graph of its run, its logs, events, runs and snapshots, and the
/// options of the server. No secrets, and no rows but those that messages quote.
#[cfg_attr(test, utoipa::path(get, path = "/v1/jobs/{job}/bundle.zip", tag = "jobs", params(("job" = String, Path)),
    responses((status = 200, content_type = "application/zip"))))]
pub async fn bundle(app: App, Path(job): Path<String>) -> Outcome<Response> {
    let bytes = app.ask(move |server| Ok(archive(&files(server, &job)?))).await?;
    Ok(([(header::CONTENT_TYPE, "application/zip")], bytes).into_response())
}

fn files(server: &Server, name: &str) -> Outcome<Vec<(String, Vec<u8>)>> {
    let job = server.job(name)?;
    let state = job.lock();
    let (summary, stages) = (state.summary(), state.stages());
    let (record, run) = (state.record.clone(), state.run.clone());
    drop(state);
    let mut files = vec![
        file("job.json", &json!({ "job": summary, "stages": stages })),
        file("config.json", &server.config.entries()),
        file(
            "version.json",
            &json!({ "version": env!("CARGO_PKG_VERSION"), "began_ms": server.began_ms }),
        ),
        file("logs.json", &job.logs.since(0)),
        file("events.json", &server.catalogue.tail::<Event>(name, EVENTS, LINES_MAX)),
        file("runs.json", &server.catalogue.tail::<RunLine>(name, "runs.ndjson", LINES_MAX)),
    ];
    let oldest = record.revision.saturating_sub(REVISIONS_MAX - 1).max(1);
    for number in oldest..=record.revision {
        let Some(revision) = server.catalogue.revision(name, number)? else { continue };
        files.push((format!("revisions/{number:04}.sql"), revision.sql.clone().into_bytes()));
        files.push(file(&format!("revisions/{number:04}.json"), &revision));
        if number == record.revision {
            files.push(("plan.txt".to_owned(), plan(server, &record, revision).into_bytes()));
        }
    }
    if let Some(counted) = run.as_ref().and_then(|run| run.metrics()) {
        let profile = Profile::between(name, None, &counted);
        files.push(("profile.folded".to_owned(), profile.folded().into_bytes()));
        files.push(("profile.svg".to_owned(), profile.svg().into_bytes()));
    }
    let watched = run.and_then(|run| {
        run.watched(|watch| {
            let reading = watch.newest().cloned();
            let why = reading.as_ref().and_then(why);
            let conditions = watch.conditions().to_vec();
            (reading, why, conditions)
        })
    });
    if let Some((reading, why, conditions)) = watched {
        files.push(file("reading.json", &reading));
        files.push(file("conditions.json", &conditions));
        let text = why.map_or_else(String::new, |why| why.text());
        files.push(("why.txt".to_owned(), text.into_bytes()));
    }
    if let Ok(Some(store)) = server.store(name) {
        let summaries = store.list().unwrap_or_default();
        files.push(file("snapshots.json", &super::jobs::snapshot_views(&summaries)));
    }
    Ok(files)
}

/// The plan, or why there is none.
fn plan(
    server: &Server,
    record: &crate::catalogue::JobRecord,
    revision: crate::catalogue::Revision,
) -> String {
    let planned = server.session_options(record, &revision).and_then(|options| {
        let revision = server.with_params(revision)?;
        Session::new(options)?.explain(&revision.sql, ExplainFormat::Text)
    });
    planned.map_or_else(|error| error.to_string(), |plans| plans.join("\n"))
}

fn file(name: &str, content: &impl Serialize) -> (String, Vec<u8>) {
    (name.to_owned(), serde_json::to_vec_pretty(content).unwrap_or_default())
}
