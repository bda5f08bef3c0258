//! The last 15 minutes of a job, one point a second, so that "why" can be asked about a moment that
//! has passed.
//!
//! A point has [`NUMBERS`] numbers and a watermark for each stage, and a watermark and two numbers
//! for each split: 56 and 16 bytes. A job of ten stages with twenty splits keeps 0.8 MB.
//!
//! **Invariant:** points stand in the order of their moments, at most one for each step.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::reading::{BlockedShares, JobReading, SplitRates, StageRates, StageReading};

/// Numbers that are kept of a stage.
pub const NUMBERS: usize = 12;
/// What they are, in their order.
pub const NUMBER_NAMES: [&str; NUMBERS] = [
    "rows_in_per_second",
    "rows_out_per_second",
    "late_per_second",
    "quarantined_per_second",
    "busy",
    "blocked_output",
    "blocked_memory",
    "blocked_order",
    "blocked_lookup",
    "blocked_cut",
    "queued_bundles",
    "state_bytes",
];
/// From one point to the next, at least.
const STEP_MS: i64 = 1_000;
/// How many points are kept.
const POINTS_MAX: usize = 900;
/// Splits of a source that are kept, at most.
const SPLITS_MAX: usize = 64;

/// The last 15 minutes of one run of a job.
#[derive(Clone, Debug, Default)]
pub struct History {
    points: VecDeque<Point>,
    /// What does not change from point to point is that of the newest reading.
    newest: Option<Arc<JobReading>>,
}

#[derive(Clone, Debug)]
struct Point {
    at_ms: i64,
    stages: Vec<StagePoint>,
}

#[derive(Clone, Debug)]
struct StagePoint {
    watermark: Option<i64>,
    watermark_at_ms: Option<i64>,
    numbers: [f32; NUMBERS],
    splits: Vec<SplitPoint>,
}

#[derive(Clone, Copy, Debug)]
struct SplitPoint {
    watermark: Option<i64>,
    last_row_at_ms: Option<i64>,
    rows_per_s: f32,
    lag_rows: f32,
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
        let last_ms = self.points.back().map(|point| point.at_ms);
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
        Some((self.points.front()?.at_ms, self.points.back()?.at_ms))
    }

    /// The reading as it was at this moment: that of the last point at or before it. What no point
    /// keeps (errors, positions) is missing.
    pub fn at(&self, at_ms: i64) -> Option<JobReading> {
        let behind = self.points.partition_point(|point| point.at_ms <= at_ms);
        let point = self.points.get(behind.checked_sub(1)?)?;
        Some(point.reading(self.newest.as_deref()?))
    }

    /// One number of a stage over time, by its place in [`NUMBER_NAMES`].
    pub fn numbers(&self, stage: usize, number: usize) -> impl Iterator<Item = (i64, f32)> + '_ {
        self.points.iter().filter_map(move |point| {
            Some((point.at_ms, *point.stages.get(stage)?.numbers.get(number)?))
        })
    }

    /// The watermark of a stage over time.
    pub fn watermarks(&self, stage: usize) -> impl Iterator<Item = (i64, Option<i64>)> + '_ {
        let of_stage = move |point: &Point| Some((point.at_ms, point.stages.get(stage)?.watermark));
        self.points.iter().filter_map(of_stage)
    }

    /// How long a step of a stage's watermark takes on average, to the second; `None` while it has
    /// not made two.
    pub fn mean_step_ms(&self, stage: usize) -> Option<i64> {
        let mut steps = 0;
        let (mut first_ms, mut last_ms, mut before) = (None, None, None);
        for (at_ms, watermark) in self.watermarks(stage) {
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

impl Point {
    fn of(reading: &JobReading) -> Point {
        Point { at_ms: reading.at_ms, stages: reading.stages.iter().map(StagePoint::of).collect() }
    }

    fn reading(&self, newest: &JobReading) -> JobReading {
        let mut reading = newest.clone();
        reading.at_ms = self.at_ms;
        // What holds of the job as a whole is known of now only.
        (reading.restarting, reading.paused_by, reading.cut) = (None, None, None);
        for (stage, point) in reading.stages.iter_mut().zip(&self.stages) {
            point.write_to(stage);
        }
        reading
    }
}

impl StagePoint {
    fn of(stage: &StageReading) -> StagePoint {
        let recent = stage.recent.unwrap_or_default();
        let blocked = recent.blocked;
        let numbers = [
            recent.rows_in,
            recent.rows_out,
            recent.late,
            recent.quarantined,
            recent.busy,
            blocked.output,
            blocked.memory,
            blocked.order,
            blocked.lookup,
            blocked.cut,
            stage.queued,
            stage.state_bytes as f64,
        ];
        let splits = stage.source.iter().flat_map(|source| &source.splits).take(SPLITS_MAX);
        StagePoint {
            watermark: stage.watermark,
            watermark_at_ms: stage.watermark_at_ms,
            numbers: numbers.map(|number| number as f32),
            splits: splits
                .map(|split| SplitPoint {
                    watermark: split.watermark,
                    last_row_at_ms: split.last_row_at_ms,
                    rows_per_s: split.recent.map_or(0.0, |recent| recent.rows as f32),
                    lag_rows: split.lag_rows.map_or(f32::NAN, |lag| lag as f32),
                })
                .collect(),
        }
    }

    fn write_to(&self, stage: &mut StageReading) {
        let number = |place: usize| f64::from(self.numbers[place]);
        (stage.watermark, stage.watermark_at_ms) = (self.watermark, self.watermark_at_ms);
        (stage.queued, stage.state_bytes) = (number(10), number(11) as u64);
        // An end, a problem or a call that is known of now need not have been there then.
        (stage.has_ended, stage.problem, stage.in_call_ms) = (false, None, 0);
        (stage.unanswered, stage.unanswered_since_ms, stage.waits_for) = (0, None, None);
        stage.recent = Some(StageRates {
            rows_in: number(0),
            rows_out: number(1),
            late: number(2),
            quarantined: number(3),
            bad: 0.0,
            busy: number(4),
            blocked: BlockedShares {
                output: number(5),
                memory: number(6),
                order: number(7),
                lookup: number(8),
                cut: number(9),
            },
            busiest_partition: 0.0,
            skew: 1.0,
        });
        let Some(source) = &mut stage.source else { return };
        (source.has_ended, source.is_idle, source.is_held) = (false, false, false);
        source.asked_at_ms = None;
        source.splits.truncate(self.splits.len());
        for (split, point) in source.splits.iter_mut().zip(&self.splits) {
            split.watermark = point.watermark;
            split.last_row_at_ms = point.last_row_at_ms;
            split.lag_rows = (!point.lag_rows.is_nan()).then_some(point.lag_rows as u64);
            split.last_error = None;
            let rows = f64::from(point.rows_per_s);
            split.recent = Some(SplitRates { rows, lag: 0.0, pace: 0.0 });
        }
    }
}
