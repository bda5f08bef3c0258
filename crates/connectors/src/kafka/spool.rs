//! Messages in files, where they wait until their snapshot is kept.
//!
//! A folder has a file per transaction, `NUMBER.messages`. It is durable, with the name, before the
//! snapshot that needs it is kept; what it should hold stands in the snapshot.
//!
//! A file that is wanted no more becomes `spare.messages`, which the next transaction writes over:
//! its blocks on the disk need not be allocated again. What it held before is never read, since a
//! file is cut to its length before it is durable.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use thalweg_core::{Error, Result};

use crate::filesystem::files::{OsFiles, sync_above};

const ENDING: &str = ".messages";
const SPARE: &str = "spare";
/// Bytes that are written or read at once: few enough to stay in a cache with what they become.
const BLOCK_BYTES: usize = 64 << 10;

/// A message to be written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outgoing<'a> {
    /// The topic, where the table has several.
    pub topic: Option<&'a str>,
    /// The key.
    pub key: Option<&'a [u8]>,
    /// The value.
    pub value: Option<&'a [u8]>,
    /// Its time, if the table says.
    pub timestamp_ms: Option<i64>,
    /// Its headers.
    pub headers: Vec<(&'a str, Option<&'a [u8]>)>,
}

/// What a file should hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The transaction.
    pub number: u64,
    /// The length of the file.
    pub bytes: u64,
    /// Of all its bytes.
    pub checksum: u32,
}

impl Segment {
    /// As text.
    pub fn to_json(&self) -> Value {
        json!({ "number": self.number, "bytes": self.bytes, "checksum": self.checksum })
    }

    /// From its text.
    pub fn from_json(value: &Value) -> Option<Segment> {
        Some(Segment {
            number: value.get("number")?.as_u64()?,
            bytes: value.get("bytes")?.as_u64()?,
            checksum: u32::try_from(value.get("checksum")?.as_u64()?).ok()?,
        })
    }
}

/// The folder.
pub struct Spool {
    table: String,
    folder: PathBuf,
    open: Option<Writing>,
}

struct Writing {
    number: u64,
    file: File,
    hasher: crc32fast::Hasher,
    /// Of what was written to the file.
    bytes: u64,
    /// What has yet to be written.
    buffer: Vec<u8>,
}

impl Spool {
    /// The spool of a table.
    pub fn new(table: &str, folder: PathBuf) -> Spool {
        Spool { table: table.to_owned(), folder, open: None }
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn path(&self, number: u64) -> PathBuf {
        self.folder.join(format!("{number}{ENDING}"))
    }

    fn spare(&self) -> PathBuf {
        self.folder.join(format!("{SPARE}{ENDING}"))
    }

    fn failed(&self, number: u64, error: &io::Error) -> Error {
        Error::io(format!("table {}, 'sink.spool.path': {error}", self.table))
            .in_file(self.path(number).display().to_string())
            .hint("rows wait there for their snapshot: make room, or name another folder")
    }

    /// Adds messages to the file of this transaction, which is the newest.
    ///
    /// # Errors
    /// If they can't be written.
    pub fn write(&mut self, number: u64, messages: &[Outgoing<'_>]) -> Result<()> {
        if messages.is_empty() {
            return Ok(());
        }
        if self.open.is_none() {
            let begun = self.begin(number).map_err(|error| self.failed(number, &error))?;
            self.open = Some(begun);
        }
        let Some(open) = &mut self.open else { return Ok(()) };
        let written = open.write(messages);
        written.map_err(|error| self.failed(number, &error))
    }

    fn begin(&self, number: u64) -> io::Result<Writing> {
        fs::create_dir_all(&self.folder)?;
        // Where there is none, a new file is made.
        let _ = fs::rename(self.spare(), self.path(number));
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(false).open(self.path(number))?;
        Ok(Writing { number, file, hasher: crc32fast::Hasher::new(), bytes: 0, buffer: Vec::new() })
    }

    /// Makes durable what was written since the last time; `None` if that was nothing.
    ///
    /// # Errors
    /// If that can't be done.
    pub fn seal(&mut self) -> Result<Option<Segment>> {
        let Some(open) = self.open.take() else { return Ok(None) };
        let number = open.number;
        let sealed = open.seal().and_then(|segment| {
            sync_above(&OsFiles, &self.path(number))?;
            Ok(segment)
        });
        sealed.map(Some).map_err(|error| self.failed(number, &error))
    }

    /// Checks that a file holds what it should.
    ///
    /// # Errors
    /// If it does not.
    pub fn check(&self, segment: &Segment) -> Result<()> {
        let path = self.path(segment.number);
        match fs::metadata(&path) {
            Ok(found) if found.len() == segment.bytes => Ok(()),
            found => {
                let what = match found {
                    Ok(found) => format!("is {} bytes long", found.len()),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {
                        "is not there".to_owned()
                    }
                    Err(error) => return Err(self.failed(segment.number, &error)),
                };
                let message = format!(
                    "table {}: the snapshot has {} bytes of messages to commit, and their file {what}",
                    self.table, segment.bytes
                );
                Err(Error::data(message)
                    .in_file(path.display().to_string())
                    .hint("bring the folder of 'sink.spool.path' back together with the snapshot, or start from scratch"))
            }
        }
    }

    /// Reads the messages of a file, many at a time.
    ///
    /// # Errors
    /// If it does not hold what it should; what `each` says.
    pub fn read(
        &self,
        segment: &Segment,
        each: &mut dyn FnMut(&[Outgoing<'_>]) -> Result<()>,
    ) -> Result<()> {
        self.check(segment)?;
        let path = self.path(segment.number);
        let damaged = || {
            Error::data(format!("table {}: the file of messages is damaged", self.table))
                .in_file(path.display().to_string())
                .hint("restore it from a backup, or start from scratch")
        };
        let failed = |error: io::Error| self.failed(segment.number, &error);
        let mut file = File::open(&path).map_err(failed)?.take(segment.bytes);
        let (mut checksum, mut block) = (crc32fast::Hasher::new(), Vec::new());
        loop {
            let kept = block.len();
            let read =
                file.by_ref().take(BLOCK_BYTES as u64).read_to_end(&mut block).map_err(failed)?;
            checksum.update(&block[kept..]);
            let (messages, used) = Outgoing::read_all(&block).ok_or_else(damaged)?;
            each(&messages)?;
            drop(messages);
            block.drain(..used);
            if read == 0 {
                break;
            }
        }
        match block.is_empty() && checksum.finalize() == segment.checksum {
            true => Ok(()),
            false => Err(damaged()),
        }
    }

    /// Removes the files of transactions that are wanted no more.
    pub fn remove(&mut self, is_wanted: impl Fn(u64) -> bool) {
        let Ok(entries) = fs::read_dir(&self.folder) else { return };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let number = name.to_str().and_then(|name| name.strip_suffix(ENDING)?.parse().ok());
            if number.is_some_and(|number: u64| !is_wanted(number)) {
                // One that stays is removed the next time.
                let _ = fs::rename(entry.path(), self.spare());
            }
        }
    }

    /// Removes all files: nothing more is written.
    pub fn clear(&mut self) {
        self.remove(|_| false);
        // It is in nobody's way if it stays.
        let _ = fs::remove_file(self.spare());
    }

    /// Forgets what is being written.
    pub fn abandon(&mut self) {
        self.open = None;
    }
}

impl Writing {
    fn write(&mut self, messages: &[Outgoing<'_>]) -> io::Result<()> {
        for message in messages {
            let begin = self.buffer.len();
            self.buffer.extend_from_slice(&[0; 4]);
            message.write(&mut self.buffer);
            let length = (self.buffer.len() - begin - 4) as u32;
            self.buffer[begin..begin + 4].copy_from_slice(&length.to_le_bytes());
            if self.buffer.len() >= BLOCK_BYTES {
                self.write_buffer()?;
            }
        }
        Ok(())
    }

    fn write_buffer(&mut self) -> io::Result<()> {
        self.hasher.update(&self.buffer);
        self.bytes += self.buffer.len() as u64;
        self.file.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }

    fn seal(mut self) -> io::Result<Segment> {
        self.write_buffer()?;
        self.file.set_len(self.bytes)?;
        self.file.sync_all()?;
        Ok(Segment { number: self.number, bytes: self.bytes, checksum: self.hasher.finalize() })
    }
}

impl<'a> Outgoing<'a> {
    /// True if it is a key and a value for the topic of its table, and nothing else.
    pub fn is_plain(&self) -> bool {
        self.topic.is_none() && self.timestamp_ms.is_none() && self.headers.is_empty()
    }

    /// Appends the message as bytes.
    pub fn write(&self, out: &mut Vec<u8>) {
        let part = |out: &mut Vec<u8>, bytes: Option<&[u8]>| {
            let length = bytes.map_or(u32::MAX, |bytes| bytes.len() as u32);
            out.extend_from_slice(&length.to_le_bytes());
            out.extend_from_slice(bytes.unwrap_or_default());
        };
        part(out, self.topic.map(str::as_bytes));
        part(out, self.key);
        part(out, self.value);
        part(out, self.timestamp_ms.map(i64::to_le_bytes).as_ref().map(<[u8; 8]>::as_slice));
        for (name, value) in &self.headers {
            part(out, Some(name.as_bytes()));
            part(out, *value);
        }
    }

    /// The messages of a part of a file, and how many bytes they take: one at the end may be there
    /// in part. `None` if they are none.
    fn read_all(bytes: &'a [u8]) -> Option<(Vec<Outgoing<'a>>, usize)> {
        let (mut messages, mut left) = (Vec::new(), bytes);
        while let Some((length, rest)) = left.split_first_chunk() {
            let length = u32::from_le_bytes(*length) as usize;
            let Some((message, rest)) = rest.split_at_checked(length) else { break };
            messages.push(Outgoing::read(message)?);
            left = rest;
        }
        Some((messages, bytes.len() - left.len()))
    }

    /// The message of bytes; `None` if they are none.
    pub fn read(mut bytes: &'a [u8]) -> Option<Outgoing<'a>> {
        let mut part = || -> Option<Option<&'a [u8]>> {
            let (length, rest) = bytes.split_first_chunk()?;
            bytes = rest;
            let length = u32::from_le_bytes(*length);
            if length == u32::MAX {
                return Some(None);
            }
            let (part, rest) = bytes.split_at_checked(length as usize)?;
            bytes = rest;
            Some(Some(part))
        };
        let topic = match part()? {
            None => None,
            Some(topic) => Some(std::str::from_utf8(topic).ok()?),
        };
        let (key, value) = (part()?, part()?);
        let timestamp_ms = match part()? {
            None => None,
            Some(time) => Some(i64::from_le_bytes(time.try_into().ok()?)),
        };
        let mut headers = Vec::new();
        while let Some(name) = part() {
            headers.push((std::str::from_utf8(name?).ok()?, part()?));
        }
        Some(Outgoing { topic, key, value, timestamp_ms, headers })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_back_and_damage_is_noticed() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut spool = Spool::new("t", folder.path().join("a/b"));
        assert_eq!(spool.seal().expect("nothing"), None);
        let long = vec![7; 3 * BLOCK_BYTES];
        let messages = [
            Outgoing { value: Some(b"{}"), ..Outgoing::default() },
            Outgoing { value: Some(&long), ..Outgoing::default() },
            Outgoing {
                topic: Some("x"),
                key: Some(b""),
                timestamp_ms: Some(-1),
                headers: vec![("h", None), ("h", Some(&[0, 255]))],
                ..Outgoing::default()
            },
        ];
        spool.write(7, &messages).expect("written");
        let segment = spool.seal().expect("durable").expect("a file");
        assert_eq!(Segment::from_json(&segment.to_json()), Some(segment.clone()));
        let mut expected = messages.iter();
        let mut each = |messages: &[Outgoing<'_>]| {
            messages.iter().for_each(|message| assert_eq!(Some(message), expected.next()));
            Ok(())
        };
        spool.read(&segment, &mut each).expect("read back");
        assert_eq!(expected.next(), None);
        let path = folder.path().join("a/b/7.messages");
        let mut bytes = fs::read(&path).expect("the file");
        *bytes.last_mut().expect("a byte") ^= 1;
        fs::write(&path, &bytes).expect("damaged");
        assert!(spool.read(&segment, &mut |_| Ok(())).is_err());
        spool.remove(|number| number > 7);
        assert!(spool.check(&segment).is_err() && !path.exists());
        // The next one is written over it, and is shorter.
        spool.write(8, &messages[..1]).expect("written");
        let shorter = spool.seal().expect("durable").expect("a file");
        let mut count = 0;
        let mut each = |found: &[Outgoing<'_>]| {
            count += found.len();
            found.iter().for_each(|message| assert_eq!(message, &messages[0]));
            Ok(())
        };
        spool.read(&shorter, &mut each).expect("read back");
        assert_eq!(count, 1);
        spool.clear();
        assert_eq!(fs::read_dir(folder.path().join("a/b")).expect("the folder").count(), 0);
    }
}
