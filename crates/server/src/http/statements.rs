//! Statements without a job: are they right, how would they run; and what can be written in them.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::Json;
use serde::{Deserialize, Serialize};
use thalweg_core::connector::ConnectorDescription;
use thalweg_core::graph::StageKind;
use thalweg_core::{Error, Result, Watermark, WatermarkBefore};
use thalweg_library::session::{
    Connection, ExplainFormat, SETTING_KEYS, Session, SessionOptions, connections,
};

use super::app::{App, List};
use super::extract::JsonBody;
use super::guard::Caller;
use super::query::{QueryBody, answered, options_of, text_of};
use crate::problem::{Diagnostic, Outcome, Problem};
use crate::server::Server;
use crate::tokens::Role;

/// For how long a table is tried.
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);

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
    /// Tries the tables: inputs are opened and asked for a row, outputs are connected to, and
    /// nothing is written. Needs the role `write`.
    #[serde(default)]
    pub connect: bool,
}

/// Whether statements are right.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
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
    /// The tables that were tried, with `connect`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub connections: Vec<ConnectionView>,
}

/// A table that was tried.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct ConnectionView {
    /// The table.
    pub table: String,
    /// `input` or `output`.
    pub role: String,
    /// It can be reached.
    pub is_reached: bool,
    /// The first row of an input; none if no row came within 10 s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schema(value_type = Option<Object>))]
    pub row: Option<serde_json::Value>,
    /// The input has no row, and will have none.
    pub is_empty: bool,
    /// Why it cannot be reached or read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<Diagnostic>,
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

/// Whether statements are right. Wrong ones are an answer, too.
#[cfg_attr(test, utoipa::path(post, path = "/v1/validate", tag = "statements", request_body = StatementsBody,
    responses((status = 200, body = ValidateAnswer))))]
pub async fn validate(
    app: App,
    caller: Caller,
    JsonBody(body): JsonBody<StatementsBody>,
) -> Outcome<Json<ValidateAnswer>> {
    if body.connect && (caller.role < Role::Write || caller.jobs.is_some()) {
        let detail = "'connect' reads rows, which needs a token with the role write, for all jobs";
        return Err(Problem::new(403, "role-wrong", detail));
    }
    app.ask(move |server| Ok(Json(validated(server, &body)?))).await
}

fn validated(server: &Server, body: &StatementsBody) -> Outcome<ValidateAnswer> {
    let mut answer = ValidateAnswer::default();
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
            if body.connect {
                connect(server, body, &text, &mut answer);
            }
        }
        Err(error) => answer.diagnostics = vec![Diagnostic::of(&error, "error", &text)],
    }
    Ok(answer)
}

/// Tries the tables of statements.
fn connect(server: &Server, body: &StatementsBody, text: &str, answer: &mut ValidateAnswer) {
    let session = Session::default();
    let view = |found: Connection| {
        let row = found.row.as_ref().and_then(|row| {
            let shown = session.shown_rows(row.schema_ref(), None).ok()?;
            let rows = shown.show(row, None, &WatermarkBefore::All(Watermark::MIN)).ok()?;
            serde_json::from_str(&rows.first()?.json).ok()
        });
        ConnectionView {
            table: found.table,
            role: if found.is_output { "output" } else { "input" }.to_owned(),
            is_reached: found.error.is_none(),
            row,
            is_empty: found.is_empty,
            problem: found.error.as_ref().map(|error| Diagnostic::of(error, "error", text)),
        }
    };
    match connections(options_of(server, &body.settings), text, CONNECT_PATIENCE) {
        Ok(found) => answer.connections = found.into_iter().map(view).collect(),
        Err(error) => answer.diagnostics.push(Diagnostic::of(&error, "note", text)),
    }
}

/// How statements would run.
#[cfg_attr(test, utoipa::path(post, path = "/v1/explain", tag = "statements", request_body = StatementsBody,
    responses((status = 200, body = ExplainAnswer))))]
pub async fn explain(app: App, body: JsonBody<StatementsBody>) -> Outcome<Json<ExplainAnswer>> {
    let JsonBody(body) = body;
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
#[cfg_attr(test, utoipa::path(get, path = "/v1/settings", tag = "language", responses((status = 200, body = List<SettingView>))))]
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
    /// How it is called, each form behind the other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<String>,
    /// What it returns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<String>,
    /// A call, and its result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub example: Option<String>,
}

/// The functions of SQL.
#[cfg_attr(test, utoipa::path(get, path = "/v1/functions", tag = "language",
    responses((status = 200, body = List<FunctionView>))))]
pub async fn functions(app: App) -> Outcome<Json<List<FunctionView>>> {
    let asked =
        QueryBody { sql: "SHOW FUNCTIONS".to_owned(), limit: Some(10_000), ..QueryBody::default() };
    let answer = app.ask(move |server| answered(server, &asked)).await?;
    let names = answer.rows.into_iter().filter_map(|row| {
        let first = row.as_object()?.values().next()?.as_str()?.to_owned();
        let of = crate::docs::function(&first);
        Some(FunctionView {
            signature: of.map(|of| of.forms.clone()),
            about: of.map(|of| of.about.clone()),
            example: of.map(|of| of.example.clone()),
            name: first,
        })
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
    responses((status = 200, body = List<ConnectorView>))))]
pub async fn connectors(app: App) -> Outcome<Json<List<ConnectorView>>> {
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
