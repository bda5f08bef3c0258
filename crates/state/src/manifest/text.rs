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
//! The checksum is that of all bytes before `"checksum"`, spaces included, and what follows it is
//! always the same three bytes and a line feed. So every bit of the file is covered, and the file
//! is JSON all the same.

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

/// Reads any bytes as a manifest and says whether they are one, once as they are and once with a
/// checksum that fits, since damage would never get past it. For the fuzz target.
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use thalweg_core::ErrorKind;

    /// The body of a manifest that says something everywhere, up to its checksum.
    const BODY: &str = r#"{
  "format": 1, "job": "flights", "number": 12, "kind": "manual", "taken_at_ms": -1,
  "engine": "0.1.0", "order": "event_time", "serial": 18446744073709551615, "is_complete": true,
  "notes": {"plan": "abc"}, "of a later version": [1],
  "stages": [{"id": "a", "name": "b", "ended": false, "places": 3,
    "inputs": {"lanes": [{"watermark": "end", "idle": true}, {"watermark": -7, "idle": false}],
      "ended_at": "min", "joint": 5, "passed": 5},
    "source": {"position": "{}", "assigner": {"running": 1, "taken": "min"}, "finished": true,
      "idle": false, "epoch": 1, "serial": 2, "taken": 3, "frontier_ms": -9223372036854775808},
    "sink": {"guarantee": "at-least-once", "handle": null, "has_ended": true},
    "state": [{"name": "t", "columns": ["$partition UInt8"], "fingerprint": "x",
      "identity_columns": 1, "generations": [
        {"snapshot": 3, "partitions": 2, "whole": [0, 1], "removed": [], "rows": [
          {"path": "snapshots/0000000003/a.arrow", "bytes": 5, "rows": 6, "checksum": "y"}]},
        {"snapshot": 12, "partitions": 1, "whole": [], "removed": [], "rows": []}]}],
    "waiting": []}],
  "#;

    fn fitting(body: &str) -> Vec<u8> {
        let checksum = checksum::text_of(body.as_bytes());
        format!("{body}{BEFORE}{checksum}{AFTER}").into_bytes()
    }

    fn error(body: &str) -> Error {
        Manifest::from_bytes(&fitting(body)).expect_err(body)
    }

    #[test]
    fn a_manifest_survives_being_written() {
        assert!(fuzz_manifest(BODY.as_bytes()));
        let manifest = Manifest::from_bytes(&fitting(BODY)).expect("one");
        assert_eq!(manifest.files().count(), 1);
    }

    #[test]
    fn what_makes_no_sense_is_refused_though_its_checksum_fits() {
        assert_eq!(
            error(&BODY.replace("\"format\": 1", "\"format\": 2")).kind(),
            ErrorKind::Unsupported
        );
        for (from, to) in [
            ("snapshots/0000000003/a.arrow", "snapshots/0000000003/../../secret"),
            ("snapshots/0000000003/a.arrow", "/etc/passwd"),
            ("snapshots/0000000003/a.arrow", "snapshots/0000000013/later.arrow"),
            ("\"whole\": [0, 1]", "\"whole\": [0, 0]"),
            ("\"whole\": [0, 1]", "\"whole\": [0]"),
            ("\"partitions\": 1", "\"partitions\": 0"),
            ("\"identity_columns\": 1", "\"identity_columns\": 2"),
            ("\"identity_columns\": 1", "\"identity_columns\": 0"),
            ("event_time", "sometimes"),
            ("\"joint\": 5", "\"joint\": 5.5"),
        ] {
            assert!(BODY.contains(from), "{from}");
            let error = error(&BODY.replace(from, to));
            assert!(error.kind() == ErrorKind::Data && error.help().is_some(), "{to}: {error}");
        }
    }

    proptest! {
        /// What the fuzz target does, for a moment.
        #[test]
        fn any_bytes_are_a_manifest_or_an_error(
            bytes in prop::collection::vec(any::<u8>(), 0..80),
            at in 0..BODY.len(),
            length in 0..40_usize,
            number in prop_oneof![any::<i64>().prop_map(|n| n.to_string()), Just("[]".to_owned())],
        ) {
            fuzz_manifest(&bytes);
            let mut body = BODY.as_bytes().to_vec();
            body.splice(at..(at + length).min(BODY.len()), bytes);
            fuzz_manifest(&body);
            let numbers: Vec<usize> =
                BODY.match_indices(|c: char| c.is_ascii_digit()).map(|(place, _)| place).collect();
            let place = numbers[at % numbers.len()];
            fuzz_manifest(format!("{}{number}{}", &BODY[..place], &BODY[place + 1..]).as_bytes());
        }
    }
}
