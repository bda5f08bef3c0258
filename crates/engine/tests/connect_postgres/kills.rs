//! Jobs and servers that are killed at random moments: nothing is lost, nothing is there twice.

use std::thread::sleep;
use std::time::Duration;

use thalweg_core::shim::SplitMix64;

use super::server::Server;
use super::services::{Job, end_after_kills};

fn kills(default: usize) -> usize {
    std::env::var("THALWEG_KILLS").map_or(default, |text| text.parse().expect("a number"))
}

/// Runs a job again and again, killing it, and the server now and then, and lets it end in the end.
fn run_with_kills(server: &Server, text: &str, kills: usize, seed: u64) {
    let dir = server.folder("killed").join("snapshots");
    let text = format!(
        "SET 'execution.checkpointing.dir' = '{}'; SET 'execution.checkpointing.interval' = '50 ms'; {text}",
        dir.display()
    );
    let file = server.file("killed", &text);
    end_after_kills(server, (&file, &["--resume"]), (kills, 100..1_000), seed);
}

#[test]
fn rows_are_written_exactly_once() {
    let Some(server) = Server::start() else { return };
    server.sql("CREATE TABLE log (n bigint, name text); CREATE TABLE sums (k bigint PRIMARY KEY, n bigint, s bigint)");
    let exactly = "'sink.delivery-guarantee' = 'exactly-once'";
    let text = format!(
        "CREATE TABLE numbers (n BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '6000', \
         'fields.n.kind' = 'sequence', 'fields.n.start' = '1', 'fields.n.end' = '20000'); \
         CREATE TABLE log (n BIGINT, name STRING) WITH ({}, {exactly}); \
         CREATE TABLE sums (k BIGINT NOT NULL, n BIGINT, s BIGINT, PRIMARY KEY (k) NOT ENFORCED) WITH ({}, {exactly}); \
         EXECUTE STATEMENT SET BEGIN INSERT INTO log SELECT n, 'row ' || CAST(n AS STRING) FROM numbers; \
         INSERT INTO sums SELECT n % 100, COUNT(*), SUM(n) FROM numbers GROUP BY n % 100; END;",
        server.jdbc("log"),
        server.jdbc("sums")
    );
    run_with_kills(&server, &text, kills(8), 1);
    assert_eq!(
        server.sql("SELECT count(*), count(DISTINCT n), sum(n) FROM log"),
        "20000|20000|200010000"
    );
    assert_eq!(server.sql("SELECT count(*), sum(n), sum(s) FROM sums"), "100|20000|200010000");
    assert_eq!(server.sql("SELECT count(*) FROM thalweg_staging"), "0");
    // The job has ended: another start may write after it.
    assert_eq!(server.sql("SELECT bool_and(is_finished) FROM thalweg_progress"), "t");
}

#[test]
fn a_table_and_its_changes_are_copied_exactly() {
    let Some(server) = Server::start() else { return };
    server.sql(
        "CREATE TABLE t (id int PRIMARY KEY, v int); ALTER TABLE t REPLICA IDENTITY FULL; \
         INSERT INTO t SELECT i, i FROM generate_series(1, 20000) i; CREATE TABLE c (k int PRIMARY KEY, n bigint, s bigint)",
    );
    let dir = server.folder("copied").join("snapshots");
    // Sums retract what rows were before: a change that is lost or doubled shows for ever.
    let text = format!(
        "SET 'execution.checkpointing.dir' = '{}'; SET 'execution.checkpointing.interval' = '50 ms'; \
         CREATE TABLE t (id INT NOT NULL, v INT, PRIMARY KEY (id) NOT ENFORCED) WITH ({}, \
         'scan.incremental.snapshot.chunk.size' = '500'); \
         CREATE TABLE c (k INT NOT NULL, n BIGINT, s BIGINT, PRIMARY KEY (k) NOT ENFORCED) WITH ({}, \
         'sink.buffer-flush.interval' = '50 ms'); \
         INSERT INTO c SELECT id % 10, COUNT(*), SUM(v) FROM t GROUP BY id % 10;",
        dir.display(),
        server.cdc("t", "s1"),
        server.jdbc("c")
    );
    let file = server.file("copied", &text);
    let mut random = SplitMix64::new(2);
    let mut next = 30_000;
    let change = |random: &mut SplitMix64, next: &mut u64| {
        let some = random.below(20_000);
        *next += 1;
        // The server may be away: what was not committed did not happen.
        server.try_sql(&format!(
            "UPDATE t SET v = v + 1 WHERE id BETWEEN {some} AND {some} + 50; DELETE FROM t WHERE id = {some}; \
             INSERT INTO t VALUES ({next}, 1); UPDATE t SET id = id + 100000 WHERE id = {some} + 7"
        ));
    };
    for kill in 0..kills(8) {
        let job = Job::start(&file, &["--resume"]);
        for _ in 0..3 + random.below(8) {
            change(&mut random, &mut next);
            sleep(Duration::from_millis(random.below(60)));
        }
        if kill % 3 == 2 {
            server.crash();
            server.start_again();
            sleep(Duration::from_millis(random.below(800)));
            change(&mut random, &mut next);
        }
        job.kill();
    }
    let job = Job::start(&file, &["--resume"]);
    let difference = "SELECT count(*) FROM ((SELECT k, n, s FROM c WHERE n > 0 EXCEPT \
        SELECT id % 10, count(*), sum(v) FROM t GROUP BY 1) UNION ALL (SELECT id % 10, count(*), sum(v) FROM t GROUP BY 1 \
        EXCEPT SELECT k, n, s FROM c)) d";
    server.wait_for(difference, "0");
    // The slot is confirmed as snapshots are kept, also where nothing happens to the table.
    let behind =
        "SELECT pg_current_wal_lsn() - confirmed_flush_lsn < 100000 FROM pg_replication_slots";
    server.sql("CREATE TABLE other (x text)");
    server.wait_with(behind, "t", || {
        server.sql("INSERT INTO other VALUES ('x')");
    });
    assert_eq!(server.sql("SELECT count(*) > 15000 FROM t"), "t");
    job.signal("-INT");
    job.wait();
}
