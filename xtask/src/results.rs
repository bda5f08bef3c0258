//! `benches/RESULTS.md` is made of lines of JSON. `tidy` fails where the page differs from them.
//!
//! There are three kinds of lines, which differ by their keys:
//! - `{"area", "about"}`: a section of the page, in the order of the file;
//! - `{"area", "workload", "measure", "figure", …}`: a figure. Of two with the same workload and
//!   measure the newer one (`date`, then `at`) is shown;
//! - `{"reason_for", "reason"}`: why a figure of the suite misses its goal. A miss without a
//!   reason, and a reason without a miss, are findings.
//!
//! The suite writes `suite-*.jsonl`; `page.jsonl` and `measured.jsonl` are written by hand. Numbers
//! are copied as they are: nothing is computed or rounded here.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::io;
use std::path::Path;

use serde_json::Value;

use crate::Findings;

const PAGE: &str = "benches/RESULTS.md";
const SOURCES: [&str; 4] = [
    "benches/results/figures/page.jsonl",
    "benches/results/figures/measured.jsonl",
    "benches/results/figures/suite-short.jsonl",
    "benches/results/full/figures/suite-full.jsonl",
];
const PAGE_LINES_MAX: usize = 250;

/// Compares the page with what its lines give.
pub fn check(root: &Path) -> io::Result<Findings> {
    let (page, mut findings) = render(&read(root)?);
    if fs::read_to_string(root.join(PAGE))? != page {
        findings.push(format!("{PAGE}:1: differs from its figures: run `cargo xtask results`"));
    }
    Ok(findings)
}

/// Writes the page. What it lacks (reasons for goals that a new run has missed) is said here and
/// fails [`check`], not this: whoever runs the benchmarks gets their page.
pub fn write(root: &Path) -> io::Result<Findings> {
    let (page, findings) = render(&read(root)?);
    fs::write(root.join(PAGE), page)?;
    findings.iter().for_each(|finding| eprintln!("tidy will say: {finding}"));
    Ok(Findings::new())
}

/// All lines, in the order of the files; a file that is missing is an error.
fn read(root: &Path) -> io::Result<Vec<Value>> {
    let mut lines = Vec::new();
    for source in SOURCES {
        let text = fs::read_to_string(root.join(source))?;
        for (position, line) in text.lines().enumerate() {
            let at = |error| io::Error::other(format!("{source}:{}: {error}", position + 1));
            lines.push(serde_json::from_str(line).map_err(at)?);
        }
    }
    Ok(lines)
}

fn text<'a>(line: &'a Value, key: &str) -> &'a str {
    line[key].as_str().unwrap_or_default()
}

/// What a figure is about: two lines with the same key are an older and a newer measurement.
fn key(line: &Value) -> String {
    format!("{}: {}", text(line, "workload"), text(line, "measure"))
}

/// The page, and what is wrong with its lines.
fn render(lines: &[Value]) -> (String, Findings) {
    let figures = newest(lines);
    let reasons: BTreeMap<&str, &str> = lines
        .iter()
        .filter(|line| line["reason_for"].is_string())
        .map(|line| (text(line, "reason_for"), text(line, "reason")))
        .collect();
    let mut findings = unknown_areas(lines, &figures);
    let mut used = Vec::new();
    let mut page = String::from(INTRODUCTION);
    for area in lines.iter().filter(|line| line["about"].is_string()) {
        page += &section(area, &figures, &reasons, &mut used, &mut findings);
    }
    let unused = reasons.keys().filter(|reason| !used.iter().any(|key| key == *reason));
    findings
        .extend(unused.map(|key| format!("{}: `{key}` is no miss: delete its reason", SOURCES[0])));
    let length = page.lines().count();
    if length > PAGE_LINES_MAX {
        findings.push(format!("{PAGE}:1: has {length} lines (at most {PAGE_LINES_MAX})"));
    }
    (page, findings)
}

const INTRODUCTION: &str = "\
# Results

<!-- Made by `cargo xtask results` from benches/results/figures. Change the lines there. -->

What was measured last for each workload and goal. A figure is the median of its runs, the spread
is the smallest and the largest run, and *run* leads to the date, command, machine and commit
below each table. A goal that is missed says why. M is a million; rates are of input rows. Rates
per CPU second count the processor time of every thread of the process. The machines are virtual
and shared: compare ratios, which were taken in turn, not rates of two runs. [How it is
measured](README.md); [every percentile of the suite](results/tables.md), and [of its full
mode](results/full/tables.md). In commands `benches` is `cargo run --release --manifest-path
benches/Cargo.toml --`, `suite` is `benches suite`, and `workloads` is `cargo run --release -p
thalweg-workloads --`. Where a command or commit was not recorded, the page says so.
";

/// Figures without those that a newer one replaces.
fn newest(lines: &[Value]) -> Vec<&Value> {
    let mut figures: Vec<&Value> = Vec::new();
    for line in lines.iter().filter(|line| line["figure"].is_string()) {
        let age = |line: &Value| (text(line, "date").to_owned(), line["at"].as_i64().unwrap_or(0));
        match figures.iter_mut().find(|known| key(known) == key(line)) {
            None => figures.push(line),
            Some(known) if age(line) >= age(known) => *known = line,
            Some(_) => {}
        }
    }
    figures
}

fn unknown_areas(lines: &[Value], figures: &[&Value]) -> Findings {
    let is_known = |figure: &&&Value| {
        lines.iter().any(|line| line["about"].is_string() && line["area"] == figure["area"])
    };
    let unknown = figures.iter().filter(|figure| !is_known(figure));
    unknown
        .map(|figure| format!("{}: {}: no such area", SOURCES[0], text(figure, "area")))
        .collect()
}

type Run<'a> = [&'a str; 4];

fn run_of(figure: &Value) -> Run<'_> {
    ["date", "command", "machine", "commit"].map(|key| text(figure, key))
}

/// A heading, a paragraph, a table, and the runs that its numbers lead to.
fn section(
    area: &Value,
    figures: &[&Value],
    reasons: &BTreeMap<&str, &str>,
    used: &mut Vec<String>,
    findings: &mut Findings,
) -> String {
    let mut page = format!(
        "\n## {}\n\n{}\n\n| workload | measure | figure | spread | goal | met | run |\n\
         |---|---|---|---|---|---|---|\n",
        text(area, "area"),
        text(area, "about"),
    );
    let mut runs: Vec<Run<'_>> = Vec::new();
    for figure in figures.iter().filter(|figure| figure["area"] == area["area"]) {
        let run = run_of(figure);
        let known = runs.iter().position(|known| *known == run);
        let number = known.unwrap_or(runs.len()) + 1;
        if known.is_none() {
            runs.push(run);
        }
        let found = format!("{} {}", text(figure, "figure"), text(figure, "unit"));
        let met = met(figure, reasons, used, findings);
        let cells = [
            text(figure, "workload"),
            text(figure, "measure"),
            found.trim(),
            text(figure, "spread"),
            text(figure, "goal"),
            &met,
        ];
        let _ = writeln!(page, "| {} | {number} |", cells.join(" | "));
    }
    let run = |(place, [date, command, machine, commit]): (usize, &Run<'_>)| {
        format!("({}) {date}, `{command}`, {machine}, commit {commit}", place + 1)
    };
    let runs: Vec<String> = runs.iter().enumerate().map(run).collect();
    let _ = writeln!(page, "\nRuns: {}.", runs.join("; "));
    page
}

/// Whether the goal is met, and if not, why, in a sentence.
fn met(
    figure: &Value,
    reasons: &BTreeMap<&str, &str>,
    used: &mut Vec<String>,
    findings: &mut Findings,
) -> String {
    let met = text(figure, "met");
    if !met.starts_with("no") {
        return met.to_owned();
    }
    let key = key(figure);
    let given = reasons.get(key.as_str()).copied().unwrap_or(text(figure, "reason"));
    let excuse = met.split_once("; ").map_or("", |(_, excuse)| excuse);
    let why = if given.is_empty() { excuse } else { given };
    if why.is_empty() {
        findings.push(format!("{}: `{key}` misses its goal without a reason", SOURCES[0]));
    }
    used.push(key);
    format!("**no**: {why}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn figure(figure: &str, at: i64, met: &str) -> Value {
        json!({"area": "Speed", "workload": "q0", "measure": "rate", "figure": figure, "at": at,
            "unit": "M/s", "goal": "at least 5", "met": met, "date": "2026-11-23"})
    }

    fn area() -> Value {
        json!({"area": "Speed", "about": "How fast."})
    }

    #[test]
    fn the_newer_of_two_figures_stands_on_the_page() {
        let (page, findings) = render(&[area(), figure("6", 2, "yes"), figure("7", 1, "yes")]);
        assert_eq!(findings, Findings::new());
        assert!(page.contains("| q0 | rate | 6 M/s |  | at least 5 | yes | 1 |"), "{page}");
        assert!(!page.contains("7 M/s"));
    }

    #[test]
    fn a_miss_has_a_reason() {
        let reason = json!({"reason_for": "q0: rate", "reason": "The source is the bound."});
        let (page, findings) = render(&[area(), figure("4", 1, "no"), reason.clone()]);
        assert_eq!(findings, Findings::new());
        let row = "| q0 | rate | 4 M/s |  | at least 5 | **no**: The source is the bound. | 1 |";
        assert!(page.contains(row), "{page}");
        assert_eq!(render(&[area(), figure("4", 1, "no")]).1.len(), 1);
        assert_eq!(render(&[area(), figure("6", 1, "yes"), reason]).1.len(), 1, "no miss");
    }

    #[test]
    fn an_area_is_described() {
        assert_eq!(render(&[figure("6", 1, "yes")]).1.len(), 1);
    }
}
