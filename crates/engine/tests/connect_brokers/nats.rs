//! Subjects and streams that are read and written.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::ops::Deref;
use std::thread::sleep;
use std::time::Duration;

use serde_json::{Value, json};

use super::services::{Job, Service};
use super::{copying, lines, wait_for, wait_for_rows};

struct Server(Service);

impl Deref for Server {
    type Target = Service;
    fn deref(&self) -> &Service {
        &self.0
    }
}

impl Server {
    fn start() -> Option<Server> {
        Service::start("nats").map(Server)
    }

    fn client(&self) -> Client {
        let port = self.value("NATS_PORT").parse::<u16>().expect("a port");
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket");
        let mut client = Client(BufReader::new(stream));
        client.line();
        client.send("CONNECT {\"verbose\":false,\"user\":\"thalweg\",\"pass\":\"thalweg\"}\r\nSUB answers 1\r\n");
        client.settle();
        client
    }

    fn options(&self, more: &str) -> String {
        format!(
            "'connector' = 'nats', 'url' = 'nats://127.0.0.1:{}', 'username' = 'thalweg', 'password' = 'thalweg', \
             'format' = 'json', {more}",
            self.value("NATS_PORT")
        )
    }
}

/// The oracle: a client of few lines.
struct Client(BufReader<TcpStream>);

impl Client {
    fn send(&mut self, text: &str) {
        self.0.get_mut().write_all(text.as_bytes()).expect("it reads");
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("a line");
        line.trim_end().to_owned()
    }

    /// Waits until the server has read all that was sent.
    fn settle(&mut self) {
        self.send("PING\r\n");
        while self.line() != "PONG" {}
    }

    fn publish(&mut self, subject: &str, bodies: impl IntoIterator<Item = String>) {
        let text = |body: String| format!("PUB {subject} {}\r\n{body}\r\n", body.len());
        let all: String = bodies.into_iter().map(text).collect();
        self.send(&all);
        self.settle();
    }

    /// Publishes to a stream, and waits until that has stored all.
    fn store(&mut self, subject: &str, bodies: impl IntoIterator<Item = String>) {
        let mut count = 0;
        for body in bodies {
            self.send(&format!("PUB {subject} answers {}\r\n{body}\r\n", body.len()));
            count += 1;
        }
        for _ in 0..count {
            let stored = self.answer();
            assert!(stored.get("seq").is_some(), "{stored}");
        }
    }

    fn answer(&mut self) -> Value {
        loop {
            let line = self.line();
            if let Some(rest) = line.strip_prefix("MSG ") {
                let length = rest.rsplit(' ').next().expect("a length");
                let length: usize = length.parse().expect("a number");
                let mut body = vec![0; length + 2];
                self.0.read_exact(&mut body).expect("a body");
                return serde_json::from_slice(&body[..length]).expect("JSON");
            }
        }
    }

    fn request(&mut self, what: &str, body: &Value) -> Value {
        let body = body.to_string();
        self.send(&format!("PUB $JS.API.{what} answers {}\r\n{body}\r\n", body.len()));
        self.answer()
    }

    fn stream(&mut self, name: &str, subjects: &[&str]) {
        let config = json!({
            "name": name, "subjects": subjects, "storage": "file", "num_replicas": 1,
            "retention": "limits", "max_consumers": -1, "max_msgs": -1, "max_bytes": -1,
            "discard": "old", "max_age": 0,
        });
        let made = self.request(&format!("STREAM.CREATE.{name}"), &config);
        assert!(made.get("error").is_none(), "{made}");
    }

    fn messages(&mut self, name: &str) -> u64 {
        let info = self.request(&format!("STREAM.INFO.{name}"), &json!({}));
        info.pointer("/state/messages").and_then(Value::as_u64).expect("a number")
    }
}

fn numbers(from: usize, to: usize) -> impl Iterator<Item = String> {
    (from..to).map(|n| format!("{{\"n\": {n}}}"))
}

#[test]
#[ignore = "needs NATS: make connect-test"]
fn streams_are_read_from_where_the_options_say() {
    let Some(server) = Server::start() else { return };
    let mut client = server.client();
    client.stream("orders", &["orders.>"]);
    client.store("orders.eu", numbers(1, 11));
    client.store("orders.us", numbers(11, 21));
    let read = |options: &str| {
        let options = server.options(&format!(
            "'stream' = 'orders', 'scan.bounded.mode' = 'latest-offset'{options}"
        ));
        format!(
            "CREATE TABLE t (n BIGINT, subject STRING METADATA, seq BIGINT METADATA FROM 'sequence', \
             at TIMESTAMP_LTZ(3) METADATA FROM 'timestamp') WITH ({options}); \
             SELECT COUNT(*) AS rows_, SUM(n) AS n, SUM(seq) AS seq, MAX(subject) AS s, \
             COUNT(at) AS t FROM t;"
        )
    };
    let said = server.output("all", &read(", 'bad-data' = 'skip'"));
    assert!(said.contains("20,210,210,orders.us,20"), "{said}");
    let said = server.output("filter", &read(", 'subject' = 'orders.eu;orders.x'"));
    assert!(said.contains("10,55,55,orders.eu,10"), "{said}");
    let none = server.output("latest", &read(", 'scan.startup.mode' = 'latest-offset'"));
    assert!(!none.contains("orders"), "{none}");
    let since = ", 'scan.startup.mode' = 'timestamp', 'scan.startup.timestamp-millis' = '1000'";
    let said = server.output("time", &read(since));
    assert!(said.contains("20,210,210"), "{said}");
    server.refused("no", &read("").replace("'orders',", "'other',"), &["stream not found"]);
    client.store("orders.eu", ["nonsense".to_owned()]);
    server.refused("bad", &read(", 'bad-data' = 'fail'"), &["orders, sequence 21", "bad-data"]);
    server.refused(
        "password",
        &read("").replace("'thalweg'", "'s3cret'"),
        &["password", "table t"],
    );
}

#[test]
#[ignore = "needs NATS: make connect-test"]
fn a_killed_server_and_killed_jobs_lose_and_double_nothing() {
    let Some(server) = Server::start() else { return };
    let folder = server.folder("killed");
    server.client().stream("events", &["events.*"]);
    let file = server.file("killed", &copying(&folder, &server.options("'stream' = 'events'")));
    let mut job = Job::start(&file, &["--resume"]);
    let mut sent = 0;
    for round in 0..6 {
        server.client().store("events.a", numbers(sent, sent + 500));
        sent += 500;
        sleep(Duration::from_millis(300));
        if round % 2 == 0 {
            server.crash();
            sleep(Duration::from_millis(200));
            server.start_again();
        } else {
            job.kill();
            job = Job::start(&file, &["--resume"]);
        }
    }
    let stored = server.client().messages("events") as usize;
    assert_eq!(stored, sent, "the server has lost some itself");
    let doubled = wait_for_rows(&folder, sent);
    assert!(doubled.is_empty(), "{doubled:?}");
    server.signal("-STOP");
    let took = job.interrupt();
    server.signal("-CONT");
    assert!(took < Duration::from_secs(3), "{took:?}");
}

#[test]
#[ignore = "needs NATS: make connect-test"]
fn subjects_are_read_as_they_come() {
    let Some(server) = Server::start() else { return };
    let folder = server.folder("core");
    let file = server.file("core", &copying(&folder, &server.options("'subject' = 'core.>'")));
    let job = Job::start(&file, &[]);
    let mut client = server.client();
    let mut sent = 0;
    wait_for("rows", || {
        client.publish("core.a", numbers(sent, sent + 10));
        sent += 10;
        match lines(&folder.join("out")).len() {
            0 => Err("none".to_owned()),
            _ => Ok(()),
        }
    });
    job.interrupt();
}

#[test]
#[ignore = "needs NATS: make connect-test"]
fn rows_are_written_and_known_by_their_ids() {
    let Some(server) = Server::start() else { return };
    let mut client = server.client();
    client.stream("out", &["out.*"]);
    let text = format!(
        "CREATE TABLE i (n INT) WITH ('connector' = 'datagen', 'fields.n.kind' = 'sequence', 'fields.n.start' = '1', \
         'fields.n.end' = '3000'); \
         CREATE TABLE o (n INT, subject STRING NOT NULL METADATA, id STRING NOT NULL METADATA FROM 'message-id') \
         WITH ({}); \
         INSERT INTO o SELECT n, 'out.' || CAST(MOD(n, 3) AS STRING), CAST(n AS STRING) FROM i;",
        server.options("'stream' = 'out'")
    );
    for _twice in 0..2 {
        server.output("out", &text);
        assert_eq!(client.messages("out"), 3_000);
    }
    let plain = text
        .replace(", id STRING NOT NULL METADATA FROM 'message-id'", "")
        .replace(", CAST(n AS STRING) FROM", " FROM")
        .replace("'stream' = 'out'", "'bad-data' = 'fail'");
    server.output("plain", &plain);
    // Without acknowledgements the job ends before the stream has stored the last.
    wait_for("messages", || match client.messages("out") {
        6_000 => Ok(()),
        messages => Err(format!("{messages}")),
    });
    server.refused("wrong", &text.replace("'out.' ||", "'out ' ||"), &["table o", "subject"]);
}
