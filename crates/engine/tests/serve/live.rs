//! Materialized tables: what readers see of a job that runs, of one that has stopped, and of one
//! whose server was killed.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::support::{PATIENCE, Place, Running};

const OPTIONS: [&str; 4] = ["-o", "snapshots.interval=100 ms", "-o", "start.deaths-max=0"];

/// Transfers between ten accounts: each takes from one what it gives to another.
fn transfers(end: u64, workers: u64) -> String {
    format!(
        "SET 'pipeline.workers' = '{workers}';
         CREATE TABLE transfers (n BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '3000',
           'fields.n.kind' = 'sequence', 'fields.n.start' = '1', 'fields.n.end' = '{end}');
         CREATE MATERIALIZED TABLE balances (PRIMARY KEY (account) NOT ENFORCED)
           FRESHNESS = INTERVAL '10' SECOND
           AS SELECT account, SUM(amount) AS balance, COUNT(*) AS entries
           FROM (SELECT MOD(n, 10) AS account, -MOD(n, 100) AS amount FROM transfers
                 UNION ALL SELECT MOD(n * 7 + 3, 10), MOD(n, 100) FROM transfers)
           GROUP BY account;"
    )
}

const SUMS: &str = "SELECT SUM(balance) AS total, SUM(entries) AS entries, COUNT(*) AS accounts FROM bank.balances";

fn ask(server: &Running, sql: &str) -> (i32, String) {
    server.command(&["query", sql, "--json"])
}

/// How many transfers the table has seen; fails if the version has half of one.
fn seen(server: &Running) -> u64 {
    let (status, text) = ask(server, SUMS);
    assert_eq!(status, 0, "{text}");
    let answer: Value = serde_json::from_str(&text).expect("JSON");
    assert!(answer["as_of_ms"].is_i64(), "{answer}");
    assert_eq!(answer["rows"].as_array().map(Vec::len), Some(1), "{answer}");
    let row = &answer["rows"][0];
    if row["accounts"] == 0 {
        return 0;
    }
    assert_eq!(row["total"], 0, "{answer}");
    let entries = row["entries"].as_u64().expect("a count");
    assert_eq!(entries % 2, 0, "{answer}");
    entries / 2
}

/// Waits until a version has more transfers than this; how many it has.
fn await_more(server: &Running, than: u64) -> u64 {
    let begun = Instant::now();
    loop {
        let is_there = ask(server, SUMS).0 == 0;
        let count = if is_there { seen(server) } else { 0 };
        if count > than {
            return count;
        }
        assert!(begun.elapsed() < PATIENCE, "{count}: {:?}", ask(server, SUMS));
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn no_version_has_half_a_transfer(workers: u64) {
    let place = Place::new(&format!("live-{workers}"));
    let server = place.serve(&OPTIONS);
    let end = 30_000;
    let (status, text) = server.submit("bank", &transfers(end, workers), &[]);
    assert_eq!(status, 0, "{text}");
    await_more(&server, 0);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = || {
            let mut last = 0;
            while !is_over.load(Ordering::SeqCst) {
                let now = seen(&server);
                assert!(now >= last, "{now} after {last}");
                last = now;
            }
        };
        let readers: Vec<_> = (0..3).map(|_| scope.spawn(reader)).collect();
        server.await_state("bank", "finished");
        is_over.store(true, Ordering::SeqCst);
        readers.into_iter().for_each(|reader| reader.join().expect("it has seen what is right"));
    });
    // The end of the input shows all of it, and the table stays when its job has ended.
    assert_eq!(seen(&server), end);
    let joined = "SELECT COUNT(*) AS n FROM bank.balances a JOIN bank.balances b ON a.account = b.account AND a.balance = b.balance";
    let (status, text) = ask(&server, joined);
    assert!(status == 0 && text.contains("\"n\":10"), "{text}");
    server.terminate();
}

#[test]
fn no_version_has_half_a_transfer_on_one_worker() {
    no_version_has_half_a_transfer(1);
}

#[test]
fn no_version_has_half_a_transfer_on_four_workers() {
    no_version_has_half_a_transfer(4);
}

#[test]
fn a_killed_server_shows_no_less_than_before() {
    let place = Place::new("live-kills");
    let mut server = place.serve(&OPTIONS);
    let (status, text) = server.submit("bank", &transfers(1_000_000, 2), &[]);
    assert_eq!(status, 0, "{text}");
    let mut before = await_more(&server, 0);
    for _ in 0..3 {
        before = before.max(await_more(&server, before));
        server.kill();
        server = place.serve(&OPTIONS);
        // The first version is that of the snapshot that the job resumes from.
        let now = await_more(&server, 0);
        assert!(now >= before, "{now} after {before}");
    }
    server.done(&["stop", "bank"]);
    server.await_state("bank", "stopped");
    assert!(seen(&server) >= before, "a stopped job's table can be read");
    let token = server.token("owner", "admin");
    let (status, text) = server.ask("DELETE", "/v1/jobs/bank", &token, "", "");
    assert!(status < 300, "{text}");
    let (status, text) = ask(&server, SUMS);
    assert!(status != 0 && text.contains("bank.balances"), "{text}");
    server.terminate();
}

/// The messages of a stream of changes until a version with all of these transfers; the rows that
/// they add up to.
fn followed(server: &Running, token: &str, transfers: u64) -> BTreeMap<u64, (i64, u64)> {
    let mut stream = TcpStream::connect(&server.address).expect("connected");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let request = format!(
        "GET /v1/jobs/bank/tables/balances/changes HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {token}\r\n\r\n",
        server.address
    );
    stream.write_all(request.as_bytes()).expect("sent");
    let mut rows = BTreeMap::new();
    let mut versions = 0;
    for line in BufReader::new(stream).lines() {
        // Lines between are those of the protocol.
        let Ok(message) = serde_json::from_str::<Value>(&line.expect("a line")) else { continue };
        if message["version"].is_object() {
            versions += 1;
            assert_eq!(message["version"]["rows"].as_u64(), Some(rows.len() as u64), "{message}");
            let (total, entries) = rows.values().fold((0, 0), |(a, b), (c, d)| (a + c, b + d));
            assert_eq!((total, entries % 2), (0, 0), "{rows:?}");
            if entries == 2 * transfers {
                assert!(versions > 2, "it was followed while it changed: {versions}");
                return rows;
            }
        }
        let row = &message["row"];
        let Some(account) = row["account"].as_u64() else { continue };
        let values =
            (row["balance"].as_i64().expect("a sum"), row["entries"].as_u64().expect("a count"));
        let before = match message["kind"].as_str() {
            Some("+I") => rows.insert(account, values).is_none(),
            _ => rows.remove(&account) == Some(values),
        };
        assert!(before, "{message} of {rows:?}");
    }
    panic!("the stream has ended: {rows:?}");
}

#[test]
fn a_table_is_followed_from_version_to_version() {
    let place = Place::new("live-followed");
    let server = place.serve(&OPTIONS);
    let end = 12_000;
    let (status, text) = server.submit("bank", &transfers(end, 2), &[]);
    assert_eq!(status, 0, "{text}");
    await_more(&server, 0);
    let (writer, reader) = (server.token("writer", "write"), server.token("reader", "read"));
    let place_of_rows = "/v1/jobs/bank/tables/balances/changes";
    assert_eq!(server.ask("GET", place_of_rows, &reader, "", "").0, 403, "rows are data");
    let (status, text) = server.ask("GET", "/v1/jobs/bank/tables", &reader, "", "");
    assert!(status == 200 && text.contains("\"primary_key\":[\"account\"]"), "{text}");
    let (status, text) = server.ask("GET", "/v1/jobs/bank/tables/none/changes", &writer, "", "");
    assert!(status == 404 && text.contains("no-such-table"), "{text}");
    let rows = followed(&server, &writer, end);
    let answer = ask(&server, "SELECT account, balance, entries FROM bank.balances").1;
    let answer: Value = serde_json::from_str(&answer).expect("JSON");
    let number = |value: &Value| value.as_i64().expect("a number");
    let read: BTreeMap<u64, (i64, u64)> = (answer["rows"].as_array().into_iter().flatten())
        .map(|row| {
            let entries = number(&row["entries"]) as u64;
            (number(&row["account"]) as u64, (number(&row["balance"]), entries))
        })
        .collect();
    assert_eq!(rows, read);
    server.terminate();
}

#[test]
fn what_cannot_be_kept_or_read_is_said() {
    let place = Place::new("live-errors");
    let server = place.serve(&["-o", "snapshots.interval=1 h"]);
    let refused = |name: &str, sql: &str, said: &str| {
        let (status, text) = server.submit(name, sql, &[]);
        assert!(status != 0 && text.contains(said), "{text}");
    };
    let numbers =
        "CREATE TABLE numbers (n BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '10');";
    refused(
        "keyless",
        &format!("{numbers} CREATE MATERIALIZED TABLE t AS SELECT n FROM numbers;"),
        "needs a primary key",
    );
    refused(
        "connected",
        &format!(
            "{numbers} CREATE MATERIALIZED TABLE t (PRIMARY KEY (n) NOT ENFORCED)
            WITH ('connector' = 'print') AS SELECT n FROM numbers;"
        ),
        "the engine keeps its rows",
    );
    let sql = format!(
        "{numbers} CREATE MATERIALIZED TABLE t (PRIMARY KEY (n) NOT ENFORCED) AS SELECT n FROM numbers;"
    );
    let (status, text) = server.submit("early", &sql, &[]);
    assert_eq!(status, 0, "{text}");
    server.await_state("early", "running");
    // It has taken no snapshot yet.
    let token = server.token("reader", "write");
    let body = "{\"sql\": \"SELECT * FROM early.t\"}";
    let (status, text) =
        server.ask("POST", "/v1/query", &token, "content-type: application/json\r\n", body);
    assert!(status >= 400 && text.contains("application/problem+json"), "{text}");
    assert!(text.contains("has no rows to show yet"), "{text}");
    let (status, text) = ask(&server, "SHOW MATERIALIZED TABLES FROM early");
    assert!(status == 0, "{text}");
    server.terminate();
}
