//! What a job was doing at moments that have passed, so that "why" can be asked about them.
//!
//! A [`Point`] is what changes of a [`JobReading`] from moment to moment: [`NUMBERS`] numbers and a
//! watermark for each stage, a watermark and two numbers for each split. [`History`] keeps one a
//! second for 15 minutes in memory: 112 and 48 bytes, 1.9 MB for a job of ten stages with twenty
//! splits. Whoever keeps points for longer writes them as bytes, of which they take 66 and 25
//! ([`Point::to_bytes`]).
//!
//! **Invariant:** points stand in the order of their moments, at most one for each step.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::reading::JobReading;

mod point;

pub use point::{NUMBER_NAMES, NUMBERS, Point};

/// From one point to the next, at least.
const STEP_MS: i64 = 1_000;
/// How many points are kept.
const POINTS_MAX: usize = 900;

/// The last 15 minutes of one run of a job.
#[derive(Clone, Debug, Default)]
pub struct History {
    points: VecDeque<Point>,
    /// What does not change from point to point is that of the newest reading.
    newest: Option<Arc<JobReading>>,
}

impl History {
    /// Nothing is known yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Keeps a reading, unless the last one was kept a moment ago. A reading of another run, or
    /// with other stages, starts over.
    pub fn add(&mut self, reading: &JobReading) {
        let newest = self.newest.as_deref();
        let is_same_run = newest.is_some_and(|newest| {
            newest.stages.len() == reading.stages.len() && newest.started_at_ms <= reading.at_ms
        });
        if !is_same_run {
            self.points.clear();
        }
        self.newest = Some(Arc::new(reading.clone()));
        let last_ms = self.points.back().map(Point::at_ms);
        if last_ms.is_some_and(|last_ms| reading.at_ms - last_ms < STEP_MS) {
            return;
        }
        if self.points.len() == POINTS_MAX {
            self.points.pop_front();
        }
        self.points.push_back(Point::of(reading));
    }

    /// The moments from the oldest point to the newest.
    pub fn span_ms(&self) -> Option<(i64, i64)> {
        Some((self.points.front()?.at_ms(), self.points.back()?.at_ms()))
    }

    /// The reading as it was at this moment: that of the last point at or before it. What no point
    /// keeps (errors, positions) is missing.
    pub fn at(&self, at_ms: i64) -> Option<JobReading> {
        let behind = self.points.partition_point(|point| point.at_ms() <= at_ms);
        let point = self.points.get(behind.checked_sub(1)?)?;
        Some(point.reading(self.newest.as_deref()?))
    }

    /// All points, the oldest first.
    pub fn points(&self) -> impl Iterator<Item = &Point> {
        self.points.iter()
    }

    /// How long a step of a stage's watermark takes on average, to the second; `None` while it has
    /// not made two.
    pub fn mean_step_ms(&self, stage: usize) -> Option<i64> {
        let mut steps = 0;
        let (mut first_ms, mut last_ms, mut before) = (None, None, None);
        for point in &self.points {
            let (at_ms, watermark) = (point.at_ms(), point.watermark(stage).flatten());
            if watermark.is_some() && watermark != before {
                steps += i64::from(first_ms.is_some());
                first_ms = first_ms.or(Some(at_ms));
                last_ms = Some(at_ms);
            }
            before = watermark;
        }
        (steps >= 2).then(|| (last_ms.unwrap_or(0) - first_ms.unwrap_or(0)) / steps)
    }
}
