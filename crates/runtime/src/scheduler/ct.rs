//! Current throughput (§6.4): the stage that in this window has got least far through the job's
//! elements, which is likely the bottleneck.

use super::stage_view::StageView;
use crate::pace::SLICE_NS;

/// Formula (3): `(T + w s) / (c cs)`, how many elements of the job the stage gets done in the
/// current window if the workers that are at it stay for their slices.
pub fn throughput(stage: &StageView) -> f64 {
    let time_ns = stage.spent_ns as f64 + stage.workers as f64 * SLICE_NS as f64;
    // A stage that nothing reaches is ahead of all others, whatever rounding makes of it.
    time_ns / (stage.cost_ns * stage.cumulative_selectivity).max(f64::MIN_POSITIVE)
}

/// The lowest throughput first.
pub fn priority(stage: &StageView) -> f64 {
    -throughput(stage)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{rank, stage};
    use super::StageView;
    use super::throughput;
    use crate::policies::SchedulerPolicy::CurrentThroughput;

    fn of(workers: usize, cost_ns: f64, cumulative_selectivity: f64, spent_ns: u64) -> StageView {
        StageView { workers, cost_ns, cumulative_selectivity, spent_ns, ..stage(1, 1) }
    }

    #[test]
    fn workers_count_for_the_slice_that_they_will_spend() {
        // (3 ms + 2 * 1 ms) / (50 µs * 0.5) = 200 elements of the job.
        assert_eq!(throughput(&of(2, 50_000.0, 0.5, 3_000_000)), 200.0);
    }

    #[test]
    fn throughput_is_normalized_by_cumulative_selectivity() {
        // 600 / (100 * 1) = 6; 600 / (100 * 0.5) = 12; 600 / (100 * 2) = 3.
        let stages = [of(0, 100.0, 1.0, 600), of(0, 100.0, 0.5, 600), of(0, 100.0, 2.0, 600)];
        assert_eq!(rank(CurrentThroughput, &stages), [2, 0, 1]);
        let stages = [of(1, 100.0, 1.0, 600), of(0, 100.0, 1.0, 900)];
        assert_eq!(rank(CurrentThroughput, &stages), [1, 0]);
    }

    #[test]
    fn at_the_start_of_a_window_work_near_the_exit_comes_first() {
        let stages = [stage(0, 1), stage(1, 1), stage(2, 1)];
        assert_eq!(rank(CurrentThroughput, &stages), [2, 1, 0]);
    }
}
