//! A job at a rate, measured from behind its warm-up on: SQL through a session, or a pipeline.
//!
//! The clock starts when the engine starts the source of events, a moment before the source's own
//! clock does: what is measured is never too small. Sources that pace themselves (connector
//! `nexmark` with a rate) are wrapped to see that moment.

use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use arrow_array::RecordBatch;
use thalweg::session::{JobDescription, Observer, ResultTable, Session, SessionOptions, Tz};
use thalweg::{Error, Report, Result, Sink, Source};
use thalweg_core::SourcePoll;
use thalweg_core::connector::{SourceLayer, Waker};
use thalweg_core::graph::{Graph, StageKind};
use thalweg_runtime::JobControl;

use super::age_sinks::Began;
use super::expected::Given;
use super::percentiles::Percentiles;
use super::process::{Mark, Spent, forget_resident_peak};

/// Tables whose sources have the clock.
const EVENTS: [&str; 3] = ["person", "auction", "bid"];

/// Less than this part of the time that was to be measured is not enough.
const WHOLE_MIN: f64 = 0.9;
/// Says that, or that there was nothing to measure.
pub const NOT_MEASURED: &str =
    "the job ended before it was measured, or the process was stopped meanwhile: measure it again";

/// What to measure of a job.
#[derive(Clone, Copy)]
pub struct Timing {
    pub warm_up: Duration,
    pub measured: Duration,
    /// The job is stopped then; else it runs to its end.
    pub stops_then: bool,
}

/// What was measured.
pub struct Measured {
    /// In the measured time.
    pub spent: Spent,
    /// Rows that were read in it.
    pub rows_in: u64,
    /// Rows that were written in it.
    pub rows_out: u64,
    /// Rows that had been read at its end.
    pub rows_read: u64,
    /// Rows that were late for their windows.
    pub late: u64,
    /// By the engine's own clock: from when the first row of a bundle was due to when a result of
    /// it, or of the watermark that came with it, was written.
    pub latency: Option<Percentiles>,
}

/// Watches a job from a thread of its own, which sleeps but for a few moments.
pub struct Watch {
    measured: JoinHandle<Option<Measured>>,
}

impl Watch {
    /// From the start of the job.
    pub fn new(control: JobControl, began: Began, timing: Timing) -> Watch {
        Watch { measured: thread::spawn(move || watch(&control, &began, timing)) }
    }

    /// What it saw; `None` if the job ended before its time.
    pub fn measured(self) -> Option<Measured> {
        self.measured.join().ok().flatten()
    }
}

fn watch(control: &JobControl, began: &Began, timing: Timing) -> Option<Measured> {
    let started = began.start();
    let until = |at: Duration| {
        thread::sleep(at.saturating_sub(started.elapsed()));
        !control.is_over()
    };
    if !until(timing.warm_up) {
        return None;
    }
    forget_resident_peak();
    let (mark, before) = (Mark::now(), control.metrics());
    control.take_latency();
    if !until(timing.warm_up + timing.measured) {
        return None;
    }
    let (spent, latency, after) = (mark.spent(), control.take_latency(), control.metrics());
    // If the whole process was stopped meanwhile, what is left of the time says nothing.
    if spent.elapsed < timing.measured.mul_f64(WHOLE_MIN) {
        return None;
    }
    if timing.stops_then {
        control.cancel();
    }
    Some(Measured {
        spent,
        rows_in: after.rows_in() - before.rows_in(),
        rows_out: after.rows_out() - before.rows_out(),
        rows_read: after.rows_in(),
        late: after.late(),
        latency: latency.map(Percentiles::from),
    })
}

/// Sees each batch of a source before the engine does.
pub type Look = Box<dyn FnMut(&RecordBatch) + Send>;

/// A script whose last statement is a SELECT, and what it needs.
pub struct Script {
    pub text: String,
    pub sink: Box<dyn Sink>,
    pub began: Began,
    pub timing: Timing,
    /// The sources of events end then, on the clock; else of their own accord.
    pub ends_after: Option<Duration>,
    /// Sees the events of the first source.
    pub look: Option<Look>,
    /// Counts the events of all of them.
    pub given: Given,
}

impl Script {
    /// Runs it in a session, which may know sources and functions.
    ///
    /// # Errors
    /// Of the job; that it ended too early.
    pub fn run(self, session: &mut Session) -> Result<(Measured, Report)> {
        let Script { text, sink, began, timing, ends_after, look, given } = self;
        let mut observer =
            Watching { sink: Some(sink), began, timing, ends_after, look, given, watch: None };
        let mut report = session.run_script(&text, &mut observer)?;
        let job = report.jobs.pop().ok_or_else(|| Error::plan("the script has no SELECT"))?;
        let measured = observer.watch.and_then(Watch::measured);
        let measured = measured.ok_or_else(|| Error::internal(NOT_MEASURED))?;
        Ok((measured, job.report))
    }
}

/// In front of queries that join without windows: a side that is kept for ever outgrows any memory
/// at a rate. Auctions last 1,666 events, so ten seconds lose nothing at the rates of the suite;
/// the Jet paper does the same.
pub const FORGETS: &str = "SET 'table.exec.state.ttl' = '10 s';\n";

/// Query 6 waits a minute for bids on an auction. At the rates of the suite an auction is over
/// within milliseconds, and a second does as well; with a minute a short run would see no result.
pub fn with_short_auctions(text: &str) -> String {
    text.replace("INTERVAL '1' MINUTE", "INTERVAL '1' SECOND")
}

/// Windows of NEXMark's queries last as long as StreamBox's, a second: with ten, a step of a search
/// would see one result of some queries, or none. Watermarks stay behind by a tenth, too, and query
/// 6 waits for 0.1 s, which is enough from 34,000 events per second on.
pub fn with_short_windows(text: &str) -> String {
    text.replace("INTERVAL '4' SECOND", "INTERVAL '0.4' SECOND")
        .replace("INTERVAL '2' SECOND", "INTERVAL '0.2' SECOND")
        .replace("INTERVAL '10' SECOND", "INTERVAL '1' SECOND")
        .replace("INTERVAL '1' MINUTE", "INTERVAL '0.1' SECOND")
}

/// A session with this many workers that may read one folder.
///
/// # Errors
/// If the options are not valid.
pub fn session(workers: usize, folder: &Path) -> Result<Session> {
    session_with(workers, folder, Vec::new())
}

/// The same with settings.
///
/// # Errors
/// If the options or settings are not valid.
pub fn session_with(
    workers: usize,
    folder: &Path,
    settings: Vec<(String, String)>,
) -> Result<Session> {
    Session::new(SessionOptions {
        settings,
        base_dir: folder.to_owned(),
        allowed_roots: vec![folder.to_owned()],
        workers: Some(workers),
        ..SessionOptions::default()
    })
}

struct Watching {
    sink: Option<Box<dyn Sink>>,
    began: Began,
    timing: Timing,
    ends_after: Option<Duration>,
    look: Option<Look>,
    given: Given,
    watch: Option<Watch>,
}

impl Observer for Watching {
    fn result(&mut self, _: &ResultTable, _: Tz) -> Result<Box<dyn Sink>> {
        self.sink.take().ok_or_else(|| Error::plan("the script has two SELECTs"))
    }
    fn explanation(&mut self, _: &str) -> Result<()> {
        Ok(())
    }
    fn starting(&mut self, _: &JobDescription, graph: &mut Graph) {
        for stage in &mut graph.stages {
            // Other tables (files) start at another moment, and have no clock; sources of the suite
            // start it.
            if let StageKind::Source { source, .. } = &mut stage.kind
                && EVENTS.contains(&source.name().as_str())
            {
                let inner = std::mem::replace(source, Box::new(NoSource));
                *source = Box::new(Starting {
                    name: inner.name(),
                    inner,
                    began: self.began.clone(),
                    ends_after: self.ends_after,
                    look: self.look.take(),
                    given: self.given.clone(),
                });
            }
        }
    }
    fn started(&mut self, _: &JobDescription, control: &JobControl) {
        self.watch = Some(Watch::new(control.clone(), self.began.clone(), self.timing));
    }
}

/// Starts the clock with the source, and ends it in time.
struct Starting {
    name: String,
    inner: Box<dyn Source>,
    began: Began,
    ends_after: Option<Duration>,
    look: Option<Look>,
    given: Given,
}

impl SourceLayer for Starting {
    fn inner(&self) -> &dyn Source {
        self.inner.as_ref()
    }
    fn inner_mut(&mut self) -> &mut dyn Source {
        self.inner.as_mut()
    }
    fn name(&self) -> String {
        self.name.clone()
    }
    fn start(&mut self, waker: Waker) -> Result<()> {
        self.began.start();
        self.inner.start(waker)
    }
    fn open(&mut self) -> Result<()> {
        self.inner.open()
    }
    fn poll(&mut self, rows_max: usize) -> Result<SourcePoll> {
        let now_ns = u128::from(self.began.now_ns());
        if self.ends_after.is_some_and(|after| now_ns >= after.as_nanos()) {
            return Ok(SourcePoll::End);
        }
        let polled = self.inner.poll(rows_max)?;
        if let SourcePoll::Batch(read) = &polled {
            self.given.add(&self.name, read.batch.num_rows());
            if let Some(look) = &mut self.look {
                look(&read.batch);
            }
        }
        Ok(polled)
    }
}

/// Stands where a source is taken out for a moment.
struct NoSource;

impl Source for NoSource {
    fn name(&self) -> String {
        "none".to_owned()
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

/// Reads all that a query's sources of events bring, without running it, and what that cost: the
/// generator alone. Call it with a script whose events have no rate.
///
/// # Errors
/// If the script can't be planned.
pub fn generator_cost(session: &mut Session, script: &str) -> Result<(u64, Duration)> {
    let mut rows = 0;
    let cost = read_sources(session, script, &EVENTS, &mut |batch| {
        rows += batch.num_rows() as u64;
        true
    })?;
    Ok((rows, cost))
}

/// Reads the sources of some tables without running the query, until they end or the reader wants
/// no more; the processor time that it took, with the reader's.
///
/// # Errors
/// If the script can't be planned.
pub fn read_sources(
    session: &mut Session,
    script: &str,
    tables: &[&str],
    read: Read<'_>,
) -> Result<Duration> {
    let mut observer = Reading { tables, read, cost: Duration::ZERO };
    session.run_script(script, &mut observer)?;
    Ok(observer.cost)
}

/// Takes a batch; false if it wants no more of its table.
type Read<'a> = &'a mut dyn FnMut(&RecordBatch) -> bool;

struct Reading<'a> {
    tables: &'a [&'a str],
    read: Read<'a>,
    cost: Duration,
}

impl Observer for Reading<'_> {
    fn result(&mut self, _: &ResultTable, _: Tz) -> Result<Box<dyn Sink>> {
        Ok(Box::new(super::age_sinks::nothing()))
    }
    fn explanation(&mut self, _: &str) -> Result<()> {
        Ok(())
    }
    fn starting(&mut self, _: &JobDescription, graph: &mut Graph) {
        let mark = Mark::now();
        for stage in &mut graph.stages {
            let StageKind::Source { source, .. } = &mut stage.kind else { continue };
            let mut source = std::mem::replace(source, Box::new(NoSource));
            let is_read = self.tables.contains(&source.name().as_str());
            if is_read && source.start(Arc::new(|| {})).is_ok() {
                while let Ok(SourcePoll::Batch(read)) = source.poll(65_536)
                    && (self.read)(&read.batch)
                {}
                source.stop();
            }
        }
        self.cost = mark.spent().processor_time;
    }
}
