//! How another process asks a running job for a snapshot: by a file in the job's directory.
//!
//! `requests/take-TOKEN` asks; the job answers with `requests/take-TOKEN.done`, whose first line is
//! the number of the snapshot, or `error: …`. A file is there at once, or not at all, so nobody
//! reads half of one; and whoever may write into the job's directory may ask.

use std::path::{Path, PathBuf};
use std::time::Duration;

use thalweg_core::shim::{Clock, SystemClock};
use thalweg_core::{Error, Result};

const FOLDER: &str = "requests";
const ANSWERED: &str = "done";
/// How often the answer is looked for.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// The requests that wait in a job's directory.
pub(crate) fn waiting(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(directory.join(FOLDER)) else { return Vec::new() };
    let is_request = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with("take-") && path.extension().is_none()
    };
    entries.flatten().map(|entry| entry.path()).filter(is_request).collect()
}

/// Answers requests. Whoever asked may have gone away.
pub(crate) fn answer(requests: &[PathBuf], outcome: &Result<u64>) {
    let text = match outcome {
        Ok(number) => format!("{number}\n"),
        Err(error) => format!("error: {error}\n"),
    };
    for request in requests {
        let half = request.with_extension("half");
        let answered = request.with_extension(ANSWERED);
        let _ = std::fs::write(&half, &text).and_then(|()| std::fs::rename(&half, &answered));
        let _ = std::fs::remove_file(request);
    }
}

/// Asks the job with this directory for a snapshot that stays until it is deleted, and waits. Its
/// number.
///
/// # Errors
/// If the job does not answer in time (it does not run), or the snapshot fails.
pub fn ask_for_snapshot(directory: &Path, timeout: Duration) -> Result<u64> {
    let clock = SystemClock::new();
    let token = format!("take-{}-{}", std::process::id(), clock.wall_ms());
    let request = directory.join(FOLDER).join(token);
    let answered = request.with_extension(ANSWERED);
    let failed = |error: std::io::Error| {
        Error::io(format!("can't ask the job for a snapshot: {error}"))
            .in_file(request.display().to_string())
    };
    std::fs::create_dir_all(directory.join(FOLDER)).map_err(failed)?;
    std::fs::write(&request, "").map_err(failed)?;
    let begun_ns = clock.now_ns();
    loop {
        if let Ok(text) = std::fs::read_to_string(&answered) {
            let _ = std::fs::remove_file(&answered);
            return match text.trim().strip_prefix("error: ") {
                Some(why) => Err(Error::user(format!("the job took no snapshot: {why}"))),
                None => text.trim().parse().map_err(|_| Error::internal("an answer is a number")),
            };
        }
        if clock.now_ns().saturating_sub(begun_ns) > timeout.as_nanos() as u64 {
            let _ = std::fs::remove_file(&request);
            let directory = directory.display();
            return Err(Error::user(format!("no job answers in {directory}"))
                .hint("is it running? `thalweg snapshot ls` shows what it has kept"));
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}
