//! The thread of a client: it connects, receives, decodes and acknowledges, and begins again with
//! growing pauses where the connection breaks.

use crossbeam_channel::Receiver;
use std::time::Duration;
use thalweg_core::connector::{SplitId, Trouble};
use thalweg_core::{Error, Result};

use super::Client;
use super::inbox::Inbox;
use super::progress::Mark;
use super::rows::{RowReader, Rows};
use crate::network::feed::FeedWriter;
use crate::network::{Attempt, Backoff, Cancel, Failure};

/// What goes to the source.
pub enum Item {
    /// Rows.
    Rows(Rows),
    /// A split has no more.
    Ended(SplitId),
    /// Messages never come again.
    Settled(Vec<Mark>),
}

/// Receives messages on a thread of its own.
pub struct Link {
    /// The protocol.
    pub client: Box<dyn Client>,
    /// What has come.
    pub inbox: Inbox,
    /// From messages to rows.
    pub rows: RowReader,
    /// What is to be acknowledged.
    pub acknowledgements: Receiver<Vec<Mark>>,
    /// What goes wrong and is tried again.
    pub trouble: Trouble,
    /// Ends the thread.
    pub cancel: Cancel,
    /// The client is connected.
    pub is_connected: bool,
    /// Pauses between attempts.
    pub backoff: Backoff,
}

impl Link {
    /// Receives until all splits have ended, or nobody wants rows any more.
    ///
    /// # Errors
    /// If it can't continue.
    pub fn run(mut self, writer: &FeedWriter<Item>) -> Result<()> {
        let result = loop {
            let failure = match self.step(writer) {
                Ok(true) => continue,
                Ok(false) => break Ok(()),
                Err(failure) => failure,
            };
            match failure {
                Failure::Cancelled => break Ok(()),
                Failure::Final(error) => break Err(error),
                Failure::Passing(why) => {
                    self.is_connected = false;
                    self.trouble.set(why);
                }
            }
            // Sources try for ever: metrics say what is wrong, and rows wait at the peer.
            if !self.backoff.pause(Duration::MAX).is_some_and(|pause| self.cancel.sleep(pause)) {
                break Ok(());
            }
        };
        // What was taken last may have been acknowledged just now.
        if self.is_connected {
            let _ = self.acknowledge();
            self.client.close();
        }
        result
    }

    /// Connects where that is needed, receives once, and hands over what has come. False if there
    /// will be no more.
    fn step(&mut self, writer: &FeedWriter<Item>) -> Attempt<bool> {
        if self.cancel.is_set() {
            return Err(Failure::Cancelled);
        }
        if !self.is_connected {
            self.client.connect(&self.inbox)?;
            self.is_connected = true;
        }
        self.acknowledge()?;
        let received = self.client.receive(&mut self.inbox);
        if received.is_ok() {
            self.backoff.reset();
            self.trouble.clear();
        }
        // Also what came before the connection broke: the next one may break as soon.
        self.hand_over(writer)?;
        received?;
        self.end_splits(writer)?;
        Ok(self.inbox.splits().iter().any(|split| !split.has_ended))
    }

    fn acknowledge(&mut self) -> Attempt<()> {
        while let Ok(marks) = self.acknowledgements.try_recv() {
            self.client.acknowledge(&marks)?;
        }
        Ok(())
    }

    fn hand_over(&mut self, writer: &FeedWriter<Item>) -> Attempt<()> {
        loop {
            // Before the rows: one of them may have the mark of another message.
            let settled = self.client.settled();
            if !settled.is_empty() {
                writer.send(Item::Settled(settled), &mut || self.idle())?;
                continue;
            }
            if let Some(rows) = self.client.decoded() {
                writer.send(Item::Rows(rows), &mut || self.idle())?;
                continue;
            }
            let Some(block) = self.inbox.take() else { return Ok(()) };
            let name = self.inbox.splits()[block.split.0 as usize].name.clone();
            let rows = self.rows.decode(&name, block)?;
            writer.send(Item::Rows(rows), &mut || self.idle())?;
        }
    }

    /// The job takes no rows. What fails for the moment is tried again when it does.
    fn idle(&mut self) -> Attempt<()> {
        if !self.is_connected {
            return Ok(());
        }
        let alive = self.acknowledge().and_then(|()| self.client.idle(&mut self.inbox));
        match alive {
            Err(Failure::Passing(why)) => {
                self.is_connected = false;
                self.trouble.set(why);
                Ok(())
            }
            other => other,
        }
    }

    fn end_splits(&mut self, writer: &FeedWriter<Item>) -> Attempt<()> {
        for at in 0..self.inbox.splits().len() {
            let split = &mut self.inbox.splits_mut()[at];
            if !split.has_ended && split.is_done() {
                split.has_ended = true;
                writer.give(Item::Ended(SplitId(at as u32)))?;
            }
        }
        Ok(())
    }
}

/// Calls a client until it answers, or time is over: for starts, where a user waits for the error.
///
/// # Errors
/// If it does not answer in time.
pub fn insist<T>(
    table: &str,
    peer: &str,
    wait: Duration,
    cancel: &Cancel,
    call: &mut dyn FnMut() -> Attempt<T>,
) -> Result<T> {
    let mut backoff = Backoff::default();
    loop {
        let why = match call() {
            Ok(value) => return Ok(value),
            Err(Failure::Final(error)) => return Err(about(table, error)),
            Err(Failure::Cancelled) => return Err(Error::cancelled()),
            Err(Failure::Passing(why)) => why,
        };
        match backoff.pause(wait) {
            Some(pause) if cancel.sleep(pause) => {}
            Some(_) => return Err(Error::cancelled()),
            None => {
                return Err(Error::io(format!("table {table}: {peer} can't be reached: {why}"))
                    .hint("check the address and that the server runs"));
            }
        }
    }
}

/// An error, with the table's name in front.
pub fn about(table: &str, error: Error) -> Error {
    if error.message().starts_with("table ") {
        return error;
    }
    error.about_table(table)
}
