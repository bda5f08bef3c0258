//! Parts of hopping windows: what a slice had when it entered.
//!
//! A part never changes. It is captured once, by the first capture that finds it, and expires with
//! its last window; so what a capture costs follows the rate of rows and not the size of windows.
//! Where another takes its place before that (rows came for a slice that had entered), it is named
//! as removed.
//!
//! **Invariants.** Numbers go up in the order in which parts are added up, and none is used twice.
//! Parts with numbers below that of the last capture were captured by it or by one before, or are
//! not there.
//!
//! For a window of one hour that slides each minute, an incremental capture writes the parts of the
//! minutes since the last capture, not the hour. This is why parts are immutable and shared by
//! `Arc` rather than kept in the running state alone.

use std::sync::Arc;

use thalweg_core::Extent;

use super::calls::Partial;
use crate::capture::serials::SerialTracker;

/// If more parts have gone than this, the next capture is full.
const GONE_MAX: usize = 64 * 1024;

/// What a slice, or several with the same last window, had when it entered.
#[derive(Clone)]
pub(super) struct WindowPart {
    pub(super) number: u64,
    /// The end of the last window that it is part of.
    pub(super) leave: i64,
    pub(super) states: Arc<Partial>,
}

/// What names a part in tables of state: the end of its last window, and its number.
pub(super) type PartName = (i64, u64);

/// What came and went since the capture before.
pub(super) struct PartsSince {
    /// How much is captured.
    pub(super) extent: Extent,
    /// Parts from this number on are captured.
    pub(super) first: u64,
    /// Parts whose place others have taken.
    pub(super) gone: Vec<PartName>,
    /// Parts whose last window ends before have left.
    pub(super) kept_from: i64,
}

/// Numbers parts, and knows which of them have been captured.
#[derive(Default)]
pub(super) struct WindowParts {
    next: u64,
    /// Which parts the last capture has.
    numbers: SerialTracker,
    gone: Vec<PartName>,
}

impl WindowParts {
    /// A new part.
    pub fn part(&mut self, leave: i64, states: Arc<Partial>) -> WindowPart {
        let number = self.next;
        self.next += 1;
        WindowPart { number, leave, states }
    }

    /// Another takes the place of a part.
    pub fn replace(&mut self, part: &WindowPart) {
        // A part that no capture has needs no name: the next capture will not find it.
        if self.numbers.captured().is_none_or(|captured| part.number >= captured) {
            return;
        }
        self.gone.push((part.leave, part.number));
        if self.gone.len() > GONE_MAX {
            self.numbers.stop();
            self.gone = Vec::new();
        }
    }

    /// Begins a capture of parts that are there from this end on.
    pub fn begin_capture(&mut self, extent: Extent, kept_from: i64) -> PartsSince {
        let gone = std::mem::take(&mut self.gone);
        let (extent, first) = self.numbers.begin(extent, self.next);
        match first {
            Some(first) => PartsSince { extent, first, gone, kept_from },
            None => PartsSince { extent, first: 0, gone: Vec::new(), kept_from },
        }
    }
}
