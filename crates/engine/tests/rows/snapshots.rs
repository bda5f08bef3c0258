//! Jobs over rows that are killed and resume from a snapshot, with other numbers of workers and
//! partitions: what gets out is what a loop over the rows gives.
//!
//! Snapshots are written and read by the store, every second one as changes, so that its folding of
//! states is part of what is tested. Sinks keep rows in memory; what was written behind the newest
//! snapshot is cut off when a job is killed.

use std::fmt::Debug;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use thalweg::pipeline::Pipeline;
use thalweg::rows::{Row, RowPoll, RowSource};
use thalweg::{ManualClock, OrderContract, Result, RunOptions, RunningJob};
use thalweg_core::connector::{SinkLayer, Waker};
use thalweg_core::graph::{Graph, Stage, StageKind};
use thalweg_core::shim::SplitMix64;
use thalweg_core::snapshot::{RestoredCut, TakenCut};
use thalweg_core::{Extent, Sink};
use thalweg_runtime::simulate::Simulation;
use thalweg_runtime::{AfterCut, SnapshotMode, start_from};
use thalweg_state::{SnapshotKind, SnapshotStore, WriteRequest};

use super::process::{Sessions, Silence, sessions_serially};
use super::{PerSecond, Reading, per_second_serially, readings, sample, seeds};

type Written<T> = Arc<Mutex<Vec<T>>>;

/// Snapshots of one job, in a folder that is empty at first.
struct Snapshots {
    store: SnapshotStore,
    order: OrderContract,
    last: Option<u64>,
}

impl Snapshots {
    fn new(name: &str, order: OrderContract) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("rows").join(name);
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("a temporary folder");
        let store = SnapshotStore::open(folder.to_str().expect("a name"), "job");
        Snapshots { store: store.expect("it opens"), order, last: None }
    }

    /// Keeps a cut; one of changes builds on the one before.
    fn keep(&mut self, cut: TakenCut, extent: Extent) {
        let number = self.store.next_number().expect("a number");
        let mut request = WriteRequest::new(cut, number, SnapshotKind::Periodic, self.order);
        request.base = self.last.filter(|_| extent == Extent::Incremental);
        self.store.write(request).expect("it is written");
        self.last = Some(number);
    }

    fn read(&self) -> Option<RestoredCut> {
        self.last.map(|number| self.store.read(number).expect("it is read").cut)
    }
}

/// A sink, and how many rows it had at the newest cut. When that is complete it may have got more.
struct NotesCut<T> {
    sink: Box<dyn Sink>,
    written: Written<T>,
    at_cut: Arc<AtomicUsize>,
}

impl<T: Send> SinkLayer for NotesCut<T> {
    fn inner(&self) -> &dyn Sink {
        self.sink.as_ref()
    }
    fn inner_mut(&mut self) -> &mut dyn Sink {
        self.sink.as_mut()
    }
    /// Comes with a cut, behind the rows in front of it.
    fn prepare(&mut self) -> Result<Option<String>> {
        self.at_cut.store(self.written.lock().expect("nobody panics").len(), Ordering::Relaxed);
        self.sink.prepare()
    }
}

/// The graph, whose sink notes what it had at a cut.
fn noting_cuts<T: Row>(graph: Graph, written: &Written<T>, at_cut: &Arc<AtomicUsize>) -> Graph {
    let noting = |stage: Stage| match stage.kind {
        StageKind::Sink(sink) => {
            let (written, at_cut) = (Arc::clone(written), Arc::clone(at_cut));
            let kind = StageKind::Sink(Box::new(NotesCut { sink, written, at_cut }));
            Stage { kind, ..stage }
        }
        kind => Stage { kind, ..stage },
    };
    Graph { stages: graph.stages.into_iter().map(noting).collect(), ..graph }
}

/// Runs a job to its end, though it is killed again and again. What it has written, and how often
/// it was killed.
fn killed<T: Row + Clone>(
    name: &str,
    (order, seed): (OrderContract, u64),
    build: impl Fn(&Pipeline, usize, Written<T>),
) -> (Vec<T>, usize) {
    let mut random = SplitMix64::new(seed);
    let mut snapshots = Snapshots::new(&format!("{name}-{order}-{seed}"), order);
    let (written, at_cut, mut kills) = (Written::default(), Arc::default(), 0);
    loop {
        let (options, partitions) = sample(random.next_u64());
        let options = RunOptions {
            order,
            bundle_rows_max: 1 + random.below(60) as usize,
            snapshots: Some(SnapshotMode::ExactlyOnce),
            clock: Arc::new(ManualClock::default()),
            ..options
        };
        let pipeline = Pipeline::new();
        build(&pipeline, partitions, Arc::clone(&written));
        let restored = snapshots.read();
        let graph = noting_cuts(pipeline.graph(), &written, &at_cut);
        let mut job = Simulation::begin(graph, options, 1, random.next_u64(), restored.as_ref())
            .expect("it resumes");
        // Of a run, only its own snapshots are what changes build on.
        let mut extent = Extent::Full;
        let is_done = loop {
            if job.is_over() || job.has_ended() {
                break true;
            }
            if random.below(60) == 0 {
                let cut = job.take_cut(extent).expect("a cut can be taken");
                snapshots.keep(cut, extent);
                extent = if random.below(3) == 0 { Extent::Full } else { Extent::Incremental };
            }
            if kills < 6 && random.below(300) == 0 {
                break false;
            }
            job.step();
        };
        if is_done {
            job.take_cut(Extent::Full).expect("the last cut");
            job.control().complete().expect("it finishes");
            job.end().expect("it ends well");
            return (written.lock().expect("nobody panics").clone(), kills);
        }
        kills += 1;
        written.lock().expect("nobody panics").truncate(at_cut.load(Ordering::Relaxed));
    }
}

/// Compares what killed jobs write with what is expected, in every contract.
fn check<T: Row + Clone + Ord + Debug>(
    name: &str,
    expected: &[T],
    build: impl Fn(&Pipeline, usize, Written<T>),
) {
    let mut kills = 0;
    for seed in 0..seeds(12) {
        for order in [OrderContract::Epoch, OrderContract::Arrival, OrderContract::EventTime] {
            let (mut written, killed) = killed(name, (order, seed), &build);
            kills += killed;
            let mut expected = expected.to_vec();
            if order == OrderContract::Epoch {
                expected.sort();
                written.sort();
            }
            let first = expected.iter().zip(&written).position(|(one, other)| one != other);
            let (count, of) = (written.len(), expected.len());
            assert!(written == expected, "{order}, seed {seed}: {count} of {of}, at {first:?}");
        }
    }
    assert!(kills > 20, "{kills} kills prove little");
}

fn write_to<T: Row>(written: Written<T>) -> impl FnMut(T) -> Result<()> + Send + 'static {
    move |row| {
        written.lock().expect("nobody panics").push(row);
        Ok(())
    }
}

#[test]
fn killed_process_functions_give_the_sessions_of_a_loop() {
    let rows = readings(21, 1500);
    let expected = sessions_serially(&rows);
    assert!(expected.len() > 100, "{} sessions prove little", expected.len());
    check("sessions", &expected, |pipeline, partitions, written| {
        pipeline
            .read_timed_rows("readings", rows.clone(), |row: &Reading| row.time_ms, 0)
            .key_by(partitions, |row: &Reading| row.sensor.clone())
            .process_function("sessions", Sessions)
            .for_each("write", write_to(written));
    });
}

#[test]
fn killed_operators_and_closures_give_the_lines_of_a_loop() {
    let rows = readings(22, 1500);
    let count = |number| (i64::MAX, "lines so far".to_owned(), number);
    let numbered = (1..).zip(per_second_serially(&rows));
    let expected: Vec<_> = numbered.flat_map(|(number, line)| [line, count(number)]).collect();
    check("lines", &expected, |pipeline, partitions, written| {
        pipeline
            .read_timed_rows("readings", rows.clone(), |row: &Reading| row.time_ms, 0)
            .key_by(partitions, |row: &Reading| row.sensor.clone())
            .process("per second", PerSecond)
            .singleton("count", move |lines: &mut i64, line, out| {
                *lines += 1;
                out.emit(line);
                out.emit(count(*lines));
            })
            .for_each("write", write_to(written));
    });
}

/// Numbers that a test gives, also to a run that resumes.
#[derive(Clone, Default)]
struct Given {
    state: Arc<Mutex<GivenState>>,
    read: usize,
}

#[derive(Default)]
struct GivenState {
    numbers: Vec<i64>,
    waker: Option<Waker>,
    has_ended: bool,
}

impl Given {
    fn change(&self, change: impl FnOnce(&mut GivenState)) {
        let mut state = self.state.lock().expect("nobody panics");
        change(&mut state);
        if let Some(waker) = &state.waker {
            waker();
        }
    }
}

impl RowSource<i64> for Given {
    fn start(&mut self, waker: Waker) -> Result<()> {
        self.state.lock().expect("nobody panics").waker = Some(waker);
        Ok(())
    }
    fn poll(&mut self, rows_max: usize, rows: &mut Vec<i64>) -> Result<RowPoll> {
        let state = self.state.lock().expect("nobody panics");
        let new = &state.numbers[self.read..];
        rows.extend(&new[..new.len().min(rows_max)]);
        self.read += rows.len();
        Ok(match rows.is_empty() {
            false => RowPoll::Rows,
            true if state.has_ended => RowPoll::End,
            true => RowPoll::Pending,
        })
    }
    fn position(&self) -> Option<String> {
        Some(self.read.to_string())
    }
    fn seek(&mut self, position: &str) -> Result<()> {
        self.read = position.parse().expect("its own position");
        Ok(())
    }
}

fn accepted(job: &RunningJob) -> u64 {
    job.control().metrics().stages.iter().map(|stage| stage.accepted).sum()
}

#[test]
fn timers_of_the_clock_fire_in_the_run_that_resumes() {
    let given = Given::default();
    let clock = Arc::new(ManualClock::default());
    let (send, fired) = std::sync::mpsc::channel();
    let start = |workers: usize, partitions: usize, cut: Option<RestoredCut>| {
        let (pipeline, send) = (Pipeline::new(), send.clone());
        pipeline
            .read_row_source("numbers", given.clone())
            .key_by(partitions, |number: &i64| *number)
            .process_function("silence", Silence)
            .for_each("send", move |row: (i64, u32)| {
                // The test may have seen enough.
                let _ = send.send(row);
                Ok(())
            });
        let snapshots = Some(SnapshotMode::ExactlyOnce);
        let clock = clock.clone();
        let options = RunOptions { workers, clock, snapshots, ..RunOptions::default() };
        start_from(pipeline.graph(), options, cut).expect("it starts")
    };
    let take = |job: &RunningJob| {
        let patience = Duration::from_secs(3600);
        let taken = job.control().take_cut(Extent::Full, AfterCut::Hold, patience);
        taken.expect("a cut can be taken").cut
    };
    let job = start(2, 4, None);
    given.change(|given| given.numbers.extend([7, 8, 7]));
    while accepted(&job) < 3 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut snapshots = Snapshots::new("clock", OrderContract::Epoch);
    snapshots.keep(take(&job), Extent::Full);
    let tables = snapshots.store.state_of(1, "silence").expect("it has state");
    let rows = |name: &str| tables[name].iter().map(|batch| batch.num_rows()).sum::<usize>();
    assert_eq!((rows("states"), rows("timers"), rows("clock_timers")), (2, 0, 2));
    let schema = tables["states"][0].schema();
    let columns: Vec<_> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    assert_eq!(columns, ["$partition", "key", "used_ms", "state_0", "state_1"]);
    job.control().cancel();
    job.wait().expect("it is stopped");

    let job = start(3, 9, snapshots.read());
    clock.advance(Duration::from_secs(5));
    let mut silent = [0, 1].map(|_| fired.recv_timeout(Duration::from_secs(60)).expect("it fires"));
    silent.sort_unstable();
    assert_eq!(silent, [(7, 2), (8, 1)]);
    given.change(|given| given.has_ended = true);
    while !job.control().has_ended() {
        std::thread::sleep(Duration::from_millis(1));
    }
    take(&job);
    job.control().complete().expect("it finishes");
    job.wait().expect("it ends");
    assert!(fired.try_recv().is_err(), "nothing is read again, and no timer fires again");
}
