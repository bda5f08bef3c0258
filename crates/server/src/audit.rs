//! Who has asked for what: `audit.ndjson` in the data directory.
//!
//! Each line has the hash of the line before, so that a line that was changed or taken out shows
//! ([`verify`]). Requests that change something are written down before they are answered.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use serde::{Deserialize, Serialize};
use thalweg_core::shim::{Clock, SystemClock};
use thalweg_core::{Error, Result};

use crate::tokens::digest;

const FILE: &str = "audit.ndjson";
/// A file of this size is renamed as `audit-TIME.ndjson`; the next begins with its last hash.
const BYTES_MAX: u64 = 16 << 20;

/// A request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct AuditLine {
    /// When, in milliseconds since 1970.
    pub at_ms: i64,
    /// The request, as the client was informed.
    pub request_id: String,
    /// The name of a token, or a user of this machine.
    pub by: String,
    /// Where it came from.
    pub address: String,
    /// GET, PUT, …
    pub method: String,
    /// What was asked for, without parameters.
    pub path: String,
    /// The status of the answer.
    pub status: u16,
    /// SHA-256 of the line before.
    pub previous: String,
}

/// The log of a server.
pub struct Audit {
    path: PathBuf,
    clock: SystemClock,
    /// The open file and the hash of its last line.
    last: Mutex<(File, String)>,
}

impl Audit {
    /// Opens the log of a data directory. Half a line at the end, of a process that died, is
    /// closed.
    ///
    /// # Errors
    /// If it cannot be written to.
    pub fn open(root: &Path, clock: SystemClock) -> Result<Audit> {
        let path = root.join(FILE);
        let failed = |error: std::io::Error| {
            Error::io(format!("the audit log cannot be written: {error}"))
                .in_file(path.display().to_string())
        };
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let mut file = File::options().create(true).append(true).open(&path).map_err(failed)?;
        if !text.is_empty() && !text.ends_with('\n') {
            file.write_all(b"\n").map_err(failed)?;
        }
        let last = text.lines().last().map(digest).unwrap_or_default();
        Ok(Audit { path, clock, last: Mutex::new((file, last)) })
    }

    /// Adds a request.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn add(&self, line: AuditLine) -> std::io::Result<()> {
        let mut last = self.last.lock().expect("no panic under this lock");
        if last.0.metadata()?.len() > BYTES_MAX {
            let aside = self.path.with_file_name(format!("audit-{}.ndjson", self.clock.wall_ms()));
            std::fs::rename(&self.path, aside)?;
            last.0 = File::options().create(true).append(true).open(&self.path)?;
        }
        let line = AuditLine { at_ms: self.clock.wall_ms(), previous: last.1.clone(), ..line };
        let text = serde_json::to_string(&line)?;
        last.0.write_all(format!("{text}\n").as_bytes())?;
        last.1 = digest(&text);
        Ok(())
    }

    /// The last requests, newest first.
    pub fn tail(&self, lines_max: usize) -> Vec<AuditLine> {
        let text = std::fs::read_to_string(&self.path).unwrap_or_default();
        let lines = text.lines().rev().take(lines_max);
        lines.filter_map(|line| serde_json::from_str(line).ok()).collect()
    }
}

/// The number of the first line, from 1, whose predecessor is not what it was; `None` if all are.
pub fn verify(text: &str) -> Option<usize> {
    let mut before: Option<String> = None;
    for (place, line) in text.lines().enumerate() {
        let named = serde_json::from_str::<AuditLine>(line).ok().map(|line| line.previous);
        match (&named, &before) {
            // Half a line of a process that died: the next one names its hash.
            (None, _) => {}
            (Some(named), Some(before)) if named != before => return Some(place + 1),
            _ => {}
        }
        before = Some(digest(line));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_was_changed_or_taken_out_shows() {
        let folder = tempfile::tempdir().expect("a folder");
        let add = |paths: &[&str]| {
            let audit = Audit::open(folder.path(), SystemClock::new()).expect("opened");
            for path in paths {
                let line = AuditLine { path: (*path).to_owned(), ..AuditLine::default() };
                audit.add(line).expect("written");
            }
        };
        add(&["/a", "/b"]);
        add(&["/c"]);
        let text = std::fs::read_to_string(folder.path().join(FILE)).expect("text");
        assert_eq!(verify(&text), None);
        assert_eq!(verify(&text.replace("/b", "/x")), Some(3));
        let without: Vec<&str> =
            text.lines().enumerate().filter(|(at, _)| *at != 1).map(|(_, line)| line).collect();
        assert_eq!(verify(&without.join("\n")), Some(2));
    }
}
