//! Histograms of times.

use std::sync::{Mutex, MutexGuard};

use hdrhistogram::Histogram;

/// The upper bounds of the buckets of [`Distribution`], in microseconds: 1 ms to 60 s.
pub const BUCKET_BOUNDS_US: [u64; 16] = [
    1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000, 2_000_000,
    5_000_000, 10_000_000, 20_000_000, 30_000_000, 60_000_000,
];

/// A histogram of latencies; above all that of results: from the moment the row that completes a
/// result entered the engine until the result is handed to the sink's writer.
pub struct LatencyHistogram(Mutex<Recorded>);

struct Recorded {
    histogram: Histogram<u64>,
    /// The same by bucket: whoever looks copies a few numbers, and does not keep the lock while it
    /// goes through thousands.
    buckets: Distribution,
}

impl LatencyHistogram {
    /// An empty histogram: 1 µs to an hour, three digits.
    pub fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, 3_600_000_000, 3);
        let histogram = histogram.expect("the bounds are valid");
        LatencyHistogram(Mutex::new(Recorded { histogram, buckets: Distribution::default() }))
    }
    fn lock(&self) -> MutexGuard<'_, Recorded> {
        self.0.lock().expect("no panic under this lock")
    }
    /// Records one.
    pub fn record_us(&self, latency_us: u64) {
        let mut recorded = self.lock();
        recorded.histogram.saturating_record(latency_us.max(1));
        recorded.buckets.add(latency_us);
    }
    /// Count, p50, p90, p99, p99.9, p99.99 and maximum, in microseconds; `None` without results.
    pub fn percentiles(&self) -> Option<LatencyPercentiles> {
        Self::percentiles_of(&self.lock().histogram)
    }
    /// The percentiles of what all of these have recorded; with `resets` each starts over.
    pub(crate) fn percentiles_of_all<'a>(
        all: impl Iterator<Item = &'a LatencyHistogram>,
        resets: bool,
    ) -> Option<LatencyPercentiles> {
        let mut sum: Option<Histogram<u64>> = None;
        for one in all {
            let mut recorded = one.lock();
            match &mut sum {
                Some(sum) => sum.add(&recorded.histogram).expect("all have the same bounds"),
                None => sum = Some(recorded.histogram.clone()),
            }
            if resets {
                recorded.histogram.reset();
                recorded.buckets = Distribution::default();
            }
        }
        sum.as_ref().and_then(Self::percentiles_of)
    }
    fn percentiles_of(histogram: &Histogram<u64>) -> Option<LatencyPercentiles> {
        (!histogram.is_empty()).then(|| LatencyPercentiles {
            count: histogram.len(),
            p50_us: histogram.value_at_quantile(0.5),
            p90_us: histogram.value_at_quantile(0.9),
            p99_us: histogram.value_at_quantile(0.99),
            p999_us: histogram.value_at_quantile(0.999),
            p9999_us: histogram.value_at_quantile(0.9999),
            max_us: histogram.max(),
        })
    }
    /// The counts by bucket.
    pub fn distribution(&self) -> Distribution {
        self.lock().buckets.clone()
    }
}

impl Default for LatencyHistogram {
    fn default() -> Self {
        Self::new()
    }
}

/// How many times fell into which bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Distribution {
    /// By the bounds of [`BUCKET_BOUNDS_US`], each without those below it; the last one is beyond
    /// all bounds.
    pub counts: [u64; BUCKET_BOUNDS_US.len() + 1],
    /// The sum of all times, in microseconds.
    pub sum_us: u64,
}

impl Distribution {
    fn add(&mut self, time_us: u64) {
        let bucket = BUCKET_BOUNDS_US.partition_point(|&bound_us| bound_us < time_us);
        self.counts[bucket] += 1;
        self.sum_us = self.sum_us.saturating_add(time_us);
    }
    /// How many times there are.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

/// Times of which only buckets are shown.
#[derive(Debug, Default)]
pub struct TimeBuckets(Mutex<Distribution>);

impl TimeBuckets {
    /// Records one.
    pub fn record_us(&self, time_us: u64) {
        self.0.lock().expect("no panic under this lock").add(time_us);
    }
    /// The counts by bucket.
    pub fn distribution(&self) -> Distribution {
        self.0.lock().expect("no panic under this lock").clone()
    }
}

/// Percentiles of latencies in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LatencyPercentiles {
    /// How many; of results, how many bundles.
    pub count: u64,
    /// Half are faster.
    pub p50_us: u64,
    /// 90 % are faster.
    pub p90_us: u64,
    /// 99 % are faster.
    pub p99_us: u64,
    /// 99.9 % are faster.
    pub p999_us: u64,
    /// 99.99 % are faster.
    pub p9999_us: u64,
    /// The slowest.
    pub max_us: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_fall_into_the_bucket_of_the_next_bound() {
        let histogram = TimeBuckets::default();
        [3, 1_000, 1_500, 70_000_000].into_iter().for_each(|us| histogram.record_us(us));
        let distribution = histogram.distribution();
        assert_eq!((distribution.count(), distribution.sum_us), (4, 70_002_503));
        assert_eq!(distribution.counts[1], 1, "1.5 ms is below 2 ms");
        assert_eq!(distribution.counts[16], 1, "beyond all bounds");
    }

    #[test]
    fn the_latencies_of_all_sinks_are_those_of_the_job() {
        let sinks = [LatencyHistogram::new(), LatencyHistogram::new()];
        assert_eq!(LatencyHistogram::percentiles_of_all(sinks.iter(), false), None);
        sinks[0].record_us(10);
        sinks[1].record_us(1_000);
        let all = LatencyHistogram::percentiles_of_all(sinks.iter(), true).expect("two");
        assert_eq!((all.count, all.p50_us, all.max_us), (2, 10, 1_000));
        assert_eq!(sinks[0].percentiles(), None, "they start over");
    }
}
