//! From a graph to a job that can run.

use std::collections::VecDeque;
use std::sync::mpsc;

use thalweg_core::connector::{Assign, ExactStamps};
use thalweg_core::graph::{Graph, SplitTiming, Stage, StageId, StageKind};
use thalweg_core::operator::WatermarkInterest;
use thalweg_core::snapshot::RestoredCut;
use thalweg_core::{
    Error, Operator, OperatorClass, OrderContract, Partition, PartitionContext, Result, Source,
    Watermark,
};
use thalweg_ordering::sync::{Arc, AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Mutex};
use thalweg_ordering::{Mailbox, Sleep};

#[cfg(feature = "baselines")]
use crate::ablation::Ablated;
use crate::barrier::{Completions, Joint};
use crate::cut::Cuts;
use crate::epoch::EpochStage;
use crate::epoch::small_results::WaitingResults;
use crate::gates::Gates;
use crate::job::{Job, Measured, Settings};
use crate::lane::Lane;
use crate::late::LateRing;
use crate::lifecycle::Lifecycle;
use crate::memory::MemoryAccount;
use crate::metrics::{LatencyHistogram, StageMetrics};
use crate::news::News;
use crate::numa_memory::SharedNumaMemory;
use crate::options::RunOptions;
use crate::ordered::OrderedFlow;
use crate::pace::{ELEMENTS_PER_TASK, SLICE_NS};
#[cfg(feature = "baselines")]
use crate::policies::Ablation;
use crate::policies::PartitionScheme;
use crate::queues::WorkQueues;
use crate::queues::ready_cells::ReadyCells;
use crate::scheduler::meter::Measuring;
use crate::sinks::SinkReceivers;
use crate::slices::SliceRows;
use crate::snapshots::restore;
use crate::source_batcher::SourceBatcher;
use crate::splits::Splits;
use crate::stage::{
    Cell, CellState, Edge, OperatorRun, Sequencer, SinkRun, SourceRun, SourceState, StageRun,
    StageRunKind,
};
use crate::stages::Stages;
use crate::tap::EdgeTap;
use crate::task_lengths::TaskHistograms;

/// What a job is put into.
pub(crate) struct Surroundings<'a> {
    /// The NUMA nodes of the machine.
    pub(crate) numa_nodes: usize,
    /// Says on which of them rows are, if they are several.
    pub(crate) numa_memory: Option<SharedNumaMemory>,
    /// Where its workers sleep.
    pub(crate) sleep: Arc<Sleep>,
    /// Where the ends of the sinks' channels go; without, sinks are called by workers.
    pub(crate) receivers: Option<&'a mut SinkReceivers>,
}

/// Lays out lanes and edges and makes the stages.
pub(crate) fn build(
    graph: Graph,
    options: RunOptions,
    restored: Option<&RestoredCut>,
    around: Surroundings<'_>,
) -> Result<Job> {
    let Surroundings { numa_nodes, numa_memory, sleep, receivers } = around;
    let RunOptions { order, reorder, workers, .. } = options;
    let replay = options.replay.clone().filter(|_| order == OrderContract::Arrival);
    let ordered = order.is_ordered().then(|| OrderedFlow::new(&graph, order, reorder, replay));
    let gates = Gates::new(&graph)?;
    let mut stages = stages(graph, &options, numa_nodes, receivers)?;
    let first_epoch = begin_epochs(&mut stages, order, restored);
    let stages = Stages::new(stages);
    let news = Arc::new(News::new(sleep));
    let inputs = stages.iter().map(|stage| stage.inputs.clone()).collect();
    #[cfg(feature = "baselines")]
    let ablated = {
        let wish = if order.is_ordered() { Ablation::Nothing } else { options.ablation };
        Ablated::new(wish, &stages, options.snapshots.is_some(), workers)
    };
    let mut job = Job {
        memory: MemoryAccount::new(options.memory_limit_bytes, workers)
            .with_budget(options.memory_budget.clone()),
        queues: queues(&options, &stages, &news),
        lifecycle: Lifecycle::new(options.clock.clone(), &news, stages.sinks().count()),
        measured: Measured {
            scheduling: Measuring::new(inputs, options.scheduler_window),
            passage: LatencyHistogram::new(),
            tasks: TaskHistograms::new(),
            snapshots: Mutex::new(None),
            late: LateRing::default(),
        },
        settings: settings(options, &stages, numa_memory),
        news,
        gates,
        ordered,
        cuts: Cuts::default(),
        present: AtomicUsize::new(0),
        idleness: Mutex::new(()),
        first_epoch,
        unread: None,
        #[cfg(feature = "baselines")]
        ablated,
        stages,
    };
    if let Some(cut) = restored {
        restore(&mut job, cut)?;
    }
    prepare(&job);
    Ok(job)
}

/// What the job goes by while it runs.
fn settings(
    options: RunOptions,
    stages: &Stages,
    numa_memory: Option<SharedNumaMemory>,
) -> Settings {
    let ticks = !options.order.is_ordered()
        && has_operator(stages, |operator| operator.uses_processing_time());
    let may_use_clock = options.may_use_clock();
    Settings {
        clock: options.clock,
        order: options.order,
        workers: options.workers,
        scheduler: options.scheduler,
        task_ns: SLICE_NS,
        // A policy that ranks the stages does so for each element.
        elements_per_task: if options.scheduler.chooses_stages() { 1 } else { ELEMENTS_PER_TASK },
        bundle_rows_max: options.bundle_rows_max,
        bundle_linger: options.bundle_linger,
        may_use_clock,
        ticks,
        record: options.record,
        snapshots: options.snapshots,
        numa_memory,
    }
}

/// Where what is to be done waits for workers.
fn queues(options: &RunOptions, stages: &Stages, news: &Arc<News>) -> WorkQueues {
    let cells: Vec<usize> = stages.iter().map(|stage| stage.cells().len()).collect();
    let of_stages = options.scheduler.chooses_stages();
    #[cfg(feature = "baselines")]
    let of_stages = of_stages || options.ablation == Ablation::NoPriority;
    let ready = ReadyCells::new(options.partitioning(), &cells, options.workers, of_stages);
    WorkQueues::new(
        news,
        ready,
        options.workers,
        options.partitioning() == PartitionScheme::Hybrid,
        #[cfg(feature = "baselines")]
        (!options.order.is_ordered() && options.ablation == Ablation::NoPriority),
    )
}

/// What is to be done before anybody else has the job.
fn prepare(job: &Job) {
    match &job.ordered {
        Some(flow) => prepare_sources(job, flow.wanted_stamps),
        None => {
            let by_rows = |operator: &dyn Operator| operator.rows_depend_on_watermarks();
            if has_operator(&job.stages, by_rows) {
                prepare_sources(job, ExactStamps::Everywhere);
            }
            let_rows_wait(job);
            first_outputs(job);
        }
    }
}

/// Counts epochs from where another run was, and says where that is.
fn begin_epochs(
    stages: &mut [StageRun],
    order: OrderContract,
    restored: Option<&RestoredCut>,
) -> u64 {
    let counted = restored.filter(|_| !order.is_ordered());
    let first_epoch = counted.map_or(0, |cut| cut.serial);
    stages
        .iter_mut()
        .flat_map(|stage| &mut stage.lanes)
        .for_each(|lane| lane.begin_at(first_epoch));
    first_epoch
}

/// The stages with their lanes and edges.
fn stages(
    graph: Graph,
    options: &RunOptions,
    numa_nodes: usize,
    mut receivers: Option<&mut SinkReceivers>,
) -> Result<Vec<StageRun>> {
    let (lanes, mut edges) = lay_out(&graph);
    let mut stages = Vec::with_capacity(graph.stages.len());
    for (place, stage) in graph.stages.into_iter().enumerate() {
        let Stage { id, name, kind, inputs, timing, .. } = stage;
        check_clock(&kind, options).map_err(|error| error.in_operator(name.clone()))?;
        let kind = stage_kind(place, (kind, timing), lanes[place], options, &mut receivers)
            .map_err(|error| error.in_operator(name.clone()))?;
        let stops_cuts = matches!(kind, StageRunKind::Operator(_));
        let edges = std::mem::take(&mut edges[place]);
        let make_lane = || Lane::new(edges.len(), numa_nodes, stops_cuts);
        stages.push(StageRun {
            id,
            name,
            kind,
            lanes: (0..lanes[place]).map(|_| make_lane()).collect(),
            edges,
            metrics: StageMetrics::new(),
            ended: AtomicBool::new(false),
            inputs: inputs.iter().map(|input| input.from.0).collect(),
            at_cut: Mutex::default(),
        });
    }
    Ok(stages)
}

fn has_operator(stages: &Stages, is_meant: impl Fn(&dyn Operator) -> bool) -> bool {
    stages.operators().any(|(_, run)| is_meant(run.operator.as_ref()))
}

/// Refuses what depends on processing time where a sequence is promised and the clock is not
/// admitted.
fn check_clock(kind: &StageKind, options: &RunOptions) -> Result<()> {
    let StageKind::Operator(operator) = kind else { return Ok(()) };
    let is_admitted = !options.order.is_ordered() || options.allow_nondeterministic_order;
    if is_admitted || !operator.uses_processing_time() {
        return Ok(());
    }
    Err(Error::plan(format!(
        "what '{}' does depends on when the job runs, and the order '{}' promises a sequence that \
         depends on the data alone",
        operator.name(),
        options.order
    ))
    .hint("admit it with allow_nondeterministic_order ('pipeline.order.allow-nondeterministic'), if runs may differ"))
}

/// How many lanes each stage has, and where its edges lead. A union keeps its inputs' lanes apart;
/// an operator joins them on its main port and keeps them on the port of late rows.
fn lay_out(graph: &Graph) -> (Vec<usize>, Vec<Vec<Edge>>) {
    let count = graph.stages.len();
    let mut lanes = vec![0; count];
    let mut edges: Vec<Vec<Edge>> = (0..count).map(|_| Vec::new()).collect();
    for (place, stage) in graph.stages.iter().enumerate() {
        for input in &stage.inputs {
            let from = input.from.0;
            let (port, to, lane_base) = (input.port, StageId(place), lanes[place]);
            let edge = Edge { port, to, lane_base, tap: EdgeTap::default() };
            edges[from].push(edge);
            lanes[place] += match (&graph.stages[from].kind, input.port) {
                (StageKind::Source { .. }, _) | (StageKind::Operator(_), 0) => 1,
                _ => lanes[from],
            };
        }
    }
    (lanes, edges)
}

fn stage_kind(
    place: usize,
    (kind, timing): (StageKind, SplitTiming),
    lanes: usize,
    options: &RunOptions,
    receivers: &mut Option<&mut SinkReceivers>,
) -> Result<StageRunKind> {
    Ok(match kind {
        StageKind::Transform(transform) => StageRunKind::Transform(transform),
        StageKind::Source { source, assigner } => {
            StageRunKind::Source(Box::new(source_run(source, assigner, timing, options)))
        }
        StageKind::Operator(operator) => {
            StageRunKind::Operator(operator_run(operator, lanes, options)?)
        }
        StageKind::Sink(sink) => {
            let channel = receivers.as_mut().map(|receivers| {
                let (sender, receiver) = mpsc::channel();
                receivers.push((place, receiver));
                sender
            });
            StageRunKind::Sink(SinkRun {
                channel,
                inline: Mutex::new(Some(sink)),
                sequencers: (0..lanes).map(|_| Mutex::new(Sequencer::default())).collect(),
                open_lanes: AtomicUsize::new(lanes),
                ..SinkRun::default()
            })
        }
    })
}

fn operator_run(
    operator: Arc<dyn Operator>,
    lanes: usize,
    options: &RunOptions,
) -> Result<OperatorRun> {
    // Each watermark that matters costs each partition something, besides the rows.
    let is_costly = options.order.is_ordered() && operator.rows_depend_on_watermarks();
    let cells = match operator.partitions() {
        _ if operator.is_singleton() => 1,
        // More than the workers need would only make pieces smaller; results are the same.
        Some(wanted) => {
            let needed = if is_costly { options.partitions() / 2 } else { options.partitions() };
            wanted.clamp(1, options.partitions_max.unwrap_or(needed).clamp(1, 256))
        }
        None => options.partitions(),
    };
    let open = |partition| {
        operator.open(PartitionContext { partition, partitions: cells, order: options.order })
    };
    let sequenced = operator.class() == OperatorClass::Sequenced;
    let sequencers = if sequenced { lanes } else { 0 };
    let cells: Vec<Cell> = (0..cells).map(|cell| open(cell).map(cell_of)).collect::<Result<_>>()?;
    let counts_keys = |cell: &Cell| {
        let state = cell.state.lock().expect("nobody else has the job yet");
        state.partition.state_keys().is_some()
    };
    Ok(OperatorRun {
        counts_keys: cells.first().is_some_and(counts_keys),
        class: operator.class(),
        phases: operator.watermark_phases().max(1),
        takes_slices: operator.takes_slices(),
        heeds_only_end: operator.watermark_interest() == WatermarkInterest::EndOnly,
        cells,
        joint: Mutex::new(Joint::new(lanes, Vec::new())),
        completions: Mutex::new(Completions::default()),
        waiting: WaitingResults::default(),
        sequencers: (0..sequencers).map(|_| Mutex::new(Sequencer::default())).collect(),
        operator: Arc::clone(&operator),
    })
}

fn cell_of(partition: Box<dyn Partition>) -> Cell {
    Cell {
        mailbox: Mailbox::new(),
        barriers: AtomicUsize::new(0),
        finished: AtomicU64::new(0),
        wakes_at: AtomicI64::new(i64::MIN),
        ticks_at: AtomicI64::new(i64::MAX),
        is_ticking: AtomicBool::new(false),
        busy_ns: AtomicU64::new(0),
        state: Mutex::new(CellState {
            partition,
            resume: None,
            slice: SliceRows::new(),
            outputs: Vec::new(),
            passed: Watermark::MIN,
            state_bytes: 0,
            state_keys: 0,
            unreported_rows: 0,
        }),
    }
}

fn source_run(
    source: Box<dyn Source>,
    assigner: Option<Box<dyn Assign>>,
    timing: SplitTiming,
    options: &RunOptions,
) -> SourceRun {
    let idle_timeout = timing.idle_timeout.or(options.idle_timeout);
    SourceRun {
        bounded: source.is_bounded(),
        has_time: assigner.is_some(),
        state: Mutex::new(SourceState {
            source,
            assigner,
            current: Vec::new(),
            leftover: VecDeque::new(),
            batcher: SourceBatcher::default(),
            waits_for_epoch: false,
            behind: None,
            splits: Splits::default(),
            at_end: false,
            serial: 0,
            epoch: 0,
            cuts: 0,
            taken: Watermark::MIN,
            frontier_ms: i64::MIN,
            ended_at: None,
            bundle_rows: 1024.min(options.bundle_rows_max),
            ingest_ns: 0,
            buffered_bytes: 0,
        }),
        ready: AtomicBool::new(true),
        is_asked: AtomicBool::new(false),
        finished: AtomicBool::new(false),
        asked_from_ns: AtomicU64::new(options.clock.now_ns()),
        quiet_at_ns: AtomicU64::new(0),
        alignment: timing.alignment,
        limit_ms: AtomicI64::new(i64::MAX),
        aligned_ns: AtomicU64::new(0),
        is_held: AtomicBool::new(false),
        shown_splits: Mutex::default(),
        asked_ns: AtomicU64::new(0),
        shown_ns: AtomicU64::new(0),
        was_polled: AtomicBool::new(false),
        idle_timeout: idle_timeout.filter(|t| !t.is_zero() && options.may_use_clock()),
        gathers_until_ns: AtomicU64::new(0),
        gathers_while_busy: AtomicBool::new(false),
        idle: AtomicBool::new(false),
        wants_cut: AtomicBool::new(false),
    }
}

/// Where watermarks have their places behind rows, or operators go by the one before a row, rows
/// must have their own.
fn prepare_sources(job: &Job, stamped: ExactStamps) {
    for (_, source) in job.stages.sources() {
        let mut state = source.state.lock().expect("nobody else has the job yet");
        if let Some(assigner) = &mut state.assigner {
            assigner.stamp_exactly(stamped);
        }
    }
}

/// Finds the sources whose rows nobody sees before a watermark.
fn let_rows_wait(job: &Job) {
    if job.settings.bundle_linger.is_zero() {
        return;
    }
    for (place, source) in job.stages.sources() {
        let mut state = source.state.lock().expect("nobody else has the job yet");
        state.waits_for_epoch = state.assigner.is_some() && is_seen_at_watermarks(job, place);
    }
}

/// True if all that a stage gives goes to operators from which nothing leaves but at a watermark.
fn is_seen_at_watermarks(job: &Job, stage: usize) -> bool {
    job.stages[stage].edges.iter().all(|edge| match &job.stages[edge.to.0].kind {
        StageRunKind::Transform(_) => is_seen_at_watermarks(job, edge.to.0),
        StageRunKind::Operator(run) => run.operator.emits_only_at_watermarks(),
        StageRunKind::Source(_) | StageRunKind::Sink(_) => false,
    })
}

/// Gives every operator and source its first output containers.
fn first_outputs(job: &Job) {
    for (place, operator) in job.stages.operators() {
        let outputs = EpochStage::of(job, place).make_outputs(0);
        for cell in &operator.cells {
            let mut state = cell.state.lock().expect("nobody else has the job yet");
            state.outputs.clone_from(&outputs);
        }
        operator.joint.lock().expect("nobody else has the job yet").outputs = outputs;
    }
    for (place, source) in job.stages.sources() {
        let mut state = source.state.lock().expect("nobody else has the job yet");
        state.current = vec![None; job.stages[place].edges.len()];
    }
}
