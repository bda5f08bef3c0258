//! When the changes of a table are folded into it and the table is written anew.
//!
//! Changes cost twice: their files must be kept as long as anything builds on them, and a restart reads them
//! all. Writing anew costs as much as the table is large. Folding when changes have come to half of the table
//! means that each byte of changes pays for at most two bytes of the table, and that a restart reads at most
//! half as much again as the table holds; a bound on the length keeps small files few.

/// So many generations, the whole one included, are not yet too many.
pub const CHAIN_MAX: usize = 8;

/// True if a table with these generations, in bytes and oldest (the whole one) first, is to be written anew.
///
/// ```
/// use thalweg_state::decide::wants_merge;
/// assert!(!wants_merge(&[1000, 200, 300]));
/// assert!(wants_merge(&[1000, 200, 301]));
/// ```
pub fn wants_merge(generations: &[u64]) -> bool {
    let Some((whole, changes)) = generations.split_first() else { return false };
    let changed = changes.iter().fold(0_u64, |sum, bytes| sum.saturating_add(*bytes));
    !changes.is_empty() && (changed > whole / 2 || generations.len() > CHAIN_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_written_anew_when_half_changed_or_in_too_many_pieces() {
        let small = |count| [vec![1_000_000], vec![1; count]].concat();
        for (generations, wanted) in [
            (vec![], false),
            (vec![0], false),
            (vec![1000], false),
            (vec![1000, 500], false),
            (vec![1000, 501], true),
            (vec![0, 0], false),
            (vec![0, 1], true),
            (vec![1000, u64::MAX, u64::MAX], true),
            (small(CHAIN_MAX - 1), false),
            (small(CHAIN_MAX), true),
        ] {
            assert_eq!(wants_merge(&generations), wanted, "{generations:?}");
        }
    }
}
