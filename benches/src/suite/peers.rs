//! Hazelcast Jet at the same rates, in its best configuration: the newest Java there is, with ZGC
//! from 21 on.
//!
//! `THALWEG_PEERS` names the folder of its program, whose `run.sh CLASS key=value…` prints a line
//! `LATENCY … result=ok cpu=C cores …` and under it percentiles of the first and of the last row of
//! windows (`n=… p50=… … max=… ms`). `JAVA` names a Java; without it the newest of the usual
//! folders is taken, and the one on the path where there is none. Without the folder Hazelcast is
//! skipped, and tables say so.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::limited;
use super::percentiles::Percentiles;
use super::point::Point;
use super::process::resident_peak_bytes;

/// Where Java lies on most systems.
const FOLDERS: [&str; 2] = ["/usr/lib/jvm", "/Library/Java/JavaVirtualMachines"];

/// What it may take besides: starting, checking its results.
pub const STARTS_S: u64 = 120;

/// What comes after it waits so long. The memory that it leaves, more than 8 GB, goes back to the
/// host of a virtual machine bit by bit, and meanwhile the host takes the processors away for 20 to
/// 40 ms at a time.
pub const SETTLES_S: u64 = 15;

/// Other engines and what runs them.
pub struct Peers {
    folder: PathBuf,
    java: PathBuf,
    /// Its version, such as 25; 0 if unknown.
    version: u32,
}

impl Peers {
    /// What the environment offers.
    pub fn from_environment() -> Option<Peers> {
        let folder = PathBuf::from(std::env::var_os("THALWEG_PEERS")?);
        if !folder.join("run.sh").is_file() {
            eprintln!("THALWEG_PEERS: no run.sh in {}: peers are skipped", folder.display());
            return None;
        }
        let (version, java) = java()?;
        Some(Peers { folder, java, version })
    }

    /// Hazelcast at the rate of a point.
    pub fn latency(&self, point: &Point) -> Result<Value, String> {
        let mut command = Command::new(self.folder.join("run.sh"));
        command
            .args(["HzMain", "mode=latency", "q=q5s10"])
            .arg(format!("par={}", point.workers))
            .arg(format!("rates={}", point.events_per_second))
            .arg(format!("warm_s={}", point.warm_up_s))
            .arg(format!("meas_s={}", point.measured_s))
            .env("JAVA", &self.java)
            .env("JVM_OPTS", self.options());
        let mut watch = None;
        let limit = Duration::from_secs(point.warm_up_s + point.measured_s + STARTS_S);
        let output = limited::watched(&mut command, limit, |process| {
            watch = Some(thread::spawn(move || peak_while_it_runs(&process.to_string())));
        })?;
        let peak = watch.and_then(|watch| watch.join().ok().flatten());
        thread::sleep(Duration::from_secs(SETTLES_S));
        let text = String::from_utf8_lossy(&output.stdout);
        let mut row = said(&text).ok_or_else(|| {
            format!("Hazelcast said\n{text}{}", String::from_utf8_lossy(&output.stderr))
        })?;
        row["resident_peak_bytes"] = json!(peak);
        let cores = row["cores_used"].as_f64().unwrap_or_default();
        row["cpu_ns_per_event"] = json!(cores * 1e9 / point.events_per_second as f64);
        row["java"] = json!(format!("{} {}", self.version, self.options()));
        Ok(row)
    }

    /// Options of the virtual machine: pauses of ZGC are the shortest.
    fn options(&self) -> String {
        let heap = "-Xms8g -Xmx8g -XX:+AlwaysPreTouch";
        match self.version {
            24.. => format!("{heap} -XX:+UseZGC"),
            21..24 => format!("{heap} -XX:+UseZGC -XX:+ZGenerational"),
            _ => format!("{heap} -XX:MaxGCPauseMillis=5"),
        }
    }
}

/// The most memory of a process, looked at until it is gone.
fn peak_while_it_runs(process: &str) -> Option<u64> {
    let mut peak = None;
    while let Some(now) = resident_peak_bytes(process) {
        peak = peak.max(Some(now));
        thread::sleep(Duration::from_secs(1));
    }
    peak
}

/// The Java to use, with its version.
fn java() -> Option<(u32, PathBuf)> {
    if let Some(java) = std::env::var_os("JAVA").map(PathBuf::from) {
        return Some((version(java.parent().and_then(Path::parent)), java));
    }
    let homes = FOLDERS.iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten();
    let known = homes.flatten().filter_map(|home| {
        let java = home.path().join("bin/java");
        java.is_file().then(|| (version(Some(&home.path())), java))
    });
    known.max_by_key(|(version, _)| *version).or_else(|| Some((0, PathBuf::from("java"))))
}

fn version(home: Option<&Path>) -> u32 {
    let release = home.and_then(|home| std::fs::read_to_string(home.join("release")).ok());
    release.and_then(|release| version_in(&release)).unwrap_or(0)
}

/// The number in `JAVA_VERSION="25.0.1"`.
fn version_in(release: &str) -> Option<u32> {
    let line = release.lines().find_map(|line| line.strip_prefix("JAVA_VERSION="))?;
    line.trim_matches('"').split('.').next()?.parse().ok()
}

/// Reads what Hazelcast's program prints; `None` unless it found its own results right.
fn said(text: &str) -> Option<Value> {
    let line = text.lines().find(|line| line.starts_with("LATENCY"))?;
    let field = |name: &str| line.split_whitespace().find_map(|word| word.strip_prefix(name));
    field("result=").filter(|&result| result == "ok")?;
    let of = |what: &str| {
        let line = text.lines().map(str::trim).find(|line| line.starts_with(what))?;
        percentiles(line)
    };
    Some(json!({
        "check": "ok",
        "cores_used": field("cpu=")?.parse::<f64>().ok()?,
        "first": of("first")?,
        "last": of("all")?,
        "clock": "window end",
    }))
}

/// Reads `first: n=6000 min=0.1 p50=0.5 … max=9.1 ms`.
fn percentiles(line: &str) -> Option<Percentiles> {
    let field = |name: &str| {
        let word = line.split_whitespace().find_map(|word| word.strip_prefix(name));
        word.and_then(|word| word.parse::<f64>().ok())
    };
    let names = ["p50=", "p90=", "p99=", "p99.9=", "p99.99=", "max="];
    let mut values = [0.0; 6];
    for (value, name) in values.iter_mut().zip(names) {
        *value = field(name)?;
    }
    Some(Percentiles::from_values(field("n=")? as u64, values))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "\
# HZ mode=latency
LATENCY HZ q5s10 rate=1000000 par=2 snap=0ms result=ok cpu=1.12 cores gc=80ms ran=82.1s load=0.5
  first: n=6000 min=0.400 p50=1.440 p90=2.000 p99=3.640 p99.9=6.440 p99.99=12.100 max=12.300 ms
  all  : n=6000 min=0.500 p50=2.630 p90=4.000 p99=7.900 p99.9=11.300 p99.99=17.600 max=17.700 ms
";

    #[test]
    fn percentiles_of_hazelcast_are_read() {
        let row = said(SAID).expect("it is right");
        assert_eq!(row["first"]["p99_99_ms"], 12.1);
        assert_eq!(row["last"]["max_ms"], 17.7);
        assert_eq!(row["cores_used"], 1.12);
        assert_eq!(said(&SAID.replace("=ok", "=WRONG")), None);
    }

    #[test]
    fn the_version_is_the_first_number() {
        assert_eq!(version_in("IMPLEMENTOR=\"x\"\nJAVA_VERSION=\"25.0.1\"\n"), Some(25));
        assert_eq!(version_in("nothing"), None);
    }
}
