//! `thalweg top`: all jobs of a server and what they are doing, again and again.
//!
//! | module | holds |
//! |---|---|
//! | `table` | jobs and stages as cells |
//! | `view` | what is shown and what keys do: no terminal, no server |
//! | `screen` | the terminal |
//! | `asking` | the thread that talks to the server, so that a slow one stops no key |

mod asking;
mod screen;
mod table;
mod view;

use std::io::IsTerminal;
use std::time::Duration;

use thalweg_core::{Error, Result};

use super::super::server_arguments::TopArguments;
use super::super::text_table::aligned;
use super::{answer, client, ended, print};
use asking::jobs_path;
use table::{IS_TEXT, JOB_COLUMNS, head, job_cells};
use view::{JobList, View};

/// `thalweg top`
pub fn top(arguments: &TopArguments) -> u8 {
    let is_once = arguments.once || arguments.server.json || !std::io::stdout().is_terminal();
    let done = if is_once { once(arguments) } else { watch(arguments) };
    ended(done)
}

/// Prints the jobs as they are now.
fn once(arguments: &TopArguments) -> Result<u8> {
    let found = client(&arguments.server)?.ask("GET", &jobs_path(), None, false)?;
    if found.problem().is_some() {
        return answer(&found, arguments.server.json, |_| String::new());
    }
    let mut view = View::new(arguments.sort, arguments.filter.clone().unwrap_or_default());
    view.take_jobs(parsed(&found.text)?);
    if arguments.server.json {
        print(&format!("{}\n", view.json()))?;
        return Ok(0);
    }
    let mut rows = vec![JOB_COLUMNS.map(str::to_owned).to_vec()];
    rows.extend(view.jobs().map(|job| job_cells(job, view.server().at_ms).to_vec()));
    print(&format!("{}\n{}", head(view.server(), view.all()), aligned(&rows, |n| IS_TEXT[n])))?;
    Ok(0)
}

fn watch(arguments: &TopArguments) -> Result<u8> {
    let view = View::new(arguments.sort, arguments.filter.clone().unwrap_or_default());
    let every = Duration::try_from_secs_f64(arguments.interval).unwrap_or(Duration::ZERO);
    let every = every.max(Duration::from_millis(100));
    let asking = asking::Asking::begin(client(&arguments.server)?, every)?;
    screen::show(view, &asking)?;
    Ok(0)
}

fn parsed(text: &str) -> Result<JobList> {
    serde_json::from_str(text).map_err(|error| {
        Error::plan(format!("the server's list of jobs is none that this program reads: {error}"))
            .hint("use the `thalweg` of the server's version")
    })
}
