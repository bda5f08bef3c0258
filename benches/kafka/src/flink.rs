//! The peer: Apache Flink with its connector for Kafka, as `tests/services/flink` starts it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::Result;
use super::job::Job;

/// A cluster with one task manager that uses two cores, as this machine's engine does with two.
pub struct Flink {
    script: PathBuf,
    folder: PathBuf,
    /// Of its gateway.
    url: String,
    /// Its connector for Kafka.
    jar: String,
    /// The program that talks to it.
    program: String,
}

impl Flink {
    /// Starts a cluster with files in a folder.
    pub fn start(program: &str, folder: &Path) -> Result<Flink> {
        let mut flink = Flink {
            script: Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/services/flink"),
            folder: folder.join("flink"),
            url: String::new(),
            jar: String::new(),
            program: program.to_owned(),
        };
        let started = flink.call("start")?;
        let said = String::from_utf8_lossy(&started.stdout).into_owned();
        let value = |name: &str| said.lines().find_map(|line| line.strip_prefix(name));
        let problem = || String::from_utf8_lossy(&started.stderr).into_owned();
        value("FLINK=").ok_or_else(problem)?.clone_into(&mut flink.url);
        value("FLINK_KAFKA_JAR=").ok_or_else(problem)?.clone_into(&mut flink.jar);
        Ok(flink)
    }

    fn call(&self, what: &str) -> Result<Output> {
        let cores = std::thread::available_parallelism()?;
        let mut call = Command::new(&self.script);
        call.arg(what).arg(&self.folder);
        call.env("FLINK_SLOTS", cores.to_string());
        Ok(call.output()?)
    }

    /// Submits SQL as a job of this name, which is cancelled when it is stopped.
    pub fn submit(&self, name: &str, text: &str) -> Result<Job> {
        let file = self.folder.join(format!("{name}.sql"));
        let cores = std::thread::available_parallelism()?;
        std::fs::write(&file, format!("SET 'parallelism.default' = '{cores}'; {text}"))?;
        let submitted = Command::new(&self.program)
            .args(["submit", "--flink", &self.url, "--jar", &self.jar, "--detach"])
            .arg(&file)
            .output()?;
        if !submitted.status.success() {
            let said = [submitted.stdout, submitted.stderr].concat();
            return Err(String::from_utf8_lossy(&said).into_owned().into());
        }
        let mut cancel = Command::new(&self.program);
        cancel.args(["cancel", "--flink", &self.url, name]);
        Ok(Job::elsewhere(self.processes()?, cancel))
    }

    /// The processes that run jobs. The gateway, which only submits them, is not counted.
    fn processes(&self) -> Result<Vec<u32>> {
        let read = |name: &str| -> Result<u32> {
            let file = self.folder.join(format!("{name}.pid"));
            Ok(std::fs::read_to_string(file)?.trim().parse()?)
        };
        Ok(vec![read("jobmanager")?, read("taskmanager1")?])
    }
}

impl Drop for Flink {
    fn drop(&mut self) {
        // Best effort: what is left is a folder of temporary files.
        let _ = self.call("crash");
    }
}
