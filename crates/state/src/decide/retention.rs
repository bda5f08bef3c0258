//! Which snapshots go, and which files.
//!
//! - A periodic snapshot goes when there are enough newer periodic ones, the last one of a run when
//!   there are enough newer last ones: a server that stops its jobs each night must not fill the
//!   disk. Those that a user has asked for stay until a user deletes them.
//! - One that is known to be damaged, or that cannot be read, neither goes nor counts as one of the
//!   newer ones.
//! - A file goes when nothing that is kept can need it. A manifest that cannot be read may need any
//!   file of its own folder and of older ones.
//! - Nothing newer than the newest readable snapshot goes: it may be one that is being written.

use std::collections::BTreeSet;

use crate::SnapshotKind;
use crate::manifest::folder_number;

/// A snapshot that counted, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptSnapshot {
    /// Its number.
    pub number: u64,
    /// Why it was taken; `None` if its manifest cannot be read.
    pub kind: Option<SnapshotKind>,
    /// Something of it is known to be damaged.
    pub is_damaged: bool,
}

/// The numbers of the snapshots to delete, ascending, if this many of each kind are to be kept (at
/// least one) that the engine takes by itself.
pub fn expired(snapshots: &[KeptSnapshot], kept_max: usize) -> Vec<u64> {
    let of_kind = |kind: SnapshotKind| {
        let goes = |own: &&KeptSnapshot| own.kind == Some(kind) && !own.is_damaged;
        let mut numbers: Vec<u64> = snapshots.iter().filter(goes).map(|own| own.number).collect();
        numbers.sort_unstable();
        numbers.truncate(numbers.len().saturating_sub(kept_max.max(1)));
        numbers
    };
    let mut expired = [of_kind(SnapshotKind::Periodic), of_kind(SnapshotKind::Final)].concat();
    expired.sort_unstable();
    expired
}

/// Everything that lies among the snapshots of a job.
#[derive(Clone, Debug, Default)]
pub struct Files {
    /// The names of all files.
    pub names: Vec<String>,
    /// The names of files that readable manifests name, and of those manifests.
    pub needed: BTreeSet<String>,
    /// The number of the newest readable snapshot.
    pub newest: Option<u64>,
    /// The numbers of manifests that cannot be read.
    pub unreadable: Vec<u64>,
}

/// The names of the files that nothing needs. `deleted` are snapshots that have just been deleted:
/// what lies in their folders is known to be of no use.
pub fn deletable(files: &Files, deleted: &[u64]) -> Vec<String> {
    let goes = |name: &&String| {
        let Some(number) = folder_number(name) else { return false };
        let is_known =
            files.newest.is_some_and(|newest| number <= newest) || deleted.contains(&number);
        let may_be_needed = files.unreadable.iter().any(|unreadable| *unreadable >= number);
        is_known && !may_be_needed && !files.needed.contains(*name)
    };
    files.names.iter().filter(goes).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(number: u64, kind: Option<SnapshotKind>) -> KeptSnapshot {
        KeptSnapshot { number, kind, is_damaged: false }
    }

    #[test]
    fn the_newest_of_each_kind_stay_and_those_asked_for() {
        let periodic = |number| kept(number, Some(SnapshotKind::Periodic));
        let last = |number| kept(number, Some(SnapshotKind::Final));
        let damaged = KeptSnapshot { is_damaged: true, ..periodic(6) };
        let snapshots = [
            periodic(1),
            kept(2, Some(SnapshotKind::Manual)),
            periodic(3),
            kept(4, None),
            periodic(5),
            damaged,
            last(7),
            last(8),
        ];
        for (kept_max, gone) in
            [(3, vec![]), (2, vec![1]), (1, vec![1, 3, 7]), (0, vec![1, 3, 7]), (9, vec![])]
        {
            assert_eq!(expired(&snapshots, kept_max), gone, "{kept_max}");
        }
    }

    #[test]
    fn only_files_that_nothing_can_need_go() {
        let name = |number: u64, file: &str| format!("snapshots/{number:010}/{file}");
        let names = vec![
            name(1, "base.arrow"),
            name(1, "old.arrow"),
            name(2, "half.arrow"),
            name(3, "manifest.json"),
            name(3, "changes.arrow"),
            name(3, "left-over.arrow"),
            name(4, "being-written.arrow"),
            "snapshots/notes.txt".to_owned(),
            "lock".to_owned(),
        ];
        let needed = [name(1, "base.arrow"), name(3, "manifest.json"), name(3, "changes.arrow")];
        let files = Files { names, needed: needed.into(), newest: Some(3), unreadable: vec![] };
        let gone = [name(1, "old.arrow"), name(2, "half.arrow"), name(3, "left-over.arrow")];
        assert_eq!(deletable(&files, &[]), gone);
        assert_eq!(deletable(&files, &[4]).last(), Some(&name(4, "being-written.arrow")));
        let with_unreadable = Files { unreadable: vec![2], ..files.clone() };
        assert_eq!(deletable(&with_unreadable, &[]), [name(3, "left-over.arrow")]);
        let without_any = Files { newest: None, ..files };
        assert!(deletable(&without_any, &[]).is_empty());
    }
}
