//! The order in which a sink gets its rows: container after container, and within one by ordinal.

use thalweg_core::{Bundle, Result, Watermark};
use thalweg_ordering::sync::{Arc, Ordering};

use super::EpochStage;
use crate::container::{Container, ContainerState};
use crate::sinks;
use crate::stage::{SinkBatch, SinkMessage, SinkRun};

impl EpochStage<'_> {
    /// Rows have come; whatever is next in the lane goes to the sink.
    pub(super) fn offer_to_sink(
        &self,
        sink: &SinkRun,
        lane: usize,
        container: &Arc<Container>,
        bundle: Bundle,
        bytes: usize,
    ) -> Result<()> {
        let Bundle { batch, kinds, stamps } = bundle;
        let rows = SinkBatch { bytes, ingest_ns: stamps.ingest_ns, batch, kinds };
        let mut sequencer = sink.sequencers[lane].lock().expect("no panic under this lock");
        sequencer.early.insert((container.index, stamps.ordinal), rows);
        drop(sequencer);
        self.let_through_sink(sink, lane)
    }

    /// Hands to the sink's thread whatever is next in the lane.
    pub(super) fn let_through_sink(&self, sink: &SinkRun, lane: usize) -> Result<()> {
        let to = sinks::at(self.job, self.place);
        let mut sequencer = sink.sequencers[lane].lock().expect("no panic under this lock");
        while let Some(container) = self.run.lanes[lane].at_or_after(sequencer.container) {
            if let Some(rows) = sequencer.next(container.index) {
                self.count_in(rows.batch.num_rows());
                to.send(SinkMessage::Rows(rows))?;
                // The loop looks at the state itself, whoever is last.
                let _ = container.consume_one();
                continue;
            }
            let state = container.state();
            if state == ContainerState::Open || container.total() != sequencer.ordinal {
                break;
            }
            let ends = state == ContainerState::WatermarkAssigned && container.retrieve();
            if ends {
                self.run.metrics.set_watermark(container.end());
                container.mark_consumed();
            }
            self.drop_finished(lane)?;
            sequencer.finish_container();
            let is_last = ends && container.end() == Watermark::END;
            // AcqRel: the lane that ends last sees that the others have sent all they had.
            if is_last && sink.open_lanes.fetch_sub(1, Ordering::AcqRel) == 1 {
                to.send(SinkMessage::Finish)?;
            }
        }
        Ok(())
    }
}
