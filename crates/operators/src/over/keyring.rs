//! The keys of a partition: which are live, and when they are forgotten.
//!
//! A key lives while a row of it waits or anything remembers it. Where frames are stretches of time,
//! a key is forgotten once time is past its newest row by the length of the frame; otherwise after
//! `state_ttl_ms` of processing time without a row, if that is set, and never if it is not.

use std::collections::VecDeque;

use arrow_array::ArrayRef;
use thalweg_core::{DataType, Result};

use crate::keys::KeyTable;

/// How many keys are looked at, besides as many as rows came, for those that are too old.
const SWEPT_MIN: usize = 256;

/// A key has had no row yet, or has been forgotten.
pub(super) const NEVER: i64 = i64::MIN;

#[derive(Clone, Copy)]
struct Key {
    /// Rows that wait.
    waiting: u32,
    is_live: bool,
    /// The time of the newest row that has been fired.
    newest: i64,
}

/// The keys, by dense id.
pub(super) struct Keyring {
    pub(super) table: KeyTable,
    keys: Vec<Key>,
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
    pub(super) fn new(
        types: &[DataType],
        reach_ms: Option<i64>,
        ttl_ms: Option<i64>,
    ) -> Result<Self> {
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

    /// The ids of the keys of rows.
    pub(super) fn intern(&mut self, columns: &[ArrayRef], rows: usize) -> Result<Vec<u32>> {
        let mut ids = Vec::with_capacity(rows);
        self.table.intern_rows(columns, None, rows, &mut ids)?;
        let free = Key { waiting: 0, is_live: false, newest: NEVER };
        self.keys.resize(self.table.id_limit().max(self.keys.len()), free);
        ids.iter().for_each(|&id| self.keys[id as usize].is_live = true);
        Ok(ids)
    }

    /// How long a column of state must be.
    pub(super) fn limit(&self) -> usize {
        self.keys.len()
    }

    /// The time of the newest row of a key that has been fired, or [`NEVER`].
    pub(super) fn newest(&self, id: u32) -> i64 {
        self.keys[id as usize].newest
    }

    /// True if time has come so far that the key is forgotten.
    pub(super) fn is_beyond_reach(&self, id: u32, time: i64) -> bool {
        let newest = self.newest(id);
        newest != NEVER && self.reach_ms.is_some_and(|reach| newest.saturating_add(reach) < time)
    }

    /// A row of a key waits.
    #[inline]
    pub(super) fn wait(&mut self, id: u32) {
        self.keys[id as usize].waiting += 1;
    }

    /// Rows that wait no more, if they did, are fired at these times.
    pub(super) fn fire(&mut self, ids: &[u32], times: &[i64], waited: bool) {
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
    pub(super) fn forget(&mut self, id: u32) {
        self.keys[id as usize].newest = NEVER;
    }

    /// Keys that are forgotten at this time.
    pub(super) fn pop_beyond_reach(&mut self, time: i64) -> Vec<u32> {
        let mut beyond = Vec::new();
        let Some(reach) = self.reach_ms else { return beyond };
        while let Some((_, ids)) =
            self.fired.pop_front_if(|(newest, _)| newest.saturating_add(reach) < time)
        {
            for id in ids {
                let key = self.keys[id as usize];
                if key.is_live && key.waiting == 0 && self.is_beyond_reach(id, time) {
                    self.keys[id as usize].is_live = false;
                    beyond.push(id);
                }
            }
        }
        beyond
    }

    /// The time from which on a key may be forgotten.
    pub(super) fn forgets_at(&self) -> Option<i64> {
        let (newest, _) = self.fired.front()?;
        self.reach_ms.map(|reach| newest.saturating_add(reach).saturating_add(1))
    }

    /// Rows reach these keys now; those of them that were too old by then.
    pub(super) fn reach(&mut self, ids: &[u32], now_ms: i64) -> Vec<u32> {
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
    pub(super) fn sweep(&mut self, rows: usize, now_ms: i64) -> Vec<u32> {
        let mut over = Vec::new();
        let Some(ttl_ms) = self.ttl_ms else { return over };
        for _ in 0..(SWEPT_MIN + rows).min(self.reached_ms.len()) {
            self.cursor = (self.cursor + 1) % self.reached_ms.len();
            let key = &mut self.keys[self.cursor];
            let is_over = now_ms.saturating_sub(self.reached_ms[self.cursor]) >= ttl_ms;
            if key.is_live && key.waiting == 0 && is_over {
                key.is_live = false;
                over.push(self.cursor as u32);
            }
        }
        over
    }

    /// Those of these keys that were only looked at.
    pub(super) fn take_unused(&mut self, ids: &[u32]) -> Vec<u32> {
        let mut unused = Vec::new();
        for &id in ids {
            let key = &mut self.keys[id as usize];
            if key.is_live && key.waiting == 0 && key.newest == NEVER {
                key.is_live = false;
                unused.push(id);
            }
        }
        unused
    }

    /// Gives the ids of forgotten keys back.
    pub(super) fn release(&mut self, ids: &[u32]) {
        for &id in ids {
            self.forget(id);
            self.table.release(id);
        }
    }

    pub(super) fn bytes(&self) -> usize {
        let fired: usize = self.fired.iter().map(|(_, ids)| 32 + ids.capacity() * 4).sum();
        self.table.bytes()
            + self.keys.capacity() * size_of::<Key>()
            + self.reached_ms.capacity() * 8
            + fired
    }
}
