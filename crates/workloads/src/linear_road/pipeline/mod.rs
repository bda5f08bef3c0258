//! Linear Road on the engine: four partitioned operators behind each other, as the
//! [validator](super::validate_serially) describes them.
//!
//! | Operator | Key | What it adds to a report |
//! |---|---|---|
//! | [`cars`] | vehicle | is this a new trip, a new segment, a stop, the end of a stop? |
//! | [`accidents`] | expressway, direction | the nearest accident ahead |
//! | [`segments`] | expressway, direction, segment | average speed and toll |
//! | [`accounts`] | vehicle | what is charged; the answers |
//!
//! Invariants: an operator passes on what later ones need and nothing else, so most reports end at
//! the segments; queries travel with the reports, so they find the account as it was when they
//! came. In contract `arrival` the answers equal the validator's, one for one.

pub mod accidents;
pub mod accounts;
pub mod cars;
mod report;
pub mod segments;

use thalweg::rows::Rows;

use super::answers::Answer;
use super::records::Record;

pub use report::{Place, Report, Step};

/// The answers to sorted records, with this many partitions for each operator.
pub fn answers(records: Rows<Record>, partitions: usize) -> Rows<Answer> {
    records
        .key_by(partitions, |record| record.vehicle)
        .stateful("cars", cars::track)
        .key_by(partitions, cars::Tracked::key)
        .stateful("accidents", accidents::look_ahead)
        .key_by(partitions, accidents::Located::key)
        .stateful("segments", segments::assess)
        .key_by(partitions, segments::Assessed::vehicle)
        .stateful("accounts", accounts::settle)
}
