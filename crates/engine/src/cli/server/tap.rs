//! `thalweg tap`: rows of a running job, as they pass from stage to stage.

mod record;

use serde_json::Value;
use thalweg::monitoring::numbers::count;
use thalweg_core::text::{format_timestamp_millis, without_controls};

use super::super::server_arguments::TapArguments;
use super::jobs::path;
use super::{WRONG, print_lines, refuse, with_client, with_parameters};

/// `thalweg tap`
pub fn tap(arguments: &TapArguments) -> u8 {
    if let Some(file) = &arguments.record {
        return record::record(arguments, file);
    }
    with_client(&arguments.server, |client| {
        let place = place(arguments);
        let mut shown = Shown::default();
        let is_json = arguments.server.json;
        let status = print_lines(client, &place, is_json, |message| shown.message(message))?;
        match shown.problem {
            // As JSON it was printed.
            Some(_) if is_json => Ok(WRONG),
            Some(problem) => match serde_json::from_value(problem) {
                Ok(problem) => refuse(&problem, false),
                Err(_) => Ok(WRONG),
            },
            None => Ok(status),
        }
    })
}

/// The address of the rows that are meant.
fn place(arguments: &TapArguments) -> String {
    let wanted = [
        ("table", arguments.table.clone()),
        ("stage", arguments.stage.clone()),
        ("sink", arguments.sink.clone()),
        ("into", arguments.into.clone()),
        ("where", arguments.condition.clone()),
        ("limit", arguments.limit.map(|limit| limit.to_string())),
        ("rate", arguments.rate.map(|rate| rate.to_string())),
    ];
    with_parameters(&path(&arguments.job, "/tail"), wanted)
}

/// What was printed, as far as what comes depends on it.
#[derive(Default)]
struct Shown {
    /// The edge and the columns of the last row.
    heading: String,
    /// What is printed when the tap ends.
    status: String,
    problem: Option<Value>,
}

impl Shown {
    /// A message as it is printed.
    fn message(&mut self, message: &Value) -> String {
        let number = |value: &Value| count(value.as_u64().unwrap_or(0));
        if let Some(tap) = message.get("tap") {
            return opening(tap);
        }
        if let Some(status) = message.get("status") {
            let (shown, seen) = (&status["shown_rows"], &status["seen_rows"]);
            self.status = format!(
                "# {} of {} rows that have passed since; the job was not slowed\n",
                number(shown),
                number(seen)
            );
            return String::new();
        }
        if let Some(dropped) = message.get("dropped") {
            return format!(
                "# {} messages were lost: they came too fast to be printed\n",
                number(dropped)
            );
        }
        if let Some(end) = message.get("end") {
            self.problem = message.get("problem").cloned();
            let status = std::mem::take(&mut self.status);
            return match self.problem {
                // It is said as an error.
                Some(_) => status,
                None => {
                    format!("{status}# {}\n", without_controls(end.as_str().unwrap_or_default()))
                }
            };
        }
        self.row(message)
    }

    fn row(&mut self, message: &Value) -> String {
        let values = message["row"].as_object();
        let names = values.into_iter().flat_map(|row| row.keys()).cloned();
        let heading = format!("# {}: {}\n", edge(message), names.collect::<Vec<_>>().join(", "));
        let cells = values.into_iter().flat_map(|row| row.values()).map(cell);
        let cells = cells.collect::<Vec<_>>().join("  ");
        let watermark = message["watermark_ms"].as_i64();
        let watermark = watermark.map_or_else(String::new, |at_ms| {
            format!("   watermark {}", format_timestamp_millis(at_ms, 3))
        });
        let kind = message["kind"].as_str().unwrap_or_default();
        let line = format!("{kind}  {cells}{watermark}\n");
        let text = if heading == self.heading { line } else { format!("{heading}{line}") };
        self.heading = heading;
        text
    }
}

fn opening(tap: &Value) -> String {
    let edges = tap["edges"].as_array().into_iter().flatten().map(edge);
    format!(
        "# {}; order {}, at most {} rows a second, for {} min\n",
        edges.collect::<Vec<_>>().join(", "),
        tap["order"].as_str().unwrap_or_default(),
        tap["rate"],
        tap["lasts_s"].as_u64().unwrap_or(0) / 60
    )
}

fn edge(of: &Value) -> String {
    let name = |key: &str| of[key].as_str().unwrap_or_default();
    format!("{} → {}", name("from"), name("to"))
}

pub(super) fn cell(value: &Value) -> String {
    match value {
        Value::Null => "NULL".to_owned(),
        // A line is a row.
        Value::String(text) => text.replace(['\n', '\r', '\t'], " "),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rows_stand_below_their_edge_and_the_counts_at_the_end() {
        let mut shown = Shown::default();
        let mut text = String::new();
        let row = |item: &str| {
            json!({ "from": "orders", "to": "window o", "kind": "+I", "watermark_ms": 0,
                    "row": { "item": item, "amount": 2, "note": null } })
        };
        for message in [
            json!({ "tap": { "edges": [{ "from": "orders", "to": "window o" }], "order": "epoch",
                             "rate": 1000.0, "lasts_s": 600 } }),
            row("tea"),
            json!({ "status": { "seen_rows": 5, "shown_rows": 1 } }),
            row("salt\nand pepper"),
            json!({ "dropped": 1200 }),
            json!({ "status": { "seen_rows": 412907, "shown_rows": 2 } }),
            json!({ "end": "the limit of rows is reached" }),
        ] {
            text.push_str(&shown.message(&message));
        }
        assert_eq!(
            text,
            "# orders → window o; order epoch, at most 1000.0 rows a second, for 10 min\n\
             # orders → window o: item, amount, note\n\
             +I  tea  2  NULL   watermark 1970-01-01 00:00:00.000\n\
             +I  salt and pepper  2  NULL   watermark 1970-01-01 00:00:00.000\n\
             # 1,200 messages were lost: they came too fast to be printed\n\
             # 2 of 412,907 rows that have passed since; the job was not slowed\n\
             # the limit of rows is reached\n"
        );
    }
}
