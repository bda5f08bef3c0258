//! `GET /v1/jobs/JOB/late`: the last rows of a running job that came too late, also where late rows
//! are only counted.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use axum::Json;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use thalweg_core::{Column, DataType, Error, Grid, TableSchema};
use thalweg_library::session::Session;
use thalweg_runtime::metrics::{JobLayout, MetricsSnapshot, StageLayout};
use thalweg_runtime::{JobControl, LateAt};

use super::arrow::{arrow_answer, wants_arrow};
use super::extract::{JobRequest, Query};
use super::readings::stage_of;
use crate::problem::{Outcome, Problem};
use crate::server::Server;

/// Of which stage, how many, and behind which.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LateQuery {
    stage: Option<String>,
    limit: Option<usize>,
    after: Option<u64>,
}

/// A row that came too late.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct LateRow {
    /// Its number among the late rows of this run that are shown.
    pub number: u64,
    /// The stage that it was late for.
    pub stage: String,
    /// When it came, in milliseconds since 1970.
    pub at_ms: i64,
    /// The event time by which it was judged.
    pub time_ms: i64,
    /// The watermark of its split before it.
    pub watermark_ms: i64,
    /// How far its time is behind that watermark, in milliseconds.
    pub late_ms: i64,
    /// Where windows end at fixed times: the end of the first window that had closed without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_end_ms: Option<i64>,
    /// Where windows end at fixed times: how many ends lie between its time and that watermark.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub windows_ended: Option<u64>,
    /// Its columns, as far as the stage reads them.
    pub row: Value,
}

/// What a stage has accepted, and what was late for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct LateStage {
    /// The stage.
    pub stage: String,
    /// Its identifier.
    pub id: String,
    /// Rows that came in: `accepted + late`.
    pub ingested: u64,
    /// Rows that count.
    pub accepted: u64,
    /// Rows that were late for all their windows.
    pub late: u64,
    /// Rows that were late for some of their windows; they are among the accepted ones.
    pub partly_late: u64,
}

/// How late the rows that are kept were, in milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct Lateness {
    /// Half of them were at most so late.
    pub p50_ms: i64,
    /// Nine of ten were.
    pub p90_ms: i64,
    /// The latest one.
    pub max_ms: i64,
}

/// The last rows of a job that came too late.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct LateRows {
    /// The stages that judge lateness.
    pub stages: Vec<LateStage>,
    /// How late those were that are kept; none where there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lateness: Option<Lateness>,
    /// How many rows are kept: the last 10,000 of the run at most.
    pub kept: usize,
    /// The last of them, oldest first.
    pub items: Vec<LateRow>,
    /// What `after` is for those that come next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}

/// The last rows of a running job that came too late, oldest first, with what the stages that judge
/// lateness have accepted. They are kept for the life of a run, also where late rows are only
/// counted (`late.data`). With `after` those behind a number, else the last ones. With `Accept:
/// application/vnd.apache.arrow.stream` the rows of one stage as a stream of Arrow: its columns,
/// and behind them `$number`, `$at_ms`, `$time_ms`, `$watermark_ms` and `$late_ms`.
#[cfg_attr(test, utoipa::path(get, path = "/v1/jobs/{job}/late", tag = "rows",
    params(("job" = String, Path), ("stage" = Option<String>, Query, description = "the name or identifier of a stage"),
        ("limit" = Option<usize>, Query, description = "100 unless it says otherwise, at most 500"),
        ("after" = Option<u64>, Query, description = "only rows with a higher number")),
    responses((status = 200, content((LateRows = "application/json"), (Vec<u8> = "application/vnd.apache.arrow.stream"))))))]
pub async fn late(request: JobRequest, Query(wanted): Query<LateQuery>) -> Outcome<Response> {
    let JobRequest { app, job, headers, .. } = request;
    if wants_arrow(&headers) {
        return app.ask(move |server| in_arrow(server, &job, &wanted)).await;
    }
    app.ask(move |server| Ok(Json(found(server, &job, &wanted)?).into_response())).await
}

/// The rows of one stage as a stream of Arrow.
fn in_arrow(server: &Server, job: &str, wanted: &LateQuery) -> Outcome<Response> {
    let (_, _, kept) = kept_rows(server, job, wanted)?;
    let first = kept.first().map(|at| at.stage);
    if kept.iter().any(|at| Some(at.stage) != first) {
        let detail =
            "rows of several stages are kept, each with columns of its own: name a 'stage'";
        return Err(Problem::new(400, "parameter-wrong", detail));
    }
    let session = Session::new(server.open_options(Vec::new()))?;
    let (mut schema, mut batches) = (late_columns(&[]), Vec::new());
    for (at, rows) in page(&kept, wanted) {
        let shown = session.shown_rows(at.late.batch.schema_ref(), None)?;
        schema = late_columns(&shown.columns().columns);
        let batch = late_batch(&schema, at, &shown.shown(&at.late.batch)?)?;
        batches.push(batch.slice(rows.start, rows.len()));
    }
    arrow_answer(&schema, &batches)
}

/// Which rows of each batch are meant: the first ones behind a number, without it the last ones.
fn page<'a>(
    kept: &'a [LateAt],
    wanted: &LateQuery,
) -> impl Iterator<Item = (&'a LateAt, Range<usize>)> {
    let (after, mut left) = (wanted.after, wanted.limit.unwrap_or(100).clamp(1, 500));
    let count: usize = kept.iter().map(|at| at.late.batch.num_rows()).sum();
    let mut passed_over = if after.is_none() { count.saturating_sub(left) } else { 0 };
    kept.iter().map(move |at| {
        let rows = at.late.batch.num_rows();
        // Numbers go up by one from row to row.
        let known = after.map_or(0, |after| after.saturating_add(1).saturating_sub(at.number));
        let from = passed_over.max(known as usize).min(rows);
        passed_over = passed_over.saturating_sub(rows);
        let until = rows.min(from + left);
        left -= until - from;
        (at, from..until)
    })
}

/// Columns of a stage, and behind them what is known of a late row.
fn late_columns(own: &[Column]) -> TableSchema {
    let known = ["$number", "$at_ms", "$time_ms", "$watermark_ms", "$late_ms"];
    let known = known.map(|name| Column::new(name, DataType::BigInt.not_null()));
    TableSchema::new(own.iter().cloned().chain(known).collect())
}

fn late_batch(schema: &TableSchema, at: &LateAt, shown: &RecordBatch) -> Outcome<RecordBatch> {
    let rows = shown.num_rows();
    let numbers = |of: &dyn Fn(usize) -> i64| -> ArrayRef {
        Arc::new(Int64Array::from_iter_values((0..rows).map(of)))
    };
    let late: Vec<i64> = distances(at).collect();
    let known = [
        numbers(&|row| (at.number + row as u64) as i64),
        numbers(&|_| at.wall_ms),
        numbers(&|row| at.late.times[row]),
        numbers(&|row| at.late.watermark_before.at(row).0),
        numbers(&|row| late[row]),
    ];
    let columns = shown.columns().iter().cloned().chain(known).collect();
    Ok(RecordBatch::try_new(schema.arrow(), columns).map_err(Error::from)?)
}

/// A job that runs, and those of its late rows that are meant.
fn kept_rows(
    server: &Server,
    job: &str,
    wanted: &LateQuery,
) -> Outcome<(JobControl, Option<usize>, Vec<LateAt>)> {
    let job = server.job(job)?;
    let Some((_, control)) = job.control() else {
        let detail = format!("job {} does not run: late rows are kept while it does", job.name);
        let hint = "SET 'late.data' = 'TABLE' keeps them for good";
        return Err(Problem::new(409, "not-running", format!("{detail}; {hint}")));
    };
    let layout = control.layout();
    let stages = layout.stages.iter().map(|stage| (&stage.name, &stage.id));
    let chosen = wanted.stage.as_ref().map(|name| stage_of(stages, name)).transpose()?;
    let mut kept = control.late_rows();
    kept.retain(|at| chosen.is_none_or(|stage| at.stage == stage));
    Ok((control, chosen, kept))
}

fn found(server: &Server, job: &str, wanted: &LateQuery) -> Outcome<LateRows> {
    let (control, chosen, kept) = kept_rows(server, job, wanted)?;
    let session = Session::new(server.open_options(Vec::new()))?;
    let items = rows(&kept, (&control.layout(), &session), wanted)?;
    Ok(LateRows {
        stages: stages(&control.metrics(), chosen),
        lateness: lateness(&kept),
        kept: kept.iter().map(|at| at.late.batch.num_rows()).sum(),
        next: items.last().map(|row| row.number),
        items,
    })
}

/// The stages that have judged rows.
fn stages(metrics: &MetricsSnapshot, chosen: Option<usize>) -> Vec<LateStage> {
    let all = metrics.stages.iter().enumerate();
    let judging = all.filter(|(place, stage)| match chosen {
        Some(chosen) => *place == chosen,
        None => stage.accepted + stage.late > 0,
    });
    let of = |(_, stage): (usize, &thalweg_runtime::StageSnapshot)| LateStage {
        stage: stage.name.clone(),
        id: stage.id.clone(),
        ingested: stage.accepted + stage.late,
        accepted: stage.accepted,
        late: stage.late,
        partly_late: stage.partly_late,
    };
    judging.map(of).collect()
}

/// How far behind the watermark each row was.
fn distances(at: &LateAt) -> impl Iterator<Item = i64> {
    let rows = at.late.times.iter().enumerate();
    rows.map(|(row, time)| at.late.watermark_before.at(row).0.saturating_sub(*time))
}

fn lateness(kept: &[LateAt]) -> Option<Lateness> {
    let mut all: Vec<i64> = kept.iter().flat_map(distances).collect();
    all.sort_unstable();
    let last = all.len().checked_sub(1)?;
    Some(Lateness { p50_ms: all[last / 2], p90_ms: all[last * 9 / 10], max_ms: all[last] })
}

fn rows(
    kept: &[LateAt],
    (layout, session): (&JobLayout, &Session),
    wanted: &LateQuery,
) -> Outcome<Vec<LateRow>> {
    let mut items = Vec::new();
    for (at, rows) in page(kept, wanted).filter(|(_, rows)| !rows.is_empty()) {
        let shown = session.shown_rows(at.late.batch.schema_ref(), None)?;
        let shown = shown.show(&at.late.batch, None, &at.late.watermark_before)?;
        let distances: Vec<i64> = distances(at).collect();
        let stage = &layout.stages[at.stage];
        items.extend(rows.map(|row| {
            let missed = missed_windows(stage, at, row);
            LateRow {
                number: at.number + row as u64,
                stage: stage.name.clone(),
                window_end_ms: missed.map(|(end_ms, _)| end_ms),
                windows_ended: missed.map(|(_, count)| count),
                at_ms: at.wall_ms,
                time_ms: at.late.times[row],
                watermark_ms: shown[row].watermark.0,
                late_ms: distances[row],
                row: serde_json::from_str(&shown[row].json).unwrap_or_default(),
            }
        }));
    }
    Ok(items)
}

/// The first end of a window behind the time of a row, and how many ends the watermark had passed.
fn missed_windows(stage: &StageLayout, at: &LateAt, row: usize) -> Option<(i64, u64)> {
    let (time, watermark) = (at.late.times[row], at.late.watermark_before.at(row).0);
    let passed = |grid: &Grid| {
        let (own, now) = (grid.index(time), grid.index(watermark.saturating_add(1)));
        // A window that ends at e is closed from e - 1 on.
        (grid.start(own.saturating_add(1)), u64::try_from(now.saturating_sub(own)).unwrap_or(0))
    };
    let all = stage.grids.iter().filter(|grid| grid.period_ms > 0).map(passed);
    all.filter(|(_, count)| *count > 0).min()
}

#[cfg(test)]
mod tests {
    use thalweg_core::WatermarkBefore;
    use thalweg_runtime::metrics::{PassedWatermarks, StageRole};

    use super::*;

    fn late(number: u64, times: &[i64]) -> LateAt {
        let values = Arc::new(Int64Array::from_iter_values(times.iter().copied())) as _;
        let batch = RecordBatch::try_from_iter([("n", values)]).expect("a batch");
        let watermark_before = WatermarkBefore::Rows(times.iter().map(|time| time + 10).collect());
        let late = thalweg_core::LateRows { batch, watermark_before, times: times.to_vec() };
        LateAt { stage: 0, number, wall_ms: 5, late }
    }

    fn layout() -> JobLayout {
        let stage = StageLayout {
            id: "w".to_owned(),
            name: "window o".to_owned(),
            role: StageRole::Operator,
            inputs: Vec::new(),
            parallelism: 1,
            passes: PassedWatermarks::HeldBackMs(0),
            grids: vec![Grid { period_ms: 4, offset_ms: 1 }],
            is_bounded: false,
            has_time: true,
            idle_timeout: None,
            waits_for_end_of: Vec::new(),
        };
        let order = thalweg_core::OrderContract::Epoch;
        JobLayout { workers: 1, order, may_use_clock: true, stages: vec![stage] }
    }

    #[test]
    fn the_last_rows_are_shown_or_those_behind_a_number() {
        let (layout, session) = (layout(), Session::default());
        let kept = [late(3, &[1, 2, 3]), late(6, &[4, 5])];
        let wanted = |after, limit| LateQuery { stage: None, limit: Some(limit), after };
        let numbers = |after, limit| -> Vec<u64> {
            let rows = rows(&kept, (&layout, &session), &wanted(after, limit)).expect("rows");
            rows.iter().map(|row| row.number).collect()
        };
        assert_eq!(numbers(None, 100), [3, 4, 5, 6, 7]);
        assert_eq!(numbers(None, 3), [5, 6, 7]);
        assert_eq!(numbers(Some(4), 2), [5, 6]);
        assert_eq!(numbers(Some(7), 2), [0u64; 0]);
        let found = rows(&kept, (&layout, &session), &wanted(Some(6), 1)).expect("a row");
        assert_eq!((found[0].time_ms, found[0].watermark_ms, found[0].late_ms), (5, 15, 10));
        assert_eq!(found[0].row, serde_json::json!({ "n": 5 }));
        // Windows end at 1, 5, 9, 13, …: the row of 5 is in that up to 9, and 15 has passed 13 too.
        assert_eq!((found[0].window_end_ms, found[0].windows_ended), (Some(9), Some(2)));
        assert_eq!(lateness(&kept), Some(Lateness { p50_ms: 10, p90_ms: 10, max_ms: 10 }));
        assert_eq!(lateness(&[]), None);
        let stages = layout.stages.iter().map(|stage| (&stage.name, &stage.id));
        assert!(stage_of(stages, "window").is_err());
    }
}
