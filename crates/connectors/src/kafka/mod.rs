//! `'connector' = 'kafka'` and `'upsert-kafka'`: topics of Kafka, over librdkafka.
//!
//! | what | where |
//! |---|---|
//! | what the connectors say of themselves; options | [`description`], [`options`] |
//! | settings of the client, sign-in of Java | [`client`], [`jaas`] |
//! | partitions and places in them | [`offsets`] |
//! | reading | [`source`], with the thread of [`reader`] |
//! | messages to rows | [`rows`]; those that can't be read: [`letters`] |
//! | rows to messages | [`messages`] |
//! | writing | [`sink`], [`output`], [`batches`] |
//! | writing exactly once | [`transactions`], [`spool`], [`limits`] |

mod batches;
mod client;
mod description;
mod jaas;
mod letters;
mod letters_again;
mod limits;
mod messages;
mod offsets;
mod options;
mod output;
mod partitions;
mod queue;
mod reader;
mod rows;
mod sink;
mod source;
mod spool;
mod transactions;

use std::collections::BTreeMap;

use thalweg_core::connector::{
    AcceptedChanges, Connector, ConnectorDescription, JobTables, Sink, Source, TableRequest,
};
use thalweg_core::{Error, Result};

use self::description::{KAFKA, UPSERT_KAFKA};
use self::options::{BadData, Delivery, KafkaOptions};
use self::rows::RowReader;
use self::sink::KafkaSink;
use self::source::KafkaSource;
use crate::filesystem::{FinishedLetters, letters_path};
use crate::replay::replaying;

/// The connector `kafka`, or `upsert-kafka`.
pub struct Kafka {
    is_upsert: bool,
    letters: FinishedLetters,
}

impl Kafka {
    /// `kafka`
    pub fn rows() -> Kafka {
        Kafka { is_upsert: false, letters: FinishedLetters::default() }
    }

    /// `upsert-kafka`
    pub fn upserts() -> Kafka {
        Kafka { is_upsert: true, letters: FinishedLetters::default() }
    }
}

/// Which changes a table has.
fn changes(options: Result<KafkaOptions>) -> AcceptedChanges {
    match options {
        Ok(options) if options.is_upsert => AcceptedChanges::Upserts,
        Ok(options) => options.value.changes(),
        Err(_) => AcceptedChanges::Inserts,
    }
}

/// Checks that no two outputs have the same transactions.
fn check_prefixes<'a>(writes: impl Iterator<Item = &'a TableRequest>) -> Result<()> {
    let mut known: BTreeMap<String, String> = BTreeMap::new();
    for request in writes {
        let is_upsert = match request.options.get("connector").map(String::as_str) {
            Some("kafka") => false,
            Some("upsert-kafka") => true,
            _ => continue,
        };
        let options = KafkaOptions::read(request, is_upsert, true, false)?;
        let Some(prefix) =
            options.transactional_prefix.filter(|_| options.delivery == Delivery::ExactlyOnce)
        else {
            continue;
        };
        if let Some(other) = known.insert(prefix.clone(), request.table.clone()) {
            return Err(Error::plan(format!(
                "tables {other} and {} have the same 'sink.transactional-id-prefix' = '{prefix}'",
                request.table
            ))
            .hint("give each output a prefix of its own"));
        }
    }
    Ok(())
}

impl Connector for Kafka {
    fn description(&self) -> &ConnectorDescription {
        if self.is_upsert { &UPSERT_KAFKA } else { &KAFKA }
    }

    fn validate(&self, request: &TableRequest, as_sink: bool) -> Result<()> {
        KafkaOptions::read(request, self.is_upsert, as_sink, false).map(drop)
    }

    fn is_bounded(&self, request: &TableRequest) -> bool {
        let read = KafkaOptions::read(request, self.is_upsert, false, false);
        read.is_ok_and(|options| options.bounded.is_some())
    }

    fn accepted_changes(&self, request: &TableRequest) -> AcceptedChanges {
        changes(KafkaOptions::read(request, self.is_upsert, true, false))
    }

    fn held_changes(&self, request: &TableRequest) -> AcceptedChanges {
        changes(KafkaOptions::read(request, self.is_upsert, false, false))
    }

    fn check_files(&self, tables: &JobTables) -> Result<()> {
        check_prefixes(tables.writes.iter().map(|(request, _)| request))
    }

    fn source(&self, request: &TableRequest) -> Result<Box<dyn Source>> {
        let options = KafkaOptions::read(request, self.is_upsert, false, true)?;
        let letters = match &options.bad_data {
            BadData::File(path) => Some(letters_path(request, path)?),
            _ => None,
        };
        let reader = RowReader::new(request, &options);
        let source = KafkaSource::new(request.clone(), options, self.letters.clone())?;
        replaying(Box::new(source), letters.as_deref(), || Ok(Box::new(reader)))
    }

    fn sink(&self, request: &TableRequest) -> Result<Box<dyn Sink>> {
        let options = KafkaOptions::read(request, self.is_upsert, true, true)?;
        Ok(Box::new(KafkaSink::new(request.clone(), options)?))
    }
}
