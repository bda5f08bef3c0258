//! `thalweg serve`, and the commands that talk to a server.
//!
//! Exit statuses: 0 done, 1 it failed, 2 the command line is wrong, 3 no, and the answer says why.

mod jobs;
mod notify;
mod serve;

use std::path::{Path, PathBuf};

use serde_json::Value;
use thalweg_core::{Error, Result};
use thalweg_server::Problem;
use thalweg_server::client::{Answer, Client, Place};

use super::arguments::ColorChoice;
use super::exit::{FAILED, Failure, WRONG};
use super::server_arguments::{DATA_DIR, ServerArguments};
use super::terminal::{print, say};

pub use jobs::{
    approve, change, describe, events, list, logs, query, start, status, stop, submit, token, why,
};
pub use serve::serve;

/// The server said no, and why.
const REFUSED: u8 = 3;

/// The data directory that is meant.
fn data_dir(given: Option<&Path>) -> PathBuf {
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
    let done = client(arguments).and_then(|client| body(&client));
    done.unwrap_or_else(|error| Failure::plain(error).report(None, ColorChoice::Auto))
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
