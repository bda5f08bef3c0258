//! `thalweg serve`

use std::sync::Arc;
use std::sync::atomic::Ordering;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals as SignalsOfSystem;
use thalweg_core::{Error, Result};
use thalweg_server::{Config, LogFormat, Moment, Origin, Serving, Signals};

use super::super::server_arguments::ServeArguments;
use super::super::text_table::table;
use super::{ended, print, say};

/// Serves until a signal; the exit status.
pub fn serve(arguments: &ServeArguments) -> u8 {
    ended(try_serve(arguments).map(|()| 0))
}

fn try_serve(arguments: &ServeArguments) -> Result<()> {
    let listen = arguments.listen.iter().map(|address| ("listen".to_owned(), address.clone()));
    let flags: Vec<(String, String)> = listen.chain(arguments.options.iter().cloned()).collect();
    let file = arguments.config.as_deref();
    let mut config = Config::read(&arguments.data_dir, file, std::env::vars(), &flags)?;
    config.hold = arguments.hold;
    config.page_dir.clone_from(&arguments.page_dir);
    if arguments.print_config {
        return print(&shown(&config));
    }
    serve_config(config, greet)
}

/// Serves until a signal. `ready` is called when connections are taken.
pub(super) fn serve_config(config: Config, ready: impl Fn(&Serving)) -> Result<()> {
    let signals = Arc::new(Signals::default());
    listen_to_signals(&signals)?;
    super::super::allocator::begin();
    thalweg_server::serve(config, &signals, |moment| match moment {
        Moment::Ready(serving) => ready(serving),
        Moment::Reloaded(problems) => {
            problems.iter().for_each(|problem| say(&format!("warning: {problem}\n")));
            say("tokens and the folder of jobs are read again\n");
        }
    })
}

/// Ctrl-C and SIGTERM end the server, SIGHUP has it read again what may change.
fn listen_to_signals(signals: &Arc<Signals>) -> Result<()> {
    let counted = Arc::clone(signals);
    let failed = |error| Error::io(format!("can't listen to signals: {error}"));
    let mut found = SignalsOfSystem::new([SIGINT, SIGTERM, SIGHUP]).map_err(failed)?;
    let body = move || {
        for signal in found.forever() {
            let count = if signal == SIGHUP { &counted.reloads } else { &counted.ends };
            count.fetch_add(1, Ordering::SeqCst);
        }
    };
    let thread = std::thread::Builder::new().name("signals".to_owned()).spawn(body);
    thread.map(drop).map_err(failed)
}

/// Says where the server is, and how to reach it: as text, or as lines for programs.
fn greet(serving: &Serving) {
    let say = |text: &str| match (serving.journal.format(), text.strip_prefix("warning: ")) {
        (LogFormat::Json, Some(text)) => serving.journal.say("warning", None, text.trim_end()),
        (LogFormat::Json, None) => serving.journal.say("info", None, text.trim_end()),
        (LogFormat::Text | LogFormat::Off, _) => say(text),
    };
    for problem in &serving.problems {
        say(&format!("warning: {problem}\n"));
    }
    if let Some(address) = serving.address {
        say(&format!("listening at http://{address}\n"));
        say(&format!(
            "page: http://{address}/, with a token: thalweg token create NAME --role admin\n"
        ));
    }
    if let Some(address) = serving.gateway {
        say(&format!("SQL gateway for clients of Flink: http://{address}\n"));
    }
    say(&format!("commands of this machine: {}\n", serving.socket.display()));
}

fn shown(config: &Config) -> String {
    let rows = config.entries().into_iter().map(|entry| {
        let from = match entry.origin {
            Origin::Default => "default".to_owned(),
            Origin::File(file) => file,
            Origin::Variable(name) => name,
            Origin::Flag => "command line".to_owned(),
        };
        [entry.name, entry.value, from]
    });
    table(["option", "value", "from"], rows, |_| true)
}
