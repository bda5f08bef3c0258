//! A container: one stage's share of one epoch of one lane (StreamBox §5).
//!
//! # Life cycle
//! ```text
//!             close(Some)             claim                finish
//!   OPEN ───────────────▶ WM_ASSIGNED ─────▶ WM_RETRIEVED ─────▶ WM_CONSUMED
//!     │ close(None)
//!     └───────────────▶ WM_CANCELLED      (merged with the next younger container)
//! ```
//! | state | meaning | who leaves it, when |
//! |---|---|---|
//! | OPEN | takes bundles from upstream | upstream, once it has consumed its own container |
//! | WM_ASSIGNED | all bundles are in, the end watermark is known | the owner, when every bundle is consumed (`sequenced` operators: when every bundle is on its way to its partition, whose queues keep the order) and every older container of the lane is consumed or merged |
//! | WM_RETRIEVED | the end watermark is being consumed | the last partition that consumes it |
//! | WM_CONSUMED | everything derived is downstream | the list, which drops it |
//! | WM_CANCELLED | there is no watermark here: logically one with the next container | the list, once every bundle is consumed |
//!
//! Illegal transitions panic: they are bugs of the runtime, and a wrong result would be worse.
//!
//! # Invariants
//! 1. A bundle is counted in `unconsumed` before it can be seen and until everything derived from
//!    it is deposited downstream.
//! 2. After `close` nothing is deposited: `deposited` is final and becomes `total`. The store of
//!    the state orders every deposit before it; whoever reads the state and then finds
//!    `unconsumed == 0` knows that the epoch is complete here.
//! 3. Whoever comes last carries the watermark on: the consumer of the last bundle or the closer.
//!    [`Closing`] holds the argument, and loom checks it; the state changes before the count is
//!    closed, so whoever finds it closed sees the state. Both may come; [`Container::retrieve`]
//!    lets one of them through.

use std::collections::VecDeque;
use std::sync::OnceLock;

use thalweg_core::{Bundle, Watermark};
use thalweg_ordering::Closing;
use thalweg_ordering::sync::{
    Arc, AtomicBool, AtomicI64, AtomicU8, AtomicU64, Mutex, Ordering, Queue, RwLock,
};

use crate::leaving::Leaving;

/// Where a container is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ContainerState {
    /// Takes bundles.
    Open,
    /// Complete, with its end watermark.
    WatermarkAssigned,
    /// The end watermark is being consumed.
    WatermarkRetrieved,
    /// Done.
    WatermarkConsumed,
    /// Merged with the next younger container.
    WatermarkCancelled,
}

impl ContainerState {
    /// In the order of their numbers.
    const ALL: [ContainerState; 5] = [
        ContainerState::Open,
        ContainerState::WatermarkAssigned,
        ContainerState::WatermarkRetrieved,
        ContainerState::WatermarkConsumed,
        ContainerState::WatermarkCancelled,
    ];

    /// The documented transitions and no others.
    pub fn may_become(self, next: ContainerState) -> bool {
        use ContainerState as S;
        matches!(
            (self, next),
            (S::Open, S::WatermarkAssigned | S::WatermarkCancelled)
                | (S::WatermarkAssigned, S::WatermarkRetrieved)
                | (S::WatermarkRetrieved, S::WatermarkConsumed)
        )
    }
}

/// What stands behind the bundles of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The end of an epoch, with its watermark.
    Watermark(Watermark),
    /// A cut. It is a watermark that says nothing about time: it goes the same way.
    Cut,
    /// The bundles of the next container: the two are treated as one.
    Merged,
}

/// One epoch of one lane at one stage, or a part of one: a cut ends a container in the middle of
/// its epoch.
pub struct Container {
    /// Its place among the containers ever made in its lane, from 0.
    pub index: u64,
    /// How many cuts stand before it. No container has rows of both sides of a cut.
    pub cuts: u64,
    state: AtomicU8,
    /// Bundles counted in and not fully consumed. Raised upstream, lowered by the owner.
    unconsumed: Closing,
    /// Bundles ever deposited. Raised upstream, read by `close`.
    deposited: AtomicU64,
    /// Final once the state is not OPEN.
    total: AtomicU64,
    /// Valid from WM_ASSIGNED on.
    end: AtomicI64,
    /// A cut stands behind it. Valid from WM_ASSIGNED on.
    is_cut: AtomicBool,
    /// When the row that ended the epoch entered the engine. Valid from WM_ASSIGNED on.
    end_ingest_ns: AtomicU64,
    /// Unclaimed bundles by NUMA node. In boxes: a queue gets memory for 31 at once, of which short
    /// epochs need one.
    unclaimed: Vec<Queue<Box<Bundle>>>,
    /// What a stage that makes parts has made of its bundles.
    pub(crate) leaving: Mutex<Leaving>,
    /// The container downstream, one per output edge, made on demand.
    pub(crate) down: Vec<OnceLock<Arc<Container>>>,
}

impl Container {
    /// An empty container with links for this many output edges.
    pub fn new((index, cuts): (u64, u64), edges: usize, numa_nodes: usize) -> Self {
        Container {
            index,
            cuts,
            state: AtomicU8::new(ContainerState::Open as u8),
            unconsumed: Closing::new(),
            deposited: AtomicU64::new(0),
            total: AtomicU64::new(0),
            end: AtomicI64::new(i64::MIN),
            is_cut: AtomicBool::new(false),
            end_ingest_ns: AtomicU64::new(0),
            unclaimed: (0..numa_nodes.max(1)).map(|_| Queue::new()).collect(),
            leaving: Mutex::default(),
            down: (0..edges).map(|_| OnceLock::new()).collect(),
        }
    }

    /// Where it is in its life.
    pub fn state(&self) -> ContainerState {
        // SeqCst: one order with the count, see invariant 3.
        ContainerState::ALL[usize::from(self.state.load(Ordering::SeqCst))]
    }

    /// True if a cut stands behind it, and no watermark; once it is complete.
    pub fn is_cut(&self) -> bool {
        // Relaxed: ordered by the state that the caller has read.
        self.is_cut.load(Ordering::Relaxed)
    }

    /// What stands behind a complete container that was not merged.
    pub fn ended_by(&self) -> End {
        if self.is_cut() { End::Cut } else { End::Watermark(self.end()) }
    }

    /// The end watermark, once assigned; that of a cut is the least there is.
    pub fn end(&self) -> Watermark {
        // Relaxed: ordered by the state that the caller has read.
        Watermark(self.end.load(Ordering::Relaxed))
    }

    /// When the row that ended the epoch entered the engine.
    pub fn end_ingest_ns(&self) -> u64 {
        self.end_ingest_ns.load(Ordering::Relaxed)
    }

    /// How many bundles the epoch has, once it is not OPEN any more.
    pub fn total(&self) -> u64 {
        assert_ne!(self.state(), ContainerState::Open, "the total of an open container");
        self.total.load(Ordering::Relaxed)
    }

    /// Counts a bundle in before it can be seen, and gives it its place.
    pub fn count_in(&self) -> u64 {
        assert_eq!(self.state(), ContainerState::Open, "a deposit after the end of the epoch");
        // Relaxed: published by the queue's own ordering, or by `close`.
        self.unconsumed.add(1);
        self.deposited.fetch_add(1, Ordering::Relaxed)
    }

    /// Puts a bundle, counted in already, where it can be claimed.
    pub fn put(&self, bundle: Bundle) {
        let node = usize::from(bundle.stamps.numa_node) % self.unclaimed.len();
        self.unclaimed[node].push(Box::new(bundle));
    }

    /// Claims a bundle, preferably one whose memory is on this NUMA node.
    pub fn claim(&self, numa_node: usize) -> Option<Bundle> {
        let nodes = self.unclaimed.len();
        let take = |step: usize| self.unclaimed[(numa_node + step) % nodes].pop();
        (0..nodes).find_map(take).map(|bundle| *bundle)
    }

    /// True if nothing can be claimed at the moment.
    pub fn is_claimed(&self) -> bool {
        self.unclaimed.iter().all(Queue::is_empty)
    }

    /// A bundle was split into `pieces`: each is consumed on its own.
    pub fn split_into(&self, pieces: usize) {
        assert!(pieces > 0, "a bundle has at least one piece");
        self.unconsumed.add(pieces - 1);
    }

    /// A bundle (or piece) is consumed and all it led to is downstream. True if it was the last
    /// one of an epoch that has ended: its watermark can be carried on.
    #[must_use = "the last one carries the watermark on"]
    pub fn consume_one(&self) -> bool {
        self.unconsumed.finish_one()
    }

    /// Bundles not fully consumed.
    pub fn unconsumed(&self) -> usize {
        self.unconsumed.pending()
    }

    /// Nothing more comes in.
    pub fn close(&self, end: End, ingest_ns: u64) {
        self.total.store(self.deposited.load(Ordering::Relaxed), Ordering::Relaxed);
        self.end_ingest_ns.store(ingest_ns, Ordering::Relaxed);
        self.is_cut.store(end == End::Cut, Ordering::Relaxed);
        if let End::Watermark(Watermark(t)) = end {
            self.end.store(t, Ordering::Relaxed);
        }
        let state = match end {
            End::Watermark(_) | End::Cut => ContainerState::WatermarkAssigned,
            End::Merged => ContainerState::WatermarkCancelled,
        };
        self.transition(ContainerState::Open, state);
        self.unconsumed.close();
    }

    /// True if the end watermark can be consumed as far as this container goes: it is assigned, and
    /// every bundle is consumed.
    pub fn is_complete(&self) -> bool {
        // In this order: of a container that is closed the count only falls.
        self.state() == ContainerState::WatermarkAssigned && self.unconsumed() == 0
    }

    /// Takes the right to consume the end watermark. False if another worker has it.
    pub fn retrieve(&self) -> bool {
        let (from, to) = (ContainerState::WatermarkAssigned, ContainerState::WatermarkRetrieved);
        self.state
            .compare_exchange(from as u8, to as u8, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
    }

    /// The end watermark is consumed here and passed on.
    pub fn mark_consumed(&self) {
        assert_eq!(self.unconsumed(), 0, "a watermark consumed before its bundles");
        self.transition(ContainerState::WatermarkRetrieved, ContainerState::WatermarkConsumed);
    }

    /// True if the list may drop it.
    pub fn is_finished(&self) -> bool {
        match self.state() {
            ContainerState::WatermarkConsumed => true,
            ContainerState::WatermarkCancelled => self.unconsumed() == 0,
            _ => false,
        }
    }

    fn transition(&self, from: ContainerState, to: ContainerState) {
        assert!(from.may_become(to), "no container goes from {from:?} to {to:?}");
        // SeqCst: see invariant 3. The compare makes a second transition visible as a bug.
        let result =
            self.state.compare_exchange(from as u8, to as u8, Ordering::SeqCst, Ordering::SeqCst);
        assert!(result.is_ok(), "container {} is not {from:?}", self.index);
    }
}

/// A list of containers in epoch order. It changes shape under the writer lock; all else happens
/// under the reader lock.
pub type ContainerList = RwLock<VecDeque<Arc<Container>>>;

#[cfg(test)]
mod tests {
    use super::*;

    const STATES: [ContainerState; 5] = [
        ContainerState::Open,
        ContainerState::WatermarkAssigned,
        ContainerState::WatermarkRetrieved,
        ContainerState::WatermarkConsumed,
        ContainerState::WatermarkCancelled,
    ];

    #[test]
    fn transition_table_is_the_documented_one() {
        let legal: Vec<(usize, usize)> = (0..5)
            .flat_map(|from| (0..5).map(move |to| (from, to)))
            .filter(|&(from, to)| STATES[from].may_become(STATES[to]))
            .collect();
        assert_eq!(legal, [(0, 1), (0, 4), (1, 2), (2, 3)]);
    }

    #[test]
    fn the_watermark_is_retrieved_once() {
        let container = Container::new((0, 0), 0, 1);
        assert!(!container.retrieve(), "an open container has no watermark");
        container.close(End::Watermark(Watermark(5)), 0);
        assert!(container.retrieve());
        assert!(!container.retrieve());
        container.mark_consumed();
        assert!(container.is_finished());
    }

    #[test]
    #[should_panic(expected = "a watermark consumed before its bundles")]
    fn a_watermark_waits_for_its_bundles() {
        let container = Container::new((0, 0), 0, 1);
        container.count_in();
        container.close(End::Watermark(Watermark(5)), 0);
        assert!(container.retrieve());
        container.mark_consumed();
    }

    #[test]
    #[should_panic(expected = "a deposit after the end of the epoch")]
    fn a_row_never_changes_epoch() {
        let container = Container::new((0, 0), 0, 1);
        container.close(End::Watermark(Watermark(5)), 0);
        container.count_in();
    }
}
