//! Commands about the jobs of a server.

use serde_json::{Value, json};
use thalweg::monitoring::numbers::count;
use thalweg_core::text::format_timestamp_millis;
use thalweg_core::{Error, Result};

use super::super::server_arguments::{
    ApproveArguments, DeadArguments, EventsArguments, JobArguments, JobsArguments, LateArguments,
    LogsArguments, QueryArguments, ServerArguments, StartArguments, StatusArguments, StopArguments,
    StopWay, SubmitArguments, TokenArguments, TokenCommand, WhyArguments,
};
use super::super::text_table::aligned;
use super::super::units;
use super::{answer, encoded, print, print_lines, refuse, with_client};

/// `thalweg ls`
pub fn list(arguments: &JobsArguments) -> u8 {
    with_client(&arguments.server, |client| {
        let mut path = "/v1/jobs?limit=500".to_owned();
        for (key, value) in [("state", &arguments.state), ("tag", &arguments.tag)] {
            if let Some(value) = value {
                path.push_str(&format!("&{key}={}", encoded(value)));
            }
        }
        answer(&client.ask("GET", &path, None, false)?, arguments.server.json, jobs_table)
    })
}

fn jobs_table(body: &Value) -> String {
    let head = ["job", "state", "in", "out", "late", "bad", "kept", "snapshot", "says"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for job in items(body) {
        let count = |name: &str| units::short_count(job[name].as_f64().unwrap_or(0.0));
        let kept = usize::try_from(job["state_bytes"].as_u64().unwrap_or(0)).unwrap_or(usize::MAX);
        rows.push(vec![
            text(&job["name"]),
            text(&job["state"]),
            count("rows_in"),
            count("rows_out"),
            count("late_rows"),
            count("bad_rows"),
            units::bytes(kept),
            job["snapshot"].as_u64().map_or("–".to_owned(), |number| number.to_string()),
            says(job),
        ]);
    }
    aligned(&rows, |column| matches!(column, 0 | 1 | 8))
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
    with_client(&arguments.server, |client| {
        let found = client.ask("GET", &path(&arguments.job, ""), None, false)?;
        answer(&found, arguments.server.json, description)
    })
}

/// `thalweg why`
pub fn why(arguments: &WhyArguments) -> u8 {
    with_client(&arguments.server, |client| {
        let moment = arguments.at.map_or_else(String::new, |at_ms| format!("at={at_ms}&"));
        let stage = arguments.stage.as_deref();
        let stage = stage.map_or_else(String::new, |stage| format!("stage={}", encoded(stage)));
        let why = path(&arguments.job, &format!("/why?{moment}{stage}"));
        let found = client.ask("GET", &why, None, false)?;
        answer(&found, arguments.server.json, |body| text(&body["text"]))
    })
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
    for stage in job["outcome"]["at_stake"].as_array().into_iter().flatten() {
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
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for stage in job["stages"].as_array().into_iter().flatten() {
        rows.push(vec![
            text(&stage["name"]),
            text(&stage["role"]),
            stage["rows_in"].to_string(),
            stage["rows_out"].to_string(),
            stage["late_rows"].to_string(),
            stage["bad_rows"].to_string(),
            stage["state_keys"].as_u64().map_or_else(String::new, |keys| keys.to_string()),
            stage["queued_bundles"].to_string(),
            time(&stage["watermark_ms"]),
        ]);
    }
    lines + &aligned(&rows, |column| matches!(column, 0 | 1 | 7))
}

/// `thalweg pause`, `resume` and `restart`
pub fn change(arguments: &JobArguments, what: &str) -> u8 {
    with_client(&arguments.server, |client| {
        let path = path(&arguments.job, &format!("/{what}"));
        operation(client, &path, None, arguments.server.json)
    })
}

/// Asks for something that takes time, and waits for it.
fn operation(
    client: &thalweg_server::client::Client,
    path: &str,
    body: Option<&Value>,
    is_json: bool,
) -> Result<u8> {
    operation_shown(client, (path, body), is_json, |operation| {
        let (job, state) = (text(&operation["job"]), text(&operation["job_state"]));
        match operation["state"].as_str() {
            Some("done") => format!("{job}: {state}\n"),
            _ => format!("{job}: still {state}\n"),
        }
    })
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
        operation(client, &path(&arguments.job, "/start"), Some(&body), arguments.server.json)
    })
}

/// `thalweg stop`
pub fn stop(arguments: &StopArguments) -> u8 {
    with_client(&arguments.server, |client| {
        let how = match arguments.how {
            StopWay::Snapshot => "snapshot",
            StopWay::Drain => "drain",
            StopWay::Cancel => "cancel",
        };
        let body = json!({ "how": how });
        operation(client, &path(&arguments.job, "/stop"), Some(&body), arguments.server.json)
    })
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
    with_client(&arguments.server, |client| {
        let body = json!({ "what": arguments.stages });
        operation(client, &path(&arguments.job, "/approve"), Some(&body), arguments.server.json)
    })
}

/// `thalweg submit`
pub fn submit(arguments: &SubmitArguments) -> u8 {
    with_client(&arguments.server, |client| {
        let file = &arguments.file;
        let sql = std::fs::read_to_string(file)
            .map_err(|error| Error::plan(format!("can't read {}: {error}", file.display())))?;
        let stem = file.file_stem().map(|stem| stem.to_string_lossy().to_lowercase());
        let name = arguments.name.clone().or(stem).unwrap_or_default();
        let pairs = |pairs: &[(String, String)]| -> Value {
            pairs
                .iter()
                .map(|(key, value)| (key.clone(), json!(value)))
                .collect::<serde_json::Map<_, _>>()
                .into()
        };
        let mut body = json!({
            "sql": sql, "params": pairs(&arguments.params), "settings": pairs(&arguments.settings),
            "limits": { "memory": arguments.memory_limit }, "tags": arguments.tags,
        });
        if !arguments.draft {
            body["desired"] = json!("running");
        }
        let mut place = path(&name, &format!("?dry_run={}", arguments.dry_run));
        if arguments.drop_state {
            place.push_str("&approve=drop-state");
        }
        let found = client.ask("PUT", &place, Some(&body), false)?;
        answer(&found, arguments.server.json, |put| submitted(put, arguments))
    })
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
    with_client(server, |client| {
        let place = path(job, log);
        if follows {
            return print_lines(client, &format!("{place}?follow=true"), server.json, line);
        }
        let found = client.ask("GET", &place, None, false)?;
        answer(&found, server.json, |body| items(body).map(line).collect())
    })
}

fn log_line(line: &Value) -> String {
    format!("{} {} {}\n", time(&line["at_ms"]), text(&line["level"]), text(&line["text"]))
}

/// `thalweg late`
pub fn late(arguments: &LateArguments) -> u8 {
    with_client(&arguments.server, |client| {
        let mut place = path(&arguments.job, &format!("/late?limit={}", arguments.limit));
        if let Some(stage) = &arguments.stage {
            place.push_str(&format!("&stage={}", encoded(stage)));
        }
        let found = client.ask("GET", &place, None, false)?;
        answer(&found, arguments.server.json, late_rows)
    })
}

fn late_rows(body: &Value) -> String {
    let number = |value: &Value| count(value.as_u64().unwrap_or(0));
    let mut shown = String::new();
    for stage in body["stages"].as_array().into_iter().flatten() {
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
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    for row in items(body) {
        rows.push(vec![
            text(&row["stage"]),
            time(&row["time_ms"]),
            time(&row["watermark_ms"]),
            format!("{} s", row["late_ms"].as_i64().unwrap_or(0) as f64 / 1000.0),
            missed(row),
            row["row"].to_string(),
        ]);
    }
    if rows.len() == 1 {
        return format!("{shown}no row was late in this run\n");
    }
    shown + &aligned(&rows, |_| true)
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
    with_client(&arguments.server, |client| {
        if let Some(ids) = &arguments.replay {
            return replay(client, arguments, ids);
        }
        let mut place = path(&arguments.job, &format!("/dead-letters?limit={}", arguments.limit));
        if let Some(table) = &arguments.table {
            place.push_str(&format!("&table={}", encoded(table)));
        }
        if arguments.replayed {
            place.push_str("&replayed=true");
        }
        let found = client.ask("GET", &place, None, false)?;
        answer(&found, arguments.server.json, dead_letters)
    })
}

fn replay(
    client: &thalweg_server::client::Client,
    arguments: &DeadArguments,
    ids: &[String],
) -> Result<u8> {
    let body = json!({ "ids": ids, "table": arguments.table, "where": arguments.r#where });
    let place = path(&arguments.job, "/dead-letters/replay");
    operation_shown(client, (&place, Some(&body)), arguments.server.json, replayed)
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
    for reason in letters["reasons"].as_array().into_iter().flatten() {
        shown.push_str(&format!("{}: {}\n", text(&reason[0]), text(&reason[1])));
    }
    shown
}

fn dead_letters(body: &Value) -> String {
    let mut rows = vec![["id", "place", "reason", "row"].map(str::to_owned).to_vec()];
    for letter in items(body) {
        let place = format!("{}:{}", text(&letter["file"]), letter["line"]);
        let reason = text(&letter["reason"]);
        let reason = match letter["replay"].as_str() {
            Some("listed") => format!("to be read again; {reason}"),
            Some("done") => format!("read again; {reason}"),
            Some("refused") => format!("read again in vain: {reason}"),
            _ => reason,
        };
        // A line is a row.
        let raw = text(&letter["raw"]).replace(['\n', '\r', '\t'], " ");
        rows.push(vec![text(&letter["id"]), place, reason, raw]);
    }
    let bad = body["bad_rows"].as_u64().unwrap_or(0);
    let kept = body["kept"].as_array().map_or(0, Vec::len);
    let note = match kept {
        0 => "no table keeps them: 'bad-data' = 'dead-letter' and 'dead-letter.path' do\n",
        _ => "",
    };
    format!("{bad} rows of this run could not be read\n{note}{}", aligned(&rows, |_| true))
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
    with_client(&arguments.server, |client| {
        if arguments.ready {
            let found = client.ask("GET", "/readyz", None, false)?;
            print(&found.text)?;
            return Ok(u8::from(found.status != 200));
        }
        let found = client.ask("GET", "/v1/version", None, false)?;
        answer(&found, arguments.server.json, |body| {
            format!("thalweg {}, {} jobs\n", text(&body["version"]), body["jobs"])
        })
    })
}

/// `thalweg query`
pub fn query(arguments: &QueryArguments) -> u8 {
    with_client(&arguments.server, |client| {
        let body = json!({
            "sql": arguments.sql, "limit": arguments.limit, "timeout": arguments.timeout,
        });
        let found = client.ask("POST", "/v1/query", Some(&body), false)?;
        answer(&found, arguments.server.json, |body| {
            let columns: Vec<String> = body["columns"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|own| text(&own["name"]))
                .collect();
            let mut rows = vec![columns];
            for row in body["rows"].as_array().into_iter().flatten() {
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
    })
}

/// `thalweg token`
pub fn token(arguments: &TokenArguments) -> u8 {
    match &arguments.command {
        TokenCommand::Create { name, role, lifetime, jobs, server } => {
            with_client(server, |client| {
                let body =
                    json!({ "name": name, "role": role, "lifetime": lifetime, "jobs": jobs });
                let found = client.ask("POST", "/v1/tokens", Some(&body), false)?;
                answer(&found, server.json, |body| format!("{}\n", text(&body["token"])))
            })
        }
        TokenCommand::Ls { server } => with_client(server, |client| {
            let found = client.ask("GET", "/v1/tokens", None, false)?;
            answer(&found, server.json, |body| {
                let mut rows =
                    vec![["name", "role", "made", "ends", "jobs"].map(str::to_owned).to_vec()];
                for token in items(body) {
                    rows.push(vec![
                        text(&token["name"]),
                        text(&token["role"]),
                        time(&token["created_ms"]),
                        time(&token["expires_ms"]),
                        token["jobs"]
                            .as_str()
                            .map_or("all".to_owned(), |prefix| format!("{prefix}…")),
                    ]);
                }
                aligned(&rows, |_| true)
            })
        }),
        TokenCommand::Rm { name, server } => with_client(server, |client| {
            let place = format!("/v1/tokens/{}", encoded(name));
            answer(&client.ask("DELETE", &place, None, false)?, server.json, |_| String::new())
        }),
    }
}
