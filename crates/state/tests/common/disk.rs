//! A disk in memory that fails as disks do.
//!
//! # Fault model
//! - Any call can fail, leave half of the bytes, find no room, or be the last one before the
//!   process dies: from then on every call fails. The calls are counted from [`Disk::arm`] on.
//! - [`Disk::lose_power`] forgets what was not made durable: names that no sync of their folder has
//!   followed. Bytes are durable once a write has returned, since writing includes fsync; those of
//!   a write that failed may be there in part.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use thalweg_state::storage::FileSystem;

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The call fails and does nothing.
    Error,
    /// A write leaves half of its bytes and fails; other calls fail.
    ShortWrite,
    /// A write leaves half of its bytes and reports success; other calls do as they should.
    SilentShortWrite,
    /// The disk is full.
    NoSpace,
    /// The process dies before the call.
    CrashBefore,
    /// The process dies right after the call.
    CrashAfter,
    /// The process dies in the middle of a write; before any other call.
    CrashWithin,
}

pub const FAULTS: [Fault; 7] = [
    Fault::Error,
    Fault::ShortWrite,
    Fault::SilentShortWrite,
    Fault::NoSpace,
    Fault::CrashBefore,
    Fault::CrashAfter,
    Fault::CrashWithin,
];

#[derive(Clone, Default)]
struct Names {
    files: BTreeMap<PathBuf, Vec<u8>>,
    folders: BTreeSet<PathBuf>,
}

#[derive(Default)]
struct State {
    now: Names,
    durable: Names,
    calls: usize,
    fault: Option<(usize, Fault)>,
    is_dead: bool,
}

/// A disk. Clones are the same disk.
#[derive(Clone, Default)]
pub struct Disk(Arc<Mutex<State>>);

impl Disk {
    /// A disk with a folder.
    pub fn with_folder(folder: &Path) -> Disk {
        let folders = folder.ancestors().map(Path::to_owned).collect();
        let names = Names { folders, ..Names::default() };
        let state = State { now: names.clone(), durable: names, ..State::default() };
        Disk(Arc::new(Mutex::new(state)))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no test panics while it holds the disk")
    }

    /// Another disk with the same on it.
    pub fn copy(&self) -> Disk {
        let state = self.state();
        let (now, durable) = (state.now.clone(), state.durable.clone());
        drop(state);
        Disk(Arc::new(Mutex::new(State { now, durable, ..State::default() })))
    }

    /// Counts calls from here; the one with this number (from 0) goes wrong.
    pub fn arm(&self, fault: Option<(usize, Fault)>) {
        let mut state = self.state();
        (state.calls, state.fault, state.is_dead) = (0, fault, false);
    }

    /// How many calls there were since.
    pub fn calls(&self) -> usize {
        self.state().calls
    }

    /// The machine goes off and on.
    pub fn lose_power(&self) {
        let mut state = self.state();
        let mut left = state.durable.clone();
        // What lies in a folder whose own name is lost cannot be reached.
        let folders = left.folders.clone();
        let is_reached = |path: &Path| path.ancestors().skip(1).all(|own| folders.contains(own));
        left.files.retain(|path, _| is_reached(path));
        left.folders.retain(|path| is_reached(path));
        (state.now, state.durable) = (left.clone(), left);
    }

    /// All files with their bytes.
    pub fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        self.state().now.files.clone()
    }

    /// Changes a file behind everybody's back.
    pub fn overwrite(&self, path: &Path, bytes: Option<Vec<u8>>) {
        let mut state = self.state();
        for names in [true, false] {
            let names = if names { &mut state.now } else { &mut state.durable };
            match &bytes {
                Some(bytes) => names.files.insert(path.to_owned(), bytes.clone()),
                None => names.files.remove(path),
            };
        }
    }

    /// Counts a call, which may go wrong. `Ok(true)`: do it, then fail.
    fn call(&self, bytes: Option<(&Path, &[u8])>) -> io::Result<Doing> {
        let mut state = self.state();
        if state.is_dead {
            return Err(io::Error::other("the process is dead"));
        }
        let is_hit = state.fault.is_some_and(|(at, _)| at == state.calls);
        state.calls += 1;
        let Some((_, fault)) = state.fault.filter(|_| is_hit) else { return Ok(Doing::All) };
        let mut leave_half = || {
            if let Some((path, bytes)) = bytes {
                let half = bytes[..bytes.len() / 2].to_vec();
                state.now.files.insert(path.to_owned(), half);
            }
        };
        let failed = match fault {
            Fault::Error => io::Error::other("the disk failed"),
            Fault::ShortWrite => {
                leave_half();
                io::Error::other("the disk failed in the middle")
            }
            Fault::SilentShortWrite => {
                leave_half();
                return Ok(if bytes.is_some() { Doing::Nothing } else { Doing::All });
            }
            Fault::NoSpace => {
                leave_half();
                io::Error::from(io::ErrorKind::StorageFull)
            }
            Fault::CrashAfter => {
                return Ok(Doing::AllThenDie);
            }
            Fault::CrashBefore | Fault::CrashWithin => {
                if fault == Fault::CrashWithin {
                    leave_half();
                }
                state.is_dead = true;
                io::Error::other("the process died")
            }
        };
        Err(failed)
    }

    fn done(&self, doing: Doing) -> io::Result<()> {
        if doing == Doing::AllThenDie {
            self.state().is_dead = true;
            return Err(io::Error::other("the process died"));
        }
        Ok(())
    }

    fn change(&self, change: impl FnOnce(&mut State) -> io::Result<()>) -> io::Result<()> {
        let doing = self.call(None)?;
        change(&mut self.state())?;
        self.done(doing)
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Doing {
    All,
    AllThenDie,
    Nothing,
}

fn not_found() -> io::Error {
    io::Error::from(io::ErrorKind::NotFound)
}

impl FileSystem for Disk {
    fn create_folder(&self, path: &Path) -> io::Result<()> {
        self.change(|state| {
            let parent = path.parent().expect("not the root");
            if !state.now.folders.contains(parent) {
                return Err(not_found());
            }
            state.now.folders.insert(path.to_owned());
            Ok(())
        })
    }
    fn write_synced(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let doing = self.call(Some((path, bytes)))?;
        let mut state = self.state();
        if !state.now.folders.contains(path.parent().expect("not the root")) {
            return Err(not_found());
        }
        if doing != Doing::Nothing {
            state.now.files.insert(path.to_owned(), bytes.to_vec());
        }
        // A name that is durable already gets the new bytes.
        if state.durable.files.contains_key(path) {
            let bytes = state.now.files[path].clone();
            state.durable.files.insert(path.to_owned(), bytes);
        }
        drop(state);
        self.done(doing)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.change(|state| {
            let bytes = state.now.files.remove(from).ok_or_else(not_found)?;
            state.now.files.insert(to.to_owned(), bytes);
            Ok(())
        })
    }
    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        self.change(|state| {
            if !state.now.folders.contains(path) {
                return Err(not_found());
            }
            let is_in = |own: &Path| own.parent() == Some(path);
            let State { now, durable, .. } = state;
            durable.files.retain(|own, _| !is_in(own));
            durable.folders.retain(|own| !is_in(own));
            let files = now.files.iter().filter(|(own, _)| is_in(own));
            durable.files.extend(files.map(|(own, bytes)| (own.clone(), bytes.clone())));
            durable.folders.extend(now.folders.iter().filter(|own| is_in(own)).cloned());
            Ok(())
        })
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.change(|state| state.now.files.remove(path).map(|_| ()).ok_or_else(not_found))
    }
    fn remove_folder(&self, path: &Path) -> io::Result<()> {
        self.change(|state| {
            let mut inside = state.now.files.keys().chain(&state.now.folders);
            if inside.any(|own| own.parent() == Some(path)) {
                return Err(io::Error::from(io::ErrorKind::DirectoryNotEmpty));
            }
            state.now.folders.remove(path);
            Ok(())
        })
    }
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let doing = self.call(None)?;
        let bytes = self.state().now.files.get(path).cloned().ok_or_else(not_found)?;
        self.done(doing).map(|()| bytes)
    }
    fn list(&self, path: &Path) -> io::Result<Vec<(PathBuf, Option<u64>)>> {
        let doing = self.call(None)?;
        let state = self.state();
        if !state.now.folders.contains(path) {
            return Err(not_found());
        }
        let is_in = |own: &&PathBuf| own.parent() == Some(path);
        let folders = state.now.folders.iter().filter(is_in).map(|own| (own.clone(), None));
        let files = state.now.files.iter().filter(|(own, _)| is_in(own));
        let files = files.map(|(own, bytes)| (own.clone(), Some(bytes.len() as u64)));
        let all = folders.chain(files).collect();
        drop(state);
        self.done(doing).map(|()| all)
    }
    fn exists(&self, path: &Path) -> io::Result<bool> {
        let doing = self.call(None)?;
        let state = self.state();
        let exists = state.now.folders.contains(path) || state.now.files.contains_key(path);
        drop(state);
        self.done(doing).map(|()| exists)
    }
}
