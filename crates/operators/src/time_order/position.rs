//! Where a source that is sorted continues.
//!
//! The inner source can say only where it is now, and rows that wait lie before that: [`Marks`]
//! keeps some of its positions, at most [`MARKS_MAX`], as long as rows behind them wait. None is
//! kept before anybody has asked for a position, but for that of the beginning.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};

use thalweg_core::{Error, Result};

/// Positions of the inner source, each before a row that is known by its number.
#[derive(Default)]
pub(super) struct Marks {
    /// Ascending; the first is before every row that waits.
    marks: VecDeque<(u64, Option<String>)>,
    /// One more is kept this many rows behind the last.
    distance: u64,
    /// Snapshots are taken.
    is_asked: AtomicBool,
}

/// When there are more marks than this, every other one goes.
const MARKS_MAX: usize = 32;
/// The least number of rows between marks.
const MARK_DISTANCE: u64 = 4 << 10;

impl Marks {
    /// Before the first row of this run.
    pub fn begin(&mut self, position: Option<String>) {
        self.marks = VecDeque::from([(0, position)]);
        self.distance = MARK_DISTANCE;
    }

    /// Snapshots are taken.
    pub fn ask(&self) {
        // Relaxed: see `wants`.
        self.is_asked.store(true, Ordering::Relaxed);
    }

    /// The mark before every row that waits.
    pub fn first(&self) -> Option<(u64, Option<&str>)> {
        self.ask();
        self.marks.front().map(|(row, position)| (*row, position.as_deref()))
    }

    /// True if a mark before this row is worth its memory.
    pub fn wants(&self, row: u64) -> bool {
        // Relaxed: it says only that marks are worth while from about now on.
        let last = self.marks.back().map_or(0, |(row, _)| *row);
        self.is_asked.load(Ordering::Relaxed) && row >= last + self.distance
    }

    pub fn add(&mut self, row: u64, position: Option<String>) {
        self.marks.push_back((row, position));
        if self.marks.len() > MARKS_MAX {
            self.distance = self.distance.saturating_mul(2);
            let mut number = 0;
            self.marks.retain(|_| {
                number += 1;
                number % 2 == 1
            });
        }
    }

    /// All rows before this one have left.
    pub fn forget(&mut self, row: u64) {
        while self.marks.get(1).is_some_and(|(first, _)| *first <= row) {
            self.marks.pop_front();
        }
        if self.marks.len() < 4 {
            self.distance = MARK_DISTANCE;
        }
    }

    pub fn bytes(&self) -> usize {
        let text = |mark: &(u64, Option<String>)| mark.1.as_ref().map_or(0, String::capacity);
        self.marks.iter().map(text).sum::<usize>()
            + self.marks.capacity() * size_of::<(u64, Option<String>)>()
    }
}

/// Where a sorted source continues, in words.
pub(super) struct OrderedPosition {
    /// Rows that had come since the inner position.
    pub(super) rows: u64,
    /// The time up to which rows had left.
    pub(super) left_ms: i64,
    /// The newest time.
    pub(super) newest_ms: i64,
    /// A promise that was not passed on yet.
    pub(super) heartbeat_ms: Option<i64>,
    /// The position of the inner source.
    pub(super) inner: String,
}

impl OrderedPosition {
    pub fn write(&self) -> String {
        let OrderedPosition { rows, left_ms, newest_ms, heartbeat_ms, inner } = self;
        let heartbeat = heartbeat_ms.map_or("null".to_owned(), |time_ms| time_ms.to_string());
        format!(
            "{{\"rows\":{rows},\"leftMs\":{left_ms},\"newestMs\":{newest_ms},\"heartbeatMs\":{heartbeat},\
             \"inner\":{inner}}}"
        )
    }

    pub fn read(position: &str) -> Result<Self> {
        fn next<'a>(rest: &mut &'a str, key: &str, end: char) -> Option<&'a str> {
            let (value, behind) = rest.strip_prefix(key)?.split_once(end)?;
            *rest = behind;
            Some(value)
        }
        let parse = || {
            let mut rest = position.trim().strip_prefix('{')?;
            let rows = next(&mut rest, "\"rows\":", ',')?.parse().ok()?;
            let left_ms = next(&mut rest, "\"leftMs\":", ',')?.parse().ok()?;
            let newest_ms = next(&mut rest, "\"newestMs\":", ',')?.parse().ok()?;
            let heartbeat_ms = match next(&mut rest, "\"heartbeatMs\":", ',')? {
                "null" => None,
                time_ms => Some(time_ms.parse().ok()?),
            };
            let inner = rest.strip_prefix("\"inner\":")?.strip_suffix('}')?.to_owned();
            Some(OrderedPosition { rows, left_ms, newest_ms, heartbeat_ms, inner })
        };
        parse().ok_or_else(|| {
            Error::user(format!("this is no position in an input in the order of time: {position}"))
                .hint("the snapshot is of another contract or version, or damaged")
        })
    }
}
