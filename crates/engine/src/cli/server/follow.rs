//! `thalweg query --follow`: a materialized table as it changes.

use serde_json::Value;
use thalweg_core::text::{format_timestamp_millis, without_controls};

use super::super::server_arguments::QueryArguments;
use super::jobs::path;
use super::tap::cell;
use super::{WRONG, encoded, print_lines, with_client};

/// `thalweg query --follow`: prints the rows of a table, and then what changes.
pub fn follow(arguments: &QueryArguments) -> u8 {
    let Some((job, table)) = arguments.sql.trim().rsplit_once('.') else {
        eprintln!("error: '{}' is no table: --follow takes JOB.TABLE", arguments.sql);
        return WRONG;
    };
    let place = path(job, &format!("/tables/{}/changes", encoded(table)));
    let mut heading = String::new();
    with_client(&arguments.server, |client| {
        print_lines(client, &place, arguments.server.json, |message| shown(message, &mut heading))
    })
}

/// A message as it is printed, below a heading with the columns.
fn shown(message: &Value, heading: &mut String) -> String {
    if let Some(version) = message.get("version") {
        let as_of = format_timestamp_millis(version["as_of_ms"].as_i64().unwrap_or(0), 3);
        return format!("# {} rows as of {as_of}\n", version["rows"]);
    }
    if let Some(end) = message.get("end") {
        return format!("# {}\n", without_controls(end.as_str().unwrap_or_default()));
    }
    let values = message["row"].as_object();
    let names = values.into_iter().flat_map(|row| row.keys()).cloned().collect::<Vec<_>>();
    let own = format!("#     {}\n", names.join("  "));
    let cells = values.into_iter().flat_map(|row| row.values()).map(cell).collect::<Vec<_>>();
    let line = format!("{}  {}\n", message["kind"].as_str().unwrap_or("?"), cells.join("  "));
    let text = if own == *heading { line } else { format!("{own}{line}") };
    *heading = own;
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rows_stand_below_their_columns_and_versions_behind_their_rows() {
        let mut heading = String::new();
        let mut lines = String::new();
        for message in [
            json!({ "kind": "+I", "row": { "account": 1, "balance": 20 } }),
            json!({ "kind": "-D", "row": { "account": 2, "balance": null } }),
            json!({ "version": { "number": 3, "as_of_ms": 0, "rows": 1 } }),
        ] {
            lines.push_str(&shown(&message, &mut heading));
        }
        assert_eq!(
            lines,
            "#     account  balance\n+I  1  20\n-D  2  NULL\n# 1 rows as of 1970-01-01 00:00:00.000\n"
        );
    }
}
