//! A job in processes of its own.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::Result;

/// How many ticks of a clock the system counts processor time in, per second.
const TICKS_PER_S: f64 = 100.0;

/// A job that runs.
pub struct Job {
    how: How,
    begun: Instant,
}

enum How {
    /// As a process that began with it.
    Child(Child),
    /// In processes that were there before.
    Elsewhere {
        processes: Vec<u32>,
        /// What they had taken then.
        cpu_before_s: f64,
        cancel: Command,
    },
}

impl Job {
    /// Runs this SQL.
    pub fn start(program: &str, folder: &Path, text: &str) -> Result<Job> {
        let file = folder.join("job.sql");
        std::fs::write(&file, text)?;
        let mut command = Command::new(program);
        command.arg("run").arg(file).current_dir(folder);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?;
        Ok(Job { how: How::Child(child), begun: Instant::now() })
    }

    /// A job that these processes run until this command ends it.
    pub fn elsewhere(processes: Vec<u32>, cancel: Command) -> Job {
        let cpu_before_s = processes.iter().filter_map(|process| cpu_s(*process).ok()).sum();
        Job { how: How::Elsewhere { processes, cpu_before_s, cancel }, begun: Instant::now() }
    }

    /// The seconds of processor time that it has taken so far.
    pub fn cpu_s(&self) -> Result<f64> {
        match &self.how {
            How::Child(child) => cpu_s(child.id()),
            How::Elsewhere { processes, cpu_before_s, .. } => {
                let all: Result<f64> = processes.iter().map(|process| cpu_s(*process)).sum();
                Ok(all? - cpu_before_s)
            }
        }
    }

    /// Waits until it ends by itself: seconds of the clock, and of processors.
    pub fn wait(self) -> Result<(f64, f64)> {
        let How::Child(mut child) = self.how else { return Err("it has no end".into()) };
        let mut taken_s = 0.0;
        let status = loop {
            // A process that has ended and was not waited for still says what it took.
            taken_s = cpu_s(child.id()).unwrap_or(taken_s);
            if let Some(status) = child.try_wait()? {
                break status;
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        match status.success() {
            true => Ok((self.begun.elapsed().as_secs_f64(), taken_s)),
            false => Err("the job has failed".into()),
        }
    }

    /// Ends it and waits.
    pub fn stop(self) -> Result<()> {
        match self.how {
            How::Child(mut child) => {
                Command::new("kill").arg("-INT").arg(child.id().to_string()).status()?;
                child.wait()?;
            }
            How::Elsewhere { mut cancel, .. } => {
                let cancelled = cancel.output()?;
                if !cancelled.status.success() {
                    return Err(String::from_utf8_lossy(&cancelled.stderr).into_owned().into());
                }
            }
        }
        Ok(())
    }
}

/// The seconds of processor time that a process has taken.
fn cpu_s(process: u32) -> Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    // Behind the name, which may have blanks.
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|text| text.parse::<f64>().ok());
    Ok((ticks(11).unwrap_or(0.0) + ticks(12).unwrap_or(0.0)) / TICKS_PER_S)
}
