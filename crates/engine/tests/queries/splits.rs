//! Inputs with splits, through SQL: lateness by the split's own watermark, one sequence in the
//! order of time whatever comes first, splits that fall idle or come late; also over kills.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use arrow_array::{ArrayRef, Int64Array, RecordBatch, TimestampMillisecondArray};
use chrono_tz::Tz;
use thalweg::conformance::{MemorySplits, SplitsSource, check_description};
use thalweg::connector::{
    AcceptedChanges, Boundedness, Capabilities, Connector, ConnectorDescription, Options,
    SourceCapability, TableRequest,
};
use thalweg::jobs::ResumeFrom;
use thalweg::session::{JobDescription, Observer, Session, SessionOptions};
use thalweg::{Column, DataType, Error, Result, Sink, Source, TableSchema};
use thalweg_core::connector::{SourceLayer, SourcePoll, Waker};
use thalweg_core::shim::SplitMix64;
use thalweg_plan::ResultTable;
use thalweg_runtime::JobControl;

use super::workspace::{self, folder};

const DESCRIPTION: ConnectorDescription = ConnectorDescription {
    capabilities: Capabilities {
        source: Some(SourceCapability {
            boundedness: Boundedness::ByOptions,
            changes: &[AcceptedChanges::Inserts],
            has_positions: true,
            prunes_columns: true,
        }),
        ..Capabilities::NONE
    },
    ..ConnectorDescription::new("splits", "rows of this test in splits")
};

/// Tables of the connector `splits` are inputs of this test, by their names. Each source gives the
/// splits in another order.
struct SplitsConnector {
    inputs: BTreeMap<String, MemorySplits>,
    is_bounded: bool,
    seed: AtomicU64,
    /// Of the table `ahead`.
    gate: Option<Gate>,
}

/// Holds a source behind its first row until the test lets it continue.
#[derive(Clone, Default)]
struct Gate(Arc<(AtomicBool, Mutex<Option<Waker>>)>);

impl Gate {
    fn open(&self) {
        self.0.0.store(true, Ordering::SeqCst);
        self.0.1.lock().expect("no panic").as_ref().expect("it was started")();
    }
}

struct Gated {
    inner: SplitsSource,
    gate: Gate,
    has_given: bool,
}

impl SourceLayer for Gated {
    fn inner(&self) -> &dyn Source {
        &self.inner
    }
    fn inner_mut(&mut self) -> &mut dyn Source {
        &mut self.inner
    }
    fn start(&mut self, waker: Waker) -> Result<()> {
        *self.gate.0.1.lock().expect("no panic") = Some(Arc::clone(&waker));
        self.inner.start(waker)
    }
    fn poll(&mut self, rows_max: usize) -> Result<SourcePoll> {
        let is_open = self.gate.0.0.load(Ordering::SeqCst);
        if self.has_given && !is_open {
            return Ok(SourcePoll::Pending);
        }
        let polled = self.inner.poll(if is_open { rows_max.min(8) } else { 1 })?;
        self.has_given |= matches!(polled, SourcePoll::Batch(_));
        Ok(polled)
    }
}

impl Connector for SplitsConnector {
    fn description(&self) -> &ConnectorDescription {
        &DESCRIPTION
    }
    fn validate(&self, request: &TableRequest, _as_sink: bool) -> Result<()> {
        Options::of(request, &DESCRIPTION).map(drop)
    }
    fn is_bounded(&self, _request: &TableRequest) -> bool {
        self.is_bounded
    }
    fn source(&self, request: &TableRequest) -> Result<Box<dyn Source>> {
        let input = self.inputs.get(&request.table);
        let input = input.ok_or_else(|| Error::plan(format!("no input {}", request.table)))?;
        let seed = self.seed.fetch_add(1, Ordering::Relaxed);
        let inner = input.source(request.projection.as_deref(), seed);
        Ok(match &self.gate {
            Some(gate) if request.table == "ahead" => {
                Box::new(Gated { inner, gate: gate.clone(), has_given: false })
            }
            _ => Box::new(inner),
        })
    }
}

const TABLE: &str = "(ts TIMESTAMP(3) NOT NULL, n BIGINT NOT NULL, \
     WATERMARK FOR ts AS ts - INTERVAL '0.050' SECOND) WITH ('connector' = 'splits'";

/// (time, number) of rows.
type Rows = Vec<(i64, i64)>;

fn batch(rows: &Rows) -> RecordBatch {
    let (times, numbers): (Vec<i64>, Vec<i64>) = rows.iter().copied().unzip();
    let times: ArrayRef = Arc::new(TimestampMillisecondArray::from(times));
    let numbers: ArrayRef = Arc::new(Int64Array::from(numbers));
    let columns = [("ts", DataType::Timestamp(3)), ("n", DataType::BigInt)];
    let columns = columns.map(|(name, of)| Column::new(name, of.not_null()));
    RecordBatch::try_new(TableSchema::new(columns.into()).arrow(), vec![times, numbers])
        .expect("two columns")
}

/// Splits of `rows` rows each, of which each is out of order by `disorder_ms` at most and begins
/// at a time of its own.
fn splits(seed: u64, count: usize, rows: i64, disorder_ms: u64) -> BTreeMap<String, Rows> {
    let mut random = SplitMix64::new(seed);
    let split = |number: usize| {
        let begin_ms = random.below(400) as i64;
        let row = |row: i64| {
            let time_ms = begin_ms + 3 * row + random.below(disorder_ms + 1) as i64;
            (time_ms, number as i64 * 1_000_000 + row)
        };
        (format!("part-{number}"), (0..rows).map(row).collect())
    };
    (0..count).map(split).collect()
}

fn input(splits: &BTreeMap<String, Rows>) -> MemorySplits {
    MemorySplits::new(splits.iter().map(|(name, rows)| (name.clone(), batch(rows))))
}

struct Run<'a> {
    folder: &'a Path,
    inputs: &'a [(&'a str, MemorySplits)],
    is_bounded: bool,
    seed: u64,
    workers: usize,
    resume: ResumeFrom,
    gate: Option<Gate>,
}

type Watch = Box<dyn FnOnce(JobControl) + Send>;

/// What watches a job while it runs.
struct Watcher(Option<Watch>, Option<thread::JoinHandle<()>>);

impl Observer for Watcher {
    fn result(&mut self, _: &ResultTable, _: Tz) -> Result<Box<dyn Sink>> {
        Err(Error::plan("results go to files"))
    }
    fn explanation(&mut self, _: &str) -> Result<()> {
        Ok(())
    }
    fn started(&mut self, _: &JobDescription, control: &JobControl) {
        let control = control.clone();
        self.1 = self.0.take().map(|watch| thread::spawn(move || watch(control)));
    }
}

fn run(script: &str, run: Run<'_>, watch: Option<Watch>) -> Result<()> {
    let Run { folder, inputs, is_bounded, seed, workers, resume, gate } = run;
    let never = ("restart-strategy.type".to_owned(), "none".to_owned());
    let mut session = Session::new(SessionOptions {
        settings: vec![never],
        workers: Some(workers),
        name: Some("job".to_owned()),
        resume,
        ..workspace::options(folder)
    })?;
    let inputs = inputs.iter().map(|(name, input)| ((*name).to_owned(), input.clone())).collect();
    let seed = AtomicU64::new(seed * 1_000);
    session.register_connector(Arc::new(SplitsConnector { inputs, is_bounded, seed, gate }));
    let mut watcher = Watcher(watch, None);
    let outcome = session.run_script(script, &mut watcher);
    if let Some(thread) = watcher.1 {
        thread.join().expect("no panic");
    }
    outcome.map(drop)
}

fn at_once<'a>(folder: &'a Path, inputs: &'a [(&'a str, MemorySplits)], seed: u64) -> Run<'a> {
    let workers = [1, 2, 4][seed as usize % 3];
    let (is_bounded, resume, gate) = (true, ResumeFrom::Nothing, None);
    Run { folder, inputs, is_bounded, seed, workers, resume, gate }
}

fn lines(file: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(file).expect("written");
    text.lines().map(str::to_owned).collect()
}

#[test]
fn the_connector_of_this_test_keeps_the_contract() {
    let splits = splits(1, 4, 50, 0);
    let inputs = [("t".to_owned(), input(&splits))].into();
    let seed = AtomicU64::new(0);
    let connector = SplitsConnector { inputs, is_bounded: true, seed, gate: None };
    let request = TableRequest { table: "t".to_owned(), ..TableRequest::default() };
    check_description(&connector, &request);
    thalweg::conformance::check_replayable(&|| connector.source(&request), 20).expect("no error");
}

/// Counts of rows by window of 100 ms, where each is judged by the rows before it in its own split.
fn counts(splits: &BTreeMap<String, Rows>, delay_ms: i64) -> Vec<String> {
    let mut counts: BTreeMap<i64, (i64, i64)> = BTreeMap::new();
    for rows in splits.values() {
        let mut running = i64::MIN;
        for &(time, number) in rows {
            let start = time.div_euclid(100) * 100;
            if start + 99 > running {
                let count = counts.entry(start).or_default();
                *count = (count.0 + 1, count.1 + number);
            }
            running = running.max(time - delay_ms);
        }
    }
    let line = |(start, (count, sum)): (&i64, &(i64, i64))| format!("{start},{count},{sum}");
    counts.iter().map(line).collect()
}

const COUNTS: &str = "CREATE TABLE out (at BIGINT, c BIGINT, s BIGINT) \
     WITH ('connector' = 'filesystem', 'path' = 'out.csv', 'format' = 'csv');
     INSERT INTO out SELECT CAST(EXTRACT(EPOCH FROM window_start) * 1000 + \
        EXTRACT(MILLISECOND FROM window_start) AS BIGINT), COUNT(*), SUM(n) \
     FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '0.100' SECOND)) \
     GROUP BY window_start, window_end;";

/// Rows are late by 50 ms at most in their own split, and by far more behind the others.
#[test]
fn rows_are_judged_by_the_watermark_of_their_own_split() {
    let mut splits = splits(3, 5, 400, 90);
    // One that is an hour behind, and one an hour ahead.
    let mut shift = |name: &str, by_ms: i64| {
        splits.get_mut(name).expect("there").iter_mut().for_each(|row| row.0 += by_ms);
    };
    shift("part-1", -3_600_000);
    shift("part-2", 3_600_000);
    let expected = counts(&splits, 50);
    let late = splits.values().map(Vec::len).sum::<usize>() as i64
        - expected.iter().map(|line| field(line, 1)).sum::<i64>();
    assert!(late > 20, "{late} rows are late");
    let inputs = [("t", input(&splits))];
    for (seed, order) in (0..9).zip(["epoch", "arrival"].into_iter().cycle()) {
        let folder = folder(&format!("splits-judged-{seed}"));
        let script = format!("SET 'pipeline.order' = '{order}'; CREATE TABLE t {TABLE}); {COUNTS}");
        run(&script, at_once(&folder, &inputs, seed), None).expect("runs");
        let mut found = lines(&folder.join("out.csv"));
        found.sort_by_key(|line| field(line, 0));
        assert_eq!(found, expected, "seed {seed}, {order}");
    }
}

fn field(line: &str, place: usize) -> i64 {
    line.split(',').nth(place).and_then(|text| text.parse().ok()).expect("a number")
}

const MERGED: &str = "SET 'pipeline.order' = 'event_time'; \
     CREATE TABLE a TABLE_A; CREATE TABLE b TABLE_B; \
     CREATE TABLE out (ts TIMESTAMP(3), n BIGINT) \
     WITH ('connector' = 'filesystem', 'path' = 'OUT', 'format' = 'csv'); \
     INSERT INTO out SELECT ts, n FROM a UNION ALL SELECT ts, n FROM b;";

/// The sequence of two inputs in the order of time: by (time, input, split, place).
fn merged(a: &BTreeMap<String, Rows>, b: &BTreeMap<String, Rows>) -> Vec<i64> {
    let mut all = Vec::new();
    for (input, splits) in [a, b].into_iter().enumerate() {
        for (name, rows) in splits {
            let row = |(place, &(time, n)): (usize, &(i64, i64))| (time, input, name, place, n);
            all.extend(rows.iter().enumerate().map(row));
        }
    }
    all.sort();
    all.into_iter().map(|(.., n)| n).collect()
}

fn sorted_input(seed: u64) -> BTreeMap<String, Rows> {
    let mut splits = splits(seed, 4, 300, 5);
    // Many rows of the same time, in several splits.
    splits.values_mut().flatten().for_each(|row| row.0 -= row.0.rem_euclid(4));
    splits.values_mut().for_each(|rows| rows.sort_by_key(|row| row.0));
    splits
}

fn merged_script(within: [&str; 2], out: &str) -> String {
    let table = |within: &str| match within {
        "" => format!("{TABLE})"),
        within => format!("{TABLE}, 'source.sort-within' = '{within}')"),
    };
    let script = MERGED.replace("TABLE_A", &table(within[0])).replace("OUT", out);
    script.replace("TABLE_B", &table(within[1]))
}

#[test]
fn splits_become_one_sequence_whatever_comes_first() {
    let (a, b) = (sorted_input(5), splits(6, 3, 300, 40));
    let inputs = [("a", input(&a)), ("b", input(&b))];
    let mut b_sorted = b.clone();
    b_sorted.values_mut().for_each(|rows| rows.sort_by_key(|row| row.0));
    let expected = merged(&a, &b_sorted);
    for seed in 0..9 {
        let folder = folder(&format!("splits-merged-{seed}"));
        let script = merged_script(["", "40 ms"], "out.csv");
        run(&script, at_once(&folder, &inputs, seed), None).expect("runs");
        let found = lines(&folder.join("out.csv"));
        let found: Vec<i64> = found.iter().map(|line| field(line, 1)).collect();
        assert_eq!(found, expected, "seed {seed}");
    }
}

#[test]
fn a_split_out_of_order_is_named() {
    let (a, b) = (sorted_input(5), splits(6, 3, 300, 40));
    let inputs = [("a", input(&a)), ("b", input(&b))];
    let folder = folder("splits-unsorted");
    let script = merged_script(["", ""], "out.csv");
    let error = run(&script, at_once(&folder, &inputs, 1), None).expect_err("not sorted");
    assert!(error.to_string().contains("split 'part-"), "{error}");
}

/// What a job that was killed has written, and what its next run adds, is the same sequence.
#[test]
fn the_sequence_continues_behind_kills() {
    let (a, b) = (sorted_input(7), splits(8, 3, 300, 40));
    let mut b_sorted = b.clone();
    b_sorted.values_mut().for_each(|rows| rows.sort_by_key(|row| row.0));
    let expected = merged(&a, &b_sorted);
    let a = input(&a).with_later("part-9", batch(&Vec::new()), 500);
    let inputs = [("a", a), ("b", input(&b))];
    let mut kills = 0;
    for seed in 0..12 {
        let mut random = SplitMix64::new(seed);
        let folder = folder(&format!("splits-killed-{seed}"));
        let snapshots = "SET 'execution.checkpointing.dir' = 'snapshots'; \
             SET 'execution.checkpointing.interval' = '3 ms'; SET 'pipeline.bundle-rows-max' = '16'; ";
        let script = format!("{snapshots}{}", merged_script(["", "40 ms"], "out/"));
        let mut resume = ResumeFrom::Nothing;
        for attempt in 0.. {
            let after = Duration::from_micros(1_000 + random.below(10_000));
            let watch = move |control: JobControl| {
                thread::sleep(after);
                control.fail(Error::user("killed by the test"));
            };
            let watch: Option<Watch> = (attempt < 6).then(|| Box::new(watch) as Watch);
            let one = Run { resume, ..at_once(&folder, &inputs, 100 * seed + attempt) };
            match run(&script, one, watch) {
                Ok(()) => break,
                Err(error) => assert!(error.to_string().contains("killed"), "{error}"),
            }
            kills += 1;
            resume = ResumeFrom::Newest;
        }
        let mut files: Vec<_> = std::fs::read_dir(folder.join("out"))
            .expect("written")
            .map(|entry| entry.expect("an entry").path())
            .filter(|path| !path.file_name().is_some_and(|n| n.to_string_lossy().starts_with('.')))
            .collect();
        files.sort();
        let found: Vec<i64> =
            files.iter().flat_map(|file| lines(file)).map(|line| field(&line, 1)).collect();
        let differs = found.iter().zip(&expected).position(|(found, expected)| found != expected);
        let around = |rows: &[i64]| differs.map(|at| rows[at..(at + 6).min(rows.len())].to_vec());
        let (some, others) = (around(&found), around(&expected));
        assert_eq!((some, found.len()), (others, expected.len()), "seed {seed}: {differs:?}");
    }
    assert!(kills > 5, "{kills} kills");
}

/// Waits for a condition about a running job, then stops it.
fn until(
    condition: impl Fn(&JobControl) -> bool + Send + 'static,
    seen: Arc<AtomicU64>,
) -> Option<Watch> {
    Some(Box::new(move |control| {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(60) && !control.is_over() {
            if condition(&control) {
                seen.store(1, Ordering::SeqCst);
                break;
            }
            thread::sleep(Duration::from_millis(2));
        }
        control.cancel();
    }))
}

#[test]
fn a_quiet_split_falls_idle_and_one_that_comes_late_begins_where_the_others_are() {
    let mut splits = splits(9, 3, 200, 20);
    splits.insert("quiet".to_owned(), Vec::new());
    // Later than all others, so that no row of it is late.
    let later: Rows = (0..50).map(|n| (5_000 + n, n)).collect();
    let input = input(&splits).with_later("part-later", batch(&later), 300).unbounded();
    let inputs = [("t", input)];
    for seed in 0..3 {
        let folder = folder(&format!("splits-idle-{seed}"));
        let script =
            format!("CREATE TABLE t {TABLE}, 'scan.watermark.idle-timeout' = '30 ms'); {COUNTS}");
        let all = splits.values().map(Vec::len).sum::<usize>() + later.len();
        let seen = Arc::new(AtomicU64::new(0));
        // All but the last windows close although four of five splits have no more rows.
        let watch = until(
            move |control| {
                let metrics = control.metrics();
                let splits = &metrics.stages[0].splits;
                let idle = splits.iter().filter(|split| split.idle).count();
                let counted = metrics.stages.iter().map(|stage| stage.accepted + stage.late);
                idle == 5
                    && counted.sum::<u64>() == all as u64
                    && splits.iter().all(|split| split.status.lag_rows == Some(0))
            },
            Arc::clone(&seen),
        );
        let one = Run { is_bounded: false, ..at_once(&folder, &inputs, seed) };
        run(&script, one, watch).expect("stopped");
        assert_eq!(seen.load(Ordering::SeqCst), 1, "seed {seed}");
    }
}

/// One table has rows of ten seconds, the other one of half a second: the first waits for it.
#[test]
fn splits_of_a_group_are_kept_in_step() {
    let split = |until_ms: i64| -> Rows { (0..until_ms / 10).map(|n| (10 * n, n)).collect() };
    let ahead = [("far".to_owned(), split(10_000)), ("near".to_owned(), split(700))].into();
    let behind = [("slow".to_owned(), split(500))].into();
    let inputs = [("ahead", input(&ahead).unbounded()), ("behind", input(&behind).unbounded())];
    let folder = folder("splits-in-step");
    let options = ", 'scan.watermark.idle-timeout' = '0 s', 'scan.watermark.alignment.group' = 'g', \
         'scan.watermark.alignment.max-drift' = '300 ms', \
         'scan.watermark.alignment.update-interval' = '5 ms'";
    let script = format!(
        "CREATE TABLE ahead {TABLE}{options}); CREATE TABLE behind {TABLE}{options});
         CREATE TABLE out (ts TIMESTAMP(3), n BIGINT) WITH ('connector' = 'blackhole');
         INSERT INTO out SELECT ts, n FROM ahead UNION ALL SELECT ts, n FROM behind"
    );
    let gate = Gate::default();
    let (of_watch, seen) = (gate.clone(), Arc::new(Mutex::new(Vec::new())));
    let found = Arc::clone(&seen);
    let watch: Watch = Box::new(move |control| {
        let rows = || control.metrics().stages.iter().map(|stage| stage.rows_in).max();
        let begun = Instant::now();
        while rows() < Some(50) && begun.elapsed() < Duration::from_secs(60) {
            thread::sleep(Duration::from_millis(2));
        }
        // The limit is worked out by then.
        thread::sleep(Duration::from_millis(300));
        of_watch.open();
        thread::sleep(Duration::from_millis(700));
        let metrics = control.metrics();
        let splits = metrics.stages.iter().flat_map(|stage| &stage.splits);
        let shown = splits.map(|split| (split.name.to_string(), split.watermark.0));
        *found.lock().expect("no panic") = shown.collect();
        control.cancel();
    });
    let one = Run { is_bounded: false, gate: Some(gate), ..at_once(&folder, &inputs, 1) };
    run(&script, one, Some(watch)).expect("stopped");
    let seen = seen.lock().expect("no panic");
    let watermark = |name: &str| seen.iter().find(|split| split.0 == name).map(|split| split.1);
    assert_eq!(watermark("slow"), Some(440), "{seen:?}");
    // A batch may carry it beyond 440 + 300, the more the later a busy machine works the limit out;
    // without one it is at 9,940.
    assert!(watermark("far") < Some(5_000), "{seen:?}");
}
