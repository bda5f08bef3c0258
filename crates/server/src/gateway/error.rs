//! Errors as the interface writes them: `{"errors": [text, trace]}`.
//!
//! Clients show the last `Caused by:` of the trace, up to the first line of the stack.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use crate::problem::{Diagnostic, Problem};

/// A problem as clients of Flink take it.
pub fn refusal(problem: &Problem) -> Response {
    let status = match problem.status {
        // A statement that is wrong is an error of the server, to Flink.
        409 | 422 | 507 => StatusCode::INTERNAL_SERVER_ERROR,
        other => StatusCode::from_u16(other).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
    };
    let errors = match problem.status {
        409 | 422 | 500 | 507 => vec!["Internal server error.".to_owned(), trace(problem)],
        _ => vec![problem.detail.clone()],
    };
    let body = json!({ "errors": errors }).to_string();
    let mut response = (status, body).into_response();
    let kind = HeaderValue::from_static("application/json; charset=UTF-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

fn trace(problem: &Problem) -> String {
    let (class, message) = cause(problem);
    format!(
        "<Exception on server side:\n\
         org.apache.flink.table.gateway.api.utils.SqlGatewayException: Failed to execute the statement.\n\
         \tat thalweg.gateway.statement({code})\n\
         Caused by: {class}: {message}\n\
         \tat thalweg.gateway.statement({code})\n\n\
         End of exception on server side>",
        code = problem.code,
    )
}

/// The class that Flink has for such an error, and what clients show.
fn cause(problem: &Problem) -> (&'static str, String) {
    let class = match problem.code.as_str() {
        "statement-wrong" => "org.apache.flink.table.api.ValidationException",
        "not-supported" => "org.apache.flink.table.api.TableException",
        _ => "org.apache.flink.table.gateway.service.utils.SqlExecutionException",
    };
    let message = match problem.diagnostics.first() {
        Some(diagnostic) => with_place(diagnostic),
        None => problem.detail.clone(),
    };
    // Each line would be read as one of the stack.
    (class, message.replace("\n\tat ", "\n at "))
}

/// `From line 1, column 8 to line 1, column 11: …`, as Flink says it.
fn with_place(diagnostic: &Diagnostic) -> String {
    let mut text = String::new();
    if let Some(span) = diagnostic.span {
        let (start, end) = (span.start, span.end);
        text = format!(
            "From line {}, column {} to line {}, column {}: ",
            start.line,
            start.column,
            end.line,
            end.column.saturating_sub(1).max(start.column),
        );
    }
    text.push_str(&diagnostic.message);
    if let Some(help) = &diagnostic.help {
        text.push_str("\nHint: ");
        text.push_str(help);
    }
    text
}

#[cfg(test)]
mod tests {
    use thalweg_core::{Error, error::Span};

    use super::*;

    #[test]
    fn the_last_cause_says_what_is_wrong_and_where() {
        let span = Span { line: 1, column: 8, end_column: 12 };
        let error = Error::plan("there is no column 'nope'").at(span).hint("did you mean 'name'?");
        let trace = trace(&Problem::of_error(&error, "SELECT nope FROM t"));
        let last = trace.rsplit("Caused by: ").next().expect("a cause");
        let (said, _) = last.split_once("\n\tat ").expect("a stack");
        assert_eq!(
            said,
            "org.apache.flink.table.api.ValidationException: From line 1, column 8 to line 1, column 11: \
             there is no column 'nope'\nHint: did you mean 'name'?"
        );
    }
}
