//! How elements get from stage to stage, and through stateless ones.

use std::ops::Deref;

use thalweg_core::operator::Part;
use thalweg_core::{Bundle, Error, Result, Transform, Watermark};
use thalweg_ordering::sync::Ordering;

use super::element::{
    Element, OpenElement, Outcome, Passage, Port, Ports, Routed, element_bytes, last_watermark,
};
use super::exit::Room;
use super::merge::Arrival;
use super::{OrderedFlow, OrderedStage};
use crate::job::{Job, StageAt};
use crate::memory::Pressure;
use crate::pace::Pace;
use crate::returned::Home;
use crate::sinks;
use crate::stage::{INPUT_ENDED_NS, OperatorRun, SinkBatch, SinkMessage, SinkRun, StageRunKind};
use crate::topology::WorkerPlace;
use crate::transforms::{apply_transform, located};

/// The passage of one element in this many is measured.
const PASSAGE_SAMPLE: u64 = 8;

/// A stage in the ordered flow.
#[derive(Clone, Copy)]
pub(crate) struct ElementStage<'a> {
    at: StageAt<'a>,
    pub(super) flow: &'a OrderedFlow,
    pub(super) own: &'a OrderedStage,
}

impl<'a> Deref for ElementStage<'a> {
    type Target = StageAt<'a>;
    fn deref(&self) -> &StageAt<'a> {
        &self.at
    }
}

impl<'a> ElementStage<'a> {
    /// The stage at this place of a job with an ordered flow.
    pub(crate) fn of(job: &'a Job, place: usize) -> Self {
        let flow = job.ordered.as_ref().expect("only a job with an ordered flow gets here");
        ElementStage { at: job.at(place), flow, own: &flow.stages[place] }
    }

    pub(super) fn operator(&self) -> &'a OperatorRun {
        self.at.run.operator().expect("the stage is an operator")
    }

    fn transform(&self) -> &'a dyn Transform {
        self.at.run.transform().expect("the stage is stateless")
    }

    // --- between stages ---

    /// Hands the outcome of an element to the stages downstream. Called in order, by one thread at
    /// a time for each stage.
    pub(super) fn pass_on(&self, outcome: Outcome) -> Result<()> {
        let Outcome { passage, mut ports } = outcome;
        let edges = &self.run.edges;
        for (place, (edge, &lane)) in edges.iter().zip(&self.own.lanes).enumerate() {
            let is_last = edges[place + 1..].iter().all(|later| later.port != edge.port);
            let port = &mut ports[edge.port];
            let (marks, watermark) = (port.marks.clone(), port.watermark);
            let bundles =
                if is_last { std::mem::take(&mut port.bundles) } else { port.bundles.clone() };
            let bytes = element_bytes(&bundles);
            self.count_out(edge, &bundles, bytes);
            let element = Element { passage, bundles, marks, watermark, bytes };
            Self::of(self.job, edge.to.0).arrive(lane, element)?;
        }
        Ok(())
    }

    fn arrive(&self, lane: usize, element: Element) -> Result<()> {
        if self.own.merge.is_some() {
            return self.arrive_at_merge(Arrival::Element(lane, element));
        }
        self.admit(element)
    }

    pub(super) fn arrive_at_merge(&self, arrival: Arrival) -> Result<()> {
        let (turn, merge) = self.own.merge.as_ref().expect("the stage has a merge");
        turn.put(arrival, |arrival| {
            // Only the one whose turn it is takes this lock.
            let mut merge = merge.lock().expect("no panic under this lock");
            match arrival {
                Arrival::Expected(serial, source) => merge.expect(serial, source),
                Arrival::Element(lane, element) => merge.push(lane, element)?,
            }
            while !self.job.lifecycle.gives_up()
                && let Some(mut element) = merge.pop()?
            {
                let before = element.bytes;
                element.bytes = element_bytes(&element.bundles);
                self.job.memory.add_in_flight(element.bytes as i64 - before as i64);
                if element.passage.is_cut {
                    self.cut_merge(&mut merge)?;
                }
                self.admit(element)?;
            }
            let held_by = merge.held_by().map(|lane| self.input_of(lane));
            self.run.metrics.set_held_by(held_by, || self.job.now_ns());
            Ok(())
        })
    }

    /// The stage that feeds a lane.
    fn input_of(&self, lane: usize) -> usize {
        let feeds = |&from: &usize| {
            let edges = self.job.stages[from].edges.iter().zip(&self.flow.stages[from].lanes);
            edges.into_iter().any(|(edge, &of_edge)| edge.to.0 == self.place && of_edge == lane)
        };
        (0..self.place).find(feeds).expect("each lane has a stage upstream")
    }

    /// Takes an element into a stage. Called in order, by one thread at a time for each stage.
    fn admit(&self, element: Element) -> Result<()> {
        let is_cut = element.passage.is_cut;
        match &self.run.kind {
            StageRunKind::Source(_) => unreachable!("no edge leads to a source"),
            StageRunKind::Sink(sink) => {
                self.write(sink, element)?;
                if is_cut { self.cut_sink() } else { Ok(()) }
            }
            StageRunKind::Operator(operator) if operator.cells.len() == 1 => {
                self.dispatch(Routed { element, routes: None })
            }
            StageRunKind::Transform(_) | StageRunKind::Operator(_) => {
                if is_cut && self.run.operator().is_none() {
                    self.cut_stateless();
                }
                self.run.metrics.queued.fetch_add(1, Ordering::Relaxed);
                self.own.work.push(element);
                self.job.news.notify();
                Ok(())
            }
        }
    }

    fn write(&self, sink: &SinkRun, element: Element) -> Result<()> {
        let Passage { serial, ingest_ns, .. } = element.passage;
        if serial.is_multiple_of(PASSAGE_SAMPLE) && ingest_ns != INPUT_ENDED_NS {
            let passed_ns = self.job.now_ns().saturating_sub(ingest_ns);
            self.job.measured.passage.record_us(passed_ns / 1000);
        }
        let to = sinks::at(self.job, self.place);
        let (mut bytes_left, last_watermark) = (element.bytes, element.last_watermark());
        for bundle in element.bundles.into_iter().filter(|bundle| bundle.num_rows() > 0) {
            self.count_in(bundle.num_rows());
            let bytes = bundle.memory_bytes().min(bytes_left);
            bytes_left -= bytes;
            let Bundle { batch, kinds, .. } = bundle;
            to.send(SinkMessage::Rows(SinkBatch { bytes, ingest_ns, batch, kinds }))?;
        }
        self.job.memory.add_in_flight(-(bytes_left as i64));
        if let Some(watermark) = last_watermark {
            self.run.metrics.set_watermark(watermark, || self.job.now_ns());
            if watermark == Watermark::END {
                sink.open_lanes.store(0, Ordering::SeqCst);
                to.send(SinkMessage::Finish)?;
            }
        }
        Ok(())
    }

    // --- tasks ---

    /// The oldest element that waits here, if its outcome finds room. A stage that multiplies rows
    /// begins nothing more while the memory is full and others make room.
    pub(crate) fn claim(&self) -> Option<(u64, Element)> {
        let is_refused = |transform: &dyn Transform| {
            transform.multiplies()
                && self.job.memory.pressure() == Pressure::Full
                && self.job.queues.others_work()
        };
        let claimed = match &self.run.kind {
            StageRunKind::Transform(transform) if is_refused(transform.as_ref()) => None,
            StageRunKind::Transform(_) => self.own.work.claim(&self.own.exit),
            StageRunKind::Operator(_) => self.own.work.claim(&self.own.routed),
            StageRunKind::Source(_) | StageRunKind::Sink(_) => None,
        }?;
        self.run.metrics.take_queued();
        Some(claimed)
    }

    /// Does an element of a stateless stage, or finds out where the rows of an operator's go. As
    /// long as elements are small it continues with the next ones. Says how many it did.
    pub(crate) fn run_elements(
        &self,
        mut claimed: (u64, Element),
        worker: WorkerPlace,
        mut pace: Pace,
    ) -> Result<u64> {
        loop {
            let (place, element) = claimed;
            let rows = element.num_rows();
            match &self.run.kind {
                StageRunKind::Operator(operator) => self.route(operator, place, element)?,
                _ => self.transform_element(place, element, worker)?,
            }
            if !self.job.may_continue(&mut pace, rows) {
                return Ok(pace.done());
            }
            match self.claim() {
                Some(next) => claimed = next,
                None => return Ok(pace.done()),
            }
        }
    }

    fn transform_element(&self, place: u64, element: Element, worker: WorkerPlace) -> Result<()> {
        let transform = self.transform();
        let ended = self.run.is_ended();
        if transform.multiplies() && !ended {
            return self.multiply(transform, place, element, worker);
        }
        let Element { passage, bundles, marks, watermark, bytes } = element;
        if transform.is_asynchronous() && !ended && !bundles.is_empty() {
            let (rest, done) = (bundles.into(), Vec::new());
            let open = OpenElement { place, passage, marks, watermark, bytes, rest, done };
            return self.resume(Box::new(open));
        }
        let apply = |bundle: Bundle| {
            self.count_in(bundle.num_rows());
            if ended {
                return Ok(None);
            }
            let mut result = apply_transform(transform, bundle)?;
            result.stamps.numa_node = worker.numa_node as u16;
            // An element without bundles is as good as one with an empty one, and cheaper.
            Ok((result.num_rows() > 0).then_some(result))
        };
        // Collected where the bundles lie: nothing is allocated.
        let results = bundles.into_iter().filter_map(|bundle| apply(bundle).transpose());
        let done = results.collect::<Result<Vec<Bundle>>>()?;
        let rest = Default::default();
        self.send(OpenElement { place, passage, marks, watermark, bytes, rest, done })
    }

    /// Applies the bundles of an element in parts, which leave together. If the job is to stop
    /// before all are made, nothing leaves.
    fn multiply(
        &self,
        transform: &dyn Transform,
        place: u64,
        element: Element,
        worker: WorkerPlace,
    ) -> Result<()> {
        let room_bytes = self.job.room_bytes();
        let (mut done, mut bytes) = (Vec::with_capacity(element.bundles.len()), 0);
        for bundle in &element.bundles {
            self.count_in(bundle.num_rows());
            let begin = |bundle| transform.begin_parts(bundle, room_bytes);
            let mut next = Some(located(transform, bundle.clone(), begin)?);
            while let Some(Part { mut bundle, rest }) = next {
                bytes += bundle.memory_bytes();
                self.check_kept(bytes)?;
                bundle.forget_rows_before();
                bundle.stamps.numa_node = worker.numa_node as u16;
                done.extend((bundle.num_rows() > 0).then_some(bundle));
                if rest.is_some() && self.job.lifecycle.is_giving_up() {
                    self.run.metrics.park(|| self.job.now_ns());
                    self.job.queues.parked.park_element(self.place, place, element);
                    return Ok(());
                }
                next = rest.map(|rest| transform.next_part(rest, room_bytes)).transpose()?;
            }
        }
        if element.marks.is_some() {
            self.flow.element_rows.learn(bytes);
        }
        let Element { passage, marks, watermark, bytes, .. } = element;
        let rest = Default::default();
        self.send(OpenElement { place, passage, marks, watermark, bytes, rest, done })
    }

    /// What comes of an element is kept until all of it is made. Fails if that is too much.
    pub(crate) fn check_kept(&self, bytes: usize) -> Result<()> {
        let limit_bytes = self.job.memory.limit_bytes();
        if bytes <= limit_bytes / 4 {
            return Ok(());
        }
        let (mib, limit_mib, order) = (bytes >> 20, limit_bytes >> 20, self.flow.order);
        Err(Error::resource(format!(
            "one bundle of rows leads to more than {mib} MiB of results, and with 'pipeline.order' = '{order}' all of \
             them are kept until the last is made; the memory limit is {limit_mib} MiB"
        ))
        .hint(
            "raise 'memory.limit', SET 'pipeline.bundle-rows-max' to fewer rows, or SET 'pipeline.order' = 'epoch'",
        ))
    }

    /// Continues with an element of a stage that waits for the outside: begins its next bundle, or
    /// sends it on.
    fn resume(&self, mut element: Box<OpenElement>) -> Result<()> {
        while let Some(bundle) = element.rest.pop_front() {
            self.count_in(bundle.num_rows());
            if bundle.num_rows() > 0 {
                let home = Home::Element(element);
                let asked = self.ask_outside();
                let to = (self.place, asked);
                self.job.queues.returned.begin(to, self.transform(), bundle, home);
                return Ok(());
            }
        }
        self.send(*element)
    }

    /// A bundle of an element has come back from the outside.
    pub(crate) fn resume_with(&self, mut element: Box<OpenElement>, done: Bundle) -> Result<()> {
        element.done.extend((done.num_rows() > 0).then_some(done));
        self.resume(element)
    }

    /// Sends an element on whose bundles are done.
    fn send(&self, element: OpenElement) -> Result<()> {
        let OpenElement { place, passage, marks, watermark, bytes, done: bundles, .. } = element;
        if let Some(newest) = last_watermark(&marks, watermark) {
            self.run.metrics.set_watermark(newest, || self.job.now_ns());
        }
        let ports = Ports::One(Port { bundles, marks, watermark });
        self.send_outcome(place, Outcome { passage, ports }, bytes)
    }

    fn route(&self, operator: &OperatorRun, place: u64, element: Element) -> Result<()> {
        let routes = element.bundles.iter().map(|bundle| operator.route(bundle));
        let routes = Some(routes.collect::<Result<Vec<_>>>()?);
        let routed = Routed { element, routes };
        let room = self.own.routed.send(place, routed, |routed| self.dispatch(routed))?;
        if room == Room::Wanted {
            self.job.news.notify_all();
        }
        Ok(())
    }

    /// Hands an outcome to the reorder buffer of its stage, and gives back what its element took.
    pub(super) fn send_outcome(&self, place: u64, outcome: Outcome, bytes: usize) -> Result<()> {
        let room = self.own.exit.send(place, outcome, |outcome| self.pass_on(outcome))?;
        self.job.memory.add_in_flight(-(bytes as i64));
        if room == Room::Wanted {
            self.job.news.notify_all();
            if self.run.operator().is_some() {
                self.dispatch_more()?;
            }
        }
        Ok(())
    }
}
