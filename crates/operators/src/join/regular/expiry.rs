//! State that is kept for a limited time (`table.exec.state.ttl`), by the wall clock, as in Flink:
//! a row goes when it has not been written for so long. That emits nothing.
//!
//! A queue with an entry for each time that a row is written; only the last one of a row counts,
//! and the queue is rid of others when they are the most.

use std::collections::VecDeque;

use crate::gradual::Pages;

/// The clock of the piece in hand, and when each row of one side was last written.
pub(super) struct RowExpiry {
    kept_ms: i64,
    now_ms: i64,
    rows: Pages<Written>,
    queue: VecDeque<ExpiryEntry>,
    live: usize,
}

#[derive(Clone, Copy, Default)]
struct Written {
    at_ms: i64,
    key: u32,
    /// Counts what was done to rows of this number: only the entry of the last write counts.
    generation: u32,
}

struct ExpiryEntry {
    at_ms: i64,
    row: u32,
    generation: u32,
}

/// Fewer entries than this are not worth sorting out.
const QUEUE_MIN: usize = 1024;

impl RowExpiry {
    pub fn new(kept_ms: i64) -> Self {
        RowExpiry {
            kept_ms,
            now_ms: i64::MIN,
            rows: Pages::default(),
            queue: VecDeque::new(),
            live: 0,
        }
    }

    /// The time, which does not go back here.
    pub fn set_now(&mut self, now_ms: i64) {
        self.now_ms = self.now_ms.max(now_ms);
    }

    pub fn add(&mut self, row: u32, key: u32) {
        let at = row as usize;
        self.rows.grow(at + 1, Written::default());
        let generation = self.rows[at].generation.wrapping_add(1);
        self.rows[at] = Written { at_ms: self.now_ms, key, generation };
        self.queue.push_back(ExpiryEntry { at_ms: self.now_ms, row, generation });
        self.live += 1;
    }

    /// The row was written again.
    pub fn touch(&mut self, row: u32) {
        let now_ms = self.now_ms;
        let written = &mut self.rows[row as usize];
        if written.at_ms < now_ms {
            written.at_ms = now_ms;
            written.generation = written.generation.wrapping_add(1);
            self.queue.push_back(ExpiryEntry {
                at_ms: now_ms,
                row,
                generation: written.generation,
            });
            self.sort_out();
        }
    }

    /// When a row was last written.
    pub fn written_ms(&self, row: u32) -> i64 {
        self.rows[row as usize].at_ms
    }

    /// The row that was added last was written at this time. [`RowExpiry::put_in_order`] must
    /// follow.
    pub fn set_written(&mut self, row: u32, at_ms: i64) {
        self.now_ms = self.now_ms.max(at_ms);
        self.rows[row as usize].at_ms = at_ms;
        if let Some(entry) = self.queue.back_mut().filter(|entry| entry.row == row) {
            entry.at_ms = at_ms;
        }
    }

    /// Brings the queue into the order of time after rows of any times were added.
    pub fn put_in_order(&mut self) {
        self.queue.make_contiguous().sort_by_key(|entry| entry.at_ms);
    }

    pub fn forget(&mut self, row: u32) {
        let written = &mut self.rows[row as usize];
        written.generation = written.generation.wrapping_add(1);
        self.live -= 1;
        self.sort_out();
    }

    fn sort_out(&mut self) {
        if self.queue.len() > QUEUE_MIN && self.queue.len() > 2 * self.live {
            let rows = &self.rows;
            self.queue.retain(|entry| rows[entry.row as usize].generation == entry.generation);
        }
    }

    /// The next row whose time is over, and its key.
    pub fn next_expired(&mut self) -> Option<(u32, u32)> {
        while let Some(entry) = self.queue.front() {
            if entry.at_ms.saturating_add(self.kept_ms) > self.now_ms {
                return None;
            }
            let ExpiryEntry { row, generation, .. } = self.queue.pop_front()?;
            let written = self.rows[row as usize];
            if written.generation == generation {
                return Some((row, written.key));
            }
        }
        None
    }

    pub fn bytes(&self) -> usize {
        self.rows.bytes() + self.queue.capacity() * size_of::<ExpiryEntry>()
    }
}
