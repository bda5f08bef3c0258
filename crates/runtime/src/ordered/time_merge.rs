//! Where several edges lead into one stage in contract `event_time`: rows meet by
//! (time, input, position), in the channel between the stages (Viper §3).
//!
//! **The invariant that makes it work:** the rows of a lane come in time order, and the frontier of
//! a lane says that none that comes later is older; so the least row by (time, input) is final as
//! soon as every lane without rows has a frontier behind it. [`sorted_merge`](crate::sorted_merge)
//! finds these rows; here stands what makes elements of them.
//!
//! # Watermarks
//! The watermark of a lane is a mark behind the row that caused it, at the lane's frontier, and is
//! merged like a row; what leaves is the least over the lanes. So it stands where the data decide.
//!
//! Nobody waits: the rows of a lane that is behind hold the others back in their queues, which
//! count in the memory account, and [`TimeMerge::held_by`] names it. There is no deadlock: a full
//! memory account asks the source that is furthest behind in time, which is the one waited for.
//!
//! # Cuts
//! A cut comes by each lane. A lane that it has come by is held: what comes behind waits apart, and
//! the others continue up to the cut. It leaves when it has come by all of them, behind everything
//! that could leave without rows from behind it.
//!
//! # Idle lanes
//! Where the clock may change the sequence, a lane that is idle is not waited for. When it is back,
//! its rows stand behind what has left by then, and are stamped with the watermark that did.

use std::collections::VecDeque;

use thalweg_core::{Bundle, Result, Stamps, Watermark};

use super::element::{Element, Passage};
use super::lanes::JointOfLanes;
use crate::sorted_merge::{MergedRows, SortedMerge, SortedRows};

mod snapshot;

/// The most rows that leave in one element.
const MERGED_ROWS_MAX: usize = 64 * 1024;

/// The edges into one stage.
pub(crate) struct TimeMerge {
    merge: SortedMerge,
    lanes: Vec<Lane>,
    joint: JointOfLanes,
    serial: u64,
    held_by: Option<usize>,
    /// What elements counted beyond their rows and was not given back yet.
    bytes: usize,
    /// The time of the last row or watermark that left.
    frontier_ms: i64,
    /// A lane has come further in time, and no row of it says so.
    has_heartbeat: bool,
}

#[derive(Default)]
struct Lane {
    /// Before this no row of it has a place any more, since others advanced without it.
    floor_ms: Option<i64>,
    /// The watermarks whose marks wait in the merge, and when they entered the engine.
    marked: VecDeque<(Watermark, u64)>,
    /// A cut has come by the lane.
    is_at_cut: bool,
    /// What has come behind it.
    behind_cut: VecDeque<Element>,
}

impl TimeMerge {
    /// A merge of this many lanes. Rows may share stamps that make no difference if nothing asks
    /// for the exact ones, and their places are their times.
    pub(crate) fn new(lanes: usize, shares_stamps: bool) -> Self {
        let merge = SortedMerge::with_separate_times(lanes).with_shared_stamps(shares_stamps);
        TimeMerge {
            merge,
            lanes: (0..lanes).map(|_| Lane::default()).collect(),
            joint: JointOfLanes::new(lanes),
            serial: 0,
            held_by: None,
            bytes: 0,
            frontier_ms: i64::MIN,
            has_heartbeat: false,
        }
    }

    /// The lane that others wait for.
    pub(crate) fn held_by(&self) -> Option<usize> {
        self.held_by
    }

    /// An element has come by a lane.
    pub(crate) fn push(&mut self, lane: usize, element: Element) -> Result<()> {
        let at = &mut self.lanes[lane];
        if at.is_at_cut {
            at.behind_cut.push_back(element);
            return Ok(());
        }
        if element.passage.is_cut {
            at.is_at_cut = true;
            self.bytes += element.bytes;
            return Ok(());
        }
        let Element { passage, bundles, watermark, bytes, .. } = element;
        let Passage { ingest_ns, frontier_ms, idle, .. } = passage;
        self.bytes += bytes;
        self.has_heartbeat |= bundles.is_empty() && watermark.is_none() && idle.is_none();
        if let Some(idle) = idle {
            self.set_idle(lane, idle);
        }
        for bundle in bundles.into_iter().filter(|bundle| bundle.num_rows() > 0) {
            let mut rows = sorted_rows(bundle, ingest_ns);
            self.joint.stamp(lane, &mut rows.watermark_before);
            self.lanes[lane].raise_times(&mut rows);
            self.bytes -= rows.bytes;
            self.merge.push_rows(lane, rows)?;
        }
        self.merge.advance_to(lane, frontier_ms);
        if let Some(watermark) = watermark {
            self.merge.mark(lane);
            self.lanes[lane].marked.push_back((watermark, ingest_ns));
            if watermark == Watermark::END {
                self.merge.finish(lane);
            }
        }
        Ok(())
    }

    /// A lane is not waited for from here on, or is again.
    fn set_idle(&mut self, lane: usize, idle: bool) {
        self.joint.set_idle(lane, idle);
        self.merge.set_idle(lane, idle);
        if !idle {
            self.lanes[lane].floor_ms = Some(self.frontier_ms);
            self.merge.advance_to(lane, self.frontier_ms);
        }
    }

    /// Everything that is ready, up to a watermark, as one element. Its bytes are those that what
    /// it was made of counted.
    pub(crate) fn pop(&mut self) -> Result<Option<Element>> {
        let (mut bundles, mut rows, mut ingest_ns) = (Vec::new(), 0, 0);
        // A lane that has just become idle may have been the last one that held it back.
        let mut advanced = self.joint.advance();
        while advanced.is_none() && rows < MERGED_ROWS_MAX {
            if let Some(merged) = self.merge.ready(MERGED_ROWS_MAX - rows)? {
                rows += merged.times.len();
                ingest_ns = ingest_ns.max(merged.ingest_ns);
                self.frontier_ms = merged.times.last().copied().unwrap_or(self.frontier_ms);
                self.bytes += merged.bytes;
                bundles.push(self.bundle(merged));
                continue;
            }
            match self.merge.take_mark() {
                Some((lane, time_ms)) => {
                    let (watermark, entered_ns) = self.take_watermark(lane);
                    ingest_ns = ingest_ns.max(entered_ns);
                    advanced = self.advance(lane, watermark, time_ms);
                }
                None => break,
            }
        }
        self.held_by = self.merge.held_by();
        let idle = self.joint.idle_change();
        let is_blank = bundles.is_empty() && advanced.is_none() && idle.is_none();
        if is_blank && !self.takes_heartbeat() {
            return Ok(self.pop_cut());
        }
        let passage = Passage { idle, ..Passage::new(ingest_ns, self.frontier_ms) };
        let element = Element { passage, bundles, marks: None, watermark: advanced, bytes: 0 };
        Ok(Some(self.numbered(element)))
    }

    /// The cut, once it has come by every lane and nothing in front of it can leave any more.
    fn pop_cut(&mut self) -> Option<Element> {
        let is_here = self.lanes.iter().all(|lane| lane.is_at_cut);
        is_here.then(|| self.numbered(Element::cut(Passage::cut(0, 0))))
    }

    /// Gives an element its serial, and what was counted for it.
    fn numbered(&mut self, mut element: Element) -> Element {
        element.passage.serial = self.serial;
        self.serial += 1;
        element.bytes = std::mem::take(&mut self.bytes);
        element
    }

    /// What has come behind the cut, which has left, comes in.
    pub(super) fn pass_cut(&mut self) -> Result<()> {
        self.lanes.iter_mut().for_each(|lane| lane.is_at_cut = false);
        for lane in 0..self.lanes.len() {
            for element in std::mem::take(&mut self.lanes[lane].behind_cut) {
                self.push(lane, element)?;
            }
        }
        Ok(())
    }

    /// A heartbeat has moved what no row to come can be older than.
    fn takes_heartbeat(&mut self) -> bool {
        let has_heartbeat = std::mem::take(&mut self.has_heartbeat);
        let Some(least_ms) = self.merge.frontier_ms().filter(|_| has_heartbeat) else {
            return false;
        };
        let has_moved = least_ms > self.frontier_ms;
        self.frontier_ms = self.frontier_ms.max(least_ms);
        has_moved
    }

    fn take_watermark(&mut self, lane: usize) -> (Watermark, u64) {
        self.lanes[lane].marked.pop_front().expect("every mark has its watermark")
    }

    /// A lane's watermark has its turn; the joint one if it moves.
    fn advance(&mut self, lane: usize, watermark: Watermark, time_ms: i64) -> Option<Watermark> {
        self.joint.raise(lane, watermark);
        let advanced = self.joint.advance()?;
        self.frontier_ms = self.frontier_ms.max(time_ms);
        Some(advanced)
    }

    fn bundle(&self, merged: MergedRows) -> Bundle {
        let stamps = Stamps {
            serial: self.serial,
            ingest_ns: merged.ingest_ns,
            watermark_before: merged.watermark_before,
            row_places: Some(merged.times),
            ..Stamps::first()
        };
        Bundle { batch: merged.batch, kinds: merged.kinds, stamps }
    }
}

impl Lane {
    /// Rows that have no place in the sequence any more stand at the first one that is left.
    fn raise_times(&self, rows: &mut SortedRows) {
        let Some(floor_ms) = self.floor_ms else { return };
        if rows.times.first().is_some_and(|&first_ms| first_ms < floor_ms) {
            rows.times = rows.times.iter().map(|&time_ms| time_ms.max(floor_ms)).collect();
        }
    }
}

/// The rows of a bundle with their times apart from them.
fn sorted_rows(bundle: Bundle, ingest_ns: u64) -> SortedRows {
    let bytes = bundle.memory_bytes();
    let Bundle { batch, kinds, stamps } = bundle;
    let Stamps { row_places, watermark_before, .. } = stamps;
    let times = row_places.expect("rows that meet by time carry their time");
    SortedRows { batch, times, watermark_before, kinds, ingest_ns, bytes }
}
