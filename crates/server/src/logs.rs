//! The last lines that a job has said, in memory. They outlive a run.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};

use serde::{Deserialize, Serialize};
use thalweg_core::shim::{Clock, SystemClock};

use crate::journal::Journal;

/// How many lines are kept.
const LINES_MAX: usize = 2_000;
/// How long a line is at most, in characters.
const LINE_MAX: usize = 4_000;

/// A line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct LogLine {
    /// Counts the lines of the job since the server began.
    pub number: u64,
    /// When, in milliseconds since 1970.
    pub at_ms: i64,
    /// `info`, `warning` or `error`.
    pub level: String,
    /// What was said.
    pub text: String,
}

/// The last lines of a job.
pub struct Logs {
    job: String,
    clock: SystemClock,
    journal: Journal,
    lines: Mutex<(u64, VecDeque<LogLine>)>,
}

impl Logs {
    /// No line yet. Each goes to the journal as well.
    pub fn new(job: &str, clock: SystemClock, journal: Journal) -> Logs {
        Logs { job: job.to_owned(), clock, journal, lines: Mutex::default() }
    }

    fn lines(&self) -> MutexGuard<'_, (u64, VecDeque<LogLine>)> {
        self.lines.lock().expect("no panic under this lock")
    }

    /// Adds a line.
    pub fn add(&self, level: &str, text: &str) {
        let text: String = text.chars().take(LINE_MAX).collect();
        self.journal.say(level, Some(&self.job), &text);
        let mut lines = self.lines();
        lines.0 += 1;
        let (number, at_ms) = (lines.0, self.clock.wall_ms());
        lines.1.push_back(LogLine { number, at_ms, level: level.to_owned(), text });
        if lines.1.len() > LINES_MAX {
            lines.1.pop_front();
        }
    }

    /// Adds a line, unless it is the same as the one before.
    pub fn add_once(&self, level: &str, text: &str) {
        let is_new = self.lines().1.back().is_none_or(|last| last.text != text);
        if is_new {
            self.add(level, text);
        }
    }

    /// The lines behind this number, oldest first.
    pub fn since(&self, number: u64) -> Vec<LogLine> {
        self.lines().1.iter().filter(|line| line.number > number).cloned().collect()
    }
}
