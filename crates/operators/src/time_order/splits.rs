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
    /// Rows that have come in this run.
    pub(super) arrived: u64,
    /// Rows that had come before the position that this run continues from: they come again.
    pub(super) again: u64,
    pub(super) has_ended: bool,
    /// It is to bring nothing more for now.
    pub(super) is_paused: bool,
}

impl SplitOrder {
    fn new(id: SplitId, name: Arc<str>, known: &SplitPosition) -> Self {
        SplitOrder {
            id,
            name,
            rank: 0,
            newest_ms: known.newest_ms,
            arrived: 0,
            again: known.rows,
            has_ended: false,
            is_paused: false,
        }
    }
}

impl Splits {
    /// The split of this number; that of a source without splits is made at once, and continues
    /// from `only`.
    pub(super) fn at(&mut self, id: SplitId, only: &SplitPosition) -> Result<&mut SplitOrder> {
        if self.list.is_empty() && id == SplitId::ONLY {
            self.list.push(SplitOrder::new(id, "".into(), only));
        }
        self.list.iter_mut().find(|split| split.id == id && !split.has_ended).ok_or_else(|| {
            Error::internal(format!("rows of split {}, which is not open, have come", id.0))
        })
    }

    pub(super) fn get(&self, id: SplitId) -> Option<&SplitOrder> {
        self.list.iter().find(|split| split.id == id)
    }

    /// A split is there. One that comes while others are under way has no rows before this time.
    pub(super) fn open(&mut self, id: SplitId, name: &Arc<str>, newest_ms: i64) {
        self.list.retain(|split| !split.name.is_empty() && split.id != id);
        let same = self.restored.iter().position(|known| known.name == **name);
        let known = same.map(|at| self.restored.swap_remove(at));
        let begins = || SplitPosition { newest_ms, ..SplitPosition::default() };
        let known = known.unwrap_or_else(begins);
        self.list.push(SplitOrder::new(id, Arc::clone(name), &known));
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
        open.min_by_key(|split| (split.newest_ms, split.rank))
    }
}
