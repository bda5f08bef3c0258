//! What changes of a reading from moment to moment, in memory and as bytes.

use crate::reading::{
    BlockedShares, JobReading, SourceReading, SplitRates, SplitReading, StageRates, StageReading,
};

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
/// Splits of a source that are kept, at most.
const SPLITS_MAX: usize = 64;
/// Stages of a job whose points can be read.
const STAGES_MAX: usize = 100_000;
/// Stands for no time in bytes.
const NO_TIME: i64 = i64::MIN;

/// A moment of a job. With a reading of the same stages it is a reading again.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    at_ms: i64,
    stages: Vec<StagePoint>,
}

#[derive(Clone, Debug, PartialEq)]
struct StagePoint {
    watermark: Option<i64>,
    watermark_at_ms: Option<i64>,
    is: Flags,
    numbers: [f32; NUMBERS],
    splits: Vec<SplitPoint>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct SplitPoint {
    watermark: Option<i64>,
    last_row_at_ms: Option<i64>,
    is: Flags,
    rows_per_s: f32,
    /// Negative where it is not known.
    lag_rows: f32,
}

/// What a stage or a split was.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Flags {
    ended: bool,
    idle: bool,
    paused: bool,
}

impl Flags {
    fn byte(self) -> u8 {
        u8::from(self.ended) | u8::from(self.idle) << 1 | u8::from(self.paused) << 2
    }

    fn of_byte(byte: u8) -> Flags {
        Flags { ended: byte & 1 != 0, idle: byte & 2 != 0, paused: byte & 4 != 0 }
    }
}

impl Point {
    /// What changes of a reading.
    pub fn of(reading: &JobReading) -> Point {
        Point { at_ms: reading.at_ms, stages: reading.stages.iter().map(StagePoint::of).collect() }
    }

    /// The moment.
    pub fn at_ms(&self) -> i64 {
        self.at_ms
    }

    /// One number of a stage, by its place in [`NUMBER_NAMES`].
    pub fn number(&self, stage: usize, number: usize) -> Option<f32> {
        self.stages.get(stage)?.numbers.get(number).copied()
    }

    /// The watermark of a stage; `None` without such a stage.
    pub fn watermark(&self, stage: usize) -> Option<Option<i64>> {
        Some(self.stages.get(stage)?.watermark)
    }

    /// The reading as it was; what does not change is that of `of_same`, a reading of the same
    /// stages. What no point keeps (errors, positions) is missing.
    pub fn reading(&self, of_same: &JobReading) -> JobReading {
        let mut reading = of_same.clone();
        reading.at_ms = self.at_ms;
        // What holds of the job as a whole is known of now only.
        (reading.restarting, reading.paused_by, reading.cut) = (None, None, None);
        for (stage, point) in reading.stages.iter_mut().zip(&self.stages) {
            point.write_to(stage);
        }
        reading
    }

    /// As bytes, for a file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(12 + self.stages.len() * 128);
        bytes.extend(self.at_ms.to_le_bytes());
        bytes.extend((self.stages.len() as u32).to_le_bytes());
        for stage in &self.stages {
            write_times(&mut bytes, [stage.watermark, stage.watermark_at_ms]);
            bytes.push(stage.is.byte());
            bytes.extend(stage.numbers.iter().flat_map(|number| number.to_le_bytes()));
            bytes.push(stage.splits.len() as u8);
            for split in &stage.splits {
                write_times(&mut bytes, [split.watermark, split.last_row_at_ms]);
                bytes.push(split.is.byte());
                bytes.extend(split.rows_per_s.to_le_bytes());
                bytes.extend(split.lag_rows.to_le_bytes());
            }
        }
        bytes
    }

    /// Of the bytes of [`Point::to_bytes`]; `None` if these are none.
    pub fn from_bytes(bytes: &[u8]) -> Option<Point> {
        let mut rest = Bytes(bytes);
        let at_ms = rest.i64()?;
        let stages = u32::from_le_bytes(rest.take()?) as usize;
        if stages > STAGES_MAX {
            return None;
        }
        let stages = (0..stages).map(|_| StagePoint::read(&mut rest)).collect::<Option<_>>()?;
        rest.0.is_empty().then_some(Point { at_ms, stages })
    }
}

fn write_times(bytes: &mut Vec<u8>, times: [Option<i64>; 2]) {
    times.iter().for_each(|time| bytes.extend(time.unwrap_or(NO_TIME).to_le_bytes()));
}

/// Bytes that are read from the front.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }

    fn i64(&mut self) -> Option<i64> {
        self.take().map(i64::from_le_bytes)
    }

    fn time(&mut self) -> Option<Option<i64>> {
        self.i64().map(|time| (time != NO_TIME).then_some(time))
    }

    fn f32(&mut self) -> Option<f32> {
        self.take().map(f32::from_le_bytes)
    }

    fn flags(&mut self) -> Option<Flags> {
        self.take::<1>().map(|[byte]| Flags::of_byte(byte))
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
        let source = stage.source.as_ref();
        let of_source = |is: fn(&SourceReading) -> bool| source.is_some_and(is);
        let splits = source.into_iter().flat_map(|source| &source.splits).take(SPLITS_MAX);
        StagePoint {
            watermark: stage.watermark,
            watermark_at_ms: stage.watermark_at_ms,
            is: Flags {
                ended: stage.has_ended || of_source(|source| source.has_ended),
                idle: of_source(|source| source.is_idle),
                paused: of_source(|source| source.is_held),
            },
            numbers: numbers.map(|number| number as f32),
            splits: splits.map(SplitPoint::of).collect(),
        }
    }

    fn read(rest: &mut Bytes<'_>) -> Option<StagePoint> {
        let (watermark, watermark_at_ms, is) = (rest.time()?, rest.time()?, rest.flags()?);
        let mut numbers = [0.0; NUMBERS];
        for number in &mut numbers {
            *number = rest.f32()?;
        }
        let [splits] = rest.take()?;
        let splits = (0..splits).map(|_| SplitPoint::read(rest)).collect::<Option<_>>()?;
        Some(StagePoint { watermark, watermark_at_ms, is, numbers, splits })
    }

    fn write_to(&self, stage: &mut StageReading) {
        let number = |place: usize| f64::from(self.numbers[place]);
        (stage.watermark, stage.watermark_at_ms) = (self.watermark, self.watermark_at_ms);
        (stage.queued, stage.state_bytes) = (number(10), number(11) as u64);
        // A problem or a call that is known of now need not have been there then.
        (stage.has_ended, stage.problem, stage.in_call_ms) = (self.is.ended, None, 0);
        (stage.unanswered, stage.unanswered_since_ms, stage.waits_for) = (0, None, None);
        stage.recent = Some(StageRates {
            rows_in: number(0),
            rows_out: number(1),
            late: number(2),
            quarantined: number(3),
            bad: 0.0,
            busy: number(4),
            blocked: BlockedShares::of(|by| number(5 + by as usize)),
            busiest_partition: 0.0,
            skew: 1.0,
        });
        let Some(source) = &mut stage.source else { return };
        let Flags { ended, idle, paused } = self.is;
        (source.has_ended, source.is_idle, source.is_held) = (ended, idle, paused);
        source.asked_at_ms = None;
        source.splits.truncate(self.splits.len());
        for (split, point) in source.splits.iter_mut().zip(&self.splits) {
            point.write_to(split);
        }
    }
}

impl SplitPoint {
    fn of(split: &SplitReading) -> SplitPoint {
        SplitPoint {
            watermark: split.watermark,
            last_row_at_ms: split.last_row_at_ms,
            is: Flags { ended: split.has_ended, idle: split.is_idle, paused: split.is_paused },
            rows_per_s: split.recent.map_or(0.0, |recent| recent.rows as f32),
            lag_rows: split.lag_rows.map_or(-1.0, |lag| lag as f32),
        }
    }

    fn read(rest: &mut Bytes<'_>) -> Option<SplitPoint> {
        Some(SplitPoint {
            watermark: rest.time()?,
            last_row_at_ms: rest.time()?,
            is: rest.flags()?,
            rows_per_s: rest.f32()?,
            lag_rows: rest.f32()?,
        })
    }

    fn write_to(&self, split: &mut SplitReading) {
        split.watermark = self.watermark;
        split.last_row_at_ms = self.last_row_at_ms;
        split.lag_rows = (self.lag_rows >= 0.0).then_some(self.lag_rows as u64);
        (split.has_ended, split.is_idle) = (self.is.ended, self.is.idle);
        (split.is_paused, split.last_error) = (self.is.paused, None);
        let rows = f64::from(self.rows_per_s);
        split.recent = Some(SplitRates { rows, lag: 0.0, pace: 0.0 });
    }
}
