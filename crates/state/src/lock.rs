//! One run for each job directory.
//!
//! `JOB/lock` is locked for as long as the [`JobLock`] lives. The file stays.

use std::fs;
use std::path::Path;

use thalweg_core::lock::{FileLock, Holder, LockError};
use thalweg_core::{Error, ErrorKind, Result};

const LOCK: &str = "lock";

/// Held by the one run that writes to a job directory; dropped, it is free.
#[derive(Debug)]
pub struct JobLock {
    _lock: FileLock,
}

impl JobLock {
    /// Locks a job directory, which is made if it is not there
    /// ([`crate::SnapshotStore::directory`]).
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
        let lock = FileLock::take(&path).map_err(|error| match error {
            LockError::Held(holder) => held(holder, directory),
            LockError::Io(error) => failed(error),
        })?;
        Ok(JobLock { _lock: lock })
    }
}

fn held(holder: Option<Holder>, directory: &Path) -> Error {
    let who = holder.map_or("another run".to_owned(), |Holder { process, since }| {
        format!("process {process}, which runs it since {since},")
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
    fn the_second_run_learns_who_holds_the_directory() {
        let directory = tempfile::tempdir().expect("a folder");
        let job = directory.path().join("state/flights");
        let first = JobLock::take(&job).expect("free");
        let error = JobLock::take(&job).expect_err("held");
        assert!(error.message().contains(&format!("process {}", std::process::id())), "{error}");
        assert!(error.help().is_some());
        drop(first);
        drop(JobLock::take(&job).expect("free again"));
        // What a process that died left behind holds nothing, whatever it says.
        fs::write(job.join(LOCK), "1 20").expect("written");
        JobLock::take(&job).expect("free");
    }
}
