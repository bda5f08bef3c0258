//! The stages of a running job: the graph as it runs.
//!
//! **Invariant:** stages stand in topological order: every edge leads to a later one. So whoever
//! walks forward sees what is upstream first, and locks taken in this order have no circle.

use std::ops::{Deref, DerefMut};

use thalweg_core::Watermark;
use thalweg_ordering::sync::Ordering;

use crate::stage::{OperatorRun, SinkRun, SourceRun, StageRun, StageRunKind};

/// A sink with more messages in front of it does not keep up.
const MESSAGES_AT_QUICK_SINK_MAX: usize = 4;

/// The stages of a job.
pub(crate) struct Stages {
    list: Vec<StageRun>,
    /// The places of the sources.
    sources: Vec<usize>,
}

impl Deref for Stages {
    type Target = [StageRun];
    fn deref(&self) -> &[StageRun] {
        &self.list
    }
}

impl DerefMut for Stages {
    fn deref_mut(&mut self) -> &mut [StageRun] {
        &mut self.list
    }
}

impl Stages {
    /// Stages in topological order.
    pub(crate) fn new(list: Vec<StageRun>) -> Self {
        let is_source = |&place: &usize| matches!(list[place].kind, StageRunKind::Source(_));
        let sources = (0..list.len()).filter(is_source).collect();
        Stages { list, sources }
    }

    /// The places of the sources.
    pub(crate) fn source_places(&self) -> &[usize] {
        &self.sources
    }

    /// The sources with their places.
    pub(crate) fn sources(&self) -> impl Iterator<Item = (usize, &SourceRun)> {
        self.sources.iter().filter_map(|&place| Some((place, self.list[place].source()?)))
    }

    /// The operators with their places.
    pub(crate) fn operators(&self) -> impl Iterator<Item = (usize, &OperatorRun)> {
        let stages = self.list.iter().enumerate();
        stages.filter_map(|(place, stage)| Some((place, stage.operator()?)))
    }

    /// The sinks with their places.
    pub(crate) fn sinks(&self) -> impl Iterator<Item = (usize, &SinkRun)> {
        let stages = self.list.iter().enumerate();
        stages.filter_map(|(place, stage)| Some((place, stage.sink()?)))
    }

    /// Nobody needs more from a stage: it and whatever feeds nothing else are ended, and sources
    /// among them are called to close with the last watermark.
    pub(crate) fn end(&self, stage: usize) {
        self.list[stage].ended.store(true, Ordering::SeqCst);
        for run in self.list[..stage].iter().rev() {
            let is_ended = |to: usize| self.list[to].ended.load(Ordering::SeqCst);
            if !run.edges.is_empty() && run.edges.iter().all(|edge| is_ended(edge.to.0)) {
                run.ended.store(true, Ordering::SeqCst);
                if let Some(source) = run.source() {
                    source.ready.store(true, Ordering::SeqCst);
                }
            }
        }
    }

    /// True if nothing waits in front of any stage, and no cell has an owner.
    pub(crate) fn are_idle(&self) -> bool {
        let has_work = |stage: &StageRun| stage.metrics.queued.load(Ordering::SeqCst) > 0;
        let is_idle = |stage: &StageRun| stage.cells().iter().all(|cell| cell.mailbox.is_idle());
        self.list.iter().all(|stage| !has_work(stage) && is_idle(stage))
    }

    /// Bytes of rows at sinks that keep up: their threads, and no worker, have something to do.
    pub(crate) fn bytes_at_quick_sinks(&self) -> usize {
        self.bytes_at(|sink| sink.waiting.load(Ordering::Relaxed) <= MESSAGES_AT_QUICK_SINK_MAX)
    }

    /// Bytes of rows that wait for the threads of sinks.
    pub(crate) fn bytes_at_sinks(&self) -> usize {
        self.bytes_at(|_| true)
    }

    fn bytes_at(&self, is_meant: impl Fn(&SinkRun) -> bool) -> usize {
        let sinks = self.sinks().map(|(_, sink)| sink).filter(|sink| is_meant(sink));
        let bytes: i64 = sinks.map(|sink| sink.waiting_bytes.load(Ordering::SeqCst)).sum();
        bytes.max(0) as usize
    }

    /// The highest joint watermark of the operators that rows of a source can get to. Others, in
    /// a set of statements, have nothing to do with it.
    pub(crate) fn reached_behind(&self, source: usize) -> Watermark {
        let mut is_behind = vec![false; self.list.len()];
        is_behind[source] = true;
        let mut reached = Watermark::MIN;
        for (place, stage) in self.list.iter().enumerate().skip(source) {
            if !is_behind[place] {
                continue;
            }
            stage.edges.iter().for_each(|edge| is_behind[edge.to.0] = true);
            if let Some(operator) = stage.operator() {
                let joint = operator.joint.lock().expect("no panic under the joint lock");
                reached = reached.max(joint.watermark.watermark());
            }
        }
        reached
    }
}
