//! Jobs that are killed at random moments, and resume with other workers, bundles and limits, until
//! they end.
//!
//! At each kill what is visible has to be a part of the output of the run without kills (a prefix
//! where there is a sequence), and has to begin with what was visible at the kill before: nothing
//! becomes visible that is not committed, and nothing committed changes. In the end all of it is
//! there, once.
//!
//! Moments are drawn from two distributions: since the start, for kills in the middle of recovery;
//! and since a snapshot appeared, for kills in its commit and in the next cut and write. A machine
//! may be so fast that jobs end before such a moment: with each that does, moments are drawn from a
//! shorter time, and after a few not behind a snapshot, so that each cell gets its kills on any
//! machine.

use std::time::{Duration, Instant};

use thalweg_core::shim::{SplitMix64, mix64};

use super::cells::{Cell, cells};
use super::jobs::{Workspace, rows};

/// How many files an input has.
const FILES: usize = 20;

/// How often jobs of one cell were killed.
#[derive(Debug, Default)]
struct Tally {
    kills: usize,
    jobs: usize,
    /// Kills before a snapshot of that run was there.
    early: usize,
    /// Jobs that ended without a kill, since the last kill.
    missed: u32,
}

impl Tally {
    /// Counts a kill, before or behind the first snapshot of its run.
    fn killed(&mut self, early: bool) {
        self.kills += 1;
        self.early += usize::from(early);
        self.missed = 0;
    }

    /// How long behind its event a kill comes at most, if `usual` is what was enough on slower
    /// machines.
    fn within(&self, usual: Duration) -> Duration {
        usual.mul_f64(0.75_f64.powi(self.missed as i32))
    }
}

/// A whole number from the environment.
fn setting(name: &str, default: usize) -> usize {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")),
        Err(_) => default,
    }
}

#[test]
fn thirty_kills_lose_nothing_and_repeat_nothing() {
    sweep(30, setting("THALWEG_KILL_ROWS", 4_000), 1);
}

/// By hand: `make kills`.
#[test]
#[ignore = "takes many minutes"]
fn a_thousand_kills_lose_nothing_and_repeat_nothing() {
    sweep(setting("THALWEG_KILLS", 1_000), setting("THALWEG_KILL_ROWS", 40_000), 1_000);
}

/// Spreads kills over all cells. THALWEG_KILL_SEED repeats a run, as far as moments can be
/// repeated; THALWEG_KILL_CELL keeps to cells with that in their name.
fn sweep(kills: usize, rows: usize, seed: u64) {
    let seed = setting("THALWEG_KILL_SEED", seed as usize) as u64;
    let wanted = std::env::var("THALWEG_KILL_CELL").unwrap_or_default();
    let cells: Vec<Cell> =
        cells().into_iter().filter(|cell| cell.name().contains(&wanted)).collect();
    println!("{kills} kills over {} cells, {rows} rows, seed {seed}", cells.len());
    for (position, cell) in cells.iter().enumerate() {
        let share = (position + 1) * kills / cells.len() - position * kills / cells.len();
        let begun = Instant::now();
        let tally = kill_jobs(cell, share, rows, mix64(seed + position as u64) >> 8);
        println!("{}: {tally:?} in {:.0?}", cell.name(), begun.elapsed());
    }
}

/// Runs jobs of a cell until they were killed so often. Each gets other data.
fn kill_jobs(cell: &Cell, kills: usize, rows: usize, seed: u64) -> Tally {
    let mut tally = Tally::default();
    while tally.kills < kills {
        let seed = seed + 7_919 * tally.jobs as u64;
        let kills_before = tally.kills;
        tally.jobs += 1;
        kill_job(cell, kills, rows, seed, &mut tally);
        tally.missed += u32::from(tally.kills == kills_before);
        assert!(tally.jobs < 4 * kills + 10, "{}: jobs end before they are killed", cell.name());
    }
    tally
}

/// One job from its beginning to its end.
fn kill_job(cell: &Cell, kills: usize, row_count: usize, seed: u64, tally: &mut Tally) {
    let mut random = SplitMix64::new(seed);
    let workspace = Workspace::new(&format!("kills-{}", cell.name()));
    for input in &["a", "b"][..cell.query.inputs] {
        for (number, text) in rows(&mut random, FILES, row_count / FILES).iter().enumerate() {
            workspace.write(&format!("{input}/{number:03}.csv"), text);
        }
    }
    workspace.write("job.sql", &cell.script());
    let begun = Instant::now();
    workspace.succeed(&["--workers", "2", "--quiet", "job.sql"]);
    let duration = begun.elapsed();
    let expected = workspace.visible("out");
    assert!(!expected.is_empty(), "{}: a job with output", cell.name());
    std::fs::remove_dir_all(workspace.path("out")).expect("the output of the run without kills");

    let mut seen: Vec<String> = Vec::new();
    loop {
        let may_kill = tally.kills < kills;
        let was_killed = run_once(&workspace, &mut random, duration, may_kill, tally);
        let visible = workspace.visible("out");
        let context = || format!("{} seed {seed}, kill {}", cell.name(), tally.kills);
        assert!(visible.starts_with(&seen), "{}: what was committed has changed", context());
        if let Some(why) = cell.equality().excess(&expected, &visible) {
            panic!("{}: {why}", context());
        }
        if !was_killed {
            if let Some(why) = cell.equality().difference(&expected, &visible) {
                panic!("{}: in the end {why}", context());
            }
            return;
        }
        seen = visible;
    }
}

/// Starts or resumes a job, and kills it if it does not end before that. True if it was
/// killed.
fn run_once(
    workspace: &Workspace,
    random: &mut SplitMix64,
    duration: Duration,
    may_kill: bool,
    tally: &mut Tally,
) -> bool {
    let mut draw = |choices: &[&'static str]| choices[random.next_u64() as usize % choices.len()];
    let workers = draw(&["1", "2", "3", "4"]);
    let bundle = format!("pipeline.bundle-rows-max={}", draw(&["7", "100", "1000", "65536"]));
    let memory = draw(&["128mb", "256mb", "1gb"]);
    let interval = format!("execution.checkpointing.interval={} ms", draw(&["20", "30", "50"]));
    let incremental = format!("execution.checkpointing.incremental={}", draw(&["true", "false"]));
    let words = [
        ["--workers", workers, "--memory-limit", memory, "--set", &bundle],
        ["--set", &interval, "--set", "execution.checkpointing.dir=state", "--set", &incremental],
    ];
    let mut words = words.concat();
    words.extend(["--set", "restart-strategy.type=none", "--resume", "--quiet", "job.sql"]);
    let known = workspace.snapshots().last().copied();
    let waits_for_snapshot = !random.next_u64().is_multiple_of(3) && tally.missed < 4;
    let longest = match waits_for_snapshot {
        true => Duration::from_millis(150),
        false => duration.max(Duration::from_millis(100)),
    };
    let delay = tally.within(longest).mul_f64((random.next_u64() % 1_000) as f64 / 1_000.0);
    let mut running = workspace.start(&words);
    let mut due = (!waits_for_snapshot).then(|| Instant::now() + delay);
    loop {
        if let Some(status) = running.ended() {
            assert!(
                status.success(),
                "{status}: {}\nin {}",
                running.messages(),
                workspace.folder.display()
            );
            return false;
        }
        if due.is_none() && workspace.snapshots().last().copied() > known {
            due = Some(Instant::now() + delay);
        }
        if may_kill && due.is_some_and(|due| Instant::now() >= due) {
            running.kill();
            tally.killed(workspace.snapshots().last().copied() == known);
            return true;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
