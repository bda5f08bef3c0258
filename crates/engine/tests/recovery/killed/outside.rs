//! An outside in memory that rows reach by transactions, and that outlives the runs that write to
//! it.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::{Arc, Mutex, MutexGuard};

use arrow_array::RecordBatch;
use chrono_tz::Tz;
use thalweg::{Error, Result, RowKind, Sink};
use thalweg_connectors::output::{Format, ResultWriter};
use thalweg_core::snapshot::SinkGuarantee;
use thalweg_plan::ResultTable;

/// Rows with their kinds, as a sink got them.
type Written = (RecordBatch, Option<Vec<RowKind>>);

#[derive(Default)]
struct State {
    visible: Vec<Written>,
    prepared: BTreeMap<u64, Vec<Written>>,
    next: u64,
    loses_commits: bool,
}

/// What sinks have written. Clones are the same outside.
#[derive(Clone, Default)]
pub struct Outside(Arc<Mutex<State>>);

impl Outside {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no panic under this lock")
    }

    /// From now on, until the job is restored, no commit gets here: the job dies between a manifest
    /// and its commit.
    pub fn lose_commits(&self) {
        self.state().loses_commits = true;
    }

    /// A sink, for one run.
    pub fn sink(&self, name: String) -> Box<dyn Sink> {
        Box::new(OutsideSink { name, outside: self.clone(), pending: Vec::new() })
    }

    /// What is visible, as `thalweg run --format csv --null '\N'` shows it.
    pub fn text(&self, table: &ResultTable, zone: Tz) -> Vec<u8> {
        let text = Text::default();
        let mut writer = text.writer(table, zone);
        for (batch, kinds) in &self.state().visible {
            writer.write(batch, kinds.as_deref()).expect("rows can be shown");
        }
        writer.finish().expect("rows can be shown");
        text.bytes()
    }
}

/// Bytes that a writer has written.
#[derive(Clone, Default)]
pub struct Text(Arc<Mutex<Vec<u8>>>);

impl Text {
    /// Writes rows of a table here.
    pub fn writer(&self, table: &ResultTable, zone: Tz) -> ResultWriter {
        let (schema, null) = (table.schema.clone(), "\\N".to_owned());
        let writer = ResultWriter::new(Format::Csv, schema, null, zone, Box::new(self.clone()));
        writer.with_changelog(table.has_updates)
    }

    /// What was written.
    pub fn bytes(&self) -> Vec<u8> {
        self.0.lock().expect("no panic under this lock").clone()
    }
}

impl Write for Text {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no panic under this lock").extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

struct OutsideSink {
    name: String,
    outside: Outside,
    pending: Vec<Written>,
}

impl Sink for OutsideSink {
    fn name(&self) -> String {
        self.name.clone()
    }
    fn open(&mut self) -> Result<()> {
        Ok(())
    }
    fn write(&mut self, batch: &RecordBatch, kinds: Option<&[RowKind]>) -> Result<()> {
        self.pending.push((batch.clone(), kinds.map(<[RowKind]>::to_vec)));
        Ok(())
    }
    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
    fn finish(&mut self) -> Result<()> {
        assert!(self.pending.is_empty(), "the last transaction comes before the end");
        Ok(())
    }
    fn abort(&mut self) {}
    fn use_transactions(&mut self) -> SinkGuarantee {
        SinkGuarantee::Transactional
    }
    fn recover(&mut self, handle: Option<&str>) -> Result<()> {
        self.outside.state().loses_commits = false;
        handle.map_or(Ok(()), |handle| self.commit(handle))?;
        self.outside.state().prepared.clear();
        Ok(())
    }
    fn prepare(&mut self) -> Result<Option<String>> {
        let mut state = self.outside.state();
        let number = state.next;
        state.next += 1;
        // A handle holds all since the last commit. Earlier ones stay: it may be their snapshot
        // that is kept.
        let mut rows =
            state.prepared.last_entry().map(|last| last.get().clone()).unwrap_or_default();
        rows.append(&mut self.pending);
        state.prepared.insert(number, rows);
        Ok(Some(number.to_string()))
    }
    fn commit(&mut self, handle: &str) -> Result<()> {
        let number: u64 = handle.parse().map_err(|_| Error::data("a handle is a number"))?;
        let mut state = self.outside.state();
        if state.loses_commits {
            return Ok(());
        }
        let rows = state.prepared.remove(&number).unwrap_or_default();
        state.prepared.clear();
        state.visible.extend(rows);
        Ok(())
    }
}
