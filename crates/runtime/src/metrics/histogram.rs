//! Histograms of times.

use std::sync::{Mutex, MutexGuard};

use hdrhistogram::Histogram;

/// The upper bounds of the buckets of [`Distribution`], in microseconds: 1 ms to 60 s.
pub const BUCKET_BOUNDS_US: [u64; 16] = [
    1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000, 2_000_000,
    5_000_000, 10_000_000, 20_000_000, 30_000_000, 60_000_000,
];

/// The buckets of [`Distribution::fine`] are this many for each doubling.
pub const FINE_PER_DOUBLING: i32 = 8;
/// Bucket `k` of [`Distribution::fine`] is number `k - FINE_ZERO` of the exponential buckets: it
/// ends at 2^((k - FINE_ZERO) / 8) seconds, that included. Bucket 0 is for less than a microsecond.
pub const FINE_ZERO: i32 = 160;
/// How many there are: up to an hour.
const FINE_BUCKETS: usize = 256;

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
    /// The same by exponential buckets, eight for each doubling: those of a native histogram of
    /// Prometheus with schema 3, and of OpenTelemetry with scale 3. Empty without any.
    pub fine: Vec<u64>,
    /// The sum of all times, in microseconds.
    pub sum_us: u64,
}

impl Distribution {
    fn add(&mut self, time_us: u64) {
        let bucket = BUCKET_BOUNDS_US.partition_point(|&bound_us| bound_us < time_us);
        self.counts[bucket] += 1;
        self.fine.resize(FINE_BUCKETS, 0);
        self.fine[fine_bucket(time_us)] += 1;
        self.sum_us = self.sum_us.saturating_add(time_us);
    }
    /// How many times there are.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

/// The bucket of [`Distribution::fine`] that a time falls into.
fn fine_bucket(time_us: u64) -> usize {
    if time_us == 0 {
        return 0;
    }
    let exponent = (time_us as f64 / 1e6).log2() * f64::from(FINE_PER_DOUBLING);
    let bucket = exponent.ceil() as i32 + FINE_ZERO;
    (bucket.max(1) as usize).min(FINE_BUCKETS - 1)
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
    fn fine_buckets_are_an_eighth_of_a_doubling() {
        let end_us = |bucket: usize| {
            let number = f64::from(bucket as i32 - FINE_ZERO);
            (number / f64::from(FINE_PER_DOUBLING)).exp2() * 1e6
        };
        assert_eq!((fine_bucket(0), fine_bucket(1_000_000), fine_bucket(500_000)), (0, 160, 152));
        assert_eq!((fine_bucket(1), fine_bucket(3_600_000_000)), (1, 255));
        assert_eq!(fine_bucket(u64::MAX), 255, "beyond all bounds");
        let mut time_us = 1;
        while time_us < 3_600_000_000 {
            let bucket = fine_bucket(time_us);
            let time = time_us as f64;
            assert!(end_us(bucket - 1) < time && time <= end_us(bucket), "{time_us} in {bucket}");
            time_us += 1 + time_us / 37;
        }
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
