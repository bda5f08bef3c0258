//! A small server of HTTP/1.1 for rows that are POSTed. The syntax of requests is httparse's.
//!
//! # Limits
//! - A connection has a thread, and the number of connections is limited.
//! - A request must come in whole within a time, however slowly its bytes come; an idle connection
//!   is closed after [`IDLE_WAIT`].
//! - Bodies have a length that is said before, and all that wait count toward one limit of bytes.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};

use crate::network::tcp::{is_tick, prepared};
use crate::network::{Cancel, TICK, Timer};

/// The longest head of a request.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// The most headers.
const HEADERS_MAX: usize = 64;
/// How long a connection may be idle.
const IDLE_WAIT: Duration = Duration::from_secs(60);
/// How long a peer may take to take an answer.
const ANSWER_WAIT: Duration = Duration::from_secs(10);
/// Bytes that are read at a time.
const READ_BYTES: usize = 16 << 10;

/// A request.
#[derive(Debug, Default)]
pub struct Asked {
    /// Its method.
    pub method: String,
    /// What it asks for.
    pub path: String,
    /// Its headers, with names in lower case.
    pub headers: Vec<(String, String)>,
    /// Its body.
    pub body: Vec<u8>,
}

impl Asked {
    /// A header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Its status.
    pub status: u16,
    /// What it says, as JSON.
    pub body: String,
    /// The connection ends with it.
    pub closes: bool,
}

impl Answer {
    /// An answer that says this.
    pub fn new(status: u16, key: &str, text: &str) -> Answer {
        let body = serde_json::json!({ key: text }).to_string();
        Answer { status, body, closes: false }
    }

    /// An error, of a request whose rest is not read.
    fn closing(status: u16, text: &str) -> Answer {
        Answer { closes: true, ..Answer::new(status, "error", text) }
    }

    fn write(&self, stream: &mut TcpStream) -> io::Result<()> {
        let reason = match self.status {
            200 => "OK",
            400 => "Bad Request",
            401 => "Unauthorized",
            404 => "Not Found",
            405 => "Method Not Allowed",
            408 => "Request Timeout",
            411 => "Length Required",
            413 => "Content Too Large",
            415 => "Unsupported Media Type",
            431 => "Request Header Fields Too Large",
            _ => "Service Unavailable",
        };
        let more = match self.status {
            401 => "WWW-Authenticate: Bearer\r\n",
            405 => "Allow: POST\r\n",
            503 => "Retry-After: 1\r\n",
            _ => "",
        };
        let connection = if self.closes { "Connection: close\r\n" } else { "" };
        let (status, length) = (self.status, self.body.len());
        let text = format!(
            "HTTP/1.1 {status} {reason}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\
             {more}{connection}\r\n{}",
            self.body
        );
        write_all(stream, text.as_bytes())
    }
}

fn write_all(stream: &mut TcpStream, bytes: &[u8]) -> io::Result<()> {
    let (since, mut sent) = (Timer::default(), 0);
    while sent < bytes.len() {
        match stream.write(&bytes[sent..]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => sent += written,
            Err(error) if is_tick(&error) && since.elapsed() < ANSWER_WAIT => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// What a server allows.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The most connections.
    pub connections: usize,
    /// The longest body.
    pub body_bytes: usize,
    /// The most bytes of all bodies that wait.
    pub waiting_bytes: usize,
    /// How long a request may take to come in whole.
    pub request_time: Duration,
}

/// Bytes that wait, which are given back when it is dropped.
pub struct Held {
    all: Arc<AtomicUsize>,
    bytes: usize,
}

impl Held {
    /// More bytes wait: up to `most` in all, or one body that is longer.
    pub fn take(all: &Arc<AtomicUsize>, bytes: usize, most: usize) -> Option<Held> {
        let before = all.fetch_add(bytes, Ordering::Relaxed);
        let held = Held { all: Arc::clone(all), bytes };
        Some(held).filter(|_| before == 0 || before + bytes <= most)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // Relaxed: the number alone counts.
        self.all.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// What answers requests.
pub trait Serve: Send + Sync + 'static {
    /// An answer to the head of a request whose body is not read; `None`: it is wanted.
    fn refuse(&self, asked: &Asked) -> Option<Answer>;
    /// The answer.
    fn answer(&self, asked: Asked, held: Held) -> Answer;
}

/// Takes connections until the flag is set.
///
/// # Errors
/// If there is no thread.
pub fn start(
    listener: TcpListener,
    limits: Limits,
    serve: Arc<dyn Serve>,
    cancel: Cancel,
) -> io::Result<()> {
    set_socket_timeout(&listener, Timeout::Recv, Some(TICK))?;
    let (open, bytes) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let run = move || {
        while !cancel.is_set() {
            let Ok((stream, _)) = listener.accept() else {
                // A tick is over, or the process has no more files: neither is helped by haste.
                std::thread::sleep(Duration::from_millis(1));
                continue;
            };
            let Ok(mut stream) = prepared(stream) else { continue };
            if open.fetch_add(1, Ordering::SeqCst) >= limits.connections {
                open.fetch_sub(1, Ordering::SeqCst);
                let _ = Answer::closing(503, "too many connections").write(&mut stream);
                continue;
            }
            let connection = Connection {
                stream,
                input: Vec::new(),
                limits: limits.clone(),
                bytes: Arc::clone(&bytes),
                cancel: cancel.clone(),
            };
            let (serve, counted) = (Arc::clone(&serve), Arc::clone(&open));
            let body = move || {
                connection.run(serve.as_ref());
                counted.fetch_sub(1, Ordering::SeqCst);
            };
            let spawned = std::thread::Builder::new().name("take rows".to_owned()).spawn(body);
            if spawned.is_err() {
                open.fetch_sub(1, Ordering::SeqCst);
            }
        }
    };
    std::thread::Builder::new().name("listen".to_owned()).spawn(run).map(drop)
}

struct Connection {
    stream: TcpStream,
    input: Vec<u8>,
    limits: Limits,
    bytes: Arc<AtomicUsize>,
    cancel: Cancel,
}

/// Why there is no request.
enum NoRequest {
    /// The connection has ended.
    Gone,
    /// It is no request, or not one that is taken.
    Refused(Answer),
}

impl From<io::Error> for NoRequest {
    fn from(_: io::Error) -> Self {
        NoRequest::Gone
    }
}

impl Connection {
    fn run(mut self, serve: &dyn Serve) {
        loop {
            let answer = match self.next_request(serve) {
                Ok((asked, held)) => {
                    let closes = asked
                        .header("connection")
                        .is_some_and(|it| it.eq_ignore_ascii_case("close"));
                    let answer = serve.answer(asked, held);
                    Answer { closes: answer.closes || closes, ..answer }
                }
                Err(NoRequest::Refused(answer)) => answer,
                Err(NoRequest::Gone) => return,
            };
            if answer.write(&mut self.stream).is_err() {
                return;
            }
            if answer.closes {
                self.drain();
                return;
            }
        }
    }

    /// Takes what is still on its way, for a moment: a connection that is closed over unread bytes
    /// is reset, and its peer might not see the answer.
    fn drain(&mut self) {
        let since = Timer::default();
        let _ = self.stream.shutdown(std::net::Shutdown::Write);
        let mut rest = [0; 4096];
        while since.elapsed() < Duration::from_secs(1) && !self.cancel.is_set() {
            if let Ok(0) = self.stream.read(&mut rest) {
                return;
            }
        }
    }

    fn next_request(&mut self, serve: &dyn Serve) -> Result<(Asked, Held), NoRequest> {
        let idle = Timer::default();
        while self.input.is_empty() {
            if idle.elapsed() > IDLE_WAIT {
                return Err(NoRequest::Gone);
            }
            self.fill()?;
        }
        let since = Timer::default();
        let (mut asked, head_length) = loop {
            if let Some(found) = parse_head(&self.input)? {
                break found;
            }
            self.check_time(&since)?;
            self.fill()?;
        };
        self.input.drain(..head_length);
        if let Some(answer) = serve.refuse(&asked) {
            return Err(NoRequest::Refused(Answer { closes: true, ..answer }));
        }
        let length = self.body_length(&asked)?;
        let held = self.hold(length)?;
        let expects = asked.header("expect");
        if expects.is_some_and(|expects| expects.eq_ignore_ascii_case("100-continue")) {
            write_all(&mut self.stream, b"HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        while self.input.len() < length {
            self.check_time(&since)?;
            self.fill()?;
        }
        let rest = self.input.split_off(length);
        asked.body = std::mem::replace(&mut self.input, rest);
        Ok((asked, held))
    }

    fn body_length(&self, asked: &Asked) -> Result<usize, NoRequest> {
        let refuse = |status, text: &str| Err(NoRequest::Refused(Answer::closing(status, text)));
        if asked.header("content-encoding").is_some_and(|encoding| encoding != "identity") {
            return refuse(415, "compressed bodies are not taken");
        }
        if asked.header("transfer-encoding").is_some() {
            return refuse(411, "send Content-Length: bodies in chunks are not taken");
        }
        let Some(length) = asked.header("content-length") else {
            return refuse(411, "send Content-Length");
        };
        if asked.headers.iter().filter(|(name, _)| name == "content-length").count() > 1 {
            return refuse(400, "the request has two lengths");
        }
        match length.parse::<usize>() {
            Ok(length) if length <= self.limits.body_bytes => Ok(length),
            Ok(_) => {
                let most = self.limits.body_bytes;
                refuse(413, &format!("the body is longer than {most} bytes: send fewer rows"))
            }
            Err(_) => refuse(400, "Content-Length is no number"),
        }
    }

    fn hold(&self, bytes: usize) -> Result<Held, NoRequest> {
        let held = Held::take(&self.bytes, bytes, self.limits.waiting_bytes);
        held.ok_or_else(|| NoRequest::Refused(Answer::closing(503, "too many rows wait")))
    }

    fn check_time(&self, since: &Timer) -> Result<(), NoRequest> {
        match since.elapsed() > self.limits.request_time {
            true => Err(NoRequest::Refused(Answer::closing(408, "the request came too slowly"))),
            false => Ok(()),
        }
    }

    /// Reads what is there; nothing, if a tick is over.
    fn fill(&mut self) -> io::Result<()> {
        if self.cancel.is_set() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let used = self.input.len();
        self.input.resize(used + READ_BYTES, 0);
        let read = self.stream.read(&mut self.input[used..]);
        self.input.truncate(used + *read.as_ref().unwrap_or(&0));
        match read {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => Ok(()),
            Err(error) if is_tick(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// The head of a request and its length, if it is there in full.
fn parse_head(input: &[u8]) -> Result<Option<(Asked, usize)>, NoRequest> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    let refuse = |status, text: &str| Err(NoRequest::Refused(Answer::closing(status, text)));
    match request.parse(input) {
        Ok(httparse::Status::Complete(length)) if length <= HEAD_BYTES_MAX => {
            let header = |header: &httparse::Header<'_>| {
                let value = String::from_utf8_lossy(header.value).into_owned();
                (header.name.to_ascii_lowercase(), value)
            };
            let is_old = request.version == Some(0);
            let mut asked = Asked {
                method: request.method.unwrap_or_default().to_owned(),
                path: request.path.unwrap_or_default().to_owned(),
                headers: request.headers.iter().map(header).collect(),
                body: Vec::new(),
            };
            if is_old && asked.header("connection").is_none() {
                asked.headers.push(("connection".to_owned(), "close".to_owned()));
            }
            Ok(Some((asked, length)))
        }
        Ok(httparse::Status::Partial) if input.len() <= HEAD_BYTES_MAX => Ok(None),
        Ok(_) | Err(httparse::Error::TooManyHeaders) => {
            refuse(431, "the head of the request is too long")
        }
        Err(error) => refuse(400, &format!("this is no request of HTTP: {error}")),
    }
}
