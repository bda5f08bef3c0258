//! Last in pipeline (§6.2): pull from the exit. The stage furthest downstream that has work, and a
//! source only if nothing else has any. Nothing is measured for it.

use super::stage_view::StageView;

/// How far downstream the stage is.
pub fn priority(stage: &StageView) -> f64 {
    stage.depth as f64
}

#[cfg(test)]
mod tests {
    use super::super::tests::{rank, stage};
    use crate::policies::SchedulerPolicy::LastInPipeline;

    #[test]
    fn the_latest_with_work_comes_first() {
        assert_eq!(rank(LastInPipeline, &[stage(0, 5), stage(1, 1), stage(2, 0)]), [1, 0]);
    }

    #[test]
    fn a_source_is_asked_when_nothing_else_has_work() {
        // The second input comes later in the graph than what follows the first one.
        let stages = [stage(0, 1), stage(1, 3), stage(0, 1), stage(1, 2)];
        let ranked = rank(LastInPipeline, &stages);
        assert_eq!(ranked.len(), 4);
        assert!(ranked[..2].iter().all(|&place| stages[place].depth == 1), "{ranked:?}");
    }
}
