//! What happened to jobs, as records of a log: the lines of `events.ndjson`.

use super::spans::Trace;
use crate::job::Event;
use crate::lifecycle::State;

/// How grave something is, as OpenTelemetry counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    Info = 9,
    Warn = 13,
    Error = 17,
}

impl Severity {
    /// Its name there.
    pub fn name(self) -> &'static str {
        match self {
            Severity::Info => "INFO",
            Severity::Warn => "WARN",
            Severity::Error => "ERROR",
        }
    }

    /// A job that has come to rest by a failure is an error; one that tries again, or has gone back
    /// to the statements before, is a warning.
    fn of(event: &Event) -> Severity {
        let is_state = |state: State| event.kind == "state" && event.text == state.word();
        if is_state(State::Failed) || is_state(State::Undecided) {
            Severity::Error
        } else if is_state(State::Restarting) || event.code.is_some() {
            Severity::Warn
        } else {
            Severity::Info
        }
    }
}

/// A record of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventRecord {
    /// In nanoseconds since 1970.
    pub at_ns: u64,
    pub severity: Severity,
    /// `thalweg.state`.
    pub name: String,
    /// What happened, for people.
    pub body: String,
    pub attributes: Vec<(&'static str, String)>,
    /// The start, restart or upgrade that it belongs to.
    pub trace: Option<[u8; 16]>,
}

impl EventRecord {
    /// Something that has happened to a job, in the run of this generation if it is about one.
    pub fn of(job: &str, generation: Option<u64>, event: &Event) -> EventRecord {
        let body = match &event.detail {
            Some(detail) => format!("{}: {detail}", event.text),
            None => event.text.clone(),
        };
        let attributes = [
            ("thalweg.job", Some(job.to_owned())),
            ("thalweg.generation", generation.map(|generation| generation.to_string())),
            ("thalweg.code", event.code.clone()),
            ("thalweg.by", event.by.clone()),
        ];
        let given = attributes.into_iter().filter_map(|(name, value)| Some((name, value?)));
        EventRecord {
            at_ns: super::spans::ns(event.at_ms),
            severity: Severity::of(event),
            name: format!("thalweg.{}", event.kind),
            body,
            attributes: given.collect(),
            trace: generation.map(|generation| Trace::of_generation(job, generation).id),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: &str, text: &str, code: Option<&str>) -> Event {
        Event {
            at_ms: 1_500,
            kind: kind.to_owned(),
            text: text.to_owned(),
            detail: code.map(|_| "disk full".to_owned()),
            code: code.map(str::to_owned),
            by: None,
        }
    }

    #[test]
    fn failures_are_errors_and_what_is_tried_again_is_a_warning() {
        let severity =
            |kind, text, code| EventRecord::of("a", Some(3), &event(kind, text, code)).severity;
        assert_eq!(severity("state", "failed", Some("io")), Severity::Error);
        assert_eq!(severity("state", "undecided", None), Severity::Error);
        assert_eq!(severity("state", "restarting", None), Severity::Warn);
        assert_eq!(severity("upgrade", "back to revision 1", Some("went-back")), Severity::Warn);
        assert_eq!(severity("request", "failed", None), Severity::Info);
        assert_eq!(severity("state", "running", None), Severity::Info);
    }

    #[test]
    fn a_record_says_what_happened_to_which_job() {
        let failed = event("state", "failed", Some("io"));
        let record = EventRecord::of("a", Some(3), &failed);
        assert_eq!((record.at_ns, record.name.as_str()), (1_500_000_000, "thalweg.state"));
        assert_eq!(record.body, "failed: disk full");
        assert_eq!(record.trace, Some(Trace::of_generation("a", 3).id));
        assert_eq!(EventRecord::of("a", None, &failed).trace, None);
        let named = |name: &str| record.attributes.iter().find(|(own, _)| *own == name);
        assert_eq!(named("thalweg.code"), Some(&("thalweg.code", "io".to_owned())));
        assert_eq!(named("thalweg.generation"), Some(&("thalweg.generation", "3".to_owned())));
        assert_eq!(named("thalweg.by"), None);
    }
}
