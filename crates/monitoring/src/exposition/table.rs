//! Every metric once.

/// How a metric is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// Only grows, until the run ends.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Times by bucket.
    Histogram,
}

impl MetricKind {
    /// As Prometheus calls it.
    pub fn name(self) -> &'static str {
        match self {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        }
    }
}

/// A metric.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Its name for Prometheus.
    pub name: &'static str,
    /// How it is read.
    pub kind: MetricKind,
    /// Its labels, in their order.
    pub labels: &'static [&'static str],
    /// What it means.
    pub help: &'static str,
}

impl Metric {
    /// Its name for OpenTelemetry: `thalweg.stage.input.rows`.
    pub fn otlp_name(&self) -> String {
        self.name.trim_end_matches("_total").replace('_', ".")
    }

    /// Its unit for OpenTelemetry.
    pub fn unit(&self) -> &'static str {
        let name = self.name.trim_end_matches("_total");
        let units = [
            ("_seconds", "s"),
            ("_bytes", "By"),
            ("_rows", "{row}"),
            ("_bundles", "{bundle}"),
            ("_messages", "{message}"),
        ];
        units.iter().find(|(ending, _)| name.ends_with(ending)).map_or("1", |(_, unit)| unit)
    }
}

/// A table of metrics: of each its kind, its name and its labels, and what people read.
macro_rules! metrics {
    ($($kind:ident $name:literal $labels:expr => $help:literal;)*) => {
        &[$(Metric { name: $name, kind: MetricKind::$kind, labels: $labels, help: $help }),*]
    };
}

const JOB: &[&str] = &["job"];
const STAGE: &[&str] = &["job", "stage"];
const SOURCE: &[&str] = &["job", "source"];
const SPLIT: &[&str] = &["job", "source", "split"];
const SINK: &[&str] = &["job", "sink"];

/// All metrics, in the order in which they are shown.
pub const METRICS: &[Metric] = metrics! {
    Gauge "thalweg_build_info" &["version", "features"] => "Always 1: which build this is";
    Gauge "thalweg_workers" &[] => "Worker threads that all jobs share";
    Counter "thalweg_worker_busy_seconds_total" &[]
        => "Time that workers spent on tasks; its rate by the number of workers is the share of the machine in use";
    Gauge "thalweg_job_info" &["job", "revision", "order", "mode"]
        => "Always 1: the revision of a job, the order that it promises, and its guarantee";
    Gauge "thalweg_job_state" &["job", "state"] => "1 for the state that a job is in";
    Gauge "thalweg_job_condition" &["job", "condition"] => "1 while a condition holds, else 0";
    Gauge "thalweg_job_start_time_seconds" JOB => "When the run began, in seconds since 1970";
    Counter "thalweg_job_restarts_total" &["job", "cause"] => "How often a job was started again";
    Gauge "thalweg_job_watermark_timestamp_seconds" SINK
        => "Event time up to which the input of a sink is complete; time() less this is the lag";
    Gauge "thalweg_memory_limit_bytes" JOB => "How much memory a job may use";
    Gauge "thalweg_memory_used_bytes" &["job", "kind"]
        => "Memory in use: rows in_flight, state of operators, buffers of sources";
    Gauge "thalweg_watermark_hold_seconds" SOURCE
        => "For how long this source has held back results that would be further without it; 0 if it does not";
    Gauge "thalweg_source_watermark_timestamp_seconds" SPLIT => "The watermark of a split";
    Gauge "thalweg_source_last_row_timestamp_seconds" SPLIT => "When a split gave rows last";
    Gauge "thalweg_source_idle" SPLIT => "1 while nobody waits for a split";
    Gauge "thalweg_source_lag_rows" SOURCE => "Rows that are there and were not read yet";
    Gauge "thalweg_source_lag_bytes" SOURCE
        => "Bytes of the files that are known which were not read yet; a compressed file and one of row groups counts \
         until it is read to its end";
    Counter "thalweg_source_bad_rows_total" SOURCE => "Rows that could not be read";
    Counter "thalweg_source_quarantined_rows_total" SOURCE
        => "Rows left out because their time lies too far in the future";
    Counter "thalweg_source_reconnects_total" SOURCE
        => "How often the connection of a source was lost and made again";
    Counter "thalweg_stage_input_rows_total" STAGE => "Rows taken; of a source, rows read";
    Counter "thalweg_stage_output_rows_total" STAGE => "Rows passed on; of a sink, rows written";
    Counter "thalweg_stage_output_bytes_total" STAGE => "Bytes passed on";
    Counter "thalweg_stage_bundles_total" STAGE
        => "Bundles taken; those of a sink are the count of thalweg_sink_write_seconds";
    Counter "thalweg_stage_busy_seconds_total" STAGE
        => "Time that workers, or the thread of a sink, spent on a stage";
    Counter "thalweg_stage_blocked_seconds_total" &["job", "stage", "by"]
        => "Time in which a stage could not do work that was there: its output is not taken, memory is short, order makes \
         another input come first, a lookup has no answer, a cut is being taken";
    Gauge "thalweg_stage_queued_bundles" STAGE
        => "How many bundles wait when one is taken, that one included";
    Gauge "thalweg_stage_queued_bytes" STAGE => "Bytes that wait for a sink";
    Gauge "thalweg_stage_state_bytes" STAGE
        => "Bytes of state; of a source, read and not given yet";
    Gauge "thalweg_stage_state_keys" STAGE
        => "Entries of state: keys, each in each window that is open; rows where rows are kept";
    Counter "thalweg_stage_accepted_rows_total" STAGE => "Rows taken into state";
    Counter "thalweg_stage_late_rows_total" STAGE => "Rows late for all their windows";
    Counter "thalweg_stage_partly_late_rows_total" STAGE
        => "Rows late for some of their windows; they are accepted";
    Histogram "thalweg_result_latency_seconds" SINK
        => "From the arrival of the row that completes a result to the write of the result";
    Histogram "thalweg_sink_write_seconds" SINK => "How long writes took";
    Counter "thalweg_sink_committed_rows_total" SINK
        => "Rows that a commit has made visible, or durable where a file gets its name at the end; without \
         transactions, rows written. The rest of thalweg_stage_output_rows_total waits for the next snapshot";
    Counter "thalweg_sink_errors_total" SINK
        => "How often something went wrong outside, of sinks that try again";
    Counter "thalweg_snapshots_total" &["job", "result"] => "Snapshots kept and failed";
    Histogram "thalweg_snapshot_duration_seconds" JOB
        => "From the request until a snapshot was kept";
    Histogram "thalweg_snapshot_hold_seconds" JOB => "How long sources were held to place a cut";
    Counter "thalweg_snapshot_written_bytes_total" JOB => "Bytes written for snapshots";
    Gauge "thalweg_snapshot_size_bytes" JOB => "Bytes written for the newest snapshot";
    Gauge "thalweg_snapshot_interval_seconds" JOB => "How often a snapshot is to be taken";
    Gauge "thalweg_snapshot_last_success_timestamp_seconds" JOB
        => "When the newest snapshot was taken";
    Histogram "thalweg_http_request_duration_seconds" &["route", "method", "code"]
        => "How long requests to the server took";
    Counter "thalweg_live_dropped_messages_total" &[]
        => "Messages that slow readers of live streams missed";
    Counter "thalweg_tap_rows_total" JOB => "Rows shown by taps";
    Counter "process_cpu_seconds_total" &[] => "Processor time of the process";
    Gauge "process_resident_memory_bytes" &[] => "Resident memory of the process";
    Gauge "process_open_fds" &[] => "Open file descriptors";
    Gauge "process_start_time_seconds" &[] => "When the process began, in seconds since 1970";
};
