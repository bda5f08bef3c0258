//! `POST /v1/query`: what a SELECT answers, as JSON or as a stream of Arrow.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arrow_array::{ArrayRef, RecordBatch, StringViewArray};
use axum::Json;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use thalweg_connectors::output::{Format, QuerySink, ResultWriter};
use thalweg_core::shim::Clock;
use thalweg_core::{Column, DataType, Error, Result, Sink, TableSchema};
use thalweg_library::pipeline::Collect;
use thalweg_library::session::{
    ExplainFormat, Observer, ResultTable, Session, SessionOptions, Tz, substitute,
};

use super::app::App;
use super::arrow::{arrow_answer, batch_with_kinds, wants_arrow, with_kinds};
use super::extract::JsonBody;
use crate::problem::{Outcome, Problem};
use crate::requests::check_sql_length;
use crate::server::Server;

/// The longest that a query may take.
const QUERY_TIMEOUT_MAX: Duration = Duration::from_secs(30);
/// The largest answer of a query, in bytes.
const QUERY_BYTES_MAX: usize = 16 << 20;
/// What a query may keep in memory.
const QUERY_MEMORY: &str = "256mb";

/// A question.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct QueryBody {
    /// Declarations and one SELECT.
    pub sql: String,
    /// What `${NAME}` stands for.
    #[serde(default)]
    pub params: BTreeMap<String, String>,
    /// Rows at most. Default: 1,000.
    pub limit: Option<u64>,
    /// Seconds at most; then the answer has the rows so far. Default: 10.
    pub timeout: Option<f64>,
}

/// An answer.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct QueryAnswer {
    /// The columns, with their types.
    pub columns: Vec<QueryColumn>,
    /// The rows, each an object.
    #[cfg_attr(test, schema(value_type = Vec<Object>))]
    pub rows: Vec<serde_json::Value>,
    /// Not all rows are here: there were too many, or the time was over.
    pub is_cut: bool,
    /// When the oldest version of the materialized tables was made that the rows come from, in
    /// milliseconds since 1970; absent if there is none among what was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_of_ms: Option<i64>,
}

/// A column of an answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct QueryColumn {
    /// Its name.
    pub name: String,
    /// Its type in SQL.
    pub kind: String,
}

impl From<&Column> for QueryColumn {
    fn from(column: &Column) -> Self {
        QueryColumn { name: column.name.clone(), kind: column.column_type.to_string() }
    }
}

/// The options of a session of a client.
pub(super) fn options_of(server: &Server, settings: &BTreeMap<String, String>) -> SessionOptions {
    let settings = settings.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
    server.open_options(settings)
}

/// The statements, with what `${NAME}` stands for in them.
///
/// # Errors
/// If they are too long, or a name stands for nothing.
pub(super) fn text_of(sql: &str, params: &BTreeMap<String, String>) -> Outcome<String> {
    check_sql_length(sql)?;
    substitute(sql, params).map_err(|error| Problem::of_error(&error, sql))
}

/// What a SELECT answers: all rows, or as many as there is room and time for. With `Accept:
/// application/vnd.apache.arrow.stream` they come as a stream of Arrow: a column `op` in front has
/// what each row does, where rows change, and the headers `thalweg-is-cut` and `thalweg-as-of-ms`
/// say what `is_cut` and `as_of_ms` do.
#[cfg_attr(test, utoipa::path(post, path = "/v1/query", tag = "statements", request_body = QueryBody,
    responses((status = 200, content((QueryAnswer = "application/json"), (Vec<u8> = "application/vnd.apache.arrow.stream"))))))]
pub async fn query_rows(
    app: App,
    headers: HeaderMap,
    JsonBody(body): JsonBody<QueryBody>,
) -> Outcome<Response> {
    if wants_arrow(&headers) {
        return app.ask(move |server| answered_in_arrow(server, &body)).await;
    }
    app.ask(move |server| Ok(Json(answered(server, &body)?).into_response())).await
}

/// Runs a query; what stands over its answer, and the rows as lines of JSON.
pub(super) fn answered(server: &Server, body: &QueryBody) -> Outcome<QueryAnswer> {
    let text: Arc<Mutex<Written>> = Arc::default();
    let ran = ran(server, body, Rows::Text(Arc::clone(&text)))?;
    let written = text.lock().expect("no panic under this lock");
    let lines = written.bytes.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
    let mut rows: Vec<_> = lines.map_while(|line| serde_json::from_slice(line).ok()).collect();
    let is_cut = ran.is_late || rows.len() > ran.limit || written.is_full;
    rows.truncate(ran.limit);
    let columns = ran.schema.columns.iter().map(QueryColumn::from).collect();
    Ok(QueryAnswer { columns, rows, is_cut, as_of_ms: ran.as_of_ms })
}

fn answered_in_arrow(server: &Server, body: &QueryBody) -> Outcome<Response> {
    let collect = Collect::new();
    let ran = ran(server, body, Rows::Batches(collect.clone()))?;
    let schema = if ran.has_updates { with_kinds(&ran.schema) } else { ran.schema };
    let (mut batches, mut rows, mut bytes, mut is_cut) = (Vec::new(), 0, 0, ran.is_late);
    for changes in collect.changes() {
        let room = ran.limit - rows;
        is_cut |= changes.batch.num_rows() > room;
        let batch = changes.batch.slice(0, room.min(changes.batch.num_rows()));
        bytes += batch.get_array_memory_size();
        if bytes > QUERY_BYTES_MAX {
            is_cut = true;
            break;
        }
        rows += batch.num_rows();
        batches.push(match ran.has_updates {
            true => batch_with_kinds(&schema, &batch, changes.kinds.as_deref())?,
            false => RecordBatch::try_new(schema.arrow(), batch.columns().to_vec())
                .map_err(Error::from)?,
        });
    }
    let mut response = arrow_answer(&schema, &batches)?;
    let mut set = |name, value: String| {
        if let Ok(value) = HeaderValue::from_str(&value) {
            response.headers_mut().insert(HeaderName::from_static(name), value);
        }
    };
    set("thalweg-is-cut", is_cut.to_string());
    if let Some(as_of_ms) = ran.as_of_ms {
        set("thalweg-as-of-ms", as_of_ms.to_string());
    }
    Ok(response)
}

/// A query that has ended.
struct Ran {
    schema: TableSchema,
    has_updates: bool,
    limit: usize,
    is_late: bool,
    as_of_ms: Option<i64>,
}

fn ran(server: &Server, body: &QueryBody, rows: Rows) -> Outcome<Ran> {
    let text = text_of(&body.sql, &body.params)?;
    let timeout = Duration::try_from_secs_f64(body.timeout.unwrap_or(10.0)).unwrap_or_default();
    let limit = body.limit.unwrap_or(1000).clamp(1, 100_000);
    let options = SessionOptions {
        // One more than is shown, to know whether there are more.
        row_limit: Some(limit + 1),
        memory_limit: Some(QUERY_MEMORY.to_owned()),
        ..options_of(server, &BTreeMap::new())
    };
    let of_text = |error: Error| Problem::of_error(&error, &text);
    let mut session = Session::new(options).map_err(of_text)?;
    read_materialized(server, &mut session, &text).map_err(of_text)?;
    if !session.planned_jobs(&text).map_err(of_text)?.is_empty() {
        return Err(Problem::new(
            422,
            "not-a-query",
            "a query reads only: write PUT /v1/jobs/NAME for an INSERT",
        ));
    }
    let until_ns =
        server.clock.now_ns().saturating_add(timeout.min(QUERY_TIMEOUT_MAX).as_nanos() as u64);
    let (schema, has_updates) = (TableSchema::new(Vec::new()), false);
    let mut collector = Collector { server, until_ns, schema, has_updates, rows };
    let ran = session.run_script(&text, &mut collector);
    let is_late = collector.is_stopped();
    if let Err(error) = ran
        && !is_late
    {
        return Err(of_text(error));
    }
    let (limit, as_of_ms) = (usize::try_from(limit).unwrap_or(usize::MAX), session.read_as_of_ms());
    let Collector { schema, has_updates, .. } = collector;
    Ok(Ran { schema, has_updates, limit, is_late, as_of_ms })
}

/// Lets a query read the materialized tables of jobs. One that names such a table runs in batch
/// mode: whoever asks for rows that are there wants the result, not how it came about.
fn read_materialized(server: &Server, session: &mut Session, text: &str) -> Result<()> {
    let tables = server.readable_tables();
    if tables.is_empty() {
        return Ok(());
    }
    session.set_readable(tables)?;
    session.declare("SET 'execution.runtime-mode' = 'batch'")?;
    // What is wrong with it is said when it runs, in the mode in which it does.
    let _ = session.explain(text, ExplainFormat::Text);
    if !session.names_readable() {
        session.declare("RESET 'execution.runtime-mode'")?;
    }
    Ok(())
}

/// Where the rows of a query go.
enum Rows {
    /// Lines of JSON.
    Text(Arc<Mutex<Written>>),
    Batches(Collect),
}

/// Takes the rows of a query.
struct Collector<'a> {
    server: &'a Server,
    until_ns: u64,
    schema: TableSchema,
    has_updates: bool,
    rows: Rows,
}

#[derive(Default)]
struct Written {
    bytes: Vec<u8>,
    is_full: bool,
}

struct SharedText(Arc<Mutex<Written>>);

impl Write for SharedText {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let mut own = self.0.lock().expect("no panic under this lock");
        own.is_full |= own.bytes.len() + bytes.len() > QUERY_BYTES_MAX;
        if !own.is_full {
            own.bytes.extend_from_slice(bytes);
        }
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Observer for Collector<'_> {
    fn result(&mut self, table: &ResultTable, zone: Tz) -> Result<Box<dyn Sink>> {
        (self.schema, self.has_updates) = (table.schema.clone(), table.has_updates);
        let text = match &mut self.rows {
            Rows::Text(text) => text,
            Rows::Batches(collect) => {
                collect.clear();
                return Ok(Box::new(collect.sink()));
            }
        };
        *text.lock().expect("no panic under this lock") = Written::default();
        let out = Box::new(SharedText(Arc::clone(text)));
        let writer =
            ResultWriter::new(Format::Ndjson, table.schema.clone(), String::new(), zone, out)
                .with_changelog(table.has_updates);
        Ok(Box::new(QuerySink::new("result", writer)))
    }

    fn explanation(&mut self, text: &str) -> Result<()> {
        let column = Column::new("plan", DataType::STRING.nullable());
        let schema = TableSchema::new(vec![column]);
        let lines: ArrayRef = Arc::new(StringViewArray::from_iter_values(text.lines()));
        let batch = RecordBatch::try_new(schema.arrow(), vec![lines])?;
        self.rows(&ResultTable { schema, has_updates: false }, Tz::UTC, &batch)
    }

    fn is_stopped(&self) -> bool {
        self.server.clock.now_ns() >= self.until_ns || self.server.is_closing()
    }
}
