//! What a session reports to its caller while a script runs, and asks it for.

use std::time::Duration;

use arrow_array::RecordBatch;
use chrono_tz::Tz;
use thalweg_core::graph::Graph;
use thalweg_core::{Error, OrderContract, Result, Sink};
use thalweg_plan::ResultTable;
use thalweg_runtime::{JobControl, Report};

/// A job that is about to run.
#[derive(Clone, Debug)]
pub struct JobDescription {
    /// `pipeline.name`, or what the statement does.
    pub name: String,
    /// Its place among the jobs of the script, from 0.
    pub place: usize,
    /// How many workers it has.
    pub workers: usize,
    /// Everything that it may keep in memory, in bytes.
    pub memory_limit_bytes: usize,
    /// What is promised about the sequence of its results.
    pub order: OrderContract,
    /// For each stage of its graph what keeps rows in order; empty words where nothing has to.
    pub order_costs: Vec<String>,
    /// True if it ends by itself.
    pub is_bounded: bool,
    /// The places in its graph of sinks that print: the result of a SELECT, tables of `print`.
    pub printing: Vec<usize>,
}

/// Takes what a script produces. The command line prints it, a test collects it. It is called by
/// the thread that runs the script, also of jobs that run at the same time.
pub trait Observer {
    /// Makes the sink for the rows of a SELECT, SHOW or DESCRIBE. Instants are shown in `zone`.
    fn result(&mut self, table: &ResultTable, zone: Tz) -> Result<Box<dyn Sink>>;
    /// Takes the rows of a SHOW or DESCRIBE.
    fn rows(&mut self, table: &ResultTable, zone: Tz, rows: &RecordBatch) -> Result<()> {
        let mut sink = self.result(table, zone)?;
        sink.open()?;
        sink.write(rows, None)?;
        sink.finish()
    }
    /// The answer to EXPLAIN.
    fn explanation(&mut self, text: &str) -> Result<()>;
    /// Something worth telling that is no error, and where it stands.
    fn note(&mut self, note: &Error) {
        let _ = note;
    }
    /// Something has gone wrong that the job gets over (a restart).
    fn warning(&mut self, warning: &Error) {
        self.note(warning);
    }
    /// A job has failed and is started again after a while, if the script is not stopped before.
    fn restarting(&mut self, job: &JobDescription, cause: &Error, wait: Duration, count: u32) {
        let _ = (job, cause, wait, count);
    }
    /// A statement is being planned from now on, which may take long, or no more. Planning touches
    /// nothing outside, and no job runs meanwhile: where one does, this is not called.
    fn planning(&mut self, is_under_way: bool) {
        let _ = is_under_way;
    }
    /// A job is about to start. Its sinks may be wrapped. Where the start is refused, the job
    /// neither starts nor ends.
    fn starting(&mut self, job: &JobDescription, graph: &mut Graph) {
        let _ = (job, graph);
    }
    /// The job runs.
    fn started(&mut self, job: &JobDescription, control: &JobControl) {
        let _ = (job, control);
    }
    /// The job is done, was stopped, or failed; it may be started again then.
    fn ended(&mut self, job: &JobDescription, result: &Result<Report>) {
        let _ = (job, result);
    }
    /// A job has failed for good, or a statement could not begin.
    fn failed(&mut self, error: &Error) {
        let _ = error;
    }
    /// Asked between statements and while jobs run: true ends the script. Jobs that run are stopped
    /// as [`JobControl::stop`] does.
    fn is_stopped(&self) -> bool {
        false
    }
}
