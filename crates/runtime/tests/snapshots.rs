//! Jobs that are killed and resume from their last cut, in a simulation: by a seed, with another
//! number of workers and another size of bundles each time, in every contract. What gets out is
//! what a job that ran through gives: the same rows, in the ordered contracts in the same sequence.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::*;
use thalweg_core::graph::{Graph, Input, StageKind};
use thalweg_core::shim::{ManualClock, SplitMix64};
use thalweg_core::snapshot::{RestoredCut, StageState};
use thalweg_core::{Error, Extent, OperatorClass, OrderContract, Restored};
use thalweg_runtime::simulate::{Simulation, restored, simulate};
use thalweg_runtime::{AfterCut, RunOptions, SnapshotMode, start_from};

const DELAY: i64 = 10;
const SIZE: i64 = 20;
const CLASSES: [OperatorClass; 2] = [OperatorClass::Commuting, OperatorClass::Sequenced];

fn handles(cut: &RestoredCut) -> Vec<(String, String)> {
    let handle = |stage: &StageState<Restored>| {
        let handle = stage.sink.as_ref()?.handle.clone()?;
        Some((stage.id.clone(), handle))
    };
    cut.stages.iter().filter_map(handle).collect()
}

/// Why a job fails that is to fail.
const WANTED: &str = "the test wants it";

/// What a run goes through: it is killed now and then, also soon after a kill, and between a
/// snapshot and its commit; it fails while a cut is taken; one of its sinks fails to prepare or to
/// commit, when others have done so or have not.
struct Fate {
    random: SplitMix64,
    order: OrderContract,
    kills: usize,
    cuts: usize,
    /// Cuts and commits that something went wrong with.
    failures: usize,
}

impl Fate {
    fn new(order: OrderContract, seed: u64) -> Self {
        Fate { random: SplitMix64::new(seed), order, kills: 0, cuts: 0, failures: 0 }
    }

    fn options(&mut self) -> RunOptions {
        RunOptions {
            workers: 1 + self.random.below(4) as usize,
            bundle_rows_max: 1 + self.random.below(40) as usize,
            scheduler: policy_of(self.random.below(100)),
            order: self.order,
            snapshots: Some(SnapshotMode::ExactlyOnce),
            clock: Arc::new(ManualClock::default()),
            ..RunOptions::default()
        }
    }

    /// True once in `times` times.
    fn once_in(&mut self, times: u64) -> bool {
        self.random.below(times) == 0
    }

    /// Runs a job to its end, however often it is killed.
    fn run(&mut self, sinks: &[Durable], graph: impl Fn() -> Graph) {
        let mut last: Option<RestoredCut> = None;
        loop {
            let seed = self.random.next_u64();
            let nodes = 1 + self.random.below(2) as usize;
            let mut job = Simulation::begin(graph(), self.options(), nodes, seed, last.as_ref())
                .expect("it resumes");
            let is_short = self.kills > 0 && self.once_in(4);
            let steps = if is_short { self.random.below(6) } else { u64::MAX };
            if self.run_once(&mut job, sinks, steps, &mut last) {
                job.end().expect("it ends well");
                return;
            }
            self.kills += 1;
            if job.is_over() {
                let error = job.end().expect_err("it ends by itself only when it fails");
                assert!(error.message().contains(WANTED), "{error}");
            }
        }
    }

    /// True if the job has come to its end, false if it was killed, after `steps` steps at the
    /// latest.
    fn run_once(
        &mut self,
        job: &mut Simulation,
        sinks: &[Durable],
        steps: u64,
        last: &mut Option<RestoredCut>,
    ) -> bool {
        for _ in 0..steps {
            if job.is_over() {
                return false;
            }
            let has_ended = job.has_ended();
            if has_ended || self.once_in(40) {
                match self.snapshot(job, sinks, last) {
                    Snapshot::Fatal => return false,
                    Snapshot::Committed { is_complete } => {
                        // The job continues while the cut passes through it.
                        assert!(is_complete || !has_ended);
                        assert!(job.has_ended() || !is_complete);
                        if is_complete {
                            job.control().complete().expect("it finishes");
                            return true;
                        }
                    }
                    Snapshot::NotKept => continue,
                }
            }
            if self.once_in(150) {
                return false;
            }
            job.step();
        }
        false
    }

    /// Takes a snapshot and commits it, unless that fails.
    fn snapshot(
        &mut self,
        job: &mut Simulation,
        sinks: &[Durable],
        last: &mut Option<RestoredCut>,
    ) -> Snapshot {
        let fails_at = match self.random.below(12) {
            0 => Some(Call::Prepare),
            1 => Some(Call::Commit),
            2 => {
                let failure = Error::user(WANTED);
                job.fail_in(self.random.below(30), failure);
                None
            }
            _ => None,
        };
        let failing = self.random.below(sinks.len() as u64) as usize;
        sinks[failing].outside.lock().expect("no panic").fails_at = fails_at;
        let Ok(cut) = job.take_cut(Extent::Full) else {
            self.failures += 1;
            return Snapshot::Fatal;
        };
        let cut = restored(cut).expect("rows can be made");
        self.cuts += 1;
        if self.once_in(6) {
            // The snapshot was not written, and the job fails, or continues.
            return if self.once_in(2) { Snapshot::Fatal } else { Snapshot::NotKept };
        }
        let (handles, is_complete) = (handles(&cut), cut.is_complete);
        *last = Some(cut);
        if self.once_in(6) {
            return Snapshot::Fatal;
        }
        if job.control().commit(&handles, &[], None).is_err() {
            self.failures += 1;
            return Snapshot::Fatal;
        }
        Snapshot::Committed { is_complete }
    }
}

/// What became of a snapshot.
enum Snapshot {
    /// The job is dead.
    Fatal,
    /// It was not kept, and the job continues.
    NotKept,
    Committed {
        is_complete: bool,
    },
}

fn source(graph: &mut Graph, name: &str, rows: &[(i64, i64)]) -> Input {
    let (source, assigner) = (Rows::boxed(rows.to_vec()), Delay::boxed(DELAY, SIZE));
    let from = graph.add(name, name, StageKind::Source { source, assigner }, vec![]);
    Input { from, port: 0 }
}

fn sink(graph: &mut Graph, name: &str, sink: &Durable, inputs: Vec<Input>) {
    graph.add(name, name, StageKind::Sink(Box::new(sink.again())), inputs);
}

/// source(s) → keep → union → count → sink, late rows to a sink of their own.
fn counted(inputs: &[Vec<(i64, i64)>], class: OperatorClass, sinks: &[Durable; 3]) -> Graph {
    let mut graph = Graph::default();
    let mut kept = Vec::new();
    for (number, rows) in inputs.iter().enumerate() {
        let input = source(&mut graph, &format!("source-{number}"), rows);
        let keep = StageKind::Transform(Arc::new(Keep));
        let from = graph.add(format!("keep-{number}"), "keep", keep, vec![input]);
        kept.push(Input { from, port: 0 });
    }
    let union = graph.add("union", "union", StageKind::Transform(Arc::new(Keep)), kept);
    let from_union = Input { from: union, port: 0 };
    let count = Count { size: SIZE, class, cancel_between: false };
    let count = StageKind::Operator(Arc::new(count));
    let from = graph.add("count", "count", count, vec![from_union]);
    sink(&mut graph, "results", &sinks[0], vec![Input { from, port: 0 }]);
    sink(&mut graph, "late", &sinks[1], vec![Input { from, port: 1 }]);
    sink(&mut graph, "rows", &sinks[2], vec![from_union]);
    graph
}

/// What a job that runs through gives.
fn straight(graph: Graph, order: OrderContract, seed: u64) {
    let clock = Arc::new(ManualClock::default());
    let options = RunOptions { workers: 1, order, clock, ..RunOptions::default() };
    simulate(graph, options, 1, seed).expect("it runs");
}

/// A sink without transactions for each of the durable ones.
fn collected(
    inputs: &[Vec<(i64, i64)>],
    class: OperatorClass,
    order: OrderContract,
) -> [Vec<(i64, i64)>; 3] {
    let sinks: [Durable; 3] = Default::default();
    let mut fate = Fate::new(order, 0);
    let graph = counted(inputs, class, &sinks);
    let mut job = Simulation::begin(graph, fate.options(), 1, 7, None).expect("it begins");
    while !job.has_ended() {
        if job.is_over() {
            panic!("{:?}", job.end());
        }
        job.step();
    }
    let cut = job.take_cut(Extent::Full).and_then(restored).expect("a cut can be taken");
    job.control().commit(&handles(&cut), &[], None).expect("it commits");
    sinks.map(|sink| sink.visible())
}

fn in_any_order(mut rows: Vec<(i64, i64)>) -> Vec<(i64, i64)> {
    rows.sort_unstable();
    rows
}

fn seeds(short: u64) -> u64 {
    std::env::var("THALWEG_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(short)
}

#[test]
fn killed_jobs_give_what_those_give_that_run_through() {
    let (mut kills, mut cuts, mut failures) = (0, 0, 0);
    for seed in 0..seeds(30) {
        for (class, order) in CLASSES.into_iter().flat_map(|class| {
            [OrderContract::Epoch, OrderContract::Arrival].map(|order| (class, order))
        }) {
            let inputs = [disorder(400, seed)];
            let expected = collected(&inputs, class, order);
            let sinks: [Durable; 3] = Default::default();
            let mut fate = Fate::new(order, seed);
            fate.run(&sinks, || counted(&inputs, class, &sinks));
            (kills, cuts) = (kills + fate.kills, cuts + fate.cuts);
            failures += fate.failures;
            let visible = sinks.map(|sink| sink.visible());
            let what = format!("seed {seed}, {class:?}, {order}");
            match order {
                OrderContract::Epoch => {
                    let sorted = |rows: [Vec<(i64, i64)>; 3]| rows.map(in_any_order);
                    assert_eq!(sorted(visible), sorted(expected), "{what}");
                }
                _ => assert_eq!(visible, expected, "{what}"),
            }
        }
    }
    println!("{kills} kills, {cuts} cuts, {failures} failures of sinks or while a cut was taken");
    assert!(kills > 20 && cuts > 40 && failures > 10, "{kills} {cuts} {failures}");
}

/// Workers and sinks of a job that has failed pass over what is under way. A cut would count it as
/// done, and a run that resumed from its snapshot would never see it: a golden case lost the row of
/// a window that way.
#[test]
fn a_job_that_has_failed_gives_no_cut() {
    let (inputs, sinks): (_, [Durable; 3]) = ([disorder(400, 1)], Default::default());
    let mut fate = Fate::new(OrderContract::Epoch, 1);
    let graph = counted(&inputs, OperatorClass::Commuting, &sinks);
    let mut job = Simulation::begin(graph, fate.options(), 1, 1, None).expect("it begins");
    job.take_cut(Extent::Full).expect("it runs");
    job.control().fail(Error::io("the disk is full"));
    assert!(job.take_cut(Extent::Full).is_err(), "a cut of what is left");
}

/// Two inputs that are merged by time, one far longer than the other: rows wait in the merge at
/// most cuts.
#[test]
fn rows_that_wait_for_another_input_wait_on_after_a_restore() {
    for seed in 0..seeds(30) {
        let sorted = |count, seed| {
            let mut rows = disorder(count, seed);
            rows.sort_by_key(|&(time, _)| time);
            rows
        };
        let inputs = [sorted(300, seed), sorted(60, seed + 1000)];
        for class in CLASSES {
            let expected = collected(&inputs, class, OrderContract::EventTime);
            let sinks: [Durable; 3] = Default::default();
            let mut fate = Fate::new(OrderContract::EventTime, seed);
            fate.run(&sinks, || counted(&inputs, class, &sinks));
            let visible = sinks.map(|sink| sink.visible());
            assert_eq!(visible, expected, "seed {seed}, {class:?}");
        }
    }
}

/// Several inputs in `epoch`: each row is judged by its own, and none is lost.
#[test]
fn several_inputs_resume_each_from_its_own_place() {
    for seed in 0..seeds(20) {
        let inputs = [disorder(300, seed), disorder(100, seed + 1000)];
        for class in CLASSES {
            let order = OrderContract::Epoch;
            let expected = collected(&inputs, class, order).map(in_any_order);
            let sinks: [Durable; 3] = Default::default();
            Fate::new(order, seed).run(&sinks, || counted(&inputs, class, &sinks));
            assert_eq!(
                sinks.map(|sink| in_any_order(sink.visible())),
                expected,
                "seed {seed}, {class:?}"
            );
        }
    }
}

/// source(s) → keep → union → count → count → sink, late rows and all rows to sinks of their own.
fn counted_twice(inputs: &[Vec<(i64, i64)>], class: OperatorClass, sinks: &[Durable; 3]) -> Graph {
    let mut graph = counted(inputs, class, sinks);
    let results = graph.stages.iter().position(|stage| stage.id == "results").expect("a sink");
    let counts = graph.stages[results].inputs.clone();
    let again = Count { size: 3 * SIZE, class, cancel_between: true };
    let again = graph.add("again", "again", StageKind::Operator(Arc::new(again)), counts);
    let every = Durable::default();
    sink(&mut graph, "twice", &every, vec![Input { from: again, port: 0 }]);
    graph
}

/// Runs to the end from where `restored` says; a cut is asked for once in a number of steps. Each
/// cut, with what the outside was when it was durable.
fn run_with_cuts(
    fate: &mut Fate,
    once_in: u64,
    graph: Graph,
    sinks: &[Durable; 3],
    restored_from: Option<&RestoredCut>,
) -> Vec<(RestoredCut, [Durable; 3])> {
    let (seed, nodes) = (fate.random.next_u64(), 1 + fate.random.below(2) as usize);
    let mut job = Simulation::begin(graph, fate.options(), nodes, seed, restored_from)
        .expect("it begins where the cut is");
    let mut cuts = Vec::new();
    loop {
        if job.has_ended() || fate.once_in(once_in) {
            let cut = job.take_cut(Extent::Full).expect("a cut can be taken");
            let cut = restored(cut).expect("rows can be made");
            // A run that resumes commits again: it may find that done or not.
            let not_committed = sinks.each_ref().map(Durable::copied);
            job.control().commit(&handles(&cut), &[], None).expect("it commits");
            let committed = sinks.each_ref().map(Durable::copied);
            let is_complete = cut.is_complete;
            cuts.push((cut, if fate.once_in(2) { committed } else { not_committed }));
            if is_complete {
                job.control().complete().expect("it finishes");
                job.end().expect("it ends well");
                return cuts;
            }
        }
        assert!(!job.is_over(), "{:?}", job.end());
        job.step();
    }
}

/// Cuts are asked for at random moments while rows, watermarks and the ends of inputs are under
/// way, some right behind others; a run resumes from every third of them. The policy, the number of
/// workers and the size of bundles are others in each run.
#[test]
fn a_run_from_any_cut_ends_as_one_that_ran_through() {
    let (mut schedules, mut cuts_taken) = (0, 0);
    for seed in 0..seeds(150) {
        for order in [OrderContract::Epoch, OrderContract::Arrival, OrderContract::EventTime] {
            let mut fate = Fate::new(order, seed);
            let class = CLASSES[fate.random.below(2) as usize];
            let mut input = |number| {
                let mut rows = disorder(20 + fate.random.below(200) as usize, seed + 1000 * number);
                if order == OrderContract::EventTime {
                    rows.sort_by_key(|&(time, _)| time);
                }
                rows
            };
            let inputs: Vec<_> = (0..1 + seed % 3).map(&mut input).collect();
            let graph = |sinks: &[Durable; 3]| counted_twice(&inputs, class, sinks);
            // Several inputs meet as they come in `arrival`.
            let is_sequence = match order {
                OrderContract::Epoch => false,
                OrderContract::Arrival => inputs.len() == 1,
                OrderContract::EventTime => true,
            };
            let seen = |sinks: &[Durable; 3]| {
                let of_sink = |sink: &Durable| match is_sequence {
                    true => sink.visible(),
                    false => in_any_order(sink.visible()),
                };
                sinks.each_ref().map(of_sink)
            };
            let through: [Durable; 3] = Default::default();
            run_with_cuts(&mut fate, u64::MAX, graph(&through), &through, None);
            let expected = seen(&through);
            let sinks: [Durable; 3] = Default::default();
            let once_in = 1 + fate.random.below(40);
            let cuts = run_with_cuts(&mut fate, once_in, graph(&sinks), &sinks, None);
            let what = format!("seed {seed}, {class:?}, {order}, {} inputs", inputs.len());
            assert_eq!(seen(&sinks), expected, "with {} cuts, {what}", cuts.len());
            (cuts_taken, schedules) = (cuts_taken + cuts.len(), schedules + 2);
            for (number, (cut, sinks)) in cuts.iter().enumerate().step_by(3) {
                run_with_cuts(&mut fate, 60, graph(sinks), sinks, Some(cut));
                assert_eq!(seen(sinks), expected, "from cut {number} of {}, {what}", cuts.len());
                schedules += 1;
            }
        }
    }
    println!("{cuts_taken} cuts, {schedules} runs");
    assert!(cuts_taken > 1000 && schedules > 1000, "{cuts_taken} {schedules}");
}

/// On threads: cuts while the job runs at full speed, then a stop and a run that resumes.
#[test]
fn a_stopped_job_resumes_with_threads() {
    for order in [OrderContract::Epoch, OrderContract::Arrival] {
        let rows = disorder(60_000, 5);
        let inputs = [rows];
        let expected = collected(&inputs, OperatorClass::Commuting, order);
        let sinks: [Durable; 3] = Default::default();
        let mut last: Option<RestoredCut> = None;
        for run in 0.. {
            let options = RunOptions {
                workers: 1 + run % 4,
                bundle_rows_max: 16,
                order,
                snapshots: Some(SnapshotMode::ExactlyOnce),
                ..RunOptions::default()
            };
            let graph = counted(&inputs, OperatorClass::Commuting, &sinks);
            let job = start_from(graph, options, last.take()).expect("it starts");
            let control = job.control();
            let waiter = std::thread::spawn(move || job.wait());
            let mut is_complete = false;
            for cut in 0..4 {
                let after = if cut == 3 { AfterCut::Hold } else { AfterCut::Continue };
                // One that is given up passes on its way all the same, and the next one waits.
                drop(control.take_cut(Extent::Full, AfterCut::Continue, Duration::ZERO));
                let taken = control
                    .take_cut(Extent::Full, after, Duration::from_secs(60))
                    .expect("a cut is taken");
                let cut = restored(taken.cut).expect("rows can be made");
                control.commit(&handles(&cut), &[], None).expect("it commits");
                is_complete = cut.is_complete;
                last = Some(cut);
                if is_complete {
                    control.complete().expect("it finishes");
                    break;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            control.cancel();
            waiter.join().expect("no panic").expect("it ends well");
            if is_complete {
                break;
            }
        }
        let visible = sinks.map(|sink| in_any_order(sink.visible()));
        assert_eq!(visible, expected.map(in_any_order), "{order}");
    }
}

#[test]
fn a_job_without_snapshots_runs_as_ever() {
    let (graph, results, _) = counting(
        vec![(Rows::boxed(disorder(300, 1)), Delay::boxed(DELAY, SIZE))],
        Count { size: SIZE, class: OperatorClass::Sequenced, cancel_between: false },
    );
    straight(graph, OrderContract::Epoch, 3);
    assert_eq!(results.sorted(), reference(&disorder(300, 1), DELAY, SIZE).0);
}
