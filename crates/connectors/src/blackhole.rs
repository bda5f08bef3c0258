//! `'connector' = 'blackhole'`: takes rows and forgets them, for measuring everything in front.

use arrow_array::RecordBatch;
use chrono_tz::Tz;
use thalweg_core::connector::{AcceptedChanges, Sink, Source, TableRequest};
use thalweg_core::{Error, Result, RowKind};

use crate::Connector;
use crate::filesystem::FinishedLetters;
use crate::options::{Known, Options};

const KNOWN: Known = Known { options: &["connector"], unsupported: &[] };

/// The connector.
pub struct Blackhole;

impl Connector for Blackhole {
    fn name(&self) -> &'static str {
        "blackhole"
    }
    fn validate(&self, request: &TableRequest, as_sink: bool) -> Result<()> {
        Options::checked(request, &KNOWN)?;
        if as_sink { Ok(()) } else { Err(not_readable(&request.table, "blackhole")) }
    }
    fn accepted_changes(&self, _: &TableRequest) -> AcceptedChanges {
        AcceptedChanges::All
    }
    fn is_bounded(&self, _request: &TableRequest) -> bool {
        true
    }
    fn source(
        &self,
        request: &TableRequest,
        _letters: &FinishedLetters,
        _memory_limit_bytes: usize,
    ) -> Result<Box<dyn Source>> {
        Err(not_readable(&request.table, "blackhole"))
    }
    fn sink(&self, request: &TableRequest, _zone: Tz) -> Result<Box<dyn Sink>> {
        Ok(Box::new(BlackholeSink { table: request.table.clone() }))
    }
}

/// The error of reading a table that can only be written.
pub(crate) fn not_readable(table: &str, connector: &str) -> Error {
    Error::plan(format!("table {table} cannot be read: connector '{connector}' only takes rows"))
        .hint("use it as the target of INSERT INTO")
}

struct BlackholeSink {
    table: String,
}

impl Sink for BlackholeSink {
    fn name(&self) -> String {
        self.table.clone()
    }
    fn open(&mut self) -> Result<()> {
        Ok(())
    }
    fn write(&mut self, _batch: &RecordBatch, _kinds: Option<&[RowKind]>) -> Result<()> {
        Ok(())
    }
    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
    fn abort(&mut self) {}
}
