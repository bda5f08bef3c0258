//! What a running job is doing, and why.
//!
//! A [`JobReading`] is a plain copy of a job's counters at one moment: stages, edges, splits,
//! sinks, and the rates since the reading before. It can be stored, sent and compared, and
//! everything that people see is a function of it:
//!
//! | module | makes of a reading |
//! |---|---|
//! | [`reading`] | the reading itself, from the counters of the runtime |
//! | [`why`] | which input holds results back, since when, why, and what would happen without it |
//! | [`conditions`] | what is wrong with a job, with a sentence each |
//! | [`exposition`] | metrics for Prometheus, from one table that also makes the page of metrics |
//! | [`history`] | moments that have passed, so that each of these can be asked about them |
//! | [`profile`] | where the time of a job goes, as a flame graph |
//! | [`watch`] | reading after reading of one job |
//! | [`protobuf`] | writes messages of Protocol Buffers |
//! | [`numbers`] | how people read counts and times |
//!
//! What it does not do: it starts no thread, opens no socket, and asks a job for nothing but its
//! counters.

pub mod conditions;
pub mod exposition;
pub mod history;
mod latency;
pub mod numbers;
pub mod profile;
pub mod protobuf;
pub mod reading;
pub mod watch;
pub mod why;

pub use conditions::{Condition, ConditionKind, Conditions};
pub use history::History;
pub use profile::Profile;
pub use reading::JobReading;
pub use watch::Watch;
pub use why::{Why, why};
