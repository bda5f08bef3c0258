//! Deleting: what was asked for, what has expired, and what unfinished snapshots left behind.
//!
//! A manifest goes first, durably; then the files that nothing needs any more. So a snapshot is
//! there with all its files or it is not there, and what a crash leaves lying is found by the next
//! [`SnapshotStore::clean`].

use std::collections::BTreeSet;

use thalweg_core::{Error, Result};

use super::{Listing, SnapshotStore};
use crate::decide::{self, Files, KeptSnapshot};
use crate::manifest::{self, Manifest};

impl SnapshotStore {
    /// Deletes a snapshot, of any kind and in any state. What others need of it stays.
    ///
    /// # Errors
    /// If there is no such snapshot, and those of the place.
    pub fn delete(&mut self, number: u64) -> Result<()> {
        let listing = self.listing()?;
        if listing.finished.binary_search(&number).is_err() {
            let message = format!("there is no snapshot {number} of job '{}'", self.job);
            return Err(Error::data(message));
        }
        self.retract(number)?;
        self.remove_unneeded(&[number]).map(|_| ())
    }

    /// Deletes snapshots that the engine took by itself, but for this many of the newest of each
    /// kind (at least one), and whatever unfinished ones left behind. Says which went. What is
    /// damaged, cannot be read or was asked for stays.
    ///
    /// # Errors
    /// Those of the place.
    pub fn retain(&mut self, kept_max: usize) -> Result<Vec<u64>> {
        let mut known = Vec::new();
        for number in self.listing()?.finished {
            let kind = self.try_manifest(number)?.ok().map(|manifest| manifest.kind);
            known.push(KeptSnapshot { number, kind, is_damaged: self.damaged.contains(&number) });
        }
        let expired = decide::expired(&known, kept_max);
        for &number in &expired {
            self.retract(number)?;
        }
        self.remove_unneeded(&expired)?;
        Ok(expired)
    }

    /// Deletes the files of snapshots that were never finished and are older than the newest that
    /// was. Says their names.
    ///
    /// # Errors
    /// Those of the place.
    pub fn clean(&mut self) -> Result<Vec<String>> {
        let names = self.remove_unneeded(&[])?;
        Ok(names.iter().map(|name| self.storage.place_of(name)).collect())
    }

    fn retract(&mut self, number: u64) -> Result<()> {
        self.last = self.last.take().filter(|last| last.number != number);
        self.damaged.remove(&number);
        self.storage.retract(&manifest::manifest_name(number))
    }

    /// Removes what nothing needs, these snapshots having been retracted. Their folders go in any
    /// case: one in which nothing had changed has no file there but its manifest.
    fn remove_unneeded(&self, retracted: &[u64]) -> Result<Vec<String>> {
        let names = decide::deletable(&self.files()?, retracted);
        let of_files = names.iter().filter_map(|name| manifest::folder_number(name));
        let folders: BTreeSet<u64> = of_files.chain(retracted.iter().copied()).collect();
        for name in &names {
            self.storage.delete(name)?;
        }
        for folder in folders {
            self.storage.forget_folder(&manifest::folder(folder));
        }
        Ok(names)
    }

    /// Facts for [`decide::deletable`].
    fn files(&self) -> Result<Files> {
        let Listing { entries, finished, .. } = self.listing()?;
        let names = entries.into_iter().map(|entry| entry.name).collect();
        let mut files = Files { names, ..Files::default() };
        for number in finished {
            match self.try_manifest(number)? {
                Ok(manifest) => {
                    files.newest = Some(number);
                    files.needed.insert(manifest::manifest_name(number));
                    files.needed.extend(needed(&manifest));
                }
                Err(_) => files.unreadable.push(number),
            }
        }
        Ok(files)
    }
}

fn needed(manifest: &Manifest) -> impl Iterator<Item = String> {
    manifest.files().map(|file| file.path.clone())
}
