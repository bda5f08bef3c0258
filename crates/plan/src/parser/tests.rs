//! Tests of whole statements.

use std::path::PathBuf;

use super::*;
use crate::ast::{StatementKind, TableColumnKind, WindowFunction, WindowInput};

fn golden_folder() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden"))
}

fn one(text: &str) -> StatementKind {
    let mut statements =
        parse_script(text).unwrap_or_else(|e| panic!("{text}: {e:?} {:?}", e.span()));
    assert_eq!(statements.len(), 1, "{text}");
    statements.remove(0).kind
}

fn query_of(text: &str) -> crate::ast::Query {
    match one(text) {
        StatementKind::Select(query) => query,
        other => panic!("{text}: {other:?}"),
    }
}

/// Every query that a real Flink was given.
fn golden_texts() -> Vec<(String, String)> {
    let folder = golden_folder();
    let mut texts = Vec::new();
    for entry in std::fs::read_dir(&folder).expect("tests/golden is part of the repository") {
        let path = entry.expect("an entry").path().join("query.sql");
        if let Ok(text) = std::fs::read_to_string(&path) {
            texts.push((path.display().to_string(), text));
        }
    }
    assert!(texts.len() >= 85, "only {} golden queries", texts.len());
    texts
}

#[test]
fn every_golden_query_parses() {
    for (name, text) in golden_texts() {
        if let Err(error) = parse_script(&text) {
            panic!("{name}: {error} at {:?}", error.span());
        }
    }
}
