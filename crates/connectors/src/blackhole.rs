//! `'connector' = 'blackhole'`: takes rows and forgets them, for measuring everything in front.

use thalweg_core::Result;
use thalweg_core::connector::{
    AcceptedChanges, Capabilities, Connector, ConnectorDescription, DiscardSink, Options, Sink,
    TableRequest,
};
use thalweg_core::snapshot::SinkGuarantee;

const DESCRIPTION: ConnectorDescription = ConnectorDescription {
    capabilities: Capabilities::NONE.writing(&[AcceptedChanges::All], SinkGuarantee::AtLeastOnce),
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
        Ok(Box::new(DiscardSink::new(request.table.clone())))
    }
}
