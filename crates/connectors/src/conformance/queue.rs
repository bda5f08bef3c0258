//! Sources whose outside keeps each record until it is acknowledged, and delivers it again where
//! that did not happen: the check, and a queue in memory that shows how such a source is made.
//!
//! # Protocol
//! A record has an id. The position of the source holds the ids that it delivered and that are not
//! acknowledged yet. After a restart the outside delivers these again, and the source drops them:
//! the snapshot has their effects. [`Source::committed`] names a position of a snapshot that is
//! kept; its ids are acknowledged then, and never come again. An id that was acknowledged is
//! forgotten, so a position holds only what came since the last commit.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use thalweg_core::connector::{Source, SourceBatch, SourcePoll, Waker};
use thalweg_core::shim::SplitMix64;
use thalweg_core::{Error, Result};

use super::{Started, joined};

/// A queue in memory whose records are numbers and stay until they are acknowledged. Clones are the
/// same queue.
#[derive(Clone, Default)]
pub struct MemoryQueue(Arc<Mutex<Records>>);

#[derive(Default)]
struct Records {
    /// By id, those that are not acknowledged.
    kept: BTreeMap<u64, i64>,
    next_id: u64,
}

impl MemoryQueue {
    /// A queue with these records.
    pub fn new(values: impl IntoIterator<Item = i64>) -> MemoryQueue {
        let kept: BTreeMap<u64, i64> = (0..).zip(values).collect();
        let next_id = kept.len() as u64;
        MemoryQueue(Arc::new(Mutex::new(Records { kept, next_id })))
    }

    /// Adds a record.
    pub fn push(&self, value: i64) {
        let mut records = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let id = records.next_id;
        records.next_id += 1;
        records.kept.insert(id, value);
    }

    /// How many records are not acknowledged.
    pub fn kept(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).kept.len()
    }

    /// A source of all records that are kept now, which ends behind them.
    pub fn source(&self) -> QueueSource {
        QueueSource { queue: self.clone(), waiting: VecDeque::new(), delivered: BTreeSet::new() }
    }

    fn acknowledge(&self, ids: &BTreeSet<u64>) {
        let mut records = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        records.kept.retain(|id, _| !ids.contains(id));
    }
}

/// Reads a [`MemoryQueue`].
pub struct QueueSource {
    queue: MemoryQueue,
    /// What the queue has delivered and is not taken yet.
    waiting: VecDeque<(u64, i64)>,
    /// The ids that were delivered and are not acknowledged.
    delivered: BTreeSet<u64>,
}

fn ids(position: &str) -> Result<BTreeSet<u64>> {
    serde_json::from_str::<BTreeMap<String, BTreeSet<u64>>>(position)
        .ok()
        .and_then(|mut position| position.remove("ids"))
        .ok_or_else(|| {
            Error::user(format!("this is no position in a queue: {position}"))
                .hint("the snapshot is of another table, of another version, or damaged")
        })
}

impl Source for QueueSource {
    fn name(&self) -> String {
        "queue".to_owned()
    }
    fn start(&mut self, _waker: Waker) -> Result<()> {
        let records = self.queue.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = |(id, _): &(&u64, &i64)| !self.delivered.contains(id);
        self.waiting =
            records.kept.iter().filter(is_new).map(|(&id, &value)| (id, value)).collect();
        Ok(())
    }
    fn poll(&mut self, rows_max: usize) -> Result<SourcePoll> {
        let rows = self.waiting.len().min(rows_max.max(1));
        if rows == 0 {
            return Ok(SourcePoll::End);
        }
        let (ids, values): (Vec<u64>, Vec<i64>) = self.waiting.drain(..rows).unzip();
        self.delivered.extend(ids);
        let column: ArrayRef = Arc::new(Int64Array::from(values));
        let batch = RecordBatch::try_from_iter([("value", column)])?;
        Ok(SourcePoll::Batch(SourceBatch::new(batch)))
    }
    fn is_bounded(&self) -> bool {
        true
    }
    fn position(&self) -> Option<String> {
        Some(serde_json::json!({ "ids": self.delivered.iter().collect::<Vec<_>>() }).to_string())
    }
    fn seek(&mut self, position: &str) -> Result<()> {
        self.delivered = ids(position)?;
        Ok(())
    }
    fn committed(&mut self, position: &str) -> Result<()> {
        let ids = ids(position)?;
        self.queue.acknowledge(&ids);
        self.delivered.retain(|id| !ids.contains(id));
        Ok(())
    }
}

/// Checks a source of a bounded input whose records stay until they are acknowledged: `make` opens
/// it over an outside with records that are all different, of which none was ever acknowledged;
/// what it returns opens the source again over the same outside. `expected` are the rows, in any
/// order. Fails the job at random points, also between the snapshot and its commit.
///
/// # Errors
/// Those of the source.
///
/// # Panics
/// If a record is lost or counts twice.
pub fn check_acknowledging<Open>(
    make: &dyn Fn() -> Open,
    expected: &RecordBatch,
    rounds: u64,
) -> Result<()>
where
    Open: Fn() -> Result<Box<dyn Source>>,
{
    for seed in 0..rounds {
        let mut random = SplitMix64::new(seed);
        let open = make();
        let mut snapshot: Option<String> = None;
        // What the job has made of the rows up to the snapshot, and since.
        let (mut kept, mut since): (Vec<RecordBatch>, Vec<RecordBatch>) = (Vec::new(), Vec::new());
        let mut started = Started::new(open()?, None)?;
        loop {
            let batch = started.next(1 + random.below(9) as usize)?;
            let has_ended = batch.is_none();
            since.extend(batch);
            if has_ended || random.below(4) == 0 {
                let position = started.source().position();
                kept.append(&mut since);
                snapshot = Some(position.expect("an acknowledging source has a position"));
                if let Some(position) = snapshot.as_deref().filter(|_| random.below(3) > 0) {
                    started.source().committed(position)?;
                }
            }
            if has_ended {
                break;
            }
            if random.below(6) == 0 {
                since.clear();
                started.source().stop();
                started = Started::new(open()?, snapshot.as_deref())?;
            }
        }
        let rows = joined(&kept).expect("rows");
        let (mut rows, mut expected) = (texts(&rows), texts(expected));
        rows.sort_unstable();
        expected.sort_unstable();
        assert_eq!(rows, expected, "seed {seed}");
    }
    Ok(())
}

/// The rows as texts.
pub(super) fn texts(rows: &RecordBatch) -> Vec<String> {
    (0..rows.num_rows()).map(|row| format!("{:?}", rows.slice(row, 1).columns())).collect()
}

#[cfg(test)]
mod tests {
    use thalweg_core::connector::SourceLayer;

    use super::*;

    #[test]
    fn a_queue_counts_each_record_once_and_forgets_what_was_acknowledged() {
        let column: ArrayRef = Arc::new(Int64Array::from_iter_values(0..200));
        let expected = RecordBatch::try_from_iter([("value", column)]).expect("one column");
        let make = || {
            let queue = MemoryQueue::new(0..200);
            move || Ok(Box::new(queue.source()) as Box<dyn Source>)
        };
        check_acknowledging(&make, &expected, 50).expect("no error");
        let queue = MemoryQueue::new(0..10);
        let mut started = Started::new(Box::new(queue.source()), None).expect("started");
        started.next(4).expect("rows");
        let position = started.source().position().expect("a position");
        started.next(4).expect("rows");
        started.source().committed(&position).expect("acknowledged");
        assert_eq!(queue.kept(), 6);
        assert_eq!(started.source().position().expect("a position"), "{\"ids\":[4,5,6,7]}");
    }

    #[test]
    #[should_panic(expected = "seed")]
    fn a_source_that_forgets_what_it_gave_is_found_out() {
        /// Drops the ids of its position.
        struct Forgets(QueueSource);
        impl SourceLayer for Forgets {
            fn inner(&self) -> &dyn Source {
                &self.0
            }
            fn inner_mut(&mut self) -> &mut dyn Source {
                &mut self.0
            }
            fn seek(&mut self, _position: &str) -> Result<()> {
                Ok(())
            }
        }
        let column: ArrayRef = Arc::new(Int64Array::from_iter_values(0..50));
        let expected = RecordBatch::try_from_iter([("value", column)]).expect("one column");
        let make = || {
            let queue = MemoryQueue::new(0..50);
            move || Ok(Box::new(Forgets(queue.source())) as Box<dyn Source>)
        };
        check_acknowledging(&make, &expected, 20).expect("no error");
    }
}
