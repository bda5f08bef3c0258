//! Between a manifest and its bytes.
//!
//! ```text
//! {
//!   "format": 1,
//!   …
//!   "stages": […],
//!   "checksum": "xxh3:0123456789abcdef"
//! }
//! ```
//! The checksum is that of all bytes before `"checksum"`, spaces included, and what follows it is always the
//! same three bytes and a line feed. So every bit of the file is covered, and the file is JSON all the same.

use serde_json::Value;
use thalweg_core::{Error, Result};

use super::{FORMAT, Manifest};
use crate::checksum;

const BEFORE: &str = "\"checksum\": \"";
const AFTER: &str = "\"\n}\n";
const TAIL_LENGTH: usize = BEFORE.len() + checksum::TEXT_LENGTH + AFTER.len();

impl Manifest {
    /// Its bytes.
    ///
    /// # Errors
    /// None that is known; JSON has no room for some values, and there are none of them.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let text = serde_json::to_string_pretty(self)
            .map_err(|error| Error::internal(format!("a manifest cannot be written: {error}")))?;
        let body = text.strip_suffix("\n}").unwrap_or(&text);
        let mut bytes = format!("{body},\n  ").into_bytes();
        let checksum = checksum::text_of(&bytes);
        bytes.extend_from_slice(format!("{BEFORE}{checksum}{AFTER}").as_bytes());
        Ok(bytes)
    }

    /// Reads what [`Manifest::to_bytes`] has written.
    ///
    /// # Errors
    /// If a byte is not as it was written, if the format is a newer one, or if it makes no sense.
    pub fn from_bytes(bytes: &[u8]) -> Result<Manifest> {
        check_bytes(bytes)?;
        let unreadable = |error: serde_json::Error| super::malformed(error.to_string());
        let value: Value = serde_json::from_slice(bytes).map_err(unreadable)?;
        let format = value.get("format").and_then(Value::as_u64).unwrap_or(0);
        if format != u64::from(FORMAT) {
            let message = format!("it has format {format}, and this engine reads format {FORMAT}");
            return Err(
                Error::unsupported(message).hint("use the version of Thalweg that wrote it")
            );
        }
        let manifest: Manifest = serde_json::from_slice(bytes).map_err(unreadable)?;
        manifest.check()?;
        Ok(manifest)
    }
}

fn check_bytes(bytes: &[u8]) -> Result<()> {
    let damaged = |what: &str| {
        Error::data(format!("it is damaged: {what}")).hint("use an older snapshot; none is deleted")
    };
    let Some((body, tail)) = bytes.split_at_checked(bytes.len().wrapping_sub(TAIL_LENGTH)) else {
        return Err(damaged("it is too short"));
    };
    let expected = format!("{BEFORE}{}{AFTER}", checksum::text_of(body));
    if tail != expected.as_bytes() {
        return Err(damaged("its bytes are not those that were written"));
    }
    Ok(())
}

/// Reads any bytes as a manifest and says whether they are one, once as they are and once with a checksum
/// that fits, since damage would never get past it. For the fuzz target.
///
/// # Panics
/// If a manifest that was read is not the same when it is written and read again.
pub fn fuzz_manifest(bytes: &[u8]) -> bool {
    let is_one = Manifest::from_bytes(bytes).is_ok();
    let mut fitting = bytes.to_vec();
    let checksum = checksum::text_of(bytes);
    fitting.extend_from_slice(format!("{BEFORE}{checksum}{AFTER}").as_bytes());
    let Ok(manifest) = Manifest::from_bytes(&fitting) else { return is_one };
    let again = manifest.to_bytes().and_then(|bytes| Manifest::from_bytes(&bytes));
    assert_eq!(again.ok().as_ref(), Some(&manifest), "a manifest survives being written");
    true
}
