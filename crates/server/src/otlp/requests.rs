//! Requests to a collector: `ExportMetricsServiceRequest`, `ExportTraceServiceRequest` and
//! `ExportLogsServiceRequest` of OTLP.
//!
//! Numbers of fields are those of opentelemetry-proto; the test of the exporter reads them with the
//! messages that OpenTelemetry publishes.

use thalweg_monitoring::exposition::{Families, Metric, MetricKind, Sample, Value};
use thalweg_monitoring::protobuf::Message;
use thalweg_monitoring::reading::DistributionReading;
use thalweg_runtime::metrics::FINE_ZERO;

use super::events::EventRecord;
use super::spans::{Span, ns};

/// Values count from the beginning.
const CUMULATIVE: u64 = 2;
/// Eight buckets for each doubling.
const SCALE: i64 = 3;
/// What is not longer counts as zero.
const ZERO_THRESHOLD_S: f64 = 0.5e-6;
/// Kinds and outcomes of spans.
const INTERNAL: u64 = 1;
const SERVER: u64 = 2;
const FAILED: u64 = 2;

/// Who sends.
pub fn resource(attributes: &[(&str, String)]) -> Message {
    let mut resource = Message::new();
    for (name, value) in attributes {
        resource.message(1, &attribute(name, value));
    }
    resource
}

fn attribute(name: &str, text: &str) -> Message {
    let (mut value, mut pair) = (Message::new(), Message::new());
    value.text(1, text);
    pair.text(1, name).message(2, &value);
    pair
}

/// What is sent by whom: the parts of a request, in the field of the kind of parts.
fn request(resource: &Message, parts: impl Iterator<Item = Message>) -> Message {
    let (mut scope, mut of_scope) = (Message::new(), Message::new());
    scope.text(1, "thalweg").text(2, env!("CARGO_PKG_VERSION"));
    of_scope.message(1, &scope);
    for part in parts {
        of_scope.message(2, &part);
    }
    let (mut of_resource, mut request) = (Message::new(), Message::new());
    of_resource.message(1, resource).message(2, &of_scope);
    request.message(1, &of_resource);
    request
}

/// All metrics at a moment; those of no run count since `began_ms`.
pub fn metrics(resource: &Message, families: &Families, (began_ms, at_ms): (i64, i64)) -> Message {
    let times = (ns(began_ms), ns(at_ms));
    request(resource, families.metrics().map(|(metric, samples)| one(metric, samples, times)))
}

fn one(metric: &Metric, samples: &[Sample], times: (u64, u64)) -> Message {
    let mut data = Message::new();
    for sample in samples {
        data.message(1, &point(metric, sample, times));
    }
    let field = match metric.kind {
        MetricKind::Gauge => 5,
        MetricKind::Counter => {
            data.unsigned(2, CUMULATIVE).unsigned(3, 1);
            7
        }
        MetricKind::Histogram => {
            data.unsigned(2, CUMULATIVE);
            10
        }
    };
    let mut message = Message::new();
    message.text(1, &metric.otlp_name()).text(2, metric.help).text(3, metric.unit());
    message.message(field, &data);
    message
}

fn point(metric: &Metric, sample: &Sample, (began_ns, at_ns): (u64, u64)) -> Message {
    let mut point = Message::new();
    let began_ns = sample.began_ms.map_or(began_ns, ns);
    let field = if metric.kind == MetricKind::Histogram { 1 } else { 7 };
    for (label, value) in sample.labels() {
        point.message(field, &attribute(label, value));
    }
    point.fixed64(2, began_ns).fixed64(3, at_ns);
    match &sample.value {
        Value::Number(number) => {
            point.double(4, *number);
        }
        Value::Times(times) => write_histogram(&mut point, times),
    }
    point
}

fn write_histogram(point: &mut Message, times: &DistributionReading) {
    let count = times.counts.iter().sum();
    point.fixed64(4, count).double(5, times.sum_us as f64 / 1e6).signed(6, SCALE);
    point.double(14, ZERO_THRESHOLD_S);
    let Some((zeros, buckets)) = times.fine.split_first() else { return };
    point.fixed64(7, *zeros);
    let Some(first) = buckets.iter().position(|&count| count > 0) else { return };
    let last = buckets.iter().rposition(|&count| count > 0).unwrap_or(first);
    let mut positive = Message::new();
    // A bucket of OpenTelemetry has the number of where it begins, not of where it ends; those of
    // times begin behind that for zero.
    positive.signed(1, first as i64 - i64::from(FINE_ZERO));
    positive.packed_unsigned(2, buckets[first..=last].iter().copied());
    point.message(8, &positive);
}

/// Spans.
pub fn traces(resource: &Message, spans: &[Span]) -> Message {
    request(resource, spans.iter().map(span))
}

fn span(of: &Span) -> Message {
    let mut span = Message::new();
    span.bytes(1, &of.trace).bytes(2, &of.id);
    if let Some(parent) = &of.parent {
        span.bytes(4, parent);
    }
    let kind = if of.is_server { SERVER } else { INTERNAL };
    span.text(5, &of.name).unsigned(6, kind).fixed64(7, of.begin_ns).fixed64(8, of.end_ns);
    for (name, value) in &of.attributes {
        span.message(9, &attribute(name, value));
    }
    if let Some(error) = &of.error {
        let mut status = Message::new();
        status.text(2, error).unsigned(3, FAILED);
        span.message(15, &status);
    }
    span
}

/// What happened to jobs.
pub fn logs(resource: &Message, events: &[EventRecord]) -> Message {
    request(resource, events.iter().map(event))
}

fn event(of: &EventRecord) -> Message {
    let (mut record, mut body) = (Message::new(), Message::new());
    body.text(1, &of.body);
    record.fixed64(1, of.at_ns).unsigned(2, of.severity as u64).text(3, of.severity.name());
    record.message(5, &body);
    for (name, value) in &of.attributes {
        record.message(6, &attribute(name, value));
    }
    if let Some(trace) = &of.trace {
        record.bytes(9, trace);
    }
    record.fixed64(11, of.at_ns).text(12, &of.name);
    record
}
