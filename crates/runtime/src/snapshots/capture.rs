//! Taking a cut; see the module above for the protocol.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use thalweg_core::snapshot::{Captured, Extent, OutputMark, StageState, TableExtent, TakenCut};
use thalweg_core::{Error, Result};
use thalweg_ordering::sync::{Arc, Ordering};

use super::{AfterCut, CutTimes, Taken};
use crate::control::JobControl;
use crate::cut::{ChooseExtent, CutUnderWay, StageAtCut};
use crate::job::Job;
use crate::sinks;
use crate::stage::{SinkMessage, StageRun, StageRunKind};

/// How long to wait before looking again whether the cut is complete: whoever completes it signals.
const LOOK_AGAIN: Duration = Duration::from_millis(1);
/// How often a job that has ended is noticed while a sink is waited for.
const LOOK_FOR_END: Duration = Duration::from_millis(20);

/// The replies of sinks, with their stages.
type Replies = Vec<(usize, Receiver<Option<String>>)>;

impl JobControl {
    /// Takes a cut, each table captured to this extent where it can be. Returns when sinks have
    /// prepared what is inside. One at a time.
    ///
    /// # Errors
    /// If the job ends before, or the time is over; if something cannot be captured (the job goes
    /// on then).
    pub fn take_cut(&self, extent: Extent, after: AfterCut, timeout: Duration) -> Result<Taken> {
        let choose = Box::new(move |_: &str, _| TableExtent { extent, tracks: true });
        self.take_cut_by_table(choose, extent, after, timeout)
    }

    /// Takes a cut in which `choose` says of each table to what extent it is captured; `extent`
    /// holds for tables of which no changes are known.
    ///
    /// # Errors
    /// As [`JobControl::take_cut`].
    pub fn take_cut_by_table(
        &self,
        choose: Box<ChooseExtent>,
        extent: Extent,
        after: AfterCut,
        timeout: Duration,
    ) -> Result<Taken> {
        let job = &*self.0;
        let deadline_ns = job.now_ns().saturating_add(timeout.as_nanos() as u64);
        let cut = Cut::new(job, choose, extent);
        // Before it begins: no source is asked for rows behind it.
        let pauses = after == AfterCut::Hold && !job.cuts.is_paused();
        if pauses {
            job.cuts.pause(true);
        }
        let taken = cut.take(deadline_ns, || job.lifecycle.wait(LOOK_AGAIN));
        if taken.is_err() && pauses {
            job.release();
        }
        taken
    }

    /// Makes what sinks had prepared at a cut visible, by their stages' identifiers, under this
    /// mark, and informs sources that their positions are kept. The snapshot of the cut is durable.
    ///
    /// # Errors
    /// If the job ends before; it was then stopped, or has failed.
    pub fn commit(
        &self,
        handles: &[(String, String)],
        positions: &[(String, String)],
        mark: Option<&OutputMark>,
    ) -> Result<()> {
        let job = &*self.0;
        for (id, handle) in handles {
            let mut all = job.stages.sinks();
            let Some((stage, _)) = all.find(|&(stage, _)| job.stages[stage].id == *id) else {
                continue;
            };
            let (reply, committed) = mpsc::channel();
            let commit = SinkMessage::Commit(handle.clone(), mark.cloned(), reply);
            sinks::at(job, stage).send(commit)?;
            await_reply(job, &committed, u64::MAX)?;
        }
        for (id, position) in positions {
            let stage = job.stages.iter().find(|stage| stage.id == *id);
            if let Some(source) = stage.and_then(|stage| stage.source()) {
                let mut state = source.state.lock().expect("a source that panics ends the job");
                state.source.committed(position)?;
            }
        }
        Ok(())
    }

    /// Sources are not asked any more.
    pub fn hold(&self) {
        self.0.cuts.pause(true);
    }

    /// Sources are asked again.
    pub fn release(&self) {
        self.0.release();
    }

    /// True once all input of all sinks is written: what is left is a last cut, and
    /// [`JobControl::complete`].
    pub fn has_ended(&self) -> bool {
        self.0.lifecycle.have_sinks_ended()
    }

    /// The last snapshot is committed: sinks finish, and with them the job.
    ///
    /// # Errors
    /// None, unless sinks run in the caller's thread.
    pub fn complete(&self) -> Result<()> {
        let mut all = self.0.stages.sinks();
        all.try_for_each(|(stage, _)| sinks::at(&self.0, stage).send(SinkMessage::Complete))
    }
}

/// A cut of a job, for whoever takes it.
pub(crate) struct Cut<'a> {
    job: &'a Job,
    under_way: Arc<CutUnderWay>,
}

impl<'a> Cut<'a> {
    /// A cut that has not begun.
    pub(crate) fn new(job: &'a Job, choose: Box<ChooseExtent>, extent: Extent) -> Self {
        let has_report = |kind: &StageRunKind| match kind {
            StageRunKind::Transform(_) => job.ordered.is_some(),
            StageRunKind::Source(_) | StageRunKind::Operator(_) | StageRunKind::Sink(_) => true,
        };
        let reporting = job.stages.iter().filter(|stage| has_report(&stage.kind)).count();
        let stages = (job.stages.len(), reporting);
        let under_way = CutUnderWay::new(stages, choose, extent, job.now_ns());
        Cut { job, under_way: Arc::new(under_way) }
    }

    /// Takes it, with what sinks have prepared. `step` lets time pass.
    pub(crate) fn take(&self, deadline_ns: u64, mut step: impl FnMut()) -> Result<Taken> {
        while !self.begin() {
            // One that nobody waited for any more is still on its way.
            self.check(deadline_ns)?;
            step();
        }
        while !self.under_way.is_complete() {
            self.check(deadline_ns)?;
            step();
        }
        let (mut cut, replies, times) = self.found()?;
        self.prepare_sources()?;
        self.await_sinks(&mut cut, replies, deadline_ns)?;
        Ok(Taken { cut, times })
    }

    /// Asks all sources to place it, unless another cut is under way.
    fn begin(&self) -> bool {
        let stages = &self.job.stages;
        let has_begun = self.job.cuts.begin(&self.under_way, stages.source_places().len());
        if has_begun {
            stages.sources().for_each(|(_, source)| source.wants_cut.store(true, Ordering::SeqCst));
            self.job.news.notify_all();
        }
        has_begun
    }

    /// Whether to wait on.
    fn check(&self, deadline_ns: u64) -> Result<()> {
        if self.job.lifecycle.is_over() {
            return Err(Error::user("the job has ended before a snapshot could be taken"));
        }
        self.check_unfinished()?;
        check_deadline(self.job, deadline_ns, "what is under way takes too long")
    }

    /// Everything that the job is at the cut; where sinks report later what they have ready; and
    /// how long it took.
    fn found(&self) -> Result<(TakenCut, Replies, CutTimes)> {
        if self.job.lifecycle.has_failed() {
            return Err(Error::user("the job has ended before a snapshot could be taken"));
        }
        let (mut stages, mut replies) = (Vec::new(), Vec::new());
        let mut times = CutTimes { hold: since(0, self.under_way.hold_ns()), ..Default::default() };
        for (place, run) in self.job.stages.iter().enumerate() {
            let mut at_cut =
                self.under_way.take(place).map_err(|e| e.in_operator(run.name.clone()))?;
            replies.extend(at_cut.reply.take().map(|reply| (place, reply)));
            if let (Some(after_ns), None) = (at_cut.after_ns, run.source()) {
                times.stages.push((run.name.clone(), Duration::from_nanos(after_ns)));
            }
            stages.push(stage_state(run, at_cut));
        }
        self.spread_ends(&mut stages);
        let mut sinks = stages.iter().filter_map(|stage| stage.sink.as_ref());
        let is_complete = sinks.all(|sink| sink.has_ended);
        times.whole = since(self.under_way.began_ns(), self.job.now_ns());
        Ok((TakenCut { stages, serial: self.serial(), is_complete }, replies, times))
    }

    /// What feeds only stages from which nobody needs more is not needed itself. Stages have
    /// reported at different times.
    fn spread_ends(&self, stages: &mut [StageState<Vec<Captured>>]) {
        for (place, run) in self.job.stages.iter().enumerate().rev() {
            let is_unneeded = run.edges.iter().all(|edge| stages[edge.to.0].ended);
            stages[place].ended |= !run.edges.is_empty() && is_unneeded;
        }
    }

    /// Elements ingested before it, or one more than the highest number of an epoch.
    fn serial(&self) -> u64 {
        if self.job.ordered.is_some() {
            return self.under_way.serial();
        }
        let lanes = self.job.stages.iter().flat_map(|stage| &stage.lanes);
        lanes.map(|lane| lane.made()).max().unwrap_or(0).max(self.job.first_epoch)
    }

    /// What sources have written besides the rows in front of the cut becomes durable.
    fn prepare_sources(&self) -> Result<()> {
        for (place, run) in self.job.stages.sources() {
            let mut state = run.state.lock().expect("a source that panics ends the job");
            let prepared = state.source.prepare();
            prepared.map_err(|error| error.in_operator(self.job.stages[place].name.clone()))?;
        }
        Ok(())
    }

    /// Takes the handles of the sinks into the cut.
    fn await_sinks(&self, cut: &mut TakenCut, replies: Replies, deadline_ns: u64) -> Result<()> {
        for (place, reply) in replies {
            let handle = await_reply(self.job, &reply, deadline_ns)?;
            if let Some(sink) = &mut cut.stages[place].sink {
                sink.handle = handle;
            }
        }
        Ok(())
    }

    /// A job that is to stop does not wait for rows that lead to many results.
    fn check_unfinished(&self) -> Result<()> {
        if self.job.queues.parked.is_empty() || !self.job.lifecycle.is_giving_up() {
            return Ok(());
        }
        Err(Error::user(
            "the job was stopped in the middle of rows that lead to many results, so no last snapshot was taken",
        )
        .hint("resume from the last snapshot that was kept: nothing is lost; or stop with --drain, which waits"))
    }
}

fn check_deadline(job: &Job, deadline_ns: u64, what: &str) -> Result<()> {
    if job.now_ns() < deadline_ns {
        return Ok(());
    }
    Err(Error::resource(format!("the snapshot was given up: {what}")).hint(
        "raise 'execution.checkpointing.timeout', or see what holds the job up with --metrics",
    ))
}

fn await_reply<T>(job: &Job, reply: &Receiver<T>, deadline_ns: u64) -> Result<T> {
    loop {
        match reply.recv_timeout(LOOK_FOR_END) {
            Ok(answer) => return Ok(answer),
            Err(RecvTimeoutError::Timeout) if !job.lifecycle.is_over() => {
                check_deadline(job, deadline_ns, "a sink does not get ready in time")?;
            }
            Err(_) => {
                return Err(Error::user("the job has ended before a sink had everything ready"));
            }
        }
    }
}

/// What a snapshot keeps of a stage.
fn stage_state(run: &StageRun, at_cut: StageAtCut) -> StageState<Vec<Captured>> {
    StageState {
        id: run.id.clone(),
        name: run.name.clone(),
        ended: at_cut.ended,
        inputs: at_cut.inputs,
        places: at_cut.places,
        source: at_cut.source,
        sink: at_cut.sink,
        state: at_cut.state.into_values().collect(),
        waiting: at_cut.waiting.into_iter().collect(),
    }
}

fn since(from_ns: u64, to_ns: u64) -> Duration {
    Duration::from_nanos(to_ns.saturating_sub(from_ns))
}
