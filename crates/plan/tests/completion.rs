//! What can be written at a place: `¦` in these texts.

mod support;

use thalweg_plan::completion::{Completion, CompletionKind, Completions};

use support::planner;

const TABLES: &str = "CREATE TABLE orders (item STRING, `unit price` DECIMAL(10, 2), ts TIMESTAMP(3)) WITH ('connector' = 'datagen');
CREATE VIEW large AS SELECT item AS name, `unit price` AS price FROM orders;
THIS IS WRONG;
";

fn at(text: &str) -> Completions {
    let (before, behind) = text.split_once('¦').expect("a place");
    planner("/tmp").complete(&format!("{before}{behind}"), before.chars().count())
}

fn labels(text: &str) -> Vec<String> {
    at(text).items.into_iter().map(|item| item.label).collect()
}

fn found(text: &str, label: &str) -> Completion {
    let items = at(text).items;
    let item = items.iter().find(|item| item.label == label);
    item.unwrap_or_else(|| panic!("{label} is not among {items:?}")).clone()
}

#[test]
fn tables_stand_behind_from_and_columns_of_those_that_are_named_elsewhere() {
    assert_eq!(labels(&format!("{TABLES}SELECT 1 FROM o¦")), ["orders"]);
    assert_eq!(found(&format!("{TABLES}SELECT 1 FROM ¦"), "large").detail, "view");
    let column = found(&format!("{TABLES}SELECT it¦ FROM orders"), "item");
    assert_eq!((column.kind, column.detail.as_str()), (CompletionKind::Column, "STRING of orders"));
    let quoted = found(&format!("{TABLES}SELECT ¦ FROM orders"), "unit price");
    assert_eq!(quoted.insert, "`unit price`");
    assert_eq!(labels(&format!("{TABLES}SELECT `un¦ FROM orders")), ["unit price"]);
    assert_eq!(
        labels(&format!("{TABLES}SELECT l.¦ FROM orders AS o JOIN large l ON o.item = l.name")),
        ["name", "price"]
    );
    assert_eq!(labels(&format!("{TABLES}SELECT large.pr¦ FROM large")), ["price"]);
    // A table that is declared behind the place is none there.
    assert!(!labels(&format!("SELECT 1 FROM ¦; {TABLES}")).contains(&"orders".to_owned()));
}

#[test]
fn functions_and_words_come_behind_columns() {
    let function = found(&format!("{TABLES}SELECT CHAR_L¦ FROM orders"), "CHAR_LENGTH");
    assert_eq!(
        (function.kind, function.insert.as_str()),
        (CompletionKind::Function, "CHAR_LENGTH(")
    );
    assert_eq!(found("SELECT 1 GRO¦", "GROUP").kind, CompletionKind::Word);
    assert_eq!(found("SEL¦", "SELECT").kind, CompletionKind::Word);
    assert!(!labels("¦").contains(&"GROUP".to_owned()), "no statement begins so");
    assert_eq!(labels("SELECT * FROM TABLE(¦"), ["TUMBLE", "HOP", "CUMULATE", "SESSION"]);
    assert_eq!(found("CREATE TABLE t (a BIGI¦", "BIGINT").kind, CompletionKind::Type);
    assert_eq!(
        found("CREATE TABLE t (a INT, b ROW<c INT>, ts TIMESTAMP(3), WATERMARK FOR t¦", "ts")
            .detail,
        "TIMESTAMP"
    );
}

#[test]
fn texts_are_settings_options_and_their_values() {
    let setting = found("SET 'pipeline.ord¦", "pipeline.order");
    assert_eq!((setting.kind, setting.detail.as_str()), (CompletionKind::Setting, "epoch"));
    assert!(labels("SET 'pipeline.order' = '¦").contains(&"event_time".to_owned()));
    let table = "CREATE TABLE t (a INT) WITH ('connector' = 'filesystem', ";
    assert_eq!(
        found("CREATE TABLE t (a INT) WITH ('connector' = 'file¦')", "filesystem").kind,
        CompletionKind::Value
    );
    assert_eq!(found(&format!("{table}'pa¦'"), "path").kind, CompletionKind::Option);
    assert!(labels(&format!("{table}'format' = '¦")).contains(&"csv".to_owned()));
    assert_eq!(labels("CREATE TABLE t (a INT) WITH ('¦"), ["connector"]);
    assert!(labels("SELECT 'any te¦").is_empty());
    // The connector may stand behind the place.
    assert!(
        labels("CREATE TABLE t (a INT) WITH ('pa¦', 'connector' = 'filesystem')")
            .contains(&"path".to_owned())
    );
}

#[test]
fn a_place_may_be_anywhere() {
    assert_eq!(at("SELECT 1 -- FR¦").items, []);
    assert_eq!(at("SELECT /* FR¦ */ 1").items, []);
    let found = at("SELECT 'ä€' || CHAR¦");
    assert_eq!(found.from, 15, "places are characters");
    let text = format!(
        "{TABLES}SELECT o.item, 'x', `b` FROM orders AS o WHERE o.item = 'it''s' /* c */ -- d"
    );
    let planner = planner("/tmp");
    for place in 0..=text.chars().count() + 1 {
        let found = planner.complete(&text, place);
        assert!(found.from <= place);
    }
}
