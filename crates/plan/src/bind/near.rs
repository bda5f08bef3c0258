//! Near misses: what a user may have meant by a name that does not exist.

use thalweg_core::Error;

use crate::diagnostic::nearest;

/// Adds `did you mean '…'?` where a candidate is near.
pub fn did_you_mean<'a>(
    error: Error,
    name: &str,
    candidates: impl Iterator<Item = &'a str>,
) -> Error {
    match nearest(name, candidates) {
        Some(candidate) => error.hint(format!("did you mean '{candidate}'?")),
        None => error,
    }
}
