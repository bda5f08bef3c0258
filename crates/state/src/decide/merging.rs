//! When the changes of a table are folded together, or into it, and written anew.
//!
//! Changes cost twice: their files must be kept as long as anything builds on them, and a restart reads them
//! all. Folding them into the whole table costs as much as the table is large. Doing that when changes have
//! come to half of the table means that each byte of changes pays for at most two bytes of the table, and that
//! a restart reads at most half as much again as the table holds.
//!
//! Small changes reach that half late, and are many by then. A bound on the length keeps files few: the newest
//! generations are folded together, as many of them as are, newest first, not larger than what is newer. So what
//! is folded at least doubles each time, and a byte is written anew only a few times before it reaches the table.

/// So many generations, the whole one included, are not yet too many.
pub const CHAIN_MAX: usize = 16;

/// From which generation on those of a table, given in bytes and oldest (the whole one) first, are folded
/// into one. `Some(0)` folds all: the table is written anew. A table whose rows expire is never: its oldest
/// generation goes by itself.
///
/// ```
/// use thalweg_state::decide::merge_from;
/// assert_eq!(merge_from(&[1000, 200, 300], false), None);
/// assert_eq!(merge_from(&[1000, 200, 301], false), Some(0));
/// assert_eq!(merge_from(&[1000, 200, 301], true), None);
/// ```
pub fn merge_from(generations: &[u64], expires: bool) -> Option<usize> {
    let (whole, changes) = generations.split_first()?;
    let sum = |of: &[u64]| of.iter().fold(0_u64, |sum, bytes| sum.saturating_add(*bytes));
    if changes.is_empty() {
        return None;
    }
    if !expires && sum(changes) > whole / 2 {
        return Some(0);
    }
    if generations.len() <= CHAIN_MAX {
        return None;
    }
    let is_outgrown = |&place: &usize| generations[place] <= sum(&generations[place + 1..]);
    // If each is larger than all that is newer, the two newest.
    (1..generations.len() - 1).find(is_outgrown).or(Some(generations.len() - 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_written_anew_when_half_changed_and_changes_when_they_are_many() {
        let small = |count| [vec![1_000_000], vec![10; count]].concat();
        let sizes = |first: &[u64], count| [first.to_vec(), vec![10; count]].concat();
        for (generations, wanted) in [
            (vec![], None),
            (vec![0], None),
            (vec![1000], None),
            (vec![1000, 500], None),
            (vec![1000, 501], Some(0)),
            (vec![0, 0], None),
            (vec![0, 1], Some(0)),
            (vec![1000, u64::MAX, u64::MAX], Some(0)),
            (small(CHAIN_MAX - 1), None),
            (small(CHAIN_MAX), Some(1)),
            (sizes(&[1_000_000, 160], CHAIN_MAX - 1), Some(2)),
            (sizes(&[1_000_000, 140], CHAIN_MAX - 1), Some(1)),
            ((0..=CHAIN_MAX as u32).rev().map(|n| 4_u64.pow(n)).collect(), Some(CHAIN_MAX - 1)),
        ] {
            assert_eq!(merge_from(&generations, false), wanted, "{generations:?}");
            let of_expiring = wanted.filter(|&from| from > 0);
            assert_eq!(merge_from(&generations, true), of_expiring, "{generations:?}");
        }
    }

    /// What is told once is written how often, on average, until it is in the table?
    #[test]
    fn little_is_written_twice() {
        let (mut chain, mut told, mut written) = (vec![1_000_000_u64], 0, 0);
        for _ in 0..500 {
            chain.push(10_000);
            told += 10_000;
            let Some(from) = merge_from(&chain, false) else { continue };
            let folded = match from {
                0 => 1_000_000,
                _ => chain[from..].iter().sum(),
            };
            written += folded;
            chain.truncate(from);
            chain.push(folded);
            assert!(chain.len() <= CHAIN_MAX, "{chain:?}");
        }
        assert!(written < 5 * told, "{written} bytes for {told}");
    }
}
