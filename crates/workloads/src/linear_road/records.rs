//! The input of Linear Road: 15 whole numbers a record, -1 where a kind has no use for a field.
//!
//! [`Record`] does not check that its numbers make sense together; it is the layout only.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A car says where it is.
pub const POSITION_REPORT: i32 = 0;
/// A driver asks for the balance of the account.
pub const BALANCE_QUERY: i32 = 2;
/// A driver asks what was spent on an expressway on an earlier day.
pub const EXPENDITURE_QUERY: i32 = 3;
/// A driver asks for a travel time; never answered.
pub const TRAVEL_TIME_QUERY: i32 = 4;

/// The lane of a car's first report.
pub const ENTRY_LANE: i32 = 0;
/// The lane of a car's last report.
pub const EXIT_LANE: i32 = 4;

/// A field that this kind of record does not use.
pub const UNUSED: i32 = -1;

/// Length of a segment in feet.
pub const SEGMENT_FEET: i32 = 5280;
/// Segments of an expressway.
pub const SEGMENTS: i32 = 100;

/// One input record. The fields stand in the order of the CSV columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Record {
    /// [`POSITION_REPORT`], [`BALANCE_QUERY`], [`EXPENDITURE_QUERY`] or [`TRAVEL_TIME_QUERY`].
    pub kind: i32,
    /// Seconds since the start of the run.
    pub time_s: i64,
    /// The car, unique over all expressways.
    pub vehicle: i32,
    /// Miles per hour, 0 to 100.
    pub speed: i32,
    /// The expressway, from 0.
    pub expressway: i32,
    /// 0 at entry, 1 to 3 on the way, 4 at exit.
    pub lane: i32,
    /// 0 towards growing positions (east), 1 towards falling ones (west).
    pub direction: i32,
    /// 0 to 99.
    pub segment: i32,
    /// Feet from the western end.
    pub position: i32,
    /// Number of the query.
    pub query: i32,
    /// Where the trip that is asked about starts.
    pub start_segment: i32,
    /// Where the trip that is asked about ends.
    pub end_segment: i32,
    /// Day of the week of that trip, 1 to 7.
    pub day_of_week: i32,
    /// Minute of the day of that trip, 1 to 1440.
    pub time_of_day: i32,
    /// The day that an expenditure query asks about, 1 to 69, 0 for today.
    pub day: i32,
}

impl Record {
    /// A record of this kind with all other fields unused.
    pub fn bare(kind: i32, time_s: i64, vehicle: i32) -> Self {
        Record {
            kind,
            time_s,
            vehicle,
            speed: UNUSED,
            expressway: UNUSED,
            lane: UNUSED,
            direction: UNUSED,
            segment: UNUSED,
            position: UNUSED,
            query: UNUSED,
            start_segment: UNUSED,
            end_segment: UNUSED,
            day_of_week: UNUSED,
            time_of_day: UNUSED,
            day: UNUSED,
        }
    }

    /// The minute of this record, from 1.
    pub fn minute(&self) -> i64 {
        self.time_s / 60 + 1
    }

    /// What the input is sorted by.
    pub fn order(&self) -> (i64, i32, i32) {
        (self.time_s, self.kind, self.vehicle)
    }
}

/// The CSV line, without the end of line.
impl fmt::Display for Record {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{},{},{},{}", self.kind, self.time_s, self.vehicle, self.speed)?;
        write!(out, ",{},{},{}", self.expressway, self.lane, self.direction)?;
        write!(out, ",{},{},{}", self.segment, self.position, self.query)?;
        write!(out, ",{},{},{}", self.start_segment, self.end_segment, self.day_of_week)?;
        write!(out, ",{},{}", self.time_of_day, self.day)
    }
}

/// Why a line is not a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordError {
    /// The line has this many fields instead of 15.
    FieldCount(usize),
    /// This field is not a whole number of 32 bits (64 for the time).
    NotANumber(String),
}

impl fmt::Display for RecordError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecordError::FieldCount(count) => write!(out, "{count} fields instead of 15"),
            RecordError::NotANumber(text) => write!(out, "not a whole number: {text:?}"),
        }
    }
}

impl std::error::Error for RecordError {}

fn number<T: FromStr>(text: &str) -> Result<T, RecordError> {
    text.trim().parse().map_err(|_| RecordError::NotANumber(text.to_owned()))
}

impl FromStr for Record {
    type Err = RecordError;

    fn from_str(line: &str) -> Result<Self, RecordError> {
        let fields: Vec<&str> = line.split(',').collect();
        if fields.len() != 15 {
            return Err(RecordError::FieldCount(fields.len()));
        }
        Ok(Record {
            kind: number(fields[0])?,
            time_s: number(fields[1])?,
            vehicle: number(fields[2])?,
            speed: number(fields[3])?,
            expressway: number(fields[4])?,
            lane: number(fields[5])?,
            direction: number(fields[6])?,
            segment: number(fields[7])?,
            position: number(fields[8])?,
            query: number(fields[9])?,
            start_segment: number(fields[10])?,
            end_segment: number(fields[11])?,
            day_of_week: number(fields[12])?,
            time_of_day: number(fields[13])?,
            day: number(fields[14])?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_as_it_was_written() {
        let line = "0,30,107,32,0,1,0,10,53320,-1,-1,-1,-1,-1,-1";
        let record: Record = line.parse().unwrap();
        assert_eq!((record.vehicle, record.segment, record.position), (107, 10, 53_320));
        assert_eq!(record.minute(), 1);
        assert_eq!(record.to_string(), line);
    }

    #[test]
    fn a_bad_line_says_why() {
        assert_eq!("1,2".parse::<Record>(), Err(RecordError::FieldCount(2)));
        let line = "0,30,x,32,0,1,0,10,53320,-1,-1,-1,-1,-1,-1";
        assert_eq!(line.parse::<Record>(), Err(RecordError::NotANumber("x".to_owned())));
    }
}
