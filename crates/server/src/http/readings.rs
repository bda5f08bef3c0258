//! What jobs are doing, and why: for people and for Prometheus.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::{Uri, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use thalweg_monitoring::exposition::{CONTENT_TYPE, Families, job_samples};
use thalweg_monitoring::why;

use super::app::{App, query};
use super::guard::Caller;
use crate::job::Job;
use crate::meters::add_process;
use crate::problem::{Outcome, Problem};

/// Which input holds the results of a job back, since when, why, and what would happen without it.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct WhyView {
    /// The whole as one sentence.
    pub sentence: String,
    /// All of it as people read it.
    pub text: String,
    /// The same, part by part; docs/why.md says what the parts are.
    #[cfg_attr(test, schema(value_type = Object))]
    pub why: Value,
    /// What is wrong with the job, each with `kind`, `since_ms` and `text`.
    #[cfg_attr(test, schema(value_type = Vec<Object>))]
    pub conditions: Value,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct WhyQuery {
    at: Option<i64>,
}

/// Why the results of a job are where they are, now or at a moment of the last 15 minutes.
#[cfg_attr(test, utoipa::path(get, path = "/v1/jobs/{job}/why", tag = "jobs",
    params(("job" = String, Path), ("at" = Option<i64>, Query, description = "a moment, in milliseconds since 1970")),
    responses((status = 200, body = WhyView), (status = "default", body = Problem, content_type = "application/problem+json"))))]
pub async fn job_why(
    State(app): State<App>,
    Path(job): Path<String>,
    uri: Uri,
) -> Outcome<Json<WhyView>> {
    let asked: WhyQuery = query(&uri)?;
    app.ask(move |server| {
        let job = server.job(&job)?;
        let run = job.lock().run.clone();
        let found = run.and_then(|run| {
            run.watched(|watch| {
                let why = match asked.at {
                    Some(at_ms) => why(&watch.history().at(at_ms)?)?,
                    None => why(watch.newest()?)?,
                };
                Some((why, watch.conditions().to_vec()))
            })
        });
        let (why, conditions) = found.flatten().ok_or_else(|| not_running(&job))?;
        let plain = |value: serde_json::Result<Value>| value.unwrap_or_default();
        Ok(Json(WhyView {
            sentence: why.sentence.clone(),
            text: why.text(),
            why: plain(serde_json::to_value(&why)),
            conditions: plain(serde_json::to_value(&conditions)),
        }))
    })
    .await
}

/// There are no readings of a job.
pub(super) fn not_running(job: &Job) -> Problem {
    let shown = job.lock().shown.word();
    let detail = format!("job {} does not run, or has just begun: {shown}", job.name);
    Problem::new(409, "not-running", detail)
}

/// Metrics of all jobs, as Prometheus reads them; docs/metrics.md lists them.
#[cfg_attr(test, utoipa::path(get, path = "/metrics", tag = "server",
    responses((status = 200, content_type = "text/plain"), (status = "default", body = Problem, content_type = "application/problem+json"))))]
pub async fn metrics(
    State(app): State<App>,
    axum::Extension(caller): axum::Extension<Caller>,
) -> Outcome<Response> {
    let limits = Arc::clone(&app.limits);
    let text = app
        .ask(move |server| {
            let mut families = Families::new();
            families.add("thalweg_build_info", &[env!("CARGO_PKG_VERSION"), "server"], 1.0);
            families.add("thalweg_workers", &[], server.config.workers() as f64);
            limits.meters.add_to(&mut families);
            add_process(&mut families, server.began_ms);
            for job in server.all_jobs().iter().filter(|job| caller.sees(&job.name)) {
                let state = job.lock();
                let run = state.run.clone();
                let shown = state.shown;
                drop(state);
                let tap_rows = job.tap_rows.load(Ordering::Relaxed) as f64;
                families.add("thalweg_tap_rows_total", &[&job.name], tap_rows);
                let is_read = run.and_then(|run| {
                    run.watched(|watch| {
                        let mut reading = watch.newest()?.clone();
                        reading.state = shown.word().to_owned();
                        job_samples(&mut families, &reading, watch.conditions());
                        Some(())
                    })
                });
                if is_read.flatten().is_none() {
                    families.add("thalweg_job_state", &[&job.name, shown.word()], 1.0);
                }
            }
            Ok(families.text())
        })
        .await?;
    Ok(([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response())
}
