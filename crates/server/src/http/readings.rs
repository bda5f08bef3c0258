//! What jobs are doing, and why: for people and for Prometheus.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::Json;
use axum::extract::Path;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use thalweg_core::quoting::quoted_list;
use thalweg_monitoring::exposition::{
    CONTENT_TYPE, Families, PROTOBUF_CONTENT_TYPE, job_samples, prefers_protobuf,
};
use thalweg_monitoring::why::{watermarks, why_sink};
use thalweg_monitoring::{JobReading, Watch, why};

use super::app::App;
use super::extract::{JobRequest, Query};
use super::guard::Caller;
use crate::history;
use crate::job::Job;
use crate::meters::{Meters, add_process};
use crate::problem::{Outcome, Problem};
use crate::server::Server;

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
    /// What is wrong with the job now, each with `kind`, `since_ms` and `text`; nothing of a moment
    /// that has passed.
    #[cfg_attr(test, schema(value_type = Vec<Object>))]
    pub conditions: Value,
}

/// Of which sink, and when.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WhyQuery {
    stage: Option<String>,
    at: Option<i64>,
}

/// Why the results of a job are where they are, now or at a moment of the last 24 hours.
#[cfg_attr(test, utoipa::path(get, path = "/v1/jobs/{job}/why", tag = "jobs",
    params(("job" = String, Path),
        ("stage" = Option<String>, Query, description = "the name or identifier of a stage; default: the sink that is furthest behind"),
        ("at" = Option<i64>, Query, description = "a moment, in milliseconds since 1970")),
    responses((status = 200, body = WhyView))))]
pub async fn job_why(request: JobRequest, Query(asked): Query<WhyQuery>) -> Outcome<Json<WhyView>> {
    let JobRequest { app, job, .. } = request;
    app.ask(move |server| {
        let job = server.job(&job)?;
        let now = |watch: &Watch| Some((watch.newest().cloned(), watch.conditions().to_vec()));
        let now = job.watched(now);
        let (reading, conditions) = match asked.at {
            Some(at_ms) => (Some(reading_at(server, &job, at_ms)?), Vec::new()),
            None => now.unwrap_or_default(),
        };
        let reading = reading.ok_or_else(|| not_running(&job))?;
        let why = match &asked.stage {
            Some(name) => {
                let stages = reading.stages.iter().map(|stage| (&stage.name, &stage.id));
                Some(why_sink(&reading, stage_of(stages, name)?))
            }
            None => why(&reading),
        };
        let why = why.ok_or_else(|| not_running(&job))?;
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

/// The watermarks of a job.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct WatermarksView {
    /// Of which moment they are, in milliseconds since 1970.
    pub at_ms: i64,
    /// Each stage, behind those that it takes from: its watermark, when that moved last, what holds
    /// it back (`held_by`), its `inputs`, and of a source its `splits`; docs/why.md says more.
    #[cfg_attr(test, schema(value_type = Vec<Object>))]
    pub stages: Value,
}

/// Of which moment, in milliseconds since 1970; default: of now.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MomentQuery {
    pub(super) at: Option<i64>,
}

/// The watermarks of a job, now or at a moment of the last 24 hours: of each stage, each of its
/// inputs and each split of its sources, with what holds it back and how far others are ahead.
#[cfg_attr(test, utoipa::path(get, path = "/v1/jobs/{job}/watermarks", tag = "jobs",
    params(("job" = String, Path), ("at" = Option<i64>, Query, description = "a moment, in milliseconds since 1970")),
    responses((status = 200, body = WatermarksView))))]
pub async fn job_watermarks(
    app: App,
    Path(job): Path<String>,
    Query(asked): Query<MomentQuery>,
) -> Outcome<Json<WatermarksView>> {
    app.ask(move |server| {
        let job = server.job(&job)?;
        let now = job.watched(|watch| watch.newest().cloned());
        let reading = match asked.at {
            Some(at_ms) => reading_at(server, &job, at_ms)?,
            None => now.ok_or_else(|| not_running(&job))?,
        };
        let found = watermarks(&reading);
        let stages = serde_json::to_value(&found.stages).unwrap_or_default();
        Ok(Json(WatermarksView { at_ms: found.at_ms, stages }))
    })
    .await
}

/// The place of the stage of this name or identifier, among the names and identifiers of all.
pub(super) fn stage_of<'a>(
    mut all: impl Iterator<Item = (&'a String, &'a String)> + Clone,
    wanted: &str,
) -> Outcome<usize> {
    let names = all.clone().map(|(name, _)| name);
    all.position(|(name, id)| name == wanted || id == wanted).ok_or_else(|| {
        let names = quoted_list(names);
        let detail = format!("the job has no stage '{wanted}'; it has {names}");
        Problem::new(404, "no-such-stage", detail)
    })
}

/// A job as it was at a moment: of the last 15 minutes of its run to the second, of the last 24
/// hours to half a minute.
pub(super) fn reading_at(server: &Server, job: &Job, at_ms: i64) -> Outcome<JobReading> {
    let recent = job.watched(|watch| watch.history().at(at_ms));
    let folder = server.catalogue.folder(&job.name);
    recent.or_else(|| history::reading_at(&folder, at_ms)).ok_or_else(|| {
        let detail = format!(
            "nothing is known of job {} at that moment: it did not run then, or that is more than 24 hours ago",
            job.name
        );
        Problem::new(409, "no-history", detail)
    })
}

/// There are no readings of a job.
pub(super) fn not_running(job: &Job) -> Problem {
    let shown = job.lock().shown.word();
    let detail = format!("job {} does not run, or has just begun: {shown}", job.name);
    Problem::new(409, "not-running", detail)
}

/// Metrics of all jobs, as Prometheus reads them; docs/metrics.md lists them. Whoever prefers
/// Protocol Buffers gets native histograms as well.
#[cfg_attr(test, utoipa::path(get, path = "/metrics", tag = "server", responses((status = 200, content_type = "text/plain"))))]
pub async fn metrics(app: App, caller: Caller, headers: HeaderMap) -> Outcome<Response> {
    let limits = Arc::clone(&app.limits);
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    let is_protobuf = accept.is_some_and(prefers_protobuf);
    let body = app
        .ask(move |server| {
            let families = families(server, &limits.meters, |job| caller.sees(job));
            Ok(if is_protobuf { families.protobuf() } else { families.text().into_bytes() })
        })
        .await?;
    let kind = if is_protobuf { PROTOBUF_CONTENT_TYPE } else { CONTENT_TYPE };
    Ok(([(header::CONTENT_TYPE, kind), (header::VARY, "accept")], body).into_response())
}

/// The metrics of the server, and of those jobs that a caller may see.
pub(crate) fn families(server: &Server, meters: &Meters, sees: impl Fn(&str) -> bool) -> Families {
    let mut families = Families::new();
    families.add("thalweg_build_info", &[env!("CARGO_PKG_VERSION"), "server"], 1.0);
    families.add("thalweg_workers", &[], server.config.workers() as f64);
    families.add("thalweg_worker_busy_seconds_total", &[], server.busy_seconds());
    meters.add_to(&mut families);
    add_process(&mut families, server.began_ms);
    for job in server.all_jobs().iter().filter(|job| sees(&job.name)) {
        let state = job.lock();
        let (run, shown) = (state.run.clone(), state.shown);
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
    families
}
