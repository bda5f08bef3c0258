//! What took time.

use sha2::{Digest, Sha256};
use thalweg_monitoring::reading::SnapshotReading;

use crate::operations::Operation;

/// What belongs together, and what of it the others belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trace {
    /// Its identifier.
    pub id: [u8; 16],
    /// That of its first span.
    pub root: [u8; 8],
}

impl Trace {
    /// The same trace for the same words, whoever asks.
    pub fn of(words: &str) -> Trace {
        let hash: [u8; 32] = Sha256::digest(words).into();
        let (mut id, mut root) = ([0; 16], [0; 8]);
        id.copy_from_slice(&hash[..16]);
        root.copy_from_slice(&hash[16..24]);
        Trace { id, root }
    }

    /// That of a start, restart or upgrade of a job.
    pub fn of_generation(job: &str, generation: u64) -> Trace {
        Trace::of(&format!("job {job} generation {generation}"))
    }
}

/// Something that has taken time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Span {
    pub trace: [u8; 16],
    pub id: [u8; 8],
    pub parent: Option<[u8; 8]>,
    pub name: String,
    /// It is the answer to a request from outside.
    pub is_server: bool,
    /// In nanoseconds since 1970.
    pub begin_ns: u64,
    pub end_ns: u64,
    pub attributes: Vec<(&'static str, String)>,
    /// Why it failed, if it did.
    pub error: Option<String>,
}

/// Nanoseconds since 1970.
pub fn ns(ms: i64) -> u64 {
    u64::try_from(ms).unwrap_or(0).saturating_mul(1_000_000)
}

impl Span {
    /// The first span of a trace.
    pub fn root(trace: Trace, name: impl Into<String>, (begin_ns, end_ns): (u64, u64)) -> Span {
        Span {
            trace: trace.id,
            id: trace.root,
            name: name.into(),
            begin_ns,
            end_ns: end_ns.max(begin_ns),
            ..Span::default()
        }
    }

    /// A part of this span.
    pub fn part(&self, name: impl Into<String>, (begin_ns, end_ns): (u64, u64)) -> Span {
        let name = name.into();
        let id = Trace::of(&format!("{:?} {name} {begin_ns} {end_ns}", self.id)).root;
        let trace = Trace { id: self.trace, root: id };
        Span { parent: Some(self.id), ..Span::root(trace, name, (begin_ns, end_ns)) }
    }

    /// The answer to a request.
    pub fn of_request(
        (method, route, status): (&str, &str, u16),
        (end_ms, time_ns): (i64, u64),
    ) -> Span {
        let end_ns = ns(end_ms);
        let trace = Trace::of(&thalweg_core::shim::unique_name());
        let times = (end_ns.saturating_sub(time_ns), end_ns);
        let mut span = Span::root(trace, format!("{method} {route}"), times);
        span.is_server = true;
        span.attributes = vec![
            ("http.request.method", method.to_owned()),
            ("http.route", route.to_owned()),
            ("http.response.status_code", status.to_string()),
        ];
        span.error = (status >= 500).then(|| format!("status {status}"));
        span
    }

    /// A request that took time and has ended: a start, a stop, an upgrade, a snapshot.
    pub fn of_operation(operation: &Operation) -> Span {
        let kind = operation.kind.word();
        let trace = match operation.kind.begins_run() {
            true => Trace::of_generation(&operation.job, operation.generation),
            false => Trace::of(&operation.id),
        };
        let ended_ms = operation.ended_ms.unwrap_or(operation.asked_ms);
        let mut span = Span::root(trace, kind, (ns(operation.asked_ms), ns(ended_ms)));
        span.attributes = vec![
            ("thalweg.job", operation.job.clone()),
            ("thalweg.generation", operation.generation.to_string()),
            ("thalweg.operation", operation.id.clone()),
        ];
        let problem = operation.problem.as_ref();
        span.error = problem.map(|problem| problem.detail.clone());
        span
    }

    /// A state that a job was in on its way to another, in the trace of its start; `has_root` if
    /// a caller has asked for that, so that there is a span of it.
    pub fn of_state(
        (job, generation): (&str, u64),
        has_root: bool,
        state: &str,
        (since_ms, until_ms): (i64, i64),
    ) -> Span {
        let whole = Span::root(Trace::of_generation(job, generation), "", (0, 0));
        let mut span = whole.part(state, (ns(since_ms), ns(until_ms)));
        span.parent = span.parent.filter(|_| has_root);
        span.attributes = vec![("thalweg.job", job.to_owned())];
        span
    }

    /// A snapshot, and its steps.
    pub fn of_snapshot(job: &str, number: u64, snapshot: &SnapshotReading) -> Vec<Span> {
        let taken_ns = ns(snapshot.taken_at_ms.unwrap_or(0));
        let steps = &snapshot.steps;
        let us = |us: u64| us.saturating_mul(1_000);
        let begin_ns = taken_ns.saturating_sub(us(steps.cut_us));
        let written_ns = taken_ns + us(steps.write_us);
        let end_ns = written_ns + us(steps.commit_us);
        let trace = Trace::of(&format!("job {job} snapshot {number} at {taken_ns}"));
        let mut whole = Span::root(trace, "snapshot", (begin_ns, end_ns));
        whole.attributes = vec![
            ("thalweg.job", job.to_owned()),
            ("thalweg.snapshot", number.to_string()),
            ("thalweg.snapshot.bytes", snapshot.bytes.to_string()),
        ];
        let cut = whole.part("cut", (begin_ns, taken_ns));
        let captures = steps.captured.iter().map(|(stage, after_us)| {
            let end_ns = begin_ns.saturating_add(us(*after_us)).min(taken_ns);
            let mut capture = cut.part(format!("capture {stage}"), (begin_ns, end_ns));
            capture.attributes = vec![("thalweg.stage", stage.clone())];
            capture
        });
        let mut spans: Vec<Span> = captures.collect();
        spans.push(whole.part("write", (taken_ns, written_ns)));
        spans.push(whole.part("commit", (written_ns, end_ns)));
        spans.extend([cut, whole]);
        spans
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_steps_of_a_snapshot_are_parts_of_it() {
        let mut snapshot = SnapshotReading { taken_at_ms: Some(1_000), ..Default::default() };
        snapshot.steps.cut_us = 100;
        snapshot.steps.write_us = 2_000;
        snapshot.steps.commit_us = 30;
        snapshot.steps.captured = vec![("window".to_owned(), 80)];
        let spans = Span::of_snapshot("a", 7, &snapshot);
        let named = |name: &str| spans.iter().find(|span| span.name == name).expect("a span");
        let (whole, cut) = (named("snapshot"), named("cut"));
        assert_eq!((whole.begin_ns, whole.end_ns), (999_900_000, 1_002_030_000));
        assert_eq!((cut.parent, named("capture window").parent), (Some(whole.id), Some(cut.id)));
        assert_eq!(named("commit").end_ns, whole.end_ns);
        assert_eq!(named("capture window").end_ns - cut.begin_ns, 80_000);
        assert!(spans.iter().all(|span| span.trace == whole.trace));
    }
}
