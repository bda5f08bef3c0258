//! The scheduling heuristics of Prasaad et al. §6 as pure functions over what is known of the
//! stages: which of them should a worker go to next?
//!
//! | policy | picks | formula |
//! |---|---|---|
//! | `lp`, last in pipeline (§6.2) | the stage furthest downstream that has work | |
//! | `et`, estimated time (§6.3) | the stage whose waiting work would take longest | `I c / (w + 1)`, largest first |
//! | `ct`, current throughput (§6.4) | the stage with the lowest normalized throughput | `(T + w s) / (c cs)`, smallest first |
//! | `qst`, queue-size throttling (§6.1) | the earliest stage whose output queue is short | `T = C cs / sum of cs` |
//!
//! I is what waits at a stage, c the cost of one of it, w the workers at it, s the time slice, T the
//! time spent on the stage in the current window, cs the cumulative selectivity since the sources.
//! A stage is schedulable while something waits at it and fewer workers are at it than it admits.
//! Sources take part: one that may be asked has one element waiting. In a graph that is no chain the
//! cumulative selectivity of a stage is that of all its inputs together, times its own.
//!
//! The dispatcher calls [`rank`] for every task, so a wrong guess lasts one task, which is about a
//! millisecond at most ([`SLICE_NS`]); the paper's constant time slice is the same. Results do not
//! depend on any of this.

use crate::options::SchedulerPolicy;
use crate::task::SLICE_NS;

/// The window over which `ct` compares the time spent on stages: long against a slice, short against
/// a change of the load.
pub const WINDOW_NS: u64 = 100_000_000;

/// `qst`: elements that all output queues together should hold (C in the paper).
const CAPACITY: f64 = 256.0;

/// What a policy knows of a stage.
#[derive(Clone, Debug, Default)]
pub struct StageView {
    /// Elements that wait (I).
    pub queued: usize,
    /// Workers at it (w).
    pub workers: usize,
    /// How many it admits at once (M).
    pub parallelism_max: usize,
    /// Time that one element takes, in nanoseconds (c).
    pub cost_ns: f64,
    /// Rows out per row in (s).
    pub selectivity: f64,
    /// Time spent on it in the current window, in nanoseconds (T).
    pub spent_ns: u64,
    /// Elements that wait at the stages behind it.
    pub output_queued: usize,
    /// The stages that feed it; all come before it.
    pub inputs: Vec<usize>,
}

impl StageView {
    fn is_schedulable(&self) -> bool {
        self.queued > 0 && self.workers < self.parallelism_max
    }
}

/// The schedulable stages, the one to go to first. Stages are in topological order.
pub fn rank(policy: SchedulerPolicy, stages: &[StageView]) -> Vec<usize> {
    let mut ranked: Vec<usize> =
        (0..stages.len()).filter(|&stage| stages[stage].is_schedulable()).collect();
    match policy {
        SchedulerPolicy::EstimatedTime => {
            ranked.sort_by(|&a, &b| {
                estimated_time(&stages[b]).total_cmp(&estimated_time(&stages[a]))
            });
        }
        SchedulerPolicy::CurrentThroughput => {
            let selectivities = cumulative_selectivities(stages);
            let throughput = |stage: usize| throughput(&stages[stage], selectivities[stage]);
            ranked.sort_by(|&a, &b| throughput(a).total_cmp(&throughput(b)));
        }
        SchedulerPolicy::QueueSizeThrottling => {
            let thresholds = thresholds(stages);
            // Those that are throttled stand behind, so that nobody idles while there is work.
            ranked.sort_by_key(|&stage| {
                (stages[stage].output_queued as f64 >= thresholds[stage], stage)
            });
        }
        SchedulerPolicy::LastInPipeline | SchedulerPolicy::Nem | SchedulerPolicy::RoundRobin => {
            ranked.reverse();
        }
    }
    ranked
}

/// Formula (2): how long the waiting work would take with one more worker.
fn estimated_time(stage: &StageView) -> f64 {
    stage.queued as f64 * stage.cost_ns / (stage.workers as f64 + 1.0)
}

/// Formula (3): elements of the source that the stage gets done in the current window.
fn throughput(stage: &StageView, cumulative_selectivity: f64) -> f64 {
    let time_ns = stage.spent_ns as f64 + stage.workers as f64 * SLICE_NS as f64;
    let cost_ns = (stage.cost_ns * cumulative_selectivity).max(f64::MIN_POSITIVE);
    time_ns / cost_ns
}

/// Rows that reach a stage and leave it per row of the sources.
fn cumulative_selectivities(stages: &[StageView]) -> Vec<f64> {
    let mut cumulative: Vec<f64> = Vec::with_capacity(stages.len());
    for stage in stages {
        let of_inputs: f64 = stage.inputs.iter().map(|&input| cumulative[input]).sum();
        let reaching = if stage.inputs.is_empty() { 1.0 } else { of_inputs };
        cumulative.push(reaching * stage.selectivity);
    }
    cumulative
}

/// Formula (1): how many elements may wait behind each stage.
fn thresholds(stages: &[StageView]) -> Vec<f64> {
    let selectivities = cumulative_selectivities(stages);
    let sum: f64 = selectivities.iter().sum::<f64>().max(f64::MIN_POSITIVE);
    // At least one, or a selective stage would never run.
    selectivities.iter().map(|own| (CAPACITY * own / sum).max(1.0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(of: &[(usize, usize, f64, f64, u64)]) -> Vec<StageView> {
        type Told = (usize, usize, f64, f64, u64);
        let view = |(place, &told): (usize, &Told)| {
            let (queued, workers, cost_ns, selectivity, spent_ns) = told;
            StageView {
                queued,
                workers,
                parallelism_max: 2,
                cost_ns,
                selectivity,
                spent_ns,
                output_queued: of.get(place + 1).map_or(0, |next| next.0),
                inputs: if place == 0 { vec![] } else { vec![place - 1] },
            }
        };
        of.iter().enumerate().map(view).collect()
    }

    #[test]
    fn last_in_pipeline_takes_the_latest_with_work() {
        let stages = chain(&[(5, 0, 1.0, 1.0, 0), (3, 0, 1.0, 1.0, 0), (0, 0, 1.0, 1.0, 0)]);
        assert_eq!(rank(SchedulerPolicy::LastInPipeline, &stages), [1, 0]);
        let full = chain(&[(5, 0, 1.0, 1.0, 0), (3, 2, 1.0, 1.0, 0)]);
        assert_eq!(rank(SchedulerPolicy::LastInPipeline, &full), [0], "two workers are enough");
    }

    #[test]
    fn estimated_time_is_work_over_workers() {
        // 10 * 100 / 1 = 1000; 40 * 100 / 2 = 2000; 30 * 10 / 1 = 300.
        let stages =
            chain(&[(10, 0, 100.0, 1.0, 0), (40, 1, 100.0, 1.0, 0), (30, 0, 10.0, 1.0, 0)]);
        assert_eq!(rank(SchedulerPolicy::EstimatedTime, &stages), [1, 0, 2]);
    }

    #[test]
    fn current_throughput_is_normalized_by_selectivity() {
        // In elements of the source: 600 / (100 * 1); 600 / (100 * 0.5); 600 / (100 * 0.5 * 4).
        let stages =
            chain(&[(1, 0, 100.0, 1.0, 600), (1, 0, 100.0, 0.5, 600), (1, 0, 100.0, 4.0, 600)]);
        assert_eq!(rank(SchedulerPolicy::CurrentThroughput, &stages), [2, 0, 1]);
        // A worker counts for the slice that it will spend.
        let busy = chain(&[(1, 1, 100.0, 1.0, 600), (1, 0, 100.0, 1.0, 900)]);
        assert_eq!(rank(SchedulerPolicy::CurrentThroughput, &busy), [1, 0]);
    }

    #[test]
    fn queue_size_throttling_pushes_until_the_output_queue_is_full() {
        // All selectivities 1: each threshold is 256 / 3.
        let stages = chain(&[(9, 0, 1.0, 1.0, 0), (50, 0, 1.0, 1.0, 0), (9, 0, 1.0, 1.0, 0)]);
        assert_eq!(rank(SchedulerPolicy::QueueSizeThrottling, &stages), [0, 1, 2]);
        let full = chain(&[(9, 0, 1.0, 1.0, 0), (90, 0, 1.0, 1.0, 0), (9, 0, 1.0, 1.0, 0)]);
        assert_eq!(rank(SchedulerPolicy::QueueSizeThrottling, &full), [1, 2, 0]);
    }

    #[test]
    fn paths_that_meet_add_their_rows_up() {
        let mut stages = chain(&[(1, 0, 1.0, 1.0, 0), (1, 0, 1.0, 0.5, 0), (1, 0, 1.0, 2.0, 0)]);
        stages[2].inputs = vec![0, 1];
        assert_eq!(cumulative_selectivities(&stages), [1.0, 0.5, 3.0]);
    }
}
