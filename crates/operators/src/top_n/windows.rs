//! The windows that rows wait in: which keys belong to which, and when they leave.
//!
//! A row is late if the watermark before it has reached the last instant of its window, and late
//! rows are dropped and counted (`on_time`). The window end is one of the key columns, so all rows
//! of a key are of one window.

use std::collections::BTreeMap;

use arrow_array::cast::AsArray;
use arrow_array::types::TimestampMillisecondType;
use arrow_array::{Array, RecordBatch};
use arrow_buffer::ScalarBuffer;
use chrono_tz::Tz;
use thalweg_core::{DataType, Error, OrderContract, Output, Piece, Result};

use crate::keys::{CanonicalOrder, KeyTable};
use crate::window::Zone;

/// The end of no window.
const NEVER: i64 = i64::MIN;

/// A window that leaves, and how much of it has.
pub(super) struct ClosingRanks {
    pub end: i64,
    /// Keys in the order in which they leave.
    pub keys: Vec<u32>,
    pub next: usize,
}

pub(super) struct TopNWindows {
    end_column: usize,
    zone: Zone,
    canonical: Option<CanonicalOrder>,
    /// Keys by window end.
    keys: BTreeMap<i64, Vec<u32>>,
    /// The window end of each key. Numbers are used again, so a window may still name keys of
    /// another.
    end_of: Vec<i64>,
    pub closing: Option<ClosingRanks>,
}

impl TopNWindows {
    pub fn new(
        end_column: usize,
        zone: Option<Tz>,
        order: OrderContract,
        key_types: &[DataType],
    ) -> Result<Self> {
        let canonical = CanonicalOrder::wanted(order, key_types)?;
        let zone = Zone::new(zone);
        Ok(TopNWindows {
            end_column,
            zone,
            canonical,
            keys: BTreeMap::new(),
            end_of: Vec::new(),
            closing: None,
        })
    }

    pub fn ends(&self, batch: &RecordBatch) -> Result<ScalarBuffer<i64>> {
        let column = batch.column(self.end_column);
        let ends = column.as_primitive_opt::<TimestampMillisecondType>().ok_or_else(|| {
            Error::internal(format!("the end of a window of type {}", column.data_type()))
        })?;
        if ends.null_count() > 0 {
            return Err(Error::data("the end of a window is NULL")
                .hint("filter such rows out, or give the column a value with COALESCE"));
        }
        Ok(ends.values().clone())
    }

    /// Rows of windows that the watermark before them has not closed; counts the others.
    pub fn on_time(&mut self, piece: &Piece<'_>, output: &mut Output) -> Result<Vec<u32>> {
        let ends = self.ends(&piece.bundle.batch)?;
        let before = &piece.bundle.stamps.watermark_before;
        let zone = &mut self.zone;
        let (mut rows, mut late) = (Vec::new(), Vec::new());
        let mut judge = |row: u32| {
            let time = zone.last_instant_before(ends[row as usize]);
            match time > before.at(row as usize).0 {
                true => rows.push(row),
                false => late.push((row, time)),
            }
        };
        match piece.rows {
            Some(rows) => rows.iter().for_each(|&row| judge(row)),
            None => (0..ends.len() as u32).for_each(judge),
        }
        output.accepted -= late.len() as u64;
        output.count_late(piece.bundle, &late)?;
        Ok(rows)
    }

    /// A key has a row.
    pub fn add(&mut self, key: u32, end: i64) {
        let at = key as usize;
        self.end_of.resize(self.end_of.len().max(at + 1), NEVER);
        if self.end_of[at] != end {
            self.end_of[at] = end;
            self.keys.entry(end).or_default().push(key);
        }
    }

    /// Begins with the first window, if this watermark closes it. Keys that are not live
    /// have lost their rows.
    pub fn close_next(
        &mut self,
        watermark: i64,
        keys: &KeyTable,
        is_live: impl Fn(u32) -> bool,
    ) -> Result<bool> {
        let Some(entry) = self.keys.first_entry() else { return Ok(false) };
        let end = *entry.key();
        if self.zone.last_instant_before(end) > watermark {
            return Ok(false);
        }
        let mut ids = entry.remove();
        ids.sort_unstable();
        ids.dedup();
        let end_of = &mut self.end_of;
        let mut is_of_window = |&id: &u32| {
            let is_own = end_of[id as usize] == end;
            if is_own {
                end_of[id as usize] = NEVER;
            }
            is_own && is_live(id)
        };
        ids.retain(&mut is_of_window);
        if let Some(canonical) = &self.canonical {
            let places = canonical.permutation(keys, &ids, |_| 0)?;
            ids = places.into_iter().map(|place| ids[place as usize]).collect();
        }
        self.closing = Some(ClosingRanks { end, keys: ids, next: 0 });
        Ok(true)
    }

    pub fn bytes(&self) -> usize {
        let waiting: usize = self.keys.values().map(|keys| 48 + keys.capacity() * 4).sum();
        waiting
            + self.end_of.capacity() * 8
            + self.closing.as_ref().map_or(0, |closing| closing.keys.capacity() * 4)
    }
}
