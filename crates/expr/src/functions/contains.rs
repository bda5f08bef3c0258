//! Which texts contain something, searched through the buffers that the texts lie in.
//!
//! Texts that came together lie one behind the other in one buffer. A stretch of them is searched
//! as one long text, which spares the start of a search for each row, and what is found is then
//! assigned to its row.
//!
//! **Invariants:**
//! - a stretch has texts of one buffer, each behind the one before it, with small gaps at most:
//!   nothing is searched that is much larger than the texts are;
//! - what is found counts if it lies in one text; across an end the search continues with the next
//!   text, so each text leads to one find at most and the time stays linear.
//!
//! Whether a text is NULL does not matter here: the caller knows.

use arrow_array::StringViewArray;
use arrow_buffer::{BooleanBuffer, BooleanBufferBuilder};
use memchr::memmem::Finder;

/// The longest gap between two texts of a stretch, in bytes.
const GAP_MAX: usize = 64;

/// The longest text that lies in its view, in bytes.
const INLINE_MAX: usize = 12;

/// Where a text lies: length, buffer and offset.
#[derive(Clone, Copy)]
struct View {
    length: usize,
    buffer: usize,
    offset: usize,
}

impl View {
    #[inline]
    fn of(view: u128) -> Self {
        View {
            length: view as u32 as usize,
            buffer: (view >> 64) as u32 as usize,
            offset: (view >> 96) as usize,
        }
    }

    #[inline]
    fn end(self) -> usize {
        self.offset + self.length
    }

    /// True if this text may be searched together with the one before it.
    #[inline]
    fn continues(self, before: View) -> bool {
        self.length > INLINE_MAX
            && self.buffer == before.buffer
            && self.offset >= before.end()
            && self.offset - before.end() <= GAP_MAX
    }
}

/// A bit for each row: set where the text contains what is looked for.
pub(super) fn rows_that_contain(texts: &StringViewArray, sought: &Finder<'_>) -> BooleanBuffer {
    let views: &[u128] = texts.views();
    let mut found = BooleanBufferBuilder::new(views.len());
    found.append_n(views.len(), false);
    let mut from = 0;
    while from < views.len() {
        let first = View::of(views[from]);
        let mut to = from + 1;
        if first.length > INLINE_MAX {
            let mut before = first;
            while let Some(&view) = views.get(to) {
                let view = View::of(view);
                if !view.continues(before) {
                    break;
                }
                (before, to) = (view, to + 1);
            }
        }
        if to - from == 1 {
            let contains = sought.find(texts.value(from).as_bytes()).is_some();
            found.set_bit(from, contains);
        } else if let Some(buffer) = texts.data_buffers().get(first.buffer) {
            search_stretch(&views[from..to], buffer, sought, |row| found.set_bit(from + row, true));
        }
        from = to;
    }
    found.finish()
}

/// Searches the texts of a stretch in one go.
fn search_stretch(
    views: &[u128],
    buffer: &[u8],
    sought: &Finder<'_>,
    mut found: impl FnMut(usize),
) {
    let end = views.last().map_or(0, |&view| View::of(view).end()).min(buffer.len());
    let mut row = 0;
    while row < views.len() {
        let start = View::of(views[row]).offset;
        let Some(at) = buffer.get(start..end).and_then(|rest| sought.find(rest)) else { return };
        let at = start + at;
        // The first text that ends behind the start of what was found.
        row += views[row..].partition_point(|&view| View::of(view).end() <= at);
        let Some(&view) = views.get(row) else { return };
        let view = View::of(view);
        if view.offset > at {
            // It begins in a gap: this text has not been searched from its start.
            continue;
        }
        if at + sought.needle().len() <= view.end() {
            found(row);
        }
        // Whatever begins later in this text ends behind it as well.
        row += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::Array;
    use arrow_array::builder::StringViewBuilder;
    use arrow_buffer::Buffer;
    use thalweg_core::shim::SplitMix64;

    fn contains(texts: &StringViewArray, sought: &str) -> Vec<bool> {
        rows_that_contain(texts, &Finder::new(sought)).iter().collect()
    }

    #[test]
    fn what_crosses_the_end_of_a_text_does_not_count() {
        let mut builder = StringViewBuilder::new();
        let block = builder.append_block(Buffer::from(b"one two three four five six seven eight"));
        for (offset, length) in [(0, 15), (15, 13), (28, 11)] {
            builder.try_append_view(block, offset, length).expect("inside the block");
        }
        let texts = builder.finish();
        assert_eq!(contains(&texts, "four"), [false, false, false]);
        assert_eq!(contains(&texts, "ur five"), [false, true, false]);
        assert_eq!(contains(&texts, "six seven"), [false, false, false]);
        assert_eq!(contains(&texts, "e"), [true, true, true]);
        assert_eq!(contains(&texts, ""), [true, true, true]);
        assert_eq!(contains(&texts.slice(1, 1), "five"), [true]);
    }

    /// Views anywhere over few letters, so that finds cross ends and lie in gaps.
    #[test]
    fn any_views_give_what_each_text_says() {
        for seed in 0..300 {
            let mut random = SplitMix64::new(seed);
            let mut below = |bound: u64| random.below(bound) as usize;
            let mut builder = StringViewBuilder::new();
            for _ in 0..2 {
                let bytes: Vec<u8> = (0..600).map(|_| b'a' + below(2) as u8).collect();
                let block = builder.append_block(Buffer::from_vec(bytes));
                let mut offset = 0;
                while offset < 500 {
                    let length = below(40);
                    builder.try_append_view(block, offset as u32, length as u32).expect("inside");
                    match below(12) {
                        0 => offset = below(offset as u64 + 1),
                        1 => offset += 100,
                        2 => offset += length + below(9),
                        3 => builder.append_null(),
                        _ => offset += length,
                    }
                }
            }
            let texts = builder.finish();
            for sought in ["", "a", "abba", "aaaaaa", "abababab", "bbbbbbbbbbbbbbbb"] {
                let expected: Vec<bool> =
                    (0..texts.len()).map(|row| texts.value(row).contains(sought)).collect();
                assert_eq!(contains(&texts, sought), expected, "seed {seed}, '{sought}'");
            }
        }
    }
}
