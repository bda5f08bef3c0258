//! Where the bytes of snapshots lie.
//!
//! [`Storage`] is what the store asks of a place; names are relative to the job and separated by
//! `/`. There are two: a directory of this machine ([`LocalStorage`]), which is written so that it
//! survives a loss of power, and any object store ([`ObjectStorage`]). `object_store` has a local
//! store of its own, which is not used: it renames into place but never calls fsync, so that a file
//! may be empty after the power failed.

mod local;
mod location;
mod objects;

use bytes::Bytes;
use thalweg_core::Result;

pub use local::{FileSystem, LocalStorage, SystemFiles};
#[doc(hidden)]
pub use location::offer_files;
pub use objects::ObjectStorage;

pub(crate) use location::{in_store, job_name, jobs, open};

/// Something that a listing found.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StoredFile {
    /// Its name, relative to the job.
    pub name: String,
    /// Its size.
    pub bytes: u64,
}

/// A place that keeps files under names. Every call blocks until it is done.
pub trait Storage: Send + Sync {
    /// How a user finds what has this name.
    fn place_of(&self, name: &str) -> String;

    /// Keeps bytes under a name that nobody reads yet. Where it fails, anything may stand under the
    /// name.
    ///
    /// # Errors
    /// Those of the place.
    fn put(&self, name: &str, bytes: Bytes) -> Result<()>;

    /// Makes everything in the folder of `name` durable, then makes `name` appear with all its
    /// bytes or not at all, durably. What stands under that name already is not replaced.
    ///
    /// # Errors
    /// Those of the place; the name may stand there nevertheless.
    fn publish(&self, name: &str, bytes: Bytes) -> Result<()>;

    /// The bytes under a name; `None` if there is no such name.
    ///
    /// # Errors
    /// Those of the place.
    fn get(&self, name: &str) -> Result<Option<Bytes>>;

    /// The same in place of what `room` held, whose memory is used again where that can be. False
    /// if there is no such name.
    ///
    /// # Errors
    /// As [`Storage::get`].
    fn get_into(&self, name: &str, room: &mut Vec<u8>) -> Result<bool> {
        let found = self.get(name)?;
        let is_there = found.is_some();
        *room = found.unwrap_or_default().into();
        Ok(is_there)
    }

    /// Everything whose name begins with `folder/`, in order of names.
    ///
    /// # Errors
    /// Those of the place.
    fn list(&self, folder: &str) -> Result<Vec<StoredFile>>;

    /// Does away with a name. It may be gone already.
    ///
    /// # Errors
    /// Those of the place.
    fn delete(&self, name: &str) -> Result<()>;

    /// Does away with a name that was published, durably. It may be gone already.
    ///
    /// # Errors
    /// Those of the place.
    fn retract(&self, name: &str) -> Result<()>;

    /// Does away with a folder, if it is empty and the place has folders.
    fn forget_folder(&self, folder: &str);
}
