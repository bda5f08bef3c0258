//! Ctrl-C and SIGTERM: the first stops the running jobs cleanly, the second ends the process.
//!
//! A signal may arrive at any moment. While the statements are read nothing has begun, so the
//! process ends at once; so it does while a statement is planned and no job runs, since planning
//! touches nothing and may take long. A job that waits for others while it starts is cancelled.
//! Between two jobs of a script a signal is remembered, and a job that starts later is stopped at
//! once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use thalweg_core::connector::Waker;
use thalweg_core::{Error, Result};
use thalweg_runtime::JobControl;

/// The exit status of a process that a signal has stopped: 128 and the number of Ctrl-C's, for
/// SIGTERM as well.
pub const STOPPED: i32 = 130;

/// What Ctrl-C acts on.
#[derive(Clone, Default)]
pub struct Interrupt(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    pressed: bool,
    /// Jobs may run: the first signal stops them.
    has_begun: bool,
    /// A statement is planned: no job runs, and nothing outside is touched.
    is_planning: bool,
    /// Those that run, by place.
    jobs: BTreeMap<usize, JobControl>,
    /// What ends the waits of those that start, by place.
    starting: BTreeMap<usize, Vec<Waker>>,
}

impl Interrupt {
    /// Listens from now on. Called once in a process.
    pub fn listen() -> Result<Interrupt> {
        let interrupt = Interrupt::default();
        let handled = interrupt.clone();
        ctrlc::set_handler(move || {
            if handled.press() {
                std::process::exit(STOPPED);
            }
        })
        .map_err(|error| Error::io(format!("can't listen to Ctrl-C: {error}")))?;
        Ok(interrupt)
    }

    /// From now on jobs may run, which the first signal stops.
    pub fn begin(&self) {
        self.0.lock().expect("no panic under this lock").has_begun = true;
    }

    /// From now on a statement is planned, or no more.
    pub fn set_planning(&self, is_planning: bool) {
        self.0.lock().expect("no panic under this lock").is_planning = is_planning;
    }

    /// Remembers the signal and stops the jobs. True if the process is to end at once: it is the
    /// second signal, or nothing is there to stop.
    fn press(&self) -> bool {
        let mut state = self.0.lock().expect("no panic under this lock");
        let again = std::mem::replace(&mut state.pressed, true);
        state.jobs.values().for_each(JobControl::stop);
        state.starting.values().flatten().for_each(|cancel| cancel());
        again || !state.has_begun || state.is_planning
    }

    /// A job starts, and these end its waits.
    pub fn watch_start(&self, place: usize, cancellers: Vec<Waker>) {
        let mut state = self.0.lock().expect("no panic under this lock");
        if state.pressed {
            cancellers.iter().for_each(|cancel| cancel());
        }
        state.starting.insert(place, cancellers);
    }

    /// From now on this job is to be stopped, too.
    pub fn watch(&self, place: usize, job: &JobControl) {
        let mut state = self.0.lock().expect("no panic under this lock");
        if state.pressed {
            job.stop();
        }
        state.starting.remove(&place);
        state.jobs.insert(place, job.clone());
    }

    /// The job has ended.
    pub fn forget(&self, place: usize) {
        self.0.lock().expect("no panic under this lock").jobs.remove(&place);
    }

    /// True once Ctrl-C was pressed.
    pub fn is_pressed(&self) -> bool {
        self.0.lock().expect("no panic under this lock").pressed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_signal_is_distinguished_from_the_first() {
        let interrupt = Interrupt::default();
        interrupt.begin();
        assert!(!interrupt.is_pressed());
        assert!(!interrupt.press());
        assert!(interrupt.is_pressed());
        assert!(interrupt.press());
    }

    #[test]
    fn a_signal_ends_the_waits_of_a_job_that_starts() {
        use std::sync::atomic::{AtomicUsize, Ordering};
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&calls);
        let cancel: Waker = Arc::new(move || {
            counted.fetch_add(1, Ordering::Relaxed);
        });
        let interrupt = Interrupt::default();
        interrupt.begin();
        interrupt.watch_start(0, vec![Arc::clone(&cancel)]);
        assert_eq!(calls.load(Ordering::Relaxed), 0);
        assert!(!interrupt.press());
        assert_eq!(calls.load(Ordering::Relaxed), 1);
        // A start that comes later is not waited for either.
        interrupt.watch_start(1, vec![cancel]);
        assert_eq!(calls.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_signal_ends_the_process_while_a_statement_is_planned() {
        let interrupt = Interrupt::default();
        interrupt.begin();
        interrupt.set_planning(true);
        assert!(interrupt.press());
        let interrupt = Interrupt::default();
        interrupt.begin();
        interrupt.set_planning(true);
        interrupt.set_planning(false);
        assert!(!interrupt.press());
    }

    #[test]
    fn a_signal_ends_the_process_as_long_as_nothing_has_begun() {
        assert!(Interrupt::default().press());
    }
}
