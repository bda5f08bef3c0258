//! Jobs as they lie in the data directory: plain files that can be read, compared and mended by
//! hand.
//!
//! ```text
//! DATA/lock                         one server at a time
//!      jobs/NAME/job.json           what is wanted of the job, and how it ended
//!      jobs/NAME/revisions/0003.sql the statements; never changed
//!      jobs/NAME/revisions/0003.json who wrote them, when, and with which parameters
//!      jobs/NAME/events.ndjson      changes of state, restarts, requests
//!      jobs/NAME/runs.ndjson        each run: why it began, how it ended
//!      jobs/NAME/history/           what it was doing in the last 24 hours, see `history`
//!      jobs/NAME/state/             snapshots, unless the statements name another place
//!      trash/NAME-TIME/             jobs that were deleted
//! ```
//!
//! # Invariants
//! - `job.json` has all of its old bytes or all of its new ones, whenever the power fails
//!   ([`LocalStorage::replace`]). What is answered to a client is durable.
//! - A revision is durable before `job.json` names it.
//! - A line of an `.ndjson` file counts when it is whole; half a line at the end is passed over.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thalweg_core::lock::{FileLock, LockError};
use thalweg_core::{Error, Result};
use thalweg_state::storage::{LocalStorage, Storage, SystemFiles};

use crate::lifecycle::{Desired, EndKind, StopHow, Wish};
use crate::problem::Problem;

/// The version of the files. Readers take this one; later ones are refused.
const FORMAT: u32 = 1;
/// Folders of a job that its statements may write to.
pub const OWN_FOLDERS: [&str; 3] = ["state", "late", "dead"];
/// The longest name of a job.
pub const NAME_MAX: usize = 63;
/// Logs grow to this size; then the older half goes.
const LOG_BYTES_MAX: u64 = 4 << 20;
/// The log of what happened to a job.
pub const EVENTS: &str = "events.ndjson";

/// What is wanted of a job, and what came of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JobRecord {
    /// The version of this file.
    pub format: u32,
    /// Its name.
    pub name: String,
    /// What is wanted.
    pub desired: Desired,
    /// How it is to stop.
    #[serde(default)]
    pub how: StopHow,
    /// Raised by each request to start.
    pub generation: u64,
    /// The statements that count.
    pub revision: u64,
    /// What the next run of this generation begins from.
    #[serde(default)]
    pub from: StartFrom,
    /// The lineage of snapshots that there was before it began; `None` until its first run. So a
    /// start from scratch happens once, also where the process died behind it.
    pub lineage_before: Option<String>,
    /// State that the statements have no use for may be dropped by this start.
    #[serde(default)]
    pub drops_state: bool,
    /// What its outputs hold of earlier runs may be replaced.
    #[serde(default)]
    pub overwrites: bool,
    /// The run of the generation before is cut off, so that it keeps nothing more.
    #[serde(default)]
    pub cuts_replaced: bool,
    /// How the run of this generation ended.
    pub outcome: Option<OutcomeRecord>,
    /// A run has begun at this time, and has not proved itself.
    pub unproven_since_ms: Option<i64>,
    /// How often the process died, one time after another, while it was unproven.
    #[serde(default)]
    pub deaths: u32,
    /// Words of the user.
    #[serde(default)]
    pub tags: Vec<String>,
    /// It is a file of the folder of jobs.
    #[serde(default)]
    pub is_file: bool,
    /// What it may use.
    #[serde(default)]
    pub limits: Limits,
    /// When it was made, in milliseconds since 1970.
    pub created_ms: i64,
    /// The upgrade under way, until it has proved itself or was undone.
    pub upgrade: Option<UpgradeRecord>,
}

/// An upgrade that has to prove itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct UpgradeRecord {
    /// The statements to go back to.
    pub revision: u64,
    /// The job has stopped with this snapshot.
    pub stopped_with: Option<u64>,
    /// Until when the new statements have to run and to have kept a snapshot.
    pub until_ms: Option<i64>,
    /// A person does not want it any more.
    #[serde(default)]
    pub is_cancelled: bool,
}

/// What a job begins from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum StartFrom {
    /// Its newest snapshot, if it has one.
    #[default]
    Newest,
    /// This snapshot.
    Snapshot(u64),
    /// Nothing: its state is dropped.
    Nothing,
}

/// What a job may use.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Memory, such as `512mb`. Default: a share of the server's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
    /// Over how many workers it is spread. Default: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers: Option<u16>,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct OutcomeRecord {
    /// In one word.
    pub end: EndKind,
    /// When, in milliseconds since 1970.
    pub at_ms: i64,
    /// Why it failed, or what a person has to decide.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schema(value_type = Option<Object>))]
    pub problem: Option<Problem>,
    /// Stages whose state would be dropped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub at_stake: Vec<StageReference>,
}

/// A stage as people name it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct StageReference {
    /// Its identifier, which follows from what it computes.
    pub id: String,
    /// What it is called.
    pub name: String,
}

/// What becomes of the state of a job under other statements.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct StateDiff {
    /// The snapshot that was compared with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<u64>,
    /// Stages that continue with their state.
    pub kept: Vec<StageReference>,
    /// Stages that begin empty.
    pub empty: Vec<StageReference>,
    /// Stages whose state would be dropped.
    pub dropped: Vec<StageReference>,
}

/// Statements and what goes with them. Never changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct Revision {
    /// Its number, from 1.
    pub number: u64,
    /// When it was written, in milliseconds since 1970.
    pub at_ms: i64,
    /// Who wrote it: the name of a token, or a user of this machine.
    pub by: String,
    /// The hash of the statements (SHA-256, hexadecimal).
    pub digest: String,
    /// What `${NAME}` stands for.
    #[serde(default)]
    pub params: BTreeMap<String, String>,
    /// Options that are set before the first statement.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
    /// The statements.
    #[serde(skip)]
    #[cfg_attr(test, schema(ignore))]
    pub sql: String,
}

/// The data directory of a server, which it holds.
pub struct Catalogue {
    root: PathBuf,
    storage: LocalStorage,
    _lock: FileLock,
}

impl JobRecord {
    /// A job that was never asked to run.
    pub fn new(name: &str, now_ms: i64) -> JobRecord {
        let name = name.to_owned();
        JobRecord { format: FORMAT, name, created_ms: now_ms, ..JobRecord::default() }
    }

    /// What [`decide`](crate::lifecycle::decide) goes by.
    pub fn wish(&self) -> Wish {
        Wish {
            desired: self.desired,
            how: self.how,
            generation: self.generation,
            outcome: self.outcome.as_ref().map(|outcome| outcome.end),
            cuts_replaced: self.cuts_replaced,
        }
    }

    /// A new generation is to run.
    pub fn ask_to_run(&mut self, from: StartFrom, drops_state: bool, overwrites: bool) {
        self.desired = Desired::Running;
        self.how = StopHow::default();
        self.generation += 1;
        (self.from, self.lineage_before) = (from, None);
        (self.drops_state, self.overwrites) = (drops_state, overwrites);
        (self.outcome, self.upgrade) = (None, None);
        self.cuts_replaced = false;
        self.deaths = 0;
    }
}

/// Checks the name of a job, which is the name of its folder as well.
///
/// # Errors
/// If it is none.
pub fn check_name(name: &str) -> Result<(), Problem> {
    let is_first = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_other = |c: char| is_first(c) || "._-".contains(c);
    let is_name =
        name.starts_with(is_first) && name.chars().all(is_other) && name.len() <= NAME_MAX;
    if is_name {
        return Ok(());
    }
    Err(Problem::new(
        400,
        "name-wrong",
        format!(
            "'{}' names no job: names have up to {NAME_MAX} small letters, digits, '.', '_' and '-', and begin \
             with a letter or a digit",
            name.chars().take(NAME_MAX).filter(|c| !c.is_control()).collect::<String>()
        ),
    ))
}

impl Catalogue {
    /// Takes a data directory, which is made if it is not there.
    ///
    /// # Errors
    /// If another server has it, or it cannot be written to.
    pub fn open(root: &Path) -> Result<Catalogue> {
        let failed = |error: std::io::Error| {
            Error::io(format!("cannot use the data directory {}: {error}", root.display()))
                .hint("let this user write there, or name another with --data-dir")
        };
        for folder in ["", "jobs", "files", "secrets", "trash"] {
            fs::create_dir_all(root.join(folder)).map_err(failed)?;
        }
        for folder in ["", "secrets"] {
            keep_private(&root.join(folder)).map_err(failed)?;
        }
        let root = root.canonicalize().map_err(failed)?;
        let lock = FileLock::take(&root.join("lock")).map_err(|error| match error {
            LockError::Held(holder) => {
                let who = holder.map_or("another server".to_owned(), |holder| {
                    format!("process {} (since {})", holder.process, holder.since)
                });
                let place = root.display();
                Error::resource(format!("{who} has the data directory {place}"))
                    .hint("stop it, or name another directory with --data-dir")
            }
            LockError::Io(error) => failed(error),
        })?;
        let storage = LocalStorage::new(root.clone(), Arc::new(SystemFiles));
        Ok(Catalogue { root, storage, _lock: lock })
    }

    /// The directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The folder of a job.
    pub fn folder(&self, job: &str) -> PathBuf {
        self.root.join("jobs").join(job)
    }

    /// All jobs, and what is wrong with those that cannot be read: one bad file keeps no other job
    /// from running.
    ///
    /// # Errors
    /// If the folder cannot be listed.
    pub fn jobs(&self) -> Result<(Vec<JobRecord>, Vec<Error>)> {
        let (mut jobs, mut wrong) = (Vec::new(), Vec::new());
        for entry in fs::read_dir(self.root.join("jobs"))? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            match self.read_job(&name) {
                // Half made: its writer died before anybody was answered.
                Ok(None) => {}
                Ok(Some(job)) => jobs.push(job),
                Err(error) => wrong.push(error),
            }
        }
        jobs.sort_by(|one, other| one.name.cmp(&other.name));
        Ok((jobs, wrong))
    }

    fn read_job(&self, name: &str) -> Result<Option<JobRecord>> {
        let file = format!("jobs/{name}/job.json");
        let Some(bytes) = self.storage.get(&file)? else { return Ok(None) };
        let wrong = |why: String| Error::io(why).in_file(self.storage.place_of(&file));
        let record: JobRecord = serde_json::from_slice(&bytes)
            .map_err(|error| wrong(format!("the job '{name}' cannot be read: {error}")))?;
        if record.format > FORMAT || record.name != name {
            return Err(wrong(format!("the job '{name}' is of a newer server, or was renamed")));
        }
        Ok(Some(record))
    }

    /// Writes what is wanted of a job, durably.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn save(&self, job: &JobRecord) -> Result<()> {
        let mut text = serde_json::to_string_pretty(job)
            .map_err(|error| Error::internal(format!("a job is JSON: {error}")))?;
        text.push('\n');
        self.storage.replace(&format!("jobs/{}/job.json", job.name), text.as_bytes())
    }

    /// Writes statements, durably.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn add_revision(&self, job: &str, revision: &Revision) -> Result<()> {
        let text = serde_json::to_string_pretty(revision)
            .map_err(|error| Error::internal(format!("a revision is JSON: {error}")))?;
        let place = format!("jobs/{job}/revisions/{:04}", revision.number);
        self.storage.replace(&format!("{place}.sql"), revision.sql.as_bytes())?;
        self.storage.replace(&format!("{place}.json"), text.as_bytes())
    }

    /// Statements of a job.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn revision(&self, job: &str, number: u64) -> Result<Option<Revision>> {
        let place = format!("jobs/{job}/revisions/{number:04}");
        let (Some(about), Some(sql)) = (
            self.storage.get(&format!("{place}.json"))?,
            self.storage.get(&format!("{place}.sql"))?,
        ) else {
            return Ok(None);
        };
        let wrong = |why: String| Error::io(why).in_file(self.storage.place_of(&place));
        let mut revision: Revision =
            serde_json::from_slice(&about).map_err(|error| wrong(error.to_string()))?;
        revision.sql = String::from_utf8(sql.into()).map_err(|error| wrong(error.to_string()))?;
        Ok(Some(revision))
    }

    /// Puts the folder of a job away. With its state, unless that is to be deleted.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn remove(&self, job: &str, keeps_state: bool, now_ms: i64) -> Result<()> {
        let folder = self.folder(job);
        if !keeps_state {
            match fs::remove_dir_all(folder.join("state")) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error)?,
                _ => {}
            }
        }
        fs::rename(&folder, self.root.join("trash").join(format!("{job}-{now_ms}")))?;
        File::open(self.root.join("jobs"))?.sync_all()?;
        Ok(())
    }

    /// Removes the folder of a job that was planned and not made.
    pub fn remove_empty(&self, job: &str) {
        let folder = self.folder(job);
        // What holds something stays.
        OWN_FOLDERS.iter().for_each(|name| drop(fs::remove_dir(folder.join(name))));
        let _ = fs::remove_dir(folder);
    }

    /// Adds a line to a log of a job. A disk that is full loses lines and stops nothing.
    pub fn append(&self, job: &str, log: &str, line: &impl Serialize) {
        let path = self.folder(job).join(log);
        let Ok(text) = serde_json::to_string(line) else { return };
        // Nobody could be informed.
        let _ = append_line(&path, &text, LOG_BYTES_MAX);
    }

    /// How long a log of a job is.
    pub fn bytes(&self, job: &str, log: &str) -> u64 {
        fs::metadata(self.folder(job).join(log)).map_or(0, |file| file.len())
    }

    /// The last lines of a log of a job, oldest first.
    pub fn tail<T: DeserializeOwned>(&self, job: &str, log: &str, lines_max: usize) -> Vec<T> {
        let text = fs::read_to_string(self.folder(job).join(log)).unwrap_or_default();
        let lines: Vec<&str> = text.lines().rev().take(lines_max).collect();
        lines.into_iter().rev().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }
}

/// Adds a line to a file. Half a line that a process left behind when it died is closed first. A
/// file that has grown too long loses its older half.
///
/// # Errors
/// Those of the disk.
pub fn append_line(path: &Path, line: &str, bytes_max: u64) -> std::io::Result<()> {
    let mut file = File::options().create(true).append(true).read(true).open(path)?;
    let length = file.metadata()?.len();
    if length > bytes_max {
        let text = fs::read_to_string(path)?;
        let cut = text.len() / 2;
        let cut = (cut..text.len()).find(|&at| text.is_char_boundary(at)).unwrap_or(text.len());
        let kept = text[cut..].split_once('\n').map_or("", |(_, kept)| kept);
        fs::write(path, kept)?;
        file = File::options().append(true).read(true).open(path)?;
    } else if length > 0 {
        file.seek(SeekFrom::End(-1))?;
        let mut last = [0];
        file.read_exact(&mut last)?;
        if last != *b"\n" {
            file.write_all(b"\n")?;
        }
    }
    file.write_all(format!("{line}\n").as_bytes())
}

/// Lets nobody but this user into a folder.
fn keep_private(folder: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o700))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_nowhere_else() {
        for name in ["orders", "a", "0", "a.b_c-d", &"x".repeat(63)] {
            check_name(name).expect(name);
        }
        for name in ["", "..", ".a", "-a", "A", "a/b", "a\\b", "a b", "ä", "a\0", &"x".repeat(64)]
        {
            assert!(check_name(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn one_server_has_a_directory_and_finds_what_was_saved() {
        let folder = tempfile::tempdir().expect("a folder");
        let catalogue = Catalogue::open(folder.path()).expect("free");
        let error = Catalogue::open(folder.path()).err().expect("held");
        assert!(error.message().contains(&std::process::id().to_string()), "{error}");
        let mut job = JobRecord::new("orders", 7);
        job.ask_to_run(StartFrom::Snapshot(3), true, false);
        catalogue.save(&job).expect("saved");
        catalogue.save(&job).expect("saved again");
        fs::create_dir(folder.path().join("jobs/half")).expect("a folder");
        fs::create_dir(folder.path().join("jobs/bad")).expect("a folder");
        fs::write(folder.path().join("jobs/bad/job.json"), "{").expect("a file");
        let (jobs, wrong) = catalogue.jobs().expect("listed");
        assert_eq!((jobs, wrong.len()), (vec![job], 1));
    }

    #[test]
    fn half_a_line_spoils_no_other() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        fs::write(&path, "1\n{\"ha").expect("a file");
        append_line(&path, "2", 1 << 20).expect("appended");
        assert_eq!(fs::read_to_string(&path).expect("text"), "1\n{\"ha\n2\n");
        for line in 0..100 {
            append_line(&path, &format!("line {line}"), 200).expect("appended");
        }
        let text = fs::read_to_string(&path).expect("text");
        assert!(text.len() < 220 && text.ends_with("line 99\n") && text.starts_with("line"));
    }
}
