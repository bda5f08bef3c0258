//! The files of a folder that is written in transactions: their names, and how they become visible.
//!
//! # Names
//! `.part-000012-TABLE-RUN.csv` until it is committed, then `part-000012-TABLE-RUN.csv`. The number
//! grows over all runs of a job, so that names sort in the order of writing; TABLE is a hash of the
//! table's name, RUN is drawn for each run, so that no two runs use the same name. Readers pass
//! over names that begin with a dot.
//!
//! # Protocol
//! 1. A part is written under its hidden name, closed and synced; then its folder is synced (and,
//!    where the folder is new, those above it).
//! 2. The handle names the parts. From now on the snapshot decides.
//! 3. Commit renames each part that still is hidden, then syncs the folders. Doing it again does
//!    nothing.
//! 4. A run that resumes from a snapshot commits its handle, then removes the hidden parts of the
//!    table: they belong to transactions that never were. So one job at a time may write a table.
//!
//! A crash between any two system calls leaves either a part that the handle names, hidden or
//! visible, or a hidden part that it does not name.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};
use thalweg_core::shim::{SplitMix64, unique_name};
use thalweg_core::{Error, Result};

use crate::saved::read_saved;

use super::files::{Files, if_there, sync_above};
use super::paths::is_hidden;
use super::writer::{create_folder, failed, is_there};
use super::writing::Delivery;

/// A part by its folder (relative to the table's, with `/`, or empty) and its visible name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Part {
    /// The folder.
    pub folder: String,
    /// The name when it is visible.
    pub name: String,
}

/// How a run goes about with the parts that it finds.
#[derive(Clone, Copy, Debug)]
pub struct PartPolicy {
    /// What is promised.
    pub delivery: Delivery,
    /// What is visible stays.
    pub append: bool,
    /// The user lets it remove what is not of the snapshot that it resumes from.
    pub overwrites: bool,
}

/// What lies in the folder of a table: of each kind one path.
#[derive(Debug, Default)]
pub struct Survey {
    /// A part of the table that was never committed.
    pub hidden: Option<PathBuf>,
    /// A file of the table that readers see.
    pub own: Option<PathBuf>,
    /// Another file that readers see.
    pub foreign: Option<PathBuf>,
}

/// What a file in the folder of a table is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PartFileKind {
    /// A part of the table, not visible.
    Hidden,
    /// A part of the table with its number.
    Visible(u64),
    /// A file of a run without transactions.
    Plain,
    /// Something that readers pass over.
    Unseen,
    /// Something else.
    Foreign,
}

/// The parts of one table.
pub struct Parts {
    files: Arc<dyn Files>,
    root: PathBuf,
    extension: String,
    /// What all parts of the table have in their names.
    table: String,
    run: String,
    next: u64,
    /// Folders that are known to be durable.
    durable: BTreeSet<String>,
}

impl Parts {
    /// The parts of a table in this folder, with a name for this run.
    pub fn new(files: Arc<dyn Files>, root: PathBuf, extension: &str, table: &str) -> Parts {
        let hash =
            table.bytes().fold(0, |hash, byte| SplitMix64::new(hash ^ u64::from(byte)).next_u64());
        Parts::of_table(files, root, extension, &format!("{:08x}", hash >> 32))
    }

    /// The same, where it is known what all parts of the table have in their names.
    pub fn of_table(files: Arc<dyn Files>, root: PathBuf, extension: &str, table: &str) -> Parts {
        let (durable, extension) = (BTreeSet::new(), extension.to_owned());
        let table = table.to_owned();
        Parts { files, root, extension, table, run: unique_name(), next: 0, durable }
    }

    /// The table's folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// What all parts of the table have in their names.
    pub fn table(&self) -> &str {
        &self.table
    }

    /// A new part, and the path that it is written to; its folder is there then.
    ///
    /// # Errors
    /// If the folder cannot be made, or a link in it leads out of the table's.
    pub fn begin(&mut self, folder: &str) -> Result<(Part, PathBuf)> {
        let path = self.folder(folder);
        if !self.durable.contains(folder) {
            create_folder(self.files.as_ref(), &path, &self.root, &path)?;
        }
        let (number, table, run) = (self.next, &self.table, &self.run);
        let name = format!("part-{number:06}-{table}-{run}.{}", self.extension);
        self.next += 1;
        let part = Part { folder: folder.to_owned(), name };
        let path = path.join(hidden(&part.name));
        Ok((part, path))
    }

    /// Makes the names of closed parts durable, and returns the handle of the transaction that
    /// holds them.
    ///
    /// # Errors
    /// If a folder cannot be synced.
    pub fn prepare(&mut self, parts: &[Part]) -> Result<String> {
        self.sync(&parts.iter().map(|part| self.folder(&part.folder)).collect())?;
        for part in parts {
            if !self.durable.contains(&part.folder) {
                self.sync_above(&part.folder)?;
                self.durable.insert(part.folder.clone());
            }
        }
        let part = |part: &Part| json!({ "folder": part.folder, "name": part.name });
        let parts: Vec<Value> = parts.iter().map(part).collect();
        let handle = json!({
            "run": self.run,
            "next": self.next,
            "parts": parts,
            "path": self.root.to_string_lossy(),
            "table": self.table,
            "extension": self.extension,
        });
        Ok(handle.to_string())
    }

    /// Makes the parts of a transaction visible, and says which they are. It may have been done
    /// already.
    ///
    /// # Errors
    /// If a part is not there, or cannot be renamed.
    pub fn commit(&self, handle: &str) -> Result<Vec<Part>> {
        let parts = Handle::read(handle)?.parts;
        self.publish(&parts)?;
        Ok(parts)
    }

    /// Makes parts visible that are not yet.
    ///
    /// # Errors
    /// As [`Parts::commit`].
    pub fn publish(&self, parts: &[Part]) -> Result<()> {
        let mut folders = BTreeSet::new();
        for part in parts {
            let folder = self.folder(&part.folder);
            let (from, to) = (folder.join(hidden(&part.name)), folder.join(&part.name));
            if self.is_hidden(part)? {
                self.files.rename(&from, &to).map_err(|e| failed(Some(&to), &e))?;
            }
            folders.insert(folder);
        }
        self.sync(&folders)
    }

    /// Makes it durable that a folder is there, once for what lies above the table's.
    fn sync_above(&self, folder: &str) -> Result<()> {
        let path = self.folder(folder);
        if self.durable.is_empty() {
            return sync_above(self.files.as_ref(), &path).map_err(|e| failed(Some(&path), &e));
        }
        let above = path.ancestors().skip(1).take_while(|above| above.starts_with(&self.root));
        self.sync(&above.map(Path::to_path_buf).collect())
    }

    fn sync(&self, folders: &BTreeSet<PathBuf>) -> Result<()> {
        let sync = |path: &PathBuf| {
            self.files.sync_folder(path).map_err(|e| failed(Some(path.as_path()), &e))
        };
        folders.iter().try_for_each(sync)
    }

    /// Resumes from a handle: commits it, removes what no transaction holds, and continues behind
    /// its numbers. Without a handle only the latter.
    ///
    /// # Errors
    /// If the handle's parts are not there, or rows behind the snapshot are visible already.
    pub fn recover(&mut self, handle: Option<&str>, going: PartPolicy) -> Result<()> {
        let found = self.find()?;
        let gives_way = going.overwrites && !going.append;
        let is_kept = |kind: PartFileKind| match kind {
            PartFileKind::Hidden => false,
            PartFileKind::Visible(_) | PartFileKind::Plain => !gives_way,
            _ => true,
        };
        let kept: Vec<PartFileKind> =
            found.iter().map(|(_, name)| self.kind(name)).filter(|kind| is_kept(*kind)).collect();
        match handle.map(Handle::read).transpose()? {
            Some(handle) => {
                self.check_handle(&found, &handle, going)?;
                self.publish(&handle.parts)?;
                self.next = handle.next;
                let is_newer =
                    |kind| matches!(kind, PartFileKind::Visible(number) if number >= handle.next);
                self.remove(&found, |kind| {
                    kind == PartFileKind::Hidden || going.overwrites && is_newer(kind)
                })
            }
            None => {
                let number = |kind: &PartFileKind| match kind {
                    PartFileKind::Visible(number) => Some(*number),
                    _ => None,
                };
                self.next = kept.iter().filter_map(number).max().map_or(0, |last| last + 1);
                self.remove(&found, |kind| !is_kept(kind))
            }
        }
    }

    /// The files that hold the rows of a handle's snapshot, relative to the folder.
    ///
    /// # Errors
    /// If one that the handle names is not there, or the folder cannot be listed.
    pub fn held_by(&self, handle: &str) -> Result<Vec<PathBuf>> {
        let handle = Handle::read(handle)?;
        let is_older = |name: &str| matches!(self.kind(name), PartFileKind::Visible(number) if number < handle.next);
        let found = self.find()?.into_iter().filter(|(_, name)| is_older(name));
        let mut held: Vec<PathBuf> =
            found.map(|(folder, name)| Path::new(&folder).join(name)).collect();
        for part in &handle.parts {
            if self.is_hidden(part)? {
                held.push(Path::new(&part.folder).join(hidden(&part.name)));
            }
        }
        Ok(held)
    }

    /// Removes files by their names alone.
    ///
    /// # Errors
    /// If a folder cannot be listed, or a file not removed.
    pub fn remove_named(&self, is_gone: impl Fn(&str) -> bool) -> Result<()> {
        for (folder, name) in self.find()?.iter().filter(|(_, name)| is_gone(name)) {
            let path = self.folder(folder).join(name);
            self.files.remove(&path).map_err(|e| failed(Some(&path), &e))?;
        }
        Ok(())
    }

    fn remove(
        &self,
        found: &[(String, String)],
        is_gone: impl Fn(PartFileKind) -> bool,
    ) -> Result<()> {
        for (folder, name) in found.iter().filter(|(_, name)| is_gone(self.kind(name))) {
            let path = self.folder(folder).join(name);
            // A part that the handle names is not hidden any more.
            if self.files.length(&path).map_err(|e| failed(Some(&path), &e))?.is_some() {
                self.files.remove(&path).map_err(|e| failed(Some(&path), &e))?;
            }
        }
        Ok(())
    }

    /// Whether [`Parts::recover`] would resume from a handle. Only reads.
    ///
    /// # Errors
    /// As [`Parts::recover`].
    pub fn check(&self, handle: &str, going: PartPolicy) -> Result<()> {
        self.check_handle(&self.find()?, &Handle::read(handle)?, going)
    }

    fn check_handle(
        &self,
        found: &[(String, String)],
        handle: &Handle,
        going: PartPolicy,
    ) -> Result<()> {
        if going.delivery == Delivery::ExactlyOnce && !going.overwrites {
            self.refuse_newer(found, handle)?;
        }
        handle.parts.iter().try_for_each(|part| self.is_hidden(part).map(drop))
    }

    /// Whether a part has yet to become visible.
    ///
    /// # Errors
    /// If it is not there.
    fn is_hidden(&self, part: &Part) -> Result<bool> {
        let folder = self.folder(&part.folder);
        let (from, to) = (folder.join(hidden(&part.name)), folder.join(&part.name));
        if is_there(self.files.as_ref(), &from)? {
            return Ok(true);
        }
        if is_there(self.files.as_ref(), &to)? {
            return Ok(false);
        }
        Err(Error::data("the snapshot has written this file, and it is not there")
            .in_file(to.display().to_string())
            .hint("bring the file back, or start from scratch, without the snapshot"))
    }

    /// Removes a hidden part, as far as that is possible.
    pub fn discard(&self, part: &Part) {
        // What is left is removed by the next run.
        let _ = self.files.remove(&self.folder(&part.folder).join(hidden(&part.name)));
    }

    /// What lies in the folder.
    ///
    /// # Errors
    /// If a folder cannot be listed.
    pub fn survey(&self) -> Result<Survey> {
        let mut survey = Survey::default();
        for (folder, name) in self.find()? {
            let place = match self.kind(&name) {
                PartFileKind::Hidden => &mut survey.hidden,
                PartFileKind::Visible(_) | PartFileKind::Plain => &mut survey.own,
                PartFileKind::Foreign => &mut survey.foreign,
                PartFileKind::Unseen => continue,
            };
            place.get_or_insert_with(|| self.folder(&folder).join(name));
        }
        Ok(survey)
    }

    /// A job that goes back behind what it has made visible would write it twice.
    fn refuse_newer(&self, found: &[(String, String)], handle: &Handle) -> Result<()> {
        let end = format!("-{}-{}.{}", self.table, handle.run, self.extension);
        let number = |name: &str| -> Option<u64> {
            name.strip_prefix("part-")?.strip_suffix(&end)?.parse().ok()
        };
        let is_newer = |name: &str| number(name).is_some_and(|number| number >= handle.next);
        match found.iter().find(|(_, name)| is_newer(name)) {
            None => Ok(()),
            Some((folder, name)) => {
                let path = self.folder(folder).join(name);
                Err(Error::user("the file holds rows that were committed after this snapshot")
                    .in_file(path.display().to_string())
                    .hint("resume from the newest snapshot, or remove the newer files"))
            }
        }
    }

    /// All files below the folder, by folder and name.
    fn find(&self) -> Result<Vec<(String, String)>> {
        let mut found = Vec::new();
        let mut folders = vec![String::new()];
        while let Some(folder) = folders.pop() {
            let path = self.folder(&folder);
            let names = if_there(self.files.list(&path)).map_err(|e| failed(Some(&path), &e))?;
            for (name, is_folder) in names.into_iter().flatten() {
                match is_folder {
                    true if folder.is_empty() => folders.push(name),
                    true => folders.push(format!("{folder}/{name}")),
                    false => found.push((folder.clone(), name)),
                }
            }
        }
        Ok(found)
    }

    /// What a file of this name is.
    fn kind(&self, name: &str) -> PartFileKind {
        let number = |name: &str| self.number(name);
        if let Some(name) = name.strip_prefix('.') {
            return if number(name).is_some() {
                PartFileKind::Hidden
            } else {
                PartFileKind::Unseen
            };
        }
        match number(name) {
            Some(number) => PartFileKind::Visible(number),
            None if is_hidden(name) => PartFileKind::Unseen,
            None if self.is_plain(name) => PartFileKind::Plain,
            None => PartFileKind::Foreign,
        }
    }

    /// The number of a part of this table, by its visible name.
    fn number(&self, name: &str) -> Option<u64> {
        let fields: Vec<&str> = name.strip_prefix("part-")?.splitn(3, '-').collect();
        let [number, table, rest] = fields[..] else { return None };
        let run = rest.strip_suffix(self.extension.as_str())?.strip_suffix('.')?;
        let is_own = table == self.table && run.len() == 16 && is_hexadecimal(run);
        let is_number = number.len() >= 6 && number.bytes().all(|b| b.is_ascii_digit());
        number.parse().ok().filter(|_| is_own && is_number)
    }

    /// True for a name that a run without transactions uses: `part-0.csv`.
    fn is_plain(&self, name: &str) -> bool {
        let number =
            name.strip_prefix("part-").and_then(|name| name.strip_suffix(self.extension.as_str()));
        let number = number.and_then(|name| name.strip_suffix('.'));
        number
            .is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()))
    }

    fn folder(&self, folder: &str) -> PathBuf {
        if folder.is_empty() { self.root.clone() } else { self.root.join(folder) }
    }
}

fn is_hexadecimal(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn hidden(name: &str) -> String {
    format!(".{name}")
}

/// What a transaction holds.
struct Handle {
    run: String,
    next: u64,
    parts: Vec<Part>,
}

impl Handle {
    fn read(handle: &str) -> Result<Handle> {
        read_saved("transaction of a folder", handle, |value| {
            let part = |part: &Value| {
                let text = |key: &str| Some(part.get(key)?.as_str()?.to_owned());
                let part = Part { folder: text("folder")?, name: text("name")? };
                // A damaged handle must not lead out of the folder.
                let is_plain =
                    |name: &str| !name.is_empty() && name != ".." && !name.contains('\0');
                let fits = part.name.starts_with("part-") && !part.name.contains('/');
                let folders_fit = part.folder.is_empty() || part.folder.split('/').all(is_plain);
                (fits && folders_fit).then_some(part)
            };
            let parts = value.get("parts")?.as_array()?.iter().map(part).collect::<Option<_>>()?;
            let run = value.get("run")?.as_str()?.to_owned();
            Some(Handle { run, next: value.get("next")?.as_u64()?, parts })
        })
    }
}
