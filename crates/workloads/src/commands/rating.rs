//! `rating`: Linear Road in real time. The first part of a run is read at full speed, the rest when
//! it happens; every answer of that rest must leave within five seconds.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use thalweg::pipeline::Pipeline;
use thalweg::{OrderContract, RunOptions};
use thalweg_workloads::linear_road::{
    Answer, Record, Traffic, TrafficSettings, pipeline, validate_each,
};

use super::CommandResult;
use super::linear_road::TrafficArguments;
use super::paced::{Latency, Paced};

/// How far behind the clock the validator works, so that it does not compete with the answers of a
/// second while they are made.
const VALIDATOR_LAG: Duration = Duration::from_millis(500);

/// The end of a run, which is played in real time. Clones share when it began.
#[derive(Clone)]
struct LivePart {
    /// The first second of the run that belongs to it.
    from_s: i64,
    /// When it began, once it has.
    began: Arc<OnceLock<Instant>>,
}

impl LivePart {
    /// Which of its seconds this second of the run is; `None` for those before it.
    fn second(&self, time_s: i64) -> Option<u64> {
        u64::try_from(time_s - self.from_s).ok()
    }

    /// The moment at which a record happens; `None` for those before the live part, which begins
    /// with the first that is asked for.
    fn due(&self, record: &Record) -> Option<Instant> {
        let second = self.second(record.time_s)?;
        Some(*self.began.get_or_init(Instant::now) + Duration::from_secs(second))
    }

    /// Sleeps until the validator may see the records of this second.
    fn wait_for_validation(&self, second: u64) {
        let moment = *self.began.wait() + Duration::from_secs(second) + VALIDATOR_LAG;
        thread::sleep(moment.saturating_duration_since(Instant::now()));
    }
}

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
    /// Print each minute of the live part with its answers and longest response when it is over.
    #[arg(long)]
    course: bool,
}

/// How many answers, and which.
#[derive(Default)]
struct Digest {
    /// A hash over all answers in their order.
    hash: DefaultHasher,
    count: u64,
}

impl Digest {
    fn take(&mut self, answer: &Answer) {
        answer.hash(&mut self.hash);
        self.count += 1;
    }
}

/// The minute of the live part whose answers leave.
#[derive(Default)]
struct Minute {
    number: u64,
    answers: u64,
    longest: Duration,
}

/// What leaves in one trial.
#[derive(Default)]
struct Answers {
    all: Digest,
    /// Response times of the live part.
    responses: Latency,
    minute: Minute,
    /// Whether minutes are printed.
    course: bool,
}

impl Answers {
    fn take(&mut self, answer: &Answer, live: &LivePart) {
        self.all.take(answer);
        if let (Some(second), Some(began)) = (live.second(answer.time_s()), live.began.get()) {
            let response = began.elapsed().saturating_sub(Duration::from_secs(second));
            self.responses.record(response);
            self.count_in_minute(second / 60, response);
        }
    }

    fn count_in_minute(&mut self, number: u64, response: Duration) {
        if number != self.minute.number {
            self.end_minute();
            self.minute = Minute { number, ..Minute::default() };
        }
        self.minute.answers += 1;
        self.minute.longest = self.minute.longest.max(response);
    }

    fn end_minute(&self) {
        if self.course {
            let Minute { number, answers, longest } = self.minute;
            eprintln!("minute {number}: {answers} answers, longest response {longest:.1?}");
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
    let from_s = settings.seconds - arguments.live_seconds.min(settings.seconds);
    let live = LivePart { from_s, began: Arc::default() };
    let validator = Validator::start(settings.clone(), live.clone());
    let answers = Arc::new(Mutex::new(Answers { course: arguments.course, ..Answers::default() }));
    let job = Pipeline::new();
    let timetable = live.clone();
    let source = Paced::new(Traffic::new(settings), move |record| timetable.due(record));
    let records = job.read_timed_row_source("records", source, |record| record.time_s * 1000, 0);
    let (taken, of_answers) = (Arc::clone(&answers), live.clone());
    pipeline::answers(records, arguments.partitions).for_each("answers", move |answer| {
        taken.lock().expect("nobody panics with it").take(&answer, &of_answers);
        Ok(())
    });
    let started = Instant::now();
    let options = RunOptions {
        workers: arguments.workers,
        order: OrderContract::Arrival,
        ..RunOptions::default()
    };
    let report = job.run(options)?;
    // Without a live record the validator still waits for the first.
    let live_began = *live.began.get_or_init(|| started);
    let replayed_s = live_began.duration_since(started).as_secs_f64();
    let answers = answers.lock().expect("nobody panics with it");
    answers.end_minute();
    let live_records = validator.compare(&answers.all)?;
    let Answers { all, responses, .. } = &*answers;
    let in_time = responses.ms(1.0) <= arguments.limit_seconds * 1000.0;
    println!(
        "{expressways:11} | {} ({:.0}), first part in {replayed_s:.0} s | {} | {:.1}, {:.1}, {:.1}, {:.1} ms | {}",
        report.metrics.rows_in(),
        live_records as f64 / arguments.live_seconds as f64,
        all.count,
        responses.ms(0.5),
        responses.ms(0.99),
        responses.ms(0.9999),
        responses.ms(1.0),
        if in_time { "yes" } else { "no" }
    );
    Ok(in_time)
}

/// The serial validator in a thread of its own. It keeps pace with the live part: 169 million
/// answers to 100 expressways are neither kept nor validated for minutes afterwards.
struct Validator(thread::JoinHandle<(Digest, u64)>);

impl Validator {
    fn start(settings: TrafficSettings, live: LivePart) -> Self {
        Validator(thread::spawn(move || {
            let (mut live_records, mut waited_for) = (0, None);
            let paced = Traffic::new(settings).inspect(|record| {
                let Some(second) = live.second(record.time_s) else { return };
                live_records += 1;
                if waited_for.replace(second) != Some(second) {
                    live.wait_for_validation(second);
                }
            });
            let mut answers = Digest::default();
            validate_each(paced, |answer| answers.take(&answer));
            (answers, live_records)
        }))
    }

    /// The answers are the validator's, one for one. Returns the number of live records.
    fn compare(self, answers: &Digest) -> Result<u64, String> {
        let (expected, live_records) = self.0.join().expect("the validator does not panic");
        if expected.count != answers.count || expected.hash.finish() != answers.hash.finish() {
            let (found, count) = (answers.count, expected.count);
            return Err(format!("not the validator's answers: {found} instead of {count}"));
        }
        Ok(live_records)
    }
}
