//! Connectors whose peer does not answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use arrow_array::RecordBatch;
use thalweg_core::Result;
use thalweg_core::connector::{Sink, Source, SourcePoll};
use thalweg_core::shim::{Clock, SystemClock};

/// How long the end of a connector may take.
const END_TIME: Duration = Duration::from_secs(2);
/// How long a poll may take, on a busy machine.
const POLL_TIME: Duration = Duration::from_millis(250);
/// A sink that has taken nothing for so long is blocked.
const BLOCKED: Duration = Duration::from_millis(300);
/// A sink that is not blocked after so long takes rows without end.
const PATIENCE: Duration = Duration::from_secs(60);

/// A watch.
struct Watch(SystemClock);

impl Watch {
    fn new() -> Watch {
        Watch(SystemClock::new())
    }
    fn at(&self) -> Duration {
        Duration::from_nanos(self.0.now_ns())
    }
}

/// Checks a source that is started over a peer which does not answer, or has stopped doing so:
/// polls return at once, and it ends within two seconds.
///
/// # Errors
/// Those of the start.
///
/// # Panics
/// If a call takes too long.
pub fn check_source_cancel(mut source: Box<dyn Source>) -> Result<()> {
    source.start(Arc::new(|| {}))?;
    source.open()?;
    let watch = Watch::new();
    let begun = watch.at();
    while watch.at() - begun < BLOCKED {
        let asked = watch.at();
        let is_over = matches!(source.poll(1000), Ok(SourcePoll::End) | Err(_));
        let took = watch.at() - asked;
        assert!(took < POLL_TIME, "a poll took {took:?}");
        if is_over {
            break;
        }
        thread::sleep(Duration::from_millis(1));
    }
    let begun = watch.at();
    source.stop();
    source.abort();
    drop(source);
    let took = watch.at() - begun;
    assert!(took < END_TIME, "it ended after {took:?}");
    Ok(())
}

/// Checks a source whose start waits for a peer which says nothing: it ends within two seconds once
/// it is cancelled.
///
/// # Panics
/// If it has no canceller, does not wait, or takes too long to end.
pub fn check_start_cancel(mut source: Box<dyn Source>) {
    let cancel = source.canceller().expect("a source that waits for others can be cancelled");
    let thread = thread::spawn(move || source.start(Arc::new(|| {})).is_ok());
    thread::sleep(BLOCKED);
    assert!(!thread.is_finished(), "its start does not wait");
    let watch = Watch::new();
    cancel();
    assert!(!thread.join().expect("no panic"), "it has started");
    let took = watch.at();
    assert!(took < END_TIME, "it ended after {took:?}");
}

/// Checks a sink over a peer that takes no more rows at some time: rows are written until it
/// blocks; then it is cancelled.
///
/// # Errors
/// Those of opening it.
///
/// # Panics
/// If it has no canceller, never blocks, or does not end within two seconds.
pub fn check_sink_cancel(mut sink: Box<dyn Sink>, rows: &RecordBatch) -> Result<()> {
    sink.claim()?;
    sink.open()?;
    let cancel = sink.canceller().expect("a sink that waits for others can be cancelled");
    let written = Arc::new(AtomicU64::new(0));
    let (counter, rows) = (Arc::clone(&written), rows.clone());
    let thread = thread::spawn(move || {
        while sink.write(&rows, None).and_then(|()| sink.flush()).is_ok() {
            counter.fetch_add(1, Ordering::SeqCst);
        }
        sink.abort();
    });
    let watch = Watch::new();
    let begun = watch.at();
    let (mut since, mut before) = (begun, u64::MAX);
    while watch.at() - since < BLOCKED && !thread.is_finished() {
        assert!(watch.at() - begun < PATIENCE, "the sink takes rows without end");
        let now = written.load(Ordering::SeqCst);
        if now != before {
            (since, before) = (watch.at(), now);
        }
        thread::sleep(Duration::from_millis(5));
    }
    let cancelled = watch.at();
    cancel();
    thread.join().expect("no panic");
    let took = watch.at() - cancelled;
    assert!(took < END_TIME, "it ended after {took:?}");
    Ok(())
}
