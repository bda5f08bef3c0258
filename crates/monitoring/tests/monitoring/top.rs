//! Jobs and stages as lines.

use thalweg_monitoring::conditions::Condition;
use thalweg_monitoring::reading::{JobReading, StageKind, StageReading};
use thalweg_monitoring::top::{jobs, stages};

use thalweg_monitoring::conditions::ConditionKind;
use thalweg_monitoring::reading::StageRates;

#[test]
fn a_job_and_its_stages_have_a_line_each() {
    let stage = |name: &str, kind| StageReading {
        name: name.into(),
        kind,
        parallelism: 1,
        watermark: Some(60_000),
        recent: Some(StageRates { rows_in: 84_100.0, busy: 0.25, ..StageRates::default() }),
        ..StageReading::default()
    };
    let reading = JobReading {
        job: "meters".into(),
        state: "running".into(),
        at_ms: 461_000,
        workers: 2,
        stages: vec![stage("meters", StageKind::Source), stage("totals", StageKind::Sink)],
        ..JobReading::default()
    };
    let text = "held by meters[7]: no row for 6 min 41 s".to_owned();
    let held = [Condition { kind: ConditionKind::Held, since_ms: 0, text }];
    let table = jobs(std::iter::once((&reading, &held[..])));
    let line = table.lines().nth(1).expect("a line");
    assert!(line.starts_with("meters  running  84.1 k  0      6 min 41 s"), "{table}");
    assert!(line.ends_with("held by meters[7]: no row for 6 min 41 s"), "{table}");
    let table = stages(&reading);
    let line = "meters  source  84.1 k  0      25 %  0 %      75 %  1970-01-01 00:01:00.000  0 B";
    assert_eq!(table.lines().nth(1), Some(line));
}
