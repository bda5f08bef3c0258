//! `jdbc` and `postgres-cdc` against a real server (`tests/services/postgres`).
//!
//! A machine without one skips these tests and says so; with `THALWEG_SKIPS=refuse` they fail then.
#![cfg(feature = "postgres")]

mod cdc;
mod conformance;
mod example;
mod jdbc;
mod kills;
mod secured;
mod server;
#[path = "../connect_kafka/services.rs"]
mod services;
