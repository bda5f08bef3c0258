//! Thalweg as a service: one process, one pool of workers, any number of jobs, steered over HTTP.
//!
//! | module | holds |
//! |---|---|
//! | `config` | options with where they came from |
//! | `catalogue` | jobs as they lie in the data directory |
//! | `lifecycle` | from what is wanted and what is there to what is done next: a pure function |
//! | `supervisor` | the thread that does it |
//! | `run` | one run of a job |
//! | `job`, `now`, `requests`, `operations` | a job, what it is doing, what clients ask of it, what takes time |
//! | `cancel` | requests that are not wanted any more |
//! | `history` | what a job was doing in the last 24 hours |
//! | `journal` | lines on standard error |
//! | `meters` | what the server counts of itself |
//! | `otlp` | metrics, traces and events for a collector of OpenTelemetry (a feature) |
//! | `systemd` | what a service manager is informed of |
//! | `http` | the REST interface, and what keeps strangers from it |
//! | `gateway` | the SQL gateway for clients of Apache Flink |
//! | `client` | how commands talk to a server |
//! | `zip` | archives for bug reports |
//! | `tokens`, `audit` | who may ask for what, and who has |
//!
//! # Invariants
//! - What a client was answered is durable: a server that dies is followed by one that continues
//!   with the same jobs, each from its newest snapshot.
//! - HTTP has two threads of its own and never touches the workers' or waits for a job.
//! - Nothing is open to other machines, other users or web pages of others unless an option says
//!   so.
//!
//! What it does not do: it knows no SQL and no operator; sessions of the library do.

#![expect(
    clippy::result_large_err,
    reason = "a problem is the answer to a request: made once for each, and moved a few times"
)]

mod audit;
mod bell;
mod byte_stream;
mod cancel;
mod catalogue;
pub mod client;
mod config;
pub mod docs;
mod gateway;
mod history;
mod http;
mod job;
mod jobs_dir;
mod journal;
mod letters;
mod lifecycle;
mod logs;
mod meters;
mod now;
mod operations;
#[cfg(feature = "otlp")]
mod otlp;
mod problem;
mod requests;
mod run;
mod serve;
mod server;
mod supervisor;
mod systemd;
mod tokens;
mod trial_runs;
mod trials;
mod zip;

pub use audit::{AuditLine, verify as verify_audit};
pub use config::{Config, ConfigEntry, Origin};
pub use http::openapi;
pub use job::{JobSummary, StageView};
pub use journal::{Journal, LogFormat};
pub use lifecycle::State as JobState;
pub use now::{ConditionView, JobNow, ServerNow, StageNow};
pub use problem::{Diagnostic, Problem};
pub use serve::{Moment, Serving, Signals, serve};
