//! Man pages, from the definition of the command line.
//!
//! Invariant: every command that help shows has a page, and a page says nothing that depends on
//! the machine or on the moment it is written.

use clap::CommandFactory;
use thalweg_core::Error;

use super::arguments::{Arguments, ColorChoice, ManualArguments};
use super::exit::Failure;

/// Writes a page for each command into a folder; returns the exit status.
pub fn write(arguments: &ManualArguments) -> u8 {
    let folder = &arguments.folder;
    let command = Arguments::command().long_version(env!("CARGO_PKG_VERSION"));
    let written =
        std::fs::create_dir_all(folder).and_then(|()| clap_mangen::generate_to(command, folder));
    match written {
        Ok(()) => 0,
        Err(error) => {
            let error = Error::io(format!("cannot write into {}: {error}", folder.display()));
            Failure::plain(error).report(None, ColorChoice::Auto)
        }
    }
}
