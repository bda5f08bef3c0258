//! Panics are bugs, and people who meet one should know what to do. The usual text of a Rust panic
//! never appears.
//!
//! A panic on a thread of the runtime becomes an error of the job; here only its place is kept, so
//! that it can be reported with that error. On any other thread the message is printed at once.

use std::panic::PanicHookInfo;
use std::sync::Mutex;

/// Where the last panic was raised.
static PLACE: Mutex<Option<String>> = Mutex::new(None);

/// Replaces the text that Rust prints.
pub fn install_hook() {
    std::panic::set_hook(Box::new(|info| {
        let place = info.location().map_or("an unknown place".to_owned(), |location| {
            format!("{}:{}:{}", location.file(), location.line(), location.column())
        });
        let thread = std::thread::current();
        let becomes_an_error = thread
            .name()
            .is_some_and(|name| name.starts_with("worker-") || name.starts_with("sink-"));
        if !becomes_an_error {
            let thread = thread.name().unwrap_or("unnamed").to_owned();
            eprintln!(
                "internal error, please report it: {} (at {place}, thread {thread})",
                message(info)
            );
        }
        if let Ok(mut last) = PLACE.lock() {
            *last = Some(place);
        }
    }));
}

/// Where the last panic was raised, if there was one.
pub fn last_place() -> Option<String> {
    PLACE.lock().ok()?.clone()
}

fn message(info: &PanicHookInfo<'_>) -> String {
    let payload = info.payload();
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "a panic without a text".to_owned())
}
