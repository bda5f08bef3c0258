//! Answers that are remembered: the rows of a key, as long as there is room and they are young.
//!
//! **Invariants:** at most this many rows are kept, a key without rows counting as one; what came
//! first goes first; a key that has expired is not there. Memory follows the rows.
//!
//! `order` may name an id whose key has gone, or whose id belongs to another key by now. The time
//! of arrival shows that: an entry only counts if the kept answer came at that very time.
//!
//! A key without rows is remembered only with `keeps_missing`. It then answers "no rows" without a
//! look-up until it expires.

use std::collections::VecDeque;

use arrow_array::{ArrayRef, RecordBatch, UInt32Array};
use arrow_select::take::take_record_batch;
use thalweg_core::Result;
use thalweg_core::lookup::LookupOptions;

use crate::join::hash::HashJoinSpec;
use crate::keys::{ABSENT, KeyTable};
use crate::rows::columns::keys_of;

struct CachedKey {
    rows: RecordBatch,
    came_ns: u64,
}

/// Rows by key.
pub(super) struct Cache {
    keys: KeyTable,
    entries: Vec<Option<CachedKey>>,
    /// Ids with when they came, oldest first.
    order: VecDeque<(u32, u64)>,
    rows: usize,
    rows_max: usize,
    expires_after_ns: Option<u64>,
    keeps_missing: bool,
    /// The key columns of the table.
    key_columns: Vec<usize>,
}

impl Cache {
    pub fn new(spec: &HashJoinSpec, options: &LookupOptions) -> Result<Self> {
        Ok(Cache {
            keys: KeyTable::new(&spec.join.key_types()?)?,
            entries: Vec::new(),
            order: VecDeque::new(),
            rows: 0,
            rows_max: options.cache_max_rows,
            expires_after_ns: options.cache_expires_after.map(|after| after.as_nanos() as u64),
            keeps_missing: options.caches_missing_keys,
            key_columns: spec.join.right_keys.clone(),
        })
    }

    /// The rows of these keys that are known, and the positions of the others.
    pub fn find(&mut self, keys: &[ArrayRef], now_ns: u64) -> Result<(Vec<RecordBatch>, Vec<u32>)> {
        self.expire(now_ns);
        let mut ids = Vec::new();
        self.keys.find(keys, keys.first().map_or(0, |key| key.len()), &mut ids)?;
        let (mut known, mut missing) = (Vec::new(), Vec::new());
        for (position, &id) in ids.iter().enumerate() {
            let entry = (id != ABSENT).then(|| self.entries[id as usize].as_ref()).flatten();
            match entry {
                Some(entry) if entry.rows.num_rows() == 0 => {}
                Some(entry) => known.push(entry.rows.clone()),
                None => missing.push(position as u32),
            }
        }
        Ok((known, missing))
    }

    /// Keeps the answer to these keys.
    pub fn remember(
        &mut self,
        asked: &[ArrayRef],
        answer: &RecordBatch,
        now_ns: u64,
    ) -> Result<()> {
        let count = asked.first().map_or(0, |key| key.len());
        let mut ids = Vec::new();
        self.keys.intern_rows(asked, None, count, &mut ids)?;
        let mut found = Vec::new();
        let of_answer = keys_of(answer.columns(), &self.key_columns);
        self.keys.find(&of_answer, answer.num_rows(), &mut found)?;
        let mut rows_of: Vec<(u32, u32)> = found.into_iter().zip(0..).collect();
        rows_of.sort_unstable();
        for id in ids {
            let from = rows_of.partition_point(|&(other, _)| other < id);
            let to = rows_of.partition_point(|&(other, _)| other <= id);
            if from == to && !self.keeps_missing {
                self.forget(id);
                continue;
            }
            let rows = rows_of[from..to].iter().map(|&(_, row)| row);
            let rows = take_record_batch(answer, &UInt32Array::from_iter_values(rows))?;
            self.put(id, CachedKey { rows, came_ns: now_ns });
        }
        while self.rows > self.rows_max {
            let Some((id, came_ns)) = self.order.pop_front() else { break };
            self.forget_if(id, came_ns);
        }
        Ok(())
    }

    fn put(&mut self, id: u32, entry: CachedKey) {
        let place = id as usize;
        if self.entries.len() <= place {
            self.entries.resize_with(place + 1, || None);
        }
        self.order.push_back((id, entry.came_ns));
        self.rows += weight(&entry);
        if let Some(old) = self.entries[place].replace(entry) {
            self.rows -= weight(&old);
        }
    }

    fn expire(&mut self, now_ns: u64) {
        let Some(after_ns) = self.expires_after_ns else { return };
        while let Some(&(id, came_ns)) = self.order.front()
            && came_ns.saturating_add(after_ns) <= now_ns
        {
            self.order.pop_front();
            self.forget_if(id, came_ns);
        }
    }

    /// Forgets what came then; a younger answer to the same key stays.
    fn forget_if(&mut self, id: u32, came_ns: u64) {
        let entry = self.entries.get(id as usize).and_then(Option::as_ref);
        if entry.is_some_and(|entry| entry.came_ns == came_ns) {
            self.forget(id);
        }
    }

    fn forget(&mut self, id: u32) {
        if let Some(entry) = self.entries.get_mut(id as usize).and_then(Option::take) {
            self.rows -= weight(&entry);
        }
        self.keys.release(id);
    }
}

fn weight(entry: &CachedKey) -> usize {
    entry.rows.num_rows().max(1)
}
