//! The options of `http` and `http-async-sink`.

use std::net::{IpAddr, ToSocketAddrs};
use std::path::Path;
use std::time::Duration;

use thalweg_core::connector::{
    Boundedness, Capabilities, ConnectorDescription, MetadataDescription, OptionDescription,
    Options, Secret, TableRequest, metadata_table, option_table, option_tables,
};
use thalweg_core::snapshot::SinkGuarantee;
use thalweg_core::{Error, Result};
use ureq::http::Method;

use super::codes::Codes;
use crate::format::Format;
use crate::format::options::RECORD_FORMATS;
use crate::messaging::options::{BAD_DATA, CHANGES, RecordOptions};
use crate::network::http::{Header, HttpSettings, authorities, parts_of};

/// What `http` says of itself.
pub const HTTP: ConnectorDescription = ConnectorDescription {
    capabilities: Capabilities::LOOKUP
        .reading(Boundedness::Unbounded, CHANGES)
        .writing(CHANGES, SinkGuarantee::AtLeastOnce),
    options: option_tables![URL, COMMON, SCAN, LOOKUP, OF_SINK, BAD_DATA],
    formats: RECORD_FORMATS,
    metadata: METADATA,
    unsupported: &[
        "url-args",
        "http.request.*",
        "http.security.cert.client",
        "http.security.key.client",
        "http.security.keystore.*",
        "http.security.cert.server.allowSelfSigned",
        "http.security.oidc.*",
        "http.source.lookup.proxy.*",
        "http.source.lookup.http-version",
        "http.source.lookup.use-raw-authorization-header",
    ],
    is_in_flink: true,
    has_one_reader: true,
    ..ConnectorDescription::new("http", "rows over HTTP: polled, streamed, taken, looked up, sent")
};

/// What `http-async-sink` says of itself.
pub const HTTP_SINK: ConnectorDescription = ConnectorDescription {
    capabilities: Capabilities::NONE.writing(CHANGES, SinkGuarantee::AtLeastOnce),
    options: option_tables![URL_OF_SINK, COMMON, OF_SINK],
    formats: RECORD_FORMATS,
    unsupported: &[
        "http.security.cert.client",
        "http.security.key.client",
        "http.security.keystore.*",
        "http.security.cert.server.allowSelfSigned",
    ],
    is_in_flink: true,
    ..ConnectorDescription::new("http-async-sink", "rows to a service over HTTP")
};

/// Metadata of server-sent events.
pub const METADATA: &[MetadataDescription] = &metadata_table! {
    "event-type": "STRING" => "what a server-sent event is called, else NULL";
    "event-id": "STRING"
        => "the identifier of a server-sent event, or of the last one before it that had one";
};

const URL: &[OptionDescription] = &option_table! {
    "url": Text, as_in_flink()
        => "`http://` or `https://`, without a password in it; of a listener, where it listens: \
            `http://127.0.0.1:8080/rows`. Needed, but with `'scan.mode' = 'server'`";
};

const URL_OF_SINK: &[OptionDescription] = &option_table! {
    "url": Text, required(), as_in_flink()
        => "`http://` or `https://`, without a password in it";
};

const COMMON: &[OptionDescription] = &option_table! {
    "format": Text, required(), as_in_flink()
        => "the format of rows";
    "http.security.cert.server": Text, as_in_flink()
        => "a file of certificates (PEM) of authorities that may have signed the server's, in place of those that \
            browsers trust";
    "http.logging.level": Words(&["MIN", "REQ_RESP", "MAX"]), or("MIN"), as_in_flink()
        => "ignored: bodies and headers are never logged";
};

const SCAN: &[OptionDescription] = &option_table! {
    "scan.mode": Words(&["poll", "events", "listen", "server"]), or("poll"), of_source(),
        but_flink("Flink only looks rows up over HTTP")
        => "how rows come: the URL is asked again and again; it is a stream of server-sent events; the job listens \
            there, and takes rows that are POSTed; or they are POSTed to `thalweg serve`, which runs the job";
    "scan.records": Words(&["auto", "whole", "lines"]), or("auto"), of_source(),
        but_flink("Flink only looks rows up over HTTP")
        => "where the records of a body are: all of it is one (an array of JSON objects is a row for each), or each \
            line. `auto`: lines of `csv`, and of bodies whose type is `application/x-ndjson` or `application/jsonl`";
    "scan.poll.interval": Duration, or("10 s"), of_source(), but_flink("Flink only looks rows up over HTTP")
        => "the time from one poll to the next";
    "scan.request.timeout": Duration, or("30 s"), of_source(), but_flink("Flink only looks rows up over HTTP")
        => "how long an answer to a poll may take; of a listener, how long a request may take to come in whole";
    "scan.header.*": Secret, of_source(), but_flink("Flink only looks rows up over HTTP")
        => "a header of requests: `scan.header.Authorization`";
    "scan.token": Secret, of_source(), but_flink("Flink only looks rows up over HTTP")
        => "what clients of a listener must send (`Authorization: Bearer …`); needed unless it listens at a loopback \
            address";
    "scan.listen.body-max": Size, or("8 mb"), of_source(), but_flink("Flink only looks rows up over HTTP")
        => "the longest body that a listener takes; the server takes none over 16 MiB";
    "scan.listen.connections-max": Number, or("64"), of_source(), but_flink("Flink only looks rows up over HTTP")
        => "the most connections that a listener has at a time; more are answered 503";
    "scan.listen.acknowledge-timeout": Duration, or("1 min"), of_source(),
        but_flink("Flink only looks rows up over HTTP")
        => "the longest that an answer waits for the snapshot that covers its rows; then it is 503";
};

const LOOKUP: &[OptionDescription] = &option_table! {
    "lookup-method": Words(&["GET", "POST", "PUT"]), or("GET"), of_source(), as_in_flink()
        => "the method of a lookup: the columns of the key are parameters of the URL (`GET`), or a JSON object in the \
            body";
    "lookup-request.format": Words(&["json"]), or("json"), of_source(), as_in_flink()
        => "the format of that body";
    "asyncPolling": Boolean, or("false"), of_source(), as_in_flink()
        => "ignored: several lookups always run at once";
    "http.source.lookup.query-creator": Words(&["http-generic-get-query", "http-generic-json-query"]), of_source(),
        as_in_flink()
        => "how a request is made of a key, which the method says already";
    "http.source.lookup.result-type": Words(&["single-value", "array"]), or("single-value"), of_source(), as_in_flink()
        => "ignored: an answer may be one row or an array of rows";
    "http.source.lookup.success-codes": Text, or("2XX"), of_source(), as_in_flink()
        => "the statuses of answers with rows: numbers and `2XX`, with `,` between them";
    "http.source.lookup.retry-codes": Text, or("500,503,504"), of_source(), as_in_flink()
        => "the statuses of answers after which the same is asked again";
    "http.source.lookup.ignored-response-codes": Text, or(""), of_source(), as_in_flink()
        => "the statuses of answers that mean that there is no row";
    "http.source.lookup.retry-strategy.type": Words(&["fixed-delay"]), or("fixed-delay"), of_source(), as_in_flink()
        => "how long is waited before the same is asked again; `exponential-delay` is not supported yet";
    "http.source.lookup.retry-strategy.fixed-delay.delay": Duration, or("1 s"), of_source(), as_in_flink()
        => "that time";
    "http.source.lookup.continue-on-error": Boolean, or("false"), of_source(), as_in_flink()
        => "an answer of another status means that there is no row, and does not fail the job";
    "http.source.lookup.connection.timeout": Duration, or("10 s"), of_source(), as_in_flink()
        => "how long a connection may take to open";
    "http.source.lookup.request.timeout": Duration, or("30 s"), of_source(), as_in_flink()
        => "how long an answer may take";
    "http.source.lookup.request.thread-pool.size": Number, or("8"), of_source(), as_in_flink()
        => "how many requests run at once";
    "http.source.lookup.response.thread-pool.size": Number, or("4"), of_source(), as_in_flink()
        => "ignored: who asks reads the answer";
    "http.source.lookup.header.*": Secret, of_source(), as_in_flink()
        => "a header of requests";
};

const OF_SINK: &[OptionDescription] = &option_table! {
    "insert-method": Words(&["POST", "PUT"]), or("POST"), of_sink(), as_in_flink()
        => "the method of requests";
    "http.sink.writer.request.mode": Words(&["batch", "single"]), or("batch"), of_sink(), as_in_flink()
        => "many rows a request (a JSON array; in other formats lines), or one";
    "http.sink.request.batch.size": Number, or("500"), of_sink(), as_in_flink()
        => "the most rows of a request";
    "sink.batch.max-size": Number, or("500"), of_sink(), as_in_flink()
        => "the same; the smaller one holds";
    "sink.requests.max-inflight": Number, or("50"), of_sink(), as_in_flink()
        => "ignored: one request after the other, so that rows arrive in their order";
    "sink.requests.max-buffered": Number, or("10000"), of_sink(), as_in_flink()
        => "ignored: 8192 rows or 8 MiB wait at most";
    "sink.flush-buffer.size": Number, or("5242880"), of_sink(), as_in_flink()
        => "the most bytes of a request, but for one row that is longer";
    "sink.flush-buffer.timeout": Number, or("5000"), of_sink(), as_in_flink()
        => "ignored: rows are sent when no more come";
    "http.sink.error.code": Text, or("4XX,5XX"), of_sink(), as_in_flink()
        => "the statuses of answers that mean that rows were not taken: numbers and `4XX`, with `,` between them";
    "http.sink.error.code.exclude": Text, or(""), of_sink(), as_in_flink()
        => "those of them that mean no error";
    "http.sink.on-error": Words(&["fail", "drop"]), or("fail"), of_sink(),
        but_flink("Flink logs rows that were not taken, and drops them")
        => "what happens when a server refuses rows: the job fails, or the rows are left out. Answers 408, 425, 429 and \
            those from 500 on, and servers that can't be reached, are tried again without end in either case, after \
            what `Retry-After` says";
    "http.sink.request.timeout": Duration, or("30 s"), of_sink(), as_in_flink()
        => "how long an answer may take";
    "http.sink.header.*": Secret, of_sink(), as_in_flink()
        => "a header of requests";
};

/// How rows come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanMode {
    /// The URL is asked again and again.
    Poll,
    /// It is a stream of events.
    Events,
    /// Rows are POSTed to an address of the table.
    Listen,
    /// Rows are POSTed to the server that runs the job.
    Server,
}

/// Where the records of a body are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// Its type says it.
    Auto,
    /// All of it is one.
    Whole,
    /// Each line is one.
    Lines,
}

/// What all tables have.
#[derive(Clone, Debug)]
pub struct HttpOptions {
    /// The address.
    pub url: String,
    /// Its host.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// What lies behind the host.
    pub path: String,
    /// What records look like.
    pub records: RecordOptions,
    /// How requests are made. Headers are there where a table is opened.
    pub settings: HttpSettings,
}

impl HttpOptions {
    /// Those of a table that is read.
    fn of_scan(options: &Options<'_>, request: &TableRequest) -> Result<HttpOptions> {
        if scan_mode(options)? != ScanMode::Server {
            return HttpOptions::read(options, request);
        }
        for name in ["url", "scan.token"] {
            if options.get(name).is_some() {
                return Err(options
                    .conflict(&format!("'{name}' has no effect: rows are POSTed to the server"))
                    .hint("remove it, or set 'scan.mode' = 'listen'"));
            }
        }
        let url = "server".to_owned();
        let records = RecordOptions::read(options, request, &url)?;
        let (host, path) = (String::new(), String::new());
        Ok(HttpOptions { url, host, port: 0, path, records, settings: HttpSettings::default() })
    }

    fn read(options: &Options<'_>, request: &TableRequest) -> Result<HttpOptions> {
        let url = options.required("url")?;
        let parts = parts_of(url).filter(|_| !url.contains('@') && !url.starts_with("ws"));
        let Some((host, port, path, _)) = parts else {
            return Err(options.bad("url", url, "'http://HOST:PORT/PATH', without a password"));
        };
        options.check_target(&host, port)?;
        let records = RecordOptions::read(options, request, &host)?;
        options.check("http.logging.level")?;
        let settings =
            HttpSettings { targets: options.targets().clone(), ..HttpSettings::default() };
        Ok(HttpOptions { url: url.to_owned(), host, port, path, records, settings })
    }

    /// Reads what only a table that is opened has: certificates and the headers with this prefix.
    fn open(&mut self, options: &Options<'_>, request: &TableRequest, prefix: &str) -> Result<()> {
        if let Some(path) = options.get("http.security.cert.server") {
            self.settings.authorities = Some(authorities(&request.base_dir.join(Path::new(path)))?);
        }
        self.settings.headers = headers(options, request, prefix)?;
        self.records.open(options, request)?;
        Ok(())
    }
}

/// The headers whose options begin so.
fn headers(options: &Options<'_>, request: &TableRequest, prefix: &str) -> Result<Vec<Header>> {
    let mut headers = Vec::new();
    for name in request.options.keys() {
        if let (Some(header), Some(value)) = (name.strip_prefix(prefix), options.secret(name)?) {
            headers.push((header.to_owned(), value));
        }
    }
    Ok(headers)
}

/// The options of a table that is read.
#[derive(Clone, Debug)]
pub struct ScanOptions {
    /// What all tables have.
    pub http: HttpOptions,
    /// How rows come.
    pub mode: ScanMode,
    /// Where the records of a body are.
    pub framing: Framing,
    /// The time from one poll to the next.
    pub interval: Duration,
    /// How long a request may take.
    pub timeout: Duration,
    /// What clients of a listener must send.
    pub token: Option<Secret>,
    /// The longest body.
    pub body_bytes_max: usize,
    /// The most connections.
    pub connections_max: usize,
    /// The longest that an answer waits for its snapshot.
    pub acknowledge_timeout: Duration,
}

impl ScanOptions {
    /// Reads them, to check them: secrets are not looked up.
    ///
    /// # Errors
    /// If one is unknown or wrong.
    pub fn read(request: &TableRequest) -> Result<ScanOptions> {
        let options = Options::of(request, &HTTP)?;
        LookupOptions::check(&options)?;
        let http = HttpOptions::of_scan(&options, request)?;
        http.records.check_metadata(request, METADATA, None)?;
        SinkOptions::values(&options, http.clone())?;
        let read = ScanOptions::values(&options, http)?;
        read.check_mode(&options, request)?;
        Ok(read)
    }

    fn values(options: &Options<'_>, http: HttpOptions) -> Result<ScanOptions> {
        let framings =
            [("auto", Framing::Auto), ("whole", Framing::Whole), ("lines", Framing::Lines)];
        let read = ScanOptions {
            mode: scan_mode(options)?,
            framing: options.choice("scan.records", &framings)?.unwrap_or(Framing::Auto),
            interval: options.duration("scan.poll.interval")?,
            timeout: options.duration("scan.request.timeout")?,
            token: None,
            body_bytes_max: options.bytes("scan.listen.body-max")?.unwrap_or(8 << 20) as usize,
            connections_max: options.number("scan.listen.connections-max")?.unwrap_or(64),
            acknowledge_timeout: options.duration("scan.listen.acknowledge-timeout")?,
            http,
        };
        match read.connections_max {
            0 => Err(options.bad("scan.listen.connections-max", "0", "at least 1")),
            _ => Ok(read),
        }
    }

    fn check_mode(&self, options: &Options<'_>, request: &TableRequest) -> Result<()> {
        if self.mode != ScanMode::Events
            && let Some((key, _)) = request.metadata.iter().find(|(key, _)| !key.contains("value."))
        {
            return Err(options.conflict(&format!(
                "metadata '{key}' is of server-sent events: 'scan.mode' = 'events'"
            )));
        }
        if self.mode != ScanMode::Listen {
            return Ok(());
        }
        if self.http.url.starts_with("https") {
            return Err(options
                .conflict("a listener takes no encrypted connections")
                .hint("let a proxy on this machine take them, and listen at http://127.0.0.1"));
        }
        if options.get("scan.token").is_none() && !is_loopback(&self.http.host) {
            return Err(options
                .conflict("a listener that others can reach needs a token")
                .hint("add 'scan.token' = '${secret:NAME}', or listen at 127.0.0.1"));
        }
        Ok(())
    }

    /// Reads them, for a table that is opened now.
    ///
    /// # Errors
    /// If one is unknown or wrong, or a secret is not set.
    pub fn open(request: &TableRequest) -> Result<ScanOptions> {
        let mut read = ScanOptions::read(request)?;
        let options = Options::of(request, &HTTP)?;
        read.http.open(&options, request, "scan.header.")?;
        read.token = options.secret("scan.token")?;
        let access = &request.access;
        if read.mode == ScanMode::Server && access.inlets.is_none() && !access.is_remote {
            return Err(options
                .conflict("its rows are POSTed to the server that runs the job, and there is none")
                .hint("run the job with `thalweg serve`, or set 'scan.mode' = 'listen'"));
        }
        read.http.settings.timeout = (read.mode == ScanMode::Poll).then_some(read.timeout);
        Ok(read)
    }
}

/// How rows come.
pub fn scan_mode(options: &Options<'_>) -> Result<ScanMode> {
    let modes = [
        ("poll", ScanMode::Poll),
        ("events", ScanMode::Events),
        ("listen", ScanMode::Listen),
        ("server", ScanMode::Server),
    ];
    Ok(options.choice("scan.mode", &modes)?.unwrap_or(ScanMode::Poll))
}

/// True if nobody else can reach a host.
fn is_loopback(host: &str) -> bool {
    match host.parse::<IpAddr>() {
        Ok(address) => address.is_loopback(),
        Err(_) => host.eq_ignore_ascii_case("localhost"),
    }
}

/// The addresses to listen at.
///
/// # Errors
/// If the host has none.
pub fn listen_addresses(host: &str, port: u16) -> std::io::Result<Vec<std::net::SocketAddr>> {
    (host, port).to_socket_addrs().map(Iterator::collect)
}

fn codes(options: &Options<'_>, name: &str) -> Result<Codes> {
    let text = options.text(name).unwrap_or_default();
    Codes::read(text).ok_or_else(|| options.bad(name, text, "statuses such as '2XX,404'"))
}

/// The options of a table that is looked up.
#[derive(Clone, Debug)]
pub struct LookupOptions {
    /// What all tables have.
    pub http: HttpOptions,
    /// The method.
    pub method: Method,
    /// Statuses of answers with rows.
    pub success: Codes,
    /// Statuses after which the same is asked again.
    pub retry: Codes,
    /// Statuses of answers without a row.
    pub ignored: Codes,
    /// How long is waited before that.
    pub retry_delay: Duration,
    /// Other statuses mean that there is no row.
    pub continues_on_error: bool,
    /// How many requests run at once.
    pub threads: usize,
}

impl LookupOptions {
    fn check(options: &Options<'_>) -> Result<()> {
        LOOKUP.iter().try_for_each(|option| options.check(option.name))?;
        options.number::<u32>("http.source.lookup.response.thread-pool.size")?;
        for name in ["success-codes", "retry-codes", "ignored-response-codes"] {
            codes(options, &format!("http.source.lookup.{name}"))?;
        }
        Ok(())
    }

    /// Reads them, for a table that is opened now.
    ///
    /// # Errors
    /// If one is unknown or wrong, or a secret is not set.
    pub fn open(request: &TableRequest) -> Result<LookupOptions> {
        let options = Options::of(request, &HTTP)?;
        LookupOptions::check(&options)?;
        let mut http = HttpOptions::read(&options, request)?;
        http.open(&options, request, "http.source.lookup.header.")?;
        http.settings.timeout = Some(options.duration("http.source.lookup.request.timeout")?);
        http.settings.connect_timeout =
            Some(options.duration("http.source.lookup.connection.timeout")?);
        let methods = [("GET", Method::GET), ("POST", Method::POST), ("PUT", Method::PUT)];
        let method = options.text("lookup-method").unwrap_or("GET");
        let method = methods.into_iter().find(|(word, _)| word.eq_ignore_ascii_case(method));
        let threads = options.number("http.source.lookup.request.thread-pool.size")?;
        Ok(LookupOptions {
            http,
            method: method.map_or(Method::GET, |(_, method)| method),
            success: codes(&options, "http.source.lookup.success-codes")?,
            retry: codes(&options, "http.source.lookup.retry-codes")?,
            ignored: codes(&options, "http.source.lookup.ignored-response-codes")?,
            retry_delay: options.duration("http.source.lookup.retry-strategy.fixed-delay.delay")?,
            continues_on_error: options.boolean("http.source.lookup.continue-on-error")?,
            threads: threads.unwrap_or(8).clamp(1, 64),
        })
    }
}

/// The options of a table that is written.
#[derive(Clone, Debug)]
pub struct SinkOptions {
    /// What all tables have.
    pub http: HttpOptions,
    /// The method.
    pub method: Method,
    /// The most rows of a request.
    pub rows_max: usize,
    /// The most bytes of a request.
    pub bytes_max: usize,
    /// Requests have one row, as it is.
    pub is_single: bool,
    /// Statuses of answers that mean that rows were not taken.
    pub errors: Codes,
    /// Those of them that do not.
    pub excluded: Codes,
    /// Rows that a server refuses are left out.
    pub drops_refused: bool,
}

impl SinkOptions {
    /// Reads them, to check them: secrets are not looked up.
    ///
    /// # Errors
    /// If one is unknown or wrong.
    pub fn read(request: &TableRequest, of: &'static ConnectorDescription) -> Result<SinkOptions> {
        let options = Options::of(request, of)?;
        let http = HttpOptions::read(&options, request)?;
        http.records.check_metadata(request, &[], Some(&[]))?;
        if of.option("scan.mode").is_some() {
            LookupOptions::check(&options)?;
            ScanOptions::values(&options, http.clone())?;
        }
        SinkOptions::values(&options, http)
    }

    fn values(options: &Options<'_>, mut http: HttpOptions) -> Result<SinkOptions> {
        http.settings.timeout = Some(options.duration("http.sink.request.timeout")?);
        let modes = [("batch", false), ("single", true)];
        let is_single = options.choice("http.sink.writer.request.mode", &modes)? == Some(true);
        let size = |name: &str| match options.number::<usize>(name)? {
            Some(0) => Err(options.bad(name, "0", "at least 1")),
            size => Ok(size.unwrap_or(usize::MAX)),
        };
        for ignored in [
            "sink.requests.max-inflight",
            "sink.requests.max-buffered",
            "sink.flush-buffer.timeout",
        ] {
            size(ignored)?;
        }
        let methods = [("POST", false), ("PUT", true)];
        let puts = options.choice("insert-method", &methods)? == Some(true);
        let words = [("fail", false), ("drop", true)];
        let rows_max = size("http.sink.request.batch.size")?.min(size("sink.batch.max-size")?);
        let is_binary = matches!(http.records.format, Format::Avro(_));
        Ok(SinkOptions {
            http,
            method: if puts { Method::PUT } else { Method::POST },
            rows_max: if is_single || is_binary { 1 } else { rows_max },
            bytes_max: size("sink.flush-buffer.size")?,
            is_single: is_single || is_binary,
            errors: codes(options, "http.sink.error.code")?,
            excluded: codes(options, "http.sink.error.code.exclude")?,
            drops_refused: options.choice("http.sink.on-error", &words)? == Some(true),
        })
    }

    /// Reads them, for a table that is opened now.
    ///
    /// # Errors
    /// If one is unknown or wrong, or a secret is not set.
    pub fn open(request: &TableRequest, of: &'static ConnectorDescription) -> Result<SinkOptions> {
        let mut read = SinkOptions::read(request, of)?;
        let options = Options::of(request, of)?;
        read.http.open(&options, request, "http.sink.header.")?;
        Ok(read)
    }

    /// The error of a table that no row can be sent to.
    pub fn refused(&self, status: u16, excerpt: &str) -> Error {
        Error::data(format!("{} refuses rows: {status} {excerpt}", self.http.url)).hint(
            "correct the rows or 'http.sink.error.code', or set 'http.sink.on-error' = 'drop'",
        )
    }
}
