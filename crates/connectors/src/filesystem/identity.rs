//! By what an input file is known again, and whether it still holds what was read of it.
//!
//! - A file with an equal [`Stamp`] that had settled is the same, and nothing of it is read again
//!   to find out.
//! - A [`Sum`] runs over all that was read of a text. Any other file is read again up to the
//!   position and its sum compared, which costs what reading it costs.
//! - The first bytes and the last ones of what was read decide, where a followed file holds
//!   something else now, whether it was restarted (rotation) or cut and edited ([`Contents`]).
//!
//! What is not found out: another file with the same CRC-32, and a Parquet or Arrow file with the
//! same length and the same last bytes.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

use memchr::memmem::Finder;
use serde_json::{Value, json};
use thalweg_core::Result;

use super::files::read_retrying;
use super::input_file::{InputFile, changed, read_error};
use super::input_handle::InputHandle;
use super::stamp::Stamp;

/// How many of the first bytes of a followed file are kept.
pub const HEAD_BYTES: usize = 256;
/// How many of the last bytes that were read are kept.
const TAIL_BYTES: usize = 64;
const BUFFER_BYTES: usize = 256 << 10;

/// The sum of all bytes of a text up to a place: CRC-32, which continues from its own value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum(u32);

impl Sum {
    /// The sum of these bytes behind those before.
    #[must_use]
    pub fn and(self, bytes: &[u8]) -> Sum {
        let mut hasher = crc32fast::Hasher::new_with_initial(self.0);
        hasher.update(bytes);
        Sum(hasher.finalize())
    }

    /// As text.
    pub fn to_json(self) -> Value {
        json!(format!("crc32:{:08x}", self.0))
    }

    /// From its text.
    pub fn from_json(value: &Value) -> Option<Sum> {
        let digits = value.as_str()?.strip_prefix("crc32:")?;
        u32::from_str_radix(digits, 16).ok().map(Sum)
    }
}

/// The last bytes before a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tail {
    bytes: [u8; TAIL_BYTES],
    length: u8,
}

impl Default for Tail {
    fn default() -> Self {
        Tail { bytes: [0; TAIL_BYTES], length: 0 }
    }
}

impl Tail {
    /// The last of these bytes.
    pub fn of(bytes: &[u8]) -> Tail {
        let mut tail = Tail::default();
        tail.push(bytes);
        tail
    }

    /// Moves behind these bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        let new = &bytes[bytes.len().saturating_sub(TAIL_BYTES)..];
        let old = usize::from(self.length);
        let kept = old.min(TAIL_BYTES - new.len());
        self.bytes.copy_within(old - kept..old, 0);
        self.bytes[kept..kept + new.len()].copy_from_slice(new);
        self.length = (kept + new.len()) as u8;
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

/// Reads a text again from its beginning.
pub struct Prefix<'f> {
    file: &'f InputFile,
    reader: Box<dyn Read + Send>,
    buffer: Vec<u8>,
    /// Bytes that were read.
    pub offset: u64,
    /// Their sum.
    pub sum: Sum,
    /// The last of them.
    pub tail: Tail,
}

impl<'f> Prefix<'f> {
    /// Begins with a file.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open(file: &'f InputFile) -> Result<Prefix<'f>> {
        let reader = file.stream(0).and_then(|stream| file.compression().read(stream));
        let reader = reader.map_err(|e| read_error(file, &e))?;
        let (sum, tail) = (Sum::default(), Tail::default());
        Ok(Prefix { file, reader, buffer: vec![0; BUFFER_BYTES], offset: 0, sum, tail })
    }

    /// Reads up to a place; false if the text ends before.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read_to(&mut self, offset: u64) -> Result<bool> {
        while self.offset < offset {
            if self.advance(offset)?.is_empty() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// True if the text has this sum up to a place.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn has(&mut self, offset: u64, sum: Sum) -> Result<bool> {
        Ok(self.read_to(offset)? && self.sum == sum)
    }

    /// Reads on, at most up to a place; nothing comes at the end of the text.
    fn advance(&mut self, offset: u64) -> Result<&[u8]> {
        let left = usize::try_from(offset - self.offset).unwrap_or(usize::MAX);
        let wanted = left.min(self.buffer.len());
        let read = read_retrying(&mut self.reader, &mut self.buffer[..wanted]);
        let read = read.map_err(|e| read_error(self.file, &e))?;
        let bytes = &self.buffer[..read];
        self.sum = self.sum.and(bytes);
        self.tail.push(bytes);
        self.offset += read as u64;
        Ok(bytes)
    }

    /// What is to be read next.
    pub fn into_reader(self) -> Box<dyn Read + Send> {
        self.reader
    }
}

/// Opens a file of rows, of which pieces are read through handles of their own: all must be of one
/// file.
///
/// # Errors
/// If it cannot be opened, or is not the one that was listed.
pub fn open_listed(file: &InputFile) -> Result<InputHandle> {
    let failed = |e: io::Error| read_error(file, &e);
    let handle = file.open().map_err(failed)?;
    // Of an object no other one is ever read.
    let InputHandle::File(opened) = &handle else { return Ok(handle) };
    let metadata = opened.metadata().map_err(failed)?;
    let place = |stamp: Stamp| stamp.place();
    let is_same = Stamp::of(&metadata).map(place) == file.stamp.map(place);
    match is_same && metadata.len() == file.size {
        true => Ok(handle),
        false => Err(changed(file, "was replaced while it was read")),
    }
}

/// Up to this many bytes of a file from a place on. The file's own place moves.
///
/// # Errors
/// If they cannot be read.
pub fn bytes_at(file: &mut File, offset: u64, length: usize) -> io::Result<Vec<u8>> {
    file.seek(SeekFrom::Start(offset))?;
    let mut bytes = Vec::with_capacity(length);
    file.take(length as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// What a followed file holds that is not what was read under its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contents {
    /// Something else: the file was restarted.
    New,
    /// What was read, but changed: cut, edited, or without some lines.
    Changed,
    /// Too little to say. More will come.
    Unclear,
}

impl Contents {
    /// Looks at a file of which so much was read: the first bytes of that, and the last.
    ///
    /// A file that begins with the first line that was read, or has the last bytes anywhere, is not
    /// new.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn of(
        file: &mut File,
        head: &[u8],
        tail: &Tail,
        header_lines: usize,
    ) -> io::Result<Contents> {
        let now = bytes_at(file, 0, HEAD_BYTES)?;
        let both = now.len().min(head.len());
        let common = now.iter().zip(head).take_while(|(now, then)| now == then).count();
        let lines = memchr::memchr_iter(b'\n', &now[..common]).count();
        if lines > header_lines || (common == head.len() && common > 0) {
            return Ok(Contents::Changed);
        }
        if common == both {
            return Ok(Contents::Unclear);
        }
        Ok(if contains(file, tail.bytes())? { Contents::Changed } else { Contents::New })
    }
}

/// True if a file holds these bytes anywhere.
fn contains(file: &mut File, wanted: &[u8]) -> io::Result<bool> {
    if wanted.is_empty() {
        return Ok(false);
    }
    file.seek(SeekFrom::Start(0))?;
    let finder = Finder::new(wanted);
    let mut buffer = Vec::with_capacity(BUFFER_BYTES);
    loop {
        let kept = buffer.len().min(wanted.len() - 1);
        buffer.drain(..buffer.len() - kept);
        let read = file.by_ref().take((BUFFER_BYTES - kept) as u64).read_to_end(&mut buffer)?;
        if finder.find(&buffer).is_some() {
            return Ok(true);
        }
        if read == 0 {
            return Ok(false);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn tails_are_the_last_bytes_however_they_come() {
        let text: Vec<u8> = (0..=255).collect();
        for piece in [1, 7, 63, 64, 65, 256] {
            let mut tail = Tail::default();
            let mut passed = 0;
            for bytes in text.chunks(piece) {
                tail.push(bytes);
                passed += bytes.len();
                let expected = &text[passed.saturating_sub(TAIL_BYTES)..passed];
                assert_eq!(tail.bytes(), expected, "pieces of {piece}, {passed} bytes");
                assert_eq!(Tail::of(expected), tail);
            }
        }
    }

    #[test]
    fn sums_do_not_depend_on_the_pieces() {
        let text: Vec<u8> = (0..10_000_u32).flat_map(u32::to_le_bytes).collect();
        let whole = Sum::default().and(&text);
        for piece in [1, 13, 4_096] {
            assert_eq!(text.chunks(piece).fold(Sum::default(), Sum::and), whole);
        }
        assert_eq!(Sum::from_json(&whole.to_json()), Some(whole));
        assert_ne!(Sum::default().and(&text[1..]), whole);
    }

    #[test]
    fn contents_are_compared_with_both_ends_of_what_was_read() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("a");
        let line = |n: usize| format!("row number {n}\n");
        let read: String = (0..2_000).map(line).collect();
        let (head, tail) = (&read.as_bytes()[..HEAD_BYTES], Tail::of(read.as_bytes()));
        let contents = |text: &str, header_lines: usize| {
            fs::write(&path, text).expect("written");
            let mut file = File::open(&path).expect("a file");
            Contents::of(&mut file, head, &tail, header_lines).expect("readable")
        };
        let tail_later = format!("{}{read}", "x".repeat(BUFFER_BYTES - 17_000));
        assert_eq!(contents("", 0), Contents::Unclear);
        assert_eq!(contents(&read[..5], 0), Contents::Unclear);
        assert_eq!(contents(&read[..20], 0), Contents::Changed);
        assert_eq!(contents(&read[..20], 1), Contents::Unclear, "the line is the header");
        assert_eq!(contents(&read[..9_000], 1), Contents::Changed);
        assert_eq!(contents(&read[..50].replace('2', "x"), 0), Contents::Changed, "an edited line");
        assert_eq!(contents(&read[500..], 0), Contents::Changed, "lines less at the beginning");
        assert_eq!(contents(&tail_later, 0), Contents::Changed, "lines more at the beginning");
        assert_eq!(contents(&(5_000..5_002).map(line).collect::<String>(), 0), Contents::New);
        assert_eq!(contents(&(5_000..9_000).map(line).collect::<String>(), 0), Contents::New);
    }
}
