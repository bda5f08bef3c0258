//! How elements enter: one sequence over all sources, numbered without gaps.

use std::ops::Range;

use arrow_buffer::ScalarBuffer;
use thalweg_core::{Bundle, OrderContract, Result, Watermark, WatermarkBefore};
use thalweg_ordering::sync::Ordering;

use super::{Arrival, Element, OrderedFlow, Outcome, Passage, Port, Ports, element_bytes};
use crate::interleaving::Step;
use crate::job::Job;
use crate::metrics::StageMetrics;
use crate::stage::SourceState;

impl Job {
    /// A source's bundle becomes elements. Where the place of a watermark matters, an element ends
    /// with each row at which it crosses a time that matters.
    pub(crate) fn ingest_bundle(
        &self,
        flow: &OrderedFlow,
        stage: usize,
        state: &mut SourceState,
        bundle: Bundle,
    ) -> Result<()> {
        if !flow.places_watermarks {
            let watermark = state.assigner.as_mut().and_then(|assigner| assigner.take_watermark());
            let passage = Passage::new(state.ingest_ns, i64::MIN);
            return self.ingest(flow, stage, vec![bundle], watermark, passage);
        }
        let times = match (&state.assigner, flow.order) {
            (Some(assigner), OrderContract::EventTime) => assigner.row_times(&bundle.batch)?,
            // Constants have no time: they come before everything that has one.
            (None, OrderContract::EventTime) => Some(vec![i64::MIN; bundle.num_rows()].into()),
            _ => None,
        };
        let cuts = cuts(state, &bundle);
        let mut from = 0;
        for (rows, watermark) in cuts {
            let part = flow.slice(&bundle, times.as_ref(), from, rows - from);
            let passage = Passage::new(state.ingest_ns, frontier(state, &part));
            self.ingest(flow, stage, vec![part], Some(watermark), passage)?;
            from = rows;
        }
        if from < bundle.num_rows() || from == 0 {
            let part = flow.slice(&bundle, times.as_ref(), from, bundle.num_rows() - from);
            let passage = Passage::new(state.ingest_ns, frontier(state, &part));
            self.ingest(flow, stage, vec![part], None, passage)?;
        }
        Ok(())
    }

    /// A source has ended.
    pub(crate) fn ingest_end(
        &self,
        flow: &OrderedFlow,
        stage: usize,
        ingest_ns: u64,
    ) -> Result<()> {
        let passage = Passage::new(ingest_ns, i64::MAX);
        self.ingest(flow, stage, Vec::new(), Some(Watermark::END), passage)
    }

    /// A source is idle from here on, or no longer.
    pub(crate) fn ingest_idleness(
        &self,
        flow: &OrderedFlow,
        stage: usize,
        idle: bool,
    ) -> Result<()> {
        let now_ns = self.options.clock.now_ns();
        let passage = Passage { idle: Some(idle), ..Passage::new(now_ns, i64::MIN) };
        self.ingest(flow, stage, Vec::new(), None, passage)
    }

    /// A source has promised that none of its rows to come is older.
    pub(crate) fn ingest_heartbeat(
        &self,
        flow: &OrderedFlow,
        stage: usize,
        state: &mut SourceState,
        time_ms: i64,
    ) -> Result<()> {
        state.frontier_ms = state.frontier_ms.max(time_ms);
        let taken = state.taken;
        let watermark = state.assigner.as_mut().and_then(|assigner| {
            let running = assigner.running_watermark();
            match flow.places_watermarks {
                true => (running > taken && assigner.crosses(taken, running)).then_some(running),
                false => assigner.take_watermark(),
            }
        });
        state.taken = watermark.unwrap_or(taken);
        let passage = Passage::new(state.ingest_ns, state.frontier_ms);
        self.ingest(flow, stage, Vec::new(), watermark, passage)
    }

    fn ingest(
        &self,
        flow: &OrderedFlow,
        stage: usize,
        bundles: Vec<Bundle>,
        watermark: Option<Watermark>,
        passage: Passage,
    ) -> Result<()> {
        let bytes = element_bytes(&bundles);
        let element = Element { passage, bundles, watermark, bytes };
        flow.ingest.put((stage, element), |(source, element)| {
            let Some(replaying) = &flow.replaying else { return self.enter(flow, source, element) };
            // Only the one whose turn it is keeps this lock; others look whose turn it is.
            let lock = || replaying.lock().expect("no panic under this lock");
            let next = || lock().pop();
            lock().push(source, element, self.stages[source].ended.load(Ordering::SeqCst));
            while let Some((source, element)) = next()? {
                self.enter(flow, source, element)?;
            }
            // The input that is asked may be another one now.
            self.news.notify();
            Ok(())
        })
    }

    /// Gives an element its serial and sends it on. Only for the one whose turn it is.
    fn enter(&self, flow: &OrderedFlow, source: usize, mut element: Element) -> Result<()> {
        self.record(source, &element)?;
        // Relaxed: only the one whose turn it is gets here.
        element.passage.serial = flow.serial.fetch_add(1, Ordering::Relaxed);
        for bundle in &mut element.bundles {
            bundle.stamps.serial = element.passage.serial;
        }
        self.expect_at_merges(flow, source, element.passage.serial)?;
        let metrics = &self.stages[source].metrics;
        if let Some(watermark) = element.watermark {
            metrics.set_watermark(watermark);
        }
        let Element { passage, bundles, watermark, .. } = element;
        let ports = Ports::One(Port { bundles, watermark });
        self.pass_on(flow, source, Outcome { passage, ports })
    }

    /// Takes down that rows of an input, or its end, have come in.
    fn record(&self, source: usize, element: &Element) -> Result<()> {
        let Some(recorder) = &self.options.record else { return Ok(()) };
        let rows: usize = element.bundles.iter().map(Bundle::num_rows).sum();
        let is_unwanted = self.stages[source].ended.load(Ordering::SeqCst);
        if rows == 0 && (element.watermark != Some(Watermark::END) || is_unwanted) {
            return Ok(());
        }
        let input = self.sources.iter().position(|&place| place == source);
        let input = input.expect("every source is listed") as u32;
        let mut recorder = recorder.lock().expect("no panic under this lock");
        recorder.record(Step { input, rows: rows as u32 })
    }

    /// True if rows of this source may come in now: a recording may want another one first.
    pub(crate) fn is_in_turn(&self, source: usize) -> bool {
        let Some(replaying) = self.ordered.as_ref().and_then(|flow| flow.replaying.as_ref()) else {
            return true;
        };
        let replaying = replaying.lock().expect("no panic under this lock");
        self.is_stopping() || replaying.source_in_turn().is_none_or(|turn| turn == source)
    }

    /// Announces to every merge which source the next serial comes from, before it can come.
    fn expect_at_merges(&self, flow: &OrderedFlow, source: usize, serial: u64) -> Result<()> {
        for (place, stage) in flow.stages.iter().enumerate() {
            if let Some((_, merge)) = &stage.merge {
                let fed = merge.lock().expect("no panic under this lock").is_fed_by(source);
                if fed {
                    self.arrive_at_merge(flow, place, Arrival::Expected(serial, source))?;
                }
            }
        }
        Ok(())
    }

    /// True if rows wait in a merge by time for what this source brings.
    pub(crate) fn is_waited_for(&self, source: usize) -> bool {
        let Some(flow) = &self.ordered else { return false };
        let held_by = self.stages.iter().filter_map(|stage| stage.metrics.held_by());
        held_by.into_iter().any(|stage| flow.fed_by[stage][source])
    }

    /// Room in memory that outgoing rows take, one edge at a time.
    pub(crate) fn count_outgoing(&self, stage: usize, bundles: &[Bundle], bytes: usize) {
        self.memory.add_in_flight(bytes as i64);
        let metrics = &self.stages[stage].metrics;
        let rows: usize = bundles.iter().map(Bundle::num_rows).sum();
        StageMetrics::add(&metrics.rows_out, rows as u64);
        StageMetrics::add(&metrics.bundles_out, bundles.len() as u64);
        StageMetrics::add(&metrics.bytes_out, bytes as u64);
    }
}

/// After which rows the watermark crosses a time that matters, and what it is then. The running
/// watermark never falls, so each crossing is looked for by halves; most bundles have none.
fn cuts(state: &mut SourceState, bundle: &Bundle) -> Vec<(usize, Watermark)> {
    let Some(assigner) = &mut state.assigner else { return Vec::new() };
    let rows = bundle.num_rows();
    let running = assigner.running_watermark();
    let after = |row: usize| match (&bundle.stamps.watermark_before, row + 1 < rows) {
        (WatermarkBefore::Rows(before), true) => Watermark(before[row + 1]),
        (WatermarkBefore::All(before), true) => *before,
        (_, false) => running,
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
    /// Some rows of a bundle; where edges meet, with their places.
    fn slice(
        &self,
        bundle: &Bundle,
        times: Option<&ScalarBuffer<i64>>,
        from: usize,
        rows: usize,
    ) -> Bundle {
        let mut part = slice(bundle, from, rows);
        part.stamps.row_places = self.has_merges.then(|| match times {
            Some(times) => times.slice(from, rows),
            None => (0..rows as i64).collect(),
        });
        part
    }
}

/// Some rows of a bundle.
pub(super) fn slice(bundle: &Bundle, from: usize, rows: usize) -> Bundle {
    if (from, rows) == (0, bundle.num_rows()) {
        return bundle.clone();
    }
    let mut stamps = bundle.stamps.clone();
    stamps.watermark_before = match stamps.watermark_before {
        WatermarkBefore::Rows(before) => WatermarkBefore::Rows(before.slice(from, rows)),
        all => all,
    };
    if let Some(origin) = &mut stamps.origin {
        origin.first_row += from as u64;
    }
    let kinds = bundle.kinds.as_ref().map(|kinds| kinds[from..from + rows].into());
    Bundle { batch: bundle.batch.slice(from, rows), kinds, stamps }
}
