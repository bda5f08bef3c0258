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

use std::collections::VecDeque;
use std::sync::OnceLock;

use thalweg_core::connector::{Assign, SplitEvent};
use thalweg_core::{
    Bundle, Result, SourceBatch, SourcePoll, SplitId, Stamps, TimeExtremes, Watermark,
    WatermarkBefore,
};
use thalweg_ordering::sync::Ordering;

use crate::flow::Flow;
use crate::job::{Job, StageAt};
use crate::memory::Pressure;
use crate::metrics::{BlockedBy, StageMetrics};
use crate::ordered::OrderedFlow;
use crate::pace::Pace;
use crate::source_batcher::Wait;
use crate::stage::{INPUT_ENDED_NS, SourceRun, SourceState, StageRun, StageRunKind};
use crate::topology::WorkerPlace;

/// This many rows wait for no others. Putting them together copies them, and nobody else can ask
/// the source meanwhile: with many cores that is what all wait for.
const GATHERED_ROWS: usize = 16 * 1024;

/// The smallest bundle that is asked of a source that keeps up.
const BUNDLE_ROWS_MIN: usize = 1024;

/// How often a busy source shows how far its splits are.
const SHOW_SPLITS_NS: u64 = 200_000_000;

/// What a stateless stage has to do for a bundle at once should take no longer: a bundle is not cut
/// once it is made, whoever waits for a result of it waits for the whole, and other workers can
/// take no part of it.
const BUNDLE_NS: u64 = 2_000_000;

/// Where there are other sources, a bundle spans about this many windows at most: what is ahead of
/// another input waits for it in windows that are all open, and their tables leave the cache.
const BUNDLE_WINDOWS: i64 = 4;

/// Asks a source for a bundle, and as long as bundles are small for the next ones, and lets others
/// ask it. Says how many came.
pub(crate) fn poll(job: &Job, stage: usize, worker: WorkerPlace, pace: Pace) -> Result<u64> {
    let run = job.stages[stage].source().expect("only sources are polled");
    for by in [BlockedBy::Output, BlockedBy::Memory, BlockedBy::Order, BlockedBy::Cut] {
        job.stages[stage].metrics.blocked.end(by, || job.now_ns());
    }
    // A worker looks whether it is idle: there is nothing to wait for.
    let done = match run.state.try_lock() {
        Ok(mut state) => Poll::new(job, stage, &mut state, worker).while_small(pace),
        Err(_) => Ok(1),
    };
    // SeqCst on both sides: either this sees that the source is ready, or whoever makes it
    // ready notifies after the mark is gone. Who parked because of the mark is woken here.
    run.is_asked.store(false, Ordering::SeqCst);
    if run.ready.load(Ordering::SeqCst) || run.wants_cut() {
        job.news.notify();
    }
    done
}

/// True if there is an end of a window in each part of the time between two watermarks. Where every
/// watermark matters, windows have no ends of their own.
fn spans_windows(assigner: &dyn Assign, from: Watermark, to: Watermark) -> bool {
    let crosses = |from, to| assigner.crosses(Watermark(from), Watermark(to));
    let (Watermark(from), Some(span)) = (from, to.0.checked_sub(from.0)) else { return false };
    let step = span / BUNDLE_WINDOWS;
    let matters_always = || crosses(from, from + 1) && crosses(from + 1, from + 2);
    let mut starts = (0..BUNDLE_WINDOWS).map(|part| from + part * step);
    step > 1 && starts.all(|start| crosses(start, start + step)) && !matters_always()
}

/// A worker at a source.
struct Poll<'a> {
    at: StageAt<'a>,
    run: &'a SourceRun,
    state: &'a mut SourceState,
    worker: WorkerPlace,
    wall_ms: i64,
}

impl<'a> Poll<'a> {
    fn new(job: &'a Job, stage: usize, state: &'a mut SourceState, worker: WorkerPlace) -> Self {
        let at = job.at(stage);
        let run = at.run.source().expect("the stage is a source");
        Poll { at, run, state, worker, wall_ms: job.settings.clock.wall_ms() }
    }

    fn flow(&self) -> Flow<'a> {
        Flow::at(self.at.job, self.at.place)
    }

    /// What comes before the source is asked: the rest of a large batch, and promises about what
    /// comes behind rows that were read.
    fn left_over(&mut self) -> Option<SourcePoll> {
        let batch = self.state.leftover.pop_front().map(SourcePoll::Batch);
        batch.or_else(|| self.state.behind.take())
    }

    /// What was given and not sent, in its order.
    fn given(&mut self) -> Result<Option<SourcePoll>> {
        if self.state.leftover.is_empty() && !self.state.batcher.is_empty() {
            return self.gathered().map(Some);
        }
        Ok(self.left_over())
    }

    fn while_small(&mut self, mut pace: Pace) -> Result<u64> {
        let job = self.at.job;
        let ordered = job.ordered.as_ref();
        let place = self.at.place;
        let is_in_turn = |flow: &OrderedFlow| flow.is_in_turn(place);
        if self.run.wants_cut() {
            return self.place_cut().map(|()| 1);
        }
        // The worker may have set out before they were paused.
        if job.cuts.is_paused() {
            return Ok(1);
        }
        loop {
            let rows = self.once()?;
            self.run.was_polled.store(true, Ordering::Relaxed);
            self.show_splits_if_due();
            let may_continue = job.may_continue(&mut pace, rows.unwrap_or(usize::MAX))
                && job.memory.pressure() == Pressure::Low
                && !job.cuts.is_paused()
                && !self.run.wants_cut()
                && (job.lifecycle.is_stopping() || ordered.is_none_or(is_in_turn));
            if !may_continue {
                return Ok(pace.done());
            }
        }
    }

    /// Whoever looks at metrics finds the source busy mostly.
    fn show_splits_if_due(&self) {
        let now_ns = self.at.job.now_ns();
        if now_ns.saturating_sub(self.run.shown_ns.load(Ordering::Relaxed)) >= SHOW_SPLITS_NS {
            self.run.show_splits(self.state, &self.at.run.metrics, now_ns);
        }
    }

    /// Places the cut of a snapshot behind all that the source has given: what waits for company
    /// goes first, and promises that it has made. What the source is there is known at once, and
    /// it is asked on.
    fn place_cut(&mut self) -> Result<()> {
        let (job, place) = (self.at.job, self.at.place);
        let begun_ns = job.now_ns();
        while !self.run.has_finished()
            && let Some(given) = self.given()?
        {
            match given {
                SourcePoll::Batch(batch) => self.send(batch)?,
                SourcePoll::Heartbeat(split, time_ms) => self.take_heartbeat(split, time_ms)?,
                SourcePoll::Split(split, event) => self.take_event(split, &event)?,
                SourcePoll::Pending | SourcePoll::End => unreachable!("only what was given"),
            }
        }
        let cut = job.cuts.current();
        match self.state.at_cut(self.run) {
            Ok(found) => cut.stage(place).source = Some(found),
            Err(error) => cut.stage(place).note_problem(error),
        }
        self.run.wants_cut.store(false, Ordering::SeqCst);
        job.cuts.note_placed();
        cut.note_placed(job.now_ns());
        self.flow().ingest_cut(self.state)?;
        cut.note_hold(begun_ns, job.now_ns());
        self.at.report_cut(&cut);
        Ok(())
    }

    /// True if the source is to end, whatever it has.
    fn is_ended(&self) -> bool {
        self.at.run.ended.load(Ordering::SeqCst) || self.at.job.lifecycle.is_stopping()
    }

    /// Asks a source once. Says how many rows came, if any did.
    fn once(&mut self) -> Result<Option<usize>> {
        let job = self.at.job;
        if self.run.finished.load(Ordering::Relaxed) {
            self.run.ready.store(false, Ordering::SeqCst);
            return Ok(None);
        }
        if self.is_ended() {
            return self.end().map(|()| None);
        }
        // What was read goes first.
        self.state.at_end |= job.lifecycle.is_draining();
        let answer = self.read()?;
        self.report_buffered()?;
        match answer {
            SourcePoll::Batch(batch) => {
                let rows = batch.batch.num_rows();
                self.send(batch)?;
                Ok(Some(rows))
            }
            SourcePoll::Heartbeat(split, time_ms) => {
                self.take_heartbeat(split, time_ms).map(|()| None)
            }
            SourcePoll::Split(split, event) => self.take_event(split, &event).map(|()| None),
            SourcePoll::Pending => {
                // The call to end may have come before `read` cleared the mark. SeqCst on both
                // sides: either this sees why, or the mark was set after it was cleared.
                if self.is_ended() || job.lifecycle.is_draining() {
                    self.run.ready.store(true, Ordering::SeqCst);
                }
                Ok(None)
            }
            SourcePoll::End => self.end().map(|()| None),
        }
    }

    fn wake_from_idle(&mut self) -> Result<()> {
        match self.run.idle.swap(false, Ordering::SeqCst) {
            true => self.flow().wake_from_idle(self.state),
            false => Ok(()),
        }
    }

    /// A split gives something: neither it nor the source is idle any more.
    /// Says when that is.
    fn begin(&mut self, split: SplitId) -> Result<u64> {
        self.wake_from_idle()?;
        let now_ns = self.at.job.now_ns();
        self.run.note_active(now_ns);
        self.state.splits.begin(split, now_ns)?;
        Ok(now_ns)
    }

    /// Reports to the memory account how much a source keeps back.
    fn report_buffered(&mut self) -> Result<()> {
        let bytes = self.state.source.buffered_bytes();
        let before = std::mem::replace(&mut self.state.buffered_bytes, bytes);
        self.at.grow_state(bytes as i64 - before as i64)
    }

    /// Asks the source for a bundle's worth of rows, and learns from the answer how many to ask
    /// for. `Pending` also says that rows wait for company.
    fn read(&mut self) -> Result<SourcePoll> {
        if let Some(first) = self.left_over() {
            return Ok(first);
        }
        loop {
            if let Some(answer) = self.ask()? {
                return Ok(answer);
            }
        }
    }

    /// Asks the source once. `None` if it brought rows that wait, and may bring more at once.
    fn ask(&mut self) -> Result<Option<SourcePoll>> {
        let rows_max = self.at.job.settings.bundle_rows_max;
        // Cleared first: a wake-up that comes while the source is asked sets it again.
        self.run.ready.store(false, Ordering::SeqCst);
        self.run.gathers_while_busy.store(false, Ordering::SeqCst);
        let wanted = self.state.bundle_rows.min(rows_max).min(self.rows_soon_done());
        let answer = match (self.state.at_end, self.is_ahead()) {
            (true, _) => SourcePoll::End,
            (false, true) => SourcePoll::Pending,
            (false, false) => self.state.source.poll(wanted)?,
        };
        let now_ns = self.at.job.now_ns();
        self.run.asked_ns.store(now_ns, Ordering::Relaxed);
        let brought_rows = matches!(answer, SourcePoll::Batch(_));
        let waits_for_epoch = self.state.waits_for_epoch && !self.run.idle.load(Ordering::SeqCst);
        match answer {
            SourcePoll::Batch(batch) => {
                self.run.ready.store(true, Ordering::SeqCst);
                if batch.batch.num_rows() >= wanted {
                    self.state.bundle_rows = (wanted * 2).min(rows_max);
                }
                let ends_epoch = waits_for_epoch && self.state.may_end_epoch(&batch);
                if let Some(first) = self.gather(batch, ends_epoch, now_ns)? {
                    return Ok(Some(first));
                }
            }
            SourcePoll::Pending if self.state.batcher.is_empty() => {
                self.run.gathers_until_ns.store(0, Ordering::Relaxed);
                self.state.bundle_rows =
                    (self.state.bundle_rows / 2).max(BUNDLE_ROWS_MIN.min(rows_max));
                return Ok(Some(SourcePoll::Pending));
            }
            SourcePoll::Pending => {}
            SourcePoll::Heartbeat(..) | SourcePoll::Split(..) => {
                self.run.ready.store(true, Ordering::SeqCst);
                if self.state.batcher.is_empty() {
                    self.state.ingest_ns = now_ns;
                    return Ok(Some(answer));
                }
                // It is about what comes behind the rows that came before it.
                self.state.behind = Some(answer);
                return self.gathered().map(Some);
            }
            SourcePoll::End if self.state.batcher.is_empty() => return Ok(Some(SourcePoll::End)),
            SourcePoll::End => {
                self.state.at_end = true;
                self.run.ready.store(true, Ordering::SeqCst);
                return self.gathered().map(Some);
            }
        }
        let wait = match waits_for_epoch {
            true => Wait::ForEpoch,
            false => self.wait_while_busy(),
        };
        let company = wanted.min(GATHERED_ROWS);
        let until_ns = self.state.batcher.waits_until_ns(company, wait, now_ns);
        self.run.gathers_until_ns.store(until_ns.unwrap_or(0), Ordering::Relaxed);
        match until_ns {
            None => self.gathered().map(Some),
            Some(_) if brought_rows && waits_for_epoch => Ok(None),
            Some(_) => {
                self.run.gathers_while_busy.store(!waits_for_epoch, Ordering::SeqCst);
                Ok(Some(SourcePoll::Pending))
            }
        }
    }

    /// Splits that are ahead of their group are paused. True if the source is to wait as a whole:
    /// whoever raises the limit calls it.
    fn is_ahead(&mut self) -> bool {
        if self.run.alignment.is_none() {
            return false;
        }
        let limit = Watermark(self.run.limit_ms.load(Ordering::SeqCst));
        let state = &mut *self.state;
        for (split, is_paused) in state.splits.keep_in_step(limit) {
            state.source.pause_split(split, is_paused);
        }
        let is_held = !state.splits.has_named() && state.splits.joint() > limit;
        self.run.is_held.store(is_held, Ordering::SeqCst);
        if is_held {
            self.at.run.metrics.blocked.begin(BlockedBy::Order, || self.at.job.now_ns());
        }
        is_held
    }

    /// How many rows no stateless stage has to do with for longer than [`BUNDLE_NS`], going by what
    /// rows took so far. Operators share a bundle among their partitions, and what they do for
    /// watermarks follows other figures than rows.
    fn rows_soon_done(&self) -> usize {
        // Relaxed: gauges that steer.
        let stages = &self.at.job.stages;
        let rows_in = |&source: &usize| stages[source].metrics.rows_in.load(Ordering::Relaxed);
        let rows: u64 = stages.source_places().iter().map(rows_in).sum();
        let is_stateless = |stage: &&StageRun| matches!(stage.kind, StageRunKind::Transform(_));
        let busy_ns = |stage: &StageRun| stage.metrics.busy_ns.load(Ordering::Relaxed);
        let Some(longest_ns) = stages.iter().filter(is_stateless).map(busy_ns).max() else {
            return usize::MAX;
        };
        let soon_done = u128::from(BUNDLE_NS) * u128::from(rows) / u128::from(longest_ns.max(1));
        usize::try_from(soon_done).unwrap_or(usize::MAX).max(BUNDLE_ROWS_MIN)
    }

    /// Puts a batch to those that wait. They leave first if it is of another file.
    fn gather(
        &mut self,
        batch: SourceBatch,
        ends_epoch: bool,
        now_ns: u64,
    ) -> Result<Option<SourcePoll>> {
        if self.state.batcher.is_empty() {
            // Of what waits for company the first row counts.
            self.state.ingest_ns = now_ns.saturating_sub(self.state.source.overdue_ns());
        }
        let Some(of_another_file) = self.state.batcher.add(batch, ends_epoch, now_ns) else {
            return Ok(None);
        };
        let first = self.gathered()?;
        let rest = self.state.batcher.add(of_another_file, ends_epoch, now_ns);
        assert!(rest.is_none(), "an empty gather takes any batch");
        Ok(Some(first))
    }

    fn wait_while_busy(&self) -> Wait {
        Wait::WhileBusy {
            is_busy: self.at.job.is_busy(),
            linger_ns: self.at.job.settings.bundle_linger.as_nanos() as u64,
        }
    }

    /// What is gathered, cut to the largest bundle.
    fn gathered(&mut self) -> Result<SourcePoll> {
        let batch = self.state.batcher.take()?.expect("there is something gathered");
        let batch = split(batch, self.at.job.settings.bundle_rows_max, &mut self.state.leftover);
        Ok(SourcePoll::Batch(batch))
    }

    /// Stamps rows and sends them on.
    fn send(&mut self, batch: SourceBatch) -> Result<()> {
        let split = batch.split;
        let now_ns = self.begin(split)?;
        let rows = batch.batch.num_rows();
        self.at.count_in(rows);
        let metrics = &self.at.run.metrics;
        let mut origin = batch.origin.clone();
        let (batch, watermark_before, time_extremes) = match &mut self.state.assigner {
            None => (batch.batch, WatermarkBefore::All(Watermark::MIN), None),
            Some(assigner) => {
                let before = self.state.splits.running(split);
                let assigned = assigner.assign(batch, before, self.wall_ms)?;
                let has_others = self.at.job.stages.source_places().len() > 1;
                let after = assigned.watermark_after;
                if has_others && spans_windows(assigner.as_ref(), before, after) {
                    self.state.bundle_rows = (rows / 2).max(BUNDLE_ROWS_MIN);
                }
                self.state.splits.raise(split, assigned.watermark_after);
                StageMetrics::add(&metrics.quarantined, assigned.quarantined);
                origin = origin.filter(|_| assigned.quarantined == 0);
                metrics.set_watermark(self.state.splits.joint(), || now_ns);
                (assigned.batch, assigned.watermark_before, assigned.time_extremes)
            }
        };
        let last_time_ms = time_extremes.as_ref().map(TimeExtremes::highest);
        self.state.splits.note_rows(split, rows, now_ns, last_time_ms);
        let stamps = Stamps {
            epoch: self.state.epoch,
            serial: self.state.serial,
            numa_node: self.worker.numa_node as u16,
            ingest_ns: self.state.ingest_ns,
            watermark_before,
            origin,
            time_extremes: time_extremes.map_or_else(OnceLock::new, OnceLock::from),
            ..Stamps::first()
        };
        self.state.serial += 1;
        self.flow().ingest(self.state, Bundle::new(batch, stamps), split)
    }

    /// No row of a split to come is older than this.
    fn take_heartbeat(&mut self, split: SplitId, time_ms: i64) -> Result<()> {
        self.begin(split)?;
        self.state.splits.raise(split, Watermark(time_ms.saturating_sub(1)));
        self.state.show_watermark(&self.at.run.metrics, || self.at.job.now_ns());
        self.flow().ingest_heartbeat(self.state, time_ms)
    }

    fn take_event(&mut self, split: SplitId, event: &SplitEvent) -> Result<()> {
        let SplitEvent::Opened(name) = event else {
            self.state.splits.end(split);
            self.state.show_watermark(&self.at.run.metrics, || self.at.job.now_ns());
            return self.flow().ingest_heartbeat(self.state, i64::MIN);
        };
        let now_ns = self.at.job.now_ns();
        if !self.state.splits.open(split, name, now_ns)? {
            return Ok(());
        }
        // No watermark moves yet: others of the same snapshot may be opened behind this one.
        self.begin(split).map(drop)
    }

    /// The input has ended, is not needed any more, or the job is being stopped. Only the first two
    /// end with the last watermark: windows that are not complete must not look complete.
    fn end(&mut self) -> Result<()> {
        let state = &mut *self.state;
        state.source.stop();
        state.leftover.clear();
        state.batcher.clear();
        self.run.ready.store(false, Ordering::SeqCst);
        self.run.finished.store(true, Ordering::SeqCst);
        let metrics = &self.at.run.metrics;
        metrics.bad_rows.store(state.source.bad_rows(), Ordering::Relaxed);
        if self.at.job.lifecycle.is_stopping() {
            return Ok(());
        }
        metrics.set_watermark(Watermark::END, || self.at.job.now_ns());
        state.ingest_ns = INPUT_ENDED_NS;
        self.flow().ingest_end(self.state)
    }
}

/// The first `rows_max` rows of a batch; the rest goes to `leftover` in pieces of that size.
fn split(batch: SourceBatch, rows_max: usize, leftover: &mut VecDeque<SourceBatch>) -> SourceBatch {
    let rows = batch.batch.num_rows();
    if rows <= rows_max {
        return batch;
    }
    let piece = |offset: usize| SourceBatch {
        split: batch.split,
        batch: batch.batch.slice(offset, rows_max.min(rows - offset)),
        origin: batch.origin.clone().map(|mut origin| {
            origin.first_row += offset as u64;
            origin
        }),
    };
    leftover.extend((rows_max..rows).step_by(rows_max).map(piece));
    piece(0)
}
