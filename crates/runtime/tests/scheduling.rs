//! What the policies do to a job: in the simulator, with a clock that only work moves, the sequence
//! of tasks follows from the paper's rules alone.

mod common;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{Collect, POLICIES, Rows};
use thalweg_core::connector::Waker;
use thalweg_core::graph::{Graph, Input, StageKind};
use thalweg_core::shim::ManualClock;
use thalweg_core::{Bundle, OrderContract, Result, Source, SourcePoll, Transform};
use thalweg_runtime::simulate::simulate;
use thalweg_runtime::{RunOptions, SchedulerPolicy};

/// What was done, in sequence, and the clock that it moved.
#[derive(Clone, Default)]
struct Log {
    names: Arc<Mutex<Vec<&'static str>>>,
    clock: Arc<ManualClock>,
}

impl Log {
    fn add(&self, name: &'static str, cost: Duration) {
        self.names.lock().expect("no panic").push(name);
        self.clock.advance(cost);
    }
    /// The names without the polls.
    fn stages(&self) -> Vec<&'static str> {
        let names = self.names.lock().expect("no panic");
        names.iter().copied().filter(|&name| name != "poll").collect()
    }
    /// After each task, how many elements the second stage is behind the first one.
    fn lags(&self) -> Vec<i64> {
        let step = |lag: &mut i64, name| {
            *lag += if name == "first" { 1 } else { -1 };
            Some(*lag)
        };
        self.stages().into_iter().scan(0, step).collect()
    }
}

/// A stateless stage that takes its time.
struct Step {
    name: &'static str,
    cost: Duration,
    log: Log,
}

impl Transform for Step {
    fn name(&self) -> String {
        self.name.into()
    }
    fn apply(&self, bundle: Bundle) -> Result<Bundle> {
        self.log.add(self.name, self.cost);
        Ok(bundle)
    }
}

/// Gives a number of rows at most for each poll, which takes its time.
struct Polled {
    rows: Rows,
    rows_max: usize,
    cost: Duration,
    log: Log,
}

impl Source for Polled {
    fn name(&self) -> String {
        "polled".into()
    }
    fn start(&mut self, waker: Waker) -> Result<()> {
        self.rows.start(waker)
    }
    fn poll(&mut self, rows_max: usize) -> Result<SourcePoll> {
        self.log.add("poll", self.cost);
        self.rows.poll(rows_max.min(self.rows_max))
    }
    fn is_bounded(&self) -> bool {
        true
    }
}

/// How a job is set up.
struct Setting {
    policy: SchedulerPolicy,
    order: OrderContract,
    rows: i64,
    bundle_rows_max: usize,
    memory_limit_bytes: usize,
    /// How often the rows go through the two stages, side by side.
    branches: usize,
    /// Of a poll, the first and the second stage.
    costs_us: [u64; 3],
}

impl Default for Setting {
    fn default() -> Self {
        Setting {
            policy: SchedulerPolicy::Nem,
            order: OrderContract::Epoch,
            rows: 40,
            bundle_rows_max: 1,
            memory_limit_bytes: 1 << 30,
            branches: 1,
            costs_us: [0; 3],
        }
    }
}

/// Runs source → first → second → sink, perhaps several times side by side, with one worker and one
/// row for each poll.
fn run(setting: Setting) -> Log {
    let log = Log::default();
    let [poll, first, second] = setting.costs_us.map(Duration::from_micros);
    let rows: Vec<_> = (0..setting.rows).map(|n| (n, n)).collect();
    let mut graph = Graph::default();
    let polled = Rows { rows: rows.clone().into(), bounded: true, given: 0 };
    let source = Box::new(Polled { rows: polled, rows_max: 1, cost: poll, log: log.clone() });
    let source = graph.add("s", "source", StageKind::Source { source, assigner: None }, vec![]);
    let mut ends = vec![source; setting.branches];
    for (name, cost) in [("first", first), ("second", second)] {
        for (branch, from) in ends.iter_mut().enumerate() {
            let step = StageKind::Transform(Arc::new(Step { name, cost, log: log.clone() }));
            let input = Input { from: *from, port: 0 };
            *from = graph.add(format!("{name}-{branch}"), name, step, vec![input]);
        }
    }
    let sinks: Vec<Collect> = (0..setting.branches).map(|_| Collect::default()).collect();
    for (branch, (sink, &from)) in sinks.iter().zip(&ends).enumerate() {
        let kind = StageKind::Sink(Box::new(sink.clone()));
        graph.add(format!("sink-{branch}"), "sink", kind, vec![Input { from, port: 0 }]);
    }
    let options = RunOptions {
        workers: 1,
        bundle_rows_max: setting.bundle_rows_max,
        scheduler: setting.policy,
        order: setting.order,
        memory_limit_bytes: setting.memory_limit_bytes,
        clock: log.clock.clone(),
        ..RunOptions::default()
    };
    simulate(graph, options, 1, 1).expect("the job runs");
    assert!(sinks.iter().all(|sink| sink.rows() == rows));
    log
}

const ORDERS: [OrderContract; 2] = [OrderContract::Epoch, OrderContract::Arrival];

#[test]
fn last_in_pipeline_takes_each_bundle_to_the_exit() {
    for order in ORDERS {
        let log =
            run(Setting { policy: SchedulerPolicy::LastInPipeline, order, ..Setting::default() });
        let each: Vec<_> = (0..40).flat_map(|_| ["first", "second"]).collect();
        assert_eq!(log.stages()[..80], each, "{order}");
    }
}

#[test]
fn queue_size_throttling_fills_each_queue_up_to_its_threshold() {
    for order in ORDERS {
        let policy = SchedulerPolicy::QueueSizeThrottling;
        let log = run(Setting { policy, order, rows: 300, ..Setting::default() });
        // Formula (1): the source and two stages, all of selectivity 1, share 256.
        let threshold = (256.0_f64 / 3.0).ceil() as i64;
        assert_eq!(log.lags().into_iter().max(), Some(threshold), "{order}");
        let log = run(Setting { policy, order, ..Setting::default() });
        assert!(log.stages()[..40].iter().all(|&name| name == "first"), "{order}: one by one");
    }
}

#[test]
fn current_throughput_keeps_stages_of_different_cost_in_step() {
    for order in ORDERS {
        let log = run(Setting {
            policy: SchedulerPolicy::CurrentThroughput,
            order,
            rows: 400,
            costs_us: [50, 100, 300],
            ..Setting::default()
        });
        // At first all count as equally cheap, and the costly one falls behind; once measured, it
        // gets its share of the time.
        let lags = log.lags();
        assert!(lags[..60].iter().any(|&lag| lag > 5), "{order}: {lags:?}");
        let furthest = lags[lags.len() / 2..].iter().max().expect("tasks");
        assert!(*furthest <= 3, "{order}: the second stage is {furthest} elements behind");
    }
}

#[test]
fn a_full_memory_drains_whatever_the_policy() {
    for (policy, order) in POLICIES.into_iter().flat_map(|p| ORDERS.map(|order| (p, order))) {
        // A quarter of the limit, which is less than one row, may be in flight, and each row goes
        // eight ways. The policies of their own would do the first stage of several ways before.
        let full = Setting { policy, order, memory_limit_bytes: 32, ..Setting::default() };
        let log = run(Setting { branches: 8, ..full });
        assert_eq!(log.lags().into_iter().max(), Some(1), "{policy}, {order}");
        let roomy = Setting { policy, order, branches: 8, ..Setting::default() };
        if policy == SchedulerPolicy::RoundRobin || policy == SchedulerPolicy::QueueSizeThrottling {
            assert!(run(roomy).lags().into_iter().max() > Some(1), "{policy}, {order}");
        }
    }
}

#[test]
fn a_source_that_waits_for_company_is_not_asked_in_vain() {
    for policy in POLICIES {
        let log = run(Setting { policy, bundle_rows_max: 100, ..Setting::default() });
        let names = log.names.lock().expect("no panic").clone();
        let polls = names.split(|&name| name != "poll").map(<[_]>::len).max();
        // The last rows and the end of the input are asked for one after the other.
        assert!(polls <= Some(3), "{policy}: {names:?}");
    }
}
