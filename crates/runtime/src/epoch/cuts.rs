//! The cut of a snapshot at a stage of the flow of `epoch` that has something to report: an
//! operator or a sink.
//!
//! A cut comes by each lane as the end of a container, behind everything that the lane brought
//! before it. A lane that has reached it is held: what is behind waits in its containers. When all
//! lanes of the stage have reached it, an operator sends it to its partitions, as a watermark, and
//! a sink's thread gets the mark. Then the lanes continue.
//!
//! **Invariants:**
//! - nothing of a stage is captured before all that came in front of the cut is done there, and
//!   nothing from behind it is done before all of the stage is captured;
//! - what an operator makes of the one side goes into other containers than what it makes of the
//!   other: at the cut its outputs are closed, and new ones begun.

use thalweg_core::Result;
use thalweg_ordering::sync::Arc;

use super::EpochStage;
use crate::barrier::Moves;
use crate::container::Container;
use crate::cut::CutUnderWay;
use crate::metrics::BlockedBy;
use crate::sinks;
use crate::stage::SinkRun;

impl EpochStage<'_> {
    /// A lane has reached the cut, with the container that it ends.
    pub(super) fn reach_cut(&self, lane: usize, container: Arc<Container>) -> Result<()> {
        let mut reached = self.run.at_cut.lock().expect("no panic under this lock");
        reached.push((lane, container));
        // What comes behind it by this lane waits until the stage is captured.
        self.run.metrics.blocked.begin(BlockedBy::Cut, || self.job.now_ns());
        if reached.len() < self.run.lanes.len() {
            return Ok(());
        }
        let reached = std::mem::take(&mut *reached);
        match self.run.sink() {
            Some(sink) => self.cut_sink(sink, reached),
            None => {
                self.cut_partitions(reached);
                Ok(())
            }
        }
    }

    /// Sends the cut to the partitions.
    fn cut_partitions(&self, reached: Vec<(usize, Arc<Container>)>) {
        let cut = self.job.cuts.current();
        let mut joint = self.operator().joint.lock().expect("no panic under the joint lock");
        cut.stage(self.place).inputs = Some(self.joint_state(&joint));
        let now_ns = self.job.now_ns();
        self.begin_barrier(&mut joint, reached, now_ns, Moves::Cut(cut));
    }

    /// All partitions are captured.
    pub(super) fn pass_cut(&self, cut: &CutUnderWay) {
        self.run.lanes.iter().for_each(|lane| lane.let_cut_through());
        self.report_cut(cut);
        // Any bundle of any lane may be claimed now.
        self.job.news.notify_all();
    }

    /// Sends the mark to a sink's thread, behind the rows of all lanes.
    fn cut_sink(&self, sink: &SinkRun, reached: Vec<(usize, Arc<Container>)>) -> Result<()> {
        let cut = self.job.cuts.current();
        cut.stage(self.place).inputs = Some(self.lanes_state(sink));
        sinks::at(self.job, self.place).prepare(&cut)?;
        for (lane, container) in &reached {
            self.finish_container(*lane, container)?;
            let mut sequencer = sink.sequencers[*lane].lock().expect("no panic under this lock");
            sequencer.finish_container();
            sequencer.held = false;
        }
        self.report_cut(&cut);
        reached.iter().try_for_each(|&(lane, _)| self.let_through_sink(sink, lane))
    }
}
