//! When the changes of a table are folded together, or into it, and rewritten.
//!
//! Changes cost twice: their files must be kept as long as anything builds on them, and a restart
//! reads them all. Where half as much as a table holds has been replaced, it is captured in full
//! ([`super::Extents`]): it is in memory, and its files need not be read. What is left to be folded
//! into a table are changes of which the operator does not say how many they are, and those of a
//! table that grows, which replace nothing: once they have come to as much as the table, so each
//! byte of changes pays for one byte of the table.
//!
//! Small changes reach that late, and are many by then. A bound on the length keeps files few: the
//! newest generations are folded together, as many of them as are, newest first, not larger than
//! what is newer. So what is folded at least doubles each time, and a byte is rewritten only a
//! few times before it reaches the table. Generations that are small together are folded when there
//! are a few: that costs nothing, and a table with little in it has few files.

/// Up to this many generations, the full one included, are kept.
pub const CHAIN_MAX: usize = 16;
/// Up to this many generations are kept if they are small together.
pub const SMALL_MAX: usize = 4;
/// Generations with fewer bytes in sum are small.
pub const SMALL_BYTES: u64 = 256 * 1024;

/// From which generation on those of a table, given in bytes and oldest (the whole one) first, are
/// folded into one. `Some(0)` folds all: the table is rewritten. A table whose rows expire is
/// never: its oldest generation goes by itself.
///
/// ```
/// use thalweg_state::decide::merge_from;
/// assert_eq!(merge_from(&[1000, 200, 800], false), None);
/// assert_eq!(merge_from(&[1000, 200, 801], false), Some(0));
/// assert_eq!(merge_from(&[1000, 200, 801], true), None);
/// ```
pub fn merge_from(generations: &[u64], expires: bool) -> Option<usize> {
    let (whole, changes) = generations.split_first()?;
    let sum = |of: &[u64]| of.iter().fold(0_u64, |sum, bytes| sum.saturating_add(*bytes));
    if changes.is_empty() {
        return None;
    }
    if !expires && sum(changes) > *whole {
        return Some(0);
    }
    let first = usize::from(expires);
    let is_small = |&from: &usize| sum(&generations[from..]) <= SMALL_BYTES;
    let small = (first..generations.len()).find(is_small);
    // Where rows expire, most generations go before they are many.
    let most = if expires { SMALL_MAX * 2 } else { SMALL_MAX };
    if let Some(from) = small.filter(|from| generations.len() - from > most) {
        return Some(from);
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
    fn tables_are_rewritten_when_half_changed_and_changes_when_they_are_many() {
        const MB: u64 = 1 << 20;
        let few = |count| [vec![1000 * MB], vec![MB; count]].concat();
        let sizes = |first: &[u64], count| {
            let first = first.iter().map(|&megabytes| megabytes * MB);
            first.chain(vec![10 * MB; count]).collect::<Vec<u64>>()
        };
        let small = |large: &[u64], count| [large.to_vec(), vec![1024; count]].concat();
        for (generations, wanted) in [
            (vec![], None),
            (vec![0], None),
            (vec![1000], None),
            (vec![1000, 1000], None),
            (vec![1000, 1001], Some(0)),
            (vec![0, 0], None),
            (vec![0, 1], Some(0)),
            (vec![1000, u64::MAX, u64::MAX], Some(0)),
            (few(CHAIN_MAX - 1), None),
            (few(CHAIN_MAX), Some(1)),
            (sizes(&[1_000_000, 160], CHAIN_MAX - 1), Some(2)),
            (sizes(&[1_000_000, 140], CHAIN_MAX - 1), Some(1)),
            ((0..=CHAIN_MAX as u32).rev().map(|n| MB << (2 * n)).collect(), Some(CHAIN_MAX - 1)),
        ] {
            assert_eq!(merge_from(&generations, false), wanted, "{generations:?}");
            let of_expiring = wanted.filter(|&from| from > 0);
            assert_eq!(merge_from(&generations, true), of_expiring, "{generations:?}");
        }
        // A small table is rewritten; of one whose rows expire the oldest generation stays.
        for (generations, expires, wanted) in [
            (small(&[1000 * MB], SMALL_MAX), false, None),
            (small(&[1000 * MB], SMALL_MAX + 1), false, Some(1)),
            (small(&[1000 * MB, SMALL_BYTES], SMALL_MAX), false, None),
            (small(&[1000 * MB, SMALL_BYTES], SMALL_MAX + 1), false, Some(2)),
            (small(&[100 * 1024], SMALL_MAX), false, Some(0)),
            (small(&[100 * 1024], SMALL_MAX * 2), true, None),
            (small(&[100 * 1024], SMALL_MAX * 2 + 1), true, Some(1)),
        ] {
            assert_eq!(merge_from(&generations, expires), wanted, "{generations:?}");
        }
    }

    /// How often is a captured byte written, on average, until it is in the table?
    #[test]
    fn little_is_written_twice() {
        let (mut chain, mut captured, mut written) = (vec![100_000_000_u64], 0, 0);
        for _ in 0..500 {
            chain.push(1_000_000);
            captured += 1_000_000;
            let Some(from) = merge_from(&chain, false) else { continue };
            let folded = match from {
                0 => 100_000_000,
                _ => chain[from..].iter().sum(),
            };
            written += folded;
            chain.truncate(from);
            chain.push(folded);
            assert!(chain.len() <= CHAIN_MAX, "{chain:?}");
        }
        assert!(written < 5 * captured, "{written} bytes for {captured}");
    }
}
