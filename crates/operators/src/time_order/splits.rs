//! How far the splits of a source have come in time, and in which order they are.

use std::sync::Arc;

use thalweg_core::connector::SplitId;
use thalweg_core::{Error, Result};

use super::position::SplitPosition;

/// The splits of a source. One without a name stands for a source that opens none.
#[derive(Default)]
pub(super) struct Splits {
    list: Vec<SplitOrder>,
    /// Those of the position that this run continues from, until they are opened.
    pub(super) restored: Vec<SplitPosition>,
}

/// A split.
pub(super) struct SplitOrder {
    pub(super) id: SplitId,
    pub(super) name: Arc<str>,
    /// Its place among all in the order of their names: rows of one time leave by it.
    pub(super) rank: u32,
    /// The newest time.
    pub(super) newest_ms: i64,
    /// While rows come again, the newest time as far as others may go by it: those behind it wait.
    again_ms: i64,
    /// Rows that have come in this run.
    pub(super) arrived: u64,
    /// Rows that had come before the position that this run continues from: they come again.
    pub(super) again: u64,
    pub(super) has_ended: bool,
    /// It is to bring nothing more for now.
    pub(super) is_paused: bool,
}

impl SplitOrder {
    fn new(id: SplitId, name: Arc<str>, known: &SplitPosition, again_ms: i64) -> Self {
        SplitOrder {
            id,
            name,
            rank: 0,
            newest_ms: known.newest_ms,
            again_ms,
            arrived: 0,
            again: known.rows,
            has_ended: false,
            is_paused: false,
        }
    }

    /// The newest time that it has shown.
    pub(super) fn shown_ms(&self) -> i64 {
        let is_again = self.arrived < self.again;
        if is_again { self.newest_ms.min(self.again_ms) } else { self.newest_ms }
    }
}

impl Splits {
    /// The split of this number; that of a source without splits is made at once, and continues
    /// from `only`.
    pub(super) fn at(&mut self, id: SplitId, only: &SplitPosition) -> Result<&mut SplitOrder> {
        if self.list.is_empty() && id == SplitId::ONLY {
            self.list.push(SplitOrder::new(id, "".into(), only, i64::MAX));
        }
        self.list.iter_mut().find(|split| split.id == id && !split.has_ended).ok_or_else(|| {
            Error::internal(format!("rows of split {}, which is not open, have come", id.0))
        })
    }

    pub(super) fn get(&self, id: SplitId) -> Option<&SplitOrder> {
        self.list.iter().find(|split| split.id == id)
    }

    /// A split is there. One that comes while others are under way, or whose rows come again, has
    /// none to give before this time.
    pub(super) fn open(&mut self, id: SplitId, name: &Arc<str>, newest_ms: i64) {
        self.list.retain(|split| !split.name.is_empty() && split.id != id);
        let same = self.restored.iter().position(|known| known.name == **name);
        let known = same.map(|at| self.restored.swap_remove(at));
        let begins = || SplitPosition { newest_ms, ..SplitPosition::default() };
        let known = known.unwrap_or_else(begins);
        self.list.push(SplitOrder::new(id, Arc::clone(name), &known, newest_ms));
        self.list.sort_by(|a, b| a.name.cmp(&b.name));
        (0..).zip(&mut self.list).for_each(|(rank, split)| split.rank = rank);
    }

    pub(super) fn all(&self) -> &[SplitOrder] {
        &self.list
    }

    pub(super) fn all_mut(&mut self) -> &mut [SplitOrder] {
        &mut self.list
    }

    /// True if there are splits with names, whose rows are merged.
    pub(super) fn are_merged(&self) -> bool {
        self.list.iter().any(|split| !split.name.is_empty())
    }

    /// The split that is furthest behind, among those that bring more.
    pub(super) fn last(&self) -> Option<&SplitOrder> {
        let open = self.list.iter().filter(|split| !split.has_ended);
        open.min_by_key(|split| (split.shown_ms(), split.rank))
    }
}
