//! Any object store: memory, S3 and what speaks like it.
//!
//! An object appears with all its bytes or not at all, and is durable when the store says so; that
//! is all that `publish` needs. It puts an object only where there is none (a conditional put), so
//! that of two runs which write the same snapshot one is refused.
//!
//! The crate is asynchronous, the engine is not: this is the one place that waits for it, on a
//! small runtime that has no thread of its own. So these calls must not be made from within another
//! such runtime.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::TryStreamExt;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode};
use thalweg_core::{Error, Result};
use tokio::runtime::{Builder, Runtime};

use super::{Storage, StoredFile};

/// A part of an object store.
pub struct ObjectStorage {
    objects: Arc<dyn ObjectStore>,
    /// How a user names the store, without a slash at its end.
    location: String,
    /// What all names begin with.
    prefix: Path,
    runtime: Runtime,
}

impl ObjectStorage {
    /// What lies below `prefix`. `location` is how a user names that place.
    ///
    /// # Errors
    /// If no runtime can be made, which is the operating system's fault.
    pub fn new(objects: Arc<dyn ObjectStore>, location: &str, prefix: &str) -> Result<Self> {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| Error::io(format!("cannot wait for an object store: {error}")))?;
        let location = location.trim_end_matches('/').to_owned();
        Ok(ObjectStorage { objects, location, prefix: Path::from(prefix), runtime })
    }

    fn path(&self, name: &str) -> Path {
        name.split('/').fold(self.prefix.clone(), |path, part| path.join(part))
    }

    fn failed(&self, what: &str, name: &str, error: &object_store::Error) -> Error {
        use object_store::Error as E;
        let message = format!("cannot {what} {}: {error}", self.place_of(name));
        match error {
            E::PermissionDenied { .. } | E::Unauthenticated { .. } => Error::io(message)
                .hint("the credentials (for S3: AWS_ACCESS_KEY_ID and its like) must allow it"),
            _ => Error::io(message)
                .hint("look at the store that 'execution.checkpointing.dir' names"),
        }
    }
}

impl Storage for ObjectStorage {
    fn place_of(&self, name: &str) -> String {
        format!("{}/{name}", self.location)
    }

    fn put(&self, name: &str, bytes: Bytes) -> Result<()> {
        let put = self.runtime.block_on(self.objects.put(&self.path(name), bytes.into()));
        put.map(|_| ()).map_err(|error| self.failed("write", name, &error))
    }

    fn publish(&self, name: &str, bytes: Bytes) -> Result<()> {
        let path = self.path(name);
        let put = self.objects.put_opts(&path, bytes.clone().into(), PutMode::Create.into());
        match self.runtime.block_on(put) {
            Ok(_) => Ok(()),
            // An answer may be lost and the put made again: then it is our own object that is in
            // the way.
            Err(object_store::Error::AlreadyExists { .. }) if self.get(name)? == Some(bytes) => {
                Ok(())
            }
            Err(object_store::Error::AlreadyExists { .. }) => {
                let message = format!("{} is there already", self.place_of(name));
                Err(Error::io(message).hint(
                    "another run writes to the same place: give each job a name or a place of its own",
                ))
            }
            Err(error) => Err(self.failed("write", name, &error)),
        }
    }

    fn get(&self, name: &str) -> Result<Option<Bytes>> {
        let path = self.path(name);
        let bytes = async { self.objects.get(&path).await?.bytes().await };
        match self.runtime.block_on(bytes) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.failed("read", name, &error)),
        }
    }

    fn list(&self, folder: &str) -> Result<Vec<StoredFile>> {
        let path = self.path(folder);
        let objects = self.runtime.block_on(self.objects.list(Some(&path)).try_collect::<Vec<_>>());
        let objects = objects.map_err(|error| self.failed("list", folder, &error))?;
        let mut found = Vec::new();
        for object in objects {
            if let Some(own) = object.location.prefix_match(&self.prefix) {
                let parts: Vec<_> = own.map(|part| part.as_ref().to_owned()).collect();
                found.push(StoredFile { name: parts.join("/"), bytes: object.size });
            }
        }
        found.sort();
        Ok(found)
    }

    fn delete(&self, name: &str) -> Result<()> {
        match self.runtime.block_on(self.objects.delete(&self.path(name))) {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(self.failed("delete", name, &error)),
        }
    }

    fn retract(&self, name: &str) -> Result<()> {
        self.delete(name)
    }

    fn forget_folder(&self, _folder: &str) {}
}
