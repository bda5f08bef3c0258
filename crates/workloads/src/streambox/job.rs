//! A benchmark as tables in memory and a query over them, and how to run one.

use std::sync::Arc;

use arrow_array::RecordBatch;
use thalweg::pipeline::MemorySource;
use thalweg::session::{Observer, ResultTable, ScalarFunction, Session, SessionOptions, Tz};
use thalweg::{Error, OrderContract, Report, Result, Sink, TableSchema};

/// A table whose rows are in memory. Its first column is the row time `ts`.
#[derive(Clone)]
pub struct Table {
    /// Its name in SQL.
    pub name: &'static str,
    /// Its columns.
    pub schema: TableSchema,
    /// Its rows in the order in which they come.
    pub batches: Vec<RecordBatch>,
    /// The watermark stays so far behind the newest row time.
    pub delay_ms: i64,
}

impl Table {
    /// How many rows it has.
    pub fn num_rows(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }

    /// Its CREATE TABLE: rows come from a registered source of its name.
    pub fn declaration(&self) -> String {
        let column = |c: &thalweg::Column| format!("{} {}", c.name, c.column_type);
        let columns: Vec<String> = self.schema.columns.iter().map(column).collect();
        format!(
            "CREATE TABLE {0} ({1}, WATERMARK FOR ts AS ts - INTERVAL '{2}.{3:03}' SECOND) \
             WITH ('connector' = 'registered', 'source' = '{0}');",
            self.name,
            columns.join(", "),
            self.delay_ms / 1000,
            self.delay_ms % 1000
        )
    }
}

/// A benchmark: a query over tables.
pub struct Job {
    /// What it reads.
    pub tables: Vec<Table>,
    /// Functions that the query calls.
    pub functions: Vec<ScalarFunction>,
    /// Views, then one SELECT.
    pub sql: String,
}

/// How a job runs.
#[derive(Clone, Copy, Debug)]
pub struct RunSettings {
    /// Worker threads.
    pub workers: usize,
    /// What is promised about the sequence of results.
    pub order: OrderContract,
    /// The most rows of a bundle.
    pub bundle_rows_max: usize,
}

impl Job {
    /// How many rows go in.
    pub fn num_rows(&self) -> usize {
        self.tables.iter().map(Table::num_rows).sum()
    }

    /// Runs the query, which writes to this sink.
    ///
    /// # Errors
    /// Of planning, or of the run.
    pub fn run(&self, settings: RunSettings, sink: impl Sink + 'static) -> Result<Report> {
        let set = |key: &str, value: String| (key.to_owned(), value);
        let (mut session, script) = self.session(SessionOptions {
            workers: Some(settings.workers),
            settings: vec![
                set("pipeline.order", settings.order.to_string()),
                set("pipeline.bundle-rows-max", settings.bundle_rows_max.to_string()),
            ],
            ..SessionOptions::default()
        })?;
        let mut results = Results { sink: Some(Box::new(sink)) };
        let report = session.run_script(&script, &mut results)?;
        let job = report.jobs.into_iter().next_back();
        job.map(|job| job.report).ok_or_else(|| Error::plan("the SQL of a benchmark has no SELECT"))
    }

    /// A session that knows the tables and functions, and the script that it is to run.
    ///
    /// # Errors
    /// If the options do not fit.
    pub fn session(&self, options: SessionOptions) -> Result<(Session, String)> {
        let mut session = Session::new(options)?;
        self.functions.iter().for_each(|function| session.register_function(function.clone()));
        let mut script = String::new();
        for table in &self.tables {
            script += &table.declaration();
            let (schema, batches) = (table.schema.clone(), Arc::new(table.batches.clone()));
            session.register_source(table.name, move || {
                Ok(Box::new(MemorySource::new(schema.clone(), batches.to_vec())))
            });
        }
        Ok((session, script + &self.sql))
    }
}

/// Hands the sink to the one SELECT of a job.
struct Results {
    sink: Option<Box<dyn Sink>>,
}

impl Observer for Results {
    fn result(&mut self, _: &ResultTable, _: Tz) -> Result<Box<dyn Sink>> {
        self.sink.take().ok_or_else(|| Error::plan("the SQL of a benchmark has two SELECTs"))
    }
    fn explanation(&mut self, _: &str) -> Result<()> {
        Ok(())
    }
}
