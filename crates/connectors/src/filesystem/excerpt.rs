//! The last bytes of a file, by which it is known again.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use serde_json::{Value, json};
#[cfg(any(feature = "kafka", feature = "messaging"))]
use thalweg_core::Error;

use super::files::if_there;
use super::input_handle::InputHandle;

/// A file of rows is known again by this many of its last bytes.
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
    pub fn of_end(file: &mut InputHandle) -> io::Result<Excerpt> {
        let bytes = file.length()?.min(EXCERPT_BYTES as u64);
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

    /// As text.
    pub fn to_json(self) -> Value {
        json!(format!("{}:{:016x}", self.bytes, self.hash))
    }

    /// From its text.
    pub fn from_json(value: &Value) -> Option<Excerpt> {
        let (bytes, hash) = value.as_str()?.split_once(':')?;
        let bytes = bytes.parse().ok().filter(|&bytes| bytes as usize <= EXCERPT_BYTES)?;
        Some(Excerpt { bytes, hash: u64::from_str_radix(hash, 16).ok()? })
    }
}

/// How much of a dead-letter file counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LetterMark {
    /// Its first bytes.
    pub bytes: u64,
    /// The last of them, by which the file is known again; none without bytes.
    pub tail: Option<Excerpt>,
}

impl LetterMark {
    /// As text.
    #[cfg(any(feature = "kafka", feature = "messaging"))]
    pub fn to_json(self) -> Value {
        json!({ "bytes": self.bytes, "tail": self.tail.map(Excerpt::to_json) })
    }

    /// That which a position of a source of messages has; nothing counts where it has none.
    ///
    /// # Errors
    /// If it is no such mark.
    #[cfg(any(feature = "kafka", feature = "messaging"))]
    pub fn of_position(position: &str) -> thalweg_core::Result<LetterMark> {
        let value: Value = serde_json::from_str(position).unwrap_or_default();
        let Some(noted) = value.get("letters") else { return Ok(LetterMark::default()) };
        LetterMark::from_json(noted).ok_or_else(|| {
            Error::user("the position says nothing of dead letters that makes sense")
                .hint("the snapshot is of another version, or damaged")
        })
    }

    #[cfg(any(feature = "kafka", feature = "messaging"))]
    fn from_json(value: &Value) -> Option<LetterMark> {
        let tail = match value.get("tail").filter(|tail| !tail.is_null()) {
            None => None,
            Some(tail) => Some(Excerpt::from_json(tail)?),
        };
        Some(LetterMark { bytes: value.get("bytes")?.as_u64()?, tail })
    }

    /// True if a file begins with what this counts.
    pub fn fits(self, path: &Path) -> io::Result<bool> {
        let Some(found) = tail_of(path, self.bytes)? else { return Ok(false) };
        Ok(self.tail.is_none_or(|tail| tail == Excerpt::of(&found)))
    }
}

/// The last of this many bytes of a file, as many as an excerpt has; `None` if it is shorter or not
/// there.
pub fn tail_of(path: &Path, bytes: u64) -> io::Result<Option<Vec<u8>>> {
    let Some(mut file) = if_there(File::open(path))? else { return Ok(None) };
    if file.metadata()?.len() < bytes {
        return Ok(None);
    }
    let count = bytes.min(EXCERPT_BYTES as u64);
    file.seek(SeekFrom::Start(bytes - count))?;
    let mut tail = vec![0; count as usize];
    file.read_exact(&mut tail)?;
    Ok(Some(tail))
}
