//! Decoding on several threads, delivered in order.
//!
//! A splitter thread cuts the input into tasks, decoder threads run them, and each task has a
//! bounded queue of its own. The queues are taken strictly in the order of the tasks, so the
//! sequence of batches depends on the input alone, never on which thread was faster.
//!
//! ```text
//!             tasks (bounded)
//! splitter ─────────────────▶ decoder 1..n ──▶ queue of task k, k+1, … (each bounded)
//!     └──── queues in order (bounded) ─────────▶ consumer
//! ```
//!
//! Nothing can wait in a circle: tasks are claimed in order, so the task whose queue the consumer
//! stands at is done, running, or the next to be claimed, and only later ones wait for room.
//! After [`Handover::stop`] (or a drop) every send fails and the threads end; one that is blocked
//! in a read of standard input ends with the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, TryRecvError, bounded};
use serde_json::Value;
use thalweg_core::connector::{SourceBatch, Waker};
use thalweg_core::{Error, Result};

use crate::filesystem::FileMark;
use crate::panics::guarded;

/// A record that could not be read and was left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRow {
    /// The file as a user would name it.
    pub file: Arc<str>,
    /// Its line (or row), from 1.
    pub line: u64,
    /// What is wrong with it.
    pub reason: String,
    /// The record as it was found.
    pub raw: Vec<u8>,
    /// What is known of it besides, for whoever reads it again; null where that is nothing.
    pub message: Value,
}

/// What a decoder hands over at a time.
#[derive(Debug)]
pub struct Decoded {
    /// The rows that could be read.
    pub batch: SourceBatch,
    /// Those that could not.
    pub bad: Vec<BadRow>,
    /// Where reading resumes behind them, for inputs that can be read again.
    pub end: Option<FileMark>,
}

/// The consumer has gone: stop working.
pub struct Stopped;

/// Where a task puts its batches.
pub struct Emit<'a> {
    queue: &'a Sender<Result<Decoded>>,
    waker: &'a Waker,
}

impl Emit<'_> {
    /// Hands a batch over. Waits for room.
    pub fn emit(&self, decoded: Decoded) -> Result<(), Stopped> {
        self.queue.send(Ok(decoded)).map_err(|_| Stopped)?;
        (self.waker)();
        Ok(())
    }
}

/// A piece of the input that can be decoded on its own.
pub trait Task: Send {
    /// Decodes, handing batches over on the way. Returns early when the consumer has gone.
    fn run(self: Box<Self>, emit: &Emit<'_>) -> Result<()>;
}

/// What a splitter has found.
pub enum Cut {
    /// A piece of the input.
    Task(Box<dyn Task>),
    /// Nothing now: look again after this time.
    Wait(Duration),
    /// The input has ended.
    End,
}

/// Cuts the input into tasks, in order.
pub trait Splitter: Send {
    /// The next task.
    fn next_task(&mut self) -> Result<Cut>;
}

/// The consumer's answer.
#[expect(clippy::large_enum_variant, reason = "one at a time, and most are batches")]
pub enum Next {
    /// A batch.
    Batch(Decoded),
    /// Nothing now; the waker will be called.
    Pending,
    /// Nothing ever again.
    End,
}

/// How often a splitter that waits looks whether it is still wanted.
const WAIT_STEP: Duration = Duration::from_millis(20);

type Queue = Receiver<Result<Decoded>>;
type Work = (Box<dyn Task>, Sender<Result<Decoded>>);

/// The consumer's end.
pub struct Handover {
    queues: Option<Receiver<Queue>>,
    current: Option<Queue>,
    stopped: Arc<AtomicBool>,
}

impl Handover {
    /// Starts the threads. Each task may be `queue_length` batches ahead of the consumer.
    pub fn start(
        name: &str,
        splitter: Box<dyn Splitter>,
        parallelism: usize,
        queue_length: usize,
        waker: &Waker,
    ) -> Result<Self> {
        let parallelism = parallelism.max(1);
        let stopped = Arc::new(AtomicBool::new(false));
        let (queues_in, queues) = bounded(2 * parallelism);
        let (work_in, work) = bounded::<Work>(parallelism);
        for _ in 0..parallelism {
            let (work, waker) = (work.clone(), waker.clone());
            spawn(format!("decode {name}"), move || decode(&work, &waker))?;
        }
        let split =
            Split { queues: queues_in, work: work_in, stopped: stopped.clone(), queue_length };
        let waker = waker.clone();
        spawn(format!("read {name}"), move || {
            split.run(splitter, &waker);
            // The consumer must see the end when it is woken for it.
            drop(split);
            waker();
        })?;
        Ok(Handover { queues: Some(queues), current: None, stopped })
    }

    /// The next batch in order. Never waits.
    pub fn next(&mut self) -> Result<Next> {
        let Some(queues) = &self.queues else { return Ok(Next::End) };
        loop {
            if self.current.is_none() {
                match queues.try_recv() {
                    Ok(queue) => self.current = Some(queue),
                    Err(TryRecvError::Empty) => return Ok(Next::Pending),
                    Err(TryRecvError::Disconnected) => return Ok(Next::End),
                }
            }
            let queue = self.current.as_ref().expect("set above");
            match queue.try_recv() {
                Ok(decoded) => return decoded.map(Next::Batch),
                Err(TryRecvError::Empty) => return Ok(Next::Pending),
                Err(TryRecvError::Disconnected) => self.current = None,
            }
        }
    }

    /// Lets the threads end.
    pub fn stop(&mut self) {
        // Relaxed: a hint that saves reading on; the closed queues are what ends the threads.
        self.stopped.store(true, Ordering::Relaxed);
        self.current = None;
        self.queues = None;
    }
}

impl Drop for Handover {
    fn drop(&mut self) {
        self.stop();
    }
}

fn spawn(name: String, body: impl FnOnce() + Send + 'static) -> Result<()> {
    let spawned = thread::Builder::new().name(name).spawn(body);
    spawned.map(|_| ()).map_err(|e| Error::resource(format!("no thread for reading: {e}")))
}

struct Split {
    queues: Sender<Queue>,
    work: Sender<Work>,
    stopped: Arc<AtomicBool>,
    queue_length: usize,
}

impl Split {
    fn run(&self, mut splitter: Box<dyn Splitter>, waker: &Waker) {
        while !self.stopped.load(Ordering::Relaxed) {
            let next = guarded(|| splitter.next_task());
            let task = match next {
                Ok(Cut::Task(task)) => Ok(task),
                Ok(Cut::Wait(pause)) => {
                    self.wait(pause);
                    continue;
                }
                Ok(Cut::End) => return,
                Err(error) => Err(error),
            };
            let (queue_in, queue) = bounded(self.queue_length);
            if self.queues.send(queue).is_err() {
                return;
            }
            match task {
                Ok(task) => {
                    if self.work.send((task, queue_in)).is_err() {
                        return;
                    }
                }
                Err(error) => {
                    // The queue has room for one; if the consumer has gone, it is not wanted.
                    let _ = queue_in.send(Err(error));
                    return;
                }
            }
            waker();
        }
    }

    /// Waits, but no longer than more is wanted.
    fn wait(&self, mut pause: Duration) {
        while !pause.is_zero() && !self.stopped.load(Ordering::Relaxed) {
            let step = pause.min(WAIT_STEP);
            thread::sleep(step);
            pause -= step;
        }
    }
}

fn decode(work: &Receiver<Work>, waker: &Waker) {
    while let Ok((task, queue)) = work.recv() {
        let emit = Emit { queue: &queue, waker };
        if let Err(error) = guarded(|| task.run(&emit)) {
            // A closed queue means that the consumer has gone.
            let _ = queue.send(Err(error));
        }
        // The consumer must see the queue closed when it is woken.
        drop(queue);
        waker();
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::{Int64Array, RecordBatch};
    use arrow_schema::{DataType, Field, Schema};

    use super::*;

    struct Numbers {
        next: i64,
        end: i64,
        fail_at: i64,
    }
    struct Number(i64, i64);

    impl Splitter for Numbers {
        fn next_task(&mut self) -> Result<Cut> {
            if self.next == self.end {
                return Ok(Cut::End);
            }
            self.next += 1;
            Ok(Cut::Task(Box::new(Number(self.next - 1, self.fail_at))))
        }
    }

    impl Task for Number {
        fn run(self: Box<Self>, emit: &Emit<'_>) -> Result<()> {
            assert!(self.0 != self.1, "panics on purpose");
            // Later tasks are faster, so that order is not the order of completion.
            thread::sleep(Duration::from_micros(200 * (7 - self.0 as u64 % 8)));
            for part in 0..3 {
                let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false)]));
                let column = Arc::new(Int64Array::from(vec![self.0 * 10 + part]));
                let batch = RecordBatch::try_new(schema, vec![column]).expect("one column");
                let batch = SourceBatch::new(batch);
                if emit.emit(Decoded { batch, bad: Vec::new(), end: None }).is_err() {
                    return Ok(());
                }
            }
            Ok(())
        }
    }

    fn drain(handover: &mut Handover, woken: &Receiver<()>) -> (Vec<i64>, Option<Error>) {
        let mut seen = Vec::new();
        loop {
            match handover.next() {
                Ok(Next::Batch(decoded)) => {
                    let column = decoded.batch.batch.column(0);
                    let numbers = column.as_any().downcast_ref::<Int64Array>().expect("numbers");
                    seen.push(numbers.value(0));
                }
                Ok(Next::Pending) => {
                    woken.recv_timeout(Duration::from_secs(10)).expect("a wake-up");
                }
                Ok(Next::End) => return (seen, None),
                Err(error) => return (seen, Some(error)),
            }
        }
    }

    fn start(end: i64, fail_at: i64, parallelism: usize) -> (Handover, Receiver<()>) {
        let (wake, woken) = bounded(1);
        let waker: Waker = Arc::new(move || {
            let _ = wake.try_send(());
        });
        let splitter = Box::new(Numbers { next: 0, end, fail_at });
        (Handover::start("t", splitter, parallelism, 2, &waker).expect("threads"), woken)
    }

    #[test]
    fn order_is_that_of_the_tasks() {
        let expected: Vec<i64> = (0..40).flat_map(|n| (0..3).map(move |p| n * 10 + p)).collect();
        for parallelism in [1, 4] {
            let (mut handover, woken) = start(40, -1, parallelism);
            assert_eq!(drain(&mut handover, &woken).0, expected);
        }
    }

    #[test]
    fn a_panic_becomes_an_error_in_its_place() {
        let (mut handover, woken) = start(40, 5, 4);
        let (seen, error) = drain(&mut handover, &woken);
        assert_eq!(seen.len(), 15);
        assert!(error.expect("an error").message().contains("panics on purpose"));
    }
}
