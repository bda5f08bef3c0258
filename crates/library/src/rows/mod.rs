//! Pipelines over rows: the model of ordered stream processing (Prasaad et al. §2) in plain Rust.
//!
//! A row is any type that serde can write and read. Operators are closures or traits:
//!
//! - *stateless*: [`Rows::stateless`], [`Rows::map`], [`Rows::filter`]; any number of rows out per
//!   row in;
//! - *partitioned*: [`Rows::key_by`] names the key and the number of partitions, then
//!   [`KeyedRows::stateful`] takes a closure, [`KeyedRows::process`] a [`RowOperator`] with timers
//!   and [`KeyedRows::process_function`] a [`ProcessFunction`] with timers of both kinds;
//! - *of two streams*: [`KeyedRows::join`] and its relatives, [`KeyedRows::co_group`];
//! - *singleton*: [`Rows::singleton`] and [`Rows::process_alone`], one state for all rows.
//!
//! They are put together to a line or, with [`Rows::shared`] and [`Rows::union`], to a graph
//! without cycles. Graphs of processors with several inputs and outputs are in [`vertex`]. With
//! [`OrderContract::Arrival`](crate::OrderContract) in the [`RunOptions`](crate::RunOptions) the
//! output sequence equals that of one thread which takes one row at a time, whatever the number of
//! workers.
//!
//! ```
//! use serde::{Deserialize, Serialize};
//! use thalweg::pipeline::Pipeline;
//! use thalweg::{OrderContract, RunOptions};
//!
//! #[derive(Serialize, Deserialize)]
//! struct Bid { auction: u64, price: i64 }
//!
//! let bids = [(1, 10), (2, 7), (1, 12), (1, 11)].map(|(auction, price)| Bid { auction, price });
//! let pipeline = Pipeline::new();
//! let raised = pipeline
//!     .read_rows("bids", bids)
//!     .filter("real bids", |bid: &Bid| bid.price > 0)
//!     .key_by(64, |bid: &Bid| bid.auction)
//!     .stateful("highest so far", |_auction, highest: &mut i64, bid, out| {
//!         if bid.price > *highest {
//!             *highest = bid.price;
//!             out.emit((bid.auction, bid.price));
//!         }
//!     })
//!     .collect("raised");
//! pipeline.run(RunOptions { order: OrderContract::Arrival, workers: 4, ..RunOptions::default() })?;
//! assert_eq!(raised.rows(), [(1, 10), (2, 7), (1, 12)]);
//! # Ok::<(), thalweg::Error>(())
//! ```
//!
//! # How rows travel
//! Between operators a row is one value of a binary column, written by postcard; so rows go through
//! the same bundles, reorder buffers and partitions as those of SQL. [`Stream::rows`] reads rows
//! from columns of any table and [`Rows::into_columns`] makes columns of rows, both by serde_arrow.
//!
//! # What is in a snapshot
//! States and timers of all keys, in the tables `states`, `timers` and `clock_timers`. Keys and
//! states that are numbers, truth values or texts, or structs and tuples of such, stand there in
//! typed columns (`key`, `state`, or `key_FIELD`, `state_FIELD`); others as the bytes that postcard
//! writes. The next run of a program reads them with the types that it has then, so change the name
//! of an operator whose state changes.
//!
//! What it does not do: rows that come late for a timer are not dropped (operators see all rows).
//!
//! [`Stream::rows`]: crate::pipeline::Stream::rows

mod codec;
mod endpoints;
mod groups;
mod hashed;
mod join;
mod key;
mod keyed;
mod operator;
mod process;
mod snapshot;
mod states;
mod stream;
mod timers;
mod value_columns;
pub mod vertex;

pub use thalweg_core::connector::Waker;

pub use endpoints::{CollectedRows, PackedRows, RowPoll, RowSource};
pub use key::{RowKey, virtual_partition};
pub use operator::{Emit, KeyContext, RowOperator, TimerKind};
pub use process::{FiredTimer, ProcessFunction};
pub use stream::{KeyedRows, Rows};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// A row: whatever serde can write and read back.
pub trait Row: Serialize + DeserializeOwned + Send + Sync + 'static {}

impl<T: Serialize + DeserializeOwned + Send + Sync + 'static> Row for T {}

/// A state of a key: whatever serde can write and read back, and that begins with a default.
pub trait RowState: Default + Serialize + DeserializeOwned + Send + 'static {}

impl<S: Default + Serialize + DeserializeOwned + Send + 'static> RowState for S {}
