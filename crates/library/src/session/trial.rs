//! Jobs on trial: they read what a job reads, from where a snapshot of it was, and nothing that
//! they do is seen outside.
//!
//! A session with a [`Trial`] puts something else in the place of what leads outside:
//! - Outputs count rows and keep the first ones. The connectors' own sinks are not made.
//! - Sources are those of the tables, and neither write dead letters nor acknowledge anything.
//! - Snapshots would go to a folder of the trial's own, and none is taken.
//!
//! Tables whose rows go to one reader are refused: a trial would take them from the job.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

use arrow_array::RecordBatch;
use thalweg_connectors::replay::input_position;
use thalweg_core::connector::{
    Connector, ConnectorDescription, ConnectorLayer, LIVE_CONNECTOR, SinkGuarantee, SourceLayer,
    TableRequest,
};
use thalweg_core::{Error, Result, RowKind, Sink, Source};

/// A trial: where it may write, and what its outputs were given.
#[derive(Debug)]
pub struct Trial {
    /// A folder that nobody else has.
    pub folder: PathBuf,
    /// Up to this number of rows of each output are kept.
    pub rows_max: usize,
    outputs: Mutex<BTreeMap<String, TrialOutput>>,
}

/// What an output was given.
#[derive(Clone, Debug, Default)]
pub struct TrialOutput {
    /// How many rows.
    pub rows: u64,
    /// The first of them, each batch with what its rows do.
    pub first: Vec<(RecordBatch, Option<Vec<RowKind>>)>,
}

impl Trial {
    /// A trial that may write to this folder, and keeps up to this number of rows of each output.
    pub fn new(folder: PathBuf, rows_max: usize) -> Trial {
        Trial { folder, rows_max, outputs: Mutex::default() }
    }

    /// What outputs were given so far, by the names of their tables.
    pub fn outputs(&self) -> BTreeMap<String, TrialOutput> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, TrialOutput>> {
        self.outputs.lock().expect("no panic under this lock")
    }

    /// A connector whose tables lead nowhere.
    pub(super) fn wrap(self: &Arc<Self>, connector: Arc<dyn Connector>) -> Arc<dyn Connector> {
        Arc::new(TrialConnector { connector, trial: Arc::clone(self) })
    }

    fn add(&self, table: &str, batch: &RecordBatch, kinds: Option<&[RowKind]>) {
        let mut outputs = self.lock();
        let output = outputs.entry(table.to_owned()).or_default();
        let known = output.rows.min(self.rows_max as u64) as usize;
        output.rows += batch.num_rows() as u64;
        let wanted = batch.num_rows().min(self.rows_max - known);
        if wanted > 0 {
            let kinds = kinds.map(|kinds| kinds[..wanted].to_vec());
            output.first.push((batch.slice(0, wanted), kinds));
        }
    }
}

struct TrialConnector {
    connector: Arc<dyn Connector>,
    trial: Arc<Trial>,
}

impl ConnectorLayer for TrialConnector {
    fn inner(&self) -> &dyn Connector {
        self.connector.as_ref()
    }
    fn source(&self, request: &TableRequest) -> Result<Box<dyn Source>> {
        let ConnectorDescription { name, has_one_reader, .. } = self.connector.description();
        if *has_one_reader {
            return Err(Error::unsupported(format!(
                "a trial can't read table {}: '{name}' gives each row to one reader, and the job is to have it",
                request.table
            )));
        }
        let mut request = request.clone();
        if request.options.get("bad-data").is_some_and(|what| what == "dead-letter") {
            request.options.insert("bad-data".to_owned(), "drop".to_owned());
            request.options.retain(|name, _| !name.starts_with("dead-letter."));
        }
        Ok(Box::new(TrialSource(self.connector.source(&request)?)))
    }
    fn sink(&self, request: &TableRequest) -> Result<Box<dyn Sink>> {
        if self.connector.description().name == LIVE_CONNECTOR {
            return self.connector.sink(request);
        }
        Ok(Box::new(TrialSink { table: request.table.clone(), trial: Arc::clone(&self.trial) }))
    }
}

/// A source that changes nothing outside.
struct TrialSource(Box<dyn Source>);

impl SourceLayer for TrialSource {
    fn inner(&self) -> &dyn Source {
        self.0.as_ref()
    }
    fn inner_mut(&mut self) -> &mut dyn Source {
        self.0.as_mut()
    }
    fn seek(&mut self, position: &str) -> Result<()> {
        self.0.seek(&input_position(position)?)
    }
    fn check_ended(&mut self, position: &str) -> Result<()> {
        self.0.check_ended(&input_position(position)?)
    }
    fn committed(&mut self, _position: &str) -> Result<()> {
        Ok(())
    }
}

struct TrialSink {
    table: String,
    trial: Arc<Trial>,
}

impl Sink for TrialSink {
    fn name(&self) -> String {
        self.table.clone()
    }
    fn write(&mut self, batch: &RecordBatch, kinds: Option<&[RowKind]>) -> Result<()> {
        self.trial.add(&self.table, batch, kinds);
        Ok(())
    }
    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
    fn abort(&mut self) {}
    fn use_transactions(&mut self) -> SinkGuarantee {
        SinkGuarantee::Transactional
    }
}
