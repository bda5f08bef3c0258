//! Where the snapshots of a job lie: on this machine, or in an object store that is reached as
//! files of tables there are.

use thalweg_connectors::filesystem::object_store_of;
use thalweg_core::Result;
use thalweg_core::connector::Access;
use thalweg_state::SnapshotStore;

/// The snapshots of a job at a location: a directory, `file://…`, `memory://NAME`, or the URL of an
/// object store that can be written.
///
/// # Errors
/// If the location is of no known kind, this build does not speak to it or may not, or the job has
/// no name.
pub fn open_snapshots(location: &str, job: &str, access: &Access) -> Result<SnapshotStore> {
    match object_store_of(access, location)? {
        Some(store) => SnapshotStore::in_store(store, location, job),
        None => SnapshotStore::open(location, job),
    }
}
