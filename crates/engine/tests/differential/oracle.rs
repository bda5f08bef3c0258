//! DuckDB in one Python process that answers all queries of a run, one line each.
//!
//! `THALWEG_PYTHON` names a Python that has DuckDB (`make test` sees to that). Without the variable
//! and without the package there is no oracle, and the test says that it is skipped.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::engine::Row;
use crate::python::{python_with_duckdb, repository};

/// A running oracle; it ends when it is dropped.
pub struct Oracle {
    child: Child,
    statements: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Oracle {
    /// Starts one, where there is a Python with DuckDB.
    pub fn start() -> Option<Oracle> {
        let python = python_with_duckdb()?;
        let mut child = Command::new(python)
            .arg(repository().join("scripts/duckdb_differential.py"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("starting Python");
        let statements = child.stdin.take().expect("a pipe to Python");
        let answers = BufReader::new(child.stdout.take().expect("a pipe from Python"));
        Some(Oracle { child, statements, answers })
    }

    /// The rows of the last statement of a script, or why DuckDB refused it.
    pub fn answer(&mut self, script: &str) -> Result<Vec<Row>, String> {
        let line = script.replace('\n', " ");
        writeln!(self.statements, "{line}").expect("sending statements");
        let mut rows = Vec::new();
        loop {
            let mut line = String::new();
            let bytes = self.answers.read_line(&mut line).expect("the answer of DuckDB");
            assert!(bytes > 0, "the oracle ended; it was asked: {script}");
            match line.trim_end_matches('\n') {
                "." => return Ok(rows),
                row => match row.strip_prefix('!') {
                    Some(refusal) => return Err(refusal.to_owned()),
                    None => rows.push(row.split('\t').map(str::to_owned).collect()),
                },
            }
        }
    }
}

impl Drop for Oracle {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
