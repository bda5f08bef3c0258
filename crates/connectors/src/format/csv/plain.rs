//! Blocks in which nothing is special: every delimiter is one, every line is a record, and every
//! record has as many fields as the table has columns.
//!
//! That is how nearly all large files look, and then one pass finds all separators, 64 bytes at a
//! time, and fields follow from where they lie: field `n` of the block reaches from separator `n -
//! 1` to separator `n`. Nothing is decided for each field but whether it ends where it should.
//!
//! [`PlainRecords::find`] says `None` wherever the walker ([`super::scan`]) might see anything
//! else: a quote, an escape, a comment, a record that is too short or too long, a last line without
//! an end. The walker then takes the block from its beginning, so both agree on what they both
//! take.

use std::borrow::Cow;

use memchr::memchr;

use super::scan::Dialect;

/// How many bytes are examined at once.
const CHUNK_BYTES: usize = 64;

/// The records of a block.
pub struct PlainRecords<'t> {
    text: &'t str,
    /// How many fields a record has.
    width: usize,
    /// Where the separators are: behind each field one, the last of a record a line feed.
    ends: Vec<u32>,
}

impl<'t> PlainRecords<'t> {
    /// The records of a text that begins with one and is shorter than 4 GiB, if nothing in it is
    /// special.
    pub fn find(text: &'t str, width: usize, dialect: &Dialect) -> Option<Self> {
        let bytes = text.as_bytes();
        if width == 0 || bytes.last() != Some(&b'\n') || has_special(bytes, width, dialect) {
            return None;
        }
        let mut records = PlainRecords { text, width, ends: Vec::with_capacity(bytes.len() / 4) };
        let mut left = width;
        let (chunks, rest) = bytes.as_chunks::<CHUNK_BYTES>();
        for (number, chunk) in chunks.iter().enumerate() {
            let separators = places_of(chunk, dialect.delimiter, b'\n');
            records.take(number * CHUNK_BYTES, separators, &mut left)?;
        }
        let is_separator = |byte: u8| byte == dialect.delimiter || byte == b'\n';
        let bits = rest.iter().map(|&byte| u64::from(is_separator(byte))).enumerate();
        let separators = bits.fold(0, |all, (place, bit)| all | bit << place);
        records.take(chunks.len() * CHUNK_BYTES, separators, &mut left)?;
        Some(records)
    }

    /// Adds the separators of a chunk; `None` if one is not what it has to be. `left` says how many
    /// fields of the record are still to end.
    #[inline(always)]
    fn take(&mut self, from: usize, mut separators: u64, left: &mut usize) -> Option<()> {
        let bytes = self.text.as_bytes();
        while separators != 0 {
            let at = from + separators.trailing_zeros() as usize;
            separators &= separators - 1;
            if (bytes[at] == b'\n') != (*left == 1) {
                return None;
            }
            self.ends.push(at as u32);
            *left = if *left == 1 { self.width } else { *left - 1 };
        }
        Some(())
    }

    /// How many there are.
    pub fn rows(&self) -> usize {
        self.ends.len() / self.width
    }

    /// Where a record lies, without its line end.
    pub fn span(&self, row: usize) -> (usize, usize) {
        let first = row * self.width;
        let (start, end) = (self.start(first), self.ends[first + self.width - 1] as usize);
        (start, self.without_carriage_return(start, end))
    }

    /// A field.
    #[inline(always)]
    pub fn text(&self, row: usize, column: usize) -> &'t str {
        let field = row * self.width + column;
        let (start, mut end) = (self.start(field), self.ends[field] as usize);
        if column + 1 == self.width {
            end = self.without_carriage_return(start, end);
        }
        &self.text[start..end]
    }

    /// A field, as those of other blocks come.
    #[inline(always)]
    pub fn value(&self, row: usize, column: usize) -> Cow<'t, str> {
        Cow::Borrowed(self.text(row, column))
    }

    #[inline(always)]
    fn start(&self, field: usize) -> usize {
        field.checked_sub(1).map_or(0, |before| self.ends[before] as usize + 1)
    }

    #[inline(always)]
    fn without_carriage_return(&self, start: usize, end: usize) -> usize {
        if end > start && self.text.as_bytes()[end - 1] == b'\r' { end - 1 } else { end }
    }
}

/// True if there may be anything but fields and records.
fn has_special(text: &[u8], width: usize, dialect: &Dialect) -> bool {
    let has = |byte: Option<u8>| byte.is_some_and(|byte| memchr(byte, text).is_some());
    // Where records have several fields an empty line is none of them anyway.
    let skips = dialect.skip_blank_lines && width == 1;
    skips
        || dialect.trims_spaces
        || has(dialect.quote)
        || has(dialect.escape)
        || has(dialect.comments.then_some(b'#'))
}

/// A bit for each byte that is one of these two. Written so that it becomes vector instructions.
#[inline(always)]
fn places_of(chunk: &[u8; CHUNK_BYTES], one: u8, other: u8) -> u64 {
    let mut hits = [0u8; CHUNK_BYTES];
    for (hit, &byte) in hits.iter_mut().zip(chunk) {
        *hit = u8::from(byte == one) | u8::from(byte == other);
    }
    let (words, _) = hits.as_chunks::<8>();
    words.iter().enumerate().fold(0, |all, (place, word)| {
        // Moves the lowest bits of eight bytes side by side into the highest byte.
        let bits = u64::from_le_bytes(*word).wrapping_mul(0x0102_0408_1020_4080) >> 56;
        all | bits << (8 * place)
    })
}

#[cfg(test)]
mod tests {
    use thalweg_core::shim::SplitMix64;

    use super::super::scan::{FieldSpan, ScanStep, Walker};
    use super::*;

    /// What the walker makes of a text: the span and the fields of each record, and whether
    /// something else was there.
    type Walked = (Vec<((usize, usize), Vec<String>)>, bool);

    fn walk(text: &str, dialect: &Dialect) -> Walked {
        let mut walker = Walker::new(text.as_bytes(), dialect, true);
        let (mut records, mut is_special) = (Vec::new(), false);
        loop {
            let mut fields: Vec<FieldSpan> = Vec::new();
            match walker.next_record(&mut fields) {
                ScanStep::Record { start, end, malformed } => {
                    is_special |= malformed.is_some();
                    let texts = fields.iter().map(|field| field.text(text, dialect).into_owned());
                    records.push(((start, end), texts.collect()));
                }
                ScanStep::Skipped => is_special = true,
                ScanStep::End => return (records, is_special),
                ScanStep::Incomplete => panic!("the text is the last"),
            }
        }
    }

    fn dialects() -> Vec<Dialect> {
        let plain = Dialect {
            delimiter: b',',
            quote: Some(b'"'),
            escape: None,
            comments: false,
            skip_blank_lines: false,
            ends_with_blank_lines: false,
            trims_spaces: false,
        };
        vec![
            plain.clone(),
            Dialect { delimiter: b'\t', quote: None, ..plain.clone() },
            Dialect { delimiter: b'\r', ..plain.clone() },
            Dialect { escape: Some(b'\\'), comments: true, ..plain.clone() },
            Dialect { skip_blank_lines: true, ..plain },
        ]
    }

    /// Lines of mostly `width` fields, with something else now and then.
    fn random_text(random: &mut SplitMix64, width: usize, dialect: &Dialect) -> String {
        const PIECES: [&str; 12] = [
            "1",
            "-20.5",
            "abc",
            "",
            "é",
            "a longer text than the others",
            "\r",
            "NULL",
            " ",
            "x#y",
            "7",
            "z",
        ];
        const SPECIAL: [&str; 6] = ["\"", "\\", "#", "\n", ",", "\t"];
        let mut text = String::new();
        let odd = random.below(3) == 0;
        for _ in 0..random.below(40) {
            let fields =
                if odd && random.below(20) == 0 { random.below(5) as usize } else { width };
            for field in 0..fields {
                if field > 0 {
                    text.push(char::from(dialect.delimiter));
                }
                text.push_str(PIECES[random.below(PIECES.len() as u64) as usize]);
                if odd && random.below(30) == 0 {
                    text.push_str(SPECIAL[random.below(SPECIAL.len() as u64) as usize]);
                }
            }
            text.push_str(if random.below(4) == 0 { "\r\n" } else { "\n" });
        }
        if random.below(8) == 0 {
            text.pop();
        }
        text
    }

    #[test]
    fn what_is_plain_is_what_the_walker_finds() {
        let mut random = SplitMix64::new(11);
        let (mut plain, mut other) = (0, 0);
        for round in 0..6_000 {
            let dialect = &dialects()[round % dialects().len()];
            let width = 1 + random.below(4) as usize;
            let text = random_text(&mut random, width, dialect);
            let (records, is_special) = walk(&text, dialect);
            let Some(found) = PlainRecords::find(&text, width, dialect) else {
                other += 1;
                continue;
            };
            plain += 1;
            assert!(!is_special, "{text:?}");
            assert_eq!(found.rows(), records.len(), "{text:?}");
            for (row, (span, fields)) in records.iter().enumerate() {
                assert_eq!(found.span(row), *span, "row {row} of {text:?}");
                let texts: Vec<&str> = (0..width).map(|column| found.text(row, column)).collect();
                assert_eq!(texts, *fields, "row {row} of {text:?}");
            }
        }
        assert!(plain > 1_000 && other > 1_000, "{plain} blocks are plain and {other} are not");
    }

    #[test]
    fn separators_are_found_at_every_place() {
        for place in 0..CHUNK_BYTES {
            let mut chunk = [b'a'; CHUNK_BYTES];
            chunk[place] = b',';
            chunk[CHUNK_BYTES - 1 - place] = b'\n';
            let expected = 1 << place | 1 << (CHUNK_BYTES - 1 - place);
            assert_eq!(places_of(&chunk, b',', b'\n'), expected, "place {place}");
        }
        assert_eq!(places_of(&[b','; CHUNK_BYTES], b',', b'\n'), u64::MAX);
    }
}
