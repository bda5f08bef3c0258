//! The window operators against a reference that takes one row at a time and keeps every row.
//!
//! | module | looks for |
//! |---|---|
//! | `cases` | exact cases of a real Flink, zones, memory, errors |
//! | `count` | count windows |
//! | `clock` | windows of processing time, against a clock that the test moves |
//! | `tables` | how rows of windows that do not overlap are spread, and what memory follows |
//! | `random` | any difference from the reference, over random rows, windows, lateness and partitions |
//! | `first_rows` | windows of which only the first rows are wanted |
//! | `driver` | runs an operator as the runtime would |
//! | `reference` | the reference |
//! | `restore` | what a restore changes of a sequence, and damaged state |

mod captures;
mod cases;
mod clock;
mod count;
mod driver;
mod first_rows;
mod random;
mod reference;
mod restore;
mod tables;
