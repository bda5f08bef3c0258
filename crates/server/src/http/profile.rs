//! `POST /v1/jobs/JOB/profile`: where the time of a job goes, as a flame graph by stage.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use thalweg_monitoring::Profile;
use thalweg_runtime::MetricsSnapshot;

use super::app::App;
use super::extract::{JobRequest, Query};
use super::readings::not_running;
use crate::problem::Outcome;
use crate::run::Run;

/// How long is looked, unless the request says so, and at most.
const SECONDS: u64 = 10;
const SECONDS_MAX: u64 = 60;

/// For how long.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProfileQuery {
    seconds: Option<u64>,
}

/// Where the time of a job went.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct ProfileView {
    /// How long was looked, in microseconds.
    pub elapsed_us: u64,
    /// Each stack with its microseconds.
    pub stacks: Vec<ProfileStack>,
}

/// Frames, and how long the innermost took.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct ProfileStack {
    /// From the job in: `working` or `waiting`, the stage, the partition or the reason.
    pub frames: Vec<String>,
    /// In microseconds.
    pub us: u64,
}

/// Where the time of a running job goes in the seconds to come: the work of each stage by
/// partition, and why stages waited. From counters, so the job is not slowed. A flame graph with
/// `Accept: image/svg+xml`, its folded text with `text/plain`, else JSON.
#[cfg_attr(test, utoipa::path(post, path = "/v1/jobs/{job}/profile", tag = "jobs",
    params(("job" = String, Path),
        ("seconds" = Option<u64>, Query, description = "for how long, at most 60; default 10")),
    responses((status = 200, content((ProfileView = "application/json"), (String = "image/svg+xml"), (String = "text/plain"))))))]
pub async fn profile(request: JobRequest, Query(wanted): Query<ProfileQuery>) -> Outcome<Response> {
    let JobRequest { app, job, headers, .. } = request;
    let seconds = wanted.seconds.unwrap_or(SECONDS).clamp(1, SECONDS_MAX);
    let (run, before) = counted(&app, &job).await?;
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let (same, after) = counted(&app, &job).await?;
    // A job that was started again meanwhile has begun to count from zero.
    let is_same = Arc::ptr_eq(&run, &same) && before.job.started_ns == after.job.started_ns;
    let profile = Profile::between(&job, Some(&before).filter(|_| is_same), &after);
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    let accepts = |kind| accept.is_some_and(|accept| accept.contains(kind));
    Ok(match () {
        () if accepts("image/svg") => {
            ([(header::CONTENT_TYPE, "image/svg+xml")], profile.svg()).into_response()
        }
        () if accepts("text/plain") => profile.folded().into_response(),
        () => {
            let stack = |(frames, us)| ProfileStack { frames, us };
            let stacks = profile.stacks.into_iter().map(stack).collect();
            Json(ProfileView { elapsed_us: profile.elapsed_us, stacks }).into_response()
        }
    })
}

/// The run of a job, with its counters.
async fn counted(app: &App, job: &str) -> Outcome<(Arc<Run>, MetricsSnapshot)> {
    let job = job.to_owned();
    app.ask(move |server| {
        let job = server.job(&job)?;
        let (run, control) = job.control().ok_or_else(|| not_running(&job))?;
        Ok((run, control.metrics()))
    })
    .await
}
