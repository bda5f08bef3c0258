//! What a collector of OpenTelemetry gets, read with the messages that OpenTelemetry publishes
//! (`scripts/otlp_collector.py`). Skipped without a Python that has them, and says so.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use serde_json::Value;

use super::support::{PATIENCE, Place, numbers_job};

struct Collector {
    child: Child,
    port: String,
    requests: Receiver<Value>,
}

impl Drop for Collector {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Collector {
    /// One that refuses some requests first; `None` where Python is not there.
    fn start(refused: usize) -> Option<Collector> {
        let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut command = Command::new(python(&repository)?);
        command.arg(repository.join("scripts/otlp_collector.py")).arg(refused.to_string());
        let mut child = command.stdout(Stdio::piped()).spawn().expect("a collector");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let port = lines.next().expect("a port").expect("a line");
        let (sender, requests) = channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let _ = sender.send(serde_json::from_str(&line).expect("JSON"));
            }
        });
        Some(Collector { child, port, requests })
    }

    /// Requests up to one of which this is true.
    fn until(&self, what: &str, is_there: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        let (mut requests, end) = (Vec::new(), Instant::now() + PATIENCE);
        while !is_there(&requests) {
            let left = end.saturating_duration_since(Instant::now());
            let next = self.requests.recv_timeout(left);
            requests.push(next.unwrap_or_else(|_| panic!("no {what} in {requests:?}")));
        }
        requests
    }
}

/// A Python that has the messages.
fn python(repository: &Path) -> Option<PathBuf> {
    let named = std::env::var_os("THALWEG_PYTHON").map(PathBuf::from);
    let candidates = named.into_iter().chain([repository.join(".venv/bin/python")]);
    let has_them = |python: &PathBuf| {
        let mut check = Command::new(python);
        let check = check.args(["-c", "import opentelemetry.proto"]).stderr(Stdio::null());
        check.status().is_ok_and(|status| status.success())
    };
    let found = candidates.into_iter().find(has_them);
    if found.is_none() {
        let why = "no Python with opentelemetry-proto; `make venv` installs one";
        assert!(std::env::var("THALWEG_SKIPS").as_deref() != Ok("refuse"), "{why}");
        eprintln!("SKIPPED: {why}");
    }
    found
}

/// All values under this name, wherever they are.
fn under<'a>(value: &'a Value, name: &str, found: &mut Vec<&'a Value>) {
    match value {
        Value::Object(fields) => {
            for (field, value) in fields {
                match value {
                    Value::Array(items) if field == name => found.extend(items),
                    _ => under(value, name, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| under(item, name, found)),
        _ => {}
    }
}

fn all<'a>(requests: &'a [Value], name: &str) -> Vec<&'a Value> {
    let mut found = Vec::new();
    let taken = requests.iter().filter(|request| request["is_refused"] == false);
    taken.for_each(|request| under(&request["message"], name, &mut found));
    found
}

fn named<'a>(items: &[&'a Value], name: &str) -> Option<&'a Value> {
    items.iter().copied().find(|item| item["name"] == name)
}

fn attribute<'a>(item: &'a Value, name: &str) -> &'a Value {
    let attributes = item["attributes"].as_array().expect("attributes");
    let found = attributes.iter().find(|pair| pair["key"] == name).expect("an attribute");
    &found["value"]["stringValue"]
}

/// A number of 64 bits, which JSON has as text.
fn number(value: &Value) -> u64 {
    value.as_str().map_or(0, |text| text.parse().expect("a number"))
}

#[test]
fn a_collector_gets_metrics_and_what_took_time() {
    let Some(collector) = Collector::start(3) else { return };
    let place = Place::new("otlp");
    let endpoint = format!("otlp.endpoint=http://127.0.0.1:{}", collector.port);
    let options = ["-o", "snapshots.interval=100 ms", "-o", &endpoint, "-o", "otlp.interval=0.5"];
    let headers = [("OTEL_EXPORTER_OTLP_HEADERS", Path::new("x-key=secret, x-team = a"))];
    let server = place.serve_with(&options, &headers);
    server.submit("a", &numbers_job("a.csv", 1_000_000_000, 500), &["--draft"]);
    server.done(&["start", "a"]);
    server.await_snapshot("a");
    let requests = collector.until("span of a snapshot and times of writes", |requests| {
        let times = named(&all(requests, "metrics"), "thalweg.sink.write.seconds").is_some();
        let spans = all(requests, "spans");
        times && ["start", "snapshot"].iter().all(|name| named(&spans, name).is_some())
    });
    assert!(requests.iter().all(|request| request["is_known"] == true), "{requests:?}");
    assert!(requests.iter().any(|request| request["is_refused"] == true));
    assert!(requests.iter().all(|request| {
        let headers = &request["headers"];
        headers["x-key"] == "secret" && headers["x-team"] == "a"
    }));
    check_metrics(&all(&requests, "metrics"));
    check_spans(&all(&requests, "spans"));
    let config = server.done(&["status", "--json"]);
    assert!(!config.contains("secret"), "headers are shown nowhere");
    server.done(&["stop", "a"]);
    collector.until("stop", |requests| named(&all(requests, "spans"), "stopping").is_some());
    server.terminate();
}

#[test]
fn a_collector_gets_what_happened_to_jobs() {
    let Some(collector) = Collector::start(1) else { return };
    let place = Place::new("otlp-events");
    let endpoint = format!("otlp.endpoint=http://127.0.0.1:{}", collector.port);
    let server = place.serve(&["-o", "snapshots.interval=100 ms", "-o", &endpoint]);
    let old = numbers_job("a.csv", 1_000_000_000, 500);
    server.submit("a", &old, &[]);
    server.await_snapshot("a");
    server.submit("a", &old.replace("FROM numbers", "FROM numbers WHERE n > 0"), &[]);
    let failing = "CREATE TABLE n (n BIGINT) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'no.csv');
                   CREATE TABLE o (n BIGINT) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'o.csv');
                   SET 'restart-strategy.type' = 'none'; INSERT INTO o SELECT n FROM n;";
    server.submit("bad", failing, &[]);
    let problem = server.await_state("bad", "failed")["outcome"]["problem"].clone();
    let has = |records: &[&Value], job: &str, what: &str| {
        let of_job = records.iter().filter(|record| attribute(record, "thalweg.job") == job);
        of_job.into_iter().any(|record| text_of(record).starts_with(what))
    };
    let requests = collector.until("upgrade and failure", |requests| {
        let records = all(requests, "logRecords");
        has(&records, "a", "revision 1 → 2") && has(&records, "bad", "failed")
    });
    assert!(requests.iter().all(|request| request["is_known"] == true), "{requests:?}");
    let records = all(&requests, "logRecords");
    let record = |job: &str, what: &str| {
        let is_it = |record: &&&Value| {
            attribute(record, "thalweg.job") == job && text_of(record).starts_with(what)
        };
        records.iter().find(is_it).unwrap_or_else(|| panic!("no {what} of {job}: {records:?}"))
    };
    let failed = record("bad", "failed: ");
    assert_eq!(failed["severityNumber"], "SEVERITY_NUMBER_ERROR");
    assert_eq!(
        (&failed["severityText"], &failed["eventName"]),
        (&"ERROR".into(), &"thalweg.state".into())
    );
    assert_eq!(attribute(failed, "thalweg.code"), &problem["code"]);
    let detail = problem["detail"].as_str().expect("a text");
    assert_eq!(text_of(failed), format!("failed: {detail}"));
    assert_eq!(failed["traceId"].as_str().map(str::len), Some(24), "16 bytes in base64");
    let events: Value =
        serde_json::from_str(&server.done(&["events", "bad", "--json"])).expect("JSON");
    let events = events["items"].as_array().expect("events").iter();
    let at_ms = events.filter(|event| event["text"] == "failed").map(|event| &event["at_ms"]);
    let at_ms: Vec<u64> = at_ms.map(|at_ms| at_ms.as_u64().expect("a moment")).collect();
    assert_eq!(at_ms, [number(&failed["timeUnixNano"]) / 1_000_000]);
    let upgrade = record("a", "revision 1 → 2");
    assert_eq!(upgrade["severityNumber"], "SEVERITY_NUMBER_INFO");
    assert_eq!(upgrade["eventName"], "thalweg.upgrade");
    assert_eq!(record("a", "running")["severityNumber"], "SEVERITY_NUMBER_INFO");
    server.terminate();
}

/// What a record of a log says.
fn text_of(record: &Value) -> &str {
    record["body"]["stringValue"].as_str().expect("a text")
}

fn check_metrics(metrics: &[&Value]) {
    let rows = named(metrics, "thalweg.stage.input.rows").expect("a metric");
    assert_eq!(rows["unit"], "{row}");
    let sum = &rows["sum"];
    assert_eq!(sum["aggregationTemporality"], "AGGREGATION_TEMPORALITY_CUMULATIVE");
    assert_eq!(sum["isMonotonic"], true);
    let point = &sum["dataPoints"][0];
    assert_eq!(attribute(point, "job"), "a");
    assert!(point["asDouble"].as_f64() > Some(0.0), "{point}");
    assert!(number(&point["timeUnixNano"]) > number(&point["startTimeUnixNano"]), "{point}");
    let writes = named(metrics, "thalweg.sink.write.seconds").expect("a metric");
    assert_eq!(writes["unit"], "s");
    let point = &writes["exponentialHistogram"]["dataPoints"][0];
    let in_buckets = point["positive"]["bucketCounts"].as_array().expect("buckets").iter();
    let in_buckets: u64 = in_buckets.map(number).sum();
    assert_eq!(point["scale"], 3);
    assert_eq!(number(&point["count"]), in_buckets + number(&point["zeroCount"]), "{point}");
    // The mean lies between the ends of the buckets.
    let mean_s = point["sum"].as_f64().expect("a sum") / number(&point["count"]) as f64;
    let offset = point["positive"]["offset"].as_f64().unwrap_or(0.0);
    let buckets = point["positive"]["bucketCounts"].as_array().map_or(0, Vec::len) as f64;
    let end_s = ((offset + buckets) / 8.0).exp2();
    assert!(mean_s <= end_s, "{mean_s} s, up to {end_s} s");
    let state = named(metrics, "thalweg.job.state").expect("a metric");
    assert_eq!(state["gauge"]["dataPoints"][0]["asDouble"], 1.0);
}

fn check_spans(spans: &[&Value]) {
    let begin = |span: &Value| number(&span["startTimeUnixNano"]);
    let end = |span: &Value| number(&span["endTimeUnixNano"]);
    let start = named(spans, "start").expect("a span");
    assert_eq!(attribute(start, "thalweg.job"), "a");
    let planning = named(spans, "planning").expect("a span");
    assert_eq!(planning["traceId"], start["traceId"]);
    assert_eq!(planning["parentSpanId"], start["spanId"]);
    let snapshot = named(spans, "snapshot").expect("a span");
    for name in ["cut", "write", "commit"] {
        let own =
            |span: &&&Value| span["name"] == name && span["parentSpanId"] == snapshot["spanId"];
        let part = spans.iter().find(own).expect("a part of the snapshot");
        assert_eq!(part["traceId"], snapshot["traceId"]);
        assert!(begin(part) >= begin(snapshot) && end(part) <= end(snapshot), "{part}");
    }
    let request = spans.iter().find(|span| span["kind"] == "SPAN_KIND_SERVER").expect("a request");
    assert!(attribute(request, "http.route").as_str().expect("text").starts_with("/v1/"));
}

/// Each line for programs is an object, also that of a job that fails.
#[test]
fn lines_for_programs_are_json() {
    let place = Place::new("log-json");
    let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg"));
    command.args(["serve", "--listen", "127.0.0.1:0", "-o", "log.format=json", "--data-dir"]);
    command.arg(&place.folder).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("a server");
    let lines = BufReader::new(child.stderr.take().expect("piped")).lines();
    let mut lines = lines.map(|line| {
        let line = line.expect("a line");
        serde_json::from_str::<Value>(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    });
    let mut until = |what: &str| {
        let found = lines.find(|line| line["msg"].as_str().is_some_and(|msg| msg.contains(what)));
        found.unwrap_or_else(|| panic!("the server has ended before '{what}'"))
    };
    assert_eq!(until("commands of this machine")["target"], "server");
    let file = place.folder.join("bad.sql");
    let sql = "CREATE TABLE n (n BIGINT) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'missing.csv');
               CREATE TABLE o (n BIGINT) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'o.csv');
               SET 'restart-strategy.type' = 'none'; INSERT INTO o SELECT n FROM n;";
    std::fs::write(&file, sql).expect("a file");
    let mut submit = Command::new(env!("CARGO_BIN_EXE_thalweg"));
    submit.arg("submit").arg(&file).arg("--data-dir").arg(&place.folder);
    submit.output().expect("a command");
    let line = until("missing.csv");
    assert_eq!((&line["job"], &line["level"]), (&"bad".into(), &"error".into()), "{line}");
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().expect("kill").success());
    assert!(child.wait().expect("it ends").success());
}
