//! Finds rows by what they hold: for the rows of long chains, a table from the hash of all columns
//! to the newest of the rows that are equal, and from each row to the next older one.
//!
//! It keeps no values: whoever asks compares.
//!
//! **Invariants**
//! - Equal rows form one list from the newest to the oldest; the table has its head only.
//! - A row is in `Contents` exactly while its chain is indexed (`Chain::is_indexed`).
//! - Entries with equal hashes may have different contents. Rows of equal content have the same
//!   key, since key columns are among those compared.
//!
//! Removing the newest costs one look-up. Removing an expired row follows the list, which is as
//! long as the row has equals.

use crate::gradual::{Entry, GradualTable, Pages};
use crate::keys::probe_hash;
use crate::rows::arena::NIL;

#[derive(Clone, Copy)]
struct ContentsEntry {
    hash: u64,
    newest: u32,
}

/// Rows by content.
#[derive(Default)]
pub(super) struct Contents {
    table: GradualTable<ContentsEntry>,
    /// For each row the next older one that is equal to it.
    older: Pages<u32>,
}

impl Contents {
    /// Adds the newest row with this content. `same` says whether a row has it.
    pub fn insert(&mut self, hash: u64, row: u32, same: impl Fn(u32) -> bool) {
        self.older.grow(row as usize + 1, NIL);
        let is_meant = |entry: &ContentsEntry| entry.hash == hash && same(entry.newest);
        let rehash = |entry: &ContentsEntry| probe_hash(entry.hash);
        let older = match self.table.entry(probe_hash(hash), is_meant, rehash) {
            Entry::Occupied(entry) => std::mem::replace(&mut entry.newest, row),
            Entry::Vacant(place) => {
                place.insert(ContentsEntry { hash, newest: row });
                NIL
            }
        };
        self.older[row as usize] = older;
    }

    /// Takes out the newest row with this content.
    pub fn take_newest(&mut self, hash: u64, same: impl Fn(u32) -> bool) -> Option<u32> {
        let is_meant = |entry: &ContentsEntry| entry.hash == hash && same(entry.newest);
        let found = self.table.find_mut(probe_hash(hash), is_meant)?;
        let row = found.newest;
        match self.older[row as usize] {
            NIL => {
                self.table.remove(probe_hash(hash), |entry| entry.newest == row);
            }
            older => found.newest = older,
        }
        Some(row)
    }

    /// Takes out this very row.
    pub fn remove(&mut self, hash: u64, row: u32) {
        let older = &mut self.older;
        // Which of the entries with this hash leads to the row shows where its chain ends up.
        let leads = |entry: &ContentsEntry| {
            entry.hash == hash
                && std::iter::successors(Some(entry.newest), |&at| {
                    Some(older[at as usize]).filter(|&next| next != NIL)
                })
                .any(|at| at == row)
        };
        let Some(found) = self.table.find_mut(probe_hash(hash), leads) else { return };
        let next = older[row as usize];
        let mut at = found.newest;
        if at == row {
            match next {
                NIL => {
                    self.table.remove(probe_hash(hash), |entry| entry.newest == row);
                }
                next => found.newest = next,
            }
            return;
        }
        while older[at as usize] != row {
            at = older[at as usize];
        }
        older[at as usize] = next;
    }

    pub fn bytes(&self) -> usize {
        self.table.bytes() + self.older.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The content of a row is its number modulo 3; all hashes collide.
    #[test]
    fn the_newest_of_equal_rows_goes_first() {
        let mut contents = Contents::default();
        let same = |content: u32| move |row: u32| row % 3 == content;
        (0..9).for_each(|row| contents.insert(42, row, same(row % 3)));
        assert_eq!(contents.take_newest(42, same(1)), Some(7));
        contents.remove(42, 1);
        contents.remove(42, 8);
        contents.remove(42, 3);
        assert_eq!(contents.take_newest(42, same(1)), Some(4));
        assert_eq!(contents.take_newest(42, same(1)), None);
        assert_eq!(contents.take_newest(42, same(2)), Some(5));
        assert_eq!(contents.take_newest(42, same(0)), Some(6));
        assert_eq!(contents.take_newest(42, same(0)), Some(0));
        assert_eq!(contents.take_newest(42, same(0)), None);
        contents.insert(42, 3, same(0));
        assert_eq!(contents.take_newest(42, same(0)), Some(3));
    }
}
