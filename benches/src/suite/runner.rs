//! Runs points in processes of their own, so that memory and processor time are theirs, with the
//! machine's own noise before, during and after.
//!
//! A child is this program (or another build of it) called as `suite-run POINT`, with the point as
//! JSON; its last line is what it measured. A child that fails or has no end within its time is
//! reported in its row, and the suite continues; a child whose suite is gone ends, too.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use thalweg::{Error, Result};

use super::parts::{Mode, noise_s};
use super::peers::{Peers, SETTLES_S, STARTS_S};
use super::point::{Engine, Kind, Point};
use super::{ablations, burst, disorder, idle, latency, limited, noise, scaling, step};

/// The argument that makes a child of this program.
pub const CHILD: &str = "suite-run";
/// Set for children of the suite, whose input closes when the suite is gone.
const OF_SUITE: &str = "THALWEG_SUITE_CHILD";
/// What a child may take besides the time that its point says: data are made, and results are
/// checked.
const BESIDES_S: u64 = 90;

/// Measures a point in this process; the last line of its output is the result.
pub fn child(point: &str) -> std::result::Result<(), String> {
    let point: Point = serde_json::from_str(point).map_err(|error| {
        format!("{CHILD} wants a point as JSON, as `suite` writes it into rows: {error}")
    })?;
    let measured = measure(&point).map_err(|error| format!("{}: {error}", point.label()))?;
    println!("{measured}");
    Ok(())
}

/// A suite that was stopped wants no results, and its next call is not to be measured next to this
/// one: a process that it has started ends with it, and takes along what it has started itself.
pub fn end_with_the_suite() {
    if std::env::var_os(OF_SUITE).is_none() {
        return;
    }
    thread::spawn(|| {
        let mut input = std::io::stdin();
        while input.read(&mut [0; 64]).is_ok_and(|read| read > 0) {}
        limited::stop_all();
        std::process::exit(1);
    });
}

fn measure(point: &Point) -> Result<Value> {
    if point.engine == Engine::Hazelcast {
        let peers = Peers::from_environment()
            .ok_or_else(|| Error::plan("THALWEG_PEERS names no folder with other engines"))?;
        return peers.latency(point).map_err(Error::io);
    }
    match point.kind {
        Kind::Latency => latency::run(point),
        Kind::Burst => burst::run(point),
        Kind::Idle => idle::run(point),
        Kind::Jobs => crate::jobs::run(point),
        Kind::Step => step::run(point),
        Kind::Disorder => disorder::run(point),
        Kind::Scaling => scaling::run(point),
        Kind::Ablations => ablations::run(point),
        Kind::Noise => Ok(noise::run(point)),
        // The parent calls the building blocks by their own arguments.
        Kind::Throughput => Ok(json!({})),
    }
}

/// Programs that measure.
pub struct Runner {
    program: PathBuf,
    has_peers: bool,
    mode: Mode,
}

impl Runner {
    /// This program, and other engines.
    ///
    /// # Errors
    /// If the system does not report where this program lies.
    pub fn new(mode: Mode, has_peers: bool) -> std::result::Result<Runner, String> {
        let program = std::env::current_exe().map_err(|error| format!("this program: {error}"))?;
        Ok(Runner { program, has_peers, mode })
    }

    /// Another build in place of this one.
    pub fn of_program(&self, program: &Path) -> Runner {
        Runner { program: program.to_owned(), has_peers: false, mode: self.mode }
    }

    /// True if there are other engines.
    pub fn has_peers(&self) -> bool {
        self.has_peers
    }

    /// Measures a point; `None` where its engine is not there.
    pub fn measure(&self, point: &Point) -> std::result::Result<Option<Value>, String> {
        match (point.engine, point.kind) {
            (Engine::Hazelcast, _) if !self.has_peers => Ok(None),
            (_, Kind::Throughput) => self.blocks(point).map(Some),
            (_, Kind::Step | Kind::Disorder | Kind::Scaling | Kind::Ablations) => {
                self.ask(point).map(Some)
            }
            _ => self.between_noise(point, || self.ask(point)).map(Some),
        }
    }

    fn between_noise(
        &self,
        point: &Point,
        measure: impl FnOnce() -> std::result::Result<Value, String>,
    ) -> std::result::Result<Value, String> {
        let noise = Point::new("noise", Kind::Noise, "clock", 0);
        let around = noise.clone().lasting(0, noise_s(self.mode));
        let during = noise.of_variant(noise::DURING).lasting(point.warm_up_s, point.measured_s);
        let before = self.ask(&around)?;
        let (row, during) = thread::scope(|scope| {
            let listener = scope.spawn(|| self.ask_at_once(&during));
            (measure(), listener.join().expect("it only waits for a child"))
        });
        let mut row = row?;
        row["noise_before"] = before;
        row["noise_after"] = self.ask(&around)?;
        if let Some(during) = during {
            row["noise_during"] = during;
        }
        Ok(row)
    }

    /// Asks a child that goes before all other programs; `None` where the system has no such thing,
    /// or refuses.
    fn ask_at_once(&self, point: &Point) -> Option<Value> {
        let text = json!(point).to_string();
        let mut first = Command::new("chrt");
        first.args(["--fifo", "10"]).arg(&self.program).args([CHILD, &text]);
        last_row(&self.output(point, &mut first).ok()?)
    }

    fn ask(&self, point: &Point) -> std::result::Result<Value, String> {
        let text = json!(point).to_string();
        let output = self.output(point, Command::new(&self.program).args([CHILD, &text]))?;
        last_row(&output).ok_or_else(|| format!("{}: no result in\n{output}", point.label()))
    }

    /// The building blocks print a line of JSON for each run.
    fn blocks(&self, point: &Point) -> std::result::Result<Value, String> {
        let arguments = point.workload.split_whitespace().chain(point.variant.split_whitespace());
        let output = self.output(point, Command::new(&self.program).args(arguments))?;
        let runs: Vec<Value> = output
            .lines()
            .filter(|line| line.starts_with('{'))
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect();
        let table: Vec<&str> = output.lines().filter(|line| line.starts_with('|')).collect();
        // Each run is compared with its oracle, and a wrong one ends the child.
        Ok(json!({ "runs": runs, "table": table, "check": "ok" }))
    }

    /// How long a child may take before it is stopped.
    fn limit(&self, point: &Point) -> Duration {
        Duration::from_secs(match point.kind {
            Kind::Throughput | Kind::Scaling | Kind::Ablations => match self.mode {
                Mode::Smoke | Mode::Short => 600,
                Mode::Full => 3600,
            },
            // It is stopped by its child, which waits for the machine behind it.
            _ if point.engine == Engine::Hazelcast => {
                point.warm_up_s + point.measured_s + STARTS_S + SETTLES_S + BESIDES_S
            }
            // Its events are made once more, and a loop by hand goes through them.
            Kind::Step => point.warm_up_s + 3 * point.measured_s + BESIDES_S,
            _ => point.warm_up_s + point.measured_s + BESIDES_S,
        })
    }

    fn output(&self, point: &Point, command: &mut Command) -> std::result::Result<String, String> {
        let output = limited::output(command.env(OF_SUITE, "1"), self.limit(point))
            .map_err(|problem| format!("{}: {problem}", point.label()))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() {
            return Ok(text);
        }
        Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr)))
    }
}

/// The row that a child prints last.
fn last_row(output: &str) -> Option<Value> {
    let last = output.lines().rev().find(|line| line.starts_with('{'))?;
    serde_json::from_str(last).ok()
}
