//! How a job that was built starts: what sinks and sources are asked, and in which order. And how
//! sources end.
//!
//! # Two phases
//! 1. Every sink claims its output, and every source what it writes besides its rows. Then each
//!    sink says whether it can write from where the job starts, and each source, which was sent to
//!    its position before, begins to read. All of them only read and lock.
//! 2. All have agreed. What the engine notes of the start is made durable ([`Beginning::agreed`]);
//!    then sinks mark their outputs, commit what the snapshot names, remove the rest, and open;
//!    then sources open what they write besides their rows. Workers poll sources only after that.
//!
//! **Invariant:** where anything refuses in the first phase, no byte was changed. So a start can be
//! rehearsed ([`rehearse`]): it ends after the first phase, whatever the answer.

use thalweg_core::Result;
use thalweg_core::connector::Waker;
use thalweg_core::snapshot::{OutputMark, OutputStart, RestoredCut, SinkGuarantee, SinkState};
use thalweg_ordering::sync::{Arc, Ordering};

use crate::epoch;
use crate::job::Job;
use crate::policies::SnapshotMode;
use crate::stage::{SinkRun, SourceRun};

/// Where a job starts, and what is to happen once all of its parts have agreed to it.
#[derive(Default)]
pub struct Beginning<'a> {
    /// The cut that it resumes from; without one it starts from scratch.
    pub cut: Option<RestoredCut>,
    /// What its outputs have to be like.
    pub outputs: OutputStart,
    /// What outputs are marked with before the first row; without it they are not.
    pub mark: Option<OutputMark>,
    /// Called once, when all have agreed and before anything is changed.
    pub agreed: Option<Box<dyn FnOnce() -> Result<()> + 'a>>,
}

impl From<Option<RestoredCut>> for Beginning<'_> {
    fn from(cut: Option<RestoredCut>) -> Self {
        Beginning { cut, ..Beginning::default() }
    }
}

/// Starts the parts of a job. Sinks are aborted where one of them, or a source, is wrong.
pub(crate) fn open(job: &Arc<Job>, beginning: Beginning<'_>) -> Result<()> {
    let result = open_all(job, beginning);
    if result.is_err() {
        give_up(job);
    }
    result
}

/// The first phase alone: says what [`open`] would refuse before it changes anything, and gives up
/// every right that was taken for it.
pub(crate) fn rehearse(job: &Arc<Job>, beginning: &Beginning<'_>) -> Result<()> {
    let result = agree(job, beginning.cut.as_ref(), &beginning.outputs);
    give_up(job);
    result
}

/// Nothing of the job was started, or some of it was and the rest can't be.
fn give_up(job: &Arc<Job>) {
    for (_, sink) in job.stages.sinks() {
        if let Some(sink) = sink.inline.lock().expect("nobody else runs yet").as_mut() {
            sink.abort();
        }
    }
    stop_sources(job);
    abort_sources(job);
}

/// The first phase.
fn agree(job: &Job, cut: Option<&RestoredCut>, outputs: &OutputStart) -> Result<()> {
    each_sink(job, cut, |run, _| claim_sink(run))?;
    claim_sources(job)?;
    each_sink(job, cut, |run, handle| check_sink(job, run, handle, outputs))
}

fn open_all(job: &Arc<Job>, beginning: Beginning<'_>) -> Result<()> {
    let Beginning { cut, outputs, mark, agreed } = beginning;
    agree(job, cut.as_ref(), &outputs)?;
    each_source(job, start_source)?;
    agreed.map_or(Ok(()), |agreed| agreed())?;
    each_sink(job, cut.as_ref(), |run, handle| open_sink(job, run, handle, mark.as_ref()))?;
    each_source(job, open_source)?;
    if cut.is_some() && job.ordered.is_none() {
        epoch::spread_idleness(job);
    }
    Ok(())
}

/// Does something with each sink and its handle in the cut.
fn each_sink(
    job: &Job,
    cut: Option<&RestoredCut>,
    mut each: impl FnMut(&SinkRun, Option<&str>) -> Result<()>,
) -> Result<()> {
    for (place, run) in job.stages.sinks() {
        let stage = &job.stages[place];
        let restored = cut.and_then(|cut| cut.stages.iter().find(|own| own.id == stage.id));
        let sink: Option<&SinkState> = restored.and_then(|own| own.sink.as_ref());
        let handle = sink.and_then(|sink| sink.handle.as_deref());
        each(run, handle).map_err(|error| error.in_operator(stage.name.clone()))?;
    }
    Ok(())
}

/// Does something with each source that has not ended in an earlier run.
fn each_source(
    job: &Arc<Job>,
    each: impl Fn(&Arc<Job>, usize, &SourceRun) -> Result<()>,
) -> Result<()> {
    for (place, run) in job.stages.sources() {
        if !run.finished.load(Ordering::SeqCst) {
            each(job, place, run).map_err(|e| e.in_operator(job.stages[place].name.clone()))?;
        }
    }
    Ok(())
}

/// Takes the right to an output.
fn claim_sink(run: &SinkRun) -> Result<()> {
    let mut sink = run.inline.lock().expect("nobody else runs yet");
    sink.as_mut().expect("the sink is still here").claim()
}

/// Takes the rights to what sources write besides their rows.
fn claim_sources(job: &Job) -> Result<()> {
    for (place, run) in job.stages.sources() {
        let claimed = run.state.lock().expect("nobody else runs yet").source.claim();
        claimed.map_err(|error| error.in_operator(job.stages[place].name.clone()))?;
    }
    Ok(())
}

/// Asks a sink whether it can write from where the job starts.
fn check_sink(job: &Job, run: &SinkRun, handle: Option<&str>, outputs: &OutputStart) -> Result<()> {
    let mut sink = run.inline.lock().expect("nobody else runs yet");
    let sink = sink.as_mut().expect("the sink is still here");
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
}

/// The second phase; in a job with snapshots the sink first commits again what it had prepared.
fn open_sink(
    job: &Job,
    run: &SinkRun,
    handle: Option<&str>,
    mark: Option<&OutputMark>,
) -> Result<()> {
    let mut sink = run.inline.lock().expect("nobody else runs yet");
    let sink = sink.as_mut().expect("the sink is still here");
    if job.settings.snapshots.is_some() {
        mark.map_or(Ok(()), |mark| sink.mark(mark))?;
        sink.recover(handle)?;
    }
    sink.open()
}

fn start_source(job: &Arc<Job>, place: usize, run: &SourceRun) -> Result<()> {
    let weak = Arc::downgrade(job);
    let waker: Waker = Arc::new(move || {
        let Some(job) = weak.upgrade() else { return };
        if let Some(run) = job.stages[place].source() {
            run.ready.store(true, Ordering::SeqCst);
            job.news.notify();
        }
    });
    run.state.lock().expect("nobody else runs yet").source.start(waker)
}

fn open_source(_: &Arc<Job>, _: usize, run: &SourceRun) -> Result<()> {
    run.state.lock().expect("nobody else runs yet").source.open()
}

/// Makes sure that no source reads on.
pub(crate) fn stop_sources(job: &Job) {
    for (_, run) in job.stages.sources() {
        // A source that has panicked is asked nothing more.
        if let Ok(mut state) = run.state.lock() {
            state.source.stop();
        }
    }
}

/// What sources have written besides their rows becomes final: the job is done.
pub(crate) fn finish_sources(job: &Job) -> Result<()> {
    for (place, run) in job.stages.sources() {
        let mut state = run.state.lock().expect("a source that panics ends the job");
        let finished = state.source.finish();
        finished.map_err(|error| error.in_operator(job.stages[place].name.clone()))?;
    }
    Ok(())
}

/// What sources have written besides their rows stays unfinished, and others may write it.
pub(crate) fn abort_sources(job: &Job) {
    for (_, run) in job.stages.sources() {
        if let Ok(mut state) = run.state.lock() {
            state.source.abort();
        }
    }
}
