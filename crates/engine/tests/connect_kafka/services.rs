//! Servers for tests of connectors, and jobs that use them.
#![allow(dead_code, reason = "each test program uses some of it")]

use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use thalweg_core::shim::SplitMix64;

/// The text of bytes that a program has written.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A server in a folder of its own, which ends with the test, also one that fails.
pub struct Service {
    script: PathBuf,
    /// Of the script.
    settings: Vec<(String, String)>,
    pub dir: PathBuf,
    /// What it said of itself: lines `KEY=VALUE`.
    said: String,
}

impl Service {
    /// Starts the server of `tests/services/NAME`; `None` on a machine that can have none.
    pub fn start(name: &str) -> Option<Service> {
        Service::start_with(name, &[])
    }

    /// The same with settings of its script.
    pub fn start_with(name: &str, settings: &[(&str, &str)]) -> Option<Service> {
        static NUMBERS: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let folder = format!("thalweg-{name}-{}-{number}", std::process::id());
        let mut service = Service {
            script: Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/services").join(name),
            settings: settings.iter().map(|&(k, v)| (k.to_owned(), v.to_owned())).collect(),
            dir: std::env::temp_dir().join(folder),
            said: String::new(),
        };
        let started = service.call("start");
        if started.status.code() == Some(3) {
            let why = text(&started.stderr);
            assert!(std::env::var("THALWEG_SKIPS").as_deref() != Ok("refuse"), "{why}");
            println!("SKIPPED: {why}");
            return None;
        }
        assert!(started.status.success(), "{}", text(&started.stderr));
        service.said = text(&started.stdout);
        Some(service)
    }

    /// What it said of this key.
    pub fn value(&self, key: &str) -> &str {
        let mut lines = self.said.lines();
        lines.find_map(|line| line.strip_prefix(key)?.strip_prefix('=')).expect("it says that")
    }

    /// Kills it.
    pub fn crash(&self) {
        assert!(self.call("crash").status.success());
    }

    /// Ends it as an administrator does.
    pub fn stop(&self) {
        assert!(self.call("stop").status.success());
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: &str) {
        let pid = std::fs::read_to_string(self.dir.join("pid")).expect("it runs");
        let sent = Command::new("kill").arg(signal).arg(pid.trim()).status();
        assert!(sent.expect("kill runs").success());
    }

    /// Starts it again, at the same port.
    pub fn start_again(&self) {
        let started = self.call("start");
        assert!(started.status.success(), "{}", text(&started.stderr));
    }

    /// A folder for the files of a job.
    pub fn folder(&self, name: &str) -> PathBuf {
        let folder = self.dir.join("jobs").join(name);
        std::fs::create_dir_all(&folder).expect("a folder");
        folder
    }

    /// A file with this SQL, in the folder of this name.
    pub fn file(&self, name: &str, text: &str) -> PathBuf {
        let file = self.folder(name).join("job.sql");
        std::fs::write(&file, text).expect("a file");
        file
    }

    /// Runs SQL to its end.
    pub fn run(&self, name: &str, text: &str) -> (bool, String) {
        Job::start(&self.file(name, text), &[]).wait()
    }

    /// Runs SQL that succeeds. What it printed.
    pub fn output(&self, name: &str, text: &str) -> String {
        let (is_right, said) = self.run(name, text);
        assert!(is_right, "{said}");
        said
    }

    /// Runs SQL that fails with these words.
    pub fn refused(&self, name: &str, text: &str, words: &[&str]) {
        let (is_right, said) = self.run(name, text);
        assert!(!is_right, "{text} succeeds");
        for word in words {
            assert!(said.contains(word), "no '{word}' in: {said}");
        }
        assert!(!said.contains("s3cret"), "a password is shown: {said}");
    }

    fn call(&self, command: &str) -> Output {
        let mut call = Command::new(&self.script);
        call.envs(self.settings.iter().map(|(name, value)| (name, value)));
        call.arg(command).arg(&self.dir).stdout(Stdio::piped()).stderr(Stdio::piped());
        call.output().expect("bash runs")
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.call("crash");
        // Best effort: a folder of a test is no harm.
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// Runs the script of `examples/NAME` in a folder, with these variables. What it printed.
pub fn run_example(name: &str, folder: &Path, variables: &[(&str, &str)]) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name);
    let mut command = Command::new("bash");
    command.arg(script.join("run.sh")).env("THALWEG", env!("CARGO_BIN_EXE_thalweg"));
    command.env("WORK", folder).envs(variables.iter().copied());
    let run = command.output().expect("bash runs");
    let said = text(&run.stdout);
    assert!(run.status.success(), "{said}{}", text(&run.stderr));
    said
}

/// What the page of an example shows of what it prints: the lines of its last indented block.
pub fn shown_in_readme(name: &str) -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name);
    let page = std::fs::read_to_string(page.join("README.md")).expect("a page");
    let lines: Vec<&str> = page.lines().collect();
    let mut blocks =
        lines.split(|line| !line.starts_with("    ")).filter(|block| !block.is_empty());
    let last = blocks.next_back().expect("a block");
    last.iter().map(|line| format!("{}\n", &line[4..])).collect()
}

/// Runs an example, which prints what its page shows.
#[track_caller]
pub fn check_example(name: &str, folder: &Path, variables: &[(&str, &str)]) {
    let said = run_example(name, folder, variables);
    let shown = shown_in_readme(name);
    assert!(said.ends_with(&shown), "the page shows\n{shown}instead of\n{said}");
}

/// A job in a process of its own, which is killed with the test.
pub struct Job(pub Child);

impl Job {
    /// Starts `thalweg run`.
    pub fn start(file: &Path, arguments: &[&str]) -> Job {
        let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg"));
        command.arg("run").args(arguments).arg(file);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).stdin(Stdio::null());
        Job(command.spawn().expect("a process"))
    }

    /// Sends a signal.
    pub fn signal(&self, signal: &str) {
        let sent = Command::new("kill").arg(signal).arg(self.0.id().to_string()).status();
        assert!(sent.expect("kill runs").success());
    }

    /// Interrupts it, as Ctrl-C does, and waits: how long that took.
    pub fn interrupt(self) -> Duration {
        let start = Instant::now();
        self.signal("-INT");
        self.wait();
        start.elapsed()
    }

    /// Kills it.
    pub fn kill(mut self) {
        self.0.kill().expect("it was there");
        self.0.wait().expect("it ends");
    }

    /// Waits until it ends by itself: whether it succeeded, and what it said.
    pub fn wait(mut self) -> (bool, String) {
        let start = Instant::now();
        // Pipes that nobody reads would stop the job.
        let shown = read(self.0.stdout.take().expect("a pipe"));
        let errors = read(self.0.stderr.take().expect("a pipe"));
        while self.0.try_wait().expect("a child").is_none() {
            assert!(start.elapsed() < Duration::from_secs(120), "the job does not end");
            sleep(Duration::from_millis(10));
        }
        let said = shown.join().expect("read") + &errors.join().expect("read");
        (self.0.wait().expect("it has ended").success(), said)
    }
}

/// Kills a job again and again, each third time its server as well, and lets it end in the end.
/// `alive_ms`: for how long it runs each time.
pub fn end_after_kills(
    server: &Service,
    (file, arguments): (&Path, &[&str]),
    (kills, alive_ms): (usize, Range<u64>),
    seed: u64,
) {
    let mut random = SplitMix64::new(seed);
    for kill in 0..kills {
        let job = Job::start(file, arguments);
        let spread_ms = alive_ms.end - alive_ms.start;
        sleep(Duration::from_millis(alive_ms.start + random.below(spread_ms)));
        if kill % 3 == 2 {
            server.crash();
            sleep(Duration::from_millis(random.below(300)));
            server.start_again();
            sleep(Duration::from_millis(random.below(600)));
        }
        job.kill();
    }
    let (is_right, said) = Job::start(file, arguments).wait();
    assert!(is_right, "{said}");
}

fn read(mut pipe: impl Read + Send + 'static) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut said = String::new();
        pipe.read_to_string(&mut said).map(|_| said).expect("text")
    })
}

impl Drop for Job {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
