//! `'connector' = 'nats'`: subjects of NATS, and streams of JetStream.
//!
//! | what | where |
//! |---|---|
//! | options | [`options`] |
//! | the protocol over a connection | [`session`], with the texts of [`protocol`] |
//! | reading | [`reading`] |
//! | writing | [`writing`] |

mod options;
mod protocol;
mod reading;
mod session;
mod writing;

use thalweg_core::Result;
use thalweg_core::connector::{
    AcceptedChanges, Connector, ConnectorDescription, Sink, Source, TableRequest,
};

use self::options::{DESCRIPTION, NatsOptions};
use self::reading::SubjectReader;
use self::session::Session;
use self::writing::SubjectWriter;
use crate::filesystem::FinishedLetters;
use crate::messaging::{self, MessageSink, SourceParts, Tracking};
use crate::network::Cancel;

/// The connector.
#[derive(Default)]
pub struct Nats {
    finished: FinishedLetters,
}

fn changes(request: &TableRequest, as_sink: bool) -> AcceptedChanges {
    let options = NatsOptions::read(request, as_sink);
    options.map_or(AcceptedChanges::Inserts, |options| options.records.format.changes())
}

impl Connector for Nats {
    fn description(&self) -> &ConnectorDescription {
        &DESCRIPTION
    }

    fn validate(&self, request: &TableRequest, as_sink: bool) -> Result<()> {
        NatsOptions::read(request, as_sink).map(drop)
    }

    fn is_bounded(&self, request: &TableRequest) -> bool {
        NatsOptions::read(request, false).is_ok_and(|options| options.is_bounded)
    }

    fn accepted_changes(&self, request: &TableRequest) -> AcceptedChanges {
        changes(request, true)
    }

    fn held_changes(&self, request: &TableRequest) -> AcceptedChanges {
        changes(request, false)
    }

    fn source(&self, request: &TableRequest) -> Result<Box<dyn Source>> {
        let options = NatsOptions::open(request, false)?;
        let cancel = Cancel::default();
        let peer = options.server.to_string();
        let session = Session::new(options.server.clone(), cancel.clone());
        let split = options.stream.clone().unwrap_or_else(|| options.subjects.join(";"));
        let tracking = match options.stream {
            Some(_) => Tracking::Replay,
            None => Tracking::Nothing,
        };
        let (startup, is_bounded) = (options.startup, options.is_bounded);
        let parts = SourceParts {
            records: options.records.clone(),
            client: Box::new(SubjectReader::new(session, options)),
            peer,
            splits: vec![split],
            tracking,
            text: reading::SEQUENCES,
            startup,
            is_bounded,
            finished: self.finished.clone(),
            cancel,
        };
        messaging::open(request, parts)
    }

    fn sink(&self, request: &TableRequest) -> Result<Box<dyn Sink>> {
        let options = NatsOptions::open(request, true)?;
        let cancel = Cancel::default();
        let peer = options.server.to_string();
        let records = options.records.clone();
        let writer = SubjectWriter::new(options, request, cancel.clone());
        let sink = MessageSink::new(request.clone(), &records, peer, Box::new(writer), cancel)?;
        Ok(Box::new(sink))
    }
}
