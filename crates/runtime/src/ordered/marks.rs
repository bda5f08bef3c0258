//! Watermarks between the rows of an element.
//!
//! Where what rows do depends on the watermarks before them (timers), every watermark that crosses
//! a time that matters stands behind the row that caused it. If each of them ended an element,
//! timers that look at the time each minute would make elements of a few rows, and each partition
//! would get a piece and a barrier for each of these. So an element takes several watermarks along,
//! as [`Mark`]s between its rows, and a partition gets its rows and the marks in one item.
//!
//! # Invariants
//! - Rows of an element with marks carry places (`Stamps::row_places`), ascending over all of its
//!   bundles. A mark stands behind the rows at its place and in front of the ones at later places.
//!   Places and watermarks of marks ascend strictly.
//! - Stateless stages keep the place of each row, so marks pass them unseen. What an operator makes
//!   of a row has the place of that row, and what it makes at a mark the place of the mark: behind
//!   the rows there.
//! - What leaves of an element leaves when all of it is made. So an element has fewer marks where
//!   much is made at each ([`ElementRows`]).
//! - A partition takes its rows and the marks in the sequence in which it would take them as
//!   elements of their own. So the sequence that leaves does not depend on which marks share an
//!   element.
//!
//! # Where edges meet
//! Rows that come by several edges are combined by the row of the source's bundle that they come
//! from. Each has a place of its own there, and between each and the next is one for a mark. At
//! each mark the joint watermark of the edges is worked out again.
//!
//! # Where there are none
//! Where edges meet by time, and where an operator takes a watermark in several phases: then all
//! partitions have to be at the same one. In such a job each watermark ends its element
//! ([`OrderedFlow::groups_watermarks`](super::OrderedFlow)).

use std::ops::Range;

use thalweg_core::{Bundle, Watermark};
use thalweg_ordering::sync::{Arc, AtomicUsize, Ordering};

/// An element ends with the first watermark behind this many rows at most.
const ELEMENT_ROWS_MAX: usize = 4096;

/// The same as long as nothing is known of what becomes of elements.
const ELEMENT_ROWS_FIRST: usize = 256;

/// What an element with marks should lead to at most: all of it is kept until the last is made.
const OUTCOME_BYTES_MAX: usize = 1 << 20;

/// The place of the watermark behind all rows of an element.
pub(super) const BEHIND_ALL: i64 = i64::MAX;

/// The number of a call in which a partition takes rows between marks.
pub(crate) const ROWS_CALL: u32 = 0;

/// The number of the call in which a partition takes a mark.
pub(crate) fn mark_call(mark: u32) -> u32 {
    mark + 1
}

/// A watermark between the rows of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Rows at this place and before it stand in front of the mark.
    pub(crate) place: i64,
    /// The watermark.
    pub(crate) watermark: Watermark,
}

/// The watermarks between the rows of an element; never an empty list.
pub(crate) type Marks = Option<Arc<[Mark]>>;

/// A watermark that an operator takes between rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TakenMark {
    pub(crate) mark: Mark,
    /// What the operator passes on of it.
    pub(crate) pass: Option<Watermark>,
}

impl TakenMark {
    /// True if it stands behind all rows.
    pub(super) fn is_behind_all(&self) -> bool {
        self.mark.place == BEHIND_ALL
    }
}

/// Behind how many rows elements end: fewer where much is made at each watermark. Where they end
/// does not show in the results, so workers may change it at any time.
pub(super) struct ElementRows(AtomicUsize);

impl ElementRows {
    pub(super) fn new() -> Self {
        ElementRows(AtomicUsize::new(ELEMENT_ROWS_FIRST))
    }

    pub(super) fn get(&self) -> usize {
        // Relaxed: a guess, which orders nothing.
        self.0.load(Ordering::Relaxed)
    }

    /// An element with marks has led to so much.
    pub(super) fn learn(&self, bytes: usize) {
        let rows = self.get();
        if bytes > OUTCOME_BYTES_MAX {
            self.0.store((rows / 2).max(1), Ordering::Relaxed);
        } else if bytes < OUTCOME_BYTES_MAX / 4 && rows < ELEMENT_ROWS_MAX {
            self.0.store(rows * 2, Ordering::Relaxed);
        }
    }
}

/// Some rows of a bundle that become one element, with the watermarks between and behind them.
pub(super) struct RowGroup {
    pub(super) rows: Range<usize>,
    /// Behind which row of the bundle, counted from 1.
    between: Vec<(usize, Watermark)>,
    pub(super) watermark: Option<Watermark>,
}

/// The elements of a bundle of `rows` rows, where watermarks stand behind these ones. An element
/// with several watermarks has `element_rows` or few more; with 0 each watermark ends one.
pub(super) fn row_groups(
    cuts: Vec<(usize, Watermark)>,
    rows: usize,
    element_rows: usize,
) -> Vec<RowGroup> {
    let (mut groups, mut between, mut from) = (Vec::new(), Vec::new(), 0);
    for (to, watermark) in cuts {
        if to - from < element_rows && to < rows {
            between.push((to, watermark));
            continue;
        }
        let between = std::mem::take(&mut between);
        groups.push(RowGroup { rows: from..to, between, watermark: Some(watermark) });
        from = to;
    }
    if from < rows || from == 0 {
        groups.push(RowGroup { rows: from..rows, between, watermark: None });
    }
    groups
}

impl RowGroup {
    /// Its marks, for its rows, which get places if there are any. Rows between two marks have one
    /// place, unless they are `apart`: then each has one of its own.
    pub(super) fn mark(&self, part: &mut Bundle, apart: bool) -> Marks {
        if self.between.is_empty() {
            return None;
        }
        let Range { start, end } = self.rows;
        let rows = (end - start) as i64;
        let behind = |&(to, watermark): &(usize, Watermark)| ((to - start) as i64, watermark);
        if apart {
            // Behind row n is place 2n + 1, which is 2 * (n + 1) - 1.
            let mark = |(rows, watermark)| Mark { place: 2 * rows - 1, watermark };
            part.stamps.row_places = Some((0..rows).map(|row| 2 * row).collect());
            return Some(self.between.iter().map(behind).map(mark).collect());
        }
        let (mut places, mut marks) = (Vec::with_capacity(end - start), Vec::new());
        for (place, (rows, watermark)) in (0..).zip(self.between.iter().map(behind)) {
            places.resize(rows as usize, place);
            marks.push(Mark { place, watermark });
        }
        places.resize(end - start, marks.len() as i64);
        part.stamps.row_places = Some(places.into());
        Some(marks.into())
    }
}

/// The marks in front of the rows at a place, and those behind them.
pub(super) fn split_at(marks: &Marks, place: i64) -> (Marks, Marks) {
    let Some(marks) = marks else { return (None, None) };
    let (before, behind) = marks.split_at(marks.partition_point(|mark| mark.place < place));
    let some = |marks: &[Mark]| (!marks.is_empty()).then(|| marks.into());
    (some(before), some(behind))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ordered::rows::slice;
    use arrow_array::{ArrayRef, Int64Array, RecordBatch};
    use thalweg_core::Stamps;

    fn bundle(rows: usize) -> Bundle {
        let column: ArrayRef = std::sync::Arc::new(Int64Array::from_iter_values(0..rows as i64));
        let batch = RecordBatch::try_from_iter([("n", column)]).expect("one column");
        Bundle::new(batch, Stamps::first())
    }

    fn groups(cuts: &[usize], rows: usize) -> Vec<(usize, Vec<i64>, Vec<Mark>, bool)> {
        let cuts = cuts.iter().map(|&row| (row, Watermark(row as i64))).collect();
        let of = |group: &RowGroup| {
            let mut part = slice(&bundle(rows), group.rows.start, group.rows.len());
            let marks = group.mark(&mut part, false);
            let places = part.stamps.row_places.as_ref().map_or(Vec::new(), |of| of.to_vec());
            let marks = marks.map_or(Vec::new(), |marks| marks.to_vec());
            (part.num_rows(), places, marks, group.watermark.is_some())
        };
        row_groups(cuts, rows, ELEMENT_ROWS_MAX).iter().map(of).collect()
    }

    fn mark(place: i64, watermark: i64) -> Mark {
        Mark { place, watermark: Watermark(watermark) }
    }

    #[test]
    fn watermarks_share_an_element_until_it_has_enough_rows() {
        assert_eq!(groups(&[], 3), [(3, vec![], vec![], false)]);
        assert_eq!(groups(&[], 0), [(0, vec![], vec![], false)]);
        // The one behind the last row is the watermark of the element.
        assert_eq!(groups(&[3], 3), [(3, vec![], vec![], true)]);
        let expected = [(4, vec![0, 1, 1, 2], vec![mark(0, 1), mark(1, 3)], true)];
        assert_eq!(groups(&[1, 3, 4], 4), expected);
        let expected = [(4, vec![0, 1, 1, 1], vec![mark(0, 1)], false)];
        assert_eq!(groups(&[1], 4), expected);
        let (end, rows) = (ELEMENT_ROWS_MAX + 5, ELEMENT_ROWS_MAX + 7);
        let long = groups(&[10, end, end + 1], rows);
        let shape = |(rows, _, marks, ends): &(usize, Vec<i64>, Vec<Mark>, bool)| {
            (*rows, marks.len(), *ends)
        };
        let shapes: Vec<_> = long.iter().map(shape).collect();
        assert_eq!(shapes, [(end, 1, true), (2, 1, false)]);
    }

    #[test]
    fn where_edges_meet_rows_and_marks_have_places_of_their_own() {
        let cuts = vec![(1, Watermark(10)), (3, Watermark(30))];
        let group = row_groups(cuts, 4, ELEMENT_ROWS_MAX).swap_remove(0);
        let mut part = bundle(4);
        let marks = group.mark(&mut part, true).expect("there are some");
        assert_eq!(marks[..], [mark(1, 10), mark(5, 30)]);
        let places = part.stamps.row_places.expect("rows have places");
        assert_eq!(places.to_vec(), [0, 2, 4, 6]);
    }

    #[test]
    fn elements_are_shorter_where_much_is_made_of_them() {
        let rows = ElementRows::new();
        rows.learn(2 * OUTCOME_BYTES_MAX);
        assert_eq!(rows.get(), ELEMENT_ROWS_FIRST / 2);
        rows.learn(OUTCOME_BYTES_MAX / 2);
        assert_eq!(rows.get(), ELEMENT_ROWS_FIRST / 2);
        (0..20).for_each(|_| rows.learn(2 * OUTCOME_BYTES_MAX));
        assert_eq!(rows.get(), 1, "then each watermark ends an element");
        (0..20).for_each(|_| rows.learn(0));
        assert_eq!(rows.get(), ELEMENT_ROWS_MAX);
    }

    #[test]
    fn marks_are_split_in_front_of_a_row() {
        let marks: Marks = Some([mark(0, 1), mark(1, 3), mark(4, 9)].into());
        let split = |place| {
            let (before, behind) = split_at(&marks, place);
            (before.map_or(0, |marks| marks.len()), behind.map_or(0, |marks| marks.len()))
        };
        assert_eq!(split(0), (0, 3));
        assert_eq!(split(1), (1, 2));
        assert_eq!(split(2), (2, 1));
        assert_eq!(split(5), (3, 0));
        assert_eq!(split_at(&None, 0), (None, None));
    }
}
