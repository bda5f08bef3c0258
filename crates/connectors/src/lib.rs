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
//! | [`iceberg`] | tables of Apache Iceberg |
//! | `kafka` | topics of Kafka (feature `kafka`) |
//! | `postgres_cdc` | changes of tables of PostgreSQL (feature `postgres`) |
//! | `jdbc` | tables of PostgreSQL (feature `postgres`) |
//! | `redis` | streams of Redis, and keys that are looked up (feature `redis`) |
//! | `mqtt` | topics of MQTT (feature `mqtt`) |
//! | `nats` | subjects of NATS, and streams of JetStream (feature `nats`) |
//! | `socket` | lines of a TCP connection (with the features of other connectors of messages) |
//! | `http` | rows over HTTP, in both directions (feature `http`) |
//! | `websocket` | messages of a WebSocket (feature `websocket`) |
//! | [`taken_bodies`] | which bodies of rows a snapshot has |
//! | `saved` | positions and transactions in snapshots |
//! | `percent` | texts as parts of URLs |
//! | `messaging` | messages of peers as rows, whatever brings them |
//! | [`output`] | the writers behind `print` and a bare SELECT |
//! | `conformance` | checks that every connector must pass (feature `test-support`) |

pub mod blackhole;
#[cfg(any(test, feature = "test-support"))]
pub mod conformance;
pub mod datagen;
pub mod filesystem;
pub mod format;
mod handover;
#[cfg(feature = "http")]
pub mod http;
pub mod iceberg;
#[cfg(feature = "postgres")]
pub mod jdbc;
#[cfg(feature = "kafka")]
pub mod kafka;
#[cfg(any(feature = "http", feature = "postgres", feature = "redis"))]
mod lookup_workers;
#[cfg(feature = "messaging")]
#[cfg_attr(
    not(all(feature = "mqtt", feature = "nats", feature = "redis")),
    allow(dead_code, unused_imports, reason = "connectors that are left out use the rest")
)]
mod messaging;
#[cfg_attr(
    not(any(feature = "kafka", feature = "messaging")),
    allow(dead_code, reason = "connectors that are left out use the rest")
)]
mod metadata;
#[cfg(feature = "mqtt")]
pub mod mqtt;
#[cfg(feature = "nats")]
pub mod nats;
#[cfg_attr(
    not(all(feature = "mqtt", feature = "nats", feature = "redis")),
    allow(dead_code, unused_imports, reason = "connectors that are left out use the rest")
)]
mod network;
pub mod nexmark;
pub mod output;
mod pacing;
mod panics;
mod percent;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "postgres")]
pub mod postgres_cdc;
pub mod print;
#[cfg(feature = "redis")]
pub mod redis;
pub mod replay;
mod saved;
#[cfg(feature = "messaging")]
pub mod socket;
pub mod taken_bodies;
#[cfg(all(test, feature = "messaging"))]
mod test_server;
#[cfg(test)]
mod tests;
#[cfg(feature = "websocket")]
pub mod websocket;

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
        Arc::new(iceberg::Iceberg),
        #[cfg(feature = "kafka")]
        Arc::new(kafka::Kafka::rows()),
        #[cfg(feature = "kafka")]
        Arc::new(kafka::Kafka::upserts()),
        #[cfg(feature = "postgres")]
        Arc::new(jdbc::Jdbc),
        #[cfg(feature = "postgres")]
        Arc::new(postgres_cdc::PostgresCdc),
        #[cfg(feature = "redis")]
        Arc::new(redis::Redis::default()),
        #[cfg(feature = "mqtt")]
        Arc::new(mqtt::Mqtt::default()),
        #[cfg(feature = "nats")]
        Arc::new(nats::Nats::default()),
        #[cfg(feature = "messaging")]
        Arc::new(socket::Socket::default()),
        #[cfg(feature = "http")]
        Arc::new(http::Http::rows()),
        #[cfg(feature = "http")]
        Arc::new(http::Http::sink_only()),
        #[cfg(feature = "websocket")]
        Arc::new(websocket::WebSocket::default()),
    ];
    Connectors::new(connectors).left_out(LEFT_OUT)
}

/// Connectors that this program was built without, each with its feature.
const LEFT_OUT: &[(&str, &str)] = &[
    #[cfg(not(feature = "kafka"))]
    ("kafka", "kafka"),
    #[cfg(not(feature = "kafka"))]
    ("upsert-kafka", "kafka"),
    #[cfg(not(feature = "postgres"))]
    ("jdbc", "postgres"),
    #[cfg(not(feature = "postgres"))]
    ("postgres-cdc", "postgres"),
    #[cfg(not(feature = "redis"))]
    ("redis", "redis"),
    #[cfg(not(feature = "mqtt"))]
    ("mqtt", "mqtt"),
    #[cfg(not(feature = "nats"))]
    ("nats", "nats"),
    #[cfg(not(feature = "messaging"))]
    ("socket", "http"),
    #[cfg(not(feature = "http"))]
    ("http", "http"),
    #[cfg(not(feature = "http"))]
    ("http-async-sink", "http"),
    #[cfg(not(feature = "websocket"))]
    ("websocket", "websocket"),
];
