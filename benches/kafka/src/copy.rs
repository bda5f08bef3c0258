//! How long rows take from topic to topic at a given rate, exactly once with a snapshot each second
//! and at least once.
//!
//! Message n is due at start + n / rate, fixed before the run, and says so; its latency counts from
//! then to when a reader of committed messages has it, so a delay of the sender or of the job
//! counts too. Every message is counted, and their numbers are summed up: none is lost, none is
//! there twice.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hdrhistogram::Histogram;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::Message;
use rdkafka::{Offset, TopicPartitionList};
use serde_json::json;

use super::broker::{Broker, COLUMNS, PARTITIONS, Writer};
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
    count: u64,
    sum: u64,
}

/// Copies with each guarantee, and with a peer if there is one.
pub fn measure(broker: &Broker, arguments: &Arguments) -> Result<()> {
    let program = arguments.program()?;
    let load = Load {
        rate: arguments.number("rate", 200_000)?,
        seconds: arguments.number("seconds", 60)?,
        warm_up: arguments.number("warm-up", 10)?,
    };
    for guarantee in ["exactly-once", "at-least-once"] {
        let (input, output) =
            (broker.topic(&format!("in-{guarantee}"))?, broker.topic(&format!("out-{guarantee}"))?);
        let text = script(broker, &input, &output, guarantee);
        let job = || Job::start(program, &broker.folder, &text);
        run(broker, load, (&input, &output), ("thalweg", guarantee), job)?;
    }
    if let Some(peer) = arguments.text("peer") {
        let (input, output) = (broker.topic("in-peer")?, broker.topic("out-peer")?);
        let job = || {
            let mut command = Command::new("sh");
            command.arg("-c").arg(format!("exec {peer}")).env("BOOTSTRAP", &broker.servers);
            Job::spawn(command.env("INPUT", &input).env("OUTPUT", &output))
        };
        run(broker, load, (&input, &output), ("peer", "its own"), job)?;
    }
    Ok(())
}

fn script(broker: &Broker, input: &str, output: &str, guarantee: &str) -> String {
    let table = |topic: &str, more: &str| {
        format!(
            "({COLUMNS}) WITH ('connector' = 'kafka', 'topic' = '{topic}', 'format' = 'json', \
             'properties.bootstrap.servers' = '{}', {more})",
            broker.servers
        )
    };
    format!(
        "SET 'execution.checkpointing.dir' = 'snapshots-{guarantee}'; SET 'execution.checkpointing.interval' = '1 s'; \
         CREATE TABLE i {}; CREATE TABLE o {}; INSERT INTO o SELECT * FROM i;",
        table(input, "'scan.startup.mode' = 'earliest-offset'"),
        table(
            output,
            &format!(
                "'sink.delivery-guarantee' = '{guarantee}', 'sink.transactional-id-prefix' = '{output}'"
            )
        ),
    )
}

fn run(
    broker: &Broker,
    load: Load,
    (input, output): (&str, &str),
    (engine, guarantee): (&str, &str),
    start: impl FnOnce() -> Result<Job>,
) -> Result<()> {
    let has_sent = AtomicBool::new(false);
    let count = load.rate * (load.warm_up + load.seconds);
    let job = start()?;
    let (seen, wall_s, cpu_s) = scope(|threads| {
        let reader = threads.spawn(|| read(broker, output, load, count, &has_sent));
        let begun = Instant::now();
        let sent = send(broker, input, load, count);
        has_sent.store(true, Ordering::SeqCst);
        let seen = reader.join().map_err(|_| "the reader panicked")??;
        sent?;
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>((
            seen,
            begun.elapsed().as_secs_f64(),
            job.cpu_s()?,
        ))
    })?;
    job.stop()?;
    let at = |share: f64| seen.latencies_us.value_at_quantile(share) as f64 / 1_000.0;
    let is_right = seen.count == count && seen.sum == count * (count - 1) / 2;
    let line = json!({
        "part": "kafka-copy", "engine": engine, "guarantee": guarantee, "rate": load.rate, "seconds": load.seconds,
        "rows": seen.count, "is_right": is_right, "rows_per_s": seen.count as f64 / wall_s, "cpu_s": cpu_s,
        "rows_per_core_s": seen.count as f64 / cpu_s, "p50_ms": at(0.5), "p99_ms": at(0.99), "p99_99_ms": at(0.9999),
        "max_ms": at(1.0),
    });
    println!("{line}");
    Ok(())
}

fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_micros() as u64
}

fn send(broker: &Broker, topic: &str, load: Load, count: u64) -> Result<u64> {
    let mut writer = Writer::new(broker, topic, 1)?;
    let start_us = now_us();
    for number in 0..count {
        let due_us = start_us + number * 1_000_000 / load.rate;
        // Looked at once per millisecond of messages: reading the clock takes time as well.
        if number % (load.rate / 1_000).max(1) == 0 {
            let ahead_us = due_us.saturating_sub(now_us());
            sleep(Duration::from_micros(ahead_us));
        }
        writer.send(due_us)?;
    }
    writer.finish()
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
    let mut seen = Seen { latencies_us: Histogram::new(3)?, count: 0, sum: 0 };
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
