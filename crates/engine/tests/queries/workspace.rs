//! A folder for a test, and sessions in it.

use std::fs;
use std::path::{Path, PathBuf};

use thalweg::session::{Session, SessionOptions};

/// An empty folder of this name. Tests of one program run at the same time: no two share a name.
pub fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a temporary folder");
    folder
}

/// A session whose files are in this folder.
pub fn options(folder: &Path) -> SessionOptions {
    SessionOptions {
        base_dir: folder.to_path_buf(),
        allowed_roots: vec![folder.to_path_buf()],
        ..SessionOptions::default()
    }
}

pub fn session(folder: &Path) -> Session {
    Session::new(options(folder)).expect("a session")
}

/// Runs a script.
pub fn execute(folder: &Path, script: &str) -> thalweg::Result<()> {
    Session::new(options(folder))?.execute(script).map(drop)
}

/// Runs a script that fails. What the error says, with its hint.
pub fn refused(folder: &Path, script: &str) -> String {
    let error = execute(folder, script).expect_err("it is refused");
    format!("{error} {}", error.help().unwrap_or_default())
}
