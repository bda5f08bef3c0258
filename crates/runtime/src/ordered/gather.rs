//! An element on its way through the partitions of an operator, and what they make of it.
//!
//! **Invariant:** the count of pieces is above zero until everything the partitions emit for the
//! element is here; the one that brings it to zero puts the outcome together, in an order that
//! depends on the rows' places alone (see `rows`).

use thalweg_core::bundle::batch_bytes;
use thalweg_core::operator::Emitted;
use thalweg_core::{Bundle, Operator, Result, Stamps, Watermark, WatermarkBefore};
use thalweg_ordering::sync::{AtomicUsize, Mutex, MutexGuard, Ordering};

use super::early_results::EarlyResults;
use super::element::{Outcome, Passage, Port, Ports};
use super::marks::TakenMark;
use super::rows::{self, Ordered, slice};

mod marked;

pub(crate) use marked::caused_by;

/// The largest bundle that leaves at a watermark.
const CLOSING_ROWS_MAX: usize = 64 * 1024;

/// An element on its way through the partitions of an operator. The last one to finish a piece of
/// it puts the outcome together.
pub struct Gather {
    /// The serial within the stage.
    pub(crate) place: u64,
    pub(crate) passage: Passage,
    /// The place of rows that are made at the watermark: behind all rows of the element.
    pub(crate) closing_place: i64,
    pub(crate) bytes: usize,
    pub(crate) bundles: Vec<Bundle>,
    /// The watermarks that its partitions take between rows, and then also the one behind them.
    pub(crate) marks: Vec<TakenMark>,
    /// The watermark behind the rows, if there are no marks.
    pub(crate) watermark: Option<Watermark>,
    pub(crate) pass: Option<Watermark>,
    /// The watermark that was passed on last before this element.
    pub(crate) passed_before: Watermark,
    /// Pieces and the barrier that are not finished.
    pub(super) remaining: AtomicUsize,
    /// Where results of the watermark may leave before all are made.
    pub(super) early: Option<Mutex<EarlyResults>>,
    pub(super) emitted: Mutex<GatheredRows>,
}

/// What the partitions have emitted, by partition.
#[derive(Default)]
pub(super) struct GatheredRows {
    /// For each bundle; none as long as nothing has been emitted.
    of_rows: Vec<Vec<(usize, Emitted)>>,
    /// At the watermark.
    of_watermark: Vec<(usize, Emitted)>,
    /// Of an element with marks: the bundle and the call, the partition.
    of_calls: Vec<((usize, u32), usize, Emitted)>,
    /// About how many bytes all of them take.
    bytes: usize,
}

impl Gather {
    fn lock_emitted(&self) -> MutexGuard<'_, GatheredRows> {
        self.emitted.lock().expect("no panic under this lock")
    }

    /// This many more pieces have to be finished. Only for whoever has a hold on it, which keeps
    /// the count above zero.
    pub(crate) fn expect(&self, pieces: usize) {
        self.remaining.fetch_add(pieces, Ordering::Relaxed);
    }

    /// A piece, or the caller's hold, is finished. True if it was the last one.
    #[must_use = "the last one sends the outcome on"]
    pub(crate) fn finish_one(&self) -> bool {
        // AcqRel: the last one sees what all others have left here.
        self.remaining.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// The newest watermark that it brings.
    pub(super) fn last_watermark(&self) -> Option<Watermark> {
        self.watermark.or_else(|| self.marks.last().map(|taken| taken.mark.watermark))
    }

    /// Keeps what a partition emitted for rows of a bundle, or at the watermark. Returns the bytes
    /// kept in all.
    pub(crate) fn keep(
        &self,
        of_bundle: Option<usize>,
        cell: usize,
        emitted: Vec<Emitted>,
        bytes: usize,
    ) -> usize {
        let mut kept = self.lock_emitted();
        kept.bytes += bytes;
        if of_bundle.is_some() && kept.of_rows.is_empty() {
            kept.of_rows.resize_with(self.bundles.len(), Vec::new);
        }
        let of_what = match of_bundle {
            Some(bundle) => &mut kept.of_rows[bundle],
            None => &mut kept.of_watermark,
        };
        of_what.extend(emitted.into_iter().map(|emitted| (cell, emitted)));
        kept.bytes
    }

    /// About how many bytes all that is kept takes.
    pub(super) fn kept_bytes(&self) -> usize {
        self.lock_emitted().bytes
    }

    /// Puts everything together, in order.
    pub(crate) fn outcome(&self, operator: &dyn Operator, keeps_places: bool) -> Result<Outcome> {
        let emitted = std::mem::take(&mut *self.lock_emitted());
        let ports = operator.ports();
        if !self.marks.is_empty() {
            return self.marked_outcome(ports, emitted.of_calls);
        }
        let mut out = Ports::without_rows(ports, self.pass, self.watermark);
        for (number, of_bundle) in emitted.of_rows.into_iter().enumerate() {
            for (port, emitted) in by_port(of_bundle, ports) {
                let Some(ordered) = rows::by_cause(emitted)? else { continue };
                let places = keeps_places.then(|| self.places(number, &ordered.places));
                let before = self.watermark_before(number, &ordered);
                out[port].bundles.push(self.bundle(ordered, places, before));
            }
        }
        for (port, emitted) in by_port(emitted.of_watermark, ports) {
            out[port].bundles.extend(self.made_at_watermark(emitted, keeps_places)?);
        }
        Ok(Outcome { passage: self.passage, ports: out })
    }

    /// Takes what the partitions up to this one have made at the watermark, where no rows led to
    /// results, which come first. Edges do not meet.
    pub(super) fn take_early(&self, last: usize) -> Result<Vec<Bundle>> {
        let mut kept = self.lock_emitted();
        if kept.of_rows.iter().flatten().any(|(_, emitted)| emitted.port == 0) {
            return Ok(Vec::new());
        }
        let is_early = |(cell, emitted): &(usize, Emitted)| *cell <= last && emitted.port == 0;
        let all = std::mem::take(&mut kept.of_watermark);
        let (mut early, others): (Vec<_>, Vec<_>) = all.into_iter().partition(is_early);
        kept.of_watermark = others;
        let early_bytes: usize = early.iter().map(|(_, emitted)| batch_bytes(&emitted.batch)).sum();
        kept.bytes = kept.bytes.saturating_sub(early_bytes);
        drop(kept);
        early.sort_by_key(|&(cell, _)| cell);
        self.made_at_watermark(early.into_iter().map(|(_, emitted)| emitted).collect(), false)
    }

    /// What partitions, in ascending order, have made at the watermark.
    fn made_at_watermark(&self, emitted: Vec<Emitted>, keeps_places: bool) -> Result<Vec<Bundle>> {
        let mut bundles = Vec::new();
        for ordered in rows::by_window_end(emitted)? {
            let rows = ordered.places.len();
            let places = keeps_places.then(|| vec![self.closing_place; rows]);
            let before = WatermarkBefore::All(self.passed_before);
            bundles.extend(in_bundles(self.bundle(ordered, places, before)));
        }
        Ok(bundles)
    }

    /// The rows of the source bundle behind rows that these rows of a bundle caused.
    fn places(&self, bundle: usize, causes: &[i64]) -> Vec<i64> {
        let of_bundle = &self.bundles[bundle].stamps.row_places;
        let place = |&cause: &i64| match of_bundle {
            Some(places) => places.get(cause as usize).copied().unwrap_or(self.closing_place),
            None => cause,
        };
        causes.iter().map(place).collect()
    }

    /// The watermarks before rows that were made of a bundle: changes come behind those of the rows
    /// that cause them.
    fn watermark_before(&self, bundle: usize, ordered: &Ordered) -> WatermarkBefore {
        let causes: Option<Vec<u32>> =
            ordered.places.iter().map(|&cause| u32::try_from(cause).ok()).collect();
        match (&ordered.kinds, causes) {
            (Some(_), Some(rows)) => {
                let of_causes = self.bundles[bundle].stamps.watermark_before.take(&rows);
                of_causes.raised_to(self.passed_before)
            }
            _ => WatermarkBefore::All(self.passed_before),
        }
    }

    fn bundle(
        &self,
        ordered: Ordered,
        places: Option<Vec<i64>>,
        watermark_before: WatermarkBefore,
    ) -> Bundle {
        let stamps = Stamps {
            serial: self.passage.serial,
            ingest_ns: self.passage.ingest_ns,
            watermark_before,
            row_places: places.map(Into::into),
            ..Stamps::first()
        };
        Bundle { batch: ordered.batch, kinds: ordered.kinds, stamps }
    }
}

/// Stamps bundles with their place in the sequence of the stage: aggregates that depend on the
/// order of rows compare it.
pub(super) fn in_sequence(mut bundles: Vec<Bundle>, place: u64) -> Vec<Bundle> {
    for (number, bundle) in bundles.iter_mut().enumerate() {
        bundle.stamps.lane = 0;
        bundle.stamps.epoch = place;
        bundle.stamps.ordinal = number as u64;
    }
    bundles
}

/// What was emitted by each port, partitions in ascending order.
fn by_port(mut emitted: Vec<(usize, Emitted)>, ports: usize) -> Vec<(usize, Vec<Emitted>)> {
    if emitted.is_empty() {
        return Vec::new();
    }
    emitted.sort_by_key(|&(cell, _)| cell);
    let mut of_ports: Vec<(usize, Vec<Emitted>)> =
        (0..ports).map(|port| (port, Vec::new())).collect();
    for (_, emitted) in emitted {
        if let Some((_, of_port)) = of_ports.get_mut(emitted.port) {
            of_port.push(emitted);
        }
    }
    of_ports
}

/// Cuts a large result into bundles that several workers can share.
fn in_bundles(bundle: Bundle) -> Vec<Bundle> {
    let rows = bundle.num_rows();
    if rows <= CLOSING_ROWS_MAX {
        return vec![bundle];
    }
    let piece = |from: usize| {
        let count = CLOSING_ROWS_MAX.min(rows - from);
        let mut part = slice(&bundle, from, count);
        part.stamps.row_places = part.stamps.row_places.map(|places| places.slice(from, count));
        part
    };
    (0..rows).step_by(CLOSING_ROWS_MAX).map(piece).collect()
}
