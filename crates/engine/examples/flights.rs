//! The flights job with the builder instead of SQL: mean delay per origin and hour of scheduled
//! departure, over flights that arrive when they really left.
//!
//! ```text
//! cargo run --release --example flights
//! ```
//! The Parquet file is read by the session (SQL is the shortest way to a connector); windows,
//! watermark and late rows are the builder's.

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type, TimestampMillisecondType};
use thalweg::pipeline::{Collect, Late, MemorySource, Pipeline, Window, average, count};
use thalweg::session::{Session, SessionOptions};
use thalweg::{Column, DataType, Error, Result, RunOptions, TableSchema};

const HOUR_MS: i64 = 3_600_000;

fn main() -> Result<()> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/flights");
    let options = SessionOptions {
        base_dir: folder.into(),
        allowed_roots: vec![folder.into()],
        ..SessionOptions::default()
    };
    let mut session = Session::new(options)?;
    let batches = session.execute(
        "CREATE TABLE departures (
           departed TIMESTAMP(3), sched TIMESTAMP(3), origin STRING, delay INT
         ) WITH ('connector' = 'filesystem', 'format' = 'parquet', 'path' = 'departures.parquet');
         SELECT departed, sched, origin, CAST(delay AS DOUBLE) AS delay FROM departures;",
    )?;

    let schema = TableSchema::new(vec![
        Column::new("departed", DataType::Timestamp(3).nullable()),
        Column::new("sched", DataType::Timestamp(3).nullable()),
        Column::new("origin", DataType::STRING.nullable()),
        Column::new("delay", DataType::Double.nullable()),
    ]);
    let (pipeline, hours, late) = (Pipeline::new(), Collect::new(), Collect::new());
    // A row establishes the watermark "an hour before this departure": newer flights may still be
    // missing, older ones are late.
    let (results, late_rows) = pipeline
        .read("departures", MemorySource::new(schema.clone(), batches), schema)
        .watermark_from("sched", "departed", HOUR_MS)?
        .window(Window::tumbling(HOUR_MS), "sched")?
        .late(Late::Emit)
        .key_by(&["origin"])?
        .aggregate_with_late(vec![count().named("flights"), average("delay").named("mean")])?;
    results.write("hours", hours.sink());
    late_rows.write("late", late.sink());
    pipeline.run(RunOptions::default())?;

    let mut worst: Vec<(f64, i64, String, i64)> = Vec::new();
    for batch in hours.batches() {
        let flights = batch.column(1).as_primitive::<Int64Type>();
        let means = batch.column(2).as_primitive::<Float64Type>();
        let starts = batch.column(3).as_primitive::<TimestampMillisecondType>();
        for row in (0..batch.num_rows()).filter(|&row| flights.value(row) >= 10) {
            let origin = batch.column(0).as_string_view().value(row).to_owned();
            worst.push((means.value(row), starts.value(row), origin, flights.value(row)));
        }
    }
    worst.sort_by(|a, b| b.0.total_cmp(&a.0));
    let Some((mean, start, origin, flights)) = worst.first() else {
        return Err(Error::data("no hour has ten flights"));
    };
    let start = thalweg::text::format_timestamp_millis(*start, 0);
    println!("{origin} {start}: {mean:.1} min over {flights} flights");
    println!("{} hours, {} late flights", hours.num_rows(), late.num_rows());
    Ok(())
}
