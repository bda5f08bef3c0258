//! A server in a folder of its own.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Far more than anything here needs in a debug build on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// The data directory of a server.
pub struct Place {
    pub folder: PathBuf,
}

/// A server that runs. It is killed at the end.
pub struct Running {
    pub child: Child,
    pub address: String,
    /// Where clients of Flink connect, if they can.
    pub gateway: Option<String>,
    data: PathBuf,
}

impl Place {
    /// An empty one.
    pub fn new(test: &str) -> Place {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("serve-{test}"));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(folder.join("files")).expect("a temporary folder");
        Place { folder }
    }

    /// Starts a server.
    pub fn serve(&self, options: &[&str]) -> Running {
        self.serve_with(options, &[])
    }

    /// Starts a server that has these variables.
    pub fn serve_with(&self, options: &[&str], variables: &[(&str, &Path)]) -> Running {
        let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg"));
        command.envs(variables.iter().copied());
        command.args(["serve", "--listen", "127.0.0.1:0", "-o", "workers=2", "--data-dir"]);
        command.arg(&self.folder).args(options);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = child.spawn().expect("starting a server");
        let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
        let mut said = String::new();
        let (mut address, mut gateway) = (String::new(), None);
        loop {
            let Some(Ok(line)) = lines.next() else { panic!("the server has ended: {said}") };
            said.push_str(&line);
            if let Some(own) = line.strip_prefix("listening at http://") {
                own.clone_into(&mut address);
            } else if let Some((_, own)) = line.split_once("clients of Flink: http://") {
                gateway = Some(own.to_owned());
            } else if line.starts_with("commands of this machine") {
                break;
            }
        }
        // Whoever writes there must find a reader.
        std::thread::spawn(move || lines.for_each(drop));
        Running { child, address, gateway, data: self.folder.clone() }
    }

    /// The lines of an output, sorted as numbers.
    pub fn numbers(&self, name: &str) -> Vec<u64> {
        let text = fs::read_to_string(self.folder.join("files").join(name)).expect("an output");
        let mut numbers: Vec<u64> = text.lines().filter_map(|line| line.parse().ok()).collect();
        numbers.sort_unstable();
        numbers
    }
}

impl Running {
    /// Runs a command about the server; its exit status, and what it printed.
    pub fn command(&self, arguments: &[&str]) -> (i32, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg"));
        command.args(arguments).arg("--data-dir").arg(&self.data);
        let output = command.output().expect("running a command");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.code().unwrap_or(-1), text + &String::from_utf8_lossy(&output.stderr))
    }

    /// Runs a command that has to succeed.
    pub fn done(&self, arguments: &[&str]) -> String {
        let (status, text) = self.command(arguments);
        assert_eq!(status, 0, "{arguments:?}: {text}");
        text
    }

    /// Makes a job of statements.
    pub fn submit(&self, name: &str, sql: &str, more: &[&str]) -> (i32, String) {
        let file = self.data.join(format!("{name}.sql"));
        fs::write(&file, sql).expect("a file");
        let file = file.display().to_string();
        self.command(&[&["submit", &file], more].concat())
    }

    /// A job as the server shows it.
    pub fn job(&self, name: &str) -> Value {
        let text = self.done(&["describe", name, "--json"]);
        serde_json::from_str(&text).expect("JSON")
    }

    /// Waits until a job is called this.
    pub fn await_state(&self, name: &str, state: &str) -> Value {
        self.await_job(name, state, |job| job["state"] == state)
    }

    /// Waits until a job has a snapshot.
    pub fn await_snapshot(&self, name: &str) -> Value {
        self.await_job(name, "in a snapshot", |job| job["snapshot"].is_u64())
    }

    /// Waits until this is true of a job.
    pub fn await_job(&self, name: &str, what: &str, is_there: impl Fn(&Value) -> bool) -> Value {
        let begun = Instant::now();
        loop {
            let job = self.job(name);
            if is_there(&job) {
                return job;
            }
            assert!(begun.elapsed() < PATIENCE, "{name} is not {what}: {job}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Ends the server in order, as a service manager does.
    pub fn terminate(mut self) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args(["-TERM", &id]).status().expect("kill");
        assert!(sent.success());
        let status = self.child.wait().expect("it ends");
        assert!(status.success(), "{status}");
    }

    /// Has the server read again what may change.
    pub fn hang_up(&self) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args(["-HUP", &id]).status().expect("kill");
        assert!(sent.success());
    }

    /// Kills the server as a loss of power would.
    pub fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it is gone");
    }

    /// Sends bytes, and reads all that comes until the server closes.
    pub fn raw(&self, request: &str) -> String {
        raw_at(&self.address, request)
    }

    /// Sends a request with a token; the status and the answer.
    pub fn ask(
        &self,
        method: &str,
        path: &str,
        token: &str,
        headers: &str,
        body: &str,
    ) -> (u16, String) {
        let (host, length) = (&self.address, body.len());
        let text = self.raw(&format!(
            "{method} {path} HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {token}\r\n{headers}\
             content-length: {length}\r\nconnection: close\r\n\r\n{body}"
        ));
        let status = text.split(' ').nth(1).and_then(|status| status.parse().ok());
        (status.unwrap_or(0), text)
    }

    /// Makes a token.
    pub fn token(&self, name: &str, role: &str) -> String {
        self.done(&["token", "create", name, "--role", role]).trim().to_owned()
    }
}

/// Sends bytes to an address, and reads all that comes until the server closes.
pub fn raw_at(address: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("connected");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    // A server that has refused what is too large may have closed before all of it was sent.
    let _ = stream.write_all(request.as_bytes());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A job whose output nobody takes: it tries again for as long as a start may take.
#[cfg(feature = "kafka")]
pub const UNREACHABLE_OUTPUT: &str =
    "CREATE TABLE n (n BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '10');
    CREATE TABLE away (n BIGINT) WITH ('connector' = 'kafka', 'topic' = 't', 'format' = 'json',
      'properties.bootstrap.servers' = '127.0.0.1:1', 'sink.delivery-guarantee' = 'exactly-once',
      'sink.transactional-id-prefix' = 'away');
    INSERT INTO away SELECT n FROM n;";

/// A job that writes the numbers up to `end` to a file, at this pace.
pub fn numbers_job(output: &str, end: u64, per_second: u64) -> String {
    format!(
        "CREATE TABLE numbers (n BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '{per_second}',
           'fields.n.kind' = 'sequence', 'fields.n.start' = '1', 'fields.n.end' = '{end}');
         CREATE TABLE kept (n BIGINT) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = '{output}');
         INSERT INTO kept SELECT n FROM numbers;"
    )
}
