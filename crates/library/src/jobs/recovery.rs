//! Which snapshot a run starts from, which lineage it belongs to, and what is said about it.
//!
//! Nothing is changed here: whoever starts the run makes a new lineage durable once all of the job
//! has agreed.

use std::path::{Path, PathBuf};

use arrow_array::RecordBatch;
use thalweg_core::graph::Graph;
use thalweg_core::shim::unique_name;
use thalweg_core::snapshot::{OutputMark, OutputStart, RestoredCut};
use thalweg_core::{Error, OrderContract, Restored, Result};
use thalweg_plan::catalog::SnapshotSettings;
use thalweg_state::decide::{
    self, Candidate, CandidateState, FallBack, Recovery as Decision, Wish,
};
use thalweg_state::{
    Damage, JobLock, Lineage, Origin, Snapshot, SnapshotDetails, SnapshotStore, SnapshotSummary,
};

use super::compatibility::check_snapshot;
use super::interface::Interface;
use super::snapshot_place::open_snapshots;

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

/// What jobs of a script resume from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ResumeFrom {
    /// They start from scratch.
    #[default]
    Nothing,
    /// From their newest snapshot, where they have one.
    Newest,
    /// From this one.
    Snapshot(SnapshotReference),
}

impl ResumeFrom {
    /// The one of several jobs that a snapshot's folder is of; the others resume from their newest.
    ///
    /// # Errors
    /// If it is of none of them, or no folder of a snapshot.
    pub(crate) fn job_of_several(&self, jobs: &[String]) -> Result<Option<String>> {
        let ResumeFrom::Snapshot(SnapshotReference::Folder(folder)) = self else { return Ok(None) };
        if jobs.len() < 2 {
            return Ok(None);
        }
        let FolderParts { job, .. } = parts_of(folder)?;
        match jobs.contains(&job) {
            true => Ok(Some(job)),
            false => Err(Error::plan(format!(
                "{} is a snapshot of job '{job}', and the statements have the jobs {}",
                folder.display(),
                jobs.join(", ")
            ))
            .hint("give a snapshot of one of them; 'pipeline.name' names a job")),
        }
    }
}

/// What a run was asked to do about earlier ones.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recovery {
    pub resume: ResumeFrom,
    pub drop_state: bool,
    /// What outputs hold that is not of the snapshot, or of an earlier run, is replaced.
    pub overwrites: bool,
    /// How hints are to say it.
    pub interface: Interface,
    /// This run was started again after a failure: known facts are not reported again.
    pub is_restart: bool,
    /// The last run has started: its lineage is durable.
    pub has_started: bool,
    /// The start only says whether it would be refused: nothing is made that is not there.
    pub is_rehearsal: bool,
}

impl Recovery {
    /// What a run that is started again is to do: resume what the failed one has kept, or from
    /// where its lineage began. `None` if the failed run has never started: another would not
    /// either.
    pub(crate) fn again(mut self) -> Option<Self> {
        if std::mem::take(&mut self.has_started) {
            self.resume = ResumeFrom::Newest;
        } else if !self.is_restart {
            return None;
        }
        self.is_restart = true;
        Some(self)
    }
}

/// A job directory that is ours, and where to start. Nothing was changed.
pub(crate) struct Begun {
    pub store: SnapshotStore,
    pub lock: Option<JobLock>,
    /// Notes for the user.
    pub notes: Vec<String>,
    pub choice: Choice,
}

/// Where a run starts.
pub(crate) struct Choice {
    pub cut: Option<RestoredCut>,
    /// The snapshot that the cut is of, where it is one of this lineage.
    pub parent: Option<u64>,
    /// The lineage that the run belongs to.
    pub lineage: Lineage,
    /// The run begins it.
    pub is_new: bool,
    /// What its outputs have to be like.
    pub outputs: OutputStart,
}

impl Choice {
    /// What outputs are marked with before the first row.
    pub(crate) fn mark(&self) -> OutputMark {
        OutputMark { lineage: self.lineage.id.clone(), snapshot: self.parent.unwrap_or(0) }
    }
}

/// Locks the job's directory and finds out where to start. Only reads.
///
/// # Errors
/// If another run has the directory; if there is no such snapshot, or it cannot be read; if going
/// on could write rows twice; if the snapshot does not fit the query.
pub(crate) fn begin(
    settings: &SnapshotSettings,
    job: &str,
    order: OrderContract,
    graph: &Graph,
    recovery: &Recovery,
) -> Result<Begun> {
    let mut store = open_snapshots(&settings.location, job, &settings.access)?;
    let directory = store.directory().filter(|path| !recovery.is_rehearsal || path.exists());
    let lock = directory.map(JobLock::take).transpose()?;
    let mut notes = Vec::new();
    let found = find(&mut store, recovery, &mut notes)?;
    if let Some((details, _)) = &found.snapshot {
        fits(details, order, graph, recovery, &mut notes)?;
    } else if !recovery.is_restart {
        notes.extend(note_of_scratch(&store, job, recovery)?);
    }
    let choice = choose(&store, found, recovery)?;
    Ok(Begun { store, lock, notes, choice })
}

/// What a run starts from.
struct FoundStart {
    snapshot: Option<(SnapshotDetails, Snapshot)>,
    /// The lineage that the job had before.
    current: Option<Lineage>,
    /// What the first snapshot of a new lineage would follow; `None` where the run continues the
    /// current one.
    begins: Option<Option<Origin>>,
}

fn find(
    store: &mut SnapshotStore,
    recovery: &Recovery,
    notes: &mut Vec<String>,
) -> Result<FoundStart> {
    match &recovery.resume {
        ResumeFrom::Nothing => {
            Ok(FoundStart { snapshot: None, current: store.lineage()?, begins: Some(None) })
        }
        ResumeFrom::Newest => find_newest(store, recovery.interface, notes),
        ResumeFrom::Snapshot(SnapshotReference::Number(number)) => {
            let snapshot = (store.describe(*number)?, store.read(*number)?);
            found_by_name(store, snapshot, None)
        }
        ResumeFrom::Snapshot(SnapshotReference::Folder(folder)) => {
            let (other, number) = open_folder(folder)?;
            let snapshot = (other.describe(number)?, other.read(number)?);
            let is_own = other.directory().is_some() && other.directory() == store.directory();
            let place = std::path::absolute(folder)?.to_string_lossy().into_owned();
            found_by_name(store, snapshot, (!is_own).then_some(place))
        }
    }
}

/// The newest snapshot of the lineage; where it has none, what it began from.
fn find_newest(
    store: &mut SnapshotStore,
    interface: Interface,
    notes: &mut Vec<String>,
) -> Result<FoundStart> {
    let current = store.lineage()?;
    let newest = newest(store, current.as_ref(), interface, notes)?;
    let (snapshot, begins) = match (newest, &current) {
        (Some(snapshot), current) => {
            let number = snapshot.header.number;
            // Its snapshots may have been written without one.
            let origin = Origin { snapshot: number, folder: None };
            let begins = current.is_none().then_some(Some(origin));
            (Some((store.describe(number)?, snapshot)), begins)
        }
        (None, Some(Lineage { origin: Some(Origin { snapshot, folder }), .. })) => {
            let from = match folder {
                Some(folder) => {
                    let (other, number) = open_folder(Path::new(folder))?;
                    (other.describe(number)?, other.read(number)?)
                }
                None => (store.describe(*snapshot)?, store.read(*snapshot)?),
            };
            (Some(from), None)
        }
        (None, Some(_)) => (None, None),
        (None, None) => (None, Some(None)),
    };
    Ok(FoundStart { snapshot, current, begins })
}

/// A snapshot that the user named: where it is not the newest of the lineage, another lineage
/// begins.
fn found_by_name(
    store: &SnapshotStore,
    (details, snapshot): (SnapshotDetails, Snapshot),
    folder: Option<String>,
) -> Result<FoundStart> {
    let current = store.lineage()?;
    let number = snapshot.header.number;
    let of_current = current.as_ref().map(|own| &own.id) == snapshot.header.lineage.as_ref();
    let is_newest = folder.is_none()
        && current.is_some()
        && of_current
        && store.newest_number_of(current.as_ref())? == Some(number);
    let begins = (!is_newest).then_some(Some(Origin { snapshot: number, folder }));
    Ok(FoundStart { snapshot: Some((details, snapshot)), current, begins })
}

/// Which lineage the run belongs to, and what its outputs have to be like.
fn choose(store: &SnapshotStore, found: FoundStart, recovery: &Recovery) -> Result<Choice> {
    let FoundStart { snapshot, current, begins } = found;
    let header = snapshot.as_ref().map(|(_, snapshot)| &snapshot.header);
    let of_snapshot = header.and_then(|header| {
        Some(OutputMark { lineage: header.lineage.clone()?, snapshot: header.number })
    });
    let mut outputs = OutputStart {
        is_marked: of_snapshot.is_some(),
        overwrites: recovery.overwrites,
        accepted: of_snapshot.into_iter().collect(),
        abandoned: None,
    };
    let own_number = header.filter(|header| {
        current.as_ref().map(|own| &own.id) == header.lineage.as_ref() && begins.is_none()
    });
    let parent = own_number.map(|header| header.number);
    let is_new = begins.is_some();
    let lineage = match (begins, current) {
        (None, Some(current)) => {
            if parent.is_none() {
                // Of this lineage nothing is committed: what it has written counts for nothing.
                let lineage = current.id.clone();
                outputs.accepted.push(OutputMark { lineage, snapshot: 0 });
                outputs.overwrites |= current.overwrites;
            }
            current
        }
        (begins, current) => {
            if snapshot.is_none() {
                outputs.abandoned = unfinished(store, current.as_ref())?;
            }
            Lineage {
                id: unique_name(),
                origin: begins.flatten(),
                after: store.highest_number()?,
                overwrites: recovery.overwrites,
            }
        }
    };
    let cut = snapshot.map(|(_, snapshot)| snapshot.cut);
    Ok(Choice { cut, parent, lineage, is_new, outputs })
}

/// The lineage, if its inputs have not ended.
fn unfinished(store: &SnapshotStore, lineage: Option<&Lineage>) -> Result<Option<String>> {
    let Some(lineage) = lineage else { return Ok(None) };
    let newest = store.newest_number_of(Some(lineage))?;
    let is_complete = match newest {
        Some(number) => store.header(number)?.is_complete,
        None => false,
    };
    Ok((!is_complete).then(|| lineage.id.clone()))
}

/// What is said of a job that starts from scratch.
fn note_of_scratch(
    store: &SnapshotStore,
    job: &str,
    recovery: &Recovery,
) -> Result<Option<String>> {
    if recovery.resume == ResumeFrom::Newest {
        return Ok(Some(format!("job '{job}' has no snapshot and starts from scratch")));
    }
    let newest = store.list()?.last().map(SnapshotSummary::number);
    Ok(newest.map(|number| {
        let resume = recovery.interface.resume();
        format!("job '{job}' has snapshots up to {number} and starts from scratch; to resume from them {resume}")
    }))
}

/// The newest snapshot that may be resumed from.
fn newest(
    store: &mut SnapshotStore,
    lineage: Option<&Lineage>,
    interface: Interface,
    notes: &mut Vec<String>,
) -> Result<Option<Snapshot>> {
    let found = store.newest_of(lineage)?;
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
    let damages: Vec<String> = found.passed_over.iter().map(Damage::to_string).collect();
    match decide::recovery(Wish::Newest, &candidates, fall_back) {
        Decision::Begin => Ok(None),
        Decision::Resume { .. } => {
            notes.extend(damages.into_iter().map(|damage| format!("passed over: {damage}")));
            Ok(found.snapshot)
        }
        Decision::Ask { from, .. } => {
            let error = Error::data(format!(
                "the newest snapshot cannot be read, and what it had written may be visible already: {}",
                damages.join("; ")
            ));
            Err(match from {
                Some(number) => error.hint(format!(
                    "rows that were written since snapshot {number} would be written again: go back with {} and {}, which \
                     removes them",
                    interface.from(number),
                    interface.overwrite()
                )),
                None => error.hint(format!(
                    "there is none that can be read: start from scratch, {}, with {}",
                    interface.start_from_scratch(),
                    interface.overwrite()
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
    let FolderParts { location, job, number } = parts_of(folder)?;
    Ok((SnapshotStore::open(&location.to_string_lossy(), &job)?, number))
}

/// What the folder of a snapshot says by its name.
struct FolderParts<'a> {
    location: &'a Path,
    job: String,
    number: u64,
}

fn parts_of(folder: &Path) -> Result<FolderParts<'_>> {
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
    Ok(FolderParts { location, job, number })
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
    let comparison =
        check_snapshot(details, (order, graph), recovery.drop_state, recovery.interface)?;
    if recovery.is_restart {
        return Ok(());
    }
    let taken_at = thalweg_core::text::format_timestamp_millis(header.taken_at_ms, 3);
    let what = if header.is_complete { ", which was its end" } else { "" };
    notes.push(format!(
        "job '{}' resumes from snapshot {} of {taken_at} UTC{what}",
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
