//! Which times meet, which rows are late, and when a row is done.
//!
//! With `right + lower <= left <= right + upper`, and with the *effective* time of a row, which is
//! its own or, if that is higher, the first that the watermark before it has not passed: two rows
//! meet if their times do and each one's time is in reach of the other's effective time. For rows
//! ahead of their watermark that is the same thing. A row is *done* at the watermark from which on
//! nobody can come whose effective time reaches it. So whether two rows meet does not depend on
//! which was first, and whoever is done need not be kept.
//!
//! **Why the effective time.** Without it the result would depend on timing: a row behind its
//! watermark meets a partner if the partner has not been dropped yet. Dropping happens at the
//! operator's watermark, which several lanes and bundles reach at different moments. By the rule
//! above, a partner counts as gone as soon as it *may* be gone.
//!
//! **Properties the other modules rely on** (tested below for small numbers)
//! - symmetry: `meets(l, r)` has the same answer from either side;
//! - a row that is done meets nobody who comes behind that watermark;
//! - `kept_from` and `done_at` agree: `time >= kept_from(w)` exactly if `done_at(time) > w`.

use crate::join::sides::Side;

/// `right + lower <= left <= right + upper`
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) lower_ms: i64,
    pub(super) upper_ms: i64,
}

/// How many buckets at least share the time for which rows are kept.
const BUCKETS_MAX: i64 = 64;

impl Bounds {
    /// True if a row is done by the watermark before it, and behind it.
    #[inline]
    pub fn is_late(&self, side: Side, time: i64, before: i64) -> bool {
        time <= before && self.done_at(side, time) <= before
    }

    /// The watermark at which no partner can come any more.
    #[inline]
    pub fn done_at(&self, side: Side, time: i64) -> i64 {
        side.pick(time.saturating_sub(self.lower_ms), time.saturating_add(self.upper_ms))
    }

    /// Rows of lower times are done at this watermark.
    pub fn kept_from(&self, side: Side, watermark: i64) -> i64 {
        let last = side
            .pick(watermark.saturating_add(self.lower_ms), watermark.saturating_sub(self.upper_ms));
        last.saturating_add(1)
    }

    /// The lowest and the highest time of a partner.
    #[inline]
    pub fn partners(&self, side: Side, time: i64, before: i64) -> (i64, i64) {
        (self.reach(side, time, before), self.done_at(side, time))
    }

    /// The lowest time of a partner.
    #[inline]
    pub fn reach(&self, side: Side, time: i64, before: i64) -> i64 {
        let effective = time.max(before.saturating_add(1));
        side.pick(effective.saturating_sub(self.upper_ms), effective.saturating_add(self.lower_ms))
    }

    /// How far the older time of a pair, or the time of a row that found no partner, may lie behind
    /// the watermark at which it leaves.
    ///
    /// Of a pair both times are above the watermark before its second row less this much: its own,
    /// since it is not late (`time > before`, or `done_at(time) > before`), and that of its
    /// partner, since it is in reach of the effective time, which is above `before`. Every
    /// watermark that the partition has consumed by then is at most `before`.
    pub fn hold_back_ms(&self) -> i64 {
        self.upper_ms.max(self.lower_ms.saturating_neg()).max(0)
    }

    /// Buckets of time last 2 to this power milliseconds: about as long as the interval, so that a
    /// look-up asks two or three, but never so short that there are very many.
    pub fn bucket_shift(&self) -> u32 {
        let span = self.upper_ms.saturating_sub(self.lower_ms).max(1);
        let width = span.max(self.hold_back_ms() / BUCKETS_MAX).min(1 << 40);
        (width as u64).next_power_of_two().trailing_zeros()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether two rows meet is the same from either side, a row that is done meets nobody who
    /// comes behind that watermark, and no time of a pair is older than what is held back.
    #[test]
    fn pairs_do_not_depend_on_who_comes_first() {
        for (lower_ms, upper_ms) in [(-3, 2), (0, 0), (2, 4), (-5, -2), (-2, 0), (3, 1)] {
            let bounds = Bounds { lower_ms, upper_ms };
            for n in 0..10_000i64 {
                let (l, r, bl, br) = (n % 10, n / 10 % 10, n / 100 % 10, n / 1000);
                let meets = |side, own, before, other| {
                    let (low, high) = bounds.partners(side, own, before);
                    low <= other && other <= high
                };
                for side in [Side::Left, Side::Right] {
                    let is_kept = l >= bounds.kept_from(side, br);
                    assert_eq!(is_kept, bounds.done_at(side, l) > br, "{bounds:?} {l} {br}");
                }
                let from_left =
                    meets(Side::Left, l, bl, r) && bounds.reach(Side::Right, r, br) <= l;
                let from_right =
                    meets(Side::Right, r, br, l) && bounds.reach(Side::Left, l, bl) <= r;
                assert_eq!(from_left, from_right, "{bounds:?} {l} {r} {bl} {br}");
                let ahead = l > bl && r > br;
                let in_bounds = r + lower_ms <= l && l <= r + upper_ms;
                assert!(!ahead || from_left == in_bounds, "{bounds:?} {l} {r} {bl} {br}");
                let done =
                    bounds.done_at(Side::Left, l) <= br || bounds.done_at(Side::Right, r) <= bl;
                assert!(!(done && from_left), "{bounds:?} {l} {r} {bl} {br}");
                let is_late =
                    bounds.is_late(Side::Left, l, bl) || bounds.is_late(Side::Right, r, br);
                let passed = bl.max(br) - bounds.hold_back_ms();
                assert!(is_late || !from_left || l.min(r) > passed, "{bounds:?} {l} {r} {bl} {br}");
            }
        }
    }
}
