//! When keys were last reached, in processing time, and which of them are too old.
//!
//! A key is found to be too old when the next row reaches it, or by a sweep that looks at a bounded
//! number of keys per call. Times of numbers without rows mean nothing.

/// How many keys a sweep looks at besides as many as rows came.
const SWEPT_MIN: usize = 256;

pub(super) struct Expiry {
    ttl_ms: i64,
    reached_ms: Vec<i64>,
    /// Where the next sweep begins.
    cursor: usize,
}

impl Expiry {
    pub(super) fn new(ttl_ms: i64) -> Self {
        Expiry { ttl_ms, reached_ms: Vec::new(), cursor: 0 }
    }

    fn is_over(&self, id: usize, now_ms: i64) -> bool {
        now_ms.saturating_sub(self.reached_ms[id]) >= self.ttl_ms
    }

    /// Rows reach these keys now; those of them that were too old by then. `counts` has the rows of
    /// each key.
    pub(super) fn reach(&mut self, ids: &[u32], counts: &[i64], now_ms: i64) -> Vec<u32> {
        self.reached_ms.resize(counts.len(), now_ms);
        let mut over = Vec::new();
        for &id in ids {
            if self.is_over(id as usize, now_ms) && counts[id as usize] > 0 {
                over.push(id);
            }
            self.reached_ms[id as usize] = now_ms;
        }
        over
    }

    /// Looks at some more keys; those of them that are too old.
    pub(super) fn sweep(&mut self, rows: usize, counts: &[i64], now_ms: i64) -> Vec<u32> {
        let limit = self.reached_ms.len();
        let mut over = Vec::new();
        for _ in 0..(SWEPT_MIN + rows).min(limit) {
            self.cursor = if self.cursor + 1 < limit { self.cursor + 1 } else { 0 };
            if counts[self.cursor] > 0 && self.is_over(self.cursor, now_ms) {
                over.push(self.cursor as u32);
            }
        }
        over
    }

    pub(super) fn bytes(&self) -> usize {
        self.reached_ms.capacity() * 8
    }
}
