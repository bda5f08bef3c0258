//! The files of the repository, as the checks see them: without build outputs and hidden folders.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// All files below `root` whose names end with `suffix`, sorted, as paths relative to `root`.
pub fn files(root: &Path, suffix: &str) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if entry.file_type()?.is_dir() {
                if !is_skipped(&name) {
                    folders.push(entry.path());
                }
            } else if name.ends_with(suffix) {
                found.push(relative(root, &entry.path()));
            }
        }
    }
    found.sort();
    Ok(found)
}

/// `path` without `root` in front, with forward slashes.
pub fn relative(root: &Path, path: &Path) -> PathBuf {
    path.strip_prefix(root).unwrap_or(path).to_path_buf()
}

fn is_skipped(name: &str) -> bool {
    name.starts_with('.')
        || name.starts_with("target")
        || matches!(name, "__pycache__" | "node_modules")
}
