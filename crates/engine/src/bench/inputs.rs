//! Events in memory: what the query's sources would bring, read before the clock starts.
//!
//! The sources are those that the planner has opened, so each table has just the columns that the
//! query reads. Sources of other tables (files) stay as they are.

use std::sync::Arc;

use arrow_array::RecordBatch;
use thalweg_core::graph::{Graph, StageKind};
use thalweg_core::{Error, Result, Source, SourcePoll};

use crate::pipeline::MemorySource;

/// The tables of events.
const TABLES: [&str; 3] = ["person", "auction", "bid"];

/// Rows of a batch in memory: as many as the largest bundle has.
const BATCH_ROWS: usize = 65_536;

/// The events of one table, with the columns that are read.
#[derive(Clone, Debug)]
pub struct Input {
    /// The table: `person`, `auction` or `bid`.
    pub table: String,
    /// Its rows in the order of their events. Columns have their names.
    pub batches: Vec<RecordBatch>,
}

/// The events of a query's sources.
#[derive(Clone, Default)]
pub(super) struct Inputs {
    all: Vec<Input>,
    are_complete: bool,
}

impl Inputs {
    /// In the order of the sources.
    pub(super) fn all(&self) -> &[Input] {
        &self.all
    }

    /// Replaces the sources of events by what they bring; reads them if that was not done yet.
    pub(super) fn put_into(&mut self, graph: &mut Graph) -> Result<()> {
        let sources = graph.stages.iter_mut().filter_map(|stage| match &mut stage.kind {
            StageKind::Source { source, .. } => Some(source),
            _ => None,
        });
        let sources = sources.filter(|source| TABLES.contains(&source.name().as_str()));
        for (place, source) in sources.enumerate() {
            if !self.are_complete {
                let input =
                    Input { table: source.name(), batches: read_all(source.as_mut(), BATCH_ROWS)? };
                self.all.push(input);
            }
            let input = self.all.get(place).ok_or_else(|| Error::internal("a new source"))?;
            *source = Box::new(MemorySource::replay(input.batches.clone()));
        }
        self.are_complete = true;
        Ok(())
    }
}

/// Everything that a source brings which never waits, in batches of at most this many rows.
///
/// # Errors
/// Those of the source, or that it waits.
pub fn read_all(source: &mut dyn Source, rows_max: usize) -> Result<Vec<RecordBatch>> {
    source.start(Arc::new(|| {}))?;
    let mut batches = Vec::new();
    loop {
        match source.poll(rows_max)? {
            SourcePoll::Batch(read) => batches.push(read.batch),
            SourcePoll::Heartbeat(..) | SourcePoll::Split(..) => {}
            SourcePoll::End => break,
            SourcePoll::Pending => {
                return Err(Error::internal(format!("the rows of {} wait", source.name())));
            }
        }
    }
    source.stop();
    Ok(batches)
}
