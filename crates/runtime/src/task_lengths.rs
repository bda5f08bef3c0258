//! How long tasks take, by kind of work: a histogram that workers write without a lock.
//!
//! **Which time counts.** That of the processor: a task is as long as its thread had a processor
//! for it. What the system gives to other programs meanwhile says nothing about where tasks are
//! cut, and on a busy machine it would hide all else. A worker's thread never waits inside a task,
//! so on an idle machine both times are the same.
//!
//! Asking for processor time is a system call, and many tasks take a microsecond. So a task is
//! measured by the job's clock, and [`Absence`] takes away what the thread was kept from its
//! processor, which it works out for long tasks only.

use thalweg_ordering::sync::{AtomicU64, Ordering};

/// No task should take longer: whoever is needed for a watermark is there within this time.
pub const TASK_NS_MAX: u64 = 1_000_000;

/// A kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskKind {
    /// A source is asked.
    Poll,
    /// A stateless stage takes rows.
    Transform,
    /// Which rows go to which partition is worked out.
    Routing,
    /// Partitions take rows.
    Rows,
    /// Partitions take watermarks, among other things perhaps.
    Watermark,
    /// A partition is captured for a snapshot.
    Capture,
}

impl TaskKind {
    const ALL: [TaskKind; 6] = [
        TaskKind::Poll,
        TaskKind::Transform,
        TaskKind::Routing,
        TaskKind::Rows,
        TaskKind::Watermark,
        TaskKind::Capture,
    ];

    /// What a user calls it.
    pub fn name(self) -> &'static str {
        match self {
            TaskKind::Poll => "poll",
            TaskKind::Transform => "transform",
            TaskKind::Routing => "routing",
            TaskKind::Rows => "rows",
            TaskKind::Watermark => "watermark",
            TaskKind::Capture => "capture",
        }
    }
}

/// The lengths of all tasks of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskLengths {
    /// The kind.
    pub kind: TaskKind,
    /// How many.
    pub count: u64,
    /// How many took longer than [`TASK_NS_MAX`](crate::TASK_NS_MAX).
    pub too_long: u64,
    /// Half are shorter; like the other percentiles at most a sixteenth too large.
    pub p50_us: u64,
    /// 99 % are shorter.
    pub p99_us: u64,
    /// 99.99 % are shorter.
    pub p9999_us: u64,
    /// The longest.
    pub max_us: u64,
}

/// Powers of two are halved so often: lengths are exact to a sixteenth.
const PARTS_LOG: u32 = 4;
const PARTS: u64 = 1 << PARTS_LOG;
/// Up to two minutes; what is longer counts as that long.
const BUCKETS: usize = 24 * PARTS as usize;

/// Counts by length. Relaxed throughout: each counter stands for itself.
struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    too_long: AtomicU64,
    max_us: AtomicU64,
}

impl Histogram {
    fn new() -> Self {
        Histogram {
            buckets: std::array::from_fn(|_| AtomicU64::new(0)),
            too_long: AtomicU64::new(0),
            max_us: AtomicU64::new(0),
        }
    }

    fn record(&self, length_ns: u64) {
        let length_us = length_ns / 1000;
        self.buckets[bucket_of(length_us)].fetch_add(1, Ordering::Relaxed);
        if length_ns > TASK_NS_MAX {
            self.too_long.fetch_add(1, Ordering::Relaxed);
        }
        if length_us > self.max_us.load(Ordering::Relaxed) {
            self.max_us.fetch_max(length_us, Ordering::Relaxed);
        }
    }

    fn lengths(&self, kind: TaskKind) -> Option<TaskLengths> {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counts: Vec<u64> = self.buckets.iter().map(read).collect();
        let (count, max_us) = (counts.iter().sum::<u64>(), read(&self.max_us));
        let percentile = |share: f64| {
            let wanted = (count as f64 * share).ceil() as u64;
            let mut seen = 0;
            let bucket = counts.iter().position(|of_bucket| {
                seen += of_bucket;
                seen >= wanted
            });
            bucket.map_or(max_us, |bucket| longest_of(bucket).min(max_us))
        };
        (count > 0).then(|| TaskLengths {
            kind,
            count,
            too_long: read(&self.too_long),
            p50_us: percentile(0.5),
            p99_us: percentile(0.99),
            p9999_us: percentile(0.9999),
            max_us,
        })
    }
}

/// Short lengths have a bucket each, longer ones share one with those that differ by less than a
/// sixteenth.
fn bucket_of(length_us: u64) -> usize {
    let shift = length_us.max(1).ilog2().saturating_sub(PARTS_LOG);
    let bucket = u64::from(shift) * PARTS + (length_us >> shift);
    (bucket as usize).min(BUCKETS - 1)
}

/// The longest length of a bucket.
fn longest_of(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    let shift = (bucket / PARTS).saturating_sub(1);
    ((bucket - shift * PARTS + 1) << shift) - 1
}

/// The lengths of the tasks of a job.
pub(crate) struct TaskHistograms([Histogram; TaskKind::ALL.len()]);

impl TaskHistograms {
    pub(crate) fn new() -> Self {
        TaskHistograms(std::array::from_fn(|_| Histogram::new()))
    }

    /// A task is done.
    pub(crate) fn record(&self, kind: TaskKind, length_ns: u64) {
        self.0[kind as usize].record(length_ns);
    }

    /// The lengths of the kinds of which there were any.
    pub(crate) fn lengths(&self) -> Vec<TaskLengths> {
        let all = TaskKind::ALL.iter().zip(&self.0);
        all.filter_map(|(&kind, histogram)| histogram.lengths(kind)).collect()
    }
}

/// How long a worker's thread was kept from its processor.
#[derive(Default)]
pub(crate) struct Absence {
    /// The job's clock and processor time at the last look.
    looked_ns: Option<(u64, u64)>,
}

impl Absence {
    /// Between two looks before a task. What a thread was kept from its processor in so short a
    /// time before a task may count for the task.
    const LOOK_NS: u64 = 100_000;

    /// Tasks of at most this length are taken as they are.
    const SHORT_NS: u64 = 400_000;

    /// A task begins at this time of the job's clock.
    pub(crate) fn begin(&mut self, now_ns: u64) {
        let is_recent = |(looked_ns, _)| now_ns.saturating_sub(looked_ns) < Self::LOOK_NS;
        if !self.looked_ns.is_some_and(is_recent) {
            self.looked_ns = processor::thread_ns().map(|processor_ns| (now_ns, processor_ns));
        }
    }

    /// How long a task that began at `begun_ns` and ends now has had a processor.
    pub(crate) fn length_ns(&mut self, begun_ns: u64, now_ns: u64) -> u64 {
        let length_ns = now_ns.saturating_sub(begun_ns);
        if length_ns <= Self::SHORT_NS {
            return length_ns;
        }
        let before = self.looked_ns.take();
        self.looked_ns = processor::thread_ns().map(|processor_ns| (now_ns, processor_ns));
        let (Some(before), Some(after)) = (before, self.looked_ns) else { return length_ns };
        let away_ns = (after.0 - before.0).saturating_sub(after.1 - before.1);
        length_ns.saturating_sub(away_ns)
    }

    /// The next task is measured by another clock.
    pub(crate) fn forget(&mut self) {
        self.looked_ns = None;
    }
}

/// Processor time; where the platform has no such thing nothing is known.
#[cfg(target_os = "linux")]
mod processor {
    use rustix::time::{ClockId, clock_gettime};

    /// Of the calling thread.
    pub(super) fn thread_ns() -> Option<u64> {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        Some(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
    }
}

#[cfg(not(target_os = "linux"))]
mod processor {
    pub(super) fn thread_ns() -> Option<u64> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_each_other_and_are_narrow() {
        let mut before = 0;
        for length_us in 0..100_000 {
            let bucket = bucket_of(length_us);
            assert!(bucket == before || bucket == before + 1, "{length_us}");
            let longest = longest_of(bucket);
            assert!(longest >= length_us && longest <= length_us + length_us / 16, "{length_us}");
            before = bucket;
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn percentiles_are_those_of_the_lengths() {
        let histograms = TaskHistograms::new();
        assert!(histograms.lengths().is_empty());
        (1..=10_000).for_each(|n| histograms.record(TaskKind::Rows, n * 200));
        histograms.record(TaskKind::Routing, TASK_NS_MAX + 1);
        let lengths = histograms.lengths();
        let [routing, rows] = lengths[..] else { panic!("two kinds: {lengths:?}") };
        assert_eq!((routing.kind, routing.count, routing.too_long), (TaskKind::Routing, 1, 1));
        assert_eq!((routing.p50_us, routing.max_us), (1000, 1000));
        assert_eq!((rows.count, rows.too_long, rows.max_us), (10_000, 5_000, 2_000));
        assert!((1000..1060).contains(&rows.p50_us), "{rows:?}");
        assert!((1980..=2000).contains(&rows.p99_us), "{rows:?}");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn time_without_a_processor_does_not_count() {
        use thalweg_core::shim::{Clock, SystemClock};
        let clock = SystemClock::new();
        let mut absence = Absence::default();
        let begun_ns = clock.now_ns();
        absence.begin(begun_ns);
        std::thread::sleep(std::time::Duration::from_millis(30));
        let length_ns = absence.length_ns(begun_ns, clock.now_ns());
        assert!(length_ns < 10_000_000, "{length_ns}");
    }
}
