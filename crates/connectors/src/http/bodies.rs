//! The bodies of a run: numbered as they come, and how far the job has read them.
//!
//! # Invariants
//! - Bodies enter the queue in the order of their numbers: both happen under one lock.
//! - A body counts as read when the job has all of its rows, and all bodies before it.
//! - At a cut, the position says up to which number bodies were read: a snapshot has these, and
//!   none of the others.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use thalweg_core::connector::{Source, SourceLayer};
use thalweg_core::shim::unique_name;

use crate::messaging::{Mark, MessageSource};
use crate::taken_bodies::TakenBodies;

/// Bodies that wait for a snapshot at most: each is in positions until one has it.
const UNSETTLED_MAX: usize = 10_000;

/// The bodies of a run.
pub struct Bodies {
    run: String,
    state: Mutex<Numbers>,
}

#[derive(Default)]
struct Numbers {
    is_closed: bool,
    last: u64,
    /// Those that were not read yet, and the mark whose rows each waits for.
    unread: VecDeque<(u64, Option<Mark>)>,
    read_through: u64,
    /// How many are not in a snapshot yet.
    unsettled: usize,
    /// What earlier runs have taken.
    taken: TakenBodies,
}

/// Why a body gets no number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoNumber {
    /// The run takes no more.
    Closed,
    /// The queue is full.
    Queue,
    /// Too many bodies wait for a snapshot.
    Unsettled,
}

impl Bodies {
    /// Those of a run that begins.
    pub fn new() -> Bodies {
        Bodies { run: unique_name(), state: Mutex::default() }
    }

    fn numbers(&self) -> MutexGuard<'_, Numbers> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The run.
    pub fn run(&self) -> &str {
        &self.run
    }

    /// True while bodies are taken.
    pub fn is_open(&self) -> bool {
        !self.numbers().is_closed
    }

    /// No more are taken.
    pub fn close(&self) {
        self.numbers().is_closed = true;
    }

    /// The next number goes to a body with this mark, if `enqueue` has room for it.
    ///
    /// # Errors
    /// If there is no room, now or any more: why, and the body.
    pub fn add<B>(
        &self,
        mark: Mark,
        body: B,
        enqueue: impl FnOnce(u64, B) -> Result<(), B>,
    ) -> Result<u64, (NoNumber, B)> {
        let mut numbers = self.numbers();
        if numbers.is_closed {
            return Err((NoNumber::Closed, body));
        }
        if numbers.unsettled >= UNSETTLED_MAX {
            return Err((NoNumber::Unsettled, body));
        }
        let number = numbers.last + 1;
        enqueue(number, body).map_err(|body| (NoNumber::Queue, body))?;
        numbers.last = number;
        numbers.unsettled += 1;
        numbers.unread.push_back((number, Some(mark)));
        Ok(number)
    }

    /// A body adds no rows: it has none, or they came with another body of the same mark, which
    /// the job may not have read yet.
    pub fn adds_nothing(&self, number: u64, mark: Mark) {
        let mut numbers = self.numbers();
        let is_unread =
            numbers.unread.iter().any(|&(of, waits)| of < number && waits == Some(mark));
        if !is_unread {
            for (of, waits) in &mut numbers.unread {
                if *of == number {
                    *waits = None;
                }
            }
            numbers.advance();
        }
    }

    /// The job has the rows of these marks.
    pub fn read(&self, marks: &[Mark]) {
        let mut numbers = self.numbers();
        for (_, waits) in &mut numbers.unread {
            if waits.is_some_and(|mark| marks.contains(&mark)) {
                *waits = None;
            }
        }
        numbers.advance();
    }

    /// A number of bodies are in a snapshot, or will never be looked for in one.
    pub fn settle(&self, bodies: usize) {
        let mut numbers = self.numbers();
        numbers.unsettled = numbers.unsettled.saturating_sub(bodies);
    }

    /// The last number up to which all bodies were read.
    pub fn read_through(&self) -> u64 {
        self.numbers().read_through
    }
}

impl Numbers {
    fn advance(&mut self) {
        while let Some(&(number, None)) = self.unread.front() {
            self.read_through = number;
            self.unread.pop_front();
        }
    }
}

/// A source of bodies whose positions say which it has taken.
pub struct CountedSource {
    source: MessageSource,
    bodies: Arc<Bodies>,
}

impl CountedSource {
    /// Over this source.
    pub fn new(mut source: MessageSource, bodies: Arc<Bodies>) -> CountedSource {
        let read = Arc::clone(&bodies);
        source.when_read(Box::new(move |marks| read.read(marks)));
        CountedSource { source, bodies }
    }
}

impl SourceLayer for CountedSource {
    fn inner(&self) -> &dyn Source {
        &self.source
    }

    fn inner_mut(&mut self) -> &mut dyn Source {
        &mut self.source
    }

    fn position(&self) -> Option<String> {
        let mut position: Value = serde_json::from_str(&self.source.position()?).ok()?;
        let mut numbers = self.bodies.numbers();
        let read_through = numbers.read_through;
        if read_through > 0 {
            numbers.taken.note(&self.bodies.run, read_through);
        }
        numbers.taken.write_to(&mut position);
        Some(position.to_string())
    }

    fn seek(&mut self, position: &str) -> thalweg_core::Result<()> {
        self.bodies.numbers().taken = TakenBodies::of_position(position);
        self.source.seek(position)
    }

    fn stop(&mut self) {
        self.bodies.close();
        self.source.stop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(bodies: &Bodies, mark: Mark) -> Result<u64, NoNumber> {
        bodies.add(mark, (), |_, ()| Ok(())).map_err(|(why, ())| why)
    }

    #[test]
    fn a_body_is_read_when_all_before_it_are() {
        let bodies = Bodies::new();
        for (mark, number) in [(10, 1), (20, 2), (10, 3), (30, 4)] {
            assert_eq!(add(&bodies, mark), Ok(number));
        }
        bodies.read(&[20]);
        assert_eq!(bodies.read_through(), 0);
        // It came a second time, and the first one was not read yet.
        bodies.adds_nothing(3, 10);
        assert_eq!(bodies.read_through(), 0);
        bodies.read(&[10]);
        assert_eq!(bodies.read_through(), 3);
        bodies.adds_nothing(4, 30);
        assert_eq!(bodies.read_through(), 4);
        // The rows of the first one were read long ago.
        assert_eq!(add(&bodies, 10), Ok(5));
        bodies.adds_nothing(5, 10);
        assert_eq!(bodies.read_through(), 5);
    }

    #[test]
    fn bodies_are_refused_where_there_is_no_room() {
        let bodies = Bodies::new();
        assert_eq!(bodies.add(1, (), |_, ()| Err(())), Err((NoNumber::Queue, ())));
        for number in 1..=UNSETTLED_MAX as u64 {
            assert_eq!(add(&bodies, 1), Ok(number));
        }
        assert_eq!(add(&bodies, 1), Err(NoNumber::Unsettled));
        bodies.settle(1);
        assert!(add(&bodies, 1).is_ok());
        bodies.close();
        assert_eq!(add(&bodies, 1), Err(NoNumber::Closed));
    }
}
