//! One run for each job directory.
//!
//! `JOB/lock` is locked by the operating system (flock) for as long as the [`JobLock`] lives: a process that died
//! holds nothing, and no file has to be removed by hand. What stands in the file (process and time of its start) is
//! for the message to whoever comes second; that it is there says nothing.

use std::fs::{self, File, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};
use thalweg_core::shim::{Clock, SystemClock};
use thalweg_core::text::format_timestamp_millis;
use thalweg_core::{Error, ErrorKind, Result};

const LOCK: &str = "lock";

/// Held by the one run that writes to a job directory; dropped, it is free.
#[derive(Debug)]
pub struct JobLock {
    /// Closing it frees the lock.
    _file: File,
}

/// What stands in the file.
#[derive(Debug, Serialize, Deserialize)]
struct Holder {
    pid: u32,
    started_at: String,
}

impl JobLock {
    /// Locks a job directory, which is made if it is not there ([`crate::SnapshotStore::directory`]).
    ///
    /// # Errors
    /// If another run holds it (the message says which), or the directory cannot be written to.
    pub fn take(directory: &Path) -> Result<JobLock> {
        let path = directory.join(LOCK);
        let failed = |error: std::io::Error| {
            Error::io(format!("cannot lock {}: {error}", path.display()))
                .hint("let this user write there, or set another 'execution.checkpointing.dir'")
        };
        fs::create_dir_all(directory).map_err(failed)?;
        let mut options = File::options();
        let options = options.read(true).write(true).create(true).truncate(false);
        let mut file = options.open(&path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(held(&mut file, directory)),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        write_holder(&mut file).map_err(failed)?;
        Ok(JobLock { _file: file })
    }
}

fn write_holder(file: &mut File) -> std::io::Result<()> {
    let started_at = format_timestamp_millis(SystemClock::new().wall_ms(), 3) + "Z";
    let holder = Holder { pid: std::process::id(), started_at };
    let text = serde_json::to_string(&holder)?;
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{text}")
}

fn held(file: &mut File, directory: &Path) -> Error {
    let mut text = String::new();
    // It may be half written: then nobody is named.
    let holder: Option<Holder> =
        file.read_to_string(&mut text).ok().and_then(|_| serde_json::from_str(&text).ok());
    let who = holder.map_or("another run".to_owned(), |Holder { pid, started_at }| {
        format!("process {pid}, which runs it since {started_at},")
    });
    Error::new(
        ErrorKind::Resource,
        format!("{who} holds the job directory {}", directory.display()),
    )
    .hint("stop that run first, or give this job another name")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_run_is_told_who_holds_the_directory() {
        let directory = tempfile::tempdir().expect("a folder");
        let job = directory.path().join("state/flights");
        let first = JobLock::take(&job).expect("free");
        let error = JobLock::take(&job).expect_err("held");
        assert!(error.message().contains(&format!("process {}", std::process::id())), "{error}");
        assert!(error.help().is_some());
        drop(first);
        drop(JobLock::take(&job).expect("free again"));
        // What a process that died left behind holds nothing, whatever it says.
        fs::write(job.join(LOCK), "{\"pid\": 1, \"started").expect("written");
        JobLock::take(&job).expect("free");
    }
}
