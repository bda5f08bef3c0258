//! An input in memory with splits, for tests of whoever takes them: the splits come in another
//! order each time, some are silent for a while, and their numbers differ from run to run.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::RecordBatch;
use thalweg_core::connector::{
    Source, SourceBatch, SourcePoll, SplitEvent, SplitId, SplitStatus, Waker,
};
use thalweg_core::shim::SplitMix64;
use thalweg_core::{Error, Result};

/// A split that falls silent is so for up to this many polls.
const SILENCE: u64 = 40;

/// Rows in splits.
#[derive(Clone)]
pub struct MemorySplits {
    splits: Vec<MemorySplit>,
    is_unbounded: bool,
}

#[derive(Clone)]
struct MemorySplit {
    name: Arc<str>,
    rows: RecordBatch,
    /// It is there once this many rows were given.
    comes_behind: usize,
}

impl MemorySplits {
    /// These rows by the names of their splits.
    pub fn new(splits: impl IntoIterator<Item = (String, RecordBatch)>) -> MemorySplits {
        let split = |(name, rows): (String, RecordBatch)| MemorySplit {
            name: name.into(),
            rows,
            comes_behind: 0,
        };
        MemorySplits { splits: splits.into_iter().map(split).collect(), is_unbounded: false }
    }

    /// One more split, which comes when a source has given this many rows.
    #[must_use]
    pub fn with_later(mut self, name: &str, rows: RecordBatch, comes_behind: usize) -> Self {
        self.splits.push(MemorySplit { name: name.into(), rows, comes_behind });
        self
    }

    /// Its sources never end.
    #[must_use]
    pub fn unbounded(mut self) -> Self {
        self.is_unbounded = true;
        self
    }

    /// A source of these columns of it; the seed decides how the splits come.
    pub fn source(&self, columns: Option<&[usize]>, seed: u64) -> SplitsSource {
        let mut random = SplitMix64::new(seed);
        let mut splits: Vec<ReadSplit> = self.splits.iter().map(ReadSplit::new).collect();
        for split in &mut splits {
            if let Some(columns) = columns {
                split.rows = split.rows.project(columns).expect("the columns are there");
            }
        }
        for last in (1..splits.len()).rev() {
            splits.swap(last, random.below(last as u64 + 1) as usize);
        }
        let is_bounded = !self.is_unbounded;
        SplitsSource { splits, given: 0, is_bounded, random, waker: None }
    }
}

/// Reads [`MemorySplits`].
pub struct SplitsSource {
    /// By number.
    splits: Vec<ReadSplit>,
    /// Rows given in this run.
    given: usize,
    is_bounded: bool,
    random: SplitMix64,
    waker: Option<Waker>,
}

struct ReadSplit {
    name: Arc<str>,
    rows: RecordBatch,
    comes_behind: usize,
    given: usize,
    is_open: bool,
    has_ended: bool,
    is_paused: bool,
    silent_for: u64,
}

impl ReadSplit {
    fn new(of: &MemorySplit) -> ReadSplit {
        ReadSplit {
            name: Arc::clone(&of.name),
            rows: of.rows.clone(),
            comes_behind: of.comes_behind,
            given: 0,
            is_open: false,
            has_ended: false,
            is_paused: false,
            silent_for: 0,
        }
    }

    fn left(&self) -> usize {
        self.rows.num_rows() - self.given
    }
}

impl SplitsSource {
    /// Something that happens to a split now.
    fn event(&mut self) -> Option<(SplitId, SplitEvent)> {
        for (number, split) in (0..).zip(&mut self.splits) {
            if !split.is_open && split.comes_behind <= self.given {
                split.is_open = true;
                return Some((SplitId(number), SplitEvent::Opened(Arc::clone(&split.name))));
            }
        }
        let mut open = (0..).zip(&mut self.splits).filter(|(_, split)| split.is_open);
        let (number, ended) =
            open.find(|(_, split)| self.is_bounded && !split.has_ended && split.left() == 0)?;
        ended.has_ended = true;
        Some((SplitId(number), SplitEvent::Ended))
    }

    /// A split that gives rows now, if the one that was drawn does.
    fn draw(&mut self) -> Option<usize> {
        let drawn = self.random.below(self.splits.len() as u64) as usize;
        if self.random.below(24) == 0 {
            self.splits[drawn].silent_for = self.random.below(SILENCE);
        }
        let split = &mut self.splits[drawn];
        split.silent_for = split.silent_for.saturating_sub(1);
        let gives = split.is_open && !split.is_paused && split.silent_for == 0 && split.left() > 0;
        gives.then_some(drawn)
    }
}

impl Source for SplitsSource {
    fn name(&self) -> String {
        "splits".to_owned()
    }
    fn start(&mut self, waker: Waker) -> Result<()> {
        self.waker = Some(waker);
        Ok(())
    }
    fn poll(&mut self, rows_max: usize) -> Result<SourcePoll> {
        if let Some((split, event)) = self.event() {
            return Ok(SourcePoll::Split(split, event));
        }
        if self.is_bounded && self.splits.iter().all(|split| split.has_ended) {
            return Ok(SourcePoll::End);
        }
        let Some(drawn) = self.draw() else {
            let has_more = self.splits.iter().any(|split| split.left() > 0);
            if let Some(waker) = self.waker.as_ref().filter(|_| has_more) {
                waker();
            }
            // Splits that were to come behind rows which others will not give come now.
            let is_stuck = self.splits.iter().all(|split| !split.is_open || split.left() == 0);
            self.given = if is_stuck { usize::MAX / 2 } else { self.given };
            return Ok(SourcePoll::Pending);
        };
        let wanted = 1 + self.random.below(rows_max.clamp(1, 64) as u64) as usize;
        let split = &mut self.splits[drawn];
        let rows = split.left().min(wanted);
        let batch = split.rows.slice(split.given, rows);
        split.given += rows;
        self.given += rows;
        let split = SplitId(drawn as u32);
        Ok(SourcePoll::Batch(SourceBatch { split, ..SourceBatch::new(batch) }))
    }
    fn is_bounded(&self) -> bool {
        self.is_bounded
    }
    fn split_status(&self, split: SplitId) -> SplitStatus {
        let split = &self.splits[split.0 as usize];
        SplitStatus {
            position: Some(format!("row {}", split.given)),
            lag_rows: Some(split.left() as u64),
            is_caught_up: split.left() == 0,
            ..SplitStatus::default()
        }
    }
    fn pause_split(&mut self, split: SplitId, is_paused: bool) {
        self.splits[split.0 as usize].is_paused = is_paused;
    }
    fn position(&self) -> Option<String> {
        let known = self.splits.iter().filter(|split| split.is_open || split.given > 0);
        let rows: BTreeMap<&str, usize> = known.map(|split| (&*split.name, split.given)).collect();
        Some(serde_json::json!({ "splits": rows }).to_string())
    }
    fn seek(&mut self, position: &str) -> Result<()> {
        let wrong = || {
            Error::user(format!("this is no position in an input with splits: {position}"))
                .hint("the snapshot is of another table, of another version, or damaged")
        };
        let read = serde_json::from_str::<BTreeMap<String, BTreeMap<String, usize>>>(position);
        let mut read = read.map_err(|_| wrong())?;
        for (name, given) in read.remove("splits").ok_or_else(wrong)? {
            let split = self.splits.iter_mut().find(|split| *split.name == *name);
            let split = split.ok_or_else(wrong)?;
            (split.given, split.comes_behind) = (given, 0);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::{ArrayRef, Int64Array};

    use super::*;
    use crate::conformance::check_replayable;

    #[test]
    fn splits_come_in_any_order_and_their_rows_in_one() {
        let rows = |from: i64, rows: i64| {
            let column: ArrayRef = Arc::new(Int64Array::from_iter_values(from..from + rows));
            RecordBatch::try_from_iter([("value", column)]).expect("one column")
        };
        let splits = (0..5).map(|n| (format!("part-{n}"), rows(n * 1000, n * 60)));
        let input = MemorySplits::new(splits).with_later("new", rows(-100, 50), 200);
        let seed = std::cell::Cell::new(0);
        let make = || {
            seed.set(seed.get() + 1);
            Ok(Box::new(input.source(None, seed.get())) as Box<dyn Source>)
        };
        check_replayable(&make, 40).expect("no error");
    }
}
