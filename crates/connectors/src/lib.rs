//! Sources, sinks and formats: everything through which rows enter and leave the engine.
//!
//! A connector is a folder (or file) with a type that implements [`Connector`], and a line in
//! [`builtin`]. What it says of itself in its `ConnectorDescription` is all that planner,
//! statements and documentation know of it.
//!
//! | module | holds |
//! |---|---|
//! | [`format`] | bytes to columns and back: CSV, JSON, changes of tables, Avro, Parquet, Arrow |
//! | [`filesystem`] | files, folders, globs, standard input and output |
//! | [`datagen`] | rows made from counters |
//! | [`nexmark`] | the events of the NEXMark benchmark |
//! | [`mod@print`] | rows on standard output |
//! | [`blackhole`] | rows nowhere |
//! | `kafka` | topics of Kafka (feature `kafka`) |
//! | `postgres_cdc` | changes of tables of PostgreSQL (feature `postgres`) |
//! | `jdbc` | tables of PostgreSQL (feature `postgres`) |
//! | [`output`] | the writers behind `print` and a bare SELECT |
//! | `conformance` | checks that every connector must pass (feature `test-support`) |

pub mod blackhole;
#[cfg(any(test, feature = "test-support"))]
pub mod conformance;
pub mod datagen;
pub mod filesystem;
pub mod format;
mod handover;
#[cfg(feature = "postgres")]
pub mod jdbc;
#[cfg(feature = "kafka")]
pub mod kafka;
#[cfg_attr(
    not(any(feature = "kafka", feature = "postgres")),
    allow(dead_code, reason = "files in object stores need little of it")
)]
mod network;
pub mod nexmark;
pub mod output;
mod pacing;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "postgres")]
pub mod postgres_cdc;
pub mod print;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use thalweg_core::connector::{Connector, Connectors};

use crate::filesystem::Filesystem;

/// Every built-in connector, for a run with this one for files. A new connector adds a line.
///
/// ```
/// use thalweg_core::connector::TableRequest;
/// let connectors = thalweg_connectors::builtin(Default::default());
/// let mut request = TableRequest { table: "t".to_string(), ..TableRequest::default() };
/// request.options.insert("connector".to_string(), "filesistem".to_string());
/// let error = connectors.validate(&request, false).unwrap_err();
/// assert!(error.help().is_some_and(|help| help.contains("filesystem")));
/// ```
pub fn builtin(filesystem: Filesystem) -> Connectors {
    let connectors: Vec<Arc<dyn Connector>> = vec![
        Arc::new(filesystem),
        Arc::new(datagen::Datagen),
        Arc::new(nexmark::Nexmark),
        Arc::new(print::Print),
        Arc::new(blackhole::Blackhole),
        #[cfg(feature = "kafka")]
        Arc::new(kafka::Kafka::rows()),
        #[cfg(feature = "kafka")]
        Arc::new(kafka::Kafka::upserts()),
        #[cfg(feature = "postgres")]
        Arc::new(jdbc::Jdbc),
        #[cfg(feature = "postgres")]
        Arc::new(postgres_cdc::PostgresCdc),
    ];
    Connectors::new(connectors)
}
