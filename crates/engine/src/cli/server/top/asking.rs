//! The thread that talks to the server.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use serde_json::{Value, json};
use thalweg_core::{Error, Result};
use thalweg_server::client::{Answer, Client};

use super::super::jobs::path;
use super::view::{Ask, News};

/// Where all jobs are: one request.
pub fn jobs_path() -> String {
    "/v1/jobs?limit=500".to_owned()
}

/// Asks for jobs at a pace, and for what a person wants.
pub struct Asking {
    /// What is wanted.
    pub wishes: Sender<Ask>,
    /// What came.
    pub news: Receiver<News>,
}

impl Asking {
    /// Begins to ask.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub fn begin(client: Client, every: Duration) -> Result<Asking> {
        let (wishes, wanted) = channel();
        let (sender, news) = channel();
        let body = move || ask_on(&client, &wanted, &sender, every);
        let thread = std::thread::Builder::new().name("asking".to_owned()).spawn(body);
        thread.map_err(|error| Error::io(format!("can't start a thread: {error}")))?;
        Ok(Asking { wishes, news })
    }
}

/// Until nobody listens.
fn ask_on(client: &Client, wanted: &Receiver<Ask>, news: &Sender<News>, every: Duration) {
    let mut opened: Option<String> = None;
    loop {
        let mut found = vec![jobs(client)];
        found.extend(opened.as_deref().map(|job| stages(client, job)));
        if found.into_iter().any(|one| news.send(one).is_err()) {
            return;
        }
        let answered = match wanted.recv_timeout(every) {
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => return,
            Ok(Ask::Open(job)) => {
                opened = job;
                continue;
            }
            Ok(Ask::Why(job)) => why(client, &job),
            Ok(Ask::Snapshot(job)) => request(client, &job, "/snapshots", None),
            Ok(Ask::Stop(job)) => {
                request(client, &job, "/stop", Some(&json!({ "how": "snapshot" })))
            }
        };
        if news.send(answered).is_err() {
            return;
        }
    }
}

fn jobs(client: &Client) -> News {
    let list = asked(client, ("GET", &jobs_path(), None))
        .and_then(|found| super::parsed(&found.text).map_err(|error| error.to_string()));
    list.map_or_else(News::Lost, News::Jobs)
}

fn stages(client: &Client, job: &str) -> News {
    let found = client.ask("GET", &path(job, ""), None, false);
    let stages = found.map(|found| serde_json::from_value(found.body["stages"].clone()));
    News::Stages(job.to_owned(), stages.ok().and_then(|stages| stages.ok()).unwrap_or_default())
}

fn why(client: &Client, job: &str) -> News {
    let text = asked(client, ("GET", &path(job, "/why"), None))
        .map(|found| found.body["text"].as_str().unwrap_or_default().to_owned());
    News::Text(text.unwrap_or_else(|reason| reason))
}

fn request(client: &Client, job: &str, what: &str, body: Option<&Value>) -> News {
    let word = if what == "/stop" { "stops with a snapshot" } else { "takes a snapshot" };
    let done = asked(client, ("POST", &path(job, what), body)).map(|_| format!("{job} {word}"));
    News::Message(done.unwrap_or_else(|reason| reason))
}

/// What a server answers; else why there is no answer, or what it says that refuses.
fn asked(
    client: &Client,
    (method, path, body): (&str, &str, Option<&Value>),
) -> Result<Answer, String> {
    let found = client.ask(method, path, body, false).map_err(|error| error.to_string())?;
    match found.problem() {
        None => Ok(found),
        Some(problem) => Err(problem.detail),
    }
}
