//! The joint watermark of several lanes: the least of those that count.
//!
//! **The invariant that makes it work:** the joint watermark never goes back, and it never passes
//! the watermark of a lane that is neither idle nor at its end (StreamBox Fig. 4).
//!
//! The end of time is only where all lanes have ended: an idle one may come back. Where only idle
//! ones are left, none will move, and time goes to what any of them has reached, or one that has
//! ended had before: what has come gets its results (Flink's rule for inputs that are all idle).

use thalweg_core::snapshot::{InputState, LaneState};
use thalweg_core::{Error, Result, Watermark};

/// What is known of the watermarks of several lanes.
pub struct JointWatermark {
    lanes: Vec<Watermark>,
    /// The highest watermark that a lane had before it ended.
    ended_at: Watermark,
    watermark: Watermark,
}

impl JointWatermark {
    /// Nothing known of this many lanes.
    pub fn new(lanes: usize) -> Self {
        let lanes = vec![Watermark::MIN; lanes];
        JointWatermark { lanes, ended_at: Watermark::MIN, watermark: Watermark::MIN }
    }

    /// The joint watermark.
    pub fn watermark(&self) -> Watermark {
        self.watermark
    }

    /// True if rows that come by this lane may be behind the joint watermark: it was idle, and the
    /// others advanced without it.
    pub fn is_behind(&self, lane: usize) -> bool {
        self.lanes[lane] < self.watermark
    }

    /// True if the lane has ended.
    pub fn has_ended(&self, lane: usize) -> bool {
        self.lanes[lane] == Watermark::END
    }

    /// A lane has a new watermark.
    ///
    /// # Panics
    /// If it is older than the one before it.
    pub fn raise(&mut self, lane: usize, watermark: Watermark) {
        let before = std::mem::replace(&mut self.lanes[lane], watermark);
        assert!(watermark >= before, "watermarks of a lane never go back");
        if watermark == Watermark::END {
            self.ended_at = self.ended_at.max(before);
        }
    }

    /// What is known, for a snapshot. `idle` says which lanes do not count, `passed` what was
    /// passed on.
    pub(crate) fn input_state(
        &self,
        idle: impl Fn(usize) -> bool,
        passed: Watermark,
    ) -> InputState {
        let lane = |(lane, &watermark)| LaneState { watermark, idle: idle(lane) };
        let lanes = self.lanes.iter().enumerate().map(lane).collect();
        InputState { lanes, ended_at: self.ended_at, joint: self.watermark, passed }
    }

    /// Restores what was known.
    ///
    /// # Errors
    /// If that was of another number of lanes.
    pub(crate) fn restore(&mut self, saved: &InputState) -> Result<()> {
        if saved.lanes.len() != self.lanes.len() {
            let (known, own) = (saved.lanes.len(), self.lanes.len());
            return Err(Error::data(format!(
                "the snapshot knows {known} inputs, and there are {own}"
            ))
            .hint("the snapshot is of another query; start from scratch without it"));
        }
        self.lanes = saved.lanes.iter().map(|lane| lane.watermark).collect();
        (self.ended_at, self.watermark) = (saved.ended_at, saved.joint);
        Ok(())
    }

    /// Works the joint watermark out again and says whether it has moved. `idle` says which lanes
    /// do not count.
    pub fn advance(&mut self, idle: impl Fn(usize) -> bool) -> bool {
        let least = |counted: &dyn Fn(usize) -> bool| {
            let lanes = self.lanes.iter().enumerate().filter(|&(lane, _)| counted(lane));
            lanes.map(|(_, &watermark)| watermark).min()
        };
        let is_open = |lane: usize| !self.has_ended(lane);
        let furthest = || {
            let open = (0..self.lanes.len()).filter(|&lane| is_open(lane));
            open.map(|lane| self.lanes[lane]).max()
        };
        let joint = match least(&|lane| is_open(lane) && !idle(lane)) {
            Some(least) => least,
            None => furthest().map_or(Watermark::END, |furthest| furthest.max(self.ended_at)),
        };
        let moved = joint > self.watermark;
        self.watermark = self.watermark.max(joint);
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn advance(joint: &mut JointWatermark, lane: usize, watermark: Watermark) -> bool {
        joint.raise(lane, watermark);
        joint.advance(|_| false)
    }

    /// StreamBox Fig. 4: left epochs end at 00:00, 01:00, right epochs at 00:30, 01:30. However the
    /// partial watermarks interleave, the joint one is the minimum of the newest of each side, and
    /// never the looser value that a fixed order of the output epochs would give.
    #[test]
    fn joint_watermark_is_tight_in_every_interleaving() {
        let (left, right) = ([Watermark(0), Watermark(60)], [Watermark(30), Watermark(90)]);
        for mask in 0u32..16 {
            if mask.count_ones() != 2 {
                continue;
            }
            let mut joint = JointWatermark::new(2);
            let (mut l, mut r) = (0, 0);
            for step in 0..4 {
                let (lane, watermark) = if mask >> step & 1 == 0 {
                    l += 1;
                    (0, left[l - 1])
                } else {
                    r += 1;
                    (1, right[r - 1])
                };
                advance(&mut joint, lane, watermark);
                let newest = |count: usize, of: &[Watermark]| {
                    if count == 0 { Watermark::MIN } else { of[count - 1] }
                };
                assert_eq!(joint.watermark(), newest(l, &left).min(newest(r, &right)));
            }
            assert_eq!(joint.watermark(), Watermark(60));
        }
    }

    #[test]
    fn an_idle_lane_does_not_hold_back() {
        let mut joint = JointWatermark::new(2);
        assert!(!advance(&mut joint, 0, Watermark(10)));
        assert!(joint.advance(|lane| lane == 1));
        assert_eq!(joint.watermark(), Watermark(10));
        assert!(joint.is_behind(1));
        // When it returns with something older, the joint watermark does not go back.
        assert!(!advance(&mut joint, 1, Watermark(3)));
        assert_eq!(joint.watermark(), Watermark(10));
    }

    #[test]
    fn what_has_come_gets_its_results_where_all_are_idle() {
        let mut joint = JointWatermark::new(2);
        assert!(!advance(&mut joint, 0, Watermark(10)));
        assert!(advance(&mut joint, 1, Watermark(3)));
        assert!(!joint.advance(|lane| lane == 0));
        assert!(joint.advance(|_| true));
        assert_eq!(joint.watermark(), Watermark(10));
    }

    #[test]
    fn idle_is_not_the_end_of_time() {
        let mut joint = JointWatermark::new(2);
        assert!(!advance(&mut joint, 0, Watermark(50)));
        assert!(!advance(&mut joint, 0, Watermark::END));
        assert!(joint.advance(|lane| lane == 1));
        assert_eq!(joint.watermark(), Watermark(50));
        joint.raise(1, Watermark::END);
        assert!(joint.advance(|lane| lane == 1));
        assert_eq!(joint.watermark(), Watermark::END);
    }
}
