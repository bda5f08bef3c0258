//! Sources that are not asked before another part of the job has ended.
//!
//! A join that reads one side first needs that side complete before a row of the other comes. So
//! the sources of the other side stand behind a *gate*, which the stage that takes the first side
//! opens when it has seen its last watermark. Nothing is buffered, since nothing is read.
//!
//! # Why nothing deadlocks
//! A gate is opened once the sources that feed its opener have ended. Those may stand behind gates
//! themselves (the first side may be a join of this kind), so gates wait for gates; [`Gates::new`]
//! refuses a graph in which that goes in a circle, and planners make none: they give each first
//! side sources of its own. In the order of waiting there is then a gate whose opener is fed by
//! sources without a gate, or with open ones. Those are asked whatever waits elsewhere: rows of
//! sources without a gate may fill the memory while they wait in a merge for rows of a source with
//! one, so sources that feed a closed gate are asked under any pressure. They end by themselves,
//! and what they bring goes into state, not into a queue.
//!
//! A job that is being stopped, and a source whose rows nobody needs any more, wait for no gate:
//! such sources are asked only to end.

use thalweg_core::graph::{Graph, StageKind};
use thalweg_core::{Error, Result};
use thalweg_ordering::sync::{AtomicBool, Ordering};

/// Which sources wait for what.
pub(crate) struct Gates {
    /// For each stage the stages that open its gates.
    waits_for: Vec<Vec<usize>>,
    /// For each stage the openers that its rows go to.
    feeds: Vec<Vec<usize>>,
    /// True for stages that have opened their gates.
    opened: Vec<AtomicBool>,
}

impl Gates {
    /// The gates of a graph.
    ///
    /// # Errors
    /// If a gate waits for itself.
    pub(crate) fn new(graph: &Graph) -> Result<Self> {
        let count = graph.stages.len();
        let mut gates = Gates {
            waits_for: vec![Vec::new(); count],
            feeds: vec![Vec::new(); count],
            opened: (0..count).map(|_| AtomicBool::new(false)).collect(),
        };
        for gate in &graph.gates {
            gates.waits_for[gate.source.0].push(gate.opened_by.0);
            for source in graph.sources_of(&graph.stages[gate.opened_by.0].inputs) {
                gates.feeds[source.0].push(gate.opened_by.0);
            }
        }
        let is_source = |stage: usize| matches!(graph.stages[stage].kind, StageKind::Source { .. });
        debug_assert!(
            (0..count).all(|stage| gates.waits_for[stage].is_empty() || is_source(stage))
        );
        match gates.has_circle() {
            true => Err(Error::internal("two sides of joins wait for one another")),
            false => Ok(gates),
        }
    }

    /// True if no order of opening the gates exists: each round opens those that wait for open
    /// ones.
    fn has_circle(&self) -> bool {
        let mut open = vec![false; self.opened.len()];
        let mut openers: Vec<usize> = self.waits_for.concat();
        while !openers.is_empty() {
            let is_fed = |opener: usize, source: usize| self.feeds[source].contains(&opener);
            let can_open = |opener: usize| {
                let mut sources = (0..open.len()).filter(|&source| is_fed(opener, source));
                sources.all(|source| self.waits_for[source].iter().all(|&other| open[other]))
            };
            let opened: Vec<usize> = openers.iter().copied().filter(|&o| can_open(o)).collect();
            if opened.is_empty() {
                return true;
            }
            opened.iter().for_each(|&opener| open[opener] = true);
            openers.retain(|&opener| !open[opener]);
        }
        false
    }

    /// True if a source may be asked.
    pub(crate) fn is_open(&self, source: usize) -> bool {
        self.closed_by(source).is_none()
    }

    /// A stage that a source waits for.
    pub(crate) fn closed_by(&self, source: usize) -> Option<usize> {
        // SeqCst: the opener's store comes before its notify, see the sleep protocol.
        let is_closed = |opener: &usize| !self.opened[*opener].load(Ordering::SeqCst);
        self.waits_for[source].iter().copied().find(is_closed)
    }

    /// The stages whose last watermark a source waits for.
    pub(crate) fn openers_of(&self, source: usize) -> &[usize] {
        &self.waits_for[source]
    }

    /// True if others wait for this source to end.
    pub(crate) fn is_awaited(&self, source: usize) -> bool {
        self.feeds[source].iter().any(|&opener| !self.opened[opener].load(Ordering::SeqCst))
    }

    /// A stage has seen its last watermark. Says which sources stood behind its gate.
    pub(crate) fn open(&self, stage: usize) -> Vec<usize> {
        self.opened[stage].store(true, Ordering::SeqCst);
        let waits = |&source: &usize| self.waits_for[source].contains(&stage);
        (0..self.waits_for.len()).filter(waits).collect()
    }
}
