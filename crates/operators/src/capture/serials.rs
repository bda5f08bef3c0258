//! Rows that never change: each has a serial, and serials go up in the order in which rows came.
//!
//! An incremental capture writes the rows from the first serial that the last capture does not
//! have. Rows of a table that expires need no names when they go; a row that came when its time was
//! over leaves earlier than its table says, so the next capture is full ([`ExpiringSerials`]).
//!
//! ```text
//! capture 1 (full)          serials 0..5       next = 5
//! rows come: 5, 6, 7        rows expire: 0, 1
//! capture 2 (incremental)   serials 5..8       next = 8    0 and 1 are dropped by `kept_from`
//! ```

use thalweg_core::Extent;

/// Which rows the last capture has.
pub(crate) struct SerialTracker<S = u64> {
    /// The first serial that it does not have; `None` if the next capture is full.
    next: Option<S>,
}

impl<S> Default for SerialTracker<S> {
    fn default() -> Self {
        SerialTracker { next: None }
    }
}

impl<S: Copy> SerialTracker<S> {
    /// Begins a capture; rows that come from now on have serials from `next` on. Whether it is
    /// full, and from which serial on it writes rows if it is not.
    pub fn begin(&mut self, extent: Extent, next: S) -> (Extent, Option<S>) {
        let since = self.next.replace(next).filter(|_| extent == Extent::Incremental);
        (if since.is_some() { Extent::Incremental } else { Extent::Full }, since)
    }

    /// The first serial that the last capture does not have; `None` if the next one is full.
    pub fn captured(&self) -> Option<S> {
        self.next
    }

    /// The next capture is full.
    pub fn stop(&mut self) {
        self.next = None;
    }
}

/// The same for rows that expire with time.
pub(crate) struct ExpiringSerials<S = u64> {
    rows: SerialTracker<S>,
    /// All rows of lower times have left, but for those that came later.
    kept_from: i64,
}

impl<S> Default for ExpiringSerials<S> {
    fn default() -> Self {
        ExpiringSerials { rows: SerialTracker::default(), kept_from: i64::MIN }
    }
}

impl<S: Copy> ExpiringSerials<S> {
    /// As [`SerialTracker::begin`].
    pub fn begin(&mut self, extent: Extent, next: S) -> (Extent, Option<S>) {
        self.rows.begin(extent, next)
    }

    /// All rows of lower times have left, but for those that came later.
    pub fn kept_from(&self) -> i64 {
        self.kept_from
    }

    /// Rows of this time leave. If they came when it was over, the last capture says that they
    /// expire later.
    pub fn leave(&mut self, time: i64) {
        if time < self.kept_from {
            self.rows.stop();
        }
    }

    /// All rows of times below this one have left.
    pub fn pass(&mut self, kept_from: i64) {
        self.kept_from = self.kept_from.max(kept_from);
        if self.kept_from == i64::MAX {
            // Nothing is later, so nothing would expire.
            self.rows.stop();
        }
    }
}
