//! The closing summary of a run and the table of `--metrics`.

use std::collections::BTreeSet;
use std::time::Duration;

use thalweg::session::JobDescription;
use thalweg_core::connector::SplitStatus;
use thalweg_core::text::format_timestamp_millis;
use thalweg_runtime::TaskLengths;
use thalweg_runtime::metrics::{BlockedBy, LatencyPercentiles, StageRole};
use thalweg_runtime::{MetricsSnapshot, Report, SnapshotMetrics, StageSnapshot, memory};

use super::text_table::{self, aligned};
use super::units;

/// What the jobs of a script did, each and together.
#[derive(Debug, Default)]
pub struct Totals {
    /// A line for each.
    jobs: Vec<String>,
    all: RowCounts,
    /// How long any of them ran.
    elapsed: Duration,
    /// The places of those that run.
    running: BTreeSet<usize>,
    /// Since when some of them run.
    since_ns: u64,
    problems: Vec<String>,
}

/// Rows in and out.
#[derive(Clone, Copy, Debug, Default)]
struct RowCounts {
    rows_in: u64,
    rows_out: u64,
    missing: Missing,
}

impl RowCounts {
    fn of(metrics: &MetricsSnapshot) -> RowCounts {
        let (rows_in, rows_out) = (metrics.rows_in(), metrics.rows_out());
        RowCounts { rows_in, rows_out, missing: Missing::of(metrics) }
    }

    fn line(&self, elapsed: Duration) -> String {
        let mut counts = vec![
            format!("{} rows in", units::count(self.rows_in)),
            format!("{} out", units::count(self.rows_out)),
        ];
        for (number, word) in self.missing.named() {
            // Whether rows were late is worth a word in any case.
            if number > 0 || word == "late" {
                counts.push(format!("{} {word}", units::count(number)));
            }
        }
        let rate = self.rows_in as f64 / elapsed.as_secs_f64().max(1e-9);
        format!(
            "{} in {} ({} rows/s)",
            counts.join(", "),
            units::duration(elapsed),
            units::short_count(rate)
        )
    }
}

/// Rows that came in and that no result, or not every result, counts.
#[derive(Clone, Copy, Debug, Default)]
struct Missing {
    late: u64,
    partly_late: u64,
    bad: u64,
    quarantined: u64,
}

impl Missing {
    fn of(metrics: &MetricsSnapshot) -> Missing {
        let sum = |of: fn(&StageSnapshot) -> u64| metrics.stages.iter().map(of).sum();
        Missing {
            late: metrics.late(),
            partly_late: sum(|stage| stage.partly_late),
            bad: sum(|stage| stage.bad_rows),
            quarantined: sum(|stage| stage.quarantined),
        }
    }

    fn add(&mut self, other: Missing) {
        self.late += other.late;
        self.partly_late += other.partly_late;
        self.bad += other.bad;
        self.quarantined += other.quarantined;
    }

    /// The numbers with their adjectives.
    fn named(&self) -> [(u64, &'static str); 4] {
        [
            (self.late, "late"),
            (self.partly_late, "partly late"),
            (self.bad, "bad"),
            (self.quarantined, "quarantined"),
        ]
    }
}

/// What a log has to say about rows that are missing from results; nothing where none is.
pub fn missing_rows(metrics: &MetricsSnapshot) -> Option<String> {
    let counted = Missing::of(metrics).named().into_iter().filter(|(number, _)| *number > 0);
    let words = |(number, adjective)| format!("{} {adjective}", units::count(number));
    let list: Vec<String> = counted.map(words).collect();
    (!list.is_empty()).then(|| format!("rows missing from results: {}", list.join(", ")))
}

impl Totals {
    /// A job has started.
    pub fn started(&mut self, place: usize, now_ns: u64) {
        if self.running.is_empty() {
            self.since_ns = now_ns;
        }
        self.running.insert(place);
    }

    /// True if a job runs.
    pub fn is_running(&self) -> bool {
        !self.running.is_empty()
    }

    /// A job has ended, if it had started.
    pub fn ended(&mut self, place: usize, now_ns: u64) {
        if self.running.remove(&place) && self.running.is_empty() {
            self.elapsed += Duration::from_nanos(now_ns.saturating_sub(self.since_ns));
        }
    }

    /// Adds what a job did.
    pub fn add(&mut self, job: &JobDescription, report: &Report) {
        let metrics = &report.metrics;
        let own = RowCounts::of(metrics);
        self.jobs.push(format!("{}: {}", job.name, own.line(report.elapsed)));
        self.all.rows_in += own.rows_in;
        self.all.rows_out += own.rows_out;
        self.all.missing.add(own.missing);
        self.problems.extend(problems(metrics));
        self.problems.extend(metrics.snapshots.as_ref().and_then(snapshot_problem));
    }

    /// The lines of jobs, where there are several.
    pub fn jobs(&self) -> &[String] {
        if self.jobs.len() > 1 { &self.jobs } else { &[] }
    }

    /// One line for all jobs, or nothing if none ran.
    pub fn line(&self) -> Option<String> {
        if self.jobs.is_empty() {
            return None;
        }
        let mut line = self.all.line(self.elapsed);
        if let Some(peak_bytes) = memory::peak_resident_bytes() {
            line.push_str(&format!(", peak memory {}", units::bytes(peak_bytes)));
        }
        for problem in &self.problems {
            line.push_str(&format!("; {problem}"));
        }
        Some(line)
    }
}

/// What went wrong without stopping the job, by stage.
fn problems(metrics: &MetricsSnapshot) -> impl Iterator<Item = String> {
    let of = |stage: &StageSnapshot| Some(format!("{} {}", stage.name, stage.problem.as_ref()?));
    metrics.stages.iter().filter_map(of)
}

/// What went wrong with snapshots, if anything did.
pub fn snapshot_problem(snapshots: &SnapshotMetrics) -> Option<String> {
    if snapshots.failed == 0 && snapshots.problem.is_none() {
        return None;
    }
    let newest = match snapshots.number {
        Some(number) => format!("the newest is {number}"),
        None => "there is none".to_owned(),
    };
    let plural = if snapshots.failed == 1 { "snapshot" } else { "snapshots" };
    let problem = snapshots.problem.clone().unwrap_or_else(|| "later ones were kept".to_owned());
    Some(match snapshots.failed {
        0 => format!("{problem}; {newest}"),
        failed => format!("{} {plural} failed; {newest}; {problem}", units::count(failed)),
    })
}

/// Percentiles behind a heading.
fn percentiles(of: &str, times: &LatencyPercentiles) -> String {
    let shown = |us: u64| units::duration(Duration::from_micros(us));
    format!(
        "{of} p50 {}, p99 {}, p99.9 {}",
        shown(times.p50_us),
        shown(times.p99_us),
        shown(times.p999_us)
    )
}

/// What became of snapshots, as a line; nothing where none are taken.
fn snapshots(snapshots: &SnapshotMetrics) -> String {
    let mut line = format!(
        "snapshots: {} kept, {} failed",
        units::count(snapshots.taken),
        units::count(snapshots.failed)
    );
    if let (Some(number), Some(taken_at_ms)) = (snapshots.number, snapshots.taken_at_ms) {
        line.push_str(&format!(
            "; the newest is {number} of {} UTC: {} written in {}, sources held {} (at most {})",
            format_timestamp_millis(taken_at_ms, 3),
            units::bytes(snapshots.bytes as usize),
            units::duration(snapshots.duration),
            units::duration(snapshots.hold),
            units::duration(snapshots.hold_max),
        ));
        let last = snapshots.captured_after.iter().max_by_key(|(_, after)| after);
        if let Some((stage, after)) = last {
            line.push_str(&format!(", '{stage}' captured last, after {}", units::duration(*after)));
        }
        if let (Some(holds), Some(captures)) = (&snapshots.holds, &snapshots.captures) {
            line.push_str(&percentiles("; held", holds));
            line.push_str(&percentiles("; captured", captures));
        }
    }
    if let Some(problem) = &snapshots.problem {
        line.push_str(&format!("; {problem}"));
    }
    line + "\n"
}

/// A heading, and what stands below it.
type StageColumn = (&'static str, fn(&StageSnapshot) -> String);

const COLUMNS: [StageColumn; 16] = [
    ("operator", |stage| stage.name.clone()),
    ("rows in", |stage| units::count(stage.rows_in)),
    ("bundles in", |stage| units::count(stage.bundles_in)),
    ("rows out", |stage| units::count(stage.rows_out)),
    ("bundles out", |stage| units::count(stage.bundles_out)),
    ("bytes out", |stage| units::bytes(stage.bytes_out as usize)),
    ("busy", |stage| units::duration(Duration::from_nanos(stage.busy_ns))),
    ("blocked", blocked),
    ("accepted", |stage| units::count(stage.accepted)),
    ("late", |stage| units::count(stage.late)),
    ("partly late", |stage| units::count(stage.partly_late)),
    ("quarantined", |stage| units::count(stage.quarantined)),
    ("bad rows", |stage| units::count(stage.bad_rows)),
    ("state", |stage| units::bytes(stage.state_bytes as usize)),
    ("queued", |stage| units::count(stage.queued as u64)),
    ("watermark", |stage| stage.watermark.to_string()),
];

/// The counters of each operator as a table, and the latencies of results.
pub fn metrics(job: &JobDescription, report: &Report) -> String {
    let mut output = match job.order.is_ordered() {
        true => format!("metrics of {} (order: {})\n", job.name, job.order),
        false => format!("metrics of {}\n", job.name),
    };
    output.push_str(&table(&report.metrics, &job.order_costs));
    output.push_str(&splits(&report.metrics));
    for problem in problems(&report.metrics) {
        output.push_str(&format!("{problem}\n"));
    }
    output.push_str(&report.metrics.snapshots.as_ref().map(snapshots).unwrap_or_default());
    output.push_str(&latencies(report.latency.as_ref()));
    output.push_str(&task_lengths(&report.metrics.tasks));
    let resident = memory::peak_resident_bytes()
        .map_or(String::new(), |bytes| format!(", of the process {}", units::bytes(bytes)));
    output.push_str(&format!(
        "most in flight and in state {}{resident}, run time {}\n",
        units::bytes(report.peak_bytes),
        units::duration(report.elapsed)
    ));
    output
}

fn table(metrics: &MetricsSnapshot, order_costs: &[String]) -> String {
    let headings = COLUMNS.iter().map(|(heading, _)| *heading).chain(["kind"]);
    let mut rows = vec![headings.map(str::to_owned).collect::<Vec<_>>()];
    let costs = order_costs.iter().map(String::as_str).chain(std::iter::repeat(""));
    rows.extend(metrics.stages.iter().zip(costs).map(|(stage, order_cost)| {
        COLUMNS.iter().map(|(_, cell)| cell(stage)).chain([kind(stage, order_cost)]).collect()
    }));
    // Names and the kind are text, the rest are numbers.
    aligned(&rows, |column| column == 0 || column == COLUMNS.len())
}

/// The splits of all sources that name any, as a table; nothing without.
fn splits(metrics: &MetricsSnapshot) -> String {
    let headings = ["split", "of", "position", "watermark", "lag", "bad rows", "state"];
    let rows = metrics.stages.iter().flat_map(|stage| {
        stage.splits.iter().map(move |split| {
            let SplitStatus { position, lag_rows, bad_rows, last_error, .. } = &split.status;
            let state = match (split.ended, split.idle, split.holds_back) {
                (true, ..) => Some("ended"),
                (_, true, _) => Some("idle"),
                (.., true) => Some("holds the others back"),
                _ => None,
            };
            let state = state.map(str::to_owned);
            let states: Vec<String> = state.into_iter().chain(last_error.clone()).collect();
            [
                split.name.to_string(),
                stage.name.clone(),
                position.clone().unwrap_or_default(),
                split.watermark.to_string(),
                lag_rows.map(units::count).unwrap_or_default(),
                units::count(*bad_rows),
                states.join("; "),
            ]
        })
    });
    match rows.collect::<Vec<_>>() {
        rows if rows.is_empty() => String::new(),
        rows => text_table::table(headings, rows, |column| [0, 1, 2, 6].contains(&column)),
    }
}

/// For how long a stage was blocked, by the reason that took longest.
fn blocked(stage: &StageSnapshot) -> String {
    let longest = BlockedBy::ALL.into_iter().max_by_key(|&by| stage.blocked.by(by));
    let shown = longest.filter(|&by| stage.blocked.by(by) > 0).map(|by| {
        let time = Duration::from_nanos(stage.blocked.by(by));
        format!("{} by {}", units::duration(time), by.name())
    });
    shown.unwrap_or_else(|| "0".to_owned())
}

fn kind(stage: &StageSnapshot, order_cost: &str) -> String {
    let role = match stage.role {
        StageRole::Source if stage.idle => "source (idle)",
        StageRole::Source => "source",
        StageRole::Transform => "stateless",
        StageRole::Operator => "stateful",
        StageRole::Sink => "sink",
    };
    let waits_for = stage.held_by.as_ref().map(|input| format!("waits for {input}"));
    let of_split = stage.splits.iter().find(|split| split.holds_back);
    let of_split = of_split.map(|split| format!("waits for split {}", split.name));
    let order_cost = (!order_cost.is_empty()).then(|| order_cost.to_owned());
    let words = [Some(role.to_owned()), order_cost, waits_for, of_split];
    words.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

fn latencies(latency: Option<&LatencyPercentiles>) -> String {
    let Some(latency) = latency else { return "result latency: no results\n".to_owned() };
    let percentiles = [
        ("p50", latency.p50_us),
        ("p90", latency.p90_us),
        ("p99", latency.p99_us),
        ("p99.9", latency.p999_us),
        ("p99.99", latency.p9999_us),
        ("max", latency.max_us),
    ];
    let shown = percentiles.map(|(name, latency_us)| {
        format!("{name} {}", units::duration(Duration::from_micros(latency_us)))
    });
    format!("result latency: {} ({} bundles)\n", shown.join(", "), units::count(latency.count))
}

/// A line for each kind of task.
fn task_lengths(tasks: &[TaskLengths]) -> String {
    let line = |of: &TaskLengths| {
        let percentiles =
            [("p50", of.p50_us), ("p99", of.p99_us), ("p99.99", of.p9999_us), ("max", of.max_us)];
        let shown = percentiles
            .map(|(name, us)| format!("{name} {}", units::duration(Duration::from_micros(us))));
        let (name, count, too_long) =
            (of.kind.name(), units::count(of.count), units::count(of.too_long));
        format!("tasks of {name}: {count}, {}, longer than 1 ms: {too_long}\n", shown.join(", "))
    };
    tasks.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_core::{OrderContract, Watermark};
    use thalweg_runtime::metrics::SplitSnapshot;

    fn stage(role: StageRole, rows: u64, late: u64) -> StageSnapshot {
        let metrics = thalweg_runtime::metrics::StageMetrics::new();
        let snapshot = metrics.snapshot("id", "name", role, 0);
        StageSnapshot {
            rows_in: rows,
            rows_out: rows,
            late,
            partly_late: late,
            watermark: Watermark::END,
            ..snapshot
        }
    }

    fn report() -> Report {
        let stages = vec![
            stage(StageRole::Source, 1200, 0),
            stage(StageRole::Operator, 1200, 7),
            stage(StageRole::Sink, 34, 0),
        ];
        Report {
            metrics: MetricsSnapshot { stages, ..MetricsSnapshot::default() },
            elapsed: Duration::from_millis(500),
            latency: None,
            passage: None,
            peak_bytes: 2048,
            state_peak_bytes: 1024,
            cancelled: false,
            gone: Vec::new(),
        }
    }

    #[test]
    fn jobs_are_added_up() {
        let mut totals = Totals::default();
        assert_eq!(totals.line(), None);
        let job = job(OrderContract::Epoch, &[]);
        let second_ns = 1_000_000_000;
        totals.started(0, 7 * second_ns);
        totals.add(&job, &report());
        assert!(totals.jobs().is_empty(), "one job has one line");
        totals.started(1, 7 * second_ns + second_ns / 2);
        totals.ended(1, 7 * second_ns + second_ns / 2);
        totals.add(&job, &report());
        totals.ended(0, 8 * second_ns);
        let line = totals.line().expect("two jobs ran");
        let start = "2,400 rows in, 68 out, 14 late, 14 partly late in 1.00 s (2.40 k rows/s)";
        assert!(line.starts_with(start), "{line}");
        let own = "the job: 1,200 rows in, 34 out, 7 late, 7 partly late in 500 ms (2.40 k rows/s)";
        assert_eq!(totals.jobs(), [own, own]);
    }

    #[test]
    fn rows_that_are_missing_from_results_are_named() {
        assert_eq!(missing_rows(&MetricsSnapshot::default()), None);
        let mut metrics = report().metrics;
        metrics.stages[0].bad_rows = 1;
        metrics.stages[0].quarantined = 1200;
        let expected = "rows missing from results: 7 late, 7 partly late, 1 bad, 1,200 quarantined";
        assert_eq!(missing_rows(&metrics).as_deref(), Some(expected));
    }

    fn job(order: OrderContract, order_costs: &[&str]) -> JobDescription {
        JobDescription {
            name: "the job".to_owned(),
            place: 0,
            workers: 1,
            memory_limit_bytes: 1 << 20,
            order,
            order_costs: order_costs.iter().map(|&cost| cost.to_owned()).collect(),
            is_bounded: true,
            printing: Vec::new(),
        }
    }

    #[test]
    fn an_ordered_job_says_what_keeps_its_rows_in_order() {
        let mut report = report();
        report.metrics.stages[2].held_by = Some("b".to_owned());
        let job = job(OrderContract::EventTime, &["", "scatter by key, reorder", "merge by time"]);
        let text = metrics(&job, &report);
        let line = |place: usize| text.lines().nth(place).expect("a line");
        assert_eq!(line(0), "metrics of the job (order: event_time)");
        assert!(line(2).ends_with("  source"), "{text}");
        assert!(line(3).ends_with("  stateful; scatter by key, reorder"), "{text}");
        assert!(line(4).ends_with("  sink; merge by time; waits for b"), "{text}");
    }

    #[test]
    fn splits_are_shown_with_what_holds_them_up() {
        let mut report = report();
        let split = |name: &str, watermark, holds_back, lag_rows| SplitSnapshot {
            name: name.into(),
            watermark: Watermark(watermark),
            idle: false,
            ended: false,
            holds_back,
            status: SplitStatus { lag_rows, last_error: None, ..SplitStatus::default() },
            ..SplitSnapshot::default()
        };
        assert_eq!(splits(&report.metrics), "");
        let mut broken = split("orders-1", 0, true, Some(1200));
        broken.status.last_error = Some("no route to host".to_owned());
        report.metrics.stages[0].splits = vec![split("orders-0", 9, false, None), broken];
        let text = splits(&report.metrics);
        let last = text.lines().nth(2).expect("two splits");
        assert!(last.starts_with("orders-1"), "{text}");
        assert!(
            last.ends_with("1,200         0  holds the others back; no route to host"),
            "{text}"
        );
        let text = metrics(&job(OrderContract::Epoch, &[]), &report);
        assert!(text.contains("source; waits for split orders-1"), "{text}");
    }

    #[test]
    fn what_became_of_snapshots_is_reported() {
        let mut own = SnapshotMetrics {
            taken: 3,
            number: Some(12),
            taken_at_ms: Some(0),
            bytes: 2048,
            duration: Duration::from_millis(30),
            hold: Duration::from_millis(2),
            hold_max: Duration::from_millis(4),
            ..SnapshotMetrics::default()
        };
        assert_eq!(snapshot_problem(&own), None);
        assert_eq!(
            snapshots(&own),
            "snapshots: 3 kept, 0 failed; the newest is 12 of 1970-01-01 00:00:00.000 UTC: 2.00 KiB written \
             in 30.0 ms, sources held 2.00 ms (at most 4.00 ms)\n"
        );
        own.captured_after = [("window", 3), ("print", 2)]
            .map(|(n, ms)| (n.to_owned(), Duration::from_millis(ms)))
            .into();
        let line = snapshots(&own);
        assert!(line.ends_with("4.00 ms), 'window' captured last, after 3.00 ms\n"), "{line}");
        own.failed = 1;
        let problem = snapshot_problem(&own).expect("one failed");
        assert_eq!(problem, "1 snapshot failed; the newest is 12; later ones were kept");
        own.problem = Some("snapshots fail: the disk is full".to_owned());
        assert!(snapshots(&own).ends_with("; snapshots fail: the disk is full\n"));
        let mut report = report();
        report.metrics.snapshots = Some(own);
        let mut totals = Totals::default();
        totals.add(&job(OrderContract::Epoch, &[]), &report);
        assert!(totals.line().expect("a job ran").ends_with("the disk is full"));
    }

    #[test]
    fn the_table_has_a_line_for_each_stage() {
        let text = metrics(&job(OrderContract::Epoch, &["", "", ""]), &report());
        assert!(text.starts_with("metrics of the job\n"), "{text}");
        assert_eq!(text.lines().count(), 1 + 1 + 3 + 2);
        let header = text.lines().nth(1).expect("a header");
        let operator = text.lines().nth(3).expect("the operator");
        let end_of = |line: &str, word: &str| line.find(word).expect("the word") + word.len();
        assert_eq!(end_of(header, "rows in"), end_of(operator, "1,200"), "right-aligned");
        assert!(text.contains("no results"));
    }
}
