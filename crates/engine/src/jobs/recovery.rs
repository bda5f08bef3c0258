//! Which snapshot a run goes on from, and what is told about it.

use std::path::{Path, PathBuf};

use arrow_array::RecordBatch;
use thalweg_core::graph::Graph;
use thalweg_core::snapshot::RestoredCut;
use thalweg_core::{Error, OrderContract, Restored, Result};
use thalweg_plan::catalog::SnapshotSettings;
use thalweg_state::decide::{
    self, Candidate, CandidateState, FallBack, Recovery as Decision, Wish,
};
use thalweg_state::{Damage, JobLock, Snapshot, SnapshotDetails, SnapshotStore, SnapshotSummary};

use super::compatibility::check_snapshot;
use super::speech::Speech;

/// A snapshot as a user names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SnapshotReference {
    /// By its number, of the job itself.
    Number(u64),
    /// The folder of a snapshot, perhaps of another job: `…/JOB/snapshots/0000000012`.
    Folder(PathBuf),
}

impl std::str::FromStr for SnapshotReference {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text.trim().parse() {
            Ok(number) => Ok(SnapshotReference::Number(number)),
            Err(_) if text.contains(['/', '\\']) => Ok(SnapshotReference::Folder(text.into())),
            Err(_) => Err(Error::plan(format!("'{text}' names no snapshot"))
                .hint("give its number, or its folder (…/JOB/snapshots/0000000012)")),
        }
    }
}

/// From where jobs of a script go on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ResumeFrom {
    /// They begin anew.
    #[default]
    Nothing,
    /// From their newest snapshot, where they have one.
    Newest,
    /// From this one.
    Snapshot(SnapshotReference),
}

/// What a run was asked to do about earlier ones.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recovery {
    pub resume: ResumeFrom,
    pub drop_state: bool,
    /// How hints are to say it.
    pub speech: Speech,
    /// This run was started again after a failure: nothing is told of what is well known.
    pub is_restart: bool,
    /// Set once the job's directory is ours and it is clear where to go on.
    pub begun: Option<BegunBehind>,
}

/// Where a run has begun.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BegunBehind {
    /// The newest snapshot that was there then.
    pub newest: Option<u64>,
}

impl Recovery {
    /// What a run that is started again is to do: go on from what the failed one has kept, and where that kept
    /// nothing, begin where that has begun, not in what an earlier run has left. `None` if the failed run has
    /// never begun: another would not either.
    ///
    /// # Errors
    /// If the snapshots cannot be listed.
    pub(crate) fn again(mut self, settings: &SnapshotSettings, job: &str) -> Result<Option<Self>> {
        let Some(behind) = self.begun.take() else {
            return Ok(self.is_restart.then_some(self));
        };
        let store = SnapshotStore::open(&settings.location, job)?;
        if newest_number(&store)? > behind.newest {
            self.resume = ResumeFrom::Newest;
        }
        self.is_restart = true;
        Ok(Some(self))
    }
}

/// A job directory that is ours, and where to go on.
pub(crate) struct Begun {
    pub store: SnapshotStore,
    pub lock: Option<JobLock>,
    pub cut: Option<RestoredCut>,
    /// To be told to the user.
    pub notes: Vec<String>,
}

/// Locks the job's directory and finds out where to go on.
///
/// # Errors
/// If another run has the directory; if there is no such snapshot, or it cannot be read; if going on could write
/// rows twice; if the snapshot does not fit the query.
pub(crate) fn begin(
    settings: &SnapshotSettings,
    job: &str,
    order: OrderContract,
    graph: &Graph,
    recovery: &mut Recovery,
) -> Result<Begun> {
    let mut store = SnapshotStore::open(&settings.location, job)?;
    let lock = store.directory().map(JobLock::take).transpose()?;
    store.clean()?;
    let newest = newest_number(&store)?;
    let begun = go_on(store, lock, (job, order, graph), recovery)?;
    recovery.begun = Some(BegunBehind { newest });
    Ok(begun)
}

/// Finds out where to go on in a directory that is ours.
fn go_on(
    mut store: SnapshotStore,
    lock: Option<JobLock>,
    (job, order, graph): (&str, OrderContract, &Graph),
    recovery: &Recovery,
) -> Result<Begun> {
    let mut notes = Vec::new();
    let snapshot = match &recovery.resume {
        ResumeFrom::Nothing => {
            if let Some(newest) = store.list()?.last().filter(|_| !recovery.is_restart) {
                let number = newest.number();
                let resume = recovery.speech.resume();
                notes.push(format!(
                    "job '{job}' has snapshots up to {number} and begins anew; to go on from them {resume}"
                ));
            }
            None
        }
        ResumeFrom::Newest => match newest(&mut store, recovery.speech, &mut notes)? {
            Some(snapshot) => Some((store.describe(snapshot.header.number)?, snapshot)),
            None => None,
        },
        ResumeFrom::Snapshot(SnapshotReference::Number(number)) => {
            Some((store.describe(*number)?, store.read(*number)?))
        }
        ResumeFrom::Snapshot(SnapshotReference::Folder(folder)) => {
            let (other, number) = open_folder(folder)?;
            Some((other.describe(number)?, other.read(number)?))
        }
    };
    let Some((details, snapshot)) = snapshot else {
        if recovery.resume == ResumeFrom::Newest && !recovery.is_restart {
            notes.push(format!("job '{job}' has no snapshot and begins at the beginning"));
        }
        return Ok(Begun { store, lock, cut: None, notes });
    };
    fits(&details, order, graph, recovery, &mut notes)?;
    Ok(Begun { store, lock, cut: Some(snapshot.cut), notes })
}

/// The newest snapshot that may be gone on from.
fn newest(
    store: &mut SnapshotStore,
    speech: Speech,
    notes: &mut Vec<String>,
) -> Result<Option<Snapshot>> {
    let found = store.newest_usable()?;
    let state = |damage: &Damage| match damage.is_newer {
        true => CandidateState::Newer,
        false => CandidateState::Damaged,
    };
    let passed_over = found.passed_over.iter();
    let mut candidates: Vec<Candidate> = passed_over
        .map(|damage| Candidate { number: damage.number, state: state(damage) })
        .collect();
    candidates.dedup_by_key(|candidate| candidate.number);
    let mut fall_back = FallBack::Allowed;
    if let Some(snapshot) = &found.snapshot {
        let number = snapshot.header.number;
        candidates.push(Candidate { number, state: CandidateState::Usable });
        let sinks = snapshot.cut.stages.iter().filter_map(|stage| stage.sink.as_ref());
        fall_back = FallBack::of(sinks.map(|sink| sink.guarantee));
    }
    let told: Vec<String> = found.passed_over.iter().map(Damage::to_string).collect();
    match decide::recovery(Wish::Newest, &candidates, fall_back) {
        Decision::Begin => Ok(None),
        Decision::GoOn { .. } => {
            notes.extend(told.into_iter().map(|damage| format!("passed over: {damage}")));
            Ok(found.snapshot)
        }
        Decision::Ask { from, .. } => {
            let error = Error::data(format!(
                "the newest snapshot cannot be read, and what it had written may be visible already: {}",
                told.join("; ")
            ));
            Err(match from {
                Some(number) => error.hint(format!(
                    "rows that were written since snapshot {number} would be written again: move them away \
                     (files are named), and go on with {}",
                    speech.from(number)
                )),
                None => error.hint(format!(
                    "there is none that can be read: begin anew, {}",
                    speech.begin_anew()
                )),
            })
        }
        Decision::NoSuch { number } | Decision::CannotRead { number, .. } => {
            Err(Error::internal(format!("nobody asked for snapshot {number}")))
        }
    }
}

/// The store that the folder of a snapshot lies in, and the snapshot's number. Nothing is read.
///
/// # Errors
/// If it is no such folder.
pub fn open_folder(folder: &Path) -> Result<(SnapshotStore, u64)> {
    let wrong = || {
        Error::plan(format!("{} is no folder of a snapshot", folder.display()))
            .hint("it looks like …/JOB/snapshots/0000000012; `thalweg snapshot ls` lists them")
    };
    let name = |path: Option<&Path>| {
        path.and_then(Path::file_name).and_then(|name| name.to_str()).map(str::to_owned)
    };
    let number: u64 = name(Some(folder)).and_then(|name| name.parse().ok()).ok_or_else(wrong)?;
    let job_folder = folder.parent().and_then(Path::parent);
    let job = name(job_folder).and_then(|name| SnapshotStore::job_of_folder(&name));
    let job = job.ok_or_else(wrong)?;
    let location = job_folder.and_then(Path::parent).ok_or_else(wrong)?;
    let location = if location.as_os_str().is_empty() { Path::new(".") } else { location };
    Ok((SnapshotStore::open(&location.to_string_lossy(), &job)?, number))
}

/// Checks that a snapshot fits, and says what it is.
fn fits(
    details: &SnapshotDetails,
    order: OrderContract,
    graph: &Graph,
    recovery: &Recovery,
    notes: &mut Vec<String>,
) -> Result<()> {
    let header = &details.header;
    let comparison = check_snapshot(details, (order, graph), recovery.drop_state, recovery.speech)?;
    if recovery.is_restart {
        return Ok(());
    }
    let taken_at = thalweg_core::text::format_timestamp_millis(header.taken_at_ms, 3);
    let what = if header.is_complete { ", which was its end" } else { "" };
    notes.push(format!(
        "job '{}' goes on from snapshot {} of {taken_at} UTC{what}",
        header.job, header.number
    ));
    for stage in &comparison.added {
        notes.push(format!("begins empty: {} ({})", stage.name, stage.id));
    }
    for stage in &comparison.removed {
        notes.push(format!("its state is dropped: {} ({})", stage.name, stage.id));
    }
    Ok(())
}

/// How many rows of state a cut holds.
pub(crate) fn state_rows(cut: &RestoredCut) -> usize {
    let of = |restored: &Restored| -> usize {
        restored.names().flat_map(|name| restored.table(name)).map(RecordBatch::num_rows).sum()
    };
    cut.stages.iter().map(|stage| of(&stage.state) + of(&stage.waiting)).sum()
}

/// The newest snapshot that counts, by its manifest alone.
pub(crate) fn newest_number(store: &SnapshotStore) -> Result<Option<u64>> {
    let finished = |summary: &SnapshotSummary| matches!(summary, SnapshotSummary::Finished(_));
    Ok(store.list()?.iter().filter(|summary| finished(summary)).map(SnapshotSummary::number).max())
}
