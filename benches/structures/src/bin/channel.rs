//! What merges between k sources and n instances: million rows per second that passed.
//!
//! ```text
//! CARGO_TARGET_DIR=target/benches cargo run --release --manifest-path
//! benches/structures/Cargo.toml \
//!     --features merge --bin channel [-- --repeat N] [--rows N]
//! ```
//! | variant | what it is |
//! |---|---|
//! | `skip list` | ScaleGate as in its paper: sources insert into one list, which merges; a channel for each instance; watermarks that the reader acknowledges bound the list |
//! | `lists` | `ordering::gate::ScaleGate`: a list for each source, the reader merges; a channel for each instance |
//! | `runs` | the merge of the engine: whole batches, one worker at a time; every instance is given the merged batches and takes its rows |
//!
//! Rows are a time and a value, which is also the key that says whose instance the row is. Sources
//! and readers are shared out over the workers, who do a step of each in turn. Variants alternate
//! in one process. Every reader checks that its rows come by (time, source), and the sum of all.
//!
//! With one worker the steps of each role are timed, which says what 16 cores can reach at best: a
//! role is done by one core at a time, and so is the merge of `runs`. What cores cost each other in
//! memory is not in it, which favours `lists`, whose sources and readers share theirs.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Int64Array, RecordBatch};
use crossbeam_skiplist::SkipMap;
use thalweg_ordering::gate::{GateReader, GateSource, ScaleGate};
use thalweg_runtime::sorted_merge::SortedMerge;

/// Rows of a step, and of a batch.
const STEP: usize = 1024;
/// How many rows a source may be ahead of the slowest reader.
const BOUND: usize = 8 * STEP;

/// One of the roles that workers share: a step, and whether anything is left to do.
type Role<'a> = Box<dyn FnMut() -> bool + Send + 'a>;

/// Cores that are reckoned with where one worker was measured.
const VIRTUAL_CORES: u64 = 16;

/// What a variant came to.
struct Outcome {
    /// Of the values that were read.
    sum: i64,
    /// Time in steps of all roles, and in what only one core at a time can do.
    total_ns: u64,
    serial_ns: u64,
}

impl Outcome {
    /// Million rows per second that [`VIRTUAL_CORES`] reach at best.
    fn bound(&self, rows: usize) -> f64 {
        rows as f64 * 1e3 / self.serial_ns.max(self.total_ns / VIRTUAL_CORES) as f64
    }
}

fn main() {
    let number = |name: &str, default: usize| {
        let value = std::env::args().skip_while(|a| a != name).nth(1);
        value.and_then(|n| n.parse().ok()).unwrap_or(default)
    };
    let (repeat, rows) = (number("--repeat", 3), number("--rows", 1_000_000));
    println!(
        "workers | sources x instances | runs of | skip list | lists | runs | runs by lists \
         | at best on {VIRTUAL_CORES} cores: lists | runs"
    );
    for workers in [1, 2] {
        for (sources, instances) in [(2, 1), (2, 4), (4, 2), (8, 1), (8, 8)] {
            for run in [1, 8, 100] {
                measure(&Shape { workers, sources, instances, run, rows }, repeat);
            }
        }
    }
}

/// A point of the grid.
struct Shape {
    workers: usize,
    sources: usize,
    instances: usize,
    /// Rows of a source before it is the next one's turn.
    run: usize,
    /// Rows of all sources.
    rows: usize,
}

fn measure(shape: &Shape, repeat: usize) {
    let inputs: Vec<Vec<i64>> = (0..shape.sources).map(|source| shape.times(source)).collect();
    let expected: i64 = inputs.iter().flatten().map(|&time| value(time)).sum();
    let variants: [fn(&Shape, &[Vec<i64>]) -> Outcome; 3] = [skip_list, lists, runs];
    let (mut rates, mut bounds) = ([const { Vec::new() }; 3], [const { Vec::new() }; 3]);
    for repetition in 0..=repeat {
        for (place, variant) in variants.iter().enumerate() {
            let started = Instant::now();
            let outcome = variant(shape, &inputs);
            assert_eq!(outcome.sum, expected, "every row has come once");
            if repetition > 0 {
                rates[place].push(shape.rows as f64 / 1e6 / started.elapsed().as_secs_f64());
                bounds[place].push(outcome.bound(shape.rows));
            }
        }
    }
    let [skip_list, lists, runs] = rates.map(median);
    let [_, lists_bound, runs_bound] = bounds.map(median);
    print!(
        "{} | {} x {} | {:3} | {skip_list:6.2} | {lists:6.2} | {runs:6.2} | {:.1}",
        shape.workers,
        shape.sources,
        shape.instances,
        shape.run,
        runs / lists
    );
    match shape.workers {
        1 => println!(" | {lists_bound:.0} | {runs_bound:.0}"),
        _ => println!(" |  | "),
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

impl Shape {
    /// The times of a source: sources take turns.
    fn times(&self, source: usize) -> Vec<i64> {
        let rows = self.rows / self.sources;
        let time =
            |n: usize| ((n / self.run * self.sources + source) * self.run + n % self.run) as i64;
        (0..rows).map(time).collect()
    }

    fn instance_of(&self, value: i64) -> usize {
        value as usize % self.instances
    }

    /// The sum and the number of an instance's rows in a merged batch.
    fn read(&self, instance: usize, batch: &RecordBatch, last: &mut i64) -> (i64, usize) {
        let (mut sum, mut rows) = (0, 0);
        let columns = [0, 1].map(|n| batch.column(n).as_primitive::<Int64Type>().values());
        for (&time, &value) in columns[0].iter().zip(columns[1]) {
            if self.instance_of(value) == instance {
                assert!(time > *last, "in order");
                (*last, sum, rows) = (time, sum + value, rows + 1);
            }
        }
        (sum, rows)
    }

    /// Workers do a step of each of their roles in turn until all are done. How long each role
    /// took, by role.
    fn work(&self, roles: Vec<Role<'_>>) -> Vec<u64> {
        let spent_ns: Vec<AtomicU64> = roles.iter().map(|_| AtomicU64::new(0)).collect();
        let mut shares: Vec<Vec<(usize, Role<'_>)>> =
            (0..self.workers).map(|_| Vec::new()).collect();
        for (place, role) in roles.into_iter().enumerate() {
            shares[place % self.workers].push((place, role));
        }
        thread::scope(|scope| {
            for mut share in shares {
                let spent_ns = &spent_ns;
                scope.spawn(move || {
                    while !share.is_empty() {
                        share.retain_mut(|(place, role)| {
                            let started = Instant::now();
                            let is_left = role();
                            let step_ns = started.elapsed().as_nanos() as u64;
                            spent_ns[*place].fetch_add(step_ns, Ordering::Relaxed);
                            is_left
                        });
                    }
                });
            }
        });
        spent_ns.into_iter().map(AtomicU64::into_inner).collect()
    }
}

fn value(time: i64) -> i64 {
    time * 3 + 1
}

/// What readers have seen together.
#[derive(Default)]
struct Seen {
    sum: AtomicI64,
    rows: AtomicUsize,
}

impl Seen {
    fn add(&self, sum: i64, rows: usize) {
        self.sum.fetch_add(sum, Ordering::Relaxed);
        self.rows.fetch_add(rows, Ordering::Release);
    }

    fn has_all(&self, shape: &Shape) -> bool {
        self.rows.load(Ordering::Acquire) == shape.rows
    }
}

/// A channel that takes single rows.
trait Channel: Send {
    type Source: Send;
    type Reader: Send;
    fn register(sources: usize) -> (Vec<Self::Source>, Self::Reader);
    /// False if the reader is too far behind.
    fn add(source: &mut Self::Source, time: i64, value: i64) -> bool;
    /// No later row of the source is at or before this time.
    fn advance(source: &mut Self::Source, time: i64);
    fn get_ready(reader: &mut Self::Reader) -> Option<(i64, i64)>;
}

fn skip_list(shape: &Shape, inputs: &[Vec<i64>]) -> Outcome {
    by_row::<SkipListGate>(shape, inputs)
}

fn lists(shape: &Shape, inputs: &[Vec<i64>]) -> Outcome {
    by_row::<ListGate>(shape, inputs)
}

/// Row by row, over a channel for each instance.
fn by_row<C: Channel>(shape: &Shape, inputs: &[Vec<i64>]) -> Outcome {
    let mut sources: Vec<Vec<C::Source>> = inputs.iter().map(|_| Vec::new()).collect();
    let mut readers = Vec::new();
    for _ in 0..shape.instances {
        let (of_channel, reader) = C::register(inputs.len());
        sources.iter_mut().zip(of_channel).for_each(|(all, one)| all.push(one));
        readers.push(reader);
    }
    let seen = Seen::default();
    let mut roles: Vec<Role<'_>> = Vec::new();
    for (times, channels) in inputs.iter().zip(sources) {
        // Dropped at the end, which ends the source in every channel.
        let (mut channels, mut next) = (Some(channels), 0);
        roles.push(Box::new(move || {
            let all = channels.as_mut().expect("there are rows left");
            let to = times.len().min(next + STEP);
            while next < to {
                let (time, value) = (times[next], value(times[next]));
                if !C::add(&mut all[shape.instance_of(value)], time, value) {
                    break;
                }
                next += 1;
            }
            // The rows went to some of the channels, and the others must not wait.
            if next > 0 {
                all.iter_mut().for_each(|source| C::advance(source, times[next - 1]));
            }
            if next == times.len() {
                channels = None;
            }
            next < times.len()
        }));
    }
    for mut reader in readers {
        let (seen, mut last) = (&seen, i64::MIN);
        roles.push(Box::new(move || {
            let (mut sum, mut rows) = (0, 0);
            while rows < STEP
                && let Some((time, value)) = C::get_ready(&mut reader)
            {
                assert!(time > last, "in order");
                (last, sum, rows) = (time, sum + value, rows + 1);
            }
            if rows == 0 {
                std::hint::spin_loop();
            }
            seen.add(sum, rows);
            !seen.has_all(shape)
        }));
    }
    let spent_ns = shape.work(roles);
    Outcome {
        sum: seen.sum.into_inner(),
        total_ns: spent_ns.iter().sum(),
        serial_ns: spent_ns.into_iter().max().unwrap_or(0),
    }
}

/// `ordering`'s gate with one reader.
struct ListGate;

impl Channel for ListGate {
    type Source = GateSource<i64>;
    type Reader = GateReader<i64>;

    fn register(sources: usize) -> (Vec<GateSource<i64>>, GateReader<i64>) {
        let (sources, mut readers) = ScaleGate::register(sources, 1, BOUND);
        (sources, readers.pop().expect("one reader"))
    }

    fn add(source: &mut GateSource<i64>, time: i64, value: i64) -> bool {
        source.add(time, value).is_ok()
    }

    fn advance(source: &mut GateSource<i64>, time: i64) {
        source.advance(time);
    }

    fn get_ready(reader: &mut GateReader<i64>) -> Option<(i64, i64)> {
        reader.get_ready().map(|(_, time, value)| (time, value))
    }
}

/// One sorted list, into which sources insert.
struct SkipListGate {
    rows: SkipMap<(i64, usize), i64>,
    /// By source: no later row is older.
    frontiers: Box<[AtomicI64]>,
    /// By source: rows before its last watermark that the reader has acknowledged.
    acknowledged: Box<[AtomicU64]>,
}

struct SkipListSource {
    gate: Arc<SkipListGate>,
    place: usize,
    added: u64,
}

struct SkipListReader {
    gate: Arc<SkipListGate>,
    /// By source: rows read.
    read: Vec<u64>,
    /// The least frontier when it was looked at.
    ready: (i64, usize),
}

impl Drop for SkipListSource {
    fn drop(&mut self) {
        self.gate.frontiers[self.place].store(i64::MAX, Ordering::Release);
    }
}

impl Channel for SkipListGate {
    type Source = SkipListSource;
    type Reader = SkipListReader;

    fn register(sources: usize) -> (Vec<SkipListSource>, SkipListReader) {
        let gate = Arc::new(SkipListGate {
            rows: SkipMap::new(),
            frontiers: (0..sources).map(|_| AtomicI64::new(i64::MIN)).collect(),
            acknowledged: (0..sources).map(|_| AtomicU64::new(0)).collect(),
        });
        let source = |place| SkipListSource { gate: Arc::clone(&gate), place, added: 0 };
        let of_channel = (0..sources).map(source).collect();
        (of_channel, SkipListReader { gate, read: vec![0; sources], ready: (i64::MIN, 0) })
    }

    fn add(source: &mut SkipListSource, time: i64, value: i64) -> bool {
        let SkipListSource { gate, place, added } = source;
        if *added >= gate.acknowledged[*place].load(Ordering::Acquire) + BOUND as u64 {
            return false;
        }
        gate.rows.insert((time, *place), value);
        *added += 1;
        // A frontier of exactly this time says that the row itself is ready.
        gate.frontiers[*place].store(time, Ordering::Release);
        true
    }

    fn advance(source: &mut SkipListSource, time: i64) {
        source.gate.frontiers[source.place].store(time, Ordering::Release);
    }

    fn get_ready(reader: &mut SkipListReader) -> Option<(i64, i64)> {
        let SkipListReader { gate, read, ready } = reader;
        let front = gate.rows.front()?;
        if *front.key() > *ready {
            let frontiers = gate.frontiers.iter().enumerate();
            let least = frontiers.map(|(place, of)| (of.load(Ordering::Acquire), place)).min();
            *ready = least.expect("there are sources");
            // What was inserted before the frontiers were read may stand before this row.
            if *front.key() > *ready || gate.rows.front()?.key() != front.key() {
                return None;
            }
        }
        let (time, source) = *front.key();
        let value = *front.value();
        front.remove();
        read[source] += 1;
        // A watermark in every sixteenth of the bound is acknowledged.
        if read[source] % (BOUND as u64 / 16) == 0 {
            gate.acknowledged[source].store(read[source], Ordering::Release);
        }
        Some((time, value))
    }
}

/// Whole batches, merged by one worker at a time.
fn runs(shape: &Shape, inputs: &[Vec<i64>]) -> Outcome {
    let merge = Mutex::new(SortedMerge::new(inputs.len(), 0));
    let queues: Vec<Mutex<VecDeque<RecordBatch>>> =
        (0..shape.instances).map(|_| Mutex::default()).collect();
    // Rows that were merged, and those that the first instance has seen.
    let (merged_rows, passed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let pushed: Vec<AtomicUsize> = inputs.iter().map(|_| AtomicUsize::new(0)).collect();
    let merging_ns = AtomicU64::new(0);
    let seen = Seen::default();
    let mut roles: Vec<Role<'_>> = Vec::new();
    for (source, times) in inputs.iter().enumerate() {
        let (merge, queues, pushed, merging_ns) = (&merge, &queues, &pushed, &merging_ns);
        let (merged_rows, passed, mut next) = (&merged_rows, &passed, 0);
        roles.push(Box::new(move || {
            let passed = passed.load(Ordering::Relaxed);
            let unread = merged_rows.load(Ordering::Relaxed).saturating_sub(passed);
            let slowest = pushed.iter().map(|rows| rows.load(Ordering::Relaxed)).min();
            if unread > BOUND * inputs.len() || next > slowest.unwrap_or(0) + BOUND {
                std::hint::spin_loop();
                return true;
            }
            let to = times.len().min(next + STEP);
            let batch = batch(&times[next..to]);
            let mut merge = merge.lock().expect("no panic");
            let started = Instant::now();
            merge.push(source, batch, None).expect("sorted");
            if to == times.len() {
                merge.finish(source);
            }
            while let Some(merged) = merge.ready(8 * STEP).expect("columns fit") {
                merged_rows.fetch_add(merged.batch.num_rows(), Ordering::Relaxed);
                for queue in queues {
                    queue.lock().expect("no panic").push_back(merged.batch.clone());
                }
            }
            merging_ns.fetch_add(started.elapsed().as_nanos() as u64, Ordering::Relaxed);
            pushed[source].store(to, Ordering::Relaxed);
            next = to;
            next < times.len()
        }));
    }
    for (instance, queue) in queues.iter().enumerate() {
        let (seen, passed, mut last) = (&seen, &passed, i64::MIN);
        roles.push(Box::new(move || {
            let Some(batch) = queue.lock().expect("no panic").pop_front() else {
                std::hint::spin_loop();
                return !seen.has_all(shape);
            };
            let (sum, rows) = shape.read(instance, &batch, &mut last);
            if instance == 0 {
                passed.fetch_add(batch.num_rows(), Ordering::Relaxed);
            }
            seen.add(sum, rows);
            !seen.has_all(shape)
        }));
    }
    let spent_ns = shape.work(roles);
    let readers_ns = spent_ns[inputs.len()..].iter().copied();
    Outcome {
        sum: seen.sum.into_inner(),
        total_ns: spent_ns.iter().sum(),
        serial_ns: readers_ns.chain([merging_ns.into_inner()]).max().unwrap_or(0),
    }
}

fn batch(times: &[i64]) -> RecordBatch {
    let values: Int64Array = times.iter().map(|&time| value(time)).collect();
    let times = Int64Array::from(times.to_vec());
    RecordBatch::try_from_iter([("time", Arc::new(times) as _), ("value", Arc::new(values) as _)])
        .expect("columns of one length")
}
