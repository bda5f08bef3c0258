//! Panics of libraries that read what comes from outside, as errors.

use std::panic::{AssertUnwindSafe, catch_unwind};

use thalweg_core::{Error, Result};

/// Turns a panic (of a decoder library on a damaged file) into an error: a thread that ended
/// silently would look like the end of the input.
pub fn guarded<T>(body: impl FnOnce() -> Result<T>) -> Result<T> {
    caught(body, |message| Error::internal(format!("a reader panicked: {message}")))
}

/// Turns a panic into the error that is made of what it says.
pub fn caught<T>(body: impl FnOnce() -> Result<T>, error: impl FnOnce(&str) -> Error) -> Result<T> {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| {
        let message = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("unknown cause");
        Err(error(message))
    })
}
