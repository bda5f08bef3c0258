//! Cuts: where a snapshot is taken, and where another run resumes.
//!
//! # How a cut is taken
//! 1. *Hold.* Sources are not asked any more, and nothing is done that no row causes: no idle input
//!    is looked for and no clock calls ([`Hold`](crate::hold::Hold)). Rows that a source has given
//!    and that wait for company are sent.
//! 2. *Drain.* Workers continue with what is inside until nothing is under way. This always ends:
//!    what is inside is never refused room, and waits for no row that is not there. Two things
//!    stay: what waits for a sink's thread, which the sink takes before it hears of the cut, and in
//!    `event_time` rows that wait in a merge for rows of another input. Those are part of the
//!    state.
//! 3. *Capture.* Every partition captures what it keeps, every source its position, every stage its
//!    watermarks; several threads share that where there is much. What takes long is made later, by
//!    whoever writes the snapshot.
//! 4. *Continue.* Sources are asked again. Sinks end their transactions in their turn, on their own
//!    threads.
//!
//! No barrier travels, no partition waits at a gate for others, and a stateless stage knows nothing
//! of it. Gates for each partition would let work from beyond a cut begin before the cut is done
//! elsewhere; docs/design/008 measures what holding costs instead.
//!
//! **Invariant:** while a cut is captured, no worker is present, no mailbox has an owner, and no
//! row is in a container, a queue or a reorder buffer.

pub(crate) mod capture;
mod restore;
mod sharing;

use std::time::Duration;

use thalweg_core::snapshot::TakenCut;

pub use capture::ChooseExtent;
pub(crate) use restore::restore;

/// What comes behind a cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterCut {
    /// The job continues.
    Continue,
    /// Sources stay held: the job is about to be stopped.
    Hold,
}

/// How long a cut took.
#[derive(Clone, Copy, Debug, Default)]
pub struct CutTimes {
    /// From the hold until nothing was under way.
    pub drain: Duration,
    /// All captures.
    pub capture: Duration,
    /// From the hold until sources were asked again.
    pub hold: Duration,
}

/// A cut that was taken.
#[derive(Debug)]
pub struct Taken {
    /// What the job is there.
    pub cut: TakenCut,
    /// How long it took.
    pub times: CutTimes,
}
