//! Moments that have passed.

use thalweg_monitoring::reading::{StageRates, StageReading};
use thalweg_monitoring::{History, JobReading};

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
    assert_eq!(history.numbers(0, 0).last(), Some((59_000, 59.0)));
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
