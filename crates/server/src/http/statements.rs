//! Statements without a job: are they right, how would they run, what do they answer; and what can
//! be written in them.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use thalweg_connectors::output::{Format, QuerySink, ResultWriter};
use thalweg_core::connector::ConnectorDescription;
use thalweg_core::graph::StageKind;
use thalweg_core::shim::Clock;
use thalweg_core::{Column, Error, Result, Sink};
use thalweg_library::session::{
    ExplainFormat, Observer, ResultTable, SETTING_KEYS, Session, SessionOptions, Tz, substitute,
};

use super::app::{App, List, parse};
use crate::problem::{Diagnostic, Outcome, Problem};
use crate::requests::SQL_BYTES_MAX;
use crate::server::Server;

/// The longest that a query may take.
const QUERY_TIMEOUT_MAX: Duration = Duration::from_secs(30);
/// The largest answer of a query, in bytes.
const QUERY_BYTES_MAX: usize = 16 << 20;
/// What a query may keep in memory.
const QUERY_MEMORY: &str = "256mb";

/// Statements, and what goes with them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct StatementsBody {
    /// The statements.
    pub sql: String,
    /// What `${NAME}` stands for.
    #[serde(default)]
    pub params: BTreeMap<String, String>,
    /// Options that are set before the first statement.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
    /// Says what Apache Flink would refuse.
    #[serde(default)]
    pub flink: bool,
}

/// Whether statements are right.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct ValidateAnswer {
    /// They can be planned.
    pub is_valid: bool,
    /// How many there are.
    pub statements: usize,
    /// What is wrong.
    pub diagnostics: Vec<Diagnostic>,
    /// The jobs that they would be.
    pub jobs: Vec<String>,
    /// What Apache Flink would refuse.
    pub flink_refusals: Vec<Diagnostic>,
}

/// A stage of a plan.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct PlannedStage {
    /// Its identifier, which snapshots know it by.
    pub id: String,
    /// What it is called.
    pub name: String,
    /// `source`, `transform`, `operator` or `sink`.
    pub role: String,
}

/// From a stage to another.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct PlannedEdge {
    /// The identifier of the stage that sends.
    pub from: String,
    /// The identifier of the stage that takes.
    pub to: String,
    /// Its port.
    pub port: usize,
}

/// A job as it would run.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct PlannedGraph {
    /// What it is called.
    pub job: String,
    /// Its promise about order.
    pub order: String,
    /// Its stages, each behind those that it takes from.
    pub stages: Vec<PlannedStage>,
    /// What leads where.
    pub edges: Vec<PlannedEdge>,
}

/// How statements would run.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct ExplainAnswer {
    /// In words, statement by statement.
    pub text: Vec<String>,
    /// For Graphviz.
    pub dot: Vec<String>,
    /// The jobs of INSERTs.
    pub graphs: Vec<PlannedGraph>,
}

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
    #[serde(default)]
    pub limit: Option<u64>,
    /// Seconds at most; then the answer has the rows so far. Default: 10.
    #[serde(default)]
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

fn options_of(server: &Server, settings: &BTreeMap<String, String>) -> SessionOptions {
    let settings = settings.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
    server.open_options(settings)
}

fn text_of(sql: &str, params: &BTreeMap<String, String>) -> Outcome<String> {
    if sql.len() > SQL_BYTES_MAX {
        let detail = format!("statements have at most {SQL_BYTES_MAX} bytes");
        return Err(Problem::new(413, "too-large", detail));
    }
    substitute(sql, params).map_err(|error| Problem::of_error(&error, sql))
}

/// Whether statements are right. Wrong ones are an answer, too.
#[cfg_attr(test, utoipa::path(post, path = "/v1/validate", tag = "statements", request_body = StatementsBody,
    responses((status = 200, body = ValidateAnswer), (status = "default", body = Problem, content_type = "application/problem+json"))))]
pub async fn validate(State(app): State<App>, bytes: Bytes) -> Outcome<Json<ValidateAnswer>> {
    let body: StatementsBody = parse(&bytes)?;
    app.ask(move |server| Ok(Json(validated(server, &body)?))).await
}

fn validated(server: &Server, body: &StatementsBody) -> Outcome<ValidateAnswer> {
    let mut answer = ValidateAnswer {
        is_valid: false,
        statements: 0,
        diagnostics: Vec::new(),
        jobs: Vec::new(),
        flink_refusals: Vec::new(),
    };
    let text = match text_of(&body.sql, &body.params) {
        Ok(text) => text,
        Err(problem) if problem.status == 422 => {
            return Ok(ValidateAnswer { diagnostics: problem.diagnostics, ..answer });
        }
        Err(problem) => return Err(problem),
    };
    let planned = Session::new(options_of(server, &body.settings)).and_then(|mut session| {
        let statements = session.validate(&text)?;
        let jobs = session.planned_jobs(&text)?;
        let refusals = if body.flink { session.flink_refusals(&text)? } else { Vec::new() };
        Ok((statements, jobs, refusals))
    });
    match planned {
        Ok((statements, jobs, refusals)) => {
            (answer.is_valid, answer.statements) = (true, statements);
            answer.jobs = jobs.into_iter().map(|job| job.name).collect();
            let shown = |error: &Error| Diagnostic::of(error, "note", &text);
            answer.flink_refusals = refusals.iter().map(shown).collect();
        }
        Err(error) => answer.diagnostics = vec![Diagnostic::of(&error, "error", &text)],
    }
    Ok(answer)
}

/// How statements would run.
#[cfg_attr(test, utoipa::path(post, path = "/v1/explain", tag = "statements", request_body = StatementsBody,
    responses((status = 200, body = ExplainAnswer), (status = "default", body = Problem, content_type = "application/problem+json"))))]
pub async fn explain(State(app): State<App>, bytes: Bytes) -> Outcome<Json<ExplainAnswer>> {
    let body: StatementsBody = parse(&bytes)?;
    app.ask(move |server| {
        let text = text_of(&body.sql, &body.params)?;
        let explained = explained(options_of(server, &body.settings), &text);
        explained.map(Json).map_err(|error| Problem::of_error(&error, &text))
    })
    .await
}

fn explained(options: SessionOptions, text: &str) -> Result<ExplainAnswer> {
    let mut session = Session::new(options)?;
    let graphs = session.planned_jobs(text)?.into_iter().map(|job| {
        let id = |place: usize| job.graph.stages[place].id.clone();
        let stages = job.graph.stages.iter().map(|stage| PlannedStage {
            id: stage.id.clone(),
            name: stage.name.clone(),
            role: match stage.kind {
                StageKind::Source { .. } => "source",
                StageKind::Transform(_) => "transform",
                StageKind::Operator(_) => "operator",
                StageKind::Sink(_) => "sink",
            }
            .to_owned(),
        });
        let edges = job.graph.stages.iter().flat_map(|stage| {
            let to = &stage.id;
            stage.inputs.iter().map(move |input| (input, to.clone()))
        });
        let edges =
            edges.map(|(input, to)| PlannedEdge { from: id(input.from.0), to, port: input.port });
        PlannedGraph {
            order: job.order.to_string(),
            stages: stages.collect(),
            edges: edges.collect(),
            job: job.name.clone(),
        }
    });
    let graphs = graphs.collect();
    Ok(ExplainAnswer {
        graphs,
        text: session.explain(text, ExplainFormat::Text)?,
        dot: session.explain(text, ExplainFormat::Graphviz)?,
    })
}

/// What a SELECT answers: all rows, or as many as there is room and time for.
#[cfg_attr(test, utoipa::path(post, path = "/v1/query", tag = "statements", request_body = QueryBody,
    responses((status = 200, body = QueryAnswer), (status = "default", body = Problem, content_type = "application/problem+json"))))]
pub async fn query_rows(State(app): State<App>, bytes: Bytes) -> Outcome<Json<QueryAnswer>> {
    let body: QueryBody = parse(&bytes)?;
    app.ask(move |server| Ok(Json(answered(server, &body)?))).await
}

fn answered(server: &Server, body: &QueryBody) -> Outcome<QueryAnswer> {
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
    let mut collector =
        Collector { server, until_ns, answer: QueryAnswer::default(), text: Arc::default() };
    let ran = session.run_script(&text, &mut collector);
    let is_late = collector.is_stopped();
    if let Err(error) = ran
        && !is_late
    {
        return Err(of_text(error));
    }
    let mut answer = collector.answer;
    answer.as_of_ms = session.read_as_of_ms();
    let written = collector.text.lock().expect("no panic under this lock");
    let lines = written.bytes.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
    answer.rows = lines.map_while(|line| serde_json::from_slice(line).ok()).collect();
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    answer.is_cut = is_late || answer.rows.len() > limit || written.is_full;
    answer.rows.truncate(limit);
    Ok(answer)
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

/// Takes the rows of a query.
struct Collector<'a> {
    server: &'a Server,
    until_ns: u64,
    answer: QueryAnswer,
    text: Arc<Mutex<Written>>,
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
        self.answer.columns = table.schema.columns.iter().map(QueryColumn::from).collect();
        *self.text.lock().expect("no panic under this lock") = Written::default();
        let out = Box::new(SharedText(Arc::clone(&self.text)));
        let writer =
            ResultWriter::new(Format::Ndjson, table.schema.clone(), String::new(), zone, out)
                .with_changelog(table.has_updates);
        Ok(Box::new(QuerySink::new("result", writer)))
    }

    fn explanation(&mut self, text: &str) -> Result<()> {
        self.answer.columns =
            vec![QueryColumn { name: "plan".to_owned(), kind: "STRING".to_owned() }];
        let mut own = self.text.lock().expect("no panic under this lock");
        *own = Written::default();
        for line in text.lines() {
            let line = serde_json::json!({ "plan": line });
            own.bytes.extend_from_slice(format!("{line}\n").as_bytes());
        }
        Ok(())
    }

    fn is_stopped(&self) -> bool {
        self.server.clock.now_ns() >= self.until_ns || self.server.is_closing()
    }
}

/// An option of SET.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct SettingView {
    /// Its name.
    pub name: String,
    /// Its default.
    pub default: String,
    /// What it means.
    pub about: String,
}

/// The options of SET.
#[cfg_attr(test, utoipa::path(get, path = "/v1/settings", tag = "language",
    responses((status = 200, body = List<SettingView>), (status = "default", body = Problem, content_type = "application/problem+json"))))]
pub async fn settings() -> Json<List<SettingView>> {
    let view = |key: &thalweg_library::session::SettingKey| SettingView {
        name: key.name.to_owned(),
        default: key.default.to_owned(),
        about: key.doc.to_owned(),
    };
    Json(List { items: SETTING_KEYS.iter().map(view).collect(), next: None })
}

/// A function of SQL.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct FunctionView {
    /// Its name.
    pub name: String,
}

/// The functions of SQL.
#[cfg_attr(test, utoipa::path(get, path = "/v1/functions", tag = "language",
    responses((status = 200, body = List<FunctionView>), (status = "default", body = Problem, content_type = "application/problem+json"))))]
pub async fn functions(State(app): State<App>) -> Outcome<Json<List<FunctionView>>> {
    let asked =
        QueryBody { sql: "SHOW FUNCTIONS".to_owned(), limit: Some(10_000), ..QueryBody::default() };
    let answer = app.ask(move |server| answered(server, &asked)).await?;
    let names = answer.rows.into_iter().filter_map(|row| {
        let first = row.as_object()?.values().next()?.as_str()?.to_owned();
        Some(FunctionView { name: first })
    });
    Ok(Json(List { items: names.collect(), next: None }))
}

/// A connector.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct ConnectorView {
    /// The value of the option `connector`.
    pub name: String,
    /// What it is.
    pub summary: String,
    /// Tables can be read.
    pub reads: bool,
    /// Tables can be written.
    pub writes: bool,
    /// Tables can be looked up by key.
    pub looks_up: bool,
    /// Its options.
    pub options: Vec<ConnectorOptionView>,
    /// What the option `format` can name.
    pub formats: Vec<String>,
}

/// An option of a connector.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct ConnectorOptionView {
    /// Its name.
    pub name: String,
    /// Which values it takes.
    pub kind: String,
    /// What it means.
    pub about: String,
}

/// The connectors that tables may name.
#[cfg_attr(test, utoipa::path(get, path = "/v1/connectors", tag = "language",
    responses((status = 200, body = List<ConnectorView>), (status = "default", body = Problem, content_type = "application/problem+json"))))]
pub async fn connectors(State(app): State<App>) -> Outcome<Json<List<ConnectorView>>> {
    app.ask(|server| {
        let session = Session::new(options_of(server, &BTreeMap::new()))?;
        let items = session.connectors().descriptions().map(connector_view).collect();
        Ok(Json(List { items, next: None }))
    })
    .await
}

fn connector_view(description: &ConnectorDescription) -> ConnectorView {
    let capabilities = &description.capabilities;
    let options = description.options.iter().map(|option| ConnectorOptionView {
        name: option.name.to_owned(),
        kind: format!("{:?}", option.kind).to_lowercase(),
        about: option.help.to_owned(),
    });
    ConnectorView {
        name: description.name.to_owned(),
        summary: description.summary.to_owned(),
        reads: capabilities.source.is_some(),
        writes: capabilities.sink.is_some(),
        looks_up: capabilities.is_lookup,
        options: options.collect(),
        formats: description.formats.iter().map(|format| format.name.to_owned()).collect(),
    }
}
