//! Text on standard output and standard error.

use std::borrow::Cow;
use std::io::{IsTerminal, Write};

use thalweg_core::text::without_controls;
use thalweg_core::{Error, Result};

use super::arguments::ColorChoice;

/// Prints on standard output. A closed pipe is the same error as from the writers of results.
pub fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    let text = if out.is_terminal() { without_controls(text) } else { Cow::Borrowed(text) };
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(|error| match error.kind() {
        std::io::ErrorKind::BrokenPipe => Error::io("broken pipe"),
        _ => Error::io(format!("cannot write to standard output: {error}")),
    })
}

/// Prints on standard error, which may have gone away.
pub fn say(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Whether messages on standard error are colored (<https://no-color.org>).
pub fn use_color(choice: ColorChoice) -> bool {
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
