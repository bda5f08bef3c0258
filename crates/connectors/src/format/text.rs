//! Blocks of text, and where the records in them are.
//!
//! A block is either lines of a longer text, or messages of a broker, each of which is one record.
//! Messages are joined by line feeds, so that one validation and one search run over all of them.
//!
//! **Invariant:** bytes that are not UTF-8 read as `?`, one for one, so every offset into the text
//! is an offset into the bytes.

use std::borrow::Cow;

use arrow_array::{Array, BinaryArray};
use memchr::memchr;
use thalweg_core::Error;

use super::bad_data::{BadDataPolicy, DecodeError};

/// Why a record with bytes of another encoding is bad.
pub(super) const NOT_UTF8: &str = "the text is not valid UTF-8";

/// Whole records, as bytes that are not yet known to be UTF-8.
pub struct TextBlock<'b> {
    bytes: Cow<'b, [u8]>,
    framing: Framing,
}

/// How records are separated.
enum Framing {
    /// By the format: most end with their line.
    Lines { first_line: u64, begins_input: bool, ends_input: bool },
    /// Each message is one.
    Messages(Messages),
}

/// Where the messages of a block lie.
pub(super) struct Messages {
    /// Where each begins. It ends in front of the line feed before the next.
    starts: Vec<usize>,
    /// The number of each in the array that they came from.
    numbers: Vec<u32>,
    /// The numbers of those that have no bytes, and whether they are missing.
    empty: Vec<(u32, bool)>,
    /// True if there is a line feed within one of them.
    pub has_line_feeds: bool,
}

impl Messages {
    /// The same, with the number of each.
    pub fn numbered(&self, length: usize) -> impl Iterator<Item = (u64, (usize, usize))> {
        self.numbers.iter().map(|&number| u64::from(number)).zip(self.spans(length))
    }

    /// Where each message begins and ends in a block of this length.
    pub fn spans(&self, length: usize) -> impl Iterator<Item = (usize, usize)> {
        let ends = self.starts.iter().skip(1).copied().chain([length]).map(|next| next - 1);
        self.starts.iter().copied().zip(ends)
    }
}

impl<'b> TextBlock<'b> {
    /// Lines of a text, of which the first has this number. `begins_input` and `ends_input` say
    /// whether the text begins and ends with this block.
    pub fn lines(bytes: &'b [u8], first_line: u64, begins_input: bool, ends_input: bool) -> Self {
        let framing = Framing::Lines { first_line, begins_input, ends_input };
        TextBlock { bytes: Cow::Borrowed(bytes), framing }
    }

    /// Messages that are one record each, numbered from 0. Missing and empty ones are no records,
    /// but for format `raw`.
    pub fn messages(messages: &BinaryArray) -> TextBlock<'static> {
        let room = messages.value_data().len() + messages.len();
        let mut bytes = Vec::with_capacity(room);
        let mut starts = Vec::with_capacity(messages.len());
        let (mut numbers, mut empty) = (Vec::with_capacity(messages.len()), Vec::new());
        let mut has_line_feeds = false;
        for (number, found) in (0..).zip(messages) {
            let Some(message) = found.filter(|message| !message.is_empty()) else {
                empty.push((number, found.is_none()));
                continue;
            };
            starts.push(bytes.len());
            numbers.push(number);
            has_line_feeds |= memchr(b'\n', message).is_some();
            bytes.extend_from_slice(message);
            bytes.push(b'\n');
        }
        let framing = Framing::Messages(Messages { starts, numbers, empty, has_line_feeds });
        TextBlock { bytes: Cow::Owned(bytes), framing }
    }

    /// The number of the line, or of the message, in which a byte lies.
    pub fn number_at(&self, offset: usize) -> u64 {
        match &self.framing {
            Framing::Lines { first_line, .. } => first_line + count_lines(&self.bytes[..offset]),
            Framing::Messages(Messages { starts, numbers, .. }) => {
                let after = starts.partition_point(|&start| start <= offset);
                numbers.get(after.saturating_sub(1)).copied().map_or(0, u64::from)
            }
        }
    }

    /// Each line, or each message, with its number; `None` for a message that is missing.
    pub(super) fn records(&self) -> Vec<(u64, Option<&[u8]>)> {
        match &self.framing {
            Framing::Messages(messages) => {
                let found = messages.numbered(self.bytes.len());
                let found = found.map(|(number, (from, to))| (number, Some(&self.bytes[from..to])));
                let empty = messages.empty.iter();
                let empty = empty.map(|&(n, is_missing)| {
                    (u64::from(n), (!is_missing).then_some(&self.bytes[..0]))
                });
                let mut records: Vec<_> = found.chain(empty).collect();
                if !messages.empty.is_empty() {
                    records.sort_by_key(|(number, _)| *number);
                }
                records
            }
            Framing::Lines { first_line, .. } => {
                let lines = self.bytes.strip_suffix(b"\n").unwrap_or(&self.bytes);
                let lines = lines.split(|byte| *byte == b'\n');
                let lines = lines.map(|line| line.strip_suffix(b"\r").unwrap_or(line));
                let lines = (*first_line..).zip(lines.map(Some));
                if self.bytes.is_empty() { Vec::new() } else { lines.collect() }
            }
        }
    }

    /// The bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Its messages, if it has such.
    pub(super) fn as_messages(&self) -> Option<&Messages> {
        match &self.framing {
            Framing::Messages(messages) => Some(messages),
            Framing::Lines { .. } => None,
        }
    }

    /// True for the first lines of a text.
    pub(super) fn begins_input(&self) -> bool {
        matches!(self.framing, Framing::Lines { begins_input: true, .. })
    }

    /// True for the last lines of a text.
    pub(super) fn ends_input(&self) -> bool {
        matches!(self.framing, Framing::Lines { ends_input: true, .. })
    }

    /// The text. Where bad records fail the job, bytes that are not UTF-8 do, too.
    pub(super) fn text(&self, policy: BadDataPolicy) -> Result<Text<'_>, DecodeError> {
        match std::str::from_utf8(&self.bytes) {
            Ok(text) => Ok(Text { text: Cow::Borrowed(text), foreign: Vec::new() }),
            Err(_) if policy != BadDataPolicy::Fail => Ok(Text::repaired(&self.bytes)),
            Err(error) => {
                let number = self.number_at(error.valid_up_to());
                let hint = "convert the file to UTF-8, or set 'bad-data' = 'drop' or 'dead-letter'";
                Err(DecodeError::at(Error::data(NOT_UTF8).hint(hint), number))
            }
        }
    }
}

/// The text of a block.
pub(super) struct Text<'b> {
    pub text: Cow<'b, str>,
    /// Where the bytes lay that are not UTF-8, ascending.
    foreign: Vec<usize>,
}

impl Text<'_> {
    fn repaired(bytes: &[u8]) -> Text<'static> {
        let mut text = String::with_capacity(bytes.len());
        let mut foreign = Vec::new();
        for chunk in bytes.utf8_chunks() {
            text.push_str(chunk.valid());
            for _ in chunk.invalid() {
                foreign.push(text.len());
                text.push('?');
            }
        }
        Text { text: Cow::Owned(text), foreign }
    }

    /// True if any byte was not UTF-8.
    pub fn is_repaired(&self) -> bool {
        !self.foreign.is_empty()
    }

    /// True if a byte of this range is not UTF-8.
    pub fn is_foreign(&self, start: usize, end: usize) -> bool {
        let first = self.foreign.partition_point(|&at| at < start);
        self.foreign.get(first).is_some_and(|&at| at < end)
    }
}

/// A record as text: each byte that is not UTF-8 reads as `?`.
pub fn readable(record: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(record) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => Text::repaired(record).text,
    }
}

/// How many lines end in these bytes.
pub fn count_lines(bytes: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', bytes).count() as u64
}
