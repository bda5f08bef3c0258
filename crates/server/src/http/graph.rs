//! What the page draws: a job as a graph with live numbers, its numbers over time, and what a
//! snapshot holds.

use axum::Json;
use axum::extract::Path;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use thalweg_core::shim::Clock;
use thalweg_monitoring::Watch;
use thalweg_monitoring::history::{NUMBER_NAMES, NUMBERS, Point};
use thalweg_state::{SnapshotDetails, TableSummary};

use super::app::App;
use super::extract::{JobRequest, PartOfJob, Query};
use super::readings::{MomentQuery, not_running, reading_at};
use super::snapshots::{number_of, store_with};
use crate::history::{self, KEPT_MS};
use crate::problem::{Outcome, Problem};
use crate::server::Server;

/// Points of an answer, over all stages and numbers.
const POINTS_MAX: usize = 200_000;

/// A job as a graph.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct GraphView {
    /// The stages with their inputs, counters, rates and splits, memory and snapshots; the crate
    /// `thalweg-monitoring` describes it as `JobReading`.
    #[cfg_attr(test, schema(value_type = Object))]
    pub reading: Value,
    /// What is wrong with the job, each with `kind`, `since_ms` and `text`.
    #[cfg_attr(test, schema(value_type = Vec<Object>))]
    pub conditions: Value,
    /// The oldest moment that `at` may ask for, in milliseconds since 1970.
    pub oldest_ms: Option<i64>,
    /// The newest.
    pub newest_ms: Option<i64>,
}

/// What a job is doing, stage by stage, now or at a moment of the last 24 hours.
#[cfg_attr(test, utoipa::path(get, path = "/v1/jobs/{job}/graph", tag = "jobs",
    params(("job" = String, Path), ("at" = Option<i64>, Query, description = "a moment, in milliseconds since 1970")),
    responses((status = 200, body = GraphView))))]
pub async fn graph(request: JobRequest, asked: Query<MomentQuery>) -> Outcome<Json<GraphView>> {
    let JobRequest { app, job, .. } = request;
    app.ask(move |server| graph_view(server, &job, asked.0.at).map(Json)).await
}

fn graph_view(server: &Server, name: &str, at_ms: Option<i64>) -> Outcome<GraphView> {
    let job = server.job(name)?;
    let of_run = job.watched(|watch| {
        let reading = watch.newest().cloned();
        Some((reading, watch.conditions().to_vec(), watch.history().span_ms()))
    });
    let (newest, conditions, span) = of_run.unwrap_or_default();
    let reading = match at_ms {
        Some(at_ms) => reading_at(server, &job, at_ms)?,
        None => newest.ok_or_else(|| not_running(&job))?,
    };
    let kept_ms = history::oldest_ms(&server.catalogue.folder(name));
    let of_day_ms = kept_ms.map(|kept_ms| kept_ms.max(server.clock.wall_ms() - KEPT_MS));
    Ok(GraphView {
        reading: serde_json::to_value(reading).unwrap_or_default(),
        conditions: serde_json::to_value(conditions).unwrap_or_default(),
        oldest_ms: of_day_ms.into_iter().chain(span.map(|(oldest_ms, _)| oldest_ms)).min(),
        newest_ms: span.map(|(_, newest)| newest),
    })
}

/// What is made of the readings of a job that runs.
fn watched<T>(server: &Server, name: &str, of: impl FnOnce(&Watch) -> Option<T>) -> Outcome<T> {
    let job = server.job(name)?;
    job.watched(of).ok_or_else(|| not_running(&job))
}

/// The numbers of stages over time.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct HistoryView {
    /// The moments, in milliseconds since 1970.
    pub at_ms: Vec<i64>,
    /// The stages that were asked for.
    pub stages: Vec<StageHistory>,
}

/// The numbers of a stage over time.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct StageHistory {
    /// Its identifier.
    pub id: String,
    /// What it is called.
    pub name: String,
    /// Its watermark, in milliseconds since 1970.
    pub watermark_ms: Vec<Option<i64>>,
    /// Its numbers by name: rates and shares of a second, bundles that wait, bytes of state.
    #[cfg_attr(test, schema(value_type = Object))]
    pub numbers: std::collections::BTreeMap<&'static str, Vec<f32>>,
}

/// Of which stages, since when, and how many points.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HistoryQuery {
    stages: String,
    since: i64,
    step: Option<u32>,
}

/// The numbers of a job's stages in the last 15 minutes, all stages in one answer; since an earlier
/// moment of the last 24 hours a point for each half minute before that.
#[cfg_attr(test, utoipa::path(get, path = "/v1/jobs/{job}/metrics", tag = "jobs",
    params(("job" = String, Path), ("stages" = Option<String>, Query, description = "identifiers, with commas; default: all"),
        ("since" = Option<i64>, Query, description = "a moment, in milliseconds since 1970"),
        ("step" = Option<u32>, Query, description = "seconds from one point to the next; default 1")),
    responses((status = 200, body = HistoryView))))]
pub async fn stage_history(
    app: App,
    Path(job): Path<String>,
    Query(asked): Query<HistoryQuery>,
) -> Outcome<Json<HistoryView>> {
    let view = app.ask(move |server| {
        let earlier = earlier(server, &job, &asked)?;
        watched(server, &job, |watch| history_view(watch, &earlier, &asked))
    });
    let view = view.await?;
    let points = view.at_ms.len() * view.stages.len() * NUMBERS;
    if points > POINTS_MAX {
        let detail = format!(
            "{points} numbers are too many for an answer: name 'stages', or a larger 'step'"
        );
        return Err(Problem::new(400, "too-many-points", detail));
    }
    Ok(Json(view))
}

/// The points of the last 24 hours that are not in memory, where they are asked for.
fn earlier(server: &Server, name: &str, asked: &HistoryQuery) -> Outcome<Vec<Point>> {
    if asked.since == 0 {
        return Ok(Vec::new());
    }
    let of_run = |watch: &Watch| Some((watch.newest()?.clone(), watch.history().span_ms()?.0));
    let (reading, oldest_ms) = watched(server, name, of_run)?;
    let folder = server.catalogue.folder(name);
    Ok(history::points_between(&folder, &reading, asked.since, oldest_ms))
}

fn history_view(watch: &Watch, earlier: &[Point], asked: &HistoryQuery) -> Option<HistoryView> {
    let wanted = |id: &str| asked.stages.is_empty() || asked.stages.split(',').any(|of| of == id);
    let stages = watch.newest()?.stages.iter().enumerate();
    let stages: Vec<_> = stages.filter(|(_, stage)| wanted(&stage.id)).collect();
    let step_ms = i64::from(asked.step.unwrap_or(1).max(1)) * 1_000;
    let points: Vec<&Point> = earlier.iter().chain(watch.history().points()).collect();
    let chosen = chosen(points.iter().map(|point| point.at_ms()), asked.since, step_ms);
    let points: Vec<&Point> =
        points.into_iter().zip(chosen).filter_map(|(point, is)| is.then_some(point)).collect();
    let stages = stages.into_iter().map(|(stage, reading)| {
        let all = |number| points.iter().filter_map(|point| point.number(stage, number)).collect();
        StageHistory {
            id: reading.id.clone(),
            name: reading.name.clone(),
            watermark_ms: points.iter().filter_map(|point| point.watermark(stage)).collect(),
            numbers: (0..NUMBERS).map(|number| (NUMBER_NAMES[number], all(number))).collect(),
        }
    });
    let stages = stages.collect();
    Some(HistoryView { at_ms: points.iter().map(|point| point.at_ms()).collect(), stages })
}

/// Which moments an answer has: those since a moment, one for each step.
fn chosen(moments: impl Iterator<Item = i64>, since_ms: i64, step_ms: i64) -> Vec<bool> {
    let mut last_step = None;
    let is_chosen = |at_ms: i64| {
        let step = at_ms.div_euclid(step_ms);
        let is_new = at_ms >= since_ms && last_step != Some(step);
        last_step = if is_new { Some(step) } else { last_step };
        is_new
    };
    moments.map(is_chosen).collect()
}

/// What a snapshot holds.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct SnapshotContents {
    /// Its number.
    pub number: u64,
    /// The version of the program that wrote it.
    pub engine: String,
    /// The snapshot that it follows.
    pub parent: Option<u64>,
    /// Its stages, each behind those that it takes from.
    pub stages: Vec<SnapshotStage>,
}

/// What a snapshot holds of a stage.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct SnapshotStage {
    /// Its identifier.
    pub id: String,
    /// What it is called.
    pub name: String,
    /// Its tables.
    pub tables: Vec<SnapshotTable>,
}

/// A table of a snapshot.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct SnapshotTable {
    /// Its name.
    pub name: String,
    /// Name and type of each column.
    pub columns: Vec<String>,
    /// Rows in its files; a row that has changed may stand there more than once.
    pub rows: u64,
    /// Bytes of its files.
    pub bytes: u64,
}

/// What a snapshot holds, stage by stage.
#[cfg_attr(test, utoipa::path(get, path = "/v1/jobs/{job}/snapshots/{number}", tag = "snapshots",
    params(("job" = String, Path), ("number" = u64, Path)), responses((status = 200, body = SnapshotContents))))]
pub async fn snapshot(app: App, Path((job, number)): PartOfJob) -> Outcome<Json<SnapshotContents>> {
    app.ask(move |server| {
        let number = number_of(&number)?;
        Ok(Json(contents(&store_with(server, &job, number)?.describe(number)?)))
    })
    .await
}

fn contents(details: &SnapshotDetails) -> SnapshotContents {
    let table = |table: &TableSummary| SnapshotTable {
        name: table.name.clone(),
        columns: table.columns.clone(),
        rows: table.rows,
        bytes: table.bytes,
    };
    let stages = details.stages.iter().map(|stage| SnapshotStage {
        id: stage.id.clone(),
        name: stage.name.clone(),
        tables: stage.state.iter().chain(&stage.waiting).map(table).collect(),
    });
    SnapshotContents {
        number: details.header.number,
        engine: details.header.engine.clone(),
        parent: details.header.parent,
        stages: stages.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_one_moment_for_each_step() {
        let moments = [1_000, 2_100, 3_200, 4_000, 10_000, 11_000];
        let kept = |since_ms, step_ms| -> Vec<i64> {
            let chosen = chosen(moments.into_iter(), since_ms, step_ms);
            moments.into_iter().zip(chosen).filter(|(_, is)| *is).map(|(at, _)| at).collect()
        };
        assert_eq!(kept(0, 1_000), moments);
        assert_eq!(kept(0, 5_000), [1_000, 10_000]);
        assert_eq!(kept(3_000, 1_000), [3_200, 4_000, 10_000, 11_000]);
        assert_eq!(kept(99_000, 1_000), [0; 0]);
    }
}
