//! `thalweg trial`: new statements on a copy of a job's state.

use std::time::Duration;

use serde_json::{Value, json};
use thalweg::monitoring::numbers::count;
use thalweg_core::Result;

use super::super::server_arguments::TrialArguments;
use super::super::text_table::table;
use super::super::units;
use super::jobs::{items_of, path, state_lines, statements_body, text};
use super::{answer, refuse, with_client};

/// How often is asked whether it has ended.
const ASK_EVERY: Duration = Duration::from_millis(300);

/// `thalweg trial`
pub fn trial(arguments: &TrialArguments) -> u8 {
    with_client(&arguments.server, |client| {
        let (file, params) = (&arguments.file, &arguments.params);
        let mut body = statements_body(file, params, &arguments.settings)?;
        body["seconds"] = json!(arguments.seconds);
        body["snapshot"] = json!(arguments.from);
        let asked = client.ask("POST", &path(&arguments.job, "/trials"), Some(&body), false)?;
        if let Some(problem) = asked.problem() {
            return refuse(&problem, arguments.server.json);
        }
        let place = path(&arguments.job, &format!("/trials/{}", text(&asked.body["id"])));
        loop {
            let found = client.ask("GET", &place, None, false)?;
            match found.body["state"].as_str() {
                Some("running") => std::thread::sleep(ASK_EVERY),
                Some("failed") => return failed(&found.body["problem"], arguments.server.json),
                _ => return answer(&found, arguments.server.json, shown),
            }
        }
    })
}

fn failed(problem: &Value, is_json: bool) -> Result<u8> {
    let problem = serde_json::from_value(problem.clone());
    let unknown = |_| thalweg_server::Problem::new(409, "failed", "the trial failed");
    refuse(&problem.unwrap_or_else(unknown), is_json)
}

fn shown(trial: &Value) -> String {
    let outcome = &trial["outcome"];
    let number = |value: &Value| count(value.as_u64().unwrap_or(0));
    let seconds = outcome["ran_ms"].as_i64().unwrap_or(0) as f64 / 1000.0;
    let ended = if outcome["has_ended"] == true { ", until all inputs had ended" } else { "" };
    let mut lines = format!(
        "from snapshot {}, {seconds:.1} s{ended}; nothing was written\n",
        trial["snapshot"]
    );
    lines.push_str(&state_lines(&trial["diff"]));
    let input =
        |input: &Value| [text(&input["table"]), number(&input["rows"]), number(&input["bad"])];
    let inputs = items_of(&outcome["inputs"]).map(input);
    lines.push_str(&table(["input", "rows", "bad"], inputs, |column| column == 0));
    let output = |output: &Value| [text(&output["table"]), number(&output["rows"])];
    let outputs = items_of(&outcome["outputs"]).map(output);
    lines.push_str(&table(["output", "rows"], outputs, |column| column == 0));
    let bytes = |value: &Value| {
        units::bytes(usize::try_from(value.as_u64().unwrap_or(0)).unwrap_or(usize::MAX))
    };
    lines.push_str(&format!(
        "accepted {}, late {}; state {}, memory at most {}\n",
        number(&outcome["accepted"]),
        number(&outcome["late"]),
        bytes(&outcome["state_bytes"]),
        bytes(&outcome["memory_bytes"])
    ));
    if let Some([p50, p99, max]) = outcome["latency_us"].as_array().map(Vec::as_slice) {
        let ms = |value: &Value| value.as_f64().unwrap_or(0.0) / 1000.0;
        let (p50, p99, max) = (ms(p50), ms(p99), ms(max));
        lines.push_str(&format!(
            "latency: half {p50:.1} ms, 99 % {p99:.1} ms, at most {max:.1} ms\n"
        ));
    }
    lines + &differences(outcome) + &first_rows(outcome)
}

fn row(row: &Value) -> String {
    match row.is_null() {
        true => "–".to_owned(),
        false => format!("{} {}", text(&row["kind"]), row["row"]),
    }
}

fn differences(outcome: &Value) -> String {
    let Some(found) = outcome["differences"].as_array() else { return String::new() };
    if found.is_empty() {
        return "the first rows are those that the job writes now\n".to_owned();
    }
    let of = |own: &Value| {
        format!(
            "{} differs from row {} on\n  now {}\n  new {}\n",
            text(&own["table"]),
            own["place"],
            row(&own["now"]),
            row(&own["new"])
        )
    };
    found.iter().map(of).collect()
}

fn first_rows(outcome: &Value) -> String {
    let mut shown = String::new();
    for output in items_of(&outcome["outputs"]) {
        shown.push_str(&format!("first rows of {}\n", text(&output["table"])));
        for first in items_of(&output["first"]) {
            shown.push_str(&format!("  {}\n", row(first)));
        }
    }
    shown
}
