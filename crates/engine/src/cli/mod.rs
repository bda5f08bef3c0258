//! The command line: arguments, what is printed where, exit statuses.
//!
//! Invariants: data go to standard output and nothing else does; standard error stays silent when
//! it is no terminal, unless something went wrong (late and bad rows count) or was requested
//! (`--metrics`); the exit status is 0 done, 1 the job failed, 2 the SQL or the command line is
//! wrong, 130 stopped by Ctrl-C, 141 if the reader of one of several outputs had gone ([`exit`]).
//!
//! What statements do is decided in [`thalweg::session`]; nothing here knows SQL.

mod allocator;
mod arguments;
mod bench;
mod check;
mod exit;
mod final_result;
#[cfg(feature = "flink")]
mod flink;
#[cfg(feature = "flink")]
mod flink_arguments;
mod interrupt;
mod live_view;
mod manual;
#[cfg(feature = "server")]
mod moment;
mod panic;
mod progress;
mod run;
mod screen;
#[cfg(feature = "server")]
mod server;
#[cfg(feature = "server")]
mod server_arguments;
mod snapshot;
mod source;
mod summary;
mod terminal;
mod test;
mod text_table;
mod units;
mod upgrade;
mod watching;

use std::ffi::OsString;

use clap::{CommandFactory, Parser};

use arguments::{Arguments, Command, CompletionArguments};

/// Does what a command line says, the name of the program first; the exit status. A mistake in it,
/// and `--help`, end the process.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    panic::install_hook();
    match Arguments::parse_from(arguments).command {
        Command::Run(arguments) => run::run(&arguments),
        Command::Validate(arguments) => check::validate(&arguments),
        Command::Explain(arguments) => check::explain(&arguments),
        Command::Completions(arguments) => completions(&arguments),
        Command::Manual(arguments) => manual::write(&arguments),
        Command::Snapshot(arguments) => snapshot::snapshot(&arguments),
        Command::Upgrade(arguments) => upgrade::upgrade(&arguments),
        Command::Bench(arguments) => bench::bench(&arguments),
        Command::Test(arguments) => test::test(&arguments),
        #[cfg(feature = "flink")]
        Command::Translate(arguments) => flink::translate(&arguments),
        #[cfg(feature = "flink")]
        Command::Compare(arguments) => flink::compare(&arguments),
        #[cfg(feature = "flink")]
        Command::Move(arguments) => flink::move_job(&arguments),
        #[cfg(feature = "flink")]
        Command::Cancel(arguments) => flink::cancel(&arguments),
        #[cfg(feature = "flink")]
        Command::Submit(arguments) if arguments.flink.flink.is_some() => flink::submit(&arguments),
        #[cfg(feature = "flink")]
        Command::Stop(arguments) if arguments.flink.flink.is_some() => flink::stop(&arguments),
        #[cfg(feature = "flink")]
        Command::Status(arguments) if arguments.flink.flink.is_some() => flink::status(&arguments),
        #[cfg(feature = "flink")]
        Command::Logs(arguments) if arguments.flink.flink.is_some() => flink::logs(&arguments),
        #[cfg(feature = "server")]
        other => served(other),
    }
}

/// The commands of a server.
#[cfg(feature = "server")]
fn served(command: Command) -> u8 {
    match command {
        Command::Serve(arguments) => server::serve(&arguments),
        Command::Demo(arguments) => server::demo(&arguments),
        Command::Docs(arguments) => server::docs(&arguments),
        Command::Ls(arguments) => server::list(&arguments),
        Command::Top(arguments) => server::top(&arguments),
        Command::Tap(arguments) => server::tap(&arguments),
        Command::Late(arguments) => server::late(&arguments),
        Command::Dead(arguments) => server::dead(&arguments),
        Command::Trial(arguments) => server::trial(&arguments),
        Command::SupportBundle(arguments) => server::support_bundle(&arguments),
        Command::Describe(arguments) => server::describe(&arguments),
        Command::Why(arguments) => server::why(&arguments),
        Command::Submit(arguments) => server::submit(&arguments),
        Command::Start(arguments) => server::start(&arguments),
        Command::Stop(arguments) => server::stop(&arguments),
        Command::Pause(arguments) => server::change(&arguments, "pause"),
        Command::Resume(arguments) => server::change(&arguments, "resume"),
        Command::Restart(arguments) => server::change(&arguments, "restart"),
        Command::Approve(arguments) => server::approve(&arguments),
        Command::Logs(arguments) => server::logs(&arguments),
        Command::Events(arguments) => server::events(&arguments),
        Command::Query(arguments) if arguments.follow => server::follow(&arguments),
        Command::Query(arguments) => server::query(&arguments),
        Command::Status(arguments) => server::status(&arguments),
        Command::Token(arguments) => server::token(&arguments),
        _ => unreachable!("the others were looked at first"),
    }
}

/// Prints a shell's completion script; returns the exit status.
fn completions(arguments: &CompletionArguments) -> u8 {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Arguments::command(), "thalweg", &mut script);
    exit::ended(terminal::print(&String::from_utf8_lossy(&script)).map(|()| 0))
}
