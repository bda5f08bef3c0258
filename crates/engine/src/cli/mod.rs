//! The command line: arguments, what is printed where, exit statuses.
//!
//! Invariants: data go to standard output and nothing else does; standard error stays silent when
//! it is no terminal, unless something went wrong (a row that is late or bad is such a thing) or was
//! asked for (`--metrics`); the exit status is
//! 0 done, 1 the job failed, 2 the SQL or the command line is wrong, 130 stopped by Ctrl-C, 141 where the reader of one of several outputs had gone.
//!
//! What statements do is decided in [`thalweg::session`]; nothing here knows SQL.

mod arguments;
mod bench;
mod check;
mod final_result;
mod interrupt;
mod live_view;
mod panic;
mod progress;
mod run;
mod screen;
mod snapshot;
mod source;
mod summary;
mod units;
mod upgrade;

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use thalweg_connectors::output;
use thalweg_core::{Error, ErrorKind};
use thalweg_plan::diagnostic;

use arguments::{Arguments, ColorChoice, Command, CompletionArguments, ScriptArguments};
use source::ScriptSource;

/// The job failed.
const FAILED: u8 = 1;
/// The SQL or the command line is wrong.
const WRONG: u8 = 2;
/// The reader of an output has gone before all was written, as for a process that the signal SIGPIPE ends.
const CLOSED: u8 = 141;
/// Stopped by Ctrl-C.
const STOPPED: u8 = interrupt::STOPPED as u8;

/// Does what the command line says.
pub fn main() -> ExitCode {
    panic::install_hook();
    let status = match Arguments::parse().command {
        Command::Run(arguments) => run::run(&arguments),
        Command::Validate(arguments) => check::validate(&arguments),
        Command::Explain(arguments) => check::explain(&arguments),
        Command::Completions(arguments) => completions(&arguments),
        Command::Snapshot(arguments) => snapshot::snapshot(&arguments),
        Command::Upgrade(arguments) => upgrade::upgrade(&arguments),
        Command::Bench(arguments) => bench::bench(&arguments),
    };
    ExitCode::from(status)
}

/// Prints a shell's completion script; returns the exit status.
fn completions(arguments: &CompletionArguments) -> u8 {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Arguments::command(), "thalweg", &mut script);
    match run::print(&String::from_utf8_lossy(&script)) {
        Ok(()) => 0,
        Err(error) => Failure::plain(error).tell(None, ColorChoice::Auto),
    }
}

/// Reads the statements, does something with them and tells an error; returns the exit status.
fn with_source(
    arguments: &ScriptArguments,
    body: impl FnOnce(&ScriptSource) -> Result<u8, Failure>,
) -> u8 {
    let source = match ScriptSource::read(arguments) {
        Ok(source) => source,
        Err(error) => return Failure::plain(error).tell(None, arguments.color),
    };
    match body(&source) {
        Ok(status) => status,
        Err(failure) => failure.tell(Some(&source), arguments.color),
    }
}

/// An error and the text that its place refers to.
struct Failure {
    error: Error,
    /// The statements after parameters were put in; `None`: as they were written.
    text: Option<String>,
}

impl Failure {
    fn plain(error: Error) -> Failure {
        Failure { error, text: None }
    }

    /// Prints the error and returns the exit status that goes with it.
    fn tell(&self, source: Option<&ScriptSource>, color: ColorChoice) -> u8 {
        let error = &self.error;
        if output::is_broken_pipe(error) {
            // Whoever reads has enough, as in `thalweg … | head`.
            return 0;
        }
        if error.kind() == ErrorKind::Cancelled {
            return STOPPED;
        }
        let written = source.map_or("", |source| source.text.as_str());
        let text = self.text.as_deref().unwrap_or(written);
        let name = source.map_or("", |source| source.name.as_str());
        let message = match panic::last_place() {
            // No user code runs in this process: who panicked was the engine.
            Some(place) if error.kind() == ErrorKind::User => {
                let internal = Error::internal(format!("{error} at {place}"));
                diagnostic::render(&internal, name, text, use_color(color))
            }
            _ => diagnostic::render(error, name, text, use_color(color)),
        };
        // Standard error may have gone away; there is nobody else to tell.
        let _ = std::io::stderr().write_all(message.as_bytes());
        if error.is_plan_error() { WRONG } else { FAILED }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::plain(error)
    }
}

/// Whether messages on standard error are colored (<https://no-color.org>).
fn use_color(choice: ColorChoice) -> bool {
    match choice {
        ColorChoice::Always => true,
        ColorChoice::Never => false,
        ColorChoice::Auto => {
            let forbidden = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
            let dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
            std::io::stderr().is_terminal() && !forbidden && !dumb
        }
    }
}
