//! Messages over a connection: a byte that says what they are, a length, and a body.

use std::io::{self, Read, Write};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};

use super::failure::{Failure, Outcome};
use crate::network::tcp::{GONE_AFTER, is_tick};
use crate::network::tls::Stream;
use crate::network::{Cancel, Timer};

/// Longer messages are no messages.
const LENGTH_MAX: usize = 1 << 30;
/// Bytes that are read at a time.
const READ_BYTES: usize = 64 << 10;

/// A message of the server.
pub struct Message {
    /// What it is.
    pub tag: u8,
    /// What it says.
    pub body: Bytes,
}

/// Both directions of a connection.
pub struct Channel {
    stream: Stream,
    input: BytesMut,
    output: Vec<u8>,
    cancel: Cancel,
}

impl Channel {
    /// The messages of this connection, as long as they are wanted.
    pub fn new(stream: Stream, cancel: Cancel) -> Channel {
        Channel { stream, input: BytesMut::new(), output: Vec::new(), cancel }
    }

    /// The connection itself, where nothing was read ahead.
    ///
    /// # Errors
    /// If something was: an attacker may have put it there.
    pub fn into_stream(self) -> Outcome<Stream> {
        match self.input.is_empty() {
            true => Ok(self.stream),
            false => Err(Failure::Broken("unexpected bytes before encryption".to_owned())),
        }
    }

    /// Adds a message to those that [`Channel::flush`] sends. 0 is the tag of messages without one.
    pub fn put(&mut self, tag: u8, body: &[u8]) {
        if tag != 0 {
            self.output.push(tag);
        }
        let length = u32::try_from(body.len() + 4).expect("messages of ours are short");
        self.output.extend_from_slice(&length.to_be_bytes());
        self.output.extend_from_slice(body);
    }

    /// Sends what was put.
    ///
    /// # Errors
    /// If the connection has broken, the peer takes nothing for too long, or the work is not
    /// wanted any more.
    pub fn flush(&mut self) -> Outcome<()> {
        let output = std::mem::take(&mut self.output);
        let mut left = output.as_slice();
        let mut stuck = Timer::default();
        while !left.is_empty() {
            match self.stream.write(left) {
                Ok(0) => return Err(closed()),
                Ok(written) => {
                    left = &left[written..];
                    stuck = Timer::default();
                }
                Err(error) if is_tick(&error) => self.check_wanted(&stuck, GONE_AFTER)?,
                Err(error) => return Err(error.into()),
            }
        }
        loop {
            match self.stream.flush() {
                Ok(()) => break,
                Err(error) if is_tick(&error) => self.check_wanted(&stuck, GONE_AFTER)?,
                Err(error) => return Err(error.into()),
            }
        }
        self.output = output;
        self.output.clear();
        Ok(())
    }

    fn check_wanted(&self, since: &Timer, limit: Duration) -> Outcome<()> {
        if self.cancel.is_set() {
            return Err(Failure::Cancelled);
        }
        match since.elapsed() > limit {
            true => Err(Failure::Broken(format!("no answer for {} s", limit.as_secs()))),
            false => Ok(()),
        }
    }

    /// The next byte, without a message around it.
    ///
    /// # Errors
    /// As [`Channel::receive`].
    pub fn receive_byte(&mut self, limit: Duration) -> Outcome<u8> {
        let since = Timer::default();
        while self.input.is_empty() {
            if !self.fill()? {
                self.check_wanted(&since, limit)?;
            }
        }
        Ok(self.input.get_u8())
    }

    /// The next message.
    ///
    /// # Errors
    /// If the connection has broken, nothing comes within this time, or the work is not wanted any
    /// more.
    pub fn receive(&mut self, limit: Duration) -> Outcome<Message> {
        let since = Timer::default();
        loop {
            match self.poll()? {
                Some(message) => return Ok(message),
                None => self.check_wanted(&since, limit)?,
            }
        }
    }

    /// The next message, if it comes within a [`crate::network::TICK`].
    ///
    /// # Errors
    /// If the connection has broken, or the work is not wanted any more.
    pub fn poll(&mut self) -> Outcome<Option<Message>> {
        loop {
            if let Some(message) = self.take()? {
                return Ok(Some(message));
            }
            if self.cancel.is_set() {
                return Err(Failure::Cancelled);
            }
            if !self.fill()? {
                return Ok(None);
            }
        }
    }

    /// The next message, if it is here already.
    ///
    /// # Errors
    /// If it is none.
    fn take(&mut self) -> Outcome<Option<Message>> {
        let Some(header) = self.input.first_chunk::<5>() else { return Ok(None) };
        let (tag, length) = (header[0], &header[1..]);
        let length = u32::from_be_bytes(length.try_into().expect("four bytes")) as usize;
        if !(4..=LENGTH_MAX).contains(&length) {
            return Err(Failure::Broken("this is no server of PostgreSQL".to_owned()));
        }
        if self.input.len() <= length {
            self.input.reserve(length + 1 + READ_BYTES - self.input.len());
            return Ok(None);
        }
        let mut body = self.input.split_to(length + 1);
        body.advance(5);
        Ok(Some(Message { tag, body: body.freeze() }))
    }

    /// Reads what is there; false if nothing came within a [`crate::network::TICK`].
    fn fill(&mut self) -> Outcome<bool> {
        let used = self.input.len();
        self.input.resize(used + READ_BYTES, 0);
        let read = self.stream.read(&mut self.input[used..]);
        self.input.truncate(used + *read.as_ref().unwrap_or(&0));
        match read {
            Ok(0) => Err(closed()),
            Ok(_) => Ok(true),
            Err(error) if is_tick(&error) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

fn closed() -> Failure {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the server has closed the connection").into()
}
