//! A disk in memory for a whole job: what its sinks write and what its snapshots are kept in. The
//! machine goes off at a call of one's choice.
//!
//! # What is left when it comes on again
//! All that was synced. Of the rest anything may be there, as on real disks: of the changes of
//! names in a folder that no sync of it has followed, those up to a random one; of the bytes of a
//! file that were not synced, a random part.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use thalweg_connectors::filesystem::files::{Files, OutFile};
use thalweg_core::shim::SplitMix64;
use thalweg_state::storage::FileSystem;

#[derive(Clone, Default)]
struct Names {
    files: BTreeMap<PathBuf, usize>,
    folders: BTreeSet<PathBuf>,
}

/// A change of names.
#[derive(Clone)]
enum Change {
    Link(PathBuf, usize),
    Rename(PathBuf, PathBuf),
    Unlink(PathBuf),
    Folder(PathBuf),
    NoFolder(PathBuf),
}

#[derive(Default)]
struct Content {
    now: Vec<u8>,
    synced: Vec<u8>,
}

#[derive(Default)]
struct State {
    contents: Vec<Content>,
    now: Names,
    synced: Names,
    /// What has changed in `now` and not in `synced`.
    journal: Vec<Change>,
    calls: u64,
    off_at: Option<u64>,
    is_off: bool,
}

/// A disk. Clones are the same one.
#[derive(Clone, Default)]
pub struct Disk(Arc<Mutex<State>>);

impl Names {
    fn apply(&mut self, change: &Change) {
        match change {
            Change::Link(path, content) => {
                self.files.insert(path.clone(), *content);
            }
            Change::Rename(from, to) => {
                // What was not durable under its old name is not under the new one either, but for
                // the journal.
                if let Some(content) = self.files.remove(from) {
                    self.files.insert(to.clone(), content);
                }
            }
            Change::Unlink(path) => {
                self.files.remove(path);
            }
            Change::Folder(path) => {
                self.folders.insert(path.clone());
            }
            Change::NoFolder(path) => {
                self.folders.remove(path);
            }
        }
    }

    /// What lies in a folder that is not there cannot be reached.
    fn keep_reached(&mut self) {
        let folders = self.folders.clone();
        let is_reached = |path: &Path| path.ancestors().skip(1).all(|own| folders.contains(own));
        self.files.retain(|path, _| is_reached(path));
        self.folders.retain(|path| is_reached(path));
    }
}

impl Change {
    fn folder(&self) -> Option<&Path> {
        match self {
            Change::Link(path, _)
            | Change::Rename(_, path)
            | Change::Unlink(path)
            | Change::Folder(path)
            | Change::NoFolder(path) => path.parent(),
        }
    }
}

impl State {
    /// Counts a call. True if the machine goes off while it is made.
    fn begin(&mut self) -> io::Result<bool> {
        if self.is_off {
            return Err(off());
        }
        self.calls += 1;
        Ok(self.off_at == Some(self.calls))
    }

    fn end<T>(&mut self, goes_off: bool, result: T) -> io::Result<T> {
        self.is_off |= goes_off;
        if goes_off { Err(off()) } else { Ok(result) }
    }

    fn change(&mut self, change: Change) {
        self.now.apply(&change);
        self.journal.push(change);
    }

    fn content(&self, path: &Path) -> io::Result<usize> {
        self.now.files.get(path).copied().ok_or_else(missing)
    }

    fn check_folder(&self, folder: Option<&Path>) -> io::Result<()> {
        match folder.is_some_and(|folder| self.now.folders.contains(folder)) {
            true => Ok(()),
            false => Err(missing()),
        }
    }

    fn sync_folder(&mut self, folder: &Path) -> io::Result<()> {
        self.check_folder(Some(folder))?;
        for change in std::mem::take(&mut self.journal) {
            match change.folder() == Some(folder) {
                true => self.synced.apply(&change),
                false => self.journal.push(change),
            }
        }
        Ok(())
    }

    /// The files and the folders in a folder.
    fn list(&self, folder: &Path) -> io::Result<(Vec<(PathBuf, u64)>, Vec<PathBuf>)> {
        self.check_folder(Some(folder))?;
        let is_in = |path: &Path| path.parent() == Some(folder);
        let files = self.now.files.iter().filter(|(path, _)| is_in(path));
        let size = |&content: &usize| self.contents[content].now.len() as u64;
        let files = files.map(|(path, content)| (path.clone(), size(content))).collect();
        let folders = self.now.folders.iter().filter(|path| is_in(path)).cloned().collect();
        Ok((files, folders))
    }

    fn create(&mut self, path: &Path) -> io::Result<usize> {
        self.check_folder(path.parent())?;
        self.contents.push(Content::default());
        let content = self.contents.len() - 1;
        self.change(Change::Link(path.to_owned(), content));
        Ok(content)
    }
}

fn off() -> io::Error {
    io::Error::other("the machine is off")
}

fn missing() -> io::Error {
    io::Error::from(io::ErrorKind::NotFound)
}

impl Disk {
    /// A disk with a folder.
    pub fn with_folder(folder: &Path) -> Disk {
        let disk = Disk::default();
        let folders: BTreeSet<PathBuf> = folder.ancestors().map(Path::to_owned).collect();
        let names = Names { folders, ..Names::default() };
        *disk.state() = State { now: names.clone(), synced: names, ..State::default() };
        disk
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no panic under this lock")
    }

    /// The machine goes off in the middle of the call with this number, from 1, counted from here.
    pub fn go_off_at(&self, call: Option<u64>) {
        let mut state = self.state();
        (state.calls, state.off_at) = (0, call);
    }

    /// Calls since then.
    pub fn calls(&self) -> u64 {
        self.state().calls
    }

    /// True until the machine comes on again.
    pub fn is_off(&self) -> bool {
        self.state().is_off
    }

    /// The machine comes on again: what was not synced may be lost.
    pub fn come_on(&self, random: &mut SplitMix64) {
        let mut state = self.state();
        let state = &mut *state;
        let mut lost_in: BTreeSet<PathBuf> = BTreeSet::new();
        for change in state.journal.drain(..) {
            let folder = change.folder().unwrap_or(Path::new("/")).to_owned();
            if lost_in.contains(&folder) || random.below(3) == 0 {
                lost_in.insert(folder);
            } else {
                state.synced.apply(&change);
            }
        }
        state.synced.keep_reached();
        state.now = state.synced.clone();
        for content in state.contents.iter_mut().filter(|content| content.now != content.synced) {
            match random.below(3) {
                0 => content.now.clone_from(&content.synced),
                1 => {
                    let bytes = random.below(content.now.len() as u64 + 1) as usize;
                    content.now.truncate(bytes.max(content.synced.len()));
                }
                _ => {}
            }
            content.synced.clone_from(&content.now);
        }
        (state.is_off, state.off_at) = (false, None);
    }

    /// The files that a reader sees below a folder, in the order of their paths.
    pub fn visible(&self, folder: &Path) -> Vec<String> {
        let state = self.state();
        let is_visible = |path: &Path| {
            let name = path.file_name().expect("a name").to_string_lossy();
            path.starts_with(folder) && !name.starts_with('.') && !name.ends_with(".partial")
        };
        let files = state.now.files.iter().filter(|(path, _)| is_visible(path));
        let text = |content: usize| String::from_utf8(state.contents[content].now.clone());
        files.map(|(_, &content)| text(content).expect("a part is text")).collect()
    }
}

/// A file that is being written.
struct File {
    disk: Disk,
    content: usize,
}

impl Write for File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.disk.state();
        let goes_off = state.begin()?;
        let written = if goes_off { bytes.len() / 2 } else { bytes.len() };
        state.contents[self.content].now.extend_from_slice(&bytes[..written]);
        state.end(goes_off, written)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl OutFile for File {
    fn sync(&mut self) -> io::Result<()> {
        let mut state = self.disk.state();
        let goes_off = state.begin()?;
        if !goes_off {
            let content = &mut state.contents[self.content];
            content.synced.clone_from(&content.now);
        }
        state.end(goes_off, ())
    }
}

impl Files for Disk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn OutFile>> {
        let mut state = self.state();
        let goes_off = state.begin()?;
        let content = state.create(path)?;
        state.end(goes_off, ())?;
        drop(state);
        Ok(Box::new(File { disk: self.clone(), content }))
    }
    fn reopen(&self, path: &Path, bytes: u64) -> io::Result<Box<dyn OutFile>> {
        let mut state = self.state();
        let goes_off = state.begin()?;
        let content = state.content(path)?;
        state.contents[content].now.truncate(bytes as usize);
        state.end(goes_off, ())?;
        drop(state);
        Ok(Box::new(File { disk: self.clone(), content }))
    }
    fn length(&self, path: &Path) -> io::Result<Option<u64>> {
        let mut state = self.state();
        let goes_off = state.begin()?;
        let content = state.now.files.get(path).copied();
        let length = content.map(|content| state.contents[content].now.len() as u64);
        state.end(goes_off, length)
    }
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let mut state = self.state();
        let goes_off = state.begin()?;
        let content = state.content(path)?;
        let bytes = state.contents[content].now.clone();
        state.end(goes_off, bytes)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        let goes_off = state.begin()?;
        state.content(from)?;
        state.change(Change::Rename(from.to_owned(), to.to_owned()));
        state.end(goes_off, ())
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        let goes_off = state.begin()?;
        state.content(path)?;
        state.change(Change::Unlink(path.to_owned()));
        state.end(goes_off, ())
    }
    fn create_folder(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        let goes_off = state.begin()?;
        let above: Vec<PathBuf> = path.ancestors().map(Path::to_owned).collect();
        for folder in above.into_iter().rev() {
            if !state.now.folders.contains(&folder) {
                state.change(Change::Folder(folder));
            }
        }
        state.end(goes_off, ())
    }
    fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        let mut state = self.state();
        let goes_off = state.begin()?;
        state.check_folder(Some(path))?;
        state.end(goes_off, path.to_owned())
    }
    fn list(&self, folder: &Path) -> io::Result<Vec<(String, bool)>> {
        let mut state = self.state();
        let goes_off = state.begin()?;
        let (files, folders) = state.list(folder)?;
        let name = |path: PathBuf| path.file_name().expect("a name").to_string_lossy().into_owned();
        let files = files.into_iter().map(|(path, _)| (name(path), false));
        let mut names: Vec<(String, bool)> =
            files.chain(folders.into_iter().map(|path| (name(path), true))).collect();
        names.sort_unstable();
        state.end(goes_off, names)
    }
    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        let mut state = self.state();
        let goes_off = state.begin()?;
        if !goes_off {
            state.sync_folder(folder)?;
        }
        state.end(goes_off, ())
    }
}

impl FileSystem for Disk {
    fn create_folder(&self, path: &Path) -> io::Result<()> {
        self.state().check_folder(path.parent())?;
        Files::create_folder(self, path)
    }
    fn write_synced(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.state();
        let goes_off = state.begin()?;
        let content = match state.content(path) {
            Ok(content) => content,
            Err(_) => state.create(path)?,
        };
        let written = if goes_off { bytes.len() / 2 } else { bytes.len() };
        let own = &mut state.contents[content];
        own.now = bytes[..written].to_vec();
        if !goes_off {
            own.synced.clone_from(&own.now);
        }
        state.end(goes_off, ())
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        Files::rename(self, from, to)
    }
    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        Files::sync_folder(self, path)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        Files::remove(self, path)
    }
    fn remove_folder(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        let goes_off = state.begin()?;
        let (files, folders) = state.list(path)?;
        if files.len() + folders.len() > 0 {
            return Err(io::Error::from(io::ErrorKind::DirectoryNotEmpty));
        }
        state.change(Change::NoFolder(path.to_owned()));
        state.end(goes_off, ())
    }
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        Files::read(self, path)
    }
    fn list(&self, path: &Path) -> io::Result<Vec<(PathBuf, Option<u64>)>> {
        let mut state = self.state();
        let goes_off = state.begin()?;
        let (files, folders) = state.list(path)?;
        let files = files.into_iter().map(|(path, bytes)| (path, Some(bytes)));
        let all = files.chain(folders.into_iter().map(|path| (path, None))).collect();
        state.end(goes_off, all)
    }
    fn exists(&self, path: &Path) -> io::Result<bool> {
        let mut state = self.state();
        let goes_off = state.begin()?;
        let exists = state.now.folders.contains(path) || state.now.files.contains_key(path);
        state.end(goes_off, exists)
    }
}
