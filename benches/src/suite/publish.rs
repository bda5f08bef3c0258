//! Writes tables, pictures and figures next to the rows they are made of.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::Path;

use serde_json::Value;
use thalweg_core::calendar::civil_from_days;

use super::arguments::Arguments;
use super::parts::Mode;
use super::record::{Records, part_of};
use super::{figures, plots, tables};

/// Tables and pictures of all parts, each as the commit found it that measured it last.
///
/// # Errors
/// If a file can't be read or written.
pub fn all(arguments: &Arguments, records: &Records) -> io::Result<()> {
    let mode = arguments.mode.name();
    let rows = records.newest(mode);
    if rows.is_empty() {
        println!("nothing was measured in mode {mode}");
        return Ok(());
    }
    let note = note(&rows, mode);
    let pictures = plots::write(&arguments.results, &rows, &note)?;
    let text = format!("{note}\n\n{}", tables::all(&rows));
    let file = arguments.results.join("tables.md");
    fs::write(&file, format!("# Results\n\n{text}{}", links(&pictures)))?;
    println!("{} and {} pictures are written", file.display(), pictures.len());
    // Figures of a smoke run mean nothing.
    if arguments.mode != Mode::Smoke {
        let file = arguments.results.join("figures").join(format!("suite-{mode}.jsonl"));
        figures::write(&file, &rows, arguments.mode)?;
        println!("{} is written; `cargo xtask results` makes benches/RESULTS.md", file.display());
    }
    Ok(())
}

/// Mode, day, and for each commit and machine what was measured with it.
fn note(rows: &[&Value], mode: &str) -> String {
    let day = rows.iter().filter_map(|row| row["at"].as_i64()).max().unwrap_or(0);
    let mut parts: BTreeMap<(&str, String), BTreeSet<&str>> = BTreeMap::new();
    for row in rows {
        let commit = row["commit"].as_str().unwrap_or("unknown");
        parts.entry((commit, machine(row))).or_default().insert(part_of(row));
    }
    let described = |((commit, machine), parts): (&(&str, String), &BTreeSet<&str>)| {
        let parts = parts.iter().copied().collect::<Vec<_>>().join(", ");
        format!("{commit} on {machine} ({parts})")
    };
    let runs = parts.iter().map(described).collect::<Vec<_>>().join("; ");
    format!("Mode {mode}, {}, {} rows. Commit {runs}.", date(day / 86_400), rows.len())
}

/// The machine of a row. Rates of two kinds of them do not compare.
pub fn machine(row: &Value) -> String {
    let of = |key: &str| match &row["machine"][key] {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    format!("{} cores of {}, Linux {}", of("cores"), of("processor"), of("kernel"))
}

/// The date of a day since 1970.
pub fn date(days: i64) -> String {
    let (year, month, day) = civil_from_days(days);
    format!("{year}-{month:02}-{day:02}")
}

fn links(pictures: &[String]) -> String {
    let link = |name: &String| {
        let title = Path::new(name).file_stem().unwrap_or_default().to_string_lossy();
        format!("![{title}]({name})")
    };
    pictures.iter().map(link).collect::<Vec<_>>().join(" ") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_have_their_dates() {
        assert_eq!(date(0), "1970-01-01");
        assert_eq!(date(20_778), "2026-11-21");
        assert_eq!(date(11_016), "2000-02-29");
    }
}
