//! The life of a job as a pure function: from what a person wants and what is there to what the job
//! is called and what is done next.
//!
//! # Invariants
//! - [`decide`] remembers nothing: called again with the same facts it answers the same. So a
//!   process that dies between two steps is followed by one that continues where that stood.
//! - A job has at most one run, and a run belongs to one *generation*: what is wanted of a later
//!   generation begins when the run of the earlier one has ended.
//! - An outcome counts for the generation that it was noted for; a later request starts again.
//! - Whatever is wanted, a run ends: by itself, by a snapshot, or cut off when its deadline is
//!   over.
//!
//! | state | is |
//! |---|---|
//! | `draft` | was never asked to run |
//! | `planning` | waits for its turn, or its statements are being planned |
//! | `undecided` | would lose state: a person has to say so |
//! | `starting` | restores, opens inputs and outputs, until each source was asked once |
//! | `running`, `paused` | works; its sources are not asked |
//! | `stopping` | takes its last snapshot |
//! | `restarting` | has failed and waits for the next try |
//! | `stopped`, `finished`, `failed` | has ended: by a person, with its inputs, by an error |

use serde::{Deserialize, Serialize};

/// What a person wants of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Desired {
    /// It runs.
    Running,
    /// Its sources are not asked.
    Paused,
    /// It does not run.
    #[default]
    Stopped,
}

/// How a job is stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum StopHow {
    /// Its windows close as if the inputs had ended, and a snapshot is kept.
    Drain,
    /// A last snapshot is kept.
    #[default]
    Snapshot,
    /// At once. The snapshot before stays.
    Cancel,
}

/// How a run has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum EndKind {
    /// By a person.
    Stopped,
    /// All inputs have ended and all is written.
    Finished,
    /// By an error.
    Failed,
    /// It would lose state, and has not begun.
    Undecided,
}

/// What a job is called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Saved, never asked to run.
    #[default]
    Draft,
    /// Waits for its turn or is planned.
    Planning,
    /// A person has to decide.
    Undecided,
    /// Restores and opens.
    Starting,
    /// Works.
    Running,
    /// Its sources are not asked.
    Paused,
    /// Takes its last snapshot.
    Stopping,
    /// Waits for the next try.
    Restarting,
    /// Ended by a person.
    Stopped,
    /// Ended with its inputs.
    Finished,
    /// Ended by an error.
    Failed,
}

impl State {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            State::Draft => "draft",
            State::Planning => "planning",
            State::Undecided => "undecided",
            State::Starting => "starting",
            State::Running => "running",
            State::Paused => "paused",
            State::Stopping => "stopping",
            State::Restarting => "restarting",
            State::Stopped => "stopped",
            State::Finished => "finished",
            State::Failed => "failed",
        }
    }

    /// True on the way from one lasting state to another.
    #[cfg(feature = "otlp")]
    pub fn is_on_the_way(self) -> bool {
        use State::{Planning, Restarting, Starting, Stopping};
        matches!(self, Planning | Starting | Stopping | Restarting)
    }

    /// True where nothing happens until a person asks for it.
    pub fn is_at_rest(self) -> bool {
        use State::{Draft, Failed, Finished, Stopped, Undecided};
        matches!(self, Draft | Stopped | Finished | Failed | Undecided)
    }
}

/// What is wanted, and what came of it so far. Durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wish {
    /// What is wanted.
    pub desired: Desired,
    /// How it is to stop, where it is to.
    pub how: StopHow,
    /// Raised by each request to start; 0 for a job that was never asked to run.
    pub generation: u64,
    /// How the run of this generation has ended.
    pub outcome: Option<EndKind>,
    /// The run of an earlier generation is cut off: what it would keep is not wanted.
    pub cuts_replaced: bool,
}

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Its statements are planned.
    Planning,
    /// It restores and opens.
    Starting,
    /// Each source was asked.
    Running,
    /// It has failed and waits for another try.
    Waiting,
    /// It is over.
    Ended(EndKind),
}

/// What a run was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Asked {
    /// Nothing.
    Nothing,
    /// To end gracefully.
    Stop,
    /// To end at once.
    Cancel,
}

/// A run as it is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunView {
    /// The generation that it belongs to.
    pub generation: u64,
    /// How far it is.
    pub phase: Phase,
    /// What it was asked for.
    pub asked: Asked,
    /// Its sources are not asked.
    pub is_held: bool,
    /// It was asked to stop, and its deadline is over.
    pub is_overdue: bool,
}

/// What holds for all jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Around {
    /// Another job may begin now.
    pub may_begin: bool,
    /// The server ends.
    pub is_closing: bool,
}

/// What is to be done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Action {
    /// Nothing.
    Nothing,
    /// Begin a run.
    Begin,
    /// Ask the run to end like this.
    Stop(StopHow),
    /// End the run at once.
    Cancel,
    /// Sources are not to be asked.
    Hold,
    /// Sources are to be asked again.
    Release,
    /// The run is over: note how, durably, and forget the run.
    Note(EndKind),
    /// The run is over and counts for nothing that is wanted: forget it.
    Forget,
}

/// What the job is called, and what is to be done next.
pub fn decide(wish: Wish, run: Option<RunView>, around: Around) -> (State, Action) {
    match run {
        Some(run) => with_run(wish, run, around),
        None => without_run(wish, around),
    }
}

fn without_run(wish: Wish, around: Around) -> (State, Action) {
    match (wish.outcome, wish.desired) {
        (Some(EndKind::Stopped), _) => (State::Stopped, Action::Nothing),
        (Some(EndKind::Finished), _) => (State::Finished, Action::Nothing),
        (Some(EndKind::Failed), _) => (State::Failed, Action::Nothing),
        (Some(EndKind::Undecided), Desired::Stopped) => (State::Stopped, Action::Nothing),
        (Some(EndKind::Undecided), _) => (State::Undecided, Action::Nothing),
        (None, Desired::Stopped) if wish.generation == 0 => (State::Draft, Action::Nothing),
        (None, Desired::Stopped) if wish.how != StopHow::Drain => (State::Stopped, Action::Nothing),
        // It begins when a person resumes it.
        (None, Desired::Paused) => (State::Paused, Action::Nothing),
        // What was to drain when a process died begins once more, to do so.
        (None, Desired::Running | Desired::Stopped) if around.may_begin && !around.is_closing => {
            (State::Planning, Action::Begin)
        }
        (None, Desired::Running | Desired::Stopped) => (State::Planning, Action::Nothing),
    }
}

fn with_run(wish: Wish, run: RunView, around: Around) -> (State, Action) {
    if let Phase::Ended(end) = run.phase {
        return after_end(wish, run, end, around);
    }
    let is_replaced = run.generation < wish.generation;
    let is_to_end = wish.desired == Desired::Stopped || is_replaced || around.is_closing;
    // What was asked to stop ends, even if a person has changed their mind.
    if is_to_end || run.asked > Asked::Nothing {
        let is_cut = (wish.how == StopHow::Cancel && wish.desired == Desired::Stopped)
            || (is_replaced && wish.cuts_replaced);
        let action = match run.asked {
            Asked::Cancel => Action::Nothing,
            _ if is_cut || run.is_overdue => Action::Cancel,
            Asked::Stop => Action::Nothing,
            Asked::Nothing if wish.desired == Desired::Stopped => Action::Stop(wish.how),
            Asked::Nothing => Action::Stop(StopHow::Snapshot),
        };
        return (State::Stopping, action);
    }
    match (run.phase, wish.desired, run.is_held) {
        (Phase::Planning, ..) => (State::Planning, Action::Nothing),
        (Phase::Starting, ..) => (State::Starting, Action::Nothing),
        (Phase::Waiting, ..) => (State::Restarting, Action::Nothing),
        (Phase::Running, Desired::Paused, false) => (State::Paused, Action::Hold),
        (Phase::Running, Desired::Paused, true) => (State::Paused, Action::Nothing),
        (Phase::Running, _, true) => (State::Running, Action::Release),
        (Phase::Running, _, false) => (State::Running, Action::Nothing),
        (Phase::Ended(_), ..) => unreachable!("was looked at first"),
    }
}

fn after_end(wish: Wish, run: RunView, end: EndKind, around: Around) -> (State, Action) {
    let is_replaced = run.generation < wish.generation;
    let is_left_undone = wish.desired != Desired::Stopped || wish.how == StopHow::Drain;
    let is_for_us = around.is_closing && is_left_undone;
    // What ended for a restart, or with the server, is to continue.
    if is_replaced || (is_for_us && end == EndKind::Stopped) {
        return (State::Stopping, Action::Forget);
    }
    (State::Stopping, Action::Note(end))
}

#[cfg(test)]
mod tests {
    //! A model of the server with one job: what is durable, and what a process remembers. Schedules
    //! mix requests, steps of the supervisor, steps of the run, and deaths of the process.

    use super::*;
    use thalweg_core::shim::SplitMix64;

    const OPEN: Around = Around { may_begin: true, is_closing: false };

    /// What survives a death, and what does not.
    struct Model {
        wish: Wish,
        run: Option<RunView>,
        closing: bool,
        /// Runs that were begun and have not ended. More than one would write the same output.
        alive: usize,
        random: SplitMix64,
    }

    impl Model {
        fn new(seed: u64) -> Model {
            let wish = Wish {
                desired: Desired::Stopped,
                how: StopHow::Snapshot,
                generation: 0,
                outcome: None,
                cuts_replaced: false,
            };
            Model { wish, run: None, closing: false, alive: 0, random: SplitMix64::new(seed) }
        }

        fn state(&self) -> State {
            decide(self.wish, self.run, Around { is_closing: self.closing, ..OPEN }).0
        }

        fn ask_to_run(&mut self, cuts: bool) {
            self.wish.desired = Desired::Running;
            self.wish.how = StopHow::Snapshot;
            self.wish.generation += 1;
            self.wish.outcome = None;
            self.wish.cuts_replaced = cuts;
        }

        fn request(&mut self) {
            match self.random.below(7) {
                0 => self.ask_to_run(false),
                1 => (self.wish.desired, self.wish.how) = (Desired::Stopped, StopHow::Snapshot),
                2 => (self.wish.desired, self.wish.how) = (Desired::Stopped, StopHow::Cancel),
                3 if self.wish.desired == Desired::Running && self.wish.outcome.is_none() => {
                    self.wish.desired = Desired::Paused;
                }
                4 if self.wish.desired == Desired::Paused => self.wish.desired = Desired::Running,
                5 if self.wish.generation > 0 => self.ask_to_run(true),
                6 if self.wish.desired != Desired::Stopped => {
                    (self.wish.desired, self.wish.how) = (Desired::Stopped, StopHow::Drain);
                }
                _ => {}
            }
        }

        /// One look of the supervisor. Whether something was done.
        fn look(&mut self, disk_works: bool) -> bool {
            let around = Around { is_closing: self.closing, ..OPEN };
            let (_, action) = decide(self.wish, self.run, around);
            match action {
                Action::Nothing => return false,
                Action::Begin if disk_works => {
                    assert_eq!(self.alive, 0, "one run at a time");
                    let drains = self.wish.how == StopHow::Drain && self.wish.generation > 0;
                    let is_wanted = self.wish.desired == Desired::Running || drains;
                    assert!(is_wanted, "nobody else is begun");
                    assert!(self.wish.outcome.is_none(), "what has ended is not begun again");
                    self.alive = 1;
                    self.run = Some(RunView {
                        generation: self.wish.generation,
                        phase: Phase::Planning,
                        asked: Asked::Nothing,
                        is_held: false,
                        is_overdue: false,
                    });
                }
                Action::Note(end) if disk_works => {
                    self.wish.outcome = Some(end);
                    self.run = None;
                }
                Action::Forget if disk_works => self.run = None,
                Action::Begin | Action::Note(_) | Action::Forget => return false,
                Action::Stop(how) => {
                    let run = self.run.as_mut().expect("a run is stopped");
                    assert_eq!(run.asked, Asked::Nothing, "asked once");
                    run.asked = if how == StopHow::Cancel { Asked::Cancel } else { Asked::Stop };
                }
                Action::Cancel => {
                    let run = self.run.as_mut().expect("a run is cut off");
                    assert!(run.asked < Asked::Cancel, "cut off once");
                    run.asked = Asked::Cancel;
                }
                Action::Hold => self.run.as_mut().expect("a run is held").is_held = true,
                Action::Release => self.run.as_mut().expect("a run is released").is_held = false,
            }
            true
        }

        /// The run continues, fails, or ends as it was asked to.
        fn step(&mut self) {
            let Some(run) = &mut self.run else { return };
            let chance = self.random.below(8);
            run.phase = match (run.phase, run.asked, chance) {
                (Phase::Ended(end), ..) => Phase::Ended(end),
                (_, Asked::Cancel, _) | (_, Asked::Stop, 0..4) => Phase::Ended(EndKind::Stopped),
                (_, _, 0) => Phase::Ended(EndKind::Failed),
                (Phase::Running, _, 1) => Phase::Ended(EndKind::Finished),
                (Phase::Planning, _, 1) => Phase::Ended(EndKind::Undecided),
                (Phase::Planning | Phase::Waiting, ..) => Phase::Starting,
                (Phase::Starting, ..) => Phase::Running,
                (Phase::Running, _, 2) => Phase::Waiting,
                (Phase::Running, ..) => Phase::Running,
            };
            run.is_overdue = run.asked == Asked::Stop && chance > 4;
            if matches!(run.phase, Phase::Ended(_)) {
                self.alive = 0;
            }
        }

        /// The process dies, and another one begins.
        fn die(&mut self) {
            (self.run, self.alive, self.closing) = (None, 0, false);
        }

        /// With a disk that works and runs that continue, every wish comes true. What a run does is
        /// the best case here.
        fn settle(&mut self) -> State {
            self.closing = false;
            for _ in 0..20 {
                while self.look(true) {}
                if let Some(run) = &mut self.run {
                    run.phase = match (run.phase, run.asked) {
                        (Phase::Ended(end), _) => Phase::Ended(end),
                        (phase, Asked::Nothing) => match phase {
                            Phase::Planning | Phase::Waiting => Phase::Starting,
                            _ => Phase::Running,
                        },
                        _ => Phase::Ended(EndKind::Stopped),
                    };
                    if matches!(run.phase, Phase::Ended(_)) {
                        self.alive = 0;
                    }
                }
            }
            self.state()
        }
    }

    fn check_end(model: &mut Model, seed: u64) {
        let state = model.settle();
        let is_right = match (model.wish.desired, model.wish.outcome) {
            (Desired::Stopped, _) => state.is_at_rest(),
            (_, Some(_)) => state.is_at_rest(),
            (Desired::Running, None) => state == State::Running,
            (Desired::Paused, None) => state == State::Paused,
        };
        assert!(is_right, "seed {seed}: {:?} came to {state:?}", model.wish);
        if state.is_at_rest() {
            assert!(model.run.is_none(), "seed {seed}: at rest with a run");
        }
    }

    fn schedules(seeds: std::ops::Range<u64>) {
        for seed in seeds {
            let mut model = Model::new(seed);
            for _ in 0..40 {
                match model.random.below(12) {
                    0 | 1 => model.request(),
                    2 => model.die(),
                    3 if model.random.below(4) == 0 => model.closing = true,
                    4..8 => model.step(),
                    other => drop(model.look(other != 8)),
                }
                // A person can always stop a job, whatever it does.
                let stopped =
                    Wish { desired: Desired::Stopped, how: StopHow::Cancel, ..model.wish };
                let (state, action) = decide(stopped, model.run, OPEN);
                let ends = model.run.is_none()
                    || matches!(
                        action,
                        Action::Stop(_) | Action::Cancel | Action::Note(_) | Action::Forget
                    )
                    || model.run.is_some_and(|run| run.asked == Asked::Cancel);
                assert!(ends, "seed {seed}: {state:?} does not end");
            }
            check_end(&mut model, seed);
        }
    }

    #[test]
    fn every_wish_comes_true_whenever_the_process_dies() {
        schedules(0..100_000);
    }

    #[test]
    fn what_ended_with_the_server_continues_with_the_next() {
        let mut model = Model::new(1);
        model.ask_to_run(false);
        assert_eq!(model.settle(), State::Running);
        model.closing = true;
        while model.look(true) {}
        assert_eq!(model.state(), State::Stopping);
        if let Some(run) = &mut model.run {
            run.phase = Phase::Ended(EndKind::Stopped);
            model.alive = 0;
        }
        while model.look(true) {}
        assert!(model.run.is_none() && model.wish.outcome.is_none());
        model.die();
        assert_eq!(model.settle(), State::Running);
    }

    /// A drain that a death cut short is done by the next process; one that has ended is not done
    /// again.
    #[test]
    fn what_was_to_drain_drains() {
        let mut model = Model::new(1);
        model.ask_to_run(false);
        assert_eq!(model.settle(), State::Running);
        (model.wish.desired, model.wish.how) = (Desired::Stopped, StopHow::Drain);
        while model.look(true) {}
        model.die();
        assert_eq!(model.state(), State::Planning);
        assert!(model.look(true) && model.run.is_some(), "it begins");
        assert!(model.look(true) && model.run.is_some_and(|run| run.asked == Asked::Stop));
        assert!(model.settle().is_at_rest());
        model.die();
        assert!(!model.look(true), "nothing is left to do");
        let draft = Model::new(1);
        let wish = Wish { how: StopHow::Drain, ..draft.wish };
        assert_eq!(decide(wish, None, OPEN), (State::Draft, Action::Nothing));
    }

    #[test]
    fn a_failure_stays_until_a_person_starts_the_job() {
        let mut model = Model::new(1);
        model.ask_to_run(false);
        assert_eq!(model.settle(), State::Running);
        if let Some(run) = &mut model.run {
            run.phase = Phase::Ended(EndKind::Failed);
            model.alive = 0;
        }
        assert_eq!(model.settle(), State::Failed);
        model.die();
        assert_eq!(model.settle(), State::Failed);
        model.ask_to_run(false);
        assert_eq!(model.settle(), State::Running);
    }
}
