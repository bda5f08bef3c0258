//! What tasks cost on a virtual core, and the clock that goes with it.
//!
//! Rows cost what they cost when they were measured, or what is assumed; the time of a task whose
//! work does not follow from its rows (a watermark) is measured while it runs. A machine whose
//! costs are assumed depends on its seed alone.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use thalweg_core::connector::Waker;
use thalweg_core::shim::{Clock, SharedClock};
use thalweg_ordering::sync::{Arc, AtomicU64, Mutex, Ordering};

/// What kind of work a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Work {
    /// A source is asked.
    Poll,
    /// A bundle is transformed, or routed.
    Bundle,
    /// A bundle is taken into the partition local to the worker.
    Local,
    /// A partition takes rows.
    Rows,
    /// A partition takes a watermark.
    Watermark,
    /// A bundle continues that waited for the outside.
    Continue,
}

/// Costs that are assumed, the same for all stages.
#[derive(Clone, Copy, Debug)]
pub struct AssumedCosts {
    /// To ask the dispatcher.
    pub ask_ns: u64,
    /// Of any task.
    pub task_ns: u64,
    /// Of a row that a source brings.
    pub polled_row_ns: u64,
    /// Of a row that any other stage takes or makes.
    pub row_ns: u64,
}

/// Measured nanoseconds per row by stage and kind of work.
pub type RowCosts = HashMap<(usize, Work), f64>;

/// Where costs come from.
#[derive(Clone)]
pub enum Costs {
    /// From a table, and nothing is measured.
    Assumed(AssumedCosts),
    /// Measured by a clock that counts the processor time of the calling thread. Work by rows takes
    /// the time of the table instead, where there is one: all virtual cores share the caches of the
    /// one that runs them, and many of them would pay for that.
    Measured(SharedClock, Arc<RowCosts>),
}

/// The clock of a virtual machine: that of the core that is being run, from 0 on. Sources,
/// operators and sinks of a job may go by it as well.
pub struct VirtualClock {
    costs: Costs,
    began_ns: AtomicU64,
    meter: Option<Meter>,
    alarms: Mutex<Alarms>,
}

/// Who is to be woken, by time and then in the order in which it was said.
#[derive(Default)]
struct Alarms {
    set: u64,
    wakers: BTreeMap<(u64, u64), Waker>,
}

/// What measures.
struct Meter {
    clock: SharedClock,
    mark: AtomicU64,
    /// What it costs to look at the clock, which is not the engine's: a task does it several times,
    /// and the clock of a real run costs next to nothing.
    look_ns: u64,
    /// How often it was looked at since the mark.
    looks: AtomicU64,
}

impl Meter {
    fn new(clock: SharedClock) -> Self {
        let look = |_| {
            let before = clock.now_ns();
            clock.now_ns() - before
        };
        let mut looks_ns = [0; 101].map(look);
        looks_ns.sort_unstable();
        let [mark, looks] = [(); 2].map(|()| AtomicU64::new(0));
        Meter { clock, mark, look_ns: looks_ns[50], looks }
    }

    fn begin(&self) {
        self.looks.store(0, Ordering::Relaxed);
        self.mark.store(self.clock.now_ns(), Ordering::Relaxed);
    }

    /// Time since then, without that of looking.
    fn taken_ns(&self) -> u64 {
        let passed_ns = self.clock.now_ns() - self.mark.load(Ordering::Relaxed);
        let looks = self.looks.fetch_add(1, Ordering::Relaxed) + 1;
        passed_ns.saturating_sub(looks * self.look_ns)
    }
}

impl VirtualClock {
    /// At 0.
    pub fn new(costs: Costs) -> Arc<Self> {
        let meter = match &costs {
            Costs::Assumed(_) => None,
            Costs::Measured(clock, _) => Some(Meter::new(clock.clone())),
        };
        let (began_ns, alarms) = (AtomicU64::new(0), Mutex::default());
        Arc::new(VirtualClock { costs, began_ns, meter, alarms })
    }

    /// Calls the waker when this time has come, at once if it is past.
    pub fn wake_at(&self, at_ns: u64, waker: Waker) {
        let mut alarms = self.alarms.lock().expect("nobody panics with it");
        alarms.set += 1;
        let place = (at_ns, alarms.set);
        alarms.wakers.insert(place, waker);
    }

    /// When a waker is to be called next.
    pub(crate) fn next_alarm_ns(&self) -> Option<u64> {
        let alarms = self.alarms.lock().expect("nobody panics with it");
        alarms.wakers.first_key_value().map(|(&(at_ns, _), _)| at_ns)
    }

    /// Wakes whoever is next.
    pub(crate) fn ring(&self) {
        let next = self.alarms.lock().expect("nobody panics with it").wakers.pop_first();
        if let Some((_, waker)) = next {
            waker();
        }
    }

    /// Another job begins.
    pub(crate) fn reset(&self) {
        self.began_ns.store(0, Ordering::Relaxed);
        self.alarms.lock().expect("nobody panics with it").wakers.clear();
    }

    pub(crate) fn costs(&self) -> &Costs {
        &self.costs
    }

    /// Something begins at this time.
    pub(crate) fn begin(&self, at_ns: u64) {
        // Relaxed throughout: one thread runs the simulation.
        self.began_ns.store(at_ns, Ordering::Relaxed);
        self.meter.iter().for_each(Meter::begin);
    }

    /// What it has taken so far; nothing where nothing is measured.
    pub(crate) fn taken_ns(&self) -> u64 {
        self.meter.as_ref().map_or(0, Meter::taken_ns)
    }
}

impl fmt::Debug for VirtualClock {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "VirtualClock({} ns)", self.began_ns.load(Ordering::Relaxed))
    }
}

impl Clock for VirtualClock {
    fn now_ns(&self) -> u64 {
        self.began_ns.load(Ordering::Relaxed) + self.taken_ns()
    }
    fn wall_ms(&self) -> i64 {
        (self.now_ns() / 1_000_000) as i64
    }
}

/// How much of older tasks stays in an expectation when another one is added.
const REMAINS: f64 = 0.8;
/// What a task is expected to cost before any was seen.
const FIRST_GUESS_NS: f64 = 10_000.0;

/// What tasks have cost, and what is expected of the next ones.
#[derive(Default)]
pub(crate) struct Ledger {
    expected: HashMap<(usize, Work), f64>,
    totals: HashMap<(usize, Work), Total>,
    /// Rows that partitions of a stage have taken in tasks without a watermark, and the time that
    /// was measured for them.
    measured_rows: HashMap<usize, (u64, u64)>,
}

/// What the tasks of a stage and kind have cost.
#[derive(Clone, Copy, Debug, Default)]
pub struct Total {
    /// How many.
    pub tasks: u64,
    /// Rows in them.
    pub rows: u64,
    /// Their time.
    pub ns: u64,
    /// The longest.
    pub longest_ns: u64,
}

impl Ledger {
    /// What a task of these rows, if their number is known, is expected to cost.
    pub(crate) fn expect(&self, key: (usize, Work), rows: Option<u64>) -> u64 {
        let per_unit = self.expected.get(&key).copied();
        per_unit.map_or(FIRST_GUESS_NS, |cost| cost * rows.unwrap_or(1).max(1) as f64) as u64
    }

    /// What a task costs by this table that was measured to take so long. It had to do with `rows`
    /// rows, and a partition took `rows_in` in it: those in front of a watermark are in its task,
    /// and cost no more there than in a task of their own.
    pub(crate) fn cost_by(
        &mut self,
        table: &RowCosts,
        key: (usize, Work),
        (rows, rows_in): (u64, u64),
        measured_ns: u64,
    ) -> u64 {
        let measured = self.measured_rows.entry(key.0).or_default();
        if key.1 == Work::Rows {
            *measured = (measured.0 + rows, measured.1 + measured_ns);
        }
        match (table.get(&key), table.get(&(key.0, Work::Rows))) {
            (Some(cost), _) if rows > 0 => (cost * rows as f64) as u64,
            (None, Some(cost)) if key.1 == Work::Watermark && measured.0 > 0 => {
                let of_rows = cost * rows_in as f64;
                let measured_of_rows = measured.1 as f64 / measured.0 as f64 * rows_in as f64;
                (of_rows + (measured_ns as f64 - measured_of_rows).max(0.0)) as u64
            }
            _ => measured_ns,
        }
    }

    /// A task is done. `known` says how many rows the expectation went by.
    pub(crate) fn add(&mut self, key: (usize, Work), known: Option<u64>, rows: u64, ns: u64) {
        let per_unit = ns as f64 / known.unwrap_or(1).max(1) as f64;
        let expected = self.expected.entry(key).or_insert(per_unit);
        *expected = *expected * REMAINS + per_unit * (1.0 - REMAINS);
        let total = self.totals.entry(key).or_default();
        total.tasks += 1;
        total.rows += rows;
        total.ns += ns;
        total.longest_ns = total.longest_ns.max(ns);
    }

    /// What was done by stage and kind, in this order.
    pub(crate) fn totals(&self) -> Vec<((usize, Work), Total)> {
        let mut totals: Vec<_> = self.totals.iter().map(|(&key, &total)| (key, total)).collect();
        totals.sort_unstable_by_key(|&(key, _)| key);
        totals
    }
}
