//! Tables that are scanned, looked up and written.

use super::server::Server;
use super::services::Job;
use std::time::{Duration, Instant};

const NUMBERS: &str = "CREATE TABLE numbers (n INT, clock AS PROCTIME()) WITH ('connector' = 'datagen', \
    'fields.n.kind' = 'sequence', 'fields.n.start' = '1', 'fields.n.end' = '1000');";

#[test]
fn values_of_all_types_are_read_and_written() {
    let Some(server) = Server::start() else { return };
    server.sql(
        "CREATE TABLE t (id bigint PRIMARY KEY, b boolean, i2 smallint, i4 int, f4 real, f8 double precision, \
         n numeric(20,4), s varchar(20), y bytea, d date, ti time, ts timestamp, tz timestamptz, a int[], j jsonb, \
         u uuid); CREATE TABLE copy (LIKE t INCLUDING ALL); \
         INSERT INTO t VALUES (1, true, -2, 3, 0.5, 1e300, 123.4567, E'x''\\\\\\ty\\n', '\\x00ff', '2024-02-29', \
         '12:34:56', '2024-01-02 03:04:05.123456', '2024-01-02 03:04:05.123456+02', '{1,NULL,3}', '{\"k\": [1]}', \
         '00000000-0000-0000-0000-000000000001'), (2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, \
         NULL, NULL, NULL, NULL)",
    );
    let columns = "id BIGINT NOT NULL, b BOOLEAN, i2 SMALLINT, i4 INT, f4 FLOAT, f8 DOUBLE, n DECIMAL(20,4), s STRING, \
        y BYTES, d DATE, ti TIME(0), ts TIMESTAMP(6), tz TIMESTAMP_LTZ(6), a ARRAY<INT>, j STRING, u STRING, \
        PRIMARY KEY (id) NOT ENFORCED";
    let tables = format!(
        "CREATE TABLE t ({columns}) WITH ({}); CREATE TABLE c ({columns}) WITH ({});",
        server.jdbc("t"),
        server.jdbc("copy")
    );
    server.output("run", &format!("{tables} INSERT INTO c SELECT * FROM t;"));
    assert_eq!(
        server.sql("SELECT count(*) FROM (SELECT * FROM t EXCEPT SELECT * FROM copy) d"),
        "0"
    );
    assert_eq!(server.sql("SELECT count(*) FROM copy"), "2");
}

#[test]
fn tables_are_read_by_ranges_looked_up_and_written() {
    let Some(server) = Server::start() else { return };
    server.sql(
        "CREATE TABLE users (id int PRIMARY KEY, \"Name\" text, city text); \
         INSERT INTO users SELECT i, 'user ' || i, 'c' || i % 3 FROM generate_series(1, 500) i; \
         CREATE TABLE counts (k int PRIMARY KEY, n bigint, day date); CREATE TABLE log (n int, name text)",
    );
    let users = "CREATE TABLE users (id INT, `Name` STRING, CITY STRING) WITH";
    let ranges = "'scan.partition.column' = 'id', 'scan.partition.num' = '7', 'scan.partition.lower-bound' = '11', \
        'scan.partition.upper-bound' = '410'";
    let text = format!(
        "{users} ({}, {ranges}); SELECT COUNT(*), SUM(id) FROM users;",
        server.jdbc("users")
    );
    let said = server.output("run", &text);
    assert!(said.contains("400,84200"), "{said}");

    let text = format!(
        "{NUMBERS} {users} ({}); CREATE TABLE log (n INT, name STRING) WITH ({}); \
         INSERT INTO log SELECT n, `Name` FROM numbers LEFT JOIN users FOR SYSTEM_TIME AS OF numbers.clock AS u ON n = u.id;",
        server.jdbc("users"),
        server.jdbc("log")
    );
    for options in [
        "",
        ", 'lookup.cache' = 'PARTIAL', 'lookup.partial-cache.max-rows' = '50'",
        ", 'lookup.cache' = 'FULL'",
    ] {
        server.sql("TRUNCATE log");
        server.output(
            "run",
            &text.replacen(
                "'table-name' = 'users'",
                &format!("'table-name' = 'users'{options}"),
                1,
            ),
        );
        assert_eq!(
            server.sql("SELECT count(*), count(name), max(name) FROM log"),
            "1000|500|user 99",
            "{options}"
        );
    }

    let counts = format!(
        "{NUMBERS} CREATE TABLE counts (k INT NOT NULL, n BIGINT, PRIMARY KEY (k) NOT ENFORCED) WITH ({}); \
         INSERT INTO counts SELECT n % 10, COUNT(*) FROM numbers GROUP BY n % 10;",
        server.jdbc("counts")
    );
    server.sql("INSERT INTO counts VALUES (3, 7, '2024-01-01')");
    server.output("run", &counts);
    // A column that is not declared keeps its value.
    let query = "SELECT count(*), sum(n), min(day) FROM counts";
    assert_eq!(server.sql(query), "10|1000|2024-01-01");
}

#[test]
fn mistakes_are_explained() {
    let Some(server) = Server::start() else { return };
    server.sql(
        "CREATE TABLE t (id int PRIMARY KEY, name text); CREATE TABLE o (LIKE t INCLUDING ALL)",
    );
    let table = |columns: &str, options: &str| {
        format!("CREATE TABLE t ({columns}) WITH ({options}); SELECT * FROM t;")
    };
    let right = server.jdbc("t");
    let wrong = right.replace("'password' = 'thalweg'", "'password' = 's3cret'");
    server.refused(
        "run",
        &table("id INT", &wrong),
        &["password authentication failed", "pg_hba.conf"],
    );
    server.refused("run", &table("id INT", &server.jdbc("nobody")), &["no table 'nobody'"]);
    server.refused("run", &table("idd INT", &right), &["no column idd", "did you mean 'id'?"]);
    server.refused("run", &table("id ROW<a INT>", &right), &["STRING"]);
    let unreachable = right.replace(&format!(":{}/", server.port), ":1/");
    server.refused("run", &table("id INT", &unreachable), &["127.0.0.1:1", "refused"]);
    let text = table("id INT", &format!("{right}, 'sink.max-retrys' = '1'"));
    server.refused("run", &text, &["did you mean 'sink.max-retries'?"]);
    // A row that the table refuses: no retries, and the server's words.
    server.sql("ALTER TABLE o ADD CHECK (id < 500)");
    let text = format!(
        "{NUMBERS} CREATE TABLE o (id INT, name STRING) WITH ({}); INSERT INTO o SELECT n, 'x' FROM numbers;",
        server.jdbc("o")
    );
    server.refused("run", &text, &["violates check constraint", "500"]);
    // A password may be a secret.
    let secret = right.replace("'password' = 'thalweg'", "'password' = '${secret:pg}'");
    server.refused("run", &table("id INT", &secret), &["the secret 'pg' is not set"]);
}

#[test]
fn a_job_that_writes_to_a_stuck_server_ends_soon() {
    let Some(server) = Server::start() else { return };
    server.sql("CREATE TABLE o (id int, name text)");
    let text = format!(
        "CREATE TABLE n (n INT) WITH ('connector' = 'datagen', 'rows-per-second' = '1000'); \
         CREATE TABLE o (id INT, name STRING) WITH ({}); INSERT INTO o SELECT n, 'x' FROM n;",
        server.jdbc("o")
    );
    let job = Job::start(&server.file("stuck", &text), &[]);
    server.wait_for("SELECT count(*) > 100 FROM o", "t");
    let pids = server.sql("SELECT pid FROM pg_stat_activity WHERE application_name = 'thalweg'");
    let signal = |signal: &str| {
        let pids: Vec<&str> = pids.lines().collect();
        let sent = std::process::Command::new("kill").arg(signal).args(&pids).status();
        assert!(sent.expect("kill runs").success());
    };
    signal("-STOP");
    std::thread::sleep(Duration::from_millis(1500));
    job.signal("-INT");
    let start = Instant::now();
    let _ended = job.wait();
    let took = start.elapsed();
    signal("-CONT");
    assert!(took < Duration::from_secs(4), "it takes {took:?}");
}
