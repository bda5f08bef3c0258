//! Small results of an operator become one bundle.
//!
//! What each partition makes of its share of a bundle, or of a watermark, may be a handful of rows.
//! As bundles of their own they would be scattered by the next operator once more, into as many
//! pieces as the product of both numbers of partitions, and each of them would wake a sink. So
//! results wait here until the last share of a bundle is done, until all partitions have taken a
//! watermark, or until there are many; then all that wait leave, joined.
//!
//! # Protocol
//! - A partition adds what it has made before its share counts as done
//!   ([`WaitingResults::add`]).
//! - Whoever finishes the last share of any bundle sends what waits, if some of it is of rows, and
//!   lets the bundle count as consumed afterwards. Whoever completes a watermark sends what waits
//!   for its output containers and closes them afterwards.
//! - What is too large or too much to wait is added as well, and sent at once: it never overtakes
//!   older results of its partition.
//!
//! **Invariants:**
//! - Results of a partition leave in the order in which it made them: they are taken out under
//!   `sending`, which is held until they are in their container.
//! - Nothing waits for a container that is closed. A partition adds what it makes in front of a
//!   watermark before it counts the watermark down, so whoever completes that finds it here, or
//!   waits until whoever is sending it has done so.
//!
//! A share that takes long holds up results of the bundles behind it at most until another bundle
//! is done. `sending` is taken downstream only, so two operators never wait for each other.

use arrow_array::RecordBatch;
use arrow_select::concat::concat_batches;
use thalweg_core::{Bundle, Result, RowKind, WatermarkBefore};
use thalweg_ordering::sync::{Arc, Mutex, MutexGuard};

use crate::container::Container;

/// A batch of this many rows is a bundle as it is: copying it costs more than a bundle does.
const SMALL_ROWS_MAX: usize = 1024;
/// No more rows wait than this.
const WAITING_ROWS_MAX: usize = 16 * 1024;
/// The same for bytes.
const WAITING_BYTES_MAX: usize = 1 << 20;
/// The largest bundle that is put together.
const JOINED_ROWS_MAX: usize = 64 * 1024;

/// Rows for the containers at the main edges of an operator.
pub(super) struct WaitingResult {
    pub(super) made_of: MadeOf,
    /// One container for each main edge.
    pub(super) outputs: Vec<Arc<Container>>,
    pub(super) bundle: Bundle,
}

/// What results are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MadeOf {
    /// A share of a bundle, or a call of the clock.
    Rows,
    /// A watermark.
    Watermark,
}

#[derive(Default)]
struct Waiting {
    results: Vec<WaitingResult>,
    /// About how many bytes they take, or more.
    bytes: usize,
}

/// Results of an operator's partitions that have yet to leave.
#[derive(Default)]
pub struct WaitingResults {
    waiting: Mutex<Waiting>,
    /// Held by whoever sends.
    sending: Mutex<()>,
}

impl WaitingResults {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().expect("no panic under this lock")
    }

    /// Adds what a partition has made, which takes about this many bytes. True if all is to be sent
    /// now.
    pub(super) fn add(&self, results: Vec<WaitingResult>, bytes: usize) -> bool {
        let mut waiting = self.lock();
        waiting.bytes += bytes;
        waiting.results.extend(results);
        let rows = || waiting.results.iter().map(|result| result.bundle.num_rows());
        waiting.bytes >= WAITING_BYTES_MAX
            || rows().any(|rows| rows >= SMALL_ROWS_MAX)
            || rows().sum::<usize>() >= WAITING_ROWS_MAX
    }

    /// True if some of what waits is of rows: what is of a watermark waits for the others of it.
    pub(super) fn has_of_rows(&self) -> bool {
        self.lock().results.iter().any(|result| result.made_of == MadeOf::Rows)
    }

    /// Sends what waits for these containers, or all, small ones joined.
    pub(super) fn send(
        &self,
        outputs: Option<&[Arc<Container>]>,
        mut send: impl FnMut(WaitingResult) -> Result<()>,
    ) -> Result<()> {
        let _sending = self.sending.lock().expect("a failed job sends no more");
        let mut waiting = self.lock();
        let all = std::mem::take(&mut waiting.results);
        let is_meant =
            |result: &WaitingResult| outputs.is_none_or(|outputs| result.goes_to(outputs));
        let (due, others) = all.into_iter().partition(is_meant);
        waiting.results = others;
        if waiting.results.is_empty() {
            waiting.bytes = 0;
        }
        drop(waiting);
        joined(due)?.into_iter().try_for_each(&mut send)
    }
}

impl WaitingResult {
    fn goes_to(&self, outputs: &[Arc<Container>]) -> bool {
        let own = &self.outputs;
        own.len() == outputs.len() && own.iter().zip(outputs).all(|(a, b)| Arc::ptr_eq(a, b))
    }
}

/// Results that leave as one bundle.
struct Joining {
    results: Vec<WaitingResult>,
    rows: usize,
}

impl Joining {
    fn of(first: WaitingResult) -> Self {
        let rows = first.bundle.num_rows();
        Joining { results: vec![first], rows }
    }

    fn has_room_for(&self, next: &Bundle) -> bool {
        let last = &self.results[self.results.len() - 1].bundle;
        last.num_rows().max(next.num_rows()) < SMALL_ROWS_MAX
            && self.rows + next.num_rows() <= JOINED_ROWS_MAX
            && last.kinds.is_some() == next.kinds.is_some()
    }

    fn finish(mut self) -> Result<WaitingResult> {
        if self.results.len() == 1 {
            return Ok(self.results.swap_remove(0));
        }
        let bundles = || self.results.iter().map(|result| &result.bundle);
        let batches: Vec<&RecordBatch> = bundles().map(|bundle| &bundle.batch).collect();
        let batch = concat_batches(batches[0].schema_ref(), batches)?;
        let of_rows =
            |bundle: &Bundle| bundle.kinds.iter().flat_map(|kinds| kinds.to_vec()).collect();
        let kinds: Vec<Vec<RowKind>> = bundles().map(of_rows).collect();
        let watermark_before = joined_watermarks(bundles());
        let ingest_ns = bundles().map(|bundle| bundle.stamps.ingest_ns).max();
        let WaitingResult { made_of, outputs, mut bundle } = self.results.swap_remove(0);
        bundle.batch = batch;
        bundle.kinds = bundle.kinds.map(|_| kinds.concat().into());
        bundle.stamps.watermark_before = watermark_before;
        bundle.stamps.ingest_ns = ingest_ns.expect("there are several");
        Ok(WaitingResult { made_of, outputs, bundle })
    }
}

/// Puts small results for the same containers together, in their order.
fn joined(results: Vec<WaitingResult>) -> Result<Vec<WaitingResult>> {
    let mut together: Vec<Joining> = Vec::new();
    for next in results {
        // Behind the last one for these containers; those for others have no order with it.
        match together.iter_mut().rfind(|joining| joining.results[0].goes_to(&next.outputs)) {
            Some(joining) if joining.has_room_for(&next.bundle) => {
                joining.rows += next.bundle.num_rows();
                joining.results.push(next);
            }
            _ => together.push(Joining::of(next)),
        }
    }
    together.into_iter().map(Joining::finish).collect()
}

/// The watermark before each row of several bundles.
fn joined_watermarks<'a>(bundles: impl Iterator<Item = &'a Bundle> + Clone) -> WatermarkBefore {
    let befores = bundles.clone().map(|bundle| &bundle.stamps.watermark_before);
    if let Some(watermark) = WatermarkBefore::one_of(befores) {
        return WatermarkBefore::All(watermark);
    }
    let rows = |bundle: &'a Bundle| {
        (0..bundle.num_rows()).map(|row| bundle.stamps.watermark_before.at(row).0)
    };
    WatermarkBefore::Rows(bundles.flat_map(rows).collect())
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use arrow_array::cast::AsArray;
    use arrow_array::types::Int64Type;
    use arrow_array::{ArrayRef, Int64Array};
    use thalweg_core::{Stamps, Watermark};

    use super::*;

    fn result(output: &Arc<Container>, numbers: std::ops::Range<i64>) -> WaitingResult {
        let column = Arc::new(Int64Array::from_iter_values(numbers)) as ArrayRef;
        let batch = RecordBatch::try_from_iter([("n", column)]).expect("one column");
        let bundle = Bundle::new(batch, Stamps::first());
        let outputs = vec![Arc::clone(output)];
        WaitingResult { made_of: MadeOf::Rows, outputs, bundle }
    }

    fn with_kinds(mut result: WaitingResult, kind: RowKind, before: Watermark) -> WaitingResult {
        result.bundle.kinds = Some(vec![kind; result.bundle.num_rows()].into());
        result.bundle.stamps.watermark_before = WatermarkBefore::All(before);
        result
    }

    /// Index of the container, and numbers, of each bundle that is sent.
    fn sent(results: &WaitingResults) -> Vec<(u64, Vec<i64>)> {
        let sent = RefCell::new(Vec::new());
        let note = |WaitingResult { outputs, bundle, .. }: WaitingResult| {
            let numbers = bundle.batch.column(0).as_primitive::<Int64Type>().values().to_vec();
            sent.borrow_mut().push((outputs[0].index, numbers));
            Ok(())
        };
        results.send(None, note).expect("batches of one schema");
        sent.into_inner()
    }

    fn containers() -> [Arc<Container>; 2] {
        [0, 1].map(|index| Arc::new(Container::new((index, 0), 0, 1)))
    }

    #[test]
    fn small_results_for_one_container_leave_as_one_bundle() {
        let (results, [first, second]) = (WaitingResults::default(), containers());
        assert!(!results.add(vec![result(&first, 0..2), result(&first, 2..4)], 0));
        assert!(!results.add(vec![result(&second, 10..12)], 0));
        assert!(!results.add(vec![result(&first, 4..5)], 0));
        assert_eq!(sent(&results), [(0, vec![0, 1, 2, 3, 4]), (1, vec![10, 11])]);
        assert!(sent(&results).is_empty(), "sent once");
    }

    #[test]
    fn a_large_result_goes_as_it_is_behind_older_ones() {
        let (results, [output, _]) = (WaitingResults::default(), containers());
        let large = SMALL_ROWS_MAX as i64;
        assert!(!results.add(vec![result(&output, 0..2)], 0));
        assert!(results.add(vec![result(&output, 0..large)], 0));
        assert!(results.add(vec![result(&output, 2..3)], 0), "it has not been sent yet");
        let rows: Vec<usize> = sent(&results).iter().map(|(_, rows)| rows.len()).collect();
        assert_eq!(rows, [2, SMALL_ROWS_MAX, 1]);
    }

    #[test]
    fn results_of_a_watermark_wait_for_others_of_it() {
        let (results, [output, _]) = (WaitingResults::default(), containers());
        let of_watermark = WaitingResult { made_of: MadeOf::Watermark, ..result(&output, 0..2) };
        results.add(vec![of_watermark], 0);
        assert!(!results.has_of_rows());
        results.add(vec![result(&output, 2..3)], 0);
        assert!(results.has_of_rows());
        assert_eq!(sent(&results), [(0, vec![0, 1, 2])]);
        assert!(!results.has_of_rows());
    }

    #[test]
    fn those_for_other_containers_may_stay() {
        let (results, [first, second]) = (WaitingResults::default(), containers());
        results.add(vec![result(&second, 0..2), result(&first, 2..3)], 0);
        let mut rows = Vec::new();
        let note = |result: WaitingResult| {
            rows.push(result.bundle.num_rows());
            Ok(())
        };
        results.send(Some(&[first]), note).expect("batches of one schema");
        assert_eq!(rows, [1]);
        assert_eq!(sent(&results), [(1, vec![0, 1])]);
    }

    #[test]
    fn much_does_not_wait() {
        let (results, [output, _]) = (WaitingResults::default(), containers());
        let of_call = || vec![result(&output, 0..1000)];
        let calls = (1..).find(|_| results.add(of_call(), 0));
        assert_eq!(calls, Some(17), "16 Ki rows");
        assert_eq!(sent(&results).len(), 1);
        assert!(!results.add(of_call(), 1000));
        assert!(results.add(of_call(), WAITING_BYTES_MAX));
    }

    #[test]
    fn changes_keep_their_kinds_and_watermarks() {
        let (results, [output, _]) = (WaitingResults::default(), containers());
        let (old, new) = (Watermark(5), Watermark(7));
        let first = with_kinds(result(&output, 0..1), RowKind::Delete, old);
        let second = with_kinds(result(&output, 1..3), RowKind::Insert, new);
        let third = result(&output, 3..4);
        results.add(vec![first, second, third], 0);
        let mut bundles = Vec::new();
        results
            .send(None, |result| {
                bundles.push(result.bundle);
                Ok(())
            })
            .expect("batches of one schema");
        let [changes, rows] = &bundles[..] else { panic!("rows without kinds stand alone") };
        let kinds = [RowKind::Delete, RowKind::Insert, RowKind::Insert];
        assert_eq!(changes.kinds.as_deref(), Some(&kinds[..]));
        let before: Vec<Watermark> =
            (0..3).map(|row| changes.stamps.watermark_before.at(row)).collect();
        assert_eq!(before, [old, new, new]);
        assert_eq!((rows.num_rows(), rows.kinds.is_none()), (1, true));
    }
}
