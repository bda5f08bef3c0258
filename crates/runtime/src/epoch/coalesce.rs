//! Small results of one call become one bundle.

use arrow_array::RecordBatch;
use arrow_select::concat::concat_batches;
use thalweg_core::Result;
use thalweg_core::operator::Emitted;

use crate::barrier::FEW_ROWS_MAX;

/// The largest bundle that is put together from small results.
const COALESCED_ROWS_MAX: usize = 64 * 1024;

/// Puts small batches that one call emitted by the same port together, so that a watermark which
/// closes many small windows sends few bundles downstream. Large ones are bundles as they are:
/// copying them costs more than a bundle does. Changelogs keep their batches.
pub(super) fn coalesce(emitted: Vec<Emitted>) -> Result<Vec<Emitted>> {
    let mut together: Vec<(Emitted, Vec<RecordBatch>)> = Vec::new();
    for next in emitted {
        let rows_of =
            |batches: &[RecordBatch]| -> usize { batches.iter().map(RecordBatch::num_rows).sum() };
        match together.iter_mut().rfind(|(first, _)| first.port == next.port) {
            Some((first, batches))
                if first.kinds.is_none()
                    && next.kinds.is_none()
                    && first.batch.num_rows().max(next.batch.num_rows()) < FEW_ROWS_MAX
                    && next.batch.num_rows() + rows_of(batches) <= COALESCED_ROWS_MAX =>
            {
                batches.push(next.batch);
            }
            _ => {
                let batches = vec![next.batch.clone()];
                together.push((next, batches));
            }
        }
    }
    let join = |(mut first, batches): (Emitted, Vec<RecordBatch>)| {
        if batches.len() > 1 {
            first.batch = concat_batches(batches[0].schema_ref(), &batches)?;
        }
        Ok(first)
    };
    together.into_iter().map(join).collect()
}
