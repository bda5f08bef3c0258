//! How long a task may take, and how it notices that its time is up.

/// How long a task may take.
pub const SLICE_NS: u64 = 1_000_000;

/// Elements of one task at most, all of them small. More would hold up what is urgent; with fewer,
/// what a task costs on its own would count.
pub const ELEMENTS_PER_TASK: u64 = 32;

/// An element of at most this many rows is small.
pub const SMALL_ROWS: usize = 64;

/// When the time of a task that does many small things is up.
///
/// The clock is read after the first of them, the second, the fourth, the eighth and each
/// sixteenth: things that take long end the task as soon as ever, and among short ones the clock
/// does not count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    pub(crate) deadline_ns: u64,
    done: u64,
}

impl Pace {
    /// A task that began now and may take so long.
    pub(crate) fn new(now_ns: u64, task_ns: u64) -> Self {
        Pace { deadline_ns: now_ns + task_ns, done: 0 }
    }

    /// One more thing is done. True if that was the last one.
    pub(crate) fn is_over(&mut self, now_ns: impl FnOnce() -> u64) -> bool {
        self.done += 1;
        let looks = self.done.is_power_of_two() || self.done.is_multiple_of(16);
        looks && now_ns() >= self.deadline_ns
    }

    /// How many things are done.
    pub(crate) fn done(&self) -> u64 {
        self.done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_ends_after_its_first_long_thing_and_soon_after_many_short_ones() {
        let mut slow = Pace::new(100, SLICE_NS);
        assert!(slow.is_over(|| 100 + SLICE_NS));
        let mut fast = Pace::new(0, SLICE_NS);
        let mut now_ns = 0;
        let mut asked = 0;
        while !fast.is_over(|| {
            asked += 1;
            now_ns
        }) {
            now_ns += SLICE_NS / 100;
        }
        assert_eq!(fast.done(), 112, "the first sixteenth behind the hundredth");
        assert_eq!(asked, 11, "1, 2, 4, 8, 16, then 32, 48, 64, 80, 96, 112");
    }
}
