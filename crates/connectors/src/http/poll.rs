//! Asks an address again and again.
//!
//! The validators of an answer (`ETag`, `Last-Modified`) go with the next request, so that an
//! answer without news costs nothing. They are in positions: after a restart, too, only what is new
//! comes.
//! A snapshot may lie between two records of an answer; the next run takes those that are left, if
//! the server still has that answer.

use std::time::Duration;

use serde_json::{Value, json};
use thalweg_core::connector::SplitId;
use ureq::http::Method;

use super::body::{has_lines, records};
use super::options::ScanOptions;
use super::place::{Places, next_mark};
use crate::messaging::{Client, Inbox, Message};
use crate::network::http::{HttpClient, Reply};
use crate::network::{Attempt, Cancel, TICK, Timer};

/// The longest time that a server may ask for.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(600);

/// How far an answer was read.
#[derive(Clone, Debug, Default, PartialEq)]
struct Seen {
    etag: Option<String>,
    modified: Option<String>,
    /// How many records of it were read; `None`: all.
    records: Option<u64>,
}

impl Seen {
    fn of(reply: &Reply) -> Seen {
        let header = |name: &str| reply.header(name).map(str::to_owned);
        Seen { etag: header("etag"), modified: header("last-modified"), records: None }
    }

    fn write(&self, records: Option<u64>) -> Value {
        let mut place = json!({});
        if let Some(etag) = &self.etag {
            place["etag"] = etag.as_str().into();
        }
        if let Some(modified) = &self.modified {
            place["last_modified"] = modified.as_str().into();
        }
        if let Some(records) = records {
            place["records"] = records.into();
        }
        place
    }

    fn read(place: &Value) -> Seen {
        let text = |name: &str| place.get(name).and_then(Value::as_str).map(str::to_owned);
        let records = place.get("records").and_then(Value::as_u64);
        Seen { etag: text("etag"), modified: text("last_modified"), records }
    }

    /// True if both are the same answer, by what the server says.
    fn is_same(&self, other: &Seen) -> bool {
        let is_known = self.etag.is_some() || self.modified.is_some();
        is_known && (&self.etag, &self.modified) == (&other.etag, &other.modified)
    }
}

/// Polls.
pub struct Poller {
    options: ScanOptions,
    http: HttpClient,
    places: Places,
    cancel: Cancel,
    answer_bytes_max: u64,
    seen: Option<Seen>,
    since: Timer,
    /// The time to wait from then on.
    pause: Duration,
}

impl Poller {
    /// A client that polls.
    pub fn new(options: ScanOptions, places: Places, bytes_max: u64, cancel: Cancel) -> Poller {
        let http = HttpClient::new(options.http.settings.clone(), &cancel);
        Poller {
            options,
            http,
            places,
            cancel,
            answer_bytes_max: bytes_max,
            seen: None,
            since: Timer::default(),
            pause: Duration::ZERO,
        }
    }

    fn ask(&self) -> Attempt<Reply> {
        let seen = self.seen.clone().unwrap_or_default();
        let mut more = Vec::new();
        if seen.records.is_none() {
            more.extend(seen.etag.as_deref().map(|etag| ("If-None-Match", etag)));
            more.extend(seen.modified.as_deref().map(|time| ("If-Modified-Since", time)));
        }
        self.http.ask(&Method::GET, &self.options.http.url, &more, None, self.answer_bytes_max)
    }

    fn take(&mut self, reply: &Reply, inbox: &mut Inbox) {
        let found = Seen::of(reply);
        let begun = self.seen.take().filter(|seen| seen.is_same(&found));
        let skip = begun.and_then(|seen| seen.records).unwrap_or(0);
        let format = &self.options.http.records.format;
        let has_lines = has_lines(self.options.framing, format, reply.header("content-type"));
        let mut records = records(&reply.body, has_lines).skip(skip as usize).peekable();
        let mut taken = skip;
        while let Some(record) = records.next() {
            taken += 1;
            let mark = next_mark(inbox);
            let left = records.peek().is_some();
            self.places.set(mark, found.write(left.then_some(taken)));
            let message = Message {
                split: SplitId::ONLY,
                mark: Some(mark),
                value: Some(record),
                metadata: Vec::new(),
            };
            inbox.add(message);
        }
        self.seen = Some(found);
    }
}

impl Client for Poller {
    fn connect(&mut self, inbox: &Inbox) -> Attempt<()> {
        if self.seen.is_none() {
            self.seen = self.places.last(inbox).map(|place| Seen::read(&place));
        }
        Ok(())
    }

    fn receive(&mut self, inbox: &mut Inbox) -> Attempt<()> {
        let left = self.pause.saturating_sub(self.since.elapsed());
        if !left.is_zero() {
            self.cancel.sleep(left.min(TICK));
            return Ok(());
        }
        (self.since, self.pause) = (Timer::default(), self.options.interval);
        let reply = match self.ask() {
            Ok(reply) => reply,
            Err(failure) => {
                // The pause of a failure is that of the link, which grows.
                self.pause = Duration::ZERO;
                return Err(failure);
            }
        };
        match reply.status {
            200..=299 => self.take(&reply, inbox),
            304 => {}
            _ => {
                self.pause = reply.retry_after().unwrap_or_default().min(RETRY_AFTER_MAX);
                return Err(reply.failure(&self.options.http.url));
            }
        }
        inbox.caught_up(SplitId::ONLY);
        Ok(())
    }
}
