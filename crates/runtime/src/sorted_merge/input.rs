//! One input of a merge: what waits in it, and how far it has promised to be.

use std::collections::VecDeque;

use thalweg_core::text::format_timestamp_millis;
use thalweg_core::{Error, Result, Watermark};

use super::rows::{Pair, SortedRows};

/// What waits, in the order in which it came.
#[derive(Default)]
pub(super) struct Input {
    number: usize,
    pub items: VecDeque<Item>,
    /// No row that comes later is older.
    pub frontier_ms: i64,
    pub has_ended: bool,
    /// Nothing is waited for behind the items.
    pub is_idle: bool,
    /// The time of the row that came last, for messages.
    last_ms: Option<i64>,
    /// Rows that came so far.
    positions: u64,
}

/// Something that waits.
pub(super) enum Item {
    /// Rows from this one on, and what they still count in the memory account.
    Rows { rows: SortedRows, from: usize, bytes: usize },
    /// A mark, at this time.
    Mark { time_ms: i64 },
}

impl Input {
    pub(super) fn new(number: usize) -> Self {
        Input { number, frontier_ms: i64::MIN, ..Input::default() }
    }

    /// Adds rows, after a look at their order.
    pub(super) fn push(&mut self, rows: SortedRows) -> Result<()> {
        if self.has_ended {
            return Err(Error::internal(format!(
                "rows came by input {} after its end",
                self.number
            )));
        }
        let (Some(&first_ms), Some(&last_ms)) = (rows.times.first(), rows.times.last()) else {
            return Ok(());
        };
        if first_ms < self.frontier_ms || !rows.times.is_sorted() {
            return Err(self.out_of_order(&rows.times));
        }
        self.positions += rows.times.len() as u64;
        self.last_ms = Some(last_ms);
        self.frontier_ms = last_ms;
        let bytes = rows.bytes;
        self.items.push_back(Item::Rows { rows, from: 0, bytes });
        Ok(())
    }

    pub(super) fn advance(&mut self, watermark: Watermark) {
        match watermark {
            Watermark::MIN => {}
            Watermark::END => self.has_ended = true,
            Watermark(time_ms) => self.frontier_ms = self.frontier_ms.max(time_ms + 1),
        }
    }

    /// What stands at this row of this item, or behind all items. `None` behind the end, and
    /// where nothing is waited for.
    pub(super) fn pair_at(&self, item: usize, row: usize) -> Option<Pair> {
        let time_ms = match self.items.get(item) {
            Some(Item::Rows { rows, from, .. }) => rows.times[row.max(*from)],
            Some(Item::Mark { time_ms }) => *time_ms,
            None if self.has_ended || self.is_idle => return None,
            None => self.frontier_ms,
        };
        Some((time_ms, self.number))
    }

    /// The rows of an item that has some.
    pub(super) fn rows_at(&self, item: usize) -> &SortedRows {
        match &self.items[item] {
            Item::Rows { rows, .. } => rows,
            Item::Mark { .. } => unreachable!("only rows are picked"),
        }
    }

    /// Forgets everything before this row of this item; the bytes that it counted.
    pub(super) fn take(&mut self, item: usize, row: usize) -> usize {
        let bytes_of = |item: Item| match item {
            Item::Rows { bytes, .. } => bytes,
            Item::Mark { .. } => 0,
        };
        let mut taken = self.items.drain(..item).map(bytes_of).sum();
        if let Some(Item::Rows { rows, from, bytes }) = self.items.front_mut()
            && row > *from
        {
            let share = *bytes * (row - *from) / (rows.times.len() - *from);
            (*from, *bytes) = (row, *bytes - share);
            taken += share;
        }
        taken
    }

    /// A row without a time.
    pub(super) fn null_time(&self, row: usize) -> Error {
        let (input, row) = (self.number, self.positions + row as u64 + 1);
        let message = format!("row {row} of input {input} of a merge by time has no time");
        Error::data(message).hint("filter rows without a time out before inputs meet")
    }

    /// The first row that breaks the order.
    fn out_of_order(&self, times: &[i64]) -> Error {
        let mut frontier_ms = self.frontier_ms;
        let breaks = |&time_ms: &i64| {
            let breaks = time_ms < frontier_ms;
            frontier_ms = frontier_ms.max(time_ms);
            breaks
        };
        let row = times.iter().position(breaks).expect("the caller has seen one");
        let (input, number) = (self.number, self.positions + row as u64 + 1);
        let time = format_timestamp_millis(times[row], 3);
        let before_ms = if row > 0 { Some(times[row - 1]) } else { self.last_ms };
        let message = match before_ms {
            Some(before_ms) if times[row] < before_ms => format!(
                "input {input} is not sorted by time: its row {number} at {time} comes after one at {}",
                format_timestamp_millis(before_ms, 3)
            ),
            _ => format!(
                "row {number} of input {input} comes at {time}, but a watermark has promised that none \
                 comes at or before {}",
                format_timestamp_millis(self.frontier_ms - 1, 3)
            ),
        };
        Error::data(message)
            .hint("sort the input by time, or allow for disorder with 'source.sort-within'")
    }
}
