//! What people and programs see of jobs that run: `top`, the live stream, taps, metrics.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use serde_json::Value;

use super::support::{PATIENCE, Place, Running, numbers_job};

const FAST: [&str; 2] = ["-o", "snapshots.interval=100 ms"];
/// More than a test waits for.
const ENDLESS: u64 = 1_000_000_000;

/// Waits until a job has been looked at twice, so that there are rates.
fn await_rates(server: &Running, job: &str) {
    server.await_job(job, "with rates", |job| job["now"]["in_per_s"].as_f64() > Some(0.0));
}

#[test]
fn top_shows_jobs_with_one_request() {
    let place = Place::new("top");
    let server = place.serve(&FAST);
    for name in ["quick", "slow"] {
        let pace = if name == "quick" { 500 } else { 20 };
        server.submit(name, &numbers_job(&format!("{name}.csv"), ENDLESS, pace), &[]);
        await_rates(&server, name);
    }
    let token = server.token("reader", "read");
    let (status, text) = server.ask("GET", "/v1/jobs?condition=held", &token, "", "");
    assert!(status == 200 && text.contains("\"items\":[]"), "{text}");
    let text = server.done(&["top", "--once"]);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].contains("2 workers") && lines[0].ends_with("2 jobs: 2 running"), "{text}");
    assert!(lines[1].starts_with("JOB") && lines[2].starts_with("quick  ▲ running"), "{text}");
    let sorted = server.done(&["top", "--json", "--sort", "in"]);
    let sorted: Value = serde_json::from_str(&sorted).expect("JSON");
    let rate = |place: usize| sorted["items"][place]["now"]["in_per_s"].as_f64();
    assert!(rate(0) > rate(1) && sorted["server"]["workers"] == 2, "{sorted}");
    let filtered = server.done(&["top", "--json", "--filter", "SLO"]);
    let filtered: Value = serde_json::from_str(&filtered).expect("JSON");
    assert_eq!(filtered["items"].as_array().map(Vec::len), Some(1), "{filtered}");
    assert_eq!(filtered["items"][0]["name"], "slow");
    server.terminate();
}

/// A stream of the server that is read line by line.
struct Stream(BufReader<TcpStream>);

impl Stream {
    fn open(server: &Running, path: &str, token: &str, headers: &str) -> Stream {
        let mut stream = TcpStream::connect(&server.address).expect("connected");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let host = &server.address;
        let request = format!(
            "GET {path} HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {token}\r\n{headers}\r\n"
        );
        stream.write_all(request.as_bytes()).expect("sent");
        let mut stream = Stream(BufReader::new(stream));
        assert!(stream.line("HTTP/1.1").contains("200"), "{path}");
        stream
    }

    /// The next line that begins so.
    fn line(&mut self, begin: &str) -> String {
        loop {
            let mut line = String::new();
            let read = self.0.read_line(&mut line).expect("a line");
            assert!(read > 0, "the stream has ended before '{begin}'");
            if line.starts_with(begin) {
                return line.trim_end().to_owned();
            }
        }
    }
}

#[test]
fn one_stream_has_all_that_a_page_shows() {
    let place = Place::new("live");
    let server = place.serve(&FAST);
    server.submit("a", &numbers_job("a.csv", ENDLESS, 500), &[]);
    server.await_state("a", "running");
    let token = server.token("reader", "read");
    let accept = "accept: text/event-stream\r\n";
    let mut events = Stream::open(&server, "/v1/live?topics=jobs,job:a", &token, accept);
    assert_eq!(events.line("event: "), "event: jobs");
    assert_eq!(events.line("id: "), "id: 1");
    let data = events.line("data: ");
    assert!(data.contains("\"name\":\"a\"") && data.contains("\"server\":{"), "{data}");
    assert_eq!(events.line("event: "), "event: job:a");
    assert!(events.line("data: ").contains("\"stages\":["));
    // A change of state comes at once.
    server.done(&["stop", "a"]);
    while !events.line("data: ").contains("\"state\":\"stopped\"") {}
    drop(events);
    let again = format!("{accept}last-event-id: 41\r\n");
    let mut events = Stream::open(&server, "/v1/live", &token, &again);
    assert_eq!(events.line("id: "), "id: 42", "numbers continue");
    let mut lines = Stream::open(&server, "/v1/live?topics=job:a", &token, "");
    assert!(lines.line("{").starts_with("{\"job\":{\"name\":\"a\""));
    for (path, wanted) in [("/v1/live?topics=x", 400), ("/v1/live?topics=job:b", 404)] {
        assert_eq!(server.ask("GET", path, &token, "", "").0, wanted, "{path}");
    }
    let others = server.done(&["token", "create", "team", "--jobs", "team-"]);
    let others = others.trim();
    assert_eq!(server.ask("GET", "/v1/live?topics=job:a", others, "", "").0, 400);
    let mut own = Stream::open(&server, "/v1/live", others, "");
    assert!(own.line("{").starts_with("{\"jobs\":[],"), "nothing of jobs of others");
    server.terminate();
}

#[test]
fn a_tap_shows_rows_and_the_job_writes_all_of_them() {
    let place = Place::new("tap");
    let server = place.serve(&FAST);
    server.submit("a", &numbers_job("a.csv", 4_000, 1_000), &[]);
    server.await_state("a", "running");
    let shown =
        server.done(&["tap", "a", "--table", "numbers", "--where", "n > 5", "--limit", "3"]);
    let rows: Vec<&str> = shown.lines().filter(|line| line.starts_with("+I")).collect();
    assert_eq!(rows.len(), 3, "{shown}");
    assert!(shown.starts_with("# numbers → ") && shown.contains("# 3 of "), "{shown}");
    let json = server.done(&["tap", "a", "--limit", "1", "--json"]);
    let row = json.lines().find(|line| line.contains("\"row\"")).expect("a row");
    let row: Value = serde_json::from_str(row).expect("JSON");
    assert!(row["row"]["n"].is_u64() && row["to"] == "kept", "{row}");
    let wrong = server.command(&["tap", "a", "--where", "nothing = 1"]);
    assert!(wrong.0 == 2 && wrong.1.contains("nothing"), "{wrong:?}");
    let wrong = server.command(&["tap", "a", "--where", "n = "]);
    assert_eq!(wrong.0, 2, "{wrong:?}");
    let wrong = server.command(&["tap", "a", "--table", "number"]);
    assert!(wrong.0 == 3 && wrong.1.contains("it has 'numbers'"), "{wrong:?}");
    let operator = server.token("operator", "operate");
    let (status, _) = server.ask("GET", "/v1/jobs/a/tail", &operator, "", "");
    assert_eq!(status, 403, "rows are data");
    server.await_state("a", "finished");
    assert_eq!(place.numbers("a.csv"), (1..=4_000).collect::<Vec<_>>(), "each once");
    let ended = server.command(&["tap", "a"]);
    assert!(ended.0 == 3 && ended.1.contains("does not run"), "{ended:?}");
    let log = std::fs::read_to_string(place.folder.join("audit.ndjson")).expect("a log");
    assert!(log.contains("/v1/jobs/a/tail"), "who looks at rows is written down");
    assert!(server.done(&["events", "a"]).contains("tap by user"));
    server.terminate();
}

#[test]
fn a_bundle_has_what_a_bug_report_needs() {
    let place = Place::new("bundle");
    let server = place.serve(&FAST);
    server.submit("a", &numbers_job("a.csv", ENDLESS, 500), &[]);
    await_rates(&server, "a");
    let file = place.folder.join("a.zip").display().to_string();
    let text = server.done(&["support-bundle", "a", "--file", &file]);
    assert!(text.starts_with(&file), "{text}");
    let bytes = std::fs::read(&file).expect("a file");
    let text = String::from_utf8_lossy(&bytes);
    for name in [
        "job.json",
        "revisions/0001.sql",
        "plan.txt",
        "why.txt",
        "reading.json",
        "config.json",
        "logs.json",
    ] {
        assert!(text.contains(name), "{name}");
    }
    assert!(text.contains("INSERT INTO kept SELECT n FROM numbers"), "its statements");
    let (status, text) = server.command(&["support-bundle", "a", "--file", &file]);
    assert!(status == 1 && text.contains("must not be there"), "{status}: {text}");
    let (status, _) = server.command(&["support-bundle", "b", "--file", &file]);
    assert_eq!(status, 3);
    server.terminate();
}

#[test]
fn rows_that_could_not_be_read_are_shown_with_their_place() {
    let place = Place::new("dead");
    let server = place.serve(&FAST);
    std::fs::write(place.folder.join("files/in.csv"), "1\nnone\n3\n\"4\n").expect("an input");
    let sql = "CREATE TABLE numbers (n BIGINT) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'in.csv',
                 'bad-data' = 'dead-letter', 'dead-letter.path' = 'bad.jsonl');
               CREATE TABLE kept (n BIGINT) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'out.csv');
               INSERT INTO kept SELECT n FROM numbers;";
    let (status, text) = server.submit("a", sql, &[]);
    assert_eq!(status, 0, "{text}");
    server.await_state("a", "finished");
    let text = server.done(&["dead", "a"]);
    assert!(text.starts_with("2 rows of this run could not be read"), "{text}");
    assert!(text.contains("in.csv:2") && text.contains("none"), "{text}");
    let one: Value =
        serde_json::from_str(&server.done(&["dead", "a", "--limit", "1", "--json"])).expect("JSON");
    assert_eq!(
        (&one["items"][0]["line"], one["items"].as_array().map(Vec::len)),
        (&4.into(), Some(1))
    );
    let operator = server.token("operator", "operate");
    let (status, _) = server.ask("GET", "/v1/jobs/a/dead-letters", &operator, "", "");
    assert_eq!(status, 403, "rows are data");
    server.terminate();
}

/// A job whose every tenth row is late for windows of a second, by ten seconds.
fn late_job(per_second: u64) -> String {
    format!(
        "CREATE TABLE numbers (
           n BIGINT, late AS MOD(n, 10) = 9,
           ts AS TO_TIMESTAMP_LTZ(n * 100 - CASE WHEN MOD(n, 10) = 9 THEN 10000 ELSE 0 END, 3),
           WATERMARK FOR ts AS ts
         ) WITH ('connector' = 'datagen', 'rows-per-second' = '{per_second}',
           'fields.n.kind' = 'sequence', 'fields.n.start' = '100', 'fields.n.end' = '{ENDLESS}');
         CREATE TABLE totals (total BIGINT) WITH ('connector' = 'blackhole');
         INSERT INTO totals SELECT SUM(n) FROM TUMBLE(TABLE numbers, DESCRIPTOR(ts), INTERVAL '1' SECOND)
           GROUP BY window_start, window_end;"
    )
}

#[test]
fn rows_that_were_late_are_shown_with_what_they_were_late_for() {
    let place = Place::new("late");
    let server = place.serve(&FAST);
    let (status, text) = server.submit("a", &late_job(1_000), &[]);
    assert_eq!(status, 0, "{text}");
    server.await_job("a", "with late rows", |job| job["late_rows"].as_u64() > Some(20));
    let text = server.done(&["late", "a", "--limit", "3"]);
    let counts = text.lines().next().unwrap_or_default();
    let numbers: Vec<u64> =
        counts.split([' ', ':']).filter_map(|word| word.replace(',', "").parse().ok()).collect();
    assert_eq!(numbers[0], numbers[1] + numbers[2], "accepted + late = ingested: {text}");
    assert!(text.contains("the latest ") && text.contains("watermark"), "{text}");
    let found: Value =
        serde_json::from_str(&server.done(&["late", "a", "--limit", "5", "--json"])).expect("JSON");
    let items = found["items"].as_array().expect("items");
    assert_eq!(items.len(), 5, "{found}");
    for item in items {
        let late_ms = item["watermark_ms"].as_i64().zip(item["time_ms"].as_i64());
        assert_eq!(late_ms.map(|(watermark, time)| watermark - time), item["late_ms"].as_i64());
        assert!(item["late_ms"].as_i64() > Some(8_000), "{item}");
        assert!(item["row"].as_object().is_some_and(|row| !row.is_empty()), "{item}");
    }
    let token = server.token("writer", "write");
    let next = found["next"].as_u64().expect("a number");
    let path = format!("/v1/jobs/a/late?after={}&limit=2", next - 2);
    let (status, text) = server.ask("GET", &path, &token, "", "");
    assert!(status == 200 && text.contains(&format!("\"number\":{next}")), "{text}");
    let operator = server.token("operator", "operate");
    assert_eq!(server.ask("GET", "/v1/jobs/a/late", &operator, "", "").0, 403, "rows are data");
    let wrong = server.command(&["late", "a", "--stage", "nothing"]);
    assert!(wrong.0 == 3 && wrong.1.contains("it has "), "{wrong:?}");
    server.done(&["stop", "a"]);
    let ended = server.command(&["late", "a"]);
    assert!(ended.0 == 3 && ended.1.contains("does not run"), "{ended:?}");
    server.terminate();
}

#[test]
fn a_tap_writes_a_test_that_passes() {
    let place = Place::new("record");
    let server = place.serve(&FAST);
    server.submit("a", &late_job(1_000), &[]);
    await_rates(&server, "a");
    let file = place.folder.join("a.test.md").display().to_string();
    let text = server.done(&["tap", "a", "--limit", "30", "--record", &file]);
    assert!(text.contains("30 rows") && text.contains("thalweg test"), "{text}");
    let again = server.command(&["tap", "a", "--limit", "3", "--record", &file]);
    assert!(again.0 == 2 && again.1.contains("replaces none"), "{again:?}");
    server.terminate();
    let test =
        std::process::Command::new(env!("CARGO_BIN_EXE_thalweg")).args(["test", &file]).output();
    let test = test.expect("running a test");
    let text = String::from_utf8_lossy(&test.stdout).into_owned();
    assert!(test.status.success() && text.ends_with("1 passed\n"), "{text}");
    let written = std::fs::read_to_string(&file).expect("a test");
    assert!(written.contains("input numbers") && written.contains("expect totals"), "{written}");
}

#[test]
fn the_documentation_is_part_of_the_program() {
    let place = Place::new("docs");
    let server = place.serve(&[]);
    let get = |path: &str| {
        let host = &server.address;
        server.raw(&format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n"))
    };
    let page = get("/docs/how-to/late-data.md");
    assert!(page.contains("200 OK") && page.contains("text/html"), "{page}");
    assert!(page.contains("<h1 id=") && page.contains("late rows"), "no token is needed: {page}");
    assert!(get("/docs").contains("location: /docs/README.md"));
    assert!(get("/docs/llms.txt").contains("/docs/cli.md"));
    assert!(get("/docs/errors").contains("# Problems"), "problems have pages of their own");
    assert!(get("/docs/nothing.md").contains("404 Not Found"));
    server.terminate();
    let run = |arguments: &[&str]| {
        let output =
            std::process::Command::new(env!("CARGO_BIN_EXE_thalweg")).args(arguments).output();
        let output = output.expect("running thalweg");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.code(), text + &String::from_utf8_lossy(&output.stderr))
    };
    assert!(run(&["docs"]).1.contains("how-to/late-data"));
    assert!(run(&["docs", "cli"]).1.starts_with("# Command line\n"));
    let found = run(&["docs", "--search", "WATERMARK FOR"]);
    assert!(found.0 == Some(0) && found.1.contains("how-to/late-data:"), "{found:?}");
    let missing = run(&["docs", "snapshot"]);
    assert!(missing.0 == Some(2) && missing.1.contains("did you mean 'snapshots'?"), "{missing:?}");
}

#[test]
fn metrics_are_for_programs_of_this_machine_unless_an_option_says_no() {
    let place = Place::new("metrics");
    let server = place.serve(&FAST);
    server.submit("a", &numbers_job("a.csv", ENDLESS, 500), &[]);
    server.await_state("a", "running");
    let get = |server: &Running, path: &str, headers: &str| {
        let host = &server.address;
        server.raw(&format!(
            "GET {path} HTTP/1.1\r\nhost: {host}\r\n{headers}connection: close\r\n\r\n"
        ))
    };
    assert!(get(&server, "/healthz", "").contains("200 OK"));
    let text = get(&server, "/metrics", "");
    for line in [
        "HTTP/1.1 200 OK",
        "process_resident_memory_bytes ",
        "process_cpu_seconds_total ",
        "process_open_fds ",
        "thalweg_workers 2",
        "thalweg_tap_rows_total{job=\"a\"} 0",
        "thalweg_http_request_duration_seconds_count{route=\"/v1/jobs/{job}\",method=\"PUT\",code=\"201\"} 1",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
    for path in ["/v1/jobs", "/metrics/", "/v1/config"] {
        assert!(get(&server, path, "").contains("401 Unauthorized"), "{path}");
    }
    let passed_on = get(&server, "/metrics", "x-forwarded-for: 203.0.113.9\r\n");
    assert!(passed_on.contains("401 Unauthorized"), "a proxy lets a stranger in");
    server.terminate();
    let server = place.serve(&["-o", "metrics.public=false"]);
    assert!(get(&server, "/metrics", "").contains("401 Unauthorized"));
    let token = server.token("prometheus", "read");
    assert_eq!(server.ask("GET", "/metrics", &token, "", "").0, 200);
    server.terminate();
}

/// A number of `/metrics`; `None` where there is no such series.
fn scraped(server: &Running, series: &str) -> Option<u64> {
    let host = &server.address;
    let request = format!("GET /metrics HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    let text = server.raw(&request);
    let value = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    value.map(|value| value.parse().expect("a number"))
}

/// Waits until this is true of a number of `/metrics`.
fn await_scraped(server: &Running, series: &str, is_there: impl Fn(u64) -> bool) -> u64 {
    let end = std::time::Instant::now() + PATIENCE;
    loop {
        let value = scraped(server, series);
        if let Some(value) = value.filter(|value| is_there(*value)) {
            return value;
        }
        assert!(std::time::Instant::now() < end, "{series} is {value:?}");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

#[test]
fn rows_are_committed_by_snapshots() {
    let place = Place::new("committed");
    let server = place.serve(&["-o", "snapshots.interval=1 h"]);
    server.submit("a", &numbers_job("out/", ENDLESS, 500), &[]);
    let committed = "thalweg_sink_committed_rows_total{job=\"a\",sink=\"kept\"}";
    let written = "thalweg_stage_output_rows_total{job=\"a\",stage=\"kept\"}";
    await_scraped(&server, written, |rows| rows > 50);
    assert_eq!(scraped(&server, committed), Some(0));
    let token = server.token("operator", "operate");
    let wait = "prefer: wait=30\r\n";
    assert_eq!(server.ask("POST", "/v1/jobs/a/snapshots", &token, wait, "").0, 200);
    let rows = await_scraped(&server, committed, |rows| rows > 0);
    let files = std::fs::read_dir(place.folder.join("files/out")).expect("the output");
    let names = files.map(|file| file.expect("a file").file_name().into_string().expect("a name"));
    let shown = names.filter(|name| !name.starts_with('.'));
    let shown: usize = shown.map(|name| place.numbers(&format!("out/{name}")).len()).sum();
    assert_eq!(shown as u64, rows, "what others can see");
    await_scraped(&server, written, |written| written > rows);
    assert_eq!(scraped(&server, committed), Some(rows), "the rest waits for the next snapshot");
    server.terminate();
}

#[test]
fn entries_of_state_and_bytes_that_are_left_are_numbers() {
    let place = Place::new("keys");
    let server = place.serve(&FAST);
    let files = place.folder.join("files");
    std::fs::create_dir_all(files.join("in")).expect("a folder");
    std::fs::write(files.join("in/a.csv"), "1\n2\n3\n4\n5\n").expect("a file");
    let sql = "CREATE TABLE n (n BIGINT) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'in/',
                 'source.monitor-interval' = '10 ms');
               CREATE TABLE o (k BIGINT, c BIGINT) WITH ('connector' = 'blackhole');
               INSERT INTO o SELECT MOD(n, 3), COUNT(*) FROM n GROUP BY MOD(n, 3);";
    server.submit("k", sql, &[]);
    let job = server.await_job("k", "with three keys", |job| {
        let stages = job["stages"].as_array().into_iter().flatten();
        stages.map(|stage| &stage["state_keys"]).any(|keys| keys.as_u64() == Some(3))
    });
    let stages = || job["stages"].as_array().expect("stages").iter();
    let stage = stages().find(|stage| stage["state_keys"] == 3).expect("the stage");
    let name = stage["name"].as_str().expect("a name");
    assert!(stages().all(|stage| stage["role"] == "operator" || stage["state_keys"].is_null()));
    let keys = format!("thalweg_stage_state_keys{{job=\"k\",stage=\"{name}\"}}");
    await_scraped(&server, &keys, |keys| keys == 3);
    // No connection, no reconnects; a record without an end is left.
    let source = "{job=\"k\",source=\"n\"}";
    assert_eq!(scraped(&server, &format!("thalweg_source_reconnects_total{source}")), None);
    await_scraped(&server, &format!("thalweg_source_lag_bytes{source}"), |bytes| bytes == 0);
    std::fs::write(files.join("in/b.csv"), "12").expect("a file");
    await_scraped(&server, &format!("thalweg_source_lag_bytes{source}"), |bytes| bytes == 2);
    // A sink without transactions has committed what it has written.
    let written =
        await_scraped(&server, "thalweg_stage_output_rows_total{job=\"k\",stage=\"o\"}", |rows| {
            rows > 0
        });
    let committed = "thalweg_sink_committed_rows_total{job=\"k\",sink=\"o\"}";
    assert_eq!(scraped(&server, committed), Some(written));
    let shown = server.done(&["describe", "k"]);
    assert!(shown.lines().any(|line| line.contains(name) && line.contains(" 3 ")), "{shown}");
    server.terminate();
}

/// A moment of a run that is over is answered from the files of the job.
#[test]
fn a_moment_before_a_restart_can_be_asked_why() {
    let place = Place::new("past");
    let server = place.serve(&FAST);
    server.submit("a", &numbers_job("a.csv", ENDLESS, 500), &[]);
    await_rates(&server, "a");
    let token = server.token("reader", "read");
    let now = server.done(&["why", "a", "--json"]);
    let now: Value = serde_json::from_str(&now).expect("JSON");
    let then_ms = now["why"]["at_ms"].as_i64().expect("a moment");
    server.terminate();
    let server = place.serve(&["--hold"]);
    let then = then_ms.to_string();
    let now = server.command(&["why", "a"]);
    assert!(now.0 == 3 && now.1.contains("does not run"), "{now:?}");
    let text = server.done(&["why", "a", "--at", &then]);
    assert!(text.starts_with("a: ") && text.contains("path      kept ← numbers"), "{text}");
    let why = server.done(&["why", "a", "--at", &then, "--json"]);
    let why: Value = serde_json::from_str(&why).expect("JSON");
    assert!(why["why"]["at_ms"].as_i64() <= Some(then_ms), "{why}");
    let (status, graph) = server.ask("GET", &format!("/v1/jobs/a/graph?at={then}"), &token, "", "");
    assert!(status == 200 && graph.contains("\"rows_in\""), "{graph}");
    let of_source = server.done(&["why", "a", "--at", &then, "--stage", "numbers", "--json"]);
    let of_source: Value = serde_json::from_str(&of_source).expect("JSON");
    assert_eq!(of_source["why"]["sink"], "numbers");
    let missing = server.command(&["why", "a", "--at", &then, "--stage", "number"]);
    assert!(missing.0 == 3 && missing.1.contains("it has 'numbers'"), "{missing:?}");
    let before = server.command(&["why", "a", "--at", "25 h"]);
    assert!(before.0 == 3 && before.1.contains("nothing is known of job a"), "{before:?}");
    let wrong = server.command(&["why", "a", "--at", "yesterday"]);
    assert!(wrong.0 == 2 && wrong.1.contains("a time of UTC"), "{wrong:?}");
    server.terminate();
}

#[test]
fn a_scrape_has_native_histograms_for_who_prefers_them() {
    let place = Place::new("native");
    let server = place.serve(&FAST);
    server.submit("a", &numbers_job("a.csv", ENDLESS, 500), &[]);
    await_rates(&server, "a");
    let scrape = |accept: &str| {
        let mut stream = TcpStream::connect(&server.address).expect("connected");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let host = &server.address;
        let request = format!(
            "GET /metrics HTTP/1.1\r\nhost: {host}\r\naccept: {accept}\r\nconnection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).expect("sent");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("an answer");
        let end = answer.windows(4).position(|at| at == b"\r\n\r\n").expect("a head");
        let body = answer.split_off(end + 4);
        (String::from_utf8(answer).expect("text").to_lowercase(), body)
    };
    let protobuf = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited";
    let (head, body) = scrape(&format!("{protobuf},text/plain;q=0.5"));
    assert!(head.contains("content-type: application/vnd.google.protobuf; proto="), "{head}");
    // The first metric: its length, the field 1, the length of its name.
    assert_eq!(&body[1..3], [0x0a, 18]);
    assert_eq!(&body[3..21], b"thalweg_build_info");
    let (head, body) = scrape("*/*");
    assert!(head.contains("content-type: text/plain; version=0.0.4"), "{head}");
    assert!(body.starts_with(b"# HELP thalweg_build_info"));
    server.terminate();
}
