//! The keys of a partition: which are live, and when they are forgotten.
//!
//! A key lives while a row of it waits or anything remembers it. Where frames are stretches of
//! time, a key is forgotten once time is past its newest row by the length of the frame; otherwise
//! after `state_ttl_ms` of processing time without a row, if that is set, and never if it is not.
//!
//! **Invariants**
//! - A key with waiting rows is never released: `waiting` counts them.
//! - `newest` never falls while the key lives; forgetting sets it to `NEVER`.
//! - `fired` may name a key several times, and keys that have been released and used again.
//!   `pop_beyond_reach` looks at the key's present `newest`, so an old entry does no harm.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use thalweg_core::{DataType, Result};

use crate::capture::key_columns::KeyColumns;
use crate::capture::keys::{KeyTracker, release, retain_empty};
use crate::keys::KeyTable;
use crate::tables::{does_not_fit, numbers_of, typed};

/// Columns of tables of state: the time of a key's newest row that was fired, NULL without one, and
/// when a row last came.
const NEWEST_MS: &str = "$newest_ms";
const REACHED_MS: &str = "$reached_ms";

/// How many keys are looked at, besides as many as rows came, for those that are too old.
const SWEPT_MIN: usize = 256;

/// A key has had no row yet, or has been forgotten.
pub(super) const NEVER: i64 = i64::MIN;

#[derive(Clone, Copy)]
struct OverKey {
    /// Rows that wait.
    waiting: u32,
    is_live: bool,
    /// The time of the newest row that has been fired.
    newest: i64,
}

/// The keys, by dense id.
pub(super) struct Keyring {
    pub(super) table: KeyTable,
    keys: Vec<OverKey>,
    /// How long keys are remembered behind their newest row, in the time of rows.
    reach_ms: Option<i64>,
    /// Keys in the order in which rows of them were fired, with the newest time.
    fired: VecDeque<(i64, Vec<u32>)>,
    ttl_ms: Option<i64>,
    /// When a row of each key last came, in processing time; empty without `ttl_ms`.
    reached_ms: Vec<i64>,
    cursor: usize,
}

impl Keyring {
    pub fn new(types: &[DataType], reach_ms: Option<i64>, ttl_ms: Option<i64>) -> Result<Self> {
        Ok(Keyring {
            table: KeyTable::new(types)?,
            keys: Vec::new(),
            reach_ms,
            fired: VecDeque::new(),
            // As in Flink, a time of 0 means for ever.
            ttl_ms: ttl_ms.filter(|&ttl_ms| ttl_ms > 0 && reach_ms.is_none()),
            reached_ms: Vec::new(),
            cursor: 0,
        })
    }

    /// The ids of the keys of rows, which [`Keyring::enliven`] has yet to let live.
    pub fn intern(&mut self, columns: &[ArrayRef], rows: usize) -> Result<Vec<u32>> {
        let mut ids = Vec::with_capacity(rows);
        self.table.intern_rows(columns, None, rows, &mut ids)?;
        let free = OverKey { waiting: 0, is_live: false, newest: NEVER };
        self.keys.resize(self.table.id_limit().max(self.keys.len()), free);
        Ok(ids)
    }

    /// These keys live from now on.
    pub fn enliven(&mut self, ids: &[u32]) {
        ids.iter().for_each(|&id| self.keys[id as usize].is_live = true);
    }

    /// True if it lives.
    pub fn is_live(&self, id: u32) -> bool {
        self.keys.get(id as usize).is_some_and(|key| key.is_live)
    }

    /// Those of these keys of which something changes because rows reach them.
    ///
    /// Where keys have a time to live, each row changes `reached_ms` and so the key's row of the
    /// table of state. Otherwise only keys that are new here do.
    pub fn changed_by_reach(&self, ids: &[u32]) -> Vec<u32> {
        let is_changed = |&id: &u32| self.ttl_ms.is_some() || !self.is_live(id);
        ids.iter().copied().filter(is_changed).collect()
    }

    /// How long a column of state must be.
    pub fn limit(&self) -> usize {
        self.keys.len()
    }

    /// The time of the newest row of a key that has been fired, or [`NEVER`].
    pub fn newest(&self, id: u32) -> i64 {
        self.keys[id as usize].newest
    }

    /// True if time has come so far that the key is forgotten.
    pub fn is_beyond_reach(&self, id: u32, time: i64) -> bool {
        let newest = self.newest(id);
        newest != NEVER && self.reach_ms.is_some_and(|reach| newest.saturating_add(reach) < time)
    }

    /// A row of a key waits.
    #[inline]
    pub fn wait(&mut self, id: u32) {
        self.keys[id as usize].waiting += 1;
    }

    /// Rows that wait no more, if they did, are fired at these times.
    pub fn fire(&mut self, ids: &[u32], times: &[i64], waited: bool) {
        for (&id, &time) in ids.iter().zip(times) {
            let key = &mut self.keys[id as usize];
            key.newest = time;
            key.waiting -= u32::from(waited);
        }
        if let (Some(_), Some(&newest)) = (self.reach_ms, times.last()) {
            self.fired.push_back((newest, ids.to_vec()));
        }
    }

    /// The key is as if it had had no row.
    pub fn forget(&mut self, id: u32) {
        self.keys[id as usize].newest = NEVER;
    }

    /// Keys that are forgotten at this time.
    pub fn pop_beyond_reach(&mut self, time: i64) -> Vec<u32> {
        let mut beyond = Vec::new();
        let Some(reach) = self.reach_ms else { return beyond };
        while let Some((_, ids)) =
            self.fired.pop_front_if(|(newest, _)| newest.saturating_add(reach) < time)
        {
            let is_over = |&id: &u32| {
                let key = self.keys[id as usize];
                key.is_live && key.waiting == 0 && self.is_beyond_reach(id, time)
            };
            beyond.extend(ids.into_iter().filter(is_over));
        }
        beyond.sort_unstable();
        beyond.dedup();
        beyond
    }

    /// The time from which on a key may be forgotten.
    pub fn forgets_at(&self) -> Option<i64> {
        let (newest, _) = self.fired.front()?;
        self.reach_ms.map(|reach| newest.saturating_add(reach).saturating_add(1))
    }

    /// Rows reach these keys now; those of them that were too old by then.
    pub fn reach(&mut self, ids: &[u32], now_ms: i64) -> Vec<u32> {
        let mut over = Vec::new();
        let Some(ttl_ms) = self.ttl_ms else { return over };
        self.reached_ms.resize(self.keys.len(), now_ms);
        for &id in ids {
            let reached_ms = std::mem::replace(&mut self.reached_ms[id as usize], now_ms);
            let key = self.keys[id as usize];
            let is_used = key.waiting == 0 && key.newest != NEVER;
            if is_used && now_ms.saturating_sub(reached_ms) >= ttl_ms {
                over.push(id);
                self.forget(id);
            }
        }
        over
    }

    /// Looks at some more keys; those of them that no row has reached for too long.
    pub fn sweep(&mut self, rows: usize, now_ms: i64) -> Vec<u32> {
        let mut over = Vec::new();
        let Some(ttl_ms) = self.ttl_ms else { return over };
        for _ in 0..(SWEPT_MIN + rows).min(self.reached_ms.len()) {
            self.cursor = (self.cursor + 1) % self.reached_ms.len();
            let key = self.keys[self.cursor];
            let is_over = now_ms.saturating_sub(self.reached_ms[self.cursor]) >= ttl_ms;
            if key.is_live && key.waiting == 0 && is_over {
                over.push(self.cursor as u32);
            }
        }
        over
    }

    /// Leaves those of these keys that were only looked at, each once.
    pub fn retain_unused(&self, ids: &mut Vec<u32>) {
        retain_empty(ids, |id| {
            let key = self.keys[id as usize];
            key.is_live && key.waiting == 0 && key.newest == NEVER
        });
    }

    /// Forgets keys and gives their ids back. Captures learn of it.
    pub fn release(&mut self, ids: &[u32], tracker: &mut Option<KeyTracker>) -> Result<()> {
        for &id in ids {
            self.forget(id);
            self.keys[id as usize].is_live = false;
        }
        release(tracker, &mut self.table, ids)
    }

    /// The keys that live.
    fn live(&self) -> Vec<u32> {
        (0..self.keys.len() as u32).filter(|&id| self.keys[id as usize].is_live).collect()
    }

    /// What is known of these keys as columns of a table of state. Rows that wait are captured
    /// elsewhere, and the sequence in which keys are forgotten follows.
    pub fn capture(&self, ids: &[u32]) -> Vec<(String, ArrayRef)> {
        let newest = |&id: &u32| Some(self.newest(id)).filter(|&newest| newest != NEVER);
        let newest: Int64Array = ids.iter().map(newest).collect();
        let mut columns: Vec<(String, ArrayRef)> = vec![(NEWEST_MS.to_owned(), Arc::new(newest))];
        if self.ttl_ms.is_some() {
            let reached_ms = |&id: &u32| self.reached_ms.get(id as usize).copied();
            let reached_ms = ids.iter().map(|id| reached_ms(id).unwrap_or(i64::MIN));
            columns
                .push((REACHED_MS.to_owned(), Arc::new(Int64Array::from_iter_values(reached_ms))));
        }
        columns
    }

    /// Restores keys that [`Keyring::capture`] wrote; returns their ids.
    pub fn restore(&mut self, rows: &RecordBatch, key_columns: &KeyColumns) -> Result<Vec<u32>> {
        let known = self.keys.iter().filter(|key| key.is_live).count();
        let ids = self.intern(&key_columns.columns(rows)?, rows.num_rows())?;
        self.enliven(&ids);
        if self.keys.iter().filter(|key| key.is_live).count() != known + ids.len() {
            return Err(does_not_fit("a key is there twice".to_owned()));
        }
        let newest = typed::<Int64Type>(rows, NEWEST_MS)?;
        for (&id, newest) in ids.iter().zip(newest) {
            self.keys[id as usize].newest = newest.unwrap_or(NEVER);
        }
        if self.ttl_ms.is_some() {
            self.reached_ms.resize(self.keys.len(), i64::MIN);
            for (&id, &reached_ms) in ids.iter().zip(numbers_of::<Int64Type>(rows, REACHED_MS)?) {
                self.reached_ms[id as usize] = reached_ms;
            }
        }
        Ok(ids)
    }

    /// All keys have been restored: the sequence in which they are forgotten is that of their
    /// newest rows. The time of the newest of all.
    pub fn restored(&mut self) -> i64 {
        let fired = |&id: &u32| (self.newest(id), id);
        let mut fired: Vec<(i64, u32)> = self.live().iter().map(fired).collect();
        fired.retain(|&(newest, _)| newest != NEVER);
        fired.sort_unstable();
        if self.reach_ms.is_some() {
            let at_once = |keys: &[(i64, u32)]| (keys[0].0, keys.iter().map(|key| key.1).collect());
            self.fired = fired.chunk_by(|a, b| a.0 == b.0).map(at_once).collect();
        }
        fired.last().map_or(NEVER, |&(newest, _)| newest)
    }

    pub fn bytes(&self) -> usize {
        let fired: usize = self.fired.iter().map(|(_, ids)| 32 + ids.capacity() * 4).sum();
        self.table.bytes()
            + self.keys.capacity() * size_of::<OverKey>()
            + self.reached_ms.capacity() * 8
            + fired
    }
}
