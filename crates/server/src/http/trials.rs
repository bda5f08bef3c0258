//! `/v1/jobs/JOB/trials`: new statements on a copy of a job's state.

use axum::Json;
use axum::extract::Path;
use axum::response::Response;

use super::app::{App, List};
use super::extract::{JobRequest, JsonBody};
#[cfg(test)]
use crate::operations::Operation;
use crate::problem::{Outcome, Problem};
use crate::trials::{TrialBody, TrialView};

/// New statements run for a while from a copy of a job's state, next to it. Nothing is written,
/// acknowledged or kept. `GET …/trials/ID` with the name of the operation says what came of it.
#[cfg_attr(test, utoipa::path(post, path = "/v1/jobs/{job}/trials", tag = "revisions", request_body = TrialBody,
    params(("job" = String, Path)), responses((status = 200, body = Operation), (status = 202, body = Operation))))]
pub async fn begin(request: JobRequest, JsonBody(body): JsonBody<TrialBody>) -> Outcome<Response> {
    request.begin(move |server, job, by| server.try_out(job, &body, by)).await
}

/// The last trials of a job, newest first.
#[cfg_attr(test, utoipa::path(get, path = "/v1/jobs/{job}/trials", tag = "revisions", params(("job" = String, Path)),
    responses((status = 200, body = List<TrialView>))))]
pub async fn list(app: App, Path(job): Path<String>) -> Outcome<Json<List<TrialView>>> {
    app.ask(move |server| {
        server.job(&job)?;
        Ok(Json(List { items: server.trials.list(&job), next: None }))
    })
    .await
}

/// What came of a trial.
#[cfg_attr(test, utoipa::path(get, path = "/v1/jobs/{job}/trials/{trial}", tag = "revisions",
    params(("job" = String, Path), ("trial" = String, Path)), responses((status = 200, body = TrialView))))]
pub async fn get(app: App, Path((job, trial)): Path<(String, String)>) -> Outcome<Json<TrialView>> {
    app.ask(move |server| {
        server.job(&job)?;
        let found = server.trials.get(&job, &trial);
        let missing = || {
            let detail = "there is no such trial; they are remembered until the server ends";
            Problem::new(404, "no-such-trial", detail)
        };
        found.map(Json).ok_or_else(missing)
    })
    .await
}
