//! Looks at each job that runs once a second, so that people learn which input holds results
//! back: in the progress line, in the log of a run that nobody watches, and when the run has ended.
//!
//! What a job was doing is kept from before it is stopped: afterwards all of its inputs have ended.

use std::collections::BTreeMap;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use thalweg::monitoring::why::{Verdict, Why};
use thalweg::monitoring::{Condition, ConditionKind, Watch, why};
use thalweg_core::text::without_controls;
use thalweg_runtime::JobControl;

use super::screen::Screen;

/// How often jobs are looked at.
const PERIOD: Duration = Duration::from_secs(1);
/// A log says that results are held back after this time.
const WARN_AFTER_MS: i64 = 60_000;

/// Jobs that are looked at; dropping it ends its thread.
pub struct Watching {
    jobs: Arc<WatchedJobs>,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

struct WatchedJobs {
    screen: Arc<Screen>,
    /// Nobody sees the progress: what matters has to stand in the log.
    warns: bool,
    /// By place.
    list: Mutex<BTreeMap<usize, WatchedJob>>,
}

struct WatchedJob {
    name: String,
    control: JobControl,
    watch: Watch,
    /// Why results were where they were when it was looked at last.
    last: Option<Why>,
    has_warned: bool,
}

impl Watching {
    /// Begins to look. Where no thread can be had nobody looks, and jobs run on.
    pub fn start(screen: &Arc<Screen>, warns: bool) -> Watching {
        let (stop, stopped) = mpsc::channel();
        let jobs = WatchedJobs { screen: Arc::clone(screen), warns, list: Mutex::default() };
        let jobs = Arc::new(jobs);
        let looked_at = Arc::clone(&jobs);
        let body = move || {
            while stopped.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
                looked_at.look();
            }
        };
        let thread = std::thread::Builder::new().name("watching".to_owned()).spawn(body).ok();
        Watching { jobs, stop: Some(stop), thread }
    }

    /// From now on this job is looked at.
    pub fn add(&self, place: usize, name: &str, control: &JobControl) {
        let job = WatchedJob {
            name: name.to_owned(),
            control: control.clone(),
            watch: Watch::new(name, control),
            last: None,
            has_warned: false,
        };
        self.jobs.list.lock().expect("no panic under this lock").insert(place, job);
    }

    /// The job has ended. Why its results stood still, if they did when it was looked at last.
    pub fn remove(&self, place: usize) -> Option<Why> {
        let job = self.jobs.list.lock().expect("no panic under this lock").remove(&place)?;
        job.last.filter(|why| why.verdict == Verdict::StandingStill)
    }

    /// What is wrong with a job, in a few words.
    pub fn problem(&self, place: usize) -> Option<String> {
        let jobs = self.jobs.list.lock().expect("no panic under this lock");
        let held = |of: &&Condition| of.kind == ConditionKind::Held;
        jobs.get(&place)?.watch.conditions().iter().find(held).map(|held| held.text.clone())
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            // A panic has been reported by the hook; the jobs do not care.
            let _ = thread.join();
        }
    }
}

impl WatchedJobs {
    fn look(&self) {
        let mut warnings = Vec::new();
        let mut jobs = self.list.lock().expect("no panic under this lock");
        for job in jobs.values_mut().filter(|job| !job.is_ending()) {
            job.look();
            if self.warns {
                warnings.extend(job.warning());
            }
        }
        drop(jobs);
        warnings.iter().for_each(|warning| self.screen.say(&without_controls(warning)));
    }
}

impl WatchedJob {
    fn is_ending(&self) -> bool {
        self.control.is_stop_requested() || self.control.is_over()
    }

    fn look(&mut self) {
        let metrics = self.control.metrics();
        // It may have been stopped meanwhile.
        if !self.is_ending() {
            self.last = why(self.watch.look(&metrics));
        }
    }

    /// Once for each time that results are held back for long.
    fn warning(&mut self) -> Option<String> {
        let held = self.watch.conditions().iter().find(|of| of.kind == ConditionKind::Held);
        let now_ms = self.watch.newest().map_or(0, |reading| reading.at_ms);
        let held = held.filter(|held| now_ms - held.since_ms >= WARN_AFTER_MS);
        let had_warned = std::mem::replace(&mut self.has_warned, held.is_some());
        let held = held.filter(|_| !had_warned)?;
        Some(format!("warning: job '{}': {}\n", self.name, held.text))
    }
}
