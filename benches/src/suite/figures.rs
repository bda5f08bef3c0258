//! The figures of `benches/RESULTS.md` that this suite measures: a line of JSON for each workload
//! and goal.
//!
//! `cargo xtask results` makes the page of these lines and of those in `figures/measured.jsonl`,
//! which are written by hand. A figure is the median of the runs of one commit; its spread is the
//! smallest and the largest of them. [`tables`](super::tables) shows every percentile; both take
//! their numbers from the same functions.

use std::io;
use std::path::Path;

use serde::Serialize;
use serde_json::Value;

use super::bounded::{self, Workload};
use super::contrasts;
use super::parts::Mode;
use super::point::{Engine, Kind, grouped};
use super::publish::{date, machine};
use super::record::part_of;
use super::streambox::paper_per_core;
use super::tables::{self, Measured, short};

/// One line of the page.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    area: &'static str,
    workload: String,
    measure: String,
    figure: String,
    spread: String,
    unit: &'static str,
    goal: String,
    /// `yes`, `no`, or why a miss does not count; empty without a goal.
    met: String,
    date: String,
    command: String,
    machine: String,
    commit: String,
    /// Seconds since 1970; of two lines for one thing the newer one stands on the page.
    at: i64,
}

/// What a figure should be.
#[derive(Clone, Copy)]
enum Goal {
    AtMost(f64),
    AtLeast(f64),
}

impl Goal {
    fn text(self) -> String {
        match self {
            Goal::AtMost(most) => format!("at most {}", trimmed(most)),
            Goal::AtLeast(least) => format!("at least {}", trimmed(least)),
        }
    }

    fn is_met(self, found: f64) -> bool {
        match self {
            Goal::AtMost(most) => found <= most,
            Goal::AtLeast(least) => found >= least,
        }
    }
}

/// Without zeros that say nothing.
fn trimmed(number: f64) -> String {
    let text = format!("{number:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

type Median = (f64, f64, f64);

const LATENCY: &str = "Latency";
const BOUNDED: &str = "Highest rate within a bound on the delay";
const LOOPS: &str = "Throughput of one worker";
const OTHERS: &str = "Other engines";
const SCALING: &str = "A second worker, and more";
const PAPERS: &str = "The papers' workloads";

fn spread((_, low, high): Median) -> String {
    if low == high { String::new() } else { format!("{} to {}", short(low), short(high)) }
}

/// Writes the figures of all rows as lines of JSON.
///
/// # Errors
/// If the file can't be written.
pub fn write(file: &Path, rows: &[&Value], mode: Mode) -> io::Result<()> {
    let line = |figure: &Figure| serde_json::to_string(figure).expect("texts and numbers") + "\n";
    let lines: String = all(rows, mode).iter().map(line).collect();
    std::fs::create_dir_all(file.parent().unwrap_or(Path::new(".")))?;
    std::fs::write(file, lines)
}

/// All figures.
fn all(rows: &[&Value], mode: Mode) -> Vec<Figure> {
    let groups = tables::group(rows.iter().copied());
    let of = |kind: Kind| -> Vec<&Measured<'_>> {
        groups.iter().filter(|group| group.point.kind == kind).collect()
    };
    let page = Page { rows, mode };
    let mut figures = page.latencies(&of(Kind::Latency));
    figures.extend(page.single(&of(Kind::Idle), idle));
    figures.extend(page.single(&of(Kind::Jobs), jobs));
    figures.extend(page.single(&of(Kind::Burst), burst));
    figures.extend(page.bounded(&of(Kind::Step)));
    figures.extend(page.blocks(&of(Kind::Throughput)));
    figures.extend(page.peers(&of(Kind::Throughput)));
    figures.extend(page.scaling(&groups.iter().collect::<Vec<_>>()));
    figures.extend(page.disorder(&of(Kind::Disorder)));
    figures.extend(page.ablations(&of(Kind::Ablations)));
    figures
}

/// What a kind of point shows: area, workload, measure, the figure, its unit and its goal.
type Shown = (&'static str, String, &'static str, Median, &'static str, Option<Goal>);

fn idle(group: &Measured<'_>) -> Option<Shown> {
    let workload = format!("one event into an idle pipeline, workers {}", group.point.variant);
    let goal = Some(Goal::AtMost(tables::IDLE_MS_MAX));
    Some((LATENCY, workload, "p99", group.number("/first/p99_ms")?, "ms", goal))
}

fn jobs(group: &Measured<'_>) -> Option<Shown> {
    let rate = grouped(group.point.events_per_second);
    let workload = format!("{} on one pool, q5 at {rate} events/s in all", group.point.variant);
    let goal = Some(Goal::AtMost(tables::JOBS_MS_MAX));
    Some((LATENCY, workload, "p99.99", group.number("/first/p99_99_ms")?, "ms", goal))
}

fn burst(group: &Measured<'_>) -> Option<Shown> {
    let rate = grouped(group.point.events_per_second);
    let workload = format!("q5, burst of {rate} events/s times {}", group.point.variant);
    // How soon overload is over depends on how much there was: only the burst has a goal.
    if !group.point.variant.starts_with("10 ") {
        return None;
    }
    let goal = Some(Goal::AtMost(tables::BACK_MS_MAX));
    let back = group.number("/recovery/back_after_ms")?;
    Some((LATENCY, workload, "on time again after", back, "ms", goal))
}

/// What all figures of a page share.
struct Page<'a> {
    rows: &'a [&'a Value],
    mode: Mode,
}

impl Page<'_> {
    fn figure(&self, part: &str, (area, workload, measure, found, unit, goal): Shown) -> Figure {
        let newest = self.rows.iter().filter(|row| part_of(row) == part);
        let newest = newest.max_by_key(|row| row["at"].as_i64()).copied().unwrap_or(&Value::Null);
        let at = newest["at"].as_i64().unwrap_or(0);
        let full = if self.mode == Mode::Full { " --full" } else { "" };
        let met = |goal: Goal| if goal.is_met(found.0) { "yes" } else { "no" };
        Figure {
            area,
            workload,
            measure: measure.to_owned(),
            figure: short(found.0),
            spread: spread(found),
            unit,
            goal: goal.map(Goal::text).unwrap_or_default(),
            met: goal.map(met).unwrap_or_default().to_owned(),
            date: date(at.div_euclid(86_400)),
            command: format!("suite{full} --only {part}"),
            machine: machine(newest),
            commit: newest["commit"].as_str().unwrap_or("unknown").to_owned(),
            at,
        }
    }

    fn single(
        &self,
        groups: &[&Measured<'_>],
        show: fn(&Measured<'_>) -> Option<Shown>,
    ) -> Vec<Figure> {
        let shown = groups.iter().filter_map(|group| Some((group, show(group)?)));
        shown.map(|(group, shown)| self.figure(&group.point.part, shown)).collect()
    }

    fn latencies(&self, groups: &[&Measured<'_>]) -> Vec<Figure> {
        let ours = groups.iter().filter(|group| group.point.engine == Engine::Thalweg);
        let mut figures = Vec::new();
        for group in ours {
            let (Some(p50), Some(p99_99)) =
                (group.number("/first/p50_ms"), group.number("/first/p99_99_ms"))
            else {
                continue;
            };
            let rate = grouped(group.point.events_per_second);
            let workload = format!("{} at {rate} events/s", group.point.workload);
            let shown = (LATENCY, workload.clone(), "p99.99", p99_99, "ms", latency_goal(group));
            let mut figure = self.figure(&group.point.part, shown);
            figure.figure += &format!(" (p50 {})", short(p50.0));
            excuse(&mut figure, group, p99_99.0);
            figures.push(figure);
            if let Some(theirs) = peer(group, groups) {
                let third = Some(Goal::AtMost(theirs / 3.0));
                let measure = "p99.99, against a third of Hazelcast's";
                let shown = (LATENCY, workload, measure, p99_99, "ms", third);
                let mut figure = self.figure(&group.point.part, shown);
                excuse(&mut figure, group, p99_99.0);
                figures.push(figure);
            }
        }
        figures
    }

    fn bounded(&self, groups: &[&Measured<'_>]) -> Vec<Figure> {
        let mut figures = Vec::new();
        for workload in Workload::all(groups) {
            let goal = paper_per_core(workload.name).map(|paper| paper * bounded::TIMES_PAPER_MIN);
            let (bound_ms, measure) = match goal {
                Some(_) => (1_000, "events/s per core, all results within 1 s"),
                None => (500, "events/s, all results within 500 ms"),
            };
            let Some(best) = workload.best(bound_ms) else { continue };
            let (clock, per_core) = bounded::rates(best);
            let found = if goal.is_some() { per_core } else { clock };
            let (name, goal) = (workload.name.to_owned(), goal.map(Goal::AtLeast));
            let shown = (BOUNDED, name, measure, (found, found, found), "M/s", goal);
            figures.push(self.figure(&best.point.part, shown));
        }
        figures
    }

    fn blocks(&self, groups: &[&Measured<'_>]) -> Vec<Figure> {
        let rates = tables::block_rates(groups);
        let mut figures = Vec::new();
        for ((workload, variant), &rate) in &rates {
            let part = match workload.starts_with('q') {
                true => "throughput-nexmark",
                false => "throughput-blocks",
            };
            let is_base = |(of, name): &(String, String), base: &str| {
                of == workload && name.starts_with(base)
            };
            let base = |base: &str| {
                rates.iter().find(|(block, _)| is_base(block, base)).map(|(_, rate)| rate.0)
            };
            if let Some(goal) = rate_goal(workload, variant) {
                let name = workload.clone();
                let shown = (LOOPS, name, "per CPU second", rate, "M/s", Some(goal));
                figures.push(self.figure(part, shown));
            }
            let compared = match variant.as_str() {
                "engine" | "engine, 1 worker" => Some(("of the loop by hand", base("floor"))),
                "arrival, 1 worker" => Some(("`arrival` of `epoch`", base("engine, 1"))),
                _ => None,
            };
            let Some((measure, Some(base))) = compared else { continue };
            let ratio = (rate.0 / base, rate.1 / base, rate.2 / base);
            let shown =
                (LOOPS, workload.clone(), measure, ratio, "", ratio_goal(workload, variant));
            let mut figure = self.figure(part, shown);
            figure.figure += &format!(" ({} M/s)", short(rate.0));
            figures.push(figure);
        }
        figures
    }

    fn peers(&self, groups: &[&Measured<'_>]) -> Vec<Figure> {
        let mut figures = Vec::new();
        for compared in contrasts::compared(groups) {
            let here = (compared.here, compared.here, compared.here);
            let query = compared.query.to_owned();
            if let Some(goal) = compared.goal {
                let goal = Some(Goal::AtLeast(goal));
                let shown = (OTHERS, query.clone(), "per core, two workers", here, "M/s", goal);
                figures.push(self.figure("throughput-peers", shown));
            }
            figures.push(self.compared(&compared));
        }
        figures
    }

    /// One line with all other engines.
    fn compared(&self, compared: &contrasts::Compared<'_>) -> Figure {
        let others = &compared.others;
        let join = |cells: Vec<String>| cells.join("; ");
        let names = join(others.iter().map(|other| other.0.to_owned()).collect());
        let times = join(others.iter().map(|other| short(compared.here / other.1)).collect());
        let rates = join(others.iter().map(|other| short(other.1)).collect());
        let least = |other: &(&str, f64, Option<f64>)| {
            other.2.map(|least| format!("{} × {}", trimmed(least), other.0))
        };
        let is_met = |other: &(&str, f64, Option<f64>)| {
            other.2.is_none_or(|least| compared.here / other.1 >= least)
        };
        let nothing = (0.0, 0.0, 0.0);
        let query = compared.query.to_owned();
        let shown = (OTHERS, query, "", nothing, "", None);
        Figure {
            measure: format!("times {names}, per core"),
            figure: format!("{times} ({} M/s against {rates})", short(compared.here)),
            goal: format!("at least {}", join(others.iter().filter_map(least).collect())),
            met: if others.iter().all(is_met) { "yes" } else { "no" }.to_owned(),
            ..self.figure("throughput-peers", shown)
        }
    }

    /// Workloads of the part `scaling`; building blocks are in the tables.
    fn scaling(&self, groups: &[&Measured<'_>]) -> Vec<Figure> {
        let show = |scaled: contrasts::Scaled| {
            let apart = scaled.apart?;
            let times = scaled.wall[1] / scaled.wall[0];
            let goal = Some(Goal::AtLeast(contrasts::SCALING_MIN));
            let times = (times, times, times);
            let shown = (SCALING, scaled.workload, "times the rate of one worker", times, "", goal);
            let mut figure = self.figure("scaling", shown);
            figure.figure += &format!(" (two engines {})", short(apart / scaled.wall[0]));
            Some(figure)
        };
        contrasts::scaled(groups).into_iter().filter_map(show).collect()
    }

    fn disorder(&self, groups: &[&Measured<'_>]) -> Vec<Figure> {
        let mut figures = Vec::new();
        for group in groups.iter().filter(|group| group.point.variant != "0") {
            let is_base = |other: &&&Measured<'_>| {
                other.point.workload == group.point.workload && other.point.variant == "0"
            };
            let base = groups.iter().find(is_base).and_then(|base| base.number("/rows_per_second"));
            let Some((rate, base)) = group.number("/rows_per_second").zip(base) else { continue };
            let workload = format!("{}, {} % early", group.point.workload, group.point.variant);
            let ratio = (rate.0 / base.0, rate.1 / base.0, rate.2 / base.0);
            let goal = EARLY_GOALS.iter().find(|(early, _)| *early == group.point.variant);
            let goal = goal.map(|&(_, share)| Goal::AtLeast(share));
            let shown = (PAPERS, workload, "of the rate with none early", ratio, "", goal);
            figures.push(self.figure("disorder", shown));
        }
        figures
    }

    /// One line for each variant, with all benchmarks. Priorities are left out: with one source and
    /// two workers there is nothing for them to decide.
    fn ablations(&self, groups: &[&Measured<'_>]) -> Vec<Figure> {
        let all = contrasts::ablated(groups);
        let shown = ABLATIONS.iter().filter_map(|(figure, variant, workload, measure)| {
            let of = all.iter().filter(|of| of.figure == *figure && of.variant == *variant);
            let cell = |of: &contrasts::Ablated<'_>| {
                let is_first = |first: &&contrasts::Ablated<'_>| {
                    first.figure == *figure && first.workload == of.workload
                };
                let first = all.iter().find(is_first)?;
                let ratio = match *figure {
                    "9-10" => of.latency_ms.0 / first.latency_ms.0,
                    _ => of.of_first,
                };
                Some(format!("{} {}", of.workload, short(ratio)))
            };
            let cells: Vec<String> = of.filter_map(cell).collect();
            let nothing = (0.0, 0.0, 0.0);
            let shown = (PAPERS, (*workload).to_owned(), *measure, nothing, "", None);
            let figure = Figure { figure: cells.join(", "), ..self.figure("ablations", shown) };
            (!cells.is_empty()).then_some(figure)
        });
        shown.collect()
    }
}

/// What is to be left of the rate of records in order, by how many percent come early. StreamBox
/// keeps 0.93 with 40 % (figure 7).
const EARLY_GOALS: [(&str, f64); 2] = [("20", 0.93), ("40", 0.9)];

/// Figure and variant, and how the page calls them.
const ABLATIONS: [(&str, &str, &str, &str); 4] = [
    ("9-10", "epochs in order (fig. 9)", "epochs strictly in order", "times the median latency"),
    ("11", "1 K", "a watermark each 1,000 records", "of the rate with one each million"),
    ("7", "20", "20 % early, as fast as possible", "of the rate with none early"),
    ("7", "40", "40 % early, as fast as possible", "of the rate with none early"),
];

fn latency_goal(group: &Measured<'_>) -> Option<Goal> {
    match group.point.workload.as_str() {
        "q5" if group.point.events_per_second == 1_000_000 => Some(Goal::AtMost(tables::Q5_MS_MAX)),
        "q1" | "q2" | "q13" => Some(Goal::AtMost(tables::ROWS_MS_MAX)),
        _ => None,
    }
}

/// p99.99 of another engine at the same rate.
fn peer(group: &Measured<'_>, groups: &[&Measured<'_>]) -> Option<f64> {
    let is_peer = |other: &&&Measured<'_>| {
        other.point.engine == Engine::Hazelcast
            && other.point.workload == group.point.workload
            && other.point.events_per_second == group.point.events_per_second
    };
    groups.iter().find(is_peer)?.number("/first/p99_99_ms").map(|found| found.0)
}

/// A miss that is no longer than the machine's own pauses plus a millisecond says so.
fn excuse(figure: &mut Figure, group: &Measured<'_>, found_ms: f64) {
    let machine_ms = group.noise_ms().unwrap_or(0.0) + 1.0;
    if figure.met == "no" && found_ms <= machine_ms {
        figure.met = format!("no; the machine's own pauses allow {}", short(machine_ms));
    }
}

/// Goals on rates: millions per second of processor time.
fn rate_goal(workload: &str, variant: &str) -> Option<Goal> {
    match (workload, variant) {
        ("filter-project", "engine, 1 worker") => Some(Goal::AtLeast(100.0)),
        // Ten times what StreamBox does with a core.
        ("wordcount", "engine, 1 worker") => Some(Goal::AtLeast(27.0)),
        ("merge-runs-of-100", "merge, event_time") => Some(Goal::AtLeast(150.0)),
        ("merge-interleaved", "merge, event_time") => Some(Goal::AtLeast(60.0)),
        _ => None,
    }
}

/// Goals on shares of a loop by hand, and of the contract `arrival` of `epoch`.
fn ratio_goal(workload: &str, variant: &str) -> Option<Goal> {
    match (workload, variant) {
        ("q0" | "q1" | "q2" | "q14", _) => Some(Goal::AtLeast(tables::OF_FLOOR_MIN)),
        (query, "engine") if query.starts_with('q') => Some(Goal::AtLeast(0.3)),
        ("wordcount", "engine, 1 worker") => Some(Goal::AtLeast(tables::OF_FLOOR_MIN)),
        (_, "arrival, 1 worker") => Some(Goal::AtLeast(0.85)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::point::Point;
    use super::*;
    use serde_json::json;

    fn row(engine: Engine, p99_99_ms: f64) -> Value {
        let point = Point { engine, ..Point::new("latency-q5", Kind::Latency, "q5", 1_000_000) };
        json!({ "point": point, "check": "ok", "at": 86_400, "commit": "abc",
            "first": { "p50_ms": 0.5, "p99_99_ms": p99_99_ms } })
    }

    #[test]
    fn a_latency_has_its_goals_its_spread_and_its_run() {
        let rows =
            [row(Engine::Thalweg, 3.9), row(Engine::Thalweg, 3.5), row(Engine::Hazelcast, 9.0)];
        let figures = all(&rows.iter().collect::<Vec<_>>(), Mode::Full);
        assert_eq!(figures.len(), 2, "{figures:?}");
        assert_eq!(
            (figures[0].figure.as_str(), figures[0].spread.as_str()),
            ("3.70 (p50 0.50)", "3.50 to 3.90")
        );
        assert_eq!((figures[0].goal.as_str(), figures[0].met.as_str()), ("at most 4", "yes"));
        assert_eq!((figures[1].goal.as_str(), figures[1].met.as_str()), ("at most 3", "no"));
        assert_eq!(
            (figures[0].date.as_str(), figures[0].command.as_str()),
            ("1970-01-02", "suite --full --only latency-q5")
        );
    }

    #[test]
    fn a_miss_within_the_machines_own_pauses_says_so() {
        let mut noisy = row(Engine::Thalweg, 20.0);
        noisy["noise_after"] = json!({ "ticks": { "p99_99_ms": 25.0 } });
        let figures = all(&[&noisy], Mode::Short);
        assert_eq!(figures[0].met, "no; the machine's own pauses allow 26.0");
    }
}
