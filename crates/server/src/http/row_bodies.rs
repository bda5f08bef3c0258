//! Which requests have bodies of rows, and what those are written in.

use axum::http::{HeaderMap, Method, header};
use thalweg_core::inlets::BodyKind;

use super::arrow::ARROW_STREAM;
use crate::problem::{Outcome, Problem};

/// True of requests whose bodies are rows.
pub(super) fn takes_rows(method: &Method, path: &str) -> bool {
    let of_job = path.strip_prefix("/v1/jobs/").and_then(|rest| rest.split_once('/'));
    let table = of_job.and_then(|(_, what)| what.strip_prefix("tables/")?.strip_suffix("/rows"));
    *method == Method::POST && table.is_some_and(|table| !table.contains('/'))
}

/// What a body of rows is written in.
pub(super) fn body_kind(headers: &HeaderMap) -> Outcome<BodyKind> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = kind.map(|kind| kind.split(';').next().unwrap_or_default().trim());
    match kind.unwrap_or_default().to_ascii_lowercase().as_str() {
        "application/json" => Ok(BodyKind::Json),
        "application/x-ndjson" | "application/jsonl" | "application/x-jsonlines" => {
            Ok(BodyKind::JsonLines)
        }
        "text/csv" => Ok(BodyKind::Csv),
        ARROW_STREAM => Ok(BodyKind::ArrowStream),
        _ => {
            let detail = format!(
                "rows are application/x-ndjson, application/json, text/csv or {ARROW_STREAM}"
            );
            Err(Problem::new(415, "kind-wrong", detail))
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn only_posts_to_tables_have_bodies_of_rows() {
        assert!(takes_rows(&Method::POST, "/v1/jobs/a/tables/t/rows"));
        for path in [
            "/v1/jobs/a/tables/t/changes",
            "/v1/jobs/a/tables/rows",
            "/v1/jobs/a/tables/x/y/rows",
            "/v1/jobs/a/b/tables/t/rows",
            "/v1/query",
        ] {
            assert!(!takes_rows(&Method::POST, path), "{path}");
        }
        assert!(!takes_rows(&Method::PUT, "/v1/jobs/a/tables/t/rows"));
    }

    #[test]
    fn types_of_bodies_that_a_form_could_send_are_refused() {
        let kind = |kind: &'static str| {
            let kind = HeaderValue::from_static(kind);
            body_kind(&HeaderMap::from_iter([(header::CONTENT_TYPE, kind)])).ok()
        };
        assert_eq!(kind("Text/CSV; charset=utf-8"), Some(BodyKind::Csv));
        assert_eq!(kind("application/x-ndjson"), Some(BodyKind::JsonLines));
        assert_eq!(kind(ARROW_STREAM), Some(BodyKind::ArrowStream));
        for other in ["text/plain", "multipart/form-data", "application/x-www-form-urlencoded", ""]
        {
            assert_eq!(kind(other), None, "{other}");
        }
        assert!(body_kind(&HeaderMap::new()).is_err());
    }
}
