//! A file system in memory that fails at a call of one's choice, and forgets at a power failure
//! what was not synced.
//!
//! A file is its contents now and its contents when it was synced last; a folder is its names now
//! and its names when it was synced last. A power failure brings back the latter; a name whose
//! folder was not durable goes with it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::filesystem::files::{Files, OutFile};

/// What happens at a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The call fails, and later ones work.
    Error,
    /// Only a part is written, and the call says so.
    Short,
    /// Only a part is written, and the disk is full from then on.
    NoSpace,
    /// The process is killed instead of the call.
    KillBefore,
    /// The process is killed behind the call.
    KillAfter,
    /// The machine goes off instead of the call.
    PowerBefore,
    /// The machine goes off behind the call.
    PowerAfter,
}

impl Fault {
    pub const ALL: [Fault; 7] = [
        Fault::Error,
        Fault::Short,
        Fault::NoSpace,
        Fault::KillBefore,
        Fault::KillAfter,
        Fault::PowerBefore,
        Fault::PowerAfter,
    ];
}

#[derive(Default)]
struct State {
    contents: Vec<(Vec<u8>, Vec<u8>)>,
    names: BTreeMap<PathBuf, usize>,
    durable_names: BTreeMap<PathBuf, usize>,
    folders: BTreeSet<PathBuf>,
    durable_folders: BTreeSet<PathBuf>,
    calls: u64,
    fault: Option<(u64, Fault)>,
    is_dead: bool,
    is_full: bool,
}

/// The file system. Clones are the same one.
#[derive(Clone, Default)]
pub struct FaultyFiles(Arc<Mutex<State>>);

struct FaultyFile {
    files: FaultyFiles,
    content: usize,
}

fn gone() -> io::Error {
    io::Error::other("the process is gone")
}

fn missing() -> io::Error {
    io::Error::from(io::ErrorKind::NotFound)
}

impl State {
    /// Begins a call: which fault it meets, if it runs at all.
    fn begin(&mut self) -> io::Result<Option<Fault>> {
        if self.is_dead {
            return Err(gone());
        }
        self.calls += 1;
        let fault = self.fault.filter(|(call, _)| *call == self.calls).map(|(_, fault)| fault);
        match fault {
            Some(Fault::KillBefore | Fault::PowerBefore) => {
                self.is_dead = true;
                Err(gone())
            }
            Some(Fault::Error) => Err(io::Error::other("an error of the disk")),
            fault => Ok(fault),
        }
    }

    fn end<T>(&mut self, fault: Option<Fault>, result: T) -> io::Result<T> {
        if matches!(fault, Some(Fault::KillAfter | Fault::PowerAfter)) {
            self.is_dead = true;
            return Err(gone());
        }
        Ok(result)
    }
}

impl FaultyFiles {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no panic under this lock")
    }

    /// The call with this number, from 1, meets a fault.
    pub fn fail_at(&self, call: u64, fault: Fault) {
        let mut state = self.state();
        state.calls = 0;
        state.fault = Some((call, fault));
    }

    /// True if the fault was met.
    pub fn has_failed(&self) -> bool {
        let state = self.state();
        state.fault.is_some_and(|(call, _)| state.calls >= call)
    }

    /// A new process; what was not durable is lost if the machine was off.
    pub fn restart(&self) {
        let mut state = self.state();
        let was_off = matches!(state.fault, Some((_, Fault::PowerBefore | Fault::PowerAfter)));
        (state.is_dead, state.is_full, state.fault) = (false, false, None);
        if !was_off {
            return;
        }
        let durable = &state.durable_folders;
        let is_there = |path: &&PathBuf| path.ancestors().all(|above| durable.contains(above));
        state.folders = durable.iter().filter(is_there).cloned().collect();
        state.contents.iter_mut().for_each(|(now, durable)| now.clone_from(durable));
        let names = state.durable_names.clone();
        let is_there =
            |path: &Path| path.parent().is_none_or(|parent| state.folders.contains(parent));
        let names = names.into_iter().filter(|(path, _)| is_there(path)).collect();
        state.names = names;
    }

    /// The contents of the files that a reader sees, in the order of their paths.
    pub fn visible(&self) -> Vec<Vec<u8>> {
        let state = self.state();
        let is_visible = |path: &Path| {
            !super::super::paths::is_hidden(&path.file_name().expect("a name").to_string_lossy())
        };
        let names = state.names.iter().filter(|(path, _)| is_visible(path));
        names.map(|(_, &content)| state.contents[content].0.clone()).collect()
    }

    /// How many files are there, hidden ones included.
    pub fn count(&self) -> usize {
        self.state().names.len()
    }

    fn file(&self, content: usize) -> Box<dyn OutFile> {
        Box::new(FaultyFile { files: self.clone(), content })
    }
}

impl Write for FaultyFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.files.state();
        let fault = state.begin()?;
        let is_full = state.is_full || fault == Some(Fault::NoSpace);
        let written = match is_full || fault == Some(Fault::Short) {
            true if bytes.len() > 1 && !state.is_full => bytes.len() / 2,
            true if is_full => 0,
            _ => bytes.len(),
        };
        state.contents[self.content].0.extend_from_slice(&bytes[..written]);
        if is_full && (state.is_full || written == 0) {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        state.is_full = is_full;
        state.end(fault, written)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl OutFile for FaultyFile {
    fn sync(&mut self) -> io::Result<()> {
        let mut state = self.files.state();
        let fault = state.begin()?;
        let (now, durable) = &mut state.contents[self.content];
        durable.clone_from(now);
        state.end(fault, ())
    }
}

impl Files for FaultyFiles {
    fn create(&self, path: &Path) -> io::Result<Box<dyn OutFile>> {
        let mut state = self.state();
        let fault = state.begin()?;
        if !path.parent().is_some_and(|parent| state.folders.contains(parent)) {
            return Err(missing());
        }
        let content = state.contents.len();
        state.contents.push((Vec::new(), Vec::new()));
        state.names.insert(path.to_owned(), content);
        state.end(fault, ())?;
        drop(state);
        Ok(self.file(content))
    }
    fn reopen(&self, path: &Path, bytes: u64) -> io::Result<Box<dyn OutFile>> {
        let mut state = self.state();
        let fault = state.begin()?;
        let content = *state.names.get(path).ok_or_else(missing)?;
        state.contents[content].0.truncate(bytes as usize);
        state.end(fault, ())?;
        drop(state);
        Ok(self.file(content))
    }
    fn length(&self, path: &Path) -> io::Result<Option<u64>> {
        let mut state = self.state();
        let fault = state.begin()?;
        let length = state.names.get(path).map(|&content| state.contents[content].0.len() as u64);
        state.end(fault, length)
    }
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let mut state = self.state();
        let fault = state.begin()?;
        let content = *state.names.get(path).ok_or_else(missing)?;
        let bytes = state.contents[content].0.clone();
        state.end(fault, bytes)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        let fault = state.begin()?;
        let content = state.names.remove(from).ok_or_else(missing)?;
        state.names.insert(to.to_owned(), content);
        state.end(fault, ())
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        let fault = state.begin()?;
        state.names.remove(path).ok_or_else(missing)?;
        state.end(fault, ())
    }
    fn create_folder(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        let fault = state.begin()?;
        state.folders.extend(path.ancestors().map(Path::to_path_buf));
        state.end(fault, ())
    }
    fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        let mut state = self.state();
        let fault = state.begin()?;
        if !state.folders.contains(path) {
            return Err(missing());
        }
        state.end(fault, path.to_owned())
    }
    fn list(&self, folder: &Path) -> io::Result<Vec<(String, bool)>> {
        let mut state = self.state();
        let fault = state.begin()?;
        if !state.folders.contains(folder) {
            return Err(missing());
        }
        let name =
            |path: &PathBuf| path.file_name().expect("a name").to_string_lossy().into_owned();
        let is_in = |path: &&PathBuf| path.parent() == Some(folder);
        let files = state.names.keys().filter(is_in).map(|path| (name(path), false));
        let folders = state.folders.iter().filter(is_in).map(|path| (name(path), true));
        let mut names: Vec<(String, bool)> = files.chain(folders).collect();
        names.sort_unstable();
        state.end(fault, names)
    }
    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        let mut state = self.state();
        let fault = state.begin()?;
        let is_in = |path: &Path| path.parent() == Some(folder);
        state.durable_names.retain(|path, _| !is_in(path));
        let names: Vec<(PathBuf, usize)> = state
            .names
            .iter()
            .filter(|(path, _)| is_in(path))
            .map(|(p, &c)| (p.clone(), c))
            .collect();
        state.durable_names.extend(names);
        let folders: Vec<PathBuf> =
            state.folders.iter().filter(|path| is_in(path)).cloned().collect();
        state.durable_folders.extend(folders);
        // What is synced lies somewhere: the folders above were there when the test began, or were
        // synced.
        if folder.parent().is_none() {
            state.durable_folders.insert(folder.to_owned());
        }
        state.end(fault, ())
    }
}
