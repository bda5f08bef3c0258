//! Process functions: timers that are set and cancelled, of both kinds, and states that end.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thalweg::pipeline::Pipeline;
use thalweg::rows::{FiredTimer, KeyContext, ProcessFunction, Rows, TimerKind, virtual_partition};
use thalweg::{OrderContract, RunOptions, RunningJob};
use thalweg_core::connector::Waker;
use thalweg_core::shim::{ManualClock, SplitMix64};

use super::{Channel, Reading, described, readings, sample, seeds};

const GAP_MS: i64 = 300;

/// Sessions of a sensor: a value, a list and a map, in one struct.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Session {
    timer_ms: Option<i64>,
    times_ms: Vec<i64>,
    levels: BTreeMap<i32, u32>,
}

/// (end, sensor, rows, the level that came most often)
pub(super) type Fired = (i64, String, usize, Option<i32>);

pub(super) struct Sessions;

impl ProcessFunction<String, Reading> for Sessions {
    type State = Session;
    type Out = Fired;

    fn on_row(
        &self,
        _: &String,
        state: &mut Session,
        row: Reading,
        context: &mut KeyContext<Fired>,
    ) {
        assert!(context.watermark_ms() <= row.time_ms, "rows come in order of time");
        if let Some(old_ms) = state.timer_ms.replace(row.time_ms + GAP_MS) {
            context.delete_timer(old_ms);
        }
        context.set_timer(row.time_ms + GAP_MS);
        state.times_ms.push(row.time_ms);
        row.level.iter().for_each(|level| *state.levels.entry(*level).or_default() += 1);
    }
    fn on_timer(
        &self,
        key: &String,
        state: &mut Session,
        timer: FiredTimer,
        context: &mut KeyContext<Fired>,
    ) {
        assert_eq!(timer.kind, TimerKind::EventTime);
        assert_eq!(context.watermark_ms(), timer.time_ms - 1);
        context.emit((timer.time_ms, key.clone(), state.times_ms.len(), most(&state.levels)));
        context.forget();
    }
}

fn most(levels: &BTreeMap<i32, u32>) -> Option<i32> {
    levels.iter().max_by_key(|&(level, count)| (*count, *level)).map(|(level, _)| *level)
}

/// The sessions that are over behind each row and at the end: by end, virtual partition and sensor.
pub(super) fn sessions_serially(rows: &[Reading]) -> Vec<Fired> {
    let mut open: HashMap<String, Vec<Reading>> = HashMap::new();
    let mut found = Vec::new();
    let mut close = |open: &mut HashMap<String, Vec<Reading>>, watermark_ms: i64| {
        let end_of = |rows: &Vec<Reading>| rows.last().expect("not empty").time_ms + GAP_MS;
        let over = |rows: &Vec<Reading>| end_of(rows) - 1 <= watermark_ms;
        let mut closed: Vec<(i64, u8, String)> = open
            .iter()
            .filter(|(_, rows)| over(rows))
            .map(|(key, rows)| (end_of(rows), virtual_partition(key), key.clone()))
            .collect();
        closed.sort();
        for (end_ms, _, key) in closed {
            let rows = open.remove(&key).expect("it is open");
            let mut levels = BTreeMap::new();
            rows.iter()
                .filter_map(|row| row.level)
                .for_each(|l| *levels.entry(l).or_default() += 1);
            found.push((end_ms, key, rows.len(), most(&levels)));
        }
    };
    for row in rows {
        open.entry(row.sensor.clone()).or_default().push(row.clone());
        close(&mut open, row.time_ms);
    }
    close(&mut open, i64::MAX - 1);
    found
}

#[test]
fn sessions_by_timers_that_move_are_those_of_a_loop() {
    let rows = readings(11, 5000);
    let expected = sessions_serially(&rows);
    assert!(expected.len() > 500, "{} sessions prove little", expected.len());
    for seed in 0..seeds(20) {
        let (options, partitions) = sample(seed + 3000);
        let pipeline = Pipeline::new();
        let sessions = pipeline
            .read_timed_rows("readings", rows.clone(), |row: &Reading| row.time_ms, 0)
            .key_by(partitions, |row: &Reading| row.sensor.clone())
            .process_function("sessions", Sessions)
            .collect("sessions");
        pipeline.run(options.clone()).expect("the job runs");
        assert!(
            sessions.rows() == expected,
            "seed {seed}: {}, {partitions} partitions",
            described(&options)
        );
    }
}

#[test]
fn in_epoch_sessions_are_the_same_set() {
    let rows = readings(12, 5000);
    let expected: BTreeSet<Fired> = sessions_serially(&rows).into_iter().collect();
    for seed in 0..seeds(6) {
        let (options, partitions) = sample(seed + 4000);
        let options = RunOptions { order: OrderContract::Epoch, ..options };
        let pipeline = Pipeline::new();
        let sessions = pipeline
            .read_timed_rows("readings", rows.clone(), |row: &Reading| row.time_ms, 0)
            .key_by(partitions, |row: &Reading| row.sensor.clone())
            .process_function("sessions", Sessions)
            .collect("sessions");
        pipeline.run(options.clone()).expect("the job runs");
        let found: BTreeSet<Fired> = sessions.rows().into_iter().collect();
        let lost = expected.difference(&found).next();
        let made_up = found.difference(&expected).next();
        assert!(found == expected, "seed {seed}: {}: {lost:?} {made_up:?}", described(&options));
    }
}

/// A timer at the same time for every key, and others that are cancelled.
struct AtNoon;

impl ProcessFunction<u32, u32> for AtNoon {
    type State = u32;
    type Out = (i64, u32, u32);

    fn on_row(&self, _: &u32, rows: &mut u32, row: u32, context: &mut KeyContext<Self::Out>) {
        *rows += 1;
        context.set_timer(1000);
        context.set_timer(1000);
        context.set_timer(500);
        context.set_timer_at_end();
        if row.is_multiple_of(2) {
            context.delete_timer(500);
            context.delete_timer(i64::MAX);
            context.delete_timer(77);
        }
    }
    fn on_timer(
        &self,
        key: &u32,
        rows: &mut u32,
        timer: FiredTimer,
        context: &mut KeyContext<Self::Out>,
    ) {
        context.emit((timer.time_ms, *key, *rows));
    }
}

#[test]
fn timers_of_one_time_fire_by_virtual_partition_and_key_the_last_ones_at_the_end() {
    let keys: Vec<u32> = (0..300).chain(0..150).collect();
    let mut expected: Vec<(i64, u8, u32)> = Vec::new();
    for key in 0..300 {
        expected.push((1000, virtual_partition(&key), key));
        if key % 2 == 1 {
            expected.extend([500, i64::MAX].map(|at| (at, virtual_partition(&key), key)));
        }
    }
    expected.sort();
    let rows_of = |key: u32| if key < 150 { 2 } else { 1 };
    let expected: Vec<_> =
        expected.into_iter().map(|(at, _, key)| (at, key, rows_of(key))).collect();
    for seed in 0..seeds(10) {
        let (options, partitions) = sample(seed + 5000);
        let pipeline = Pipeline::new();
        let fired = pipeline
            .read_timed_rows("keys", keys.clone(), |_| 0, 0)
            .key_by(partitions, |key: &u32| *key)
            .process_function("at noon", AtNoon)
            .collect("fired");
        pipeline.run(options.clone()).expect("the job runs");
        assert!(fired.rows() == expected, "seed {seed}: {}", described(&options));
    }
}

/// Counts the rows of a number; reports it when no row came for five seconds of the clock.
pub(super) struct Silence;

impl ProcessFunction<i64, i64> for Silence {
    type State = (i64, u32);
    type Out = (i64, u32);

    fn uses_processing_time(&self) -> bool {
        true
    }
    fn on_row(
        &self,
        _: &i64,
        (timer_ms, rows): &mut (i64, u32),
        _: i64,
        context: &mut KeyContext<(i64, u32)>,
    ) {
        *rows += 1;
        context.delete_processing_timer(*timer_ms);
        *timer_ms = context.processing_time_ms() + 5_000;
        context.set_processing_timer(*timer_ms);
    }
    fn on_timer(
        &self,
        key: &i64,
        (_, rows): &mut (i64, u32),
        timer: FiredTimer,
        context: &mut KeyContext<(i64, u32)>,
    ) {
        assert_eq!(timer.kind, TimerKind::ProcessingTime);
        context.emit((*key, *rows));
        context.forget();
    }
}

/// A job over numbers that the test sends, on a clock that the test moves.
pub(super) struct Running {
    clock: Arc<ManualClock>,
    sender: Sender<i64>,
    waker: Arc<Mutex<Option<Waker>>>,
    fired: Receiver<(i64, u32)>,
    job: RunningJob,
}

impl Running {
    fn start<F>(function: F, options: RunOptions) -> Self
    where
        F: ProcessFunction<i64, i64, Out = (i64, u32)>,
    {
        Self::of(options, |numbers| {
            numbers.key_by(4, |number: &i64| *number).process_function("process", function)
        })
    }

    pub(super) fn of(
        options: RunOptions,
        process: impl FnOnce(Rows<i64>) -> Rows<(i64, u32)>,
    ) -> Self {
        let clock = Arc::new(ManualClock::default());
        let (sender, receiver) = channel();
        let waker = Arc::default();
        let (send, fired) = channel();
        let pipeline = Pipeline::new();
        let source = Channel { receiver, waker: Arc::clone(&waker) };
        process(pipeline.read_row_source("numbers", source)).for_each("send", move |row| {
            // The test may have seen enough.
            let _ = send.send(row);
            Ok(())
        });
        let options = RunOptions { clock: clock.clone(), workers: 2, ..options };
        let job = pipeline.start(options).expect("it starts");
        Running { clock, sender, waker, fired, job }
    }

    pub(super) fn send(&self, number: i64) {
        self.sender.send(number).expect("the job listens");
        if let Some(wake) = &*self.waker.lock().expect("nobody panics") {
            wake();
        }
    }

    pub(super) fn advance(&self, ms: u64) {
        self.clock.advance(Duration::from_millis(ms));
    }

    pub(super) fn next(&self) -> (i64, u32) {
        self.fired.recv_timeout(Duration::from_secs(60)).expect("the timer fires")
    }

    /// Waits until the job has taken this many rows.
    pub(super) fn wait_for_rows(&self, rows: u64) {
        let accepted = || -> u64 {
            self.job.control().metrics().stages.iter().map(|stage| stage.accepted).sum()
        };
        while accepted() < rows {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub(super) fn end(self) -> Vec<(i64, u32)> {
        drop(self.sender);
        if let Some(wake) = &*self.waker.lock().expect("nobody panics") {
            wake();
        }
        self.job.wait().expect("the job ends");
        self.fired.try_iter().collect()
    }
}

#[test]
fn timers_of_the_clock_fire_while_no_rows_come() {
    let running = Running::start(Silence, RunOptions::default());
    [7, 8, 7].into_iter().for_each(|number| running.send(number));
    running.wait_for_rows(3);
    running.advance(3_000);
    running.send(8);
    running.wait_for_rows(4);
    running.advance(2_000);
    assert_eq!(running.next(), (7, 2), "8 came again meanwhile");
    running.advance(3_000);
    assert_eq!(running.next(), (8, 2));
    running.send(9);
    running.wait_for_rows(5);
    assert_eq!(running.end(), [], "timers of the clock do not fire at the end");
}

#[test]
fn where_a_sequence_is_promised_the_clock_must_be_admitted() {
    let run = |allowed: bool, function: fn() -> Lifetime| {
        let pipeline = Pipeline::new();
        pipeline
            .read_rows("numbers", 0..10i64)
            .key_by(4, |number: &i64| *number)
            .process_function("silence", function())
            .for_each("nowhere", |_| Ok(()));
        let order = OrderContract::Arrival;
        let options =
            RunOptions { order, allow_nondeterministic_order: allowed, ..RunOptions::default() };
        pipeline.run(options)
    };
    for function in
        [(|| Lifetime { ttl_ms: Some(10), by_clock: false }) as fn() -> Lifetime, || Lifetime {
            ttl_ms: None,
            by_clock: true,
        }]
    {
        let error = run(false, function).expect_err("it is refused");
        assert!(error.message().contains("depends on when the job runs"), "{error}");
        assert_eq!(error.operator(), Some("silence"));
        assert!(error.help().is_some_and(|help| help.contains("allow_nondeterministic_order")));
        run(true, function).expect("it is admitted");
    }
    run(false, || Lifetime { ttl_ms: None, by_clock: false })
        .expect("nothing uses processing time");
}

#[test]
fn in_order_timers_of_the_clock_fire_before_the_next_rows_of_their_partition() {
    let order = OrderContract::Arrival;
    let options = RunOptions {
        order,
        allow_nondeterministic_order: true,
        partitions_max: Some(1),
        ..RunOptions::default()
    };
    let running = Running::start(Silence, options);
    running.send(7);
    running.wait_for_rows(1);
    running.advance(5_000);
    running.send(7);
    assert_eq!(running.next(), (7, 1));
    assert_eq!(running.end(), []);
}

/// Counts rows, in states that end.
struct Lifetime {
    ttl_ms: Option<i64>,
    by_clock: bool,
}

impl ProcessFunction<i64, i64> for Lifetime {
    type State = u32;
    type Out = (i64, u32);

    fn state_ttl_ms(&self) -> Option<i64> {
        self.ttl_ms
    }
    fn uses_processing_time(&self) -> bool {
        self.by_clock
    }
    fn on_row(&self, key: &i64, rows: &mut u32, _: i64, context: &mut KeyContext<(i64, u32)>) {
        *rows += 1;
        context.emit((*key, *rows));
    }
}

#[test]
fn a_state_that_nobody_used_for_its_lifetime_starts_from_its_default_and_its_memory_is_freed() {
    let running =
        Running::start(Lifetime { ttl_ms: Some(1_000), by_clock: false }, RunOptions::default());
    let count = |number: i64| {
        running.send(number);
        let (key, rows) = running.next();
        assert_eq!(key, number);
        rows
    };
    assert_eq!((count(7), count(7)), (1, 2));
    running.advance(999);
    assert_eq!(count(7), 3);
    running.advance(999);
    assert_eq!(count(7), 4);
    running.advance(1_000);
    assert_eq!(count(7), 1);
    assert_eq!(running.end(), []);
}

#[test]
fn who_does_not_declare_processing_time_does_not_get_it() {
    struct Secretly;
    impl ProcessFunction<i64, i64> for Secretly {
        type State = ();
        type Out = i64;
        fn on_row(&self, _: &i64, _: &mut (), _: i64, context: &mut KeyContext<i64>) {
            let now_ms = context.processing_time_ms();
            context.emit(now_ms);
        }
    }
    let pipeline = Pipeline::new();
    let rows = pipeline.read_rows("numbers", 0..10i64).key_by(4, |number: &i64| *number);
    rows.process_function("secretly", Secretly).for_each("nowhere", |_| Ok(()));
    let error = pipeline.run(RunOptions::default()).expect_err("it fails");
    assert!(error.help().is_some_and(|help| help.contains("uses_processing_time")), "{error}");
}

/// No event of a key for five seconds, over times that are out of order: against a loop over all
/// pairs of neighbours in time.
#[test]
fn alarms_are_the_gaps_between_neighbours_in_time() {
    struct Alarm;
    impl ProcessFunction<u64, (i64, u64)> for Alarm {
        type State = BTreeSet<i64>;
        type Out = (u64, i64);

        fn on_row(
            &self,
            _: &u64,
            times: &mut BTreeSet<i64>,
            (time_ms, _): (i64, u64),
            context: &mut KeyContext<(u64, i64)>,
        ) {
            times.insert(time_ms);
            context.set_timer(time_ms + 5_001);
        }
        fn on_timer(
            &self,
            key: &u64,
            times: &mut BTreeSet<i64>,
            timer: FiredTimer,
            context: &mut KeyContext<(u64, i64)>,
        ) {
            let since_ms = timer.time_ms - 5_001;
            // All rows up to five seconds behind it have come: the watermark has passed them.
            if times.range(since_ms + 1..=since_ms + 5_000).next().is_none() {
                context.emit((*key, since_ms));
            }
            times.remove(&since_ms);
        }
    }
    for seed in 0..seeds(10) {
        let mut random = SplitMix64::new(seed);
        let mut rows: Vec<(i64, u64)> =
            (0..2000).map(|n| (n * 200 + random.below(1000) as i64, random.below(12))).collect();
        let mut expected = BTreeSet::new();
        for &(time_ms, key) in &rows {
            let follows = |&(other_ms, other): &(i64, u64)| {
                other == key && other_ms > time_ms && other_ms <= time_ms + 5_000
            };
            if !rows.iter().any(follows) {
                expected.insert((key, time_ms));
            }
        }
        // Out of order by less than a second.
        rows.sort_by_cached_key(|row| row.0 + random.below(900) as i64);
        let (options, partitions) = sample(seed + 6000);
        let pipeline = Pipeline::new();
        let alarms = pipeline
            .read_timed_rows("events", rows, |row: &(i64, u64)| row.0, 1000)
            .key_by(partitions, |row| row.1)
            .process_function("alarm", Alarm)
            .collect("alarms");
        pipeline.run(options.clone()).expect("the job runs");
        let found: BTreeSet<(u64, i64)> = alarms.rows().into_iter().collect();
        assert!(found == expected, "seed {seed}: {}", described(&options));
        assert!(found.len() > 100, "{} alarms prove little", found.len());
    }
}
