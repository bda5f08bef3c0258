//! `/v1/jobs`: jobs, and what is asked of them.

use axum::Json;
use axum::body::Bytes;
use axum::extract::Path;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use thalweg_state::SnapshotSummary;

use super::app::{App, List, Page, parse, plain_sql};
use super::extract::{JobRequest, JsonBody, OptionalBody, PartOfJob, Query};
use super::guard::Caller;
use crate::catalogue::Revision;
use crate::job::{JobSummary, StageView};
use crate::now::ServerNow;
#[cfg(test)]
use crate::operations::Operation;
use crate::problem::{Outcome, Problem};
use crate::requests::{ApproveBody, JobBody, PutAnswer, PutQuery, StartBody, StopBody};

/// Which jobs a list has.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListQuery {
    limit: Option<usize>,
    after: Option<String>,
    state: Option<String>,
    condition: Option<String>,
    tag: Option<String>,
    q: Option<String>,
}

/// A job, whole.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct JobView {
    /// What a list says of it.
    #[serde(flatten)]
    pub summary: JobSummary,
    /// Its statements.
    pub sql: String,
    /// What goes with them.
    pub about: Option<Revision>,
    /// Its stages, with the counters of now or of its last run.
    pub stages: Vec<StageView>,
}

/// Jobs, and the server that has them.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct JobList {
    /// A page of them.
    #[serde(flatten)]
    pub list: List<JobSummary>,
    /// The server, as far as jobs of the page and of its filter take part.
    pub server: ServerNow,
}

/// All jobs, by name, with their counters, what they are doing and what is wrong.
#[cfg_attr(test, utoipa::path(get, path = "/v1/jobs", tag = "jobs",
    params(("limit" = Option<usize>, Query), ("after" = Option<String>, Query), ("state" = Option<String>, Query),
        ("condition" = Option<String>, Query, description = "something that is wrong, such as `held`"),
        ("tag" = Option<String>, Query), ("q" = Option<String>, Query, description = "part of the name")),
    responses((status = 200, body = JobList))))]
pub async fn list(app: App, caller: Caller, wanted: Query<ListQuery>) -> Outcome<Json<JobList>> {
    let Query(wanted) = wanted;
    app.ask(move |server| {
        let jobs = server.all_jobs();
        let own = jobs.iter().filter(|job| caller.sees(&job.name));
        let has = |job: &JobSummary, kind: &str| job.conditions.iter().any(|of| of.kind == kind);
        let summaries = own.map(|job| job.lock().summary()).filter(|job| {
            wanted.state.as_ref().is_none_or(|state| state == job.state.word())
                && wanted.condition.as_ref().is_none_or(|kind| has(job, kind))
                && wanted.tag.as_ref().is_none_or(|tag| job.tags.contains(tag))
                && wanted.q.as_ref().is_none_or(|part| job.name.contains(part.as_str()))
        });
        let page = Page { limit: wanted.limit, after: wanted.after.clone() };
        let list = page.of(summaries, |job| job.name.clone());
        let server = server.now(list.items.iter());
        Ok(Json(JobList { list, server }))
    })
    .await
}

/// A job.
#[cfg_attr(test, utoipa::path(get, path = "/v1/jobs/{job}", tag = "jobs", params(("job" = String, Path)),
    responses((status = 200, body = JobView))))]
pub async fn get_job(app: App, Path(job): Path<String>) -> Outcome<Response> {
    let view = app
        .ask(move |server| {
            let job = server.job(&job)?;
            let state = job.lock();
            let about = server.catalogue.revision(&job.name, state.record.revision)?;
            let sql = about.as_ref().map(|about| about.sql.clone()).unwrap_or_default();
            Ok(JobView { summary: state.summary(), sql, about, stages: state.stages() })
        })
        .await?;
    let etag = format!("\"r{}\"", view.summary.revision);
    Ok(([(header::ETAG, etag)], Json(view)).into_response())
}

/// Makes a job, or changes it. New statements of a job that runs take their place with its state,
/// and go back if they do not prove themselves.
#[cfg_attr(test, utoipa::path(put, path = "/v1/jobs/{job}", tag = "jobs", request_body = JobBody,
    params(("job" = String, Path), ("dry_run" = Option<bool>, Query),
        ("approve" = Option<String>, Query, description = "`drop-state`")),
    responses((status = 200, body = PutAnswer), (status = 201, body = PutAnswer), (status = 202, body = PutAnswer))))]
pub async fn put_job(
    app: App,
    caller: Caller,
    Path(job): Path<String>,
    headers: HeaderMap,
    Query(mut wanted): Query<PutQuery>,
    bytes: Bytes,
) -> Outcome<Response> {
    let if_match = headers.get(header::IF_MATCH).and_then(|value| value.to_str().ok());
    wanted.if_match = if_match.map(str::to_owned);
    let body = match plain_sql(&headers, &bytes)? {
        Some(sql) => JobBody { sql, ..JobBody::default() },
        None => parse(&bytes)?,
    };
    let asked = app.ask(move |server| server.put_job(&job, body, &wanted, &caller.name));
    Ok(put_answer(asked.await?))
}

fn put_answer(answer: PutAnswer) -> Response {
    let status = match (answer.is_new, &answer.operation) {
        (true, _) => StatusCode::CREATED,
        (_, Some(_)) => StatusCode::ACCEPTED,
        _ => StatusCode::OK,
    };
    let place = answer.operation.as_ref().map(|own| format!("/v1/operations/{}", own.id));
    (status, place.map(|place| [(header::LOCATION, place)]), Json(answer)).into_response()
}

/// What becomes of its state.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeleteQuery {
    state: Option<String>,
}

/// Puts a job that is at rest away, for good after a while.
#[cfg_attr(test, utoipa::path(delete, path = "/v1/jobs/{job}", tag = "jobs",
    params(("job" = String, Path), ("state" = Option<String>, Query, description = "`keep` or `delete`")),
    responses((status = 204))))]
pub async fn delete_job(request: JobRequest, wanted: Query<DeleteQuery>) -> Outcome<StatusCode> {
    let JobRequest { app, job, .. } = request;
    let Query(wanted) = wanted;
    let keeps = match wanted.state.as_deref() {
        None | Some("keep") => true,
        Some("delete") => false,
        Some(_) => return Err(Problem::new(400, "parameter-wrong", "state is keep or delete")),
    };
    app.ask(move |server| server.delete_job(&job, keeps)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// A job is to run.
#[cfg_attr(test, utoipa::path(post, path = "/v1/jobs/{job}/start", tag = "jobs", params(("job" = String, Path)), request_body = Option<StartBody>,
    responses((status = 200, body = Operation), (status = 202, body = Operation))))]
pub async fn start(request: JobRequest, body: OptionalBody<StartBody>) -> Outcome<Response> {
    request.begin(move |server, job, by| server.start(job, &body.0, by)).await
}

/// A job is to end.
#[cfg_attr(test, utoipa::path(post, path = "/v1/jobs/{job}/stop", tag = "jobs", params(("job" = String, Path)), request_body = Option<StopBody>,
    responses((status = 200, body = Operation), (status = 202, body = Operation))))]
pub async fn stop(request: JobRequest, body: OptionalBody<StopBody>) -> Outcome<Response> {
    request.begin(move |server, job, by| server.stop(job, &body.0, by)).await
}

/// The sources of a job are not to be asked.
#[cfg_attr(test, utoipa::path(post, path = "/v1/jobs/{job}/pause", tag = "jobs", params(("job" = String, Path)),
    responses((status = 200, body = Operation), (status = 202, body = Operation))))]
pub async fn pause(request: JobRequest) -> Outcome<Response> {
    request.begin(|server, job, by| server.pause(job, true, by)).await
}

/// The sources of a job are to be asked again.
#[cfg_attr(test, utoipa::path(post, path = "/v1/jobs/{job}/resume", tag = "jobs", params(("job" = String, Path)),
    responses((status = 200, body = Operation), (status = 202, body = Operation))))]
pub async fn resume(request: JobRequest) -> Outcome<Response> {
    request.begin(|server, job, by| server.pause(job, false, by)).await
}

/// A job is to end with a snapshot and to continue from it.
#[cfg_attr(test, utoipa::path(post, path = "/v1/jobs/{job}/restart", tag = "jobs", params(("job" = String, Path)),
    responses((status = 200, body = Operation), (status = 202, body = Operation))))]
pub async fn restart(request: JobRequest) -> Outcome<Response> {
    request.begin(|server, job, by| server.restart(job, by)).await
}

/// The state of these stages may be dropped.
#[cfg_attr(test, utoipa::path(post, path = "/v1/jobs/{job}/approve", tag = "jobs", params(("job" = String, Path)), request_body = ApproveBody,
    responses((status = 200, body = Operation), (status = 202, body = Operation))))]
pub async fn approve(request: JobRequest, body: JsonBody<ApproveBody>) -> Outcome<Response> {
    request.begin(move |server, job, by| server.approve(job, &body.0, by)).await
}

/// All statements that a job had, newest first.
#[cfg_attr(test, utoipa::path(get, path = "/v1/jobs/{job}/revisions", tag = "revisions", params(("job" = String, Path)),
    responses((status = 200, body = List<Revision>))))]
pub async fn revisions(app: App, Path(job): Path<String>) -> Outcome<Json<List<Revision>>> {
    app.ask(move |server| {
        let newest = server.job(&job)?.lock().record.revision;
        let all = (1..=newest).rev().map(|number| server.catalogue.revision(&job, number));
        let items: thalweg_core::Result<Vec<_>> = all.collect();
        Ok(Json(List { items: items?.into_iter().flatten().collect(), next: None }))
    })
    .await
}

/// Statements with what goes with them.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct RevisionView {
    /// Who wrote them, and when.
    #[serde(flatten)]
    pub about: Revision,
    /// The statements.
    pub sql: String,
}

/// Statements that a job has or had.
#[cfg_attr(test, utoipa::path(get, path = "/v1/jobs/{job}/revisions/{revision}", tag = "revisions",
    params(("job" = String, Path), ("revision" = u64, Path)), responses((status = 200, body = RevisionView))))]
pub async fn revision(app: App, Path((job, number)): PartOfJob) -> Outcome<Json<RevisionView>> {
    app.ask(move |server| {
        let about = read_revision(server, &job, revision_number(&number)?)?;
        Ok(Json(RevisionView { sql: about.sql.clone(), about }))
    })
    .await
}

fn revision_number(text: &str) -> Outcome<u64> {
    text.parse().map_err(|_| Problem::new(400, "parameter-wrong", "revisions have numbers from 1"))
}

fn read_revision(server: &crate::server::Server, job: &str, number: u64) -> Outcome<Revision> {
    server.job(job)?;
    server.catalogue.revision(job, number)?.ok_or_else(|| {
        Problem::new(404, "no-such-revision", format!("the job has no revision {number}"))
    })
}

/// What is different between two texts of statements.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct RevisionDiff {
    /// The lines, each with ` `, `-` or `+` in front of it.
    pub lines: Vec<String>,
}

/// What has changed between two revisions, `2..3`.
#[cfg_attr(test, utoipa::path(get, path = "/v1/jobs/{job}/revisions/{revision}/diff", tag = "revisions",
    params(("job" = String, Path), ("revision" = String, Path, description = "such as `2..3`")),
    responses((status = 200, body = RevisionDiff))))]
pub async fn revision_diff(app: App, Path((job, range)): PartOfJob) -> Outcome<Json<RevisionDiff>> {
    app.ask(move |server| {
        let wrong = || Problem::new(400, "parameter-wrong", "two revisions are written 2..3");
        let (before, after) = range.split_once("..").ok_or_else(wrong)?;
        let before = read_revision(server, &job, revision_number(before)?)?;
        let after = read_revision(server, &job, revision_number(after)?)?;
        Ok(Json(RevisionDiff { lines: diff_lines(&before.sql, &after.sql) }))
    })
    .await
}

/// The lines of both texts; equal ones at the beginning and at the end once.
fn diff_lines(before: &str, after: &str) -> Vec<String> {
    let (old, new): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
    let same = old.iter().zip(&new).take_while(|(one, other)| one == other).count();
    let rest = old.len().min(new.len()) - same;
    let pairs = old.iter().rev().zip(new.iter().rev()).take(rest);
    let same_end = pairs.take_while(|(one, other)| one == other).count();
    let marked = |mark: &'static str, lines: &[&str]| -> Vec<String> {
        lines.iter().map(|line| format!("{mark}{line}")).collect()
    };
    let mut lines = marked(" ", &old[..same]);
    lines.extend(marked("-", &old[same..old.len() - same_end]));
    lines.extend(marked("+", &new[same..new.len() - same_end]));
    lines.extend(marked(" ", &old[old.len() - same_end..]));
    lines
}

/// Earlier statements count again, as a new revision.
#[cfg_attr(test, utoipa::path(post, path = "/v1/jobs/{job}/revisions/{revision}/activate", tag = "revisions",
    params(("job" = String, Path), ("revision" = u64, Path), ("dry_run" = Option<bool>, Query), ("approve" = Option<String>, Query)),
    responses((status = 200, body = PutAnswer), (status = 202, body = PutAnswer))))]
pub async fn activate(
    app: App,
    caller: Caller,
    Path((job, number)): Path<(String, String)>,
    Query(wanted): Query<PutQuery>,
) -> Outcome<Response> {
    let number = revision_number(&number)?;
    let asked = app.ask(move |server| server.activate(&job, number, &wanted, &caller.name));
    Ok(put_answer(asked.await?))
}

/// A snapshot of a job.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct SnapshotView {
    /// Its number.
    pub number: u64,
    /// `finished`, `unreadable` or `unfinished`.
    pub state: String,
    /// When it was taken, in milliseconds since 1970.
    pub taken_ms: Option<i64>,
    /// Why: `periodic`, `manual` or `final`.
    pub kind: Option<String>,
    /// Bytes of all its files.
    pub bytes: Option<u64>,
    /// Bytes of those that no earlier one shares.
    pub own_bytes: Option<u64>,
    /// All input had ended.
    pub is_complete: bool,
}

/// The snapshots of a job, newest first.
#[cfg_attr(test, utoipa::path(get, path = "/v1/jobs/{job}/snapshots", tag = "snapshots", params(("job" = String, Path)),
    responses((status = 200, body = List<SnapshotView>))))]
pub async fn snapshots(app: App, Path(job): Path<String>) -> Outcome<Json<List<SnapshotView>>> {
    app.ask(move |server| {
        let Some(store) = server.store(&job)? else {
            return Ok(Json(List { items: Vec::new(), next: None }));
        };
        let items = snapshot_views(&store.list()?);
        Ok(Json(List { items, next: None }))
    })
    .await
}

/// Snapshots as clients see them, newest first.
pub(crate) fn snapshot_views(summaries: &[SnapshotSummary]) -> Vec<SnapshotView> {
    summaries.iter().rev().map(snapshot_view).collect()
}

fn snapshot_view(summary: &SnapshotSummary) -> SnapshotView {
    let (number, state) = (summary.number(), "unfinished".to_owned());
    let mut view = SnapshotView { number, state, ..SnapshotView::default() };
    match summary {
        SnapshotSummary::Finished(header) => {
            view.state = "finished".to_owned();
            view.taken_ms = Some(header.taken_at_ms);
            view.kind = Some(format!("{:?}", header.kind).to_lowercase());
            (view.bytes, view.own_bytes) = (Some(header.bytes), Some(header.own_bytes));
            view.is_complete = header.is_complete;
        }
        SnapshotSummary::Unreadable(_) => view.state = "unreadable".to_owned(),
        SnapshotSummary::Unfinished { .. } => {}
    }
    view
}

/// A job takes a snapshot now. It stays until it is deleted.
#[cfg_attr(test, utoipa::path(post, path = "/v1/jobs/{job}/snapshots", tag = "snapshots", params(("job" = String, Path)),
    responses((status = 200, body = Operation), (status = 202, body = Operation))))]
pub async fn take_snapshot(request: JobRequest) -> Outcome<Response> {
    request.begin(|server, job, _| server.take_snapshot(job)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_diff_has_what_is_different_only() {
        let lines = diff_lines("a\nb\nc\nd", "a\nx\ny\nd");
        assert_eq!(lines, [" a", "-b", "-c", "+x", "+y", " d"]);
        assert_eq!(diff_lines("a\na", "a"), [" a", "-a"]);
        assert_eq!(diff_lines("", "a"), ["+a"]);
        assert_eq!(diff_lines("a", "a"), [" a"]);
    }
}
