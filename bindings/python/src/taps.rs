//! Rows of a running job, as they pass.
//!
//! The engine offers the heads of bundles and never waits for whoever looks
//! (`thalweg_runtime::Tap`): this is a look at the rows, and not all of them.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::thread::sleep;

use pyo3::prelude::*;
use thalweg::session::{Session, ShownRows};
use thalweg::{Error, JobControl, Result};
use thalweg_runtime::metrics::{JobLayout, StageRole};
use thalweg_runtime::{Tap, TappedRows};

use crate::errors;
use crate::running::LOOK_AGAIN;

/// A look at the rows of a job; it ends with the job.
#[pyclass(frozen, module = "thalweg._thalweg")]
pub struct JobTap(Mutex<Looking>);

struct Looking {
    session: Session,
    condition: Option<String>,
    /// For each job of the statements: what passes, and how the rows of an edge are shown, once
    /// some have come.
    taps: Vec<(JobControl, Tap, HashMap<(usize, usize), ShownRows>)>,
}

impl JobTap {
    /// Looks at what the table gives, or at what all outputs take.
    pub fn begin(
        session: Session,
        controls: &[JobControl],
        table: Option<&str>,
        condition: Option<String>,
    ) -> Result<JobTap> {
        if let Some(condition) = &condition {
            session.check_condition(condition)?;
        }
        let layouts: Vec<JobLayout> = controls.iter().map(JobControl::layout).collect();
        let edges: Vec<_> = layouts.iter().map(|layout| edges(layout, table)).collect();
        if let (Some(table), true) = (table, edges.iter().all(Vec::is_empty)) {
            return Err(unknown_table(&layouts, table));
        }
        let taps = controls.iter().zip(edges).filter(|(_, edges)| !edges.is_empty());
        let taps =
            taps.map(|(control, edges)| (control.clone(), control.tap(&edges), HashMap::new()));
        Ok(JobTap(Mutex::new(Looking { session, condition, taps: taps.collect() })))
    }
}

#[pymethods]
impl JobTap {
    /// Rows that have passed since the last call, each as an object of JSON. Waits for some; `None`
    /// when the job is over.
    fn take(&self, py: Python<'_>) -> PyResult<Option<Vec<String>>> {
        loop {
            let taken = py.detach(|| {
                let taken = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
                if matches!(&taken, Ok(Some(rows)) if rows.is_empty()) {
                    sleep(LOOK_AGAIN);
                }
                taken
            });
            match taken.map_err(|error| errors::to_python(py, &error, ""))? {
                Some(rows) if rows.is_empty() => py.check_signals()?,
                taken => return Ok(taken),
            }
        }
    }
}

impl Looking {
    fn take(&mut self) -> Result<Option<Vec<String>>> {
        // Rows of a job that has just ended are there when it is known to be over.
        let is_over = self.taps.iter().all(|(control, _, _)| control.is_over());
        let mut found = Vec::new();
        for (_, tap, shown) in &mut self.taps {
            while let Some(rows) = tap.take() {
                let shown = match shown.entry((rows.from, rows.to)) {
                    std::collections::hash_map::Entry::Occupied(shown) => shown.into_mut(),
                    std::collections::hash_map::Entry::Vacant(place) => {
                        let columns = rows.batch.schema();
                        let condition = self.condition.as_deref();
                        place.insert(self.session.shown_rows(&columns, condition)?)
                    }
                };
                show(shown, &rows, &mut found)?;
            }
        }
        Ok((!found.is_empty() || !is_over).then_some(found))
    }
}

fn show(shown: &ShownRows, rows: &TappedRows, found: &mut Vec<String>) -> Result<()> {
    let passed = shown.show(&rows.batch, rows.kinds.as_deref(), &rows.watermark_before)?;
    found.extend(passed.into_iter().map(|row| row.json));
    Ok(())
}

/// The edges from the sources of this name, or those into all sinks.
fn edges(layout: &JobLayout, table: Option<&str>) -> Vec<(usize, usize)> {
    let all = layout.stages.iter().enumerate();
    let all = all.flat_map(|(to, stage)| stage.inputs.iter().map(move |&from| (from, to)));
    let is_meant = |&(from, to): &(usize, usize)| match table {
        Some(table) => {
            let from = &layout.stages[from];
            from.role == StageRole::Source && from.name == table
        }
        None => layout.stages[to].role == StageRole::Sink,
    };
    all.filter(is_meant).collect()
}

fn unknown_table(layouts: &[JobLayout], table: &str) -> Error {
    let stages = layouts.iter().flat_map(|layout| &layout.stages);
    let sources = stages.filter(|stage| stage.role == StageRole::Source);
    let mut names: Vec<String> = sources.map(|stage| format!("'{}'", stage.name)).collect();
    names.sort_unstable();
    names.dedup();
    Error::plan(format!("the job reads no table '{table}'"))
        .hint(format!("it reads {}", names.join(", ")))
}
