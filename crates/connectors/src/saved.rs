//! Positions of sources and transactions of sinks, as snapshots keep them: JSON that only tables
//! of the kind that has written it can read.

use serde_json::Value;
use thalweg_core::{Error, Result};

/// Reads a `what` ("position in a table") that a table has written into a snapshot.
///
/// # Errors
/// If the text is no JSON, or `read` finds in it nothing that makes sense.
pub fn read_saved<T>(what: &str, text: &str, read: impl FnOnce(&Value) -> Option<T>) -> Result<T> {
    let value: Option<Value> = serde_json::from_str(text).ok();
    value.as_ref().and_then(read).ok_or_else(|| {
        Error::user(format!("this is no {what}: {text}"))
            .hint("the snapshot is of another table, of another version, or damaged")
    })
}
