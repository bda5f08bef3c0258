//! Bytes to and from a peer, over TCP or TLS, for protocols that cut them into packets themselves.
//!
//! No call waits longer than a [`super::TICK`] without a look at [`Cancel`].

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::Duration;

use thalweg_core::Error;
use thalweg_core::connector::AllowedTargets;

use super::tcp::{GONE_AFTER, connect, is_tick};
use super::tls::{self, Checks, Stream};
use super::{Attempt, Cancel, Failure, Timer};

/// Bytes that are read at a time.
const READ_BYTES: usize = 64 << 10;
/// How long a connection may take to open, and again to begin its protocol.
pub const CONNECT_WAIT: Duration = Duration::from_secs(10);

/// Where a peer is, and how it is talked to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Its host.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Bytes are encrypted.
    pub is_encrypted: bool,
    /// A file of certificates in PEM form: who may have signed that of the peer.
    pub authorities: Option<PathBuf>,
    /// Which addresses its name may lead to.
    pub targets: AllowedTargets,
}

impl Address {
    /// Connects, over TLS where the address says so. The handshake of TLS happens with the first
    /// bytes.
    ///
    /// # Errors
    /// If the peer can't be reached, or the file of authorities can't be read.
    pub fn connect(&self, cancel: &Cancel) -> Attempt<Stream> {
        let tcp = connect((&self.host, self.port), &self.targets, CONNECT_WAIT, cancel);
        let tcp = tcp.map_err(|error| failure(&error, cancel))?;
        if self.is_encrypted { self.encrypted(tcp, cancel) } else { Ok(Stream::Plain(tcp)) }
    }

    fn encrypted(&self, tcp: TcpStream, cancel: &Cancel) -> Attempt<Stream> {
        let config = tls::settings(Checks::AuthorityAndHost, self.authorities.as_deref())?;
        Stream::encrypted(config, &self.host, tcp).map_err(|error| failure(&error, cancel))
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

/// Both directions of a connection.
pub struct Wire {
    stream: Stream,
    input: Vec<u8>,
    /// How much of `input` was consumed.
    consumed: usize,
    output: Vec<u8>,
    cancel: Cancel,
    /// Longer packets are refused.
    packet_bytes_max: usize,
}

impl Wire {
    /// Connects, over TLS where the address says so.
    ///
    /// # Errors
    /// If the peer can't be reached, or the file of authorities can't be read.
    pub fn open(address: &Address, packet_bytes_max: usize, cancel: &Cancel) -> Attempt<Wire> {
        Ok(Wire {
            stream: address.connect(cancel)?,
            input: Vec::new(),
            consumed: 0,
            output: Vec::new(),
            cancel: cancel.clone(),
            packet_bytes_max,
        })
    }

    /// Encrypts what follows. The handshake happens with the next bytes.
    ///
    /// # Errors
    /// If the file of authorities can't be read.
    pub fn encrypt(&mut self, address: &Address) -> Attempt<()> {
        if self.consumed < self.input.len() {
            return Err(Failure::Passing("unexpected bytes before encryption".to_owned()));
        }
        let Stream::Plain(tcp) = &self.stream else { return Ok(()) };
        let tcp = tcp.try_clone().map_err(|error| failure(&error, &self.cancel))?;
        self.stream = address.encrypted(tcp, &self.cancel)?;
        Ok(())
    }

    /// What was read and is not consumed.
    pub fn input(&self) -> &[u8] {
        &self.input[self.consumed..]
    }

    /// A number of bytes of the input are done with.
    pub fn consume(&mut self, bytes: usize) {
        self.consumed += bytes;
        if self.consumed == self.input.len() {
            self.input.clear();
            self.consumed = 0;
        }
    }

    /// Reads what is there; false if nothing came within a [`super::TICK`].
    ///
    /// # Errors
    /// If the connection has broken, a packet is too long, or the work is not wanted any more.
    pub fn fill(&mut self) -> Attempt<bool> {
        if self.cancel.is_set() {
            return Err(Failure::Cancelled);
        }
        if self.consumed > 0 {
            self.input.drain(..self.consumed);
            self.consumed = 0;
        }
        let used = self.input.len();
        if used > self.packet_bytes_max {
            let max_mib = self.packet_bytes_max >> 20;
            return Err(Error::data(format!("a message is longer than {max_mib} MiB"))
                .hint("raise the job's memory limit, or send shorter messages")
                .into());
        }
        self.input.resize(used + READ_BYTES.max(used / 2), 0);
        let read = self.stream.read(&mut self.input[used..]);
        self.input.truncate(used + *read.as_ref().unwrap_or(&0));
        match read {
            Ok(0) => Err(Failure::Passing("the server has closed the connection".to_owned())),
            Ok(_) => Ok(true),
            Err(error) if is_tick(&error) => Ok(false),
            Err(error) => Err(failure(&error, &self.cancel)),
        }
    }

    /// Adds bytes to those that [`Wire::flush`] sends.
    pub fn put(&mut self, bytes: &[u8]) {
        self.output.extend_from_slice(bytes);
    }

    /// The bytes that wait for [`Wire::flush`], to add some.
    pub fn output(&mut self) -> &mut Vec<u8> {
        &mut self.output
    }

    /// Sends what was put.
    ///
    /// # Errors
    /// If the connection has broken, the peer takes nothing for too long, or the work is not
    /// wanted any more.
    pub fn flush(&mut self) -> Attempt<()> {
        let (mut sent, mut stuck) = (0, Timer::default());
        while sent < self.output.len() {
            match self.stream.write(&self.output[sent..]) {
                Ok(0) => {
                    let closed = "the server has closed the connection";
                    return Err(Failure::Passing(closed.to_owned()));
                }
                Ok(written) => {
                    sent += written;
                    stuck = Timer::default();
                }
                Err(error) => self.wait_after(&error, &stuck)?,
            }
        }
        while let Err(error) = self.stream.flush() {
            self.wait_after(&error, &stuck)?;
        }
        self.output.clear();
        Ok(())
    }

    fn wait_after(&self, error: &io::Error, since: &Timer) -> Attempt<()> {
        if !is_tick(error) {
            return Err(failure(error, &self.cancel));
        }
        self.check_wait(since, GONE_AFTER)
    }

    /// Checks that one may wait on.
    ///
    /// # Errors
    /// If the time is over, or the work is not wanted any more.
    pub fn check_wait(&self, since: &Timer, limit: Duration) -> Attempt<()> {
        if self.cancel.is_set() {
            return Err(Failure::Cancelled);
        }
        match since.elapsed() > limit {
            true => Err(Failure::no_answer(limit)),
            false => Ok(()),
        }
    }
}

fn failure(error: &io::Error, cancel: &Cancel) -> Failure {
    match cancel.is_set() {
        true => Failure::Cancelled,
        false => Failure::Passing(error.to_string()),
    }
}
