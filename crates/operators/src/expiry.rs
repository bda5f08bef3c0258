//! When the state of keys was last written, in processing time, and which of it is too old: Flink's
//! `table.exec.state.ttl`. What counts as writing is up to the operator.
//!
//! A key is found to be too old when the next row reaches it, or by a sweep that looks at a bounded
//! number of keys per call. Times of numbers without state mean nothing.
//!
//! The sweep goes round over all numbers: with `n` numbers and pieces of `r` rows a key is seen at
//! least every `n / (r + 256)` calls. Until then state that is too old is still there, but no row
//! sees it: whoever reaches a key looks at its time first.

use crate::gradual::Pages;

/// How many keys a sweep looks at besides as many as rows came.
const SWEPT_MIN: usize = 256;

pub(crate) struct Expiry {
    /// How long state is kept; `None` for ever, and then nothing is noted.
    ttl_ms: Option<i64>,
    written_ms: Pages<i64>,
    /// Where the next sweep begins.
    cursor: usize,
}

impl Expiry {
    /// As in Flink, a time of 0 means for ever.
    pub fn new(ttl_ms: Option<i64>) -> Self {
        let ttl_ms = ttl_ms.filter(|&ttl_ms| ttl_ms > 0);
        Expiry { ttl_ms, written_ms: Pages::default(), cursor: 0 }
    }

    /// False if state is kept for ever.
    #[inline]
    pub fn expires(&self) -> bool {
        self.ttl_ms.is_some()
    }

    /// Makes room for this many numbers.
    pub fn grow(&mut self, limit: usize) {
        if self.expires() {
            self.written_ms.grow(limit, i64::MAX);
        }
    }

    /// A number that was never written has the highest possible time, so it is never too old.
    #[inline]
    pub fn is_over(&self, id: u32, now_ms: i64) -> bool {
        let age_ms = |id: u32| now_ms.saturating_sub(self.written_ms[id as usize]);
        self.ttl_ms.is_some_and(|ttl_ms| age_ms(id) >= ttl_ms)
    }

    #[inline]
    pub fn write(&mut self, id: u32, now_ms: i64) {
        if self.expires() {
            self.written_ms[id as usize] = now_ms;
        }
    }

    /// When the state of a key was written last, where it expires.
    pub fn written_ms(&self, id: u32) -> i64 {
        self.written_ms[id as usize]
    }

    /// Rows reach these keys now; those of them whose state was too old by then. `counts` has the
    /// rows of each key.
    pub fn reach(&mut self, ids: &[u32], counts: &Pages<i64>, now_ms: i64) -> Vec<u32> {
        self.grow(counts.len());
        let mut over = Vec::new();
        for &id in ids {
            if counts[id as usize] > 0 && self.is_over(id, now_ms) {
                over.push(id);
            }
            self.write(id, now_ms);
        }
        over
    }

    /// Looks at some more keys; those with state that is too old.
    pub fn sweep(&mut self, rows: usize, now_ms: i64, has_state: impl Fn(u32) -> bool) -> Vec<u32> {
        let limit = self.written_ms.len();
        let mut over = Vec::new();
        for _ in 0..(SWEPT_MIN + rows).min(limit) {
            self.cursor = if self.cursor + 1 < limit { self.cursor + 1 } else { 0 };
            let id = self.cursor as u32;
            if has_state(id) && self.is_over(id, now_ms) {
                over.push(id);
            }
        }
        over
    }

    pub fn bytes(&self) -> usize {
        self.written_ms.bytes()
    }
}
