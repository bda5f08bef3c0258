//! `thalweg serve`

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use thalweg_core::{Error, Result};
use thalweg_server::{Config, Origin, Serving};

use super::super::server_arguments::ServeArguments;
use super::super::text_table::aligned;
use super::{ColorChoice, Failure, notify, print, say};

/// Serves until a signal; the exit status.
pub fn serve(arguments: &ServeArguments) -> u8 {
    match try_serve(arguments) {
        Ok(()) => 0,
        Err(error) => Failure::plain(error).report(None, ColorChoice::Auto),
    }
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
    let signals = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&signals);
    let count = move || {
        if counted.fetch_add(1, Ordering::SeqCst) == 0 {
            notify::notify(notify::STOPPING);
        }
    };
    ctrlc::set_handler(count)
        .map_err(|error| Error::io(format!("can't listen to signals: {error}")))?;
    super::super::allocator::begin();
    thalweg_server::serve(config, &signals, greet)
}

/// Says where the server is, and that it is there.
fn greet(serving: &Serving) {
    for problem in &serving.problems {
        say(&format!("warning: {problem}\n"));
    }
    if let Some(address) = serving.address {
        say(&format!("listening at http://{address}\n"));
        say(&format!(
            "page: http://{address}/, with a token: thalweg token create NAME --role admin\n"
        ));
    }
    say(&format!("commands of this machine: {}\n", serving.socket.display()));
    notify::notify(notify::READY);
}

fn shown(config: &Config) -> String {
    let mut rows = vec![["option", "value", "from"].map(str::to_owned).to_vec()];
    for entry in config.entries() {
        let from = match entry.origin {
            Origin::Default => "default".to_owned(),
            Origin::File(file) => file,
            Origin::Variable(name) => name,
            Origin::Flag => "command line".to_owned(),
        };
        rows.push(vec![entry.name, entry.value, from]);
    }
    aligned(&rows, |_| true)
}
