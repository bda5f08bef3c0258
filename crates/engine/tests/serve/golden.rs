//! Golden cases asked over the protocol of Flink's SQL gateway, as `scripts/golden` asks Flink.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::gateway::{Client, OPEN};
use super::support::Place;

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden")
}

/// The statements of a case; none of them has a semicolon in a text.
fn statements(case: &Path) -> Vec<String> {
    let text = fs::read_to_string(case.join("query.sql")).expect("a query");
    let text = text.replace("@DIR@", &case.display().to_string());
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("--"));
    let text = lines.collect::<Vec<_>>().join("\n");
    text.split(';').map(|one| one.trim().to_owned()).filter(|one| !one.is_empty()).collect()
}

/// How often each row is left when all changes were applied.
fn left<'a>(rows: impl Iterator<Item = (bool, Vec<Option<&'a str>>)>) -> BTreeMap<String, i64> {
    let mut counts = BTreeMap::new();
    for (is_added, fields) in rows {
        let row = fields.iter().map(|field| field.unwrap_or("\\N")).collect::<Vec<_>>().join("|");
        *counts.entry(row).or_insert(0) += if is_added { 1 } else { -1 };
    }
    counts.retain(|_, count| *count != 0);
    counts
}

#[test]
fn golden_cases_have_flinks_answers_over_flinks_protocol() {
    let place = Place::new("gateway-golden");
    let roots = format!("allowed-roots={}", golden().canonicalize().expect("cases").display());
    let server = place.serve(&[&OPEN[..], &["-o", &roots]].concat());
    for case in CASES {
        let folder = golden().canonicalize().expect("cases").join(case);
        let client = Client::open(
            &server,
            json!({ "parallelism.default": "1", "table.local-time-zone": "UTC" }),
        );
        let (mut columns, mut rows) = (Value::Null, Vec::new());
        for statement in statements(&folder) {
            (columns, rows) = client.run(&statement).unwrap_or_else(|why| panic!("{case}: {why}"));
        }
        let schema = fs::read_to_string(folder.join("schema.json")).expect("a schema");
        let schema: Value = serde_json::from_str(&schema).expect("JSON");
        let names = |columns: &Value, name: fn(&Value) -> &Value| -> Vec<Value> {
            columns.as_array().expect("columns").iter().map(|column| name(column).clone()).collect()
        };
        assert_eq!(names(&columns, |own| &own["name"]), names(&schema, |own| &own[0]), "{case}");
        let own = rows.iter().map(|row| {
            let is_added = matches!(row["kind"].as_str(), Some("INSERT" | "UPDATE_AFTER"));
            (
                is_added,
                row["fields"].as_array().expect("fields").iter().map(Value::as_str).collect(),
            )
        });
        let expected = fs::read_to_string(folder.join("final.csv")).expect("an answer");
        let flinks =
            expected.lines().skip(1).map(|line| (true, line.split(',').map(Some).collect()));
        assert_eq!(left(own), left(flinks), "{case}");
    }
}

/// Some of each kind, whose answers have no quotes in CSV. `scripts/golden` asks about all.
const CASES: [&str; 29] = [
    "arith_decimal",
    "cep2_on_view",
    "cep_skip_next",
    "cumulate_basic",
    "deep_min_of_topn",
    "fmt_meta_columns",
    "fn_arithmetic_9",
    "fn_convert_4",
    "fn_try_cast_1",
    "fnu_json_syntax_2",
    "fnx_json_is_json",
    "gagg_avg_types",
    "having_changelog",
    "interval_join_inner",
    "join_left",
    "name_join_star",
    "nx_q5",
    "over_late_dropped",
    "pipe_dedup_window",
    "regular_join_left_changelog",
    "sel_values_mixed2",
    "set_union_char",
    "three_valued_logic",
    "tumble_basic",
    "wagg_tumble_key",
    "wjoin_anti_not_exists",
    "wtopn_hop",
    "wtvf_session_named",
    "cdc_debezium_agg",
];
