//! Taps: people look at rows on their way from stage to stage.
//!
//! An edge has a flag, which is read once for each bundle. While it is set, the head of each bundle
//! is offered to bounded queues: a slice that shares its columns with the bundle. A worker never
//! waits there: where a queue is full, or a person comes or goes at the moment, rows pass unseen.
//!
//! **Invariant:** what a tap keeps is bounded by [`TAKEN_BUNDLES_MAX`] and [`TAKEN_BYTES_MAX`], and
//! one bundle more.

use std::collections::VecDeque;

use arrow_array::RecordBatch;
use thalweg_core::{Bundle, RowKind, WatermarkBefore};
use thalweg_ordering::sync::{Arc, AtomicBool, AtomicU64, Mutex, Ordering};

/// Rows of a bundle that are shown.
const HEAD_ROWS: usize = 64;
/// Bundles that wait until a person looks.
const TAKEN_BUNDLES_MAX: usize = 16;
/// Bytes of the bundles whose heads wait: a head keeps all of its bundle alive.
const TAKEN_BYTES_MAX: usize = 8 << 20;

/// The head of a bundle on its way from a stage to another.
pub struct TappedRows {
    /// The place of the stage that it comes from.
    pub from: usize,
    /// The place of the stage that it goes to.
    pub to: usize,
    /// The rows.
    pub batch: RecordBatch,
    /// The kinds of at least these rows, in a changelog.
    pub kinds: Option<Arc<[RowKind]>>,
    /// The watermark before each row.
    pub watermark_before: WatermarkBefore,
    /// Bytes of its bundle.
    bytes: usize,
}

/// Where rows pass that a person may look at.
#[derive(Default)]
pub(crate) struct EdgeTap {
    is_set: AtomicBool,
    /// From and to which stage, with the queue.
    queues: Mutex<Vec<(usize, usize, Arc<TapQueue>)>>,
}

/// What waits for a person who looks.
#[derive(Default)]
pub(crate) struct TapQueue {
    taken: Mutex<Taken>,
    seen_rows: AtomicU64,
}

/// What waits until a person looks.
#[derive(Default)]
struct Taken {
    heads: VecDeque<TappedRows>,
    bytes: usize,
}

impl std::fmt::Debug for EdgeTap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EdgeTap").field("is_set", &self.is_set).finish_non_exhaustive()
    }
}

impl EdgeTap {
    /// Bundles pass.
    #[inline]
    pub fn pass(&self, bundles: &[Bundle]) {
        // Relaxed: whoever has just come sees the next bundle.
        if self.is_set.load(Ordering::Relaxed) {
            self.show(bundles);
        }
    }

    #[cold]
    fn show(&self, bundles: &[Bundle]) {
        let Ok(queues) = self.queues.try_lock() else { return };
        for (from, to, queue) in &*queues {
            bundles.iter().for_each(|bundle| queue.offer(*from, *to, bundle));
        }
    }

    /// Rows are offered to this queue from now on.
    pub fn add(&self, from: usize, to: usize, queue: &Arc<TapQueue>) {
        let mut queues = self.queues.lock().expect("no panic under this lock");
        queues.push((from, to, Arc::clone(queue)));
        self.is_set.store(true, Ordering::Relaxed);
    }

    /// Nothing more is offered to this queue.
    pub fn remove(&self, queue: &Arc<TapQueue>) {
        let mut queues = self.queues.lock().expect("no panic under this lock");
        queues.retain(|(_, _, other)| !Arc::ptr_eq(other, queue));
        self.is_set.store(!queues.is_empty(), Ordering::Relaxed);
    }
}

impl TapQueue {
    /// How many rows have passed.
    pub fn seen_rows(&self) -> u64 {
        self.seen_rows.load(Ordering::Relaxed)
    }

    fn offer(&self, from: usize, to: usize, bundle: &Bundle) {
        let rows = bundle.num_rows();
        self.seen_rows.fetch_add(rows as u64, Ordering::Relaxed);
        let Ok(mut taken) = self.taken.try_lock() else { return };
        let is_full = taken.heads.len() >= TAKEN_BUNDLES_MAX || taken.bytes >= TAKEN_BYTES_MAX;
        if rows == 0 || is_full {
            return;
        }
        let head = rows.min(HEAD_ROWS);
        let bytes = bundle.memory_bytes();
        let watermark_before = match &bundle.stamps.watermark_before {
            WatermarkBefore::All(watermark) => WatermarkBefore::All(*watermark),
            WatermarkBefore::Rows(rows) => WatermarkBefore::Rows(rows.slice(0, head)),
        };
        let batch = bundle.batch.slice(0, head);
        let kinds = bundle.kinds.clone();
        taken.bytes += bytes;
        taken.heads.push_back(TappedRows { from, to, batch, kinds, watermark_before, bytes });
    }

    /// The oldest rows that were not taken yet.
    pub fn take(&self) -> Option<TappedRows> {
        let mut taken = self.taken.lock().expect("no panic under this lock");
        let oldest = taken.heads.pop_front()?;
        taken.bytes -= oldest.bytes;
        Some(oldest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::Int64Array;
    use thalweg_core::{Stamps, Watermark};

    fn bundle(rows: i64) -> Bundle {
        let numbers = Int64Array::from_iter_values(0..rows);
        let batch = RecordBatch::try_from_iter([("n", Arc::new(numbers) as _)]).expect("a batch");
        let watermark_before = WatermarkBefore::Rows((0..rows).collect());
        Bundle::new(batch, Stamps { watermark_before, ..Stamps::first() })
    }

    fn waiting(queue: &TapQueue) -> usize {
        queue.taken.lock().expect("no panic under this lock").heads.len()
    }

    #[test]
    fn the_head_of_a_bundle_is_shown_with_the_watermark_before_each_row() {
        let (edge, queue) = (EdgeTap::default(), Arc::<TapQueue>::default());
        edge.pass(&[bundle(3)]);
        edge.add(1, 2, &queue);
        edge.pass(&[bundle(0), bundle(1_000)]);
        let shown = queue.take().expect("rows");
        assert_eq!((shown.from, shown.to, shown.batch.num_rows()), (1, 2, HEAD_ROWS));
        assert_eq!(shown.watermark_before.at(HEAD_ROWS - 1), Watermark(HEAD_ROWS as i64 - 1));
        assert!(queue.take().is_none(), "nothing of the empty one, or before");
        assert_eq!(queue.seen_rows.load(Ordering::Relaxed), 1_000);
        edge.remove(&queue);
        edge.pass(&[bundle(1)]);
        assert_eq!(queue.seen_rows.load(Ordering::Relaxed), 1_000);
        assert!(!edge.is_set.load(Ordering::Relaxed));
    }

    #[test]
    fn nobody_who_looks_keeps_more_than_a_few_bundles() {
        let (slow, quick, large) = <[Arc<TapQueue>; 3]>::default().into();
        let edge = EdgeTap::default();
        edge.add(0, 1, &slow);
        edge.add(0, 1, &quick);
        for _ in 0..100 {
            edge.pass(&[bundle(10)]);
            assert!(quick.take().is_some());
        }
        assert_eq!(waiting(&slow), TAKEN_BUNDLES_MAX);
        assert_eq!(slow.seen_rows.load(Ordering::Relaxed), 1_000);
        edge.add(0, 1, &large);
        for _ in 0..4 {
            edge.pass(&[bundle((TAKEN_BYTES_MAX / 8) as i64)]);
        }
        assert_eq!(waiting(&large), 1, "its bundle takes all the room that there is");
    }
}
