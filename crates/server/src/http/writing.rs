//! Help for whoever writes statements: what can stand at a place, and how a text is laid out.

use std::collections::BTreeMap;

use axum::Json;
use axum::body::Bytes;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use thalweg_library::session::{Completion, CompletionKind, Session, formatted};

use super::app::{App, parse, plain_sql};
use super::extract::JsonBody;
use super::query::options_of;
use crate::docs::function;
use crate::problem::{Outcome, Problem};
use crate::requests::check_sql_length;
use crate::server::Server;

/// A text that is being written, and a place in it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct CompleteBody {
    /// The text, which need not be right.
    pub sql: String,
    /// The place, in characters from the beginning.
    pub offset: usize,
}

/// What can be written at a place.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct CompleteAnswer {
    /// Where the word begins whose place one of them takes, in characters.
    pub from: usize,
    /// The most likely kinds first.
    pub items: Vec<Suggestion>,
}

/// Something that can be written.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct Suggestion {
    /// What it is called.
    pub label: String,
    /// What it is: `column`, `table`, `function`, `keyword`, `type`, `setting`, `option` or
    /// `value`.
    pub kind: String,
    /// A column's type, a function's signature, a setting's default, the values of an option.
    pub detail: String,
    /// What it means.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub info: Option<String>,
    /// What is written.
    pub insert: String,
}

/// What can be written at a place of a text: tables and columns that there are, functions with
/// their signatures, settings with their defaults, connectors with their options.
#[cfg_attr(test, utoipa::path(post, path = "/v1/complete", tag = "language", request_body = CompleteBody,
    responses((status = 200, body = CompleteAnswer))))]
pub async fn complete(app: App, body: JsonBody<CompleteBody>) -> Outcome<Json<CompleteAnswer>> {
    let JsonBody(body) = body;
    check_sql_length(&body.sql)?;
    app.ask(move |server| completed(server, &body).map(Json)).await
}

fn completed(server: &Server, body: &CompleteBody) -> Outcome<CompleteAnswer> {
    let mut session = Session::new(options_of(server, &BTreeMap::new()))?;
    session.set_readable(server.readable_tables())?;
    let found = session.complete(&body.sql, body.offset);
    let items = found.items.into_iter().map(suggestion).collect();
    Ok(CompleteAnswer { from: found.from, items })
}

fn suggestion(of: Completion) -> Suggestion {
    let kind = match of.kind {
        CompletionKind::Column => "column",
        CompletionKind::Table => "table",
        CompletionKind::Function => "function",
        CompletionKind::Word => "keyword",
        CompletionKind::Type => "type",
        CompletionKind::Setting => "setting",
        CompletionKind::Option => "option",
        CompletionKind::Value => "value",
    };
    let described = (of.kind == CompletionKind::Function).then(|| function(&of.label)).flatten();
    let Completion { label, detail, info, insert, .. } = of;
    let (detail, info) = match described {
        Some(of) if detail.is_empty() => (of.forms.clone(), Some(of.about.clone())),
        _ => (detail, info),
    };
    Suggestion { label, kind: kind.to_owned(), detail, info, insert }
}

/// A text of statements.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct FormatBody {
    /// The text.
    pub sql: String,
}

/// The same statements with line breaks and indents where readers expect them. Only white space
/// changes; comments stay. The answer is JSON like the body, or text for a body of
/// `application/sql`.
#[cfg_attr(test, utoipa::path(post, path = "/v1/format", tag = "language", request_body = FormatBody,
    responses((status = 200, body = FormatBody))))]
pub async fn format(app: App, headers: HeaderMap, bytes: Bytes) -> Outcome<Response> {
    let plain = plain_sql(&headers, &bytes)?;
    let is_plain = plain.is_some();
    let sql = match plain {
        Some(sql) => sql,
        None => parse::<FormatBody>(&bytes)?.sql,
    };
    check_sql_length(&sql)?;
    let asked = app.ask(move |_| formatted(&sql).map_err(|error| Problem::of_error(&error, &sql)));
    let sql = asked.await?;
    Ok(match is_plain {
        true => ([(header::CONTENT_TYPE, "application/sql")], sql).into_response(),
        false => Json(FormatBody { sql }).into_response(),
    })
}
