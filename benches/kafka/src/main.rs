//! Reads topics, and copies one topic to another at a given rate, with jobs of `thalweg run` in
//! processes of their own over a real broker. Prints a JSON line for each measurement.
//!
//! ```text
//! kafka source --program PROGRAM [--rows 10000000]
//! kafka copy   --program PROGRAM [--rate 200000] [--seconds 60] [--warm-up 10] [--flink yes]
//!              [--guarantee exactly-once | at-least-once] [--backlog ROWS]
//! ```
//! `--servers HOST:PORT` names a broker; else `tests/services/kafka` starts one. With `--flink yes`
//! a Flink that `tests/services/flink` starts runs the same statements over the same broker, one
//! engine after the other; its processor time is that of the task manager and the job manager.

mod broker;
mod copy;
mod flink;
mod job;
mod source;

use std::collections::BTreeMap;
use std::process::ExitCode;

use self::broker::Broker;

/// What can go wrong is shown as it is.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// The arguments behind the name of the measurement: `--NAME VALUE`.
pub struct Arguments(BTreeMap<String, String>);

impl Arguments {
    fn read(mut arguments: impl Iterator<Item = String>) -> Result<Arguments> {
        let mut found = BTreeMap::new();
        while let Some(name) = arguments.next() {
            let name = name.strip_prefix("--").ok_or(format!("'{name}' is no option"))?.to_owned();
            let value = arguments.next().ok_or(format!("--{name} needs a value"))?;
            found.insert(name, value);
        }
        Ok(Arguments(found))
    }

    /// The text of an option.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// The number of an option.
    pub fn number(&self, name: &str, default: u64) -> Result<u64> {
        Ok(self.text(name).map_or(Ok(default), str::parse)?)
    }

    /// The program that is measured.
    pub fn program(&self) -> Result<&str> {
        Ok(self
            .text("program")
            .ok_or("--program names the program, such as target/release/thalweg")?)
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let part = arguments.next().unwrap_or_default();
    let arguments = Arguments::read(arguments)?;
    let broker = Broker::find(arguments.text("servers"))?;
    match part.as_str() {
        "source" => source::measure(&broker, &arguments),
        "copy" => copy::measure(&broker, &arguments),
        _ => Err("measurements are: source, copy".into()),
    }
}
