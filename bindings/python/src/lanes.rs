//! Lanes: the threads on which functions of Python run.
//!
//! A worker of the engine never waits for the interpreter's lock. A bundle whose rows need a
//! function is handed to a lane, as an unanswered call, and the worker takes other work; the
//! lane computes the bundle's steps and hands it back.
//!
//! With a lock there is one lane, since more would only take turns; without one there are as many
//! as the machine has cores.

use std::sync::OnceLock;

use crossbeam_channel::{Sender, unbounded};
use pyo3::prelude::*;
use thalweg::session::{Executor, Task};

/// The queue of all lanes. What waits in it is bounded by what the engine has in flight.
fn lanes() -> &'static Sender<Task> {
    static LANES: OnceLock<Sender<Task>> = OnceLock::new();
    LANES.get_or_init(|| {
        let (sender, tasks) = unbounded::<Task>();
        for number in 0..lane_count() {
            let tasks = tasks.clone();
            let work = move || tasks.iter().for_each(|task| task());
            // A lane keeps its thread state, without the lock, for as long as the process lives:
            // functions attach to it. Else each call would make one and drop it again, with the
            // memory of its frames. The queue never ends, so nothing takes the lock again when
            // the interpreter ends; an interpreter that has begun to end gives no state, and the
            // tasks find out for themselves.
            let body = move || {
                if Python::try_attach(|py| py.detach(&work)).is_none() {
                    work();
                }
            };
            let thread = std::thread::Builder::new().name(format!("python-lane-{number}"));
            // Without a thread the queue is closed, and tasks are done where they are given.
            drop(thread.spawn(body));
        }
        sender
    })
}

fn lane_count() -> usize {
    let has_lock = Python::try_attach(|py| {
        let asked = py.import("sys").and_then(|sys| sys.call_method0("_is_gil_enabled"));
        // Older interpreters always have it.
        asked.and_then(|answer| answer.extract::<bool>()).unwrap_or(true)
    });
    match has_lock {
        Some(false) => std::thread::available_parallelism().map_or(1, usize::from),
        _ => 1,
    }
}

/// Where the functions of a kind run.
pub struct Lanes {
    description: &'static str,
}

impl Lanes {
    /// For functions that take whole columns.
    pub const VECTORS: Lanes = Lanes { description: "python, whole columns" };
    /// For functions in processes of their own.
    pub const ISOLATED: Lanes = Lanes { description: "python, processes of its own" };
    /// For functions that are called for each row.
    pub const ROWS: Lanes = Lanes { description: "python, row by row" };
}

impl Executor for Lanes {
    fn execute(&self, task: Task) {
        if let Err(rejected) = lanes().send(task) {
            (rejected.0)();
        }
    }
    fn description(&self) -> String {
        self.description.to_owned()
    }
}
