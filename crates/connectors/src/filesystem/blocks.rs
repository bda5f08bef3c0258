//! Cutting text files into blocks of whole records.
//!
//! Files are read in order, decompressed on the way, and cut where a record ends. The first blocks
//! are small, so that first results appear at once, and each is larger than the one before, up to
//! 1 MiB. Standard input is cut after each read, so that a row that was typed is a row that is
//! seen.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::sync::Arc;

use thalweg_core::{Error, Result};

use super::compression::Compression;
use super::csv::CsvTask;
use super::csv::values::OnBad;
use super::json::JsonTask;
use super::paths::InputFile;
use super::position::{EXCERPT_BYTES, Excerpt, Mark, Place, TextPlace, Work, changed};
use super::source::{Format, Reading};
use crate::handover::{Cut, Splitter, Task};

/// The size of the first block, in bytes.
pub const FIRST_BLOCK_BYTES: usize = 16 << 10;
const BLOCK_BYTES_MAX: usize = 1 << 20;
/// A record longer than this is taken for one whose quote is not closed.
const RECORD_BYTES_MAX: usize = 256 << 20;
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// Whole records of one file.
pub struct Block {
    /// The text, not yet known to be UTF-8.
    pub bytes: Vec<u8>,
    /// The file.
    pub file: Arc<InputFile>,
    /// The number of its first line in the file, from 1.
    pub first_line: u64,
    /// True for the first block of a file.
    pub begins_file: bool,
    /// Where reading goes on behind it.
    pub end: Mark,
}

impl Block {
    /// The text. Where bad rows fail the job, bytes that are not UTF-8 do, too, with their line.
    pub fn text(&self, on_bad: OnBad) -> Result<Text<'_>> {
        match std::str::from_utf8(&self.bytes) {
            Ok(text) => Ok(Text { text: Cow::Borrowed(text), foreign: Vec::new() }),
            Err(_) if on_bad != OnBad::Fail => Ok(Text::repaired(&self.bytes)),
            Err(error) => Err(Error::data(NOT_UTF8)
                .at_row(self.file.label.as_ref(), self.line_at(error.valid_up_to()))
                .hint("convert the file to UTF-8, or set 'bad-data' = 'drop' or 'dead-letter'")),
        }
    }

    /// The line of the file in which a byte of the block lies.
    pub fn line_at(&self, offset: usize) -> u64 {
        self.first_line + count_lines(&self.bytes[..offset])
    }
}

/// Why a record with bytes of another encoding is bad.
pub const NOT_UTF8: &str = "the text is not valid UTF-8";

/// A block's text. Bytes that are not UTF-8 read as `?`, one for one, so that all places stay.
pub struct Text<'b> {
    /// The text.
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

fn count_lines(bytes: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', bytes).count() as u64
}

/// A file that is being read.
pub struct Open {
    file: Arc<InputFile>,
    /// Its place among the files of the table.
    number: usize,
    reader: Box<dyn Read + Send>,
    /// What was read behind the last cut.
    rest: Vec<u8>,
    /// Where the last cut was.
    at: TextPlace,
    begins_file: bool,
    ended: bool,
    /// A last record without an end is left for later.
    waits_for_end: bool,
}

impl Open {
    /// Opens a file where it is to be read on. If it is followed, a last record without an end is left for
    /// later.
    ///
    /// # Errors
    /// If it cannot be read, or is not the file any more of which the place is.
    pub fn new(work: Work, is_followed: bool) -> Result<Open> {
        let Work { number, file, from } = work;
        let failed = |e: io::Error| read_error(&file, &e);
        let mut reader: Box<dyn Read + Send> = match &file.path {
            None => Box::new(io::stdin()),
            Some(path) => Compression::of(path).open(path).map_err(failed)?,
        };
        let at = match (&file.path, from) {
            (Some(path), Some(Place::Text(at))) if Compression::of(path) == Compression::None => {
                let mut plain = File::open(path).map_err(failed)?;
                find(&mut plain, &at, &file)?;
                reader = Box::new(plain);
                at
            }
            (_, Some(Place::Text(at))) => {
                pass_over(reader.as_mut(), &at, &file)?;
                at
            }
            _ => TextPlace::default(),
        };
        let begins_file = at.offset == 0;
        let (rest, ended) = (Vec::new(), false);
        Ok(Open { file, number, reader, rest, at, begins_file, ended, waits_for_end: is_followed })
    }
}

/// Goes to a place in a file, of which it looks only at what it was recognized by.
fn find(open: &mut File, at: &TextPlace, file: &InputFile) -> Result<()> {
    let failed = |e: io::Error| read_error(file, &e);
    let length = open.metadata().map_err(failed)?.len();
    if length < at.offset {
        return Err(changed(
            file,
            &format!(
                "is shorter than what was read of it: it has {length} bytes, {} were read",
                at.offset
            ),
        ));
    }
    let mut look = |from: u64, wanted: Excerpt| -> Result<Vec<u8>> {
        let mut bytes = vec![0; wanted.bytes as usize];
        open.seek(SeekFrom::Start(from)).map_err(failed)?;
        open.read_exact(&mut bytes).map_err(failed)?;
        if Excerpt::of(&bytes) == wanted {
            Ok(bytes)
        } else {
            Err(changed(file, "has other contents"))
        }
    };
    look(0, at.head)?;
    let tail = look(at.offset.saturating_sub(u64::from(at.tail.bytes)), at.tail)?;
    check_end(&tail, length > at.offset, file)
}

/// Reads a compressed file up to a place.
fn pass_over(reader: &mut dyn Read, at: &TextPlace, file: &InputFile) -> Result<()> {
    let (mut head, mut tail) = (Vec::new(), Vec::new());
    let mut left = at.offset;
    let mut buffer = vec![0; 64 << 10];
    while left > 0 {
        let wanted = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let read =
            read_retrying(reader, &mut buffer[..wanted]).map_err(|e| read_error(file, &e))?;
        if read == 0 {
            return Err(changed(file, "is shorter than what was read of it"));
        }
        let missing = EXCERPT_BYTES.saturating_sub(head.len()).min(read);
        head.extend_from_slice(&buffer[..missing]);
        tail.extend_from_slice(&buffer[..read]);
        tail.drain(..tail.len().saturating_sub(EXCERPT_BYTES));
        left -= read as u64;
    }
    head.truncate(at.head.bytes as usize);
    tail.drain(..tail.len().saturating_sub(at.tail.bytes as usize));
    if (Excerpt::of(&head), Excerpt::of(&tail)) != (at.head, at.tail) {
        return Err(changed(file, "has other contents"));
    }
    Ok(())
}

/// What was taken for the last record must not have been the beginning of a longer one.
fn check_end(tail: &[u8], has_more: bool, file: &InputFile) -> Result<()> {
    if has_more && tail.last().is_some_and(|&byte| byte != b'\n') {
        return Err(changed(
            file,
            "has grown behind a last line that had no end and was read as it was",
        ));
    }
    Ok(())
}

/// Cuts text files.
pub struct BlockSplitter {
    reading: Arc<Reading>,
    files: VecDeque<Work>,
    open: Option<Open>,
    block_bytes: usize,
}

impl BlockSplitter {
    /// Reads these files one after the other.
    pub fn new(reading: Arc<Reading>, files: Vec<Work>) -> Self {
        let block_bytes = reading.first_block_bytes.unwrap_or(FIRST_BLOCK_BYTES);
        BlockSplitter { reading, files: files.into(), open: None, block_bytes }
    }

    fn next_block(&mut self) -> Result<Option<Block>> {
        loop {
            if self.open.is_none() {
                let Some(work) = self.files.pop_front() else { return Ok(None) };
                self.open = Some(Open::new(work, false)?);
            }
            let open = self.open.as_mut().expect("set above");
            let block = cut_block(&self.reading.format, open, self.block_bytes)?;
            match block {
                Some(block) => {
                    if self.reading.first_block_bytes.is_none() {
                        self.block_bytes = grown(self.block_bytes);
                    }
                    return Ok(Some(block));
                }
                None => self.open = None,
            }
        }
    }
}

/// The size of the block after one of this size.
pub fn grown(block_bytes: usize) -> usize {
    (block_bytes * 4).min(BLOCK_BYTES_MAX)
}

impl Splitter for BlockSplitter {
    fn next_task(&mut self) -> Result<Cut> {
        let block = self.next_block()?;
        Ok(block.map_or(Cut::End, |block| Cut::Task(decoding(block, &self.reading))))
    }
}

/// The task of decoding a block.
pub fn decoding(block: Block, reading: &Arc<Reading>) -> Box<dyn Task> {
    let reading = reading.clone();
    match reading.format {
        Format::Json(_) => Box::new(JsonTask { block, reading }),
        _ => Box::new(CsvTask { block, reading }),
    }
}

pub fn read_error(file: &InputFile, error: &io::Error) -> Error {
    Error::io(format!("cannot read: {error}")).in_file(file.label.as_ref())
}

/// The next block of a file, or `None` at its end.
pub fn cut_block(format: &Format, open: &mut Open, block_bytes: usize) -> Result<Option<Block>> {
    let mut bytes = std::mem::take(&mut open.rest);
    let mut wanted = block_bytes;
    let is_interactive = open.file.path.is_none();
    let mut mark: &[u8] = &[];
    let length = loop {
        fill(open, &mut bytes, wanted, is_interactive)?;
        if open.at.offset == 0 && mark.is_empty() && bytes.starts_with(BYTE_ORDER_MARK) {
            mark = BYTE_ORDER_MARK;
            bytes.drain(..mark.len());
        }
        if open.ended && !open.waits_for_end {
            break bytes.len();
        }
        let complete = format.complete_length(&bytes);
        if complete > 0 || open.ended {
            break complete;
        }
        if bytes.len() > RECORD_BYTES_MAX {
            return Err(Error::data("a record is longer than 256 MiB")
                .at_row(open.file.label.as_ref(), open.at.line)
                .hint("a quote may be missing; see 'csv.disable-quote-character'"));
        }
        // The search starts again at the record's start, so the text must grow in proportion.
        wanted = bytes.len().max(block_bytes) * 2;
    };
    if length == 0 {
        return Ok(None);
    }
    open.rest = bytes.split_off(length);
    let first_line = open.at.line;
    open.at.pass(mark, &bytes, count_lines(&bytes));
    let begins_file = std::mem::take(&mut open.begins_file);
    let (number, file) = (open.number, open.file.clone());
    let end = Mark { number, file: file.clone(), place: Place::Text(open.at) };
    Ok(Some(Block { bytes, file, first_line, begins_file, end }))
}

/// Reads until there are `wanted` bytes or the file ends; from standard input, whatever there is.
fn fill(open: &mut Open, bytes: &mut Vec<u8>, wanted: usize, is_interactive: bool) -> Result<()> {
    let missing = wanted.saturating_sub(bytes.len());
    if missing == 0 || open.ended {
        return Ok(());
    }
    let read = if is_interactive {
        let start = bytes.len();
        bytes.resize(start + missing.max(1 << 16), 0);
        let read = read_retrying(&mut open.reader, &mut bytes[start..]);
        bytes.truncate(start + read.as_ref().map_or(0, |n| *n));
        read
    } else {
        bytes.reserve(missing);
        open.reader.by_ref().take(missing as u64).read_to_end(bytes)
    };
    let read = read.map_err(|e| read_error(&open.file, &e))?;
    // A file has ended when less came than was asked for; a pipe when nothing came.
    open.ended = if is_interactive { read == 0 } else { read < missing };
    Ok(())
}

fn read_retrying(reader: &mut dyn Read, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match reader.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filesystem::json::JsonOptions;

    /// Gives one piece per read, as a pipe does, and counts the reads.
    struct Pipe(VecDeque<&'static [u8]>);

    impl Read for Pipe {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let Some(piece) = self.0.pop_front() else { return Ok(0) };
            buffer[..piece.len()].copy_from_slice(piece);
            Ok(piece.len())
        }
    }

    #[test]
    fn a_line_from_a_pipe_does_not_wait_for_the_next() {
        let pieces: [&[u8]; 4] = [b"one\ntw", b"o\n", b"three\nfour\nfi", b"ve"];
        let file = InputFile {
            path: None,
            label: Arc::from("standard input"),
            name: "-".to_string(),
            size: 0,
            modified_ms: 0,
            partition: Vec::new(),
        };
        let mut open = Open {
            file: Arc::new(file),
            number: 0,
            reader: Box::new(Pipe(pieces.into())),
            rest: Vec::new(),
            at: TextPlace::default(),
            begins_file: true,
            ended: false,
            waits_for_end: false,
        };
        let format = Format::Json(JsonOptions {
            ignore_parse_errors: false,
            fail_on_missing_field: false,
            iso_timestamps: false,
        });
        let mut blocks = Vec::new();
        while let Some(block) = cut_block(&format, &mut open, 16).expect("readable") {
            blocks.push((String::from_utf8(block.bytes).expect("UTF-8"), block.first_line));
        }
        let expected = [("one\n", 1), ("two\n", 2), ("three\nfour\n", 3), ("five", 5)];
        assert_eq!(blocks, expected.map(|(text, line)| (text.to_string(), line)));
    }
}
