//! The capture kit: how every operator with state takes part in snapshots.
//!
//! # How a capture is read
//! A capture only marks which keys or rows it includes, one bit for each number, and rows are
//! processed again. A background thread reads them later, a piece at a time
//! ([`shared::SharedState`]). A key or row that is about to change before its turn is written
//! first, as it was. So processing stops for as long as it takes to mark the bits, a row is copied
//! once for each capture that includes it, and nothing is copied for others.
//!
//! # What has changed
//! One bit for each number, set by the first change after a capture. The names of what has gone are
//! kept until the next capture. If there are more names than rows that are left, or tracking was
//! stopped because most of a table changes all the time ([`tracker::Tracking::stop`]), the next
//! capture is full.
//!
//! # How an operator uses it
//! State of its own is one declaration:
//!
//! | the state is | use | its identity in the table of state |
//! |---|---|---|
//! | something for each key | [`keys::KeyedState`] in a [`keys::CapturedByKey`] | the key |
//! | rows that change, or leave in any order | [`rows::RowTracker`] | a serial |
//! | rows that never change and expire with time | [`serials::SerialTracker`] | a serial |
//! | rows in chunks ([`crate::rows::chunks`]) | the chunks' own tracker, built on `SerialTracker` | their arrival |
//! | a few numbers | [`tables::add_table`] | none: always captured in full |
//!
//! [`tables`] and [`key_columns`] make the columns of tables of state and read them back.
//!
//! Trackers are made by the first capture: without captures nothing of this is done.

pub(crate) mod key_columns;
pub(crate) mod keys;
pub(crate) mod rows;
pub(crate) mod serials;
pub(crate) mod shared;
pub mod tables;
pub(crate) mod tracker;

/// How much is read at once while rows wait.
pub(crate) const READ_ROWS: usize = 1024;
/// Up to how many names of what has gone are kept, however little is there.
pub(crate) const GONE_MIN: usize = 64 * 1024;
