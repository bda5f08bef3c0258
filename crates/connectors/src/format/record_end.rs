//! Finding the end of a record that is too long to be kept.
//!
//! [`RecordEnd`] is given a record piece by piece and remembers only a state of the walker of
//! [`super::csv::scan`], so memory does not grow with the record. It goes byte by byte: such
//! records are rare.
//!
//! **Invariant:** it finds the end that the walker would find in the whole text.

use super::Format;
use super::csv::scan::Dialect;

/// Looks for the end of one record.
pub struct RecordEnd<'a> {
    /// The rules of quotes, unless a record is a line.
    dialect: Option<&'a Dialect>,
    at: At,
}

/// What the next byte is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    RecordStart,
    FieldStart,
    Plain,
    Quoted,
    /// Behind a quote within a quoted field, which may be the first of two.
    Quote,
    /// Behind the field's closing quote.
    Closed,
    Comment,
    /// Behind the escape character.
    Escaped {
        is_quoted: bool,
    },
}

impl<'a> RecordEnd<'a> {
    /// From the first byte of a record.
    pub fn new(format: &'a Format) -> Self {
        let dialect = match format {
            Format::Csv(csv) => Some(&csv.dialect),
            _ => None,
        };
        RecordEnd { dialect, at: At::RecordStart }
    }

    /// How many of these bytes, which follow those before, belong to the record with its line end.
    /// `None` if all do and more may follow.
    pub fn find(&mut self, bytes: &[u8]) -> Option<usize> {
        let Some(dialect) = self.dialect else {
            return memchr::memchr(b'\n', bytes).map(|at| at + 1);
        };
        for (place, byte) in bytes.iter().enumerate() {
            match step(self.at, *byte, dialect) {
                Some(at) => self.at = at,
                None => return Some(place + 1),
            }
        }
        None
    }
}

/// Where the walk is behind a byte; `None` where the record ends with it.
fn step(at: At, byte: u8, dialect: &Dialect) -> Option<At> {
    let is_quote = Some(byte) == dialect.quote;
    let is_escape = Some(byte) == dialect.escape;
    Some(match at {
        At::RecordStart if dialect.comments && byte == b'#' => At::Comment,
        At::RecordStart | At::FieldStart if is_quote => At::Quoted,
        At::Comment if byte != b'\n' => At::Comment,
        At::Escaped { is_quoted: true } => At::Quoted,
        At::Escaped { is_quoted: false } => At::Plain,
        At::Quoted if is_escape => At::Escaped { is_quoted: true },
        At::Quoted if is_quote => At::Quote,
        At::Quoted => At::Quoted,
        At::Quote if is_quote => At::Quoted,
        _ if byte == dialect.delimiter => At::FieldStart,
        _ if byte == b'\n' => return None,
        At::Quote | At::Closed => At::Closed,
        _ if is_escape => At::Escaped { is_quoted: false },
        _ => At::Plain,
    })
}

#[cfg(test)]
mod tests {
    use super::super::csv::scan::{ScanStep, Walker};
    use super::*;
    use thalweg_core::shim::SplitMix64;

    /// Random texts of the bytes that matter: the end is where the walker finds it, however the
    /// text is cut into pieces.
    #[test]
    fn the_end_is_the_walkers() {
        let mut random = SplitMix64::new(7);
        for round in 0..20_000_usize {
            let dialect = Dialect {
                delimiter: b',',
                quote: Some(b'"'),
                escape: (round % 2 == 0).then_some(b'\\'),
                comments: round % 3 == 0,
                skip_blank_lines: round % 5 == 0,
                ends_with_blank_lines: false,
                trims_spaces: false,
            };
            let bytes = b"\"\"\"\\,,\n\nab #\r";
            let mut byte = |_| bytes[random.below(bytes.len() as u64) as usize];
            let length = 1 + round % 24;
            let text: Vec<u8> = (0..length).map(&mut byte).collect();
            let mut walker = Walker::new(&text, &dialect, false);
            let expected = match walker.next_record(&mut Vec::new()) {
                ScanStep::Record { .. } | ScanStep::Skipped => Some(walker.position()),
                ScanStep::Incomplete | ScanStep::End => None,
            };
            let mut end = RecordEnd { dialect: Some(&dialect), at: At::RecordStart };
            let (mut from, mut found) = (0, None);
            while from < text.len() && found.is_none() {
                let to = (from + 1 + random.below(5) as usize).min(text.len());
                found = end.find(&text[from..to]).map(|length| from + length);
                from = to;
            }
            assert_eq!(found, expected, "{:?}", String::from_utf8_lossy(&text));
        }
    }

    #[test]
    fn a_line_ends_at_its_line_feed() {
        let format = Format::Json(crate::format::JsonOptions::default());
        let mut end = RecordEnd::new(&format);
        assert_eq!(end.find(b"{\"a\":"), None);
        assert_eq!(end.find(b"1}\n{}"), Some(3));
    }
}
