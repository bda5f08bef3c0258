//! Connectors whose peer does not answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use arrow_array::RecordBatch;
use thalweg_core::Result;
use thalweg_core::connector::{Sink, Source, SourcePoll};

/// How long the end of a connector may take.
const END_TIME: Duration = Duration::from_secs(2);
/// How long a poll may take, on a busy machine.
const POLL_TIME: Duration = Duration::from_millis(250);
/// A sink that has taken nothing for so long is blocked.
const BLOCKED: Duration = Duration::from_millis(300);
/// A sink that is not blocked after so long takes rows without end.
const PATIENCE: Duration = Duration::from_secs(60);

/// Checks a source that is started over a peer which does not answer, or has stopped doing so: polls
/// return at once, and it ends within two seconds.
///
/// # Errors
/// Those of the start.
///
/// # Panics
/// If a call takes too long.
pub fn check_source_cancel(mut source: Box<dyn Source>) -> Result<()> {
    source.start(Arc::new(|| {}))?;
    source.open()?;
    let begun = Instant::now();
    while begun.elapsed() < BLOCKED {
        let asked = Instant::now();
        let is_over = matches!(source.poll(1000), Ok(SourcePoll::End) | Err(_));
        assert!(asked.elapsed() < POLL_TIME, "a poll took {:?}", asked.elapsed());
        if is_over {
            break;
        }
        thread::sleep(Duration::from_millis(1));
    }
    let begun = Instant::now();
    source.stop();
    source.abort();
    drop(source);
    assert!(begun.elapsed() < END_TIME, "it ended after {:?}", begun.elapsed());
    Ok(())
}

/// Checks a sink over a peer that takes no more rows at some time: rows are written until it blocks;
/// then it is cancelled.
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
    let begun = Instant::now();
    let mut before = (Instant::now(), u64::MAX);
    while before.0.elapsed() < BLOCKED && !thread.is_finished() {
        assert!(begun.elapsed() < PATIENCE, "the sink takes rows without end");
        let now = written.load(Ordering::SeqCst);
        if now != before.1 {
            before = (Instant::now(), now);
        }
        thread::sleep(Duration::from_millis(5));
    }
    let cancelled = Instant::now();
    cancel();
    thread.join().expect("no panic");
    assert!(cancelled.elapsed() < END_TIME, "it ended after {:?}", cancelled.elapsed());
    Ok(())
}
