//! A folder for the files that queries read and write besides events. It goes with the benchmark.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use thalweg_core::{Error, Result};

/// Keys of the table that query 13 joins with the bids.
const SIDE_INPUT_KEYS: usize = 10_000;

/// A folder that is removed in the end.
pub(super) struct Scratch(PathBuf);

impl Scratch {
    /// An empty folder.
    pub(super) fn new() -> Result<Scratch> {
        // Relaxed: only that no number comes twice matters.
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("thalweg-bench-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).map_err(|error| cannot_write(&path, &error))?;
        Ok(Scratch(path))
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Writes the table of query 13; what it is called.
    pub(super) fn side_input(&self) -> Result<String> {
        let mut text = String::new();
        for key in 0..SIDE_INPUT_KEYS {
            // Writing to a String can't fail.
            let _ = writeln!(text, "{key},value-{key}");
        }
        let path = self.0.join("side_input.csv");
        fs::write(&path, text).map_err(|error| cannot_write(&path, &error))?;
        Ok("side_input.csv".to_owned())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What stays behind lies where the system cleans up.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn cannot_write(path: &Path, error: &std::io::Error) -> Error {
    Error::io(format!("cannot write {}: {error}", path.display()))
        .hint("TMPDIR names the folder for files that are not kept")
}
