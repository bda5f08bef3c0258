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
//!
//! # Obligations of an operator
//!
//! - *Touch before change.* Before a key or row changes or goes, its tracker is asked; what it
//!   names must be written as it is now.
//! - *Touch before new.* A number that is given to a new key or row while a capture is read may
//!   still have the bit of the one before. Touching it clears the bit; nothing is written, as the
//!   capture does not include the new one.
//! - *Between watermarks only.* Captures begin when no watermark is half processed, so nothing is
//!   on its way between partitions.
//! - *Restoring is local.* Rows come back to the partition that owns their virtual partition, from
//!   any number of partitions, in any order within a table. Ids, serials and chunk numbers are
//!   given again.
//!
//! # Consistency
//!
//! All rows of one capture show the state at one moment, when its bits were marked, although they
//! are copied over a longer time: a key is written either in its turn, not having changed since, or
//! right before its first change.

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
