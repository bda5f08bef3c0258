//! Random sequences of everything that may happen to a job: starts from scratch, resumes, ways
//! back, runs without snapshots, each killed, stopped or left to its end; backups of the state with
//! and without the outputs; inputs that grow or are replaced; upgrades.
//!
//! # The model
//! The job copies a file of numbers into a folder and into one file. Whatever happens,
//! - no reader of an output sees a row twice, nor a row that its input never had;
//! - a run that ends with success leaves exactly the rows of the input, in both outputs; where it
//!   resumes a job that had ended, those that the input had then, and never rows of both;
//! - a run that is refused has changed no byte;
//! - a job that was only killed, stopped and refused since its last start can be resumed;
//! - `--overwrite` always leads out.
//!
//! A kill is an error that no sink hears of. It may come in the middle of a start (at any call of a
//! sink), behind a manifest and before its commit, and anywhere else.
//!
//! `THALWEG_START_SEQUENCES=N` runs N sequences (100), `THALWEG_START_FIRST_SEED` says where
//! to begin.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use thalweg::jobs::{ResumeFrom, SnapshotReference};
use thalweg::{Error, Result, Sink};
use thalweg_core::connector::{DiscardSink, SinkLayer};
use thalweg_core::shim::{SplitMix64, mix64};
use thalweg_core::snapshot::OutputMark;

use super::jobs::{Workspace, contents, copy_folder};
use super::killed::{AtHold, KILLED, Kill, Run, await_snapshot, run};

/// What happens in a sequence, before the job is brought to its end.
const STEPS: u64 = 9;
const OUTPUTS: [&str; 4] = ["many", "one.csv", "one.csv.partial", ".one.csv.lineage"];

#[test]
fn no_sequence_of_starts_loses_or_doubles_a_row() {
    let setting = |name: &str, default: u64| {
        std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    let first = setting("THALWEG_START_FIRST_SEED", 1);
    let count = setting("THALWEG_START_SEQUENCES", 100);
    let mut tally = Tally::default();
    for seed in first..first + count {
        let mut world = World::new(seed);
        for _ in 0..STEPS {
            world.step();
        }
        world.bring_to_its_end();
        tally.add(&world.tally);
    }
    println!("{count} sequences: {tally:?}");
    let all = [tally.ended, tally.killed, tally.stopped, tally.refused];
    assert!(all.iter().all(|&often| often as u64 > count / 10), "{tally:?}");
}

#[derive(Debug, Default)]
struct Tally {
    ended: usize,
    killed: usize,
    stopped: usize,
    refused: usize,
}

impl Tally {
    fn add(&mut self, other: &Tally) {
        self.ended += other.ended;
        self.killed += other.killed;
        self.stopped += other.stopped;
        self.refused += other.refused;
    }
}

/// How a run ended.
#[derive(Debug)]
enum Outcome {
    Ended,
    Killed,
    Stopped,
    Refused(Error),
}

/// What is asked of a run.
#[derive(Clone, Debug)]
struct Ask {
    resume: ResumeFrom,
    overwrite: bool,
    has_snapshots: bool,
}

/// A folder with a job, and what is known about it.
struct World {
    workspace: Workspace,
    random: SplitMix64,
    seed: u64,
    /// The rows of the input now, and all that it ever had.
    rows: Vec<String>,
    ever: BTreeSet<String>,
    /// All that the input has been, sorted.
    inputs: BTreeSet<Vec<String>>,
    /// How often the input was replaced.
    version: u64,
    is_upgraded: bool,
    /// Nothing has happened since the last start that a resume could not cope with.
    can_resume: bool,
    /// What there was, and whether it could be resumed.
    backups: Vec<(PathBuf, bool, bool)>,
    history: Vec<String>,
    tally: Tally,
}

impl World {
    fn new(seed: u64) -> World {
        let mut world = World {
            workspace: Workspace::new(&format!("sequences-{seed}")),
            random: SplitMix64::new(mix64(seed)),
            seed,
            rows: Vec::new(),
            ever: BTreeSet::new(),
            inputs: BTreeSet::new(),
            version: 0,
            is_upgraded: false,
            can_resume: false,
            backups: Vec::new(),
            history: Vec::new(),
            tally: Tally::default(),
        };
        world.replace_input();
        world
    }

    fn draw(&mut self, bound: u64) -> u64 {
        self.random.below(bound)
    }

    fn step(&mut self) {
        match self.draw(16) {
            0..=2 => self.start(ResumeFrom::Nothing),
            3..=7 => self.start(ResumeFrom::Newest),
            8..=9 => self.go_back(),
            10 => self.run_without_snapshots(),
            11 => self.back_up(),
            12 => self.bring_back(),
            13 => self.grow_input(),
            14 if self.draw(2) == 0 => self.replace_input(),
            14 => {}
            _ => self.is_upgraded = !self.is_upgraded,
        }
    }

    fn start(&mut self, resume: ResumeFrom) {
        let overwrite = self.draw(4) == 0;
        let is_resume = resume == ResumeFrom::Newest;
        let could = self.can_resume;
        let outcome = self.attempt(&Ask { resume, overwrite, has_snapshots: true });
        if let Outcome::Refused(error) = &outcome {
            self.can_resume &= !is_behind_end(error);
            let could = could && self.can_resume && !self.has_not_begun(error);
            assert!(!(is_resume && could), "{}: a resume is refused: {error:?}", self.context());
            return;
        }
        self.can_resume = true;
    }

    fn go_back(&mut self) {
        let numbers = self.workspace.snapshots();
        if numbers.is_empty() {
            return;
        }
        let number = numbers[self.draw(numbers.len() as u64) as usize];
        self.start(ResumeFrom::Snapshot(SnapshotReference::Number(number)));
    }

    fn run_without_snapshots(&mut self) {
        let overwrite = self.draw(3) == 0;
        let outcome =
            self.attempt(&Ask { resume: ResumeFrom::Nothing, overwrite, has_snapshots: false });
        if !matches!(outcome, Outcome::Refused(_)) {
            self.can_resume = false;
        }
    }

    /// Runs the job once, and looks at everything afterwards.
    fn attempt(&mut self, ask: &Ask) -> Outcome {
        let before = contents(&self.workspace.folder);
        let outcome = self.run(ask);
        self.history.push(format!("{ask:?}: {outcome:?}"));
        match &outcome {
            Outcome::Ended => self.tally.ended += 1,
            Outcome::Killed => self.tally.killed += 1,
            Outcome::Stopped => self.tally.stopped += 1,
            Outcome::Refused(error) => {
                self.tally.refused += 1;
                let after = contents(&self.workspace.folder);
                let changed = changed(&before, &after);
                assert!(
                    is_behind_end(error) || changed.is_empty(),
                    "{}: {changed:?}",
                    self.context()
                );
            }
        }
        if matches!(outcome, Outcome::Ended) {
            self.check_end(ask.resume != ResumeFrom::Nothing);
        }
        self.check();
        outcome
    }

    fn run(&mut self, ask: &Ask) -> Outcome {
        let is_frequent = self.draw(3) > 0;
        let interval = if is_frequent { "1 ms" } else { "0 s" };
        let mut settings =
            vec![("pipeline.bundle-rows-max", ["3", "64"][self.draw(2) as usize].to_owned())];
        if ask.has_snapshots {
            settings.push(("execution.checkpointing.dir", "state".to_owned()));
            settings.push(("execution.checkpointing.interval", interval.to_owned()));
        }
        let end = self.draw(4);
        let rows = self.rows.len() as u64;
        let holds: Vec<Vec<u64>> =
            (0..1 + self.draw(2)).map(|_| vec![self.draw(rows / 2)]).collect();
        let kill = Kill {
            holds,
            rows_behind: self.draw(6),
            delay: Duration::from_micros(self.draw(1_500)),
            is_spared: end < 2,
        };
        let fate = Fate {
            is_dead: Arc::default(),
            calls: Arc::new(AtomicI64::new(if end == 3 && self.draw(3) == 0 {
                self.draw(12) as i64
            } else {
                i64::MAX
            })),
        };
        let (stops, loses, waits) =
            (end == 1, end == 2 && self.draw(2) == 0, is_frequent && ask.has_snapshots);
        let at_hold: AtHold = {
            let fate = fate.clone();
            Box::new(move |_, control| {
                if loses {
                    fate.is_dead.store(true, Ordering::SeqCst);
                }
                if waits {
                    await_snapshot(control);
                }
                if stops {
                    control.stop();
                }
            })
        };
        let own = Run {
            folder: self.workspace.folder.clone(),
            settings,
            workers: 1 + self.draw(2) as usize,
            resume: ask.resume.clone(),
            overwrite: ask.overwrite,
            kill: (end > 0).then_some(kill),
        };
        let script = self.script();
        let mut wrap = |inner| -> Box<dyn Sink> { Box::new(Mortal { inner, fate: fate.clone() }) };
        match run(&script, own, &mut wrap, at_hold) {
            Ok(true) if fate.is_dead.load(Ordering::SeqCst) => Outcome::Killed,
            Ok(true) if stops => Outcome::Stopped,
            Ok(true) => Outcome::Ended,
            Ok(false) => Outcome::Killed,
            Err(error) => Outcome::Refused(error),
        }
    }

    fn script(&self) -> String {
        let predicate = if self.is_upgraded { " WHERE n > -1" } else { "" };
        let sink = |name: &str, path: &str| {
            format!(
                "CREATE TABLE {name} (v BIGINT, n BIGINT)
                 WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = '{path}');"
            )
        };
        format!(
            "CREATE TABLE numbers (v BIGINT, n BIGINT)
               WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'in.csv');
             {} {}
             EXECUTE STATEMENT SET BEGIN
               INSERT INTO one SELECT v, n FROM numbers{predicate};
               INSERT INTO many SELECT v, n FROM numbers{predicate};
             END;",
            sink("one", "one.csv"),
            sink("many", "many/"),
        )
    }

    /// What readers of the outputs see.
    fn check(&self) {
        let many = self.workspace.visible("many");
        let distinct: BTreeSet<&String> = many.iter().collect();
        assert_eq!(distinct.len(), many.len(), "{}: rows are there twice", self.context());
        let unknown: Vec<&String> = many.iter().filter(|row| !self.ever.contains(*row)).collect();
        assert!(unknown.is_empty(), "{}: no such rows: {unknown:?}", self.context());
    }

    /// What the outputs hold of a run that has ended.
    fn check_end(&self, is_resumed: bool) {
        let many = sorted(&self.workspace.visible("many"));
        let one = fs::read_to_string(self.workspace.path("one.csv")).expect("it is complete");
        let one = sorted(&one.lines().map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(many, one, "{}: two outputs of the same rows", self.context());
        let was_input = is_resumed && self.inputs.contains(&many);
        assert!(
            was_input || many == sorted(&self.rows),
            "{}: {many:?} of {:?}",
            self.context(),
            self.rows
        );
    }

    /// Resumes the job; where that is refused it starts from scratch.
    fn bring_to_its_end(&mut self) {
        for resume in [ResumeFrom::Newest, ResumeFrom::Nothing] {
            for _ in 0..20 {
                let overwrite = resume == ResumeFrom::Nothing;
                match self.attempt(&Ask { resume: resume.clone(), overwrite, has_snapshots: true })
                {
                    Outcome::Ended => return,
                    Outcome::Refused(error) => {
                        let is_excused = is_behind_end(&error) || self.has_not_begun(&error);
                        let is_allowed = !overwrite && (!self.can_resume || is_excused);
                        assert!(is_allowed, "{}: {error:?}", self.context());
                        break;
                    }
                    Outcome::Killed | Outcome::Stopped if overwrite => break,
                    Outcome::Killed | Outcome::Stopped => {}
                }
            }
        }
        // It was killed or stopped behind its start from scratch.
        self.can_resume = true;
        self.bring_to_its_end();
    }

    /// A start with `--overwrite` was killed before it had replaced an output: there is nothing to
    /// resume, and the output is still that of the run before, so the user has to say it again.
    fn has_not_begun(&self, error: &Error) -> bool {
        error.message().contains("would start from scratch")
            && self.workspace.snapshots().is_empty()
    }

    fn back_up(&mut self) {
        let with_outputs = self.draw(2) == 0;
        let to = self.workspace.path(&format!("../backup-{}-{}", self.seed, self.backups.len()));
        let _ = fs::remove_dir_all(&to);
        fs::create_dir_all(&to).expect("a folder");
        let names = if with_outputs { &OUTPUTS[..] } else { &[] };
        for name in names.iter().chain(&["state"]) {
            copy(&self.workspace.path(name), &to.join(name));
        }
        self.history.push(format!("backup, with outputs: {with_outputs}"));
        self.backups.push((to, with_outputs, self.can_resume));
    }

    fn bring_back(&mut self) {
        if self.backups.is_empty() {
            return;
        }
        let choice = self.draw(self.backups.len() as u64) as usize;
        let (from, with_outputs, could_resume) = self.backups[choice].clone();
        let names = if with_outputs { &OUTPUTS[..] } else { &[] };
        for name in names.iter().chain(&["state"]) {
            remove(&self.workspace.path(name));
            copy(&from.join(name), &self.workspace.path(name));
        }
        self.history.push(format!("backup {choice} is brought back, with outputs: {with_outputs}"));
        // State alone may be behind its outputs.
        self.can_resume = with_outputs && could_resume;
    }

    fn grow_input(&mut self) {
        let from = self.rows.len() as u64;
        let more = 1 + self.draw(10);
        self.add_rows(from..from + more);
        // Where the input had ended, a resume says that the new rows are not read.
        self.can_resume = false;
        self.backups.iter_mut().for_each(|backup| backup.2 = false);
    }

    fn replace_input(&mut self) {
        self.version += 1;
        self.rows.clear();
        let rows = 20 + self.draw(60);
        self.add_rows(0..rows);
        self.can_resume = false;
        self.backups.iter_mut().for_each(|backup| backup.2 = false);
    }

    fn add_rows(&mut self, numbers: std::ops::Range<u64>) {
        self.rows.extend(numbers.map(|n| format!("{},{n}", self.version)));
        self.ever.extend(self.rows.iter().cloned());
        self.inputs.insert(sorted(&self.rows));
        self.workspace.write("in.csv", &(self.rows.join("\n") + "\n"));
        self.history.push(format!("input: version {}, {} rows", self.version, self.rows.len()));
    }

    fn context(&self) -> String {
        let history = self.history.join("\n  ");
        format!("seed {}:\n  {history}\nin {}", self.seed, self.workspace.folder.display())
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.backups.iter().for_each(|(folder, ..)| remove(folder));
        if !std::thread::panicking() {
            remove(&self.workspace.folder);
        }
    }
}

fn sorted(rows: &[String]) -> Vec<String> {
    let mut rows = rows.to_vec();
    rows.sort();
    rows
}

/// An input that had ended has grown since: the job ends as it has to, and says that rows were not
/// read.
fn is_behind_end(error: &Error) -> bool {
    error.message().contains("not read")
}

/// The names of files that differ.
fn changed(before: &[(String, Vec<u8>)], after: &[(String, Vec<u8>)]) -> Vec<String> {
    let differs = |(name, bytes): &&(String, Vec<u8>), others: &[(String, Vec<u8>)]| {
        !others.iter().any(|(other, same)| other == name && same == bytes)
    };
    let gone = before.iter().filter(|file| differs(file, after));
    let new = after.iter().filter(|file| differs(file, before));
    gone.chain(new).map(|(name, _)| name.clone()).collect()
}

/// Copies a file or a folder; one that is not there has no copy.
fn copy(from: &Path, to: &Path) {
    if from.is_file() {
        fs::copy(from, to).expect("a copy");
    } else if from.is_dir() {
        copy_folder(from, to);
    }
}

fn remove(path: &Path) {
    // It need not be there.
    let _ = fs::remove_file(path);
    let _ = fs::remove_dir_all(path);
}

/// When a job dies: after this many calls of its sinks, or from now on nothing becomes visible any
/// more.
#[derive(Clone)]
struct Fate {
    is_dead: Arc<AtomicBool>,
    calls: Arc<AtomicI64>,
}

/// A sink whose process may die.
struct Mortal {
    inner: Box<dyn Sink>,
    fate: Fate,
}

impl Mortal {
    /// Counts a call. The process may die before it.
    fn call(&mut self) -> Result<()> {
        if self.fate.calls.fetch_sub(1, Ordering::SeqCst) > 0 {
            return Ok(());
        }
        Err(Error::user(KILLED))
    }
}

impl SinkLayer for Mortal {
    fn inner(&self) -> &dyn Sink {
        self.inner.as_ref()
    }
    fn inner_mut(&mut self) -> &mut dyn Sink {
        self.inner.as_mut()
    }
    fn open(&mut self) -> Result<()> {
        self.call()?;
        self.inner.open()
    }
    fn finish(&mut self) -> Result<()> {
        if self.fate.is_dead.load(Ordering::SeqCst) { Ok(()) } else { self.inner.finish() }
    }
    fn abort(&mut self) {
        // A process that dies does nothing more, and its locks are free.
        self.inner = Box::new(DiscardSink::new("dead"));
    }
    fn mark(&mut self, mark: &OutputMark) -> Result<()> {
        self.call()?;
        if self.fate.is_dead.load(Ordering::SeqCst) { Ok(()) } else { self.inner.mark(mark) }
    }
    fn recover(&mut self, handle: Option<&str>) -> Result<()> {
        self.call()?;
        self.inner.recover(handle)
    }
    fn prepare(&mut self) -> Result<Option<String>> {
        self.call()?;
        self.inner.prepare()
    }
    fn commit(&mut self, handle: &str) -> Result<()> {
        self.call()?;
        if self.fate.is_dead.load(Ordering::SeqCst) { Ok(()) } else { self.inner.commit(handle) }
    }
}
