//! Latencies of the last minute, from counts that only grow.

use std::collections::VecDeque;

use thalweg_runtime::metrics::{BUCKET_BOUNDS_US, FINE_PER_DOUBLING, FINE_ZERO};

use crate::reading::{DistributionReading, JobReading};

/// How far back the counts reach that are taken away.
const OVER_MS: i64 = 60_000;
/// How often counts are kept for that.
const STEP_MS: i64 = 10_000;

/// Counts of earlier moments, by sink.
#[derive(Debug, Default)]
pub(crate) struct EarlierLatencies(VecDeque<(i64, Vec<DistributionReading>)>);

impl EarlierLatencies {
    /// Works out what each sink has recorded in the last minute, and keeps the counts of now.
    pub fn take(&mut self, reading: &mut JobReading) {
        let sinks = reading.stages.iter().filter_map(|stage| stage.sink.as_ref());
        let now: Vec<_> = sinks.map(|sink| sink.latency.clone()).collect();
        while self.0.get(1).is_some_and(|(at_ms, _)| reading.at_ms - at_ms >= OVER_MS) {
            self.0.pop_front();
        }
        // Another run counts from zero.
        if self.0.back().is_some_and(|(_, last)| last.len() != now.len()) {
            self.0.clear();
        }
        let before = self.0.front().map(|(_, before)| before.as_slice()).unwrap_or_default();
        let sinks = reading.stages.iter_mut().filter_map(|stage| stage.sink.as_mut());
        for (place, sink) in sinks.enumerate() {
            sink.recent_latency = match before.get(place) {
                Some(before) => sink.latency.since(before),
                None => sink.latency.clone(),
            };
        }
        if self.0.back().is_none_or(|(at_ms, _)| reading.at_ms - at_ms >= STEP_MS) {
            self.0.push_back((reading.at_ms, now));
        }
    }
}

impl DistributionReading {
    /// What was recorded since an earlier moment.
    fn since(&self, earlier: &DistributionReading) -> DistributionReading {
        DistributionReading {
            counts: less(&self.counts, &earlier.counts),
            fine: less(&self.fine, &earlier.fine),
            sum_us: self.sum_us.saturating_sub(earlier.sum_us),
        }
    }

    /// Adds what another one has recorded.
    pub fn add(&mut self, other: &DistributionReading) {
        add_counts(&mut self.counts, &other.counts);
        add_counts(&mut self.fine, &other.fine);
        self.sum_us = self.sum_us.saturating_add(other.sum_us);
    }

    /// The time below which this share of all times lies, as exact as its bucket; `None` without
    /// any. What is beyond all bounds is as long as the last of them.
    pub fn quantile_us(&self, share: f64) -> Option<f64> {
        let bounds_us = BUCKET_BOUNDS_US.iter().map(|&bound_us| bound_us as f64);
        if self.fine.is_empty() {
            return quantile_us(&self.counts, bounds_us, share);
        }
        let ends =
            |place: usize| f64::from(place as i32 - FINE_ZERO) / f64::from(FINE_PER_DOUBLING);
        let bounds_us = (0..self.fine.len()).map(|place| ends(place).exp2() * 1e6);
        quantile_us(&self.fine, bounds_us, share)
    }
}

/// The time below which this share of all counts lies. The bucket that has it begins where the one
/// before it ends.
fn quantile_us(counts: &[u64], bounds_us: impl Iterator<Item = f64>, share: f64) -> Option<f64> {
    let all: u64 = counts.iter().sum();
    let wanted = all as f64 * share.clamp(0.0, 1.0);
    let (mut below, mut floor_us) = (0.0, 0.0);
    for (count, bound_us) in counts.iter().zip(bounds_us) {
        let count = *count as f64;
        if count > 0.0 && below + count >= wanted {
            let part = ((wanted - below) / count).clamp(0.0, 1.0);
            return Some(floor_us + part * (bound_us - floor_us));
        }
        (below, floor_us) = (below + count, bound_us);
    }
    (all > 0).then_some(floor_us)
}

/// Counts, less those of an earlier moment.
fn less(now: &[u64], earlier: &[u64]) -> Vec<u64> {
    let earlier = earlier.iter().copied().chain(std::iter::repeat(0));
    now.iter().zip(earlier).map(|(now, earlier)| now.saturating_sub(earlier)).collect()
}

fn add_counts(own: &mut Vec<u64>, other: &[u64]) {
    own.resize(own.len().max(other.len()), 0);
    own.iter_mut().zip(other).for_each(|(own, other)| *own += other);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::{SinkReading, StageReading};

    fn counts(in_buckets: &[(usize, u64)]) -> DistributionReading {
        let mut counts = vec![0; BUCKET_BOUNDS_US.len() + 1];
        in_buckets.iter().for_each(|&(bucket, count)| counts[bucket] = count);
        DistributionReading { counts, ..DistributionReading::default() }
    }

    #[test]
    fn a_quantile_lies_in_the_bucket_that_has_it() {
        assert_eq!(counts(&[]).quantile_us(0.99), None);
        // 99 below 1 ms, one between 20 and 50 ms.
        let most_are_fast = counts(&[(0, 99), (5, 1)]);
        assert_eq!(most_are_fast.quantile_us(0.5).map(f64::round), Some(505.0));
        assert_eq!(most_are_fast.quantile_us(0.99), Some(1_000.0));
        assert_eq!(most_are_fast.quantile_us(1.0), Some(50_000.0));
        assert_eq!(counts(&[(16, 3)]).quantile_us(0.5), Some(60_000_000.0));
    }

    #[test]
    fn what_was_slow_more_than_a_minute_ago_does_not_count() {
        let mut earlier = EarlierLatencies::default();
        let mut recent = |at_ms, latency: DistributionReading| {
            let sink = SinkReading { latency, ..SinkReading::default() };
            let stage = StageReading { sink: Some(sink), ..StageReading::default() };
            let mut reading = JobReading { at_ms, stages: vec![stage], ..JobReading::default() };
            earlier.take(&mut reading);
            let sink = reading.stages[0].sink.clone().expect("a sink");
            sink.recent_latency.counts.iter().sum::<u64>()
        };
        assert_eq!(recent(0, counts(&[(15, 10)])), 10, "of the whole time, for want of another");
        assert_eq!(recent(30_000, counts(&[(0, 5), (15, 10)])), 5);
        assert_eq!(recent(70_000, counts(&[(0, 9), (15, 10)])), 9);
        assert_eq!(recent(91_000, counts(&[(0, 9), (15, 10)])), 4, "since half a minute after");
    }
}
