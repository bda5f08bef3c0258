//! `thalweg serve`, and the commands that talk to a server.
//!
//! Exit statuses: 0 done, 1 it failed, 2 the command line is wrong, 3 no, and the answer says why.

mod bundle;
mod demo;
mod docs;
mod follow;
mod jobs;
mod serve;
mod tap;
mod top;
mod trial;

use std::path::{Path, PathBuf};

use serde_json::Value;
use thalweg_core::{Error, Result};
use thalweg_server::Problem;
use thalweg_server::client::{Answer, Client, Place};

use super::exit::{FAILED, WRONG, ended};
use super::server_arguments::{DATA_DIR, ServerArguments};
use super::terminal::{print, say};

pub use bundle::support_bundle;
pub use demo::demo;
pub use docs::docs;
pub use follow::follow;
pub use jobs::{
    approve, change, dead, describe, events, late, list, logs, query, start, status, stop, submit,
    token, why,
};
#[cfg(feature = "flink")]
pub use jobs::{statements_of, stop_with_snapshot};
pub use serve::serve;
pub use tap::tap;
pub use top::top;
pub use trial::trial;

/// The server said no, and why.
const REFUSED: u8 = 3;

/// The data directory that is meant.
pub(super) fn data_dir(given: Option<&Path>) -> PathBuf {
    given.unwrap_or(Path::new(DATA_DIR)).to_owned()
}

/// A client of the server that is meant.
fn client(arguments: &ServerArguments) -> Result<Client> {
    let place = match &arguments.server {
        Some(server) => {
            let authority = server.strip_prefix("http://").unwrap_or(server).trim_end_matches('/');
            if authority.contains("://") {
                return Err(Error::plan(format!("--server {server}: only http:// is spoken here"))
                    .hint("a tunnel (ssh -L) or a proxy of this machine speaks TLS"));
            }
            Place::Address { authority: authority.to_owned(), token: token_of(arguments)? }
        }
        None => Place::Socket(data_dir(arguments.data_dir.as_deref()).join("thalweg.sock")),
    };
    Client::new(place)
}

fn token_of(arguments: &ServerArguments) -> Result<String> {
    let text = match &arguments.token_file {
        Some(file) => std::fs::read_to_string(file).map_err(|error| {
            Error::plan(format!("can't read the token in {}: {error}", file.display()))
        })?,
        None => std::env::var("THALWEG_TOKEN").map_err(|_| {
            Error::plan("a server of the network asks for a token")
                .hint("--token-file names a file with it, or set THALWEG_TOKEN")
        })?,
    };
    Ok(text.trim().to_owned())
}

/// Does something with a server; the exit status.
fn with_client(arguments: &ServerArguments, body: impl FnOnce(&Client) -> Result<u8>) -> u8 {
    ended(client(arguments).and_then(|client| body(&client)))
}

/// Asks a server for something, and prints what it answers; the exit status.
fn ask(
    arguments: &ServerArguments,
    (method, path, body): (&str, &str, Option<&Value>),
    show: impl FnOnce(&Value) -> String,
) -> u8 {
    with_client(arguments, |client| {
        answer(&client.ask(method, path, body, false)?, arguments.json, show)
    })
}

/// Prints what a server has at an address; the exit status.
fn get(arguments: &ServerArguments, path: &str, show: impl FnOnce(&Value) -> String) -> u8 {
    ask(arguments, ("GET", path, None), show)
}

/// An address with those parameters that are given.
fn with_parameters<'a>(
    path: &str,
    parameters: impl IntoIterator<Item = (&'a str, Option<String>)>,
) -> String {
    let mut all = path.to_owned();
    for (name, value) in parameters {
        if let Some(value) = value {
            let mark = if all.contains('?') { '&' } else { '?' };
            all.push_str(&format!("{mark}{name}={}", encoded(&value)));
        }
    }
    all
}

/// Prints an answer as JSON, or as `show` does; or why there is none. The exit status.
fn answer(answer: &Answer, is_json: bool, show: impl FnOnce(&Value) -> String) -> Result<u8> {
    if let Some(problem) = answer.problem() {
        return refuse(&problem, is_json);
    }
    match is_json {
        true => print(&format!("{}\n", answer.body))?,
        false => print(&show(&answer.body))?,
    }
    Ok(0)
}

/// Prints an answer that comes line by line: each line of JSON as `show` does, or as it is. Returns
/// the exit status.
fn print_lines(
    client: &Client,
    place: &str,
    is_json: bool,
    mut show: impl FnMut(&Value) -> String,
) -> Result<u8> {
    let (mut waiting, mut failure) = (Vec::new(), None);
    let status = client.ask_by_piece("GET", place, (None, false), &mut |piece| {
        waiting.extend_from_slice(piece);
        while let Some(end) = waiting.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = waiting.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line).into_owned();
            let shown = serde_json::from_str(&line).ok().map(|message| show(&message));
            let shown = shown.filter(|_| !is_json).unwrap_or(line);
            failure = print(&shown).err();
        }
        failure.is_none()
    })?;
    match (failure, status) {
        (Some(error), _) => Err(error),
        (None, 200) => Ok(0),
        (None, status) => {
            let text = String::from_utf8_lossy(&waiting).into_owned();
            let body = serde_json::from_str(&text).unwrap_or_default();
            answer(&Answer { status, body, text }, is_json, |_| String::new())
        }
    }
}

/// Says what a server has refused.
fn refuse(problem: &Problem, is_json: bool) -> Result<u8> {
    if is_json {
        print(&format!("{}\n", serde_json::to_string(problem).unwrap_or_default()))?;
    }
    let mut text = format!("error: {}\n", problem.detail);
    for diagnostic in &problem.diagnostics {
        if let Some(span) = diagnostic.span {
            text.push_str(&format!("  --> {}:{}\n", span.start.line, span.start.column));
        }
        if let Some(help) = &diagnostic.help {
            text.push_str(&format!("  = help: {help}\n"));
        }
    }
    say(&thalweg_core::text::without_controls(&text));
    Ok(match problem.status {
        422 | 400 => WRONG,
        401 | 403 | 404 | 409 | 412 => REFUSED,
        _ => FAILED,
    })
}

/// A name as a part of an address.
fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}
