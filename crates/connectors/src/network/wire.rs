//! Bytes to and from a peer, over TCP or TLS, for protocols that cut them into packets themselves.
//!
//! No call waits longer than a [`super::TICK`] without a look at [`Cancel`].

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::BytesMut;
use thalweg_core::Error;
use thalweg_core::connector::AllowedTargets;

use super::tcp::{GONE_AFTER, connect, is_tick};
use super::tls::{self, Checks, Stream};
use super::{Attempt, Cancel, Failure, Timer};

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
        if !self.is_encrypted {
            return Ok(Stream::Plain(tcp));
        }
        let checks = Checks::AuthorityAndHost;
        encrypted(tcp, &self.host, checks, self.authorities.as_deref(), cancel)
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

/// Both directions of a connection, which is opened when it is needed, and again after a failure.
pub struct Wire {
    stream: Option<Stream>,
    /// What was read and is not consumed.
    pub input: BytesMut,
    /// What [`Wire::flush`] sends.
    pub output: Vec<u8>,
    cancel: Cancel,
    /// Longer packets are refused.
    packet_bytes_max: usize,
}

impl Wire {
    /// One without a connection.
    pub fn new(packet_bytes_max: usize, cancel: Cancel) -> Wire {
        let (input, output) = (BytesMut::new(), Vec::new());
        Wire { stream: None, input, output, cancel, packet_bytes_max }
    }

    /// Connects, over TLS where the address says so.
    ///
    /// # Errors
    /// If the peer can't be reached, or the file of authorities can't be read.
    pub fn open(&mut self, address: &Address) -> Attempt<()> {
        self.close();
        self.begin(address.connect(&self.cancel)?);
        Ok(())
    }

    /// A connection is there.
    pub fn begin(&mut self, stream: Stream) {
        self.stream = Some(stream);
    }

    /// The connection is not wanted any more.
    pub fn close(&mut self) {
        self.stream = None;
        self.input.clear();
        self.output.clear();
    }

    /// Checks that nothing was read ahead: before encryption an attacker may have put it there.
    ///
    /// # Errors
    /// If something was.
    pub fn check_all_read(&self) -> Attempt<()> {
        match self.input.is_empty() {
            true => Ok(()),
            false => Err(Failure::Passing("unexpected bytes before encryption".to_owned())),
        }
    }

    /// Encrypts what follows. The handshake happens with the next bytes.
    ///
    /// # Errors
    /// If something was read ahead, or the file of authorities can't be read.
    pub fn encrypt(
        &mut self,
        host: &str,
        checks: Checks,
        authorities: Option<&Path>,
    ) -> Attempt<()> {
        self.check_all_read()?;
        if let Some(Stream::Plain(tcp)) = &self.stream {
            let tcp = tcp.try_clone().map_err(|error| failure(&error, &self.cancel))?;
            self.stream = Some(encrypted(tcp, host, checks, authorities, &self.cancel)?);
        }
        Ok(())
    }

    /// The next packet, as `parse` takes it from the input, if it is here or comes within a
    /// [`super::TICK`] where `waits`.
    ///
    /// # Errors
    /// As [`Wire::fill`], and what `parse` says.
    pub fn next<T>(
        &mut self,
        waits: bool,
        mut parse: impl FnMut(&mut BytesMut) -> Attempt<Option<T>>,
    ) -> Attempt<Option<T>> {
        loop {
            let packet = parse(&mut self.input)?;
            if packet.is_some() || !waits || !self.fill()? {
                return Ok(packet);
            }
        }
    }

    /// Waits for the next packet.
    ///
    /// # Errors
    /// As [`Wire::next`]; if none comes within this time.
    pub fn wait_next<T>(
        &mut self,
        limit: Duration,
        mut parse: impl FnMut(&mut BytesMut) -> Attempt<Option<T>>,
    ) -> Attempt<T> {
        let since = Timer::default();
        loop {
            if let Some(packet) = self.next(true, &mut parse)? {
                return Ok(packet);
            }
            self.check_wait(&since, limit)?;
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
        let used = self.input.len();
        if used > self.packet_bytes_max {
            let max_mib = self.packet_bytes_max >> 20;
            return Err(Error::data(format!("a message is longer than {max_mib} MiB"))
                .hint("raise the job's memory limit, or send shorter messages")
                .into());
        }
        let stream = self.stream.as_mut().ok_or_else(not_connected)?;
        self.input.resize(used + read_bytes(used), 0);
        let read = stream.read(&mut self.input[used..]);
        self.input.truncate(used + *read.as_ref().unwrap_or(&0));
        match read {
            Ok(0) => Err(closed()),
            Ok(_) => Ok(true),
            Err(error) if is_tick(&error) => Ok(false),
            Err(error) => Err(failure(&error, &self.cancel)),
        }
    }

    /// Sends what was put.
    ///
    /// # Errors
    /// If the connection has broken, the peer takes nothing for too long, or the work is not
    /// wanted any more.
    pub fn flush(&mut self) -> Attempt<()> {
        let (mut sent, mut stuck) = (0, Timer::default());
        loop {
            let stream = self.stream.as_mut().ok_or_else(not_connected)?;
            let left = &self.output[sent..];
            let done =
                if left.is_empty() { stream.flush().map(|()| 0) } else { stream.write(left) };
            match done {
                Ok(_) if left.is_empty() => break,
                Ok(0) => return Err(closed()),
                Ok(written) => (sent, stuck) = (sent + written, Timer::default()),
                Err(error) if is_tick(&error) => self.check_wait(&stuck, GONE_AFTER)?,
                Err(error) => return Err(failure(&error, &self.cancel)),
            }
        }
        self.output.clear();
        Ok(())
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

/// How many bytes are read at a time behind those of a packet that are there: more of long ones.
pub fn read_bytes(used: usize) -> usize {
    (used / 2).clamp(64 << 10, 1 << 20)
}

fn not_connected() -> Failure {
    Failure::Passing("not connected".to_owned())
}

fn closed() -> Failure {
    Failure::Passing("the server has closed the connection".to_owned())
}

fn encrypted(
    tcp: TcpStream,
    host: &str,
    checks: Checks,
    authorities: Option<&Path>,
    cancel: &Cancel,
) -> Attempt<Stream> {
    let config = tls::settings(checks, authorities)?;
    Stream::encrypted(config, host, tcp).map_err(|error| failure(&error, cancel))
}

fn failure(error: &io::Error, cancel: &Cancel) -> Failure {
    match cancel.is_set() {
        true => Failure::Cancelled,
        false => Failure::Passing(error.to_string()),
    }
}
