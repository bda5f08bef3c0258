//! How a job ends: done, stopped or failed.
//!
//! 1. *Done*: every source has ended with the last watermark, which reaches every sink; each sink's
//!    thread finishes its output, and the last one ends the job.
//! 2. *Stopped*: sources are asked no more; what is in flight drains for a tenth of a second, and
//!    what is left then stays where it is ([`Lifecycle::gives_up`]), so a job stops soon wherever
//!    it is; sinks make visible what has come to them and leave their output unfinished
//!    (`NAME.partial`). No window is closed for it. While a last snapshot is awaited, only rows
//!    that lead to many results are left unfinished, after some seconds
//!    ([`Lifecycle::is_giving_up`]). A job that *drains* ends its sources as if their inputs had,
//!    and finishes everything.
//! 3. *Failed*: the first error wins; workers drop everything, sinks abort.
//!
//! **Invariant:** an error is kept before the job is over, so whoever sees that a job is over knows
//! whether it has failed.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Condvar;
use std::time::Duration;

use thalweg_core::shim::SharedClock;
use thalweg_core::{Error, Result};
use thalweg_ordering::sync::{Arc, AtomicBool, AtomicU64, AtomicUsize, Mutex, Ordering};

use crate::news::News;

/// A job that is stopped at once finishes what is inside for so long.
const GIVE_UP_AFTER_NS: u64 = 100_000_000;
/// One that waits for a last snapshot finishes rows that are begun for so long: on a busy machine a
/// worker may be kept from its processor for seconds in the middle of a few of them.
const FINISH_WITHIN_NS: u64 = 5_000_000_000;

/// Whether and how a job is to end, and who waits for that.
pub(crate) struct Lifecycle {
    clock: SharedClock,
    news: Arc<News>,
    pub(crate) started_ns: u64,
    stopping: AtomicBool,
    /// When the end was requested; 0 for never.
    stop_asked_ns: AtomicU64,
    /// A caller has asked for a graceful end.
    stop_requested: AtomicBool,
    /// The last snapshot stays until a user deletes it.
    keeps_last_snapshot: AtomicBool,
    /// Sources end as if their inputs had.
    draining: AtomicBool,
    over: AtomicBool,
    failure: Mutex<Option<Error>>,
    /// Sinks that have not finished.
    open_sinks: AtomicUsize,
    /// Sinks whose input has not ended.
    fed_sinks: AtomicUsize,
    /// Signalled when a sink finishes or the job fails.
    changed: (Mutex<()>, Condvar),
}

impl Lifecycle {
    /// A job with this many sinks begins.
    pub(crate) fn new(clock: SharedClock, news: &Arc<News>, sinks: usize) -> Self {
        Lifecycle {
            started_ns: clock.now_ns(),
            clock,
            news: Arc::clone(news),
            stopping: AtomicBool::new(false),
            stop_asked_ns: AtomicU64::new(0),
            stop_requested: AtomicBool::new(false),
            keeps_last_snapshot: AtomicBool::new(false),
            draining: AtomicBool::new(false),
            over: AtomicBool::new(false),
            failure: Mutex::new(None),
            open_sinks: AtomicUsize::new(sinks),
            fed_sinks: AtomicUsize::new(sinks),
            changed: (Mutex::new(()), Condvar::new()),
        }
    }

    /// True once nothing more may be done.
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    /// True once the job is being stopped from outside.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// True once sources are to end.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::SeqCst)
    }

    /// True once a graceful end was asked for.
    pub(crate) fn is_stop_requested(&self) -> bool {
        self.stop_requested.load(Ordering::SeqCst)
    }

    /// True once rows that lead to many results are not finished any more: the job is over, or it
    /// is to stop and time enough has passed for what takes no longer than usual.
    pub(crate) fn is_giving_up(&self) -> bool {
        let patience_ns = if self.is_stopping() { GIVE_UP_AFTER_NS } else { FINISH_WITHIN_NS };
        self.is_over() || self.is_late_to_stop(patience_ns)
    }

    /// True once nothing more of what is inside is done: the job is over, or it is stopping and
    /// time enough has passed. Whoever sees that first ends the job, so that what was left
    /// undone can never look done.
    pub(crate) fn gives_up(&self) -> bool {
        if !self.is_over() && self.is_stopping() && self.is_late_to_stop(GIVE_UP_AFTER_NS) {
            self.end();
        }
        self.is_over()
    }

    fn is_late_to_stop(&self, patience_ns: u64) -> bool {
        let asked_ns = self.stop_asked_ns.load(Ordering::SeqCst);
        asked_ns > 0 && !self.is_draining() && self.clock.now_ns() >= asked_ns + patience_ns
    }

    /// True once an error has ended the job.
    pub(crate) fn has_failed(&self) -> bool {
        // Mostly the job is not over.
        self.is_over() && self.lock_failure().is_some()
    }

    /// The end is requested.
    fn note_stop(&self) {
        let now_ns = self.clock.now_ns().max(1);
        // The first one counts.
        let _ = self.stop_asked_ns.compare_exchange(0, now_ns, Ordering::SeqCst, Ordering::SeqCst);
    }

    /// The job is to stop.
    pub(crate) fn stop(&self) {
        self.note_stop();
        self.stopping.store(true, Ordering::SeqCst);
    }

    /// A graceful end is asked for.
    pub(crate) fn request_stop(&self) {
        self.note_stop();
        self.stop_requested.store(true, Ordering::SeqCst);
    }

    /// The last snapshot is one that a user asks for.
    pub(crate) fn keep_last_snapshot(&self) {
        self.keeps_last_snapshot.store(true, Ordering::SeqCst);
    }

    /// True if the last snapshot is one that a user asks for.
    pub(crate) fn keeps_last_snapshot(&self) -> bool {
        self.keeps_last_snapshot.load(Ordering::SeqCst)
    }

    /// Sources are to end.
    pub(crate) fn drain(&self) {
        self.draining.store(true, Ordering::SeqCst);
    }

    /// Ends the job with an error; the first one wins.
    pub(crate) fn fail(&self, error: Error) {
        self.lock_failure().get_or_insert(error);
        self.end();
    }

    /// The job is over.
    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::SeqCst);
        self.news.notify_all();
        self.signal();
    }

    /// The error that ended the job.
    pub(crate) fn take_failure(&self) -> Option<Error> {
        self.lock_failure().take()
    }

    fn lock_failure(&self) -> thalweg_ordering::sync::MutexGuard<'_, Option<Error>> {
        self.failure.lock().expect("no panic under this lock")
    }

    /// Wakes those who wait for something to change.
    pub(crate) fn signal(&self) {
        drop(self.changed.0.lock().expect("no panic under this lock"));
        self.changed.1.notify_all();
    }

    /// Waits until something changes, or for this long.
    pub(crate) fn wait(&self, timeout: Duration) {
        let guard = self.changed.0.lock().expect("no panic under this lock");
        drop(self.changed.1.wait_timeout(guard, timeout).expect("no panic under this lock"));
    }

    /// A sink of a job with snapshots has all of its input.
    pub(crate) fn sink_ended(&self) {
        if self.fed_sinks.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.signal();
        }
    }

    /// A sink has finished its output.
    pub(crate) fn sink_finished(&self) {
        if self.open_sinks.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.signal();
        }
    }

    /// This many sinks have input to come, in a job that resumes.
    pub(crate) fn restore_fed_sinks(&self, sinks: usize) {
        self.fed_sinks.store(sinks, Ordering::SeqCst);
    }

    /// True once all input of all sinks is there.
    pub(crate) fn have_sinks_ended(&self) -> bool {
        self.fed_sinks.load(Ordering::SeqCst) == 0
    }

    /// True once every sink has finished.
    pub(crate) fn all_sinks_finished(&self) -> bool {
        self.open_sinks.load(Ordering::SeqCst) == 0
    }
}

/// Runs what others have written; a panic becomes an error.
pub(crate) fn caught<T>(run: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        Err(Error::user(format!("panicked: {}", panic_message(panic.as_ref()))))
    })
}

/// The text of a panic.
fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}
