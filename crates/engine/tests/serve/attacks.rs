//! Who is kept out: pages of others, requests without tokens, requests that are too large or too
//! slow, and statements that lead out of the allowed places.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use super::support::{Place, Running};

const JSON: &str = "content-type: application/json\r\n";

#[test]
fn strangers_and_pages_of_others_are_refused() {
    let place = Place::new("strangers");
    let server = place.serve(&[]);
    let token = server.token("ci", "admin");
    let status = |headers: &str, token: &str| server.ask("GET", "/v1/jobs", token, headers, "").0;
    assert_eq!(status("", &token), 200);
    assert_eq!(status("", "twt_wrong"), 401);
    assert_eq!(status("", ""), 401);
    assert_eq!(status("origin: http://evil.example\r\n", &token), 403);
    assert_eq!(status("origin: null\r\n", &token), 403);
    assert_eq!(status("sec-fetch-site: cross-site\r\n", &token), 403);
    let rebound = server.raw(&format!(
        "GET /v1/jobs HTTP/1.1\r\nhost: evil.example\r\nauthorization: Bearer {token}\r\nconnection: close\r\n\r\n"
    ));
    assert!(rebound.starts_with("HTTP/1.1 403"), "{rebound}");
    // What a form of another page could send.
    let body = "{\"sql\":\"\"}";
    let (form, _) =
        server.ask("POST", "/v1/validate", &token, "content-type: text/plain\r\n", body);
    assert_eq!(form, 415);
    let (_, text) = server.ask("GET", "/v1/jobs", &token, "", "");
    for header in ["content-security-policy: default-src 'none'", "x-content-type-options: nosniff"]
    {
        assert!(text.contains(header), "{text}");
    }
    assert!(!text.contains("access-control-allow-origin"));
    assert!(
        server
            .raw("GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
            .contains("200 OK")
    );
}

#[test]
fn roles_and_the_audit_log() {
    let place = Place::new("roles");
    let server = place.serve(&[]);
    let reader = server.token("reader", "read");
    assert_eq!(server.ask("GET", "/v1/jobs", &reader, "", "").0, 200);
    assert_eq!(server.ask("POST", "/v1/jobs/a/stop", &reader, "", "").0, 403);
    assert_eq!(server.ask("PUT", "/v1/jobs/a", &reader, JSON, "{\"sql\":\"x\"}").0, 403);
    assert_eq!(server.ask("GET", "/v1/tokens", &reader, "", "").0, 403);
    assert_eq!(server.ask("POST", "/v1/query", &reader, JSON, "{\"sql\":\"SELECT 1\"}").0, 403);
    server.done(&["token", "rm", "reader"]);
    assert_eq!(server.ask("GET", "/v1/jobs", &reader, "", "").0, 401);
    let log = fs::read_to_string(place.folder.join("audit.ndjson")).expect("a log");
    assert!(log.contains("\"by\":\"reader\"") && log.contains("/v1/jobs/a/stop"), "{log}");
    assert!(!log.contains(&reader), "no token is in it");
    assert_eq!(thalweg_server::verify_audit(&log), None);
    let mode = |name: &str| {
        fs::metadata(place.folder.join(name)).expect("there").permissions().mode() & 0o777
    };
    assert_eq!((mode(""), mode("tokens.json"), mode("thalweg.sock")), (0o700, 0o600, 0o600));
}

#[test]
fn what_is_too_large_or_too_slow_is_cut_off() {
    let place = Place::new("large");
    let server = place.serve(&[]);
    let token = server.token("ci", "admin");
    let body = format!("{{\"sql\":\"{}\"}}", "x".repeat(3 << 20));
    assert_eq!(server.ask("POST", "/v1/validate", &token, JSON, &body).0, 413);
    let long = format!("{{\"sql\":\"{}\"}}", "x".repeat((1 << 20) + 1));
    assert_eq!(server.ask("POST", "/v1/validate", &token, JSON, &long).0, 413);
    let deep = "[".repeat(100_000);
    assert_eq!(server.ask("POST", "/v1/validate", &token, JSON, &deep).0, 400);
    let head = server.raw(&format!("GET / HTTP/1.1\r\nx: {}\r\n\r\n", "x".repeat(64 << 10)));
    assert!(head.is_empty() || head.starts_with("HTTP/1.1 4"), "{head}");
    let mut slow = TcpStream::connect(&server.address).expect("connected");
    slow.write_all(b"GET /healthz HTTP/1.1\r\n").expect("sent");
    slow.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
    let begun = Instant::now();
    let mut rest = Vec::new();
    let _ = slow.read_to_end(&mut rest);
    assert!(begun.elapsed() < Duration::from_secs(50), "the server has closed it");
    assert_eq!(server.ask("GET", "/v1/jobs", &token, "", "").0, 200, "others are served");
}

fn job_reading(options: &str) -> String {
    format!(
        "CREATE TABLE t (line STRING) WITH ({options}); CREATE TABLE o (line STRING) WITH ('connector' = 'blackhole'); \
         INSERT INTO o SELECT line FROM t"
    )
}

fn refused(server: &Running, options: &str, why: &str) {
    let sql = job_reading(options);
    // Before anything is opened, also by `validate` and `--dry-run`.
    for more in [&[][..], &["--dry-run"]] {
        let (status, text) = server.submit("escape", &sql, more);
        assert!(status == 2 && text.contains(why), "{options}: {text}");
    }
    let (status, text) = server.command(&[
        "query",
        &format!("CREATE TABLE t (line STRING) WITH ({options}); SELECT * FROM t"),
    ]);
    assert!(status == 2 && text.contains(why), "{options}: {text}");
}

#[test]
fn what_is_in_other_folders_is_not_said() {
    let place = Place::new("oracle");
    let server = place.serve(&[]);
    let token = server.token("ci", "write");
    let outside = place.folder.join("secrets");
    fs::write(outside.join("there.csv"), "hunter2\n").expect("a file");
    let said = |path: &str| {
        let path = if path.starts_with('/') {
            path.to_owned()
        } else {
            outside.join(path).display().to_string()
        };
        let sql = job_reading(&format!(
            "'connector' = 'filesystem', 'format' = 'csv', 'path' = '{path}'"
        ));
        let body = serde_json::json!({ "sql": sql }).to_string();
        let (status, text) = server.ask("POST", "/v1/validate", &token, JSON, &body);
        let answer = text.split("\r\n\r\n").last().unwrap_or_default().replace(&path, "PATH");
        assert!(status == 200 && answer.contains("\"is_valid\":false"), "{path}: {text}");
        assert!(!answer.contains("--allow-path") && answer.contains("allowed-roots"), "{answer}");
        // Where the mistake stands depends on the length of the path.
        serde_json::from_str::<serde_json::Value>(&answer).expect("JSON")["diagnostics"][0]["message"].clone()
    };
    let missing = said("missing.csv");
    for path in ["there.csv", "*.csv", "no*.csv", "", "/etc/passwd", "/etc/no-such-file", "/root/x"]
    {
        assert_eq!(said(path), missing, "{path}");
    }
    let letters = "'connector' = 'filesystem', 'format' = 'csv', 'path' = 'in.csv', 'bad-data' = 'dead-letter', \
         'dead-letter.path' = '/etc/thalweg-letters'";
    refused(&server, letters, "outside");
    let tables = "CREATE TABLE o (line STRING) WITH ('connector' = 'blackhole');";
    for statement in [
        "EXECUTE PLAN '/etc/passwd'",
        "COMPILE AND EXECUTE PLAN '/etc/p.json' FOR INSERT INTO o VALUES ('a')",
        "ADD JAR '/root/x.jar'; INSERT INTO o VALUES ('a')",
    ] {
        let (status, text) = server.submit("escape", &format!("{tables} {statement}"), &[]);
        assert!(status == 2 && text.contains("outside the allowed folders"), "{statement}: {text}");
        assert!(!text.contains("--allow-path"), "{statement}: {text}");
    }
}

#[test]
fn a_server_asks_no_cloud_for_its_secrets() {
    let place = Place::new("metadata");
    let server = place.serve(&[]);
    for host in [
        "169.254.169.254",
        "2852039166",
        "0xa9fea9fe",
        "0251.0376.0251.0376",
        "[::ffff:169.254.169.254]",
        "[fe80::1]",
        "metadata.google.internal",
        "100.100.100.200",
    ] {
        refused(
            &server,
            &format!("'connector' = 'http', 'format' = 'json', 'url' = 'http://{host}/latest'"),
            "not allowed",
        );
    }
    let near = "'connector' = 'http', 'format' = 'json', 'url' = 'http://127.0.0.1:1/'";
    let (status, text) = server.submit("near", &job_reading(near), &["--dry-run"]);
    assert_eq!(status, 0, "other hosts are allowed: {text}");
}

#[test]
fn a_secret_is_in_no_output() {
    let place = Place::new("secret");
    let server = place.serve(&["-o", "snapshots.interval=100 ms"]);
    let token = server.token("ci", "admin");
    fs::write(place.folder.join("secrets/pg"), "hunter2\n").expect("a secret");
    let table = "CREATE TABLE t (line STRING, PRIMARY KEY (line) NOT ENFORCED) WITH ('connector' = 'jdbc', 'url' = 'jdbc:postgresql://127.0.0.1:1/db',
           'table-name' = 't', 'username' = 'me', 'password' = '${secret:pg}');";
    let sql = format!(
        "{table} CREATE TABLE o (line STRING) WITH ('connector' = 'blackhole'); INSERT INTO o SELECT line FROM t"
    );
    let (status, text) = server.submit("a", &sql, &[]);
    assert_eq!(status, 0, "{text}");
    server.await_state("a", "failed");
    let body = serde_json::json!({ "sql": sql }).to_string();
    let shown = serde_json::json!({ "sql": format!("{table} SHOW CREATE TABLE t") }).to_string();
    let mut outputs = Vec::new();
    for path in
        ["", "/revisions", "/revisions/1", "/events", "/logs", "/runs", "/why", "/bundle.zip"]
    {
        outputs.push(server.ask("GET", &format!("/v1/jobs/a{path}"), &token, "", "").1);
    }
    for path in ["/v1/jobs", "/metrics", "/v1/config", "/v1/audit"] {
        outputs.push(server.ask("GET", path, &token, "", "").1);
    }
    for path in ["/v1/explain", "/v1/validate"] {
        outputs.push(server.ask("POST", path, &token, JSON, &body).1);
    }
    let created = server.ask("POST", "/v1/query", &token, JSON, &shown).1;
    assert!(created.contains("${secret:pg}"), "the reference stays: {created}");
    outputs.push(created);
    for output in &outputs {
        assert!(!output.contains("hunter2"), "{output}");
    }
    assert_eq!(files_with("hunter2", &place.folder), [place.folder.join("secrets/pg")]);
    server.terminate();
}

/// The files below a folder that have this text.
fn files_with(text: &str, folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files_with(text, &path));
        } else if fs::read(&path).is_ok_and(|bytes| String::from_utf8_lossy(&bytes).contains(text))
        {
            found.push(path);
        }
    }
    found
}

#[test]
fn statements_stay_in_their_places() {
    let place = Place::new("escape");
    let hosts = [
        "-o",
        "allowed-hosts=kafka.internal",
        "-o",
        "allowed-connectors=filesystem;http;blackhole",
    ];
    let server = place.serve(&hosts);
    let token = server.token("ci", "admin");
    fs::write(place.folder.join("secrets/pg"), "hunter2\n").expect("a secret");
    std::os::unix::fs::symlink(place.folder.join("secrets"), place.folder.join("files/link"))
        .expect("a link");
    let tokens = place.folder.join("tokens.json").display().to_string();
    for path in ["../tokens.json", "/etc/passwd", "../secrets/pg", "link/pg", tokens.as_str()] {
        refused(
            &server,
            &format!("'connector' = 'filesystem', 'format' = 'csv', 'path' = '{path}'"),
            "outside",
        );
    }
    refused(&server, "'connector' = 'datagen'", "datagen");
    for url in ["http://169.254.169.254/latest", "http://127.0.0.1:1/", "http://localhost/"] {
        refused(
            &server,
            &format!("'connector' = 'http', 'format' = 'json', 'url' = '{url}'"),
            "not allowed",
        );
    }
    // What is allowed is not for statements to say.
    let (status, text) =
        server.submit("a", "SET 'network.allowed-targets' = '*'; INSERT INTO x SELECT 1", &[]);
    assert!(status == 2 && text.contains("network.allowed-targets"), "{text}");
    for name in ["..", "../x", "a/b", "A", ".x"] {
        assert_ne!(server.submit("a", "SELECT 1", &["--name", name]).0, 0, "{name}");
    }
    for path in ["/v1/jobs/..%2Ftokens.json", "/../tokens.json", "/v1/jobs/%2e%2e"] {
        let (status, text) = server.ask("GET", path, &token, "", "");
        assert!((400..500).contains(&status) && !text.contains("hash"), "{path}: {text}");
    }
}
