//! `'connector' = 'http'`: rows over HTTP in both directions; `'connector' = 'http-async-sink'`:
//! the sink alone, under the name that it has in Flink.
//!
//! | what | where |
//! |---|---|
//! | options | [`options`], lists of statuses [`codes`] |
//! | asking an address again and again | [`poll`] |
//! | reading a stream of server-sent events | [`events`] |
//! | where both are, in positions | [`place`] |
//! | taking rows that are POSTed | [`listener`], over the server of [`server`] or that of the job |
//! | which bodies the job has | [`bodies`] |
//! | bodies as rows | [`body`] |
//! | looking up | [`lookup`] |
//! | sending | [`sink`] |

mod bodies;
mod body;
mod codes;
mod events;
mod listener;
mod lookup;
mod options;
mod place;
mod poll;
mod server;
mod sink;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use thalweg_core::connector::{
    AcceptedChanges, Connector, ConnectorDescription, Options, Sink, Source, TableRequest,
};
use thalweg_core::lookup::{AsyncLookup, LookupRequest};
use thalweg_core::{Error, Result};

use self::bodies::CountedSource;
use self::events::EventReader;
use self::listener::Listener;
use self::options::{
    HTTP, HTTP_SINK, LookupOptions, ScanMode, ScanOptions, SinkOptions, scan_mode,
};
use self::place::{PlacedSource, Places};
use self::poll::Poller;
use crate::filesystem::FinishedLetters;
use crate::messaging::{self, Client, MarkText, SourceParts, Startup, Tracking};
use crate::network::Cancel;

/// The connectors.
pub struct Http {
    description: &'static ConnectorDescription,
    finished: FinishedLetters,
}

impl Http {
    /// `http`
    pub fn rows() -> Http {
        Http { description: &HTTP, finished: FinishedLetters::default() }
    }

    /// `http-async-sink`
    pub fn sink_only() -> Http {
        Http { description: &HTTP_SINK, finished: FinishedLetters::default() }
    }

    fn check_readable(&self, request: &TableRequest) -> Result<()> {
        match self.description.capabilities.source {
            Some(_) => Ok(()),
            None => Err(Error::plan(format!("table {} is only written", request.table))
                .hint("rows are read with 'connector' = 'http'")),
        }
    }

    fn parts(
        &self,
        options: ScanOptions,
        client: Box<dyn Client>,
        tracking: Tracking,
        cancel: Cancel,
    ) -> SourceParts {
        SourceParts {
            client,
            peer: options.http.url.clone(),
            splits: vec![options.http.url.clone()],
            records: options.http.records,
            tracking,
            text: MarkText::NUMBER,
            startup: Startup::Earliest,
            is_bounded: false,
            finished: self.finished.clone(),
            cancel,
        }
    }
}

impl Connector for Http {
    fn description(&self) -> &ConnectorDescription {
        self.description
    }

    fn validate(&self, request: &TableRequest, as_sink: bool) -> Result<()> {
        match as_sink {
            true => SinkOptions::read(request, self.description).map(drop),
            false => ScanOptions::read(request).map(drop),
        }
    }

    fn accepted_changes(&self, request: &TableRequest) -> AcceptedChanges {
        let options = SinkOptions::read(request, self.description);
        options.map_or(AcceptedChanges::Inserts, |options| options.http.records.format.changes())
    }

    fn held_changes(&self, request: &TableRequest) -> AcceptedChanges {
        let options = ScanOptions::read(request);
        options.map_or(AcceptedChanges::Inserts, |options| options.http.records.format.changes())
    }

    fn state_options(&self, request: &TableRequest, as_sink: bool) -> BTreeMap<String, String> {
        let Ok(options) = Options::of(request, self.description) else { return BTreeMap::new() };
        // Where a job listens may change: what was acknowledged has nothing to do with it.
        let listens = matches!(scan_mode(&options), Ok(ScanMode::Listen | ScanMode::Server));
        options.deciding(|name| match name {
            "url" => !as_sink && !listens,
            "scan.mode" | "scan.records" => !as_sink,
            _ => false,
        })
    }

    fn source(&self, request: &TableRequest) -> Result<Box<dyn Source>> {
        self.check_readable(request)?;
        let options = ScanOptions::open(request)?;
        let cancel = Cancel::default();
        let (places, flag) = (Places::default(), cancel.clone());
        let bytes_max = request.memory_limit_bytes / 4;
        let client: Box<dyn Client> = match options.mode {
            ScanMode::Poll => {
                Box::new(Poller::new(options.clone(), places.clone(), bytes_max as u64, flag))
            }
            ScanMode::Events => {
                Box::new(EventReader::new(options.clone(), places.clone(), bytes_max, flag))
            }
            ScanMode::Listen | ScanMode::Server => {
                let listener = Listener::new(request, options.clone(), flag);
                let bodies = listener.bodies();
                let client = Box::new(listener);
                let parts = self.parts(options, client, Tracking::Acknowledge, cancel);
                return messaging::open_with(request, parts, |source| {
                    Box::new(CountedSource::new(source, bodies))
                });
            }
        };
        let parts = self.parts(options, client, Tracking::Replay, cancel);
        messaging::open_with(request, parts, |source| Box::new(PlacedSource { source, places }))
    }

    fn sink(&self, request: &TableRequest) -> Result<Box<dyn Sink>> {
        sink::open(request, SinkOptions::open(request, self.description)?)
    }

    fn lookup(&self, request: &LookupRequest) -> Result<Arc<dyn AsyncLookup>> {
        self.check_readable(&request.table)?;
        Ok(Arc::new(lookup::open(request, LookupOptions::open(&request.table)?)?))
    }
}
