//! What is wrong with a job, and since when.

use thalweg_monitoring::conditions::{Condition, ConditionKind, Conditions};

use thalweg_monitoring::reading::{
    BlockedShares, JobReading, MemoryReading, SnapshotReading, SourceReading, SplitReading,
    StageKind, StageRates, StageReading,
};

const START_MS: i64 = 1_000_000;

fn job() -> JobReading {
    let split = |name: &str, last_row_at_ms: i64| SplitReading {
        name: name.to_owned(),
        watermark: Some(500),
        last_row_at_ms: Some(last_row_at_ms),
        lag_rows: Some(0),
        is_caught_up: true,
        ..SplitReading::default()
    };
    let source = StageReading {
        name: "meters".into(),
        kind: StageKind::Source,
        watermark: Some(500),
        watermark_at_ms: Some(START_MS),
        source: Some(SourceReading {
            has_time: true,
            splits: vec![split("a", START_MS), split("b", START_MS)],
            ..SourceReading::default()
        }),
        ..StageReading::default()
    };
    let window = StageReading {
        name: "window".into(),
        kind: StageKind::Operator,
        inputs: vec![0],
        ..StageReading::default()
    };
    let sink = StageReading {
        name: "totals".into(),
        kind: StageKind::Sink,
        inputs: vec![1],
        ..StageReading::default()
    };
    let memory = MemoryReading { limit_bytes: 1_000, ..MemoryReading::default() };
    let stages = vec![source, window, sink];
    JobReading { job: "j".into(), at_ms: START_MS, memory, stages, ..JobReading::default() }
}

fn later(seconds: i64, change: impl FnOnce(&mut JobReading)) -> JobReading {
    let mut reading = job();
    reading.at_ms += seconds * 1_000;
    change(&mut reading);
    reading
}

fn kinds(conditions: &[Condition]) -> Vec<&'static str> {
    conditions.iter().map(|condition| condition.kind.name()).collect()
}

/// The only condition of a reading a minute and a half after one in which all is well.
fn only(change: impl FnOnce(&mut JobReading)) -> Condition {
    let mut conditions = Conditions::new();
    assert_eq!(conditions.update(&job()), []);
    let changed = later(90, |reading| {
        reading.stages[0].watermark_at_ms = Some(reading.at_ms);
        change(reading);
    });
    let found = conditions.update(&changed);
    assert_eq!(found.len(), 1, "{found:?}");
    found.into_iter().next().expect("one")
}

#[test]
fn a_watermark_that_stands_while_rows_come_is_held() {
    let mut conditions = Conditions::new();
    let silent = conditions.update(&later(60, |_| ()));
    assert_eq!(silent, [], "nobody misses anything while no row comes at all");
    let came = |reading: &mut JobReading| {
        let source = reading.stages[0].source.as_mut().expect("a source");
        (source.splits[1].last_row_at_ms, source.splits[1].watermark) =
            (Some(reading.at_ms), Some(900));
    };
    let held = conditions.update(&later(61, came));
    assert_eq!(kinds(&held), ["held"]);
    assert_eq!(held[0].since_ms, START_MS, "since the watermark stands");
    assert_eq!(held[0].text, "held by meters[a]: no row for 1 min 1 s");
}

#[test]
fn a_lag_that_grows_is_behind() {
    let found = only(|reading| {
        let source = reading.stages[0].source.as_mut().expect("a source");
        source.splits[0].lag_rows = Some(7_000);
    });
    assert_eq!(found.text, "meters is 7,000 rows behind, 7,000 more than 1 min 30 s ago");
    assert_eq!(found.kind, ConditionKind::Behind);
}

#[test]
fn a_sink_that_slows_its_source_blocks_it() {
    let found = only(|reading| {
        let blocked = BlockedShares { output: 0.9, ..BlockedShares::default() };
        reading.stages[0].recent = Some(StageRates { blocked, ..StageRates::default() });
        reading.stages[0].source.as_mut().expect("a source").is_ready = true;
        reading.stages[2].recent = Some(StageRates { busy: 0.99, ..StageRates::default() });
        reading.stages[2].queued = 12.0;
    });
    assert_eq!(found.text, "meters is blocked by totals 90 % of the time");
}

#[test]
fn late_and_bad_rows_are_counted_over_minutes() {
    let found = only(|reading| {
        (reading.stages[1].counters.late, reading.stages[1].counters.accepted) = (30, 970);
    });
    assert_eq!(found.text, "30 late rows at window (3.0 % of them)");
    let found = only(|reading| reading.stages[0].counters.bad_rows = 2);
    assert_eq!(
        (found.kind, found.text.as_str()),
        (ConditionKind::BadData, "2 rows could not be read in the last 1 min 30 s")
    );
}

#[test]
fn what_is_wrong_with_snapshots_memory_and_keys_is_said() {
    let found = only(|reading| {
        let problem = Some("no snapshot was kept for 65 s".to_owned());
        reading.snapshots = Some(SnapshotReading { problem, ..SnapshotReading::default() });
    });
    assert_eq!(found.kind, ConditionKind::SnapshotsFailing);
    let found = only(|reading| reading.memory.state_bytes = 950);
    assert_eq!(found.text, "state takes 950 B of 1000 B (95 %), and the job fails there");
    let found = only(|reading| {
        reading.stages[1].recent =
            Some(StageRates { busiest_partition: 0.9, skew: 7.0, ..StageRates::default() });
    });
    assert_eq!(found.text, "one partition of window has 7.0 times the work of the average one");
}

#[test]
fn a_job_that_is_started_again_and_again_flaps() {
    let found = only(|reading| {
        reading.restarts.insert("error".into(), 4);
    });
    assert_eq!(found.text, "started again 4 times in 1 min 30 s");
}

#[test]
fn a_condition_keeps_its_beginning_until_it_is_over() {
    let mut conditions = Conditions::new();
    let full = |seconds| later(seconds, |reading| reading.memory.state_bytes = 950);
    assert_eq!(conditions.update(&full(0))[0].since_ms, START_MS);
    assert_eq!(conditions.update(&full(5))[0].since_ms, START_MS);
    assert_eq!(conditions.update(&later(6, |_| ())), []);
    assert_eq!(conditions.update(&full(7))[0].since_ms, START_MS + 7_000);
}
