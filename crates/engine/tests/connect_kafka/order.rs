//! `event_time` over partitions: the bytes of the output depend on the messages alone, not on which
//! partition is read first, nor on whether the job was killed.

use std::fmt::Write as _;
use std::path::Path;
use std::thread::{scope, sleep};
use std::time::Duration;

use thalweg_core::shim::SplitMix64;

use super::broker::Broker;
use super::services::Job;

/// How many times the messages are read without a kill, and with some.
fn rounds() -> u64 {
    std::env::var("THALWEG_ORDER_ROUNDS").map_or(1, |text| text.parse().expect("a number"))
}

/// (milliseconds of its time, number) of each message of a partition.
type Messages = Vec<(i64, i64)>;

const PARTITIONS: u64 = 3;

/// Messages whose times are at most this far behind the greatest before them, many at one time. One
/// partition has few.
fn messages(random: &mut SplitMix64, first: i64, disorder_ms: u64) -> Vec<Messages> {
    let mut number = first;
    let mut partition = |at: u64| {
        let mut now_ms = 0;
        let count = if at == 1 { 7 } else { 250 };
        let mut message = || {
            now_ms += random.below(12) as i64 / 4 * 4;
            number += 1;
            let behind_ms = random.below(disorder_ms + 1) as i64 / 4 * 4;
            ((now_ms - behind_ms).max(0), number)
        };
        (0..count).map(|_| message()).collect()
    };
    (0..PARTITIONS).map(&mut partition).collect()
}

/// What is to be written: the messages of both topics by time, topic, partition and place.
fn expected(topics: [&[Messages]; 2]) -> String {
    let mut all = Vec::new();
    for (topic, partitions) in topics.into_iter().enumerate() {
        for (partition, messages) in partitions.iter().enumerate() {
            let mut sorted = messages.clone();
            sorted.sort_by_key(|message| message.0);
            let row = |(place, (time, n))| (time, topic, partition, place, n);
            all.extend(sorted.into_iter().enumerate().map(row));
        }
    }
    all.sort_unstable();
    let mut text = String::new();
    for (time, _, partition, _, n) in all {
        writeln!(text, "{time},{partition},{n}").expect("text");
    }
    text
}

/// Sends the messages of each partition by itself, in small pieces with pauses between them.
fn send_with_delays(broker: &Broker, topic: &str, partitions: &[Messages], seed: u64) {
    scope(|threads| {
        for (partition, messages) in (0..).zip(partitions) {
            threads.spawn(move || {
                let mut random = SplitMix64::new(seed * 100 + partition as u64);
                let values: Vec<String> = messages
                    .iter()
                    .map(|(ms, n)| format!("{{\"ms\": {ms}, \"n\": {n}}}"))
                    .collect();
                for piece in values.chunks(1 + random.below(90) as usize) {
                    sleep(Duration::from_millis(random.below(200)));
                    broker.send(topic, piece.iter().map(|value| (partition, None, Some(&**value))));
                }
            });
        }
    });
}

fn table(broker: &Broker, topic: &str, partitions: &[Messages], within: &str) -> String {
    let stop =
        |(at, messages): (usize, &Messages)| format!("partition:{at},offset:{}", messages.len());
    let stops: Vec<String> = partitions.iter().enumerate().map(stop).collect();
    format!(
        "(ms BIGINT NOT NULL, n BIGINT, part INT METADATA FROM 'partition' VIRTUAL, \
         ts AS CAST(TO_TIMESTAMP_LTZ(ms, 3) AS TIMESTAMP(3)), WATERMARK FOR ts AS ts - INTERVAL '0.040' SECOND) \
         WITH ({}, 'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'specific-offsets', \
         'scan.bounded.specific-offsets' = '{}'{within})",
        broker.json(topic),
        stops.join(";")
    )
}

/// All that was written, in the order of the names of files.
fn written(folder: &Path) -> String {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    let mut files: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.retain(|path| {
        !path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'))
    });
    files.sort();
    files.iter().map(|file| std::fs::read_to_string(file).expect("text")).collect()
}

/// Runs the job while messages come; kills it some times first.
fn run(broker: &Broker, name: &str, topics: [&[Messages]; 2], seed: u64, kills: u64) -> String {
    let [sorted, unsorted] = [format!("{name}-sorted"), format!("{name}-unsorted")];
    for topic in [&sorted, &unsorted] {
        broker.topic(topic, PARTITIONS as i32, &[]);
    }
    let text = format!(
        "SET 'pipeline.order' = 'event_time'; SET 'execution.checkpointing.dir' = '{}'; \
         SET 'execution.checkpointing.interval' = '50 ms'; \
         CREATE TABLE a {}; CREATE TABLE b {}; \
         CREATE TABLE o (ms BIGINT, part INT, n BIGINT) WITH ('connector' = 'filesystem', 'path' = 'out/', 'format' = 'csv'); \
         INSERT INTO o SELECT ms, part, n FROM a UNION ALL SELECT ms, part, n FROM b;",
        broker.folder(name).join("snapshots").display(),
        table(broker, &sorted, topics[0], ""),
        table(broker, &unsorted, topics[1], ", 'source.sort-within' = '40 ms'"),
    );
    let file = broker.file(name, &text);
    scope(|threads| {
        for (topic, partitions) in [&sorted, &unsorted].into_iter().zip(topics) {
            threads.spawn(move || send_with_delays(broker, topic, partitions, seed));
        }
        let mut random = SplitMix64::new(seed);
        for _ in 0..kills {
            let job = Job::start(&file, &["--resume"]);
            sleep(Duration::from_millis(200 + random.below(900)));
            job.kill();
        }
        let (is_right, said) = Job::start(&file, &["--resume"]).wait();
        assert!(is_right, "seed {seed}: {said}");
    });
    written(&broker.folder(name).join("out"))
}

#[test]
fn the_sequence_depends_on_messages_alone() {
    let Some(broker) = Broker::shared() else { return };
    let mut random = SplitMix64::new(11);
    let (a, b) = (messages(&mut random, 0, 0), messages(&mut random, 10_000, 40));
    let expected = expected([&a, &b]);
    assert_eq!(expected.lines().count(), 2 * (250 + 7 + 250));
    for round in 0..rounds() {
        for kills in [0, 3] {
            let name = format!("order-{round}-{kills}");
            let found = run(&broker, &name, [&a, &b], 2 * round + kills, kills);
            if found != expected {
                std::fs::write("/tmp/order-found", &found).expect("a file");
                std::fs::write("/tmp/order-expected", &expected).expect("a file");
            }
            let differs =
                found.lines().zip(expected.lines()).position(|(found, expected)| found != expected);
            assert!(
                found == expected,
                "{name}: {} lines, line {differs:?} differs",
                found.lines().count()
            );
        }
    }
}
