//! A folder for a test and the binary that runs in it.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

/// Far more than anything here needs in a debug build on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A folder that is empty at the start of a test.
pub struct Workspace {
    pub folder: PathBuf,
}

/// What a run left behind.
pub struct Run {
    pub status: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Workspace {
    pub fn new(test: &str) -> Workspace {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("cli-{test}"));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("a temporary folder");
        Workspace { folder }
    }

    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.join(name);
        fs::create_dir_all(path.parent().expect("inside the folder")).expect("a folder");
        fs::write(&path, text).expect("writing a file");
        path
    }

    pub fn read(&self, name: &str) -> String {
        let path = self.folder.join(name);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    pub fn has(&self, name: &str) -> bool {
        self.folder.join(name).exists()
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg"));
        command.args(arguments).current_dir(&self.folder);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs the binary to its end.
    pub fn run(&self, arguments: &[&str]) -> Run {
        Run::from(self.command(arguments).output().expect("starting thalweg"))
    }

    /// `thalweg run -e SQL`
    pub fn execute(&self, sql: &str) -> Run {
        self.run(&["run", "-e", sql])
    }
}

impl From<Output> for Run {
    fn from(output: Output) -> Run {
        Run {
            status: output.status.code(),
            stdout: String::from_utf8(output.stdout).expect("results are UTF-8"),
            stderr: String::from_utf8(output.stderr).expect("messages are UTF-8"),
        }
    }
}

impl Run {
    /// The rows, if all went well and nothing was said.
    pub fn rows(&self) -> Vec<&str> {
        assert_eq!(self.status, Some(0), "{}", self.stderr);
        assert_eq!(self.stderr, "", "standard error is silent");
        self.stdout.lines().collect()
    }

    /// The message of a run that ended with this status and printed no row.
    pub fn message(&self, status: i32) -> &str {
        assert_eq!(self.status, Some(status), "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        assert!(!self.stderr.contains("panicked at"), "{}", self.stderr);
        &self.stderr
    }
}

/// Asserts that a text holds each of these.
pub fn assert_holds(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
}

/// Waits for the end of a process, and kills it if that takes absurdly long.
pub fn wait(child: &mut Child) -> ExitStatus {
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("waiting for thalweg") {
            return status;
        }
        if started.elapsed() > PATIENCE {
            child.kill().expect("stopping thalweg");
            panic!("thalweg hangs");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Sends SIGINT to this one process.
pub fn interrupt(child: &Child) {
    let id = child.id().to_string();
    let status = Command::new("kill").args(["-INT", &id]).status().expect("the command kill");
    assert!(status.success());
}

/// Waits until a condition holds.
pub fn until(what: &str, condition: impl Fn() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < PATIENCE, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Three rows of k STRING, n INT, ts TIMESTAMP(3); the third comes 20 s late.
pub const EVENTS: &str = "a,1,2026-01-01 00:00:01.000
b,2,2026-01-01 00:00:25.000
a,3,2026-01-01 00:00:05.000
";

/// The table over [`EVENTS`] in `events.csv`.
pub const EVENTS_TABLE: &str =
    "CREATE TABLE events (k STRING, n INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'events.csv');
";

/// An endless table with column n.
pub const ENDLESS: &str = "CREATE TABLE endless (n BIGINT)
WITH ('connector' = 'datagen', 'rows-per-second' = 'unlimited', 'seed' = '1');
";

/// A table of numbers in a file.
pub fn table(name: &str, path: &str) -> String {
    format!(
        "CREATE TABLE {name} (n BIGINT) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = '{path}');\n"
    )
}

/// The end of a process, and what it said.
pub fn end(child: &mut Child) -> Run {
    let status = wait(child);
    let (mut stdout, mut stderr) = (String::new(), String::new());
    child.stdout.take().expect("piped").read_to_string(&mut stdout).expect("UTF-8");
    child.stderr.take().expect("piped").read_to_string(&mut stderr).expect("UTF-8");
    Run { status: status.code(), stdout, stderr }
}
