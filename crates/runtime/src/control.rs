//! What is said to a running job and what it answers, from any thread; and its report at the end.

use std::time::Duration;

use thalweg_core::Error;
use thalweg_ordering::sync::{Arc, Ordering};

use crate::job::Job;
use crate::late::LateAt;
use crate::metrics::{JobLayout, LatencyPercentiles, MetricsSnapshot, SnapshotMetrics};
use crate::observed;
use crate::tap::{EdgeTap, TapQueue, TappedRows};

/// A handle to watch and stop a job, from any thread.
#[derive(Clone)]
pub struct JobControl(pub(crate) Arc<Job>);

impl JobControl {
    /// Stops the job: sources are asked no more, what is in flight drains, and sinks leave their
    /// output unfinished.
    pub fn cancel(&self) {
        self.0.lifecycle.stop();
        self.0.cuts.pause(false);
        self.0.ask_all_sources();
    }
    /// Asks for a graceful end: at once, or where snapshots are taken by whoever takes them, who
    /// sees [`JobControl::is_stop_requested`], takes a last one and cancels. A job that is being
    /// cancelled keeps nothing more, so there it changes nothing.
    pub fn stop(&self) {
        if self.0.lifecycle.is_stopping() {
            return;
        }
        self.0.lifecycle.request_stop();
        match self.0.settings.snapshots {
            Some(_) => self.0.lifecycle.signal(),
            None => self.cancel(),
        }
    }
    /// True once [`JobControl::stop`] was called.
    pub fn is_stop_requested(&self) -> bool {
        self.0.lifecycle.is_stop_requested()
    }
    /// The last snapshot, which the end of the job takes, stays until a user deletes it. To be
    /// called before [`JobControl::stop`] or [`JobControl::drain`].
    pub fn keep_last_snapshot(&self) {
        self.0.lifecycle.keep_last_snapshot();
    }
    /// True once [`JobControl::keep_last_snapshot`] was called.
    pub fn keeps_last_snapshot(&self) -> bool {
        self.0.lifecycle.keeps_last_snapshot()
    }
    /// Ends the job with an error.
    pub fn fail(&self, error: Error) {
        self.0.lifecycle.fail(error);
    }
    /// Reports what became of snapshots, for the metrics.
    pub fn report_snapshots(&self, metrics: SnapshotMetrics) {
        let mut snapshots = self.0.measured.snapshots.lock().expect("no panic under this lock");
        *snapshots = Some(metrics);
    }
    /// Ends the sources as if their inputs had: windows close, and the job ends by itself.
    pub fn drain(&self) {
        self.0.lifecycle.drain();
        self.0.ask_all_sources();
    }
    /// True once every source was asked for rows.
    pub fn are_sources_polled(&self) -> bool {
        self.0.stages.sources().all(|(_, source)| source.was_polled.load(Ordering::Relaxed))
    }
    /// True once the job has ended, failed or been stopped.
    pub fn is_over(&self) -> bool {
        self.0.lifecycle.is_over()
    }
    /// Waits until something happens that whoever looks after a job may want to see, or for this
    /// long.
    pub fn wait(&self, timeout: Duration) {
        self.0.lifecycle.wait(timeout);
    }
    /// Ends the wait of whoever looks after the job.
    pub fn wake(&self) {
        self.0.lifecycle.signal();
    }
    /// A copy of all counters.
    pub fn metrics(&self) -> MetricsSnapshot {
        observed::metrics(&self.0)
    }
    /// What does not change about the job while it runs.
    pub fn layout(&self) -> JobLayout {
        observed::layout(&self.0)
    }
    /// Looks at rows that pass from stage to stage by these edges, each given by the places of both
    /// in the [layout](JobControl::layout), until the tap is dropped. Costs the job next to
    /// nothing, and does not slow it down.
    pub fn tap(&self, edges: &[(usize, usize)]) -> Tap {
        Tap::begin(&self.0, edges)
    }
    /// The last rows that came late, oldest first. As many are kept as
    /// `LATE_ROWS_MAX` of `late.rs` says, also where late rows are only counted.
    pub fn late_rows(&self) -> Vec<LateAt> {
        self.0.measured.late.kept()
    }
    /// The latency of results since it was last taken, which is no longer part of the report then:
    /// a measurement that begins behind a warm-up takes it twice.
    pub fn take_latency(&self) -> Option<LatencyPercentiles> {
        self.0.latency(true)
    }
}

/// Looks at rows that pass by some edges, until it is dropped.
pub struct Tap {
    job: Arc<Job>,
    edges: Vec<(usize, usize)>,
    queue: Arc<TapQueue>,
}

impl Tap {
    /// Begins to look at these edges, each from a stage to a stage. Those that there are not are
    /// left out.
    fn begin(job: &Arc<Job>, edges: &[(usize, usize)]) -> Tap {
        let (edges, queue) = (edges.to_vec(), Arc::default());
        let tap = Tap { job: Arc::clone(job), edges, queue };
        tap.each(|from, to, edge| edge.add(from, to, &tap.queue));
        tap
    }

    fn each(&self, of: impl Fn(usize, usize, &EdgeTap)) {
        for &(from, to) in &self.edges {
            let stage = (from < self.job.stages.len()).then(|| &self.job.stages[from]);
            let edges = stage.into_iter().flat_map(|stage| &stage.edges);
            edges.filter(|edge| edge.to.0 == to).for_each(|edge| of(from, to, &edge.tap));
        }
    }

    /// The edges that it looks at.
    pub fn edges(&self) -> &[(usize, usize)] {
        &self.edges
    }

    /// The oldest rows that were not taken yet.
    pub fn take(&self) -> Option<TappedRows> {
        self.queue.take()
    }

    /// How many rows have passed.
    pub fn seen_rows(&self) -> u64 {
        self.queue.seen_rows()
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        self.each(|_, _, edge| edge.remove(&self.queue));
    }
}

/// What a job did.
#[derive(Clone, Debug)]
pub struct Report {
    /// All counters at the end.
    pub metrics: MetricsSnapshot,
    /// From start to end.
    pub elapsed: Duration,
    /// Result latency.
    pub latency: Option<LatencyPercentiles>,
    /// How long what came in took to get through, whether a result came of it or not, in a sample
    /// (the markers of Prasaad et al. §7.1). Ordered contracts only.
    pub passage: Option<LatencyPercentiles>,
    /// The most that rows in flight and state took, in bytes.
    pub peak_bytes: usize,
    /// The most that state alone took, in bytes.
    pub state_peak_bytes: usize,
    /// True if the job was stopped before its inputs ended.
    pub cancelled: bool,
    /// The places of the outputs whose reader had gone before all was written.
    pub gone: Vec<usize>,
}

impl Report {
    /// What a job that has ended did.
    pub(crate) fn of(job: &Job) -> Report {
        let cancelled = job.lifecycle.is_stopping() && !job.lifecycle.all_sinks_finished();
        let all = job.stages.sinks();
        let gone = all.filter(|(_, sink)| sink.gone.load(Ordering::SeqCst));
        let gone: Vec<usize> = gone.map(|(place, _)| place).collect();
        // Where nobody reads any more, rows stay on their way.
        if !cancelled && gone.is_empty() {
            job.assert_conservation();
        }
        // Bad rows were counted at the end of each input that was read to its end.
        for (place, source) in job.stages.sources() {
            if let Ok(state) = source.state.lock() {
                let bad_rows = state.source.bad_rows();
                job.stages[place].metrics.bad_rows.store(bad_rows, Ordering::Relaxed);
            }
        }
        let elapsed_ns = job.now_ns().saturating_sub(job.lifecycle.started_ns);
        Report {
            metrics: observed::metrics(job),
            elapsed: Duration::from_nanos(elapsed_ns),
            latency: job.latency(false),
            passage: job.measured.passage.percentiles(),
            peak_bytes: job.memory.peak_bytes(),
            state_peak_bytes: job.memory.state_peak_bytes(),
            cancelled,
            gone,
        }
    }
}
