//! The exclusive right to write a file or a folder, across processes.
//!
//! # Names
//! A process that writes `FOLDER/NAME` holds a lock on `FOLDER/.NAME.thalweg-lock`; one that writes
//! the folder as a whole, on `FOLDER/.thalweg-lock`. Readers pass over names that begin with a dot,
//! and the files are removed with the claims.
//!
//! # Protocol
//! 1. The own lock is taken: two writers of one path meet here.
//! 2. Then others are looked for: a folder above that is claimed as a whole and, for a folder, any
//!    claim inside it. Since each looks only after it holds its own, two claims that overlap never
//!    both succeed.
//!
//! A claim changes nothing else. Folders that it had to make for its lock are removed again, unless
//! the output was begun ([`Claim::begin`]).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use thalweg_core::lock::{FileLock, LockError};
use thalweg_core::{Error, ErrorKind, Result};

/// The lock on a folder as a whole.
const FOLDER_LOCK: &str = ".thalweg-lock";
/// How the names of locks end.
const LOCK: &str = ".thalweg-lock";

/// The right to write, released when it is dropped.
#[derive(Debug, Default)]
pub struct Claim {
    /// `None` where no other process can come: a file system in memory.
    lock: Option<FileLock>,
    /// Folders that were made for the lock, the innermost last.
    made: Vec<PathBuf>,
}

impl Claim {
    /// Claims a file; `path` has links resolved, but for the name itself. `what` says whose file it
    /// is.
    ///
    /// # Errors
    /// If it, or a folder above it, is being written, by this process or another.
    pub fn file(what: &str, path: &Path) -> Result<Claim> {
        let folder = path.parent().unwrap_or(Path::new("/"));
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let claim = Claim::take(what, path, folder, &format!(".{name}{LOCK}"))?;
        check_above(what, path, folder)?;
        Ok(claim)
    }

    /// Claims a folder with all that is in it.
    ///
    /// # Errors
    /// If it, a folder above it or something inside it is being written, by this process or
    /// another.
    pub fn folder(what: &str, folder: &Path) -> Result<Claim> {
        let claim = Claim::take(what, folder, folder, FOLDER_LOCK)?;
        if let Some(above) = folder.parent() {
            check_above(what, folder, above)?;
        }
        check_inside(what, folder)?;
        Ok(claim)
    }

    fn take(what: &str, path: &Path, folder: &Path, name: &str) -> Result<Claim> {
        let mut claim = Claim { lock: None, made: missing(folder) };
        fs::create_dir_all(folder).map_err(|error| failed(what, path, &error))?;
        let lock = FileLock::temporary(&folder.join(name));
        claim.lock = Some(lock.map_err(|error| refused(what, path, path, error))?);
        Ok(claim)
    }

    /// The output is begun: its folders stay.
    pub fn begin(&mut self) {
        self.made.clear();
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.lock = None;
        for folder in self.made.iter().rev() {
            // One in which something is stays.
            let _ = fs::remove_dir(folder);
        }
    }
}

/// The folders that are not there, the innermost last.
fn missing(folder: &Path) -> Vec<PathBuf> {
    let missing = folder.ancestors().take_while(|above| !above.exists());
    let mut missing: Vec<PathBuf> = missing.map(Path::to_path_buf).collect();
    missing.reverse();
    missing
}

/// Checks that no folder from this one upwards is claimed as a whole.
fn check_above(what: &str, path: &Path, folder: &Path) -> Result<()> {
    folder.ancestors().try_for_each(|above| {
        let free = FileLock::check_free(&above.join(FOLDER_LOCK));
        free.map_err(|error| refused(what, path, above, error))
    })
}

/// Checks that nothing inside a folder is claimed.
fn check_inside(what: &str, folder: &Path) -> Result<()> {
    let mut folders = vec![folder.to_path_buf()];
    while let Some(inside) = folders.pop() {
        // Nobody of this user writes in a folder that cannot be read.
        let Ok(entries) = fs::read_dir(&inside) else { continue };
        for entry in entries.flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            let name = name.to_string_lossy();
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                FileLock::check_free(&path.join(FOLDER_LOCK))
                    .map_err(|error| refused(what, folder, &path, error))?;
                folders.push(path);
            } else if name.starts_with('.') && name.ends_with(LOCK) && name != FOLDER_LOCK {
                let written = inside.join(&name[1..name.len() - LOCK.len()]);
                FileLock::check_free(&path)
                    .map_err(|error| refused(what, folder, &written, error))?;
            }
        }
    }
    Ok(())
}

/// The error of a claim on `path` that meets one on `other`.
fn refused(what: &str, path: &Path, other: &Path, error: LockError) -> Error {
    let holder = match error {
        LockError::Io(error) => return failed(what, path, &error),
        LockError::Held(holder) => holder,
    };
    let is_own = holder.as_ref().is_some_and(|holder| holder.process == std::process::id());
    let who = match &holder {
        _ if is_own => "already being written".to_owned(),
        Some(holder) => {
            format!("being written by process {}, since {}", holder.process, holder.since)
        }
        None => "being written by another process".to_owned(),
    };
    let message = match path == other {
        true => format!("{what}: the output is {who}"),
        false => format!("{what}: {} is {who}", other.display()),
    };
    let kind = if is_own { ErrorKind::Plan } else { ErrorKind::Resource };
    Error::new(kind, message).in_file(path.display().to_string()).hint(match is_own {
        true => "write to different files, or combine the queries with UNION ALL",
        false => "wait until that process has ended, or write to another path",
    })
}

fn failed(what: &str, path: &Path, error: &io::Error) -> Error {
    Error::io(format!("{what}: the output cannot be locked: {error}"))
        .in_file(path.display().to_string())
        .hint("let this user write to the folder, or write to another path")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_that_overlap_exclude_each_other() {
        let dir = tempfile::tempdir().expect("a folder");
        let root = dir.path().canonicalize().expect("a folder");
        let (out, inner) = (root.join("new/out"), root.join("new/out/day=1/a.csv"));
        let claim = Claim::folder("table a", &out).expect("free");
        for error in [
            Claim::folder("table b", &out).expect_err("the same"),
            Claim::folder("table b", &root).expect_err("around it"),
            Claim::folder("table b", &out.join("day=1")).expect_err("inside"),
            Claim::file("table b", &inner).expect_err("inside"),
        ] {
            assert!(error.message().contains("already being written"), "{error}");
            assert!(error.is_plan_error() && error.help().is_some(), "{error}");
        }
        drop(Claim::file("table b", &root.join("new/out.csv")).expect("another"));
        drop(claim);
        let file = Claim::file("table a", &inner).expect("free again");
        Claim::file("table b", &inner).expect_err("the same");
        Claim::folder("table b", &out).expect_err("around it");
        let other = Claim::file("table b", &inner.with_file_name("b.csv")).expect("another");
        drop((other, file));
        assert_eq!(fs::read_dir(&root).expect("a folder").count(), 0, "nothing is left");
    }

    #[test]
    fn folders_of_an_output_that_was_begun_stay() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("a/b/c.csv");
        let mut claim = Claim::file("table a", &path).expect("free");
        claim.begin();
        drop(claim);
        assert_eq!(fs::read_dir(dir.path().join("a/b")).expect("it stays").count(), 0);
    }
}
