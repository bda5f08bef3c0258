//! How elements enter: one sequence over all sources, numbered without gaps.

use std::ops::Range;

use arrow_buffer::ScalarBuffer;
use thalweg_core::{Bundle, OrderContract, Result, SplitId, Watermark, WatermarkBefore};
use thalweg_ordering::sync::Ordering;

use super::OrderedFlow;
use super::element::{Element, Outcome, Passage, Port, Ports, element_bytes};
use super::elements::ElementStage;
use super::marks::{Marks, row_groups};
use super::merge::{Arrival, EVERY_SOURCE};
use super::rows::slice;
use crate::interleaving::Step;
use crate::job::Job;
use crate::stage::SourceState;

impl ElementStage<'_> {
    /// A source's bundle becomes elements. Where the place of a watermark matters, it stands behind
    /// the row at which it crosses a time that matters: as a mark, or as the end of the element.
    pub(crate) fn ingest_bundle(
        &self,
        state: &mut SourceState,
        bundle: Bundle,
        split: SplitId,
    ) -> Result<()> {
        if !self.flow.places_watermarks {
            let watermark = state.take_watermark();
            let passage = Passage::new(state.ingest_ns, i64::MIN);
            return self.ingest_element((vec![bundle], None), watermark, passage);
        }
        let times = match (&state.assigner, self.flow.order) {
            (Some(assigner), OrderContract::EventTime) => assigner.row_times(&bundle.batch)?,
            // Constants have no time: they come before everything that has one.
            (None, OrderContract::EventTime) => Some(vec![i64::MIN; bundle.num_rows()].into()),
            _ => None,
        };
        let cuts = cuts(state, &bundle, split);
        for group in row_groups(cuts, bundle.num_rows(), self.flow.element_rows()) {
            // Each row may end an element.
            if self.job.lifecycle.gives_up() {
                return Ok(());
            }
            let mut part = self.flow.slice(&bundle, times.as_ref(), &group.rows);
            let passage = Passage::new(state.ingest_ns, frontier(state, &part));
            let marks = group.mark(&mut part, self.flow.has_merges);
            self.ingest_element((vec![part], marks), group.watermark, passage)?;
        }
        Ok(())
    }

    /// A source has ended.
    pub(crate) fn ingest_end(&self, ingest_ns: u64) -> Result<()> {
        let passage = Passage::new(ingest_ns, i64::MAX);
        self.ingest_element((Vec::new(), None), Some(Watermark::END), passage)
    }

    /// A source is idle from here on, or no longer.
    pub(crate) fn ingest_idleness(&self, idle: bool) -> Result<()> {
        let now_ns = self.job.now_ns();
        let passage = Passage { idle: Some(idle), ..Passage::new(now_ns, i64::MIN) };
        self.ingest_element((Vec::new(), None), None, passage)
    }

    /// A source places a cut.
    pub(crate) fn ingest_cut(&self) -> Result<()> {
        self.ingest_element((Vec::new(), None), None, Passage::cut(0, self.job.now_ns()))
    }

    /// The watermark of a source may have moved, and none of its rows to come is older than this.
    pub(crate) fn ingest_heartbeat(&self, state: &mut SourceState, time_ms: i64) -> Result<()> {
        state.frontier_ms = state.frontier_ms.max(time_ms);
        let watermark = state.take_watermark();
        let passage = Passage::new(state.ingest_ns, state.frontier_ms);
        self.ingest_element((Vec::new(), None), watermark, passage)
    }

    fn ingest_element(
        &self,
        (bundles, marks): (Vec<Bundle>, Marks),
        watermark: Option<Watermark>,
        passage: Passage,
    ) -> Result<()> {
        let bytes = element_bytes(&bundles);
        let element = Element { passage, bundles, marks, watermark, bytes };
        self.flow.ingest.put((self.place, element), |(source, element)| {
            if element.passage.is_cut {
                return Self::of(self.job, source).reach_cut(element.passage);
            }
            let Some(replaying) = &self.flow.replaying else {
                return Self::of(self.job, source).enter_unless_parked(element);
            };
            // Only the one whose turn it is keeps this lock; others look whose turn it is.
            let lock = || replaying.lock().expect("no panic under this lock");
            let next = || lock().pop();
            lock().push(source, element, self.job.stages[source].ended.load(Ordering::SeqCst));
            while let Some((source, element)) = next()? {
                Self::of(self.job, source).enter(element)?;
            }
            // The input that is asked may be another one now.
            self.job.news.notify();
            Ok(())
        })
    }

    /// An element of a source that waits for others to place a cut waits with it.
    fn enter_unless_parked(&self, element: Element) -> Result<()> {
        if self.job.cuts.is_under_way() {
            let mut cutting = self.flow.cutting.lock().expect("no panic under this lock");
            if cutting.passed[self.place] {
                cutting.parked.push_back((self.place, element));
                return Ok(());
            }
        }
        self.enter(element)
    }

    /// A source has placed the cut. The last one sends it on from all of them, and what has come
    /// behind it.
    fn reach_cut(&self, passage: Passage) -> Result<()> {
        let sources = self.job.stages.source_places();
        let mut cutting = self.flow.cutting.lock().expect("no panic under this lock");
        cutting.passed[self.place] = true;
        if !sources.iter().all(|&source| cutting.passed[source]) {
            return Ok(());
        }
        cutting.passed.fill(false);
        let parked = std::mem::take(&mut cutting.parked);
        drop(cutting);
        // Relaxed: only the one whose turn it is gets here.
        let serial = self.flow.serial.fetch_add(1, Ordering::Relaxed);
        self.job.cuts.current().set_serial(serial + 1);
        self.expect_at_merges(serial, EVERY_SOURCE)?;
        let passage = Passage { serial, ..passage };
        for &source in sources {
            let ports = Ports::without_rows(1, None, None);
            Self::of(self.job, source).pass_on(Outcome { passage, ports })?;
        }
        parked
            .into_iter()
            .try_for_each(|(source, element)| Self::of(self.job, source).enter(element))
    }

    /// Gives an element its serial and sends it on. Only for the one whose turn it is.
    fn enter(&self, mut element: Element) -> Result<()> {
        self.record(&element)?;
        // Relaxed: only the one whose turn it is gets here.
        element.passage.serial = self.flow.serial.fetch_add(1, Ordering::Relaxed);
        for bundle in &mut element.bundles {
            bundle.stamps.serial = element.passage.serial;
        }
        self.expect_at_merges(element.passage.serial, self.place)?;
        if let Some(watermark) = element.last_watermark() {
            self.run.metrics.set_watermark(watermark, || self.job.now_ns());
        }
        let Element { passage, bundles, marks, watermark, .. } = element;
        let ports = Ports::One(Port { bundles, marks, watermark });
        self.pass_on(Outcome { passage, ports })
    }

    /// Takes down that rows of an input, or its end, have come in.
    fn record(&self, element: &Element) -> Result<()> {
        let Some(recorder) = &self.job.settings.record else { return Ok(()) };
        let rows = element.num_rows();
        let is_unwanted = self.run.ended.load(Ordering::SeqCst);
        if rows == 0 && (element.watermark != Some(Watermark::END) || is_unwanted) {
            return Ok(());
        }
        let mut sources = self.job.stages.source_places().iter();
        let input = sources.position(|&place| place == self.place);
        let input = input.expect("every source is listed") as u32;
        let mut recorder = recorder.lock().expect("no panic under this lock");
        recorder.record(Step { input, rows: rows as u32 })
    }

    /// Announces to every merge which source the next serial comes from, before it can come.
    fn expect_at_merges(&self, serial: u64, source: usize) -> Result<()> {
        for (place, stage) in self.flow.stages.iter().enumerate() {
            let Some((_, merge)) = &stage.merge else { continue };
            let is_fed = merge.lock().expect("no panic under this lock").is_fed_by(source);
            if is_fed {
                let expected = Arrival::Expected(serial, source);
                Self::of(self.job, place).arrive_at_merge(expected)?;
            }
        }
        Ok(())
    }
}

/// After which rows the watermark crosses a time that matters, and what it is then. The running
/// watermark never falls, so each crossing is looked for by halves; most bundles have none.
fn cuts(state: &mut SourceState, bundle: &Bundle, split: SplitId) -> Vec<(usize, Watermark)> {
    let Some(assigner) = &mut state.assigner else { return Vec::new() };
    let rows = bundle.num_rows();
    let (running, others) = (state.splits.running(split), state.splits.least_of_others(split));
    let after = |row: usize| {
        let own = match (&bundle.stamps.watermark_before, row + 1 < rows) {
            (WatermarkBefore::Rows(before), true) => Watermark(before[row + 1]),
            (WatermarkBefore::All(before), true) => *before,
            (_, false) => running,
        };
        own.min(others)
    };
    let mut cuts = Vec::new();
    let mut from = 0;
    while from < rows {
        let crosses = |row| after(row) > state.taken && assigner.crosses(state.taken, after(row));
        let Some(row) = first_row(from..rows, crosses) else { break };
        state.taken = after(row);
        cuts.push((row + 1, state.taken));
        from = row + 1;
    }
    cuts
}

/// The first row for which something holds that holds for all rows behind it as well.
fn first_row(rows: Range<usize>, holds: impl Fn(usize) -> bool) -> Option<usize> {
    let (mut low, mut high) = (rows.start, rows.end.checked_sub(1)?);
    if low > high || !holds(high) {
        return None;
    }
    while low < high {
        let middle = low.midpoint(high);
        if holds(middle) { high = middle } else { low = middle + 1 }
    }
    Some(low)
}

/// How far the source has come in time with this bundle.
fn frontier(state: &mut SourceState, bundle: &Bundle) -> i64 {
    let last = bundle.stamps.row_places.as_ref().and_then(|places| places.last().copied());
    state.frontier_ms = state.frontier_ms.max(last.unwrap_or(i64::MIN));
    state.frontier_ms
}

impl OrderedFlow {
    /// True if rows of this source may come in now: a recording may want another one first.
    pub(crate) fn is_in_turn(&self, source: usize) -> bool {
        let Some(replaying) = &self.replaying else { return true };
        let replaying = replaying.lock().expect("no panic under this lock");
        replaying.source_in_turn().is_none_or(|turn| turn == source)
    }

    /// True if rows wait in a merge by time for what this source brings.
    pub(crate) fn is_waited_for(&self, job: &Job, source: usize) -> bool {
        let mut held_by = job.stages.iter().filter_map(|stage| stage.metrics.held_by());
        held_by.any(|stage| self.fed_by[stage][source])
    }

    /// Behind how many rows the next watermark ends an element.
    fn element_rows(&self) -> usize {
        if self.groups_watermarks { self.element_rows.get() } else { 0 }
    }

    /// Some rows of a bundle; where edges meet, with their places.
    fn slice(
        &self,
        bundle: &Bundle,
        times: Option<&ScalarBuffer<i64>>,
        rows: &Range<usize>,
    ) -> Bundle {
        let mut part = slice(bundle, rows.start, rows.len());
        part.stamps.row_places = self.has_merges.then(|| match times {
            Some(times) => times.slice(rows.start, rows.len()),
            None => (0..rows.len() as i64).collect(),
        });
        part
    }
}
