//! Finding bytes in bytes, where what is looked for is a few bytes apart.

/// Calls `found` with each place of a byte, in order. Eight bytes are looked at together: a search
/// that starts again after each place takes longer than the few bytes to the next.
///
/// ```
/// use thalweg_core::search::for_each_place;
/// let mut places = Vec::new();
/// for_each_place(b"to be or not to be", b' ', |place| places.push(place));
/// assert_eq!(places, [2, 5, 8, 12, 15]);
/// ```
#[inline]
pub fn for_each_place(bytes: &[u8], wanted: u8, mut found: impl FnMut(usize)) {
    const LOW_BITS: u64 = u64::from_ne_bytes([0x7F; 8]);
    let same = u64::from_ne_bytes([wanted; 8]);
    let (eights, rest) = bytes.as_chunks::<8>();
    for (n, eight) in eights.iter().enumerate() {
        let differs = u64::from_le_bytes(*eight) ^ same;
        // The highest bit of each byte that differs in no bit.
        let mut places = !((differs & LOW_BITS).wrapping_add(LOW_BITS) | differs | LOW_BITS);
        while places != 0 {
            found(8 * n + places.trailing_zeros() as usize / 8);
            places &= places - 1;
        }
    }
    let begin = bytes.len() - rest.len();
    rest.iter().enumerate().filter(|&(_, &b)| b == wanted).for_each(|(at, _)| found(begin + at));
}
