//! Where several edges lead into one stage in contract `event_time`: rows meet by
//! (time, input, position), in the channel between the stages (Viper §3).
//!
//! **The invariant that makes it work:** the rows of a lane come in time order, and the frontier of
//! a lane says that none that comes later is older; so the least row by (time, input) is final as
//! soon as every lane without rows has a frontier behind it.
//!
//! # Readiness and ties
//! A row (t, input i) may pass when every lane j without rows is far enough: frontier later than t
//! for j < i, at or after t for j > i. Written as pairs that is (t, i) < (frontier of j, j) for all
//! j, the same comparison as with the head row of a lane that has some (design.md §6).
//!
//! # Watermarks
//! The watermark of a lane stands behind the row that caused it, at the lane's frontier, and is
//! merged like a row; what leaves is the least over the lanes. So it stands where the data decide.
//!
//! Nobody waits: the rows of a lane that is behind hold the others back in their queues, which
//! count in the memory account, and [`TimeMerge::held_by`] names it. There is no deadlock: a full
//! memory account asks the source that is furthest behind in time, which is the one waited for.

use std::collections::VecDeque;

use arrow_array::RecordBatch;
use arrow_select::concat::concat_batches;
use arrow_select::interleave::interleave_record_batch;
use thalweg_core::{Bundle, Error, Result, Stamps, Watermark};

use super::rows::merged_watermarks;
use super::{Element, element_bytes};

/// The most rows that leave in one element.
const MERGED_ROWS_MAX: usize = 64 * 1024;

/// From this mean length on runs are copied whole instead of row by row.
const RUN_ROWS_MIN: usize = 8;

/// The edges into one stage.
pub(crate) struct TimeMerge {
    lanes: Vec<Lane>,
    watermark: Watermark,
    serial: u64,
    held_by: Option<usize>,
}

struct Lane {
    items: VecDeque<Item>,
    /// No row that comes later is older.
    frontier_ms: i64,
    watermark: Watermark,
}

enum Item {
    /// Rows from this one on.
    Rows { bundle: Bundle, from: usize, ingest_ns: u64 },
    /// The lane's watermark, at this time.
    Watermark { time_ms: i64, watermark: Watermark, ingest_ns: u64 },
}

impl Item {
    fn time_ms(&self) -> i64 {
        match self {
            Item::Rows { bundle, from, .. } => times(bundle)[*from],
            Item::Watermark { time_ms, .. } => *time_ms,
        }
    }
}

fn times(bundle: &Bundle) -> &[i64] {
    bundle.stamps.row_places.as_ref().expect("rows that meet by time carry their time")
}

/// How many of these rows stand below a pair. Most runs are short where inputs interleave, so the end
/// is looked for in steps that double.
fn run_length(times: &[i64], lane: usize, bound: (i64, usize)) -> usize {
    let is_below = |&time_ms: &i64| (time_ms, lane) < bound;
    let (mut low, mut step) = (0, 1);
    while low + step < times.len() && is_below(&times[low + step]) {
        low += step;
        step *= 2;
    }
    let high = times.len().min(low + step);
    low + times[low..high].partition_point(is_below)
}

/// Rows of one bundle, one behind the other.
struct Run {
    bundle: usize,
    from: usize,
    rows: usize,
}

/// Rows on their way into one element.
#[derive(Default)]
struct Merged {
    bundles: Vec<Bundle>,
    /// The bundle of each lane that was taken from last, as its place in `bundles`.
    of_lane: Vec<Option<usize>>,
    runs: Vec<Run>,
    rows: usize,
    ingest_ns: u64,
    frontier_ms: i64,
}

impl TimeMerge {
    /// A merge of so many lanes.
    pub(crate) fn new(lanes: usize) -> Self {
        let lane =
            || Lane { items: VecDeque::new(), frontier_ms: i64::MIN, watermark: Watermark::MIN };
        TimeMerge {
            lanes: (0..lanes).map(|_| lane()).collect(),
            watermark: Watermark::MIN,
            serial: 0,
            held_by: None,
        }
    }

    /// The lane that others wait for.
    pub(crate) fn held_by(&self) -> Option<usize> {
        self.held_by
    }

    /// An element has come by a lane.
    pub(crate) fn push(&mut self, lane: usize, element: Element) {
        let Element { bundles, watermark, ingest_ns, frontier_ms, .. } = element;
        let lane = &mut self.lanes[lane];
        for bundle in bundles.into_iter().filter(|bundle| bundle.num_rows() > 0) {
            lane.items.push_back(Item::Rows { bundle, from: 0, ingest_ns });
        }
        if let Some(watermark) = watermark {
            lane.items.push_back(Item::Watermark { time_ms: frontier_ms, watermark, ingest_ns });
        }
        lane.frontier_ms = lane.frontier_ms.max(frontier_ms);
    }

    /// Everything that is ready, up to a watermark, as one element.
    pub(crate) fn pop(&mut self) -> Result<Option<Element>> {
        let lanes = self.lanes.len();
        let mut merged = Merged { of_lane: vec![None; lanes], ..Merged::default() };
        let watermark = loop {
            let Some((lane, bound)) = self.next_lane() else { break None };
            match self.lanes[lane].items.front_mut().expect("the lane has items") {
                Item::Rows { bundle, from, ingest_ns } => {
                    let rows = run_length(&times(bundle)[*from..], lane, bound);
                    let rows = rows.min(MERGED_ROWS_MAX - merged.rows);
                    merged.take(lane, bundle, *from, rows, *ingest_ns);
                    *from += rows;
                    if *from == bundle.num_rows() {
                        self.lanes[lane].items.pop_front();
                        merged.of_lane[lane] = None;
                    }
                    if merged.rows == MERGED_ROWS_MAX {
                        break None;
                    }
                }
                Item::Watermark { .. } => {
                    if let Some(watermark) = self.take_watermark(lane, &mut merged) {
                        break Some(watermark);
                    }
                }
            }
        };
        if merged.runs.is_empty() && watermark.is_none() {
            return Ok(None);
        }
        let serial = self.serial;
        self.serial += 1;
        merged.element(serial, watermark).map(Some)
    }

    /// The lane with the least head, and the pair that its rows must stay below. `None` if the
    /// least row may still come.
    fn next_lane(&mut self) -> Option<(usize, (i64, usize))> {
        let (mut least, mut second) = ((i64::MAX, usize::MAX), (i64::MAX, usize::MAX));
        for (number, lane) in self.lanes.iter().enumerate() {
            let head = match lane.items.front() {
                Some(item) => (item.time_ms(), number),
                None if lane.watermark == Watermark::END => continue,
                None => (lane.frontier_ms, number),
            };
            if head < least {
                (least, second) = (head, least);
            } else if head < second {
                second = head;
            }
        }
        let (_, number) = least;
        if !self.lanes.get(number)?.items.is_empty() {
            self.held_by = None;
            return Some((number, second));
        }
        // A lane without items is the least: what comes by it may be older than all others.
        let others_wait = self.lanes.iter().any(|lane| !lane.items.is_empty());
        self.held_by = others_wait.then_some(number);
        None
    }

    /// Takes the watermark at the head of a lane; the joint one if it moves.
    fn take_watermark(&mut self, lane: usize, merged: &mut Merged) -> Option<Watermark> {
        let item = self.lanes[lane].items.pop_front();
        let Some(Item::Watermark { time_ms, watermark, ingest_ns }) = item else {
            unreachable!("the caller has seen a watermark")
        };
        self.lanes[lane].watermark = self.lanes[lane].watermark.max(watermark);
        merged.ingest_ns = merged.ingest_ns.max(ingest_ns);
        let joint = self.lanes.iter().map(|lane| lane.watermark).min();
        let joint = joint.expect("a merge has lanes");
        if joint <= self.watermark {
            return None;
        }
        merged.frontier_ms = merged.frontier_ms.max(time_ms);
        self.watermark = joint;
        Some(joint)
    }
}

impl Merged {
    fn take(&mut self, lane: usize, bundle: &Bundle, from: usize, rows: usize, ingest_ns: u64) {
        debug_assert!(rows > 0, "the head of the least lane is below the bound");
        let place = *self.of_lane[lane].get_or_insert_with(|| {
            self.bundles.push(bundle.clone());
            self.bundles.len() - 1
        });
        self.runs.push(Run { bundle: place, from, rows });
        self.rows += rows;
        self.ingest_ns = self.ingest_ns.max(ingest_ns);
        self.frontier_ms = times(bundle)[from + rows - 1];
    }

    fn element(self, serial: u64, watermark: Option<Watermark>) -> Result<Element> {
        let (ingest_ns, frontier_ms) = (self.ingest_ns, self.frontier_ms);
        let bundles: Vec<Bundle> = self.bundle(serial)?.into_iter().collect();
        let bytes = element_bytes(&bundles);
        Ok(Element { serial, bundles, watermark, ingest_ns, bytes, frontier_ms })
    }

    /// Where each row comes from: bundle and row.
    fn indices(&self) -> Vec<(usize, usize)> {
        let mut indices = Vec::with_capacity(self.rows);
        for run in &self.runs {
            indices.extend((run.from..run.from + run.rows).map(|row| (run.bundle, row)));
        }
        indices
    }

    /// The rows as one bundle.
    fn bundle(self, serial: u64) -> Result<Option<Bundle>> {
        let indices = self.indices();
        let Some(first) = self.bundles.first() else { return Ok(None) };
        if self.bundles.iter().any(|bundle| bundle.kinds.is_some()) {
            return Err(Error::internal("a changelog was to be merged by time"));
        }
        let batch = if self.runs.len() * RUN_ROWS_MIN <= self.rows {
            let slice = |run: &Run| self.bundles[run.bundle].batch.slice(run.from, run.rows);
            let slices: Vec<RecordBatch> = self.runs.iter().map(slice).collect();
            match &slices[..] {
                [only] => only.clone(),
                slices => concat_batches(first.batch.schema_ref(), slices)?,
            }
        } else {
            let batches: Vec<&RecordBatch> = self.bundles.iter().map(|b| &b.batch).collect();
            interleave_record_batch(&batches, &indices)?
        };
        let mut places = Vec::with_capacity(self.rows);
        for run in &self.runs {
            let times = times(&self.bundles[run.bundle]);
            places.extend_from_slice(&times[run.from..run.from + run.rows]);
        }
        let stamps = Stamps {
            serial,
            watermark_before: merged_watermarks(&self.bundles, &indices),
            row_places: Some(places.into()),
            origin: None,
            ..first.stamps.clone()
        };
        Ok(Some(Bundle { batch, kinds: None, stamps }))
    }
}
