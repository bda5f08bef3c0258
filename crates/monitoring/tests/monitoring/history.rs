//! Moments that have passed.

use thalweg_core::OrderContract;
use thalweg_monitoring::history::Point;
use thalweg_monitoring::reading::{StageRates, StageReading};
use thalweg_monitoring::{History, JobReading, Watch};

use thalweg_runtime::metrics::JobLayout;

use thalweg_monitoring::reading::{SourceReading, SplitReading, StageKind};
use thalweg_monitoring::why::{Verdict, why};

/// A source of two splits; split `b` gives nothing from second 10 on.
fn at(second: i64) -> JobReading {
    let split = |name: &str, until: i64| SplitReading {
        name: name.into(),
        watermark: Some(second.min(until) * 1_000),
        last_row_at_ms: Some(second.min(until) * 1_000),
        ..SplitReading::default()
    };
    let splits = vec![split("a", i64::MAX), split("b", 10)];
    let source = StageReading {
        name: "s".into(),
        kind: StageKind::Source,
        watermark: Some(second.min(10) * 1_000),
        watermark_at_ms: Some(second.min(10) * 1_000),
        source: Some(SourceReading { has_time: true, splits, ..SourceReading::default() }),
        recent: Some(StageRates { rows_in: second as f64, ..StageRates::default() }),
        ..StageReading::default()
    };
    let sink = StageReading { kind: StageKind::Sink, inputs: vec![0], ..StageReading::default() };
    JobReading { at_ms: second * 1_000, stages: vec![source, sink], ..JobReading::default() }
}

#[test]
fn a_moment_that_has_passed_can_be_asked_why() {
    let mut history = History::new();
    for second in 0..60 {
        history.add(&at(second));
        history.add(&at(second));
    }
    assert_eq!(history.span_ms(), Some((0, 59_000)), "one point a second");
    let then = why(&history.at(8_500).expect("a point")).expect("a sink");
    assert_eq!((then.at_ms, then.verdict), (8_000, Verdict::Flowing));
    let now = why(&history.at(50_000).expect("a point")).expect("a sink");
    assert_eq!((now.verdict, now.standing_ms()), (Verdict::StandingStill, Some(40_000)));
    assert_eq!(now.holder.label(), "s[b]");
    assert!(history.at(-1).is_none());
    assert_eq!(history.mean_step_ms(0), Some(1_000));
    let last = history.points().last().expect("a point");
    assert_eq!((last.at_ms(), last.number(0, 0), last.number(2, 0)), (59_000, Some(59.0), None));
    assert_eq!(last.watermark(0), Some(Some(10_000)));
}

#[test]
fn no_more_than_a_quarter_of_an_hour_is_kept() {
    let mut history = History::new();
    (0..2_000).for_each(|second| history.add(&at(second)));
    assert_eq!(history.span_ms(), Some((1_100_000, 1_999_000)));
    let other = JobReading { stages: Vec::new(), at_ms: 5, ..JobReading::default() };
    history.add(&other);
    assert_eq!(history.span_ms(), Some((5, 5)), "another job starts over");
}

#[test]
fn a_point_is_the_same_behind_its_bytes() {
    let mut reading = at(20);
    let source = reading.stages[0].source.as_mut().expect("a source");
    source.splits[0].is_idle = true;
    source.splits[1].lag_rows = Some(7);
    reading.stages[0].has_ended = true;
    let bytes = Point::of(&reading).to_bytes();
    let point = Point::from_bytes(&bytes).expect("a point");
    assert_eq!(point, Point::of(&reading));
    assert_eq!(bytes.len(), 12 + 2 * 66 + 2 * 25, "what the documentation says");
    let then = point.reading(&at(60).without_counts());
    let splits = &then.stages[0].source.as_ref().expect("a source").splits;
    assert_eq!((then.at_ms, splits[0].is_idle, splits[1].lag_rows), (20_000, true, Some(7)));
    assert_eq!((splits[0].lag_rows, splits[1].is_idle), (None, false));
    assert!(then.stages[0].has_ended && !then.stages[1].has_ended);
    for length in 0..bytes.len() {
        assert_eq!(Point::from_bytes(&bytes[..length]), None, "cut off at {length}");
    }
    assert_eq!(Point::from_bytes(&[bytes.as_slice(), &[0]].concat()), None);
}

/// The reading of a run that began at this second, whose split `b` has given nothing in it.
fn restarted(second: i64, watermark: i64) -> JobReading {
    let mut reading = at(second);
    let stage = &mut reading.stages[0];
    (stage.watermark, stage.watermark_at_ms) = (Some(watermark), Some(second * 1_000));
    let split = &mut stage.source.as_mut().expect("a source").splits[1];
    (split.watermark, split.last_row_at_ms) = (Some(watermark), None);
    reading
}

#[test]
fn a_watermark_that_stands_still_over_a_restart_has_stood_since_before() {
    let layout = JobLayout {
        workers: 1,
        order: OrderContract::Epoch,
        may_use_clock: false,
        stages: Vec::new(),
    };
    let watch = || Watch::with_layout("a", layout.clone()).with_earlier(Some(at(40)));
    let mut still = watch();
    let reading = still.take(restarted(50, 10_000)).clone();
    assert_eq!(reading.stages[0].watermark_at_ms, Some(10_000));
    let why = why(&reading).expect("a sink");
    assert_eq!((why.standing_ms(), why.holder.label()), (Some(40_000), "s[b]".to_owned()));
    assert!(why.text().contains("no row for 40 s"), "{}", why.text());
    // One that has moved and comes by the same time again has not.
    let mut moved = watch();
    moved.take(restarted(50, 9_000));
    let reading = moved.take(restarted(52, 10_000));
    assert_eq!(reading.stages[0].watermark_at_ms, Some(52_000));
}

#[test]
fn a_run_has_begun_at_one_moment_however_often_that_is_worked_out() {
    let layout = JobLayout {
        workers: 1,
        order: OrderContract::Epoch,
        may_use_clock: false,
        stages: Vec::new(),
    };
    let mut watch = Watch::with_layout("a", layout);
    let mut began_at = |second: i64, started_at_ms: i64| {
        watch.take(JobReading { started_at_ms, ..at(second) }).started_at_ms
    };
    let moments = [(40, 7_000), (50, 7_001), (60, 6_999), (70, 69_000), (80, 69_001)];
    let began = moments.map(|(second, started_at_ms)| began_at(second, started_at_ms));
    assert_eq!(began, [7_000, 7_000, 7_000, 69_000, 69_000]);
}
