//! Lines on standard error for whoever keeps them: a service manager, a container, a terminal.
//!
//! As text, or each line an object of JSON with `ts`, `level`, `target`, `msg`, and `job` where it
//! is about one (`log.format`). A line that comes again is written the second, fourth, eighth time
//! and so on, with how often it has come.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::{Arc, Mutex};

use serde_json::{Map, Value};
use thalweg_core::shim::{Clock, SystemClock};
use thalweg_core::text::format_timestamp_millis;

/// How many different lines are remembered; then all are forgotten.
const LINES_MAX: usize = 1_000;

/// How lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// For programs.
    Json,
    /// Not at all.
    Off,
}

impl LogFormat {
    /// The names of all.
    pub const NAMES: [&str; 3] = ["text", "json", "off"];

    /// That of a name.
    pub fn of(name: &str) -> Option<LogFormat> {
        let formats = [LogFormat::Text, LogFormat::Json, LogFormat::Off];
        let place = LogFormat::NAMES.iter().position(|own| *own == name)?;
        Some(formats[place])
    }
}

/// Writes lines. Copies write to the same place.
#[derive(Clone)]
pub struct Journal {
    format: LogFormat,
    clock: SystemClock,
    said: Arc<Mutex<BTreeMap<(String, String), u64>>>,
}

impl Journal {
    /// A journal that has no lines yet.
    pub fn new(format: LogFormat, clock: SystemClock) -> Journal {
        Journal { format, clock, said: Arc::default() }
    }

    /// How lines are written.
    pub fn format(&self) -> LogFormat {
        self.format
    }

    /// Writes a line about a job, or about the server. `level` is `info`, `warning` or `error`.
    pub fn say(&self, level: &str, job: Option<&str>, text: &str) {
        if let Some(line) = self.line(level, job, text) {
            // Nobody could be informed.
            let _ = std::io::stderr().write_all(line.as_bytes());
        }
    }

    /// The line, unless it has come too often.
    fn line(&self, level: &str, job: Option<&str>, text: &str) -> Option<String> {
        if self.format == LogFormat::Off {
            return None;
        }
        let count = self.count(job.unwrap_or_default(), text);
        count.is_power_of_two().then(|| self.written(level, job, text, count))
    }

    /// How often this line has come, with this time.
    fn count(&self, job: &str, text: &str) -> u64 {
        let mut said = self.said.lock().expect("no panic under this lock");
        if said.len() >= LINES_MAX {
            said.clear();
        }
        let count = said.entry((job.to_owned(), text.to_owned())).or_default();
        *count += 1;
        *count
    }

    fn written(&self, level: &str, job: Option<&str>, text: &str, count: u64) -> String {
        let at = format_timestamp_millis(self.clock.wall_ms(), 3);
        if self.format == LogFormat::Text {
            let of = job.map_or_else(String::new, |job| format!("{job}: "));
            let again = if count > 1 { format!(" ({count} times)") } else { String::new() };
            return format!("{at} {level}: {of}{text}{again}\n");
        }
        let target = if job.is_some() { "job" } else { "server" };
        let fields = [
            ("ts", Some(format!("{}Z", at.replace(' ', "T")))),
            ("level", Some(level.to_owned())),
            ("target", Some(target.to_owned())),
            ("msg", Some(text.to_owned())),
            ("job", job.map(str::to_owned)),
        ];
        let given = fields
            .into_iter()
            .filter_map(|(name, value)| value.map(|value| (name.to_owned(), Value::String(value))));
        let mut line: Map<String, Value> = given.collect();
        if count > 1 {
            line.insert("count".to_owned(), count.into());
        }
        format!("{}\n", Value::Object(line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_comes_again_is_written_ever_more_rarely() {
        let journal = Journal::new(LogFormat::Text, SystemClock::new());
        let written: Vec<usize> =
            (1..=20).filter(|_| journal.line("error", Some("a"), "disk full").is_some()).collect();
        assert_eq!(written, [1, 2, 4, 8, 16]);
        let line = journal.line("error", Some("b"), "disk full").expect("another job");
        assert!(line.ends_with(" error: b: disk full\n"), "{line}");
        for number in 0..2 * LINES_MAX {
            journal.line("info", None, &number.to_string());
        }
        assert!(journal.said.lock().expect("a lock").len() <= LINES_MAX);
        let off = Journal::new(LogFormat::Off, SystemClock::new());
        assert_eq!(off.line("error", None, "x"), None);
    }

    #[test]
    fn a_line_for_programs_is_one_object() {
        let journal = Journal::new(LogFormat::Json, SystemClock::new());
        journal.line("warning", Some("a"), "two\n\"lines\"");
        let line = journal.line("warning", Some("a"), "two\n\"lines\"").expect("a line");
        assert_eq!(line.lines().count(), 1);
        let object: Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!((&object["level"], &object["job"]), (&"warning".into(), &"a".into()));
        assert_eq!((&object["msg"], &object["count"]), (&"two\n\"lines\"".into(), &2.into()));
        let at = object["ts"].as_str().expect("a time");
        assert!(at.ends_with('Z') && at.contains('T') && at.len() == 24, "{at}");
        let line = journal.line("info", None, "listening").expect("a line");
        let object: Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!((&object["target"], &object["job"]), (&"server".into(), &Value::Null));
    }
}
