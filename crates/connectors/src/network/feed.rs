//! A bounded queue from the thread of a client to the source that is polled.

use crossbeam_channel::{Receiver, SendTimeoutError, Sender, TryRecvError, TrySendError, bounded};
use thalweg_core::connector::Waker;
use thalweg_core::{Error, Result};

use super::{Cancel, TICK};
use crate::panics::guarded;

/// The end of the client's thread.
pub struct FeedWriter<T> {
    queue: Sender<Result<T>>,
    waker: Waker,
    cancel: Cancel,
}

/// The end of the source. When it is dropped the client's thread ends soon.
pub struct Feed<T> {
    queue: Receiver<Result<T>>,
    cancel: Cancel,
}

/// What a [`Feed`] has.
pub enum Fed<T> {
    /// Something.
    Item(T),
    /// Nothing now; the waker will be called.
    Pending,
    /// Nothing ever again.
    End,
}

/// The source has gone.
pub struct Gone;

impl<T: Send + 'static> Feed<T> {
    /// Starts a thread with this body, which may be `length` items ahead. An error of the body is
    /// the last item.
    ///
    /// # Errors
    /// If there is no thread.
    pub fn start(
        name: String,
        length: usize,
        waker: Waker,
        cancel: Cancel,
        body: impl FnOnce(&FeedWriter<T>) -> Result<()> + Send + 'static,
    ) -> Result<Self> {
        let (sender, queue) = bounded(length);
        let writer = FeedWriter { queue: sender, waker, cancel: cancel.clone() };
        let run = move || {
            if let Err(error) = guarded(|| body(&writer)) {
                let _gone = writer.put::<Gone>(Err(error), &mut || Ok(()));
            }
            let FeedWriter { queue, waker, .. } = writer;
            // The source must see the end when it is woken for it.
            drop(queue);
            waker();
        };
        let spawned = std::thread::Builder::new().name(name).spawn(run);
        spawned.map_err(|e| Error::resource(format!("no thread for a connection: {e}")))?;
        Ok(Feed { queue, cancel })
    }

    /// The next item. Never waits.
    ///
    /// # Errors
    /// That of the body.
    pub fn next(&self) -> Result<Fed<T>> {
        match self.queue.try_recv() {
            Ok(item) => item.map(Fed::Item),
            Err(TryRecvError::Empty) => Ok(Fed::Pending),
            Err(TryRecvError::Disconnected) => Ok(Fed::End),
        }
    }
}

/// How many of the first rows, given the message that each is of, are those of whole messages: a
/// number at most, but those of one message at least.
pub fn whole_messages<M: PartialEq>(messages: &[M], rows_max: usize) -> usize {
    if messages.len() <= rows_max {
        return messages.len();
    }
    let cuts = |at: &usize| messages[*at] != messages[*at - 1];
    (1..=rows_max)
        .rev()
        .find(cuts)
        .or_else(|| (rows_max..messages.len()).find(cuts))
        .unwrap_or(messages.len())
}

impl<T> Drop for Feed<T> {
    fn drop(&mut self) {
        self.cancel.set();
    }
}

impl<T> FeedWriter<T> {
    /// Hands an item over. Waits for room, and meanwhile calls `idle` once per [`TICK`].
    ///
    /// # Errors
    /// If the source has gone; what `idle` says.
    pub fn send<E: From<Gone>>(
        &self,
        item: T,
        idle: &mut dyn FnMut() -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        self.put(Ok(item), idle)
    }

    /// Hands an item over. Waits for room.
    ///
    /// # Errors
    /// If the source has gone.
    pub fn give(&self, item: T) -> std::result::Result<(), Gone> {
        self.put(Ok(item), &mut || Ok(()))
    }

    /// Hands an item over and does not call the source yet: others follow at once, or
    /// [`FeedWriter::wake`]. Waits for room, and then the source is called.
    ///
    /// # Errors
    /// If the source has gone.
    pub fn add(&self, item: T) -> std::result::Result<(), Gone> {
        match self.queue.try_send(Ok(item)) {
            Ok(()) => Ok(()),
            Err(TrySendError::Disconnected(_)) => Err(Gone),
            Err(TrySendError::Full(item)) => {
                self.wake();
                self.put(item, &mut || Ok(()))
            }
        }
    }

    /// Calls the source, which may have items.
    pub fn wake(&self) {
        (self.waker)();
    }

    fn put<E: From<Gone>>(
        &self,
        mut item: Result<T>,
        idle: &mut dyn FnMut() -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        loop {
            match self.queue.send_timeout(item, TICK) {
                Ok(()) => break,
                Err(SendTimeoutError::Disconnected(_)) => return Err(Gone.into()),
                Err(SendTimeoutError::Timeout(_)) if self.cancel.is_set() => {
                    return Err(Gone.into());
                }
                Err(SendTimeoutError::Timeout(back)) => item = back,
            }
            idle()?;
        }
        (self.waker)();
        Ok(())
    }
}
