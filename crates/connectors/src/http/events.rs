//! Reads a stream of server-sent events. The identifier of the last event is the position: the
//! server continues behind it, also after a restart.

use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use serde_json::Value;
use thalweg_core::connector::SplitId;
use thalweg_core::{Error, Result};
use ureq::http::Method;

use super::options::ScanOptions;
use super::place::{Places, next_mark};
use crate::messaging::{Client, Inbox, Message, Metadata};
use crate::network::http::{HttpClient, Reply, header};
use crate::network::{Attempt, Cancel, Failure, TICK};

/// Pieces of the stream that wait.
const PIECES_AHEAD: usize = 16;
/// The bytes of a piece.
const PIECE_BYTES: usize = 32 << 10;
/// How long a server may take to begin.
const ANSWER_WAIT: Duration = Duration::from_secs(10);
/// The bytes of a server's refusal that are read.
const REFUSAL_BYTES: u64 = 64 << 10;

/// A piece of the stream, or why there are no more.
type Piece = std::result::Result<Vec<u8>, String>;

/// Reads events.
pub struct EventReader {
    options: ScanOptions,
    places: Places,
    cancel: Cancel,
    event_bytes_max: usize,
    /// Ends the connection, and its thread.
    connection: Cancel,
    pieces: Option<Receiver<Piece>>,
    parser: EventParser,
}

impl Drop for EventReader {
    fn drop(&mut self) {
        self.connection.set();
    }
}

impl EventReader {
    /// A reader of events.
    pub fn new(options: ScanOptions, places: Places, bytes_max: usize, cancel: Cancel) -> Self {
        EventReader {
            options,
            places,
            event_bytes_max: bytes_max,
            connection: cancel.of_part(),
            cancel,
            pieces: None,
            parser: EventParser::default(),
        }
    }

    fn open(&self, last_id: Option<&str>) -> Attempt<Box<dyn Read + Send>> {
        let mut settings = self.options.http.settings.clone();
        settings.answer_begins_within = Some(ANSWER_WAIT);
        let http = HttpClient::new(settings, &self.connection);
        let url = &self.options.http.url;
        let mut more = vec![("Accept", "text/event-stream"), ("Cache-Control", "no-store")];
        more.extend(last_id.filter(|id| !id.is_empty()).map(|id| ("Last-Event-ID", id)));
        let mut answer = http.open(&Method::GET, url, &more, None)?;
        if answer.status() != 200 {
            let limited = answer.body_mut().with_config().limit(REFUSAL_BYTES);
            let body = limited.read_to_vec().unwrap_or_default();
            let (parts, _) = answer.into_parts();
            let status = parts.status.as_u16();
            return Err(Reply { status, headers: parts.headers, body }.failure(url));
        }
        let content_type = header(answer.headers(), "content-type").unwrap_or("nothing");
        if !content_type.starts_with("text/event-stream") {
            return Err(Failure::Final(
                Error::user(format!("{url} is no stream of events: it is {content_type}"))
                    .hint("correct 'url', or read it with 'scan.mode' = 'poll'"),
            ));
        }
        Ok(Box::new(answer.into_body().into_reader()))
    }

    fn take(&mut self, piece: &[u8], inbox: &mut Inbox) -> Result<()> {
        let parser = &mut self.parser;
        parser.feed(piece);
        while let Some(event) = parser.next_event() {
            let mark = next_mark(inbox);
            if let Some(id) = &parser.last_id {
                self.places.set(mark, Value::String(id.to_string()));
            }
            let text = |text: Option<&str>| {
                text.map_or(Metadata::Null, |text| Metadata::Text(text.to_owned()))
            };
            let metadata = inbox.wants().iter().map(|key| match key.as_str() {
                "event-type" => text(Some(&event.name)),
                _ => text(parser.last_id.as_deref()),
            });
            let metadata = metadata.collect();
            let value = Some(event.data.as_bytes());
            inbox.add(Message { split: SplitId::ONLY, mark: Some(mark), value, metadata });
        }
        if self.parser.waiting() > self.event_bytes_max {
            let max_mib = self.event_bytes_max >> 20;
            return Err(Error::data(format!("an event is longer than {max_mib} MiB"))
                .hint("raise the job's memory limit"));
        }
        Ok(())
    }
}

impl Client for EventReader {
    fn connect(&mut self, inbox: &Inbox) -> Attempt<()> {
        if self.cancel.is_set() {
            return Err(Failure::Cancelled);
        }
        self.connection.set();
        self.connection = self.cancel.of_part();
        self.pieces = None;
        let restored = self.places.last(inbox);
        let restored = restored.as_ref().and_then(Value::as_str).map(Arc::from);
        self.parser = EventParser { last_id: restored, ..EventParser::default() };
        let last_id = self.parser.last_id.clone();
        let stream = self.open(last_id.as_deref())?;
        let (pieces_in, pieces) = bounded(PIECES_AHEAD);
        let connection = self.connection.clone();
        let body = move || read_pieces(stream, &pieces_in, &connection);
        let spawned = std::thread::Builder::new().name("read events".to_owned()).spawn(body);
        spawned.map_err(|e| Error::resource(format!("no thread for a connection: {e}")))?;
        self.pieces = Some(pieces);
        Ok(())
    }

    fn receive(&mut self, inbox: &mut Inbox) -> Attempt<()> {
        let Some(pieces) = self.pieces.clone() else {
            return Err(Failure::Passing("not connected".to_owned()));
        };
        if self.cancel.is_set() {
            self.connection.set();
            return Err(Failure::Cancelled);
        }
        let mut next = pieces.recv_timeout(TICK);
        loop {
            match next {
                Ok(Ok(piece)) => self.take(&piece, inbox)?,
                Ok(Err(why)) => return Err(Failure::Passing(why)),
                Err(RecvTimeoutError::Timeout) => {
                    inbox.caught_up(SplitId::ONLY);
                    return Ok(());
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Failure::Passing("the server has ended the stream".to_owned()));
                }
            }
            if inbox.is_full() {
                return Ok(());
            }
            next = pieces.recv_timeout(Duration::ZERO);
        }
    }

    fn close(&mut self) {
        self.connection.set();
    }
}

/// Reads until nobody wants more.
fn read_pieces(mut stream: Box<dyn Read + Send>, pieces: &Sender<Piece>, connection: &Cancel) {
    loop {
        let mut piece = vec![0; PIECE_BYTES];
        let piece = match stream.read(&mut piece) {
            Ok(0) => return,
            Ok(read) => {
                piece.truncate(read);
                Ok(piece)
            }
            Err(error) => Err(error.to_string()),
        };
        let is_last = piece.is_err();
        let mut left = Some(piece);
        while let Some(piece) = left.take() {
            match pieces.send_timeout(piece, TICK) {
                Err(crossbeam_channel::SendTimeoutError::Timeout(back)) if !connection.is_set() => {
                    left = Some(back);
                }
                Err(_) => return,
                Ok(()) => {}
            }
        }
        if is_last {
            return;
        }
    }
}

/// An event.
#[derive(Debug, PartialEq, Eq)]
struct Event {
    name: String,
    data: String,
}

/// Finds events in a stream, as the HTML standard has them.
#[derive(Default)]
struct EventParser {
    input: Vec<u8>,
    has_begun: bool,
    name: String,
    data: String,
    has_data: bool,
    /// What the next event will be known by.
    id: Option<Arc<str>>,
    /// What the last event is known by, or the last one before it that had an identifier.
    last_id: Option<Arc<str>>,
}

impl EventParser {
    fn feed(&mut self, piece: &[u8]) {
        self.input.extend_from_slice(piece);
        const MARK: &[u8] = b"\xEF\xBB\xBF";
        if !self.has_begun && self.input.len() >= MARK.len() {
            self.has_begun = true;
            if self.input.starts_with(MARK) {
                self.input.drain(..MARK.len());
            }
        }
    }

    /// Bytes of an event that is not complete.
    fn waiting(&self) -> usize {
        self.input.len() + self.data.len()
    }

    /// The next event that is complete.
    fn next_event(&mut self) -> Option<Event> {
        let (mut at, mut event) = (0, None);
        while event.is_none() {
            let rest = &self.input[at..];
            let Some(end) = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')) else {
                break;
            };
            // A line feed may follow that has not come yet.
            let behind = match (rest[end], rest.get(end + 1)) {
                (b'\r', None) => break,
                (b'\r', Some(b'\n')) => end + 2,
                _ => end + 1,
            };
            let line = String::from_utf8_lossy(&rest[..end]).into_owned();
            at += behind;
            event = self.line(&line);
        }
        self.input.drain(..at);
        event
    }

    fn line(&mut self, line: &str) -> Option<Event> {
        if line.is_empty() {
            return self.dispatch();
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.name),
            "data" => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.data.push('\n');
                }
                self.data.push_str(value);
            }
            "id" if !value.contains('\0') => self.id = Some(value.into()),
            // A comment, `retry`, or what is not known.
            _ => {}
        }
        None
    }

    fn dispatch(&mut self) -> Option<Event> {
        if let Some(id) = self.id.take() {
            self.last_id = Some(id);
        }
        let (name, data) = (std::mem::take(&mut self.name), std::mem::take(&mut self.data));
        let name = if name.is_empty() { "message".to_owned() } else { name };
        std::mem::take(&mut self.has_data).then_some(Event { name, data })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_those_of_the_standard_wherever_pieces_are_cut() {
        let stream = "\u{FEFF}: hello\r\ndata: a\rdata:b\n\nid: 1\nevent: x\ndata\n\n\
                      id\ndata:  c\r\n\r\nretry: 9\nevent: lost\n\nid: 7\n\ndata: d\n\ndata: cut\n";
        for size in 1..stream.len() {
            let mut parser = EventParser::default();
            let mut found = Vec::new();
            for piece in stream.as_bytes().chunks(size) {
                parser.feed(piece);
                while let Some(Event { name, data }) = parser.next_event() {
                    let id = parser.last_id.clone();
                    found.push((name, data, id.as_deref().map(str::to_owned)));
                }
            }
            let event = |name: &str, data: &str, id: Option<&str>| {
                (name.to_owned(), data.to_owned(), id.map(str::to_owned))
            };
            let expected = [
                event("message", "a\nb", None),
                event("x", "", Some("1")),
                event("message", " c", Some("")),
                event("message", "d", Some("7")),
            ];
            assert_eq!(found, expected, "in pieces of {size} bytes");
        }
    }
}
