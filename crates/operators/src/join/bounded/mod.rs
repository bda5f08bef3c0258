//! What the joins that time bounds have in common: the rows of a bundle, by side.

#[cfg(test)]
pub(super) mod fixture;
pub(crate) mod side_rows;

/// Pairs of rows that are looked at together; also the most rows of an output batch.
pub(super) const PAIRS_MAX: usize = 8192;
