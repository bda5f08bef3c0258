//! Runs a program that may hang: it has a limit, and is stopped then.

use std::io::Read;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const LOOK: Duration = Duration::from_millis(20);

type Running = Mutex<Vec<Arc<Mutex<Child>>>>;

/// Programs that run. Other engines don't notice that nobody waits for them any more.
static RUNNING: Running = Mutex::new(Vec::new());

/// Stops what runs, before this process ends.
pub fn stop_all() {
    stop(&RUNNING);
}

fn stop(running: &Running) {
    for child in running.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
        // It may have ended by itself.
        let _ = child.lock().unwrap_or_else(PoisonError::into_inner).kill();
    }
}

/// What a program says until its end.
///
/// # Errors
/// If it can't be started, or has no end within the limit; then it is stopped.
pub fn output(command: &mut Command, limit: Duration) -> Result<Output, String> {
    watched(command, limit, |_| ())
}

/// The same; `started` gets the number of its process.
///
/// # Errors
/// As above.
pub fn watched(
    command: &mut Command,
    limit: Duration,
    started: impl FnOnce(u32),
) -> Result<Output, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    // Its input stays open as long as this process lives: a child sees by that whether it is still
    // wanted.
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().map_err(|error| format!("{name}: {error}"))?;
    let _input = child.stdin.take();
    started(child.id());
    let (out, err) = (read(child.stdout.take()), read(child.stderr.take()));
    let child = Arc::new(Mutex::new(child));
    let running = || RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    running().push(Arc::clone(&child));
    let ended = end_of(&child, limit);
    running().retain(|other| !Arc::ptr_eq(other, &child));
    match ended {
        Ok(Some(status)) => {
            let said = |reader: JoinHandle<Vec<u8>>| reader.join().unwrap_or_default();
            Ok(Output { status, stdout: said(out), stderr: said(err) })
        }
        Ok(None) => Err(format!("no end within {} s: stopped", limit.as_secs())),
        Err(error) => Err(format!("{name}: {error}")),
    }
}

/// How it ended; `None` if it had to be stopped.
fn end_of(child: &Mutex<Child>, limit: Duration) -> std::io::Result<Option<ExitStatus>> {
    let child = || child.lock().unwrap_or_else(PoisonError::into_inner);
    let started = Instant::now();
    while started.elapsed() < limit {
        if let Some(status) = child().try_wait()? {
            return Ok(Some(status));
        }
        thread::sleep(LOOK);
    }
    child().kill()?;
    child().wait()?;
    Ok(None)
}

/// Reads to the end in a thread of its own, so that a full pipe holds nobody up.
fn read(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            // What was read before an error is there.
            let _ = pipe.read_to_end(&mut bytes);
        }
        bytes
    })
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_program_that_hangs_is_stopped() {
        let began = Instant::now();
        let problem = output(&mut shell("echo begun; exec sleep 60"), Duration::from_secs(1));
        assert!(problem.expect_err("it hangs").contains("no end within 1 s"));
        assert!(began.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn what_runs_is_stopped_with_its_suite() {
        let child = shell("exec sleep 60").spawn().expect("it starts");
        let child = Arc::new(Mutex::new(child));
        stop(&Mutex::new(vec![Arc::clone(&child)]));
        let ended = end_of(&child, Duration::from_secs(30)).expect("it is waited for");
        assert!(!ended.expect("it ends at once").success());
    }

    #[test]
    fn what_is_said_is_heard_however_long() {
        let said = output(&mut shell("seq 100000; echo no >&2"), Duration::from_secs(60));
        let said = said.expect("it ends");
        assert_eq!(String::from_utf8_lossy(&said.stdout).lines().count(), 100_000);
        assert_eq!(said.stderr, b"no\n");
    }
}
