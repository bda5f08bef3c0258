//! `'connector' = 'websocket'`: the messages of a WebSocket, each a record.
//!
//! The peer keeps nothing, so a message comes at most once: what it sends while the job is away, or
//! between the last snapshot and a crash, is lost. A peer that is silent is asked whether it is
//! there (PING); one that does not answer has gone.

use std::collections::BTreeMap;
use std::time::Duration;

use thalweg_core::connector::{
    AcceptedChanges, Boundedness, Capabilities, Connector, ConnectorDescription, OptionDescription,
    Options, Secret, Source, SplitId, TableRequest, option_table, option_tables,
};
use thalweg_core::{Error, Result};
use tungstenite::client::{IntoClientRequest, client_with_config};
use tungstenite::handshake::HandshakeError;
use tungstenite::handshake::client::Request;
use tungstenite::http::{HeaderName, HeaderValue};
use tungstenite::protocol::WebSocketConfig;
use tungstenite::{Error as SocketError, Message as Received, WebSocket as Connection};

use crate::filesystem::FinishedLetters;
use crate::format::options::RECORD_FORMATS;
use crate::messaging::options::{BAD_DATA, CHANGES, RecordOptions, address};
use crate::messaging::{self, Client, Inbox, Message, SourceParts};
use crate::network::tcp::is_tick;
use crate::network::tls::Stream;
use crate::network::wire::{Address, CONNECT_WAIT};
use crate::network::{Attempt, Cancel, Failure, Timer};

/// A peer that is silent for this number of intervals of PING has gone.
const INTERVALS_OF_SILENCE: u32 = 2;

const OPTIONS: &[OptionDescription] = &option_table! {
    "url": Text, required(), of_source()
        => "`ws://HOST:PORT/PATH`, or `wss://…`";
    "format": Text, required(), of_source()
        => "the format of messages";
    "subscribe.message": Secret, of_source()
        => "a text that is sent when a connection is open, as many services want it before they send anything";
    "header.*": Secret, of_source()
        => "a header of the request that opens a connection: `header.Authorization`";
    "ping.interval": Duration, or("10 s"), of_source()
        => "a peer that was silent for this long is sent a PING, and has gone if it is silent for as long again; \
            at most `15 s`";
    "tls.ca-file": Text, of_source()
        => "with `wss://`: the file of certificates (PEM) of authorities that may have signed the server's";
};

const DESCRIPTION: ConnectorDescription = ConnectorDescription {
    capabilities: Capabilities::NONE.reading(Boundedness::Unbounded, CHANGES),
    options: option_tables![OPTIONS, BAD_DATA],
    formats: RECORD_FORMATS,
    ..ConnectorDescription::new("websocket", "messages of a WebSocket, at most once")
};

/// The connector.
#[derive(Default)]
pub struct WebSocket {
    finished: FinishedLetters,
}

struct SocketOptions {
    url: String,
    address: Address,
    records: RecordOptions,
    ping_interval: Duration,
    headers: Vec<(HeaderName, Secret)>,
    greeting: Option<Secret>,
}

impl SocketOptions {
    fn read(request: &TableRequest) -> Result<SocketOptions> {
        let options = Options::of(request, &DESCRIPTION)?;
        let url = options.required("url")?;
        let default_port = if url.starts_with("wss") { 443 } else { 80 };
        let schemes = [("ws", false), ("wss", true)];
        let (address, _) = address(&options, "url", &schemes, default_port)?;
        let records = RecordOptions::read(&options, request, &address.host)?;
        records.check_metadata(request, &[], None)?;
        let ping_ms = options.duration_ms("ping.interval")?.unwrap_or_default();
        if !(1..=15_000).contains(&ping_ms) {
            return Err(options.bad("ping.interval", &format!("{ping_ms} ms"), "1 ms to 15 s"));
        }
        for name in request.options.keys() {
            header_name(name, &options)?;
        }
        Ok(SocketOptions {
            url: url.to_owned(),
            address,
            records,
            ping_interval: Duration::from_millis(ping_ms),
            headers: Vec::new(),
            greeting: None,
        })
    }

    fn open(request: &TableRequest) -> Result<SocketOptions> {
        let mut read = SocketOptions::read(request)?;
        let options = Options::of(request, &DESCRIPTION)?;
        for name in request.options.keys() {
            if let (Some(header), Some(value)) =
                (header_name(name, &options)?, options.secret(name)?)
            {
                read.headers.push((header, value));
            }
        }
        read.greeting = options.secret("subscribe.message")?;
        read.records.open(&options, request)?;
        Ok(read)
    }

    fn request(&self) -> Result<Request> {
        let wrong = |error: &dyn std::fmt::Display| {
            Error::user(format!("{}: {error}", self.url)).hint("correct 'url' and the headers")
        };
        let mut request = self.url.as_str().into_client_request().map_err(|error| wrong(&error))?;
        for (name, value) in &self.headers {
            let value = HeaderValue::from_str(value.expose());
            let value = value.map_err(|_| wrong(&format!("header {name} has no valid value")))?;
            request.headers_mut().insert(name.clone(), value);
        }
        Ok(request)
    }
}

/// The header that an option is of, if it is one of a header.
fn header_name(option: &str, options: &Options<'_>) -> Result<Option<HeaderName>> {
    let Some(name) = option.strip_prefix("header.") else { return Ok(None) };
    let parsed = name.parse();
    parsed.map(Some).map_err(|_| options.conflict(&format!("'{name}' is no name of a header")))
}

impl Connector for WebSocket {
    fn description(&self) -> &ConnectorDescription {
        &DESCRIPTION
    }

    fn validate(&self, request: &TableRequest, _as_sink: bool) -> Result<()> {
        SocketOptions::read(request).map(drop)
    }

    fn held_changes(&self, request: &TableRequest) -> AcceptedChanges {
        let options = SocketOptions::read(request);
        options.map_or(AcceptedChanges::Inserts, |options| options.records.format.changes())
    }

    fn state_options(&self, _request: &TableRequest, _as_sink: bool) -> BTreeMap<String, String> {
        BTreeMap::new()
    }

    fn source(&self, request: &TableRequest) -> Result<Box<dyn Source>> {
        let options = SocketOptions::open(request)?;
        let cancel = Cancel::default();
        let (peer, records) = (options.url.clone(), options.records.clone());
        let client = SocketReader {
            options,
            message_bytes_max: request.memory_limit_bytes / 4,
            connection: None,
            heard: Timer::default(),
            has_asked: false,
            cancel: cancel.clone(),
        };
        let finished = self.finished.clone();
        let parts = SourceParts::at_most_once(peer, records, Box::new(client), finished, cancel);
        messaging::open(request, parts)
    }
}

/// Reads a connection.
struct SocketReader {
    options: SocketOptions,
    message_bytes_max: usize,
    connection: Option<Connection<Stream>>,
    /// Since when nothing was heard.
    heard: Timer,
    /// The peer was asked whether it is there.
    has_asked: bool,
    cancel: Cancel,
}

impl SocketReader {
    fn handshake(&self, stream: Stream) -> Attempt<Connection<Stream>> {
        let since = Timer::default();
        let config = WebSocketConfig::default()
            .max_message_size(Some(self.message_bytes_max))
            .max_frame_size(Some(self.message_bytes_max));
        let mut result = client_with_config(self.options.request()?, stream, Some(config));
        loop {
            match result {
                Ok((connection, _)) => return Ok(connection),
                Err(HandshakeError::Failure(error)) => return Err(self.failure(error)),
                Err(HandshakeError::Interrupted(_)) if self.cancel.is_set() => {
                    return Err(Failure::Cancelled);
                }
                Err(HandshakeError::Interrupted(_)) if since.elapsed() > CONNECT_WAIT => {
                    return Err(Failure::Passing("no answer to the handshake".to_owned()));
                }
                Err(HandshakeError::Interrupted(half)) => result = half.handshake(),
            }
        }
    }

    fn failure(&self, error: SocketError) -> Failure {
        let is_refusal = match &error {
            SocketError::Http(answer) => {
                answer.status().is_client_error()
                    && !matches!(answer.status().as_u16(), 408 | 425 | 429)
            }
            SocketError::Capacity(_) | SocketError::Url(_) | SocketError::HttpFormat(_) => true,
            _ => false,
        };
        match is_refusal {
            _ if self.cancel.is_set() => Failure::Cancelled,
            true => Failure::Final(Error::io(format!("{}: {error}", self.options.url)).hint(
                "correct 'url' and the headers; a message may take a quarter of the memory limit",
            )),
            false => Failure::Passing(error.to_string()),
        }
    }

    /// The next message, if there is one. What the protocol itself needs is answered on the way.
    fn next(&mut self) -> Attempt<Option<Received>> {
        let Some(connection) = &mut self.connection else {
            return Err(Failure::Passing("not connected".to_owned()));
        };
        match connection.read() {
            Ok(received) => {
                (self.heard, self.has_asked) = (Timer::default(), false);
                Ok(Some(received))
            }
            Err(SocketError::Io(error)) if is_tick(&error) => Ok(None),
            Err(error) => Err(self.failure(error)),
        }
    }

    /// Asks a silent peer whether it is there.
    ///
    /// # Errors
    /// If it was asked, and has gone.
    fn check_silence(&mut self) -> Attempt<()> {
        let silent = self.heard.elapsed();
        if silent > self.options.ping_interval * INTERVALS_OF_SILENCE {
            return Err(Failure::Passing(format!("no word for {} ms", silent.as_millis())));
        }
        if silent > self.options.ping_interval && !std::mem::replace(&mut self.has_asked, true) {
            return self.send(Received::Ping(Vec::new().into()));
        }
        Ok(())
    }

    fn send(&mut self, message: Received) -> Attempt<()> {
        let Some(connection) = &mut self.connection else { return Ok(()) };
        match connection.send(message) {
            Ok(()) => Ok(()),
            // It goes with what is sent next, or read.
            Err(SocketError::Io(error)) if is_tick(&error) => Ok(()),
            Err(error) => Err(self.failure(error)),
        }
    }

    /// Whether reads wait for a tick.
    fn set_waiting(&self, waits: bool) -> Attempt<()> {
        let Some(connection) = &self.connection else { return Ok(()) };
        let set = connection.get_ref().tcp().set_nonblocking(!waits);
        set.map_err(|error| Failure::Passing(error.to_string()))
    }

    fn take_all(&mut self, inbox: &mut Inbox) -> Attempt<()> {
        let mut next = self.next()?;
        self.set_waiting(false)?;
        while let Some(received) = next {
            let value = match &received {
                Received::Text(text) => Some(text.as_bytes()),
                Received::Binary(bytes) => Some(bytes.as_ref()),
                _ => None,
            };
            if value.is_some() {
                let (mark, metadata) = (None, Vec::new());
                inbox.add(Message { split: SplitId::ONLY, mark, value, metadata });
            }
            next = if inbox.is_full() { None } else { self.next()? };
        }
        Ok(())
    }
}

impl Client for SocketReader {
    fn connect(&mut self, _inbox: &Inbox) -> Attempt<()> {
        self.connection = None;
        self.connection = Some(self.handshake(self.options.address.connect(&self.cancel)?)?);
        (self.heard, self.has_asked) = (Timer::default(), false);
        match self.options.greeting.clone() {
            Some(greeting) => self.send(Received::Text(greeting.expose().into())),
            None => Ok(()),
        }
    }

    fn receive(&mut self, inbox: &mut Inbox) -> Attempt<()> {
        if self.cancel.is_set() {
            return Err(Failure::Cancelled);
        }
        let taken = self.take_all(inbox);
        self.set_waiting(true)?;
        taken?;
        if !inbox.is_full() {
            inbox.caught_up(SplitId::ONLY);
        }
        self.check_silence()
    }

    fn idle(&mut self, inbox: &mut Inbox) -> Attempt<()> {
        if inbox.is_full() {
            // Nothing is read, so the peer is not known to be silent.
            (self.heard, self.has_asked) = (Timer::default(), false);
            return Ok(());
        }
        self.receive(inbox)
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use thalweg_core::{Column, DataType, TableSchema};

    use super::*;
    use crate::conformance::{Started, check_source_cancel};
    use crate::test_server::TestServer;

    fn source(port: u16, options: &[(&str, &str)]) -> Box<dyn Source> {
        let columns = vec![Column::new("n", DataType::BigInt.nullable())];
        let url = format!("ws://127.0.0.1:{port}/feed");
        let own = [("url", url.as_str()), ("format", "json")];
        let options = own.iter().chain(options).map(|(k, v)| (k.to_string(), v.to_string()));
        let request = TableRequest {
            table: "t".to_owned(),
            schema: TableSchema::new(columns),
            options: options.collect(),
            ..TableRequest::default()
        };
        WebSocket::default().source(&request).expect("a source")
    }

    #[test]
    fn messages_come_after_a_subscription_and_over_new_connections() {
        let server = TestServer::start(|stream: TcpStream| {
            let mut socket = tungstenite::accept(stream).expect("a handshake");
            let asked = socket.read().expect("a subscription").into_text().expect("a text");
            assert_eq!(asked.as_str(), "give me s3cret");
            for n in 0..3 {
                socket.send(Received::text(format!("{{\"n\": {n}}}"))).expect("sent");
            }
            socket.send(Received::binary(&b"{\"n\": 3}"[..])).expect("sent");
            let _closed = socket.close(None);
        });
        let source = source(server.port, &[("subscribe.message", "give me s3cret")]);
        let mut started = Started::new(source, None).expect("started");
        assert_eq!(started.numbers(8)[..8], [0, 1, 2, 3, 0, 1, 2, 3]);
    }

    #[test]
    fn a_peer_that_answers_no_ping_has_gone() {
        let times = AtomicUsize::new(0);
        let server = TestServer::start(move |stream: TcpStream| {
            let mut socket = tungstenite::accept(stream).expect("a handshake");
            let number = times.fetch_add(1, Ordering::SeqCst);
            socket.send(Received::text(format!("{{\"n\": {number}}}"))).expect("sent");
            if number == 0 {
                // It reads nothing, so that it answers nothing.
                std::thread::sleep(Duration::from_secs(5));
            }
            while socket.read().is_ok() {}
        });
        let source = source(server.port, &[("ping.interval", "200 ms")]);
        let mut started = Started::new(source, None).expect("started");
        assert_eq!(started.numbers(2), [0, 1]);
        // One that answers stays.
        let quiet = Timer::default();
        while quiet.elapsed() < Duration::from_millis(900) {
            let polled = started.source().poll(9).expect("no error");
            assert!(!matches!(polled, thalweg_core::connector::SourcePoll::Batch(_)));
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    #[test]
    fn a_stuck_server_holds_nobody_up_and_one_that_refuses_fails_the_start() {
        let silent = TestServer::start(|stream: TcpStream| {
            let _socket = tungstenite::accept(stream).expect("a handshake");
            std::thread::sleep(Duration::from_secs(5));
        });
        check_source_cancel(source(silent.port, &[])).expect("started");
        let refusing = crate::test_server::http_server(0, |_| (403, String::new(), String::new()));
        let error = Started::new(source(refusing.port, &[]), None).err().expect("refused");
        assert!(error.to_string().contains("403"), "{error}");
    }
}
