//! The list of dead letters that are to be read again: JSON lines in `NAME.replay`, next to the
//! file of dead letters `NAME`.
//!
//! A line has a number and a letter with the place in the file of dead letters behind it. Whoever
//! wants letters to be read again adds lines; the job that reads the table takes them.
//!
//! **Invariants**
//! - Numbers ascend and are not used again, also when lines have gone.
//! - A line counts when its line feed is there. The list is replaced as a whole or grows by whole
//!   lines, durably, under one lock of this process; no other process writes it.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use thalweg_core::{Error, Result};

use crate::filesystem::{Files, OsFiles, if_there, partial, with_ending};

/// Letters that wait on a list at most.
pub const WAITING_MAX: usize = 10_000;

/// Whoever changes a list holds it.
static WRITING: Mutex<()> = Mutex::new(());

/// A dead letter, and where it stands in its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Letter {
    /// How many bytes the file of dead letters has up to its end: what it is known by.
    pub end: u64,
    /// The file or the partition that the record was in.
    pub file: String,
    /// Its place there.
    pub line: u64,
    /// Why it could not be read.
    pub reason: String,
    /// The record.
    pub raw: Vec<u8>,
    /// What is known of it besides.
    pub message: Value,
}

impl Letter {
    /// The record in base64, where it is no text.
    pub fn coded(&self) -> Option<String> {
        std::str::from_utf8(&self.raw).is_err().then(|| STANDARD.encode(&self.raw))
    }
}

/// A letter that is to be read again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedLetter {
    /// Its number on the list, from 1.
    pub number: u64,
    /// The letter.
    pub letter: Letter,
}

/// Where the list of a file of dead letters is.
pub fn list_path(letters: &Path) -> PathBuf {
    with_ending(letters, ".replay")
}

fn writing() -> MutexGuard<'static, ()> {
    WRITING.lock().unwrap_or_else(PoisonError::into_inner)
}

fn failed(path: &Path, error: &io::Error) -> Error {
    Error::io(format!("the list of dead letters to be read again: {error}"))
        .in_file(path.display().to_string())
}

/// Passes the letters of a file of dead letters on, as it is while the job runs or when it has
/// ended: those of the last bytes, as many as are wanted. A line that is not complete is none.
///
/// # Errors
/// If the file can't be read.
pub fn letters_of(letters: &Path, bytes_max: u64, mut take: impl FnMut(Letter)) -> Result<()> {
    let failed = |error: io::Error| failed(letters, &error);
    let running = if_there(File::open(partial(letters))).map_err(failed)?;
    let file = match running {
        None => if_there(File::open(letters)).map_err(failed)?,
        running => running,
    };
    let Some(mut file) = file else { return Ok(()) };
    let length = file.metadata().map_err(failed)?.len();
    let mut end = length.saturating_sub(bytes_max);
    file.seek(SeekFrom::Start(end)).map_err(failed)?;
    let (mut reader, mut line) = (BufReader::new(file), Vec::new());
    // The first line is a part of one.
    let mut is_part = end > 0;
    loop {
        line.clear();
        let bytes = reader.read_until(b'\n', &mut line).map_err(failed)?;
        if line.last() != Some(&b'\n') {
            return Ok(());
        }
        end += bytes as u64;
        let value: Option<Value> = serde_json::from_slice(&line).ok();
        if !std::mem::take(&mut is_part) {
            value.and_then(|value| letter_from(&value, end)).into_iter().for_each(&mut take);
        }
    }
}

fn letter_from(value: &Value, end: u64) -> Option<Letter> {
    let text = |key: &str| value.get(key).and_then(Value::as_str);
    let raw = match text("raw-base64") {
        Some(coded) => STANDARD.decode(coded).ok()?,
        None => text("raw")?.as_bytes().to_vec(),
    };
    Some(Letter {
        end,
        file: text("file")?.to_owned(),
        line: value.get("line")?.as_u64()?,
        reason: text("reason").unwrap_or_default().to_owned(),
        raw,
        message: value.get("message").cloned().unwrap_or_default(),
    })
}

/// What a list says: its letters, and the last number that was given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct List {
    /// Ascending by number.
    pub letters: Vec<ListedLetter>,
    /// Also of a letter that has gone.
    pub last: u64,
}

impl List {
    /// Reads the list of a file of dead letters; empty where there is none.
    ///
    /// # Errors
    /// If it can't be read.
    pub fn read(letters: &Path) -> Result<List> {
        let path = list_path(letters);
        let bytes = if_there(fs::read(&path)).map_err(|error| failed(&path, &error))?;
        let Some(bytes) = bytes else { return Ok(List::default()) };
        let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        let mut list = List::default();
        for line in bytes[..whole].split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
            let value: Value = serde_json::from_slice(line).map_err(|_| {
                Error::data("the list of dead letters to be read again has a line that is none")
                    .in_file(path.display().to_string())
                    .hint("remove the line: the letters stay where they are")
            })?;
            let number = value.get("number").and_then(Value::as_u64).unwrap_or_default();
            list.last = list.last.max(number);
            let end = value.get("end").and_then(Value::as_u64).unwrap_or_default();
            let letter = letter_from(&value, end);
            list.letters.extend(letter.map(|letter| ListedLetter { number, letter }));
        }
        Ok(list)
    }

    /// Adds letters behind the others, unless they are on it with a number for which `counts` is
    /// true. The number of each that is on the list now, as it was given.
    ///
    /// # Errors
    /// If too many wait, or it can't be written.
    pub fn add(
        letters: &Path,
        wanted: &[Letter],
        counts: impl Fn(u64) -> bool,
    ) -> Result<Vec<u64>> {
        let _writing = writing();
        let mut list = List::read(letters)?;
        let mut numbers = Vec::with_capacity(wanted.len());
        for letter in wanted {
            let same = |own: &&ListedLetter| own.letter.end == letter.end && counts(own.number);
            let known = list.letters.iter().rev().find(same).map(|own| own.number);
            numbers.push(known.unwrap_or_else(|| {
                list.last += 1;
                list.letters.push(ListedLetter { number: list.last, letter: letter.clone() });
                list.last
            }));
        }
        if list.letters.len() > WAITING_MAX {
            return Err(Error::user(format!(
                "{} dead letters were read again or wait for it, and a table keeps at most {WAITING_MAX}",
                list.letters.len()
            ))
            .hint("ask for fewer, or start the job from scratch"));
        }
        list.write(letters)?;
        Ok(numbers)
    }

    /// Takes letters off that are not wanted any more. Their numbers stay taken.
    ///
    /// # Errors
    /// If it can't be written.
    pub fn keep(letters: &Path, is_wanted: impl Fn(&ListedLetter) -> bool) -> Result<List> {
        let _writing = writing();
        let mut list = List::read(letters)?;
        let before = list.letters.len();
        list.letters.retain(is_wanted);
        if list.letters.len() < before {
            list.write(letters)?;
        }
        Ok(list)
    }

    fn write(&self, letters: &Path) -> Result<()> {
        let mut text = format!("{}\n", json!({ "number": self.last }));
        for ListedLetter { number, letter } in &self.letters {
            let Letter { end, file, line, reason, raw, message } = letter;
            let mut value = json!({
                "number": number, "end": end, "file": file, "line": line, "reason": reason,
                "raw": String::from_utf8_lossy(raw),
            });
            if let Some(coded) = letter.coded() {
                value["raw-base64"] = coded.into();
            }
            if !message.is_null() {
                value["message"] = message.clone();
            }
            text.push_str(&value.to_string());
            text.push('\n');
        }
        let path = list_path(letters);
        OsFiles.replace(&path, text.as_bytes()).map_err(|error| failed(&path, &error))
    }
}
