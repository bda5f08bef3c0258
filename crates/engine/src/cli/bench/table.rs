//! Measurements as a table for people, and as lines of JSON for programs.

use std::time::Duration;

use thalweg::bench::{BenchOptions, Measurement};
use thalweg_runtime::TaskLengths;

use crate::cli::text_table::aligned;
use crate::cli::units;

/// What became of a query.
pub enum QueryOutcome {
    /// It ran.
    Measured(Measurement),
    /// It can't run, and nobody asked for it by name: its name and why.
    PassedOver(&'static str, String),
}

/// A heading, and what stands below it.
type TableColumn = (&'static str, fn(&Measurement) -> String);

const COLUMNS: [TableColumn; 9] = [
    ("query", |run| run.query.to_owned()),
    ("rows in", |run| units::count(run.rows_in)),
    ("seconds", |run| format!("{:.2}", run.elapsed.as_secs_f64())),
    ("rows/s", |run| units::short_count(run.rows_per_second())),
    ("per core", |run| units::short_count(run.rows_per_processor_second())),
    ("rows out", |run| units::count(run.rows_out)),
    ("state", |run| units::bytes(run.state_peak_bytes)),
    ("memory", |run| run.resident_peak_bytes.map_or("-".to_owned(), units::bytes)),
    ("task p99.99", |run| {
        let of_kinds = run.tasks.iter().map(|of_kind| of_kind.p9999_us);
        units::duration(Duration::from_micros(of_kinds.max().unwrap_or(0)))
    }),
];

const LATENCIES: [TableColumn; 4] = [
    ("p50", |run| latency(run, |l| l.p50_us)),
    ("p99", |run| latency(run, |l| l.p99_us)),
    ("p99.9", |run| latency(run, |l| l.p999_us)),
    ("slowest", |run| latency(run, |l| l.max_us)),
];

const FINGERPRINT: TableColumn = ("result", |run| match run.fingerprint {
    Some(fingerprint) => format!("{fingerprint:016x}"),
    None => "-".to_owned(),
});

fn latency(
    run: &Measurement,
    of: fn(&thalweg_runtime::metrics::LatencyPercentiles) -> u64,
) -> String {
    let latency = run.latency.as_ref().map(of);
    latency.map_or("-".to_owned(), |us| units::duration(Duration::from_micros(us)))
}

/// All outcomes as a table, with what holds for all of them on top.
pub fn table(outcomes: &[QueryOutcome], options: &BenchOptions) -> String {
    let mut columns = COLUMNS.to_vec();
    columns.extend(options.rate.iter().flat_map(|_| LATENCIES));
    columns.extend(options.check.then_some(FINGERPRINT));
    let cells = |outcome: &QueryOutcome| match outcome {
        QueryOutcome::Measured(run) => columns.iter().map(|(_, cell)| cell(run)).collect(),
        QueryOutcome::PassedOver(name, why) => {
            vec![(*name).to_owned(), format!("passed over: {why}")]
        }
    };
    let headings = columns.iter().map(|(heading, _)| (*heading).to_owned()).collect();
    let rows: Vec<_> = std::iter::once(headings).chain(outcomes.iter().map(cells)).collect();
    format!("{}\n{}", head(options), aligned(&rows, |column| column == 0))
}

fn head(options: &BenchOptions) -> String {
    let BenchOptions { preset, order, .. } = options;
    let events = units::count(options.events);
    let rate = options.rate.map(|rate| format!(", {} a second", units::count(rate)));
    let workers = match options.workers {
        Some(1) => "1 worker".to_owned(),
        Some(workers) => format!("{workers} workers"),
        None => "a worker for each core".to_owned(),
    };
    format!(
        "{events} events of preset {preset}{}, {workers}, order {order}",
        rate.unwrap_or_default()
    )
}

/// The lengths of tasks by kind, as JSON.
fn tasks(all: &[TaskLengths]) -> String {
    let of_kind = |of: &TaskLengths| {
        let fields = [
            ("count", of.count),
            ("too_long", of.too_long),
            ("p50_us", of.p50_us),
            ("p99_us", of.p99_us),
            ("p9999_us", of.p9999_us),
            ("max_us", of.max_us),
        ];
        let fields = fields.map(|(name, value)| format!("\"{name}\":{value}"));
        format!("\"{}\":{{{}}}", of.kind.name(), fields.join(","))
    };
    format!("{{{}}}", all.iter().map(of_kind).collect::<Vec<_>>().join(","))
}

/// A run as a line of JSON. Times are in seconds, sizes in bytes, latencies in microseconds.
pub fn json(run: &Measurement, options: &BenchOptions) -> String {
    let number = |value: Option<u64>| value.map_or("null".to_owned(), |value| value.to_string());
    let latency = run.latency.as_ref();
    let fingerprint = run.fingerprint.map_or("null".to_owned(), |f| format!("\"{f:016x}\""));
    let fields = [
        ("query", format!("\"{}\"", run.query)),
        ("preset", format!("\"{}\"", options.preset)),
        ("order", format!("\"{}\"", options.order)),
        ("workers", number(options.workers.map(|workers| workers as u64))),
        ("rate", number(options.rate)),
        ("events", run.events.to_string()),
        ("rows_in", run.rows_in.to_string()),
        ("rows_out", run.rows_out.to_string()),
        ("rows_retracted", run.rows_retracted.to_string()),
        ("seconds", format!("{:.6}", run.elapsed.as_secs_f64())),
        ("processor_seconds", format!("{:.6}", run.processor_time.as_secs_f64())),
        ("state_peak_bytes", run.state_peak_bytes.to_string()),
        ("resident_peak_bytes", number(run.resident_peak_bytes.map(|bytes| bytes as u64))),
        ("latency_p50_us", number(latency.map(|l| l.p50_us))),
        ("latency_p99_us", number(latency.map(|l| l.p99_us))),
        ("latency_p999_us", number(latency.map(|l| l.p999_us))),
        ("latency_max_us", number(latency.map(|l| l.max_us))),
        ("fingerprint", fingerprint),
        ("tasks", tasks(&run.tasks)),
    ];
    let fields = fields.map(|(name, value)| format!("\"{name}\":{value}"));
    format!("{{{}}}\n", fields.join(","))
}
