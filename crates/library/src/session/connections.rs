//! Whether the tables of a script can be reached: its inputs are begun and asked for a row, its
//! outputs are claimed and connected to, and nothing is written, acknowledged or kept.
//!
//! Inputs are read as a [`Trial`] reads them. Tables whose rows go to one reader are refused: a try
//! would take a row from the job that reads them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::RecordBatch;
use thalweg_core::connector::{DiscardSink, SourcePoll, Waker};
use thalweg_core::graph::{Stage, StageKind};
use thalweg_core::shim::Clock;
use thalweg_core::{Error, Result, Sink, Source};
use thalweg_plan::ast::StatementKind;
use thalweg_plan::parser::parse_script_with_notes;

use super::rehearsal::inserts_of;
use super::{Session, SessionOptions, Trial};

/// How often is looked whether a row has come.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// A table that was tried.
#[derive(Debug)]
pub struct Connection {
    /// The table.
    pub table: String,
    /// It is written.
    pub is_output: bool,
    /// The first row of an input, if one came in time.
    pub row: Option<RecordBatch>,
    /// The input ends by itself, and has no row.
    pub is_empty: bool,
    /// Why it cannot be reached or read.
    pub error: Option<Error>,
}

/// Tries the tables of a script, each for this long at most. The script must be valid.
///
/// # Errors
/// Those of planning, and of tables that cannot be tried.
pub fn connections(
    options: SessionOptions,
    text: &str,
    patience: Duration,
) -> Result<Vec<Connection>> {
    let trial = Arc::new(Trial::new(options.base_dir.clone(), 1));
    let mut reading = Session::new(SessionOptions { trial: Some(trial), ..options.clone() })?;
    let mut writing = Session::new(options)?;
    let inputs = reading.stages(text)?.into_iter().filter_map(|stage| match stage.kind {
        StageKind::Source { source, .. } => Some(Tried::Input(stage.name, source)),
        _ => None,
    });
    let outputs = writing.stages(text)?.into_iter().filter_map(|stage| match stage.kind {
        StageKind::Sink(sink) => Some(Tried::Output(stage.name, sink)),
        _ => None,
    });
    let mut known = BTreeSet::new();
    let tried = inputs.chain(outputs).filter(|tried| known.insert(tried.key()));
    Ok(all_tried(&reading, tried.collect(), patience))
}

/// What is tried.
enum Tried {
    Input(String, Box<dyn Source>),
    Output(String, Box<dyn Sink>),
}

impl Tried {
    fn key(&self) -> (bool, String) {
        match self {
            Tried::Input(table, _) => (false, table.clone()),
            Tried::Output(table, _) => (true, table.clone()),
        }
    }

    fn canceller(&self) -> Option<Waker> {
        match self {
            Tried::Input(_, source) => source.canceller(),
            Tried::Output(_, sink) => sink.canceller(),
        }
    }

    fn run(self, clock: &dyn Clock, until_ns: u64) -> Connection {
        let (is_output, table) = self.key();
        let found = match self {
            Tried::Input(_, source) => first_row(source, clock, until_ns),
            Tried::Output(_, sink) => reached(sink).map(|()| (None, false)),
        };
        let (found, error) = match found {
            Ok(found) => (found, None),
            Err(error) => ((None, false), Some(error)),
        };
        Connection { table, is_output, row: found.0, is_empty: found.1, error }
    }
}

/// Tries all at the same time. What waits for longer than it may is cancelled.
fn all_tried(session: &Session, all: Vec<Tried>, patience: Duration) -> Vec<Connection> {
    let clock = session.clock.as_ref();
    let until_ns = clock.now_ns().saturating_add(patience.as_nanos() as u64);
    let cancellers: Vec<Waker> = all.iter().filter_map(Tried::canceller).collect();
    std::thread::scope(|scope| {
        let threads: Vec<_> = all
            .into_iter()
            .map(|tried| {
                let key = tried.key();
                (key, scope.spawn(move || tried.run(clock, until_ns)))
            })
            .collect();
        while threads.iter().any(|(_, thread)| !thread.is_finished()) && clock.now_ns() < until_ns {
            std::thread::sleep(LOOK_EVERY);
        }
        cancellers.iter().for_each(|cancel| cancel());
        let ended = threads.into_iter().map(|((is_output, table), thread)| {
            thread.join().unwrap_or_else(|_| {
                let error = Some(Error::internal("the connector panicked"));
                Connection { table, is_output, row: None, is_empty: false, error }
            })
        });
        ended.collect()
    })
}

/// The first row of an input, and whether it has none and never will.
fn first_row(
    mut source: Box<dyn Source>,
    clock: &dyn Clock,
    until_ns: u64,
) -> Result<(Option<RecordBatch>, bool)> {
    let mut ask = || -> Result<(Option<RecordBatch>, bool)> {
        source.start(Arc::new(|| ()))?;
        loop {
            match source.poll(1)? {
                SourcePoll::Batch(found) if found.batch.num_rows() > 0 => {
                    return Ok((Some(found.batch.slice(0, 1)), false));
                }
                SourcePoll::End => return Ok((None, true)),
                SourcePoll::Pending => std::thread::sleep(LOOK_EVERY),
                SourcePoll::Batch(_) | SourcePoll::Heartbeat(..) | SourcePoll::Split(..) => {}
            }
            if clock.now_ns() >= until_ns {
                return Ok((None, false));
            }
        }
    };
    let asked = ask();
    source.stop();
    source.abort();
    asked
}

fn reached(mut sink: Box<dyn Sink>) -> Result<()> {
    let reached = sink.claim().and_then(|()| sink.connect());
    sink.abort();
    reached
}

impl Session {
    /// The stages of all jobs and queries of a script, with real sources and sinks, none of them
    /// begun.
    fn stages(&mut self, text: &str) -> Result<Vec<Stage>> {
        let mut stages = Vec::new();
        for statement in &parse_script_with_notes(text)?.statements {
            let executed = self.planner.executed_plan(statement)?;
            let inner = executed.as_ref().map_or(statement, |executed| &executed.statement);
            let planner = executed.as_ref().map_or(&self.planner, |executed| &executed.planner);
            let plan = match (inserts_of(inner), &inner.kind) {
                (Some((inserts, _)), _) => planner.plan_insert(inserts)?,
                (None, StatementKind::Select(query)) => {
                    planner.plan_select(query, &mut |_| Ok(Box::new(DiscardSink::new("result"))))?
                }
                (None, StatementKind::Explain(_)) => continue,
                _ => {
                    self.planner.execute_ddl(statement)?;
                    continue;
                }
            };
            let is_table = |stage: &Stage| match &stage.kind {
                StageKind::Sink(sink) => sink.name() != "result",
                _ => true,
            };
            stages.extend(plan.graph.stages.into_iter().filter(is_table));
        }
        Ok(stages)
    }
}
