//! The sink of the benchmark: counts rows, and on request adds up a number that stands for the
//! result.
//!
//! The number is the sum of a hash of each row, minus the hashes of rows that are retracted. Sums
//! have no order, so it depends on what is left of the result and not on how it came about.

use std::sync::{Arc, Mutex};

use arrow_array::RecordBatch;
use thalweg_core::shim::mix64;
use thalweg_core::{Result, RowKind, Sink};
use thalweg_operators::keys::hash_keys;

/// What has come so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    /// Rows that take another one back.
    pub(super) retracted: u64,
    /// `None` unless it was asked for.
    pub(super) fingerprint: Option<u64>,
}

/// Counts that a sink and its owner share.
#[derive(Clone)]
pub(super) struct Tally(Arc<Mutex<Counts>>);

impl Tally {
    /// Nothing so far.
    pub(super) fn new(has_fingerprint: bool) -> Tally {
        let fingerprint = has_fingerprint.then_some(0);
        Tally(Arc::new(Mutex::new(Counts { retracted: 0, fingerprint })))
    }

    /// What has come so far.
    pub(super) fn counts(&self) -> Counts {
        *self.0.lock().expect("no panic under this lock")
    }

    /// A sink that counts here.
    pub(super) fn sink(&self) -> impl Sink + 'static {
        TallySink(self.clone())
    }
}

fn is_retracted(kind: RowKind) -> bool {
    matches!(kind, RowKind::UpdateBefore | RowKind::Delete)
}

/// The hashes of the rows, those of rows that are retracted subtracted.
fn sum_of_hashes(batch: &RecordBatch, kinds: Option<&[RowKind]>) -> Result<u64> {
    let hashes = hash_keys(batch.columns(), batch.num_rows())?;
    // Mixed once more: the hash of a single key is not meant to be added up.
    let hashes = hashes.into_iter().map(mix64);
    Ok(match kinds {
        None => hashes.fold(0, u64::wrapping_add),
        Some(kinds) => hashes.zip(kinds).fold(0, |sum, (hash, &kind)| {
            if is_retracted(kind) { sum.wrapping_sub(hash) } else { sum.wrapping_add(hash) }
        }),
    })
}

struct TallySink(Tally);

impl Sink for TallySink {
    fn name(&self) -> String {
        "tally".to_owned()
    }
    fn write(&mut self, batch: &RecordBatch, kinds: Option<&[RowKind]>) -> Result<()> {
        let mut counts = self.0.0.lock().expect("no panic under this lock");
        let retracted = kinds.unwrap_or_default().iter().filter(|&&kind| is_retracted(kind));
        counts.retracted += retracted.count() as u64;
        if let Some(before) = counts.fingerprint {
            counts.fingerprint = Some(before.wrapping_add(sum_of_hashes(batch, kinds)?));
        }
        Ok(())
    }
    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
    fn abort(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{ArrayRef, Int64Array};

    fn numbers(values: &[i64]) -> RecordBatch {
        let column: ArrayRef = Arc::new(Int64Array::from(values.to_vec()));
        RecordBatch::try_from_iter([("n", column)]).expect("one column")
    }

    #[test]
    fn only_what_is_left_matters() {
        let of = |batches: &[(&[i64], Option<&[RowKind]>)]| {
            let tally = Tally::new(true);
            let mut sink = tally.sink();
            for (values, kinds) in batches {
                sink.write(&numbers(values), *kinds).expect("writes");
            }
            tally.counts()
        };
        let (insert, before) = (RowKind::Insert, RowKind::UpdateBefore);
        let changes = of(&[(&[7, 1], None), (&[7, 2], Some(&[before, insert]))]);
        assert_eq!(changes.retracted, 1);
        assert_eq!(changes.fingerprint, of(&[(&[2, 1], None)]).fingerprint);
        assert_ne!(changes.fingerprint, of(&[(&[3, 0], None)]).fingerprint);
    }
}
