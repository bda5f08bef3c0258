//! In which sequence the rows of several inputs came in: recorded in one run, replayed in another.
//!
//! The contract `arrival` promises the sequence of one thread that takes rows as they arrive. With
//! several inputs that depends on their interleaving, which is an accident of timing. Written down
//! as steps it can be had again: a number of rows of one input, then a number of another.
//!
//! A step without rows says that the input has ended there. An input that was ended because nobody
//! needed it any more (LIMIT) has no such step: where it ends does not show.

use std::sync::{Arc, Mutex};

use thalweg_core::Result;

/// Rows of one input that came in one behind the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Which input, in the order of the sources in the graph.
    pub input: u32,
    /// How many rows; 0 means that the input has ended.
    pub rows: u32,
}

/// Takes steps down, in their order. Two steps of the same input may follow each other.
pub trait RecordSteps: Send {
    /// The next step. An error ends the job.
    fn record(&mut self, step: Step) -> Result<()>;
}

/// Where a job's steps go. One thread at a time has the turn, so nobody waits for the lock.
pub type StepRecorder = Arc<Mutex<dyn RecordSteps>>;

/// The steps that a job has to follow.
#[derive(Clone, Debug)]
pub struct Replay {
    /// All steps.
    pub steps: Arc<[Step]>,
    /// False if the recorded run was stopped or failed behind the last step.
    pub is_complete: bool,
}
