//! Rows that operators keep: where they lie, how long, and what captures write of them.
//!
//! Joins, OVER, patterns, Top-N and sorting by time keep rows in one of two ways:
//!
//! | module | rows |
//! |---|---|
//! | [`chunks`] | come in batches, never change and leave about together; a batch is freed as a whole |
//! | [`arena`] | leave one by one; what they leave behind is compacted |
//! | [`event_time`] | wait for an event time, become due at a watermark and leave |
//! | [`due_queue`] | the times at which they are due |
//! | [`chunk_capture`] | what captures write of rows in chunks |
//! | [`waiting_capture`] | the tables of rows that wait for an event time |
//! | [`columns`] | columns picked from others, and batches made of them |
//! | [`input`] | how operators read the rows of a bundle: times, lateness |
//!
//! No module here knows an operator.
//!
//! How to choose: `chunks` where rows come and go roughly together (waiting rows, time bounds), as
//! one long-lived row keeps its whole batch. `arena` where any row may be retracted at any time, as
//! its memory follows the live rows at the price of copying them a few times.

pub(crate) mod arena;
pub(crate) mod chunk_capture;
pub(crate) mod chunks;
pub(crate) mod columns;
pub(crate) mod due_queue;
pub(crate) mod event_time;
pub(crate) mod input;
pub(crate) mod waiting_capture;
