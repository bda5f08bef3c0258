//! What Linear Road answers, without the time of emission, which no oracle can know.

use serde::{Deserialize, Serialize};

/// One answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Answer {
    /// Toll notification: the car has entered a segment.
    Toll {
        /// The car.
        vehicle: i32,
        /// Time of the report that entered the segment.
        time_s: i64,
        /// Average speed of the last five minutes in miles per hour, 0 without readings.
        lav: i64,
        /// What leaving into the next segment will cost.
        toll: i64,
        /// The expressway.
        expressway: i32,
        /// The direction.
        direction: i32,
        /// The segment entered.
        segment: i32,
    },
    /// Accident alert: the car has entered a segment in front of an accident.
    Accident {
        /// Time of the report that entered the segment.
        time_s: i64,
        /// The expressway.
        expressway: i32,
        /// The segment of the accident.
        segment: i32,
        /// The direction.
        direction: i32,
        /// The car that is notified.
        vehicle: i32,
    },
    /// All tolls charged to the car so far.
    Balance {
        /// Time of the query.
        time_s: i64,
        /// Number of the query.
        query: i32,
        /// The car.
        vehicle: i32,
        /// Sum of the tolls charged.
        balance: i64,
        /// The time up to which tolls are in the balance.
        result_time_s: i64,
    },
    /// What the car spent on an expressway on an earlier day.
    Expenditure {
        /// Time of the query.
        time_s: i64,
        /// Number of the query.
        query: i32,
        /// The car.
        vehicle: i32,
        /// The sum of that day.
        toll: i64,
    },
}

impl Answer {
    /// The time of the record that caused it, in seconds since the start of the run.
    pub fn time_s(&self) -> i64 {
        match *self {
            Answer::Toll { time_s, .. }
            | Answer::Accident { time_s, .. }
            | Answer::Balance { time_s, .. }
            | Answer::Expenditure { time_s, .. } => time_s,
        }
    }
}
