//! What the policies know from measuring: the cost and the selectivity of each stage, the workers
//! at it, and the time spent on it in the current window.
//!
//! # Protocol
//! A task writes two relaxed adds into its stage's [`StageMeter`], one when it begins and one when
//! it ends; the time that it took is counted in the stage's metrics anyway. Every tenth of a window
//! one worker, whoever comes first, folds what the counters have gained into an [`Estimate`] for
//! each stage and publishes what follows from it; the others use the old values meanwhile.
//! So no task takes a lock, and a mean over tasks costs nothing for each of them.
//!
//! Relaxed throughout: each value stands for itself and only steers. A worker may see the cost of
//! one fold together with the selectivity of the next one.

use std::time::Duration;

use thalweg_ordering::sync::{AtomicU64, Mutex, Ordering};

use super::qst;
use super::selectivity::{cumulative_selectivities, depths};

/// Folds in a window.
const FOLDS_PER_WINDOW: u32 = 10;

/// What remains of older tasks when newer ones are folded in: the mean reaches over about a hundred
/// folds, ten windows, so that work which comes in bursts (the close of a window) is spread out.
const REMAINS: f64 = 0.99;

/// Bits of [`StageMeter::load`] that count workers.
const WORKER_BITS: u32 = 16;

/// The counters and estimates of one stage.
pub struct StageMeter {
    /// Workers at the stage (low bits) and elements done (the others). Written by each task.
    load: AtomicU64,
    /// Pieces that partitions have taken. Written by each of them, in place of another counter.
    pieces: AtomicU64,
    /// The fields from here on are written by whoever folds and read by whoever chooses. This one
    /// is the time spent on the stage before the current window.
    spent_before_ns: AtomicU64,
    // Numbers with a point, as bits.
    cost_ns: AtomicU64,
    pieces_per_element: AtomicU64,
    cumulative_selectivity: AtomicU64,
    output_queued_max: AtomicU64,
}

impl Default for StageMeter {
    fn default() -> Self {
        let one = || AtomicU64::new(1.0_f64.to_bits());
        StageMeter {
            load: AtomicU64::new(0),
            pieces: AtomicU64::new(0),
            spent_before_ns: AtomicU64::new(0),
            cost_ns: one(),
            pieces_per_element: one(),
            cumulative_selectivity: one(),
            output_queued_max: one(),
        }
    }
}

impl StageMeter {
    /// A worker begins a task of the stage.
    pub fn enter(&self) {
        self.load.fetch_add(1, Ordering::Relaxed);
    }

    /// A worker has ended a task, and with it this many elements.
    pub fn leave(&self, elements: u64) {
        // The workers' bits hold at least the one that leaves, so nothing is borrowed.
        self.load.fetch_add((elements << WORKER_BITS).wrapping_sub(1), Ordering::Relaxed);
    }

    /// A partition has taken a piece.
    pub fn take_piece(&self) {
        self.pieces.fetch_add(1, Ordering::Relaxed);
    }

    /// Workers at the stage now.
    pub fn workers(&self) -> usize {
        (self.load.load(Ordering::Relaxed) & ((1 << WORKER_BITS) - 1)) as usize
    }

    /// Elements done so far.
    pub fn elements(&self) -> u64 {
        self.load.load(Ordering::Relaxed) >> WORKER_BITS
    }

    /// Pieces taken so far.
    pub fn pieces(&self) -> u64 {
        self.pieces.load(Ordering::Relaxed)
    }

    /// Time that one element takes.
    pub fn cost_ns(&self) -> f64 {
        read(&self.cost_ns)
    }

    /// Elements out of the stage per element of the job.
    pub fn cumulative_selectivity(&self) -> f64 {
        read(&self.cumulative_selectivity)
    }

    /// The threshold of `qst`.
    pub fn output_queued_max(&self) -> f64 {
        read(&self.output_queued_max)
    }

    /// What of `busy_ns`, all time spent on the stage, belongs to the current window.
    pub fn spent_ns(&self, busy_ns: u64) -> u64 {
        busy_ns.saturating_sub(self.spent_before_ns.load(Ordering::Relaxed))
    }

    /// How many elements these waiting pieces make, rounded up.
    pub fn pieces_as_elements(&self, pieces: usize) -> usize {
        (pieces as f64 / read(&self.pieces_per_element)).ceil() as usize
    }
}

fn read(bits: &AtomicU64) -> f64 {
    f64::from_bits(bits.load(Ordering::Relaxed))
}

fn publish(bits: &AtomicU64, value: f64) {
    bits.store(value.to_bits(), Ordering::Relaxed);
}

/// What a stage has done since the start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// Time spent on it.
    pub busy_ns: u64,
    /// Elements done; 0 for an operator to which pieces come without being claimed first.
    pub elements: u64,
    /// Pieces taken by its partitions.
    pub pieces: u64,
    /// Elements given on, over all its edges.
    pub outputs: u64,
    /// Its edges.
    pub edges: usize,
}

/// Exponentially weighted means over the tasks of a stage: newer ones count more, and a stage that
/// does nothing keeps what is known of it.
#[derive(Clone, Debug, Default)]
pub struct Estimate {
    seen: Totals,
    busy_ns: f64,
    elements: f64,
    pieces: f64,
    outputs: f64,
}

impl Estimate {
    /// Takes in what has been done since the last time.
    pub fn fold(&mut self, mut totals: Totals) {
        if totals.elements == 0 {
            totals.elements = totals.pieces;
        }
        let gained = |now: u64, before: u64| now.saturating_sub(before) as f64;
        let elements = gained(totals.elements, self.seen.elements);
        if elements == 0.0 {
            // What has been spent meanwhile belongs to the next element.
            self.seen.edges = totals.edges;
            return;
        }
        let fold = |mean: &mut f64, gained: f64| *mean = *mean * REMAINS + gained;
        fold(&mut self.elements, elements);
        fold(&mut self.busy_ns, gained(totals.busy_ns, self.seen.busy_ns));
        fold(&mut self.pieces, gained(totals.pieces, self.seen.pieces));
        fold(&mut self.outputs, gained(totals.outputs, self.seen.outputs));
        self.seen = totals;
    }

    /// Time that one element takes. One of which nothing is known counts as cheap but not free.
    pub fn cost_ns(&self) -> f64 {
        if self.elements > 0.0 { (self.busy_ns / self.elements).max(1.0) } else { 1.0 }
    }

    /// Elements out by each edge per element in; 1 where nothing is known, 0 without edges.
    pub fn selectivity(&self) -> f64 {
        match (self.seen.edges, self.elements > 0.0) {
            (0, _) => 0.0,
            (_, false) => 1.0,
            (edges, true) => self.outputs / self.elements / edges as f64,
        }
    }

    /// How many pieces an element has, at least 1.
    pub fn pieces_per_element(&self) -> f64 {
        if self.elements > 0.0 { (self.pieces / self.elements).max(1.0) } else { 1.0 }
    }
}

/// The measuring of a job: when it is time to fold, and what has been folded.
pub struct Measuring {
    /// For each stage those that feed it.
    inputs: Vec<Vec<usize>>,
    depths: Vec<usize>,
    window: Duration,
    /// When the next fold is due. Written by whoever folds, read by all.
    due_ns: AtomicU64,
    /// Tried, never waited for.
    folded: Mutex<Folded>,
}

struct Folded {
    estimates: Vec<Estimate>,
    /// Folds so far in the current window.
    folds: u32,
}

impl Measuring {
    /// Nothing measured; `inputs` are the stages that feed each stage, all before it.
    pub fn new(inputs: Vec<Vec<usize>>, window: Duration) -> Self {
        let estimates = vec![Estimate::default(); inputs.len()];
        Measuring {
            depths: depths(&inputs),
            inputs,
            window,
            due_ns: AtomicU64::new(0),
            folded: Mutex::new(Folded { estimates, folds: 0 }),
        }
    }

    /// How many steps a stage is from the sources.
    pub fn depth(&self, stage: usize) -> usize {
        self.depths[stage]
    }

    /// Folds if it is time, unless another worker is at it.
    pub fn fold_if_due<'a>(
        &self,
        now_ns: u64,
        totals: impl Fn(usize) -> Totals,
        meter: impl Fn(usize) -> &'a StageMeter,
    ) {
        if now_ns < self.due_ns.load(Ordering::Relaxed) {
            return;
        }
        let Ok(mut folded) = self.folded.try_lock() else { return };
        // At least 1 ns, so that a window of no length does not stop the folds.
        let step_ns = (self.window / FOLDS_PER_WINDOW).as_nanos().max(1) as u64;
        self.due_ns.store(now_ns + step_ns, Ordering::Relaxed);
        folded.folds += 1;
        let window_begins = folded.folds >= FOLDS_PER_WINDOW;
        if window_begins {
            folded.folds = 0;
        }
        for (stage, estimate) in folded.estimates.iter_mut().enumerate() {
            let totals = totals(stage);
            estimate.fold(totals);
            if window_begins {
                meter(stage).spent_before_ns.store(totals.busy_ns, Ordering::Relaxed);
            }
        }
        self.publish(&folded.estimates, meter);
    }

    fn publish<'a>(&self, estimates: &[Estimate], meter: impl Fn(usize) -> &'a StageMeter) {
        let selectivities: Vec<f64> = estimates.iter().map(Estimate::selectivity).collect();
        let flows: Vec<f64> = estimates.iter().map(|estimate| estimate.elements).collect();
        let cumulative = cumulative_selectivities(&self.inputs, &selectivities, &flows);
        let thresholds = qst::thresholds(&cumulative);
        for (stage, estimate) in estimates.iter().enumerate() {
            let meter = meter(stage);
            publish(&meter.cost_ns, estimate.cost_ns());
            publish(&meter.pieces_per_element, estimate.pieces_per_element());
            publish(&meter.cumulative_selectivity, cumulative[stage]);
            publish(&meter.output_queued_max, thresholds[stage]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(busy_ns: u64, elements: u64, outputs: u64) -> Totals {
        Totals { busy_ns, elements, pieces: 0, outputs, edges: 1 }
    }

    #[test]
    fn workers_and_elements_share_a_counter() {
        let meter = StageMeter::default();
        meter.enter();
        meter.enter();
        meter.leave(5);
        assert_eq!((meter.workers(), meter.elements()), (1, 5));
        meter.leave(0);
        assert_eq!((meter.workers(), meter.elements()), (0, 5));
    }

    #[test]
    fn newer_tasks_count_more_and_idleness_changes_nothing() {
        let mut estimate = Estimate::default();
        estimate.fold(totals(0, 0, 0));
        assert_eq!((estimate.cost_ns(), estimate.selectivity()), (1.0, 1.0));
        estimate.fold(totals(1_000, 10, 5));
        assert_eq!((estimate.cost_ns(), estimate.selectivity()), (100.0, 0.5));
        estimate.fold(totals(1_000, 10, 5));
        assert_eq!((estimate.cost_ns(), estimate.selectivity()), (100.0, 0.5));
        // Ten more at 300 each: (0.99 * 1000 + 3000) / (0.99 * 10 + 10).
        estimate.fold(totals(4_000, 20, 15));
        assert_eq!(estimate.cost_ns(), 3_990.0 / 19.9);
        let (mut busy_ns, mut elements) = (4_000, 20);
        for _ in 0..1_000 {
            (busy_ns, elements) = (busy_ns + 7_000, elements + 10);
            estimate.fold(totals(busy_ns, elements, 15));
        }
        assert!((estimate.cost_ns() - 700.0).abs() < 0.1, "the old cost is forgotten");
    }

    #[test]
    fn time_without_an_element_belongs_to_the_next_one() {
        let mut estimate = Estimate::default();
        estimate.fold(totals(600, 0, 0));
        estimate.fold(totals(1_000, 2, 2));
        assert_eq!(estimate.cost_ns(), 500.0);
    }

    #[test]
    fn pieces_stand_for_elements_where_none_are_claimed() {
        let mut routed = Estimate::default();
        routed.fold(Totals { busy_ns: 800, elements: 2, pieces: 8, outputs: 0, edges: 1 });
        assert_eq!((routed.cost_ns(), routed.pieces_per_element()), (400.0, 4.0));
        let mut posted = Estimate::default();
        posted.fold(Totals { busy_ns: 800, elements: 0, pieces: 8, outputs: 8, edges: 2 });
        assert_eq!((posted.cost_ns(), posted.pieces_per_element()), (100.0, 1.0));
        assert_eq!(posted.selectivity(), 0.5, "each edge gets half an element for each");
    }

    #[test]
    fn the_time_of_a_window_starts_over_with_the_next() {
        let meters: Vec<StageMeter> = (0..3).map(|_| StageMeter::default()).collect();
        let inputs = vec![vec![], vec![0], vec![1]];
        let measuring = Measuring::new(inputs, Duration::from_nanos(100));
        let fold = |now_ns: u64| {
            let of_stage = |stage: usize| match stage {
                2 => Totals { edges: 0, ..totals(now_ns, now_ns, now_ns) },
                1 => totals(now_ns * 50, now_ns, now_ns / 2),
                _ => totals(now_ns * 10, now_ns, now_ns),
            };
            measuring.fold_if_due(now_ns, of_stage, |stage| &meters[stage]);
        };
        (1..=9).for_each(|step| fold(step * 10));
        assert_eq!(meters[0].spent_ns(900), 900, "the first window is not over");
        fold(95);
        assert_eq!(meters[0].spent_ns(950), 950, "nothing is folded before its time");
        fold(100);
        assert_eq!(meters[0].spent_ns(1_250), 250);
        assert!((meters[1].cost_ns() - 50.0).abs() < 1e-9);
        assert!((meters[1].cumulative_selectivity() - 0.5).abs() < 0.01);
        // Formula (1) over the two stages that give something on: 256 * 1 / 1.5.
        assert!((meters[0].output_queued_max() - 256.0 / 1.5).abs() < 1.0);
        assert_eq!(measuring.depth(2), 2);
    }

    #[test]
    fn waiting_pieces_are_counted_in_elements() {
        let meter = StageMeter::default();
        assert_eq!(meter.pieces_as_elements(3), 3);
        publish(&meter.pieces_per_element, 4.0);
        assert_eq!([0, 1, 4, 9].map(|pieces| meter.pieces_as_elements(pieces)), [0, 1, 1, 3]);
    }
}
