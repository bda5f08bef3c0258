//! Lineages: which snapshots follow from one another.
//!
//! A run that starts from scratch, or goes back to an older snapshot, begins a lineage.
//! `lineages/0000000003.json` says so durably before the run writes its first row, so that a resume
//! never continues what was abandoned: only the snapshots of the lineage with the highest number
//! count for it. Each manifest names the lineage that its snapshot is of.
//!
//! Snapshots that were written without a lineage name none.

use serde::{Deserialize, Serialize};
use thalweg_core::{Error, Result};

use super::{FoundSnapshot, SnapshotStore};
use crate::manifest;

/// The folder of the lineages of a job.
const LINEAGES: &str = "lineages";

/// A lineage, as a job notes it when it begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lineage {
    /// Its name, which no other has.
    pub id: String,
    /// The snapshot that its first run resumed from; without one it started from scratch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// The highest number that a snapshot of the job had when it began: its own have higher ones.
    pub after: u64,
    /// The user let it replace the outputs that it found.
    #[serde(default)]
    pub overwrites: bool,
}

/// The snapshot that a lineage began from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// Its number.
    pub snapshot: u64,
    /// Its folder, if it is of another job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
}

impl Lineage {
    /// The snapshot of the same job that it began from.
    pub fn origin_here(&self) -> Option<u64> {
        let own = self.origin.as_ref().filter(|origin| origin.folder.is_none());
        own.map(|origin| origin.snapshot)
    }
}

impl SnapshotStore {
    /// The lineage that a resume continues; none if no run of this version has begun one.
    ///
    /// # Errors
    /// If it cannot be read, and those of the place.
    pub fn lineage(&self) -> Result<Option<Lineage>> {
        let Some(number) = self.lineages()?.into_iter().max() else { return Ok(None) };
        let name = name_of(number);
        let Some(bytes) = self.storage.get(&name)? else { return Ok(None) };
        let parsed = serde_json::from_slice(&bytes).map_err(|error| {
            Error::data(format!("the lineage of the job makes no sense: {error}"))
                .in_file(self.storage.place_of(&name))
                .hint("resume from a snapshot by its number (`thalweg snapshot ls` lists them), or start from scratch")
        });
        parsed.map(Some)
    }

    /// Begins a lineage, durably. From now on only its snapshots are resumed from.
    ///
    /// # Errors
    /// Those of the place.
    pub fn begin_lineage(&self, lineage: &Lineage) -> Result<()> {
        let before = self.lineages()?;
        let number = before.iter().max().map_or(1, |newest| newest.saturating_add(1));
        let bytes =
            serde_json::to_vec(lineage).map_err(|error| Error::internal(error.to_string()))?;
        self.storage.publish(&name_of(number), bytes.into())?;
        // What an earlier one was is in its manifests.
        before.into_iter().try_for_each(|number| self.storage.delete(&name_of(number)))
    }

    /// The newest snapshot of a lineage that can be used (without one: of those that name none),
    /// and which newer ones cannot and why. Deletes nothing.
    ///
    /// # Errors
    /// Those of the place: what cannot be reached now is not damaged.
    pub fn newest_of(&mut self, lineage: Option<&Lineage>) -> Result<FoundSnapshot> {
        let after = lineage.map_or(0, |lineage| lineage.after);
        let id = lineage.map(|lineage| lineage.id.as_str());
        self.newest_where(|number, found| {
            let is_own = |manifest: &manifest::Manifest| manifest.lineage.as_deref() == id;
            number > after && found.is_none_or(is_own)
        })
    }

    /// The number of the newest snapshot of a lineage whose manifest can be read. No other file is
    /// looked at.
    ///
    /// # Errors
    /// Those of the place.
    pub fn newest_number_of(&self, lineage: Option<&Lineage>) -> Result<Option<u64>> {
        let id = lineage.map(|lineage| lineage.id.as_str());
        for number in self.listing()?.finished.into_iter().rev() {
            let found = self.try_manifest(number)?;
            if found.is_ok_and(|manifest| manifest.lineage.as_deref() == id) {
                return Ok(Some(number));
            }
        }
        Ok(None)
    }

    /// The highest number that a snapshot has which counts; 0 if there is none.
    ///
    /// # Errors
    /// Those of the place.
    pub fn highest_number(&self) -> Result<u64> {
        Ok(self.listing()?.finished.last().copied().unwrap_or(0))
    }

    /// Copies a snapshot with all files that it needs to another place, which has none of them;
    /// there its manifest comes last.
    ///
    /// # Errors
    /// If something is not as it was written, and those of both places.
    pub fn copy_to(&self, number: u64, other: &SnapshotStore) -> Result<()> {
        let manifest = self.manifest(number)?;
        let mut room = Vec::new();
        for file in manifest.files() {
            super::read::load(self.storage.as_ref(), file, &mut room)?;
            other.storage.publish(&file.path, room.clone().into())?;
        }
        let name = manifest::manifest_name(number);
        let bytes = self.storage.get(&name)?.ok_or_else(|| Error::data("the manifest is gone"))?;
        other.storage.publish(&name, bytes)
    }

    /// Deletes all snapshots, whatever they are, manifests first.
    ///
    /// # Errors
    /// Those of the place.
    pub fn clear(&mut self) -> Result<()> {
        let listing = self.listing()?;
        for number in listing.finished {
            self.storage.retract(&manifest::manifest_name(number))?;
        }
        for entry in &listing.entries {
            self.storage.delete(&entry.name)?;
            if let Some(number) = manifest::folder_number(&entry.name) {
                self.storage.forget_folder(&manifest::folder(number));
            }
        }
        self.last = None;
        self.damaged.clear();
        Ok(())
    }

    fn lineages(&self) -> Result<Vec<u64>> {
        let entries = self.storage.list(LINEAGES)?;
        Ok(entries.iter().filter_map(|entry| number_of(&entry.name)).collect())
    }
}

fn name_of(number: u64) -> String {
    format!("{LINEAGES}/{number:010}.json")
}

fn number_of(name: &str) -> Option<u64> {
    let number = name.strip_prefix(LINEAGES)?.strip_prefix('/')?.strip_suffix(".json")?;
    number.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lineage_that_began_last_counts() {
        let store = SnapshotStore::open("memory://lineages", "job").expect("a store");
        assert_eq!(store.lineage().expect("readable"), None);
        for (id, after) in [("a", 0), ("b", 7)] {
            let origin = (after > 0).then_some(Origin { snapshot: after, folder: None });
            let lineage = Lineage { id: id.to_owned(), origin, after, overwrites: after > 0 };
            store.begin_lineage(&lineage).expect("it begins");
            assert_eq!(store.lineage().expect("readable"), Some(lineage));
        }
        assert_eq!(store.lineages().expect("listed"), [2], "the one before is in no way any more");
    }
}
