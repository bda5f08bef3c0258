//! What a scheduling policy sees of a stage.

/// What a policy knows of a stage.
#[derive(Clone, Copy, Debug)]
pub struct StageView {
    /// Elements that wait (I). A source that may be asked has one.
    pub queued: usize,
    /// Workers at it (w).
    pub workers: usize,
    /// How many it admits at once (M): sources and singletons 1, partitioned operators one for each
    /// partition, stateless stages any number (`usize::MAX`).
    pub parallelism_max: usize,
    /// Time that one element takes, in nanoseconds (c); above zero.
    pub cost_ns: f64,
    /// Elements out of it per element of the job (cs, see
    /// [`cumulative_selectivities`](super::selectivity::cumulative_selectivities)).
    pub cumulative_selectivity: f64,
    /// Time spent on it in the current window, in nanoseconds (T of `ct`).
    pub spent_ns: u64,
    /// Elements that wait behind it.
    pub output_queued: usize,
    /// How many may wait behind it before `qst` leaves it (T of `qst`, see
    /// [`qst::thresholds`](super::qst::thresholds)).
    pub output_queued_max: f64,
    /// Steps from the sources, which are at 0.
    pub depth: usize,
}

impl StageView {
    /// True if something waits at it and fewer workers are at it than it admits.
    pub fn is_schedulable(&self) -> bool {
        self.queued > 0 && self.workers < self.parallelism_max
    }
}
