//! Jobs of this process that are killed where a test wants it, and resume from what they have kept.
//!
//! Sources are wrapped: each gives this many rows and then holds still, so it is certain what a
//! snapshot behind that holds. A kill is an error from outside that no sink is notified of; what
//! another run finds is what was prepared and committed, no more. Kills of real processes are in
//! `kills.rs`.
#![allow(dead_code, reason = "each test program uses some of it")]

pub mod disk;
pub mod outside;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use chrono_tz::Tz;
use thalweg::jobs::ResumeFrom;
use thalweg::session::{JobDescription, Observer, Session, SessionOptions};
use thalweg::{Error, Result, Sink, Source};
use thalweg_core::connector::{DiscardSink, SourceLayer, SourcePoll, Waker};
use thalweg_core::graph::{Graph, StageKind};
use thalweg_core::shim::SplitMix64;
use thalweg_plan::ResultTable;
use thalweg_runtime::JobControl;

/// Far more than anything here needs in a debug build on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);
/// Where not every source is asked for rows (one may wait for the end of another), nothing is under
/// way when none has given any for so long.
const SILENCE: Duration = Duration::from_millis(50);
/// What a job says that was killed.
pub const KILLED: &str = "killed by the test";

/// What a run of a script is to do.
pub struct Run<'a> {
    /// The folder that paths start from.
    pub folder: PathBuf,
    /// Settings in front of those of the script.
    pub settings: Vec<(&'a str, String)>,
    /// Worker threads.
    pub workers: usize,
    /// Where it resumes.
    pub resume: ResumeFrom,
    /// What an earlier run has written is replaced.
    pub overwrite: bool,
    /// When it is killed; it runs to its end otherwise.
    pub kill: Option<Kill>,
}

/// When a run is killed.
#[derive(Clone, Debug, Default)]
pub struct Kill {
    /// Rows that each source gives before each hold, in the order of the sources.
    pub holds: Vec<Vec<u64>>,
    /// Rows that each source gives behind the last one.
    pub rows_behind: u64,
    /// How long they may get on their way.
    pub delay: Duration,
    /// It is not killed behind the last hold, and runs to its end.
    pub is_spared: bool,
}

impl Kill {
    /// Draws one for sources of this many rows.
    pub fn draw(random: &mut SplitMix64, rows: &[u64]) -> Kill {
        Kill {
            holds: vec![rows.iter().map(|&rows| random.below(rows + 1)).collect()],
            rows_behind: random.below(4),
            delay: Duration::from_micros(random.below(4_000)),
            is_spared: false,
        }
    }
}

/// What a test does while a job holds still: the number of the hold, and the job.
pub type AtHold = Box<dyn FnMut(usize, &JobControl) + Send>;

/// Runs a script, whose job is called `job`. False if it was killed, true if it has ended.
///
/// # Errors
/// Those of the script.
pub fn run(
    script: &str,
    run: Run<'_>,
    wrap: &mut dyn FnMut(Box<dyn Sink>) -> Box<dyn Sink>,
    at_hold: AtHold,
) -> Result<bool> {
    let Run { folder, settings, workers, resume, overwrite, kill } = run;
    let settings = settings.into_iter().map(|(key, value)| (key.to_owned(), value));
    let never = ("restart-strategy.type".to_owned(), "none".to_owned());
    let mut session = Session::new(SessionOptions {
        base_dir: folder.clone(),
        allowed_roots: vec![folder],
        settings: settings.chain([never]).collect(),
        workers: Some(workers),
        resume,
        overwrite,
        name: Some("job".to_owned()),
        ..SessionOptions::default()
    })?;
    let mut watcher =
        Watcher { kill, wrap, at_hold: Some(at_hold), gates: Vec::new(), killer: None };
    let outcome = session.run_script(script, &mut watcher);
    let killed = watcher.killer.take().map_or(Ok(()), std::thread::JoinHandle::join);
    match outcome {
        Err(error) if error.message() != KILLED => Err(error),
        outcome => {
            killed.expect("nobody waits in vain");
            Ok(outcome.is_ok())
        }
    }
}

/// Lets a run pass without a word where it is held.
pub fn nothing() -> AtHold {
    Box::new(|_, _| {})
}

/// Waits for a snapshot of which the cut begins after this call. False if the job is over.
pub fn await_snapshot(control: &JobControl) -> bool {
    let taken = |control: &JobControl| control.metrics().snapshots.map_or(0, |own| own.taken);
    let before = taken(control);
    // The next one may have been begun.
    until(control, || taken(control) >= before + 2)
}

/// Waits for a condition. False if the job is over before.
fn until(control: &JobControl, mut condition: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    while !condition() {
        if control.is_over() {
            return false;
        }
        assert!(begun.elapsed() < PATIENCE, "waited in vain: {:?}", control.metrics());
        std::thread::sleep(Duration::from_micros(200));
    }
    true
}

/// How many rows a source may still give.
#[derive(Default)]
struct Gate {
    left: AtomicU64,
    given: AtomicU64,
    has_ended: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Gate {
    fn is_held(&self) -> bool {
        self.left.load(Ordering::SeqCst) == 0 || self.has_ended.load(Ordering::SeqCst)
    }

    fn open(&self, rows: u64) {
        self.left.fetch_add(rows, Ordering::SeqCst);
        if let Some(waker) = &*self.waker.lock().expect("no panic") {
            waker();
        }
    }
}

/// A source that gives rows as its gate lets it.
struct GatedSource {
    inner: Box<dyn Source>,
    gate: Arc<Gate>,
}

impl SourceLayer for GatedSource {
    fn inner(&self) -> &dyn Source {
        self.inner.as_ref()
    }
    fn inner_mut(&mut self) -> &mut dyn Source {
        self.inner.as_mut()
    }
    fn start(&mut self, waker: Waker) -> Result<()> {
        *self.gate.waker.lock().expect("no panic") = Some(waker.clone());
        self.inner.start(waker)
    }
    fn open(&mut self) -> Result<()> {
        self.inner.open()
    }
    fn poll(&mut self, rows_max: usize) -> Result<SourcePoll> {
        let left = self.gate.left.load(Ordering::SeqCst);
        if left == 0 {
            return Ok(SourcePoll::Pending);
        }
        let polled = self.inner.poll(rows_max.min(usize::try_from(left).unwrap_or(usize::MAX)))?;
        match &polled {
            SourcePoll::Batch(batch) => {
                let rows = batch.batch.num_rows() as u64;
                // A source that sorts gives what has become old enough, be it more than was asked
                // for.
                let rest = |left: u64| Some(left.saturating_sub(rows));
                let _ = self.gate.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, rest);
                self.gate.given.fetch_add(rows, Ordering::SeqCst);
            }
            SourcePoll::End => self.gate.has_ended.store(true, Ordering::SeqCst),
            SourcePoll::Pending | SourcePoll::Heartbeat(..) | SourcePoll::Split(..) => {}
        }
        Ok(polled)
    }
}

/// Stands in a source's place while it is wrapped.
struct Gone;

impl Source for Gone {
    fn name(&self) -> String {
        "gone".to_owned()
    }
    fn start(&mut self, _: Waker) -> Result<()> {
        Ok(())
    }
    fn poll(&mut self, _: usize) -> Result<SourcePoll> {
        Ok(SourcePoll::End)
    }
    fn is_bounded(&self) -> bool {
        true
    }
}

struct Watcher<'a> {
    kill: Option<Kill>,
    wrap: &'a mut dyn FnMut(Box<dyn Sink>) -> Box<dyn Sink>,
    at_hold: Option<AtHold>,
    gates: Vec<Arc<Gate>>,
    killer: Option<std::thread::JoinHandle<()>>,
}

impl Observer for Watcher<'_> {
    fn result(&mut self, _: &ResultTable, _: Tz) -> Result<Box<dyn Sink>> {
        Err(Error::plan("what takes snapshots is an INSERT"))
    }
    fn explanation(&mut self, _: &str) -> Result<()> {
        Err(Error::plan("nothing is explained"))
    }
    fn starting(&mut self, _: &JobDescription, graph: &mut Graph) {
        let first = self.kill.as_ref().and_then(|kill| kill.holds.first());
        let rows = first.map_or(&[][..], Vec::as_slice);
        for stage in &mut graph.stages {
            match &mut stage.kind {
                StageKind::Source { source, .. } => {
                    let left = rows.get(self.gates.len()).copied().unwrap_or(u64::MAX);
                    let gate = Arc::new(Gate { left: left.into(), ..Gate::default() });
                    self.gates.push(Arc::clone(&gate));
                    let inner = std::mem::replace(source, Box::new(Gone));
                    *source = Box::new(GatedSource { inner, gate });
                }
                StageKind::Sink(sink) => {
                    let inner = std::mem::replace(sink, Box::new(DiscardSink::new("gone")));
                    *sink = (self.wrap)(inner);
                }
                StageKind::Transform(_) | StageKind::Operator(_) => {}
            }
        }
    }
    fn started(&mut self, _: &JobDescription, control: &JobControl) {
        let Some(kill) = self.kill.clone() else { return };
        let (control, gates) = (control.clone(), self.gates.clone());
        let at_hold = self.at_hold.take().expect("one job to a script");
        let killer = move || hold_and_kill(&control, &gates, &kill, at_hold);
        self.killer = Some(std::thread::spawn(killer));
    }
}

fn hold_and_kill(control: &JobControl, gates: &[Arc<Gate>], kill: &Kill, mut at_hold: AtHold) {
    for hold in 0..kill.holds.len() {
        if hold > 0 {
            gates.iter().zip(&kill.holds[hold]).for_each(|(gate, &rows)| gate.open(rows));
        }
        if !until_still(control, gates) {
            return;
        }
        at_hold(hold, control);
    }
    if kill.is_spared {
        gates.iter().for_each(|gate| gate.open(u64::MAX / 2));
        return;
    }
    gates.iter().for_each(|gate| gate.open(kill.rows_behind));
    std::thread::sleep(kill.delay);
    control.fail(Error::user(KILLED));
}

/// Waits until no source gives any more. False if the job is over.
fn until_still(control: &JobControl, gates: &[Arc<Gate>]) -> bool {
    let (mut given, mut since) = (0, Instant::now());
    until(control, || {
        let now = gates.iter().map(|gate| gate.given.load(Ordering::SeqCst)).sum::<u64>();
        if now != given {
            (given, since) = (now, Instant::now());
        }
        gates.iter().all(|gate| gate.is_held()) || since.elapsed() > SILENCE
    })
}
