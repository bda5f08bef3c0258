//! `thalweg docs`: the pages of the documentation that are part of the program.

use thalweg_core::{Error, Result};
use thalweg_server::docs;

use super::super::server_arguments::DocsArguments;
use super::super::text_table::aligned;
use super::{FAILED, ended, print};

/// Lists pages, prints one, or looks for a text in all; returns the exit status.
pub fn docs(arguments: &DocsArguments) -> u8 {
    let done = match (&arguments.search, &arguments.page) {
        (Some(text), _) => search(text),
        (None, Some(page)) => show(page),
        (None, None) => list(),
    };
    ended(done)
}

fn list() -> Result<u8> {
    let row = |page: &docs::DocsPage| vec![page.name.clone(), page.title.clone()];
    let rows: Vec<Vec<String>> = docs::pages().iter().map(row).collect();
    print(&aligned(&rows, |_| true)).map(|()| 0)
}

fn show(name: &str) -> Result<u8> {
    let Some(page) = docs::page(name) else {
        let error = Error::plan(format!("there is no page '{name}'"));
        return Err(match docs::near(name) {
            Some(near) => error.hint(format!("did you mean '{near}'?")),
            None => error.hint("`thalweg docs` lists the pages"),
        });
    };
    print(&page.text).map(|()| 0)
}

fn search(text: &str) -> Result<u8> {
    let found = docs::search(text);
    let line = |(page, number, line): &(&str, usize, &str)| format!("{page}:{number}: {line}\n");
    print(&found.iter().map(line).collect::<String>())?;
    Ok(if found.is_empty() { FAILED } else { 0 })
}
