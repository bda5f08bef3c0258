//! Throughput of the building blocks compared with floors written by hand, in one run.
//!
//! ```text
//! cargo run --release --manifest-path benches/Cargo.toml [-- WORKLOAD…] [--repeat N] [--scale F]
//! cargo run --release --manifest-path benches/Cargo.toml -- nexmark [QUERY…]      see [`nexmark`]
//! cargo run --release --manifest-path benches/Cargo.toml -- jobs                  see [`jobs`]
//! cargo run --release --manifest-path benches/Cargo.toml -- suite [--only PART]   see [`suite`]
//! ```
//! Every run alternates: the floor, the engine with one worker, the engine with two. Each line of
//! the output is a JSON object of one measurement; a table of medians follows. Rates are input
//! events (words, rows) per second of process CPU time, so threads that wait cost nothing and
//! threads that work count, whatever their number. Results are checked inside every run.

mod data;
mod engine;
mod floor;
mod jobs;
mod latency;
mod nexmark;
mod source;
mod suite;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cpu_time::ProcessTime;

use engine::{How, Input};
use thalweg_core::OrderContract;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// One measurement.
struct Measured {
    events: u64,
    cpu: Duration,
    wall: Duration,
    check: u64,
}

fn measure(run: impl FnOnce() -> (u64, u64)) -> Measured {
    suite::forget_resident_peak();
    let (cpu, wall) = (ProcessTime::now(), Instant::now());
    let (events, check) = run();
    Measured { events, cpu: cpu.elapsed(), wall: wall.elapsed(), check }
}

/// A workload: its variants by name, each a function that runs it once.
type Variant<'a> = (&'static str, Box<dyn Fn() -> (u64, u64) + 'a>);

struct Settings {
    workloads: Vec<String>,
    repeat: usize,
    scale: f64,
}

fn settings() -> Settings {
    let mut settings = Settings { workloads: Vec::new(), repeat: 5, scale: 1.0 };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().and_then(|v| v.parse::<f64>().ok());
        match argument.as_str() {
            "--repeat" => settings.repeat = value().map_or(5, |v| v as usize),
            "--scale" => settings.scale = value().unwrap_or(1.0),
            _ => settings.workloads.push(argument),
        }
    }
    settings
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1).peekable();
    suite::end_with_the_suite();
    match arguments.peek().map(String::as_str) {
        Some("nexmark") => nexmark::main(arguments.skip(1)),
        Some("jobs") => jobs::main(arguments.skip(1)),
        Some("suite") => return suite::main(arguments.skip(1)),
        Some(suite::CHILD) => {
            let point = arguments.nth(1).unwrap_or_default();
            if let Err(problem) = suite::child(&point) {
                eprintln!("{problem}");
                return ExitCode::FAILURE;
            }
        }
        _ => building_blocks(),
    }
    ExitCode::SUCCESS
}

fn building_blocks() {
    let settings = settings();
    let wanted = |name: &str| {
        settings.workloads.is_empty() || settings.workloads.iter().any(|workload| workload == name)
    };
    if wanted("wordcount") {
        wordcount(&settings);
    }
    if wanted("merge") {
        merge_by_time(&settings);
    }
    if wanted("row-by-row") {
        row_by_row(&settings);
    }
    if settings.workloads.iter().any(|workload| workload == "latency") {
        latency_at_half_load(&settings);
    }
    if wanted("filter-project") || wanted("count-per-key") {
        let rows = (9_000_000.0 * settings.scale) as usize;
        let batches = Arc::new(data::bids(rows, 65_536, 10_000));
        let period_ms = rows as i64 / 1000;
        if wanted("filter-project") {
            let input = Input { batches: Arc::clone(&batches), period_ms, laps: 20 };
            filter_project(&settings, &input);
        }
        if wanted("count-per-key") {
            let input = Input { batches, period_ms, laps: 20 };
            count_per_key(&settings, &input);
        }
    }
}

/// How late results leave in both contracts, at half of what `epoch` carries with one worker.
fn latency_at_half_load(settings: &Settings) {
    const LASTS: Duration = Duration::from_secs(20);
    let texts = (1_000_000.0 * settings.scale) as usize;
    let text = Arc::new(data::text_records(texts, 7));
    let bids = (5_000_000.0 * settings.scale) as usize;
    let bid_batches = Arc::new(data::bids(bids, 65_536, 10_000));
    let text = Input { batches: text, period_ms: texts as i64 / 1000, laps: 3 };
    let bids = Input { batches: bid_batches, period_ms: bids as i64 / 1000, laps: 10 };
    let above = 5_000;
    let how = How::workers(1);
    for (name, workload, input) in [
        ("wordcount", engine::Paced::Wordcount, &text),
        ("filter-project", engine::Paced::FilterProject, &bids),
        ("count-per-key", engine::Paced::CountPerKey, &bids),
    ] {
        let full = || match workload {
            engine::Paced::Wordcount => engine::wordcount(input, how),
            engine::Paced::FilterProject => engine::filter_project(input, how, above),
            engine::Paced::CountPerKey => engine::count_per_key(input, how),
        };
        let rows_per_second = |_| {
            let started = Instant::now();
            let (rows, _) = engine_run(full());
            rows as f64 / started.elapsed().as_secs_f64()
        };
        let mut rates: Vec<f64> = (0..3).map(rows_per_second).collect();
        rates.sort_by(f64::total_cmp);
        let rate = rates[1] / 2.0;
        let endless = Input { laps: usize::MAX, ..input.clone() };
        for repetition in 0..settings.repeat {
            for order in [OrderContract::Epoch, OrderContract::Arrival] {
                let paced = engine::paced(workload, &endless, How { order, ..how }, rate, LASTS);
                let ages = paced.unwrap_or_else(|error| panic!("the engine failed: {error}"));
                let ages = ages.lock().expect("the sink did not panic");
                let ms = |quantile| ages.value_at_quantile(quantile) as f64 / 1000.0;
                let line = serde_json::json!({
                    "workload": format!("{name} at half load"), "variant": order.to_string(),
                    "rows_per_second": rate as u64, "run": repetition, "results": ages.len(),
                    "p50_ms": ms(0.5), "p99_ms": ms(0.99), "p99_99_ms": ms(0.9999),
                    "max_ms": ages.max() as f64 / 1000.0,
                });
                println!("{line}");
            }
        }
    }
}

/// One row per bundle through filter, projection and count per key: what a row costs on its own.
fn row_by_row(settings: &Settings) {
    const ABOVE: i64 = 5_000;
    let rows = (400_000.0 * settings.scale) as usize;
    let batches = Arc::new(data::bids(rows, 65_536, 10_000));
    let input = Input { batches, period_ms: rows as i64 / 1000, laps: 1 };
    let events = rows as u64;
    let one = |how: How| How { bundle_rows_max: 1, ..how };
    type Run = fn(&Input, How, i64) -> thalweg::Result<(thalweg::Report, engine::Totals)>;
    let run = |chain: Run, how: How| {
        let (_, totals) = engine_run(chain(&input, one(how), ABOVE));
        (events, totals.get().1 as u64)
    };
    let ordered = || How::workers(1).in_arrival_order();
    let (closures, expressions) = (engine::chain_of_closures, engine::chain_of_expressions);
    report(
        settings,
        "row-by-row",
        "rows",
        vec![
            ("closures, epoch", Box::new(move || run(closures, How::workers(1)))),
            ("closures, arrival", Box::new(move || run(closures, ordered()))),
            ("expressions, epoch", Box::new(move || run(expressions, How::workers(1)))),
            ("expressions, arrival", Box::new(move || run(expressions, ordered()))),
        ],
    );
}

/// Four sorted inputs of three 8-byte columns, merged by time: runs of 100 rows, and row by row.
fn merge_by_time(settings: &Settings) {
    const INPUTS: usize = 4;
    let rows = (3_000_000.0 * settings.scale) as usize;
    for (workload, run) in [("merge-runs-of-100", 100), ("merge-interleaved", 1)] {
        let inputs: Vec<Input> = (0..INPUTS)
            .map(|input| {
                let batches = Arc::new(data::sorted_input(rows, 65_536, input, INPUTS, run));
                Input { batches, period_ms: (rows * INPUTS) as i64, laps: 3 }
            })
            .collect();
        let events = (rows * INPUTS * 3) as u64;
        let merged = |order: OrderContract| {
            let (read, totals) =
                engine_run(engine::merge(&inputs, How { order, ..How::workers(1) }));
            assert_eq!(read, events, "every row comes out once");
            (events, totals.get().1 as u64)
        };
        report(
            settings,
            workload,
            "rows",
            vec![
                ("union, epoch", Box::new(|| merged(OrderContract::Epoch))),
                ("merge, event_time", Box::new(|| merged(OrderContract::EventTime))),
            ],
        );
    }
}

fn engine_run(run: thalweg::Result<(thalweg::Report, engine::Totals)>) -> (u64, engine::Totals) {
    let (report, totals) = run.unwrap_or_else(|error| panic!("the engine failed: {error}"));
    (report.metrics.rows_in(), totals)
}

fn wordcount(settings: &Settings) {
    // 2.7 million records of 100 bytes: 270 MB.
    let records = (2_700_000.0 * settings.scale) as usize;
    let batches = Arc::new(data::text_records(records, 7));
    let input = Input { batches, period_ms: records as i64 / 1000, laps: 3 };
    let words = floor::wordcount(&input.batches, input.laps).0;
    let run = |how: How| {
        let (_, totals) = engine_run(engine::wordcount(&input, how));
        // Every word is in exactly 30 windows.
        assert_eq!(totals.get().1 as u64, words * 30, "the counts of all windows");
        (words, totals.get().2)
    };
    report(
        settings,
        "wordcount",
        "words",
        vec![
            (
                "floor: fused split and count",
                Box::new(|| floor::wordcount(&input.batches, input.laps)),
            ),
            ("engine, 1 worker", Box::new(|| run(How::workers(1)))),
            ("engine, 2 workers", Box::new(|| run(How::workers(2)))),
            ("arrival, 1 worker", Box::new(|| run(How::workers(1).in_arrival_order()))),
            ("arrival, 2 workers", Box::new(|| run(How::workers(2).in_arrival_order()))),
        ],
    );
}

fn filter_project(settings: &Settings, input: &Input) {
    const ABOVE: i64 = 5_000;
    let events = (input.laps * input.batches.iter().map(|b| b.num_rows()).sum::<usize>()) as u64;
    let run = |how: How| {
        let (_, totals) = engine_run(engine::filter_project(input, how, ABOVE));
        (events, totals.get().1 as u64)
    };
    let floor = || (events, floor::filter_project(&input.batches, input.laps, ABOVE).1 as u64);
    report(
        settings,
        "filter-project",
        "rows",
        vec![
            ("floor: one loop", Box::new(floor)),
            ("engine, 1 worker", Box::new(|| run(How::workers(1)))),
            ("engine, 2 workers", Box::new(|| run(How::workers(2)))),
            ("arrival, 1 worker", Box::new(|| run(How::workers(1).in_arrival_order()))),
            ("arrival, 2 workers", Box::new(|| run(How::workers(2).in_arrival_order()))),
        ],
    );
}

fn count_per_key(settings: &Settings, input: &Input) {
    let events = (input.laps * input.batches.iter().map(|b| b.num_rows()).sum::<usize>()) as u64;
    let run = |how: How| {
        let (_, totals) = engine_run(engine::count_per_key(input, how));
        assert_eq!(totals.get().1 as u64, events, "every bid is counted once");
        (events, totals.get().2)
    };
    let mut variants: Vec<Variant<'_>> = vec![
        (
            "floor: hash table",
            Box::new(|| (events, floor::count_per_key(&input.batches, input.laps).1)),
        ),
        ("engine, 1 worker", Box::new(|| run(How::workers(1)))),
        ("engine, 2 workers", Box::new(|| run(How::workers(2)))),
        ("arrival, 1 worker", Box::new(|| run(How::workers(1).in_arrival_order()))),
        ("arrival, 2 workers", Box::new(|| run(How::workers(2).in_arrival_order()))),
    ];
    #[cfg(feature = "datafusion")]
    variants.insert(
        1,
        (
            "floor: DataFusion interning and count",
            Box::new(|| (events, floor::count_per_key_datafusion(&input.batches, input.laps).1)),
        ),
    );
    report(settings, "count-per-key", "rows", std::mem::take(&mut variants));
}

/// Runs the variants in turn, prints each measurement and then the medians.
fn report(settings: &Settings, workload: &str, unit: &str, variants: Vec<Variant<'_>>) {
    let mut per_cpu: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    let mut per_wall: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    let mut checks: BTreeMap<usize, u64> = BTreeMap::new();
    for repetition in 0..=settings.repeat {
        for (place, (variant, run)) in variants.iter().enumerate() {
            suite::forget_resident_peak();
            let measured = measure(run);
            let before = *checks.entry(place).or_insert(measured.check);
            assert_eq!(before, measured.check, "{variant} gives the same result each time");
            if repetition == 0 {
                // Warm-up: pages are touched, the allocator has grown.
                continue;
            }
            let rate = |time: Duration| measured.events as f64 / time.as_secs_f64() / 1e6;
            let (cpu, wall) = (rate(measured.cpu), rate(measured.wall));
            per_cpu.entry(place).or_default().push(cpu);
            per_wall.entry(place).or_default().push(wall);
            let line = serde_json::json!({
                "workload": workload, "variant": variant, "unit": unit, "events": measured.events,
                "million_per_cpu_second": (cpu * 100.0).round() / 100.0,
                "million_per_second": (wall * 100.0).round() / 100.0,
                "cpu_seconds": measured.cpu.as_secs_f64(), "seconds": measured.wall.as_secs_f64(),
                "resident_peak_bytes": suite::resident_peak_bytes("self"),
            });
            println!("{line}");
        }
    }
    println!("\n{workload}, million {unit}: medians of {} runs in turn", settings.repeat);
    let first = median(&per_cpu[&0]).0;
    let one = variants.iter().position(|(name, _)| *name == "engine, 1 worker");
    for (place, (variant, _)) in variants.iter().enumerate() {
        let (cpu, low, high) = median(&per_cpu[&place]);
        let wall = median(&per_wall[&place]).0;
        let scaling = match one {
            Some(one) if variant.contains(", 2 workers") || variant.starts_with("arrival") => {
                format!(", {:.2} × one worker in epoch", wall / median(&per_wall[&one]).0)
            }
            _ => String::new(),
        };
        let ratio = cpu / first;
        println!(
            "  {variant:40} {cpu:8.1} per CPU s ({low:.1} to {high:.1}), {wall:8.1} per s, {ratio:.2} of the floor{scaling}"
        );
    }
    println!();
}

/// Median, smallest, largest.
fn median(values: &[f64]) -> (f64, f64, f64) {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    (sorted[sorted.len() / 2], sorted[0], sorted[sorted.len() - 1])
}
