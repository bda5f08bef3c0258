//! A client of a running Apache Flink: statements go to its SQL gateway, questions about jobs to
//! its job manager. Both speak JSON over HTTP.
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
//! - only requests that change nothing are tried again: a statement that was sent twice would be
//!   two jobs;
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

use std::time::Duration;

use thalweg_core::shim::{Clock, SystemClock};

/// Called between two questions of a wait: pauses, or says that the wait is to end.
pub trait Wait {
    /// Pauses for about this long. False if nobody waits any more.
    fn pause(&mut self, milliseconds: u64) -> bool;
}

/// Waits until a time limit.
pub struct Deadline {
    clock: SystemClock,
    end_ns: u64,
}

impl Deadline {
    /// A limit of this many seconds from now.
    pub fn after_seconds(seconds: u64) -> Deadline {
        let clock = SystemClock::default();
        let end_ns = clock.now_ns().saturating_add(seconds.saturating_mul(1_000_000_000));
        Deadline { clock, end_ns }
    }
}

impl Wait for Deadline {
    fn pause(&mut self, milliseconds: u64) -> bool {
        let left = Duration::from_nanos(self.end_ns.saturating_sub(self.clock.now_ns()));
        std::thread::sleep(left.min(Duration::from_millis(milliseconds)));
        !left.is_zero()
    }
}
