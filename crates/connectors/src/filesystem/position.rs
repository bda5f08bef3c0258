//! How far the files of a table were read, and whether they are still the files that were read.
//!
//! # What a position is
//! JSON: the files that are left to be read, in order (where files are followed: all of them), each with
//! its size, the place behind the last block that was given completely, and how many rows behind that
//! place were given as well. Places lie between blocks because a reader finds only those without
//! decoding; the rows behind them are read again and dropped.
//!
//! ```text
//! {"format":"csv","files":[{"path":"in.csv","size":120,"rows":3,
//!  "at":{"offset":64,"line":5,"head":"64:…","tail":"64:…"}}],"badRows":0}
//! ```
//!
//! # Whether a file has changed
//! A text is known again by its first bytes and by those just before the place (each at most
//! [`EXCERPT_BYTES`]), so it may grow meanwhile; a Parquet or Arrow file by its length and its last bytes.
//! Offsets and excerpts of compressed texts are those of the text.
//!
//! What is not found out: a change in the middle of what was read. Nothing depends on that.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::sync::Arc;

use serde_json::{Value, json};
use thalweg_core::connector::unread_rows;
use thalweg_core::{Error, Result};

use super::compression::Compression;
use super::paths::InputFile;

/// A file is known again by so many bytes at each place that is looked at.
pub const EXCERPT_BYTES: usize = 1 << 10;

/// Some bytes of a file, by which it is known again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Excerpt {
    /// How many.
    pub bytes: u32,
    hash: u64,
}

impl Default for Excerpt {
    fn default() -> Self {
        Excerpt { bytes: 0, hash: 0xcbf2_9ce4_8422_2325 }
    }
}

impl Excerpt {
    /// The excerpt with these bytes, of which there are at most [`EXCERPT_BYTES`].
    pub fn of(bytes: &[u8]) -> Excerpt {
        Excerpt::default().and(bytes)
    }

    /// The last bytes of a file.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn of_end(file: &mut File) -> io::Result<Excerpt> {
        let bytes = file.metadata()?.len().min(EXCERPT_BYTES as u64);
        file.seek(SeekFrom::End(-(bytes as i64)))?;
        let mut end = vec![0; bytes as usize];
        file.read_exact(&mut end)?;
        Ok(Excerpt::of(&end))
    }

    /// This one and more bytes (FNV-1a).
    fn and(self, bytes: &[u8]) -> Excerpt {
        let mix = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        let count = self.bytes + bytes.len() as u32;
        Excerpt { bytes: count, hash: bytes.iter().fold(self.hash, mix) }
    }

    fn to_json(self) -> Value {
        json!(format!("{}:{:016x}", self.bytes, self.hash))
    }

    fn from_json(value: &Value) -> Option<Excerpt> {
        let (bytes, hash) = value.as_str()?.split_once(':')?;
        let bytes = bytes.parse().ok().filter(|&bytes| bytes as usize <= EXCERPT_BYTES)?;
        Some(Excerpt { bytes, hash: u64::from_str_radix(hash, 16).ok()? })
    }
}

/// A place between two records of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextPlace {
    /// Bytes of the text before it.
    pub offset: u64,
    /// The number of the line that begins there, from 1.
    pub line: u64,
    /// The first bytes of the text.
    pub head: Excerpt,
    /// The bytes before the place.
    pub tail: Excerpt,
}

impl Default for TextPlace {
    fn default() -> Self {
        let nothing = Excerpt::default();
        TextPlace { offset: 0, line: 1, head: nothing, tail: nothing }
    }
}

impl TextPlace {
    /// Goes on behind a block with so many line ends; in front of the first one stands the byte order mark,
    /// if there is one.
    pub fn pass(&mut self, byte_order_mark: &[u8], block: &[u8], lines: u64) {
        if self.offset == 0 {
            let rest = block.len().min(EXCERPT_BYTES - byte_order_mark.len());
            self.head = Excerpt::of(byte_order_mark).and(&block[..rest]);
        }
        self.tail = Excerpt::of(&block[block.len().saturating_sub(EXCERPT_BYTES)..]);
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
pub enum Place {
    /// In a text.
    Text(TextPlace),
    /// In a file of rows.
    Rows(RowPlace),
}

impl Place {
    fn to_json(self) -> Value {
        match self {
            Place::Text(TextPlace { offset, line, head, tail }) => json!({
                "offset": offset, "line": line, "head": head.to_json(), "tail": tail.to_json(),
            }),
            Place::Rows(RowPlace { group, row, end }) => {
                json!({ "group": group, "row": row, "end": end.to_json() })
            }
        }
    }

    fn from_json(value: &Value) -> Option<Place> {
        let number = |key: &str| value.get(key)?.as_u64();
        let excerpt = |key: &str| Excerpt::from_json(value.get(key)?);
        if let Some(offset) = number("offset") {
            let (line, head, tail) = (number("line")?, excerpt("head")?, excerpt("tail")?);
            let fits = u64::from(head.bytes.max(tail.bytes)) <= offset;
            return fits.then_some(Place::Text(TextPlace { offset, line, head, tail }));
        }
        let (row, end) = (number("row")?, excerpt("end")?);
        let group = usize::try_from(number("group")?).ok()?;
        Some(Place::Rows(RowPlace { group, row, end }))
    }

    /// True if this is behind so many bytes of a text that is not compressed.
    fn is_behind(self, size: u64) -> bool {
        matches!(self, Place::Text(at) if at.offset >= size)
    }
}

/// A place in one of the files of a table.
#[derive(Clone, Debug)]
pub struct Mark {
    /// The file's number among those of the table.
    pub number: usize,
    /// The file as it was when it was opened.
    pub file: Arc<InputFile>,
    /// Where.
    pub place: Place,
}

/// A file that is to be read.
#[derive(Clone, Debug)]
pub struct Work {
    /// Its number among those of the table.
    pub number: usize,
    /// The file.
    pub file: Arc<InputFile>,
    /// Where to begin, if not at its beginning.
    pub from: Option<Place>,
}

impl Work {
    /// Where to begin in a file of rows that ends so.
    ///
    /// # Errors
    /// If it ended otherwise when the place was taken.
    pub fn first_row_place(&self, end: Excerpt) -> Result<RowPlace> {
        match self.from {
            Some(Place::Rows(at)) if at.end == end => Ok(at),
            Some(_) => Err(changed(&self.file, "has other contents")),
            None => Ok(RowPlace { group: 0, row: 0, end }),
        }
    }
}

/// The error of a file that is not what it was when the position was taken.
pub fn changed(file: &InputFile, how: &str) -> Error {
    changed_name(&file.label, how)
}

fn changed_name(label: &str, how: &str) -> Error {
    Error::data(format!("the file {how}, so reading cannot go on where it was")).in_file(label).hint(
        "put the file back as it was when the snapshot was taken, or begin anew, without the snapshot",
    )
}

/// What is known of one file.
struct Entry {
    file: Arc<InputFile>,
    at: Option<Place>,
    /// Rows behind `at` that were given.
    given: u64,
    /// Those of them that come again and are to be dropped.
    dropped: u64,
}

/// How far the files of a table were given to whoever reads it.
pub struct Progress {
    format: &'static str,
    entries: BTreeMap<usize, Entry>,
    /// All files stay in the position, since each may grow.
    is_followed: bool,
    /// All rows of all files were given.
    has_ended: bool,
    /// Rows that could not be read, up to the end of the last block that was given completely.
    bad_rows: u64,
    /// Bytes of dead letters up to there.
    letter_bytes: u64,
}

impl Progress {
    /// Nothing of these files was given.
    pub fn new(format: &'static str, files: &[Arc<InputFile>]) -> Progress {
        let entry =
            |file: &Arc<InputFile>| Entry { file: file.clone(), at: None, given: 0, dropped: 0 };
        let entries = files.iter().map(entry).enumerate().collect();
        let (is_followed, has_ended) = (false, false);
        Progress { format, entries, is_followed, has_ended, bad_rows: 0, letter_bytes: 0 }
    }

    /// All files stay in the position, since each may grow.
    pub fn follow(&mut self) {
        self.is_followed = true;
    }

    /// The files that are left, and where to begin.
    pub fn work(&self) -> Vec<Work> {
        let work = |(&number, entry): (&usize, &Entry)| Work {
            number,
            file: entry.file.clone(),
            from: entry.at,
        };
        self.entries.iter().map(work).collect()
    }

    /// Rows of a block have come: how many of the first are to be dropped, since they were given before.
    pub fn arrive(&mut self, end: &Mark, rows: u64) -> u64 {
        if !self.is_followed
            && self.entries.first_key_value().is_some_and(|(&at, _)| at < end.number)
        {
            self.entries = self.entries.split_off(&end.number);
        }
        if self.is_followed && !self.entries.contains_key(&end.number) {
            // The file of this name that was there before has gone.
            self.entries.retain(|_, entry| entry.file.label != end.file.label);
        }
        let file = || Entry { file: end.file.clone(), at: None, given: 0, dropped: 0 };
        let entry = self.entries.entry(end.number).or_insert_with(file);
        let dropped = entry.dropped.min(rows);
        entry.dropped -= dropped;
        dropped
    }

    /// Rows of a block were given.
    pub fn give(&mut self, end: &Mark, rows: u64) {
        if let Some(entry) = self.entries.get_mut(&end.number) {
            entry.given = entry.given.saturating_add(rows);
        }
    }

    /// A block was given completely; up to its end there were so many bad rows and bytes of dead letters.
    pub fn complete(&mut self, end: &Mark, bad_rows: u64, letter_bytes: u64) {
        if let Some(entry) = self.entries.get_mut(&end.number) {
            entry.file = end.file.clone();
            entry.at = Some(end.place);
            // The run before has given rows of later blocks as well if there are any left to drop.
            entry.given = entry.dropped;
        }
        (self.bad_rows, self.letter_bytes) = (bad_rows, letter_bytes);
    }

    /// All rows of all files were given.
    pub fn end(&mut self) {
        self.has_ended = true;
    }

    /// Rows that could not be read before the position.
    pub fn bad_rows(&self) -> u64 {
        self.bad_rows
    }

    /// Bytes of dead letters before the position.
    pub fn letter_bytes(&self) -> u64 {
        self.letter_bytes
    }

    /// The position; `None` if a file cannot be read again.
    pub fn to_json(&self) -> Option<String> {
        let mut files = Vec::with_capacity(self.entries.len());
        for entry in self.entries.values() {
            entry.file.path.as_ref()?;
            let mut file = json!({ "path": entry.file.label.as_ref(), "size": entry.file.size });
            if let Some(place) = entry.at {
                file["at"] = place.to_json();
            }
            if entry.given > 0 {
                file["rows"] = json!(entry.given);
            }
            files.push(file);
        }
        let mut position = json!({ "format": self.format, "files": files, "badRows": self.bad_rows, "ended": self.has_ended });
        if self.letter_bytes > 0 {
            position["letterBytes"] = json!(self.letter_bytes);
        }
        Some(position.to_string())
    }

    /// Goes on from a position.
    ///
    /// # Errors
    /// If it is none of these files, or one of them is not there any more.
    pub fn seek(&mut self, position: &str) -> Result<()> {
        let Position { files: recorded, bad_rows, letter_bytes, .. } = self.read(position)?;
        let found: BTreeMap<&str, &Arc<InputFile>> =
            self.entries.values().map(|entry| (entry.file.label.as_ref(), &entry.file)).collect();
        let mut entries = BTreeMap::new();
        for Recorded { path, size, at, rows } in recorded {
            let Some(&file) = found.get(path.as_str()) else {
                if rows == 0 && (self.is_followed || at.is_some_and(|at| at.is_behind(size))) {
                    continue;
                }
                return Err(changed_name(&path, "is not there any more"));
            };
            if matches!(at, Some(Place::Rows(_))) && file.size != size {
                return Err(changed(file, "has another length"));
            }
            let file = file.clone();
            entries.insert(entries.len(), Entry { file, at, given: rows, dropped: rows });
        }
        self.entries = entries;
        (self.bad_rows, self.letter_bytes) = (bad_rows, letter_bytes);
        Ok(())
    }

    /// Checks that no rows were left to be read at a position.
    ///
    /// # Errors
    /// If there are any: in a file that has grown, or in one that is new.
    pub fn check_ended(&self, position: &str) -> Result<()> {
        let Position { files: recorded, has_ended, .. } = self.read(position)?;
        let of = |file: &InputFile| recorded.iter().find(|known| *known.path == *file.label);
        // Files in front of the first one that is recorded were read and forgotten.
        let files = self.entries.values().map(|entry| &entry.file);
        let mut files = files.skip_while(|file| !self.is_followed && of(file).is_none());
        let is_unread = |file: &&Arc<InputFile>| match of(file) {
            Some(known) => known.has_more(file, self.is_text(), has_ended),
            None => file.size > 0,
        };
        match files.find(is_unread) {
            Some(file) => Err(unread_rows(&file.label)),
            None => Ok(()),
        }
    }

    fn is_text(&self) -> bool {
        ["csv", "json"].contains(&self.format)
    }

    fn read(&self, position: &str) -> Result<Position> {
        let parsed: Option<Value> = serde_json::from_str(position).ok();
        parsed.as_ref().and_then(|position| self.recorded(position)).ok_or_else(|| {
            let message =
                format!("this is no position in files of format '{}': {position}", self.format);
            Error::user(message)
                .hint("the snapshot is of another table, of another version, or damaged")
        })
    }

    fn recorded(&self, position: &Value) -> Option<Position> {
        if position.get("format")?.as_str()? != self.format {
            return None;
        }
        let is_text = self.is_text();
        let file = |file: &Value| -> Option<Recorded> {
            let at = match file.get("at") {
                Some(at) => Some(Place::from_json(at)?),
                None => None,
            };
            let fits = at.is_none_or(|at| is_text == matches!(at, Place::Text(_)));
            let path = file.get("path")?.as_str()?.to_owned();
            let rows = file.get("rows").map_or(Some(0), Value::as_u64)?;
            fits.then_some(Recorded { path, size: file.get("size")?.as_u64()?, at, rows })
        };
        let files = position.get("files")?.as_array()?.iter().map(file).collect::<Option<_>>()?;
        let letter_bytes = position.get("letterBytes").map_or(Some(0), Value::as_u64)?;
        // Earlier versions did not say.
        let has_ended = position.get("ended").and_then(Value::as_bool);
        let bad_rows = position.get("badRows")?.as_u64()?;
        Some(Position { files, has_ended, bad_rows, letter_bytes })
    }
}

/// A position as it was read.
struct Position {
    files: Vec<Recorded>,
    /// All rows of all files were given.
    has_ended: Option<bool>,
    bad_rows: u64,
    letter_bytes: u64,
}

/// A file as the position tells it.
struct Recorded {
    path: String,
    size: u64,
    at: Option<Place>,
    rows: u64,
}

impl Recorded {
    /// True if a file has something that was not read of it.
    fn has_more(&self, file: &InputFile, is_text: bool, has_ended: Option<bool>) -> bool {
        let is_plain = file.path.as_deref().map(Compression::of) == Some(Compression::None);
        match self.at {
            Some(Place::Text(at)) if is_text && is_plain => file.size > at.offset,
            // Of others the place does not tell how much lies behind it.
            _ if has_ended == Some(false) => file.size > 0,
            _ => file.size != self.size,
        }
    }
}
