//! One watermark on its way through the partitions of an operator.
//!
//! A [`Barrier`] goes to every cell of the operator's stage. Each cell consumes it when its turn
//! comes and counts it down; the last one starts the next phase or completes it. Nobody waits: a
//! cell that is done continues with other work.
//!
//! # Joint watermark
//! [`Joint`] keeps the newest watermark of each lane. The joint watermark is the minimum over the
//! lanes that are neither idle nor at their end, computed again at each watermark of a lane, so it
//! is never looser than the partial watermarks allow (StreamBox §5.3, Fig. 4): containers of
//! different lanes have no order among one another until their end watermarks are consumed here.
//!
//! # Output containers
//! The rows that a barrier makes go to the containers that were current when it was made; each
//! barrier makes the next ones current. When it completes, its containers are closed: with the
//! watermark that the operator passes on, or cancelled (merged into the next) if it passes none.
//!
//! # Order
//! Barriers get dense sequence numbers under the `Joint` lock, are posted to the cells under it,
//! and complete in that order ([`Completions`]), so watermarks leave a stage in order even when the
//! last cells of two barriers finish on two workers at once. Operators with several phases have at
//! most one barrier under way ([`BarrierQueue`]).
//!
//! # Cuts
//! A cut goes through the cells as a watermark does, and its containers are closed with the cut
//! behind them. It comes when every lane has reached it and nothing comes behind it before it is
//! complete, so no watermark is under way at the same time.

use std::collections::{BTreeMap, VecDeque};

use thalweg_core::{Exchange, Watermark};
use thalweg_ordering::sync::{Arc, AtomicUsize, Mutex, Ordering};

use crate::container::Container;
use crate::cut::CutUnderWay;
use crate::joint_watermark::JointWatermark;
use crate::ordered::gather::Gather;

/// A watermark under way.
pub struct Barrier {
    /// What it is about.
    pub call: BarrierCall,
    phase: AtomicUsize,
    remaining: AtomicUsize,
}

/// What a barrier brings to the partitions, and where their results go.
pub struct BarrierCall {
    /// Its place among the barriers of the stage.
    pub sequence: u64,
    /// The joint watermark.
    pub watermark: Watermark,
    /// False if the joint watermark has not moved: the barrier only marks the end of an epoch in
    /// the queues of a `sequenced` operator, and no partition is called.
    pub advances: bool,
    /// A cut on its way, and no watermark: partitions are captured.
    pub cut: Option<Arc<CutUnderWay>>,
    /// What partitions leave for one another.
    pub exchange: Exchange,
    /// What to pass on.
    pub pass: Option<Watermark>,
    /// The watermark that was passed on last before this one: no result is older.
    pub passed_before: Watermark,
    /// When the row that ended the epoch entered the engine.
    pub ingest_ns: u64,
    /// Where results go.
    pub results: BarrierResults,
}

impl BarrierCall {
    /// In how many phases it goes through the partitions of an operator whose watermarks have so
    /// many. At a cut they first say how their tables have changed; once all of them have, nothing
    /// is in their mailboxes that could change any, and they are captured.
    fn phases(&self, of_watermarks: usize) -> usize {
        match (&self.cut, self.advances) {
            (Some(_), _) => 2,
            (None, true) => of_watermarks,
            (None, false) => 1,
        }
    }
}

/// Where what partitions make at a watermark goes.
pub enum BarrierResults {
    /// `epoch`: into containers.
    Containers(BarrierContainers),
    /// Ordered contracts: to the element whose watermark this is.
    Element(Arc<Gather>),
}

/// The containers that a barrier has to do with.
pub struct BarrierContainers {
    /// The lane and the container whose end watermark this is; none if a lane became idle. At a
    /// cut the one of each lane.
    pub consumed: Vec<(usize, Arc<Container>)>,
    /// Where results go, one per main edge.
    pub outputs: Vec<Arc<Container>>,
    /// Where results of rows behind this barrier go, one per main edge.
    pub next_outputs: Vec<Arc<Container>>,
}

/// What the last cell of a phase has to do.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Countdown {
    /// Others are still at it.
    Others,
    /// All cells have finished the phase; the next one begins.
    NextPhase,
    /// All cells have finished the last phase.
    Complete,
}

impl Barrier {
    /// A barrier for this many cells.
    pub fn new(call: BarrierCall, cells: usize) -> Self {
        let remaining = AtomicUsize::new(cells);
        Barrier { call, phase: AtomicUsize::new(0), remaining }
    }

    /// The containers that it has to do with, in the flow of `epoch`.
    pub(crate) fn containers(&self) -> &BarrierContainers {
        match &self.call.results {
            BarrierResults::Containers(containers) => containers,
            BarrierResults::Element(_) => unreachable!("elements have no containers"),
        }
    }

    /// The phase that is under way.
    pub fn phase(&self) -> usize {
        // Acquire: pairs with the Release in `count_down`; parcels of the phase before are visible.
        self.phase.load(Ordering::Acquire)
    }

    /// One cell has finished the current phase.
    pub fn count_down(&self, cells: usize, phases: usize) -> Countdown {
        // AcqRel: the last one sees what all others did.
        let before = self.remaining.fetch_sub(1, Ordering::AcqRel);
        assert!(before > 0, "a cell finished a phase twice");
        if before > 1 {
            return Countdown::Others;
        }
        if self.phase() + 1 == self.call.phases(phases) {
            return Countdown::Complete;
        }
        // Nobody else touches the barrier between two phases.
        self.remaining.store(cells, Ordering::Relaxed);
        self.phase.fetch_add(1, Ordering::Release);
        Countdown::NextPhase
    }
}

/// What an operator's stage knows of the watermarks of its lanes. Behind a lock that is held only
/// to compute the minimum and to post a barrier.
pub struct Joint {
    /// The joint watermark.
    pub watermark: JointWatermark,
    /// The watermark passed on last.
    pub passed: Watermark,
    /// Barriers made so far.
    pub made: u64,
    /// Cuts that came so far: results from now on are behind them.
    pub cuts: u64,
    /// Where results go now, one per main edge.
    pub outputs: Vec<Arc<Container>>,
    /// Barriers on their way through the cells.
    pub barriers: BarrierQueue,
}

/// What a barrier brings.
pub enum Moves {
    /// The end of an epoch, for the queues of a `sequenced` operator.
    Nothing,
    /// The joint watermark has moved; what to pass on.
    Watermark(Option<Watermark>),
    /// A cut.
    Cut(Arc<CutUnderWay>),
}

/// Barriers that go to the cells one by one. Phases of two barriers must not mix, since what
/// partitions exchange in one phase is for the next one: an operator with several phases has one
/// barrier under way at most. With one phase the mailboxes alone keep the order.
#[derive(Default)]
pub struct BarrierQueue {
    is_busy: bool,
    waiting: VecDeque<Arc<Barrier>>,
}

impl BarrierQueue {
    /// A barrier is made. It comes back if it may go to the cells at once, else it waits here.
    pub fn begin(&mut self, phases: usize, barrier: Arc<Barrier>) -> Option<Arc<Barrier>> {
        if phases > 1 && std::mem::replace(&mut self.is_busy, true) {
            self.waiting.push_back(barrier);
            return None;
        }
        Some(barrier)
    }

    /// True while one is under way that others have to wait for.
    pub(crate) fn is_busy(&self) -> bool {
        self.is_busy
    }

    /// A barrier is complete; the one that goes to the cells now.
    pub fn end(&mut self) -> Option<Arc<Barrier>> {
        let next = self.waiting.pop_front();
        self.is_busy = next.is_some();
        next
    }
}

impl Joint {
    /// Nothing known of `lanes` lanes.
    pub fn new(lanes: usize, outputs: Vec<Arc<Container>>) -> Self {
        Joint {
            watermark: JointWatermark::new(lanes),
            passed: Watermark::MIN,
            made: 0,
            cuts: 0,
            outputs,
            barriers: BarrierQueue::default(),
        }
    }

    /// Makes the next barrier for the current joint watermark, or for a cut.
    pub fn barrier(
        &mut self,
        consumed: Vec<(usize, Arc<Container>)>,
        ingest_ns: u64,
        moves: Moves,
        cells: usize,
        make_outputs: impl FnOnce(u64) -> Vec<Arc<Container>>,
    ) -> Arc<Barrier> {
        let outputs = self.outputs.clone();
        let (advances, pass, cut) = match moves {
            Moves::Nothing => (false, None, None),
            Moves::Watermark(pass) => (true, pass, None),
            Moves::Cut(cut) => (false, None, Some(cut)),
        };
        self.cuts += u64::from(cut.is_some());
        if advances || cut.is_some() {
            self.outputs = make_outputs(self.cuts);
        }
        let containers =
            BarrierContainers { consumed, outputs, next_outputs: self.outputs.clone() };
        let call = BarrierCall {
            sequence: self.made,
            watermark: self.watermark.watermark(),
            advances,
            cut,
            exchange: Exchange::new(cells),
            pass,
            passed_before: self.passed,
            ingest_ns,
            results: BarrierResults::Containers(containers),
        };
        self.made += 1;
        if let Some(watermark) = pass {
            assert!(watermark >= self.passed, "output watermarks never go back");
            self.passed = watermark;
        }
        Arc::new(Barrier::new(call, cells))
    }
}

/// Barriers that all cells have finished, completed strictly in sequence.
#[derive(Default)]
pub struct Completions {
    next: u64,
    finished: BTreeMap<u64, Arc<Barrier>>,
}

impl Completions {
    /// Adds a finished barrier.
    pub fn add(&mut self, barrier: Arc<Barrier>) {
        let previous = self.finished.insert(barrier.call.sequence, barrier);
        assert!(previous.is_none(), "a barrier finishes once");
    }

    /// The next barrier in sequence, if it is finished.
    pub fn pop(&mut self) -> Option<Arc<Barrier>> {
        let barrier = self.finished.remove(&self.next)?;
        self.next += 1;
        Some(barrier)
    }
}

/// Lock shared by the stage: see [`Completions`].
pub type SharedCompletions = Mutex<Completions>;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::container::{ContainerState, End};

    #[test]
    fn completions_come_in_sequence() {
        let mut joint = Joint::new(1, Vec::new());
        let mut make = || joint.barrier(Vec::new(), 0, Moves::Watermark(None), 2, |_| Vec::new());
        let (first, second) = (make(), make());
        let mut completions = Completions::default();
        completions.add(second);
        assert!(completions.pop().is_none());
        completions.add(first);
        assert_eq!(completions.pop().map(|b| b.call.sequence), Some(0));
        assert_eq!(completions.pop().map(|b| b.call.sequence), Some(1));
    }

    #[test]
    fn phases_end_with_the_last_cell() {
        let mut joint = Joint::new(1, Vec::new());
        let barrier = joint.barrier(Vec::new(), 0, Moves::Watermark(None), 2, |_| Vec::new());
        assert_eq!(barrier.count_down(2, 2), Countdown::Others);
        assert_eq!(barrier.count_down(2, 2), Countdown::NextPhase);
        assert_eq!(barrier.phase(), 1);
        assert_eq!(barrier.count_down(2, 2), Countdown::Others);
        assert_eq!(barrier.count_down(2, 2), Countdown::Complete);
    }

    /// What an output that had put the epochs of both sides in one order beforehand would know:
    /// StreamBox Fig. 4(b) has L1', R1', L0', R0'. Only the ends in front of the first open epoch
    /// count.
    fn known_in_a_fixed_order(known: [usize; 2], ends: [[i64; 2]; 2]) -> i64 {
        let mut newest = [i64::MIN; 2];
        for (lane, epoch) in [(0, 1), (1, 1), (0, 0), (1, 0)] {
            if epoch >= known[lane] {
                break;
            }
            newest[lane] = newest[lane].max(ends[lane][epoch]);
        }
        newest[0].min(newest[1])
    }

    /// StreamBox Fig. 4(b): two epochs of either side are open and worked on at once, the youngest
    /// first, while nobody knows how they end. However the ends come, each joint watermark is the
    /// least of the newest end of each side, results stay in one output until it moves, and a fixed
    /// order of the output epochs would know less at some point.
    #[test]
    fn epochs_of_two_inputs_have_no_order_until_their_ends_are_known() {
        let ends = [[0, 60], [30, 90]];
        for sequence in
            [[0, 0, 1, 1], [0, 1, 0, 1], [0, 1, 1, 0], [1, 0, 0, 1], [1, 0, 1, 0], [1, 1, 0, 0]]
        {
            let epochs =
                [0, 1].map(|_| [0, 1].map(|index| Arc::new(Container::new((index, 0), 1, 1))));
            for (lane, epoch) in [(0, 1), (1, 1), (0, 0), (1, 0)] {
                epochs[lane][epoch].count_in();
                assert!(!epochs[lane][epoch].consume_one(), "an open epoch has no end to carry on");
                assert_eq!(epochs[lane][epoch].state(), ContainerState::Open);
            }
            let output = |index| Arc::new(Container::new((index, 0), 0, 1));
            let mut joint = Joint::new(2, vec![output(0)]);
            let (mut known, mut outputs, mut gained) = ([0, 0], 0, false);
            for lane in sequence {
                let container = Arc::clone(&epochs[lane][known[lane]]);
                container.close(End::Watermark(Watermark(ends[lane][known[lane]])), 0);
                assert!(container.retrieve());
                known[lane] += 1;
                joint.watermark.raise(lane, container.end());
                let advances = joint.watermark.advance(|_| false);
                let newest =
                    |lane: usize| known[lane].checked_sub(1).map_or(i64::MIN, |n| ends[lane][n]);
                let expected = newest(0).min(newest(1));
                let moves = match advances {
                    true => Moves::Watermark(Some(Watermark(expected))),
                    false => Moves::Nothing,
                };
                let barrier = joint.barrier(vec![(lane, container)], 0, moves, 1, |_| {
                    outputs += 1;
                    vec![output(outputs)]
                });
                assert_eq!(barrier.call.watermark, Watermark(expected), "{sequence:?}");
                let of_barrier = barrier.containers();
                let stays = Arc::ptr_eq(&of_barrier.outputs[0], &of_barrier.next_outputs[0]);
                assert_eq!(stays, !advances, "only a watermark that moves ends an output");
                let fixed = known_in_a_fixed_order(known, ends);
                assert!(fixed <= expected, "{sequence:?}");
                gained |= fixed < expected;
                of_barrier.consumed.iter().for_each(|(_, container)| container.mark_consumed());
            }
            assert_eq!(joint.watermark.watermark(), Watermark(60));
            assert!(gained, "{sequence:?}: a fixed order would have done as well");
        }
    }
}
