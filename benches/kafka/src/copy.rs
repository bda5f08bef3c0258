//! How long rows take from topic to topic at a given rate, exactly once with a snapshot each second
//! and at least once.
//!
//! With `--backlog ROWS` the messages are there before the job begins: rows per second of processor
//! time then are those of an engine that is busy.
//!
//! Otherwise message n is due at start + n / rate, fixed before the run, and says so; its latency
//! counts from then to when a reader of committed messages has it, so a delay of the sender or of
//! the job counts too. Every message is counted, and their numbers are summed up: none is lost,
//! none is there twice.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hdrhistogram::Histogram;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::Message;
use rdkafka::{Offset, TopicPartitionList};
use serde_json::json;

use super::broker::{Broker, COLUMNS, PARTITIONS, Writer};
use super::flink::Flink;
use super::job::Job;
use super::{Arguments, Result};

/// How long the last messages may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// How fast, and for how long.
#[derive(Clone, Copy)]
struct Load {
    rate: u64,
    seconds: u64,
    warm_up: u64,
}

/// What a reader has seen.
struct Seen {
    latencies_us: Histogram<u64>,
    /// Until the job gave them to its client.
    given_us: Histogram<u64>,
    count: u64,
    sum: u64,
}

/// A copy of one topic to another.
struct Copy<'a> {
    engine: &'a str,
    guarantee: &'a str,
    input: String,
    output: String,
}

/// Copies with each guarantee, or with the one that `--guarantee` names; with `--flink yes` each
/// time by Flink as well.
pub fn measure(broker: &Broker, arguments: &Arguments) -> Result<()> {
    let program = arguments.program()?;
    let load = Load {
        rate: arguments.number("rate", 200_000)?,
        seconds: arguments.number("seconds", 60)?,
        warm_up: arguments.number("warm-up", 10)?,
    };
    let has_flink = arguments.text("flink") == Some("yes");
    let wanted = arguments.text("guarantee");
    let is_wanted = |guarantee: &&str| wanted.is_none_or(|wanted| wanted == *guarantee);
    for guarantee in ["exactly-once", "at-least-once"].into_iter().filter(is_wanted) {
        for engine in ["thalweg", "flink"].iter().take(1 + usize::from(has_flink)) {
            let topic = |what: &str| broker.topic(&format!("{what}-{engine}-{guarantee}"));
            let copy = Copy { engine, guarantee, input: topic("in")?, output: topic("out")? };
            // A cluster that waits would take memory and time from the other engine.
            let flink = match *engine {
                "flink" => Some(Flink::start(program, &broker.folder)?),
                _ => None,
            };
            let text = script(broker, &copy);
            let start = || match &flink {
                Some(flink) => flink.submit(&format!("copy-{guarantee}"), &text),
                None => Job::start(program, &broker.folder, &own_settings(&copy, &text)),
            };
            match arguments.number("backlog", 0)? {
                0 => run(broker, load, &copy, start()?)?,
                rows => catch_up(broker, rows, &copy, start)?,
            }
        }
    }
    Ok(())
}

/// What both engines run.
fn script(broker: &Broker, copy: &Copy<'_>) -> String {
    let table = |topic: &str, more: &str| {
        format!(
            "({COLUMNS}) WITH ('connector' = 'kafka', 'topic' = '{topic}', 'format' = 'json', \
             'properties.bootstrap.servers' = '{}', {more})",
            broker.servers
        )
    };
    // Flink's transactions would last an hour, which brokers refuse.
    let written = format!(
        "'sink.delivery-guarantee' = '{}', 'sink.transactional-id-prefix' = '{}', \
         'properties.transaction.timeout.ms' = '600000'",
        copy.guarantee, copy.output
    );
    format!(
        "SET 'execution.checkpointing.interval' = '1 s'; CREATE TABLE i {}; CREATE TABLE o {}; \
         INSERT INTO o SELECT * FROM i;",
        table(&copy.input, "'scan.startup.mode' = 'earliest-offset'"),
        table(&copy.output, &written),
    )
}

/// The script with what Flink has in its configuration.
fn own_settings(copy: &Copy<'_>, text: &str) -> String {
    format!("SET 'execution.checkpointing.dir' = 'snapshots-{}'; {text}", copy.guarantee)
}

fn run(broker: &Broker, load: Load, copy: &Copy<'_>, job: Job) -> Result<()> {
    let has_sent = AtomicBool::new(false);
    let count = load.rate * (load.warm_up + load.seconds);
    let (seen, wall_s, cpu_s) = scope(|threads| {
        let reader = threads.spawn(|| read(broker, &copy.output, load, count, &has_sent));
        let sent = send(broker, &copy.input, load, count, || Ok((Instant::now(), job.cpu_s()?)));
        has_sent.store(true, Ordering::SeqCst);
        let seen = reader.join().map_err(|_| "the reader panicked")??;
        let (begun, cpu_before_s) = sent?;
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>((
            seen,
            begun.elapsed().as_secs_f64(),
            job.cpu_s()? - cpu_before_s,
        ))
    })?;
    job.stop()?;
    let at = |share: f64| seen.latencies_us.value_at_quantile(share) as f64 / 1_000.0;
    let is_right = seen.count == count && seen.sum == count * (count - 1) / 2;
    // Of the part behind the warm-up.
    let rows = seen.latencies_us.len();
    let line = json!({
        "part": "kafka-copy", "engine": copy.engine, "guarantee": copy.guarantee, "rate": load.rate, "seconds": load.seconds,
        "rows": rows, "is_right": is_right, "rows_per_s": rows as f64 / wall_s, "cpu_s": cpu_s,
        "rows_per_core_s": rows as f64 / cpu_s, "p50_ms": at(0.5), "p99_ms": at(0.99), "p99_99_ms": at(0.9999),
        "max_ms": at(1.0), "given_p50_ms": seen.given_us.value_at_quantile(0.5) as f64 / 1_000.0,
    });
    println!("{line}");
    Ok(())
}

/// Copies what is there.
fn catch_up(
    broker: &Broker,
    rows: u64,
    copy: &Copy<'_>,
    start: impl FnOnce() -> Result<Job>,
) -> Result<()> {
    let mut writer = Writer::new(broker, &copy.input, 20)?;
    for _ in 0..rows {
        writer.send(now_us())?;
    }
    writer.finish()?;
    let (job, begun) = (start()?, Instant::now());
    let load = Load { rate: rows, seconds: 1, warm_up: 0 };
    let seen = read(broker, &copy.output, load, rows, &AtomicBool::new(true))?;
    let (wall_s, cpu_s) = (begun.elapsed().as_secs_f64(), job.cpu_s()?);
    job.stop()?;
    let line = json!({
        "part": "kafka-backlog", "engine": copy.engine, "guarantee": copy.guarantee, "rows": rows,
        "is_right": seen.count == rows && seen.sum == rows * (rows - 1) / 2, "wall_s": wall_s, "cpu_s": cpu_s,
        "rows_per_s": rows as f64 / wall_s, "rows_per_core_s": rows as f64 / cpu_s,
    });
    println!("{line}");
    Ok(())
}

fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_micros() as u64
}

/// Sends all messages. What `measured` returned when the warm-up was over.
fn send<T>(
    broker: &Broker,
    topic: &str,
    load: Load,
    count: u64,
    measured: impl Fn() -> Result<T>,
) -> Result<T> {
    let mut before = measured()?;
    let mut writer = Writer::new(broker, topic, 5)?;
    let start_us = now_us();
    for number in 0..count {
        let due_us = start_us + number * 1_000_000 / load.rate;
        // Looked at once per millisecond of messages: reading the clock takes time as well.
        if number % (load.rate / 1_000).max(1) == 0 {
            let ahead_us = due_us.saturating_sub(now_us());
            sleep(Duration::from_micros(ahead_us));
        }
        if number == load.warm_up * load.rate {
            before = measured()?;
        }
        writer.send(due_us)?;
    }
    writer.finish()?;
    Ok(before)
}

fn read(
    broker: &Broker,
    topic: &str,
    load: Load,
    count: u64,
    has_sent: &AtomicBool,
) -> Result<Seen> {
    let mut config = broker.config();
    config
        .set("group.id", "reader")
        .set("isolation.level", "read_committed")
        .set("fetch.wait.max.ms", "5");
    let consumer: BaseConsumer = config.create()?;
    let mut list = TopicPartitionList::new();
    list.add_partition_range(topic, 0, PARTITIONS - 1);
    list.set_all_offsets(Offset::Beginning)?;
    consumer.assign(&list)?;
    let mut seen = Seen { latencies_us: Histogram::new(3)?, given_us: Histogram::new(3)?, count: 0, sum: 0 };
    let mut quiet_since = Instant::now();
    while seen.count < count
        && (!has_sent.load(Ordering::SeqCst) || quiet_since.elapsed() < PATIENCE)
    {
        let Some(message) = consumer.poll(Duration::from_millis(100)) else { continue };
        let message = message?;
        let text = message.payload().unwrap_or_default();
        let (id, due_us) = (number(text, b"\"id\":"), number(text, b"\"due\":"));
        seen.count += 1;
        seen.sum += id;
        quiet_since = Instant::now();
        if id >= load.warm_up * load.rate {
            seen.latencies_us.record(now_us().saturating_sub(due_us))?;
            let given_ms = message.timestamp().to_millis().unwrap_or_default().cast_unsigned();
            seen.given_us.record((given_ms * 1_000).saturating_sub(due_us))?;
        }
    }
    Ok(seen)
}

/// The number behind a name.
fn number(text: &[u8], name: &[u8]) -> u64 {
    let at = text.windows(name.len()).position(|window| window == name);
    let digits = at.map_or(&text[..0], |at| &text[at + name.len()..]);
    let digits = digits.iter().take_while(|byte| byte.is_ascii_digit());
    digits.fold(0, |number, digit| number * 10 + u64::from(digit - b'0'))
}
