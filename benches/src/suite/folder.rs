//! A folder for files that a point reads; it goes with the point.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A folder that is removed in the end.
pub struct Folder(PathBuf);

impl Folder {
    /// An empty one where the system has its temporary files.
    pub fn new() -> io::Result<Folder> {
        // Relaxed: only that no number comes twice matters.
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("thalweg-suite-{}-{number}", std::process::id());
        let folder = Folder(std::env::temp_dir().join(name));
        std::fs::create_dir_all(folder.path())?;
        Ok(folder)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file.
    pub fn write(&self, name: &str, text: &str) -> io::Result<()> {
        std::fs::write(self.0.join(name), text)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What stays behind lies where the system cleans up.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
