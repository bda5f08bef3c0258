//! Requests to Flink. Each has a time limit, and those that change nothing are tried again.

use std::time::Duration;

use serde_json::Value;
use thalweg_core::{Error, Result};
use ureq::http::{Method, Request, Response, Uri};
use ureq::{Agent, Body};

use crate::causes;

/// How long an answer may take. A gateway plans a statement before it answers some requests.
const ANSWER_S: u64 = 60;
const CONNECT_S: u64 = 10;
/// How often a request that changes nothing is made.
const ATTEMPTS: u64 = 4;
/// The longest answer that is read.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// A place that answers, such as `http://127.0.0.1:8083`, with a path before all others if it is
/// behind a proxy.
#[derive(Clone, Debug)]
pub struct Place {
    agent: Agent,
    base: String,
    headers: Vec<(String, String)>,
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status of HTTP.
    pub status: u16,
    /// The body, if it is JSON.
    pub body: Value,
    /// The body.
    pub text: String,
}

impl Answer {
    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// The body of an answer that is no error.
    pub(crate) fn checked(self, place: &Place) -> Result<Value> {
        if self.is_success() {
            return Ok(self.body);
        }
        let cause = causes::of_answer(&self.body, &self.text);
        Err(Error::io(format!("Flink at {} answers: {cause}", place.base)))
    }
}

impl Place {
    /// The place of an address. Headers, such as those that a proxy asks for, go with each request.
    ///
    /// # Errors
    /// If it is no address of HTTP.
    pub fn new(url: &str, headers: Vec<(String, String)>) -> Result<Place> {
        let base = url.trim_end_matches('/').to_owned();
        let base = if base.contains("://") { base } else { format!("http://{base}") };
        let uri: Option<Uri> = base.parse().ok();
        let has_host = uri.as_ref().is_some_and(|uri| uri.host().is_some());
        let scheme = uri.as_ref().and_then(Uri::scheme_str);
        if !has_host || !matches!(scheme, Some("http" | "https")) {
            return Err(Error::plan(format!("'{url}' is no address of a Flink cluster"))
                .hint("write one such as http://127.0.0.1:8083, where its SQL gateway listens"));
        }
        let agent = Agent::config_builder()
            .timeout_connect(Some(Duration::from_secs(CONNECT_S)))
            .timeout_global(Some(Duration::from_secs(ANSWER_S)))
            .http_status_as_error(false)
            .build()
            .into();
        Ok(Place { agent, base, headers })
    }

    /// The address.
    pub fn url(&self) -> &str {
        &self.base
    }

    /// The same host with another port.
    pub fn with_port(&self, host: &str, port: u16) -> Result<Place> {
        let scheme = self.base.split("://").next().unwrap_or("http");
        Place::new(&format!("{scheme}://{host}:{port}"), self.headers.clone())
    }

    /// The host, without a port.
    pub fn host(&self) -> String {
        let uri: Option<Uri> = self.base.parse().ok();
        uri.and_then(|uri| uri.host().map(str::to_owned)).unwrap_or_default()
    }

    /// Asks for something. Tried again where nobody answers or the answer is one of a busy server.
    ///
    /// # Errors
    /// If there is no answer, or it is an error.
    pub fn get(&self, path: &str) -> Result<Value> {
        self.get_answer(path)?.checked(self)
    }

    /// The same without looking at the status.
    ///
    /// # Errors
    /// If there is no answer.
    pub fn get_answer(&self, path: &str) -> Result<Answer> {
        let mut attempt = 0;
        loop {
            attempt += 1;
            let answer = self.once(Method::GET, path, None);
            let is_busy = |answer: &Answer| matches!(answer.status, 409 | 429 | 502 | 503 | 504);
            match &answer {
                Ok(answer) if !is_busy(answer) => {}
                _ if attempt == ATTEMPTS => {}
                _ => {
                    std::thread::sleep(Duration::from_millis(200 << attempt));
                    continue;
                }
            }
            return answer;
        }
    }

    /// Sends something, once.
    ///
    /// # Errors
    /// If there is no answer, or it is an error.
    pub fn send(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value> {
        self.once(method, path, body)?.checked(self)
    }

    fn once(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Answer> {
        let wrong = |error: &dyn std::fmt::Display| {
            Error::internal(format!("no request can be made of it: {error}"))
        };
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.base));
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let sent = match body {
            Some(body) => {
                let request = request.header("content-type", "application/json");
                self.agent.run(request.body(body.to_string()).map_err(|error| wrong(&error))?)
            }
            None => self.agent.run(request.body(()).map_err(|error| wrong(&error))?),
        };
        let response = sent.map_err(|error| self.silent(&error))?;
        self.read(response)
    }

    fn read(&self, response: Response<Body>) -> Result<Answer> {
        let status = response.status().as_u16();
        let body = response.into_body();
        let body = body.into_with_config().limit(ANSWER_BYTES_MAX);
        let text = body.read_to_string().map_err(|error| self.silent(&error))?;
        let body = serde_json::from_str(&text).unwrap_or(Value::Null);
        Ok(Answer { status, body, text })
    }

    fn silent(&self, error: &ureq::Error) -> Error {
        Error::io(format!("there is no answer from Flink at {}: {error}", self.base))
            .hint("is the cluster running, and is this the address of its SQL gateway?")
    }
}

/// A name as a part of an address.
pub fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}
