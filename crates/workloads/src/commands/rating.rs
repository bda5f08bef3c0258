//! `rating`: Linear Road in real time. The first part of a run is read at full speed, the rest when
//! it happens; every answer of that rest must leave within five seconds.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use thalweg::pipeline::Pipeline;
use thalweg::{OrderContract, RunOptions};
use thalweg_workloads::linear_road::{Answer, Record, Traffic, pipeline, validate_serially};

use super::CommandResult;
use super::linear_road::TrafficArguments;
use super::paced::Paced;

/// When the live part began, once it has.
type LiveSince = Arc<OnceLock<Instant>>;

/// Options of `rating`.
#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    traffic: TrafficArguments,
    /// Numbers of expressways to try, ascending; the first that fails ends the search.
    #[arg(long, value_delimiter = ',', default_value = "50,100,200,400")]
    expressways: Vec<usize>,
    /// How many seconds at the end are played in real time.
    #[arg(long, default_value_t = 1200)]
    live_seconds: i64,
    /// The longest response allowed, in seconds.
    #[arg(long, default_value_t = 5.0)]
    limit_seconds: f64,
    /// Number of workers.
    #[arg(long, default_value_t = 2)]
    workers: usize,
    /// Partitions of each operator.
    #[arg(long, default_value_t = 100)]
    partitions: usize,
}

/// What leaves in one trial.
struct Answers {
    /// A hash over all answers in their order.
    hash: DefaultHasher,
    count: u64,
    /// Response times of the live part in microseconds.
    responses: Histogram<u64>,
}

impl Answers {
    fn new() -> Self {
        let bounds = Histogram::new_with_bounds(1, 3_600_000_000, 3);
        let responses = bounds.expect("the bounds are valid");
        Answers { hash: DefaultHasher::new(), count: 0, responses }
    }

    fn take(&mut self, answer: &Answer, live_from_s: i64, live_since: &LiveSince) {
        answer.hash(&mut self.hash);
        self.count += 1;
        let since_s = answer.time_s() - live_from_s;
        if let (true, Some(began)) = (since_s >= 0, live_since.get()) {
            let happened_us = since_s as u64 * 1_000_000;
            let left_us = began.elapsed().as_micros() as u64;
            self.responses.saturating_record(left_us.saturating_sub(happened_us).max(1));
        }
    }
}

/// Tries numbers of expressways.
pub fn run(arguments: &Arguments) -> CommandResult {
    println!(
        "expressways | records (live per second) | answers | responses p50, p99, p99.99, max | in time"
    );
    let mut rating = None;
    for &expressways in &arguments.expressways {
        if !trial(arguments, expressways)? {
            break;
        }
        rating = Some(expressways);
    }
    match rating {
        Some(expressways) => println!("L-rating: {expressways} expressways"),
        None => println!("no number of expressways was kept up with"),
    }
    Ok(())
}

/// One run; true if all responses were in time.
fn trial(arguments: &Arguments, expressways: usize) -> Result<bool, Box<dyn std::error::Error>> {
    let settings = arguments.traffic.settings(expressways)?;
    let live_from_s = settings.seconds - arguments.live_seconds.min(settings.seconds);
    let live_since: LiveSince = Arc::new(OnceLock::new());
    let answers = Arc::new(Mutex::new(Answers::new()));
    let job = Pipeline::new();
    let traffic = Traffic::new(settings.clone());
    let source = Paced::new(traffic, due(live_from_s, Arc::clone(&live_since)));
    let records = job.read_timed_row_source("records", source, |record| record.time_s * 1000, 0);
    let (taken, since) = (Arc::clone(&answers), Arc::clone(&live_since));
    pipeline::answers(records, arguments.partitions).for_each("answers", move |answer| {
        taken.lock().expect("nobody panics with it").take(&answer, live_from_s, &since);
        Ok(())
    });
    let started = Instant::now();
    let options = RunOptions {
        workers: arguments.workers,
        order: OrderContract::Arrival,
        ..RunOptions::default()
    };
    let report = job.run(options)?;
    let live_began = live_since.get().map_or(started, |began| *began);
    let replayed_s = live_began.duration_since(started).as_secs_f64();
    let answers = answers.lock().expect("nobody panics with it");
    check(&settings, &answers)?;
    let ms = |quantile| answers.responses.value_at_quantile(quantile) as f64 / 1000.0;
    let in_time = answers.responses.max() as f64 / 1e6 <= arguments.limit_seconds;
    let live = Traffic::new(settings).filter(|record| record.time_s >= live_from_s).count();
    println!(
        "{expressways:11} | {} ({:.0}), first part in {replayed_s:.0} s | {} | {:.1}, {:.1}, {:.1}, {:.1} ms | {}",
        report.metrics.rows_in(),
        live as f64 / arguments.live_seconds as f64,
        answers.count,
        ms(0.5),
        ms(0.99),
        ms(0.9999),
        answers.responses.max() as f64 / 1000.0,
        if in_time { "yes" } else { "no" }
    );
    Ok(in_time)
}

/// The moment at which a record happens; `None` for those before the live part.
fn due(live_from_s: i64, live_since: LiveSince) -> impl FnMut(&Record) -> Option<Instant> + Send {
    move |record| {
        let since = u64::try_from(record.time_s - live_from_s).ok()?;
        Some(*live_since.get_or_init(Instant::now) + Duration::from_secs(since))
    }
}

/// The answers are the validator's, one for one.
fn check(
    settings: &thalweg_workloads::linear_road::TrafficSettings,
    answers: &Answers,
) -> Result<(), String> {
    let mut hash = DefaultHasher::new();
    let mut count = 0;
    for answer in validate_serially(Traffic::new(settings.clone())) {
        answer.hash(&mut hash);
        count += 1;
    }
    if count != answers.count || hash.finish() != answers.hash.finish() {
        return Err(format!("not the validator's answers: {} instead of {count}", answers.count));
    }
    Ok(())
}
