//! What is written is read again; what is asked of a server that does not answer ends.

use std::time::Duration;

use super::server::Server;
use super::services::Job;

const NUMBERS: &str = "CREATE TABLE numbers (n BIGINT) WITH ('connector' = 'datagen', 'number-of-rows' = '50000', \
    'rows-per-second' = '1000000', 'fields.n.kind' = 'sequence', 'fields.n.start' = '1', 'fields.n.end' = '50000');\n";

#[test]
#[ignore = "fetches a server: make connect-test"]
fn files_are_written_and_read() {
    let Some(server) = Server::start() else { return };
    for (format, path) in
        [("csv", "a.csv"), ("parquet", "a.parquet"), ("json", "b.json.gz"), ("avro", "folder/")]
    {
        let table = format!(
            "CREATE TABLE t (n BIGINT, name STRING) WITH ('connector' = 'filesystem', 'format' = '{format}', \
             'path' = 's3://thalweg/{format}/{path}');\n"
        );
        let begin = format!("{}{NUMBERS}{table}", server.settings());
        server.output(
            "write",
            &format!("{begin}INSERT INTO t SELECT n, 'row ' || CAST(n AS STRING) FROM numbers;"),
        );
        let read = format!(
            "{begin}SET 'execution.runtime-mode' = 'batch'; SELECT COUNT(*), SUM(n), MAX(name) FROM t;"
        );
        let said = server.output("read", &read);
        assert!(
            said.contains("50000") && said.contains("1250025000") && said.contains("row 9999"),
            "{said}"
        );
    }
    // A web server is read without a signature.
    let web = format!(
        "CREATE TABLE t (n BIGINT, name STRING) WITH ('connector' = 'filesystem', 'format' = 'csv', \
         'path' = '{}/thalweg/csv/a.csv'); SET 'execution.runtime-mode' = 'batch'; SELECT COUNT(*), SUM(n) FROM t;",
        server.value("ENDPOINT")
    );
    let said = server.output("web", &web);
    assert!(said.contains("50000") && said.contains("1250025000"), "{said}");
    // Large files go in several pieces.
    let large = format!(
        "{}{NUMBERS}CREATE TABLE t (n BIGINT, text STRING, k BIGINT) PARTITIONED BY (k) WITH ('connector' = 'filesystem', \
         'format' = 'csv', 'path' = 's3://thalweg/large/');\nINSERT INTO t SELECT n, REPEAT('x', 300), n % 2 FROM numbers;",
        server.settings()
    );
    server.output("large", &large);
    assert_eq!(server.keys("large/").len(), 2);
    let read = large.replace("INSERT INTO t SELECT n, REPEAT('x', 300), n % 2 FROM numbers;", "")
        + "SET 'execution.runtime-mode' = 'batch'; SELECT k, COUNT(*), SUM(CHAR_LENGTH(text)) FROM t GROUP BY k ORDER BY k;";
    let said = server.output("large", &read);
    assert_eq!(said.matches("7500000").count(), 2, "{said}");
    assert_eq!(server.uploads(), "");
}

#[test]
#[ignore = "fetches a server: make connect-test"]
fn columns_of_parquet_are_fetched_by_ranges() {
    let Some(server) = Server::start() else { return };
    let begin = format!(
        "{}{NUMBERS}CREATE TABLE t (n BIGINT, text STRING) WITH ('connector' = 'filesystem', 'format' = 'parquet', \
         'path' = 's3://thalweg/wide.parquet');\n",
        server.settings()
    );
    // Texts that do not compress.
    server.output(
        "wide",
        &format!("{begin}INSERT INTO t SELECT n, SHA512(CAST(n AS STRING)) FROM numbers;"),
    );
    let size: u64 = server
        .python("print(client.head_object(Bucket='thalweg', Key='wide.parquet')['ContentLength'])")
        .parse()
        .expect("a size");
    assert!(size > 3_000_000, "{size}");
    let read = format!("{begin}SET 'execution.runtime-mode' = 'batch'; SELECT SUM(n) FROM t;");
    assert!(server.output("wide", &read).contains("1250025000"));
    let log = std::fs::read_to_string(server.dir.join("log")).expect("the log of the server");
    // The log is coloured, so that no quotation mark is before the word.
    let is_get = |line: &&str| line.contains("GET /thalweg/wide.parquet HTTP");
    let gets: Vec<&str> = log.lines().filter(is_get).collect();
    assert!(!gets.is_empty() && gets.iter().all(|line| line.contains(" 206 ")), "{gets:?}");
}

#[test]
#[ignore = "fetches a server: make connect-test"]
fn what_may_not_be_or_is_not_there_is_refused_with_a_reason() {
    let Some(server) = Server::start() else { return };
    let table = |path: &str| {
        format!(
            "CREATE TABLE t (n BIGINT) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = '{path}');\n\
             SET 'execution.runtime-mode' = 'batch'; SELECT COUNT(*) FROM t;"
        )
    };
    let settings = server.settings();
    server.refused(
        "none",
        &(settings.clone() + &table("s3://thalweg/none.csv")),
        &["no object", "s3://thalweg/none.csv"],
    );
    server.refused(
        "bucket",
        &(settings.clone() + &table("s3://other/none.csv")),
        &["s3://other/none.csv"],
    );
    let listed = format!("SET 'network.allowed-targets' = 'example.com';\n{settings}");
    server.refused(
        "listed",
        &(listed + &table("s3://thalweg/a.csv")),
        &["127.0.0.1", "not allowed"],
    );
    let shown = server.output("shown", &format!("{settings}SET;"));
    assert!(shown.contains("***") && !shown.contains("s3cret"), "{shown}");
}

#[test]
#[ignore = "fetches a server: make connect-test"]
fn a_server_that_hangs_does_not_hold_up_the_second_interrupt() {
    let Some(server) = Server::start() else { return };
    let job = server.file(
        "hangs",
        &format!(
            "{}CREATE TABLE numbers (n BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '1000');\n\
             CREATE TABLE t (n BIGINT) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 's3://thalweg/out/');\n\
             INSERT INTO t SELECT n FROM numbers;",
            server.with_snapshots("hangs")
        ),
    );
    let job = Job::start(&job, &[]);
    std::thread::sleep(Duration::from_secs(2));
    let process = server.value("PID").to_owned();
    let signal = |signal: &str| {
        std::process::Command::new("kill").args([signal, &process]).status().expect("kill runs");
    };
    signal("-STOP");
    std::thread::sleep(Duration::from_millis(500));
    // The first one asks for a last snapshot, whose files the sink cannot write; the second one
    // ends the job without.
    job.signal("-INT");
    std::thread::sleep(Duration::from_secs(1));
    let took = job.interrupt();
    signal("-CONT");
    assert!(took < Duration::from_secs(2), "{took:?}");
}
