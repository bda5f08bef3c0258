//! Each reason has a case.

use thalweg_monitoring::reading::{
    BlockedShares, CutReading, JobReading, RestartReading, SourceReading, SplitRates, SplitReading,
    StageKind, StageRates, StageReading, WindowGrid,
};
use thalweg_monitoring::why::{Reason, Verdict, Why, watermarks, why};

/// 2026-01-01 10:28:21
const NOW_MS: i64 = 1_767_263_301_000;
/// 10:21:40
const LAST_ROW_MS: i64 = NOW_MS - 401_000;
/// 10:03:12
const HELD_MS: i64 = 1_767_261_792_000;
/// 10:20:13.5
const OTHERS_MS: i64 = 1_767_262_813_500;

const METERS: usize = 0;
const UNION: usize = 1;
const WINDOW: usize = 2;
const SINK: usize = 3;

fn split(name: &str, watermark: i64, last_row_at_ms: i64, rows: f64) -> SplitReading {
    SplitReading {
        name: name.into(),
        watermark: Some(watermark),
        rows: 1,
        last_row_at_ms: Some(last_row_at_ms),
        lag_rows: Some(0),
        is_caught_up: true,
        recent: Some(SplitRates { rows, lag: 0.0, pace: if rows > 0.0 { 1.0 } else { 0.0 } }),
        ..SplitReading::default()
    }
}

fn stage(name: &str, kind: StageKind, inputs: &[usize]) -> StageReading {
    StageReading {
        id: name.into(),
        name: name.into(),
        kind,
        inputs: inputs.to_vec(),
        parallelism: 1,
        recent: Some(StageRates::default()),
        ..StageReading::default()
    }
}

/// Meters of which one is silent, a union, a window of five minutes and a sink.
fn job() -> JobReading {
    let splits = vec![
        split("meters-2", OTHERS_MS, NOW_MS - 1_000, 4_120.0),
        split("meters-7", HELD_MS, LAST_ROW_MS, 0.0),
        split("meters-3", OTHERS_MS + 1_200, NOW_MS - 1_000, 3_988.0),
    ];
    let source = StageReading {
        watermark: Some(HELD_MS),
        watermark_at_ms: Some(LAST_ROW_MS),
        source: Some(SourceReading { has_time: true, splits, ..SourceReading::default() }),
        ..stage("meters", StageKind::Source, &[])
    };
    let window = StageReading {
        windows: vec![WindowGrid { period_ms: 300_000, offset_ms: 0 }],
        ..stage("window o", StageKind::Operator, &[UNION])
    };
    JobReading {
        job: "meters".into(),
        at_ms: NOW_MS,
        order: "event_time".into(),
        stages: vec![
            source,
            stage("union", StageKind::Transform, &[METERS]),
            window,
            stage("totals", StageKind::Sink, &[WINDOW]),
        ],
        ..JobReading::default()
    }
}

fn source(reading: &mut JobReading) -> &mut SourceReading {
    reading.stages[METERS].source.as_mut().expect("a source")
}

fn silent(reading: &mut JobReading) -> &mut SplitReading {
    &mut source(reading).splits[1]
}

fn asked(change: impl FnOnce(&mut JobReading)) -> Why {
    let mut reading = job();
    change(&mut reading);
    why(&reading).expect("a sink")
}

fn flows(reading: &mut JobReading) {
    reading.stages[METERS].watermark_at_ms = Some(NOW_MS - 100);
}

#[test]
fn a_silent_split_is_named_with_all_that_is_known_of_it() {
    let why = asked(|_| ());
    assert_eq!(why.verdict, Verdict::StandingStill);
    assert_eq!(why.reason, Reason::Silent { since_ms: Some(LAST_ROW_MS), is_caught_up: true });
    let expected = "\
meters: output watermark 10:03:12.000, standing still for 6 min 41 s

held by   source meters, split 1 (meters-7): no row for 6 min 41 s
path      totals ← window o ← union ← meters[meters-7]
evidence  split     watermark     last row at   rows/s  behind end
          meters-7  10:03:12.000  10:21:40.000  0       0 rows      ← holds
          meters-2  10:20:13.500  10:28:20.000  4,120   0 rows
          meters-3  10:20:14.700  10:28:20.000  3,988   0 rows
          nothing is there to read: the producer is silent
without   the watermark would be 10:20:13.500 (17 min 1 s further), 4 window ends would close now
next      a window of window o that ends at 10:05:00.000 closes when the watermark reaches 10:04:59.999
advice    idle timeout is off (contract event_time): send heartbeats, or allow it by
          SET 'pipeline.order.allow-nondeterministic' = 'true'; SET 'watermark.idle-timeout' = '30 s';
";
    assert_eq!(why.text(), expected);
    assert_eq!(why.sentence, "held by meters[meters-7]: no row for 6 min 41 s");
}

#[test]
fn the_answer_can_be_sent_and_read_again() {
    let why = asked(|_| ());
    let json = serde_json::to_string(&why).expect("it is plain");
    assert!(
        json.contains("\"verdict\":\"standing-still\"") && json.contains("\"kind\":\"silent\"")
    );
    assert_eq!(serde_json::from_str::<Why>(&json).expect("the same"), why);
    let reading = job();
    let json = serde_json::to_string(&reading).expect("it is plain");
    assert_eq!(serde_json::from_str::<JobReading>(&json).expect("the same"), reading);
}

#[test]
fn a_job_that_flows_says_when_the_next_window_closes() {
    let why = asked(|reading| {
        flows(reading);
        silent(reading).recent = Some(SplitRates { rows: 10.0, lag: 0.0, pace: 2.0 });
    });
    assert_eq!((&why.reason, why.verdict), (&Reason::Flowing, Verdict::Flowing));
    let text = why.text();
    assert!(text.contains("reaches 10:04:59.999, in about 53 s at the present pace"), "{text}");
}

#[test]
fn steps_that_usually_take_long_are_waited_for() {
    let why = asked(|reading| reading.stages[METERS].mean_step_ms = Some(300_000));
    assert_eq!(why.verdict, Verdict::Flowing);
    let why = asked(|reading| reading.stages[METERS].mean_step_ms = Some(100_000));
    assert_eq!(why.verdict, Verdict::StandingStill);
}

#[test]
fn a_split_that_has_given_nothing_yet() {
    let why = asked(|reading| {
        reading.stages[METERS].watermark = None;
        let split = silent(reading);
        (split.watermark, split.last_row_at_ms, split.rows) = (None, None, 0);
    });
    assert_eq!((why.reason, why.watermark), (Reason::NoRowYet, None));
    assert_eq!(why.sentence, "held by meters[meters-7]: it has given no row yet");
}

#[test]
fn a_clock_that_is_slow() {
    let why = asked(|reading| {
        silent(reading).recent = Some(SplitRates { rows: 50.0, lag: 0.0, pace: 0.25 });
    });
    assert_eq!(why.reason, Reason::SlowClock { pace: 0.25 });
    assert!(why.sentence.ends_with("rows come, but their times advance 0.25 s a second"));
}

#[test]
fn a_split_that_is_far_behind_catches_up_or_never_does() {
    let lag = |lag_per_s: f64| {
        asked(|reading| {
            flows(reading);
            let split = silent(reading);
            split.lag_rows = Some(60_000);
            split.recent = Some(SplitRates { rows: 2_000.0, lag: lag_per_s, pace: 1.0 });
        })
    };
    let falling = lag(-500.0);
    assert_eq!(falling.verdict, Verdict::Behind);
    assert!(
        falling
            .sentence
            .ends_with("60,000 rows behind, reads 2,000 rows/s, has caught up in 2 min 0 s")
    );
    let rising = lag(100.0).sentence;
    assert!(rising.ends_with("never catches up: 2,100 rows/s come, 2,000 are read"), "{rising}");
}

#[test]
fn a_source_that_is_not_asked_leads_to_the_sink_that_is_slow() {
    let blocked = BlockedShares { output: 0.95, ..BlockedShares::default() };
    let why = asked(|reading| {
        source(reading).is_ready = true;
        reading.stages[METERS].recent = Some(StageRates { blocked, ..StageRates::default() });
        reading.stages[SINK].in_call_ms = 12_000;
        reading.stages[SINK].problem = Some("the disk is full".into());
    });
    assert_eq!(why.holder.label(), "totals");
    assert_eq!(why.sentence, "held by totals: one call has taken 12 s so far: the disk is full");
    let nobody = asked(|reading| {
        source(reading).is_ready = true;
        reading.stages[METERS].recent = Some(StageRates { blocked, ..StageRates::default() });
    });
    assert_eq!(nobody.reason, Reason::NotAsked);
}

#[test]
fn a_stage_that_is_always_busy_is_the_holder() {
    let why = asked(|reading| {
        reading.stages[WINDOW].queued = 40.0;
        reading.stages[WINDOW].recent = Some(StageRates { busy: 0.97, ..StageRates::default() });
    });
    assert_eq!(why.reason, Reason::SlowStage { busy: 0.97, queued: 40.0 });
    assert_eq!((why.holder.label().as_str(), why.path.len()), ("window o", 2));
    assert!(why.text().contains("held by   operator window o: it is busy 97 % of the time"));
}

#[test]
fn a_connection_that_is_made_again() {
    let why = asked(|reading| silent(reading).last_error = Some("connection refused".into()));
    assert_eq!(why.reason, Reason::Reconnecting { message: "connection refused".into() });
}

#[test]
fn a_job_that_has_failed_and_starts_again() {
    let why = asked(|reading| {
        reading.restarting = Some(RestartReading {
            attempt: 3,
            next_at_ms: NOW_MS + 4_000,
            cause: "no such table".into(),
        });
    });
    let expected = "the job has failed and starts again in 4 s (try 3): no such table";
    assert!(why.sentence.ends_with(expected), "{}", why.sentence);
}

#[test]
fn an_input_that_waits_for_another_one() {
    let gate = asked(|reading| reading.stages[METERS].waits_for = Some(WINDOW));
    let expected = Reason::WaitsForInput { input: "window o".into(), how: "reads first".into() };
    assert_eq!(gate.reason, expected);
    assert!(gate.sentence.ends_with("it is not read before window o has ended"));
    let ahead = asked(|reading| silent(reading).is_paused = true);
    assert!(ahead.sentence.contains("waits for its alignment group"), "{}", ahead.sentence);
}

#[test]
fn a_merge_says_itself_which_input_it_waits_for() {
    let why = asked(|reading| {
        let mut other = reading.stages[METERS].clone();
        (other.id, other.name) = ("rates".into(), "rates".into());
        other.watermark = Some(OTHERS_MS);
        let splits = &mut other.source.as_mut().expect("a source").splits;
        splits.retain(|split| split.name == "meters-2");
        splits[0].name = String::new();
        reading.stages.insert(1, other);
        let inputs = [vec![], vec![], vec![0, 1], vec![2], vec![3]];
        reading.stages.iter_mut().zip(inputs).for_each(|(stage, of)| stage.inputs = of);
        reading.stages[2].waits_for = Some(1);
    });
    assert_eq!(why.holder.label(), "rates", "although its watermark is further");
}

#[test]
fn a_lookup_without_an_answer() {
    let why = asked(|reading| {
        reading.stages[UNION].unanswered = 3;
        reading.stages[UNION].unanswered_since_ms = Some(NOW_MS - 30_000);
    });
    assert_eq!(why.reason, Reason::WaitsForAnswer { unanswered: 3, oldest_ms: 30_000 });
    assert_eq!(why.sentence, "held by union: 3 lookups without an answer, the oldest for 30 s");
}

#[test]
fn sources_that_are_paused_and_a_cut_that_takes_long() {
    let paused = asked(|reading| reading.paused_by = Some("snapshots fail".into()));
    assert_eq!(paused.reason, Reason::Paused { by: "snapshots fail".into() });
    let since_ms = NOW_MS - 9_000;
    let cut =
        asked(|reading| reading.cut = Some(CutReading { since_ms, missing: vec![WINDOW, SINK] }));
    let missing = vec!["window o".to_owned(), "totals".to_owned()];
    assert_eq!(cut.reason, Reason::Cut { since_ms, missing });
    let short = asked(|reading| {
        reading.cut = Some(CutReading { since_ms: NOW_MS - 10, missing: vec![SINK] });
    });
    assert!(
        matches!(short.reason, Reason::Silent { .. }),
        "a cut that has just begun is no reason"
    );
}

#[test]
fn rows_from_the_future() {
    let why = asked(|reading| {
        let recent = StageRates { quarantined: 12.0, ..StageRates::default() };
        reading.stages[METERS].recent = Some(recent);
    });
    assert_eq!(why.reason, Reason::FutureRows { rows_per_s: 12.0 });
}

#[test]
fn an_input_that_does_not_end_when_all_others_have() {
    let with_other = |reading: &mut JobReading| {
        let mut other = reading.stages[METERS].clone();
        (other.id, other.name, other.has_ended) = ("file".into(), "file".into(), true);
        let of_other = other.source.as_mut().expect("a source");
        (of_other.has_ended, of_other.is_bounded) = (true, true);
        other.watermark = None;
        reading.stages.insert(0, other);
        let inputs = [vec![], vec![], vec![0, 1], vec![2], vec![3]];
        reading.stages.iter_mut().zip(inputs).for_each(|(stage, of)| stage.inputs = of);
    };
    let why = asked(with_other);
    assert_eq!(
        (why.reason, why.holder.label().as_str()),
        (Reason::OthersEnded, "meters[meters-7]")
    );
    let all = asked(|reading| {
        with_other(reading);
        let last = reading.stages[1].source.as_mut().expect("a source");
        last.has_ended = true;
        last.splits.iter_mut().for_each(|split| split.has_ended = true);
    });
    assert_eq!((all.reason, all.verdict), (Reason::AllEnded, Verdict::Ended));
}

#[test]
fn results_that_come_at_the_end_alone() {
    let why = asked(|reading| {
        reading.stages[WINDOW].passes_at_end = true;
        reading.stages[WINDOW].windows.clear();
    });
    assert_eq!((why.reason, why.holder.label().as_str()), (Reason::AtEnd, "window o"));
}

#[test]
fn windows_over_the_clock_wait_for_no_end_of_input() {
    let by_clock = |reading: &mut JobReading| {
        reading.stages[WINDOW].gives_by_clock = true;
        reading.stages[WINDOW].windows.clear();
        for stage in &mut reading.stages {
            let Some(source) = &mut stage.source else { continue };
            source.has_time = false;
            source.splits.iter_mut().for_each(|split| split.last_row_at_ms = Some(reading.at_ms));
        }
    };
    let flowing = asked(by_clock);
    assert_eq!((flowing.reason, flowing.verdict), (Reason::Flowing, Verdict::Flowing));
    let silent = asked(|reading| {
        by_clock(reading);
        reading.at_ms += 60_000;
    });
    assert!(matches!(silent.reason, Reason::Silent { .. }), "{silent:?}");
}

#[test]
fn what_is_held_back_by_design_is_shown() {
    let why = asked(|reading| {
        reading.stages[WINDOW].held_back_ms = 600_000;
        reading.stages[WINDOW].windows.clear();
    });
    assert_eq!(why.by_design, [("window o".to_owned(), 600_000)]);
    assert_eq!(why.watermark, Some(HELD_MS - 600_000));
    assert!(why.text().contains("by design window o waits 10 min 0 s\n"), "{}", why.text());
}

#[test]
fn a_job_without_event_time_goes_by_its_rows() {
    let without_time = |last_row_ms: i64| {
        asked(|reading| {
            let source = source(reading);
            source.has_time = false;
            source.splits = vec![SplitReading {
                watermark: None,
                name: String::new(),
                ..split("", 0, last_row_ms, 10.0)
            }];
            source.splits[0].recent = None;
            reading.stages[METERS].watermark = None;
            reading.stages[METERS].watermark_at_ms = None;
            reading.stages[WINDOW].windows.clear();
        })
    };
    assert_eq!(without_time(NOW_MS - 100).verdict, Verdict::Flowing);
    let silent = without_time(LAST_ROW_MS);
    assert_eq!(silent.sentence, "held by meters: no row for 6 min 41 s");
}

#[test]
fn a_split_that_is_not_the_only_slow_one_gains_nothing() {
    let why = asked(|reading| source(reading).splits[0].watermark = Some(HELD_MS));
    let without = why.without.as_ref().expect("a split holds");
    assert_eq!((without.gain_ms, without.windows), (Some(0), 0));
    assert!(why.text().contains("nothing would change: another input is as far behind"));
}

#[test]
fn watermarks_name_the_split_that_holds_and_how_far_the_others_are_ahead() {
    let found = watermarks(&job());
    assert_eq!(found.at_ms, NOW_MS);
    let splits = &found.stages[METERS].splits;
    let of = |name: &str| splits.iter().find(|split| split.name == name).expect("a split");
    assert!(of("meters-7").holds && of("meters-7").lead_ms == Some(0));
    assert_eq!((of("meters-2").holds, of("meters-2").lead_ms), (false, Some(OTHERS_MS - HELD_MS)));
    for place in [UNION, WINDOW, SINK] {
        let stage = &found.stages[place];
        assert_eq!(stage.held_by.label(), "meters[meters-7]");
        let input = &stage.inputs[0];
        assert!(input.holds && input.watermark_ms == Some(HELD_MS) && input.lead_ms == Some(0));
    }
    // One that nobody waits for holds nothing.
    let mut reading = job();
    silent(&mut reading).is_idle = true;
    let found = watermarks(&reading);
    let splits = &found.stages[METERS].splits;
    assert!(splits[1].is_idle && !splits[1].holds && splits[0].holds);
    assert_eq!(found.stages[SINK].inputs[0].watermark_ms, Some(OTHERS_MS));
}
