//! The clock and the randomness of the engine, behind traits, so that a simulator can replace them.
//!
//! Threads and atomics have a shim of their own in `thalweg-ordering::sync` (loom). Nothing outside
//! these two places asks the operating system for the time or for random numbers; a check in
//! `xtask` holds that.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A source of time.
pub trait Clock: Send + Sync {
    /// Nanoseconds since an arbitrary start; never goes back.
    fn now_ns(&self) -> u64;
    /// Milliseconds since 1970-01-01T00:00:00Z, for processing time.
    fn wall_ms(&self) -> i64;
}

/// The operating system's clock. A clone counts from the same moment.
#[derive(Clone)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// A clock that starts now.
    pub fn new() -> Self {
        SystemClock { start: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }
    fn wall_ms(&self) -> i64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as i64)
    }
}

/// A clock that moves only when it is advanced, for tests and simulation.
#[derive(Default)]
pub struct ManualClock {
    now_ns: AtomicU64,
    wall_ms_at_start: i64,
}

impl ManualClock {
    /// A clock whose processing time begins here, in milliseconds since 1970.
    pub fn starting_at(wall_ms: i64) -> Self {
        ManualClock { now_ns: AtomicU64::new(0), wall_ms_at_start: wall_ms }
    }
    /// Goes back to where it started, for another job.
    pub fn begin_again(&self) {
        self.now_ns.store(0, Ordering::Relaxed);
    }
    /// Moves time forward.
    pub fn advance(&self, by: Duration) {
        // Relaxed: the value alone is read, nothing is published through it.
        self.now_ns.fetch_add(by.as_nanos() as u64, Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn now_ns(&self) -> u64 {
        self.now_ns.load(Ordering::Relaxed)
    }
    fn wall_ms(&self) -> i64 {
        self.wall_ms_at_start.saturating_add((self.now_ns() / 1_000_000) as i64)
    }
}

/// The clock that a job uses.
pub type SharedClock = Arc<dyn Clock>;

/// SplitMix64: a small, seedable generator for schedules, data and tests. Not for secrets.
///
/// Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators" (2014).
///
/// ```
/// use thalweg_core::shim::SplitMix64;
/// let (mut a, mut b) = (SplitMix64::new(7), SplitMix64::new(7));
/// assert_eq!(a.next_u64(), b.next_u64());
/// assert!(a.below(10) < 10);
/// ```
#[derive(Clone, Debug)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// A generator whose numbers depend on the seed alone.
    pub fn new(seed: u64) -> Self {
        SplitMix64(seed)
    }
    /// The next number.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix64(self.0)
    }
    /// A number in `0..bound`; 0 if the bound is 0.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }
    /// A number in `[0, 1)`.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// A name of 16 hexadecimal digits that nothing else has, in this process or another.
pub fn unique_name() -> String {
    static NAMES: AtomicU64 = AtomicU64::new(0);
    // Relaxed: only that each number is given once matters.
    let number = NAMES.fetch_add(1, Ordering::Relaxed);
    // Its keys are random numbers of the operating system.
    let random = RandomState::new().hash_one((number, std::process::id()));
    let wall_ms = SystemClock::new().wall_ms() as u64;
    format!("{:016x}", mix64(random ^ wall_ms))
}

/// The finalizer of SplitMix64: every bit of the input moves every bit of the output.
#[inline]
pub fn mix64(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
