//! Takes rows that are POSTed. A request is answered when its rows are safe: with snapshots when
//! one that covers them is kept, else when the job has taken them.
//!
//! ```text
//! connection (a thread each) ── checks rows ──▶ queue (bounded) ──▶ Listener::receive ──▶ inbox
//!          ▲                                                                                │
//!          └──────────── 200 ◀──────────── Listener::acknowledge ◀── snapshot that is kept ◀┘
//! ```
//!
//! All rows of a request are one message or several; the last one has the request's mark. A client
//! that did not get its answer sends the request again; where it has sent the same
//! `Idempotency-Key` both times, its rows count once: marks of such requests are made of the key,
//! and are in positions until they are acknowledged.

use std::collections::{BTreeMap, VecDeque};
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::BinaryArray;
use crossbeam_channel::{Receiver, RecvTimeoutError, SendTimeoutError, Sender, bounded};
use serde_json::{Value, json};
use thalweg_core::Error;
use thalweg_core::connector::{Secret, SplitId, TableRequest};
use thalweg_core::shim::{mix64, unique_name};

use super::body::{has_lines, records};
use super::options::{Framing, ScanOptions, listen_addresses};
use super::server::{Answer, Asked, Held, Limits, Serve, start};
use crate::format::{BadDataPolicy, Format, RecordDecoder, RecordLayout, TextBlock};
use crate::messaging::{Client, Inbox, Mark, Message};
use crate::network::{Attempt, Cancel, Failure, TICK, Timer};

/// Requests that wait for the job.
const REQUESTS_AHEAD: usize = 64;
/// How long a request waits for room among them.
const ROOM_WAIT: Duration = Duration::from_secs(1);
/// Requests with a key that were answered, and are recognized if they come again.
const ANSWERED_MAX: usize = 1_000;

/// A request whose rows are good.
struct Posted {
    mark: Mark,
    body: Vec<u8>,
    has_lines: bool,
    done: Sender<()>,
    _held: Held,
}

/// Listens.
pub struct Listener {
    options: ScanOptions,
    limits: Limits,
    checker: Option<Arc<Checker>>,
    posts: Receiver<Posted>,
    posts_in: Sender<Posted>,
    cancel: Cancel,
    is_open: bool,
    /// Who waits for the word that rows are safe.
    waiting: BTreeMap<Mark, Vec<Sender<()>>>,
    /// Requests with a key that were answered, or whose rows an earlier run has taken, oldest
    /// first: their clients may send them again.
    answered: VecDeque<Mark>,
    /// Requests that positions need not name any more.
    settled: Vec<Mark>,
}

impl Listener {
    /// A listener for this table.
    pub fn new(request: &TableRequest, options: ScanOptions, cancel: Cancel) -> Listener {
        let (posts_in, posts) = bounded(REQUESTS_AHEAD);
        let limits = Limits {
            connections: options.connections_max,
            body_bytes: options.body_bytes_max.min(request.memory_limit_bytes / 8),
            waiting_bytes: request.memory_limit_bytes / 8,
            request_time: options.timeout,
        };
        Listener {
            checker: Some(Arc::new(Checker::new(request, &options))),
            options,
            limits,
            posts,
            posts_in,
            cancel,
            is_open: false,
            waiting: BTreeMap::new(),
            answered: VecDeque::new(),
            settled: Vec::new(),
        }
    }

    fn open(&mut self) -> Attempt<()> {
        let (host, port) = (&self.options.http.host, self.options.http.port);
        let bound = listen_addresses(host, port).and_then(|found| TcpListener::bind(&found[..]));
        let listener = bound.map_err(|error| match error.kind() {
            std::io::ErrorKind::AddrInUse => Failure::Passing(error.to_string()),
            _ => Failure::Final(
                Error::io(format!("no listener at {host}:{port}: {error}")).hint("correct 'url'"),
            ),
        })?;
        let Some(checker) = self.checker.take() else { return Ok(()) };
        let service = Service {
            checker,
            path: self.options.http.path.clone(),
            token: self.options.token.clone(),
            posts: self.posts_in.clone(),
            wait: self.options.acknowledge_timeout,
            cancel: self.cancel.clone(),
        };
        let started = start(listener, self.limits.clone(), Arc::new(service), self.cancel.clone());
        started.map_err(|e| Error::resource(format!("no thread for a listener: {e}")))?;
        self.is_open = true;
        Ok(())
    }

    fn take(&mut self, posted: Posted, inbox: &mut Inbox) {
        let Posted { mark, body, has_lines, done, _held } = posted;
        if let Some(waiting) = self.waiting.get_mut(&mark) {
            waiting.push(done);
            return;
        }
        if self.answered.contains(&mark) {
            let _gone = done.try_send(());
            return;
        }
        self.waiting.insert(mark, vec![done]);
        let mut records = records(&body, has_lines).peekable();
        let mut is_empty = true;
        while let Some(record) = records.next() {
            let mark = records.peek().is_none().then_some(mark);
            is_empty = false;
            let value = Some(record);
            inbox.add(Message { split: SplitId::ONLY, mark, value, metadata: Vec::new() });
        }
        if is_empty {
            self.acknowledge_one(mark);
        }
    }

    fn acknowledge_one(&mut self, mark: Mark) {
        for done in self.waiting.remove(&mark).into_iter().flatten() {
            // Who has waited for too long has gone.
            let _gone = done.try_send(());
        }
        self.note_answered(mark);
    }

    fn note_answered(&mut self, mark: Mark) {
        if is_of_key(mark) {
            self.answered.push_back(mark);
            if self.answered.len() > ANSWERED_MAX {
                self.settled.extend(self.answered.pop_front());
            }
        } else {
            self.settled.push(mark);
        }
    }
}

impl Client for Listener {
    fn connect(&mut self, _inbox: &Inbox) -> Attempt<()> {
        if self.is_open { Ok(()) } else { self.open() }
    }

    fn receive(&mut self, inbox: &mut Inbox) -> Attempt<()> {
        let mut next = self.posts.recv_timeout(TICK);
        loop {
            match next {
                Ok(posted) => self.take(posted, inbox),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    inbox.caught_up(SplitId::ONLY);
                    return Ok(());
                }
            }
            if inbox.is_full() {
                return Ok(());
            }
            next = self.posts.recv_timeout(Duration::ZERO);
        }
    }

    fn acknowledge(&mut self, marks: &[Mark]) -> Attempt<()> {
        marks.iter().for_each(|&mark| self.acknowledge_one(mark));
        Ok(())
    }

    fn restore(&mut self, marks: &[Mark]) {
        marks.iter().for_each(|&mark| self.note_answered(mark));
    }

    fn settled(&mut self) -> Vec<Mark> {
        std::mem::take(&mut self.settled)
    }
}

/// Marks of requests with a key are odd.
fn is_of_key(mark: Mark) -> bool {
    mark & 1 == 1
}

/// The mark of a key: 127 bits of two hashes (FNV-1a, mixed), which no client can make collide by
/// accident.
fn mark_of_key(key: &str) -> Mark {
    let hash = |basis: u64| {
        let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
        u128::from(mix64(key.bytes().fold(basis, step)))
    };
    (hash(0xCBF2_9CE4_8422_2325) << 64 | hash(0x9E37_79B9_7F4A_7C15)) | 1
}

/// Answers requests.
struct Service {
    checker: Arc<Checker>,
    path: String,
    token: Option<Secret>,
    posts: Sender<Posted>,
    wait: Duration,
    cancel: Cancel,
}

impl Serve for Service {
    fn refuse(&self, asked: &Asked) -> Option<Answer> {
        let error = |status, text: &str| Some(Answer::new(status, "error", text));
        if let Some(token) = &self.token {
            let expected = format!("Bearer {}", token.expose());
            if !is_same(asked.header("authorization").unwrap_or_default(), &expected) {
                return error(401, "send 'Authorization: Bearer TOKEN'");
            }
        }
        if asked.path != self.path {
            return error(404, "rows are not taken here");
        }
        match asked.method.as_str() {
            "POST" | "PUT" => None,
            _ => error(405, "POST rows"),
        }
    }

    fn answer(&self, asked: Asked, held: Held) -> Answer {
        let content_type = asked.header("content-type");
        let has_lines = self.checker.has_lines(content_type);
        if let Err(bad) = self.checker.check(&asked.body, has_lines) {
            return Answer { status: 400, body: bad.to_string(), closes: false };
        }
        let mark = match asked.header("idempotency-key") {
            Some(key) => mark_of_key(key),
            None => mark_of_key(&unique_name()) & !1,
        };
        let (done, is_done) = bounded(1);
        let posted = Posted { mark, body: asked.body, has_lines, done, _held: held };
        match self.posts.send_timeout(posted, ROOM_WAIT) {
            Ok(()) => self.wait(&is_done),
            Err(SendTimeoutError::Timeout(_) | SendTimeoutError::Disconnected(_)) => {
                Answer::new(503, "error", "the job is busy: none of the rows was taken")
            }
        }
    }
}

impl Service {
    fn wait(&self, is_done: &Receiver<()>) -> Answer {
        let since = Timer::default();
        loop {
            match is_done.recv_timeout(TICK) {
                Ok(()) => return Answer { status: 200, body: "{}".to_owned(), closes: false },
                Err(RecvTimeoutError::Timeout)
                    if since.elapsed() < self.wait && !self.cancel.is_set() => {}
                Err(_) => {
                    let unknown = "it is not known yet whether the rows are kept: send them again with the same \
                                   Idempotency-Key";
                    return Answer::new(503, "error", unknown);
                }
            }
        }
    }
}

/// Compares in a time that does not depend on where texts differ.
fn is_same(one: &str, other: &str) -> bool {
    let differs = one.bytes().zip(other.bytes()).fold(0, |differs, (a, b)| differs | (a ^ b));
    one.len() == other.len() && differs == 0
}

/// Finds bad rows before they are taken.
struct Checker {
    decoder: RecordDecoder,
    framing: Framing,
    /// Bad rows do not fail the job: they are taken, and left out later.
    takes_bad: bool,
}

impl Checker {
    fn new(request: &TableRequest, options: &ScanOptions) -> Checker {
        let wanted = match &request.projection {
            Some(wanted) => wanted.clone(),
            None => (0..request.schema.len()).collect(),
        };
        let records = &options.http.records;
        let format = records.format.clone();
        let layout = RecordLayout::new(&request.table, request.schema.clone(), wanted, false);
        let mut layout = format.with_bad_data(layout, true);
        if layout.policy == BadDataPolicy::Fail {
            // Each bad row of a request is found, and the first is named.
            layout = layout.with_policy(BadDataPolicy::Reject, Vec::new());
        }
        if format.has_changes() {
            layout = layout.of_changes(Vec::new());
        }
        let takes_bad = !records.bad_data.is_fatal();
        let framing = options.framing;
        Checker { decoder: RecordDecoder::new(format, layout), framing, takes_bad }
    }

    fn has_lines(&self, content_type: Option<&str>) -> bool {
        has_lines(self.framing, self.decoder.format(), content_type)
    }

    /// The first bad row, from 1, and what is wrong with it.
    fn check(&self, body: &[u8], has_lines: bool) -> std::result::Result<(), Value> {
        if self.takes_bad {
            return Ok(());
        }
        let parts: Vec<&[u8]> = records(body, has_lines).collect();
        let Some((number, reason)) = self.first_bad(&parts) else { return Ok(()) };
        // Which one of an array it is shows when each is looked at.
        let elements = self.elements(body, has_lines);
        let elements: Vec<&[u8]> = elements.iter().map(String::as_bytes).collect();
        let (number, reason) = self.first_bad(&elements).unwrap_or((number, reason));
        Err(json!({ "row": number + 1, "error": reason }))
    }

    fn first_bad(&self, records: &[&[u8]]) -> Option<(u64, String)> {
        let messages = BinaryArray::from_iter_values(records);
        match self.decoder.decode(&TextBlock::messages(&messages)) {
            Ok(decoded) => decoded.rejected.into_iter().next().map(|bad| (bad.number, bad.reason)),
            Err(error) => Some((error.number.unwrap_or(0), error.error.message().to_owned())),
        }
    }

    /// The elements of a body that is an array of JSON.
    fn elements(&self, body: &[u8], has_lines: bool) -> Vec<String> {
        match (self.decoder.format(), serde_json::from_slice::<Value>(body)) {
            (Format::Json(_), Ok(Value::Array(elements))) if !has_lines => {
                elements.iter().map(Value::to_string).collect()
            }
            _ => Vec::new(),
        }
    }
}
