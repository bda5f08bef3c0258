//! How a job that was built starts: what sinks and sources are asked, and in which order. And how
//! sources end.
//!
//! # Two phases
//! 1. Every sink claims its output, and every source what it writes besides its rows. Then each
//!    sink says whether it can write from where the job starts, and each source, which was sent to
//!    its position before, begins to read. All of them only read and lock ([`agree`]).
//! 2. All have agreed, and so have those of other jobs that are to start with this one. What the
//!    engine notes of the start was made durable by whoever starts the job; then sinks mark their
//!    outputs, commit what the snapshot names, remove the rest, and open; then sources open what
//!    they write besides their rows ([`open`]). Workers poll sources only after that.
//!
//! **Invariant:** where anything refuses in the first phase, no byte was changed. So a start can be
//! rehearsed ([`rehearse`]): it ends after the first phase, whatever the answer.

use thalweg_core::connector::Waker;
use thalweg_core::snapshot::{OutputMark, OutputStart, RestoredCut, SinkGuarantee};
use thalweg_core::{Result, Sink};
use thalweg_ordering::sync::{Arc, Ordering};

use crate::epoch;
use crate::job::Job;
use crate::policies::SnapshotMode;
use crate::stage::{SinkRun, SourceRun};

/// No worker has the job before all of it is open.
const ALONE: &str = "nobody else runs yet";

/// Where a job starts, and what its outputs have to be like.
#[derive(Default)]
pub struct Beginning {
    /// The cut that it resumes from; without one it starts from scratch.
    pub cut: Option<RestoredCut>,
    /// What its outputs have to be like.
    pub outputs: OutputStart,
    /// What outputs are marked with before the first row; without it they are not.
    pub mark: Option<OutputMark>,
}

impl From<Option<RestoredCut>> for Beginning {
    fn from(cut: Option<RestoredCut>) -> Self {
        Beginning { cut, ..Beginning::default() }
    }
}

/// The first phase. What was taken for it is given up where a part refuses.
pub(crate) fn agree(job: &Arc<Job>, beginning: &Beginning) -> Result<()> {
    or_give_up(job, claim_all(job, beginning).and_then(|()| start_sources(job)))
}

/// The second phase. Sinks are aborted where one of them, or a source, is wrong.
pub(crate) fn open(job: &Arc<Job>, beginning: &Beginning) -> Result<()> {
    or_give_up(job, open_all(job, beginning))
}

/// Both phases, where nobody else has to agree.
#[cfg(any(test, feature = "simulator"))]
pub(crate) fn agree_and_open(job: &Arc<Job>, beginning: &Beginning) -> Result<()> {
    agree(job, beginning)?;
    open(job, beginning)
}

/// Says what [`agree`] would refuse, but for what sources see when they begin to read, and gives up
/// every right that was taken for it.
pub(crate) fn rehearse(job: &Arc<Job>, beginning: &Beginning) -> Result<()> {
    let result = claim_all(job, beginning);
    give_up(job);
    result
}

fn or_give_up(job: &Arc<Job>, result: Result<()>) -> Result<()> {
    if result.is_err() {
        give_up(job);
    }
    result
}

/// Nothing of the job was started, or some of it was and the rest can't be.
pub(crate) fn give_up(job: &Arc<Job>) {
    for (_, sink) in job.stages.sinks() {
        if let Some(sink) = sink.inline.lock().expect(ALONE).as_mut() {
            sink.abort();
        }
    }
    stop_sources(job);
    abort_sources(job);
}

/// Takes the rights to outputs and to what sources write besides their rows, and asks each sink
/// whether it can write from where the job starts.
fn claim_all(job: &Job, beginning: &Beginning) -> Result<()> {
    let Beginning { cut, outputs, .. } = beginning;
    let cut = cut.as_ref();
    each_sink(job, cut, |sink, _, _| sink.claim())?;
    each_source(job, |run| {
        let source = &mut run.state.lock().expect(ALONE).source;
        if job.settings.snapshots.is_some() {
            source.use_snapshots();
        }
        source.claim()
    })?;
    each_sink(job, cut, |sink, run, handle| {
        let guarantee = match job.settings.snapshots {
            None => SinkGuarantee::AtLeastOnce,
            Some(SnapshotMode::AtLeastOnce) => {
                sink.write_at_least_once();
                SinkGuarantee::AtLeastOnce
            }
            Some(SnapshotMode::ExactlyOnce) => sink.use_transactions(),
        };
        run.guarantee.get_or_init(|| guarantee);
        sink.check_start(handle, outputs)
    })
}

/// Sources begin to read.
fn start_sources(job: &Arc<Job>) -> Result<()> {
    for (place, run) in job.stages.sources().filter(|(_, run)| !run.has_finished()) {
        let started = run.state.lock().expect(ALONE).source.start(waker(job, place));
        started.map_err(|error| error.in_operator(job.stages[place].name.clone()))?;
    }
    Ok(())
}

fn open_all(job: &Arc<Job>, beginning: &Beginning) -> Result<()> {
    let Beginning { cut, mark, .. } = beginning;
    each_sink(job, cut.as_ref(), |sink, _, handle| {
        if job.settings.snapshots.is_some() {
            mark.as_ref().map_or(Ok(()), |mark| sink.mark(mark))?;
            // It commits again what it had prepared.
            sink.recover(handle)?;
        }
        sink.open()
    })?;
    each_source(job, |run| match run.has_finished() {
        true => Ok(()),
        false => run.state.lock().expect(ALONE).source.open(),
    })?;
    if cut.is_some() && job.ordered.is_none() {
        epoch::spread_idleness(job);
    }
    Ok(())
}

/// Does something with each sink and its handle in the cut.
fn each_sink(
    job: &Job,
    cut: Option<&RestoredCut>,
    mut each: impl FnMut(&mut dyn Sink, &SinkRun, Option<&str>) -> Result<()>,
) -> Result<()> {
    for (place, run) in job.stages.sinks() {
        let stage = &job.stages[place];
        let restored = cut.and_then(|cut| cut.stages.iter().find(|own| own.id == stage.id));
        let handle = restored.and_then(|own| own.sink.as_ref()?.handle.as_deref());
        let mut sink = run.inline.lock().expect(ALONE);
        let sink = sink.as_mut().expect("the sink is still here");
        each(sink.as_mut(), run, handle).map_err(|error| error.in_operator(stage.name.clone()))?;
    }
    Ok(())
}

/// Does something with each source.
fn each_source(job: &Job, mut each: impl FnMut(&SourceRun) -> Result<()>) -> Result<()> {
    job.stages.sources().try_for_each(|(place, run)| {
        each(run).map_err(|error| error.in_operator(job.stages[place].name.clone()))
    })
}

/// What a source calls when it may have rows.
fn waker(job: &Arc<Job>, place: usize) -> Waker {
    let weak = Arc::downgrade(job);
    Arc::new(move || {
        let Some(job) = weak.upgrade() else { return };
        if let Some(run) = job.stages[place].source() {
            run.ready.store(true, Ordering::SeqCst);
            job.news.notify();
        }
    })
}

/// Makes sure that no source reads on.
pub(crate) fn stop_sources(job: &Job) {
    job.stages.sources().for_each(|(_, run)| run.call(|source| source.stop()));
}

/// What sources have written besides their rows becomes final: the job is done.
pub(crate) fn finish_sources(job: &Job) -> Result<()> {
    each_source(job, |run| {
        run.state.lock().expect("a source that panics ends the job").source.finish()
    })
}

/// What sources have written besides their rows stays unfinished, and others may write it.
pub(crate) fn abort_sources(job: &Job) {
    job.stages.sources().for_each(|(_, run)| run.call(|source| source.abort()));
}
