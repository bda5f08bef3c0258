//! What the ordered flow is at a cut: how far each stage has numbered its elements, what lanes of
//! merges have reached, and in `event_time` the rows that wait for those of other inputs.
//!
//! **Invariant:** at a cut every element that was ingested has gone through every stage that it
//! could; so reorder buffers, worklists and dispatches are empty, and a merge in `arrival`, which
//! waits for no input, has nothing. What a merge by time keeps waits for rows that are not there
//! yet, perhaps for long. A snapshot does not wait for them: such rows are part of it.
//!
//! Numbers continue where they were, because aggregates that depend on the order of rows compare
//! them.

use thalweg_core::snapshot::{InputState, LaneState, StageState};
use thalweg_core::{Captured, Restored, Result, Watermark};
use thalweg_ordering::sync::Ordering;

use super::exit::Exit;
use super::merge::MergeKind;
use super::{OrderedFlow, UNDER_WAY_MAX};

impl OrderedFlow {
    /// Elements ingested so far.
    pub(crate) fn serial(&self) -> u64 {
        self.serial.load(Ordering::SeqCst)
    }

    /// The next element to be ingested gets this serial.
    pub(crate) fn begin_at(&self, serial: u64) {
        self.serial.store(serial, Ordering::SeqCst);
    }

    /// Elements that a stage has numbered so far.
    pub(crate) fn places(&self, stage: usize) -> u64 {
        let stage = &self.stages[stage];
        let dispatch = stage.dispatch.lock().expect("no panic under this lock");
        stage.work.added().max(dispatch.next)
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

    /// What a stage knows of its inputs.
    pub(crate) fn input_state(&self, stage: usize) -> Option<InputState> {
        let stage = &self.stages[stage];
        let dispatch = stage.dispatch.lock().expect("no panic under this lock");
        let (joint, passed) = (dispatch.watermark, dispatch.passed);
        let Some((_, merge)) = &stage.merge else {
            let lanes = vec![LaneState { watermark: joint, idle: false }];
            return Some(InputState { lanes, ended_at: Watermark::MIN, joint, passed });
        };
        Some(match &*merge.lock().expect("no panic under this lock") {
            MergeKind::Arrival(merge) => merge.input_state(passed),
            MergeKind::Time(merge) => merge.input_state(passed),
        })
    }

    /// The rows that wait in front of a stage, if inputs are merged by time there.
    pub(crate) fn capture_waiting(&self, stage: usize) -> Result<Option<Captured>> {
        let Some((_, merge)) = &self.stages[stage].merge else { return Ok(None) };
        match &*merge.lock().expect("no panic under this lock") {
            MergeKind::Arrival(_) => Ok(None),
            MergeKind::Time(merge) => merge.capture().map(Some),
        }
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
