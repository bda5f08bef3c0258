//! Whether there may be something to do for a job: how workers of many jobs pass over those that
//! are quiet.
//!
//! # Protocol
//! - Whoever posts work makes it visible, then says that there is news ([`News::notify`]).
//! - A worker that looks takes the news first ([`News::take`]) and looks afterwards. If it finds a
//!   task it says that there is news, since there may be more, and once more when the task is done:
//!   tasks leave work behind that nobody posts.
//!
//! # Why no work is left behind
//! Say that work is visible and there is no news. Its poster has said that there was, after it was
//! visible, so a worker took the news later, and looked later still: either that worker is looking
//! now, or it has found a task and says so. (If it found nothing, there was nothing.) Stores and
//! loads are SeqCst, so this is one order for all threads. Whoever is about to park has announced
//! itself before it looked for news: a poster that comes later sees it and wakes it (see
//! [`Sleep`]).
//!
//! What can be done only later, with no post (in processing time, say), is not news: workers look
//! at all jobs now and then as well.

use thalweg_ordering::Sleep;
use thalweg_ordering::sync::{Arc, AtomicBool, Ordering};

/// The news of one job, and where its workers sleep.
pub(crate) struct News {
    sleep: Arc<Sleep>,
    is_there: AtomicBool,
}

impl News {
    /// There is news from the beginning: nobody has looked yet.
    pub(crate) fn new(sleep: Arc<Sleep>) -> Self {
        News { sleep, is_there: AtomicBool::new(true) }
    }

    /// There is something to do; wakes a worker.
    #[inline]
    pub(crate) fn notify(&self) {
        self.mark();
        self.sleep.notify();
    }

    /// There is something to do; wakes all workers.
    pub(crate) fn notify_all(&self) {
        self.mark();
        self.sleep.notify_all();
    }

    /// There may be something to do; whoever says so looks itself.
    #[inline]
    pub(crate) fn mark(&self) {
        // Mostly there is news already, and then the line stays where it is.
        if !self.is_there.load(Ordering::SeqCst) {
            self.is_there.store(true, Ordering::SeqCst);
        }
    }

    /// True if there is news; the worker that took it has to look.
    #[inline]
    pub(crate) fn take(&self) -> bool {
        self.is_there.load(Ordering::SeqCst) && self.is_there.swap(false, Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_is_taken_once() {
        let news = News::new(Arc::new(Sleep::new()));
        assert!(news.take() && !news.take());
        news.notify();
        news.mark();
        assert!(news.take() && !news.take());
        news.notify_all();
        assert!(news.take());
    }
}
