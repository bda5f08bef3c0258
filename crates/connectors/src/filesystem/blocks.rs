//! Cutting text files into blocks of whole records.
//!
//! Files are read in order, decompressed on the way, and cut where a record ends. The first blocks
//! are small, so that first results appear at once, and each is larger than the one before, up to
//! 1 MiB. Standard input is cut after each read, so that a row that was typed is a row that is
//! seen.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::sync::Arc;

use serde_json::{Value, json};
use thalweg_core::connector::{Origin, SourceBatch};
use thalweg_core::{Error, Result};

use super::files::read_retrying;
use super::identity::Prefix;
use super::input_file::{InputFile, changed, read_error};
use super::position::{FileMark, FilePlace, Reached, TextPlace, Work};
use super::reading::{Reading, RecordLimit, marking};
use crate::format::record_end::RecordEnd;
use crate::format::text::count_lines;
use crate::format::{Format, Rejected, TextBlock};
use crate::handover::{BadRow, Cut, Decoded, Emit, Splitter, Task};

/// The size of the first block, in bytes.
pub const FIRST_BLOCK_BYTES: usize = 16 << 10;
const BLOCK_BYTES_MAX: usize = 1 << 20;
/// A record longer than this is taken for one whose quote is not closed, however much memory there
/// is.
pub const RECORD_BYTES_MAX: usize = 256 << 20;
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
    /// True for the last block of a file.
    pub ends_file: bool,
    /// Where reading resumes behind it.
    pub end: FileMark,
    /// A record that was too long to be kept, instead of text.
    pub too_long: Option<BadRow>,
}

/// Decodes a block.
struct BlockTask {
    block: Block,
    reading: Arc<Reading>,
}

impl Task for BlockTask {
    fn run(self: Box<Self>, emit: &Emit<'_>) -> Result<()> {
        let Block { bytes, file, first_line, begins_file, ends_file, end, too_long } = self.block;
        let text = TextBlock::lines(&bytes, first_line, begins_file, ends_file);
        let decoded = self.reading.decoder.decode(&text);
        let decoded = decoded.map_err(|error| error.in_input(file.label.as_ref()))?;
        let bad_row = |record: Rejected| BadRow {
            file: file.label.clone(),
            line: record.number,
            reason: record.reason,
            raw: record.raw,
            message: Value::Null,
        };
        let bad = decoded.rejected.into_iter().map(bad_row).chain(too_long).collect();
        let batch = self.reading.batch(decoded.batch, &file)?;
        let origin = Origin { file: file.label.clone(), first_row: decoded.first_number };
        let batch = SourceBatch { origin: Some(origin), ..SourceBatch::new(batch) };
        // When the consumer has gone, there is nothing left to do anyway.
        let _ = emit.emit(Decoded { batch, bad, end: Some(end) });
        Ok(())
    }
}

/// A file that is being read.
pub struct OpenText {
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

impl OpenText {
    /// Opens a file where it is to be read on.
    ///
    /// # Errors
    /// If it cannot be read, or does not hold what was read of it.
    pub fn new(work: Work) -> Result<OpenText> {
        let file = work.file.clone();
        let failed = |e: io::Error| read_error(&file, &e);
        let other = || changed(&file, "has other contents where it was read");
        let at = match work.from {
            Some(FilePlace::Text(at)) => at,
            _ => TextPlace::default(),
        };
        let reader: Box<dyn Read + Send> = match file.is_plain() && at.offset > 0 {
            true => {
                // The sum was compared when the position was looked for.
                let tail = at.tail.bytes();
                let mut plain = file.stream(at.offset - tail.len() as u64).map_err(failed)?;
                let mut found = Vec::with_capacity(tail.len());
                plain.by_ref().take(tail.len() as u64).read_to_end(&mut found).map_err(failed)?;
                if found != tail {
                    return Err(other());
                }
                plain
            }
            false => {
                let mut prefix = Prefix::open(&file)?;
                if !prefix.has(at.offset, at.sum)? {
                    return Err(other());
                }
                prefix.into_reader()
            }
        };
        Ok(OpenText::behind(work, at, reader))
    }

    /// A file that is followed, with its reader where it is to be read on. A last record without
    /// an end is left for later, if there is a later.
    pub fn growing(work: Work, reader: Box<dyn Read + Send>, is_last: bool) -> OpenText {
        let at = match work.from {
            Some(FilePlace::Text(at)) => at,
            _ => TextPlace::default(),
        };
        OpenText { waits_for_end: !is_last, ..OpenText::behind(work, at, reader) }
    }

    fn behind(work: Work, at: TextPlace, reader: Box<dyn Read + Send>) -> OpenText {
        let Work { number, file, .. } = work;
        let begins_file = at.offset == 0;
        let rest = Vec::new();
        OpenText { file, number, reader, rest, at, begins_file, ended: false, waits_for_end: false }
    }

    /// The block that ends at a place, and moves there.
    fn block(&mut self, bytes: Vec<u8>, at: TextPlace, too_long: Option<BadRow>) -> Block {
        let ends_file = self.ended && !self.waits_for_end && self.rest.is_empty();
        let first_line = std::mem::replace(&mut self.at, at).line;
        let begins_file = std::mem::take(&mut self.begins_file);
        let (number, file) = (self.number, self.file.clone());
        let (place, reached) = (FilePlace::Text(at), Reached::Block);
        let end = FileMark { number, file: file.clone(), place, reached };
        Block { bytes, file, first_line, begins_file, ends_file, end, too_long }
    }

    /// The mark of the end, if anything was read.
    ///
    /// # Errors
    /// If the file has become shorter meanwhile.
    fn end(&self) -> Result<Option<FileMark>> {
        let OpenText { file, at, number, .. } = self;
        if file.is_plain() && at.offset < file.size {
            let how = format!(
                "became shorter while the job ran: it had {} bytes, {} could be read",
                file.size, at.offset
            );
            return Err(changed(file, &how));
        }
        let (number, place) = (*number, FilePlace::Text(*at));
        let mark = FileMark { number, file: file.clone(), place, reached: Reached::End };
        Ok((at.offset > 0).then_some(mark))
    }
}

/// Cuts text files.
pub struct BlockSplitter {
    reading: Arc<Reading>,
    files: VecDeque<Work>,
    open: Option<OpenText>,
    block_bytes: usize,
}

impl BlockSplitter {
    /// Reads these files one after the other.
    pub fn new(reading: Arc<Reading>, files: Vec<Work>) -> Self {
        let block_bytes = reading.first_block_bytes.unwrap_or(FIRST_BLOCK_BYTES);
        BlockSplitter { reading, files: files.into(), open: None, block_bytes }
    }

    fn next_open(&mut self) -> Result<Option<&mut OpenText>> {
        while self.open.is_none() {
            let Some(work) = self.files.pop_front() else { return Ok(None) };
            self.open = (!work.is_done).then(|| OpenText::new(work)).transpose()?;
        }
        Ok(self.open.as_mut())
    }
}

/// The size of the block after one of this size.
pub fn grown(block_bytes: usize) -> usize {
    (block_bytes * 4).min(BLOCK_BYTES_MAX)
}

impl Splitter for BlockSplitter {
    fn next_task(&mut self) -> Result<Cut> {
        let (reading, block_bytes) = (self.reading.clone(), self.block_bytes);
        while let Some(open) = self.next_open()? {
            if let Some(block) =
                cut_block(reading.format(), open, block_bytes, reading.record_limit())?
            {
                if reading.first_block_bytes.is_none() {
                    self.block_bytes = grown(block_bytes);
                }
                return Ok(Cut::Task(decoding(block, &reading)));
            }
            let end = open.end()?;
            self.open = None;
            if let Some(end) = end {
                return Ok(Cut::Task(marking(end, &reading)));
            }
        }
        Ok(Cut::End)
    }
}

/// The task of decoding a block.
pub fn decoding(block: Block, reading: &Arc<Reading>) -> Box<dyn Task> {
    Box::new(BlockTask { block, reading: reading.clone() })
}

/// The next block of a file, or `None` at its end.
pub fn cut_block(
    format: &Format,
    open: &mut OpenText,
    block_bytes: usize,
    limit: RecordLimit,
) -> Result<Option<Block>> {
    let record_bytes_max = limit.bytes_max;
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
        if bytes.len() > record_bytes_max {
            let has_names = open.begins_file && matches!(format, Format::Csv(csv) if csv.header);
            if limit.rejects && !has_names {
                return pass_over(format, open, mark, bytes, record_bytes_max);
            }
            return Err(too_long(record_bytes_max).at_row(open.file.label.as_ref(), open.at.line));
        }
        // The search starts again at the record's start, so the text must grow in proportion.
        wanted = (bytes.len().max(block_bytes) * 2).min(record_bytes_max.max(block_bytes) + 1);
    };
    if length == 0 {
        return Ok(None);
    }
    open.rest = bytes.split_off(length);
    let mut at = open.at;
    at.pass(mark, &bytes, count_lines(&bytes));
    Ok(Some(open.block(bytes, at, None)))
}

/// How much of a record that is too long is kept for the dead letters.
const TOO_LONG_KEPT_BYTES: usize = 64 << 10;

/// Passes over a record of which these bytes have been read, without keeping it. `None` if its end
/// is waited for.
fn pass_over(
    format: &Format,
    open: &mut OpenText,
    mark: &[u8],
    mut bytes: Vec<u8>,
    record_bytes_max: usize,
) -> Result<Option<Block>> {
    let is_interactive = open.file.path.is_none();
    let (mut at, mut mark) = (open.at, mark);
    let mut raw = bytes[..bytes.len().min(TOO_LONG_KEPT_BYTES)].to_vec();
    let mut record_end = RecordEnd::new(format);
    loop {
        let end = record_end.find(&bytes);
        let rest = bytes.split_off(end.unwrap_or(bytes.len()));
        at.pass(std::mem::take(&mut mark), &bytes, count_lines(&bytes));
        if end.is_some() || (open.ended && !open.waits_for_end) {
            open.rest = rest;
            break;
        }
        if open.ended {
            return Ok(None);
        }
        bytes.clear();
        fill(open, &mut bytes, BLOCK_BYTES_MAX, is_interactive)?;
    }
    // The last character may be cut.
    raw.truncate(raw.iter().rposition(|byte| byte.is_ascii()).map_or(0, |last| last + 1));
    let bad = BadRow {
        file: open.file.label.clone(),
        line: open.at.line,
        reason: format!("{}; only its beginning is kept", too_long_reason(record_bytes_max)),
        raw,
        message: json!({ ONLY_BEGINNING: true }),
    };
    Ok(Some(open.block(Vec::new(), at, Some(bad))))
}

/// What a dead letter says of which only the beginning is kept.
pub const ONLY_BEGINNING: &str = "beginning";

fn too_long_reason(bytes_max: usize) -> String {
    let why = if bytes_max < RECORD_BYTES_MAX { ", an eighth of the memory limit" } else { "" };
    format!("a record is longer than {} KiB{why}", bytes_max >> 10)
}

fn too_long(bytes_max: usize) -> Error {
    Error::data(too_long_reason(bytes_max)).hint(
        "a quote may be missing (see 'csv.disable-quote-character'); if the record is right, raise 'memory.limit'",
    )
}

/// Reads until there are `wanted` bytes or the file ends; from standard input, whatever there is.
fn fill(
    open: &mut OpenText,
    bytes: &mut Vec<u8>,
    wanted: usize,
    is_interactive: bool,
) -> Result<()> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::JsonOptions;

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
        let file = InputFile::stdin();
        let mut open = OpenText {
            file: Arc::new(file),
            number: 0,
            reader: Box::new(Pipe(pieces.into())),
            rest: Vec::new(),
            at: TextPlace::default(),
            begins_file: true,
            ended: false,
            waits_for_end: false,
        };
        let format = Format::Json(JsonOptions::default());
        let limit = RecordLimit { bytes_max: 1 << 20, rejects: false };
        let mut blocks = Vec::new();
        while let Some(block) = cut_block(&format, &mut open, 16, limit).expect("readable") {
            blocks.push((String::from_utf8(block.bytes).expect("UTF-8"), block.first_line));
        }
        let expected = [("one\n", 1), ("two\n", 2), ("three\nfour\n", 3), ("five", 5)];
        assert_eq!(blocks, expected.map(|(text, line)| (text.to_string(), line)));
    }
}
