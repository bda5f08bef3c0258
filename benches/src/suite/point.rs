//! What is measured: a point, which a child process gets as one line of JSON, and which stands in
//! its row.
//!
//! A point says everything that its figures depend on besides the program and the machine, so two
//! rows with equal points are repetitions of each other.

use serde::{Deserialize, Serialize};

/// Who runs the workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// This one.
    Thalweg,
    /// Hazelcast Jet, in a process of its own.
    Hazelcast,
}

impl Engine {
    /// As tables name it.
    pub fn name(self) -> &'static str {
        match self {
            Engine::Thalweg => "Thalweg",
            Engine::Hazelcast => "Hazelcast",
        }
    }
}

/// How a point is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Result latency at a fixed rate.
    Latency,
    /// Ten times the rate for a second, or more than the machine can do for some seconds.
    Burst,
    /// Single events into a pipeline that has nothing to do.
    Idle,
    /// Many jobs on one pool of workers.
    Jobs,
    /// One step of the search for the highest rate within a bound.
    Step,
    /// Throughput as the building blocks measure it: several rows come of it.
    Throughput,
    /// Throughput with records that come before their time.
    Disorder,
    /// Throughput by one worker and by two: several runs come of it.
    Scaling,
    /// StreamBox's decisions removed, epochs of several lengths, early records: several runs
    /// come of it.
    Ablations,
    /// How long this machine keeps a thread waiting that wants to run.
    Noise,
}

/// A point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// The part of the suite that it belongs to.
    pub part: String,
    pub kind: Kind,
    pub engine: Engine,
    /// The query or benchmark.
    pub workload: String,
    /// Input events per second; 0 where there is no fixed rate.
    pub events_per_second: u64,
    /// Not measured, at the beginning.
    pub warm_up_s: u64,
    /// Measured behind it.
    pub measured_s: u64,
    /// Worker threads.
    pub workers: usize,
    /// What else there is to say: the factor of a burst, how many jobs, the share out of order in
    /// percent, a size.
    #[serde(default)]
    pub variant: String,
}

impl Point {
    /// A point of this engine at a fixed rate.
    pub fn new(part: &str, kind: Kind, workload: &str, events_per_second: u64) -> Point {
        Point {
            part: part.to_owned(),
            kind,
            engine: Engine::Thalweg,
            workload: workload.to_owned(),
            events_per_second,
            warm_up_s: 0,
            measured_s: 0,
            workers: workers(),
            variant: String::new(),
        }
    }

    /// The same with this many seconds of warm-up and of measurement.
    pub fn lasting(self, warm_up_s: u64, measured_s: u64) -> Point {
        Point { warm_up_s, measured_s, ..self }
    }

    /// The same with a variant.
    pub fn of_variant(self, variant: impl ToString) -> Point {
        Point { variant: variant.to_string(), ..self }
    }

    /// As progress and tables call it.
    pub fn label(&self) -> String {
        let mut label = format!("{} {} {}", self.part, self.engine.name(), self.workload);
        if self.events_per_second > 0 {
            label += &format!(" at {} events/s", grouped(self.events_per_second));
        }
        if !self.variant.is_empty() {
            label += &format!(" ({})", self.variant);
        }
        label
    }
}

/// One worker for each core.
pub fn workers() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// A number with spaces between groups of three digits.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_survives_json_and_has_a_readable_label() {
        let point = Point::new("latency-q5", Kind::Latency, "q5", 1_000_000).lasting(12, 15);
        let text = serde_json::to_string(&point).expect("JSON");
        assert_eq!(serde_json::from_str::<Point>(&text).expect("a point"), point);
        assert_eq!(point.label(), "latency-q5 Thalweg q5 at 1 000 000 events/s");
        assert_eq!([1, 12, 123, 1234].map(grouped), ["1", "12", "123", "1 234"]);
    }
}
