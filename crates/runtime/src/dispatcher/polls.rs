//! Which source is asked next: first one that has to place a cut; none while they are paused, few
//! rows while a cut is under way (they would only wait for it), and while memory is full only one
//! whose rows others wait for; where memory is short the one furthest behind in event time.

use thalweg_core::Watermark;
use thalweg_ordering::sync::Ordering;

use super::{Dispatcher, Task};
use crate::memory::Pressure;
use crate::metrics::BlockedBy;
use crate::ordered::OrderedFlow;
use crate::stage::SourceRun;

/// Once in this many times a source is asked because it is its turn.
const ASKED_BEHIND: usize = 8;

impl Dispatcher<'_> {
    /// True if the gates of a source are open, or it would be asked only to end.
    fn may_be_asked(&self, source: usize) -> bool {
        self.job.gates.is_open(source)
            || self.job.lifecycle.is_stopping()
            || self.job.lifecycle.is_draining()
            || self.job.stages[source].ended.load(Ordering::SeqCst)
    }

    /// A task for a source that may bring rows.
    pub(super) fn next_poll(&self) -> Option<Task> {
        // Each turn another worker has come first and the source is not to be had any more.
        while let Some(stage) = self.pollable() {
            if let Some(task) = self.claim_poll(stage) {
                return Some(task);
            }
        }
        None
    }

    /// A source that has to place a cut, whatever it waits for.
    pub(super) fn next_cut(&self) -> Option<Task> {
        let mut wanting = self.job.stages.sources().filter(|(_, source)| source.wants_cut());
        wanting.find_map(|(stage, _)| self.claim_poll(stage))
    }

    /// The right to ask a source, which one worker has at a time. Whoever has it gives it back when
    /// the task is done.
    pub(super) fn claim_poll(&self, stage: usize) -> Option<Task> {
        let source = self.job.stages[stage].source()?;
        let is_free = !source.is_asked.swap(true, Ordering::SeqCst);
        is_free.then(|| {
            // Relaxed: only spreads the asking.
            self.job.queues.asked.fetch_add(1, Ordering::Relaxed);
            Task::Poll { stage }
        })
    }

    /// A source that may bring rows and that nobody is at: where memory is short only the one that
    /// is furthest behind in event time, else mostly that one.
    pub(super) fn pollable(&self) -> Option<usize> {
        if self.job.cuts.is_paused() {
            self.note_all_blocked(BlockedBy::Cut);
            return None;
        }
        let pressure = self.job.memory.pressure();
        // Nothing in front of a cut waits for rows from behind it, and those may have to wait.
        if self.job.cuts.is_under_way() && self.job.memory.has_enough_for_a_cut() {
            self.note_all_blocked(BlockedBy::Cut);
            return None;
        }
        let is_ready = |&stage: &usize| {
            if !self.has_rows(stage) || !self.is_in_turn(stage) {
                return false;
            }
            let may_be_asked = self.may_be_asked(stage);
            if !may_be_asked {
                self.note_blocked(stage, BlockedBy::Order);
            }
            may_be_asked
        };
        let places = self.job.stages.source_places().iter().copied();
        let mut candidates: Vec<usize> = places.filter(is_ready).collect();
        if pressure == Pressure::Full {
            candidates.retain(|&source| {
                let is_needed = self.is_needed(source);
                if !is_needed {
                    self.note_blocked(source, BlockedBy::Output);
                }
                is_needed
            });
        }
        match (pressure, candidates.len()) {
            (_, 0) => None,
            (_, 1) => Some(candidates[0]),
            (Pressure::High, _) => {
                let first = self.furthest_behind(&candidates);
                let others = candidates.iter().filter(|&&source| Some(source) != first);
                others.for_each(|&source| self.note_blocked(source, BlockedBy::Memory));
                first
            }
            _ => Some(self.mostly_behind(&candidates)),
        }
    }

    /// True if a source may have rows, and nobody is at it.
    fn has_rows(&self, stage: usize) -> bool {
        self.job.stages[stage].source().is_some_and(|source| {
            // SeqCst: the waker's store comes before its notify, see the sleep protocol.
            let is_ready = source.ready.load(Ordering::SeqCst) || self.has_gathered(source);
            is_ready && !source.is_asked.load(Ordering::SeqCst)
        })
    }

    /// True if rows of a source have waited for others while there was something else to do, and
    /// should wait no longer. Nobody posts that: the worker that did something else looks again
    /// itself, and the one that asked the source does when the time is over (see `pool`).
    fn has_gathered(&self, source: &SourceRun) -> bool {
        source.gathers_while_busy.load(Ordering::SeqCst)
            && (!self.job.is_busy()
                || self.job.now_ns() >= source.gathers_until_ns.load(Ordering::Relaxed))
    }

    /// A source may have rows and is not asked for this reason.
    fn note_blocked(&self, source: usize, by: BlockedBy) {
        self.job.stages[source].metrics.blocked.begin(by, || self.job.now_ns());
    }

    /// No source is asked for this reason.
    fn note_all_blocked(&self, by: BlockedBy) {
        let sources = self.job.stages.source_places().iter().copied();
        sources
            .filter(|&source| self.has_rows(source))
            .for_each(|source| self.note_blocked(source, by));
    }

    /// True if a recording wants no other source first.
    fn is_in_turn(&self, source: usize) -> bool {
        let is_in_turn = |flow: &OrderedFlow| flow.is_in_turn(source);
        self.job.ordered.as_ref().is_none_or(is_in_turn) || self.job.lifecycle.is_stopping()
    }

    /// True if a gate, or rows in a merge by time, wait for what this source brings.
    fn is_needed(&self, source: usize) -> bool {
        let is_waited_for = |flow: &OrderedFlow| flow.is_waited_for(self.job, source);
        self.job.gates.is_awaited(source) || self.job.ordered.as_ref().is_some_and(is_waited_for)
    }

    /// What gates or merges wait for comes first, then what is furthest behind in event time.
    fn furthest_behind(&self, candidates: &[usize]) -> Option<usize> {
        let place =
            |&stage: &usize| (!self.is_needed(stage), self.job.stages[stage].metrics.watermark());
        candidates.iter().copied().min_by_key(place)
    }

    /// The source that is furthest behind in event time, and now and then the next one in turn.
    /// Where inputs meet, what is ahead waits for what is behind, and its rows fill the state
    /// meanwhile; where they don't, one that reads the past must not keep the others from the
    /// present. In turn, too, while one of them has no time yet.
    fn mostly_behind(&self, candidates: &[usize]) -> usize {
        // Relaxed: only spreads the asking.
        let asked = self.job.queues.asked.load(Ordering::Relaxed);
        let has_time = |&stage: &usize| self.job.stages[stage].metrics.watermark() > Watermark::MIN;
        if !candidates.iter().all(has_time) {
            return candidates[asked % candidates.len()];
        }
        match self.furthest_behind(candidates) {
            Some(stage) if !asked.is_multiple_of(ASKED_BEHIND) => stage,
            _ => candidates[asked / ASKED_BEHIND % candidates.len()],
        }
    }
}
