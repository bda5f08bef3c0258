//! How many rows a partition is given at once.
//!
//! Some operators make many rows of one: joins, ranks, lists that grow. Their pieces are cut into
//! slices so that one call leads to about [`SliceRows::room_bytes`] at most, and between two slices
//! the memory account is asked: while it has room, the worker continues with the next slice at
//! once; else the cell is parked with its place in the piece (see `parked`).

use thalweg_core::{Bundle, Piece, Share};

/// How many rows of a piece come next.
#[derive(Clone, Copy, Debug)]
pub struct SliceRows(usize);

impl SliceRows {
    /// Where nothing is known yet.
    const FIRST: usize = 256;
    /// What a slice should lead to at most.
    const OUTPUT_BYTES_MAX: usize = 8 << 20;
    /// The same where memory is short.
    const OUTPUT_BYTES_MIN: usize = 1 << 20;

    /// How long a slice should take at most: until then nobody sees that the job is to stop.
    const TOOK_NS_MAX: u64 = 50_000_000;

    /// Few rows at first.
    pub(crate) fn new() -> Self {
        SliceRows(Self::FIRST)
    }

    /// What one call should emit at most where so much may be in flight.
    pub(crate) fn room_bytes(in_flight_bytes_max: usize) -> usize {
        (in_flight_bytes_max / 8).clamp(Self::OUTPUT_BYTES_MIN, Self::OUTPUT_BYTES_MAX)
    }

    /// The most rows of the next slice.
    pub(crate) fn rows(self) -> usize {
        self.0
    }

    /// What a slice has led to, and how long it took.
    pub(crate) fn learn(&mut self, rows: usize, bytes: usize, room_bytes: usize, took_ns: u64) {
        if bytes > room_bytes {
            self.0 = (rows * (room_bytes / 2) / bytes).max(1);
        } else if took_ns > Self::TOOK_NS_MAX {
            let part = (Self::TOOK_NS_MAX / 2) as f64 / took_ns as f64;
            self.0 = ((rows as f64 * part) as usize).max(1);
        } else if bytes <= room_bytes / 4 && rows >= self.0 {
            self.0 = self.0.saturating_mul(4);
        }
    }
}

/// The next rows of a piece, at most `rows_max`, where some of them are taken. All rows are listed
/// only if they do not come at once.
pub(crate) fn next_slice<'a>(
    bundle: &'a Bundle,
    share: &'a mut Share,
    taken: usize,
    rows_max: usize,
    lanes: usize,
) -> Piece<'a> {
    let count = share.rows.as_ref().map_or(bundle.num_rows(), Vec::len);
    if taken == 0 && count <= rows_max {
        return share.piece(bundle, lanes);
    }
    let all = share.rows.get_or_insert_with(|| (0..count as u32).collect());
    let to = count.min(taken.saturating_add(rows_max));
    Piece { bundle, rows: Some(&all[taken..to]), is_local: share.is_local, lanes }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_grow_until_they_lead_to_much() {
        let mut slice = SliceRows::new();
        slice.learn(256, 1000, 1 << 20, 0);
        assert_eq!(slice.rows(), 1024);
        slice.learn(10, 1000, 1 << 20, 0);
        assert_eq!(slice.rows(), 1024, "a piece that was shorter says nothing");
        slice.learn(1024, 1 << 19, 1 << 20, 0);
        assert_eq!(slice.rows(), 1024);
        slice.learn(1024, 1 << 22, 1 << 20, 0);
        assert_eq!(slice.rows(), 128);
        slice.learn(1, 1 << 22, 1 << 20, 0);
        assert_eq!(slice.rows(), 1, "never none");
        slice.learn(1, 0, 1 << 20, 0);
        slice.learn(4, 0, 1 << 20, 0);
        slice.learn(16, 0, 1 << 20, 500_000_000);
        assert_eq!(slice.rows(), 1, "a tenth of the time");
    }
}
