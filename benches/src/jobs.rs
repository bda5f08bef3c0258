//! Many jobs on one pool of workers (Hazelcast Jet, VLDB 2021, §7.6): each counts bids per auction
//! over ten seconds, every ten milliseconds, and gives the ten auctions with most bids.
//!
//! ```text
//! cargo run --release --manifest-path benches/Cargo.toml -- jobs [--jobs 100] [--rate 1000000]
//! [--keys 10000]
//!     [--seconds 30] [--warm-up 15] [--workers 2]
//! ```
//! The suite's part `jobs` runs the same, with the machine's own noise before and after.
//!
//! `--rate` is that of all jobs together. A result's clock starts when the last event of its window
//! is due, and its first row counts. What comes during the warm-up does not count: windows fill for
//! ten seconds. Nor does the end: jobs have not begun at the same moment, and the first that end
//! give a thousand windows at once while the last still count, so all read on for two seconds.
//! Results are checked: each slide that has ended has its ten rows in order, and none is missing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, TimestampMillisecondType};
use hdrhistogram::Histogram;
use thalweg::session::{JobDescription, Observer, ResultTable, Session, SessionOptions, Tz};
use thalweg::{Error, JobControl, Pool, Report, Result, RowKind, Sink};
use thalweg_core::graph::Graph;

use crate::suite::percentiles::{Percentiles, histogram};
use crate::suite::point::Point;
use crate::suite::process::Mark;

const SLIDE_MS: i64 = 10;
const ROWS_PER_SLIDE: usize = 10;
/// Events that come behind the measured time.
const TAIL: Duration = Duration::from_secs(2);

/// What is to be run.
struct Settings {
    jobs: u64,
    rate: u64,
    keys: u64,
    lasts: Duration,
    warm_up: Duration,
    workers: usize,
}

fn settings(mut arguments: impl Iterator<Item = String>) -> Settings {
    let mut settings = Settings {
        jobs: 100,
        rate: 1_000_000,
        keys: 10_000,
        lasts: Duration::from_secs(30),
        warm_up: Duration::from_secs(15),
        workers: 2,
    };
    while let Some(name) = arguments.next() {
        let value = arguments.next().and_then(|value| value.parse::<u64>().ok());
        let value = value.unwrap_or_else(|| panic!("{name} needs a whole number"));
        match name.as_str() {
            "--jobs" => settings.jobs = value,
            "--rate" => settings.rate = value,
            "--keys" => settings.keys = value,
            "--seconds" => settings.lasts = Duration::from_secs(value),
            "--warm-up" => settings.warm_up = Duration::from_secs(value),
            "--workers" => settings.workers = value as usize,
            other => panic!("'{other}' is no option of 'jobs'"),
        }
    }
    settings
}

/// Runs them, and prints one line of JSON.
pub fn main(arguments: impl Iterator<Item = String>) {
    println!("{}", measure(&settings(arguments)));
}

/// Runs a point, whose variant says how many jobs there are.
///
/// # Errors
/// If it says nothing of the kind.
pub fn run(point: &Point) -> Result<serde_json::Value> {
    let jobs = point.variant.split(' ').next().and_then(|jobs| jobs.parse().ok());
    let jobs =
        jobs.ok_or_else(|| Error::plan(format!("'{}' is no number of jobs", point.variant)))?;
    let settings = Settings {
        jobs,
        rate: point.events_per_second,
        keys: 10_000,
        lasts: Duration::from_secs(point.measured_s),
        warm_up: Duration::from_secs(point.warm_up_s),
        workers: point.workers,
    };
    Ok(measure(&settings))
}

fn measure(settings: &Settings) -> serde_json::Value {
    let pool = Pool::new(settings.workers, true, Duration::ZERO).expect("threads");
    let begun = Mark::now();
    let jobs: Vec<Outcome> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..settings.jobs).map(|_| scope.spawn(|| run_job(settings, &pool))).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, Result<Outcome>>| {
            let outcome = thread.join().expect("no job panics");
            outcome.unwrap_or_else(|error| panic!("the engine failed: {error}"))
        };
        threads.into_iter().map(join).collect()
    });
    let spent = begun.spent();
    let mut ages = histogram();
    jobs.iter().for_each(|job| ages.add(&job.ages).expect("they have the same bounds"));
    let read: Vec<u64> = jobs.iter().map(|job| job.rows_in).collect();
    let latency = Percentiles::of(&ages).expect("each job has given results");
    let worst_ms = jobs.iter().filter_map(|job| Percentiles::of(&job.ages)).map(|of| of.p99_99_ms);
    let (least, most) = (read.iter().min().unwrap_or(&0), read.iter().max().unwrap_or(&0));
    let mut row = serde_json::json!({
        "workload": "jobs", "jobs": settings.jobs, "rate": settings.rate, "keys": settings.keys,
        "workers": settings.workers, "first": latency, "check": "ok",
        "worst_job_p99_99_ms": worst_ms.fold(0.0, f64::max), "rows_least": least, "rows_most": most,
        "bundles": jobs.iter().map(|job| job.bundles).sum::<u64>(),
    });
    let (row_fields, spent) = (row.as_object_mut(), spent.fields(read.iter().sum()));
    row_fields.expect("a row").extend(spent.as_object().expect("fields").clone());
    row
}

/// What became of a job.
struct Outcome {
    rows_in: u64,
    /// How many bundles its stages took.
    bundles: u64,
    ages: Histogram<u64>,
}

fn run_job(settings: &Settings, pool: &Pool) -> Result<Outcome> {
    let rate = settings.rate / settings.jobs;
    let events = rate * (settings.warm_up + settings.lasts + TAIL).as_secs();
    let script = format!(
        "CREATE TABLE bid (auction BIGINT, `dateTime` TIMESTAMP(3), WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '0.001' SECOND)
           WITH ('connector' = 'nexmark', 'kind' = 'bid', 'preset' = 'jet', 'keys' = '{}',
                 'events' = '{events}', 'rate' = '{rate}');
         SELECT window_end, bids, place FROM (
           SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY bids DESC) AS place
           FROM (SELECT auction, COUNT(*) AS bids, window_start, window_end
                 FROM TABLE(HOP(TABLE bid, DESCRIPTOR(`dateTime`), INTERVAL '0.010' SECOND, INTERVAL '10' SECOND))
                 GROUP BY auction, window_start, window_end))
         WHERE place <= {ROWS_PER_SLIDE};",
        settings.keys
    );
    let options =
        SessionOptions { pool: Some(pool.clone()), workers: Some(1), ..SessionOptions::default() };
    let mut watch = Watch {
        seen: Arc::new(Mutex::new(Seen { ages: histogram(), slides: HashMap::new() })),
        warm_up: settings.warm_up,
        lasts: settings.warm_up + settings.lasts,
        began: Instant::now(),
    };
    let mut done = Session::new(options)?.run_script(&script, &mut watch)?;
    let job = done.jobs.pop().ok_or_else(|| Error::internal("a script without a job"))?;
    let seen = watch.seen.lock().expect("the sink does not panic");
    seen.check();
    assert_eq!(job.report.metrics.late(), 0, "rows of a millisecond come together");
    let metrics = &job.report.metrics;
    let bundles = metrics.stages.iter().map(|stage| stage.bundles_in).sum();
    Ok(Outcome { rows_in: metrics.rows_in(), bundles, ages: seen.ages.clone() })
}

/// What the sink has seen.
struct Seen {
    ages: Histogram<u64>,
    /// The rows of each slide so far; slides may overtake each other.
    slides: HashMap<i64, usize>,
}

impl Seen {
    /// # Panics
    /// If rows are missing, or slides.
    fn check(&self) {
        let (first, last) = (self.slides.keys().min(), self.slides.keys().max());
        let (first, last) = first.zip(last).expect("there are results");
        let expected = (last - first) / SLIDE_MS + 1;
        assert_eq!(self.slides.len(), expected as usize, "no slide is missing");
        assert!(self.slides.values().all(|&rows| rows == ROWS_PER_SLIDE), "no row is missing");
    }
}

/// One job as its session sees it.
struct Watch {
    seen: Arc<Mutex<Seen>>,
    warm_up: Duration,
    lasts: Duration,
    began: Instant,
}

impl Observer for Watch {
    fn result(&mut self, _table: &ResultTable, _zone: Tz) -> Result<Box<dyn Sink>> {
        let (seen, warm_up) = (Arc::clone(&self.seen), self.warm_up);
        Ok(Box::new(AgeSink {
            seen,
            warm_up,
            lasts: self.lasts,
            began: Instant::now(),
            first_ms: None,
        }))
    }
    fn explanation(&mut self, _text: &str) -> Result<()> {
        Ok(())
    }
    fn starting(&mut self, _job: &JobDescription, _graph: &mut Graph) {
        self.began = Instant::now();
    }
    fn started(&mut self, _job: &JobDescription, _control: &JobControl) {}
    fn ended(&mut self, _job: &JobDescription, _result: &Result<Report>) {}
}

struct AgeSink {
    seen: Arc<Mutex<Seen>>,
    warm_up: Duration,
    lasts: Duration,
    /// Soon before the sources start.
    began: Instant,
    /// The event time at which they do.
    first_ms: Option<i64>,
}

impl AgeSink {
    /// The first row of a slide is there.
    fn note(&self, ages: &mut Histogram<u64>, end_ms: i64, first_ms: i64) {
        let due = Duration::from_millis((end_ms - first_ms) as u64);
        if (self.warm_up..self.lasts).contains(&due) {
            let age = self.began.elapsed().saturating_sub(due);
            ages.saturating_record((age.as_nanos() as u64).max(1));
        }
    }
}

impl Sink for AgeSink {
    fn name(&self) -> String {
        "ages".to_owned()
    }
    fn open(&mut self) -> Result<()> {
        self.began = Instant::now();
        Ok(())
    }
    fn write(&mut self, batch: &RecordBatch, _: Option<&[RowKind]>) -> Result<()> {
        let ends = batch.column(0).as_primitive::<TimestampMillisecondType>().values();
        let places = batch.column(2).as_primitive::<Int64Type>().values();
        let seen = Arc::clone(&self.seen);
        let mut seen = seen.lock().expect("no panic under this lock");
        for (&end_ms, &place) in ends.iter().zip(places) {
            let first_ms = *self.first_ms.get_or_insert(end_ms - SLIDE_MS);
            let Seen { ages, slides } = &mut *seen;
            let rows = slides.entry(end_ms).or_insert_with(|| {
                self.note(ages, end_ms, first_ms);
                0
            });
            *rows += 1;
            assert_eq!(place as usize, *rows, "the rows of a slide are in order");
        }
        Ok(())
    }
    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
    fn abort(&mut self) {}
}
