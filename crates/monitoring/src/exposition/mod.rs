//! Metrics for Prometheus.
//!
//! | module | holds |
//! |---|---|
//! | `table` | every metric once: name, kind, labels, meaning |
//! | `families` | samples by metric, and the text that Prometheus reads |
//! | `native` | the form that has native histograms |
//! | `samples` | the samples of a job's reading, and of the process |
//! | `page` | the table as a page for people |
//!
//! **Invariants**
//! - A sample has the labels that the table says, and its metric is in the table.
//! - A job has at most `30 + 14 × stages + 5 × splits` series, without the buckets of histograms
//!   (16 and one for each). No label is a worker, a partition, a run or a row.

mod families;
mod native;
mod page;
mod samples;
mod table;

pub use families::{Families, Family, Sample, Value};
pub use native::{PROTOBUF_CONTENT_TYPE, prefers_protobuf};
pub use page::page;
pub use samples::{ProcessReading, SPLITS_MAX, job_samples, process_samples};
pub use table::{METRICS, Metric, MetricKind};

/// The content type of [`Families::text`].
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
