//! The words of Thalweg: event time, watermarks, bundles, column types, errors, and the contracts
//! that operators, sources and sinks keep with the runtime.
//!
//! Nothing here runs anything. The crate exists so that every other crate can speak of the same
//! things without depending on one another: `runtime` drives [`Operator`]s that `operators`
//! implements, `plan` wires them by [`graph::Graph`], `connectors` implement [`Source`] and
//! [`Sink`].
//!
//! | module | holds |
//! |---|---|
//! | [`types`] | Flink's column types with precision and nullability, and their Arrow layout |
//! | [`time`] | event time in milliseconds, [`Watermark`], window [`Grid`]s |
//! | [`bundle`] | [`Bundle`]: an Arrow batch with its stamps |
//! | [`operator`] | [`Transform`], [`Operator`], [`Partition`]: what runs in the middle |
//! | [`order`] | [`OrderContract`]: what is promised about the sequence of results |
//! | [`connector`] | [`Source`], [`Sink`]: what runs at the ends |
//! | [`live`] | tables that can be asked while jobs keep them current: their versions |
//! | [`lock`] | exclusive rights that hold across processes |
//! | [`graph`] | the physical graph that the runtime executes |
//! | [`error`] | [`Error`]: whose fault, where, and what to do |
//! | [`snapshot`] | what a snapshot takes from the parts of a job and gives back |
//! | [`shim`] | clock and randomness, replaceable by a simulator |
//! | [`text`] | the text form of values (CSV output, CAST to STRING, printed tables) |

pub mod bundle;
pub mod calendar;
pub mod connector;
pub mod counter;
pub mod error;
pub mod graph;
pub mod inlets;
pub mod live;
pub mod lock;
pub mod lookup;
pub mod operator;
pub mod order;
mod partition;
pub mod quoting;
pub mod search;
pub mod shim;
pub mod snapshot;
pub mod text;
pub mod time;
pub mod types;

pub use bundle::{Bundle, RowKind, Stamps};
pub use connector::{Sink, Source, SourceBatch, SourcePoll, SplitId};
pub use error::{Error, ErrorKind, Result, Span};
pub use operator::{
    Exchange, LateRows, Operator, OperatorClass, Output, Partition, Piece, Place, Progress, Route,
    Share, Transform,
};
pub use order::OrderContract;
pub use partition::PartitionContext;
pub use snapshot::{
    Captured, CapturedTable, Extent, Restored, TableChanges, TableExtent, TableRows,
};
pub use time::{Grid, TimeExtremes, Watermark, WatermarkBefore};
pub use types::{Column, ColumnType, DataType, TableSchema};
