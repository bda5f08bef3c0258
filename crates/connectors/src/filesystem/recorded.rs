//! A position in files as a snapshot holds it, and whether the files still hold what was read of
//! them.

use std::fs::File;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use thalweg_core::{Error, Result};

use crate::saved::read_saved;

use super::compression::Compression;
use super::excerpt::{Excerpt, LetterMark};
use super::identity::{Contents, Prefix, Sum, Tail};
use super::input_file::{InputFile, changed, changed_name, read_error};
use super::objects::is_url;
use super::position::{FilePlace, GivenText, RowPlace, TextPlace};
use super::stamp::Stamp;

/// A position as it was read.
pub struct Position {
    /// The files that were left to be read; where files are followed all of them.
    pub files: Vec<Recorded>,
    /// All rows of all files were given. Earlier versions did not say.
    pub has_ended: Option<bool>,
    /// Rows that could not be read.
    pub bad_rows: u64,
    /// The dead letters.
    pub letters: LetterMark,
}

impl Position {
    /// Reads a position in files of this format.
    ///
    /// # Errors
    /// If it is none.
    pub fn read(text: &str, format: &str, is_text: bool) -> Result<Position> {
        let what = format!("position in files of format '{format}'");
        read_saved(&what, text, |value| Position::from_json(value, format, is_text))
    }

    fn from_json(position: &Value, format: &str, is_text: bool) -> Option<Position> {
        if position.get("format")?.as_str()? != format {
            return None;
        }
        let files = position.get("files")?.as_array()?.iter();
        let files = files.map(|file| Recorded::from_json(file, is_text)).collect::<Option<_>>()?;
        let bytes = position.get("letterBytes").map_or(Some(0), Value::as_u64)?;
        // Earlier versions did not say by what they are known again.
        let tail = position.get("letterTail").and_then(Excerpt::from_json);
        let has_ended = position.get("ended").and_then(Value::as_bool);
        Some(Position {
            files,
            has_ended,
            bad_rows: position.get("badRows")?.as_u64()?,
            letters: LetterMark { bytes, tail },
        })
    }
}

/// A file as a position has it.
pub struct Recorded {
    /// Its label.
    pub path: String,
    /// Its length in bytes when it was listed.
    pub size: u64,
    /// What the file system said of it then.
    pub stamp: Option<Stamp>,
    /// Rows behind the place that were given.
    pub rows: u64,
    /// It was read to its end.
    pub is_done: bool,
    /// Its first bytes, if it was followed.
    pub head: Vec<u8>,
    /// How far rows that were given had been read.
    pub seen: Option<GivenText>,
    at: Option<FilePlace>,
    is_text: bool,
}

/// Whether a file is the one of a position.
pub enum Checked {
    /// It holds what was read of it; this is the place.
    Same(Option<FilePlace>),
    /// It does not, and how.
    Differs(String),
}

impl Recorded {
    fn from_json(file: &Value, is_text: bool) -> Option<Recorded> {
        let at = match file.get("at") {
            Some(at) => Some(place_from(at)?),
            None => None,
        };
        if at.as_ref().is_some_and(|at| is_text != matches!(at, FilePlace::Text(_))) {
            return None;
        }
        let seen = match file.get("seen") {
            Some(seen) => Some(GivenText {
                offset: seen.get("offset")?.as_u64()?,
                sum: Sum::from_json(seen.get("sum")?)?,
            }),
            None => None,
        };
        Some(Recorded {
            path: file.get("path")?.as_str()?.to_owned(),
            size: file.get("size")?.as_u64()?,
            stamp: Stamp::read(file),
            rows: file.get("rows").map_or(Some(0), Value::as_u64)?,
            is_done: file.get("done").map_or(Some(false), Value::as_bool)?,
            head: bytes_from(file.get("head"))?,
            seen,
            at,
            is_text,
        })
    }

    /// True if nothing was read of it.
    pub fn is_untouched(&self) -> bool {
        self.at.is_none() && self.rows == 0
    }

    /// True for a text that is not compressed, and so can grow.
    pub fn can_grow(&self) -> bool {
        let is_plain = Compression::of(Path::new(&self.path)) == Compression::None;
        self.is_text && is_plain && !is_url(&self.path)
    }

    /// True if all that it had was given.
    pub fn is_read(&self) -> bool {
        self.rows == 0 && (self.is_done || (self.can_grow() && self.offset() >= self.size))
    }

    /// Bytes of the text before the place.
    fn offset(&self) -> u64 {
        match self.at {
            Some(FilePlace::Text(at)) => at.offset,
            _ => 0,
        }
    }

    /// Whether a file holds what was read of this one.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn check(&self, file: &InputFile) -> Result<Checked> {
        let is_proved = match (file.stamp, self.stamp) {
            (Some(now), Some(then)) => file.size == self.size && now.proves(then),
            _ => false,
        };
        let is_replaced = match (file.stamp, self.stamp) {
            (Some(now), Some(then)) => now.replaces(then),
            _ => false,
        };
        match self.at {
            Some(FilePlace::Text(_)) | None if is_proved => Ok(Checked::Same(self.at)),
            _ if is_replaced && !self.is_untouched() => {
                Ok(Checked::Differs("was replaced by another object".to_owned()))
            }
            Some(FilePlace::Rows(at)) => self.check_rows(file, at),
            None if self.seen.is_none() => Ok(Checked::Same(None)),
            _ => self.check_text(file),
        }
    }

    fn check_rows(&self, file: &InputFile, at: RowPlace) -> Result<Checked> {
        if file.size != self.size {
            let how = format!("has {} bytes where it had {}", file.size, self.size);
            return Ok(Checked::Differs(how));
        }
        let end = file.open().and_then(|mut open| Excerpt::of_end(&mut open));
        let end = end.map_err(|e| read_error(file, &e))?;
        match end == at.end {
            true => Ok(Checked::Same(Some(FilePlace::Rows(at)))),
            false => Ok(Checked::Differs("has other contents".to_owned())),
        }
    }

    /// Reads again what was read.
    fn check_text(&self, file: &InputFile) -> Result<Checked> {
        let other = |read: u64| {
            Ok(Checked::Differs(format!(
                "has other contents in the {read} bytes that were read of it"
            )))
        };
        let mut prefix = Prefix::open(file)?;
        let mut place = None;
        if let Some(FilePlace::Text(at)) = self.at {
            if !prefix.read_to(at.offset)? {
                return Ok(shorter(&prefix, at.offset));
            }
            if prefix.sum != at.sum {
                return other(at.offset);
            }
            let tail = prefix.tail;
            if self.can_grow() && ends_open(&tail) && file.size > at.offset {
                return Ok(Checked::Differs(GROWN_LINE.to_owned()));
            }
            place = Some(FilePlace::Text(TextPlace { tail, ..at }));
        }
        if let Some(GivenText { offset, sum }) = self.seen {
            if !prefix.read_to(offset)? {
                return Ok(shorter(&prefix, offset));
            }
            if prefix.sum != sum {
                return other(offset);
            }
        }
        Ok(Checked::Same(place))
    }

    /// What to do with a followed text that is not what it was: `None` where it was restarted, so
    /// that its old contents are gone; the place, where that cannot be said yet.
    ///
    /// # Errors
    /// If it was changed, or rows that had not been read are gone.
    pub fn rotated(
        &self,
        file: &InputFile,
        header_lines: usize,
        how: &str,
    ) -> Result<Option<FilePlace>> {
        let path = file.path.as_deref().unwrap_or(Path::new(""));
        let read = usize::try_from(self.offset()).unwrap_or(usize::MAX);
        let head = &self.head[..read.min(self.head.len())];
        let Some(FilePlace::Text(at)) = self.at.filter(|_| self.can_grow() && !head.is_empty())
        else {
            return Err(changed(file, how));
        };
        let contents = File::open(path)
            .and_then(|mut open| Contents::of(&mut open, head, &at.tail, header_lines));
        match contents.map_err(|e| read_error(file, &e))? {
            Contents::Changed => Err(changed(file, how)),
            _ if !self.is_read() => Err(self.unread()),
            Contents::New => Ok(None),
            Contents::Unclear => Ok(Some(FilePlace::Text(at))),
        }
    }

    /// The error of a file that is gone and was not read to its end.
    pub fn unread(&self) -> Error {
        let what = match self.can_grow() {
            true => format!(
                "{} of its {} bytes had not been read",
                self.size.saturating_sub(self.offset()),
                self.size
            ),
            false => "it had not been read to its end".to_owned(),
        };
        changed_name(&self.path, &format!("is not there any more, and {what}"))
    }

    /// True if a file has something that was not read of this one.
    pub fn has_more(&self, file: &InputFile, has_ended: Option<bool>) -> bool {
        match self.at {
            Some(FilePlace::Text(at)) if self.can_grow() => file.size > at.offset,
            // Of others the place does not say how much lies behind it.
            _ if has_ended == Some(false) => file.size > 0,
            _ => file.size != self.size,
        }
    }
}

/// A last line was read that turned out to be longer.
pub const GROWN_LINE: &str = "has grown behind a last line that had no end and was read as it was";

/// True if what was read ends within a line.
pub fn ends_open(tail: &Tail) -> bool {
    tail.bytes().last().is_some_and(|&byte| byte != b'\n')
}

fn shorter(prefix: &Prefix<'_>, offset: u64) -> Checked {
    let length = prefix.offset;
    Checked::Differs(format!(
        "is shorter than what was read of it: it has {length} bytes, {offset} were read"
    ))
}

fn place_from(value: &Value) -> Option<FilePlace> {
    let number = |key: &str| value.get(key)?.as_u64();
    let Some(offset) = number("offset") else {
        let end = Excerpt::from_json(value.get("end")?)?;
        let group = usize::try_from(number("group")?).ok()?;
        return Some(FilePlace::Rows(RowPlace { group, row: number("row")?, end }));
    };
    let sum = Sum::from_json(value.get("sum")?)?;
    let tail = Tail::of(&bytes_from(value.get("tail"))?);
    let is_possible = tail.bytes().len() as u64 <= offset;
    let place = TextPlace { offset, line: number("line")?, sum, tail };
    is_possible.then_some(FilePlace::Text(place))
}

/// Bytes from their text; none if there is no text.
fn bytes_from(value: Option<&Value>) -> Option<Vec<u8>> {
    match value {
        Some(text) => STANDARD.decode(text.as_str()?).ok(),
        None => Some(Vec::new()),
    }
}
