//! `kafka` and `upsert-kafka` against a real broker, in processes of their own. A machine that can
//! have none skips these tests, and says so; with `THALWEG_SKIPS=refuse` it fails.
#![cfg(feature = "kafka")]

mod broker;
mod delivery;
mod kills;
mod letters;
mod options;
mod order;
mod others;
mod reading;
mod secured;
#[cfg(feature = "server")]
#[allow(dead_code, reason = "each test program uses some of it")]
#[path = "../serve/support.rs"]
mod server;
mod services;
