//! Parts of bundles on their way out of a container, in order.
//!
//! Several workers apply bundles of a stage that makes many rows of one, and each makes its bundle
//! in parts. Downstream a lane's bundles are counted, so parts get their numbers where they leave:
//! [`Leaving`] keeps those that come early and lets the rest through in the order of the bundles,
//! then of their parts.

use std::collections::BTreeMap;

use thalweg_core::Bundle;

/// What has been made of the bundles of a container and has not left it.
#[derive(Default)]
pub(crate) struct Leaving {
    /// The bundle and the part that leave next.
    next: (u64, u64),
    early: BTreeMap<(u64, u64), Left>,
}

/// A part, and what its bundle took if it is the last one.
pub(crate) struct Left {
    pub(crate) bundle: Bundle,
    pub(crate) consumes: Option<usize>,
}

impl Leaving {
    /// A part of a bundle is made; `place` is the ordinal of the bundle and the part's number.
    pub(crate) fn put(&mut self, place: (u64, u64), part: Left) {
        let before = self.early.insert(place, part);
        assert!(before.is_none(), "two parts with the same place");
    }

    /// The part that leaves next, if it is made.
    pub(crate) fn pop(&mut self) -> Option<Left> {
        let left = self.early.remove(&self.next)?;
        self.next = match left.consumes {
            Some(_) => (self.next.0 + 1, 0),
            None => (self.next.0, self.next.1 + 1),
        };
        Some(left)
    }

    /// True if this part is the one that leaves next.
    pub(crate) fn is_next(&self, place: (u64, u64)) -> bool {
        self.next == place
    }
}
