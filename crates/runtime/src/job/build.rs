//! From a graph to a job that can run, and from a job that has run to its report.

use std::collections::VecDeque;
use std::sync::{Condvar, OnceLock, mpsc};
use std::time::Duration;

use thalweg_core::connector::Assign;
use thalweg_core::graph::{Graph, Stage, StageId, StageKind};
use thalweg_core::snapshot::RestoredCut;
use thalweg_core::{
    Error, Operator, OperatorClass, Partition, PartitionContext, Result, Source, Watermark,
};
use thalweg_ordering::sync::{Arc, AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Mutex, Ordering};
use thalweg_ordering::{Mailbox, Sleep};

use super::{Job, Report, SinkReceivers};
#[cfg(feature = "baselines")]
use crate::ablation::{Ablated, Ablation};
use crate::barrier::{Completions, Joint};
use crate::dispatcher::{Lines, ReadyCells};
use crate::gates::Gates;
use crate::lane::Lane;
use crate::memory::MemoryAccount;
use crate::metrics::{LatencyHistogram, StageMetrics};
use crate::news::News;
use crate::options::RunOptions;
use crate::ordered::OrderedFlow;
use crate::pace::ELEMENTS_PER_TASK;
use crate::presence::Presence;
use crate::scheduler::meter::Measuring;
use crate::slices::{Parked, SliceRows};
use crate::snapshots::restore;
use crate::source_batcher::SourceBatcher;
use crate::stage::{
    Cell, CellState, Edge, OperatorRun, Sequencer, SinkRun, SourceRun, SourceState, StageRun,
    StageRunKind,
};
use crate::waiting::Returned;

/// What a job is put into.
pub(crate) struct Surroundings<'a> {
    /// The NUMA nodes of the machine.
    pub(crate) numa_nodes: usize,
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
    let Surroundings { numa_nodes, sleep, receivers } = around;
    let ordered = options.order.is_ordered().then(|| OrderedFlow::new(&graph, &options));
    let gates = Gates::new(&graph)?;
    let mut stages = stages(graph, &options, numa_nodes, receivers)?;
    let first_epoch = begin_epochs(&mut stages, &options, restored);
    let is_source = |stage: &StageRun| matches!(stage.kind, StageRunKind::Source(_));
    let sources = (0..stages.len()).filter(|&place| is_source(&stages[place])).collect();
    let sinks = stages.iter().filter(|stage| matches!(stage.kind, StageRunKind::Sink(_))).count();
    let inputs = stages.iter().map(|stage| stage.inputs.clone()).collect();
    #[cfg(feature = "baselines")]
    let ablated = Ablated::new(&options, &stages);
    let ready = ready_cells(&options, &stages);
    let news = Arc::new(News::new(sleep));
    let returned = Arc::new(Returned::new(Arc::clone(&news)));
    let mut job = Job {
        sources,
        memory: MemoryAccount::new(options.memory_limit_bytes, options.workers),
        news,
        urgent: Lines::new(options.workers),
        ready,
        #[cfg(feature = "baselines")]
        ablated,
        ticks: ordered.is_none()
            && has_operator(&stages, |operator| operator.uses_processing_time()),
        ordered,
        gates,
        returned,
        parked: Parked::default(),
        at_work: AtomicUsize::new(0),
        turn: AtomicUsize::new(0),
        asked: AtomicUsize::new(0),
        // A policy that ranks the stages does so for each element.
        elements_per_task: if options.scheduler.chooses_stages() { 1 } else { ELEMENTS_PER_TASK },
        measuring: Measuring::new(inputs, options.scheduler_window),
        latency: LatencyHistogram::new(),
        passage: LatencyHistogram::new(),
        stopping: AtomicBool::new(false),
        stop_asked_ns: AtomicU64::new(0),
        over: AtomicBool::new(false),
        failure: Mutex::new(None),
        holding: AtomicBool::new(false),
        draining: AtomicBool::new(false),
        unread: None,
        stop_requested: AtomicBool::new(false),
        snapshots: Mutex::new(None),
        presence: Presence::default(),
        outside: Mutex::new(()),
        first_epoch,
        idleness: Mutex::new(()),
        open_sinks: AtomicUsize::new(sinks),
        fed_sinks: AtomicUsize::new(sinks),
        changed: (Mutex::new(()), Condvar::new()),
        started_ns: options.clock.now_ns(),
        stages,
        options,
    };
    if let Some(cut) = restored {
        restore(&mut job, cut)?;
    }
    prepare(&job);
    Ok(job)
}

/// Where cells with something to do are listed.
fn ready_cells(options: &RunOptions, stages: &[StageRun]) -> ReadyCells {
    let cells: Vec<usize> = stages.iter().map(StageRun::num_cells).collect();
    let of_stages = options.scheduler.chooses_stages();
    #[cfg(feature = "baselines")]
    let of_stages = of_stages || options.ablation == Ablation::NoPriority;
    ReadyCells::new(options.partitioning(), &cells, options.workers, of_stages)
}

/// What is to be done before anybody else has the job.
fn prepare(job: &Job) {
    match &job.ordered {
        Some(flow) => prepare_sources(job, flow.places_watermarks),
        None => {
            let by_rows = |operator: &dyn Operator| operator.rows_depend_on_watermarks();
            prepare_sources(job, has_operator(&job.stages, by_rows));
            let_rows_wait(job);
            first_outputs(job);
        }
    }
}

/// Counts epochs from where another run was, and says where that is.
fn begin_epochs(
    stages: &mut [StageRun],
    options: &RunOptions,
    restored: Option<&RestoredCut>,
) -> u64 {
    let counted = restored.filter(|_| !options.order.is_ordered());
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
    let (lanes, edges) = lay_out(&graph);
    let mut stages = Vec::with_capacity(graph.stages.len());
    for (place, stage) in graph.stages.into_iter().enumerate() {
        let Stage { id, name, kind, inputs, .. } = stage;
        check_clock(&kind, options).map_err(|error| error.in_operator(name.clone()))?;
        let kind = stage_kind(place, kind, lanes[place], options, &mut receivers)
            .map_err(|error| error.in_operator(name.clone()))?;
        let make_lane = || Lane::new(edges[place].len(), numa_nodes);
        stages.push(StageRun {
            id,
            name,
            kind,
            lanes: (0..lanes[place]).map(|_| make_lane()).collect(),
            edges: edges[place].clone(),
            metrics: StageMetrics::new(),
            ended: AtomicBool::new(false),
            inputs: inputs.iter().map(|input| input.from.0).collect(),
        });
    }
    Ok(stages)
}

fn has_operator(stages: &[StageRun], is_meant: impl Fn(&dyn Operator) -> bool) -> bool {
    stages.iter().any(|stage| match &stage.kind {
        StageRunKind::Operator(run) => is_meant(run.operator.as_ref()),
        _ => false,
    })
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
    let (mut lanes, mut edges) = (vec![0; count], vec![Vec::new(); count]);
    for (place, stage) in graph.stages.iter().enumerate() {
        for input in &stage.inputs {
            let from = input.from.0;
            let edge = Edge { port: input.port, to: StageId(place), lane_base: lanes[place] };
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
    kind: StageKind,
    lanes: usize,
    options: &RunOptions,
    receivers: &mut Option<&mut SinkReceivers>,
) -> Result<StageRunKind> {
    Ok(match kind {
        StageKind::Transform(transform) => StageRunKind::Transform(transform),
        StageKind::Source { source, assigner } => {
            StageRunKind::Source(source_run(source, assigner, options))
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
                waiting: Arc::new(AtomicUsize::new(0)),
                waiting_bytes: AtomicI64::new(0),
                gone: AtomicBool::new(false),
                guarantee: OnceLock::new(),
            })
        }
    })
}

fn operator_run(
    operator: Arc<dyn Operator>,
    lanes: usize,
    options: &RunOptions,
) -> Result<OperatorRun> {
    let cells = match operator.partitions() {
        _ if operator.is_singleton() => 1,
        // More than the workers need would only make pieces smaller; results are the same.
        Some(wanted) => {
            let most = options.partitions_max.unwrap_or(options.partitions());
            wanted.clamp(1, most.clamp(1, 256))
        }
        None => options.partitions(),
    };
    let open = |partition| {
        operator.open(PartitionContext { partition, partitions: cells, order: options.order })
    };
    let sequenced = operator.class() == OperatorClass::Sequenced;
    let sequencers = if sequenced { lanes } else { 0 };
    Ok(OperatorRun {
        class: operator.class(),
        phases: operator.watermark_phases().max(1),
        takes_slices: operator.takes_slices(),
        cells: (0..cells).map(|cell| open(cell).map(cell_of)).collect::<Result<_>>()?,
        joint: Mutex::new(Joint::new(lanes, Vec::new())),
        completions: Mutex::new(Completions::default()),
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
        state: Mutex::new(CellState {
            partition,
            resume: None,
            slice: SliceRows::new(),
            outputs: Vec::new(),
            passed: Watermark::MIN,
            state_bytes: 0,
            unreported_rows: 0,
        }),
    }
}

fn source_run(
    source: Box<dyn Source>,
    assigner: Option<Box<dyn Assign>>,
    options: &RunOptions,
) -> SourceRun {
    SourceRun {
        bounded: source.is_bounded(),
        state: Mutex::new(SourceState {
            source,
            assigner,
            current: Vec::new(),
            leftover: VecDeque::new(),
            batcher: SourceBatcher::default(),
            waits_for_epoch: false,
            heartbeat_ms: None,
            at_end: false,
            serial: 0,
            epoch: 0,
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
        last_rows_ns: AtomicU64::new(options.clock.now_ns()),
        gathers_until_ns: AtomicU64::new(0),
        idle: AtomicBool::new(false),
    }
}

/// Where elements end at the row that moves a watermark, or operators go by the one before a row,
/// each row's must be known.
fn prepare_sources(job: &Job, stamps_exactly: bool) {
    for stage in job.stages.iter().filter(|_| stamps_exactly) {
        if let StageRunKind::Source(source) = &stage.kind {
            let mut state = source.state.lock().expect("nobody else has the job yet");
            if let Some(assigner) = &mut state.assigner {
                assigner.stamp_exactly();
            }
        }
    }
}

/// Finds the sources whose rows nobody sees before a watermark.
fn let_rows_wait(job: &Job) {
    if job.options.bundle_linger.is_zero() {
        return;
    }
    for &place in &job.sources {
        if let StageRunKind::Source(source) = &job.stages[place].kind {
            let mut state = source.state.lock().expect("nobody else has the job yet");
            state.waits_for_epoch = state.assigner.is_some() && is_seen_at_watermarks(job, place);
        }
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
    for (place, stage) in job.stages.iter().enumerate() {
        match &stage.kind {
            StageRunKind::Operator(operator) => {
                let outputs = job.make_outputs(place);
                for cell in &operator.cells {
                    let mut state = cell.state.lock().expect("nobody else has the job yet");
                    state.outputs.clone_from(&outputs);
                }
                operator.joint.lock().expect("nobody else has the job yet").outputs = outputs;
            }
            StageRunKind::Source(source) => {
                let mut state = source.state.lock().expect("nobody else has the job yet");
                state.current = vec![None; stage.edges.len()];
            }
            _ => {}
        }
    }
}

/// Makes sure that no source reads on.
pub(crate) fn stop_sources(job: &Job) {
    for &place in &job.sources {
        if let StageRunKind::Source(run) = &job.stages[place].kind
            && let Ok(mut state) = run.state.lock()
        {
            state.source.stop();
        }
    }
}

/// What sources have written besides their rows becomes final: the job is done.
pub(crate) fn finish_sources(job: &Job) -> Result<()> {
    for stage in &job.stages {
        if let StageRunKind::Source(run) = &stage.kind {
            let mut state = run.state.lock().expect("a source that panics ends the job");
            state.source.finish().map_err(|error| error.in_operator(stage.name.clone()))?;
        }
    }
    Ok(())
}

/// What sources have written besides their rows stays unfinished, and others may write it.
pub(crate) fn abort_sources(job: &Job) {
    for &place in &job.sources {
        if let StageRunKind::Source(run) = &job.stages[place].kind
            && let Ok(mut state) = run.state.lock()
        {
            state.source.abort();
        }
    }
}

/// Bad rows are counted at the end of an input, and here for inputs that were not read to their
/// end.
fn count_bad_rows(job: &Job) {
    for &place in &job.sources {
        let stage = &job.stages[place];
        if let StageRunKind::Source(run) = &stage.kind
            && let Ok(state) = run.state.lock()
        {
            stage.metrics.bad_rows.store(state.source.bad_rows(), Ordering::Relaxed);
        }
    }
}

/// What a job that has ended did.
pub(crate) fn report(job: &Job) -> Report {
    let cancelled = job.is_stopping() && !job.all_sinks_finished();
    let gone = job.gone_sinks();
    // Where nobody reads any more, rows stay on their way.
    if !cancelled && gone.is_empty() {
        job.assert_conservation();
    }
    count_bad_rows(job);
    let elapsed_ns = job.options.clock.now_ns().saturating_sub(job.started_ns);
    Report {
        metrics: job.metrics(),
        elapsed: Duration::from_nanos(elapsed_ns),
        latency: job.latency.percentiles(),
        passage: job.passage.percentiles(),
        peak_bytes: job.memory.peak_bytes(),
        state_peak_bytes: job.memory.state_peak_bytes(),
        cancelled,
        gone,
    }
}
