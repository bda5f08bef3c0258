//! The log of a server, as it is sent; and what is answered, so that both ends know of each other.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use thalweg_core::shim::{Clock, SystemClock};

use super::lsn;
use super::options::CdcOptions;
use super::pgoutput::{self, EPOCH_MS, Part};
use crate::network::tcp::GONE_AFTER;
use crate::network::{Cancel, Timer};
use crate::postgres::connection::Connection;
use crate::postgres::failure::{Failure, Outcome};
use crate::postgres::{identifier, literal};

/// The log of a server.
pub struct LogStream {
    connection: Connection,
    pid: String,
    /// The log up to here is not needed any more, as the source says.
    confirmed: Arc<AtomicU64>,
    /// The log was received up to here.
    received: u64,
    heartbeat: Duration,
    /// Since the server was answered, and since it said something.
    answered: Timer,
    heard: Timer,
}

impl LogStream {
    /// Reads the log from a position on.
    ///
    /// # Errors
    /// If the server can't be reached or refuses.
    pub fn start(
        options: &CdcOptions,
        from: u64,
        confirmed: Arc<AtomicU64>,
        cancel: &Cancel,
    ) -> Outcome<LogStream> {
        let mut connection = Connection::open_replication(&options.settings, cancel)?;
        let sql = format!(
            "START_REPLICATION SLOT {} LOGICAL {} (proto_version '1', publication_names {})",
            identifier(&options.slot),
            lsn::text(from),
            literal(&identifier(&options.publication))
        );
        let pid = connection.query_value("SELECT pg_backend_pid()")?.unwrap_or_default();
        connection.start_stream(&sql)?;
        Ok(LogStream {
            connection,
            pid,
            confirmed,
            received: from,
            heartbeat: options.heartbeat,
            answered: Timer::default(),
            heard: Timer::default(),
        })
    }

    /// The process of the server that serves it.
    pub fn pid(&self) -> &str {
        &self.pid
    }

    /// What the server sends next, if it comes soon.
    ///
    /// # Errors
    /// If the connection has broken, also without a word.
    pub fn poll(&mut self) -> Outcome<Option<Part>> {
        self.answer_if_due(true)?;
        let Some(bytes) = self.connection.poll_stream()? else {
            let silence = self.heard.elapsed();
            return match silence > GONE_AFTER {
                true => Err(Failure::Broken(format!("no word for {} s", silence.as_secs()))),
                false => Ok(None),
            };
        };
        self.heard = Timer::default();
        let part = pgoutput::part(&bytes)?;
        if let Part::Reached(reached, is_asked) = part {
            self.received = self.received.max(reached);
            if is_asked {
                self.answer(false)?;
            }
        }
        Ok(Some(part))
    }

    /// Says that this client is here, while nothing is read.
    ///
    /// # Errors
    /// If the connection has broken.
    pub fn keep_alive(&mut self) -> Outcome<()> {
        self.heard = Timer::default();
        self.answer_if_due(false)
    }

    /// Asks the server how far its log goes.
    ///
    /// # Errors
    /// If the connection has broken.
    pub fn ask(&mut self) -> Outcome<()> {
        self.answer(true)
    }

    fn answer_if_due(&mut self, asks: bool) -> Outcome<()> {
        if self.answered.elapsed() >= self.heartbeat { self.answer(asks) } else { Ok(()) }
    }

    fn answer(&mut self, asks: bool) -> Outcome<()> {
        // Relaxed: the number alone is read.
        let confirmed = self.confirmed.load(Ordering::Relaxed);
        let time = (SystemClock::new().wall_ms() - EPOCH_MS) * 1000;
        let mut body = vec![b'r'];
        for number in [self.received.max(confirmed), confirmed, confirmed] {
            body.extend_from_slice(&number.to_be_bytes());
        }
        body.extend_from_slice(&time.to_be_bytes());
        body.push(u8::from(asks));
        self.connection.send_stream(&body)?;
        self.answered = Timer::default();
        Ok(())
    }
}
