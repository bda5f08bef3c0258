//! Where a source that is sorted continues.
//!
//! The inner source can say only where it is now, and rows that wait lie before that: [`Marks`]
//! keeps some of its positions, at most [`MARKS_MAX`], as long as rows behind them wait. None is
//! kept before anybody has asked for a position, but for that of the beginning. A mark knows how
//! many rows of each split had come.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};
use thalweg_core::connector::SplitId;
use thalweg_core::{Error, Result};

/// A position of the inner source before a row.
#[derive(Clone, Debug, Default)]
pub(super) struct Mark {
    /// The number of the row, over all splits.
    pub(super) row: u64,
    /// How many rows of each split had come, by number.
    pub(super) arrived: Vec<(SplitId, u64)>,
    /// `None` if it has none.
    pub(super) position: Option<String>,
}

impl Mark {
    /// How many rows of a split had come.
    pub(super) fn arrived_of(&self, split: SplitId) -> u64 {
        let mut all = self.arrived.iter();
        all.find(|(id, _)| *id == split).map_or(0, |(_, arrived)| *arrived)
    }
}

/// Positions of the inner source.
#[derive(Default)]
pub(super) struct Marks {
    /// Ascending; the first is before every row that waits.
    marks: VecDeque<Mark>,
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
        self.marks = VecDeque::from([Mark { position, ..Mark::default() }]);
        self.distance = MARK_DISTANCE;
    }

    /// Snapshots are taken.
    pub fn ask(&self) {
        // Relaxed: see `wants`.
        self.is_asked.store(true, Ordering::Relaxed);
    }

    /// The mark before every row that waits.
    pub fn first(&self) -> Option<&Mark> {
        self.ask();
        self.marks.front()
    }

    /// True if a mark before this row is worth its memory.
    pub fn wants(&self, row: u64) -> bool {
        // Relaxed: it says only that marks are worth while from about now on.
        let last = self.marks.back().map_or(0, |mark| mark.row);
        self.is_asked.load(Ordering::Relaxed) && row >= last + self.distance
    }

    pub fn add(&mut self, mark: Mark) {
        self.marks.push_back(mark);
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
        while self.marks.get(1).is_some_and(|mark| mark.row <= row) {
            self.marks.pop_front();
        }
        if self.marks.len() < 4 {
            self.distance = MARK_DISTANCE;
        }
    }

    pub fn bytes(&self) -> usize {
        let bytes = |mark: &Mark| {
            mark.position.as_ref().map_or(0, String::capacity)
                + mark.arrived.capacity() * size_of::<(SplitId, u64)>()
        };
        self.marks.iter().map(bytes).sum::<usize>() + self.marks.capacity() * size_of::<Mark>()
    }
}

/// Where a split of it continues.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SplitPosition {
    pub(super) name: String,
    /// Rows of it that had come since the inner position.
    pub(super) rows: u64,
    /// Its newest time.
    pub(super) newest_ms: i64,
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
    /// Its splits, where it names any.
    pub(super) splits: Vec<SplitPosition>,
    /// The position of the inner source.
    pub(super) inner: String,
}

impl OrderedPosition {
    pub fn write(&self) -> String {
        let OrderedPosition { rows, left_ms, newest_ms, heartbeat_ms, splits, inner } = self;
        let heartbeat = heartbeat_ms.map_or("null".to_owned(), |time_ms| time_ms.to_string());
        let splits = match splits.is_empty() {
            true => String::new(),
            false => format!("\"splits\":{},", serde_json::json!(splits)),
        };
        format!(
            "{{\"rows\":{rows},\"leftMs\":{left_ms},\"newestMs\":{newest_ms},\"heartbeatMs\":{heartbeat},\
             {splits}\"inner\":{inner}}}"
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
            let splits = next_splits(&mut rest)?;
            let inner = rest.strip_prefix("\"inner\":")?.strip_suffix('}')?.to_owned();
            Some(OrderedPosition { rows, left_ms, newest_ms, heartbeat_ms, splits, inner })
        };
        parse().ok_or_else(|| {
            Error::user(format!("this is no position in an input in the order of time: {position}"))
                .hint("the snapshot is of another contract or version, or damaged")
        })
    }
}

/// The splits, where the text continues with them; moves behind them.
fn next_splits(rest: &mut &str) -> Option<Vec<SplitPosition>> {
    let Some(list) = rest.strip_prefix("\"splits\":") else { return Some(Vec::new()) };
    let mut values = serde_json::Deserializer::from_str(list).into_iter();
    let splits = values.next()?.ok()?;
    *rest = list.get(values.byte_offset()..)?.strip_prefix(',')?;
    Some(splits)
}
