//! `'connector' = 'blackhole'`: takes rows and forgets them, for measuring everything in front.

use arrow_array::RecordBatch;
use thalweg_core::connector::{
    AcceptedChanges, Capabilities, Connector, ConnectorDescription, Options, Sink, SinkCapability,
    TableRequest,
};
use thalweg_core::snapshot::SinkGuarantee;
use thalweg_core::{Result, RowKind};

const DESCRIPTION: ConnectorDescription = ConnectorDescription {
    capabilities: Capabilities {
        sink: Some(SinkCapability {
            changes: &[AcceptedChanges::All],
            guarantee: SinkGuarantee::AtLeastOnce,
        }),
        ..Capabilities::NONE
    },
    is_in_flink: true,
    ..ConnectorDescription::new("blackhole", "writes nothing, for measuring")
};

/// The connector.
pub struct Blackhole;

impl Connector for Blackhole {
    fn description(&self) -> &ConnectorDescription {
        &DESCRIPTION
    }
    fn validate(&self, request: &TableRequest, _as_sink: bool) -> Result<()> {
        Options::of(request, &DESCRIPTION).map(drop)
    }
    fn sink(&self, request: &TableRequest) -> Result<Box<dyn Sink>> {
        Ok(Box::new(BlackholeSink { table: request.table.clone() }))
    }
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
