//! The sink: a message stays in memory until the peer has it, and is sent again over a new
//! connection where that broke. So none is lost, and one may come twice.
//!
//! A peer that is away holds the job back: rows wait, and nothing is given up.

use std::collections::BTreeMap;

use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch};
use std::time::Duration;
use thalweg_core::connector::{Sink, TableRequest, Trouble, Waker};
use thalweg_core::{Error, Result, RowKind};

use super::link::{about, insist};
use super::options::RecordOptions;
use crate::format::TextEncoder;
use crate::network::{Attempt, Backoff, Cancel, Failure};

/// Messages that wait for the peer's word at most.
const WINDOW_MESSAGES: usize = 8_192;
/// Bytes of them, as soon as which no more are sent.
const WINDOW_BYTES: usize = 8 << 20;
/// How long a start waits for the peer.
const START_WAIT: Duration = Duration::from_secs(30);

/// A message to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// What it says.
    pub value: Vec<u8>,
    /// Its metadata, by the columns of the table.
    pub metadata: Vec<Option<String>>,
}

/// The protocol of a peer that takes messages.
pub trait Publisher: Send {
    /// Connects, again where it was connected.
    ///
    /// # Errors
    /// If the peer can't be reached, or refuses.
    fn connect(&mut self) -> Attempt<()>;

    /// Sends a message, of this number; perhaps later, with others.
    ///
    /// # Errors
    /// If the connection has broken, or the message can't be sent at all.
    fn send(&mut self, number: u64, message: &Outgoing) -> Attempt<()>;

    /// Sends what waits, and adds the numbers of the messages that the peer has since the last
    /// call. Waits for them, but no longer than about a [`crate::network::TICK`], where `waits`.
    ///
    /// # Errors
    /// If the connection has broken, or the peer refuses a message.
    fn acknowledged(&mut self, waits: bool, numbers: &mut Vec<u64>) -> Attempt<()>;

    /// Ends the connection in order, as far as that takes no time.
    fn close(&mut self) {}
}

/// A sink of messages.
pub struct MessageSink {
    request: TableRequest,
    peer: String,
    encoder: TextEncoder,
    has_changes: bool,
    publisher: Box<dyn Publisher>,
    /// Messages that the peer is not known to have, by number.
    window: BTreeMap<u64, Outgoing>,
    window_bytes: usize,
    next: u64,
    is_connected: bool,
    backoff: Backoff,
    cancel: Cancel,
    trouble: Trouble,
}

impl MessageSink {
    /// A sink of this table. The publisher has the same `cancel`.
    ///
    /// # Errors
    /// If the format is not one of messages.
    pub fn new(
        request: TableRequest,
        records: &RecordOptions,
        peer: String,
        publisher: Box<dyn Publisher>,
        cancel: Cancel,
    ) -> Result<MessageSink> {
        let encoder = TextEncoder::new(&records.format, request.schema.clone());
        Ok(MessageSink {
            encoder: encoder.ok_or_else(|| Error::internal("messages in a format of files"))?,
            has_changes: records.format.has_changes(),
            request,
            peer,
            publisher,
            window: BTreeMap::new(),
            window_bytes: 0,
            next: 0,
            is_connected: false,
            backoff: Backoff::default(),
            cancel,
            trouble: Trouble::default(),
        })
    }

    /// Calls the publisher, over a new connection where the old one has broken, on which all that
    /// the peer is not known to have is sent again.
    fn call(&mut self, call: &mut dyn FnMut(&mut Self) -> Attempt<()>) -> Result<()> {
        loop {
            let failure = match self.connected().and_then(|()| call(self)) {
                Ok(()) => {
                    self.backoff.reset();
                    self.trouble.clear();
                    return Ok(());
                }
                Err(failure) => failure,
            };
            match failure {
                Failure::Passing(why) => {
                    self.is_connected = false;
                    self.trouble.set(format!("{}: {why}", self.peer));
                }
                Failure::Final(error) => return Err(about(&self.request.table, error)),
                Failure::Cancelled => return Err(self.cancelled()),
            }
            if !self.backoff.pause(Duration::MAX).is_some_and(|pause| self.cancel.sleep(pause)) {
                return Err(self.cancelled());
            }
        }
    }

    fn cancelled(&self) -> Error {
        let (table, count) = (&self.request.table, self.window.len());
        Error::io(format!(
            "table {table}: cancelled, with {count} messages that {} may lack",
            self.peer
        ))
    }

    fn connected(&mut self) -> Attempt<()> {
        if self.is_connected {
            return Ok(());
        }
        self.publisher.connect()?;
        self.is_connected = true;
        self.window.iter().try_for_each(|(&number, message)| self.publisher.send(number, message))
    }

    fn send(&mut self, message: Outgoing) -> Result<()> {
        let number = self.next;
        self.next += 1;
        self.window_bytes += message.value.len();
        self.window.insert(number, message);
        if self.is_connected {
            let sent = self.publisher.send(number, &self.window[&number]);
            match sent {
                Ok(()) => {}
                Err(Failure::Final(error)) => return Err(about(&self.request.table, error)),
                // A new connection sends it again.
                Err(Failure::Passing(_) | Failure::Cancelled) => self.is_connected = false,
            }
        }
        let is_full =
            |sink: &Self| sink.window.len() >= WINDOW_MESSAGES || sink.window_bytes >= WINDOW_BYTES;
        while is_full(self) {
            self.settle(true)?;
        }
        Ok(())
    }

    /// Sends what waits, and forgets what the peer has.
    fn settle(&mut self, waits: bool) -> Result<()> {
        self.call(&mut |sink| {
            let mut numbers = Vec::new();
            let settled = sink.publisher.acknowledged(waits, &mut numbers);
            for number in numbers {
                if let Some(message) = sink.window.remove(&number) {
                    sink.window_bytes -= message.value.len();
                }
            }
            settled
        })
    }

    fn settle_all(&mut self) -> Result<()> {
        while !self.window.is_empty() {
            self.settle(true)?;
        }
        Ok(())
    }
}

impl Sink for MessageSink {
    fn name(&self) -> String {
        self.request.table.clone()
    }

    fn connect(&mut self) -> Result<()> {
        self.open()
    }

    fn open(&mut self) -> Result<()> {
        let (publisher, table) = (&mut self.publisher, &self.request.table);
        insist(table, &self.peer, START_WAIT, &self.cancel, &mut || publisher.connect())?;
        self.is_connected = true;
        Ok(())
    }

    fn write(&mut self, batch: &RecordBatch, kinds: Option<&[RowKind]>) -> Result<()> {
        let physical = self.request.schema.len();
        let columns: Vec<usize> = (0..physical).collect();
        let records = batch.project(&columns)?;
        let values = self.encoder.messages(&records, kinds.filter(|_| self.has_changes))?;
        for row in 0..batch.num_rows() {
            if !self.has_changes && kinds.is_some_and(|kinds| kinds[row] != RowKind::Insert) {
                return Err(Error::internal("a format of rows gets changes"));
            }
            let metadata = (physical..batch.num_columns()).map(|at| {
                let column = batch.column(at).as_string_view_opt()?;
                column.is_valid(row).then(|| column.value(row).to_owned())
            });
            let value = if values.is_valid(row) { values.value(row).to_vec() } else { Vec::new() };
            self.send(Outgoing { value, metadata: metadata.collect() })?;
        }
        Ok(())
    }

    fn canceller(&self) -> Option<Waker> {
        Some(self.cancel.waker())
    }

    fn trouble(&self) -> Option<Trouble> {
        Some(self.trouble.clone())
    }

    fn flush(&mut self) -> Result<()> {
        self.settle(false)
    }

    fn prepare(&mut self) -> Result<Option<String>> {
        self.settle_all()?;
        Ok(None)
    }

    fn finish(&mut self) -> Result<()> {
        self.settle_all()?;
        self.publisher.close();
        Ok(())
    }

    fn abort(&mut self) {
        self.cancel.set();
        self.window.clear();
        self.window_bytes = 0;
    }
}
