//! The scheduling heuristics of Prasaad et al. §6 as pure functions over what is known of the
//! stages: which of them should a worker go to next?
//!
//! | policy | picks | formula |
//! |---|---|---|
//! | [`lp`], last in pipeline (§6.2) | the stage furthest downstream that has work | |
//! | [`et`], estimated time (§6.3) | the stage whose waiting work would take longest | (2) `p = I c / (w + 1)`, largest first |
//! | [`ct`], current throughput (§6.4) | the stage with the lowest normalized throughput | (3) `n = (T + w s) / (c cs)`, smallest first |
//! | [`qst`], queue-size throttling (§6.1) | the earliest stage whose output queue is short | (1) `T = C cs / sum of cs` |
//!
//! # Units
//! An *element* is what waits in a queue: a bundle where `epoch` is promised, an element with a
//! serial in the ordered contracts, a poll of a source. I, c, s and cs all count elements. Rows
//! would not do: nobody counts them while they wait, and a filter makes bundles smaller rather than
//! fewer, which their measured cost already shows. What waits at the partitions of an operator are
//! pieces; they are counted in elements by how many an element has had so far.
//!
//! # Graphs that are no chain
//! Stages come in topological order. The cumulative selectivity of a stage is the sum over its
//! inputs, times its own, which is how many elements it gives on for one element of the job: where
//! paths meet their flows add up, and a source starts with its share of all that sources brought. A
//! stage that feeds several gives the same to each, so its selectivity is the mean over its edges.
//! In a chain this is the paper's product.
//!
//! # Time
//! The paper's slice s is [`SLICE_NS`](crate::pace::SLICE_NS), 1 ms: no task takes longer, so a
//! wrong guess lasts no longer either, while the choice itself takes well under a thousandth of
//! that. The window of `ct` ([`SCHEDULER_WINDOW`](crate::options::SCHEDULER_WINDOW), which a caller
//! can change) is 100 ms: a hundred slices, enough for shares of time to mean something with a few
//! workers, and short against a change of the load. What is measured and how is in [`meter`].
//!
//! Results do not depend on any of this, and nothing here knows containers, cells or bundles.

use crate::policies::SchedulerPolicy;
use stage_view::StageView;

pub mod ct;
pub mod et;
pub mod lp;
pub mod meter;
pub mod qst;
pub mod selectivity;
pub mod stage_view;

/// The schedulable stage to go to, if there is any. Among equals the one furthest downstream, whose
/// outcome is nearest to a result; `qst`, which pushes, prefers the earliest.
///
/// The dispatcher calls this for each task. It allocates nothing and looks at each stage once; a
/// caller that finds nothing to claim after all sets `queued` to 0 and asks again.
pub fn choose(policy: SchedulerPolicy, stages: &[StageView]) -> Option<usize> {
    let best_by = |priority: fn(&StageView) -> f64| {
        let schedulable = stages.iter().enumerate().filter(|(_, stage)| stage.is_schedulable());
        let key = |stage: &StageView| (priority(stage), stage.depth);
        let best = schedulable.max_by(|(_, a), (_, b)| {
            let (a, b) = (key(a), key(b));
            a.0.total_cmp(&b.0).then(a.1.cmp(&b.1))
        });
        best.map(|(place, _)| place)
    };
    match policy {
        SchedulerPolicy::EstimatedTime => best_by(et::priority),
        SchedulerPolicy::CurrentThroughput => best_by(ct::priority),
        SchedulerPolicy::QueueSizeThrottling => best_by(qst::priority),
        // The other two choose containers, not stages; where a stage is wanted, one that drains.
        SchedulerPolicy::LastInPipeline | SchedulerPolicy::Nem | SchedulerPolicy::RoundRobin => {
            best_by(lp::priority)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stage with work at a depth; the rest is neutral.
    pub(super) fn stage(depth: usize, queued: usize) -> StageView {
        StageView {
            queued,
            workers: 0,
            parallelism_max: usize::MAX,
            cost_ns: 1.0,
            cumulative_selectivity: 1.0,
            spent_ns: 0,
            output_queued: 0,
            output_queued_max: 1.0,
            depth,
        }
    }

    /// All schedulable stages, best first, as a caller gets them that finds nothing each time.
    pub(super) fn rank(policy: SchedulerPolicy, stages: &[StageView]) -> Vec<usize> {
        let mut stages = stages.to_vec();
        let next = || {
            let chosen = choose(policy, &stages)?;
            stages[chosen].queued = 0;
            Some(chosen)
        };
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn only_schedulable_stages_are_chosen() {
        let idle = stage(0, 0);
        let crowded = StageView { workers: 2, parallelism_max: 2, ..stage(1, 9) };
        for name in SchedulerPolicy::NAMES {
            let policy = name.parse().expect("a policy");
            assert_eq!(choose(policy, &[idle, crowded]), None, "{name}");
            let admitting = StageView { parallelism_max: 3, ..crowded };
            assert_eq!(choose(policy, &[idle, admitting]), Some(1), "{name}");
        }
    }
}
