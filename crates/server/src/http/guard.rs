//! What stands between the network and the handlers.
//!
//! In this order: the request is for this server and not for a name that a person has made lead
//! here (`Host`), it does not come from a page of others (`Origin`, `Sec-Fetch-Site`), the client
//! is known (a token, or the user of the socket), may do this, and sends a body that is small, in
//! time and of a kind that a form of another page cannot send. Then the handler; then it is written
//! down.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use thalweg_core::shim::{Clock, unique_name};
use tokio::sync::OwnedSemaphorePermit;

use super::app::{App, Door};
use super::row_bodies::{body_kind, takes_rows};
use crate::audit::AuditLine;
use crate::problem::{Outcome, Problem};
use crate::requests::SQL_BYTES_MAX;
use crate::tokens::Role;

/// The largest body: statements, as JSON writes them at worst.
const BODY_BYTES_MAX: usize = 2 * SQL_BYTES_MAX;
/// The largest body of rows.
const ROWS_BYTES_MAX: usize = 16 << 20;
/// How long a client may take to send it.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// After this many wrong tokens from an address each costs a second.
const FAILURES_FREE: u32 = 10;
/// How long a wrong token costs then.
const FAILURE_WAIT: Duration = Duration::from_secs(1);
/// Addresses whose wrong tokens are counted.
const ADDRESSES_MAX: usize = 10_000;

/// The other end of a connection.
#[derive(Clone, Copy, Debug)]
pub enum Peer {
    /// A process of this user of the machine.
    User(u32),
    /// Whoever.
    Address(SocketAddr),
}

/// Who asks.
#[derive(Clone, Debug)]
pub struct Caller {
    /// As the audit log names them.
    pub name: String,
    /// What they may do.
    pub role: Role,
    /// What the names of jobs begin with that they may see.
    pub jobs: Option<String>,
}

impl Caller {
    /// True if a job is for them.
    pub fn sees(&self, job: &str) -> bool {
        self.jobs.as_ref().is_none_or(|prefix| job.starts_with(prefix.as_str()))
    }
}

/// Wrong tokens, by address.
#[derive(Default)]
pub(crate) struct Failures(Mutex<HashMap<IpAddr, u32>>);

impl Failures {
    /// One more. True if it is to cost time.
    fn add(&self, address: IpAddr) -> bool {
        let mut counts = self.0.lock().expect("no panic under this lock");
        if counts.len() > ADDRESSES_MAX {
            counts.clear();
        }
        let count = counts.entry(address).or_default();
        *count += 1;
        *count > FAILURES_FREE
    }

    fn forget(&self, address: IpAddr) {
        self.0.lock().expect("no panic under this lock").remove(&address);
    }
}

/// Lets a request through, or does not.
pub(crate) async fn guard(State(app): State<App>, request: Request, next: Next) -> Response {
    let id = unique_name();
    let line = AuditLine {
        request_id: id.clone(),
        method: request.method().to_string(),
        path: request.uri().path().to_owned(),
        address: request.extensions().get::<Peer>().map_or_else(String::new, |peer| match peer {
            Peer::User(_) => "socket".to_owned(),
            Peer::Address(address) => address.ip().to_string(),
        }),
        ..AuditLine::default()
    };
    let begun_ns = app.server.clock.now_ns();
    let route = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let changes = !matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    let is_sign_of_life = line.path.ends_with("/heartbeat");
    let is_kept = (changes && !is_sign_of_life) || shows_rows(request.uri().path());
    let mut by = "?".to_owned();
    let response = match admit(&app, request, &mut by).await {
        Err(problem) => problem.into_response(),
        Ok((request, _room)) => match app.limits.requests.try_acquire() {
            Ok(_permit) => next.run(request).await,
            Err(_) => {
                let detail = "too many requests at a time: try again in a moment";
                Problem::new(429, "too-many-requests", detail).into_response()
            }
        },
    };
    let status = response.status().as_u16();
    let time_ns = app.server.clock.now_ns().saturating_sub(begun_ns);
    let route = route.as_deref().unwrap_or("other");
    app.limits.meters.request(route, &line.method, status, time_ns);
    #[cfg(feature = "otlp")]
    if app.server.spans.is_on() && route != "/metrics" {
        let answered = (line.method.as_str(), route, status);
        app.server
            .spans
            .add(crate::otlp::Span::of_request(answered, (app.server.clock.wall_ms(), time_ns)));
    }
    let mut response = finished(response, &id, app.door);
    if is_kept || status == 401 || status == 403 {
        let line = AuditLine { by, status, ..line };
        let written = app.ask(move |server| {
            server.audit.add(line).map_err(|error| {
                Problem::new(
                    507,
                    "storage-failed",
                    format!("the audit log cannot be written: {error}"),
                )
            })
        });
        if let Err(problem) = written.await {
            response = finished(problem.into_response(), &id, app.door);
        }
    }
    response
}

/// Puts what every answer has into one.
fn finished(response: Response, id: &str, door: Door) -> Response {
    let problem = response.extensions().get::<Problem>().cloned();
    let mut response = match (problem, door) {
        (Some(problem), Door::Rest) => {
            Problem { request_id: id.to_owned(), ..problem }.into_response()
        }
        (Some(problem), Door::Gateway) => crate::gateway::error::refusal(&problem),
        (None, _) => response,
    };
    const HEADERS: [(&str, &str); 6] = [
        (
            "content-security-policy",
            "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
             img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        ),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-resource-policy", "same-origin"),
        ("cache-control", "no-store"),
        ("thalweg-version", env!("CARGO_PKG_VERSION")),
    ];
    for (name, value) in HEADERS {
        // The page has a policy of its own.
        let entry = response.headers_mut().entry(HeaderName::from_static(name));
        entry.or_insert(HeaderValue::from_static(value));
    }
    if let Ok(id) = HeaderValue::from_str(id) {
        response.headers_mut().insert(HeaderName::from_static("x-request-id"), id);
    }
    response
}

/// Room for a body of rows, while it is in work.
type Room = Option<OwnedSemaphorePermit>;

/// The request with its whole body and with who asks, whose name goes to `by` once it is known.
async fn admit(app: &App, request: Request, by: &mut String) -> Outcome<(Request, Room)> {
    let (mut parts, body) = request.into_parts();
    let peer = parts.extensions.get::<Peer>().copied();
    let peer = peer.ok_or_else(|| Problem::new(500, "internal", "a connection has a peer"))?;
    if let Peer::Address(_) = peer {
        check_host(&parts.headers, &app.server.config.host_names())?;
        if !follows_link(&parts) {
            check_page(&parts.headers)?;
        }
    }
    let caller = identify(app, peer, &parts).await?;
    by.clone_from(&caller.name);
    match app.door {
        Door::Rest => check_role(&caller, &parts.method, parts.uri.path())?,
        Door::Gateway => check_writer(&caller)?,
    }
    let has_rows = app.door == Door::Rest && takes_rows(&parts.method, parts.uri.path());
    let (bytes_max, room) = match has_rows {
        true => (ROWS_BYTES_MAX, Some(room_for_rows(app, &parts.headers)?)),
        false => {
            check_kind(&parts.method, &parts.headers)?;
            (BODY_BYTES_MAX, None)
        }
    };
    let whole = tokio::time::timeout(BODY_TIMEOUT, axum::body::to_bytes(body, bytes_max)).await;
    let whole = whole.map_err(|_| {
        Problem::new(408, "too-slow", format!("the body did not come within {BODY_TIMEOUT:?}"))
    })?;
    let whole = whole.map_err(|_| {
        Problem::new(413, "too-large", format!("bodies have at most {bytes_max} bytes here"))
    })?;
    parts.extensions.insert(caller);
    Ok((Request::from_parts(parts, Body::from(whole)), room))
}

/// Room for a body of rows, whose type has to be one of rows. A body that does not say its length
/// may have any.
fn room_for_rows(app: &App, headers: &HeaderMap) -> Outcome<OwnedSemaphorePermit> {
    body_kind(headers)?;
    let length = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok());
    let length = length.and_then(|length| length.parse().ok()).unwrap_or(ROWS_BYTES_MAX);
    let bytes = u32::try_from(length.min(ROWS_BYTES_MAX)).unwrap_or(u32::MAX);
    let room = Arc::clone(&app.limits.rows_bytes).try_acquire_many_owned(bytes);
    room.map_err(|_| {
        let detail = "too many bytes of rows come in at a time: try again in a moment";
        Problem::new(429, "too-many-rows", detail)
    })
}

/// The name by which the server was called has to be its own: else a page of others has made its
/// name lead here, and could read the answers.
fn check_host(headers: &HeaderMap, names: &[String]) -> Outcome<()> {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    if names.iter().any(|name| name.eq_ignore_ascii_case(without_port(host))) {
        return Ok(());
    }
    Err(Problem::new(
        403,
        "host-wrong",
        "the request is for another host; 'host-names' lists those of this one",
    ))
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.chars().all(|c| c.is_ascii_digit()) => name,
        _ => host,
    }
}

/// True of a browser that opens our page in a tab because a link in another site, a chat or a mail
/// leads to it. No script can set these headers, the page itself holds no data, and the other site
/// can neither read it nor show it in a frame.
fn follows_link(request: &Parts) -> bool {
    let is = |name: &str, value: &str| request.headers.get(name).is_some_and(|is| is == value);
    request.method == Method::GET
        && request.uri.path() == "/"
        && is("sec-fetch-mode", "navigate")
        && is("sec-fetch-dest", "document")
}

/// A page of another site may not ask for anything.
fn check_page(headers: &HeaderMap) -> Outcome<()> {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let host = text("host").unwrap_or_default();
    let is_own = match text("origin") {
        None => true,
        Some(origin) => {
            let rest = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
            rest.is_some_and(|rest| rest.eq_ignore_ascii_case(host))
        }
    };
    let is_near = text("sec-fetch-site").is_none_or(|site| matches!(site, "same-origin" | "none"));
    match is_own && is_near {
        true => Ok(()),
        false => {
            Err(Problem::new(403, "origin-wrong", "the request comes from a page of another site"))
        }
    }
}

async fn identify(app: &App, peer: Peer, request: &Parts) -> Outcome<Caller> {
    let address = match peer {
        Peer::User(uid) => {
            return Ok(Caller { name: format!("user {uid}"), role: Role::Admin, jobs: None });
        }
        Peer::Address(address) => address,
    };
    if let Some(caller) = open_to(app, address, request) {
        return Ok(caller);
    }
    let header = request.headers.get(header::AUTHORIZATION);
    let token = header
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.strip_prefix("Bearer "));
    let known = token.and_then(|token| app.server.tokens.find(token, app.server.clock.wall_ms()));
    if let Some(known) = known {
        app.limits.failures.forget(address.ip());
        return Ok(Caller { name: known.name, role: known.role, jobs: known.jobs });
    }
    if token.is_some() && app.limits.failures.add(address.ip()) {
        tokio::time::sleep(FAILURE_WAIT).await;
    }
    let detail = "a token is needed: `thalweg token create NAME` makes one, and `Authorization: Bearer …` shows it";
    Err(Problem::new(401, "token-wrong", detail))
}

/// Who asks without a token, where that is enough.
fn open_to(app: &App, address: SocketAddr, request: &Parts) -> Option<Caller> {
    if app.door == Door::Gateway {
        let own = app.server.config.gateway_listen();
        let trusts =
            app.server.config.gateway_trusts_loopback() && is_from_here(own, address, request);
        return trusts.then(|| Caller {
            name: "loopback".to_owned(),
            role: Role::Write,
            jobs: None,
        });
    }
    let path = request.uri.path();
    let is_open =
        matches!(path, "/healthz" | "/readyz") || path == "/docs" || path.starts_with("/docs/");
    let nobody = |jobs| Caller { name: "?".to_owned(), role: Role::Read, jobs };
    if is_open || super::page::is_page(path) {
        return Some(nobody(Some(String::new())));
    }
    shows_metrics_to_all(app, address, request).then(|| nobody(None))
}

/// Whoever is on this machine may read metrics, unless an option says no. A proxy that lets others
/// in from here says so in a header.
fn shows_metrics_to_all(app: &App, address: SocketAddr, request: &Parts) -> bool {
    request.uri.path() == "/metrics"
        && matches!(request.method, Method::GET | Method::HEAD)
        && app.server.config.metrics_are_public()
        && is_from_here(app.server.config.listen(), address, request)
}

/// True for a process of this machine that no proxy asks for, where only those can connect.
fn is_from_here(
    listen: thalweg_core::Result<Option<SocketAddr>>,
    address: SocketAddr,
    request: &Parts,
) -> bool {
    let is_passed_on = ["forwarded", "x-forwarded-for", "x-real-ip", "via"]
        .iter()
        .any(|name| request.headers.contains_key(*name));
    matches!(listen, Ok(Some(own)) if own.ip().is_loopback())
        && address.ip().is_loopback()
        && !is_passed_on
}

/// True if the answer has rows of a job, or may: whoever sees them sees data.
fn shows_rows(path: &str) -> bool {
    let of_job = path.strip_prefix("/v1/jobs/").and_then(|rest| rest.split_once('/'));
    of_job.is_some_and(|(_, what)| {
        matches!(what, "tail" | "late" | "dead-letters" | "bundle.zip" | "trials")
            || what.starts_with("tables/")
            || what.starts_with("trials/")
    })
}

/// What a request needs.
fn needed_role(method: &Method, path: &str) -> Role {
    let looks = matches!(*method, Method::GET | Method::HEAD);
    let last = path.rsplit('/').next().unwrap_or_default();
    match path {
        "/v1/tokens" | "/v1/audit" | "/v1/config" => Role::Admin,
        _ if path.starts_with("/v1/tokens/") => Role::Admin,
        "/v1/validate" | "/v1/explain" | "/v1/complete" | "/v1/format" => Role::Read,
        "/v1/query" => Role::Write,
        _ if shows_rows(path) => Role::Write,
        _ if looks => Role::Read,
        _ if matches!(
            last,
            "start" | "stop" | "pause" | "resume" | "restart" | "snapshots" | "verify" | "profile"
        ) =>
        {
            Role::Operate
        }
        _ => Role::Write,
    }
}

/// Statements have the rights of the server's process, and touch all jobs.
fn check_writer(caller: &Caller) -> Outcome<()> {
    if caller.role >= Role::Write && caller.jobs.is_none() {
        return Ok(());
    }
    let detail = "the SQL gateway needs a token with the role write, for all jobs";
    Err(Problem::new(403, "role-wrong", detail))
}

fn check_role(caller: &Caller, method: &Method, path: &str) -> Outcome<()> {
    let needed = needed_role(method, path);
    if caller.role < needed {
        let detail =
            format!("this needs the role {needed:?}, and '{}' has {:?}", caller.name, caller.role);
        return Err(Problem::new(403, "role-wrong", detail.to_lowercase()));
    }
    if caller.jobs.is_none() {
        return Ok(());
    }
    let job = path.strip_prefix("/v1/jobs/").map(|rest| rest.split('/').next().unwrap_or_default());
    // Statements can touch everything, so whoever is limited to some jobs runs none outside of
    // them.
    let is_theirs = job.map_or(path != "/v1/query", |job| caller.sees(job));
    match is_theirs {
        true => Ok(()),
        false => Err(Problem::new(403, "role-wrong", "this token is for other jobs")),
    }
}

/// A form of another page can send neither of these kinds without asking first, which is refused.
fn check_kind(method: &Method, headers: &HeaderMap) -> Outcome<()> {
    let has_body = headers.contains_key(header::TRANSFER_ENCODING)
        || headers.get(header::CONTENT_LENGTH).is_some_and(|length| length != "0");
    if matches!(*method, Method::GET | Method::HEAD | Method::DELETE) && !has_body {
        return Ok(());
    }
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = kind.map(|kind| kind.split(';').next().unwrap_or_default().trim());
    match kind {
        Some("application/json" | "application/sql") => Ok(()),
        None if !has_body => Ok(()),
        _ => Err(Problem::new(415, "kind-wrong", "bodies are application/json or application/sql")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect()
    }

    #[test]
    fn a_name_that_was_made_to_lead_here_is_refused() {
        let names = ["localhost", "127.0.0.1", "[::1]"].map(str::to_owned);
        for host in
            ["localhost", "localhost:7373", "LOCALHOST:1", "127.0.0.1:7373", "[::1]:7373", "[::1]"]
        {
            check_host(&headers(&[("host", host)]), &names).expect(host);
        }
        for host in [
            "evil.example:7373",
            "localhost.evil.example",
            "127.0.0.1.nip.io",
            "",
            "localhost@evil",
        ] {
            check_host(&headers(&[("host", host)]), &names).expect_err(host);
        }
        check_host(&HeaderMap::new(), &names).expect_err("no host");
    }

    #[test]
    fn pages_of_others_are_refused() {
        let own = ("host", "localhost:7373");
        for good in [
            vec![own],
            vec![own, ("origin", "http://localhost:7373")],
            vec![own, ("origin", "http://localhost:7373"), ("sec-fetch-site", "same-origin")],
            vec![own, ("sec-fetch-site", "none")],
        ] {
            check_page(&headers(&good)).expect("our page");
        }
        for bad in [
            ("origin", "http://evil.example"),
            ("origin", "null"),
            ("origin", "http://localhost:8080"),
            ("origin", "http://localhost:7373.evil.example"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
        ] {
            check_page(&headers(&[own, bad])).expect_err("another page");
        }
    }

    #[test]
    fn a_link_of_another_site_opens_the_page_and_nothing_else() {
        let link = |method: Method, path: &str, destination: &'static str| {
            let mut request = axum::http::Request::new(());
            *request.method_mut() = method;
            *request.uri_mut() = path.parse().expect("a path");
            let kept = [("sec-fetch-mode", "navigate"), ("sec-fetch-dest", destination)];
            *request.headers_mut() = headers(&kept);
            follows_link(&request.into_parts().0)
        };
        assert!(link(Method::GET, "/", "document"));
        assert!(!link(Method::GET, "/v1/jobs", "document"));
        assert!(!link(Method::POST, "/", "document"));
        assert!(!link(Method::GET, "/", "iframe"));
    }

    #[test]
    fn forms_of_others_send_nothing() {
        for kind in
            ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"]
        {
            let sent = headers(&[("content-type", kind), ("content-length", "2")]);
            check_kind(&Method::POST, &sent).expect_err(kind);
            check_kind(&Method::GET, &sent).expect_err(kind);
        }
        check_kind(&Method::POST, &headers(&[("content-length", "2")])).expect_err("no kind");
        check_kind(&Method::POST, &HeaderMap::new()).expect("no body");
        let json = headers(&[
            ("content-type", "application/json; charset=utf-8"),
            ("content-length", "2"),
        ]);
        check_kind(&Method::PUT, &json).expect("JSON");
    }

    #[test]
    fn roles_are_ordered_and_a_prefix_holds_for_everything() {
        let caller = |role, jobs: Option<&str>| Caller {
            name: "ci".to_owned(),
            role,
            jobs: jobs.map(str::to_owned),
        };
        let may = |role, method, path: &str| check_role(&caller(role, None), &method, path).is_ok();
        assert!(may(Role::Read, Method::GET, "/v1/jobs/a"));
        assert!(may(Role::Read, Method::GET, "/v1/jobs/a/tokens/t"));
        assert!(!may(Role::Operate, Method::POST, "/v1/jobs/a/tables/t/rows"));
        assert!(may(Role::Write, Method::POST, "/v1/jobs/a/tables/t/rows"));
        assert!(!may(Role::Read, Method::POST, "/v1/jobs/a/stop"));
        assert!(may(Role::Operate, Method::POST, "/v1/jobs/a/stop"));
        assert!(!may(Role::Operate, Method::PUT, "/v1/jobs/a"));
        assert!(!may(Role::Operate, Method::POST, "/v1/jobs/a/approve"));
        assert!(!may(Role::Write, Method::GET, "/v1/tokens"));
        assert!(may(Role::Admin, Method::DELETE, "/v1/tokens/ci"));
        for what in ["tail", "late", "dead-letters", "bundle.zip"] {
            let path = format!("/v1/jobs/a/{what}");
            assert!(
                !may(Role::Operate, Method::GET, &path) && may(Role::Write, Method::GET, &path)
            );
        }
        let team = caller(Role::Write, Some("team-"));
        assert!(check_role(&team, &Method::GET, "/v1/jobs/team-a").is_ok());
        assert!(check_role(&team, &Method::PUT, "/v1/jobs/other").is_err());
        assert!(check_role(&team, &Method::POST, "/v1/query").is_err());
    }
}
