//! A sink's own thread: it may block without holding a worker up.
//!
//! The channel to it has no bound of its own. What waits in it counts as bytes in flight until it
//! is written, so a slow sink fills the memory account, and sources are asked no more: the bound is
//! kept at the one place where slowing down loses nothing.
//!
//! A sink that wants no more ([`Demand`]) is finished at once. Its thread stays, and answers in its
//! place.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::thread::JoinHandle;
use std::time::Duration;

use thalweg_core::connector::Demand;
use thalweg_core::{Error, Result, Sink};
use thalweg_ordering::sync::{Arc, Ordering};

use super::Job;
use crate::metrics::StageMetrics;
use crate::stage::{INPUT_ENDED_NS, SinkBatch, SinkMessage, StageRunKind};
use crate::task::panic_message;

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

/// Starts the thread of the sink at this stage.
pub(crate) fn spawn(
    job: Arc<Job>,
    stage: usize,
    receiver: Receiver<SinkMessage>,
) -> Result<JoinHandle<()>> {
    let name = format!("sink-{stage}");
    let body = move || {
        let taken = match &job.stages[stage].kind {
            StageRunKind::Sink(run) => run.inline.lock().expect("the job starts once").take(),
            _ => None,
        };
        let mut sink = taken;
        let result = catch_unwind(AssertUnwindSafe(|| run(&job, stage, &mut sink, &receiver)));
        let error = match result {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error,
            Err(panic) => Error::user(format!("panicked: {}", panic_message(&panic))),
        };
        if let Some(sink) = sink.as_mut() {
            sink.abort();
        }
        job.fail(error.in_operator(job.stages[stage].name.clone()));
    };
    let thread = std::thread::Builder::new().name(name).spawn(body);
    thread.map_err(|error| Error::io(format!("can't start a sink's thread: {error}")))
}

fn run(
    job: &Job,
    stage: usize,
    sink: &mut Option<Box<dyn Sink>>,
    receiver: &Receiver<SinkMessage>,
) -> Result<()> {
    loop {
        let message = match receiver.try_recv() {
            Ok(message) => message,
            Err(TryRecvError::Empty) => {
                if let Some(open) = sink.as_mut() {
                    open.flush()?;
                    look_at_demand(job, stage, sink)?;
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
        if handle(job, stage, sink, message)? == SinkState::Closed {
            return Ok(());
        }
    }
}

/// Does what a message says. Called by the sink's thread, or inline in a simulation.
pub(crate) fn handle(
    job: &Job,
    stage: usize,
    slot: &mut Option<Box<dyn Sink>>,
    message: SinkMessage,
) -> Result<SinkState> {
    if let StageRunKind::Sink(run) = &job.stages[stage].kind {
        // The end of a job may add messages that were never counted in.
        let _ =
            run.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
    }
    let Some(sink) = slot.as_mut() else { return answer_for_finished(job, stage, message) };
    match message {
        SinkMessage::Rows(batch) => {
            let written = write(job, sink.as_mut(), stage, &batch);
            pass(job, stage, &batch);
            written?;
            look_at_demand(job, stage, slot)?;
            return Ok(SinkState::Open);
        }
        SinkMessage::Prepare(reply) => {
            // Of a job that has failed rows in front of this message may have been passed over: a
            // snapshot would count them as written. Whoever asks gets no answer.
            if !job.has_failed() {
                // Whoever asked may have given up; the transaction then ends with the next one.
                let _ = reply.send(sink.prepare()?);
            }
            return Ok(SinkState::Open);
        }
        SinkMessage::Commit(handle, mark, reply) => {
            // First: what is visible is never ahead of the mark.
            mark.map_or(Ok(()), |mark| sink.mark(&mark))?;
            sink.commit(&handle)?;
            let _ = reply.send(());
            return Ok(SinkState::Open);
        }
        SinkMessage::Finish if job.options.snapshots.is_some() && !job.has_failed() => {
            job.sink_ended();
            return Ok(SinkState::Open);
        }
        // Rows in front of this message may have been passed over: it must not look finished.
        SinkMessage::Finish if job.has_failed() => sink.abort(),
        SinkMessage::Complete if job.has_failed() => sink.abort(),
        SinkMessage::Finish | SinkMessage::Complete => {
            finish(job, stage, sink.as_mut())?;
            job.sink_finished();
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

/// Finishes a sink that wants no more rows.
fn look_at_demand(job: &Job, stage: usize, slot: &mut Option<Box<dyn Sink>>) -> Result<()> {
    let Some(sink) = slot else { return Ok(()) };
    if sink.demand() == Demand::More || job.has_failed() {
        return Ok(());
    }
    finish(job, stage, sink.as_mut())?;
    *slot = None;
    job.sink_left(stage);
    Ok(())
}

/// Makes an output final, unless its reader has gone.
fn finish(job: &Job, stage: usize, sink: &mut dyn Sink) -> Result<()> {
    sink.finish()?;
    if let (Demand::Gone, StageRunKind::Sink(run)) = (sink.demand(), &job.stages[stage].kind) {
        run.gone.store(true, Ordering::SeqCst);
    }
    Ok(())
}

/// What is said to a sink that has finished before the job: it gets no rows, and has nothing to
/// commit.
fn answer_for_finished(job: &Job, stage: usize, message: SinkMessage) -> Result<SinkState> {
    match message {
        SinkMessage::Rows(batch) => pass(job, stage, &batch),
        SinkMessage::Prepare(reply) => drop(reply.send(None)),
        SinkMessage::Commit(_, _, reply) => drop(reply.send(())),
        SinkMessage::Finish if job.options.snapshots.is_some() => job.sink_ended(),
        SinkMessage::Finish | SinkMessage::Complete | SinkMessage::Stop | SinkMessage::Abort => {
            return Ok(SinkState::Closed);
        }
    }
    Ok(SinkState::Open)
}

fn write(job: &Job, sink: &mut dyn Sink, stage: usize, rows: &SinkBatch) -> Result<()> {
    let metrics = &job.stages[stage].metrics;
    let started_ns = job.options.clock.now_ns();
    if rows.batch.num_rows() > 0 && !job.has_failed() {
        sink.write(&rows.batch, rows.kinds.as_deref())?;
        StageMetrics::add(&metrics.rows_out, rows.batch.num_rows() as u64);
        StageMetrics::add(&metrics.bundles_out, 1);
        let now_ns = job.options.clock.now_ns();
        StageMetrics::add(&metrics.busy_ns, now_ns.saturating_sub(started_ns));
        if rows.ingest_ns != INPUT_ENDED_NS {
            job.latency.record_us(now_ns.saturating_sub(rows.ingest_ns) / 1000);
        }
    }
    Ok(())
}

/// Rows are on their way no longer.
fn pass(job: &Job, stage: usize, rows: &SinkBatch) {
    if let StageRunKind::Sink(run) = &job.stages[stage].kind {
        run.waiting_bytes.fetch_sub(rows.bytes as i64, Ordering::SeqCst);
    }
    job.memory.add_in_flight(-(rows.bytes as i64));
    // A source may have been waiting for room.
    job.news.notify();
}
