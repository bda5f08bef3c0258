//! The table of the highest rates within a bound on the output delay, with what they are compared
//! with.

use std::fmt::Write;

use serde_json::Value;

use super::bisection::{BOUNDS_MS, Step};
use super::parts::WITHOUT_A_BOUND;
use super::streambox::paper_per_core;
use super::tables::{Measured, megabytes, met, short};

/// The goal is this many times the paper's rate per core.
pub const TIMES_PAPER_MIN: f64 = 10.0;

/// The steps of a workload.
pub struct Workload<'a, 'b> {
    pub name: &'b str,
    steps: Vec<&'b Measured<'a>>,
}

impl<'a, 'b> Workload<'a, 'b> {
    /// In the sequence in which they first came.
    pub fn all(groups: &[&'b Measured<'a>]) -> Vec<Workload<'a, 'b>> {
        let mut all: Vec<Workload<'a, 'b>> = Vec::new();
        for &group in groups {
            let name = group.point.workload.as_str();
            match all.iter_mut().find(|known| known.name == name) {
                Some(known) => known.steps.push(group),
                None => all.push(Workload { name, steps: vec![group] }),
            }
        }
        all
    }

    /// The highest rate that holds a bound in most of its repetitions.
    pub fn best(&self, bound_ms: u64) -> Option<&'b Measured<'a>> {
        let holds = |group: &&&Measured<'_>| {
            let rate = group.point.events_per_second;
            let held = group.rows.iter().filter(|row| Step::of(rate, row).holds(bound_ms));
            group.point.variant.is_empty() && held.count() * 2 > group.rows.len()
        };
        let best = self.steps.iter().filter(holds);
        best.max_by_key(|group| group.point.events_per_second).copied()
    }

    /// Without a bound.
    fn free(&self) -> Option<&'b Measured<'a>> {
        self.steps.iter().find(|group| group.point.variant == WITHOUT_A_BOUND).copied()
    }

    /// The median of a number in the rows of all steps.
    fn number(&self, key: &str) -> Option<f64> {
        let rows = self.steps.iter().flat_map(|group| &group.rows);
        super::percentiles::median(rows.filter_map(|row| row[key].as_f64())).map(|found| found.0)
    }

    fn result(&self) -> String {
        let rows = || self.steps.iter().flat_map(|group| &group.rows);
        let checks = || rows().filter_map(|row| row["check"].as_str());
        match checks().find(|check| check.starts_with("WRONG") || check.starts_with("FAILED")) {
            Some(problem) => problem.to_owned(),
            None => {
                format!("{} ({} runs)", checks().next().unwrap_or("not checked"), rows().count())
            }
        }
    }
}

/// Million events per second of the clock and of a core at the rate of a group.
pub fn rates(group: &Measured<'_>) -> (f64, f64) {
    let millions = group.point.events_per_second as f64 / 1e6;
    let cores = group.median(|row| row["cores_used"].as_f64()).map_or(1.0, |cores| cores.0);
    (millions, millions / cores)
}

/// The table.
pub fn table(groups: &[&Measured<'_>]) -> Option<String> {
    let mut text = String::from(
        "### Throughput at a bound on the output delay\n\n\
         Million input events per second of the clock; in brackets per core that worked for it, by the processor time \
         of the whole process (generator, its clock and sink included). The highest rate of which most runs had every \
         result within the bound. “Free” is without one, in rows. The floor is a loop by hand on one core over the \
         same records in memory. “Delay” is what was found at the rate within 500 ms: the median result, 99 %, and \
         the slowest of all runs.\n\n\
         | workload | floor per core | free | 50 ms | 500 ms | 1 s | delay ms | generator ns per row | MB | goal per core within 1 s | result |\n\
         |---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for workload in Workload::all(groups) {
        let free =
            workload.free().and_then(|free| free.median(|row| row["rows_per_second"].as_f64()));
        let cells = BOUNDS_MS.map(|ms| workload.best(ms).map_or("–".to_owned(), cell));
        let floor = workload.number("floor_ns_per_row").map(|ns| 1e3 / ns);
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            workload.name,
            floor.map_or("–".to_owned(), short),
            free.map_or("–".to_owned(), |rows| short(rows.0 / 1e6)),
            cells.join(" | "),
            workload.best(BOUNDS_MS[1]).map_or("–".to_owned(), delay),
            workload.number("generator_ns_per_row").map_or("in memory".to_owned(), short),
            megabytes(workload.best(BOUNDS_MS[2]).and_then(resident)),
            goal(&workload),
            workload.result(),
        );
    }
    (!groups.is_empty()).then_some(text)
}

fn resident(group: &Measured<'_>) -> Option<(f64, f64, f64)> {
    group.median(|row| row["resident_peak_bytes"].as_f64())
}

fn cell(group: &Measured<'_>) -> String {
    let (millions, per_core) = rates(group);
    format!("{} ({})", short(millions), short(per_core))
}

fn delay(group: &Measured<'_>) -> String {
    let of = |key: &'static str| move |row: &Value| row["delay"][key].as_f64();
    let middle = |key| group.median(of(key)).map_or("–".to_owned(), |found| short(found.0));
    let worst = group.median(of("max_ms")).map_or("–".to_owned(), |found| short(found.2));
    format!("{} / {} / {worst}", middle("p50_ms"), middle("p99_ms"))
}

fn goal(workload: &Workload<'_, '_>) -> String {
    let Some(paper) = paper_per_core(workload.name) else { return String::new() };
    let goal = paper * TIMES_PAPER_MIN;
    let found = workload.best(BOUNDS_MS[2]).map(|best| rates(best).1);
    let outcome = found.map_or("not found", |found| met(found >= goal));
    let times = found
        .map_or(String::new(), |found| format!(" ({} times the paper's)", short(found / paper)));
    format!("≥ {}: {outcome}{times}", short(goal))
}

#[cfg(test)]
mod tests {
    use super::super::point::{Kind, Point};
    use super::super::tables::group;
    use super::*;
    use serde_json::json;

    fn row(workload: &str, rate: u64, worst_ms: f64, variant: &str) -> Value {
        let point = Point::new("bounded-streambox", Kind::Step, workload, rate).of_variant(variant);
        json!({ "point": point, "check": "ok", "behind_ms": 0.0, "cores_used": 2.0,
            "floor_ns_per_row": 50.0, "rows_per_second": 9e6,
            "delay": { "p50_ms": 1.0, "p99_ms": 2.0, "max_ms": worst_ms } })
    }

    #[test]
    fn most_repetitions_have_to_hold() {
        let rows = [
            row("netmon", 4_000_000, 40.0, ""),
            row("netmon", 4_000_000, 60.0, ""),
            row("netmon", 4_000_000, 45.0, ""),
            row("netmon", 8_000_000, 400.0, ""),
            row("netmon", 16_000_000, 30.0, "probe"),
            row("netmon", 1_000_000_000, 3_000.0, WITHOUT_A_BOUND),
        ];
        let groups = group(&rows);
        let text = table(&groups.iter().collect::<Vec<_>>()).expect("a table");
        let line = "| netmon | 20.0 | 9.00 | 4.00 (2.00) | 8.00 (4.00) | 8.00 (4.00) | 1.00 / 2.00 / 400 |";
        assert!(text.contains(line), "{text}");
        assert!(text.contains("≥ 0.18: met (224 times the paper's) | ok (6 runs) |"), "{text}");
    }

    #[test]
    fn a_wrong_step_is_reported() {
        let mut wrong = row("grep", 4_000_000, 4.0, "");
        wrong["check"] = json!("WRONG: 1 rows");
        let rows = [wrong, row("grep", 3_000_000, 4.0, "")];
        let groups = group(&rows);
        let text = table(&groups.iter().collect::<Vec<_>>()).expect("a table");
        assert!(text.contains("| 3.00 (1.50) |") && text.contains("WRONG: 1 rows"), "{text}");
        assert!(text.contains("**missed**"), "{text}");
    }
}
