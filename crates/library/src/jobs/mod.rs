//! The life of a job that takes snapshots: begun or resumed, looked after while it runs,
//! stopped gracefully, started again after a failure.
//!
//! | module | holds |
//! |---|---|
//! | `recovery` | which snapshot a run resumes from, and whether it fits the query |
//! | `coordinator` | takes snapshots while a job runs, commits what they hold, ends the job |
//! | `requests` | how another process asks for a snapshot |
//! | `restarts` | whether and when a job that has failed is started again |
//! | `runs` | run after run of a job, with the coordinator of its snapshots |
//! | `interface` | how the user says what is to become of a job, for hints |
//!
//! # Protocol
//! 1. The job directory is locked: one run of a job at a time.
//! 2. A snapshot is chosen; the graph is built, every stage gets back what it was, sinks commit
//!    again what the snapshot names and do away with everything else that was not committed.
//! 3. While the job runs: cut, write, manifest, commit; one at a time. What a sink has prepared
//!    becomes visible only after the manifest that names it is durable.
//! 4. The job ends with a last snapshot: when all input has ended, or when it is stopped.
//!
//! What it does not do: it knows no operator, no connector and no file format.

pub mod compatibility;
mod coordinator;
mod interface;
mod recovery;
mod requests;
mod restarts;
mod runs;
mod snapshot_place;

pub use interface::Interface;
pub(crate) use recovery::{Recovery, newest_number};
pub use recovery::{ResumeFrom, SnapshotReference, open_folder};
pub use requests::ask_for_snapshot;
pub(crate) use runs::{AgreedRun, JobRuns, LookedAfter};
pub use snapshot_place::open_snapshots;
pub use thalweg_plan::catalog::{OnSnapshotFailure, RestartSettings, SnapshotSettings};
