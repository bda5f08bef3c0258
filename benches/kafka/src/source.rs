//! How many rows are read from a topic per second of processor time.

use serde_json::json;

use super::broker::{Broker, COLUMNS, Writer};
use super::job::Job;
use super::{Arguments, Result};

/// Reads a topic of messages of 100 bytes to its end, as JSON and as bytes.
pub fn measure(broker: &Broker, arguments: &Arguments) -> Result<()> {
    let (program, rows) = (arguments.program()?, arguments.number("rows", 10_000_000)?);
    let (topic, empty) = (broker.topic("source")?, broker.topic("empty")?);
    let mut writer = Writer::new(broker, &topic, 20)?;
    for _ in 0..rows {
        writer.send(0)?;
    }
    writer.finish()?;
    for (format, columns) in [("json", COLUMNS), ("raw", "m BYTES")] {
        let read = |topic: &str| {
            Job::start(program, &broker.folder, &script(broker, topic, format, columns))?.wait()
        };
        // What a job takes that has nothing to read is the start of a program.
        let (_, start_cpu_s) = read(&empty)?;
        let (wall_s, cpu_s) = read(&topic)?;
        let line = json!({
            "part": "kafka-source", "format": format, "rows": rows, "message_bytes": 100, "wall_s": wall_s, "cpu_s": cpu_s,
            "start_cpu_s": start_cpu_s, "rows_per_s": rows as f64 / wall_s,
            "rows_per_core_s": rows as f64 / (cpu_s - start_cpu_s),
        });
        println!("{line}");
    }
    Ok(())
}

fn script(broker: &Broker, topic: &str, format: &str, columns: &str) -> String {
    format!(
        "CREATE TABLE i ({columns}) WITH ('connector' = 'kafka', 'topic' = '{topic}', 'format' = '{format}', \
         'properties.bootstrap.servers' = '{}', 'scan.startup.mode' = 'earliest-offset', \
         'scan.bounded.mode' = 'latest-offset'); \
         CREATE TABLE o ({columns}) WITH ('connector' = 'blackhole'); INSERT INTO o SELECT * FROM i;",
        broker.servers
    )
}
