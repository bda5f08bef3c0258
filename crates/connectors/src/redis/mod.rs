//! `'connector' = 'redis'`: streams of Redis (and of servers that speak its protocol, as Valkey
//! does), read and written, and its keys, looked up.
//!
//! | what | where |
//! |---|---|
//! | options | [`options`] |
//! | commands and answers | [`session`] |
//! | reading streams | [`reading`] |
//! | writing them | [`writing`] |
//! | looking keys up | [`lookup`] |

mod lookup;
mod options;
mod reading;
mod session;
mod writing;

use std::sync::Arc;

use thalweg_core::connector::{
    AcceptedChanges, Connector, ConnectorDescription, Sink, Source, TableRequest,
};
use thalweg_core::lookup::{AsyncLookup, LookupRequest};
use thalweg_core::{Error, Result};

use self::options::{DESCRIPTION, RedisOptions};
use self::reading::StreamReader;
use self::session::Session;
use self::writing::StreamWriter;
use crate::filesystem::FinishedLetters;
use crate::messaging::{self, MessageSink, SourceParts, Tracking};
use crate::network::Cancel;

/// The connector.
#[derive(Default)]
pub struct Redis {
    finished: FinishedLetters,
}

impl Redis {
    fn changes(request: &TableRequest) -> AcceptedChanges {
        let options = RedisOptions::read(request).ok();
        let records = options.as_ref().and_then(|options| options.records().ok());
        records.map_or(AcceptedChanges::Inserts, |records| records.format.changes())
    }
}

impl Connector for Redis {
    fn description(&self) -> &ConnectorDescription {
        &DESCRIPTION
    }

    fn validate(&self, request: &TableRequest, as_sink: bool) -> Result<()> {
        RedisOptions::read(request)?.check(request, as_sink)
    }

    fn is_bounded(&self, request: &TableRequest) -> bool {
        RedisOptions::read(request).is_ok_and(|options| options.is_bounded)
    }

    fn accepted_changes(&self, request: &TableRequest) -> AcceptedChanges {
        Redis::changes(request)
    }

    fn held_changes(&self, request: &TableRequest) -> AcceptedChanges {
        Redis::changes(request)
    }

    fn source(&self, request: &TableRequest) -> Result<Box<dyn Source>> {
        let options = RedisOptions::open(request)?;
        if options.streams.is_empty() {
            return Err(Error::plan(format!("table {}: keys are only looked up", request.table))
                .hint("add 'stream' = 'NAME' to read a stream, or JOIN … FOR SYSTEM_TIME AS OF"));
        }
        let cancel = Cancel::default();
        let session = Session::new(options.server.clone(), cancel.clone());
        let parts = SourceParts {
            client: Box::new(StreamReader::new(
                session,
                options.field.clone(),
                options.ignores_removed,
            )),
            peer: options.server.to_string(),
            records: options.records()?.clone(),
            splits: options.streams.clone(),
            tracking: Tracking::Replay,
            text: reading::IDS,
            startup: options.startup,
            is_bounded: options.is_bounded,
            finished: self.finished.clone(),
            cancel,
        };
        messaging::open(request, parts)
    }

    fn sink(&self, request: &TableRequest) -> Result<Box<dyn Sink>> {
        let options = RedisOptions::open(request)?;
        let cancel = Cancel::default();
        let session = Session::new(options.server.clone(), cancel.clone());
        let stream = options.streams.first().cloned().unwrap_or_default();
        let writer = StreamWriter::new(session, stream, &options);
        let peer = options.server.to_string();
        let records = options.records()?;
        let sink = MessageSink::new(request.clone(), records, peer, Box::new(writer), cancel)?;
        Ok(Box::new(sink))
    }

    fn lookup(&self, request: &LookupRequest) -> Result<Arc<dyn AsyncLookup>> {
        if request.keys.len() != 1 {
            return Err(Error::plan(format!(
                "table {}: a key of Redis is one column, and the join has {}",
                request.table.table,
                request.keys.len()
            ))
            .hint("join ON one column; others can follow in WHERE"));
        }
        let options = RedisOptions::open(&request.table)?;
        Ok(Arc::new(lookup::open(request, &options)?))
    }
}
