//! Taking a cut; see the module above for the protocol.

use std::collections::BTreeMap;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use thalweg_core::snapshot::{
    Captured, Extent, OutputMark, SinkGuarantee, SinkState, SourceState, StageState, TableChanges,
    TableExtent, TakenCut,
};
use thalweg_core::{Error, Result};
use thalweg_ordering::sync::Ordering;

use super::sharing::shared;
use super::{AfterCut, CutTimes, Taken};
use crate::control::JobControl;
use crate::flow::Flow;
use crate::job::Job;
use crate::sinks;
use crate::sources;
use crate::stage::{Cell, SinkMessage, SinkRun, SourceRun, StageRun, StageRunKind};

/// How long to wait before looking again whether all is quiet.
const LOOK_AGAIN: Duration = Duration::from_micros(50);
/// How often a job that has ended is noticed while a sink is waited for.
const LOOK_FOR_END: Duration = Duration::from_millis(20);
/// With less state than this, one thread captures all of it.
const STATE_BYTES_ALONE: usize = 1 << 20;

/// A worker that panicked with the lock of a partition has failed the job.
const FAILED_CELL: &str = "a failed cell ends the job";

/// Says how a table of the stage with this identifier is captured.
pub type ChooseExtent<'a> = dyn FnMut(&str, TableChanges) -> TableExtent + 'a;

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
        let choose: &mut ChooseExtent<'_> = &mut |_, _| TableExtent { extent, tracks: true };
        self.take_cut_by_table(choose, extent, after, timeout)
    }

    /// Takes a cut in which `choose` says of each table to what extent it is captured; `extent`
    /// holds for tables of which no changes are known.
    ///
    /// # Errors
    /// As [`JobControl::take_cut`].
    pub fn take_cut_by_table(
        &self,
        choose: &mut ChooseExtent<'_>,
        extent: Extent,
        after: AfterCut,
        timeout: Duration,
    ) -> Result<Taken> {
        let job = &*self.0;
        let cut = Cut(job);
        let outside = job.hold.outside();
        let begun_ns = job.now_ns();
        job.hold.set(true);
        let deadline_ns = begun_ns.saturating_add(timeout.as_nanos() as u64);
        let drained = cut.drain(|| {
            std::thread::sleep(LOOK_AGAIN);
            cut.check_unfinished()?;
            cut.check_deadline(deadline_ns, "what is under way takes too long")
        });
        let drained_ns = job.now_ns();
        let taken = drained.and_then(|()| cut.capture(choose, extent));
        let captured_ns = job.now_ns();
        if after == AfterCut::Continue || taken.is_err() {
            job.release();
        }
        drop(outside);
        let (mut taken, replies) = taken?;
        cut.prepare_sources()?;
        cut.await_sinks(&mut taken, replies, deadline_ns)?;
        let since = |from_ns: u64, to_ns: u64| Duration::from_nanos(to_ns.saturating_sub(from_ns));
        let times = CutTimes {
            drain: since(begun_ns, drained_ns),
            capture: since(drained_ns, captured_ns),
            hold: since(begun_ns, captured_ns),
        };
        Ok(Taken { cut: taken, times })
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
            Cut(job).await_reply(&committed, u64::MAX)?;
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
        self.0.hold.set(true);
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

/// A cut of this job.
pub(crate) struct Cut<'a>(pub(crate) &'a Job);

impl Cut<'_> {
    /// Sends what sources have given and waits until nothing is under way. `step` lets time pass.
    pub(crate) fn drain(&self, mut step: impl FnMut() -> Result<()>) -> Result<()> {
        loop {
            while !self.0.hold.presence.is_quiet(|| self.nothing_is_under_way()) {
                if self.0.lifecycle.is_over() {
                    return Err(Error::user("the job has ended before a snapshot could be taken"));
                }
                step()?;
            }
            if !self.send_what_was_given()? {
                return Ok(());
            }
        }
    }

    /// True if no row and no watermark is in a queue, but for rows that wait for a sink's thread,
    /// or in a merge for another input.
    fn nothing_is_under_way(&self) -> bool {
        self.0.is_drained(self.0.stages.bytes_at_sinks())
    }

    /// Rows that sources have given and that wait for company, and promises that they have made, go
    /// their way. True if there were any.
    fn send_what_was_given(&self) -> Result<bool> {
        let mut has_sent = false;
        for &stage in self.0.stages.source_places() {
            has_sent |= sources::send_what_was_given(self.0, stage)?;
        }
        Ok(has_sent)
    }

    /// Everything that the job is, while nothing is under way; and where sinks report later what
    /// they have ready.
    pub(crate) fn capture(
        &self,
        choose: &mut ChooseExtent<'_>,
        extent: Extent,
    ) -> Result<(TakenCut, Replies)> {
        let untracked = self.choose_extents(choose);
        let mut captures = self.capture_partitions(extent)?;
        untracked.into_iter().for_each(|(stage, table)| self.stop_tracking(stage, table));
        let mut stages = Vec::with_capacity(self.0.stages.len());
        for (place, run) in self.0.stages.iter().enumerate() {
            let mut state = StageState {
                id: run.id.clone(),
                name: run.name.clone(),
                ended: run.ended.load(Ordering::SeqCst),
                inputs: Flow::at(self.0, place).input_state(),
                places: self.0.ordered.as_ref().map_or(0, |flow| flow.places(place)),
                source: None,
                sink: None,
                state: std::mem::take(&mut captures[place]),
                waiting: Vec::new(),
            };
            if let Some(flow) = &self.0.ordered {
                state.waiting.extend(flow.capture_waiting(place)?);
            }
            match &run.kind {
                StageRunKind::Source(source) => {
                    let of_source = source_state(source);
                    state.source = Some(of_source.map_err(|e| e.in_operator(run.name.clone()))?);
                }
                StageRunKind::Sink(sink) => state.sink = Some(sink_state(sink)),
                StageRunKind::Operator(_) | StageRunKind::Transform(_) => {}
            }
            stages.push(state);
        }
        let is_complete = self.0.lifecycle.have_sinks_ended();
        Ok((TakenCut { stages, serial: self.serial(), is_complete }, self.prepare_sinks()?))
    }

    /// Elements ingested so far, or one more than the highest number of an epoch.
    fn serial(&self) -> u64 {
        if let Some(flow) = &self.0.ordered {
            return flow.serial();
        }
        let lanes = self.0.stages.iter().flat_map(|stage| &stage.lanes);
        lanes.map(|lane| lane.made()).max().unwrap_or(0).max(self.0.first_epoch)
    }

    /// Asks to what extent tables are captured, and has those captured in full that are to be. The
    /// tables whose changes are not tracked behind the capture, with their stages.
    fn choose_extents(&self, choose: &mut ChooseExtent<'_>) -> Vec<(usize, &'static str)> {
        let mut untracked = Vec::new();
        for (place, stage) in self.0.stages.iter().enumerate() {
            let mut tables: BTreeMap<&'static str, TableChanges> = BTreeMap::new();
            for changes in self.table_changes(place) {
                tables
                    .entry(changes.name)
                    .and_modify(|sum| *sum = sum.with(changes))
                    .or_insert(changes);
            }
            for (table, changes) in tables {
                let TableExtent { extent, tracks } = choose(&stage.id, changes);
                if extent == Extent::Full {
                    self.stop_tracking(place, table);
                }
                untracked.extend((!tracks).then_some((place, table)));
            }
        }
        untracked
    }

    fn table_changes(&self, stage: usize) -> Vec<TableChanges> {
        let of_cell = |cell: &Cell| cell.state.lock().expect(FAILED_CELL).partition.table_changes();
        self.0.stages[stage].cells().iter().flat_map(of_cell).collect()
    }

    /// Captures of a table are full the next time, and nothing is noted for them until then.
    fn stop_tracking(&self, stage: usize, table: &str) {
        for cell in self.0.stages[stage].cells() {
            cell.state.lock().expect(FAILED_CELL).partition.stop_tracking(table);
        }
    }

    /// What all partitions keep, by stage. Where that is much, as many threads as there are workers
    /// share it.
    fn capture_partitions(&self, extent: Extent) -> Result<Vec<Vec<Captured>>> {
        let stages = &self.0.stages;
        let cells_of = |(place, stage): (usize, &StageRun)| {
            (0..stage.cells().len()).map(move |cell| (place, cell)).collect::<Vec<_>>()
        };
        let cells: Vec<(usize, usize)> = stages.iter().enumerate().flat_map(cells_of).collect();
        let is_small = self.0.memory.state_bytes() < STATE_BYTES_ALONE;
        let threads = if is_small { 1 } else { self.0.settings.workers };
        let captured = shared(threads, cells.len(), |number| {
            let (stage, cell) = cells[number];
            self.capture_partition(stage, cell, extent)
        })?;
        let mut captures: Vec<Vec<Captured>> = stages.iter().map(|_| Vec::new()).collect();
        for ((stage, _), captured) in cells.into_iter().zip(captured) {
            captures[stage].push(captured);
        }
        Ok(captures)
    }

    fn capture_partition(&self, stage: usize, cell: usize, extent: Extent) -> Result<Captured> {
        let run = &self.0.stages[stage];
        let mut state = run.cells()[cell].state.lock().expect(FAILED_CELL);
        state.partition.capture(extent).map_err(|error| error.in_operator(run.name.clone()))
    }

    /// What sources have written besides the rows in front of the cut becomes durable.
    fn prepare_sources(&self) -> Result<()> {
        for (place, run) in self.0.stages.sources() {
            let mut state = run.state.lock().expect("a source that panics ends the job");
            let prepared = state.source.prepare();
            prepared.map_err(|error| error.in_operator(self.0.stages[place].name.clone()))?;
        }
        Ok(())
    }

    /// Asks sinks to end their transactions behind what is on its way to them.
    fn prepare_sinks(&self) -> Result<Replies> {
        let mut replies = Vec::new();
        for (place, _) in self.0.stages.sinks() {
            let (reply, handle) = mpsc::channel();
            sinks::at(self.0, place).send(SinkMessage::Prepare(reply))?;
            replies.push((place, handle));
        }
        Ok(replies)
    }

    /// Takes the handles of the sinks into the cut.
    pub(crate) fn await_sinks(
        &self,
        cut: &mut TakenCut,
        replies: Replies,
        deadline_ns: u64,
    ) -> Result<()> {
        for (place, reply) in replies {
            let handle = self.await_reply(&reply, deadline_ns)?;
            if let Some(sink) = &mut cut.stages[place].sink {
                sink.handle = handle;
            }
        }
        Ok(())
    }

    /// A job that is to stop does not wait for rows that lead to many results.
    fn check_unfinished(&self) -> Result<()> {
        if self.0.queues.parked.is_empty() || !self.0.lifecycle.is_giving_up() {
            return Ok(());
        }
        Err(Error::user(
            "the job was stopped in the middle of rows that lead to many results, so no last snapshot was taken",
        )
        .hint("resume from the last snapshot that was kept: nothing is lost; or stop with --drain, which waits"))
    }

    fn check_deadline(&self, deadline_ns: u64, what: &str) -> Result<()> {
        if self.0.now_ns() < deadline_ns {
            return Ok(());
        }
        Err(Error::resource(format!("the snapshot was given up: {what}")).hint(
            "raise 'execution.checkpointing.timeout', or see what holds the job up with --metrics",
        ))
    }

    fn await_reply<T>(&self, reply: &Receiver<T>, deadline_ns: u64) -> Result<T> {
        loop {
            match reply.recv_timeout(LOOK_FOR_END) {
                Ok(answer) => return Ok(answer),
                Err(RecvTimeoutError::Timeout) if !self.0.lifecycle.is_over() => {
                    self.check_deadline(deadline_ns, "a sink does not get ready in time")?;
                }
                Err(_) => {
                    return Err(Error::user(
                        "the job has ended before a sink had everything ready",
                    ));
                }
            }
        }
    }
}

fn source_state(run: &SourceRun) -> Result<SourceState> {
    let state = run.state.lock().expect("a source that panics ends the job");
    let finished = run.finished.load(Ordering::SeqCst);
    let position = state.ended_at.clone().or_else(|| state.source.position());
    if position.is_none() && !finished {
        let name = state.source.name();
        return Err(Error::user(format!(
            "no snapshot can be taken: the input '{name}' can't be read again from where it is"
        ))
        .hint("run without snapshots, or read from a connector that can be replayed (files, for example)"));
    }
    Ok(SourceState {
        position,
        assigner: state.assigner.as_ref().map(|assigner| assigner.position()),
        finished,
        idle: run.idle.load(Ordering::SeqCst),
        epoch: state.epoch,
        serial: state.serial,
        taken: state.taken,
        frontier_ms: state.frontier_ms,
    })
}

fn sink_state(run: &SinkRun) -> SinkState {
    let guarantee = run.guarantee.get().copied().unwrap_or(SinkGuarantee::AtLeastOnce);
    let has_ended = run.open_lanes.load(Ordering::SeqCst) == 0;
    SinkState { guarantee, handle: None, has_ended }
}
