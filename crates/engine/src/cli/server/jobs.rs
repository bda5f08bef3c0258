//! Commands about the jobs of a server.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};
use thalweg::monitoring::numbers::count;
use thalweg_core::text::format_timestamp_millis;
use thalweg_core::{Error, Result};

use super::super::server_arguments::{
    ApproveArguments, DeadArguments, EventsArguments, JobArguments, JobsArguments, LateArguments,
    LogsArguments, QueryArguments, ServerArguments, StartArguments, StatusArguments, StopArguments,
    StopWay, SubmitArguments, TokenArguments, TokenCommand, WhyArguments,
};
use super::super::text_table::{aligned, table};
use super::super::units;
use super::{answer, ask, encoded, get, print, print_lines, refuse, with_client, with_parameters};

/// `thalweg ls`
pub fn list(arguments: &JobsArguments) -> u8 {
    let wanted = [("state", arguments.state.clone()), ("tag", arguments.tag.clone())];
    get(&arguments.server, &with_parameters("/v1/jobs?limit=500", wanted), jobs_table)
}

fn jobs_table(body: &Value) -> String {
    let head = ["job", "state", "in", "out", "late", "bad", "kept", "snapshot", "says"];
    let row = |job: &Value| {
        let count = |name: &str| units::short_count(job[name].as_f64().unwrap_or(0.0));
        let kept = usize::try_from(job["state_bytes"].as_u64().unwrap_or(0)).unwrap_or(usize::MAX);
        [
            text(&job["name"]),
            text(&job["state"]),
            count("rows_in"),
            count("rows_out"),
            count("late_rows"),
            count("bad_rows"),
            units::bytes(kept),
            job["snapshot"].as_u64().map_or("–".to_owned(), |number| number.to_string()),
            says(job),
        ]
    };
    table(head, items(body).map(row), |column| matches!(column, 0 | 1 | 8))
}

/// What a job waits for, or why it failed.
fn says(job: &Value) -> String {
    let problem = &job["outcome"]["problem"]["detail"];
    let first = [&job["waits_for"], problem, &job["snapshot_problem"]];
    let found = first.into_iter().find_map(Value::as_str).unwrap_or("–");
    found.lines().next().unwrap_or_default().to_owned()
}

fn items(body: &Value) -> impl Iterator<Item = &Value> {
    items_of(&body["items"])
}

/// The items of a list.
pub(super) fn items_of(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

/// A text, or any other value as JSON.
pub(super) fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn time(value: &Value) -> String {
    value
        .as_i64()
        .map_or("–".to_owned(), |at_ms| format!("{} UTC", format_timestamp_millis(at_ms, 3)))
}

/// The address of something about a job.
pub(super) fn path(job: &str, rest: &str) -> String {
    format!("/v1/jobs/{}{rest}", encoded(job))
}

/// `thalweg describe`
pub fn describe(arguments: &JobArguments) -> u8 {
    get(&arguments.server, &path(&arguments.job, ""), description)
}

/// `thalweg why`
pub fn why(arguments: &WhyArguments) -> u8 {
    let moment = arguments.at.map(|at_ms| at_ms.to_string());
    let wanted = [("at", moment), ("stage", arguments.stage.clone())];
    let place = with_parameters(&path(&arguments.job, "/why"), wanted);
    get(&arguments.server, &place, |body| text(&body["text"]))
}

fn description(job: &Value) -> String {
    let mut lines = format!(
        "{}: {} since {}, wanted: {}, revision {}\n",
        text(&job["name"]),
        text(&job["state"]),
        time(&job["since_ms"]),
        text(&job["desired"]),
        job["revision"]
    );
    if says(job) != "–" {
        lines.push_str(&format!("{}\n", says(job)));
    }
    for stage in items_of(&job["outcome"]["at_stake"]) {
        lines.push_str(&format!(
            "at stake: the state of {} ({})\n",
            text(&stage["name"]),
            text(&stage["id"])
        ));
    }
    lines.push_str(&format!(
        "snapshot {} of {}; watermark {}\n\n",
        job["snapshot"].as_u64().map_or("–".to_owned(), |number| number.to_string()),
        time(&job["snapshot_taken_ms"]),
        time(&job["watermark_ms"])
    ));
    let head = ["stage", "role", "in", "out", "late", "bad", "keys", "queue", "watermark"];
    let row = |stage: &Value| {
        [
            text(&stage["name"]),
            text(&stage["role"]),
            stage["rows_in"].to_string(),
            stage["rows_out"].to_string(),
            stage["late_rows"].to_string(),
            stage["bad_rows"].to_string(),
            stage["state_keys"].as_u64().map_or_else(String::new, |keys| keys.to_string()),
            stage["queued_bundles"].to_string(),
            time(&stage["watermark_ms"]),
        ]
    };
    lines + &table(head, items_of(&job["stages"]).map(row), |column| matches!(column, 0 | 1 | 7))
}

/// `thalweg pause`, `resume` and `restart`
pub fn change(arguments: &JobArguments, what: &str) -> u8 {
    operation(&arguments.server, &path(&arguments.job, &format!("/{what}")), None)
}

/// Asks for something that takes time, and waits for it.
fn operation(server: &ServerArguments, path: &str, body: Option<Value>) -> u8 {
    with_client(server, |client| {
        operation_shown(client, (path, body.as_ref()), server.json, job_state)
    })
}

fn job_state(operation: &Value) -> String {
    let (job, state) = (text(&operation["job"]), text(&operation["job_state"]));
    match operation["state"].as_str() {
        Some("done") => format!("{job}: {state}\n"),
        _ => format!("{job}: still {state}\n"),
    }
}

/// The same, with what is shown of it unless it has failed.
fn operation_shown(
    client: &thalweg_server::client::Client,
    (path, body): (&str, Option<&Value>),
    is_json: bool,
    show: impl FnOnce(&Value) -> String,
) -> Result<u8> {
    let found = client.ask("POST", path, body, true)?;
    if found.body["state"] != "failed" {
        return answer(&found, is_json, show);
    }
    let problem = serde_json::from_value(found.body["problem"].clone());
    let unknown = |_| {
        let state = text(&found.body["job_state"]);
        thalweg_server::Problem::new(409, "failed", format!("the job is {state}"))
    };
    refuse(&problem.unwrap_or_else(unknown), is_json)
}

/// `thalweg start`
pub fn start(arguments: &StartArguments) -> u8 {
    with_client(&arguments.server, |client| {
        let from = match arguments.from.as_str() {
            "newest" | "nothing" => json!(arguments.from),
            number => {
                let number: u64 = number.parse().map_err(|_| {
                    Error::plan(format!(
                        "--from {number}: give newest, nothing, or the number of a snapshot"
                    ))
                })?;
                json!({ "snapshot": number })
            }
        };
        let body = json!({
            "from": from, "drop_state": arguments.drop_state, "overwrite": arguments.overwrite,
        });
        let place = path(&arguments.job, "/start");
        operation_shown(client, (&place, Some(&body)), arguments.server.json, job_state)
    })
}

/// `thalweg stop`
pub fn stop(arguments: &StopArguments) -> u8 {
    let how = match arguments.how {
        StopWay::Snapshot => "snapshot",
        StopWay::Drain => "drain",
        StopWay::Cancel => "cancel",
    };
    let body = json!({ "how": how });
    operation(&arguments.server, &path(&arguments.job, "/stop"), Some(body))
}

/// The statements of a job and what goes with them.
#[cfg(feature = "flink")]
pub struct StatementsOfJob {
    /// The text as it was written.
    pub sql: String,
    /// What `${NAME}` stands for.
    pub params: Vec<(String, String)>,
    /// Options that are set before the first statement.
    pub settings: Vec<(String, String)>,
}

/// What a job of a server runs.
#[cfg(feature = "flink")]
pub fn statements_of(arguments: &ServerArguments, job: &str) -> Result<StatementsOfJob> {
    let client = super::client(arguments)?;
    let get = |rest: &str| -> Result<Value> {
        let found = client.ask("GET", &path(job, rest), None, false)?;
        match found.problem() {
            Some(problem) => Err(Error::plan(problem.detail)),
            None => Ok(found.body),
        }
    };
    let revision = get("")?["revision"].as_u64().unwrap_or(0);
    let found = get(&format!("/revisions/{revision}"))?;
    let pairs = |name: &str| {
        let values = found[name].as_object().into_iter().flatten();
        values.map(|(key, value)| (key.clone(), text(value))).collect()
    };
    Ok(StatementsOfJob {
        sql: text(&found["sql"]),
        params: pairs("params"),
        settings: pairs("settings"),
    })
}

/// Stops a job with a last snapshot, and waits for it.
#[cfg(feature = "flink")]
pub fn stop_with_snapshot(arguments: &ServerArguments, job: &str) -> Result<()> {
    let client = super::client(arguments)?;
    let body = json!({ "how": "snapshot" });
    let found = client.ask("POST", &path(job, "/stop"), Some(&body), true)?;
    if let Some(problem) = found.problem() {
        return Err(Error::plan(problem.detail));
    }
    match found.body["state"].as_str() {
        Some("done") => Ok(()),
        Some("failed") => Err(Error::io(format!(
            "'{job}' is not stopped: {}",
            text(&found.body["problem"]["detail"])
        ))),
        _ => Err(Error::io(format!("'{job}' is still {}", text(&found.body["job_state"])))
            .hint("it stops as it was asked to; move it then")),
    }
}

/// `thalweg approve`
pub fn approve(arguments: &ApproveArguments) -> u8 {
    let body = json!({ "what": arguments.stages });
    operation(&arguments.server, &path(&arguments.job, "/approve"), Some(body))
}

/// `thalweg submit`
pub fn submit(arguments: &SubmitArguments) -> u8 {
    with_client(&arguments.server, |client| {
        let file = &arguments.file;
        let mut body = statements_body(file, &arguments.params, &arguments.settings)?;
        let stem = file.file_stem().map(|stem| stem.to_string_lossy().to_lowercase());
        let name = arguments.name.clone().or(stem).unwrap_or_default();
        body["limits"] = json!({ "memory": arguments.memory_limit });
        body["tags"] = json!(arguments.tags);
        if !arguments.draft {
            body["desired"] = json!("running");
        }
        let approved = arguments.drop_state.then(|| "drop-state".to_owned());
        let wanted = [("dry_run", Some(arguments.dry_run.to_string())), ("approve", approved)];
        let place = with_parameters(&path(&name, ""), wanted);
        let found = client.ask("PUT", &place, Some(&body), false)?;
        answer(&found, arguments.server.json, |put| submitted(put, arguments))
    })
}

/// Statements of a file with what goes with them, as a request has them.
pub(super) fn statements_body(
    file: &Path,
    params: &[(String, String)],
    settings: &[(String, String)],
) -> Result<Value> {
    let sql = std::fs::read_to_string(file)
        .map_err(|error| Error::plan(format!("can't read {}: {error}", file.display())))?;
    let object =
        |pairs: &[(String, String)]| json!(pairs.iter().cloned().collect::<BTreeMap<_, _>>());
    Ok(json!({ "sql": sql, "params": object(params), "settings": object(settings) }))
}

fn submitted(put: &Value, arguments: &SubmitArguments) -> String {
    let would = if arguments.dry_run { " would be" } else { "" };
    let mut lines = format!("{}:{would} revision {}\n", text(&put["name"]), put["revision"]);
    lines.push_str(&state_lines(&put["diff"]));
    lines
}

/// What becomes of the state of stages, a line for each.
pub(super) fn state_lines(diff: &Value) -> String {
    let mut lines = String::new();
    for (word, stages) in [("kept", "kept"), ("begins empty", "empty"), ("dropped", "dropped")] {
        for stage in items_of(&diff[stages]) {
            let (name, id) = (text(&stage["name"]), text(&stage["id"]));
            lines.push_str(&format!("  {word}: {name} ({id})\n"));
        }
    }
    lines
}

/// `thalweg logs`
pub fn logs(arguments: &LogsArguments) -> u8 {
    print_log(&arguments.server, (&arguments.job, "/logs"), arguments.follow, log_line)
}

/// Prints what is written down about a job, and with `follows` what is to come.
fn print_log(
    server: &ServerArguments,
    (job, log): (&str, &str),
    follows: bool,
    line: fn(&Value) -> String,
) -> u8 {
    let place = path(job, log);
    match follows {
        false => get(server, &place, |body| items(body).map(line).collect()),
        true => with_client(server, |client| {
            print_lines(client, &format!("{place}?follow=true"), server.json, line)
        }),
    }
}

fn log_line(line: &Value) -> String {
    format!("{} {} {}\n", time(&line["at_ms"]), text(&line["level"]), text(&line["text"]))
}

/// `thalweg late`
pub fn late(arguments: &LateArguments) -> u8 {
    let limit = Some(arguments.limit.to_string());
    let wanted = [("limit", limit), ("stage", arguments.stage.clone())];
    let place = with_parameters(&path(&arguments.job, "/late"), wanted);
    get(&arguments.server, &place, late_rows)
}

fn late_rows(body: &Value) -> String {
    let number = |value: &Value| count(value.as_u64().unwrap_or(0));
    let mut shown = String::new();
    for stage in items_of(&body["stages"]) {
        shown.push_str(&format!(
            "{}: {} ingested = {} accepted + {} late; {} of the accepted were late for some windows\n",
            text(&stage["stage"]),
            number(&stage["ingested"]),
            number(&stage["accepted"]),
            number(&stage["late"]),
            number(&stage["partly_late"])
        ));
    }
    if let Some(lateness) = body.get("lateness") {
        let seconds =
            |key: &str| format!("{} s", lateness[key].as_i64().unwrap_or(0) as f64 / 1000.0);
        shown.push_str(&format!(
            "half of the {} that are kept were at most {} late, nine of ten {}, the latest {}\n",
            number(&body["kept"]),
            seconds("p50_ms"),
            seconds("p90_ms"),
            seconds("max_ms")
        ));
    }
    let header = ["stage", "time", "watermark", "late by", "missed", "row"];
    let row = |row: &Value| {
        [
            text(&row["stage"]),
            time(&row["time_ms"]),
            time(&row["watermark_ms"]),
            format!("{} s", row["late_ms"].as_i64().unwrap_or(0) as f64 / 1000.0),
            missed(row),
            row["row"].to_string(),
        ]
    };
    if items(body).next().is_none() {
        return format!("{shown}no row was late in this run\n");
    }
    shown + &table(header, items(body).map(row), |_| true)
}

/// The window that a late row was too late for.
fn missed(row: &Value) -> String {
    match row["windows_ended"].as_u64() {
        None => "–".to_owned(),
        Some(0 | 1) => format!("end {}", time(&row["window_end_ms"])),
        Some(more) => format!("end {} and {} later", time(&row["window_end_ms"]), more - 1),
    }
}

/// `thalweg dead`
pub fn dead(arguments: &DeadArguments) -> u8 {
    if let Some(ids) = &arguments.replay {
        return replay(arguments, ids);
    }
    let wanted = [
        ("limit", Some(arguments.limit.to_string())),
        ("table", arguments.table.clone()),
        ("replayed", arguments.replayed.then(|| "true".to_owned())),
    ];
    let place = with_parameters(&path(&arguments.job, "/dead-letters"), wanted);
    get(&arguments.server, &place, dead_letters)
}

fn replay(arguments: &DeadArguments, ids: &[String]) -> u8 {
    let body = json!({ "ids": ids, "table": arguments.table, "where": arguments.r#where });
    let place = path(&arguments.job, "/dead-letters/replay");
    with_client(&arguments.server, |client| {
        operation_shown(client, (&place, Some(&body)), arguments.server.json, replayed)
    })
}

fn replayed(operation: &Value) -> String {
    let letters = &operation["letters"];
    if letters.is_null() {
        return "listed: the job reads them, and their rows count from its next snapshot on\n"
            .to_owned();
    }
    let mut shown = format!(
        "{} rows were read again; {} could not be read this time either\n",
        letters["rows"], letters["refused"]
    );
    for reason in items_of(&letters["reasons"]) {
        shown.push_str(&format!("{}: {}\n", text(&reason[0]), text(&reason[1])));
    }
    shown
}

fn dead_letters(body: &Value) -> String {
    let row = |letter: &Value| {
        let place = format!("{}:{}", text(&letter["file"]), letter["line"]);
        let reason = text(&letter["reason"]);
        let reason = match letter["replay"].as_str() {
            Some("listed") => format!("to be read again; {reason}"),
            Some("done") => format!("read again; {reason}"),
            Some("refused") => format!("read again in vain: {reason}"),
            _ => reason,
        };
        let raw = text(&letter["raw"]).replace(['\n', '\r', '\t'], " ");
        [text(&letter["id"]), place, reason, raw]
    };
    let letters = table(["id", "place", "reason", "row"], items(body).map(row), |_| true);
    let bad = body["bad_rows"].as_u64().unwrap_or(0);
    let note = match items_of(&body["kept"]).next() {
        None => "no table keeps them: 'bad-data' = 'dead-letter' and 'dead-letter.path' do\n",
        Some(_) => "",
    };
    format!("{bad} rows of this run could not be read\n{note}{letters}")
}

/// `thalweg events`
pub fn events(arguments: &EventsArguments) -> u8 {
    print_log(&arguments.server, (&arguments.job, "/events"), arguments.follow, event_line)
}

fn event_line(event: &Value) -> String {
    let by = event["by"].as_str().map(|by| format!(" by {by}")).unwrap_or_default();
    let detail = event["detail"].as_str().map(|more| format!(": {more}")).unwrap_or_default();
    let (kind, text) = (text(&event["kind"]), text(&event["text"]));
    format!("{} {kind} {text}{by}{detail}\n", time(&event["at_ms"]))
}

/// `thalweg status`
pub fn status(arguments: &StatusArguments) -> u8 {
    if !arguments.ready {
        return get(&arguments.server, "/v1/version", |body| {
            format!("thalweg {}, {} jobs\n", text(&body["version"]), body["jobs"])
        });
    }
    with_client(&arguments.server, |client| {
        let found = client.ask("GET", "/readyz", None, false)?;
        print(&found.text)?;
        Ok(u8::from(found.status != 200))
    })
}

/// `thalweg query`
pub fn query(arguments: &QueryArguments) -> u8 {
    let body =
        json!({ "sql": arguments.sql, "limit": arguments.limit, "timeout": arguments.timeout });
    ask(&arguments.server, ("POST", "/v1/query", Some(&body)), |body| {
        let columns = items_of(&body["columns"]).map(|own| text(&own["name"]));
        let mut rows = vec![columns.collect::<Vec<_>>()];
        for row in items_of(&body["rows"]) {
            let cells = row.as_object().into_iter().flat_map(serde_json::Map::values);
            rows.push(cells.map(text).collect());
        }
        let cut = if body["is_cut"] == true { "… there is more\n" } else { "" };
        let as_of = match &body["as_of_ms"] {
            serde_json::Value::Null => String::new(),
            as_of => format!("as of {}\n", time(as_of)),
        };
        aligned(&rows, |_| true) + cut + &as_of
    })
}

/// `thalweg token`
pub fn token(arguments: &TokenArguments) -> u8 {
    match &arguments.command {
        TokenCommand::Create { name, role, lifetime, jobs, server } => {
            let body = json!({ "name": name, "role": role, "lifetime": lifetime, "jobs": jobs });
            ask(server, ("POST", "/v1/tokens", Some(&body)), |body| {
                format!("{}\n", text(&body["token"]))
            })
        }
        TokenCommand::Ls { server } => get(server, "/v1/tokens", tokens_table),
        TokenCommand::Rm { name, server } => {
            let place = format!("/v1/tokens/{}", encoded(name));
            ask(server, ("DELETE", &place, None), |_| String::new())
        }
    }
}

fn tokens_table(body: &Value) -> String {
    let row = |token: &Value| {
        [
            text(&token["name"]),
            text(&token["role"]),
            time(&token["created_ms"]),
            time(&token["expires_ms"]),
            token["jobs"].as_str().map_or("all".to_owned(), |prefix| format!("{prefix}…")),
        ]
    };
    table(["name", "role", "made", "ends", "jobs"], items(body).map(row), |_| true)
}
