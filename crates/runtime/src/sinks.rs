//! Sinks: what is sent to them, and their threads, which may block without holding a worker up.
//!
//! The channel to it has no bound of its own. What waits in it counts as bytes in flight until it
//! is written, so a slow sink fills the memory account, and sources are asked no more: the bound is
//! kept at the one place where slowing down loses nothing.
//!
//! A sink that wants no more ([`Demand`]) is finished at once. Its thread stays, and answers in its
//! place.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, TryRecvError};
use std::thread::JoinHandle;
use std::time::Duration;

use thalweg_core::connector::{Demand, Waker};
use thalweg_core::snapshot::{SinkGuarantee, SinkState as SinkAtCut};
use thalweg_core::{Error, Result, Sink};
use thalweg_ordering::sync::{Arc, Ordering};

use crate::cut::CutUnderWay;
use crate::job::{Job, StageAt};
use crate::lifecycle::caught;
use crate::metrics::StageMetrics;
use crate::stage::{INPUT_ENDED_NS, SinkBatch, SinkMessage, SinkRun};

/// A sink to which nothing comes is flushed again after this.
const FLUSH_AGAIN: Duration = Duration::from_millis(500);

/// Whether a sink takes more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SinkState {
    /// More may come.
    Open,
    /// Finished, stopped or aborted.
    Closed,
}

/// The receiving ends of the sinks' channels with their stages.
pub(crate) type SinkReceivers = Vec<(usize, Receiver<SinkMessage>)>;

/// A sink at its stage.
#[derive(Clone, Copy)]
pub(crate) struct SinkAt<'a> {
    at: StageAt<'a>,
    run: &'a SinkRun,
}

/// The sink at this stage.
pub(crate) fn at(job: &Job, stage: usize) -> SinkAt<'_> {
    let at = job.at(stage);
    SinkAt { at, run: at.run.sink().expect("the stage is a sink") }
}

/// For so long a sink may finish what has come to it when the job is over; calls that block then
/// are ended.
pub(crate) const FINISH_TIME_NS: u64 = 1_000_000_000;
/// How often it is looked at whether it has.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// The thread of a sink.
pub(crate) struct SinkThread {
    job: Arc<Job>,
    stage: usize,
    handle: JoinHandle<()>,
    canceller: Option<Waker>,
}

impl SinkThread {
    /// Waits until it has ended; the job is over, and the last message was sent. A call that still
    /// blocks at this moment is ended.
    pub(crate) fn join(self, until_ns: u64) {
        let SinkThread { job, stage, handle, canceller } = self;
        if let Some(cancel) = canceller {
            while !handle.is_finished() && job.now_ns() < until_ns {
                std::thread::sleep(LOOK_AGAIN);
            }
            if !handle.is_finished() {
                at(&job, stage).run.is_cancelled.store(true, Ordering::SeqCst);
                cancel();
            }
        }
        if handle.join().is_err() {
            job.lifecycle.fail(Error::internal("a sink's thread panicked"));
        }
    }
}

/// Starts the thread of the sink at this stage.
pub(crate) fn spawn(
    job: &Arc<Job>,
    stage: usize,
    receiver: Receiver<SinkMessage>,
) -> Result<SinkThread> {
    let name = format!("sink-{stage}");
    let of_job = Arc::clone(job);
    let sink = at(job, stage).run.inline.lock().expect("the job starts once");
    let canceller = sink.as_ref().and_then(|sink| sink.canceller());
    if let Some(trouble) = sink.as_ref().and_then(|sink| sink.trouble()) {
        let _ = at(job, stage).run.trouble.set(trouble);
    }
    drop(sink);
    let body = move || {
        let job = of_job;
        let place = at(&job, stage);
        let mut sink = place.run.inline.lock().expect("the job starts once").take();
        let Err(error) = caught(|| place.listen(&mut sink, &receiver)) else { return };
        if let Some(sink) = sink.as_mut() {
            sink.abort();
        }
        // What it had to give up is no failure.
        if !place.run.is_cancelled.load(Ordering::SeqCst) {
            job.lifecycle.fail(error.in_operator(place.at.run.name.clone()));
        }
    };
    let thread = std::thread::Builder::new().name(name).spawn(body);
    let handle =
        thread.map_err(|error| Error::io(format!("can't start a sink's thread: {error}")))?;
    Ok(SinkThread { job: Arc::clone(job), stage, handle, canceller })
}

impl SinkAt<'_> {
    /// Sends the mark of a cut behind the rows in front of it. The sink says in its turn what it
    /// has prepared.
    pub(crate) fn prepare(&self, cut: &CutUnderWay) -> Result<()> {
        let (reply, handle) = mpsc::channel();
        let guarantee = self.run.guarantee.get().copied();
        let sink = SinkAtCut {
            guarantee: guarantee.unwrap_or(SinkGuarantee::AtLeastOnce),
            handle: None,
            has_ended: self.run.open_lanes.load(Ordering::SeqCst) == 0,
        };
        let mut at_cut = cut.stage(self.at.place);
        (at_cut.sink, at_cut.reply) = (Some(sink), Some(handle));
        drop(at_cut);
        self.send(SinkMessage::Prepare(reply))
    }

    /// Sends a message to the sink's thread; without one, in a simulation, it is handled at once.
    pub(crate) fn send(&self, message: SinkMessage) -> Result<()> {
        self.run.waiting.fetch_add(1, Ordering::Relaxed);
        if let SinkMessage::Rows(rows) = &message {
            self.run.waiting_bytes.fetch_add(rows.bytes as i64, Ordering::SeqCst);
        }
        if let Some(channel) = &self.run.channel {
            // The thread ends early only after an error, which has ended the job already.
            let _ = channel.send(message);
            return Ok(());
        }
        let mut inline = self.run.inline.lock().expect("no panic under this lock");
        self.handle(&mut inline, message).map(drop)
    }

    /// The thread's life.
    fn listen(
        &self,
        sink: &mut Option<Box<dyn Sink>>,
        receiver: &Receiver<SinkMessage>,
    ) -> Result<()> {
        loop {
            let message = match receiver.try_recv() {
                Ok(message) => message,
                Err(TryRecvError::Empty) => {
                    if let Some(open) = sink.as_mut() {
                        open.flush()?;
                        self.look_at_demand(sink)?;
                    }
                    match receiver.recv_timeout(FLUSH_AGAIN) {
                        Ok(message) => message,
                        // A sink may show by time what it has.
                        Err(RecvTimeoutError::Timeout) => continue,
                        Err(RecvTimeoutError::Disconnected) => return Ok(()),
                    }
                }
                Err(TryRecvError::Disconnected) => return Ok(()),
            };
            if self.handle(sink, message)? == SinkState::Closed {
                return Ok(());
            }
        }
    }

    fn has_failed(&self) -> bool {
        self.at.job.lifecycle.has_failed()
    }

    fn takes_snapshots(&self) -> bool {
        self.at.job.settings.snapshots.is_some()
    }

    /// Does what a message says. Called by the sink's thread, or inline in a simulation.
    pub(crate) fn handle(
        &self,
        slot: &mut Option<Box<dyn Sink>>,
        message: SinkMessage,
    ) -> Result<SinkState> {
        // The end of a job may add messages that were never counted in.
        let lower = |waiting: usize| waiting.checked_sub(1);
        let waiting = self.run.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, lower);
        let StageAt { job, run, .. } = self.at;
        run.metrics.note_queue(waiting.unwrap_or(0));
        let started_ns = job.now_ns();
        // Zero stands for no call.
        run.metrics.called_ns.store(started_ns.max(1), Ordering::Relaxed);
        let state = self.handle_from(slot, message, started_ns);
        run.metrics.called_ns.store(0, Ordering::Relaxed);
        let busy_ns = job.now_ns().saturating_sub(started_ns);
        StageMetrics::add(&run.metrics.busy_ns, busy_ns);
        state
    }

    fn handle_from(
        &self,
        slot: &mut Option<Box<dyn Sink>>,
        message: SinkMessage,
        started_ns: u64,
    ) -> Result<SinkState> {
        let Some(sink) = slot.as_mut() else { return Ok(self.answer_for_finished(message)) };
        match message {
            SinkMessage::Rows(batch) => {
                let written = self.write(sink.as_mut(), &batch, started_ns);
                self.pass(&batch);
                written?;
                self.look_at_demand(slot)?;
                return Ok(SinkState::Open);
            }
            SinkMessage::Prepare(reply) => {
                // Of a job that has failed rows in front of this message may have been passed over:
                // a snapshot would count them as written. Whoever asks gets no answer.
                if !self.has_failed() {
                    let prepared = sink.prepare()?;
                    let rows = self.at.run.metrics.rows_out.load(Ordering::Relaxed);
                    self.run.prepared_rows.store(rows, Ordering::Relaxed);
                    // Whoever asked may have given up; the transaction then ends with the next one.
                    let _ = reply.send(prepared);
                }
                return Ok(SinkState::Open);
            }
            SinkMessage::Commit(handle, mark, reply) => {
                // First: what is visible is never ahead of the mark.
                mark.map_or(Ok(()), |mark| sink.mark(&mark))?;
                sink.commit(&handle)?;
                let rows = self.run.prepared_rows.load(Ordering::Relaxed);
                self.run.committed_rows.store(rows, Ordering::Relaxed);
                let _ = reply.send(());
                return Ok(SinkState::Open);
            }
            SinkMessage::Finish if self.takes_snapshots() && !self.has_failed() => {
                self.at.job.lifecycle.sink_ended();
                return Ok(SinkState::Open);
            }
            // Rows in front of this message may have been passed over: it must not look finished.
            SinkMessage::Finish | SinkMessage::Complete if self.has_failed() => sink.abort(),
            SinkMessage::Finish | SinkMessage::Complete => {
                self.finish(sink.as_mut())?;
                self.at.job.lifecycle.sink_finished();
            }
            SinkMessage::Stop => {
                sink.flush()?;
                sink.abort();
            }
            SinkMessage::Abort => sink.abort(),
        }
        *slot = None;
        Ok(SinkState::Closed)
    }

    /// Finishes a sink that wants no more rows: nothing more is made for it. Where snapshots are
    /// taken, the job that is restored may have a reader again, so what leads to the sink stays as
    /// it is.
    fn look_at_demand(&self, slot: &mut Option<Box<dyn Sink>>) -> Result<()> {
        let Some(sink) = slot else { return Ok(()) };
        if sink.demand() == Demand::More || self.has_failed() {
            return Ok(());
        }
        self.finish(sink.as_mut())?;
        *slot = None;
        if !self.takes_snapshots() {
            self.at.end();
        }
        self.at.job.lifecycle.sink_finished();
        Ok(())
    }

    /// Makes an output final, unless its reader has gone.
    fn finish(&self, sink: &mut dyn Sink) -> Result<()> {
        sink.finish()?;
        let rows = self.at.run.metrics.rows_out.load(Ordering::Relaxed);
        self.run.committed_rows.store(rows, Ordering::Relaxed);
        if sink.demand() == Demand::Gone {
            self.run.gone.store(true, Ordering::SeqCst);
        }
        Ok(())
    }

    /// What is said to a sink that has finished before the job: it gets no rows, and has nothing to
    /// commit.
    fn answer_for_finished(&self, message: SinkMessage) -> SinkState {
        match message {
            SinkMessage::Rows(batch) => self.pass(&batch),
            SinkMessage::Prepare(reply) => drop(reply.send(None)),
            SinkMessage::Commit(_, _, reply) => drop(reply.send(())),
            SinkMessage::Finish if self.takes_snapshots() => self.at.job.lifecycle.sink_ended(),
            SinkMessage::Finish
            | SinkMessage::Complete
            | SinkMessage::Stop
            | SinkMessage::Abort => return SinkState::Closed,
        }
        SinkState::Open
    }

    fn write(&self, sink: &mut dyn Sink, rows: &SinkBatch, started_ns: u64) -> Result<()> {
        let StageAt { job, run, .. } = self.at;
        if rows.batch.num_rows() > 0 && !self.has_failed() {
            sink.write(&rows.batch, rows.kinds.as_deref())?;
            StageMetrics::add(&run.metrics.rows_out, rows.batch.num_rows() as u64);
            StageMetrics::add(&run.metrics.bundles_out, 1);
            let now_ns = job.now_ns();
            self.run.times.writes.record_us(now_ns.saturating_sub(started_ns) / 1000);
            if rows.ingest_ns != INPUT_ENDED_NS {
                self.run.times.latency.record_us(now_ns.saturating_sub(rows.ingest_ns) / 1000);
            }
        }
        Ok(())
    }

    /// Rows are on their way no longer.
    fn pass(&self, rows: &SinkBatch) {
        self.run.waiting_bytes.fetch_sub(rows.bytes as i64, Ordering::SeqCst);
        self.at.job.memory.add_in_flight(-(rows.bytes as i64));
        // A source may have been waiting for room.
        self.at.job.news.notify();
    }
}
