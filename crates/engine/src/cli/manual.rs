//! Man pages, from the definition of the command line.
//!
//! Invariant: every command that help shows has a page, and a page says nothing that depends on
//! the machine or on the moment it is written.

use std::io;
use std::path::Path;

use clap::CommandFactory;
use clap_mangen::Man;
use thalweg_core::Error;

use super::arguments::{Arguments, ManualArguments};
use super::exit::ended;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Writes a page for each command into a folder; returns the exit status.
pub fn write(arguments: &ManualArguments) -> u8 {
    let failed = |error| {
        let folder = arguments.folder.display();
        Error::io(format!("cannot write manual pages into {folder}: {error}"))
    };
    ended(write_all(&arguments.folder).map_err(failed).map(|()| 0))
}

fn write_all(folder: &Path) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let mut command = Arguments::command().long_version(VERSION).disable_help_subcommand(true);
    command.build();
    write_pages(&command, folder)
}

/// The pages of a command and of those below it.
fn write_pages(command: &clap::Command, folder: &Path) -> io::Result<()> {
    for below in command.get_subcommands().filter(|command| !command.is_hide_set()) {
        write_pages(below, folder)?;
    }
    // Where other pages have a date, these have the version: it is what they are of.
    let page = Man::new(command.clone()).date(VERSION).source("thalweg").manual("Thalweg");
    page.generate_to(folder).map(drop)
}
