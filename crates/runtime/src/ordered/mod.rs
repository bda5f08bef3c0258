//! The flow of the contracts `arrival` and `event_time`: the output sequence of every stage equals
//! that of one thread which takes one row at a time.
//!
//! # Elements and serials
//! What moves is an [`Element`]: bundles, then perhaps a watermark, under one serial (and perhaps
//! watermarks between its rows, see [`marks`]). Each source
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
//! upstream to downstream only, and none is held while an outcome is delivered, but for that of the
//! element of which a part leaves early.
//!
//! # Why an element leaves in one piece
//! In `epoch` a partition that has made much is stopped at a row, and what it has made leaves. Here
//! all that comes of an element is kept until the last of it is made, and a result of more than a
//! quarter of the memory limit fails the job. Pieces cannot leave earlier, for three reasons:
//!
//! - The outcome of a bundle is ordered by the rows that caused it, over all partitions, and that
//!   of a watermark by window end. A row may leave only when no partition can make one before it
//!   any more, and partitions do not say how far they are: they take their rows at different times.
//! - The reorder buffer takes one outcome for each serial; the next serial is due behind it. Only
//!   the oldest serial could leave in pieces. A younger one would have to keep its own until it is
//!   the oldest, so the bound would not hold for up to [`UNDER_WAY_MAX`] elements at once.
//! - Downstream, merges in `arrival` take one element for each serial and lane, and stages number
//!   elements: these numbers order rows for aggregates, go into snapshots, and must not depend on
//!   where memory was short.
//!
//! One thing may leave in parts, and for the sake of time, not of memory (`early_results`): what
//! comes of a watermark that closes one window, of the oldest serial, where no edges meet. The
//! elements of its parts have numbers of their own downstream. How many there are depends on time;
//! the sequence of rows does not, and that is all that aggregates compare.
//!
//! Stopping and resuming itself is shared with `epoch`: a job that gives up leaves its items where
//! they are.

use std::collections::VecDeque;

use thalweg_core::connector::ExactStamps;
use thalweg_core::graph::{Graph, StageKind};
use thalweg_core::{OrderContract, Watermark};
use thalweg_ordering::sync::{AtomicU64, Mutex};

use crate::barrier::BarrierQueue;
use crate::interleaving::Replay;
use crate::policies::ReorderScheme;
use element::{Element, Outcome, Routed};
use exit::Exit;
use marks::ElementRows;
use merge::{Arrival, Merge, MergeKind};
use replay::Replaying;
use time_merge::TimeMerge;
use turn::InTurn;
use worklist::Worklist;

mod early_results;
pub(crate) mod element;
pub(crate) mod elements;
mod exit;
pub(crate) mod gather;
mod ingest;
mod lanes;
mod marked_items;
pub(crate) mod marks;
mod merge;
mod partitions;
mod replay;
mod rows;
mod snapshot;
mod time_merge;
mod turn;
mod worklist;

/// Elements under way in one stage at most. More would only let caches grow cold; fewer would stop
/// workers while one of them has a long element.
const UNDER_WAY_MAX: usize = 256;

/// The ordered flow of a job.
pub(crate) struct OrderedFlow {
    pub(crate) stages: Vec<OrderedStage>,
    /// Elements of all sources on their way into one sequence.
    ingest: InTurn<(usize, Element)>,
    serial: AtomicU64,
    /// The sequence to follow. Only the one whose turn it is to ingest changes it.
    replaying: Option<Mutex<Replaying>>,
    /// The sources at the cut that is under way. Only the one whose turn it is changes it.
    cutting: Mutex<Cutting>,
    /// True if edges meet somewhere: rows then carry the row of the source bundle they come from.
    pub(crate) has_merges: bool,
    /// Which rows its sources have to stamp with their exact watermark.
    pub(crate) wanted_stamps: ExactStamps,
    /// True if a watermark stands right behind the row at which it crosses a time that matters:
    /// where edges meet, and where what rows do depends on the watermarks before them.
    pub(crate) places_watermarks: bool,
    /// True if an element then takes several of them along (see [`marks`]), else each ends one.
    groups_watermarks: bool,
    element_rows: ElementRows,
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

/// Sources on their way to a cut. They place it one after the other, and it has one serial: what
/// comes of those that have placed it waits for the rest, which are asked meanwhile.
struct Cutting {
    /// By stage.
    passed: Vec<bool>,
    parked: VecDeque<(usize, Element)>,
}

/// How elements get to the partitions of an operator. Behind a lock that is held to post items, not
/// to do them.
#[derive(Default)]
struct Dispatch {
    pending: VecDeque<Routed>,
    /// The serial of the next element within this stage.
    next: u64,
    /// The watermark that came last.
    watermark: Watermark,
    /// The watermark that was passed on last.
    passed: Watermark,
    /// Barriers on their way through the partitions.
    barriers: BarrierQueue,
    /// Items posted to each cell so far.
    posted: Vec<u64>,
    /// A cut is with the partitions; what is behind it waits.
    is_at_cut: bool,
}

impl OrderedFlow {
    /// Lays the flow out.
    pub(crate) fn new(
        graph: &Graph,
        order: OrderContract,
        reorder: ReorderScheme,
        replay: Option<Replay>,
    ) -> Self {
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
        let has_merges = graph.stages.iter().any(|stage| stage.inputs.len() > 1);
        let depends = |kind: &StageKind| matches!(kind, StageKind::Operator(operator) if operator.rows_depend_on_watermarks());
        let rows_depend = graph.stages.iter().any(|stage| depends(&stage.kind));
        let wanted_stamps = wanted_stamps(has_merges, rows_depend);
        let exact_stamps = exact_stamps_of_sources(graph).fold(wanted_stamps, ExactStamps::max);
        let behind_operator = behind_operator(graph);
        let stage = |(place, stage): (usize, &thalweg_core::graph::Stage)| {
            let of_lanes = stage.inputs.iter().map(|input| fed_by[input.from.0].clone());
            let merge = (stage.inputs.len() > 1).then(|| match order {
                OrderContract::EventTime => {
                    let shares_stamps = exact_stamps < ExactStamps::Everywhere
                        && stage.inputs.iter().all(|input| !behind_operator[input.from.0]);
                    MergeKind::Time(Box::new(TimeMerge::new(stage.inputs.len(), shares_stamps)))
                }
                _ => MergeKind::Arrival(Merge::new(of_lanes.collect())),
            });
            OrderedStage {
                lanes: lanes[place].clone(),
                merge: merge.map(|merge| (InTurn::new(), Mutex::new(merge))),
                work: Worklist::new(),
                routed: Exit::new(reorder, UNDER_WAY_MAX, 0),
                dispatch: Mutex::default(),
                exit: Exit::new(reorder, UNDER_WAY_MAX, 0),
                sources: fed_by[place].iter().filter(|&&fed| fed).count(),
            }
        };
        let stages = graph.stages.iter().enumerate().map(stage).collect();
        let takes_one_phase = |kind: &StageKind| match kind {
            StageKind::Operator(operator) => operator.watermark_phases() <= 1,
            _ => true,
        };
        let has_one_phase = graph.stages.iter().all(|stage| takes_one_phase(&stage.kind));
        OrderedFlow {
            stages,
            ingest: InTurn::new(),
            serial: AtomicU64::new(0),
            replaying: replay.map(|replay| Mutex::new(replaying(graph, replay))),
            cutting: Mutex::new(Cutting { passed: vec![false; count], parked: VecDeque::new() }),
            order,
            reorder,
            fed_by,
            has_merges,
            wanted_stamps,
            places_watermarks: has_merges || rows_depend,
            // Where edges meet by time, places are times, and a watermark may stand among rows of
            // one.
            groups_watermarks: rows_depend
                && has_one_phase
                && (!has_merges || order == OrderContract::Arrival),
            element_rows: ElementRows::new(),
        }
    }
}

/// Which rows have to be stamped with their exact watermark: where one has its place behind a row,
/// at least those of a batch in which it crosses a time that matters.
fn wanted_stamps(has_merges: bool, rows_depend: bool) -> ExactStamps {
    match (has_merges, rows_depend) {
        (_, true) => ExactStamps::Everywhere,
        (true, false) => ExactStamps::WhereCrossed,
        (false, false) => ExactStamps::WhereLate,
    }
}

/// Which rows each source stamps so by itself.
fn exact_stamps_of_sources(graph: &Graph) -> impl Iterator<Item = ExactStamps> {
    graph.stages.iter().filter_map(|stage| match &stage.kind {
        StageKind::Source { assigner, .. } => Some(assigner.as_ref()?.exact_stamps()),
        _ => None,
    })
}

/// For each stage whether rows come out of it that an operator has made: their places are not their
/// times.
fn behind_operator(graph: &Graph) -> Vec<bool> {
    let mut behind = vec![false; graph.stages.len()];
    for (place, stage) in graph.stages.iter().enumerate() {
        behind[place] = matches!(stage.kind, StageKind::Operator(_))
            || stage.inputs.iter().any(|input| behind[input.from.0]);
    }
    behind
}

/// The sequence that the sources have to follow.
fn replaying(graph: &Graph, replay: Replay) -> Replaying {
    let is_source = |kind: &StageKind| matches!(kind, StageKind::Source { .. });
    let stages = graph.stages.iter().enumerate();
    let sources = stages.filter(|(_, stage)| is_source(&stage.kind));
    Replaying::new(replay, sources.map(|(place, stage)| (place, stage.name.clone())))
}
