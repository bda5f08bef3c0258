//! How the rows and marks of an element get to the partitions of an operator.
//!
//! As in [`partitions`](super::partitions), elements are posted in order under a short lock. A
//! partition gets one item for each bundle in which it has rows, with the marks between them and
//! behind them up to the next bundle; without rows it gets the marks if it may have something to do
//! at one.

use thalweg_core::{Bundle, Route, Share};
use thalweg_ordering::sync::Arc;

use super::Dispatch;
use super::element::Element;
use super::elements::ElementStage;
use super::gather::Gather;
use super::marks::{BEHIND_ALL, Mark, TakenMark};
use crate::stage::{Item, OperatorRun, RowsItem, RowsOrigin};

impl ElementStage<'_> {
    /// The watermarks of an element with marks that advance the stage, in order.
    pub(super) fn take_marks(&self, dispatch: &mut Dispatch, element: &Element) -> Vec<TakenMark> {
        let Some(between) = &element.marks else { return Vec::new() };
        let operator = self.operator();
        let behind = element.watermark.map(|watermark| Mark { place: BEHIND_ALL, watermark });
        let mut taken = Vec::with_capacity(between.len() + 1);
        for mark in between.iter().copied().chain(behind) {
            if mark.watermark > dispatch.watermark {
                let pass = operator.passes(mark.watermark);
                dispatch.watermark = mark.watermark;
                dispatch.passed = pass.unwrap_or(dispatch.passed);
                taken.push(TakenMark { mark, pass });
            }
        }
        taken
    }

    /// Posts the rows and marks of an element to the partitions: one item for each that has rows of
    /// a bundle, or something to do at a mark behind them.
    pub(super) fn post_marked(
        &self,
        posted: &mut [u64],
        gather: &Arc<Gather>,
        mut routes: impl Iterator<Item = Route>,
    ) {
        let operator = self.operator();
        let mut from = 0;
        for bundle in 0..gather.bundles.len().max(1) {
            let to = match operator.takes_marks() {
                true => gather.marks_in_front_of(bundle + 1),
                false => 0,
            };
            let rows = gather.bundles.get(bundle).map_or(0, Bundle::num_rows);
            self.count_in(rows);
            let route = routes.next().unwrap_or(Route::Any);
            // An operator of one phase whose rows any partition may take has only one.
            let mut shares = (rows > 0).then(|| route.shares(0)).into_iter().flatten().peekable();
            for (partition, posted) in posted.iter_mut().enumerate() {
                let of_cell = shares.next_if(|share| share.partition == partition);
                let last = gather.marks[from..to].last();
                let sleeps = last.is_none_or(|last| {
                    operator.cells[partition].sleeps_through(*posted, last.mark.watermark)
                });
                if of_cell.is_none() && sleeps {
                    continue;
                }
                let (gather, marks) = (Arc::clone(gather), from as u32..to as u32);
                gather.expect(1);
                *posted += 1;
                let of = RowsOrigin::Element { gather, bundle, marks };
                let none = Share { partition, rows: Some(Vec::new()), is_local: false };
                let item = RowsItem::new(of, of_cell.unwrap_or(none), self.own.sources);
                self.post(partition, Item::Rows(item));
            }
            assert!(shares.next().is_none(), "shares come by ascending partition");
            from = to;
        }
    }
}

impl OperatorRun {
    /// False if its partitions have nothing to do at any watermark but the last one, which is no
    /// mark. They get rows without marks then; the rows they make have the places of their causes,
    /// which several partitions must say.
    fn takes_marks(&self) -> bool {
        self.cells.len() == 1 || !self.heeds_only_end
    }
}
