//! Tables of what was measured, as Markdown: medians of repetitions, with the smallest and the
//! largest.
//!
//! The same rows give the same tables. What misses its goal is shown with the others, and says so.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::Value;

use super::percentiles::median;
use super::point::{Engine, Kind, Point, grouped};
use super::{bounded, contrasts, noise};

/// Within this, or what the machine itself takes and a millisecond, has p99.99 of query 5 at 1 M
/// events/s to be.
pub const Q5_MS_MAX: f64 = 4.0;
/// The same for rows.
pub const ROWS_MS_MAX: f64 = 2.0;
/// Of an event into an idle pipeline, at p99.
pub const IDLE_MS_MAX: f64 = 1.0;
/// Of the floor, what queries 0 to 2 reach.
pub const OF_FLOOR_MIN: f64 = 0.6;
/// Of a hundred jobs, at p99.99.
pub const JOBS_MS_MAX: f64 = 50.0;
/// Of the job that read most, what the one reads that read least.
const JOBS_SHARE_MIN: f64 = 0.9;
/// Results are in time again so long behind a burst.
pub const BACK_MS_MAX: f64 = 2_000.0;

/// Repetitions of one point.
pub struct Measured<'a> {
    pub point: Point,
    pub rows: Vec<&'a Value>,
}

impl Measured<'_> {
    /// The median of a number in the rows, with the spread.
    pub fn median(&self, of: impl Fn(&Value) -> Option<f64>) -> Option<(f64, f64, f64)> {
        median(self.rows.iter().filter_map(|row| of(row)))
    }

    /// The same of the number at a JSON pointer.
    pub fn number(&self, path: &str) -> Option<(f64, f64, f64)> {
        self.median(|row| row.pointer(path)?.as_f64())
    }

    /// What the machine itself kept threads waiting for.
    pub fn noise_ms(&self) -> Option<f64> {
        self.median(noise::p99_99_ms).map(|noise| noise.0)
    }

    fn is_right(&self) -> bool {
        self.rows.iter().all(|row| row["check"] == "ok")
    }
}

/// Rows by point, in the sequence in which points first came.
pub fn group<'a>(rows: impl IntoIterator<Item = &'a Value>) -> Vec<Measured<'a>> {
    let mut groups: Vec<Measured<'a>> = Vec::new();
    for row in rows {
        let Ok(point) = serde_json::from_value::<Point>(row["point"].clone()) else { continue };
        match groups.iter_mut().find(|group| group.point == point) {
            Some(group) => group.rows.push(row),
            None => groups.push(Measured { point, rows: vec![row] }),
        }
    }
    // A point that failed and then did not is measured.
    for group in &mut groups {
        if group.rows.iter().any(|row| row["failed"].is_null()) {
            group.rows.retain(|row| row["failed"].is_null());
        }
    }
    groups
}

/// All tables.
pub fn all(rows: &[&Value]) -> String {
    let groups = group(rows.iter().copied());
    let of = |kind: Kind| groups.iter().filter(move |group| group.point.kind == kind);
    let mut text = String::new();
    let tables = [
        latency(&of(Kind::Latency).collect::<Vec<_>>()),
        idle(&of(Kind::Idle).collect::<Vec<_>>()),
        jobs(&of(Kind::Jobs).collect::<Vec<_>>()),
        bursts(&of(Kind::Burst).collect::<Vec<_>>()),
        bounded::table(&of(Kind::Step).collect::<Vec<_>>()),
        blocks(&of(Kind::Throughput).collect::<Vec<_>>()),
        contrasts::peers(&of(Kind::Throughput).collect::<Vec<_>>()),
        contrasts::scaling(&groups.iter().collect::<Vec<_>>()),
        disorder(&of(Kind::Disorder).collect::<Vec<_>>()),
        contrasts::ablations(&of(Kind::Ablations).collect::<Vec<_>>()),
    ];
    tables.into_iter().flatten().for_each(|table| text += &format!("{table}\n"));
    text
}

type Groups<'a, 'b> = [&'b Measured<'a>];

fn spread(of: Option<(f64, f64, f64)>) -> String {
    match of {
        None => "–".to_owned(),
        Some((middle, low, high)) if low == high => short(middle),
        Some((middle, low, high)) => {
            format!("{} ({} to {})", short(middle), short(low), short(high))
        }
    }
}

pub fn short(number: f64) -> String {
    match number.abs() {
        100.0.. => format!("{number:.0}"),
        10.0.. => format!("{number:.1}"),
        _ => format!("{number:.2}"),
    }
}

pub fn megabytes(of: Option<(f64, f64, f64)>) -> String {
    of.map_or_else(|| "–".to_owned(), |(bytes, ..)| format!("{:.0}", bytes / f64::from(1 << 20)))
}

fn latency(groups: &Groups<'_, '_>) -> Option<String> {
    let mut text = String::from(
        "### Latency at a fixed rate\n\n\
         Milliseconds, medians of runs (smallest to largest). The clock starts when an event is due; “machine” is what \
         threads that only read the clock are kept waiting at p99.99, before and after.\n\n\
         | query | events/s | engine | row | p50 | p99 | p99.9 | p99.99 | max | machine | goal | cores | ns CPU per event | MB | result |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for group in groups {
        if let Some(problem) = group.rows.first().and_then(|row| row["failed"].as_str()) {
            let problem = problem.lines().next().unwrap_or_default().replace('|', "/");
            let _ = writeln!(text, "| {} | | | FAILED: {problem} |", group.point.label());
            continue;
        }
        for (row, name) in [("first", first_name(group)), ("last", "last of window")] {
            let of = |percentile: &str| group.number(&format!("/{row}/{percentile}"));
            if of("p50_ms").is_none() {
                continue;
            }
            let percentiles = ["p50_ms", "p99_ms", "p99_9_ms", "p99_99_ms", "max_ms"];
            let cells: Vec<String> = percentiles.iter().map(|name| spread(of(name))).collect();
            let goal = if row == "first" { goal(group, groups) } else { String::new() };
            let _ = writeln!(
                text,
                "| {} | {} | {} | {name} | {} | {} | {goal} | {} | {} | {} | {} |",
                group.point.workload,
                grouped(group.point.events_per_second),
                group.point.engine.name(),
                cells.join(" | "),
                group.noise_ms().map_or("–".to_owned(), short),
                group.number("/cores_used").map_or("–".to_owned(), |cores| short(cores.0)),
                group.number("/cpu_ns_per_event").map_or("–".to_owned(), |ns| short(ns.0)),
                megabytes(group.number("/resident_peak_bytes")),
                result(group),
            );
        }
    }
    (!groups.is_empty()).then_some(text)
}

fn first_name(group: &Measured<'_>) -> &'static str {
    match group.rows.first().and_then(|row| row["clock"].as_str()) {
        Some("window end") => "first of window",
        Some("row") => "each",
        _ => "each bundle, engine's clock",
    }
}

fn result<'a>(group: &Measured<'a>) -> &'a str {
    match group.is_right() {
        true => "ok",
        false => group.rows.iter().find_map(|row| row["check"].as_str()).unwrap_or("not checked"),
    }
}

/// The goals of a point, and whether they are met.
fn goal(group: &Measured<'_>, groups: &Groups<'_, '_>) -> String {
    let point = &group.point;
    let Some((found, ..)) = group.number("/first/p99_99_ms") else { return String::new() };
    if point.engine != Engine::Thalweg {
        return String::new();
    }
    let machine_ms = group.noise_ms().unwrap_or(0.0) + 1.0;
    let mut goals = Vec::new();
    match point.workload.as_str() {
        "q5" if point.events_per_second == 1_000_000 => {
            goals.push(judged(found, Q5_MS_MAX, machine_ms, ""));
        }
        "q1" | "q2" | "q13" => goals.push(judged(found, ROWS_MS_MAX, machine_ms, "")),
        _ => {}
    }
    let peer = groups.iter().find(|other| {
        other.point.engine == Engine::Hazelcast
            && other.point.workload == point.workload
            && other.point.events_per_second == point.events_per_second
    });
    if let Some((theirs, ..)) = peer.and_then(|peer| peer.number("/first/p99_99_ms")) {
        goals.push(judged(found, theirs / 3.0, machine_ms, " (a third)"));
    }
    goals.join(", ")
}

/// Whether a latency is within its goal, and if not, whether it is within what the machine itself
/// takes.
fn judged(found_ms: f64, goal_ms: f64, machine_ms: f64, why: &str) -> String {
    let outcome = if found_ms <= goal_ms {
        "met".to_owned()
    } else if found_ms <= machine_ms {
        format!("no, but within the machine's {}", short(machine_ms))
    } else {
        "**missed**".to_owned()
    };
    format!("≤ {}{why}: {outcome}", short(goal_ms))
}

pub fn met(is_met: bool) -> &'static str {
    if is_met { "met" } else { "**missed**" }
}

fn idle(groups: &Groups<'_, '_>) -> Option<String> {
    let mut text = String::from(
        "### An event into an idle pipeline\n\n\
         Workers that have nothing to do park, as is the default, or spin (`pipeline.spin`).\n\n\
         | workers | events | p50 | p99 | p99.9 | max ms | cores used | MB | machine p99.99 | goal p99 ≤ 1 ms | result |\n|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for group in groups {
        let of = |name: &str| group.number(&format!("/first/{name}"));
        let p99 = of("p99_ms").map_or(f64::INFINITY, |p99| p99.0);
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            group.point.variant,
            of("count").map_or(0.0, |count| count.0),
            spread(of("p50_ms")),
            spread(of("p99_ms")),
            spread(of("p99_9_ms")),
            spread(of("max_ms")),
            spread(group.number("/cores_used")),
            megabytes(group.number("/resident_peak_bytes")),
            group.noise_ms().map_or("–".to_owned(), short),
            met(p99 <= IDLE_MS_MAX),
            result(group),
        );
    }
    (!groups.is_empty()).then_some(text)
}

fn jobs(groups: &Groups<'_, '_>) -> Option<String> {
    let mut text = String::from(
        "### Many jobs on one pool\n\n\
         Query 5, 10 s sliding by 10 ms, 10,000 keys, the ten with most bids of each slide; all jobs together. The clock starts \
         when the last event of a window is due.\n\n\
         | jobs | events/s in all | p50 | p99 | p99.9 | p99.99 ms | of the slowest job | machine | goal | least to most rows of a job | cores | ns CPU per event | MB | result |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for group in groups {
        let of = |name: &str| spread(group.number(&format!("/first/{name}")));
        let p99_99 = group.number("/first/p99_99_ms").map_or(f64::INFINITY, |found| found.0);
        let machine_ms = group.noise_ms().unwrap_or(0.0) + 1.0;
        let rows = |name: &str| group.number(name).map_or(0.0, |rows| rows.0);
        let share = rows("/rows_least") / rows("/rows_most").max(1.0);
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {share:.2}, ≥ {JOBS_SHARE_MIN}: {} | {} | {} | {} | {} |",
            group.point.variant,
            grouped(group.point.events_per_second),
            of("p50_ms"),
            of("p99_ms"),
            of("p99_9_ms"),
            of("p99_99_ms"),
            spread(group.number("/worst_job_p99_99_ms")),
            group.noise_ms().map_or("–".to_owned(), short),
            judged(p99_99, JOBS_MS_MAX, machine_ms, ""),
            met(share >= JOBS_SHARE_MIN),
            spread(group.number("/cores_used")),
            spread(group.number("/cpu_ns_per_event")),
            megabytes(group.number("/resident_peak_bytes")),
            result(group),
        );
    }
    (!groups.is_empty()).then_some(text)
}

fn bursts(groups: &Groups<'_, '_>) -> Option<String> {
    let mut text = String::from(
        "### Bursts and overload\n\n\
         | rate | times | p99 before | latest result ms | back after ms | goal 2 s | ns CPU per event | MB | result |\n|---|---|---|---|---|---|---|---|---|\n",
    );
    for group in groups {
        let back = group.number("/recovery/back_after_ms");
        // Overload has to be got over; how soon depends on how much there was.
        let is_burst = group.point.variant.starts_with("10 ");
        let goal = back.filter(|_| is_burst).map_or("", |back| met(back.0 <= BACK_MS_MAX));
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {goal} | {} | {} | {} |",
            grouped(group.point.events_per_second),
            group.point.variant,
            spread(group.number("/recovery/before/p99_ms")),
            spread(group.number("/recovery/worst_ms")),
            spread(back),
            spread(group.number("/cpu_ns_per_event")),
            megabytes(group.number("/resident_peak_bytes")),
            result(group),
        );
    }
    (!groups.is_empty()).then_some(text)
}

/// Workload and variant to the median over their runs, with the smallest and the largest.
pub type OfBlocks = BTreeMap<(String, String), (f64, f64, f64)>;

/// Millions per second of processor time.
pub fn block_rates(groups: &Groups<'_, '_>) -> OfBlocks {
    of_blocks(groups, |run| {
        let events = run["events"].as_f64().or(run["rows_in"].as_f64())?;
        Some(events / run["cpu_seconds"].as_f64()?.max(1e-9) / 1e6)
    })
}

fn of_blocks(groups: &Groups<'_, '_>, of: impl Fn(&Value) -> Option<f64>) -> OfBlocks {
    let mut found: BTreeMap<(String, String), Vec<f64>> = BTreeMap::new();
    let runs = groups.iter().flat_map(|group| &group.rows);
    for run in runs.filter_map(|row| row["runs"].as_array()).flatten() {
        let (workload, variant) = (run["workload"].as_str(), run["variant"].as_str());
        if let (Some(workload), Some(variant), Some(found_here)) = (workload, variant, of(run)) {
            found.entry((workload.to_owned(), variant.to_owned())).or_default().push(found_here);
        }
    }
    found.into_iter().filter_map(|(key, found)| Some((key, median(found)?))).collect()
}

fn blocks(groups: &Groups<'_, '_>) -> Option<String> {
    let rates = block_rates(groups);
    let memory = of_blocks(groups, |run| run["resident_peak_bytes"].as_f64());
    let mut text = String::from(
        "### Throughput\n\n\
         Million input rows per second of processor time, medians of runs that alternate; floors are loops by hand over the \
         same batches in memory, compiled with the same flags.\n\n\
         | workload | variant | rate | ns CPU per row | MB | of the floor | goal |\n|---|---|---|---|---|---|---|\n",
    );
    for (block, rate) in &rates {
        let (workload, variant) = block;
        let floor =
            rates.iter().find(|((of, name), _)| of == workload && name.starts_with("floor"));
        let share = floor.map(|(_, floor)| rate.0 / floor.0);
        let ratio = share.map_or("–".to_owned(), |share| format!("{share:.2}"));
        let has_goal = matches!(workload.as_str(), "q0" | "q1" | "q2") && variant == "engine";
        let goal = share.filter(|_| has_goal).map(|share| met(share >= OF_FLOOR_MIN));
        let goal = goal.map_or(String::new(), |met| format!("≥ {OF_FLOOR_MIN}: {met}"));
        let (ns, memory) = (short(1e3 / rate.0), megabytes(memory.get(block).copied()));
        let rate = spread(Some(*rate));
        let _ = writeln!(
            text,
            "| {workload} | {variant} | {rate} | {ns} | {memory} | {ratio} | {goal} |"
        );
    }
    (!rates.is_empty()).then_some(text)
}

fn disorder(groups: &Groups<'_, '_>) -> Option<String> {
    let mut text = String::from(
        "### Records before their time\n\n\
         | workload | share early | million rows per wall second | of none early | ns CPU per row | MB | result |\n|---|---|---|---|---|---|---|\n",
    );
    for group in groups {
        let rate = group.number("/rows_per_second");
        let none = groups.iter().find(|other| {
            other.point.workload == group.point.workload && other.point.variant == "0"
        });
        let of_none = none.and_then(|none| none.number("/rows_per_second"));
        let ratio = rate.zip(of_none).map(|(rate, none)| format!("{:.2}", rate.0 / none.0));
        let millions = |(a, b, c): (f64, f64, f64)| (a / 1e6, b / 1e6, c / 1e6);
        let _ = writeln!(
            text,
            "| {} | {} % | {} | {} | {} | {} | {} |",
            group.point.workload,
            group.point.variant,
            spread(rate.map(millions)),
            ratio.unwrap_or_else(|| "–".to_owned()),
            spread(group.number("/cpu_ns_per_event")),
            megabytes(group.number("/resident_peak_bytes")),
            result(group),
        );
    }
    (!groups.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn row(engine: Engine, p99_99_ms: f64) -> Value {
        let point = Point { engine, ..Point::new("latency-q5", Kind::Latency, "q5", 1_000_000) };
        let first = json!({ "count": 1500, "p50_ms": 1.0, "p90_ms": 1.5, "p99_ms": 2.0,
            "p99_9_ms": 3.0, "p99_99_ms": p99_99_ms, "max_ms": 9.0 });
        json!({ "point": point, "first": first, "check": "ok", "clock": "window end",
            "noise_before": { "ticks": { "p99_99_ms": 0.5 } } })
    }

    #[test]
    fn goals_are_reported_with_what_they_are_compared_with() {
        let rows =
            [row(Engine::Thalweg, 3.9), row(Engine::Thalweg, 3.5), row(Engine::Hazelcast, 9.0)];
        let text = all(&rows.iter().collect::<Vec<_>>());
        assert!(text.contains("3.70 (3.50 to 3.90)"), "{text}");
        assert!(text.contains("≤ 4.00: met, ≤ 3.00 (a third): **missed**"), "{text}");
    }

    #[test]
    fn the_machine_is_the_bound_where_it_is_slower() {
        let mut noisy = row(Engine::Thalweg, 20.0);
        noisy["noise_after"] = json!({ "ticks": { "p99_99_ms": 25.0 } });
        let text = all(&[&noisy]);
        assert!(text.contains("≤ 4.00: no, but within the machine's 26.0"), "{text}");
    }

    #[test]
    fn a_point_that_failed_shows_until_it_is_measured() {
        let ok = row(Engine::Thalweg, 1.0);
        let failed = json!({ "point": ok["point"], "failed": "no end within 9 s | stopped\nmore" });
        let text = all(&[&failed]);
        assert!(text.contains("FAILED: no end within 9 s / stopped |"), "{text}");
        assert!(!all(&[&failed, &ok]).contains("FAILED"));
    }

    #[test]
    fn a_wrong_result_shows() {
        let mut wrong = row(Engine::Thalweg, 1.0);
        wrong["check"] = json!("WRONG: 1 rows, expected 2");
        assert!(all(&[&wrong]).contains("| WRONG: 1 rows, expected 2 |"));
    }

    #[test]
    fn rates_are_compared_with_their_floor() {
        let point = Point::new("throughput-blocks", Kind::Throughput, "merge", 0);
        let run = |variant: &str, cpu_seconds: f64| json!({ "workload": "w", "variant": variant, "events": 1e6, "cpu_seconds": cpu_seconds });
        let row =
            json!({ "point": point, "runs": [run("floor: a loop", 0.5), run("engine", 1.0)] });
        let text = all(&[&row]);
        assert!(text.contains("| w | engine | 1.00 | 1000 | – | 0.50 |  |"), "{text}");
    }
}
