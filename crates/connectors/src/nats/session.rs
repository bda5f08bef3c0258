//! A connection: signing in, staying alive, requests to JetStream.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use serde_json::{Value, json};
use thalweg_core::Error;
use thalweg_core::connector::Secret;
use thalweg_core::shim::{Clock, SystemClock};

use super::protocol::{NatsMessage, Received, parse, put_message};
use crate::network::tls::Checks;
use crate::network::wire::{Address, Wire};
use crate::network::{Attempt, Cancel, Failure, Timer};

/// The server is asked whether it is there after so long without a word.
const PING_AFTER: Duration = Duration::from_secs(8);
/// A server that has not answered for so long has gone.
const ANSWER_WAIT: Duration = Duration::from_secs(15);
/// Longer messages are refused.
const MESSAGE_BYTES_MAX: usize = 64 << 20;
/// The subscription for answers.
const ANSWERS: u64 = 1;

/// A server, and who signs in.
#[derive(Clone, Debug)]
pub struct Server {
    /// Where it is.
    pub address: Address,
    /// Who signs in.
    pub username: Option<String>,
    /// With this password; without a user it is a token.
    pub password: Option<Secret>,
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NATS at {}", self.address)
    }
}

/// A connection that is opened when it is needed.
pub struct Session {
    server: Server,
    wire: Wire,
    /// What answers' subjects begin with: of this session alone.
    inbox: String,
    requests: u64,
    /// Since the server said something.
    heard: Timer,
    /// It was asked since then whether it is there.
    is_pinged: bool,
    /// PINGs that were sent for a writer and not answered.
    pub pongs: u64,
    /// Messages that came while an answer was waited for.
    early: VecDeque<NatsMessage>,
}

impl Session {
    /// A session with this server.
    pub fn new(server: Server, cancel: Cancel) -> Session {
        let moment = SystemClock::new().wall_ms() as u64;
        let id = crc32fast::hash(format!("{server}{moment}").as_bytes());
        Session {
            server,
            wire: Wire::new(MESSAGE_BYTES_MAX, cancel),
            inbox: format!("_INBOX.thalweg{:x}x{moment:x}x{id:08x}", std::process::id()),
            requests: 0,
            heard: Timer::default(),
            is_pinged: false,
            pongs: 0,
            early: VecDeque::new(),
        }
    }

    /// What subjects of this session alone begin with.
    pub fn inbox(&self) -> &str {
        &self.inbox
    }

    /// Connects and signs in.
    ///
    /// # Errors
    /// If the server can't be reached, or refuses.
    pub fn connect(&mut self) -> Attempt<()> {
        self.early.clear();
        (self.is_pinged, self.pongs, self.heard) = (false, 0, Timer::default());
        let plain = Address { is_encrypted: false, ..self.server.address.clone() };
        self.wire.open(&plain)?;
        let Received::Info(info) = self.wait_next()? else {
            return Err(Failure::Passing("this is no server of NATS".to_owned()));
        };
        let info: Value = serde_json::from_str(&info).unwrap_or_default();
        self.check_encryption(&info)?;
        let sign_in = self.sign_in();
        let subscribe = format!("SUB {}.a.* {ANSWERS}\r\n", self.inbox);
        self.put(&format!("CONNECT {sign_in}\r\n{subscribe}PING\r\n"));
        self.flush()?;
        loop {
            match self.wait_next()? {
                Received::Pong => return Ok(()),
                Received::Error(why) => return Err(self.refused(&why)),
                Received::Ping => self.put("PONG\r\n"),
                _ => {}
            }
        }
    }

    fn check_encryption(&mut self, info: &Value) -> Attempt<()> {
        let is = |key: &str| info.get(key).and_then(Value::as_bool) == Some(true);
        let address = self.server.address.clone();
        match (address.is_encrypted, is("tls_required"), is("tls_available")) {
            (false, true, _) => Err(Error::user(format!("{} talks over TLS alone", self.server))
                .hint("use 'tls://HOST:PORT' and 'tls.ca-file'")
                .into()),
            (false, false, _) => Ok(()),
            (true, false, false) => Err(Error::user(format!("{} offers no TLS", self.server))
                .hint("use 'nats://HOST:PORT', or configure the server")
                .into()),
            (true, ..) => self.wire.encrypt(
                &address.host,
                Checks::AuthorityAndHost,
                address.authorities.as_deref(),
            ),
        }
    }

    fn sign_in(&self) -> Value {
        let mut sign_in = json!({
            "verbose": false, "pedantic": false, "headers": true, "no_responders": true,
            "name": "thalweg", "lang": "rust", "version": env!("CARGO_PKG_VERSION"), "protocol": 0,
        });
        match (&self.server.username, &self.server.password) {
            (Some(user), password) => {
                sign_in["user"] = user.as_str().into();
                sign_in["pass"] = password.as_ref().map_or("", Secret::expose).into();
            }
            (None, Some(token)) => sign_in["auth_token"] = token.expose().into(),
            (None, None) => {}
        }
        sign_in
    }

    fn refused(&self, why: &str) -> Failure {
        let what = format!("{} refuses: {why}", self.server);
        let lower = why.to_ascii_lowercase();
        let help = if lower.contains("authorization") || lower.contains("authentication") {
            "correct 'username' and 'password'"
        } else if lower.contains("permissions violation") {
            "the user may not do that: correct the subject, or the server's permissions"
        } else if lower.contains("invalid") || lower.contains("maximum payload") {
            "correct the subject, or send shorter messages"
        } else {
            return Failure::Passing(what);
        };
        Failure::Final(Error::user(what).hint(help))
    }

    /// Adds a line to what [`Session::flush`] sends.
    pub fn put(&mut self, lines: &str) {
        self.wire.output.extend_from_slice(lines.as_bytes());
    }

    /// Adds a message. How many bytes wait.
    pub fn put_message(
        &mut self,
        subject: &str,
        reply: Option<&str>,
        headers: &[(&str, &str)],
        payload: &[u8],
    ) -> usize {
        put_message(&mut self.wire.output, subject, reply, headers, payload);
        self.wire.output.len()
    }

    /// Sends what was put.
    ///
    /// # Errors
    /// If the connection has broken.
    pub fn flush(&mut self) -> Attempt<()> {
        self.wire.flush()
    }

    fn wait_next(&mut self) -> Attempt<Received> {
        let received = self.wire.wait_next(ANSWER_WAIT, take)?;
        (self.is_pinged, self.heard) = (false, Timer::default());
        Ok(received)
    }

    fn next(&mut self, waits: bool) -> Attempt<Option<Received>> {
        let received = self.wire.next(waits, take)?;
        if received.is_some() {
            (self.is_pinged, self.heard) = (false, Timer::default());
        }
        Ok(received)
    }

    /// Asks whether the server is there, where it is silent.
    ///
    /// # Errors
    /// If the connection has broken.
    pub fn keep_alive(&mut self) -> Attempt<()> {
        if self.heard.elapsed() < PING_AFTER || self.is_pinged {
            return Ok(());
        }
        self.is_pinged = true;
        self.pongs += 1;
        self.put("PING\r\n");
        self.flush()
    }

    /// The next message, if it is here or comes within a [`crate::network::TICK`] where `waits`.
    ///
    /// # Errors
    /// If the connection has broken, or the server refuses something.
    pub fn poll(&mut self, waits: bool) -> Attempt<Option<NatsMessage>> {
        if let Some(message) = self.early.pop_front() {
            return Ok(Some(message));
        }
        self.keep_alive()?;
        loop {
            match self.next(waits)? {
                Some(Received::Message(message)) => return Ok(Some(message)),
                Some(Received::Ping) => {
                    self.put("PONG\r\n");
                    self.flush()?;
                }
                Some(Received::Pong) => {
                    self.pongs = self.pongs.saturating_sub(1);
                    return Ok(None);
                }
                Some(Received::Error(why)) => return Err(self.refused(&why)),
                Some(Received::Info(_) | Received::Fine) => {}
                None if waits
                    && self.is_pinged
                    && self.heard.elapsed() > PING_AFTER + ANSWER_WAIT =>
                {
                    return Err(Failure::no_answer(ANSWER_WAIT));
                }
                None => return Ok(None),
            }
        }
    }

    /// Asks JetStream for something; the answer, as JSON.
    ///
    /// # Errors
    /// If the connection has broken, or there is no answer. What JetStream refuses is in the
    /// answer.
    pub fn request(&mut self, what: &str, body: &Value) -> Attempt<Value> {
        self.requests += 1;
        let reply = format!("{}.a.{}", self.inbox, self.requests);
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.put_message(&format!("$JS.API.{what}"), Some(&reply), &[], body.as_bytes());
        self.flush()?;
        let (since, mut early) = (Timer::default(), VecDeque::new());
        let answer = loop {
            match self.poll(true)? {
                Some(message) if message.subject == reply => break message,
                Some(message) => early.push_back(message),
                None => self.wire.check_wait(&since, ANSWER_WAIT)?,
            }
        };
        self.early = early;
        if answer.status == Some(503) {
            return Err(Failure::Passing(format!("{} has no JetStream (yet)", self.server)));
        }
        let parsed = serde_json::from_slice(&answer.payload);
        parsed.map_err(|_| Failure::Passing("an answer of JetStream is no JSON".to_owned()))
    }

    /// The same, where what JetStream refuses is an error.
    ///
    /// # Errors
    /// As [`Session::request`]; what JetStream says.
    pub fn request_checked(&mut self, what: &str, body: &Value) -> Attempt<Value> {
        let answer = self.request(what, body)?;
        match answer.get("error") {
            None => Ok(answer),
            Some(error) => Err(self.explained(error)),
        }
    }

    /// What JetStream refuses.
    pub fn explained(&self, error: &Value) -> Failure {
        let number = |key: &str| error.get(key).and_then(Value::as_u64).unwrap_or(0);
        let text = error.get("description").and_then(Value::as_str).unwrap_or("an error");
        let what = format!("{} refuses: {text}", self.server);
        // No leader, no room for now, restarting, too much at once: those of the server itself.
        if number("code") >= 500 || number("code") == 429 {
            return Failure::Passing(what);
        }
        let help = match number("err_code") {
            10_059 => "create the stream: nats stream add",
            10_039 => "enable JetStream for the account",
            _ => "see the server's documentation of JetStream",
        };
        Failure::Final(Error::user(what).hint(help))
    }
}

/// The first thing that the input holds in full.
fn take(input: &mut BytesMut) -> Attempt<Option<Received>> {
    let Some((received, length)) = parse(input)? else { return Ok(None) };
    input.advance(length);
    Ok(Some(received))
}
