//! Snapshots of earlier versions, from which jobs of this one resume: `tests/golden-snapshots`,
//! whose README says what lies there.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use thalweg::jobs::{ResumeFrom, SnapshotReference, ask_for_snapshot};
use thalweg::{Result, Sink};
use thalweg_core::connector::SinkLayer;
use thalweg_core::snapshot::OutputMark;

use super::cells::Equality;
use super::jobs::{Workspace, copy_folder, files, folders};
use super::killed::{AtHold, Kill, Run, nothing, run};

/// With how many workers each is resumed.
const WORKERS: [usize; 2] = [1, 3];
/// Rows of each input before the first snapshot, and between it and the second, which may hold
/// changes.
const HOLDS: [u64; 2] = [50, 25];
const INPUTS: [&str; 2] = ["a.csv", "b.csv"];
/// How long a job may take to answer.
const PATIENCE: Duration = Duration::from_secs(20);
const WRITE: &str = "THALWEG_WRITE_GOLDEN_SNAPSHOTS";

fn home() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden-snapshots")
}

fn name(path: &Path) -> String {
    path.file_name().expect("a name").to_string_lossy().into_owned()
}

/// Each snapshot that there is, in jobs that resume from it.
#[test]
fn jobs_resume_from_the_snapshots_of_earlier_versions() {
    let mut versions = folders(&home());
    versions.retain(|folder| name(folder).starts_with('v'));
    let mut wrong = Vec::new();
    let mut checked = 0;
    for kept in versions.iter().flat_map(|version| folders(version)) {
        let runs = std::iter::once(None).chain(WORKERS.map(Some));
        wrong.extend(runs.filter_map(|workers| check(&kept, workers)));
        checked += 1;
    }
    assert!(wrong.is_empty(), "of {checked}:\n{}", wrong.join("\n"));
    assert!(checked >= 20, "{checked} snapshots");
}

/// Why a job does not give what it is to give: one that continues with this many workers, or one
/// that starts from scratch.
fn check(kept: &Path, workers: Option<usize>) -> Option<String> {
    let job = fs::read_to_string(kept.join("job.sql")).expect("the job of a snapshot");
    let what = match workers {
        Some(workers) => format!("{} with {workers} workers", kept.display()),
        None => format!("{} without its snapshot", kept.display()),
    };
    let workspace = Workspace::new(&format!("golden-snapshot-{}", name(kept)));
    inputs(kept.parent().expect("a version"), &workspace.folder);
    let resume = match workers {
        None => ResumeFrom::Nothing,
        Some(_) => {
            copy_folder(&kept.join("state"), &workspace.path("state"));
            copy_folder(&kept.join("out"), &workspace.path("out"));
            let newest = *workspace.snapshots().last().expect("there is a snapshot");
            ResumeFrom::Snapshot(SnapshotReference::Number(newest))
        }
    };
    let own = own_run(&workspace, workers.unwrap_or(1), resume, None);
    if let Err(error) = run(&job, own, &mut |sink| sink, nothing()) {
        return Some(format!("{what}: {error}"));
    }
    let expected = fs::read_to_string(kept.join("expected.csv")).expect("what is expected");
    let expected: Vec<String> = expected.lines().map(str::to_owned).collect();
    let why = equality(&job).difference(&expected, &visible(&workspace.path("out"), ""));
    why.map(|why| format!("{what}: {why}"))
}

fn own_run(
    workspace: &Workspace,
    workers: usize,
    resume: ResumeFrom,
    kill: Option<Kill>,
) -> Run<'static> {
    let settings = vec![
        ("execution.checkpointing.dir", "state".to_owned()),
        ("execution.checkpointing.interval", "0 s".to_owned()),
        ("execution.checkpointing.num-retained", "1".to_owned()),
    ];
    let folder = workspace.folder.clone();
    Run { folder, settings, workers, resume, overwrite: false, kill }
}

/// What has to be equal, as the job says.
fn equality(job: &str) -> Equality {
    let word = job.lines().find_map(|line| line.strip_prefix("-- equality: "));
    match word {
        Some("sequence") => Equality::Sequence,
        Some("rows") => Equality::Rows,
        Some("left") => Equality::Left,
        other => panic!("{other:?} is no equality"),
    }
}

/// The rows that readers of a folder see, each behind the folders that it lies in.
fn visible(folder: &Path, above: &str) -> Vec<String> {
    let is_visible = |path: &&PathBuf| {
        let name = name(path);
        !name.starts_with(['.', '_']) && !name.ends_with(".partial")
    };
    let read = |path: &PathBuf| fs::read_to_string(path).expect("a part is text");
    let own = files(folder).iter().filter(is_visible).map(read).collect::<String>();
    let mut rows: Vec<String> = own.lines().map(|row| format!("{above}{row}")).collect();
    for inner in folders(folder) {
        rows.extend(visible(&inner, &format!("{above}{}/", name(&inner))));
    }
    rows
}

fn inputs(from: &Path, to: &Path) {
    for input in INPUTS {
        fs::copy(from.join(input), to.join(input)).expect("copying an input");
    }
}

/// Writes the snapshots of this version; by hand.
#[test]
fn new_golden_snapshots_are_written_where_that_is_asked_for() {
    let Ok(version) = std::env::var(WRITE) else { return };
    let to = home().join(&version);
    fs::create_dir_all(&to).expect("a folder");
    if !to.join(INPUTS[0]).exists() {
        inputs(&home().join("jobs"), &to);
    }
    let mut jobs = files(&home().join("jobs"));
    jobs.retain(|path| path.extension().is_some_and(|extension| extension == "sql"));
    for path in jobs {
        let case = to.join(path.file_stem().expect("a name"));
        // What was written once stays.
        if !case.exists() {
            let job = fs::read_to_string(&path).expect("a job");
            write(&job, &to, &case).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        }
    }
}

fn write(job: &str, version: &Path, case: &Path) -> Result<()> {
    let straight = Workspace::new("golden-snapshot-straight");
    inputs(version, &straight.folder);
    let own = own_run(&straight, 1, ResumeFrom::Nothing, None);
    run(job, own, &mut |sink| sink, nothing())?;

    let killed = Workspace::new("golden-snapshot-killed");
    inputs(version, &killed.folder);
    let is_dying = Arc::new(AtomicBool::new(false));
    let directory = killed.path("state/job");
    let at_hold: AtHold = {
        let is_dying = Arc::clone(&is_dying);
        Box::new(move |hold, _| {
            is_dying.store(hold + 1 == HOLDS.len(), Ordering::SeqCst);
            ask_for_snapshot(&directory, PATIENCE).expect("a snapshot is taken");
        })
    };
    let holds = HOLDS.map(|rows| vec![rows; INPUTS.len()]).to_vec();
    let kill = Kill { holds, rows_behind: 5, delay: Duration::from_millis(5), ..Kill::default() };
    let own = own_run(&killed, 2, ResumeFrom::Nothing, Some(kill));
    let mut wrap =
        |inner| -> Box<dyn Sink> { Box::new(DyingSink { inner, is_dying: Arc::clone(&is_dying) }) };
    assert!(!run(job, own, &mut wrap, at_hold)?, "it was killed before its end");

    fs::create_dir(case).expect("a folder");
    fs::write(case.join("job.sql"), job).expect("a file");
    let expected = visible(&straight.path("out"), "");
    fs::write(case.join("expected.csv"), expected.join("\n") + "\n").expect("a file");
    let snapshots = case.join("state/job/snapshots");
    copy_folder(&killed.path("state/job/snapshots"), &snapshots);
    // The one before is gone but for the files that the newest one shares.
    fs::remove_file(snapshots.join("0000000001/manifest.json")).expect("the older snapshot");
    copy_folder(&killed.path("out"), &case.join("out"));
    Ok(())
}

/// A sink whose process dies between a manifest and its commit.
struct DyingSink {
    inner: Box<dyn Sink>,
    is_dying: Arc<AtomicBool>,
}

impl SinkLayer for DyingSink {
    fn inner(&self) -> &dyn Sink {
        self.inner.as_ref()
    }
    fn inner_mut(&mut self) -> &mut dyn Sink {
        self.inner.as_mut()
    }
    fn abort(&mut self) {}
    fn mark(&mut self, mark: &OutputMark) -> Result<()> {
        match self.is_dying.load(Ordering::SeqCst) {
            true => Ok(()),
            false => self.inner.mark(mark),
        }
    }
    fn commit(&mut self, handle: &str) -> Result<()> {
        match self.is_dying.load(Ordering::SeqCst) {
            true => Ok(()),
            false => self.inner.commit(handle),
        }
    }
}
