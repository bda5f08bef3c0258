//! The real dispatcher, containers, partitions and operators on any number of virtual cores.
//!
//! A discrete-event simulation on one thread. Each worker has a clock. The one whose clock is least
//! asks the dispatcher and gets a task; when the time of the task is over it is executed for real,
//! so what it leads to is visible then and not before. A worker that finds nothing waits until
//! something has been done. Sinks have a thread of their own each, as in a real run.
//!
//! # What is modelled, what is not
//! - *Serial things*: a source is asked by one worker at a time; a sink's thread writes one message
//!   after the other; a partition belongs to one worker; a watermark is passed on by the last one
//!   that finishes.
//! - *Time of a task*: it must be known before it is executed. It is what tasks of that stage and
//!   kind have cost lately, by rows; what that was wrong by is made up for before the worker's next
//!   task, so no time is lost or won in all. What polls were wrong by the source makes up for,
//!   since it is asked one at a time.
//! - *Not simulated*: caches, memory bandwidth and the way to memory of another node; contention
//!   for locks and cache lines (a lock is held within a task, and no two tasks run at once);
//!   frequency; the scheduler of the operating system. All virtual cores share the caches of the
//!   real one, which [`Costs`] can correct. Speed-ups are upper bounds therefore.
//!
//! With assumed costs a seed reproduces a run exactly.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::mpsc::TryRecvError;

use thalweg_core::graph::Graph;
use thalweg_core::shim::SplitMix64;
use thalweg_core::{Error, Result, Sink};
use thalweg_ordering::Sleep;
use thalweg_ordering::sync::{Arc, AtomicU64, Ordering};

use super::costs::{AssumedCosts, Costs, Ledger, Total, VirtualClock, Work};
use crate::control::Report;
use crate::dispatcher::{Task, next_task};
use crate::job::Job;
use crate::metrics::StageMetrics;
use crate::numa_memory::SharedNumaMemory;
use crate::options::RunOptions;
use crate::pace::SLICE_NS;
use crate::sinks::{self, SinkReceivers};
use crate::start::build::{Surroundings, build};
use crate::start::opening::{Beginning, agree_and_open, stop_sources};
use crate::task::execute;
use crate::topology::{Topology, WorkerPlace};

/// A machine that does not exist.
#[derive(Clone)]
pub struct VirtualMachine {
    /// Its nodes and cores. There is a worker on each core.
    pub topology: Topology,
    /// Says on which node rows are; without, they are where the worker is that made them.
    pub numa_memory: Option<SharedNumaMemory>,
    /// What tasks cost, and the time. One job at a time goes by it.
    pub clock: Arc<VirtualClock>,
    /// How long it takes until a worker that had nothing to do begins with what has come.
    pub wake_ns: u64,
    /// After so long a task takes nothing more in hand. What a task leads to is visible when it is
    /// over and no earlier, so where moments matter that are closer than this it has to be less.
    pub task_ns: u64,
    /// Decides between workers whose clocks are equal, and who is woken.
    pub seed: u64,
}

impl VirtualMachine {
    /// A machine of this number of nodes with this number of cores each.
    pub fn new((nodes, cores): (usize, usize), costs: Costs, seed: u64) -> Self {
        let node = |node: usize| (node * cores..(node + 1) * cores).collect();
        VirtualMachine {
            topology: Topology { nodes: (0..nodes).map(node).collect() },
            clock: VirtualClock::new(costs),
            numa_memory: None,
            wake_ns: 5_000,
            task_ns: SLICE_NS,
            seed,
        }
    }
}

/// What happened on a virtual machine.
#[derive(Debug)]
pub struct VirtualReport {
    /// What the job did. Its latencies are of virtual time.
    pub report: Report,
    /// From the start until the last sink had finished.
    pub elapsed_ns: u64,
    /// What was done by stage and kind, with the stage's name.
    pub work: Vec<(String, usize, Work, Total)>,
    /// Time spent asking the dispatcher, over all workers.
    pub asking_ns: u64,
    /// How often it was asked, and how often in vain.
    pub asked: (u64, u64),
    /// Time that each worker was busy.
    pub busy_ns: Vec<u64>,
    /// Time that the sinks' threads were busy.
    pub sinks_ns: u64,
    /// Bundles that a worker took from its own node, and from another one.
    pub bundles: (u64, u64),
}

impl VirtualReport {
    /// The share of the workers' time in which they did something.
    pub fn utilization(&self) -> f64 {
        let busy_ns: u64 = self.busy_ns.iter().sum();
        busy_ns as f64 / (self.elapsed_ns.max(1) as f64 * self.busy_ns.len() as f64)
    }

    /// The time spent on a kind of work.
    pub fn spent_ns(&self, on: Work) -> u64 {
        self.work.iter().filter(|(_, _, work, _)| *work == on).map(|(.., total)| total.ns).sum()
    }

    /// What a row costs by stage and kind, for a run that is to go by that.
    pub fn row_costs(&self) -> super::costs::RowCosts {
        let of_rows = self.work.iter().filter(|(_, _, work, total)| {
            let is_by_rows = matches!(work, Work::Poll | Work::Bundle | Work::Local | Work::Rows);
            is_by_rows && total.rows > 0
        });
        let cost = |total: &Total| total.ns as f64 / total.rows as f64;
        of_rows.map(|(_, stage, work, total)| ((*stage, *work), cost(total))).collect()
    }
}

/// Runs a job to its end on a virtual machine.
///
/// # Errors
/// As [`start`](crate::start), and what the job fails with.
pub fn run_on(
    machine: &VirtualMachine,
    graph: Graph,
    options: RunOptions,
) -> Result<VirtualReport> {
    let mut cores = VirtualCores::begin(machine, graph, options)?;
    while !cores.job.lifecycle.is_over() && !cores.job.lifecycle.all_sinks_finished() {
        cores.step();
    }
    cores.end()
}

/// Who acts: a worker, or the thread of a sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Actor {
    Worker(usize),
    Sink(usize),
}

/// A task under way.
struct Running {
    task: Task,
    key: (usize, Work),
    rows: Option<u64>,
    began_ns: u64,
    planned_ns: u64,
}

/// A worker's books.
#[derive(Default)]
struct Worker {
    running: Option<Running>,
    busy_ns: u64,
    /// Time planned for tasks that they did not need.
    credit_ns: u64,
    idle_since_ns: u64,
}

/// What is known of the time of a source, which is asked once at a time.
#[derive(Clone, Copy, Default)]
struct SourceBooks {
    /// When it can be asked again.
    free_ns: u64,
    /// Time planned for polls that they did not need.
    credit_ns: u64,
}

/// A sink's thread.
struct SinkThread {
    stage: usize,
    sink: Option<Box<dyn Sink>>,
    is_waiting: bool,
    busy_ns: u64,
}

struct VirtualCores {
    job: Arc<Job>,
    machine: VirtualMachine,
    clock: Arc<VirtualClock>,
    random: SplitMix64,
    /// By time; ties by chance.
    agenda: BinaryHeap<Reverse<(u64, u64, Actor)>>,
    workers: Vec<Worker>,
    /// By stage.
    sources: Vec<SourceBooks>,
    places: Vec<WorkerPlace>,
    parked: Vec<usize>,
    sinks: Vec<SinkThread>,
    receivers: SinkReceivers,
    ledger: Ledger,
    now_ns: u64,
    asking_ns: u64,
    asked: (u64, u64),
    bundles: (u64, u64),
    /// By stage: its last bundle was taken locally.
    local: Vec<bool>,
}

impl VirtualCores {
    fn begin(machine: &VirtualMachine, graph: Graph, mut options: RunOptions) -> Result<Self> {
        let count = machine.topology.nodes.iter().map(Vec::len).sum();
        let clock = machine.clock.clone();
        clock.reset();
        options.workers = count;
        options.clock = clock.clone();
        let mut receivers = SinkReceivers::new();
        let nodes = machine.topology.numa_nodes();
        let sleep = Arc::new(Sleep::new());
        let around = Surroundings {
            numa_nodes: nodes,
            numa_memory: machine.numa_memory.clone(),
            sleep,
            receivers: Some(&mut receivers),
        };
        let mut job = build(graph, options, None, around)?;
        job.settings.task_ns = machine.task_ns;
        let job = Arc::new(job);
        agree_and_open(&job, &Beginning::default())?;
        let thread = |(stage, _): &(usize, _)| {
            let run = job.stages[*stage].sink().expect("only sinks have channels");
            let sink = run.inline.lock().expect("nobody else runs").take();
            SinkThread { stage: *stage, sink, is_waiting: true, busy_ns: 0 }
        };
        let place = |worker| WorkerPlace { worker, numa_node: machine.topology.place(worker).1 };
        let mut cores = VirtualCores {
            sinks: receivers.iter().map(thread).collect(),
            workers: (0..count).map(|_| Worker::default()).collect(),
            sources: vec![SourceBooks::default(); job.stages.len()],
            local: vec![false; job.stages.len()],
            places: (0..count).map(place).collect(),
            random: SplitMix64::new(machine.seed),
            machine: machine.clone(),
            agenda: BinaryHeap::new(),
            parked: Vec::new(),
            ledger: Ledger::default(),
            now_ns: 0,
            asking_ns: 0,
            asked: (0, 0),
            bundles: (0, 0),
            job,
            clock,
            receivers,
        };
        (0..count).for_each(|worker| cores.plan(0, Actor::Worker(worker)));
        Ok(cores)
    }

    fn plan(&mut self, at_ns: u64, actor: Actor) {
        self.agenda.push(Reverse((at_ns, self.random.next_u64(), actor)));
    }

    /// Whoever is next does what is next.
    fn step(&mut self) {
        let next_ns = self.agenda.peek().map(|Reverse((at_ns, ..))| *at_ns);
        if let Some(alarm_ns) = self.clock.next_alarm_ns()
            && next_ns.is_none_or(|next_ns| alarm_ns <= next_ns)
        {
            self.now_ns = self.now_ns.max(alarm_ns);
            self.clock.ring();
            return self.wake();
        }
        let Some(Reverse((now_ns, _, actor))) = self.agenda.pop() else {
            let seed = self.machine.seed;
            let stuck = format!("the virtual machine with seed {seed} is stuck");
            return self.job.lifecycle.fail(Error::internal(stuck));
        };
        self.now_ns = now_ns;
        match actor {
            Actor::Sink(sink) => self.write(sink),
            Actor::Worker(worker) => match self.workers[worker].running.take() {
                Some(running) => self.finish(worker, running),
                None => {
                    self.ask(worker);
                }
            },
        }
    }

    /// A worker asks for a task. True if it got one.
    fn ask(&mut self, worker: usize) -> bool {
        self.clock.begin(self.now_ns);
        let task = next_task(&self.job, self.places[worker]);
        let asking_ns = match self.assumed() {
            Some(costs) => costs.ask_ns,
            None => self.clock.taken_ns(),
        };
        self.asked.0 += 1;
        let Some(task) = task else {
            self.asked.1 += 1;
            self.workers[worker].idle_since_ns = self.now_ns;
            self.parked.push(worker);
            return false;
        };
        self.asking_ns += asking_ns;
        let (key, rows) = self.kind_of(&task);
        self.count_bundle(worker, &task);
        let planned_ns = self.ledger.expect(key, rows);
        let books = &mut self.workers[worker];
        let source = &mut self.sources[key.0];
        let (free_ns, credit_ns) = match key.1 {
            Work::Poll => (source.free_ns, &mut source.credit_ns),
            _ => (0, &mut books.credit_ns),
        };
        let paid_ns = planned_ns.min(*credit_ns);
        *credit_ns -= paid_ns;
        books.busy_ns += asking_ns;
        let began_ns = free_ns.max(self.now_ns + asking_ns);
        // From now on until it is over the worker is at that stage.
        self.job.stages[key.0].metrics.meter.enter();
        books.running = Some(Running { task, key, rows, began_ns, planned_ns });
        self.plan(began_ns + planned_ns - paid_ns, Actor::Worker(worker));
        true
    }

    /// The time of a task is over: it is done.
    fn finish(&mut self, worker: usize, running: Running) {
        let Running { task, key, rows, began_ns, planned_ns } = running;
        let (before, taken_before) = (self.rows_at(key), self.rows_at((key.0, Work::Rows)));
        self.clock.begin(began_ns);
        // Executing counts the worker in and out.
        self.job.stages[key.0].metrics.meter.leave(0);
        execute(&self.job, task, self.places[worker], None);
        let measured_ns = self.clock.taken_ns();
        let done = rows.unwrap_or(self.rows_at(key) - before);
        let rows_in = self.rows_at((key.0, Work::Rows)) - taken_before;
        let key = self.bundle_kind(key, rows_in > 0);
        let taken_ns = match self.clock.costs() {
            Costs::Assumed(costs) => costs.task_ns + done * costs.of_row(key.1),
            Costs::Measured(_, table) => {
                self.ledger.cost_by(table, key, (done, rows_in), measured_ns)
            }
        };
        self.ledger.add(key, rows, done, taken_ns);
        let late_ns = taken_ns.saturating_sub(planned_ns);
        let credit_ns = planned_ns.saturating_sub(taken_ns);
        self.workers[worker].busy_ns += taken_ns;
        if key.1 == Work::Poll {
            self.sources[key.0].free_ns = self.now_ns + late_ns;
            self.sources[key.0].credit_ns += credit_ns;
        } else {
            self.workers[worker].credit_ns += credit_ns;
        }
        self.plan(self.now_ns + late_ns, Actor::Worker(worker));
        self.wake();
    }

    /// Wakes those who wait for something that may be there now.
    fn wake(&mut self) {
        for place in 0..self.sinks.len() {
            let run = self.job.stages[self.sinks[place].stage].sink().expect("it is a sink");
            if self.sinks[place].is_waiting && run.waiting.load(Ordering::Relaxed) > 0 {
                self.sinks[place].is_waiting = false;
                self.plan(self.now_ns, Actor::Sink(place));
            }
        }
        // The first who finds nothing shows that the others would not either.
        let now_ns = self.now_ns;
        while !self.parked.is_empty() {
            let chosen = self.random.below(self.parked.len() as u64) as usize;
            let worker = self.parked.swap_remove(chosen);
            let since_ns = self.workers[worker].idle_since_ns;
            // Whoever has nothing to do spins for a while before it sleeps.
            self.now_ns =
                now_ns + if now_ns - since_ns > SPIN_NS { self.machine.wake_ns } else { 0 };
            let found = self.ask(worker);
            self.now_ns = now_ns;
            if !found {
                self.workers[worker].idle_since_ns = since_ns;
                break;
            }
        }
    }

    /// The thread of a sink handles a message.
    fn write(&mut self, place: usize) {
        let message = match self.receivers[place].1.try_recv() {
            Ok(message) => message,
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => {
                self.sinks[place].is_waiting = true;
                return;
            }
        };
        let thread = &mut self.sinks[place];
        let stage = thread.stage;
        let before = written(&self.job, stage);
        self.clock.begin(self.now_ns);
        let result = sinks::at(&self.job, stage).handle(&mut thread.sink, message);
        let taken_ns = match self.clock.costs() {
            Costs::Assumed(costs) => {
                costs.task_ns + (written(&self.job, stage) - before) * costs.row_ns
            }
            Costs::Measured(..) => self.clock.taken_ns(),
        };
        thread.busy_ns += taken_ns;
        if let Err(error) = result {
            self.job.lifecycle.fail(error.in_operator(self.job.stages[stage].name.clone()));
        }
        self.plan(self.now_ns + taken_ns, Actor::Sink(place));
        self.wake();
    }

    fn assumed(&self) -> Option<AssumedCosts> {
        match self.clock.costs() {
            Costs::Assumed(costs) => Some(*costs),
            Costs::Measured(..) => None,
        }
    }

    /// What a task is, and of how many rows where that is known.
    fn kind_of(&self, task: &Task) -> ((usize, Work), Option<u64>) {
        match task {
            Task::Poll { stage } => ((*stage, Work::Poll), None),
            Task::Bundle { stage, bundle, .. } => {
                // What becomes of it is known when it is done; mostly the same as of the last one.
                let work = if self.local[*stage] { Work::Local } else { Work::Bundle };
                ((*stage, work), Some(bundle.num_rows() as u64))
            }
            Task::Continue(continued) => ((continued.stage, Work::Continue), None),
            Task::Element { stage, .. } => ((*stage, Work::Bundle), None),
            Task::Cell { stage, cell } => {
                let cell = &self.job.stages[*stage].cells()[*cell];
                let has_barrier = cell.barriers.load(Ordering::Relaxed) > 0;
                ((*stage, if has_barrier { Work::Watermark } else { Work::Rows }), None)
            }
        }
    }

    /// What has become of a task that was taken for a bundle's.
    fn bundle_kind(&mut self, (stage, work): (usize, Work), is_local: bool) -> (usize, Work) {
        if !matches!(work, Work::Bundle | Work::Local) {
            return (stage, work);
        }
        self.local[stage] = is_local;
        (stage, if is_local { Work::Local } else { Work::Bundle })
    }

    fn count_bundle(&mut self, worker: usize, task: &Task) {
        if let Task::Bundle { bundle, .. } = task {
            let is_near = usize::from(bundle.stamps.numa_node) == self.places[worker].numa_node;
            *(if is_near { &mut self.bundles.0 } else { &mut self.bundles.1 }) += 1;
        }
    }

    /// Rows that a kind of work has to do with, so far.
    fn rows_at(&self, (stage, work): (usize, Work)) -> u64 {
        let metrics = &self.job.stages[stage].metrics;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        match work {
            Work::Poll | Work::Bundle | Work::Local | Work::Continue => read(&metrics.rows_in),
            Work::Rows => read(&metrics.accepted) + read(&metrics.late),
            Work::Watermark => read(&metrics.rows_out),
        }
    }

    fn end(self) -> Result<VirtualReport> {
        stop_sources(&self.job);
        if let Some(error) = self.job.lifecycle.take_failure() {
            return Err(error);
        }
        let name = |stage: usize| self.job.stages[stage].name.clone();
        let totals = self.ledger.totals().into_iter();
        Ok(VirtualReport {
            report: Report::of(&self.job),
            elapsed_ns: self.now_ns,
            work: totals.map(|((stage, work), total)| (name(stage), stage, work, total)).collect(),
            asking_ns: self.asking_ns,
            asked: self.asked,
            busy_ns: self.workers.iter().map(|worker| worker.busy_ns).collect(),
            sinks_ns: self.sinks.iter().map(|sink| sink.busy_ns).sum(),
            bundles: self.bundles,
        })
    }
}

/// How long a worker looks for work before it sleeps: 64 looks.
const SPIN_NS: u64 = 20_000;

fn written(job: &Job, stage: usize) -> u64 {
    let metrics: &StageMetrics = &job.stages[stage].metrics;
    metrics.rows_out.load(Ordering::Relaxed)
}

impl AssumedCosts {
    fn of_row(&self, work: Work) -> u64 {
        if work == Work::Poll { self.polled_row_ns } else { self.row_ns }
    }
}
