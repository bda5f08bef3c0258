//! The progress: a line for each job that runs with what it has done so far, ten times a second on
//! standard error.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use thalweg::session::JobDescription;
use thalweg_core::Watermark;
use thalweg_core::shim::{Clock, SystemClock};
use thalweg_core::text::without_controls;
use thalweg_runtime::{JobControl, MetricsSnapshot, SnapshotMetrics};

use super::screen::Screen;
use super::units;
use super::watching::Watching;

/// How often the lines are drawn.
const PERIOD: Duration = Duration::from_millis(100);
/// The most lines, so that there is room above them.
const LINES_MAX: usize = 8;

/// Lines that are being drawn; dropping it erases them and ends its thread.
pub struct Progress {
    shown: Arc<ShownJobs>,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

struct ShownJobs {
    screen: Arc<Screen>,
    watching: Option<Arc<Watching>>,
    clock: SystemClock,
    jobs: Mutex<Vec<ShownJob>>,
}

struct ShownJob {
    place: usize,
    name: String,
    control: JobControl,
    rate: Rate,
}

impl Progress {
    /// Begins to draw. Where no thread can be had there is no progress, and jobs run on.
    pub fn start(screen: &Arc<Screen>, watching: Option<&Arc<Watching>>) -> Progress {
        let (stop, stopped) = mpsc::channel();
        let (screen, jobs) = (Arc::clone(screen), Mutex::default());
        let (watching, clock) = (watching.cloned(), SystemClock::new());
        let shown = Arc::new(ShownJobs { screen, watching, clock, jobs });
        let drawn = Arc::clone(&shown);
        let body = move || {
            while stopped.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
                drawn.draw();
            }
        };
        let thread = std::thread::Builder::new().name("progress".to_owned()).spawn(body).ok();
        Progress { shown, stop: Some(stop), thread }
    }

    /// Draws the line of one job without a name.
    pub fn of(screen: &Arc<Screen>, control: &JobControl) -> Progress {
        let progress = Progress::start(screen, None);
        progress.show(0, String::new(), control);
        progress
    }

    /// From now on this job is shown.
    pub fn add(&self, job: &JobDescription, control: &JobControl) {
        self.show(job.place, without_controls(&job.name).into_owned(), control);
    }

    fn show(&self, place: usize, name: String, control: &JobControl) {
        let ShownJobs { clock, jobs, .. } = &*self.shown;
        let rate = Rate { before: Some((clock.now_ns(), 0)), smoothed: None };
        let job = ShownJob { place, name, control: control.clone(), rate };
        jobs.lock().expect("no panic under this lock").push(job);
    }

    /// The job has ended.
    pub fn remove(&self, place: usize) {
        let mut jobs = self.shown.jobs.lock().expect("no panic under this lock");
        jobs.retain(|job| job.place != place);
        if jobs.is_empty() {
            self.shown.screen.erase();
        }
    }
}

impl ShownJobs {
    fn draw(&self) {
        let mut jobs = self.jobs.lock().expect("no panic under this lock");
        let (now_ns, now_ms) = (self.clock.now_ns(), self.clock.wall_ms());
        let lines: Vec<String> = jobs
            .iter_mut()
            .map(|job| {
                let metrics = job.control.metrics();
                let rows_per_second = job.rate.update(now_ns, metrics.rows_in());
                let line = line(&metrics, rows_per_second, now_ms);
                let watching = self.watching.as_ref();
                with_problem(watching.and_then(|of| of.problem(job.place)), line)
            })
            .collect();
        let names: Vec<&str> = jobs.iter().map(|job| job.name.as_str()).collect();
        if !lines.is_empty() {
            self.screen.draw(&together(&names, lines));
        }
    }
}

/// The lines of all jobs, with their names where there are several.
fn together(names: &[&str], lines: Vec<String>) -> String {
    if lines.len() <= 1 {
        return lines.into_iter().map(cut).collect();
    }
    let jobs = lines.len();
    let named = names.iter().zip(lines).map(|(name, line)| cut(format!("{name}: {line}")));
    let mut shown: Vec<String> =
        named.take(if jobs > LINES_MAX { LINES_MAX - 1 } else { jobs }).collect();
    if jobs > shown.len() {
        shown.push(format!("… and {} more jobs", jobs - shown.len()));
    }
    shown.join("\n")
}

/// A line that wraps could not be erased.
fn cut(line: String) -> String {
    line.chars().take(WIDTH_MAX).collect()
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            // A panic in drawing has been reported by the hook; the job does not care.
            let _ = thread.join();
        }
        self.shown.screen.erase();
    }
}

/// Rows per second, smoothed over about a second.
#[derive(Default)]
struct Rate {
    before: Option<(u64, u64)>,
    smoothed: Option<f64>,
}

impl Rate {
    fn update(&mut self, now_ns: u64, rows: u64) -> f64 {
        let (before_ns, before_rows) = self.before.replace((now_ns, rows)).unwrap_or((0, 0));
        let seconds = now_ns.saturating_sub(before_ns) as f64 / 1e9;
        let current = rows.saturating_sub(before_rows) as f64 / seconds.max(1e-6);
        let smoothed = match self.smoothed {
            Some(smoothed) => smoothed + (current - smoothed) * seconds.min(1.0),
            None => current,
        };
        self.smoothed = Some(smoothed);
        smoothed
    }
}

fn line(metrics: &MetricsSnapshot, rows_per_second: f64, now_ms: i64) -> String {
    let mut parts = vec![
        format!("{} rows in", rows(metrics.rows_in())),
        format!("{} rows/s", units::short_count(rows_per_second)),
    ];
    let watermark = metrics.watermark();
    if watermark > Watermark::MIN {
        // Nobody reads milliseconds that change ten times a second.
        let shown = watermark.to_string();
        parts.push(format!("watermark {}", shown.split('.').next().unwrap_or(&shown)));
    }
    if metrics.late() > 0 {
        parts.push(format!("{} late", rows(metrics.late())));
    }
    let idle = metrics.stages.iter().filter(|stage| stage.idle).count();
    if idle > 0 {
        parts.push(format!("{idle} idle"));
    }
    if let Some(snapshots) = &metrics.snapshots {
        let is_well = snapshots.problem.is_none();
        // What is cut off at the end must not be a problem.
        let place = if is_well { parts.len() } else { 0 };
        parts.splice(place..place, newest_snapshot(snapshots, now_ms));
    }
    parts.join(" · ")
}

/// What is wrong comes first: the end of the line may be cut off.
fn with_problem(problem: Option<String>, line: String) -> String {
    match problem {
        Some(problem) => format!("{} · {line}", without_controls(&problem)),
        None => line,
    }
}

/// Which snapshot is the newest and how old it is; whether there is something wrong comes first.
fn newest_snapshot(snapshots: &SnapshotMetrics, now_ms: i64) -> Option<String> {
    if snapshots.problem.is_some() {
        let word = match snapshots {
            SnapshotMetrics { is_behind: true, .. } => "snapshots late",
            SnapshotMetrics { failed: 1.., .. } => "snapshots fail",
            _ => "no new snapshot",
        };
        return Some(word.to_owned());
    }
    let (number, taken_at_ms) = (snapshots.number?, snapshots.taken_at_ms?);
    let seconds = now_ms.saturating_sub(taken_at_ms).max(0) as u64 / 1000;
    Some(format!("snapshot {number} {} ago", units::age(Duration::from_secs(seconds))))
}

/// Exact while the number is short enough to be read.
fn rows(number: u64) -> String {
    if number < 10_000_000 { units::count(number) } else { units::short_count(number as f64) }
}

/// The narrowest terminal that is usual.
const WIDTH_MAX: usize = 79;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_follows_what_happens() {
        let mut rate = Rate::default();
        let second = 1_000_000_000;
        assert!((rate.update(second, 1000) - 1000.0).abs() < 1e-6);
        assert!((rate.update(2 * second, 3000) - 2000.0).abs() < 1e-6);
        assert!((rate.update(2 * second + second / 2, 3000) - 1000.0).abs() < 1e-6);
    }

    #[test]
    fn several_jobs_have_a_line_each_with_their_names() {
        let lines = |count: usize| vec!["1 rows in".to_owned(); count];
        assert_eq!(together(&["a"], lines(1)), "1 rows in");
        assert_eq!(together(&["a", "b"], lines(2)), "a: 1 rows in\nb: 1 rows in");
        let names = ["name"; 20];
        let shown = together(&names, lines(20));
        assert_eq!(shown.lines().count(), LINES_MAX);
        assert!(shown.ends_with("\n… and 13 more jobs"), "{shown}");
        assert_eq!(together(&["a"], vec!["x".repeat(200)]).len(), WIDTH_MAX);
    }

    #[test]
    fn what_holds_results_back_comes_first() {
        let held = Some("held by meters[7]: no row for 2 min 1 s".to_owned());
        let shown = with_problem(held, "1 rows in".to_owned());
        assert_eq!(shown, "held by meters[7]: no row for 2 min 1 s · 1 rows in");
        assert_eq!(with_problem(None, "1 rows in".to_owned()), "1 rows in");
    }

    #[test]
    fn a_job_that_has_read_nothing_has_no_watermark() {
        assert_eq!(line(&MetricsSnapshot::default(), 0.0, 0), "0 rows in · 0 rows/s");
    }

    #[test]
    fn a_job_shows_its_newest_snapshot_and_says_first_that_they_fail() {
        let mut snapshots =
            SnapshotMetrics { number: Some(12), taken_at_ms: Some(5000), ..Default::default() };
        let shown = |snapshots: &SnapshotMetrics| {
            let snapshots = Some(snapshots.clone());
            line(&MetricsSnapshot { snapshots, ..MetricsSnapshot::default() }, 0.0, 70_999)
        };
        assert_eq!(shown(&snapshots), "0 rows in · 0 rows/s · snapshot 12 1 min 5 s ago");
        snapshots.problem = Some("no snapshot was kept for 65 s".to_owned());
        assert!(shown(&snapshots).starts_with("no new snapshot · "));
        snapshots.failed = 1;
        assert!(shown(&snapshots).starts_with("snapshots fail · "));
        snapshots.is_behind = true;
        assert!(shown(&snapshots).starts_with("snapshots late · "));
    }
}
