//! Linear Road (Arasu et al., VLDB 2004): variable tolls on expressways, and the two operators that
//! Viper (Palyvos-Giannas et al.) takes from it.
//!
//! | Module | What it has |
//! |---|---|
//! | [`records`] | the input record of 15 fields, as a struct and as a line of CSV |
//! | [`traffic`] | a generator that streams records in order and holds only live cars |
//! | [`history`] | the table of daily expenditures, as a pure function |
//! | [`answers`] | what the system must answer |
//! | [`validator`] | the serial oracle of the tolls, alerts and balances |
//! | [`viper`] | the serial oracles of `pos_rep` and `new_seg` |
//! | [`pipeline`], [`viper_pipeline`] | both on the engine |
//!
//! Records come sorted by (time, kind, vehicle), so in each second all position reports come before
//! all queries. Answers come in the order of the records that cause them. Travel time estimates
//! (kind 4) are in the input and have no answer: no public implementation gives one.

pub mod answers;
mod expressway;
pub mod history;
pub mod pipeline;
pub mod records;
pub mod traffic;
pub mod validator;
pub mod viper;
pub mod viper_pipeline;

pub use answers::Answer;
pub use history::expenditure;
pub use records::{Record, RecordError};
pub use traffic::{Accidents, PlannedAccident, Traffic, TrafficSettings};
pub use validator::{validate_each, validate_serially};
pub use viper::{new_segments, position_reports};
