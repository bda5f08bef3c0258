//! The form of a scrape that has native histograms: messages of Protocol Buffers
//! (`io.prometheus.client.MetricFamily`), each behind its length.
//!
//! Histograms have their classic buckets as well, so that a server of Prometheus that does not take
//! native ones loses nothing.

use thalweg_runtime::metrics::{BUCKET_BOUNDS_US, FINE_ZERO};

use super::families::{Families, Sample, Value};
use super::table::{Metric, MetricKind};
use crate::protobuf::Message;
use crate::reading::DistributionReading;

/// The content type of [`Families::protobuf`].
pub const PROTOBUF_CONTENT_TYPE: &str =
    "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited";
/// Eight buckets for each doubling.
const SCHEMA: i64 = 3;
/// What is not longer counts as zero: the clock of times has microseconds.
const ZERO_THRESHOLD_S: f64 = 0.5e-6;

/// True if whoever asks with this header prefers Protocol Buffers over text.
pub fn prefers_protobuf(accept: &str) -> bool {
    let (mut protobuf, mut text): (f64, f64) = (0.0, 0.0);
    for range in accept.split(',') {
        let mut parts = range.split(';').map(str::trim);
        let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
        let parameters: Vec<(String, &str)> = parts
            .filter_map(|part| part.split_once('='))
            .map(|(name, value)| (name.trim().to_ascii_lowercase(), value.trim().trim_matches('"')))
            .collect();
        let parameter = |wanted: &str| {
            parameters.iter().find(|(name, _)| name == wanted).map(|(_, value)| *value)
        };
        let quality: f64 = parameter("q").map_or(1.0, |q| q.parse().unwrap_or(0.0));
        match kind.as_str() {
            "application/vnd.google.protobuf"
                if parameter("proto") == Some("io.prometheus.client.MetricFamily")
                    && parameter("encoding") == Some("delimited") =>
            {
                protobuf = protobuf.max(quality);
            }
            // OpenMetrics is not spoken here; who takes it takes plain text as well.
            "text/plain" | "text/*" => text = text.max(quality),
            _ => {}
        }
    }
    protobuf > text
}

impl Families {
    /// All samples, in the order of the table.
    pub fn protobuf(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (metric, samples) in self.metrics() {
            bytes.extend(family(metric, samples).into_delimited());
        }
        bytes
    }
}

fn family(metric: &Metric, samples: &[Sample]) -> Message {
    // As the enum of the format counts.
    let (kind, field) = match metric.kind {
        MetricKind::Counter => (0, 3),
        MetricKind::Gauge => (1, 2),
        MetricKind::Histogram => (4, 7),
    };
    let mut family = Message::new();
    family.text(1, metric.name).text(2, metric.help).unsigned(3, kind);
    for sample in samples {
        family.nested(4, |line| {
            for (label, value) in sample.labels() {
                line.nested(1, |pair| pair.text(1, label).text(2, value));
            }
            line.nested(field, |value| match &sample.value {
                Value::Number(number) => value.double(1, *number),
                Value::Times(times) => write_histogram(value, times),
            })
        });
    }
    family
}

fn write_histogram<'a>(histogram: &'a mut Message, times: &DistributionReading) -> &'a mut Message {
    let count: u64 = times.counts.iter().sum();
    histogram.unsigned(1, count).double(2, times.sum_us as f64 / 1e6);
    let mut below = 0;
    for (bound_us, in_bucket) in BUCKET_BOUNDS_US.iter().zip(&times.counts) {
        below += in_bucket;
        let bound_s = *bound_us as f64 / 1e6;
        histogram.nested(3, |bucket| bucket.unsigned(1, below).double(2, bound_s));
    }
    let Some((zeros, buckets)) = times.fine.split_first() else {
        // Nothing has been counted yet; an empty span says that this is a native histogram.
        histogram.signed(5, SCHEMA).double(6, ZERO_THRESHOLD_S).unsigned(7, 0);
        return histogram.nested(12, |span| span.signed(1, 0).unsigned(2, 0));
    };
    histogram.signed(5, SCHEMA).double(6, ZERO_THRESHOLD_S).unsigned(7, *zeros);
    for (gap, length) in spans(buckets) {
        histogram.nested(12, |span| span.signed(1, gap).unsigned(2, length));
    }
    let mut before = 0;
    let deltas = buckets.iter().filter(|&&count| count > 0).map(|&count| {
        let delta = count as i64 - before;
        before = count as i64;
        delta
    });
    histogram.packed_signed(13, deltas)
}

/// Runs of buckets that are not empty: how far the first bucket is from the end of the run before,
/// of the first run from bucket 0 of the format; and how many there are.
fn spans(buckets: &[u64]) -> Vec<(i64, u64)> {
    let mut spans: Vec<(i64, u64)> = Vec::new();
    // The buckets begin behind that for zero.
    let mut gap = 1 - i64::from(FINE_ZERO);
    let mut is_in_run = false;
    for &count in buckets {
        match (count > 0, spans.last_mut()) {
            (true, Some((_, length))) if is_in_run => *length += 1,
            (true, _) => {
                spans.push((gap, 1));
                gap = 0;
            }
            (false, _) => gap += 1,
        }
        is_in_run = count > 0;
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_buckets_become_spans() {
        assert_eq!(spans(&[0, 0, 0]), []);
        assert_eq!(spans(&[5, 0, 0, 1, 2, 0, 9]), [(-159, 1), (2, 2), (1, 1)]);
    }

    #[test]
    fn a_reader_gets_the_form_that_it_prefers() {
        let prometheus = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;\
                          q=0.7,application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        assert!(prefers_protobuf(prometheus));
        for text in [
            "",
            "*/*",
            "text/plain",
            "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            "application/vnd.google.protobuf",
            "application/vnd.google.protobuf;proto=other;encoding=delimited",
            "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=text",
            "text/plain,application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.3",
            "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0",
            "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=x",
        ] {
            assert!(!prefers_protobuf(text), "{text}");
        }
    }
}
