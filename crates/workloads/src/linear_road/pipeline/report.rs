//! Reports as they travel between the operators.

use serde::{Deserialize, Serialize};

use super::super::records::{EXIT_LANE, Record};

/// A point of a lane where cars can stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Place {
    /// The expressway.
    pub expressway: i32,
    /// The direction.
    pub direction: i32,
    /// The segment.
    pub segment: i32,
    /// The lane.
    pub lane: i32,
    /// Feet from the western end.
    pub position: i32,
}

impl Place {
    /// Where a report was made.
    pub fn of(report: &Record) -> Self {
        let Record { expressway, direction, segment, lane, position, .. } = *report;
        Place { expressway, direction, segment, lane, position }
    }

    pub(super) fn is_in_segment_of(&self, other: &Place) -> bool {
        let segment = |place: &Place| (place.expressway, place.direction, place.segment);
        segment(self) == segment(other)
    }
}

/// What a report means for its trip.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// The first report of a trip.
    NewTrip,
    /// The first report in a segment.
    NewSegment,
    /// Another report in the segment.
    SameSegment,
}

/// A report as it travels between the operators.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Report {
    /// Seconds since the start of the run.
    pub time_s: i64,
    /// The car.
    pub vehicle: i32,
    /// Miles per hour.
    pub speed: i32,
    /// Where it is.
    pub place: Place,
    /// What that means.
    pub step: Step,
}

impl Report {
    /// The minute, from 1.
    pub fn minute(&self) -> i64 {
        self.time_s / 60 + 1
    }

    /// True if the car gets a quote of the toll.
    pub fn enters(&self) -> bool {
        self.step != Step::SameSegment && self.place.lane != EXIT_LANE
    }
}
