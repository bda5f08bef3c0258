//! Requests of HTTP that end with a [`Cancel`], over connections that notice when their peer has
//! gone.
//!
//! The protocol and TLS are ureq's; the bytes go over our own connections ([`super::tcp`]), whose
//! calls end within a [`super::TICK`]. A connection is kept for the next request. Redirections are
//! answers like others: another host was not allowed. Proxies of the environment are not used.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use thalweg_core::connector::{AllowedTargets, Secret};
use thalweg_core::{Error, Result};
use ureq::http::{HeaderMap, Method, Request, Response};
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::unversioned::resolver::DefaultResolver;
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, Either, LazyBuffers, NextTimeout, RustlsConnector,
    Transport,
};
use ureq::{Agent, Body, Error as HttpError};

use super::tcp::{check_addresses, is_tick, prepared};
use super::{Attempt, Cancel, Failure, Timer};

/// How long a connection may take to open where no option says it.
const CONNECT_WAIT: Duration = Duration::from_secs(10);
/// One attempt to connect; the flag is looked at between attempts.
const CONNECT_STEP: Duration = Duration::from_secs(1);

/// What is read of an answer that is not needed.
const EXCERPT_BYTES: u64 = 64 << 10;

/// A header, whose value is shown nowhere.
pub type Header = (String, Secret);

/// How requests are made.
#[derive(Clone, Debug, Default)]
pub struct HttpSettings {
    /// Headers of each request.
    pub headers: Vec<Header>,
    /// How long an answer may take; `None` for an answer without an end.
    pub timeout: Option<Duration>,
    /// How long a connection may take to open.
    pub connect_timeout: Option<Duration>,
    /// How long an answer may take to begin.
    pub answer_begins_within: Option<Duration>,
    /// Trusted authorities; `None` for those that browsers trust.
    pub authorities: Option<Vec<Certificate<'static>>>,
    /// Which addresses the name of a host may lead to.
    pub targets: AllowedTargets,
}

/// The certificates in a file in PEM form.
///
/// # Errors
/// If it can't be read, or holds none.
pub fn authorities(path: &Path) -> Result<Vec<Certificate<'static>>> {
    let failed = |error: &dyn fmt::Display| {
        Error::io(format!("trusted authorities: {error}")).in_file(path.display().to_string())
    };
    let pem = std::fs::read(path).map_err(|error| failed(&error))?;
    let items = parse_pem(&pem).filter_map(|item| match item {
        Ok(PemItem::Certificate(certificate)) => Some(Ok(certificate)),
        Ok(_) => None,
        Err(error) => Some(Err(failed(&error))),
    });
    let found = items.collect::<Result<Vec<_>>>()?;
    match found.is_empty() {
        true => Err(failed(&"the file has no certificate")),
        false => Ok(found),
    }
}

/// Makes requests.
#[derive(Clone)]
pub struct HttpClient {
    agent: Agent,
    headers: Vec<Header>,
    cancel: Cancel,
}

/// An answer.
pub struct Reply {
    /// Its status.
    pub status: u16,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Vec<u8>,
}

impl Reply {
    /// A header, if it is there and a text.
    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.headers, name)
    }

    /// What a server that can't serve now says about when to come back.
    pub fn retry_after(&self) -> Option<Duration> {
        self.header("retry-after")?.trim().parse().ok().map(Duration::from_secs)
    }

    /// The beginning of the body, for messages.
    pub fn excerpt(&self) -> String {
        let text = String::from_utf8_lossy(&self.body[..self.body.len().min(800)]);
        text.chars().filter(|c| !c.is_control()).take(200).collect()
    }

    /// What went wrong: an error of a server that may pass, or one that stays.
    pub fn failure(&self, what: &str) -> Failure {
        let message = format!("{what} answers {} {}", self.status, self.excerpt());
        match self.status {
            408 | 425 | 429 | 500..=599 => Failure::Passing(message),
            _ => Failure::Final(Error::io(message)),
        }
    }
}

/// A header, if it is there and a text.
pub fn header<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name)?.to_str().ok()
}

impl HttpClient {
    /// A client whose requests end with this flag.
    pub fn new(settings: HttpSettings, cancel: &Cancel) -> HttpClient {
        let roots = match settings.authorities {
            None => RootCerts::WebPki,
            Some(authorities) => RootCerts::new_with_certs(&authorities),
        };
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .user_agent("thalweg")
            .timeout_global(settings.timeout)
            .timeout_recv_response(settings.answer_begins_within)
            .timeout_connect(Some(settings.connect_timeout.unwrap_or(CONNECT_WAIT)))
            .tls_config(TlsConfig::builder().root_certs(roots).build())
            .build();
        let tcp = Tcp { cancel: cancel.clone(), targets: settings.targets };
        let connector = ().chain(tcp).chain(RustlsConnector::default());
        let agent = Agent::with_parts(config, connector, DefaultResolver::default());
        HttpClient { agent, headers: settings.headers, cancel: cancel.clone() }
    }

    /// Makes a request, and reads its answer as a whole.
    ///
    /// # Errors
    /// If there is none, or it is longer than this.
    pub fn ask(
        &self,
        method: &Method,
        url: &str,
        more: &[(&str, &str)],
        body: Option<&[u8]>,
        answer_bytes_max: u64,
    ) -> Attempt<Reply> {
        let mut answer = self.open(method, url, more, body)?;
        let limited = answer.body_mut().with_config().limit(answer_bytes_max);
        let body = limited.read_to_vec().map_err(|error| self.failure(&error, url))?;
        let (parts, _) = answer.into_parts();
        Ok(Reply { status: parts.status.as_u16(), headers: parts.headers, body })
    }

    /// Makes a request of whose answer the status counts: of the body the beginning is read.
    ///
    /// # Errors
    /// If there is none.
    pub fn send(
        &self,
        method: &Method,
        url: &str,
        more: &[(&str, &str)],
        body: &[u8],
    ) -> Attempt<Reply> {
        let (parts, answer) = self.open(method, url, more, Some(body))?.into_parts();
        let mut beginning = Vec::new();
        // The status says all that is needed; a body that breaks off changes nothing.
        let _cut = answer.into_reader().take(EXCERPT_BYTES).read_to_end(&mut beginning);
        Ok(Reply { status: parts.status.as_u16(), headers: parts.headers, body: beginning })
    }

    /// Makes a request, and leaves the body of its answer to be read.
    ///
    /// # Errors
    /// If there is no answer.
    pub fn open(
        &self,
        method: &Method,
        url: &str,
        more: &[(&str, &str)],
        body: Option<&[u8]>,
    ) -> Attempt<Response<Body>> {
        let mut request = Request::builder().method(method).uri(url);
        for (name, value) in &self.headers {
            request = request.header(name, value.expose());
        }
        for (name, value) in more {
            request = request.header(*name, *value);
        }
        let wrong = |error: ureq::http::Error| {
            Failure::Final(
                Error::user(format!("no request can be made: {error}"))
                    .hint("correct 'url' and the headers"),
            )
        };
        let answer = match body {
            None => self.agent.run(request.body(()).map_err(wrong)?),
            Some(body) => self.agent.run(request.body(body).map_err(wrong)?),
        };
        answer.map_err(|error| self.failure(&error, url))
    }

    /// What an error of a request means.
    fn failure(&self, error: &HttpError, url: &str) -> Failure {
        if self.cancel.is_set() {
            return Failure::Cancelled;
        }
        match error {
            HttpError::BadUri(_) | HttpError::Http(_) => {
                Failure::Final(Error::user(format!("{url}: {error}")).hint("correct 'url'"))
            }
            HttpError::BodyExceedsLimit(limit) => Failure::Final(
                Error::data(format!("an answer of {url} is longer than {} MiB", limit >> 20))
                    .hint("raise the job's memory limit, or ask for less at once"),
            ),
            other => Failure::Passing(other.to_string()),
        }
    }
}

/// Opens connections.
#[derive(Debug)]
struct Tcp {
    cancel: Cancel,
    targets: AllowedTargets,
}

impl<In: Transport> Connector<In> for Tcp {
    type Out = Either<In, Connection>;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        chained: Option<In>,
    ) -> std::result::Result<Option<Self::Out>, HttpError> {
        if let Some(chained) = chained {
            return Ok(Some(Either::A(chained)));
        }
        let limit = details.timeout.not_zero().map_or(CONNECT_WAIT, |limit| *limit);
        let since = Timer::default();
        check_addresses(&self.targets, &details.addrs).map_err(HttpError::Io)?;
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
        while since.elapsed() < limit && !self.cancel.is_set() {
            for address in &details.addrs {
                match TcpStream::connect_timeout(address, CONNECT_STEP.min(limit)) {
                    Ok(stream) => {
                        let config = details.config;
                        let (input, output) =
                            (config.input_buffer_size(), config.output_buffer_size());
                        return Ok(Some(Either::B(Connection {
                            stream: prepared(stream)?,
                            buffers: LazyBuffers::new(input, output),
                            cancel: self.cancel.clone(),
                        })));
                    }
                    Err(error) => last = error,
                }
            }
            if last.kind() != io::ErrorKind::TimedOut {
                break;
            }
        }
        Err(HttpError::Io(last))
    }
}

/// A connection whose calls end with a flag.
#[derive(Debug)]
struct Connection {
    stream: TcpStream,
    buffers: LazyBuffers,
    cancel: Cancel,
}

impl Connection {
    /// Checks, after a [`super::TICK`] in which nothing happened, that one may wait on.
    fn wait_on(
        &self,
        error: io::Error,
        since: &Timer,
        timeout: &NextTimeout,
    ) -> std::result::Result<(), HttpError> {
        if self.cancel.is_set() {
            return Err(HttpError::Io(io::Error::new(io::ErrorKind::Interrupted, "cancelled")));
        }
        match timeout.not_zero() {
            _ if !is_tick(&error) => Err(HttpError::Io(error)),
            Some(limit) if since.elapsed() >= *limit => Err(HttpError::Timeout(timeout.reason)),
            _ => Ok(()),
        }
    }
}

impl Transport for Connection {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(
        &mut self,
        amount: usize,
        timeout: NextTimeout,
    ) -> std::result::Result<(), HttpError> {
        let (timeout, since, mut sent) = (timeout.for_write(), Timer::default(), 0);
        while sent < amount {
            let left = &self.buffers.output()[sent..amount];
            match self.stream.write(left) {
                Ok(0) => return Err(HttpError::Io(io::ErrorKind::WriteZero.into())),
                Ok(written) => sent += written,
                Err(error) => self.wait_on(error, &since, &timeout)?,
            }
        }
        Ok(())
    }

    fn await_input(&mut self, timeout: NextTimeout) -> std::result::Result<bool, HttpError> {
        let (timeout, since) = (timeout.for_read(), Timer::default());
        loop {
            let read = self.stream.read(self.buffers.input_append_buf());
            match read {
                Ok(read) => {
                    self.buffers.input_appended(read);
                    return Ok(read > 0);
                }
                Err(error) => self.wait_on(error, &since, &timeout)?,
            }
        }
    }

    fn is_open(&mut self) -> bool {
        // A server that has closed an idle connection, or has said something on it.
        let mut byte = [0];
        if self.stream.set_nonblocking(true).is_err() {
            return false;
        }
        let peeked = self.stream.peek(&mut byte);
        let is_idle = peeked.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
        self.stream.set_nonblocking(false).is_ok() && is_idle
    }
}

/// Splits `http[s]://HOST[:PORT][/PATH]` into host, port, path with query, and whether it is https.
pub fn parts_of(url: &str) -> Option<(String, u16, String, bool)> {
    let uri: ureq::http::Uri = url.parse().ok()?;
    let is_encrypted = match uri.scheme_str()? {
        "http" | "ws" => false,
        "https" | "wss" => true,
        _ => return None,
    };
    let authority = uri.authority()?;
    if authority.as_str().contains('@') || authority.host().is_empty() {
        return None;
    }
    let host = authority.host().trim_matches(['[', ']']).to_owned();
    let port = authority.port_u16().unwrap_or(if is_encrypted { 443 } else { 80 });
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    Some((host, port, path.to_owned(), is_encrypted))
}
