//! Files in an object store with the protocol of S3 against a real server (`tests/services/s3`),
//! and tables of Iceberg in a catalog that is a server (`tests/services/iceberg-rest`).
//!
//! `make connect-test` runs these tests: others do not fetch the server.
#![cfg(all(feature = "kafka", feature = "s3", feature = "web"))]

mod catalog;
mod kills;
mod lake;
mod reading;
mod server;
#[path = "../connect_kafka/services.rs"]
mod services;
