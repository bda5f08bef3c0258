//! What this process and this machine have spent: processor time, memory, and time that the machine
//! was kept from running (steal).
//!
//! Linux reports memory and steal; elsewhere they are unknown (`None`), never 0.

use std::fs;
use std::time::{Duration, Instant};

use cpu_time::ProcessTime;
use serde_json::{Value, json};

/// The state of affairs at one moment.
pub struct Mark {
    at: Instant,
    processor: ProcessTime,
    stolen_s: Option<f64>,
}

/// Between two moments.
#[derive(Clone, Copy, Debug)]
pub struct Spent {
    pub elapsed: Duration,
    /// By all threads of this process.
    pub processor_time: Duration,
    /// In which a core wanted to run and was not let, all cores together.
    pub stolen_s: Option<f64>,
}

impl Mark {
    /// Now.
    pub fn now() -> Mark {
        Mark { at: Instant::now(), processor: ProcessTime::now(), stolen_s: stolen_s() }
    }

    /// From then until now.
    pub fn spent(&self) -> Spent {
        let stolen_s = stolen_s().zip(self.stolen_s).map(|(now, then)| now - then);
        Spent { elapsed: self.at.elapsed(), processor_time: self.processor.elapsed(), stolen_s }
    }
}

impl Spent {
    /// How many cores were busy on average.
    pub fn cores(&self) -> f64 {
        self.processor_time.as_secs_f64() / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// The fields of a row: for this many events that were read meanwhile.
    pub fn fields(&self, events: u64) -> Value {
        json!({
            "seconds": self.elapsed.as_secs_f64(),
            "cpu_seconds": self.processor_time.as_secs_f64(),
            "cores_used": self.cores(),
            "cpu_ns_per_event": self.processor_time.as_nanos() as f64 / events.max(1) as f64,
            "stolen_seconds": self.stolen_s,
            "resident_peak_bytes": resident_peak_bytes("self"),
        })
    }
}

/// The most memory that a process has had resident: `self`, or its number.
pub fn resident_peak_bytes(process: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes << 10)
}

/// Forgets the most memory that was resident so far.
pub fn forget_resident_peak() {
    // Where it can't be forgotten the peak includes what came before, which is no less true.
    let _ = fs::write("/proc/self/clear_refs", "5");
}

/// Ticks of the kernel in a second, as all builds for x86 and ARM have it.
const TICKS_PER_SECOND: f64 = 100.0;

fn stolen_s() -> Option<f64> {
    stolen_ticks(&fs::read_to_string("/proc/stat").ok()?).map(|ticks| ticks / TICKS_PER_SECOND)
}

/// The eighth number behind `cpu`: user, nice, system, idle, iowait, irq, softirq, steal.
fn stolen_ticks(stat: &str) -> Option<f64> {
    let all = stat.lines().find(|line| line.starts_with("cpu "))?;
    all.split_whitespace().nth(8)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steal_is_the_eighth_number() {
        let stat = "cpu  10 20 30 40 50 60 70 80 90 0\ncpu0 1 1 1 1 1 1 1 1 1 0\n";
        assert_eq!(stolen_ticks(stat), Some(80.0));
        assert_eq!(stolen_ticks("intr 5"), None);
    }
}
