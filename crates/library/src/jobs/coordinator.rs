//! Looks after a job that takes snapshots, on a thread of its own.
//!
//! # Protocol
//! A snapshot is: the cut (it passes through the job, which runs on), the write (the job runs on; a
//! thread makes and writes the rows), the manifest, the commit of what sinks had ready. One at a
//! time, when [`Schedule`] says so. If any step before the manifest fails, nothing has happened:
//! what sinks have prepared goes with the next one, and the next one is full. If the commit fails,
//! the job fails; the run that resumes from the manifest commits again.
//!
//! The job ends by itself only when a last snapshot is kept and committed: sinks finish behind
//! that.
//!
//! **Invariant:** a transaction is committed only after the manifest that names its handle is
//! durable.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use thalweg_core::shim::SharedClock;
use thalweg_core::snapshot::{
    Captured, Extent, OutputMark, StageState, TableChanges, TableExtent, TakenCut,
};
use thalweg_core::{Error, OrderContract, Result};
use thalweg_plan::catalog::{OnSnapshotFailure, SnapshotSettings};
use thalweg_runtime::metrics::{LatencyHistogram, SnapshotSteps, TimeBuckets};
use thalweg_runtime::{AfterCut, CutTimes, JobControl, SnapshotMetrics, Taken};
use thalweg_state::decide::{Extents, Next, Schedule, Timing, WriteOutcome};
use thalweg_state::{JobLock, SnapshotKind, SnapshotStore, WriteRequest, WrittenSnapshot};

use super::requests;

/// How often requests of other processes are looked for. What happens in this one ends the wait; if
/// it happens just before the wait, it is found behind it.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// How often the write of a snapshot is asked whether it has ended.
const LOOK_AT_WRITE: Duration = Duration::from_millis(1);
/// While a job is paused because snapshots fail: how long until the next try.
const TRY_AGAIN: Duration = Duration::from_secs(1);
/// A snapshot is stale when none was kept for this many intervals.
const STALE_INTERVALS: u32 = 3;

/// How much the writer of snapshots gives way, as `nice` counts: with all cores busy it has a tenth
/// of what a worker has.
#[cfg(target_os = "linux")]
const WRITER_NICENESS: i32 = 10;

/// Identifiers of stages with what goes to them.
type ByStage = Vec<(String, String)>;

/// A request of this process for a snapshot: where its number goes.
pub(crate) type Asked = Sender<Result<u64>>;

/// Looks after one run of a job.
pub(crate) struct Coordinator {
    pub store: SnapshotStore,
    pub settings: SnapshotSettings,
    pub order: OrderContract,
    pub clock: SharedClock,
    /// A graceful stop lets windows close first.
    pub drains: bool,
    pub asked: Receiver<Asked>,
    /// What every manifest notes about the job: the options that decide what its state means.
    pub notes: BTreeMap<String, String>,
    /// The lineage that the run belongs to.
    pub lineage: String,
    /// The snapshot that the next one follows.
    pub parent: Option<u64>,
    /// Held for as long as the job runs.
    #[expect(dead_code, reason = "held, not used")]
    pub lock: Option<JobLock>,
}

/// What a coordinator knows while the job runs.
struct Watch<'a> {
    own: &'a mut Coordinator,
    control: &'a JobControl,
    schedule: Schedule,
    /// The number of the snapshot before, if changes can build on it.
    base: Option<u64>,
    /// Which tables are captured in full.
    extents: Arc<Mutex<Extents>>,
    metrics: SnapshotMetrics,
    times: Times,
    is_draining: bool,
    is_paused: bool,
    begun_ns: u64,
}

/// How long cuts took.
#[derive(Default)]
struct Times {
    holds: LatencyHistogram,
    captures: LatencyHistogram,
    /// From the request until a snapshot was kept.
    whole: TimeBuckets,
}

impl Times {
    /// Of one more cut.
    fn add(&self, times: &CutTimes) {
        self.holds.record_us(times.hold.as_micros() as u64);
        let last = times.stages.iter().map(|(_, after)| *after).max().unwrap_or_default();
        self.captures.record_us(last.as_micros() as u64);
    }
}

impl Coordinator {
    /// Looks after a job until it is over. What goes wrong ends the job.
    pub(crate) fn run(&mut self, control: &JobControl) {
        let now_ns = self.clock.now_ns();
        let timing = Timing {
            interval: self.settings.interval,
            pause_min: self.settings.pause_min,
            timeout: self.settings.timeout,
            // What is done then is decided here.
            failures_max: u32::MAX,
        };
        let mut watch = Watch {
            schedule: Schedule::new(timing, now_ns),
            base: None,
            extents: Arc::default(),
            metrics: SnapshotMetrics::default(),
            times: Times::default(),
            is_draining: false,
            is_paused: false,
            begun_ns: now_ns,
            control,
            own: self,
        };
        if !watch.own.settings.exactly_once {
            // Sinks show rows before they are in a snapshot, but not before there is one.
            watch.schedule.ask();
        }
        if let Err(error) = watch.run() {
            control.fail(error);
        }
    }
}

impl Watch<'_> {
    fn run(&mut self) -> Result<()> {
        self.metrics.number = super::recovery::newest_number(&self.own.store)?;
        loop {
            if self.control.is_over() {
                return Ok(());
            }
            if self.control.has_ended() {
                let taken = self.take(self.last_kind(), AfterCut::Continue);
                if taken.is_ok() {
                    return self.control.complete();
                }
                if self.control.is_stop_requested() {
                    // Whoever stops the job has to know that its last rows are kept nowhere.
                    return taken.map(drop);
                }
                self.tolerate(taken)?;
                self.control.wait(TRY_AGAIN);
                continue;
            }
            if self.control.is_stop_requested() && !self.is_draining {
                if self.stop()? {
                    return Ok(());
                }
                continue;
            }
            self.look()?;
        }
    }

    /// Ends the job gracefully. False if it has to drain first.
    fn stop(&mut self) -> Result<bool> {
        if self.own.drains {
            self.is_draining = true;
            self.control.drain();
            return Ok(false);
        }
        // An error fails the job, which must not end as one that was stopped before it is known.
        self.take(self.last_kind(), AfterCut::Hold)?;
        self.control.cancel();
        Ok(true)
    }

    /// Of which kind the last snapshot is: whoever stops the job may ask for one that stays.
    fn last_kind(&self) -> SnapshotKind {
        match self.control.keeps_last_snapshot() {
            true => SnapshotKind::Manual,
            false => SnapshotKind::Final,
        }
    }

    /// Takes a snapshot if it is due or requested, else waits a little.
    fn look(&mut self) -> Result<()> {
        let asked = self.own.store.directory().map(requests::waiting).unwrap_or_default();
        let asked_here: Vec<Asked> = self.own.asked.try_iter().collect();
        if !asked.is_empty() || !asked_here.is_empty() {
            let taken = self.take(SnapshotKind::Manual, AfterCut::Continue);
            requests::answer(&asked, &taken);
            // Whoever asked may have gone away.
            asked_here.iter().for_each(|reply| drop(reply.send(taken.clone())));
            return self.tolerate(taken);
        }
        let now_ns = self.own.clock.now_ns();
        self.notice_staleness(now_ns);
        match self.schedule.next(now_ns) {
            Next::Take => {
                let taken = self.take(SnapshotKind::Periodic, self.after_cut());
                return self.tolerate(taken);
            }
            Next::Wait { until_ns } => {
                let left = Duration::from_nanos(until_ns.saturating_sub(now_ns));
                self.control.wait(left.min(LOOK_AGAIN).max(LOOK_AT_WRITE));
            }
            Next::Idle | Next::GiveUp | Next::Fail => self.control.wait(LOOK_AGAIN),
        }
        Ok(())
    }

    /// While snapshots fail and the job is to wait for one, sources stay paused.
    fn after_cut(&self) -> AfterCut {
        if self.is_paused { AfterCut::Hold } else { AfterCut::Continue }
    }

    /// A snapshot that fails is reported, and tolerated for a while.
    fn tolerate(&mut self, taken: Result<u64>) -> Result<()> {
        let Err(error) = taken else {
            if std::mem::take(&mut self.is_paused) {
                self.control.release();
            }
            return Ok(());
        };
        if self.control.is_over() || self.control.is_stop_requested() {
            return Ok(());
        }
        if error.is_plan_error() {
            // No snapshot of this job will ever succeed.
            return Err(error);
        }
        self.metrics.failed += 1;
        self.metrics.problem = Some(format!("snapshots fail: {error}"));
        self.metrics.is_behind = false;
        self.report();
        let failures = self.schedule.failures();
        if failures <= self.own.settings.failures_max {
            return Ok(());
        }
        match self.own.settings.on_failure {
            OnSnapshotFailure::Fail => Err(error),
            OnSnapshotFailure::Continue => Ok(()),
            OnSnapshotFailure::Pause => {
                self.is_paused = true;
                self.control.hold();
                self.schedule.ask();
                self.control.wait(TRY_AGAIN);
                Ok(())
            }
        }
    }

    /// Takes a snapshot and commits it. Its number.
    fn take(&mut self, kind: SnapshotKind, after: AfterCut) -> Result<u64> {
        let begun_ns = self.own.clock.now_ns();
        self.schedule.begin(begun_ns);
        let taken = self.try_take(kind, after, begun_ns);
        let outcome = if taken.is_ok() { WriteOutcome::Done } else { WriteOutcome::Failed };
        self.schedule.end(self.own.clock.now_ns(), outcome);
        if taken.is_err() {
            // No incremental snapshot would hold what changed before this one.
            self.base = None;
        }
        taken
    }

    fn try_take(&mut self, kind: SnapshotKind, after: AfterCut, begun_ns: u64) -> Result<u64> {
        let is_incremental = self.own.settings.incremental && self.base.is_some();
        let extent = if is_incremental { Extent::Incremental } else { Extent::Full };
        let taken = self.take_cut(extent, after)?;
        let cut_ns = self.own.clock.now_ns();
        self.times.add(&taken.times);
        let (handles, positions) = (handles(&taken.cut), positions(&taken.cut));
        let number = self.own.store.next_number()?;
        let mut request = WriteRequest::new(taken.cut, number, kind, self.own.order);
        request.notes.clone_from(&self.own.notes);
        request.lineage = Some(self.own.lineage.clone());
        request.parent = self.own.parent;
        request.taken_at_ms = self.own.clock.wall_ms();
        request.base = self.base.filter(|_| is_incremental);
        let taken_at_ms = request.taken_at_ms;
        let written = self.write(request)?;
        let written_ns = self.own.clock.now_ns();
        let mark = OutputMark { lineage: self.own.lineage.clone(), snapshot: number };
        self.control.commit(&handles, &positions, Some(&mark))?;
        self.own.parent = Some(number);
        self.base = Some(number);
        let now_ns = self.own.clock.now_ns();
        let passed = |from_ns, to_ns: u64| Duration::from_nanos(to_ns.saturating_sub(from_ns));
        let duration = passed(begun_ns, now_ns);
        self.times.whole.record_us(duration.as_micros() as u64);
        self.metrics = SnapshotMetrics {
            taken: self.metrics.taken + 1,
            failed: self.metrics.failed,
            number: Some(number),
            taken_at_ms: Some(taken_at_ms),
            bytes: written.bytes,
            duration,
            steps: SnapshotSteps {
                cut: passed(begun_ns, cut_ns),
                write: passed(cut_ns, written_ns),
                commit: passed(written_ns, now_ns),
            },
            hold: taken.times.hold,
            hold_max: self.metrics.hold_max.max(taken.times.hold),
            holds: self.times.holds.percentiles(),
            hold_times: self.times.holds.distribution(),
            durations: self.times.whole.distribution(),
            written_bytes: self.metrics.written_bytes + written.bytes,
            interval: self.own.settings.interval,
            captured_after: taken.times.stages,
            captures: self.times.captures.percentiles(),
            problem: self.lateness(),
            is_behind: self.schedule.behind().is_some(),
        };
        self.report();
        self.own.store.retain(self.own.settings.retained)?;
        Ok(number)
    }

    /// Takes a cut, with the extent of each table chosen by what has changed of it.
    fn take_cut(&mut self, asked: Extent, after: AfterCut) -> Result<Taken> {
        let SnapshotSettings { incremental, timeout, .. } = self.own.settings;
        let extents = Arc::clone(&self.extents);
        let choose = move |stage: &str, table: TableChanges| match incremental {
            true => {
                let mut extents = extents.lock().expect("no panic under this lock");
                extents.choose(stage, table, asked)
            }
            false => TableExtent { extent: Extent::Full, tracks: false },
        };
        self.control.take_cut_by_table(Box::new(choose), asked, after, timeout)
    }

    /// The note while the interval is not kept.
    fn lateness(&self) -> Option<String> {
        let (every, interval) = (self.schedule.behind()?, self.own.settings.interval?);
        let (every, interval) = (every.as_secs_f64(), interval.as_secs_f64());
        Some(format!(
            "snapshots are taken every {every:.1} s, not every {interval:.1} s, since one takes so long: \
             raise 'execution.checkpointing.interval'"
        ))
    }

    /// Writes a snapshot on a thread, which is asked to give up when it takes too long.
    fn write(&mut self, request: WriteRequest) -> Result<WrittenSnapshot> {
        let give_up: Arc<AtomicBool> = Arc::clone(&request.give_up);
        let (store, schedule, clock) = (&mut self.own.store, &self.schedule, &self.own.clock);
        let (control, drains) = (self.control, self.own.drains);
        std::thread::scope(|scope| {
            let writer = scope.spawn(move || {
                give_way();
                store.write(request)
            });
            while !writer.is_finished() {
                if control.is_stop_requested() && !drains {
                    // Nothing more is read: the writer has the cores for itself, and the end comes
                    // soon.
                    control.hold();
                }
                if schedule.next(clock.now_ns()) == Next::GiveUp {
                    give_up.store(true, Ordering::SeqCst);
                }
                std::thread::sleep(LOOK_AT_WRITE);
            }
            writer
                .join()
                .unwrap_or_else(|_| Err(Error::internal("the writer of a snapshot panicked")))
        })
    }

    /// Says so when no snapshot was kept for long.
    fn notice_staleness(&mut self, now_ns: u64) {
        let Some(interval) = self.own.settings.interval else { return };
        let kept_ns = self.schedule.last_done_ns().unwrap_or(self.begun_ns);
        let age = Duration::from_nanos(now_ns.saturating_sub(kept_ns));
        let limit = interval.max(self.own.settings.pause_min) * STALE_INTERVALS;
        if age > limit && self.metrics.problem.is_none() {
            let seconds = age.as_secs();
            self.metrics.problem = Some(format!("no snapshot was kept for {seconds} s"));
            self.report();
        }
    }

    fn report(&self) {
        self.control.report_snapshots(self.metrics.clone());
    }
}

/// The thread that calls lets those of the job go first: writing a snapshot must not delay results.
/// Where a machine has no such thing it stays as it was.
fn give_way() {
    // Elsewhere the whole process would be meant.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::setpriority_process(None, WRITER_NICENESS);
}

/// What sinks have prepared, by stage.
fn handles(cut: &TakenCut) -> ByStage {
    let handle = |stage: &StageState<Vec<Captured>>| {
        Some((stage.id.clone(), stage.sink.as_ref()?.handle.clone()?))
    };
    cut.stages.iter().filter_map(handle).collect()
}

/// How far sources were read, by stage.
fn positions(cut: &TakenCut) -> ByStage {
    let position = |stage: &StageState<Vec<Captured>>| {
        Some((stage.id.clone(), stage.source.as_ref()?.position.clone()?))
    };
    cut.stages.iter().filter_map(position).collect()
}
