//! `GET /v1/jobs/JOB/tables` and `…/tables/TABLE/changes`: the materialized tables of a job, and
//! one of them as it changes.
//!
//! A reader gets the rows of one version, and then what changes from one version to another. Where
//! it is slow it misses versions, and never a row: the next changes lead from the version that it
//! has to the newest one. The job never waits.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::RecordBatch;
use axum::Json;
use axum::extract::Path;
use axum::http::HeaderMap;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use thalweg_core::live::{LiveTable, TableVersion, VersionChanges};
use thalweg_core::{RowKind, Watermark, WatermarkBefore};
use thalweg_library::session::{Session, ShownRows};

use super::app::{App, List};
use super::live::open_stream;
use super::query::QueryColumn;
use super::stream::Writer;
use crate::job::Job;
use crate::problem::{Outcome, Problem};
use crate::server::Server;

/// How often it is looked for a new version.
const EVERY: Duration = Duration::from_millis(100);
/// Rows that are written at once.
const ROWS_AT_ONCE: usize = 256;

/// A materialized table.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct TableView {
    /// Its name, in the database with the name of its job.
    pub name: String,
    /// Its columns.
    pub columns: Vec<QueryColumn>,
    /// Its primary key.
    pub primary_key: Vec<String>,
    /// How many rows its newest version has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<usize>,
    /// When that was made, in milliseconds since 1970; absent before the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_of_ms: Option<i64>,
}

impl TableView {
    fn of(name: String, table: &LiveTable) -> TableView {
        let columns = &table.schema.columns;
        let version = table.version();
        TableView {
            name,
            columns: columns.iter().map(QueryColumn::from).collect(),
            primary_key: table.primary_key.iter().map(|&key| columns[key].name.clone()).collect(),
            rows: version.as_ref().map(|version| version.num_rows()),
            as_of_ms: version.map(|version| version.as_of_ms),
        }
    }
}

/// The materialized tables that a job keeps current, or has kept since the server began.
#[cfg_attr(test, utoipa::path(get, path = "/v1/jobs/{job}/tables", tag = "rows", params(("job" = String, Path)),
    responses((status = 200, body = List<TableView>))))]
pub async fn tables(app: App, Path(job): Path<String>) -> Outcome<Json<List<TableView>>> {
    app.ask(move |server| {
        let tables = server.job(&job)?.live.all().into_iter();
        let items = tables.map(|(name, table)| TableView::of(name, &table)).collect();
        Ok(Json(List { items, next: None }))
    })
    .await
}

/// A materialized table as it changes: its rows, then what changes. Each message `row` has a kind,
/// `+I` or `-D`; a row that changes goes and comes. Behind the rows of a version stands `version`
/// with its number, time and count of rows: only then a reader has all of it. The last message is
/// `end`.
#[cfg_attr(test, utoipa::path(get, path = "/v1/jobs/{job}/tables/{table}/changes", tag = "rows",
    params(("job" = String, Path), ("table" = String, Path)), responses((status = 200, content_type = "text/event-stream"))))]
pub async fn changes(
    app: App,
    Path((job, table)): Path<(String, String)>,
    headers: HeaderMap,
) -> Outcome<Response> {
    let following = app.ask(move |server| Following::begin(server, &job, table)).await?;
    let (writer, response) = open_stream(&app, &headers)?;
    tokio::spawn(write(app, following, writer));
    Ok(response)
}

/// A table that a client follows.
struct Following {
    job: Arc<Job>,
    name: String,
    shown: Option<ShownRows>,
    session: Session,
    /// The version that the client has, or will have when all that waits is sent.
    version: Option<Arc<TableVersion>>,
    waiting: VecDeque<(RowKind, RecordBatch)>,
    /// The message that the version is complete has yet to be sent.
    is_due: bool,
}

impl Following {
    fn begin(server: &Server, job: &str, name: String) -> Outcome<Following> {
        let job = server.job(job)?;
        if job.live.get(&name).is_none() {
            let names: Vec<String> = job.live.all().into_iter().map(|(name, _)| name).collect();
            let detail = match names.is_empty() {
                true => format!("job {} has no materialized table, or has not run yet", job.name),
                false => {
                    format!("job {} has no table {name}; it has {}", job.name, names.join(", "))
                }
            };
            return Err(Problem::new(404, "no-such-table", detail));
        }
        let session = Session::new(server.open_options(Vec::new()))?;
        let waiting = VecDeque::new();
        Ok(Following { job, name, shown: None, session, version: None, waiting, is_due: false })
    }

    /// The next messages; none if there is no news.
    fn messages(&mut self, server: &Server) -> Outcome<Vec<(&'static str, Value)>> {
        if self.waiting.is_empty() && !self.is_due {
            self.look()?;
        }
        if let Some((kind, batch)) = self.waiting.pop_front() {
            return self.rows(kind, &batch);
        }
        if let (true, Some(version)) = (self.is_due, &self.version) {
            self.is_due = false;
            let version = json!({ "number": version.number, "as_of_ms": version.as_of_ms, "rows": version.num_rows() });
            return Ok(vec![("version", json!({ "version": version }))]);
        }
        if server.is_closing() || self.job.lock().is_gone {
            return Ok(vec![("end", json!({ "end": "the job was deleted, or the server ends" }))]);
        }
        Ok(Vec::new())
    }

    /// Looks for a new version.
    fn look(&mut self) -> Outcome<()> {
        let newest = self.job.live.get(&self.name).and_then(|table| table.version());
        let Some(newest) = newest else { return Ok(()) };
        let changes = match &self.version {
            Some(before) if Arc::ptr_eq(before, &newest) => return Ok(()),
            Some(before) => newest.changes_since(before)?,
            None => VersionChanges { gone: Vec::new(), new: newest.batches()? },
        };
        let gone = changes.gone.into_iter().map(|batch| (RowKind::Delete, batch));
        let new = changes.new.into_iter().map(|batch| (RowKind::Insert, batch));
        for (kind, batch) in gone.chain(new) {
            for first in (0..batch.num_rows()).step_by(ROWS_AT_ONCE) {
                let rows = ROWS_AT_ONCE.min(batch.num_rows() - first);
                self.waiting.push_back((kind, batch.slice(first, rows)));
            }
        }
        (self.version, self.is_due) = (Some(newest), true);
        Ok(())
    }

    fn rows(&mut self, kind: RowKind, batch: &RecordBatch) -> Outcome<Vec<(&'static str, Value)>> {
        let shown = match self.shown.take() {
            Some(shown) => shown,
            None => self.session.shown_rows(&batch.schema(), None)?,
        };
        let before = WatermarkBefore::All(Watermark::MIN);
        let rows = shown.show(batch, None, &before)?.into_iter().map(|row| {
            let values: Value = serde_json::from_str(&row.json).unwrap_or_default();
            ("row", json!({ "kind": kind.short(), "row": values }))
        });
        let rows = rows.collect();
        self.shown = Some(shown);
        Ok(rows)
    }
}

async fn write(app: App, following: Following, mut writer: Writer) {
    let mut number = 0;
    let mut own = Some(following);
    while let Some(mut following) = own.take() {
        let asked = app.ask(move |server| {
            let messages = following.messages(server)?;
            Ok((following, messages))
        });
        let (following, messages) = match asked.await {
            Ok(found) => found,
            Err(problem) => {
                let end = json!({ "end": problem.detail, "problem": problem });
                return writer.send_last("end", number + 1, &end).await;
            }
        };
        let has_news = !messages.is_empty();
        for (name, message) in &messages {
            number += 1;
            if !writer.send_when_room(name, number, message).await || *name == "end" {
                return;
            }
        }
        own = Some(following);
        if !has_news {
            tokio::select! {
                () = tokio::time::sleep(EVERY) => {}
                () = writer.closed() => return,
            }
        }
    }
}
