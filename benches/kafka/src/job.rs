//! A job in a process of its own.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::Result;

/// How many ticks of a clock the system counts processor time in, per second.
const TICKS_PER_S: f64 = 100.0;

/// A job that runs.
pub struct Job {
    child: Child,
    begun: Instant,
}

impl Job {
    /// Runs this SQL.
    pub fn start(program: &str, folder: &Path, text: &str) -> Result<Job> {
        let file = folder.join("job.sql");
        std::fs::write(&file, text)?;
        Job::spawn(Command::new(program).arg("run").arg(file).current_dir(folder))
    }

    /// Runs a command.
    pub fn spawn(command: &mut Command) -> Result<Job> {
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?;
        Ok(Job { child, begun: Instant::now() })
    }

    /// The seconds of processor time that it has taken so far.
    pub fn cpu_s(&self) -> Result<f64> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        // Behind the name, which may have blanks.
        let fields = stat.rsplit(')').next().unwrap_or_default();
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let ticks = |at: usize| fields.get(at).and_then(|text| text.parse::<f64>().ok());
        Ok((ticks(11).unwrap_or(0.0) + ticks(12).unwrap_or(0.0)) / TICKS_PER_S)
    }

    /// Waits for its end: seconds of the clock, and of processors.
    pub fn wait(mut self) -> Result<(f64, f64)> {
        let mut cpu_s = 0.0;
        let status = loop {
            // A process that has ended and was not waited for still says what it took.
            cpu_s = self.cpu_s().unwrap_or(cpu_s);
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        match status.success() {
            true => Ok((self.begun.elapsed().as_secs_f64(), cpu_s)),
            false => Err("the job has failed".into()),
        }
    }

    /// Interrupts it and waits.
    pub fn stop(mut self) -> Result<()> {
        Command::new("kill").arg("-INT").arg(self.child.id().to_string()).status()?;
        self.child.wait()?;
        Ok(())
    }
}
