//! A server of PostgreSQL for a test, and jobs that use it.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A server of its own, which ends with the test, also one that fails.
pub struct Server {
    dir: PathBuf,
    pub port: u16,
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/services/postgres")
}

impl Server {
    /// Starts a server; `None` on a machine that has none.
    pub fn start() -> Option<Server> {
        static NUMBERS: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let name = format!("thalweg-postgres-{}-{number}", std::process::id());
        let mut server = Server { dir: std::env::temp_dir().join(name), port: 0 };
        let started = server.call("start");
        if started.status.code() == Some(3) {
            let why = String::from_utf8_lossy(&started.stderr).into_owned();
            assert!(std::env::var("THALWEG_SKIPS").as_deref() != Ok("refuse"), "{why}");
            println!("SKIPPED: {why}");
            return None;
        }
        let text = String::from_utf8_lossy(&started.stdout).into_owned();
        let port = text.lines().find_map(|line| line.strip_prefix("PGPORT="));
        let problem = String::from_utf8_lossy(&started.stderr).into_owned();
        server.port = port.expect(&problem).parse().expect("a port");
        Some(server)
    }

    fn call(&self, command: &str) -> Output {
        let log = Stdio::piped();
        let mut call = Command::new(script());
        call.arg(command).arg(&self.dir).stdout(Stdio::piped()).stderr(log);
        call.output().expect("bash runs")
    }

    /// Kills it.
    pub fn crash(&self) {
        assert!(self.call("crash").status.success());
    }

    /// Starts it again, at the same port.
    pub fn start_again(&self) {
        let started = self.call("start");
        assert!(started.status.success(), "{}", String::from_utf8_lossy(&started.stderr));
    }

    /// Runs statements as the superuser. What they answer: values with `|` between them.
    pub fn sql(&self, text: &str) -> String {
        let output = self.try_sql(text);
        let problem = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{text}: {problem}");
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    }

    /// The same, where the server may be away.
    pub fn try_sql(&self, text: &str) -> Output {
        let mut psql = Command::new("psql");
        psql.args(["-XqAt", "-v", "ON_ERROR_STOP=1", "-U", "thalweg", "-d", "postgres", "-p"]);
        psql.arg(self.port.to_string()).arg("-h").arg(self.dir.join("sock"));
        psql.arg("-c").arg(text).output().expect("psql is there with the server")
    }

    /// The options of a table of `jdbc`.
    pub fn jdbc(&self, table: &str) -> String {
        format!(
            "'connector' = 'jdbc', 'url' = 'jdbc:postgresql://127.0.0.1:{}/postgres', 'table-name' = '{table}', \
             'username' = 'thalweg', 'password' = 'thalweg'",
            self.port
        )
    }

    /// The options of a table of `postgres-cdc`.
    pub fn cdc(&self, table: &str, slot: &str) -> String {
        format!(
            "'connector' = 'postgres-cdc', 'hostname' = '127.0.0.1', 'port' = '{}', 'username' = 'thalweg', \
             'password' = 'thalweg', 'database-name' = 'postgres', 'schema-name' = 'public', 'table-name' = '{table}', \
             'slot.name' = '{slot}'",
            self.port
        )
    }

    /// Waits until a query answers this.
    pub fn wait_for(&self, query: &str, expected: &str) {
        self.wait_with(query, expected, || {});
    }

    /// The same, calling something in between.
    pub fn wait_with(&self, query: &str, expected: &str, mut between: impl FnMut()) {
        let start = Instant::now();
        let mut answer = String::new();
        while start.elapsed() < Duration::from_secs(90) {
            between();
            let output = self.try_sql(query);
            answer = String::from_utf8_lossy(&output.stdout).trim_end().to_owned();
            if answer == expected {
                return;
            }
            sleep(Duration::from_millis(50));
        }
        panic!("{query}: {answer} instead of {expected}");
    }

    /// A folder for the files of jobs.
    pub fn folder(&self) -> PathBuf {
        let folder = self.dir.join("jobs");
        std::fs::create_dir_all(&folder).expect("a folder");
        folder
    }

    /// A file with this SQL.
    pub fn file(&self, name: &str, text: &str) -> PathBuf {
        let file = self.folder().join(name);
        std::fs::write(&file, text).expect("a file");
        file
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.call("crash");
        // Best effort: a folder of a test is no harm.
        let _ = std::fs::remove_dir_all(&self.dir);
    }
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

    /// Kills it.
    pub fn kill(mut self) {
        self.0.kill().expect("it was there");
        self.0.wait().expect("it ends");
    }

    /// Waits until it ends by itself: whether it succeeded, and what it said.
    pub fn wait(mut self) -> (bool, String) {
        let start = Instant::now();
        while self.0.try_wait().expect("a child").is_none() {
            assert!(start.elapsed() < Duration::from_secs(120), "the job does not end");
            sleep(Duration::from_millis(10));
        }
        let mut said = String::new();
        use std::io::Read;
        for pipe in [
            self.0.stdout.take().map(|pipe| Box::new(pipe) as Box<dyn Read>),
            self.0.stderr.take().map(|pipe| Box::new(pipe) as Box<dyn Read>),
        ] {
            pipe.expect("a pipe").read_to_string(&mut said).expect("text");
        }
        (self.0.wait().expect("it has ended").success(), said)
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs SQL to its end.
pub fn run(server: &Server, text: &str) -> (bool, String) {
    Job::start(&server.file("run.sql", text), &[]).wait()
}

/// Runs SQL that succeeds. What it printed.
pub fn output(server: &Server, text: &str) -> String {
    let (is_right, said) = run(server, text);
    assert!(is_right, "{said}");
    said
}

/// Runs SQL that fails with these words.
pub fn refused(server: &Server, text: &str, words: &[&str]) {
    let (is_right, said) = run(server, text);
    assert!(!is_right, "{text} succeeds");
    for word in words {
        assert!(said.contains(word), "no '{word}' in: {said}");
    }
    assert!(!said.contains("s3cret"), "a password is shown: {said}");
}
