//! Streams that are read and written, and keys that are looked up.

use std::io::Write;
use std::ops::Deref;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::services::{Job, Service, text};
use super::{lines, wait_for};

struct Server(Service);

impl Deref for Server {
    type Target = Service;
    fn deref(&self) -> &Service {
        &self.0
    }
}

impl Server {
    fn start() -> Option<Server> {
        Service::start("redis").map(Server)
    }

    /// Runs commands, a line each. What they answer.
    fn commands(&self, commands: &str) -> String {
        let mut client = Command::new("redis-cli");
        client.args(["-h", "127.0.0.1", "-p", self.value("REDIS_PORT")]);
        client.env("REDISCLI_AUTH", "thalweg").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut client = client.spawn().expect("redis-cli is there with the server");
        client.stdin.take().expect("a pipe").write_all(commands.as_bytes()).expect("it reads");
        let output = client.wait_with_output().expect("it ends");
        text(&output.stdout).trim_end().to_owned()
    }

    fn options(&self, more: &str) -> String {
        let port = self.value("REDIS_PORT");
        format!(
            "'connector' = 'redis', 'url' = 'redis://127.0.0.1:{port}', 'password' = 'thalweg', {more}"
        )
    }
}

#[test]
#[ignore = "needs Redis: make connect-test"]
fn streams_are_read_with_their_metadata_and_bad_entries_are_kept() {
    let Some(server) = Server::start() else { return };
    server.commands(
        "XADD a 5-1 value '{\"n\": 1}' from x\nXADD b 6-1 value '{\"n\": 2}'\nXADD a 7-0 value '{\"n\": bad}'\n\
         XADD a 7-1 other 3\nXADD a 8-1 value '[{\"n\": 4}, {\"n\": 5}]'\nXADD a 9-1 value '{\"n\": 6}'\nXDEL a 9-1\n\
         XADD f 1-1 n 7 name seven\nSET k text\n",
    );
    let columns = "n BIGINT, stream STRING METADATA, id STRING METADATA, \
        ts TIMESTAMP_LTZ(3) METADATA FROM 'timestamp', `fields` MAP<STRING, STRING> METADATA";
    let bounded = "'scan.bounded.mode' = 'latest-offset'";
    let read = |more: &str| {
        let options =
            server.options(&format!("'stream' = 'a;b', 'format' = 'json', {bounded}{more}"));
        format!(
            "CREATE TABLE t ({columns}) WITH ({options}); \
             SELECT n, stream, id, ts, `fields`['from'] AS f FROM t;"
        )
    };
    server.refused("fails", &read(""), &["a, id 7-0", "bad-data"]);
    let said = server
        .output("letters", &read(", 'bad-data' = 'dead-letter', 'dead-letter.path' = 'bad.jsonl'"));
    for row in ["1,a,5-1,1970-01-01 00:00:00.005,x", "2,b,6-1", "4,a,8-1", "5,a,8-1"] {
        assert!(said.contains(row), "no '{row}' in: {said}");
    }
    let letters = std::fs::read_to_string(server.folder("letters").join("bad.jsonl"));
    let letters = letters.expect("dead letters");
    assert_eq!(letters.lines().count(), 2, "{letters}");
    assert!(letters.contains("a, id 7-1") && letters.contains("has no record"), "{letters}");

    let fields =
        server.options(&format!("'stream' = 'f', 'format' = 'json', 'field' = '*', {bounded}"));
    let said = server.output(
        "fields",
        &format!("CREATE TABLE t (n INT, name STRING) WITH ({fields}); SELECT * FROM t;"),
    );
    assert!(said.contains("7,seven"), "{said}");
    let wrong = read("").replace("'thalweg'", "'s3cret'");
    server.refused("password", &wrong, &["WRONGPASS", "table t"]);
    server.refused(
        "type",
        &read("").replace("'a;b'", "'k'"),
        &["WRONGTYPE", "another kind of value"],
    );
}

#[test]
#[ignore = "needs Redis: make connect-test"]
fn rows_are_written_in_each_format() {
    let Some(server) = Server::start() else { return };
    for format in ["json", "csv", "avro"] {
        let options = |more: &str| {
            server.options(&format!(
                "'stream' = '{format}', 'format' = '{format}', 'field' = 'r'{more}"
            ))
        };
        let columns = "(n INT, s STRING)";
        let written = format!(
            "CREATE TABLE i (n INT) WITH ('connector' = 'datagen', 'fields.n.kind' = 'sequence', \
             'fields.n.start' = '1', 'fields.n.end' = '20000'); CREATE TABLE o {columns} WITH ({}); \
             INSERT INTO o SELECT n, 's' || CAST(n AS STRING) FROM i;",
            options("")
        );
        server.output(format, &written);
        let read = format!(
            "CREATE TABLE r {columns} WITH ({}); SELECT COUNT(*), SUM(n), MAX(s) FROM r;",
            options(", 'scan.bounded.mode' = 'latest-offset'")
        );
        let said = server.output(format, &read);
        assert!(said.contains("20000,200010000,s9999"), "{format}: {said}");
        assert_eq!(server.commands(&format!("XLEN {format}\n")), "20000");
    }
}

#[test]
#[ignore = "needs Redis: make connect-test"]
fn keys_are_looked_up() {
    let Some(server) = Server::start() else { return };
    let hashes: String =
        (0..500).map(|n| format!("HSET d:{n} name d{n} room {}\n", n % 7)).collect();
    server.commands(&hashes);
    server.commands("SET s:1 '{\"name\": \"one\", \"room\": 1}'\nSET s:2 nonsense\n");
    let clock = "CREATE TABLE i (n INT, clock AS PROCTIME()) WITH ('connector' = 'datagen', \
        'fields.n.kind' = 'sequence', 'fields.n.start' = '1', 'fields.n.end' = 'END');";
    let query = |end: &str, more: &str| {
        format!(
            "{} CREATE TABLE d (id INT, name STRING, room INT) WITH ({}); \
             SELECT COUNT(*), COUNT(name), SUM(room), MAX(name) FROM i \
             LEFT JOIN d FOR SYSTEM_TIME AS OF i.clock AS d ON i.n = d.id;",
            clock.replace("END", end),
            server.options(more)
        )
    };
    for cache in ["", ", 'lookup.cache' = 'PARTIAL', 'lookup.partial-cache.max-rows' = '50'"] {
        let said =
            server.output("hash", &query("600", &format!("'lookup.key-prefix' = 'd:'{cache}")));
        assert!(said.contains("600,499,1494,d99"), "{said}");
    }
    let strings = "'lookup.key-prefix' = 's:', 'lookup.type' = 'string', 'format' = 'json'";
    let said = server.output("string", &query("1", strings));
    assert!(said.contains("1,1,1,one"), "{said}");
    server.refused("nonsense", &query("2", strings), &["s:2"]);
    let whole = format!(
        "CREATE TABLE d (id INT, name STRING) WITH ({}); SELECT * FROM d;",
        server.options("'lookup.key-prefix' = 'd:'")
    );
    server.refused("whole", &whole, &["stream"]);
}

#[test]
#[ignore = "needs Redis: make connect-test"]
fn a_killed_server_and_killed_jobs_lose_and_double_nothing() {
    let Some(server) = Server::start() else { return };
    let folder = server.folder("killed");
    let text = format!(
        "SET 'execution.checkpointing.dir' = '{0}/snapshots'; \
         SET 'execution.checkpointing.interval' = '100 ms'; \
         CREATE TABLE i (n BIGINT) WITH ({1}); CREATE TABLE s (n BIGINT) WITH ({2}); \
         CREATE TABLE o (n BIGINT) WITH ('connector' = 'filesystem', 'path' = '{0}/out/', 'format' = 'csv', \
         'sink.rolling-policy.rollover-interval' = '100 ms'); \
         EXECUTE STATEMENT SET BEGIN INSERT INTO o SELECT n FROM i; INSERT INTO s SELECT n FROM i; END;",
        folder.display(),
        server.options("'stream' = 'in', 'format' = 'json'"),
        server.options("'stream' = 'out', 'format' = 'json', 'field' = 'n'"),
    );
    let file = server.file("killed", &text);
    let mut sent = 0;
    let mut send = |count: u64| {
        let adds = (sent..sent + count).map(|n| format!("XADD in * value '{{\"n\": {n}}}'\n"));
        server.commands(&adds.collect::<String>());
        sent += count;
        sent as usize
    };
    let mut job = Job::start(&file, &["--resume"]);
    for round in 0..6 {
        send(500);
        std::thread::sleep(Duration::from_millis(400));
        if round % 2 == 0 {
            server.crash();
            std::thread::sleep(Duration::from_millis(200));
            server.start_again();
        } else {
            job.kill();
            job = Job::start(&file, &["--resume"]);
        }
    }
    let all = send(500);
    wait_for("rows of files", || match lines(&folder.join("out")).len() {
        rows if rows == all => Ok(()),
        rows => Err(format!("{rows} of {all}")),
    });
    wait_for("entries", || {
        let answer = server.commands("XRANGE out - +\n");
        let mut values: Vec<&str> = answer.lines().filter(|line| line.starts_with('{')).collect();
        values.sort_unstable();
        values.dedup();
        match values.len() {
            rows if rows == all => Ok(()),
            rows => Err(format!("{rows} of {all}")),
        }
    });
    let took = job.interrupt();
    assert!(took < Duration::from_secs(3), "{took:?}");
    let doubled: Vec<_> = lines(&folder.join("out")).into_iter().filter(|(_, n)| *n > 1).collect();
    assert!(doubled.is_empty(), "{doubled:?}");
}

#[test]
#[ignore = "needs Redis: make connect-test"]
fn entries_that_were_trimmed_unread_stop_the_job() {
    let Some(server) = Server::start() else { return };
    let folder = server.folder("trimmed");
    let text = format!(
        "SET 'execution.checkpointing.dir' = '{0}/snapshots'; \
         SET 'execution.checkpointing.interval' = '50 ms'; CREATE TABLE i (n BIGINT) WITH ({1}); \
         CREATE TABLE o (n BIGINT) WITH ('connector' = 'filesystem', 'path' = '{0}/out/', 'format' = 'csv', \
         'sink.rolling-policy.rollover-interval' = '50 ms'); INSERT INTO o SELECT n FROM i;",
        folder.display(),
        server.options("'stream' = 'in', 'format' = 'json'"),
    );
    let file = server.file("trimmed", &text);
    server.commands("XADD in 1-1 value '{\"n\": 1}'\n");
    let job = Job::start(&file, &["--resume"]);
    wait_for("the first row", || match lines(&folder.join("out")).len() {
        1 => Ok(()),
        rows => Err(format!("{rows} rows")),
    });
    job.kill();
    server.commands(
        "XADD in 2-1 value '{\"n\": 2}'\nXADD in 3-1 value '{\"n\": 3}'\nXTRIM in MAXLEN 1\n",
    );
    let (is_right, said) = Job::start(&file, &["--resume"]).wait();
    assert!(!is_right && said.contains("1-1, the last that was read"), "{said}");
}
