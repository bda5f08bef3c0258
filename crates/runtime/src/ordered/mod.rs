//! The flow of the contracts `arrival` and `event_time`: the output sequence of every stage equals
//! that of one thread which takes one row at a time.
//!
//! # Elements and serials
//! What moves is an [`Element`]: bundles, then perhaps a watermark, under one serial. Each source
//! numbers its elements (job-wide, in the order of ingestion). **Every stage turns one element into
//! one element per edge**, if only into an empty one, so every serial reaches every stage
//! downstream of its source exactly once and in order. That is the invariant everything here rests
//! on; containers and epochs are not needed, because a watermark has a place in the sequence.
//!
//! # The way through a stage (Prasaad et al. §5)
//! 1. Elements come by the exit section of the stage upstream, so one at a time and in order; where
//!    several edges meet, a `merge` makes one sequence of them first.
//! 2. A stateless stage puts them on its worklist; workers claim them in order and finish in any
//!    order. An operator with several partitions does the same to find out where rows go; then, in
//!    order again (`exit`), pieces are posted to the partitions' queues. Partitions take their
//!    queues in order, one worker at a time, side by side.
//! 3. The last worker to finish a piece of an element puts the outcome together: rows in the order
//!    of the rows that caused them, results of a watermark by window end, virtual partition, key
//!    (`rows`).
//! 4. The outcome goes through the reorder buffer of the stage (`exit`) and on in order.
//!
//! # Why nothing deadlocks
//! Room in a reorder buffer is reserved when an element is claimed or dispatched, and both happen
//! in serial order, so the oldest element always has its room and its worker never waits. What is
//! refused stays in its queue, and the delivery that makes room says so. Queues in front of a stage
//! are bounded by the memory account alone: sources are asked less, what is inside is never
//! refused. Where a full memory holds rows that wait in a merge by time, the source that they wait
//! for is asked all the same: its rows are the ones that let them out. Locks are taken from
//! upstream to downstream only, and none is held while an outcome is delivered.

use std::collections::VecDeque;
use std::ops::{Index, IndexMut};

use thalweg_core::graph::{Graph, StageKind};
use thalweg_core::operator::Emitted;
use thalweg_core::{Bundle, OrderContract, Piece, Route, Watermark};
use thalweg_ordering::sync::{Arc, AtomicU64, AtomicUsize, Mutex, Ordering, Queue};

use crate::barrier::Barrier;
use crate::options::{ReorderScheme, RunOptions};
use crate::slices::next_slice;
use exit::Exit;
use merge::Merge;
use replay::Replaying;
use time_merge::TimeMerge;
use turn::InTurn;

mod exit;
mod flow;
mod ingest;
mod lanes;
mod merge;
mod operator;
mod replay;
mod rows;
mod snapshot;
mod time_merge;
mod turn;

/// Elements under way in one stage at most. More would only let caches grow cold; fewer would stop
/// workers while one of them has a long element.
const UNDER_WAY_MAX: usize = 256;

/// What an element counts in the memory account on top of its rows.
const ELEMENT_BYTES: usize = 64;

/// What goes with an element through all stages, and is the same for everything derived from it.
#[derive(Clone, Copy, Debug)]
pub struct Passage {
    /// Its place in the sequence of ingestion.
    pub(crate) serial: u64,
    /// When its youngest row entered the engine.
    pub(crate) ingest_ns: u64,
    /// In `event_time`: no row of a later element is older. So it says how far a lane has come
    /// even where no row is left.
    pub(crate) frontier_ms: i64,
    /// The lane is idle from here on, or no longer. Only where the clock may change the sequence.
    pub(crate) idle: Option<bool>,
}

impl Passage {
    /// Of an element that has no serial yet.
    fn new(ingest_ns: u64, frontier_ms: i64) -> Self {
        Passage { serial: 0, ingest_ns, frontier_ms, idle: None }
    }
}

/// Rows and perhaps a watermark behind them, under one serial.
#[derive(Clone)]
pub struct Element {
    /// Its serial and what else stays with it.
    pub(crate) passage: Passage,
    /// The rows, in order.
    pub(crate) bundles: Vec<Bundle>,
    /// The watermark behind them.
    pub(crate) watermark: Option<Watermark>,
    /// What it counts in the memory account.
    pub(crate) bytes: usize,
}

impl Element {
    /// True if it has neither rows nor a watermark and only holds its place in the sequence.
    fn is_blank(&self) -> bool {
        self.bundles.is_empty() && self.watermark.is_none()
    }

    fn num_rows(&self) -> usize {
        self.bundles.iter().map(Bundle::num_rows).sum()
    }
}

/// An element whose routes are known, one per bundle; `None` where any partition takes all.
pub(crate) struct Routed {
    element: Element,
    routes: Option<Vec<Route>>,
}

/// What became of an element.
pub(crate) struct Outcome {
    passage: Passage,
    ports: Ports,
}

/// What leaves by one port.
#[derive(Default)]
pub(crate) struct Port {
    bundles: Vec<Bundle>,
    watermark: Option<Watermark>,
}

/// What leaves, by port. Most stages have one, and nothing is allocated for it.
pub(crate) enum Ports {
    /// The only one.
    One(Port),
    /// In order.
    Several(Vec<Port>),
}

impl Index<usize> for Ports {
    type Output = Port;
    fn index(&self, port: usize) -> &Port {
        match self {
            Ports::One(only) => std::slice::from_ref(only),
            Ports::Several(ports) => ports,
        }
        .index(port)
    }
}

impl IndexMut<usize> for Ports {
    fn index_mut(&mut self, port: usize) -> &mut Port {
        match self {
            Ports::One(only) => std::slice::from_mut(only),
            Ports::Several(ports) => ports,
        }
        .index_mut(port)
    }
}

/// The ordered flow of a job.
pub(crate) struct OrderedFlow {
    pub(crate) stages: Vec<OrderedStage>,
    /// Elements of all sources on their way into one sequence.
    ingest: InTurn<(usize, Element)>,
    serial: AtomicU64,
    /// The sequence to follow. Only the one whose turn it is to ingest changes it.
    replaying: Option<Mutex<Replaying>>,
    /// True if edges meet somewhere: rows then carry the row of the source bundle they come from.
    pub(crate) has_merges: bool,
    /// True if elements end at each row at which the watermark crosses a time that matters: where
    /// edges meet, and where what rows do depends on the watermarks before them.
    pub(crate) places_watermarks: bool,
    pub(crate) order: OrderContract,
    reorder: ReorderScheme,
    /// For each stage, which sources feed it.
    fed_by: Vec<Vec<bool>>,
}

/// What a stage needs to keep the order.
pub(crate) struct OrderedStage {
    /// The lane at the stage downstream, for each edge.
    lanes: Vec<usize>,
    /// Where several edges lead here.
    merge: Option<(InTurn<Arrival>, Mutex<MergeKind>)>,
    /// Elements to be claimed: all of a stateless stage, those to be routed of an operator.
    work: Worklist,
    /// Routed elements on their way to the partitions.
    routed: Exit<Routed>,
    /// Elements to be dispatched to partitions.
    dispatch: Mutex<Dispatch>,
    /// Outcomes on their way out.
    exit: Exit<Outcome>,
    /// How many sources feed the stage: rows of one may be behind the joint watermark.
    sources: usize,
}

/// How several edges become one sequence.
pub(crate) enum MergeKind {
    /// `arrival`: in the sequence of ingestion.
    Arrival(Merge),
    /// `event_time`: by time, input, position.
    Time(Box<TimeMerge>),
}

/// What comes to a merge.
pub(crate) enum Arrival {
    /// A source has ingested this serial.
    Expected(u64, usize),
    /// An element by a lane.
    Element(usize, Element),
}

/// Elements that any worker may claim, oldest first.
struct Worklist {
    queue: Queue<(u64, Element)>,
    /// Elements added so far, which is the serial of the next one within this stage. Written after
    /// the push by whoever brings elements in order, one at a time; read by those who claim.
    added: AtomicU64,
    /// Elements claimed so far. Raised by whoever claims, before the pop.
    claimed: AtomicU64,
}

impl Worklist {
    fn new() -> Self {
        Worklist { queue: Queue::new(), added: AtomicU64::new(0), claimed: AtomicU64::new(0) }
    }

    /// Adds an element. Only for whoever brings the elements of this stage in order.
    fn push(&self, element: Element) {
        // Relaxed: one writer at a time, ordered by whatever hands the turn on.
        let serial = self.added.load(Ordering::Relaxed);
        self.queue.push((serial, element));
        // Release: pairs with the Acquire in `claim`; the element is in the queue.
        self.added.store(serial + 1, Ordering::Release);
    }

    /// Takes the oldest element, if there is one and `exit` has room for its outcome.
    fn claim<T>(&self, exit: &Exit<T>) -> Option<(u64, Element)> {
        let mut claimed = self.claimed.load(Ordering::Relaxed);
        loop {
            // Claims come in the order of elements, so this one is the oldest, or younger than
            // others that had room before it.
            if claimed == self.added.load(Ordering::Acquire) || !exit.has_room(claimed) {
                return None;
            }
            let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
            match self.claimed.compare_exchange_weak(claimed, claimed + 1, success, failure) {
                // Perhaps another's element, who then gets this one: both have room.
                Ok(_) => {
                    let element = self.queue.pop();
                    return Some(element.expect("an element is pushed before it is counted"));
                }
                Err(now) => claimed = now,
            }
        }
    }
}

/// How elements get to the partitions of an operator. Behind a lock that is held to post items, not
/// to do them.
struct Dispatch {
    pending: VecDeque<Routed>,
    /// The serial of the next element within this stage.
    next: u64,
    /// The watermark that came last.
    watermark: Watermark,
    /// The watermark that was passed on last.
    passed: Watermark,
    /// A barrier of several phases is under way.
    busy: bool,
    /// Barriers that wait for it.
    waiting: VecDeque<Arc<Barrier>>,
    /// Items posted to each cell so far.
    posted: Vec<u64>,
}

/// An element on its way through the partitions of an operator. The last one to finish a piece of
/// it puts the outcome together.
pub struct Gather {
    /// The serial within the stage.
    place: u64,
    passage: Passage,
    /// The place of rows that are made at the watermark: behind all rows of the element.
    closing_place: i64,
    bytes: usize,
    bundles: Vec<Bundle>,
    watermark: Option<Watermark>,
    pass: Option<Watermark>,
    /// The watermark that was passed on last before this element.
    passed_before: Watermark,
    /// Pieces and the barrier that are not finished.
    remaining: AtomicUsize,
    emitted: Mutex<GatheredRows>,
}

/// What the partitions have emitted, by partition.
#[derive(Default)]
struct GatheredRows {
    /// For each bundle; none as long as nothing has been emitted.
    of_rows: Vec<Vec<(usize, Emitted)>>,
    /// At the watermark.
    of_watermark: Vec<(usize, Emitted)>,
    /// About how many bytes all of them take.
    bytes: usize,
}

/// Rows of an element for one partition.
pub struct GatheredPiece {
    pub(crate) gather: Arc<Gather>,
    /// Which bundle.
    pub(crate) bundle: usize,
    /// Which of its rows; `None` means all.
    pub(crate) rows: Option<Vec<u32>>,
    /// How many lanes the operator has.
    pub(crate) lanes: usize,
    /// How many of the rows are taken.
    pub(crate) taken: usize,
}

impl GatheredPiece {
    /// How many rows there are.
    pub(crate) fn num_rows(&self) -> usize {
        self.rows.as_ref().map_or(self.gather.bundles[self.bundle].num_rows(), Vec::len)
    }

    /// The next rows, at most `rows_max`.
    pub(crate) fn slice(&mut self, rows_max: usize) -> Piece<'_> {
        let bundle = &self.gather.bundles[self.bundle];
        next_slice(bundle, &mut self.rows, self.taken, rows_max, self.lanes)
    }
}

impl OrderedFlow {
    /// Lays the flow out.
    pub(crate) fn new(graph: &Graph, options: &RunOptions) -> Self {
        let RunOptions { order, reorder, .. } = *options;
        let count = graph.stages.len();
        let mut fed_by = vec![vec![false; count]; count];
        let mut lanes = vec![Vec::new(); count];
        for (place, stage) in graph.stages.iter().enumerate() {
            fed_by[place][place] = matches!(stage.kind, StageKind::Source { .. });
            for (lane, input) in stage.inputs.iter().enumerate() {
                lanes[input.from.0].push(lane);
                let of_input = fed_by[input.from.0].clone();
                fed_by[place].iter_mut().zip(of_input).for_each(|(fed, more)| *fed |= more);
            }
        }
        let stage = |(place, stage): (usize, &thalweg_core::graph::Stage)| {
            let of_lanes = stage.inputs.iter().map(|input| fed_by[input.from.0].clone());
            let merge = (stage.inputs.len() > 1).then(|| match order {
                OrderContract::EventTime => {
                    MergeKind::Time(Box::new(TimeMerge::new(stage.inputs.len())))
                }
                _ => MergeKind::Arrival(Merge::new(of_lanes.collect())),
            });
            OrderedStage {
                lanes: lanes[place].clone(),
                merge: merge.map(|merge| (InTurn::new(), Mutex::new(merge))),
                work: Worklist::new(),
                routed: Exit::new(reorder, UNDER_WAY_MAX, 0),
                dispatch: Mutex::new(Dispatch::new()),
                exit: Exit::new(reorder, UNDER_WAY_MAX, 0),
                sources: fed_by[place].iter().filter(|&&fed| fed).count(),
            }
        };
        let stages = graph.stages.iter().enumerate().map(stage).collect();
        let has_merges = graph.stages.iter().any(|stage| stage.inputs.len() > 1);
        let depends = |kind: &StageKind| matches!(kind, StageKind::Operator(operator) if operator.rows_depend_on_watermarks());
        let rows_depend = graph.stages.iter().any(|stage| depends(&stage.kind));
        OrderedFlow {
            stages,
            ingest: InTurn::new(),
            serial: AtomicU64::new(0),
            replaying: replaying(graph, options).map(Mutex::new),
            order,
            reorder,
            fed_by,
            has_merges,
            places_watermarks: has_merges || rows_depend,
        }
    }

    /// True if the sources follow a recording.
    pub(crate) fn is_replaying(&self) -> bool {
        self.replaying.is_some()
    }
}

/// The sequence that the sources have to follow, if there is one.
fn replaying(graph: &Graph, options: &RunOptions) -> Option<Replaying> {
    let replay = options.replay.clone().filter(|_| options.order == OrderContract::Arrival)?;
    let is_source = |kind: &StageKind| matches!(kind, StageKind::Source { .. });
    let stages = graph.stages.iter().enumerate();
    let sources = stages.filter(|(_, stage)| is_source(&stage.kind));
    Some(Replaying::new(replay, sources.map(|(place, stage)| (place, stage.name.clone()))))
}

impl Dispatch {
    fn new() -> Self {
        Dispatch {
            pending: VecDeque::new(),
            next: 0,
            watermark: Watermark::MIN,
            passed: Watermark::MIN,
            busy: false,
            waiting: VecDeque::new(),
            posted: Vec::new(),
        }
    }
}

/// What an element of these bundles counts in the memory account.
pub(crate) fn element_bytes(bundles: &[Bundle]) -> usize {
    ELEMENT_BYTES + bundles.iter().map(Bundle::memory_bytes).sum::<usize>()
}
