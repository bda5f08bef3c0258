//! What a worker does with a source: asks it for rows, lets them wait or not, stamps them and sends
//! them on.
//!
//! **Invariant:** one worker at a time is at a source; it holds the lock of its state.
//!
//! # How large bundles are
//! As many rows are asked for as came before, twice as many as long as the source always has more,
//! half as many when it has none: a pipeline that keeps up gets what there is, and one that does
//! not gets large bundles, whose fixed cost is spread. Nor more than a stateless stage has done in
//! about [`BUNDLE_NS`]. Rows that are few wait as [`source_batcher`](crate::source_batcher) says.

use thalweg_core::{Bundle, Result, SourceBatch, SourcePoll, Stamps, Watermark, WatermarkBefore};
use thalweg_ordering::sync::Ordering;

use crate::dispatcher::WorkerPlace;
use crate::job::Job;
use crate::memory::Pressure;
use crate::metrics::StageMetrics;
use crate::pace::Pace;
use crate::source_batcher::Wait;
use crate::stage::{INPUT_ENDED_NS, SourceRun, SourceState, StageRun, StageRunKind};

/// This many rows wait for no others. Putting them together copies them, and nobody else can ask
/// the source meanwhile: with many cores that is what all wait for.
const GATHERED_ROWS: usize = 16 * 1024;

/// The smallest bundle that is asked of a source that keeps up.
const BUNDLE_ROWS_MIN: usize = 1024;

/// What a stateless stage has to do for a bundle at once should take no longer: a bundle is not cut
/// once it is made, whoever waits for a result of it waits for the whole, and other workers can
/// take no part of it.
const BUNDLE_NS: u64 = 2_000_000;

impl Job {
    /// Asks a source, and lets others ask it.
    pub(super) fn run_poll(&self, stage: usize, place: WorkerPlace, pace: Pace) -> Result<u64> {
        let StageRunKind::Source(run) = &self.stages[stage].kind else {
            unreachable!("only sources are polled")
        };
        let done = self.poll_while_small(stage, run, place, pace);
        // SeqCst on both sides: either this sees that the source is ready, or whoever makes it
        // ready notifies after the mark is gone. Who parked because of the mark is woken here.
        run.is_asked.store(false, Ordering::SeqCst);
        if run.ready.load(Ordering::SeqCst) {
            self.news.notify();
        }
        done
    }

    /// Asks a source for a bundle, and as long as bundles are small for the next ones. Says how
    /// many came.
    fn poll_while_small(
        &self,
        stage: usize,
        run: &SourceRun,
        place: WorkerPlace,
        mut pace: Pace,
    ) -> Result<u64> {
        // A worker looks whether it is idle: there is nothing to wait for.
        let Ok(mut state) = run.state.try_lock() else {
            return Ok(1);
        };
        let wall_ms = self.options.clock.wall_ms();
        loop {
            let rows = self.poll_once(stage, run, &mut state, place, wall_ms)?;
            let may_continue = self.may_continue(&mut pace, rows.unwrap_or(usize::MAX))
                && self.memory.pressure() == Pressure::Low
                && !self.holding.load(Ordering::Relaxed)
                && self.is_in_turn(stage);
            if !may_continue {
                return Ok(pace.done());
            }
        }
    }

    /// Asks a source once. Says how many rows came, if any did.
    fn poll_once(
        &self,
        stage: usize,
        run: &SourceRun,
        state: &mut SourceState,
        place: WorkerPlace,
        wall_ms: i64,
    ) -> Result<Option<usize>> {
        if run.finished.load(Ordering::Relaxed) {
            run.ready.store(false, Ordering::SeqCst);
            return Ok(None);
        }
        if self.stages[stage].ended.load(Ordering::Relaxed) || self.is_stopping() {
            return self.end_source(stage, run, state).map(|()| None);
        }
        // What was read goes first.
        state.at_end |= self.is_draining();
        let answer = self.read(run, state)?;
        self.report_buffered(stage, state)?;
        match answer {
            SourcePoll::Batch(batch) => {
                run.last_rows_ns.store(self.options.clock.now_ns(), Ordering::Relaxed);
                self.wake_from_idle(stage, run, state)?;
                let rows = batch.batch.num_rows();
                self.send(stage, state, batch, place, wall_ms)?;
                Ok(Some(rows))
            }
            SourcePoll::Heartbeat(time_ms) => {
                self.wake_from_idle(stage, run, state)?;
                self.take_heartbeat(stage, state, time_ms).map(|()| None)
            }
            SourcePoll::Pending => {
                // The call to end may have come before `read` cleared the mark. SeqCst on both
                // sides: either this sees why, or the mark was set after it was cleared.
                if self.stages[stage].ended.load(Ordering::SeqCst)
                    || self.is_stopping()
                    || self.is_draining()
                {
                    run.ready.store(true, Ordering::SeqCst);
                }
                Ok(None)
            }
            SourcePoll::End => self.end_source(stage, run, state).map(|()| None),
        }
    }

    /// Reports to the memory account how much a source keeps back.
    fn report_buffered(&self, stage: usize, state: &mut SourceState) -> Result<()> {
        let bytes = state.source.buffered_bytes();
        if bytes == state.buffered_bytes {
            return Ok(());
        }
        let grown = bytes as i64 - std::mem::replace(&mut state.buffered_bytes, bytes) as i64;
        self.grow_state(stage, grown)
    }

    /// Asks the source for a bundle's worth of rows, and learns from the answer how many to ask
    /// for. `Pending` also says that rows wait for company; the source stays ready then, or calls.
    fn read(&self, run: &SourceRun, state: &mut SourceState) -> Result<SourcePoll> {
        if let Some(batch) = state.leftover.pop_front() {
            return Ok(SourcePoll::Batch(batch));
        }
        if let Some(time_ms) = state.heartbeat_ms.take() {
            return Ok(SourcePoll::Heartbeat(time_ms));
        }
        loop {
            if let Some(answer) = self.ask(run, state)? {
                return Ok(answer);
            }
        }
    }

    /// Asks the source once. `None` if it brought rows that wait, and may bring more at once.
    fn ask(&self, run: &SourceRun, state: &mut SourceState) -> Result<Option<SourcePoll>> {
        let rows_max = self.options.bundle_rows_max;
        // Cleared first: a wake-up that comes while the source is asked sets it again.
        run.ready.store(false, Ordering::SeqCst);
        let wanted = state.bundle_rows.min(rows_max).min(self.rows_soon_done());
        let answer = if state.at_end { SourcePoll::End } else { state.source.poll(wanted)? };
        let now_ns = self.options.clock.now_ns();
        let brought_rows = matches!(answer, SourcePoll::Batch(_));
        let waits_for_epoch = state.waits_for_epoch && !run.idle.load(Ordering::SeqCst);
        match answer {
            SourcePoll::Batch(batch) => {
                run.ready.store(true, Ordering::SeqCst);
                if batch.batch.num_rows() >= wanted {
                    state.bundle_rows = (wanted * 2).min(rows_max);
                }
                let ends_epoch = waits_for_epoch && state.may_end_epoch(&batch);
                if let Some(first) = self.gather(state, batch, ends_epoch, now_ns)? {
                    return Ok(Some(first));
                }
            }
            SourcePoll::Pending if state.batcher.is_empty() => {
                run.gathers_until_ns.store(0, Ordering::Relaxed);
                state.bundle_rows = (state.bundle_rows / 2).max(BUNDLE_ROWS_MIN.min(rows_max));
                return Ok(Some(SourcePoll::Pending));
            }
            SourcePoll::Pending if waits_for_epoch => {}
            SourcePoll::Pending => run.ready.store(true, Ordering::SeqCst),
            SourcePoll::Heartbeat(time_ms) => {
                run.ready.store(true, Ordering::SeqCst);
                run.last_rows_ns.store(now_ns, Ordering::Relaxed);
                if state.batcher.is_empty() {
                    state.ingest_ns = now_ns;
                    return Ok(Some(SourcePoll::Heartbeat(time_ms)));
                }
                // It is about what comes behind the rows that came before it.
                state.heartbeat_ms = Some(time_ms);
                return self.gathered(state).map(Some);
            }
            SourcePoll::End if state.batcher.is_empty() => return Ok(Some(SourcePoll::End)),
            SourcePoll::End => {
                state.at_end = true;
                run.ready.store(true, Ordering::SeqCst);
                return self.gathered(state).map(Some);
            }
        }
        let wait = match waits_for_epoch {
            true => Wait::ForEpoch,
            false => self.wait_while_busy(),
        };
        let company = wanted.min(GATHERED_ROWS);
        let until_ns = state.batcher.waits_until_ns(company, wait, now_ns);
        run.gathers_until_ns.store(until_ns.unwrap_or(0), Ordering::Relaxed);
        match until_ns {
            None => self.gathered(state).map(Some),
            Some(_) if brought_rows && waits_for_epoch => Ok(None),
            Some(_) => Ok(Some(SourcePoll::Pending)),
        }
    }

    /// How many rows no stateless stage has to do with for longer than [`BUNDLE_NS`], going by what
    /// rows took so far. Operators share a bundle among their partitions, and what they do for
    /// watermarks follows other figures than rows.
    fn rows_soon_done(&self) -> usize {
        // Relaxed: gauges that steer.
        let rows_in = |&source: &usize| self.stages[source].metrics.rows_in.load(Ordering::Relaxed);
        let rows: u64 = self.sources.iter().map(rows_in).sum();
        let is_stateless = |stage: &&StageRun| matches!(stage.kind, StageRunKind::Transform(_));
        let busy_ns = |stage: &StageRun| stage.metrics.busy_ns.load(Ordering::Relaxed);
        let Some(longest_ns) = self.stages.iter().filter(is_stateless).map(busy_ns).max() else {
            return usize::MAX;
        };
        let soon_done = u128::from(BUNDLE_NS) * u128::from(rows) / u128::from(longest_ns.max(1));
        usize::try_from(soon_done).unwrap_or(usize::MAX).max(BUNDLE_ROWS_MIN)
    }

    /// Puts a batch to those that wait. They leave first if it is of another file.
    fn gather(
        &self,
        state: &mut SourceState,
        batch: SourceBatch,
        ends_epoch: bool,
        now_ns: u64,
    ) -> Result<Option<SourcePoll>> {
        if state.batcher.is_empty() {
            // Of what waits for company the first row counts.
            state.ingest_ns = now_ns.saturating_sub(state.source.overdue_ns());
        }
        let Some(of_another_file) = state.batcher.add(batch, ends_epoch, now_ns) else {
            return Ok(None);
        };
        let first = self.gathered(state)?;
        let rest = state.batcher.add(of_another_file, ends_epoch, now_ns);
        assert!(rest.is_none(), "an empty gather takes any batch");
        Ok(Some(first))
    }

    fn wait_while_busy(&self) -> Wait {
        Wait::WhileBusy {
            is_busy: self.memory.in_flight_bytes() > 0,
            linger_ns: self.options.bundle_linger.as_nanos() as u64,
        }
    }

    /// What is gathered, cut to the largest bundle.
    pub(crate) fn gathered(&self, state: &mut SourceState) -> Result<SourcePoll> {
        let batch = state.batcher.take()?.expect("there is something gathered");
        let batch = split(batch, self.options.bundle_rows_max, &mut state.leftover);
        Ok(SourcePoll::Batch(batch))
    }

    pub(crate) fn send(
        &self,
        stage: usize,
        state: &mut SourceState,
        batch: SourceBatch,
        place: WorkerPlace,
        wall_ms: i64,
    ) -> Result<()> {
        let run = &self.stages[stage];
        StageMetrics::add(&run.metrics.rows_in, batch.batch.num_rows() as u64);
        StageMetrics::add(&run.metrics.bundles_in, 1);
        let mut origin = batch.origin.clone();
        let (batch, watermark_before, time_extremes) = match &mut state.assigner {
            None => (batch.batch, WatermarkBefore::All(Watermark::MIN), None),
            Some(assigner) => {
                let assigned = assigner.assign(batch, wall_ms)?;
                StageMetrics::add(&run.metrics.quarantined, assigned.quarantined);
                origin = origin.filter(|_| assigned.quarantined == 0);
                run.metrics.set_watermark(assigner.running_watermark());
                (assigned.batch, assigned.watermark_before, assigned.time_extremes)
            }
        };
        let stamps = Stamps {
            lane: 0,
            epoch: state.epoch,
            ordinal: 0,
            serial: state.serial,
            numa_node: place.numa_node as u16,
            ingest_ns: state.ingest_ns,
            watermark_before,
            origin,
            time_extremes,
            row_places: None,
        };
        state.serial += 1;
        let bundle = Bundle::new(batch, stamps);
        if let Some(flow) = &self.ordered {
            return self.ingest_bundle(flow, stage, state, bundle);
        }
        for (place, edge) in run.edges.iter().enumerate() {
            let down = &self.stages[edge.to.0].lanes[edge.lane_base];
            let container = state.current[place].get_or_insert_with(|| down.append());
            self.deposit(stage, edge, edge.lane_base, container, bundle.clone(), false)?;
        }
        match state.assigner.as_mut().and_then(|assigner| assigner.take_watermark()) {
            Some(watermark) => self.end_epoch(stage, state, watermark),
            None => Ok(()),
        }
    }

    /// No row of the source to come is older than this.
    pub(crate) fn take_heartbeat(
        &self,
        stage: usize,
        state: &mut SourceState,
        time_ms: i64,
    ) -> Result<()> {
        if let Some(assigner) = &mut state.assigner {
            assigner.raise_watermark(Watermark(time_ms.saturating_sub(1)));
        }
        if let Some(flow) = &self.ordered {
            return self.ingest_heartbeat(flow, stage, state, time_ms);
        }
        match state.assigner.as_mut().and_then(|assigner| assigner.take_watermark()) {
            Some(watermark) => self.end_epoch(stage, state, watermark),
            None => Ok(()),
        }
    }

    fn end_epoch(&self, stage: usize, state: &mut SourceState, end: Watermark) -> Result<()> {
        state.epoch += 1;
        for (place, edge) in self.stages[stage].edges.iter().enumerate() {
            let down = &self.stages[edge.to.0].lanes[edge.lane_base];
            let container = state.current[place].take().unwrap_or_else(|| down.append());
            self.close(edge, edge.lane_base, &container, Some(end), state.ingest_ns)?;
        }
        Ok(())
    }

    /// The input has ended, is not needed any more, or the job is being stopped. Only the first two
    /// end with the last watermark: windows that are not complete must not look complete.
    fn end_source(&self, stage: usize, run: &SourceRun, state: &mut SourceState) -> Result<()> {
        state.source.stop();
        state.leftover.clear();
        state.batcher.clear();
        run.ready.store(false, Ordering::SeqCst);
        run.finished.store(true, Ordering::SeqCst);
        let bad_rows = state.source.bad_rows();
        StageMetrics::add(&self.stages[stage].metrics.bad_rows, bad_rows);
        if self.is_stopping() {
            return Ok(());
        }
        self.stages[stage].metrics.set_watermark(Watermark::END);
        state.ingest_ns = INPUT_ENDED_NS;
        if let Some(flow) = &self.ordered {
            return self.ingest_end(flow, stage, state.ingest_ns);
        }
        self.end_epoch(stage, state, Watermark::END)
    }
}

/// The first `rows_max` rows of a batch; the rest goes to `leftover` in pieces of that size.
fn split(
    batch: SourceBatch,
    rows_max: usize,
    leftover: &mut std::collections::VecDeque<SourceBatch>,
) -> SourceBatch {
    let rows = batch.batch.num_rows();
    if rows <= rows_max {
        return batch;
    }
    let piece = |offset: usize| SourceBatch {
        batch: batch.batch.slice(offset, rows_max.min(rows - offset)),
        origin: batch.origin.clone().map(|mut origin| {
            origin.first_row += offset as u64;
            origin
        }),
    };
    leftover.extend((rows_max..rows).step_by(rows_max).map(piece));
    piece(0)
}
