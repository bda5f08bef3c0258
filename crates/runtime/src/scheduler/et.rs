//! Estimated time (§6.3): the stage whose waiting work would take longest if one more worker came.

use super::stage_view::StageView;

/// Formula (2): `I c / (w + 1)`. The case `w >= M` is left to [`StageView::is_schedulable`].
pub fn priority(stage: &StageView) -> f64 {
    stage.queued as f64 * stage.cost_ns / (stage.workers as f64 + 1.0)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{rank, stage};
    use super::StageView;
    use super::priority;
    use crate::policies::SchedulerPolicy::EstimatedTime;

    #[test]
    fn waiting_work_is_shared_by_the_workers() {
        let busy = StageView { workers: 3, cost_ns: 250.0, ..stage(1, 40) };
        assert_eq!(priority(&busy), 40.0 * 250.0 / 4.0);
    }

    #[test]
    fn the_longest_work_comes_first() {
        let of = |queued, workers, cost_ns| StageView { workers, cost_ns, ..stage(1, queued) };
        // 10 * 100 / 1 = 1000; 40 * 100 / 2 = 2000; 30 * 10 / 1 = 300.
        let stages = [of(10, 0, 100.0), of(40, 1, 100.0), of(30, 0, 10.0)];
        assert_eq!(rank(EstimatedTime, &stages), [1, 0, 2]);
        let crowded = StageView { parallelism_max: 1, ..stages[1] };
        assert_eq!(rank(EstimatedTime, &[stages[0], crowded, stages[2]]), [0, 2]);
    }
}
