//! Queue-size throttling (§6.1): push from the entry. The earliest stage that has not yet made
//! enough input for those behind it.
//!
//! The paper does not schedule a stage whose output queue is full. Here such a stage comes after
//! all others, so that no worker idles while there is work (what a queue may hold at most is the
//! memory account's business, not this policy's).

use super::stage_view::StageView;

/// Elements that all output queues together should hold (C, the capacity of the system). As many as
/// may be under way between two stages in the ordered contracts.
pub const CAPACITY: f64 = 256.0;

/// Formula (1): `C cs / sum of cs` for each stage; at least 1, or a stage that drops nearly all
/// would never be chosen. What nothing leaves (a sink) has no part in the sum.
pub fn thresholds(cumulative_selectivities: &[f64]) -> Vec<f64> {
    let sum = cumulative_selectivities.iter().sum::<f64>().max(f64::MIN_POSITIVE);
    cumulative_selectivities.iter().map(|own| (CAPACITY * own / sum).max(1.0)).collect()
}

/// The earliest first; those whose output queue is full behind all others.
pub fn priority(stage: &StageView) -> f64 {
    let is_throttled = stage.output_queued as f64 >= stage.output_queued_max;
    let earliest_first = -(stage.depth as f64);
    if is_throttled { earliest_first - f64::from(u32::MAX) } else { earliest_first }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{rank, stage};
    use super::StageView;
    use super::thresholds;
    use crate::policies::SchedulerPolicy::QueueSizeThrottling;

    #[test]
    fn capacity_is_shared_out_by_cumulative_selectivity() {
        assert_eq!(thresholds(&[1.0, 1.0, 2.0]), [64.0, 64.0, 128.0]);
        assert_eq!(thresholds(&[1.0, 0.5, 0.5, 0.0]), [128.0, 64.0, 64.0, 1.0]);
        assert_eq!(thresholds(&[1.0, 1e-9])[1], 1.0, "never less than one");
    }

    #[test]
    fn a_stage_pushes_until_its_output_queue_is_full() {
        let of = |depth, output_queued| StageView {
            output_queued,
            output_queued_max: 64.0,
            ..stage(depth, 9)
        };
        let policy = QueueSizeThrottling;
        assert_eq!(rank(policy, &[of(0, 63), of(1, 0), of(2, 0)]), [0, 1, 2]);
        assert_eq!(rank(policy, &[of(0, 64), of(1, 0), of(2, 0)]), [1, 2, 0]);
        assert_eq!(rank(policy, &[of(0, 64), of(1, 64), of(2, 64)]), [0, 1, 2]);
    }
}
