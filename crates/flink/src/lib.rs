//! A client of a running Apache Flink: statements go to its SQL gateway, questions about jobs to its
//! job manager. Both speak JSON over HTTP.
//!
//! | module | what |
//! |---|---|
//! | [`http`] | requests, and what is tried again |
//! | [`gateway`] | sessions, statements and their results |
//! | [`job_manager`] | jobs: state, failures, checkpoints, savepoints |
//! | [`report`] | the answers of the job manager about a job as one value |
//! | [`causes`] | the message that matters in a Java stack trace |
//!
//! **Invariants:**
//! - only requests that change nothing are tried again: a statement that was sent twice would be two
//!   jobs;
//! - nothing is decided by the status of HTTP beyond "it worked": the gateway answers 500 to nearly
//!   every failure;
//! - every wait has an end, or is ended by the caller ([`Wait`]).
//!
//! What statements mean, and whether Flink takes them, is not known here.

pub mod causes;
pub mod gateway;
pub mod http;
pub mod job_manager;
pub mod report;

/// Called between two questions of a wait: pauses, or says that the wait is to end.
pub trait Wait {
    /// Pauses for about this long. False if nobody waits any more.
    fn pause(&mut self, milliseconds: u64) -> bool;
}

/// Waits until a time limit.
#[derive(Debug)]
pub struct Deadline(std::time::Instant);

impl Deadline {
    /// A limit of this many seconds from now.
    pub fn after_seconds(seconds: u64) -> Deadline {
        Deadline(std::time::Instant::now() + std::time::Duration::from_secs(seconds))
    }
}

impl Wait for Deadline {
    fn pause(&mut self, milliseconds: u64) -> bool {
        let now = std::time::Instant::now();
        let Some(left) = self.0.checked_duration_since(now) else { return false };
        std::thread::sleep(left.min(std::time::Duration::from_millis(milliseconds)));
        true
    }
}
