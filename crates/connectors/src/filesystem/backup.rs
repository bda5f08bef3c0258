//! Outputs of files that are saved together with a snapshot, and brought back.
//!
//! The handle in a snapshot says which bytes and which parts belong to it, so what was written
//! since is left out.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;
use thalweg_core::snapshot::{OutputMark, OutputStart};
use thalweg_core::{Error, Result};

use super::claim::Claim;
use super::files::{Files, OsFiles, if_there};
use super::marks::{MarkFile, check_resumed};
use super::objects::is_url;
use super::parts::{PartPolicy, Parts};
use super::writer::{failed, is_there, partial};
use super::writing::Delivery;

/// The output that a sink of this connector writes.
pub struct SavedOutput {
    path: PathBuf,
    kind: OutputKind,
}

enum OutputKind {
    /// The first `bytes` of a single file.
    File { bytes: u64 },
    /// Parts in a folder; the handle names those that are to become visible.
    Folder { handle: String, table: String, extension: String },
}

/// A file to be copied: from where, under which name below the output's folder, and how much of it.
struct Copied {
    from: PathBuf,
    name: PathBuf,
    bytes: Option<u64>,
}

impl SavedOutput {
    /// The output of this machine that a handle is of; none where it does not say, as those of
    /// other connectors, or where it lies in a store ([`SavedOutput::in_store`]).
    pub fn of_handle(handle: &str) -> Option<SavedOutput> {
        let value: Value = serde_json::from_str(handle).ok()?;
        let text = |key: &str| Some(value.get(key)?.as_str()?.to_owned());
        let path = PathBuf::from(text("path")?);
        if is_url(&path.to_string_lossy()) {
            return None;
        }
        let kind = match value.get("bytes").and_then(Value::as_u64) {
            Some(bytes) => OutputKind::File { bytes },
            None => OutputKind::Folder {
                handle: handle.to_owned(),
                table: text("table")?,
                extension: text("extension")?,
            },
        };
        Some(SavedOutput { path, kind })
    }

    /// Where the output of a handle lies, if that is in an object store: what is to become visible
    /// there are uploads, which nobody can read, so no copy of it can be made.
    pub fn in_store(handle: &str) -> Option<String> {
        let value: Value = serde_json::from_str(handle).ok()?;
        value.get("path")?.as_str().filter(|path| is_url(path)).map(str::to_owned)
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The same output in another place.
    #[must_use]
    pub fn at(self, path: PathBuf) -> SavedOutput {
        SavedOutput { path, ..self }
    }

    /// Nobody writes it for as long as this lives.
    ///
    /// # Errors
    /// If another writer has it.
    pub fn claim(&self) -> Result<Claim> {
        match self.kind {
            OutputKind::File { .. } => Claim::file("the output", &self.path),
            OutputKind::Folder { .. } => Claim::folder("the output", &self.path),
        }
    }

    fn folder(&self) -> &Path {
        match self.kind {
            OutputKind::File { .. } => self.path.parent().unwrap_or(Path::new("/")),
            OutputKind::Folder { .. } => &self.path,
        }
    }

    fn parts(&self, table: &str, extension: &str) -> Parts {
        Parts::of_table(Arc::new(OsFiles), self.path.clone(), extension, table)
    }

    fn mark_file(&self, folder: &Path) -> MarkFile {
        let files: Arc<dyn Files> = Arc::new(OsFiles);
        match &self.kind {
            OutputKind::File { .. } => {
                let name = self.path.file_name().unwrap_or_default().to_string_lossy();
                MarkFile::new(files, folder, &name)
            }
            OutputKind::Folder { table, .. } => MarkFile::new(files, folder, table),
        }
    }

    /// Copies what belongs to the snapshot into a folder that is not there yet, with its mark.
    ///
    /// # Errors
    /// If the output is not that of the snapshot; if something cannot be copied.
    pub fn save(&self, to: &Path, mark: &OutputMark) -> Result<()> {
        let found = self.mark_file(self.folder()).read()?;
        // An output may be ahead of the snapshot: what it has more is left out.
        let accepted = vec![OutputMark { snapshot: u64::MAX, ..mark.clone() }];
        let start = OutputStart { accepted, is_marked: true, ..OutputStart::default() };
        check_resumed(("of the snapshot", &self.path), found.as_ref(), &start, false)?;
        for Copied { from, name, bytes } in self.files()? {
            copy(&from, &to.join(name), bytes)?;
        }
        self.mark_file(to).write(mark, false)
    }

    fn files(&self) -> Result<Vec<Copied>> {
        match &self.kind {
            OutputKind::File { bytes } => Ok(vec![self.file(*bytes)?]),
            OutputKind::Folder { handle, table, extension } => {
                let parts = self.parts(table, extension).held_by(handle)?;
                let copied =
                    |name: PathBuf| Copied { from: self.path.join(&name), name, bytes: None };
                Ok(parts.into_iter().map(copied).collect())
            }
        }
    }

    fn file(&self, bytes: u64) -> Result<Copied> {
        let length = |path: &Path| OsFiles.length(path).map_err(|e| failed(Some(path), &e));
        let unfinished = partial(&self.path);
        let from = match (length(&unfinished)?, length(&self.path)?) {
            (Some(found), _) if found >= bytes => unfinished,
            (None, Some(found)) if found == bytes => self.path.clone(),
            _ => {
                return Err(Error::data(format!(
                    "the snapshot has written {bytes} bytes of this file, and they are not there"
                ))
                .in_file(unfinished.display().to_string())
                .hint("choose a snapshot that the output still holds"));
            }
        };
        let name = PathBuf::from(from.file_name().unwrap_or_default());
        Ok(Copied { from, name, bytes: Some(bytes) })
    }

    /// Whether [`SavedOutput::bring_back`] finds an empty place, or may make it one. Only reads.
    ///
    /// # Errors
    /// If something is there that may not be replaced.
    pub fn check_place(&self, overwrites: bool) -> Result<()> {
        let found = match &self.kind {
            OutputKind::File { .. } => {
                let mut found = None;
                for path in [self.path.clone(), partial(&self.path)] {
                    found = found.or(is_there(&OsFiles, &path)?.then_some(path));
                }
                found
            }
            OutputKind::Folder { table, extension, .. } => {
                let survey = self.parts(table, extension).survey()?;
                if let Some(path) = survey.foreign {
                    return Err(occupied(&path).hint("remove it: it is no file of this table"));
                }
                survey.hidden.or(survey.own)
            }
        };
        match found {
            Some(path) if !overwrites => {
                Err(occupied(&path).hint("remove it, or replace it with --overwrite"))
            }
            _ => Ok(()),
        }
    }

    /// Puts what was saved in its place, in place of what is there.
    ///
    /// # Errors
    /// If something cannot be removed or copied.
    pub fn bring_back(&self, from: &Path) -> Result<()> {
        match &self.kind {
            OutputKind::File { .. } => {
                for path in [self.path.clone(), partial(&self.path)] {
                    if_there(fs::remove_file(&path)).map_err(|e| failed(Some(&path), &e))?;
                }
            }
            OutputKind::Folder { table, extension, .. } => {
                let delivery = Delivery::ExactlyOnce;
                let going = PartPolicy { delivery, append: false, overwrites: true };
                self.parts(table, extension).recover(None, going)?;
            }
        }
        let (saved, to) = (self.mark_file(from), self.mark_file(self.folder()));
        for name in names_below(from).map_err(|e| failed(Some(from), &e))? {
            let source = from.join(&name);
            if !saved.is_at(&source) {
                copy(&source, &self.folder().join(name), None)?;
            }
        }
        let mark = saved.read()?.ok_or_else(|| {
            Error::data("the backup has an output without its mark")
                .in_file(from.display().to_string())
        })?;
        to.write(&mark, true)
    }
}

fn occupied(path: &Path) -> Error {
    Error::plan("there is something where an output is to be brought back to")
        .in_file(path.display().to_string())
}

/// Copies a file, or its first bytes, durably.
fn copy(from: &Path, to: &Path, bytes: Option<u64>) -> Result<()> {
    let copied = || -> io::Result<u64> {
        let folder = to.parent().unwrap_or(Path::new("/"));
        fs::create_dir_all(folder)?;
        let mut target = fs::File::create_new(to)?;
        let source = fs::File::open(from)?;
        let copied = io::copy(&mut io::Read::take(source, bytes.unwrap_or(u64::MAX)), &mut target)?;
        target.sync_all()?;
        OsFiles.sync_folder(folder)?;
        Ok(copied)
    };
    copied().map(drop).map_err(|e| failed(Some(to), &e))
}

/// The names of all files below a folder, relative to it.
fn names_below(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(inside) = folders.pop() {
        for (name, is_folder) in OsFiles.list(&folder.join(&inside))? {
            let name = inside.join(name);
            if is_folder { folders.push(name) } else { found.push(name) }
        }
    }
    Ok(found)
}
