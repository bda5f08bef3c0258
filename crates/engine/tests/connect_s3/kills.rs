//! Jobs that are killed at random moments: nothing is lost, nothing is there twice, and no upload
//! is left.

use std::thread::sleep;
use std::time::Duration;

use thalweg_core::shim::SplitMix64;

use super::server::Server;
use super::services::Job;

fn kills(default: usize) -> usize {
    std::env::var("THALWEG_KILLS").map_or(default, |text| text.parse().expect("a number"))
}

#[test]
#[ignore = "fetches a server: make connect-test"]
fn objects_hold_each_row_once() {
    let Some(server) = Server::start() else { return };
    let tables = "CREATE TABLE plain (n BIGINT, text STRING) WITH ('connector' = 'filesystem', 'format' = 'csv', \
        'path' = 's3://thalweg/plain/', 'sink.rolling-policy.file-size' = '100kb');\n\
        CREATE TABLE days (n BIGINT, k BIGINT) PARTITIONED BY (k) WITH ('connector' = 'filesystem', 'format' = 'parquet', \
        'path' = 's3://thalweg/days/');\n";
    let file = server.file(
        "killed",
        &format!(
            "{}{tables}CREATE TABLE numbers (n BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '6000', \
             'fields.n.kind' = 'sequence', 'fields.n.start' = '1', 'fields.n.end' = '20000');\n\
             EXECUTE STATEMENT SET BEGIN INSERT INTO plain SELECT n, 'row ' || CAST(n AS STRING) FROM numbers; \
             INSERT INTO days SELECT n, n % 3 FROM numbers; END;",
            server.with_snapshots("killed")
        ),
    );
    let count = format!(
        "{}{tables}SET 'execution.runtime-mode' = 'batch';\n\
         SELECT 'plain', COUNT(*), COUNT(DISTINCT n), SUM(n) FROM plain;\n\
         SELECT 'days', COUNT(*), COUNT(DISTINCT n), SUM(n) FROM days;",
        server.settings()
    );
    let mut random = SplitMix64::new(1);
    for _ in 0..kills(10) {
        let job = Job::start(&file, &["--resume"]);
        sleep(Duration::from_millis(100 + random.below(1_500)));
        job.kill();
        // What a reader sees in between is there once.
        if !server.keys("plain/part-").is_empty() {
            let seen = server.output(
                "audit",
                &count.replace("SELECT 'days', COUNT(*), COUNT(DISTINCT n), SUM(n) FROM days;", ""),
            );
            let numbers = numbers(&seen);
            assert_eq!(numbers[0], numbers[1], "twice: {seen}");
        }
    }
    let (is_right, said) = Job::start(&file, &["--resume"]).wait();
    assert!(is_right, "{said}");
    let said = server.output("audit", &count);
    assert_eq!(
        numbers(&said),
        [20_000, 20_000, 200_010_000, 20_000, 20_000, 200_010_000],
        "{said}"
    );
    assert_eq!(server.uploads(), "");
    let hidden =
        |key: &&String| key.rsplit('/').next().is_some_and(|name| name.starts_with(".part-"));
    let keys = server.keys("");
    assert_eq!(keys.iter().filter(hidden).count(), 0, "{keys:?}");
}

/// All numbers of three digits and more that a program has printed.
fn numbers(said: &str) -> Vec<u64> {
    let words = said.split(|c: char| !c.is_ascii_digit());
    words.filter_map(|word| word.parse().ok()).filter(|number| *number > 99).collect()
}

#[test]
#[ignore = "fetches a server: make connect-test"]
fn new_objects_are_read_once_by_a_job_that_is_killed() {
    let Some(server) = Server::start() else { return };
    let out = server.folder("followed").join("out");
    let file = server.file(
        "followed",
        &format!(
            "{}CREATE TABLE objects (n BIGINT) WITH ('connector' = 'filesystem', 'format' = 'csv', \
             'path' = 's3://thalweg/in/*.csv', 'source.monitor-interval' = '50 ms');\n\
             CREATE TABLE copied (n BIGINT) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = '{}/');\n\
             INSERT INTO copied SELECT n FROM objects;",
            server.with_snapshots("followed"),
            out.display()
        ),
    );
    let mut random = SplitMix64::new(2);
    let (mut next, rounds) = (0, kills(8));
    for _ in 0..rounds {
        let job = Job::start(&file, &["--resume"]);
        for _ in 0..3 {
            let lines: String = (next..next + 500).map(|n| format!("{n}\\n")).collect();
            // Names that do not sort as they came.
            let name = random.below(1_000_000_000);
            server.python(&format!(
                "client.put_object(Bucket='thalweg', Key='in/{name}.csv', Body=b'{lines}')"
            ));
            next += 500;
        }
        sleep(Duration::from_millis(random.below(1_000)));
        job.kill();
    }
    let job = Job::start(&file, &["--resume"]);
    let copied = || {
        let mut copied: Vec<u64> = Vec::new();
        for entry in std::fs::read_dir(&out).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with("part-") {
                let text = std::fs::read_to_string(entry.path()).expect("a file");
                copied.extend(text.lines().map(|line| line.parse::<u64>().expect("a number")));
            }
        }
        copied.sort_unstable();
        copied
    };
    for _ in 0..300 {
        if copied().len() as u64 >= next {
            break;
        }
        sleep(Duration::from_millis(100));
    }
    job.interrupt();
    assert_eq!(copied(), (0..next).collect::<Vec<_>>());
}
