//! The progress line: what a running job has done so far, ten times a second on standard error.

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use thalweg_core::Watermark;
use thalweg_core::shim::{Clock, SystemClock};
use thalweg_runtime::{JobControl, MetricsSnapshot, SnapshotMetrics};

use super::screen::Screen;
use super::units;

/// How often the line is drawn.
const PERIOD: Duration = Duration::from_millis(100);

/// A line that is being drawn; dropping it erases the line and ends its thread.
pub struct Progress {
    screen: Arc<Screen>,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Progress {
    /// Begins to draw. Where no thread can be had there is no progress line, and the job runs on.
    pub fn start(screen: &Arc<Screen>, control: JobControl) -> Progress {
        let (stop, stopped) = mpsc::channel();
        let shared = Arc::clone(screen);
        let body = move || {
            let clock = SystemClock::new();
            let mut rate = Rate::default();
            while stopped.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
                let metrics = control.metrics();
                let rows_per_second = rate.update(clock.now_ns(), metrics.rows_in());
                shared.draw(&line(&metrics, rows_per_second, clock.wall_ms()));
            }
        };
        let thread = std::thread::Builder::new().name("progress".to_owned()).spawn(body).ok();
        Progress { screen: Arc::clone(screen), stop: Some(stop), thread }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            // A panic in drawing has been reported by the hook; the job does not care.
            let _ = thread.join();
        }
        self.screen.erase();
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
    // A line that wraps could not be erased.
    parts.join(" · ").chars().take(WIDTH_MAX).collect()
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
