//! The system calls of writing, behind a trait, so that tests can fail each of them and see what a
//! crash or a power failure leaves.
//!
//! What counts as durable: the contents of a file after [`OutFile::sync`], the names in a folder
//! (new files, renames, removals) after [`Files::sync_folder`]. A rename is atomic.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use thalweg_core::Result;
use thalweg_core::connector::Waker;
use thalweg_core::shim::unique_name;

use super::claim::Claim;

/// The suffix of output that is not complete.
pub const PARTIAL: &str = ".partial";

/// A file that is being written.
pub trait OutFile: Write + Send {
    /// Makes everything that was written durable.
    fn sync(&mut self) -> io::Result<()>;
}

/// What a sink asks of a file system.
pub trait Files: Send + Sync {
    /// Creates a file, replacing one of that name. A symbolic link is replaced, never followed.
    fn create(&self, path: &Path) -> io::Result<Box<dyn OutFile>>;
    /// Opens a file to continue behind its first bytes; what lies behind them is cut off.
    fn reopen(&self, path: &Path, bytes: u64) -> io::Result<Box<dyn OutFile>>;
    /// The length of a file in bytes; `None` if there is none.
    fn length(&self, path: &Path) -> io::Result<Option<u64>>;
    /// What a file holds.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;
    /// Gives a file another name, replacing one that has it.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Creates a folder and those it lies in.
    fn create_folder(&self, path: &Path) -> io::Result<()>;
    /// The path of a folder with symbolic links followed.
    fn canonical(&self, path: &Path) -> io::Result<PathBuf>;
    /// The names in a folder, each with whether it is a folder (not a link to one), sorted.
    fn list(&self, folder: &Path) -> io::Result<Vec<(String, bool)>>;
    /// Makes the names in a folder durable.
    fn sync_folder(&self, folder: &Path) -> io::Result<()>;
    /// Puts a file in its place, durably. Whatever fails, the one before or this one is there.
    fn replace(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let new = with_ending(path, ".new");
        let replaced = || -> io::Result<()> {
            let mut file = self.create(&new)?;
            file.write_all(bytes)?;
            file.sync()?;
            drop(file);
            self.rename(&new, path)?;
            self.sync_folder(path.parent().unwrap_or(Path::new("/")))
        };
        replaced().inspect_err(|_| {
            // Best effort: a start that is refused leaves nothing.
            let _ = self.remove(&new);
        })
    }
    /// Puts a file in its place, durably, where there is none: with all its bytes, or not at all.
    /// False if there is one that others have made.
    fn put_new(&self, path: &Path, bytes: &[u8]) -> io::Result<bool> {
        let _ = (path, bytes);
        Err(io::Error::from(io::ErrorKind::Unsupported))
    }
    /// What makes calls end that wait for a server.
    fn canceller(&self) -> Option<Waker> {
        None
    }
    /// Claims a file ([`Claim::file`]). Where no other process can come there is nothing to claim.
    fn claim_file(&self, what: &str, path: &Path) -> Result<Claim> {
        let _ = (what, path);
        Ok(Claim::default())
    }
    /// Claims a folder ([`Claim::folder`]), as [`Files::claim_file`] does.
    fn claim_folder(&self, what: &str, folder: &Path) -> Result<Claim> {
        let _ = (what, folder);
        Ok(Claim::default())
    }
}

/// The operating system's.
pub struct OsFiles;

impl OutFile for File {
    fn sync(&mut self) -> io::Result<()> {
        self.sync_all()
    }
}

impl OutFile for io::Stdout {
    /// Whoever reads it decides what becomes durable.
    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Files for OsFiles {
    fn create(&self, path: &Path) -> io::Result<Box<dyn OutFile>> {
        Ok(Box::new(create_new(path)?))
    }
    fn reopen(&self, path: &Path, bytes: u64) -> io::Result<Box<dyn OutFile>> {
        let mut file = OpenOptions::new().write(true).open(path)?;
        file.set_len(bytes)?;
        file.seek(SeekFrom::End(0))?;
        Ok(Box::new(file))
    }
    fn length(&self, path: &Path) -> io::Result<Option<u64>> {
        let found = if_there(fs::symlink_metadata(path))?;
        Ok(found.filter(fs::Metadata::is_file).map(|metadata| metadata.len()))
    }
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        fs::read(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }
    fn create_folder(&self, path: &Path) -> io::Result<()> {
        fs::create_dir_all(path)
    }
    fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        path.canonicalize()
    }
    fn list(&self, folder: &Path) -> io::Result<Vec<(String, bool)>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            names.push((name, entry.file_type()?.is_dir()));
        }
        names.sort_unstable();
        Ok(names)
    }
    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        File::open(folder)?.sync_all()
    }
    fn put_new(&self, path: &Path, bytes: &[u8]) -> io::Result<bool> {
        let new = with_ending(path, &format!(".{}.new", unique_name()));
        let put = || -> io::Result<bool> {
            let mut file = self.create(&new)?;
            file.write_all(bytes)?;
            file.sync()?;
            // Unlike a rename a link replaces nothing.
            match fs::hard_link(&new, path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
                linked => linked.map(|()| true),
            }
        };
        let is_put = put();
        let _ = self.remove(&new);
        self.sync_folder(path.parent().unwrap_or(Path::new("/")))?;
        is_put
    }
    fn claim_file(&self, what: &str, path: &Path) -> Result<Claim> {
        Claim::file(what, path)
    }
    fn claim_folder(&self, what: &str, folder: &Path) -> Result<Claim> {
        Claim::folder(what, folder)
    }
}

/// Makes it durable that a folder is there: also one that an earlier run has made and not synced,
/// so every folder above it is synced. Those that may not be read were not made by us.
pub fn sync_above(files: &dyn Files, folder: &Path) -> io::Result<()> {
    for above in folder.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty()) {
        match files.sync_folder(above) {
            Err(error) if error.kind() != io::ErrorKind::PermissionDenied => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// What was found, or done; `None` where nothing is there.
pub fn if_there<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        found => found.map(Some),
    }
}

/// The path with this behind its name.
pub fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

/// Creates a file, replacing one of that name. A symbolic link is replaced, never followed.
pub fn create_new(path: &Path) -> io::Result<File> {
    if_there(fs::remove_file(path))?;
    OpenOptions::new().write(true).create_new(true).open(path)
}

/// Reads what comes, also if a signal comes first.
pub fn read_retrying(reader: &mut dyn Read, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match reader.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}
