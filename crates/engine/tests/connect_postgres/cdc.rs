//! A table and its changes.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::server::Server;
use super::services::Job;

/// A job that keeps a copy of a table by its key.
fn copying(server: &Server, columns: &str, cdc: &str, copy: &str) -> Job {
    let text = format!(
        "CREATE TABLE t ({columns}) WITH ({cdc}); CREATE TABLE c ({columns}) WITH ({}); INSERT INTO c SELECT * FROM t;",
        server.jdbc(copy)
    );
    Job::start(&server.file(copy, &text), &[])
}

const DIFFERENCE: &str = "SELECT count(*) FROM ((SELECT * FROM t EXCEPT SELECT * FROM c) UNION ALL \
    (SELECT * FROM c EXCEPT SELECT * FROM t)) d";

#[test]
fn a_copy_follows_its_table_also_under_changes_of_keys_and_long_values() {
    let Some(server) = Server::start() else { return };
    // Keys of texts and of several columns are compared by the server.
    server.sql(
        "CREATE TABLE t (a text, b int, v int, long text, PRIMARY KEY (a, b)); ALTER TABLE t REPLICA IDENTITY FULL; \
         ALTER TABLE t ALTER long SET STORAGE EXTERNAL; \
         INSERT INTO t SELECT chr(97 + i % 26) || CASE WHEN i % 2 = 0 THEN '' ELSE 'É' END, i, i, repeat('x', i % 2 * 5000) \
         FROM generate_series(1, 3000) i; CREATE TABLE c (LIKE t INCLUDING ALL)",
    );
    let columns =
        "a STRING NOT NULL, b INT NOT NULL, v INT, long STRING, PRIMARY KEY (a, b) NOT ENFORCED";
    let chunks = "'scan.incremental.snapshot.chunk.size' = '200'";
    let job = copying(&server, columns, &format!("{}, {chunks}", server.cdc("t", "s1")), "c");
    for i in 0..60 {
        server.sql(&format!(
            "UPDATE t SET v = v + 1 WHERE b % 60 = {i}; DELETE FROM t WHERE b = {i} * 17; \
             INSERT INTO t VALUES ('m', 10000 + {i}, 0, 'new'); UPDATE t SET a = 'zz', b = b + 50000 WHERE b = {i} * 13 + 1; \
             BEGIN; UPDATE t SET v = -1 WHERE b = {i}; ROLLBACK"
        ));
    }
    server.wait_for(DIFFERENCE, "0");
    assert!(server.sql("SELECT count(*) FROM c").parse::<usize>().expect("a number") > 2900);
    // The server is killed while the job runs.
    server.crash();
    std::thread::sleep(Duration::from_millis(300));
    server.start_again();
    server.sql("UPDATE t SET v = v + 1000; DELETE FROM t WHERE b % 10 = 0");
    server.wait_for(DIFFERENCE, "0");
    job.signal("-INT");
    job.wait();
}

#[test]
fn tables_without_full_rows_in_the_log_are_followed_by_key() {
    let Some(server) = Server::start() else { return };
    server.sql(
        "CREATE TABLE t (id int PRIMARY KEY, v int NOT NULL); INSERT INTO t SELECT i, i FROM generate_series(1, 100) i; \
         CREATE TABLE c (LIKE t INCLUDING ALL)",
    );
    let columns = "id INT NOT NULL, v INT NOT NULL, PRIMARY KEY (id) NOT ENFORCED";
    let cdc = server.cdc("t", "s1");
    let job = copying(&server, columns, &format!("{cdc}, 'changelog-mode' = 'upsert'"), "c");
    server.wait_for(DIFFERENCE, "0");
    server.sql("UPDATE t SET v = 0 WHERE id < 10; DELETE FROM t WHERE id > 90; UPDATE t SET id = 1000 WHERE id = 50");
    server.wait_for(DIFFERENCE, "0");
    // The slot is read by this job alone.
    let select = format!("CREATE TABLE t ({columns}) WITH ({cdc}); SELECT * FROM t;");
    server.refused("run", &select, &["'s1' is in use", "slot.name"]);
    job.signal("-INT");
    job.wait();
    // In mode `all` the row before is needed.
    let all = select.replace("'s1'", "'s2'");
    let job = Job::start(&server.file("all", &all), &[]);
    server.wait_for("SELECT active FROM pg_replication_slots WHERE slot_name = 's2'", "t");
    std::thread::sleep(Duration::from_millis(500));
    server.sql("UPDATE t SET v = 5 WHERE id = 5");
    let (is_right, said) = job.wait();
    assert!(!is_right && said.contains("REPLICA IDENTITY FULL"), "{said}");
}

#[test]
fn metadata_startup_modes_and_changes_of_the_table() {
    let Some(server) = Server::start() else { return };
    server.sql(
        "CREATE TABLE t (id int PRIMARY KEY, v int); ALTER TABLE t REPLICA IDENTITY FULL; INSERT INTO t VALUES (1, 10), (2, 20)",
    );
    let columns = "id INT NOT NULL, v INT, k STRING METADATA FROM 'row_kind' VIRTUAL, n STRING METADATA FROM 'table_name' VIRTUAL, \
        ts TIMESTAMP_LTZ(3) METADATA FROM 'op_ts' VIRTUAL";
    let cdc = server.cdc("t", "s1");
    let snapshot = format!(
        "CREATE TABLE t ({columns}) WITH ({cdc}, 'scan.startup.mode' = 'snapshot'); SELECT id, v, k, n, ts FROM t;"
    );
    let said = server.output("run", &snapshot);
    assert!(said.contains("1,10,+I,t,1970-01-01 00:00:00.000"), "{said}");
    assert_eq!(server.sql("SELECT count(*) FROM pg_replication_slots"), "0", "it is dropped");

    // Append only, from now on: what each row was is data.
    server.sql("CREATE TABLE log (id int, v int, k text)");
    let latest = format!(
        "CREATE TABLE t ({columns}) WITH ({cdc}, 'scan.startup.mode' = 'latest-offset', \
         'scan.read-changelog-as-append-only.enabled' = 'true'); \
         CREATE TABLE log (id INT, v INT, k STRING) WITH ({}); INSERT INTO log SELECT id, v, k FROM t;",
        server.jdbc("log")
    );
    let job = Job::start(&server.file("latest", &latest), &[]);
    server.wait_for("SELECT active FROM pg_replication_slots WHERE slot_name = 's1'", "t");
    server.sql("UPDATE t SET v = 11 WHERE id = 1; DELETE FROM t WHERE id = 2; INSERT INTO t VALUES (3, 30)");
    let query = "SELECT string_agg(id || ' ' || v || ' ' || k, ',' ORDER BY id, k, v) FROM log";
    server.wait_for(query, "1 11 +U,1 10 -U,2 20 -D,3 30 +I");
    // A new column is overlooked; one that is read and goes stops the job.
    server.sql("ALTER TABLE t ADD w int; INSERT INTO t VALUES (4, 40, 4)");
    server.wait_for("SELECT count(*) FROM log", "5");
    server.sql("ALTER TABLE t DROP v; INSERT INTO t VALUES (5, 5)");
    let (is_right, said) = job.wait();
    assert!(!is_right && said.contains("column v is not there any more"), "{said}");
    server.refused(
        "run",
        &format!("CREATE TABLE t (id INT) WITH ({}); SELECT * FROM t;", server.cdc("nobody", "s9")),
        &["no table 'public.nobody'"],
    );
}

/// Passes bytes on to the server, until the flag says to keep them.
fn proxy(to: u16) -> (u16, Arc<AtomicBool>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let keeps = Arc::new(AtomicBool::new(false));
    let flag = keeps.clone();
    std::thread::spawn(move || {
        for from in listener.incoming().flatten() {
            let Ok(server) = TcpStream::connect(("127.0.0.1", to)) else { continue };
            // Connections that come later are passed on.
            let flag = if flag.load(Ordering::SeqCst) { Arc::default() } else { flag.clone() };
            let ends = [(from.try_clone(), server.try_clone()), (Ok(server), Ok(from))];
            for (read, write) in ends {
                let (mut read, mut write) = (read.expect("a socket"), write.expect("a socket"));
                let flag = flag.clone();
                std::thread::spawn(move || {
                    let mut bytes = vec![0; 64 << 10];
                    while let Ok(length @ 1..) = read.read(&mut bytes) {
                        while flag.load(Ordering::SeqCst) {
                            std::thread::sleep(Duration::from_millis(50));
                        }
                        if write.write_all(&bytes[..length]).is_err() {
                            break;
                        }
                    }
                    let _ = write.shutdown(std::net::Shutdown::Both);
                });
            }
        }
    });
    (port, keeps)
}

#[test]
fn a_connection_that_says_nothing_is_given_up_within_half_a_minute() {
    let Some(server) = Server::start() else { return };
    server.sql(
        "CREATE TABLE t (id int PRIMARY KEY, v int); ALTER TABLE t REPLICA IDENTITY FULL; INSERT INTO t VALUES (1, 1); \
         CREATE TABLE c (LIKE t INCLUDING ALL)",
    );
    let (port, keeps) = proxy(server.port);
    let columns = "id INT NOT NULL, v INT, PRIMARY KEY (id) NOT ENFORCED";
    let cdc = server.cdc("t", "s1").replace(&server.port.to_string(), &port.to_string());
    let job = copying(&server, columns, &cdc, "c");
    server.wait_for(DIFFERENCE, "0");
    keeps.store(true, Ordering::SeqCst);
    server.sql("INSERT INTO t VALUES (2, 2)");
    let start = std::time::Instant::now();
    server.wait_for(DIFFERENCE, "0");
    let took = start.elapsed();
    assert!(took > Duration::from_secs(5) && took < Duration::from_secs(35), "it takes {took:?}");
    job.signal("-INT");
    job.wait();
}
