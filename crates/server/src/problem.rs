//! Errors as a client gets them: `application/problem+json` (RFC 9457) with a place in the text of
//! the statements.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use thalweg_core::{Error, ErrorKind, Span};

/// What went wrong with a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct Problem {
    /// The page of the server that explains it.
    #[serde(rename = "type")]
    pub kind: String,
    /// What went wrong, in a few words.
    pub title: String,
    /// The status of HTTP.
    pub status: u16,
    /// What went wrong, exactly.
    pub detail: String,
    /// A stable word for programs.
    pub code: String,
    /// Whose fault it is: `statement`, `data`, `environment`, `request` or `engine`.
    pub fault: String,
    /// The request, as the audit log names it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub request_id: String,
    /// Mistakes in statements, with their places.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub diagnostics: Vec<Diagnostic>,
}

/// A mistake in a text of statements.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct Diagnostic {
    /// `error` or `note`.
    pub severity: String,
    /// A stable word for programs.
    pub code: String,
    /// What is wrong.
    pub message: String,
    /// What can be done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
    /// Where in the text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub span: Option<TextSpan>,
}

/// A place in a text.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct TextSpan {
    /// Where it begins.
    pub start: TextPlace,
    /// Just behind it.
    pub end: TextPlace,
}

/// A character of a text.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct TextPlace {
    /// The line, from 1.
    pub line: u32,
    /// The column in characters, from 1.
    pub column: u32,
    /// The column in units of UTF-16, from 1, as editors of JavaScript count.
    pub utf16: u32,
}

/// The result of a request.
pub type Outcome<T> = std::result::Result<T, Problem>;

impl Problem {
    /// A problem with this code.
    pub fn new(status: u16, code: &str, detail: impl Into<String>) -> Problem {
        let fault = match status {
            422 => "statement",
            500 => "engine",
            502..=599 => "environment",
            _ => "request",
        };
        Problem {
            kind: format!("/docs/errors/{code}"),
            title: code.replace('-', " "),
            status,
            detail: detail.into(),
            code: code.to_owned(),
            fault: fault.to_owned(),
            request_id: String::new(),
            diagnostics: Vec::new(),
        }
    }

    /// There is no such job.
    pub fn no_job(name: &str, known: &[String]) -> Problem {
        let near = known.iter().min_by_key(|known| strsim::damerau_levenshtein(known, name));
        let near = near.filter(|near| strsim::damerau_levenshtein(near, name) <= 2);
        let hint = near.map(|near| format!("; did you mean '{near}'?")).unwrap_or_default();
        Problem::new(404, "no-such-job", format!("there is no job '{name}'{hint}"))
    }

    /// An error of the engine, about this text.
    pub fn of_error(error: &Error, text: &str) -> Problem {
        let (status, code, fault) = match error.kind() {
            ErrorKind::Plan => (422, "statement-wrong", "statement"),
            ErrorKind::Unsupported => (422, "not-supported", "statement"),
            ErrorKind::Data => (422, "data-wrong", "data"),
            ErrorKind::Resource => (409, "in-use", "environment"),
            ErrorKind::Io => (507, "storage-failed", "environment"),
            ErrorKind::User | ErrorKind::Cancelled => (422, "job-failed", "environment"),
            _ => (500, "internal", "engine"),
        };
        let mut problem = Problem::new(status, code, error.to_string());
        problem.fault = fault.to_owned();
        problem.diagnostics = vec![Diagnostic::of(error, "error", text)];
        problem
    }
}

/// Errors of the disk below the catalogue.
impl From<Error> for Problem {
    fn from(error: Error) -> Problem {
        let mut problem = Problem::of_error(&error, "");
        problem.diagnostics.retain(|one| one.help.is_some());
        problem
    }
}

impl Diagnostic {
    /// Of an error or a note.
    pub fn of(error: &Error, severity: &str, text: &str) -> Diagnostic {
        let code = match error.kind() {
            ErrorKind::Plan => "statement-wrong",
            ErrorKind::Unsupported => "not-supported",
            ErrorKind::Data => "data-wrong",
            ErrorKind::Io => "storage-failed",
            ErrorKind::Resource => "in-use",
            ErrorKind::Internal => "internal",
            _ => "job-failed",
        };
        Diagnostic {
            severity: severity.to_owned(),
            code: code.to_owned(),
            message: error.to_string(),
            help: error.help().map(for_clients),
            span: error.span().map(|span| TextSpan::of(span, text)),
        }
    }
}

/// A hint that names an option of the command line names what a client has in its place.
fn for_clients(help: &str) -> String {
    const INSTEAD: [(&str, &str); 9] = [
        ("with --resume", "by a start from the newest snapshot"),
        ("use --resume", "start it from the newest snapshot"),
        ("--overwrite", "a start with `overwrite`"),
        ("--drop-state", "a start with `drop_state`"),
        ("with --drain", "with `how` = `drain`"),
        ("give it with --param ", "give it in `params`: "),
        ("or --set ", "or in `settings`: "),
        ("allow it with --allow-path ", "the server's option 'allowed-roots' may have "),
        ("(--allow-path)", "('allowed-roots' of the server)"),
    ];
    INSTEAD.iter().fold(help.to_owned(), |help, (option, instead)| help.replace(option, instead))
}

impl TextSpan {
    fn of(span: Span, text: &str) -> TextSpan {
        let line = text.lines().nth(span.line.saturating_sub(1) as usize).unwrap_or("");
        let place = |column: u32| {
            let before = line.chars().take(column.saturating_sub(1) as usize);
            let utf16 = before.map(char::len_utf16).sum::<usize>();
            TextPlace { line: span.line, column, utf16: u32::try_from(utf16).unwrap_or(0) + 1 }
        };
        let start = span.column.max(1);
        TextSpan { start: place(start), end: place(span.end_column.max(start + 1)) }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, Json(self.clone())).into_response();
        // The guard adds the request's name.
        response.extensions_mut().insert(self);
        let kind = HeaderValue::from_static("application/problem+json");
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        if matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_count_for_editors_as_well() {
        let error = Error::plan("no").at(Span { line: 1, column: 4, end_column: 6 });
        let problem = Problem::of_error(&error, "'😀' x y");
        let span = problem.diagnostics[0].span.expect("a place");
        assert_eq!((span.start.column, span.start.utf16), (4, 5));
        assert_eq!((span.end.column, span.end.utf16), (6, 7));
    }

    #[test]
    fn hints_name_what_clients_have() {
        let hint = |help: &str| {
            let problem = Problem::of_error(&Error::plan("no").hint(help), "");
            problem.diagnostics[0].help.clone().expect("a hint")
        };
        assert_eq!(
            hint("resume that run with --resume, replace what is there with --overwrite, or not"),
            "resume that run by a start from the newest snapshot, replace what is there with a start with `overwrite`, or not"
        );
        assert_eq!(hint("give it with --param x=VALUE"), "give it in `params`: x=VALUE");
        assert_eq!(hint("plain"), "plain");
    }

    #[test]
    fn a_name_that_is_nearly_right_is_named() {
        let problem = Problem::no_job("ordrs", &["meters".to_owned(), "orders".to_owned()]);
        assert!(problem.detail.ends_with("did you mean 'orders'?"), "{}", problem.detail);
    }
}
