//! Cuts: where a snapshot is taken, and where another run resumes.
//!
//! # How a cut is taken
//! 1. *Place.* Each source places the cut between two bundles, by the next worker that comes to it:
//!    rows that it has given and that wait for company go first, its position is noted, and it is
//!    asked on. Sources do this one by one.
//! 2. *Pass.* The cut goes the way of watermarks: behind all that was in front of it, in front of
//!    all that comes behind. Stateless stages do bundles of both sides as they come. At an operator
//!    or a sink nothing from behind is begun before the cut has come by all lanes.
//! 3. *Capture.* Then its partitions capture what they keep, as tasks of workers, and the cut goes
//!    on. What takes long is made later, by whoever writes the snapshot. Sinks end their
//!    transactions in their turn, on their own threads.
//! 4. *Complete.* The last stage to report completes the cut, and whoever takes it puts together
//!    what was found.
//!
//! How it travels is a matter of the flow: [`epoch::cuts`](crate::epoch) has it as the end of a
//! container, [`ordered::snapshot`](crate::ordered) as an element of the sequence. What is found
//! where is gathered in [`cut`](crate::cut).
//!
//! # Why what is found is one state
//! A row is in front of the cut if its source had sent it before it placed the cut. Each stage has
//! done all that is derived from such rows when it is captured, and nothing that is derived from
//! others: it takes nothing from behind a cut before it is captured, and containers (elements)
//! never hold what comes of both sides. What no row causes keeps to that: no input becomes idle
//! while a cut is under way, and a call of the clock stands on one side of it in each partition.
//!
//! # Why nothing deadlocks
//! A lane that is held waits for the cut on other lanes, never for a row. In front of the cut there
//! is a limited amount of work, which needs nothing from behind: every source places the cut
//! whatever it waits for (room, a gate, its turn), and work inside is never refused room. So by the
//! order of the stages the cut gets to all of them. What waits behind it counts as in flight, and
//! while the cut is under way sources bring at most an eighth of what they may else: with more
//! the results of what came during the cut would be late.
//!
//! **Invariant:** while a stage is captured, nothing from in front of the cut is left to do there,
//! and nothing from behind it is begun.

pub(crate) mod capture;
mod restore;
mod sharing;

use std::time::Duration;

use thalweg_core::snapshot::TakenCut;

pub(crate) use restore::restore;

/// What comes behind a cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterCut {
    /// The job continues.
    Continue,
    /// Sources are paused: nothing from behind it is read, since the job is about to be stopped.
    Hold,
}

/// How long a cut took.
#[derive(Clone, Debug, Default)]
pub struct CutTimes {
    /// The longest that a source was held: while it placed the cut.
    pub hold: Duration,
    /// For each stage in front of which the cut waits, with its name: from the moment at which the
    /// first source had placed the cut until the stage was captured.
    pub stages: Vec<(String, Duration)>,
    /// From its request until every stage was captured.
    pub whole: Duration,
}

/// A cut that was taken.
#[derive(Debug)]
pub struct Taken {
    /// What the job is there.
    pub cut: TakenCut,
    /// How long it took.
    pub times: CutTimes,
}
