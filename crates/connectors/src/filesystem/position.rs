//! How far the files of a table were read.
//!
//! # What a position is
//! JSON: the files that are left to be read, in order (where files are followed: all of them), each
//! with its size, the place behind the last block that was given completely, and how many rows
//! behind that place were given as well. Places lie between blocks because a reader finds only
//! those without decoding; the rows behind them are read again and dropped.
//!
//! ```text
//! {"format":"csv","files":[{"path":"in.csv","size":120,"inode":"64:1234","changedNs":…,"rows":3,
//!  "at":{"offset":64,"line":5,"sum":"crc32:…","tail":"…"},"seen":{"offset":96,"sum":"crc32:…"}}],"badRows":0}
//! ```
//!
//! Offsets and sums of compressed texts are those of the text. `seen` is the end of the block in
//! which the rows lie that were given behind the place: they are dropped by their number, so that
//! block must be the same. A file that was read to its end is `done`. A followed file has its first
//! bytes as `head`. An object of a store has `object`, a hash of its entity tag and the like, in
//! the place of `inode` and `changedNs`.
//!
//! # Whether a file has changed
//! [`Recorded::check`] says so before anything is read on. A text may have grown meanwhile; a
//! Parquet or Arrow file is known again by its length and its last bytes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use thalweg_core::Result;
use thalweg_core::connector::unread_rows;

use super::excerpt::{Excerpt, LetterMark};
use super::identity::{Sum, Tail};
use super::input_file::{InputFile, changed, changed_name};
use super::listing::Listing;
use super::recorded::{Checked, Position, Recorded};
use super::stamp::Stamp;
use crate::format::Format;

/// A place between two records of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextPlace {
    /// Bytes of the text before it.
    pub offset: u64,
    /// The number of the line that begins there, from 1.
    pub line: u64,
    /// The sum of the bytes before it.
    pub sum: Sum,
    /// The last of them.
    pub tail: Tail,
}

impl Default for TextPlace {
    fn default() -> Self {
        TextPlace { offset: 0, line: 1, sum: Sum::default(), tail: Tail::default() }
    }
}

impl TextPlace {
    /// Moves behind a block with this many line ends; in front of the first one stands the byte
    /// order mark, if there is one.
    pub fn pass(&mut self, byte_order_mark: &[u8], block: &[u8], lines: u64) {
        self.sum = self.sum.and(byte_order_mark).and(block);
        self.tail.push(block);
        self.offset += (byte_order_mark.len() + block.len()) as u64;
        self.line = self.line.saturating_add(lines);
    }
}

/// A place between two rows of a file that has them in groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowPlace {
    /// The group (Parquet) or record batch (Arrow), from 0.
    pub group: usize,
    /// Rows of that group before the place.
    pub row: u64,
    /// The last bytes of the file.
    pub end: Excerpt,
}

/// A place in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilePlace {
    /// In a text.
    Text(TextPlace),
    /// In a file of rows.
    Rows(RowPlace),
}

impl FilePlace {
    fn to_json(self) -> Value {
        match self {
            FilePlace::Text(TextPlace { offset, line, sum, tail }) => json!({
                "offset": offset, "line": line, "sum": sum.to_json(), "tail": STANDARD.encode(tail.bytes()),
            }),
            FilePlace::Rows(RowPlace { group, row, end }) => {
                json!({ "group": group, "row": row, "end": end.to_json() })
            }
        }
    }
}

/// How far rows had been read that were given, and the sum of the text up to there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GivenText {
    /// Bytes of the text.
    pub offset: u64,
    /// Their sum.
    pub sum: Sum,
}

/// What has been reached at a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reached {
    /// The end of a block.
    Block,
    /// The end of the file, behind its last block.
    End,
    /// The file is not there any more, and nothing of it is left to be read.
    Gone,
}

/// A place in one of the files of a table.
#[derive(Clone, Debug)]
pub struct FileMark {
    /// The file's number among those of the table.
    pub number: usize,
    /// The file as it was when it was opened.
    pub file: Arc<InputFile>,
    /// Where.
    pub place: FilePlace,
    /// What is there.
    pub reached: Reached,
}

/// A file that is to be read.
#[derive(Clone, Debug)]
pub struct Work {
    /// Its number among those of the table.
    pub number: usize,
    /// The file.
    pub file: Arc<InputFile>,
    /// Where to begin, if not at its beginning.
    pub from: Option<FilePlace>,
    /// It was read to its end.
    pub is_done: bool,
}

impl Work {
    /// Where to begin in a file of rows that ends so.
    ///
    /// # Errors
    /// If it ended otherwise when the place was taken.
    pub fn first_row_place(&self, end: Excerpt) -> Result<RowPlace> {
        match self.from {
            Some(FilePlace::Rows(at)) if at.end == end => Ok(at),
            Some(_) => Err(changed(&self.file, "has other contents")),
            None => Ok(RowPlace { group: 0, row: 0, end }),
        }
    }
}

/// What is known of one file.
struct FileProgress {
    file: Arc<InputFile>,
    at: Option<FilePlace>,
    /// Rows behind `at` that were given.
    given: u64,
    /// Those of them that come again and are to be dropped.
    dropped: u64,
    /// How far the text of `given` reaches.
    seen: Option<GivenText>,
    is_done: bool,
}

impl FileProgress {
    fn new(file: Arc<InputFile>) -> FileProgress {
        FileProgress { file, at: None, given: 0, dropped: 0, seen: None, is_done: false }
    }

    /// Bytes of the file before the place, as far as the place says that: a compressed text and a
    /// file of rows count when they are read to their end.
    fn read_bytes(&self) -> u64 {
        match self.at {
            _ if self.is_done => self.file.size,
            Some(FilePlace::Text(at)) if self.file.is_plain() => at.offset,
            _ => 0,
        }
    }

    fn to_json(&self) -> Value {
        let mut file = json!({ "path": self.file.label.as_ref(), "size": self.file.size });
        if let Some(stamp) = self.file.stamp {
            stamp.write(&mut file);
        }
        if !self.file.head.is_empty() {
            file["head"] = json!(STANDARD.encode(&self.file.head));
        }
        if let Some(place) = self.at {
            file["at"] = place.to_json();
        }
        if self.given > 0 {
            file["rows"] = json!(self.given);
        }
        if let Some(GivenText { offset, sum }) = self.seen {
            file["seen"] = json!({ "offset": offset, "sum": sum.to_json() });
        }
        if self.is_done {
            file["done"] = json!(true);
        }
        file
    }
}

/// How far the files of a table were delivered.
pub struct Progress {
    format: &'static str,
    /// It is read record by record.
    is_text: bool,
    entries: BTreeMap<usize, FileProgress>,
    /// All files stay in the position, since each may grow.
    is_followed: bool,
    /// All rows of all files were given.
    has_ended: bool,
    /// Rows that could not be read, up to the end of the last block that was given completely.
    bad_rows: u64,
    /// The dead letters up to there.
    letters: LetterMark,
    /// The bytes of all files that are known; whoever follows files finds more.
    known_bytes: Arc<AtomicU64>,
    /// Bytes of them that lie before the place.
    read_bytes: u64,
}

impl Progress {
    /// Nothing of these files was given.
    pub fn new(format: &Format, files: &[Arc<InputFile>]) -> Progress {
        let (format, is_text) = (format.name(), format.is_text());
        let mut progress = Progress {
            format,
            is_text,
            entries: files.iter().cloned().map(FileProgress::new).enumerate().collect(),
            is_followed: false,
            has_ended: false,
            bad_rows: 0,
            letters: LetterMark::default(),
            known_bytes: Arc::default(),
            read_bytes: 0,
        };
        progress.count_bytes();
        progress
    }

    /// Counts the bytes of all files.
    fn count_bytes(&mut self) {
        let known_bytes = self.entries.values().map(|entry| entry.file.size).sum();
        self.known_bytes.store(known_bytes, Ordering::Relaxed);
        self.read_bytes = self.entries.values().map(FileProgress::read_bytes).sum();
    }

    /// The bytes of all files that are known, for whoever finds more of them.
    pub fn known_bytes(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.known_bytes)
    }

    /// Bytes of files behind the place; `None` where that is not known.
    pub fn lag_bytes(&self) -> Option<u64> {
        let is_stdin = self.entries.values().next().is_some_and(|entry| entry.file.path.is_none());
        let known_bytes = self.known_bytes.load(Ordering::Relaxed);
        let left = if self.has_ended { 0 } else { known_bytes.saturating_sub(self.read_bytes) };
        (!is_stdin).then_some(left)
    }

    /// All files stay in the position, since each may grow.
    pub fn follow(&mut self) {
        self.is_followed = true;
    }

    /// The files that are left, and where to begin.
    pub fn work(&self) -> Vec<Work> {
        let work = |(&number, entry): (&usize, &FileProgress)| Work {
            number,
            file: entry.file.clone(),
            from: entry.at,
            is_done: entry.is_done,
        };
        self.entries.iter().map(work).collect()
    }

    /// Rows of a block have come: how many of the first are to be dropped, since they were given
    /// before.
    ///
    /// # Errors
    /// If the file ends before all of those have come.
    pub fn arrive(&mut self, end: &FileMark, rows: u64) -> Result<u64> {
        if !self.is_followed
            && self.entries.first_key_value().is_some_and(|(&at, _)| at < end.number)
        {
            let rest = self.entries.split_off(&end.number);
            let passed = std::mem::replace(&mut self.entries, rest);
            let left = |entry: &FileProgress| entry.file.size.saturating_sub(entry.read_bytes());
            self.read_bytes += passed.values().map(left).sum::<u64>();
        }
        let entry =
            self.entries.entry(end.number).or_insert_with(|| FileProgress::new(end.file.clone()));
        let dropped = entry.dropped.min(rows);
        entry.dropped -= dropped;
        if end.reached == Reached::End && entry.dropped > 0 {
            let how = format!("ends {} rows before the place where it was read", entry.dropped);
            return Err(changed(&end.file, &how));
        }
        Ok(dropped)
    }

    /// Rows of a block were given.
    pub fn give(&mut self, end: &FileMark, rows: u64) {
        let Some(entry) = self.entries.get_mut(&end.number) else { return };
        entry.given = entry.given.saturating_add(rows);
        if let FilePlace::Text(TextPlace { offset, sum, .. }) = end.place
            && entry.seen.is_none_or(|seen| seen.offset < offset)
        {
            entry.seen = Some(GivenText { offset, sum });
        }
    }

    /// The dead letters that are there before anything is read.
    pub fn begin_letters(&mut self, letters: LetterMark) {
        self.letters = letters;
    }

    /// A block was given completely; up to its end there were this many bad rows, and these dead
    /// letters.
    pub fn complete(&mut self, end: &FileMark, bad_rows: u64, letters: LetterMark) {
        (self.bad_rows, self.letters) = (bad_rows, letters);
        if end.reached == Reached::Gone {
            let gone = self.entries.remove(&end.number);
            self.read_bytes -= gone.map_or(0, |gone| gone.read_bytes());
            return;
        }
        let Some(entry) = self.entries.get_mut(&end.number) else { return };
        self.read_bytes -= entry.read_bytes();
        entry.file = end.file.clone();
        entry.at = Some(end.place);
        // The run before has given rows of later blocks as well if there are any left to drop.
        entry.given = entry.dropped;
        let is_behind = |seen: &GivenText| entry.given > 0 && !seen.is_before(end.place);
        entry.seen = entry.seen.filter(is_behind);
        entry.is_done = end.reached == Reached::End;
        self.read_bytes += entry.read_bytes();
    }

    /// All rows of all files were given.
    pub fn end(&mut self) {
        self.has_ended = true;
    }

    /// Rows that could not be read before the position.
    pub fn bad_rows(&self) -> u64 {
        self.bad_rows
    }

    /// The dead letters before the position.
    pub fn letters(&self) -> LetterMark {
        self.letters
    }

    /// The position; `None` if a file cannot be read again.
    pub fn to_json(&self) -> Option<String> {
        let mut files = Vec::with_capacity(self.entries.len());
        for entry in self.entries.values() {
            entry.file.path.as_ref()?;
            files.push(entry.to_json());
        }
        let mut position = json!({ "format": self.format, "files": files, "badRows": self.bad_rows, "ended": self.has_ended });
        if self.letters.bytes > 0 {
            position["letterBytes"] = json!(self.letters.bytes);
        }
        if let Some(tail) = self.letters.tail {
            position["letterTail"] = tail.to_json();
        }
        Some(position.to_string())
    }

    /// Resumes at a position. Where files are followed, `renamed` finds a file that lies where one
    /// lay, but belongs to the table no more.
    ///
    /// # Errors
    /// If it is none of these files, or one of them is not there any more, or does not hold what
    /// was read of it.
    pub fn seek(&mut self, position: &str, renamed: Option<&Renamed<'_>>) -> Result<()> {
        let Position { files, bad_rows, letters, .. } =
            Position::read(position, self.format, self.is_text)?;
        let listing = Listing::new(self.entries.values().map(|entry| entry.file.clone()));
        let found = match renamed {
            Some(renamed) => find_followed(files, listing, renamed)?,
            None => find_listed(files, listing)?,
        };
        self.entries = found.into_iter().enumerate().collect();
        self.count_bytes();
        (self.bad_rows, self.letters) = (bad_rows, letters);
        Ok(())
    }

    /// Checks that no rows were left to be read at a position, and that the files are those that
    /// were read. The bad rows and the dead letters before it.
    ///
    /// # Errors
    /// If there are such rows, in a file that has grown or is new; or a file was changed.
    pub fn check_ended(&self, position: &str) -> Result<(u64, LetterMark)> {
        let Position { files: recorded, has_ended, bad_rows, letters } =
            Position::read(position, self.format, self.is_text)?;
        let of = |file: &InputFile| recorded.iter().find(|known| *known.path == *file.label);
        // Files in front of the first one that is recorded were read and forgotten.
        let files = self.entries.values().map(|entry| &entry.file);
        for file in files.skip_while(|file| !self.is_followed && of(file).is_none()) {
            let known = of(file);
            if known.map_or(file.size > 0, |known| known.has_more(file, has_ended)) {
                return Err(unread_rows(&file.label));
            }
            if let Some(Checked::Differs(how)) = known.map(|known| known.check(file)).transpose()? {
                return Err(changed(file, &how));
            }
        }
        Ok((bad_rows, letters))
    }
}

impl GivenText {
    fn is_before(self, place: FilePlace) -> bool {
        matches!(place, FilePlace::Text(at) if self.offset <= at.offset)
    }
}

/// Finds a file that is followed, under a name that is not the table's, by where it lies.
pub struct Renamed<'r> {
    /// By the name that it had and its stamp.
    pub find: &'r dyn Fn(&str, Stamp) -> Option<InputFile>,
    /// Lines at the beginning of each file that are the same in all.
    pub header_lines: usize,
}

fn entry_of(recorded: &Recorded, file: Arc<InputFile>, at: Option<FilePlace>) -> FileProgress {
    let Recorded { rows, seen, is_done, .. } = *recorded;
    FileProgress { file, at, given: rows, dropped: rows, seen, is_done }
}

/// Files that are read once, each under the name that it had.
fn find_listed(recorded: Vec<Recorded>, mut listing: Listing) -> Result<Vec<FileProgress>> {
    let mut entries = Vec::with_capacity(recorded.len());
    for known in recorded {
        let Some(file) = listing.take(&known.path) else {
            if known.is_read() {
                continue;
            }
            let moved = known.stamp.and_then(|stamp| listing.take_moved(stamp));
            let how = match moved {
                Some(file) => format!("is not there any more; it seems to be {} now", file.label),
                None => "is not there any more".to_owned(),
            };
            return Err(changed_name(&known.path, &how));
        };
        match known.check(&file)? {
            Checked::Same(at) => entries.push(entry_of(&known, file, at)),
            Checked::Differs(how) => return Err(changed(&file, &how)),
        }
    }
    Ok(entries)
}

/// Files that are followed, under whatever name they have now. What is left in the listing is new.
fn find_followed(
    recorded: Vec<Recorded>,
    mut listing: Listing,
    renamed: &Renamed<'_>,
) -> Result<Vec<FileProgress>> {
    let (mut entries, mut others) = (BTreeMap::new(), Vec::new());
    for (number, known) in recorded.into_iter().enumerate() {
        if known.is_untouched() {
            continue;
        }
        match listing.take_same(&known.path, known.stamp) {
            Some(file) => {
                let entry = find_rotated(&known, file, &mut listing, renamed)?;
                entries.extend(entry.map(|entry| (number, entry)));
            }
            None => others.push((number, known)),
        }
    }
    for (number, known) in others {
        let entry = find_moved(&known, &mut listing, renamed)?;
        entries.extend(entry.map(|entry| (number, entry)));
    }
    Ok(entries.into_values().collect())
}

/// A followed file at its old place, under its name: it may have been truncated and rewritten.
fn find_rotated(
    known: &Recorded,
    file: Arc<InputFile>,
    listing: &mut Listing,
    renamed: &Renamed<'_>,
) -> Result<Option<FileProgress>> {
    let how = match known.check(&file)? {
        Checked::Same(at) => return Ok(Some(entry_of(known, file, at))),
        Checked::Differs(how) => how,
    };
    if !known.can_grow() {
        return Err(changed(&file, &how));
    }
    let Some(at) = known.rotated(&file, renamed.header_lines, &how)? else {
        listing.put_back(file);
        return Ok(None);
    };
    Ok(Some(entry_of(known, file, Some(at))))
}

/// A followed file that lies where it lay under another name, or is a copy under its own name, or
/// is gone.
fn find_moved(
    known: &Recorded,
    listing: &mut Listing,
    renamed: &Renamed<'_>,
) -> Result<Option<FileProgress>> {
    let moved = known.stamp.and_then(|stamp| {
        listing.take_moved(stamp).or_else(|| (renamed.find)(&known.path, stamp).map(Arc::new))
    });
    if let Some(file) = moved {
        match known.check(&file)? {
            Checked::Same(at) => return Ok(Some(entry_of(known, file, at))),
            // Another file lies there since.
            Checked::Differs(_) => listing.put_back(file),
        }
    }
    if let Some(file) = listing.labelled(&known.path).cloned() {
        match known.check(&file)? {
            Checked::Same(at) => {
                listing.take(&known.path);
                return Ok(Some(entry_of(known, file, at)));
            }
            Checked::Differs(how) if known.can_grow() => {
                known.rotated(&file, renamed.header_lines, &how)?;
            }
            Checked::Differs(how) => return Err(changed(&file, &how)),
        }
    }
    if known.is_read() { Ok(None) } else { Err(known.unread()) }
}
