//! How a command ends: exit statuses, and errors on standard error.

use std::io::Write;

use thalweg_connectors::output;
use thalweg_core::{Error, ErrorKind, Result};
use thalweg_plan::diagnostic;

use super::arguments::{ColorChoice, ScriptArguments};
use super::source::ScriptSource;
use super::terminal::use_color;
use super::{interrupt, panic};

/// The job failed.
pub const FAILED: u8 = 1;
/// The SQL or the command line is wrong.
pub const WRONG: u8 = 2;
/// The reader of an output has gone before all was written, as for a process that the signal
/// SIGPIPE ends.
pub const CLOSED: u8 = 141;
/// Stopped by Ctrl-C.
pub const STOPPED: u8 = interrupt::STOPPED as u8;

/// Reads the statements, does something with them and reports an error; returns the exit status.
pub fn with_source(
    arguments: &ScriptArguments,
    body: impl FnOnce(&ScriptSource) -> std::result::Result<u8, Failure>,
) -> u8 {
    let source = match ScriptSource::read(arguments) {
        Ok(source) => source,
        Err(error) => return Failure::plain(error).report(None, arguments.color),
    };
    match body(&source) {
        Ok(status) => status,
        Err(failure) => failure.report(Some(&source), arguments.color),
    }
}

/// The exit status of a command that reads no statements; its error is reported.
pub fn ended(done: Result<u8>) -> u8 {
    done.unwrap_or_else(|error| Failure::plain(error).report(None, ColorChoice::Auto))
}

/// An error and the text that its place refers to.
pub struct Failure {
    /// What went wrong.
    pub error: Error,
    /// The statements after parameters were put in; `None`: as they were written.
    pub text: Option<String>,
}

impl Failure {
    /// An error of the text as it was written, or of none.
    pub fn plain(error: Error) -> Failure {
        Failure { error, text: None }
    }

    /// Prints the error and returns the exit status that goes with it.
    pub fn report(&self, source: Option<&ScriptSource>, color: ColorChoice) -> u8 {
        let error = &self.error;
        if output::is_broken_pipe(error) {
            // The reader has enough, as in `thalweg … | head`.
            return 0;
        }
        if error.kind() == ErrorKind::Cancelled {
            return STOPPED;
        }
        let written = source.map_or("", |source| source.text.as_str());
        let text = self.text.as_deref().unwrap_or(written);
        let name = source.map_or("", |source| source.name.as_str());
        let message = match panic::last_place() {
            // No user code runs in this process: the engine panicked.
            Some(place) if error.kind() == ErrorKind::User => {
                let internal = Error::internal(format!("{error} at {place}"));
                diagnostic::render(&internal, name, text, use_color(color))
            }
            _ => diagnostic::render(error, name, text, use_color(color)),
        };
        // Standard error may have gone away; there is nowhere else to report to.
        let _ = std::io::stderr().write_all(message.as_bytes());
        if error.is_plan_error() { WRONG } else { FAILED }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::plain(error)
    }
}
