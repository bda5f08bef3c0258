//! Metrics as Prometheus reads them.

use std::collections::BTreeSet;

use thalweg_monitoring::conditions::{Condition, ConditionKind};
use thalweg_monitoring::exposition::*;
use thalweg_monitoring::reading::{
    DistributionReading, JobReading, SinkReading, SnapshotReading, SourceReading, SplitReading,
    StageKind, StageReading,
};
use thalweg_runtime::metrics::TimeBuckets;

fn stage(name: &str, kind: StageKind, inputs: &[usize]) -> StageReading {
    StageReading {
        name: name.into(),
        kind,
        inputs: inputs.to_vec(),
        watermark: Some(1_500),
        ..StageReading::default()
    }
}

fn source(name: &str, splits: usize) -> StageReading {
    let split = |place: usize| SplitReading {
        name: format!("{name}-{place}"),
        watermark: Some(1_000 + place as i64),
        last_row_at_ms: Some(2_000),
        lag_rows: Some(1),
        lag_bytes: Some(100),
        ..SplitReading::default()
    };
    let splits = (0..splits).map(split).collect();
    let source =
        SourceReading { has_time: true, reconnects: Some(3), splits, ..SourceReading::default() };
    StageReading { source: Some(source), ..stage(name, StageKind::Source, &[]) }
}

fn sink(name: &str, inputs: &[usize]) -> StageReading {
    let recorded = TimeBuckets::default();
    [0, 250, 5_000].into_iter().for_each(|us| recorded.record_us(us));
    let times = DistributionReading::from(&recorded.distribution());
    let sink = SinkReading {
        latency: times.clone(),
        writes: times,
        committed_rows: 40,
        errors: Some(5),
        ..SinkReading::default()
    };
    StageReading { sink: Some(sink), ..stage(name, StageKind::Sink, inputs) }
}

/// A job with all that a job can have.
fn job(sources: usize, splits: usize, operators: usize) -> JobReading {
    let mut stages: Vec<StageReading> =
        (0..sources).map(|place| source(&format!("s{place}"), splits)).collect();
    let inputs: Vec<usize> = (0..sources).collect();
    for _ in 0..operators {
        let window = stage("window", StageKind::Operator, &inputs);
        stages.push(StageReading { state_keys: Some(7), ..window });
        stages.push(stage("lookup", StageKind::Transform, &inputs));
    }
    stages.push(sink("totals", &[stages.len() - 1]));
    stages.push(sink("late", &[0]));
    JobReading {
        job: "a \"job\"".into(),
        at_ms: 62_000,
        state: "running".into(),
        order: "epoch".into(),
        stages,
        restarts: [("error".to_owned(), 2), ("upgrade".to_owned(), 1)].into(),
        snapshots: Some(SnapshotReading {
            taken: 3,
            taken_at_ms: Some(60_500),
            interval_ms: Some(10_000),
            ..SnapshotReading::default()
        }),
        ..JobReading::default()
    }
}

fn families(reading: &JobReading) -> Families {
    let mut families = Families::new();
    let text = String::new();
    let held = Condition { kind: ConditionKind::Held, since_ms: 0, text };
    job_samples(&mut families, reading, &[held]);
    families
}

#[test]
fn a_scrape_reads_as_prometheus_wants_it() {
    let text = families(&job(1, 2, 1)).text();
    for line in [
        "# TYPE thalweg_stage_input_rows_total counter",
        "thalweg_job_state{job=\"a \\\"job\\\"\",state=\"running\"} 1",
        "thalweg_job_condition{job=\"a \\\"job\\\"\",condition=\"held\"} 1",
        "thalweg_job_condition{job=\"a \\\"job\\\"\",condition=\"late\"} 0",
        "thalweg_job_watermark_timestamp_seconds{job=\"a \\\"job\\\"\",sink=\"totals\"} 1.5",
        "thalweg_source_last_row_timestamp_seconds{job=\"a \\\"job\\\"\",source=\"s0\",split=\"s0-1\"} 2",
        "thalweg_source_lag_rows{job=\"a \\\"job\\\"\",source=\"s0\"} 2",
        "thalweg_source_lag_bytes{job=\"a \\\"job\\\"\",source=\"s0\"} 200",
        "thalweg_source_reconnects_total{job=\"a \\\"job\\\"\",source=\"s0\"} 3",
        "thalweg_stage_state_keys{job=\"a \\\"job\\\"\",stage=\"window\"} 7",
        "thalweg_sink_committed_rows_total{job=\"a \\\"job\\\"\",sink=\"totals\"} 40",
        "thalweg_sink_errors_total{job=\"a \\\"job\\\"\",sink=\"totals\"} 5",
        "thalweg_result_latency_seconds_bucket{job=\"a \\\"job\\\"\",sink=\"totals\",le=\"0.001\"} 2",
        "thalweg_result_latency_seconds_bucket{job=\"a \\\"job\\\"\",sink=\"totals\",le=\"0.005\"} 3",
        "thalweg_result_latency_seconds_bucket{job=\"a \\\"job\\\"\",sink=\"totals\",le=\"+Inf\"} 3",
        "thalweg_result_latency_seconds_sum{job=\"a \\\"job\\\"\",sink=\"totals\"} 0.00525",
        "thalweg_result_latency_seconds_count{job=\"a \\\"job\\\"\",sink=\"totals\"} 3",
        "thalweg_snapshot_last_success_timestamp_seconds{job=\"a \\\"job\\\"\"} 60.5",
        "thalweg_watermark_hold_seconds{job=\"a \\\"job\\\"\",source=\"s0\"} 60",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
    let names: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
    let once: BTreeSet<&&str> = names.iter().collect();
    assert_eq!(once.len(), names.len(), "each metric is described once");
}

/// `make prometheus-test` has it checked by Prometheus itself.
#[test]
fn the_recorded_scrape_is_what_a_scrape_is_now() {
    let file = "../../deploy/prometheus/scrape";
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    let mut families = families(&job(2, 2, 1));
    let process = ProcessReading { version: "0.1.0".into(), workers: 2, ..Default::default() };
    process_samples(&mut families, &process);
    for (ending, bytes) in [("txt", families.text().into_bytes()), ("pb", families.protobuf())] {
        let path = path.with_extension(ending);
        if std::env::var_os("THALWEG_WRITE_DOCS").is_some() {
            std::fs::write(&path, bytes).expect("writing the scrape");
        } else {
            let recorded = std::fs::read(&path).expect("a recorded scrape");
            assert!(recorded == bytes, "{path:?} differs (THALWEG_WRITE_DOCS=1 writes it)");
        }
    }
}

#[test]
fn no_series_comes_twice() {
    let text = families(&job(3, 4, 3)).text();
    let series: Vec<&str> = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| Some(line.rsplit_once(' ')?.0))
        .collect();
    let once: BTreeSet<&&str> = series.iter().collect();
    assert_eq!(once.len(), series.len(), "stages with one name have labels of their own");
}

#[test]
fn the_number_of_series_is_bounded_by_stages_and_splits() {
    for (sources, splits, operators) in
        [(1, 1, 0), (1, 1, 1), (3, 16, 5), (10, 64, 20), (2, 500, 3)]
    {
        let reading = job(sources, splits, operators);
        let shown = if splits > SPLITS_MAX { 8 } else { splits };
        let bound = 30 + 14 * reading.stages.len() + 5 * sources * shown;
        let series = families(&reading).series();
        assert!(
            series <= bound,
            "{series} series of {} stages, bound {bound}",
            reading.stages.len()
        );
    }
}

#[test]
fn the_same_can_be_read_as_json() {
    let json = serde_json::to_value(families(&job(1, 1, 1)).families()).expect("it is plain");
    let family = |name: &str| {
        let families = json.as_array().expect("a list");
        families.iter().find(|family| family["name"] == name).expect("a family")
    };
    let rows = family("thalweg_stage_input_rows_total");
    assert_eq!(rows["samples"][0]["labels"]["stage"], "s0");
    assert_eq!(
        (&rows["kind"], rows["samples"][0]["value"].as_f64()),
        (&"counter".into(), Some(0.0))
    );
    let latency = family("thalweg_result_latency_seconds");
    assert_eq!(latency["samples"][0]["histogram"]["sum_us"], 5_250);
}

#[test]
fn of_many_splits_the_slowest_are_shown() {
    let text = families(&job(1, 500, 0)).text();
    assert!(text.contains("split=\"s0-7\"") && !text.contains("split=\"s0-8\""));
}

#[test]
fn names_have_their_units_and_kinds() {
    for metric in METRICS {
        let name = metric.name;
        assert_eq!(name.ends_with("_total"), metric.kind == MetricKind::Counter, "{name}");
        let is_time = metric.kind == MetricKind::Histogram;
        assert!(!is_time || name.ends_with("_seconds"), "{name}");
        assert!(!metric.help.ends_with('.') && metric.help.len() > 10, "{name}");
        let forbidden = ["worker", "partition", "run", "id"];
        assert!(metric.labels.iter().all(|label| !forbidden.contains(label)), "{name}");
    }
    let names: BTreeSet<&str> = METRICS.iter().map(|metric| metric.name).collect();
    assert_eq!(names.len(), METRICS.len());
    let rows = METRICS.iter().find(|metric| metric.name == "thalweg_stage_input_rows_total");
    let rows = rows.expect("a metric");
    assert_eq!((rows.otlp_name().as_str(), rows.unit()), ("thalweg.stage.input.rows", "{row}"));
}

#[test]
fn the_process_has_the_names_that_every_process_has() {
    let mut families = Families::new();
    let process = ProcessReading {
        version: "0.1.0".into(),
        workers: 4,
        open_fds: Some(17),
        ..ProcessReading::default()
    };
    process_samples(&mut families, &process);
    let text = families.text();
    assert!(text.contains("thalweg_build_info{version=\"0.1.0\",features=\"\"} 1\n"), "{text}");
    assert!(text.contains("\nprocess_open_fds 17\n") && !text.contains("cpu_seconds"), "{text}");
}
