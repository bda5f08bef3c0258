//! Looks rows up on a few threads, each with a connection of its own: batches of keys wait for a
//! thread that is free.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use arrow_array::RecordBatch;
use crossbeam_channel::{Receiver, Sender, unbounded};
use thalweg_core::lookup::{Answer, AsyncLookup};
use thalweg_core::{Error, Result};

use crate::network::Cancel;
use crate::panics::guarded;

/// Connections of a table where no option says otherwise, and so batches of keys at the same time.
pub const CONNECTIONS: usize = 4;

/// Answers questions, over a connection of its own.
pub trait LookupWorker: Send {
    /// The rows of keys, as [`AsyncLookup::lookup`] says.
    ///
    /// # Errors
    /// If they can't be looked up.
    fn answer(&mut self, keys: &RecordBatch) -> Result<RecordBatch>;
}

/// A table that is looked up by workers.
pub struct WorkerLookup {
    questions: Sender<Question>,
    cancel: Cancel,
}

/// Keys that are looked up, and where the answer goes.
struct Question {
    keys: RecordBatch,
    answer: Pending,
}

impl WorkerLookup {
    /// Starts a thread for each worker. They end when the table is dropped, and then `cancel` is
    /// set.
    ///
    /// # Errors
    /// If there is no thread.
    pub fn start(
        table: &str,
        cancel: Cancel,
        workers: impl IntoIterator<Item = impl LookupWorker + 'static>,
    ) -> Result<WorkerLookup> {
        let (questions, queue) = unbounded();
        for mut worker in workers {
            let queue = queue.clone();
            let body = move || answer_all(&mut worker, &queue);
            let spawned = std::thread::Builder::new().name(format!("lookup {table}")).spawn(body);
            spawned.map_err(|e| Error::resource(format!("no thread for a connection: {e}")))?;
        }
        Ok(WorkerLookup { questions, cancel })
    }
}

impl Drop for WorkerLookup {
    fn drop(&mut self) {
        self.cancel.set();
    }
}

impl AsyncLookup for WorkerLookup {
    fn lookup(&self, keys: RecordBatch) -> Answer {
        let answer = Pending::default();
        // The threads end with the table.
        let _gone = self.questions.send(Question { keys, answer: answer.clone() });
        Box::pin(answer)
    }
}

/// Answers until the table has gone.
fn answer_all(worker: &mut dyn LookupWorker, questions: &Receiver<Question>) {
    while let Ok(Question { keys, answer }) = questions.recv() {
        answer.set(guarded(|| worker.answer(&keys)));
    }
}

/// An answer that is on its way.
#[derive(Clone, Default)]
struct Pending(Arc<Mutex<Slot>>);

#[derive(Default)]
struct Slot {
    answer: Option<Result<RecordBatch>>,
    waker: Option<Waker>,
}

impl Pending {
    fn slot(&self) -> MutexGuard<'_, Slot> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, answer: Result<RecordBatch>) {
        let mut slot = self.slot();
        slot.answer = Some(answer);
        if let Some(waker) = slot.waker.take() {
            waker.wake();
        }
    }
}

impl Future for Pending {
    type Output = Result<RecordBatch>;
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut slot = self.slot();
        match slot.answer.take() {
            Some(answer) => Poll::Ready(answer),
            None => {
                slot.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}
