//! What partitions emit, and where it goes.
//!
//! **Invariant:** results belong to the container that was current when they were made: those of
//! rows to the cell's own outputs, those of a watermark to the barrier's. Late rows (port 1) go to
//! the container that hangs on the one they came from, so they never change their epoch.

use arrow_array::RecordBatch;
use arrow_select::concat::concat_batches;
use thalweg_core::operator::Emitted;
use thalweg_core::{Bundle, Result, Stamps, Watermark, WatermarkBefore};
use thalweg_ordering::sync::Arc;

use super::EpochStage;
use crate::barrier::{Barrier, FEW_ROWS_MAX};
use crate::container::Container;
use crate::stage::CellState;
use crate::topology::WorkerPlace;

/// The largest bundle that is put together from small results.
const COALESCED_ROWS_MAX: usize = 64 * 1024;

impl EpochStage<'_> {
    /// Results of rows, or of the clock: they belong to the epoch that the cell is in.
    pub(crate) fn emit_of_cell(
        &self,
        emitted: Vec<Emitted>,
        state: &CellState,
        from: Option<(usize, &Arc<Container>)>,
        (ingest_ns, serial): (u64, u64),
        worker: WorkerPlace,
    ) -> Result<()> {
        let stamps = derived_stamps(ingest_ns, serial, state.passed, worker);
        self.emit(emitted, &state.outputs, from, &stamps)
    }

    /// Results of a watermark.
    pub(crate) fn emit_of_watermark(
        &self,
        emitted: Vec<Emitted>,
        barrier: &Barrier,
        worker: WorkerPlace,
    ) -> Result<()> {
        if emitted.is_empty() {
            return Ok(());
        }
        let (call, of) = (&barrier.call, barrier.containers());
        let stamps = derived_stamps(call.ingest_ns, call.sequence, call.passed_before, worker);
        let from = of.consumed.as_ref().map(|(lane, container)| (*lane, container));
        self.emit(emitted, &of.outputs, from, &stamps)
    }

    /// Puts what a partition emitted into the containers downstream. Port 0 goes to `outputs`
    /// (one container per main edge), port 1 to the container that hangs on `from`.
    fn emit(
        &self,
        emitted: Vec<Emitted>,
        outputs: &[Arc<Container>],
        from: Option<(usize, &Arc<Container>)>,
        stamps: &Stamps,
    ) -> Result<()> {
        for Emitted { port, batch, kinds, .. } in coalesce(emitted)? {
            let bundle = Bundle { batch, kinds, stamps: stamps.clone() };
            if port == 0 {
                for ((_, edge), output) in self.run.edges_of(0).zip(outputs) {
                    self.deposit(edge, edge.lane_base, output, bundle.clone(), false)?;
                }
                continue;
            }
            let Some((lane, container)) = from else { continue };
            for (place, edge) in self.run.edges_of(port) {
                let linked = self.linked(lane, container, place);
                self.deposit(edge, edge.lane_base + lane, &linked, bundle.clone(), false)?;
            }
        }
        Ok(())
    }
}

/// Stamps for rows that an operator derives.
fn derived_stamps(ingest_ns: u64, serial: u64, passed: Watermark, worker: WorkerPlace) -> Stamps {
    Stamps {
        serial,
        numa_node: worker.numa_node as u16,
        ingest_ns,
        watermark_before: WatermarkBefore::All(passed),
        ..Stamps::first()
    }
}

/// Puts small batches that one call emitted by the same port together, so that a watermark which
/// closes many small windows sends few bundles downstream. Large ones are bundles as they are:
/// copying them costs more than a bundle does. Changelogs keep their batches.
fn coalesce(emitted: Vec<Emitted>) -> Result<Vec<Emitted>> {
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
