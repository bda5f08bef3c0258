//! What has been emptied and is kept for its memory.
//!
//! How many are needed at once depends on the input: a bundle may bring rows of many windows, which
//! then leave together too. So a few are kept in any case, and more as long as they are small.
//!
//! Kept memory is part of the state's bytes: whoever owns the spares counts `bytes`, so that they
//! cannot hide from the memory limit.

/// This many are kept whatever memory they have.
const FEW: usize = 4;
/// No more than this many are kept, and no more than the few if they have this many bytes.
const MANY: usize = 64;
const BYTES_MAX: usize = 8 << 20;

/// Memory for fewer rows or keys is kept whatever it was used for.
const SMALL: usize = 1024;

/// True if there is memory for far more rows or keys than there were.
pub(crate) fn is_oversized(capacity: usize, used: usize) -> bool {
    capacity > SMALL && capacity / 8 > used
}

/// Kept things, of which the last is taken first: its memory was used a short time ago.
pub(crate) struct Spares<T> {
    kept: Vec<(T, usize)>,
    bytes: usize,
}

impl<T> Default for Spares<T> {
    fn default() -> Self {
        Spares { kept: Vec::new(), bytes: 0 }
    }
}

impl<T> Spares<T> {
    /// Keeps one that has this many bytes, unless there is enough.
    pub fn push(&mut self, one: T, bytes: usize) {
        let is_small = self.kept.len() < MANY && self.bytes + bytes <= BYTES_MAX;
        if self.kept.len() < FEW || is_small {
            self.kept.push((one, bytes));
            self.bytes += bytes;
        }
    }

    /// One, if there is any.
    pub fn pop(&mut self) -> Option<T> {
        let (one, bytes) = self.kept.pop()?;
        self.bytes -= bytes;
        Some(one)
    }

    /// Keeps none.
    pub fn clear(&mut self) {
        *self = Spares::default();
    }

    /// The bytes of all.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_large_ones_or_many_small_ones_are_kept() {
        let mut large = Spares::default();
        (0..10).for_each(|one| large.push(one, BYTES_MAX));
        assert_eq!((large.kept.len(), large.bytes()), (FEW, FEW * BYTES_MAX));
        assert_eq!(large.pop(), Some(FEW - 1));
        assert_eq!(large.bytes(), (FEW - 1) * BYTES_MAX);
        let mut small = Spares::default();
        (0..100).for_each(|one| small.push(one, 1));
        assert_eq!((small.kept.len(), small.bytes()), (MANY, MANY));
        small.clear();
        assert_eq!((small.pop(), small.bytes()), (None, 0));
    }
}
