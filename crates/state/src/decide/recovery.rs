//! Which snapshot a job resumes from, and what becomes of the transactions that it names.
//!
//! A snapshot that counted and cannot be read may have been committed: what its sinks wrote is
//! visible. Going on from an older one writes those rows again. That is right by itself only where
//! every sink can bear it; elsewhere a person has to choose.

use thalweg_core::snapshot::{SinkGuarantee, SinkState};

/// In what state a snapshot is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CandidateState {
    /// Every byte is as it was written.
    Usable,
    /// Something of it is damaged or missing.
    Damaged,
    /// A newer engine wrote it.
    Newer,
}

/// A snapshot that counted: its manifest stands under its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its number.
    pub number: u64,
    /// In what state it is.
    pub state: CandidateState,
}

/// What the user asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// To resume from where the job was, or to begin where there is nothing.
    Newest,
    /// To resume from this snapshot, whatever was written since.
    Number(u64),
    /// To start from scratch.
    FromScratch,
}

/// Whether rows may be written again that an unreadable snapshot may have committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FallBack {
    /// Every sink bears it (its rows have keys, or it promises no more than at least once), or the
    /// user said so.
    Allowed,
    /// Rows could be there twice.
    AskFirst,
}

impl FallBack {
    /// What these sinks allow.
    pub fn of(sinks: impl IntoIterator<Item = SinkGuarantee>) -> FallBack {
        let bears = |guarantee| guarantee != SinkGuarantee::Transactional;
        if sinks.into_iter().all(bears) { FallBack::Allowed } else { FallBack::AskFirst }
    }
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Recovery {
    /// Start from scratch.
    Begin,
    /// Resume from this snapshot; these newer ones are passed over.
    Resume {
        /// Its number.
        from: u64,
        /// Newer ones, newest first.
        passed_over: Vec<u64>,
    },
    /// A person has to choose: these can't be read, and going on would write rows again. `from`
    /// could be resumed from; without one, the job could only start from scratch.
    Ask {
        /// The newest that can be read.
        from: Option<u64>,
        /// Newer ones, newest first.
        passed_over: Vec<u64>,
    },
    /// There is no such snapshot.
    NoSuch {
        /// What was asked for.
        number: u64,
    },
    /// The snapshot that was asked for cannot be read.
    CannotRead {
        /// What was asked for.
        number: u64,
        /// Why.
        state: CandidateState,
    },
}

/// Which snapshot a job resumes from. Candidates come newest first; those behind the first usable
/// one need not be there where the newest is wanted.
pub fn recovery(wish: Wish, candidates: &[Candidate], fall_back: FallBack) -> Recovery {
    match wish {
        Wish::FromScratch => Recovery::Begin,
        Wish::Number(number) => match candidates.iter().find(|own| own.number == number) {
            None => Recovery::NoSuch { number },
            Some(Candidate { state: CandidateState::Usable, .. }) => {
                Recovery::Resume { from: number, passed_over: Vec::new() }
            }
            Some(&Candidate { state, .. }) => Recovery::CannotRead { number, state },
        },
        Wish::Newest => newest(candidates, fall_back),
    }
}

fn newest(candidates: &[Candidate], fall_back: FallBack) -> Recovery {
    let is_usable = |own: &&Candidate| own.state == CandidateState::Usable;
    let from = candidates.iter().find(is_usable).map(|own| own.number);
    let unreadable = candidates.iter().take_while(|own| !is_usable(own));
    let passed_over: Vec<u64> = unreadable.map(|own| own.number).collect();
    match from {
        None if passed_over.is_empty() => Recovery::Begin,
        Some(from) if passed_over.is_empty() || fall_back == FallBack::Allowed => {
            Recovery::Resume { from, passed_over }
        }
        // Starting from scratch unasked would throw everything away: that is never right.
        from => Recovery::Ask { from, passed_over },
    }
}

/// What becomes of a sink when a job resumes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transaction {
    /// Commit this (again), and do away with everything else that was not committed.
    Commit {
        /// The sink's stage.
        stage: String,
        /// What its snapshot names.
        handle: String,
    },
    /// Do away with everything that was not committed.
    Abort {
        /// The sink's stage.
        stage: String,
    },
    /// The job has no such sink any more: what this names would never become visible.
    Lost {
        /// The stage that is gone.
        stage: String,
        /// What its snapshot names.
        handle: String,
    },
}

/// What becomes of each sink of the job (`present`, by stage), and of those that a snapshot knows
/// besides.
pub fn transactions<'a>(
    snapshot: impl IntoIterator<Item = (&'a str, &'a SinkState)>,
    present: &[&str],
) -> Vec<Transaction> {
    let known: Vec<(&str, &str)> = snapshot
        .into_iter()
        .filter_map(|(stage, sink)| Some((stage, sink.handle.as_deref()?)))
        .collect();
    let handle_of = |wanted: &str| known.iter().find(|(stage, _)| *stage == wanted);
    let own = present.iter().map(|&stage| match handle_of(stage) {
        Some((_, handle)) => {
            Transaction::Commit { stage: stage.to_owned(), handle: (*handle).to_owned() }
        }
        None => Transaction::Abort { stage: stage.to_owned() },
    });
    let gone = known.iter().filter(|(stage, _)| !present.contains(stage));
    let lost = gone.map(|(stage, handle)| Transaction::Lost {
        stage: (*stage).to_owned(),
        handle: (*handle).to_owned(),
    });
    own.chain(lost).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use CandidateState::{Damaged, Newer, Usable};
    use FallBack::{Allowed, AskFirst};

    fn candidates(states: &[(u64, CandidateState)]) -> Vec<Candidate> {
        states.iter().map(|&(number, state)| Candidate { number, state }).collect()
    }

    #[test]
    fn which_snapshot() {
        let resume =
            |from, passed_over: &[u64]| Recovery::Resume { from, passed_over: passed_over.into() };
        let ask =
            |from, passed_over: &[u64]| Recovery::Ask { from, passed_over: passed_over.into() };
        let three = [(3, Damaged), (2, Usable), (1, Usable)];
        for (name, wish, states, fall_back, expected) in [
            ("nothing is there", Wish::Newest, &[][..], AskFirst, Recovery::Begin),
            ("the newest", Wish::Newest, &[(2, Usable), (1, Usable)], AskFirst, resume(2, &[])),
            ("rows may come again", Wish::Newest, &three, Allowed, resume(2, &[3])),
            ("rows may not come again", Wish::Newest, &three, AskFirst, ask(Some(2), &[3])),
            (
                "older damage is no matter",
                Wish::Newest,
                &[(2, Usable), (1, Damaged)],
                AskFirst,
                resume(2, &[]),
            ),
            (
                "nothing is left",
                Wish::Newest,
                &[(2, Newer), (1, Damaged)],
                Allowed,
                ask(None, &[2, 1]),
            ),
            ("a number", Wish::Number(1), &three, AskFirst, resume(1, &[])),
            ("no such number", Wish::Number(7), &three, Allowed, Recovery::NoSuch { number: 7 }),
            (
                "a damaged number",
                Wish::Number(3),
                &three,
                Allowed,
                Recovery::CannotRead { number: 3, state: Damaged },
            ),
            ("from scratch", Wish::FromScratch, &three, AskFirst, Recovery::Begin),
        ] {
            assert_eq!(recovery(wish, &candidates(states), fall_back), expected, "{name}");
        }
    }

    #[test]
    fn a_transactional_sink_asks_before_rows_come_again() {
        use SinkGuarantee::{AtLeastOnce, Idempotent, Transactional};
        assert_eq!(FallBack::of([AtLeastOnce, Idempotent]), Allowed);
        assert_eq!(FallBack::of([Idempotent, Transactional]), AskFirst);
    }

    #[test]
    fn handles_are_committed_and_none_is_forgotten() {
        let sink = |handle: Option<&str>| SinkState {
            guarantee: SinkGuarantee::Transactional,
            handle: handle.map(str::to_owned),
            has_ended: false,
        };
        let (with, without, gone) = (sink(Some("h1")), sink(None), sink(Some("h3")));
        let found = transactions([("a", &with), ("b", &without), ("c", &gone)], &["a", "b", "new"]);
        let abort = |stage: &str| Transaction::Abort { stage: stage.to_owned() };
        let expected = [
            Transaction::Commit { stage: "a".to_owned(), handle: "h1".to_owned() },
            abort("b"),
            abort("new"),
            Transaction::Lost { stage: "c".to_owned(), handle: "h3".to_owned() },
        ];
        assert_eq!(found, expected);
    }
}
