//! Bursts and overload: many more events for a while, and how long results are late after it.
//!
//! Counts per auction over ten seconds every ten milliseconds, as query 5. The variant of a point
//! is the factor of the rate and for how many seconds (`10 for 1 s`). A factor that the machine
//! can't follow is overload: the source falls behind on the clock, nothing is dropped, and it
//! catches up.
//!
//! **Back** is when the age of every window for half a second is within twice the 99th percentile
//! of before, or within 4 ms. The result is checked as a whole.

use std::time::Duration;

use serde_json::{Value, json};
use thalweg::{Error, Result};

use super::age_sinks::{Began, WindowAges, WindowColumns};
use super::expected::Given;
use super::folder::Folder;
use super::job::{Script, Timing, session};
use super::oracle::{self, BASE_MS, KEYS};
use super::paced::{BIDS, Bids};
use super::percentiles::{Percentiles, histogram};
use super::point::Point;
use super::schedule::Schedule;

const SIZE_MS: i64 = 10_000;
const SLIDE_MS: i64 = 10;
/// Within this a result is not late, whatever it was before.
const LATE_MS_MIN: f64 = 4.0;
/// For so long all windows have to be in time.
const CALM_MS: u64 = 500;
const TAIL_S: u64 = 1;

/// A burst: this many times the rate for so long.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Burst {
    factor: u64,
    seconds: u64,
}

impl Burst {
    /// Reads `10 for 1 s`.
    fn read(variant: &str) -> Option<Burst> {
        let (factor, seconds) = variant.strip_suffix(" s")?.split_once(" for ")?;
        Some(Burst { factor: factor.parse().ok()?, seconds: seconds.parse().ok()? })
    }
}

/// Runs a point: the burst comes in the middle of the measured time.
pub fn run(point: &Point) -> Result<Value> {
    let burst = Burst::read(&point.variant)
        .ok_or_else(|| Error::plan(format!("no burst: '{}', try '10 for 1 s'", point.variant)))?;
    let from_ms = (point.warm_up_s + point.measured_s / 2) * 1000;
    let to_ms = from_ms + burst.seconds * 1000;
    let end_ms = (point.warm_up_s + point.measured_s + TAIL_S) * 1000;
    let rate = point.events_per_second;
    let schedule = Schedule::phases(&[(0, rate), (from_ms, rate * burst.factor), (to_ms, rate)]);
    let events = schedule.count_at(end_ms * 1_000_000);
    let began = Began::default();
    let ages = WindowAges::new(began.clone(), BASE_MS, SLIDE_MS);
    let folder = Folder::new().map_err(|error| Error::io(error.to_string()))?;
    let mut session = session(point.workers, folder.path())?;
    let (of_source, of_schedule) = (began.clone(), schedule.clone());
    session.register_source("bids", move || {
        Ok(Box::new(Bids::new(of_schedule.clone(), of_source.clone(), events)))
    });
    let job = Script {
        text: text(),
        sink: Box::new(ages.sink(WindowColumns { end: 2, hashed: (0, 1) })),
        began,
        timing: Timing {
            warm_up: Duration::from_secs(point.warm_up_s),
            measured: Duration::from_secs(point.measured_s),
            stops_then: false,
        },
        ends_after: None,
        look: None,
        given: Given::default(),
    };
    let (measured, report) = job.run(&mut session)?;
    let series = ages.between(point.warm_up_s * 1000, end_ms - TAIL_S * 1000);
    let series: Vec<(u64, f64)> =
        series.iter().map(|(end_ms, first_ns, _)| (*end_ms, *first_ns as f64 / 1e6)).collect();
    let mut row = measured.spent.fields(measured.rows_in);
    row["recovery"] = recovery(&series, from_ms, to_ms);
    row["peak_bytes"] = json!(report.peak_bytes);
    let all = (0..events).map(|event| (Bids::time_ms(&schedule, event), Bids::auction(event)));
    let expected = oracle::sliding_counts(all, KEYS, SIZE_MS, SLIDE_MS);
    row["check"] = ages.sum().compared(expected);
    Ok(row)
}

fn text() -> String {
    format!(
        "{BIDS} SELECT auction, COUNT(*) AS num, window_end \
         FROM TABLE(HOP(TABLE bid, DESCRIPTOR(`dateTime`), INTERVAL '0.01' SECOND, INTERVAL '10' SECOND)) \
         GROUP BY auction, window_start, window_end;"
    )
}

/// What a burst did to the ages of windows, in milliseconds by the ends of windows on the clock.
fn recovery(series: &[(u64, f64)], from_ms: u64, to_ms: u64) -> Value {
    let mut before = histogram();
    let calm = series.iter().filter(|(end_ms, _)| *end_ms < from_ms);
    calm.for_each(|(_, age_ms)| before.saturating_record((age_ms * 1e6) as u64));
    let before = Percentiles::of(&before);
    let late_ms = before.map_or(LATE_MS_MIN, |before| (2.0 * before.p99_ms).max(LATE_MS_MIN));
    let during = series.iter().filter(|(end_ms, _)| *end_ms >= from_ms);
    let worst_ms = during.clone().map(|window| window.1).fold(0.0, f64::max);
    // The result of a window that is late is seen when it comes, not when the window ends.
    let last_late = during
        .filter(|(_, age_ms)| *age_ms > late_ms)
        .scan(to_ms, |calm_until_ms, &(end_ms, age_ms)| {
            let is_of_burst = end_ms <= *calm_until_ms + CALM_MS;
            *calm_until_ms = (end_ms + age_ms as u64).max(*calm_until_ms);
            Some((is_of_burst, end_ms as f64 + age_ms))
        })
        .take_while(|(is_of_burst, _)| *is_of_burst)
        .last();
    let back_ms = last_late.map_or(0.0, |(_, seen_ms)| (seen_ms - to_ms as f64).max(0.0));
    json!({ "before": before, "late_ms": late_ms, "worst_ms": worst_ms, "back_after_ms": back_ms })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variant_says_how_much_and_how_long() {
        assert_eq!(Burst::read("10 for 1 s"), Some(Burst { factor: 10, seconds: 1 }));
        assert_eq!(Burst::read("ten"), None);
    }

    #[test]
    fn results_are_back_when_they_stay_in_time() {
        let calm = (0..200).map(|n| (n * 10, 1.0));
        // Late for 300 ms behind the burst, and once more much later, which is another matter.
        let late = (200..330).map(|n| (n * 10, 50.0));
        let after = (330..500).map(|n| (n * 10, if n == 480 { 20.0 } else { 1.0 }));
        let series: Vec<(u64, f64)> = calm.chain(late).chain(after).collect();
        let found = recovery(&series, 2_000, 3_000);
        assert_eq!(found["back_after_ms"], 3_290.0 + 50.0 - 3_000.0);
        assert_eq!(found["worst_ms"], 50.0);
        let never_late: Vec<(u64, f64)> = (0..500).map(|n| (n * 10, 1.0)).collect();
        assert_eq!(recovery(&never_late, 2_000, 3_000)["back_after_ms"], 0.0);
    }

    #[test]
    fn a_burst_loses_nothing() {
        let point = Point::new("test", super::super::point::Kind::Burst, "q5", 20_000);
        let row = run(&point.lasting(1, 2).of_variant("10 for 1 s")).expect("it runs");
        assert_eq!(row["check"], "ok", "{row}");
    }
}
