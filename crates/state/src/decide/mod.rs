//! What is to be done about snapshots, from facts alone: no clock, no disk, no lock is asked here.
//!
//! Who calls gathers facts, passes them in and carries out the answer; so each rule can be tested
//! by a table of cases, and a simulator can drive it.
//!
//! | question | answered by |
//! |---|---|
//! | is it time for the next snapshot? | [`Schedule`] |
//! | which snapshot does a job resume from? | [`recovery`] |
//! | what becomes of prepared transactions then? | [`transactions`] |
//! | which snapshots and files go? | [`expired`], [`deletable`] |
//! | which tables are captured in full, and where are changes tracked? | [`Extents`] |
//! | which generations of a table are folded into one? | [`merge_from`] |

mod extents;
mod merging;
mod recovery;
mod retention;
mod schedule;

pub use extents::{Extents, PAUSE_MAX};
pub use merging::{CHAIN_MAX, merge_from};
pub use recovery::{
    Candidate, CandidateState, FallBack, Recovery, Transaction, Wish, recovery, transactions,
};
pub use retention::{Files, KeptSnapshot, deletable, expired};
pub use schedule::{Next, Schedule, Timing, WriteOutcome};
