//! How elements get from stage to stage, and through stateless ones.

use thalweg_core::{Bundle, Result, Transform, Watermark};
use thalweg_ordering::sync::Ordering;

use super::exit::Room;
use super::{Arrival, Element, OrderedFlow, Outcome, Passage, Port, Ports, Routed, element_bytes};
use crate::dispatcher::{Task, WorkerPlace};
use crate::job::Job;
use crate::metrics::StageMetrics;
use crate::pace::Pace;
use crate::stage::{INPUT_ENDED_NS, OperatorRun, SinkBatch, SinkMessage, SinkRun, StageRunKind};
use crate::task::apply_transform;
use crate::waiting::OpenElement;

/// The passage of one element in this many is measured.
const PASSAGE_SAMPLE: u64 = 8;

impl Job {
    pub(crate) fn ordered_flow(&self) -> &OrderedFlow {
        self.ordered.as_ref().expect("only a job with an ordered flow gets here")
    }

    // --- between stages ---

    /// Hands the outcome of an element to the stages downstream. Called in order, by one thread at
    /// a time for each stage.
    pub(crate) fn pass_on(&self, flow: &OrderedFlow, stage: usize, outcome: Outcome) -> Result<()> {
        let Outcome { passage, mut ports } = outcome;
        let edges = &self.stages[stage].edges;
        for (place, (edge, &lane)) in edges.iter().zip(&flow.stages[stage].lanes).enumerate() {
            let is_last = edges[place + 1..].iter().all(|later| later.port != edge.port);
            let port = &mut ports[edge.port];
            let watermark = port.watermark;
            let bundles =
                if is_last { std::mem::take(&mut port.bundles) } else { port.bundles.clone() };
            let bytes = element_bytes(&bundles);
            self.count_outgoing(stage, &bundles, bytes);
            let element = Element { passage, bundles, watermark, bytes };
            self.arrive(flow, edge.to.0, lane, element)?;
        }
        Ok(())
    }

    fn arrive(
        &self,
        flow: &OrderedFlow,
        stage: usize,
        lane: usize,
        element: Element,
    ) -> Result<()> {
        if flow.stages[stage].merge.is_some() {
            return self.arrive_at_merge(flow, stage, Arrival::Element(lane, element));
        }
        self.admit(flow, stage, element)
    }

    pub(crate) fn arrive_at_merge(
        &self,
        flow: &OrderedFlow,
        stage: usize,
        arrival: Arrival,
    ) -> Result<()> {
        let (turn, merge) = flow.stages[stage].merge.as_ref().expect("the stage has a merge");
        turn.put(arrival, |arrival| {
            // Only the one whose turn it is takes this lock.
            let mut merge = merge.lock().expect("no panic under this lock");
            match arrival {
                Arrival::Expected(serial, source) => merge.expect(serial, source),
                Arrival::Element(lane, element) => merge.push(lane, element)?,
            }
            while let Some(mut element) = merge.pop()? {
                let before = element.bytes;
                element.bytes = element_bytes(&element.bundles);
                self.memory.add_in_flight(element.bytes as i64 - before as i64);
                self.admit(flow, stage, element)?;
            }
            let held_by = merge.held_by().map(|lane| self.input_of(flow, stage, lane));
            self.stages[stage].metrics.set_held_by(held_by);
            Ok(())
        })
    }

    /// The stage that feeds a lane.
    fn input_of(&self, flow: &OrderedFlow, stage: usize, lane: usize) -> usize {
        let feeds = |&from: &usize| {
            let edges = self.stages[from].edges.iter().zip(&flow.stages[from].lanes);
            edges.into_iter().any(|(edge, &of_edge)| edge.to.0 == stage && of_edge == lane)
        };
        (0..stage).find(feeds).expect("each lane has a stage upstream")
    }

    /// Takes an element into a stage. Called in order, by one thread at a time for each stage.
    fn admit(&self, flow: &OrderedFlow, stage: usize, element: Element) -> Result<()> {
        match &self.stages[stage].kind {
            StageRunKind::Source(_) => unreachable!("no edge leads to a source"),
            StageRunKind::Sink(sink) => self.write_element(stage, sink, element),
            StageRunKind::Operator(operator) if operator.cells.len() == 1 => {
                self.dispatch(flow, stage, operator, Routed { element, routes: None })
            }
            StageRunKind::Transform(_) | StageRunKind::Operator(_) => {
                self.stages[stage].metrics.queued.fetch_add(1, Ordering::Relaxed);
                flow.stages[stage].work.push(element);
                self.news.notify();
                Ok(())
            }
        }
    }

    fn write_element(&self, stage: usize, sink: &SinkRun, element: Element) -> Result<()> {
        let Passage { serial, ingest_ns, .. } = element.passage;
        if serial.is_multiple_of(PASSAGE_SAMPLE) && ingest_ns != INPUT_ENDED_NS {
            let now_ns = self.options.clock.now_ns();
            self.passage.record_us(now_ns.saturating_sub(ingest_ns) / 1000);
        }
        let metrics = &self.stages[stage].metrics;
        let mut bytes_left = element.bytes;
        for bundle in element.bundles.into_iter().filter(|bundle| bundle.num_rows() > 0) {
            StageMetrics::add(&metrics.rows_in, bundle.num_rows() as u64);
            StageMetrics::add(&metrics.bundles_in, 1);
            let bytes = bundle.memory_bytes().min(bytes_left);
            bytes_left -= bytes;
            let Bundle { batch, kinds, .. } = bundle;
            let rows = SinkBatch { bytes, ingest_ns, batch, kinds };
            self.send_to_sink(stage, sink, SinkMessage::Rows(rows))?;
        }
        self.memory.add_in_flight(-(bytes_left as i64));
        if let Some(watermark) = element.watermark {
            metrics.set_watermark(watermark);
            if watermark == Watermark::END {
                sink.open_lanes.store(0, Ordering::SeqCst);
                self.send_to_sink(stage, sink, SinkMessage::Finish)?;
            }
        }
        Ok(())
    }

    // --- tasks ---

    /// The oldest element that waits at a stage, if its outcome finds room.
    pub(crate) fn claim_element(&self, stage: usize) -> Option<Task> {
        let (place, element) = self.claim(stage)?;
        Some(Task::Element { stage, place, element })
    }

    fn claim(&self, stage: usize) -> Option<(u64, Element)> {
        if self.is_refused(stage) {
            return None;
        }
        let flow = self.ordered_flow();
        let ordered = &flow.stages[stage];
        let claimed = match &self.stages[stage].kind {
            StageRunKind::Transform(_) => ordered.work.claim(&ordered.exit)?,
            StageRunKind::Operator(_) => ordered.work.claim(&ordered.routed)?,
            StageRunKind::Source(_) | StageRunKind::Sink(_) => return None,
        };
        self.stages[stage].metrics.queued.fetch_sub(1, Ordering::Relaxed);
        Some(claimed)
    }

    /// Does an element of a stateless stage, or finds out where the rows of an operator's go. As
    /// long as elements are small it continues with the next ones. Says how many it did.
    pub(crate) fn run_element(
        &self,
        stage: usize,
        mut claimed: (u64, Element),
        worker: WorkerPlace,
        mut pace: Pace,
    ) -> Result<u64> {
        let flow = self.ordered_flow();
        loop {
            let (place, element) = claimed;
            let rows = element.num_rows();
            match &self.stages[stage].kind {
                StageRunKind::Operator(operator) => {
                    self.route_element(flow, stage, operator, place, element)?;
                }
                _ => self.transform_element(flow, stage, place, element, worker)?,
            }
            if !self.may_continue(&mut pace, rows) {
                return Ok(pace.done());
            }
            match self.claim(stage) {
                Some(next) => claimed = next,
                None => return Ok(pace.done()),
            }
        }
    }

    fn transform_element(
        &self,
        flow: &OrderedFlow,
        stage: usize,
        place: u64,
        element: Element,
        worker: WorkerPlace,
    ) -> Result<()> {
        let run = &self.stages[stage];
        let StageRunKind::Transform(transform) = &run.kind else {
            unreachable!("only stateless stages get here")
        };
        let ended = run.ended.load(Ordering::Relaxed);
        if transform.multiplies() && !ended {
            return self.multiply_element(
                flow,
                stage,
                transform.as_ref(),
                (place, element),
                worker,
            );
        }
        let Element { passage, bundles, watermark, bytes } = element;
        if transform.is_asynchronous() && !ended && !bundles.is_empty() {
            let (rest, done) = (bundles.into(), Vec::new());
            let open = OpenElement { place, passage, watermark, bytes, rest, done };
            return self.continue_element(stage, transform.as_ref(), Box::new(open));
        }
        let apply = |bundle: Bundle| {
            StageMetrics::add(&run.metrics.rows_in, bundle.num_rows() as u64);
            StageMetrics::add(&run.metrics.bundles_in, 1);
            if ended {
                return Ok(None);
            }
            let mut result = apply_transform(transform.as_ref(), bundle)?;
            result.stamps.numa_node = worker.numa_node as u16;
            // An element without bundles is as good as one with an empty one, and cheaper.
            Ok((result.num_rows() > 0).then_some(result))
        };
        // Collected where the bundles lie: nothing is allocated.
        let results = bundles.into_iter().filter_map(|bundle| apply(bundle).transpose());
        let bundles = results.collect::<Result<Vec<Bundle>>>()?;
        let rest = Default::default();
        let element = OpenElement { place, passage, watermark, bytes, rest, done: bundles };
        self.send_element(flow, stage, element)
    }

    /// Applies the bundles of an element in parts, which leave together. If the job is to stop
    /// before all are made, nothing leaves.
    fn multiply_element(
        &self,
        flow: &OrderedFlow,
        stage: usize,
        transform: &dyn Transform,
        (place, element): (u64, Element),
        worker: WorkerPlace,
    ) -> Result<()> {
        let metrics = &self.stages[stage].metrics;
        let mut done = Vec::with_capacity(element.bundles.len());
        for bundle in &element.bundles {
            StageMetrics::add(&metrics.rows_in, bundle.num_rows() as u64);
            StageMetrics::add(&metrics.bundles_in, 1);
            let Some(parts) = self.all_parts(transform, bundle.clone())? else {
                self.parked.park_element(stage, place, element);
                return Ok(());
            };
            done.extend(parts.into_iter().filter(|part| part.num_rows() > 0));
            self.check_gathered(element_bytes(&done))?;
        }
        done.iter_mut().for_each(|part| part.stamps.numa_node = worker.numa_node as u16);
        let Element { passage, watermark, bytes, .. } = element;
        let rest = Default::default();
        self.send_element(flow, stage, OpenElement { place, passage, watermark, bytes, rest, done })
    }

    /// Continues with an element of a stage that waits for the outside.
    pub(crate) fn resume_element(&self, stage: usize, element: Box<OpenElement>) -> Result<()> {
        let StageRunKind::Transform(transform) = &self.stages[stage].kind else {
            unreachable!("only stateless stages wait")
        };
        self.continue_element(stage, transform.as_ref(), element)
    }

    /// Sends an element on whose bundles are done.
    pub(crate) fn send_element(
        &self,
        flow: &OrderedFlow,
        stage: usize,
        element: OpenElement,
    ) -> Result<()> {
        let OpenElement { place, passage, watermark, bytes, done: bundles, .. } = element;
        if let Some(watermark) = watermark {
            self.stages[stage].metrics.set_watermark(watermark);
        }
        let ports = Ports::One(Port { bundles, watermark });
        self.send_outcome(flow, stage, place, Outcome { passage, ports }, bytes)
    }

    fn route_element(
        &self,
        flow: &OrderedFlow,
        stage: usize,
        operator: &OperatorRun,
        place: u64,
        element: Element,
    ) -> Result<()> {
        let cells = operator.cells.len();
        let routes = element.bundles.iter().map(|bundle| operator.operator.route(bundle, cells));
        let routes = routes.collect::<Result<Vec<_>>>()?;
        let routed = Routed { element, routes: Some(routes) };
        let room = flow.stages[stage]
            .routed
            .send(place, routed, |routed| self.dispatch(flow, stage, operator, routed))?;
        if room == Room::Wanted {
            self.news.notify_all();
        }
        Ok(())
    }

    /// Hands an outcome to the reorder buffer of its stage, and gives back what its element took.
    pub(crate) fn send_outcome(
        &self,
        flow: &OrderedFlow,
        stage: usize,
        place: u64,
        outcome: Outcome,
        bytes: usize,
    ) -> Result<()> {
        let exit = &flow.stages[stage].exit;
        let room = exit.send(place, outcome, |outcome| self.pass_on(flow, stage, outcome))?;
        self.memory.add_in_flight(-(bytes as i64));
        if room == Room::Wanted {
            self.news.notify_all();
            if let StageRunKind::Operator(operator) = &self.stages[stage].kind {
                self.dispatch_more(flow, stage, operator)?;
            }
        }
        Ok(())
    }
}
