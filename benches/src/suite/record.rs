//! Rows of results: JSON lines in a folder, one file for each part, appended as they are measured.
//!
//! A row has `point`, `repetition`, `mode`, `commit`, `machine`, `at` (seconds since 1970), and
//! what was measured. A row that was made by the same program (commit without changes) at the same
//! settings need not be measured again: [`Records::find`].

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::point::{Point, workers};

/// Rows that are there, and the folder for more.
pub struct Records {
    folder: PathBuf,
    commit: String,
    rows: Vec<Value>,
}

impl Records {
    /// Those of a folder.
    pub fn open(folder: &Path) -> io::Result<Records> {
        fs::create_dir_all(folder)?;
        let mut files: Vec<PathBuf> =
            fs::read_dir(folder)?.filter_map(|entry| Some(entry.ok()?.path())).collect();
        files.retain(|file| file.extension().is_some_and(|extension| extension == "jsonl"));
        files.sort();
        let mut rows = Vec::new();
        for file in files {
            let text = fs::read_to_string(&file)?;
            if !text.is_empty() && !text.ends_with('\n') {
                // A run was stopped while it wrote. The next row begins on a line of its own.
                OpenOptions::new().append(true).open(&file)?.write_all(b"\n")?;
            }
            rows.extend(read(&text));
        }
        Ok(Records { folder: folder.to_owned(), commit: commit(), rows })
    }

    /// What the program was built from; ends in `+changes` if that is not all.
    pub fn commit(&self) -> &str {
        &self.commit
    }

    /// All rows of this commit, in the sequence in which they were measured.
    pub fn rows(&self) -> impl Iterator<Item = &Value> {
        self.rows.iter().filter(|row| row["commit"] == self.commit.as_str())
    }

    /// What is known in a mode: of each part the rows of the commit that measured it last.
    pub fn newest(&self, mode: &str) -> Vec<&Value> {
        let of_mode = || self.rows.iter().filter(move |row| row["mode"] == mode);
        let mut last: BTreeMap<&str, &Value> = BTreeMap::new();
        for row in of_mode() {
            let at = |row: &Value| row["at"].as_u64().unwrap_or(0);
            let known = last.entry(part_of(row)).or_insert(row);
            if at(row) >= at(known) {
                *known = row;
            }
        }
        of_mode().filter(|row| row["commit"] == last[part_of(row)]["commit"]).collect()
    }

    /// A row of the same program and settings.
    pub fn find(&self, point: &Point, repetition: usize, mode: &str) -> Option<&Value> {
        if self.commit.ends_with(CHANGED) {
            return None;
        }
        let point = json!(point);
        self.rows().find(|row| {
            // What failed is tried again.
            row["point"] == point
                && row["repetition"] == repetition
                && row["mode"] == mode
                && row["failed"].is_null()
        })
    }

    /// Adds what was measured.
    ///
    /// # Errors
    /// If the file can't be written.
    pub fn add(
        &mut self,
        point: &Point,
        repetition: usize,
        mode: &str,
        measured: Value,
    ) -> io::Result<&Value> {
        let mut row = json!({
            "point": point, "repetition": repetition, "mode": mode, "commit": self.commit,
            "machine": machine(), "at": now_s(),
        });
        if let (Value::Object(row), Value::Object(measured)) = (&mut row, measured) {
            row.extend(measured);
        }
        let file = self.folder.join(format!("{}.jsonl", point.part));
        let mut file = OpenOptions::new().append(true).create(true).open(file)?;
        // In one piece: a run that is stopped leaves whole rows.
        file.write_all(format!("{row}\n").as_bytes())?;
        self.rows.push(row);
        Ok(self.rows.last().expect("it was just added"))
    }
}

/// The part that a row belongs to.
pub fn part_of(row: &Value) -> &str {
    row["point"]["part"].as_str().unwrap_or_default()
}

/// The rows of a file. A last line that was cut off when a run was stopped is no row.
fn read(text: &str) -> Vec<Value> {
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

const CHANGED: &str = "+changes";

/// The commit of the working copy, where there is one.
fn commit() -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) else {
        return format!("unknown{CHANGED}");
    };
    // What the suite writes itself changes nothing.
    let changes = git(&[
        "status",
        "--porcelain",
        "--untracked-files=no",
        "--",
        ".",
        ":!*.jsonl",
        ":!*.svg",
        ":!*.md",
    ]);
    let has_changes = changes.is_none_or(|changes| !changes.is_empty());
    if has_changes { format!("{commit}{CHANGED}") } else { commit }
}

/// What the figures were made on.
fn machine() -> Value {
    let file = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let line = |text: &str, key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key))?;
        Some(line.trim_start_matches([' ', '\t', ':']).trim().to_owned())
    };
    json!({
        "cores": workers(),
        "processor": line(&file("/proc/cpuinfo"), "model name"),
        "memory": line(&file("/proc/meminfo"), "MemTotal"),
        "kernel": file("/proc/sys/kernel/osrelease").trim(),
        "load_before": file("/proc/loadavg").trim(),
    })
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::super::folder::Folder;
    use super::super::point::Kind;
    use super::*;

    #[test]
    fn what_was_measured_by_the_same_commit_is_found_again() {
        let folder = Folder::new().expect("a folder");
        let open = |commit: &str| {
            let mut records = Records::open(folder.path()).expect("opens");
            records.commit = commit.to_owned();
            records
        };
        let point = Point::new("latency-q5", Kind::Latency, "q5", 1_000_000).lasting(12, 15);
        let mut records = open("abc");
        assert!(records.find(&point, 0, "short").is_none());
        records.add(&point, 0, "short", json!({ "first": { "p50_ms": 1.0 } })).expect("writes");
        let again = open("abc");
        assert_eq!(again.find(&point, 0, "short").expect("it is there")["first"]["p50_ms"], 1.0);
        assert!(again.find(&point, 1, "short").is_none(), "another repetition");
        assert!(again.find(&point, 0, "full").is_none(), "another mode");
        assert!(again.find(&point.clone().lasting(12, 30), 0, "short").is_none(), "longer");
        assert!(open("abd").find(&point, 0, "short").is_none(), "another commit");
        let mut changed = open("abc+changes");
        changed.add(&point, 0, "short", json!({})).expect("writes");
        assert!(open("abc+changes").find(&point, 0, "short").is_none(), "changes have no name");
    }

    #[test]
    fn each_part_comes_from_the_commit_that_measured_it_last() {
        let folder = Folder::new().expect("a folder");
        let row = |part: &str, commit: &str, mode: &str, at: u64| json!({"point": {"part": part}, "commit": commit, "mode": mode, "at": at});
        let rows = [
            row("idle", "new", "short", 5),
            row("idle", "old", "short", 1),
            row("burst", "old", "short", 2),
            row("burst", "old", "short", 3),
            row("burst", "new", "full", 6),
        ];
        let text: String = rows.iter().map(|row| format!("{row}\n")).collect();
        folder.write("all.jsonl", &text).expect("writes");
        let records = Records::open(folder.path()).expect("opens");
        assert_eq!(records.newest("short"), [&rows[0], &rows[2], &rows[3]]);
        assert_eq!(records.newest("full"), [&rows[4]]);
        assert!(records.newest("smoke").is_empty());
    }

    #[test]
    fn a_line_that_was_cut_off_is_no_row_and_spoils_no_other() {
        assert_eq!(read("{\"a\":1}\n\n{\"a\":2}\n{\"a\":").len(), 2);
        let folder = Folder::new().expect("a folder");
        folder.write("idle.jsonl", "{\"point\":{\"pa").expect("writes");
        let open = || {
            let mut records = Records::open(folder.path()).expect("opens");
            records.commit = "abc".to_owned();
            records
        };
        let point = Point::new("idle", Kind::Idle, "filter", 0);
        open().add(&point, 0, "short", json!({ "first": 1 })).expect("writes");
        assert_eq!(open().find(&point, 0, "short").expect("it is there")["first"], 1);
    }

    #[test]
    fn what_failed_is_tried_again() {
        let folder = Folder::new().expect("a folder");
        let mut records = Records::open(folder.path()).expect("opens");
        records.commit = "abc".to_owned();
        let point = Point::new("idle", Kind::Idle, "filter", 0);
        records.add(&point, 0, "short", json!({ "failed": "no end" })).expect("writes");
        assert!(records.find(&point, 0, "short").is_none());
        records.add(&point, 0, "short", json!({ "first": 1 })).expect("writes");
        assert_eq!(records.find(&point, 0, "short").expect("it is there")["first"], 1);
    }
}
