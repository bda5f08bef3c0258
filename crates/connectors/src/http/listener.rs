//! Takes rows that are POSTed: over connections of its own, and from the server that runs the job.
//!
//! ```text
//! connection (a thread each) ┐
//!                            ├── Intake reads rows ──▶ queue (bounded) ──▶ Listener ──▶ job
//! server (RowInlet) ─────────┘                                                │
//!          ▲                                                                  │
//!          └──── 200, or the state of a token ◀──── snapshot that is kept ◀───┘
//! ```
//!
//! A connection is answered when its rows are safe: with snapshots when one that covers them is
//! kept, else when the job has taken them. The server answers at once, with a number of the body
//! ([`super::bodies`]).
//!
//! # Invariants
//! - A body is read whole before any of its rows is taken, and its rows reach the job together: a
//!   snapshot has all of them or none.
//! - A client that did not get its answer sends the request again; where it has sent the same
//!   `Idempotency-Key` both times, its rows count once: marks of such requests are made of the key,
//!   and are in positions until they are acknowledged.
//! - What waits is bounded, in bodies and in bytes. Whoever comes then is refused.

use std::collections::{BTreeMap, VecDeque};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TrySendError, bounded};
use serde_json::json;
use thalweg_core::Error;
use thalweg_core::connector::{Secret, SplitId, TableRequest};
use thalweg_core::inlets::{PostedRows, RowInlet, RowInlets, RowsReceipt, RowsRefusal};
use thalweg_core::shim::{mix64, unique_name};

use super::bodies::{Bodies, NoNumber};
use super::body::{BadBody, BodyReader};
use super::options::{ScanMode, ScanOptions, listen_addresses};
use super::server::{Answer, Asked, Held, Limits, Serve, start};
use crate::messaging::{Client, Inbox, Mark, Rows};
use crate::network::{Attempt, Cancel, Failure, TICK, Timer};

/// Requests that wait for the job.
const REQUESTS_AHEAD: usize = 64;
/// How long a request of a connection waits for room among them, and how often it looks.
const ROOM_WAIT: Duration = Duration::from_secs(1);
const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// Requests with a key that were answered, and are recognized if they come again.
const ANSWERED_MAX: usize = 1_000;

/// A request whose rows are good.
struct Posted {
    mark: Mark,
    number: u64,
    rows: Rows,
    done: Sender<()>,
    _held: Held,
}

impl Posted {
    /// A request that has no number yet. The receiver hears when its rows are safe.
    fn new(mark: Mark, rows: Rows, held: Held) -> (Box<Posted>, Receiver<()>) {
        let (done, is_done) = bounded(1);
        (Box::new(Posted { mark, number: 0, rows, done, _held: held }), is_done)
    }
}

/// Where requests come in, from whatever side.
struct Intake {
    reader: BodyReader,
    posts: Sender<Box<Posted>>,
    bodies: Arc<Bodies>,
    body_bytes_max: usize,
    /// Bytes of bodies that wait and came from the server, and the most of them.
    waiting: Arc<AtomicUsize>,
    waiting_max: usize,
}

impl Intake {
    /// Puts a request into the queue, if there is room.
    fn enqueue(&self, posted: Box<Posted>) -> Result<u64, (NoNumber, Box<Posted>)> {
        self.bodies.add(posted.mark, posted, |number, mut posted| {
            posted.number = number;
            self.posts.try_send(posted).map_err(TrySendError::into_inner)
        })
    }
}

impl RowInlet for Intake {
    fn post(&self, posted: PostedRows<'_>) -> Result<RowsReceipt, RowsRefusal> {
        if posted.body.len() > self.body_bytes_max {
            return Err(RowsRefusal::TooLarge(self.body_bytes_max));
        }
        let full = |why: &str| Err(RowsRefusal::Full(why.to_owned()));
        let Some(held) = Held::take(&self.waiting, posted.body.len(), self.waiting_max) else {
            return full("too many bytes wait for the job");
        };
        let mark = mark_of(posted.key);
        let read = self.reader.read(posted.kind, posted.body, mark);
        let rows = read.map_err(|bad| match bad {
            BadBody::Kind(why) => RowsRefusal::KindWrong(why),
            BadBody::Row { row, line, reason } => {
                let line = line.map(|line| format!("line {line}"));
                let place = line.or_else(|| row.map(|row| format!("row {row}")));
                RowsRefusal::Bad { place, reason }
            }
        })?;
        let (good, bad) = (rows.batch.num_rows() as u64, rows.bad.len() as u64);
        let (posted, _) = Posted::new(mark, rows, held);
        match self.enqueue(posted).map_err(|(why, _)| why) {
            Ok(number) => {
                let run = self.bodies.run().to_owned();
                Ok(RowsReceipt { run, number, rows: good, bad_rows: bad })
            }
            Err(NoNumber::Closed) => Err(RowsRefusal::Closed),
            Err(NoNumber::Queue) => full("too many bodies wait for the job"),
            Err(NoNumber::Unsettled) => {
                full("too many bodies wait for the next snapshot: send more rows in each")
            }
        }
    }

    fn run(&self) -> &str {
        self.bodies.run()
    }

    fn read_through(&self) -> u64 {
        self.bodies.read_through()
    }

    fn is_open(&self) -> bool {
        self.bodies.is_open()
    }
}

/// Listens.
pub struct Listener {
    table: String,
    options: ScanOptions,
    limits: Limits,
    intake: Arc<Intake>,
    inlets: Option<RowInlets>,
    posts: Receiver<Box<Posted>>,
    cancel: Cancel,
    is_open: bool,
    /// Rows that the job has yet to take.
    ready: VecDeque<Rows>,
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
        let intake = Intake {
            reader: BodyReader::new(request, &options),
            posts: posts_in,
            bodies: Arc::new(Bodies::new()),
            body_bytes_max: limits.body_bytes,
            waiting: Arc::default(),
            waiting_max: limits.waiting_bytes,
        };
        Listener {
            table: request.table.clone(),
            options,
            limits,
            intake: Arc::new(intake),
            inlets: request.access.inlets.clone(),
            posts,
            cancel,
            is_open: false,
            ready: VecDeque::new(),
            waiting: BTreeMap::new(),
            answered: VecDeque::new(),
            settled: Vec::new(),
        }
    }

    /// The bodies that it takes.
    pub fn bodies(&self) -> Arc<Bodies> {
        Arc::clone(&self.intake.bodies)
    }

    fn open(&mut self) -> Attempt<()> {
        if self.options.mode == ScanMode::Listen {
            self.listen()?;
        }
        if let Some(inlets) = &self.inlets
            && !inlets.open(&self.table, self.intake.clone())
        {
            return Err(Failure::Passing("rows of the table are taken elsewhere".to_owned()));
        }
        self.is_open = true;
        Ok(())
    }

    fn listen(&mut self) -> Attempt<()> {
        let (host, port) = (&self.options.http.host, self.options.http.port);
        let bound = listen_addresses(host, port).and_then(|found| TcpListener::bind(&found[..]));
        let listener = bound.map_err(|error| match error.kind() {
            std::io::ErrorKind::AddrInUse => Failure::Passing(error.to_string()),
            _ => Failure::Final(
                Error::io(format!("no listener at {host}:{port}: {error}")).hint("correct 'url'"),
            ),
        })?;
        let service = Service {
            intake: Arc::clone(&self.intake),
            path: self.options.http.path.clone(),
            token: self.options.token.clone(),
            wait: self.options.acknowledge_timeout,
            cancel: self.cancel.clone(),
        };
        let started = start(listener, self.limits.clone(), Arc::new(service), self.cancel.clone());
        started.map_err(|e| Error::resource(format!("no thread for a listener: {e}")))?;
        Ok(())
    }

    fn take(&mut self, posted: Posted, inbox: &mut Inbox) {
        let Posted { mark, number, rows, done, _held } = posted;
        if let Some(waiting) = self.waiting.get_mut(&mark) {
            self.intake.bodies.adds_nothing(number, mark);
            waiting.push(done);
            return;
        }
        if self.answered.contains(&mark) {
            self.intake.bodies.adds_nothing(number, mark);
            self.intake.bodies.settle(1);
            let _gone = done.try_send(());
            return;
        }
        self.waiting.insert(mark, vec![done]);
        if rows.batch.num_rows() == 0 && rows.bad.is_empty() {
            self.intake.bodies.adds_nothing(number, mark);
            self.acknowledge_one(mark);
            return;
        }
        inbox.note_decoded(SplitId::ONLY);
        self.ready.push_back(rows);
    }

    fn acknowledge_one(&mut self, mark: Mark) {
        let waiting = self.waiting.remove(&mark).unwrap_or_default();
        self.intake.bodies.settle(waiting.len());
        for done in waiting {
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

impl Drop for Listener {
    fn drop(&mut self) {
        self.intake.bodies.close();
    }
}

impl Client for Listener {
    fn connect(&mut self, _inbox: &Inbox) -> Attempt<()> {
        if self.is_open { Ok(()) } else { self.open() }
    }

    fn receive(&mut self, inbox: &mut Inbox) -> Attempt<()> {
        match self.posts.recv_timeout(TICK) {
            Ok(posted) => self.take(*posted, inbox),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                inbox.caught_up(SplitId::ONLY);
            }
        }
        Ok(())
    }

    fn decoded(&mut self) -> Option<Rows> {
        self.ready.pop_front()
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

/// The mark of a request.
fn mark_of(key: Option<&str>) -> Mark {
    match key {
        Some(key) => mark_of_key(key),
        None => mark_of_key(&unique_name()) & !1,
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

/// Answers requests of connections.
struct Service {
    intake: Arc<Intake>,
    path: String,
    token: Option<Secret>,
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
        let mark = mark_of(asked.header("idempotency-key"));
        let content_type = asked.header("content-type");
        let rows = match self.intake.reader.read_own(&asked.body, content_type, mark) {
            Ok(rows) => rows,
            Err(BadBody::Kind(why)) => return Answer::new(415, "error", &why),
            Err(BadBody::Row { row, reason, .. }) => {
                let body = json!({ "row": row, "error": reason }).to_string();
                return Answer { status: 400, body, closes: false };
            }
        };
        let (posted, is_done) = Posted::new(mark, rows, held);
        match self.enqueue(posted) {
            true => self.wait(&is_done),
            false => Answer::new(503, "error", "the job is busy: none of the rows was taken"),
        }
    }
}

impl Service {
    /// Puts a request into the queue, where there is room in time.
    fn enqueue(&self, mut posted: Box<Posted>) -> bool {
        let since = Timer::default();
        loop {
            match self.intake.enqueue(posted) {
                Ok(_) => return true,
                Err((why, again)) if why != NoNumber::Closed && since.elapsed() < ROOM_WAIT => {
                    posted = again;
                    std::thread::sleep(LOOK_AGAIN);
                }
                Err(_) => return false,
            }
        }
    }

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
