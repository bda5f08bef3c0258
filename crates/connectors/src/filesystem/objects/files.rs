//! An object store as sinks see it.
//!
//! Folders are beginnings of names, so they need not be made and cannot be synced; an object that a
//! call has written is durable. A file that is unfinished is an upload (`upload.rs`), and to rename
//! it is to complete that.
//!
//! Nothing is claimed: a store has no locks. That two jobs do not write one folder is found out by
//! its mark (`marks.rs`) when the second one starts; the names of their parts differ anyway.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use object_store::ObjectStore;
use thalweg_core::connector::Waker;

use super::super::files::{Files, OutFile, PARTIAL, if_there};
use super::client::Objects;
use super::upload::{Upload, discard, final_name, publish};

/// An object store.
pub struct ObjectFiles(Arc<Objects>);

impl ObjectFiles {
    /// The files of this store.
    pub fn new(objects: Arc<Objects>) -> Self {
        ObjectFiles(objects)
    }
}

fn is_unfinished(path: &Path) -> bool {
    path.file_name().is_some_and(|name| final_name(&name.to_string_lossy()).is_some())
}

impl Files for ObjectFiles {
    fn create(&self, path: &Path) -> io::Result<Box<dyn OutFile>> {
        // Names that begin with a dot are new; another may be of a run that has failed.
        if path.to_string_lossy().ends_with(PARTIAL) {
            if_there(discard(&self.0, &self.0.key(path)?))?;
        }
        Ok(Box::new(Upload::new(&self.0, path)?))
    }

    fn reopen(&self, _path: &Path, _bytes: u64) -> io::Result<Box<dyn OutFile>> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "an object cannot be continued"))
    }

    fn replace(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.0.put(&self.0.key(path)?, bytes.to_vec().into())
    }

    fn put_new(&self, path: &Path, bytes: &[u8]) -> io::Result<bool> {
        self.0.put_new(&self.0.key(path)?, bytes.to_vec().into())
    }

    fn length(&self, path: &Path) -> io::Result<Option<u64>> {
        Ok(self.0.head(&self.0.key(path)?)?.map(|found| found.size))
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        Ok(self.0.get(&self.0.key(path)?)?.into())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        publish(&self.0, &self.0.key(from)?, &self.0.key(to)?)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let key = self.0.key(path)?;
        match is_unfinished(path) {
            true => discard(&self.0, &key),
            false => self.0.delete(&key),
        }
    }

    fn create_folder(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        Ok(path.to_owned())
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<(String, bool)>> {
        let (store, key) = (self.0.store.clone(), self.0.key(folder)?);
        let found = self.0.wait(async move { store.list_with_delimiter(Some(&key)).await })?;
        let name = |key: &object_store::path::Path| key.filename().unwrap_or_default().to_owned();
        let files = found.objects.iter().map(|object| (name(&object.location), false));
        let folders = found.common_prefixes.iter().map(|prefix| (name(prefix), true));
        let mut names: Vec<(String, bool)> = files.chain(folders).collect();
        names.sort_unstable();
        Ok(names)
    }

    fn sync_folder(&self, _folder: &Path) -> io::Result<()> {
        Ok(())
    }

    fn canceller(&self) -> Option<Waker> {
        Some(self.0.canceller())
    }
}
