//! Percentiles of latencies: from a histogram, from the engine, from a peer's line; as JSON in
//! rows.
//!
//! Milliseconds everywhere but inside histograms, which count nanoseconds.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// The percentiles that tables and plots show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Percentiles {
    /// How many were measured.
    pub count: u64,
    pub p50_ms: f64,
    pub p90_ms: f64,
    pub p99_ms: f64,
    pub p99_9_ms: f64,
    pub p99_99_ms: f64,
    pub max_ms: f64,
}

/// What the places of [`Percentiles::values`] are called.
pub const NAMES: [&str; 6] = ["p50", "p90", "p99", "p99.9", "p99.99", "max"];

impl Percentiles {
    /// Of nanoseconds; `None` if nothing was measured.
    pub fn of(histogram: &Histogram<u64>) -> Option<Percentiles> {
        let ms = |quantile| histogram.value_at_quantile(quantile) as f64 / 1e6;
        (!histogram.is_empty()).then(|| Percentiles {
            count: histogram.len(),
            p50_ms: ms(0.5),
            p90_ms: ms(0.9),
            p99_ms: ms(0.99),
            p99_9_ms: ms(0.999),
            p99_99_ms: ms(0.9999),
            max_ms: histogram.max() as f64 / 1e6,
        })
    }

    /// In the order of [`NAMES`].
    #[cfg(test)]
    pub fn values(&self) -> [f64; 6] {
        [self.p50_ms, self.p90_ms, self.p99_ms, self.p99_9_ms, self.p99_99_ms, self.max_ms]
    }

    /// Those in the order of [`NAMES`].
    pub fn from_values(count: u64, values: [f64; 6]) -> Percentiles {
        let [p50_ms, p90_ms, p99_ms, p99_9_ms, p99_99_ms, max_ms] = values;
        Percentiles { count, p50_ms, p90_ms, p99_ms, p99_9_ms, p99_99_ms, max_ms }
    }
}

impl From<thalweg_runtime::metrics::LatencyPercentiles> for Percentiles {
    fn from(of: thalweg_runtime::metrics::LatencyPercentiles) -> Self {
        let values = [of.p50_us, of.p90_us, of.p99_us, of.p999_us, of.p9999_us, of.max_us];
        Percentiles::from_values(of.count, values.map(|us| us as f64 / 1000.0))
    }
}

/// An empty histogram of nanoseconds, to ten minutes.
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 600_000_000_000, 3).expect("the bounds are valid")
}

/// The middle one, the smallest and the largest; `None` of nothing.
pub fn median(values: impl IntoIterator<Item = f64>) -> Option<(f64, f64, f64)> {
    let mut sorted: Vec<f64> = values.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    let (low, high) = (*sorted.first()?, *sorted.last()?);
    let upper = sorted[sorted.len() / 2];
    // Of an even number the two in the middle count alike.
    let lower = sorted[(sorted.len() - 1) / 2];
    Some(((lower + upper) / 2.0, low, high))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_what_was_recorded() {
        let mut recorded = histogram();
        assert_eq!(Percentiles::of(&recorded), None);
        (1..=10_000_u64).for_each(|ms| recorded.saturating_record(ms * 1_000_000));
        let found = Percentiles::of(&recorded).expect("there are some");
        let wanted = [5000.0, 9000.0, 9900.0, 9990.0, 9999.0, 10_000.0];
        for (found, wanted) in found.values().into_iter().zip(wanted) {
            assert!((found / wanted - 1.0).abs() < 2e-3, "{found} for {wanted}");
        }
        assert_eq!(Percentiles::from_values(found.count, found.values()), found);
    }

    #[test]
    fn the_median_comes_with_the_spread() {
        assert_eq!(median([3.0, 1.0, 2.0]), Some((2.0, 1.0, 3.0)));
        assert_eq!(median([4.0, 1.0]), Some((2.5, 1.0, 4.0)));
        assert_eq!(median([]), None);
    }
}
