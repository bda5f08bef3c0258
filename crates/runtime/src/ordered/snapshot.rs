//! What a stage of the ordered flow is at a cut: how far it has numbered its elements, what lanes
//! of merges have reached, and in `event_time` the rows that wait for those of other inputs.
//!
//! **Invariant:** a cut is an element, so it stands in the sequence of each stage: all elements in
//! front of it have left the stage's merge, and a merge in `arrival`, which waits for no input, has
//! nothing from in front of it. What a merge by time keeps waits for rows that are not there yet,
//! perhaps for long. A snapshot does not wait for them: such rows are part of it. Partitions get
//! nothing from behind the cut before all of them are captured; stateless stages need not wait.
//!
//! Numbers continue where they were, because aggregates that depend on the order of rows compare
//! them.

use thalweg_core::snapshot::{InputState, LaneState, StageState};
use thalweg_core::{Restored, Result, Watermark};
use thalweg_ordering::sync::{Arc, Ordering};

use super::elements::ElementStage;
use super::exit::Exit;
use super::merge::MergeKind;
use super::{Dispatch, OrderedFlow, UNDER_WAY_MAX};
use crate::cut::CutUnderWay;
use crate::sinks;

impl ElementStage<'_> {
    /// The cut leaves the merge in front of the stage.
    pub(super) fn cut_merge(&self, merge: &mut MergeKind) -> Result<()> {
        let (inputs, waiting) = merge.pass_cut()?;
        let cut = self.job.cuts.current();
        let mut at_cut = cut.stage(self.place);
        (at_cut.inputs, at_cut.waiting) = (Some(inputs), waiting);
        Ok(())
    }

    /// The cut goes to the partitions.
    pub(super) fn cut_dispatch(&self, dispatch: &Dispatch) -> Arc<CutUnderWay> {
        let cut = self.job.cuts.current();
        self.note_at_cut(&cut, dispatch.next, (dispatch.watermark, dispatch.passed));
        cut
    }

    /// The cut is about to come to the worklist.
    pub(super) fn cut_stateless(&self) {
        let cut = self.job.cuts.current();
        self.note_at_cut(&cut, self.own.work.added() + 1, (Watermark::MIN, Watermark::MIN));
        self.report_cut(&cut);
    }

    /// The cut has come to a sink, behind all of its rows.
    pub(super) fn cut_sink(&self) -> Result<()> {
        let cut = self.job.cuts.current();
        self.note_at_cut(&cut, 0, (Watermark::MIN, Watermark::MIN));
        sinks::at(self.job, self.place).prepare(&cut)?;
        self.report_cut(&cut);
        Ok(())
    }

    fn note_at_cut(&self, cut: &CutUnderWay, places: u64, (joint, passed): (Watermark, Watermark)) {
        let mut at_cut = cut.stage(self.place);
        at_cut.places = places;
        let only = || {
            let lanes = vec![LaneState { watermark: joint, idle: false }];
            InputState { lanes, ended_at: Watermark::MIN, joint, passed }
        };
        at_cut.inputs.get_or_insert_with(only).passed = passed;
    }
}

impl OrderedFlow {
    /// The next element to be ingested gets this serial.
    pub(crate) fn begin_at(&self, serial: u64) {
        self.serial.store(serial, Ordering::SeqCst);
    }

    /// Bytes of rows that wait in merges for other inputs.
    pub(crate) fn waiting_bytes(&self) -> usize {
        let merges = self.stages.iter().filter_map(|stage| stage.merge.as_ref());
        let bytes =
            merges.map(|(_, merge)| match &*merge.lock().expect("no panic under this lock") {
                MergeKind::Arrival(_) => 0,
                MergeKind::Time(merge) => merge.waiting_bytes(),
            });
        bytes.sum()
    }

    /// A stage resumes where it was. Returns the bytes of rows that wait in front of it again.
    ///
    /// # Errors
    /// If what was saved does not fit.
    pub(crate) fn restore(&mut self, stage: usize, saved: &StageState<Restored>) -> Result<usize> {
        let reorder = self.reorder;
        let stage = &mut self.stages[stage];
        stage.work.begin_at(saved.places);
        stage.routed = Exit::new(reorder, UNDER_WAY_MAX, saved.places);
        stage.exit = Exit::new(reorder, UNDER_WAY_MAX, saved.places);
        let mut dispatch = stage.dispatch.lock().expect("nobody else has the job yet");
        dispatch.next = saved.places;
        let Some(inputs) = &saved.inputs else { return Ok(0) };
        (dispatch.watermark, dispatch.passed) = (inputs.joint, inputs.passed);
        let Some((_, merge)) = &stage.merge else { return Ok(0) };
        match &mut *merge.lock().expect("nobody else has the job yet") {
            MergeKind::Arrival(merge) => merge.restore(inputs).map(|()| 0),
            MergeKind::Time(merge) => merge.restore(inputs, &saved.waiting),
        }
    }
}
