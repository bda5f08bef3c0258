//! Exclusive rights that hold across processes.
//!
//! A [`FileLock`] is a lock of the operating system (flock) on a small file of its own.
//!
//! # Invariants
//! - A process that died holds nothing, and no file has to be removed by hand. That the file is
//!   there says nothing.
//! - What stands in the file (process and time of the lock) is for messages only; it may be half
//!   written.
//! - The file of a [`FileLock::temporary`] lock is removed while the lock is held. Whoever has
//!   locked a file checks that its name still leads to it: so no two hold locks on files of one
//!   name.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::shim::{Clock, SystemClock};
use crate::text::format_timestamp_millis;

/// A lock, free when it is dropped.
#[derive(Debug)]
pub struct FileLock {
    /// Closing it frees the lock.
    file: File,
    /// Where the file is removed at the end.
    removes: Option<PathBuf>,
}

/// Who has a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The process.
    pub process: u32,
    /// When it took the lock, in UTC.
    pub since: String,
}

/// Why a lock is not ours.
#[derive(Debug)]
pub enum LockError {
    /// It is held; `None` if the holder is unknown.
    Held(Option<Holder>),
    /// The file cannot be opened or locked.
    Io(io::Error),
}

impl From<io::Error> for LockError {
    fn from(error: io::Error) -> Self {
        LockError::Io(error)
    }
}

impl FileLock {
    /// Takes a lock on a file, which is created if it is not there and stays.
    ///
    /// # Errors
    /// If it is held, by this process or another; if the file cannot be opened or locked.
    pub fn take(path: &Path) -> Result<FileLock, LockError> {
        loop {
            let mut file = open(path)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Err(LockError::Held(read(&mut file))),
                Err(TryLockError::Error(error)) => return Err(LockError::Io(error)),
            }
            if is_named(&file, path)? {
                // Best effort: it only names us to whoever comes second.
                let _ = write(&mut file);
                return Ok(FileLock { file, removes: None });
            }
        }
    }

    /// Takes a lock on a file that is there only as long as the lock is held.
    ///
    /// # Errors
    /// As [`FileLock::take`].
    pub fn temporary(path: &Path) -> Result<FileLock, LockError> {
        let mut lock = FileLock::take(path)?;
        lock.removes = Some(path.to_path_buf());
        Ok(lock)
    }

    /// Checks that nobody has the lock on a file. Creates nothing.
    ///
    /// # Errors
    /// If it is held.
    pub fn check_free(path: &Path) -> Result<(), LockError> {
        let mut file = match File::open(path) {
            Ok(file) => file,
            // Who may not read it cannot be in the way of whoever wrote it.
            Err(_) => return Ok(()),
        };
        match file.try_lock_shared() {
            Err(TryLockError::WouldBlock) => Err(LockError::Held(read(&mut file))),
            _ => Ok(()),
        }
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        if let Some(path) = &self.removes {
            // What stays holds nothing.
            let _ = fs::remove_file(path);
        }
        let _ = self.file.unlock();
    }
}

/// Opens the file of a lock. One of another user, left by a process that died, can be locked all
/// the same.
fn open(path: &Path) -> io::Result<File> {
    let opened = File::options().read(true).write(true).create(true).truncate(false).open(path);
    match opened {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            File::open(path).map_err(|_| error)
        }
        opened => opened,
    }
}

/// True if the path still leads to this file.
fn is_named(file: &File, path: &Path) -> io::Result<bool> {
    let own = file.metadata()?;
    match fs::metadata(path) {
        Ok(named) => Ok((own.dev(), own.ino()) == (named.dev(), named.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

fn write(file: &mut File) -> io::Result<()> {
    let since = format_timestamp_millis(SystemClock::new().wall_ms(), 3);
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{} {since}Z", std::process::id())
}

fn read(file: &mut File) -> Option<Holder> {
    let mut text = String::new();
    file.read_to_string(&mut text).ok()?;
    let (process, since) = text.strip_suffix('\n')?.split_once(' ')?;
    Some(Holder { process: process.parse().ok()?, since: since.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("thalweg-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        folder
    }

    fn holder(error: LockError) -> Option<Holder> {
        match error {
            LockError::Held(holder) => holder,
            LockError::Io(error) => panic!("{error}"),
        }
    }

    #[test]
    fn the_second_learns_who_holds_it() {
        let path = folder("second").join("lock");
        let first = FileLock::take(&path).expect("free");
        let held = holder(FileLock::take(&path).expect_err("held"));
        assert_eq!(held.map(|held| held.process), Some(std::process::id()));
        assert!(FileLock::check_free(&path).is_err());
        drop(first);
        FileLock::check_free(&path).expect("free again");
        assert!(path.exists(), "it stays");
        // What a process that died left behind holds nothing, whatever it says.
        fs::write(&path, "12 20").expect("written");
        let again = FileLock::temporary(&path).expect("free");
        drop(again);
        assert!(!path.exists(), "it is removed");
        FileLock::check_free(&path).expect("nobody has what is not there");
    }

    /// Locks taken and released under one name: never two at a time, though the file is another one
    /// each time.
    #[test]
    fn no_two_hold_a_file_that_is_removed() {
        let path = folder("removed").join("lock");
        let holders = std::sync::atomic::AtomicUsize::new(0);
        let (order, taken) = (std::sync::atomic::Ordering::SeqCst, &holders);
        let work = || {
            let mut times = 0;
            while times < 200 {
                let Ok(lock) = FileLock::temporary(&path) else { continue };
                assert_eq!(taken.fetch_add(1, order), 0, "only one");
                taken.fetch_sub(1, order);
                times += 1;
                drop(lock);
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(work);
            }
        });
    }
}
