//! Samples by metric, and the text that Prometheus reads (text exposition format 0.0.4).

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::sync::LazyLock;

use serde::{Serialize, Serializer};
use thalweg_runtime::metrics::BUCKET_BOUNDS_US;

use super::table::{METRICS, Metric, MetricKind};
use crate::reading::DistributionReading;

/// Where in the table a metric is.
static PLACES: LazyLock<HashMap<&str, usize>> = LazyLock::new(|| {
    METRICS.iter().enumerate().map(|(place, metric)| (metric.name, place)).collect()
});

/// Samples of all metrics. Whoever answers a scrape makes one, adds what every job and the process
/// have, and sends [`Families::text`] or [`Families::protobuf`].
#[derive(Clone, Debug, Default)]
pub struct Families {
    /// By the place of the metric in the table.
    samples: BTreeMap<usize, Vec<Sample>>,
    /// Since when what is added next has been counted.
    began_ms: Option<i64>,
}

/// All samples of a metric, for those who read JSON.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Family {
    /// The metric.
    pub name: &'static str,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    /// What it means.
    pub help: &'static str,
    /// One for each series.
    pub samples: Vec<Sample>,
}

/// A sample.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sample {
    labels: Labels,
    /// The value.
    #[serde(flatten)]
    pub value: Value,
    /// Since when it has been counted, in milliseconds since 1970; `None`: since the process began.
    #[serde(skip)]
    pub began_ms: Option<i64>,
}

/// The names of the labels of a metric, and a value for each.
#[derive(Clone, Debug, PartialEq)]
struct Labels(&'static [&'static str], Vec<String>);

impl Serialize for Labels {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().zip(&self.1))
    }
}

/// The value of a sample.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum Value {
    /// Of a counter or a gauge.
    #[serde(rename = "value")]
    Number(f64),
    /// Of a histogram.
    #[serde(rename = "histogram")]
    Times(DistributionReading),
}

impl Families {
    /// No samples.
    pub fn new() -> Self {
        Self::default()
    }

    /// What is added from now on has been counted since this moment; without one, since the process
    /// began.
    pub fn count_since(&mut self, began_ms: Option<i64>) {
        self.began_ms = began_ms;
    }

    /// Adds a number.
    ///
    /// # Panics
    /// If the table has no such metric, or it has other labels or is a histogram.
    pub fn add(&mut self, metric: &str, labels: &[&str], value: f64) {
        self.push(metric, labels, Value::Number(value), false);
    }

    /// Adds times by bucket.
    ///
    /// # Panics
    /// If the table has no such histogram, or it has other labels.
    pub fn add_times(&mut self, metric: &str, labels: &[&str], times: &DistributionReading) {
        self.push(metric, labels, Value::Times(times.clone()), true);
    }

    fn push(&mut self, name: &str, labels: &[&str], value: Value, is_histogram: bool) {
        let place = *PLACES.get(name).expect("every metric is in the table");
        let metric = &METRICS[place];
        assert_eq!(metric.labels.len(), labels.len(), "the table says which labels {name} has");
        assert_eq!(metric.kind == MetricKind::Histogram, is_histogram, "the kind of {name}");
        let values = labels.iter().map(|&value| value.to_owned()).collect();
        let labels = Labels(metric.labels, values);
        let sample = Sample { labels, value, began_ms: self.began_ms };
        self.samples.entry(place).or_default().push(sample);
    }

    /// How many series there are, without the buckets of histograms.
    pub fn series(&self) -> usize {
        let of = |sample: &Sample| match sample.value {
            Value::Number(_) => 1,
            // The sum and the count.
            Value::Times(_) => 2,
        };
        self.samples.values().flatten().map(of).sum()
    }

    /// All samples by metric, in the order of the table: what [`Families::text`] says, for those
    /// who read JSON.
    pub fn families(&self) -> Vec<Family> {
        let family = |(&place, samples): (&usize, &Vec<Sample>)| {
            let metric = &METRICS[place];
            let (name, kind, help) = (metric.name, metric.kind.name(), metric.help);
            Family { name, kind, help, samples: samples.clone() }
        };
        self.samples.iter().map(family).collect()
    }

    /// The metrics that have samples, in the order of the table.
    pub fn metrics(&self) -> impl Iterator<Item = (&'static Metric, &[Sample])> {
        self.samples.iter().map(|(&place, samples)| (&METRICS[place], samples.as_slice()))
    }

    /// All samples, in the order of the table.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (&place, samples) in &self.samples {
            let metric = &METRICS[place];
            let (name, kind) = (metric.name, metric.kind.name());
            let _ = writeln!(text, "# HELP {name} {}", metric.help);
            let _ = writeln!(text, "# TYPE {name} {kind}");
            for sample in samples {
                sample.write(&mut text, name);
            }
        }
        text
    }
}

impl Sample {
    /// Label by label.
    pub fn labels(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.labels.0.iter().copied().zip(self.labels.1.iter().map(String::as_str))
    }

    fn write(&self, text: &mut String, name: &str) {
        let pair = |(label, value): (_, &str)| format!("{label}=\"{}\"", escaped(value));
        let labels = &self.labels().map(pair).collect::<Vec<_>>().join(",");
        let number = |text: &mut String, name: &str, value: f64| {
            let _ = match labels.is_empty() {
                true => writeln!(text, "{name} {value}"),
                false => writeln!(text, "{name}{{{labels}}} {value}"),
            };
        };
        match &self.value {
            Value::Number(value) => number(text, name, *value),
            Value::Times(times) => {
                let count = write_buckets(text, name, labels, times);
                number(text, &format!("{name}_sum"), times.sum_us as f64 / 1e6);
                number(text, &format!("{name}_count"), count as f64);
            }
        }
    }
}

/// The buckets of a histogram. How many times there are.
fn write_buckets(text: &mut String, name: &str, labels: &str, times: &DistributionReading) -> u64 {
    let bounds = BUCKET_BOUNDS_US.iter().map(|&bound_us| (bound_us as f64 / 1e6).to_string());
    let comma = if labels.is_empty() { "" } else { "," };
    let mut below = 0;
    for (place, bound) in bounds.chain(std::iter::once("+Inf".to_owned())).enumerate() {
        below += times.counts.get(place).copied().unwrap_or(0);
        let _ = writeln!(text, "{name}_bucket{{{labels}{comma}le=\"{bound}\"}} {below}");
    }
    below
}

/// As the format wants the value of a label.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
