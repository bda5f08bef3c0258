//! Jobs that run: what their counters say is what happens. Time is moved by hand.

use std::collections::VecDeque;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use thalweg_core::connector::{Assign, Assigned, ExactStamps, SplitEvent, SplitStatus, Waker};
use thalweg_core::graph::{Graph, Input, StageId, StageKind};
use thalweg_core::operator::Done;
use thalweg_core::shim::ManualClock;
use thalweg_core::{
    Bundle, Result, RowKind, Sink, Source, SourceBatch, SourcePoll, SplitId, Transform, Watermark,
    WatermarkBefore,
};
use thalweg_monitoring::exposition::{Families, job_samples};
use thalweg_monitoring::why::{Reason, Verdict};
use thalweg_monitoring::{JobReading, Watch, Why, why};
use thalweg_runtime::{JobControl, RunOptions, RunningJob};

/// How long something may take that happens at once.
const PATIENCE: Duration = Duration::from_secs(20);

/// Gives what a test puts there.
#[derive(Clone, Default)]
struct Feed(Arc<Mutex<FeedState>>);

#[derive(Default)]
struct FeedState {
    answers: VecDeque<SourcePoll>,
    /// These rows again and again, once all else is given.
    forever: Option<RecordBatch>,
    waker: Option<Waker>,
    has_ended: bool,
}

impl Feed {
    fn change(&self, change: impl FnOnce(&mut FeedState)) {
        let mut state = self.0.lock().expect("no panic");
        change(&mut state);
        let waker = state.waker.clone();
        drop(state);
        waker.iter().for_each(|wake| wake());
    }
    fn open(&self, split: u32, name: &str) {
        let opened = SplitEvent::Opened(name.into());
        self.change(|state| state.answers.push_back(SourcePoll::Split(SplitId(split), opened)));
    }
    fn rows(&self, split: u32, times: &[i64]) {
        let batch = SourceBatch { split: SplitId(split), ..SourceBatch::new(rows(times)) };
        self.change(|state| state.answers.push_back(SourcePoll::Batch(batch)));
    }
}

fn rows(times: &[i64]) -> RecordBatch {
    let schema = Schema::new(vec![Field::new("time", DataType::Int64, true)]);
    let times = Arc::new(Int64Array::from_iter_values(times.iter().copied()));
    RecordBatch::try_new(Arc::new(schema), vec![times]).expect("it fits")
}

impl Source for Feed {
    fn name(&self) -> String {
        "feed".into()
    }
    fn start(&mut self, waker: Waker) -> Result<()> {
        self.0.lock().expect("no panic").waker = Some(waker);
        Ok(())
    }
    fn poll(&mut self, _: usize) -> Result<SourcePoll> {
        let mut state = self.0.lock().expect("no panic");
        if let Some(answer) = state.answers.pop_front() {
            return Ok(answer);
        }
        match &state.forever {
            Some(batch) => Ok(SourcePoll::Batch(SourceBatch::new(batch.clone()))),
            None if state.has_ended => Ok(SourcePoll::End),
            None => Ok(SourcePoll::Pending),
        }
    }
    fn is_bounded(&self) -> bool {
        false
    }
    fn split_status(&self, _: SplitId) -> SplitStatus {
        SplitStatus { is_caught_up: true, lag_rows: Some(0), ..SplitStatus::default() }
    }
}

/// The watermark is the newest time.
struct Newest;

impl Assign for Newest {
    fn assign(&mut self, batch: SourceBatch, before: Watermark, _: i64) -> Result<Assigned> {
        let times = batch.batch.column(0).as_primitive::<Int64Type>().values();
        let newest = times.iter().copied().max().unwrap_or(i64::MIN);
        Ok(Assigned {
            watermark_before: WatermarkBefore::All(before),
            watermark_after: Watermark(newest.max(before.0)),
            time_extremes: None,
            quarantined: 0,
            batch: batch.batch,
        })
    }
    fn crosses(&self, from: Watermark, to: Watermark) -> bool {
        to > from
    }
    fn highest(&self, _: &RecordBatch) -> Option<Watermark> {
        None
    }
    fn row_times(&self, batch: &RecordBatch) -> Result<Option<arrow_buffer::ScalarBuffer<i64>>> {
        Ok(Some(batch.column(0).as_primitive::<Int64Type>().values().clone()))
    }
    fn stamp_exactly(&mut self, _: ExactStamps) {}
}

/// Writes as many batches as it is let.
struct Gate(Receiver<()>);

impl Sink for Gate {
    fn name(&self) -> String {
        "gate".into()
    }
    fn write(&mut self, _: &RecordBatch, _: Option<&[RowKind]>) -> Result<()> {
        // Whoever has dropped the other end lets all through.
        let _ = self.0.recv();
        Ok(())
    }
    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
    fn abort(&mut self) {}
}

/// Asks the outside, which answers when a test says so.
#[derive(Clone, Default)]
struct Lookup(Arc<Mutex<Vec<(Bundle, Done)>>>);

impl Transform for Lookup {
    fn name(&self) -> String {
        "lookup".into()
    }
    fn apply(&self, bundle: Bundle) -> Result<Bundle> {
        Ok(bundle)
    }
    fn is_asynchronous(&self) -> bool {
        true
    }
    fn begin(&self, bundle: Bundle, done: Done) {
        self.0.lock().expect("no panic").push((bundle, done));
    }
}

/// A job with one source, perhaps a stage, and a sink that waits to be let.
struct Running {
    job: Option<RunningJob>,
    control: JobControl,
    clock: Arc<ManualClock>,
    watch: Watch,
    feed: Feed,
    lets: Option<Sender<()>>,
}

impl Running {
    fn start(feed: Feed, stage: Option<Arc<dyn Transform>>, memory_limit_bytes: usize) -> Running {
        let (lets, gate) = mpsc::channel();
        let mut graph = Graph::default();
        let kind =
            StageKind::Source { source: Box::new(feed.clone()), assigner: Some(Box::new(Newest)) };
        let from = |stage: StageId| vec![Input { from: stage, port: 0 }];
        let mut last = graph.add("source", "meters", kind, Vec::new());
        if let Some(stage) = stage {
            last = graph.add("stage", "stage", StageKind::Transform(stage), from(last));
        }
        graph.add("sink", "totals", StageKind::Sink(Box::new(Gate(gate))), from(last));
        let clock = Arc::new(ManualClock::default());
        clock.advance(Duration::from_secs(1_000));
        let options = RunOptions {
            workers: 2,
            clock: Arc::clone(&clock) as _,
            memory_limit_bytes,
            idle_timeout: None,
            bundle_linger: Duration::ZERO,
            ..RunOptions::default()
        };
        let job = thalweg_runtime::start(graph, options).expect("the job starts");
        let control = job.control();
        let watch = Watch::new("meters", &control);
        Running { job: Some(job), control, clock, watch, feed, lets: Some(lets) }
    }

    fn reading(&mut self) -> JobReading {
        self.watch.look(&self.control.metrics()).clone()
    }

    /// The reading, once it is as expected.
    fn until(&mut self, what: &str, is_so: impl Fn(&JobReading) -> bool) -> JobReading {
        let begun = std::time::Instant::now();
        loop {
            let reading = self.reading();
            if is_so(&reading) {
                return reading;
            }
            assert!(begun.elapsed() < PATIENCE, "never so: {what}: {reading:#?}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn why(&mut self) -> Why {
        why(&self.reading()).expect("a sink")
    }

    fn advance(&self, seconds: u64) {
        self.clock.advance(Duration::from_secs(seconds));
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.lets = None;
        self.control.cancel();
        if let Some(job) = self.job.take() {
            let _ = job.wait();
        }
    }
}

const MEMORY_BYTES: usize = 1 << 30;

#[test]
fn a_silent_split_of_a_running_job_is_found() {
    let mut running = Running::start(Feed::default(), None, MEMORY_BYTES);
    running.lets = None;
    let feed = running.feed.clone();
    feed.open(0, "a");
    feed.open(1, "b");
    feed.rows(0, &[990_000]);
    feed.rows(1, &[980_000]);
    // The clock may move once the sink is at rest.
    let has_written = |reading: &JobReading, rows| {
        reading.stages[1].counters.rows_out == rows && reading.stages[1].in_call_ms == 0
    };
    running.until("both have given rows", |reading| {
        has_written(reading, 2) && reading.stages[0].watermark == Some(980_000)
    });
    assert_eq!(running.why().verdict, Verdict::Flowing, "its watermark has just moved");
    running.advance(100);
    feed.rows(0, &[1_090_000]);
    let split = |reading: &JobReading, name: &str| {
        let source = reading.stages[0].source.as_ref().expect("a source");
        source.splits.iter().find(|split| split.name == name).expect("the split").clone()
    };
    // Rows are counted before what is shown of their splits.
    let reading = running
        .until("the other has", |reading| has_written(reading, 3) && split(reading, "a").rows == 2);
    let shown = |name| (split(&reading, name).rows, split(&reading, name).last_row_at_ms);
    assert_eq!(shown("a"), (2, Some(1_100_000)));
    assert_eq!(shown("b"), (1, Some(1_000_000)));
    let why = running.why();
    assert_eq!(why.sentence, "held by meters[b]: no row for 1 min 40 s");
    assert_eq!((why.watermark, why.since_ms), (Some(980_000), Some(1_000_000)));
    assert_eq!(why.without.expect("a split holds").watermark, Some(1_090_000));
    // Conditions are looked for once a second, last before the row had come.
    running.advance(1);
    running.reading();
    let conditions: Vec<&str> =
        running.watch.conditions().iter().map(|condition| condition.kind.name()).collect();
    assert_eq!(conditions, ["held"]);
    let mut families = Families::new();
    job_samples(&mut families, &reading, running.watch.conditions());
    let held = "thalweg_watermark_hold_seconds{job=\"meters\",source=\"meters\"} 100\n";
    assert!(families.text().contains(held), "{}", families.text());
}

#[test]
fn a_sink_that_does_not_take_rows_is_found_and_the_source_is_blocked_by_output() {
    let feed = Feed::default();
    feed.0.lock().expect("no panic").forever = Some(rows(&vec![5_000; 10_000]));
    let mut running = Running::start(feed, None, 4 << 20);
    running.until("as much is in flight as may be", |reading| {
        reading.memory.in_flight_bytes >= reading.memory.in_flight_bytes_max
    });
    // A worker has to be refused once before the source is blocked; then each second counts.
    let output = |reading: &JobReading| reading.stages[0].counters.blocked_ns.output;
    let begun = std::time::Instant::now();
    while output(&running.reading()) == 0 {
        assert!(begun.elapsed() < PATIENCE, "nobody is refused");
        running.advance(1);
        std::thread::sleep(Duration::from_millis(2));
    }
    let before = running.reading();
    running.advance(10);
    let after = running.reading();
    assert_eq!(output(&after) - output(&before), 10_000_000_000, "all the time");
    assert!(after.stages[1].in_call_ms >= 10_000, "its write has not returned");
    let why = running.why();
    assert_eq!(why.holder.label(), "totals");
    assert!(matches!(why.reason, Reason::SlowSink { .. }), "{why:?}");
}

#[test]
fn a_lookup_without_an_answer_is_found_until_it_comes() {
    let lookup = Lookup::default();
    let stage = Arc::new(lookup.clone()) as Arc<dyn Transform>;
    let mut running = Running::start(Feed::default(), Some(stage), MEMORY_BYTES);
    running.feed.clone().rows(0, &[990_000]);
    running.until("the outside is asked", |reading| reading.stages[1].unanswered == 1);
    running.advance(30);
    let why = running.why();
    assert_eq!(why.sentence, "held by stage: 1 lookup without an answer, the oldest for 30 s");
    let (bundle, done) = lookup.0.lock().expect("no panic").pop().expect("a question");
    done(Box::new(move || Ok(bundle)));
    let reading = running.until("it has answered", |reading| reading.stages[1].unanswered == 0);
    assert_eq!(reading.stages[1].counters.blocked_ns.lookup, 30_000_000_000);
}

#[test]
fn sources_that_are_not_asked_say_so() {
    let mut running = Running::start(Feed::default(), None, MEMORY_BYTES);
    running.control.hold();
    let reading = running.until("sources are paused", |reading| reading.paused_by.is_some());
    assert_eq!(reading.state, "paused");
    assert!(matches!(running.why().reason, Reason::Paused { .. }));
    running.control.release();
    running.until("they are asked again", |reading| reading.paused_by.is_none());
}

#[test]
fn a_job_whose_input_has_ended_says_so() {
    let mut running = Running::start(Feed::default(), None, MEMORY_BYTES);
    running.feed.clone().rows(0, &[990_000]);
    running.lets = None;
    running.feed.change(|state| state.has_ended = true);
    running.until("it has ended", |reading| reading.stages[1].has_ended);
    assert_eq!(running.why().verdict, Verdict::Ended);
}
