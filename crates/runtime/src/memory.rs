//! The one memory limit: what is in flight and what operators keep count against it.
//!
//! Credits are given at the sources only. A source is asked for rows while the bytes in flight
//! (deposited and not consumed, or waiting for a sink) are below a quarter of the limit and below
//! 32 MiB per worker, which is more than caches hold; work that is inside is never refused room, so
//! the oldest epoch always drains and nothing can deadlock on credits: bytes in flight fall
//! whenever a worker works, and a source below its guaranteed minimum (nothing of anybody in
//! flight) is always asked. Between half of that mark and the mark only the input that is furthest
//! behind in event time is asked, so that an input that runs ahead can't fill the memory with rows
//! that wait for the other. (Before that it is asked mostly: rows that wait in an operator are
//! state, and not in flight.)
//!
//! State that grows to the limit fails the job with a clear message; spilling is not part of this.
//!
//! Jobs that run at the same time may have one limit together ([`MemoryBudget`]): the state of all
//! of them counts against it, and what may be in flight is shared out among them.

use thalweg_ordering::sync::{Arc, AtomicBool, AtomicI64, AtomicUsize, Ordering};

/// A memory limit that several jobs keep to together. A copy is another handle of the same one.
///
/// **Invariant:** `state_bytes` is what the accounts that have not left say of their state.
#[derive(Clone, Debug)]
pub struct MemoryBudget(Arc<BudgetUse>);

#[derive(Debug)]
struct BudgetUse {
    limit_bytes: usize,
    jobs: AtomicUsize,
    state_bytes: AtomicI64,
}

impl MemoryBudget {
    /// A limit that nobody uses yet.
    pub fn new(limit_bytes: usize) -> Self {
        let (jobs, state_bytes) = (AtomicUsize::new(0), AtomicI64::new(0));
        MemoryBudget(Arc::new(BudgetUse { limit_bytes, jobs, state_bytes }))
    }

    fn jobs(&self) -> usize {
        self.0.jobs.load(Ordering::Relaxed).max(1)
    }

    /// Bytes that the operators of all jobs keep.
    fn state_bytes(&self) -> usize {
        self.0.state_bytes.load(Ordering::Relaxed).max(0) as usize
    }

    fn is_exhausted(&self) -> bool {
        self.state_bytes() > self.0.limit_bytes
    }
}

/// How many bytes are in use, by what.
pub struct MemoryAccount {
    limit_bytes: usize,
    in_flight_bytes_max: usize,
    in_flight_bytes: AtomicI64,
    state_bytes: AtomicI64,
    peak_bytes: AtomicUsize,
    state_peak_bytes: AtomicUsize,
    budget: Option<MemoryBudget>,
    has_left: AtomicBool,
}

/// How much a source may bring at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pressure {
    /// Every source may read.
    Low,
    /// Only the source furthest behind may.
    High,
    /// None may.
    Full,
}

impl MemoryAccount {
    /// Nothing in use, at most `limit_bytes`, with this many workers to keep busy.
    pub fn new(limit_bytes: usize, workers: usize) -> Self {
        MemoryAccount {
            limit_bytes,
            in_flight_bytes_max: (limit_bytes / 4).min(workers.max(1) * IN_FLIGHT_BYTES_PER_WORKER),
            in_flight_bytes: AtomicI64::new(0),
            state_bytes: AtomicI64::new(0),
            peak_bytes: AtomicUsize::new(0),
            state_peak_bytes: AtomicUsize::new(0),
            budget: None,
            has_left: AtomicBool::new(false),
        }
    }

    /// The same within a limit of several jobs.
    #[must_use]
    pub fn with_budget(mut self, budget: Option<MemoryBudget>) -> Self {
        if let Some(MemoryBudget(uses)) = &budget {
            uses.jobs.fetch_add(1, Ordering::Relaxed);
        }
        self.budget = budget;
        self
    }

    /// The job is over: what it has kept is free for others. Nothing is added afterwards.
    pub fn leave(&self) {
        let Some(MemoryBudget(uses)) = &self.budget else { return };
        if !self.has_left.swap(true, Ordering::SeqCst) {
            uses.jobs.fetch_sub(1, Ordering::Relaxed);
            let state = self.state_bytes.load(Ordering::Relaxed);
            uses.state_bytes.fetch_sub(state, Ordering::Relaxed);
        }
    }

    /// Bytes deposited (positive) or consumed (negative). Relaxed throughout: a gauge that steers,
    /// and nothing is published through it.
    pub fn add_in_flight(&self, bytes: i64) {
        self.in_flight_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes by which an operator's state grew.
    pub fn add_state(&self, bytes: i64) {
        let state = self.state_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if let Some(MemoryBudget(uses)) = &self.budget {
            uses.state_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        let state = state.max(0) as usize;
        self.peak_bytes.fetch_max(state + self.in_flight_bytes(), Ordering::Relaxed);
        self.state_peak_bytes.fetch_max(state, Ordering::Relaxed);
    }

    /// From how many bytes in flight on nothing more may come in.
    pub fn in_flight_bytes_max(&self) -> usize {
        let jobs = self.budget.as_ref().map_or(1, MemoryBudget::jobs);
        // At least 1: with nothing in flight some source is asked, whatever the limit.
        (self.in_flight_bytes_max / jobs).max(1)
    }

    /// Bytes in flight.
    pub fn in_flight_bytes(&self) -> usize {
        self.in_flight_bytes.load(Ordering::Relaxed).max(0) as usize
    }

    /// Bytes that operators keep.
    pub fn state_bytes(&self) -> usize {
        self.state_bytes.load(Ordering::Relaxed).max(0) as usize
    }

    /// The most that was ever in use.
    pub fn peak_bytes(&self) -> usize {
        self.peak_bytes.load(Ordering::Relaxed).max(self.in_flight_bytes() + self.state_bytes())
    }

    /// The most that operators ever kept.
    pub fn state_peak_bytes(&self) -> usize {
        self.state_peak_bytes.load(Ordering::Relaxed)
    }

    /// The limit.
    pub fn limit_bytes(&self) -> usize {
        self.limit_bytes
    }

    /// True if state alone has reached the limit. Rows in flight do not count here: they drain, and
    /// a burst of results at the close of a window must not fail a job whose state is small.
    pub fn is_exhausted(&self) -> bool {
        self.state_bytes() > self.limit_bytes
            || self.budget.as_ref().is_some_and(MemoryBudget::is_exhausted)
    }

    /// Whose state has reached which limit, or is to be compared with it: the job's own, or that of
    /// all jobs that share one.
    pub fn tightest(&self) -> (&'static str, usize, usize) {
        match &self.budget {
            Some(budget) if self.state_bytes() <= self.limit_bytes => {
                ("the jobs that run at the same time", budget.state_bytes(), budget.0.limit_bytes)
            }
            _ => ("the job", self.state_bytes(), self.limit_bytes),
        }
    }

    /// True if enough is in flight to keep workers busy while a cut is under way. What comes beyond
    /// that waits at the first operator until the cut has passed it, and then all results wait for
    /// it.
    pub fn has_enough_for_a_cut(&self) -> bool {
        self.in_flight_bytes() >= self.in_flight_bytes_max() / 8
    }

    /// How much sources may bring.
    pub fn pressure(&self) -> Pressure {
        let mark = self.in_flight_bytes_max();
        let used = self.in_flight_bytes();
        if used >= mark {
            Pressure::Full
        } else if used >= mark / 2 {
            Pressure::High
        } else {
            Pressure::Low
        }
    }
}

/// A job that never began leaves with its account.
impl Drop for MemoryAccount {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Rows in flight per worker: a few of the largest bundles. More would only let caches grow cold.
const IN_FLIGHT_BYTES_PER_WORKER: usize = 32 << 20;

/// 70 % of what the control group or the machine allows.
pub fn default_limit_bytes() -> usize {
    available_bytes() / 10 * 7
}

/// The memory that this process may use: the smallest limit of its control groups, else what the
/// machine has. 4 GiB where neither can be read.
pub fn available_bytes() -> usize {
    let machine = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
        let kib: usize = line.split_whitespace().nth(1)?.parse().ok()?;
        Some(kib * 1024)
    });
    let files = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
    let group = files
        .iter()
        .filter_map(|file| std::fs::read_to_string(file).ok()?.trim().parse::<usize>().ok())
        .min();
    match (machine, group) {
        (Some(machine), Some(group)) => machine.min(group),
        (Some(bytes), None) | (None, Some(bytes)) => bytes,
        (None, None) => 4 << 30,
    }
}

/// The most memory this process has had resident, in bytes, where the system reports it.
pub fn peak_resident_bytes() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kib: usize = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_rises_with_bytes_in_flight() {
        let account = MemoryAccount::new(4000, 2);
        assert_eq!(account.pressure(), Pressure::Low);
        account.add_in_flight(500);
        assert_eq!(account.pressure(), Pressure::High);
        account.add_in_flight(500);
        assert_eq!(account.pressure(), Pressure::Full);
        account.add_in_flight(-1000);
        assert_eq!(account.pressure(), Pressure::Low);
        account.add_state(4001);
        assert!(account.is_exhausted());
        account.add_state(-4000);
        assert_eq!(account.peak_bytes(), 4001);
        assert_eq!((account.state_peak_bytes(), account.state_bytes()), (4001, 1));
    }

    #[test]
    fn jobs_with_one_budget_keep_to_it_together() {
        let budget = MemoryBudget::new(1000);
        let account = || MemoryAccount::new(1000, 2).with_budget(Some(budget.clone()));
        let (one, other) = (account(), account());
        assert_eq!(one.in_flight_bytes_max(), 125, "half of what one job alone has");
        one.add_state(600);
        assert!(!one.is_exhausted());
        other.add_state(500);
        assert!(one.is_exhausted() && other.is_exhausted());
        assert_eq!(one.tightest(), ("the jobs that run at the same time", 1100, 1000));
        one.leave();
        drop(one);
        assert!(!other.is_exhausted(), "its state is free, once");
        assert_eq!((budget.state_bytes(), other.in_flight_bytes_max()), (500, 250));
        other.add_state(501);
        assert_eq!(other.tightest(), ("the job", 1001, 1000));
    }

    #[test]
    fn the_memory_of_the_machine_is_known() {
        assert!(available_bytes() > 64 << 20);
    }
}
