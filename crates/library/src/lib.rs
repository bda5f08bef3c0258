//! Sessions, jobs, pipelines and rows: the library behind the package `thalweg`, which exports all
//! of it. Programs depend on that; the server depends on this, without a command line.
//!
//! There are two ways in:
//!
//! - [`session::Session`] runs SQL of Flink's dialect: scripts, and queries whose result comes
//!   back as Arrow batches;
//! - [`pipeline::Pipeline`] builds the same operators by hand, with closures over Arrow batches, or
//!   with closures and operators of one's own over [`rows`] of any type.
//!
//! Words, promises about order and the meaning of lateness are explained in `docs/concepts.md`.
//! This crate wires the others together: it holds no operator, no connector and no scheduling.

pub mod interleaving;
pub mod jobs;
pub mod pipeline;
pub mod rows;
pub mod session;
pub mod testing;

pub use thalweg_connectors::format;
pub use thalweg_core::shim::{Clock, ManualClock};
pub use thalweg_core::{
    Column, ColumnType, DataType, Error, ErrorKind, OrderContract, Result, RowKind, Sink, Source,
    TableSchema,
};
pub use thalweg_core::{connector, live, lookup, text};
pub use thalweg_expr as expr;
pub use thalweg_monitoring as monitoring;
pub use thalweg_runtime::{
    JobControl, PartitionScheme, Pool, ReorderScheme, Report, RunOptions, RunningJob,
    SchedulerPolicy,
};
