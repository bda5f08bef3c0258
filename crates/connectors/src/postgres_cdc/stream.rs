//! The log of a server, as it is sent; and what is answered, so that both ends know of each other.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use thalweg_core::shim::{Clock, SystemClock};

use super::lsn;
use super::options::CdcOptions;
use super::pgoutput::{self, Part};
use crate::network::Cancel;
use crate::network::tcp::GONE_AFTER;
use crate::postgres::connection::Connection;
use crate::postgres::failure::{Failure, Outcome};
use crate::postgres::{identifier, literal};

/// Milliseconds from 1970 to 2000.
const EPOCH_MS: i64 = 946_684_800_000;

/// The log of a server.
pub struct LogStream {
    connection: Connection,
    pid: String,
    clock: SystemClock,
    /// The log up to here is not needed any more, as the source says.
    confirmed: Arc<AtomicU64>,
    /// The log was received up to here.
    received: u64,
    heartbeat: Duration,
    answered_ns: u64,
    heard_ns: u64,
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
        let clock = SystemClock::new();
        let now_ns = clock.now_ns();
        Ok(LogStream {
            connection,
            pid,
            clock,
            confirmed,
            received: from,
            heartbeat: options.heartbeat,
            answered_ns: now_ns,
            heard_ns: now_ns,
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
        self.answer_if_due()?;
        let Some(bytes) = self.connection.poll_stream()? else {
            let silence = Duration::from_nanos(self.clock.now_ns() - self.heard_ns);
            return match silence > GONE_AFTER {
                true => Err(Failure::Broken(format!("no word for {} s", silence.as_secs()))),
                false => Ok(None),
            };
        };
        self.heard_ns = self.clock.now_ns();
        let part = pgoutput::part(&bytes)?;
        if let Part::Reached(reached, is_asked) = part {
            self.received = self.received.max(reached);
            if is_asked {
                self.answer(false)?;
            }
        }
        Ok(Some(part))
    }

    /// True if more is here already.
    pub fn has_more(&self) -> bool {
        self.connection.has_more()
    }

    /// Says that this client is here, while nothing is read.
    ///
    /// # Errors
    /// If the connection has broken.
    pub fn keep_alive(&mut self) -> Outcome<()> {
        self.heard_ns = self.clock.now_ns();
        let quiet = Duration::from_nanos(self.clock.now_ns() - self.answered_ns);
        if quiet >= self.heartbeat { self.answer(false) } else { Ok(()) }
    }

    /// Asks the server how far its log goes.
    ///
    /// # Errors
    /// If the connection has broken.
    pub fn ask(&mut self) -> Outcome<()> {
        self.answer(true)
    }

    fn answer_if_due(&mut self) -> Outcome<()> {
        let quiet = Duration::from_nanos(self.clock.now_ns() - self.answered_ns);
        if quiet >= self.heartbeat { self.answer(true) } else { Ok(()) }
    }

    fn answer(&mut self, asks: bool) -> Outcome<()> {
        // Relaxed: the number alone is read.
        let confirmed = self.confirmed.load(Ordering::Relaxed);
        let time = (self.clock.wall_ms() - EPOCH_MS) * 1000;
        let mut body = vec![b'r'];
        for number in [self.received.max(confirmed), confirmed, confirmed] {
            body.extend_from_slice(&number.to_be_bytes());
        }
        body.extend_from_slice(&time.to_be_bytes());
        body.push(u8::from(asks));
        self.connection.send_stream(&body)?;
        self.answered_ns = self.clock.now_ns();
        Ok(())
    }
}
