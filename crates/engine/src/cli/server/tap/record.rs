//! `thalweg tap --record`: what tables of a job give, as a test.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

use serde_json::Value;
use thalweg::testing::record::{Recording, SeenRow};
use thalweg_core::quoting::quoted_text;
use thalweg_core::shim::{Clock, SystemClock};
use thalweg_core::text::without_controls;
use thalweg_core::{Error, Result};
use thalweg_plan::catalog::substitute;
use thalweg_server::client::Client;

use super::super::super::server_arguments::TapArguments;
use super::super::jobs::path;
use super::super::{FAILED, print, print_lines, refuse, with_client};
use super::place;

/// Rows that a test holds, unless the limit says otherwise: it is read by people.
const ROWS: u64 = 20;

/// Records a test; returns the exit status.
pub(super) fn record(arguments: &TapArguments, file: &Path) -> u8 {
    with_client(&arguments.server, |client| {
        let (sql, tables) = match (statements(client, arguments)?, tables(client, arguments)?) {
            (Ok(sql), Ok(tables)) => (sql, tables),
            (Err(status), _) | (_, Err(status)) => return Ok(status),
        };
        if file.exists() {
            return Err(Error::plan(format!("{} is there", file.display()))
                .hint("name another file: recording replaces none"));
        }
        let mut recording = Recording::new(&arguments.job, &sql, &tables)?;
        let wanted = TapArguments {
            table: Some(tables.join(",")),
            limit: Some(arguments.limit.unwrap_or(ROWS)),
            ..TapArguments::of(&arguments.job, arguments.rate, arguments.server.clone())
        };
        let place = place(&wanted);
        let (clock, mut dropped, mut why) = (SystemClock::new(), 0, String::new());
        let status = print_lines(client, &place, false, |message| {
            note(&mut recording, message, clock.wall_ms());
            dropped += message["dropped"].as_u64().unwrap_or(0);
            if let Some(end) = message["end"].as_str() {
                end.clone_into(&mut why);
            }
            String::new()
        })?;
        if status != 0 {
            return Ok(status);
        }
        finish(recording, file, (&why, dropped))
    })
}

fn finish(recording: Recording, file: &Path, (why, dropped): (&str, u64)) -> Result<u8> {
    let rows = recording.rows();
    if rows == 0 {
        print(&format!("no row has passed, and nothing was written: {}\n", without_controls(why)))?;
        return Ok(FAILED);
    }
    let text = recording.into_text().map_err(|error| {
        Error::plan(format!("no test can be made of these rows: {}", error.message()))
            .hint("write it by hand: `thalweg test --help` shows how")
    })?;
    let failed = |error| Error::io(format!("can't write {}: {error}", file.display()));
    let mut opened = OpenOptions::new().write(true).create_new(true).open(file).map_err(failed)?;
    opened.write_all(text.as_bytes()).map_err(failed)?;
    let lost = if dropped > 0 { format!("; {dropped} messages were lost") } else { String::new() };
    print(&format!(
        "{}: {rows} rows{lost}; read it, then run `thalweg test {}`\n",
        file.display(),
        file.display()
    ))?;
    Ok(0)
}

/// The statements of the job, with its parameters and settings; or the exit status of a refusal.
fn statements(client: &Client, arguments: &TapArguments) -> Result<Result<String, u8>> {
    let job = client.ask("GET", &path(&arguments.job, ""), None, false)?;
    if let Some(problem) = job.problem() {
        return refuse(&problem, arguments.server.json).map(Err);
    }
    let number = job.body["revision"].as_u64().unwrap_or(0);
    let place = path(&arguments.job, &format!("/revisions/{number}"));
    let revision = client.ask("GET", &place, None, false)?;
    if let Some(problem) = revision.problem() {
        return refuse(&problem, arguments.server.json).map(Err);
    }
    let map = |key: &str| -> BTreeMap<String, String> {
        serde_json::from_value(revision.body[key].clone()).unwrap_or_default()
    };
    let sql = revision.body["sql"].as_str().unwrap_or_default();
    let set = |(key, value): (String, String)| {
        format!("SET {} = {};\n", quoted_text(&key), quoted_text(&value))
    };
    let settings: String = map("settings").into_iter().map(set).collect();
    substitute(sql, &map("params")).map(|sql| Ok(settings + &sql))
}

/// The tables whose rows are recorded: those that are named, else all that the job reads.
fn tables(client: &Client, arguments: &TapArguments) -> Result<Result<Vec<String>, u8>> {
    if let Some(tables) = &arguments.table {
        return Ok(Ok(tables.split(',').map(|table| table.trim().to_owned()).collect()));
    }
    let graph = client.ask("GET", &path(&arguments.job, "/graph"), None, false)?;
    if let Some(problem) = graph.problem() {
        return refuse(&problem, arguments.server.json).map(Err);
    }
    let stages = graph.body["reading"]["stages"].as_array().into_iter().flatten();
    let sources = stages.filter(|stage| stage["kind"] == "source");
    let mut names: Vec<String> =
        sources.filter_map(|stage| Some(stage["name"].as_str()?.to_owned())).collect();
    names.sort();
    names.dedup();
    Ok(Ok(names))
}

fn note(recording: &mut Recording, message: &Value, at_ms: i64) {
    let Some(row) = message["row"].as_object() else { return };
    let value = |value: &Value| match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    };
    let table = message["from"].as_str().unwrap_or_default();
    let kind = message["kind"].as_str().unwrap_or("+I");
    let values = row.iter().map(|(name, of)| (name.clone(), value(of))).collect();
    recording.add(SeenRow { table, at_ms, kind, values });
}
