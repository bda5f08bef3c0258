//! `'connector' = 'mqtt'`: topics of a broker of MQTT 5.
//!
//! | what | where |
//! |---|---|
//! | options | [`options`] |
//! | packets as bytes | [`packets`] |
//! | packets over a connection | [`session`] |
//! | reading, and what is acknowledged | [`reading`] |
//! | writing | [`writing`] |

mod options;
mod packets;
mod reading;
mod session;
mod writing;

use std::collections::BTreeMap;

use thalweg_core::Result;
use thalweg_core::connector::{
    AcceptedChanges, Connector, ConnectorDescription, Options, Sink, Source, TableRequest,
};

use self::options::{DESCRIPTION, MqttOptions};
use self::reading::TopicReader;
use self::session::Session;
use self::writing::TopicWriter;
use crate::filesystem::FinishedLetters;
use crate::messaging::{self, MessageSink, SourceParts, Startup, Tracking};
use crate::network::Cancel;

/// The connector.
#[derive(Default)]
pub struct Mqtt {
    finished: FinishedLetters,
}

fn changes(request: &TableRequest, as_sink: bool) -> AcceptedChanges {
    let options = MqttOptions::read(request, as_sink);
    options.map_or(AcceptedChanges::Inserts, |options| options.records.format.changes())
}

impl Connector for Mqtt {
    fn description(&self) -> &ConnectorDescription {
        &DESCRIPTION
    }

    fn validate(&self, request: &TableRequest, as_sink: bool) -> Result<()> {
        MqttOptions::read(request, as_sink).map(drop)
    }

    fn accepted_changes(&self, request: &TableRequest) -> AcceptedChanges {
        changes(request, true)
    }

    fn held_changes(&self, request: &TableRequest) -> AcceptedChanges {
        changes(request, false)
    }

    fn state_options(&self, request: &TableRequest, as_sink: bool) -> BTreeMap<String, String> {
        let decides = |name: &str| {
            name == "topic" || (!as_sink && matches!(name, "bad-data" | "client-id" | "qos"))
        };
        let options = Options::of(request, &DESCRIPTION);
        options.map(|options| options.deciding(decides)).unwrap_or_default()
    }

    fn source(&self, request: &TableRequest) -> Result<Box<dyn Source>> {
        let options = MqttOptions::open(request, false)?;
        let cancel = Cancel::default();
        let peer = options.broker.to_string();
        let session = Session::new(options.broker, cancel.clone());
        let parts = SourceParts {
            client: Box::new(TopicReader::new(session, options.topics.clone(), options.qos)),
            peer,
            records: options.records,
            splits: vec![options.topics.join(";")],
            tracking: if options.qos == 1 { Tracking::Acknowledge } else { Tracking::Nothing },
            text: reading::MARKS,
            startup: Startup::Latest,
            is_bounded: false,
            finished: self.finished.clone(),
            cancel,
        };
        messaging::open(request, parts)
    }

    fn sink(&self, request: &TableRequest) -> Result<Box<dyn Sink>> {
        let options = MqttOptions::open(request, true)?;
        let cancel = Cancel::default();
        let peer = options.broker.to_string();
        let records = options.records.clone();
        let writer = TopicWriter::new(options, request, cancel.clone());
        let sink = MessageSink::new(request.clone(), &records, peer, Box::new(writer), cancel)?;
        Ok(Box::new(sink))
    }
}
