//! A directory of this machine, written so that what was reported as done survives a loss of power.
//!
//! # Protocol
//! `put` writes a file and calls fsync on it before it returns; its name need not be durable yet.
//! `publish` makes a name appear:
//! 1. fsync of the folder and of those above it: the names of all files before it are durable;
//! 2. the bytes go to `NAME.unfinished`, with fsync;
//! 3. rename to `NAME`, which POSIX promises to be atomic;
//! 4. fsync of the folder: the name is durable.
//!
//! After a crash at any point, `NAME` is there with all its bytes and all files that were put
//! before, or it is not there. Only calls of [`FileSystem`] touch the disk, so that tests can fail
//! each of them.
//!
//! # What is trusted
//! That fsync keeps its word and that rename within one folder is atomic. A disk that lies is found
//! by the checksums.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use thalweg_core::{Error, Result};

use super::{Storage, StoredFile};

/// What a file is called until it has all its bytes.
const UNFINISHED: &str = ".unfinished";

/// The calls of the operating system that snapshots need.
pub trait FileSystem: Send + Sync {
    /// Makes a folder below one that is there. It may be there already.
    fn create_folder(&self, path: &Path) -> io::Result<()>;
    /// Creates or replaces a file, and makes its bytes durable.
    fn write_synced(&self, path: &Path, bytes: &[u8]) -> io::Result<()>;
    /// Gives a file another name in the same folder, at once and in the place of what has it.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Makes the names in a folder durable.
    fn sync_folder(&self, path: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Removes an empty folder.
    fn remove_folder(&self, path: &Path) -> io::Result<()>;
    /// Reads a whole file.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;
    /// Reads a whole file in place of what `room` held.
    fn read_into(&self, path: &Path, room: &mut Vec<u8>) -> io::Result<()> {
        *room = self.read(path)?;
        Ok(())
    }
    /// What lies in a folder: the paths of its folders, and those of its files with their sizes.
    fn list(&self, path: &Path) -> io::Result<Vec<(PathBuf, Option<u64>)>>;
    /// True if there is something at this path.
    fn exists(&self, path: &Path) -> io::Result<bool>;
}

/// The operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemFiles;

impl FileSystem for SystemFiles {
    fn create_folder(&self, path: &Path) -> io::Result<()> {
        match fs::create_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
            done => done,
        }
    }
    fn write_synced(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut file = File::create(path)?;
        file.write_all(bytes)?;
        file.sync_all()
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }
    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        // Only Unix lets a folder be opened and synced; elsewhere a rename is as durable as it
        // gets.
        if cfg!(unix) { File::open(path)?.sync_all() } else { Ok(()) }
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }
    fn remove_folder(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        fs::read(path)
    }
    fn read_into(&self, path: &Path, room: &mut Vec<u8>) -> io::Result<()> {
        room.clear();
        // Makes room for all of the file first.
        File::open(path)?.read_to_end(room).map(drop)
    }
    fn list(&self, path: &Path) -> io::Result<Vec<(PathBuf, Option<u64>)>> {
        let size = |entry: fs::DirEntry| {
            let metadata = entry.metadata()?;
            Ok((entry.path(), (!metadata.is_dir()).then_some(metadata.len())))
        };
        fs::read_dir(path)?.map(|entry| size(entry?)).collect()
    }
    fn exists(&self, path: &Path) -> io::Result<bool> {
        path.try_exists()
    }
}

/// The directory of a job.
pub struct LocalStorage {
    root: PathBuf,
    files: Arc<dyn FileSystem>,
    /// The names of the folders down to `root` are durable.
    is_rooted: AtomicBool,
}

impl LocalStorage {
    /// Storage in this directory, which need not be there yet.
    pub fn new(root: PathBuf, files: Arc<dyn FileSystem>) -> Self {
        LocalStorage { root, files, is_rooted: AtomicBool::new(false) }
    }

    /// Makes `name` have these bytes in the place of those that it had, durably: after a crash it
    /// has all of the old ones or all of the new ones. One caller at a time for each name.
    ///
    /// # Errors
    /// Those of the disk; the name may have either then.
    pub fn replace(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let path = self.path(name);
        let folder = folder_of(&path);
        self.create_folders(folder)?;
        self.sync_folders(folder)?;
        self.write_and_rename(name, &path, bytes)
    }

    fn write_and_rename(&self, name: &str, path: &Path, bytes: &[u8]) -> Result<()> {
        let unfinished = self.path(&format!("{name}{UNFINISHED}"));
        self.write(&unfinished, bytes)?;
        let renamed = self.files.rename(&unfinished, path);
        renamed.map_err(|error| failed("rename into place", path, &error))?;
        self.sync(folder_of(path))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Makes the folder and those above it that are not there.
    fn create_folders(&self, folder: &Path) -> Result<()> {
        if self.files.exists(folder).map_err(|error| failed("look at", folder, &error))? {
            return Ok(());
        }
        if let Some(parent) = folder.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            self.create_folders(parent)?;
        }
        self.files.create_folder(folder).map_err(|error| failed("make the folder", folder, &error))
    }

    fn sync(&self, folder: &Path) -> Result<()> {
        self.files.sync_folder(folder).map_err(|error| failed("sync the folder", folder, &error))
    }

    /// Makes the names of a folder durable and those of the folders above it: they may have been
    /// made by a run that died before it could do that. Those above the job's are looked after
    /// once.
    fn sync_folders(&self, folder: &Path) -> Result<()> {
        for own in folder.ancestors().take_while(|path| path.starts_with(&self.root)) {
            self.sync(own)?;
        }
        // Relaxed: who comes too early does it once more.
        if !self.is_rooted.load(Ordering::Relaxed) {
            for above in self.root.ancestors().skip(1).filter(|path| !path.as_os_str().is_empty()) {
                match self.files.sync_folder(above) {
                    // Another process's folder, which was there before.
                    Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
                    synced => synced.map_err(|error| failed("sync the folder", above, &error))?,
                }
            }
            self.is_rooted.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> Result<()> {
        let wrote = self.files.write_synced(path, bytes);
        wrote.map_err(|error| failed("write", path, &error))
    }

    fn collect(&self, folder: &Path, found: &mut Vec<StoredFile>) -> Result<()> {
        let entries = match self.files.list(folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(failed("list", folder, &error)),
        };
        for (path, bytes) in entries {
            match (bytes, path.strip_prefix(&self.root)) {
                (None, _) => self.collect(&path, found)?,
                (Some(bytes), Ok(own)) => {
                    let parts: Vec<_> = own.iter().map(|part| part.to_string_lossy()).collect();
                    found.push(StoredFile { name: parts.join("/"), bytes });
                }
                (Some(_), Err(_)) => {}
            }
        }
        Ok(())
    }
}

impl Storage for LocalStorage {
    fn place_of(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    fn put(&self, name: &str, bytes: Bytes) -> Result<()> {
        let path = self.path(name);
        self.create_folders(folder_of(&path))?;
        self.write(&path, &bytes)
    }

    fn publish(&self, name: &str, bytes: Bytes) -> Result<()> {
        let path = self.path(name);
        let folder = folder_of(&path);
        self.create_folders(folder)?;
        self.sync_folders(folder)?;
        let exists = self.files.exists(&path).map_err(|error| failed("look at", &path, &error))?;
        if exists {
            return Err(Error::io(format!("{} is there already", path.display()))
                .hint("another run writes into the same directory: give each job one of its own"));
        }
        self.write_and_rename(name, &path, &bytes)
    }

    fn get(&self, name: &str) -> Result<Option<Bytes>> {
        let path = self.path(name);
        match self.files.read(&path) {
            Ok(bytes) => Ok(Some(bytes.into())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed("read", &path, &error)),
        }
    }

    fn get_into(&self, name: &str, room: &mut Vec<u8>) -> Result<bool> {
        let path = self.path(name);
        match self.files.read_into(&path, room) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(failed("read", &path, &error)),
        }
    }

    fn list(&self, folder: &str) -> Result<Vec<StoredFile>> {
        let mut found = Vec::new();
        self.collect(&self.path(folder), &mut found)?;
        found.sort();
        Ok(found)
    }

    fn delete(&self, name: &str) -> Result<()> {
        let path = self.path(name);
        match self.files.remove(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(failed("remove", &path, &error))
            }
            _ => Ok(()),
        }
    }

    fn retract(&self, name: &str) -> Result<()> {
        self.delete(name)?;
        self.sync(folder_of(&self.path(name)))
    }

    fn forget_folder(&self, folder: &str) {
        // It may hold something, or be gone: either is fine, and it is tried again the next time.
        let _ = self.files.remove_folder(&self.path(folder));
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().unwrap_or(path)
}

fn failed(what: &str, path: &Path, error: &io::Error) -> Error {
    let message = format!("cannot {what} {}: {error}", path.display());
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Error::io(message)
            .hint("there is no room for snapshots: make some, or set another 'execution.checkpointing.dir'"),
        io::ErrorKind::PermissionDenied => {
            Error::io(message).hint("let this user write there, or set another 'execution.checkpointing.dir'")
        }
        _ => Error::io(message).hint("look at the disk that 'execution.checkpointing.dir' names"),
    }
}
