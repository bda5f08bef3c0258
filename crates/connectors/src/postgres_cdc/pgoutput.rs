//! Messages of the log, as the plugin `pgoutput` writes them (version 1 of its protocol).
//!
//! Source: PostgreSQL documentation, "Logical Replication Message Formats" and "Streaming
//! Replication Protocol".

use bytes::Bytes;
use thalweg_core::Error;

use crate::postgres::failure::{Failure, Outcome};

/// Milliseconds from 1970 to 2000, from which servers count.
pub const EPOCH_MS: i64 = 946_684_800_000;

/// What a server sends.
pub enum Part {
    /// A message of the log.
    Log(Bytes),
    /// All of the log before this position was sent; whether the server waits for an answer.
    Reached(u64, bool),
}

/// A message of the log.
pub enum LogMessage {
    /// A transaction begins, which commits at this position and time.
    Begin {
        /// Where its commit begins.
        lsn: u64,
        /// When it committed, in milliseconds since 1970.
        time_ms: i64,
        /// The low half of its number.
        xid: u32,
    },
    /// It ends; the log continues here.
    Commit(u64),
    /// What a table looks like in the messages that follow.
    Relation(Relation),
    /// A row changes.
    Change(Change),
    /// These tables were emptied.
    Truncate(Vec<u32>),
    /// Anything else.
    Other,
}

/// A table in the log.
pub struct Relation {
    /// By which changes name it.
    pub id: u32,
    /// Its columns, in order: name and type.
    pub columns: Vec<(String, u32)>,
}

/// A change of a row.
pub struct Change {
    /// The table.
    pub relation: u32,
    /// What happens.
    pub operation: Operation,
    /// The row before: all of it, or its key alone.
    pub old: Option<(OldRow, Vec<Place>)>,
    /// The row after.
    pub new: Option<Vec<Place>>,
}

/// What happens to a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// It comes.
    Insert,
    /// It changes.
    Update,
    /// It goes.
    Delete,
}

/// What is known of a row before its change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OldRow {
    /// All of it.
    Whole,
    /// Its key.
    Key,
}

/// Where the text of a value lies in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// NULL.
    Null,
    /// A long value that did not change, and is not there.
    Unchanged,
    /// From here to there.
    Text(u32, u32),
}

impl Place {
    /// The value in its message.
    pub fn of(self, message: &[u8]) -> Option<&[u8]> {
        match self {
            Place::Text(start, end) => message.get(start as usize..end as usize),
            Place::Null | Place::Unchanged => None,
        }
    }
}

/// Reads what a server sends.
///
/// # Errors
/// If it makes no sense.
pub fn part(bytes: &Bytes) -> Outcome<Part> {
    let mut cursor = Cursor { bytes, at: 1 };
    match bytes.first() {
        // Start and end of the log it is about, and the time.
        Some(b'w') if bytes.len() > 25 => Ok(Part::Log(bytes.slice(25..))),
        Some(b'k') => {
            let (lsn, _time) = (cursor.u64()?, cursor.u64()?);
            Ok(Part::Reached(lsn, cursor.u8()? == 1))
        }
        _ => Err(strange()),
    }
}

/// Reads a message of the log.
///
/// # Errors
/// If it makes no sense.
pub fn message(bytes: &[u8]) -> Outcome<LogMessage> {
    let mut cursor = Cursor { bytes, at: 0 };
    Ok(match cursor.u8()? {
        b'B' => {
            let (lsn, micros, xid) = (cursor.u64()?, cursor.u64()? as i64, cursor.u32()?);
            LogMessage::Begin { lsn, time_ms: micros.div_euclid(1000) + EPOCH_MS, xid }
        }
        b'C' => {
            let (_flags, _commit) = (cursor.u8()?, cursor.u64()?);
            LogMessage::Commit(cursor.u64()?)
        }
        b'R' => LogMessage::Relation(cursor.relation()?),
        b'I' => LogMessage::Change(cursor.change(Operation::Insert)?),
        b'U' => LogMessage::Change(cursor.change(Operation::Update)?),
        b'D' => LogMessage::Change(cursor.change(Operation::Delete)?),
        b'T' => {
            let (count, _flags) = (cursor.u32()?, cursor.u8()?);
            LogMessage::Truncate((0..count).map(|_| cursor.u32()).collect::<Outcome<_>>()?)
        }
        _ => LogMessage::Other,
    })
}

fn strange() -> Failure {
    Error::data("the log of the server makes no sense")
        .hint("report it, with the version of the server")
        .into()
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Cursor<'_> {
    fn take<const N: usize>(&mut self) -> Outcome<[u8; N]> {
        let taken = self.bytes.get(self.at..).and_then(|rest| rest.first_chunk::<N>());
        self.at += N;
        taken.copied().ok_or_else(strange)
    }

    fn u8(&mut self) -> Outcome<u8> {
        Ok(self.take::<1>()?[0])
    }
    fn u16(&mut self) -> Outcome<u16> {
        Ok(u16::from_be_bytes(self.take()?))
    }
    fn u32(&mut self) -> Outcome<u32> {
        Ok(u32::from_be_bytes(self.take()?))
    }
    fn u64(&mut self) -> Outcome<u64> {
        Ok(u64::from_be_bytes(self.take()?))
    }

    fn text(&mut self) -> Outcome<String> {
        let rest = self.bytes.get(self.at..).ok_or_else(strange)?;
        let length = rest.iter().position(|&byte| byte == 0).ok_or_else(strange)?;
        self.at += length + 1;
        Ok(String::from_utf8_lossy(&rest[..length]).into_owned())
    }

    fn relation(&mut self) -> Outcome<Relation> {
        let id = self.u32()?;
        let (_schema, _name, _identity) = (self.text()?, self.text()?, self.u8()?);
        let count = self.u16()?;
        let column = |_| {
            let _is_key = self.u8()?;
            let (name, data_type, _modifier) = (self.text()?, self.u32()?, self.u32()?);
            Ok((name, data_type))
        };
        Ok(Relation { id, columns: (0..count).map(column).collect::<Outcome<_>>()? })
    }

    fn change(&mut self, operation: Operation) -> Outcome<Change> {
        let mut change = Change { relation: self.u32()?, operation, old: None, new: None };
        while self.at < self.bytes.len() {
            match self.u8()? {
                b'K' => change.old = Some((OldRow::Key, self.row()?)),
                b'O' => change.old = Some((OldRow::Whole, self.row()?)),
                b'N' => change.new = Some(self.row()?),
                _ => return Err(strange()),
            }
        }
        Ok(change)
    }

    fn row(&mut self) -> Outcome<Vec<Place>> {
        let count = self.u16()?;
        let value = |_| {
            Ok(match self.u8()? {
                b'n' => Place::Null,
                b'u' => Place::Unchanged,
                b't' => {
                    let length = self.u32()?;
                    let start = self.at as u32;
                    self.at += length as usize;
                    if self.at > self.bytes.len() {
                        return Err(strange());
                    }
                    Place::Text(start, self.at as u32)
                }
                _ => return Err(strange()),
            })
        };
        (0..count).map(value).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(values: &[Option<&str>]) -> Vec<u8> {
        let mut bytes = (values.len() as u16).to_be_bytes().to_vec();
        for value in values {
            match value {
                None => bytes.push(b'n'),
                Some("…") => bytes.push(b'u'),
                Some(text) => {
                    bytes.push(b't');
                    bytes.extend_from_slice(&(text.len() as u32).to_be_bytes());
                    bytes.extend_from_slice(text.as_bytes());
                }
            }
        }
        bytes
    }

    #[test]
    fn changes_are_taken_apart_and_cut_messages_are_refused() {
        let mut bytes = vec![b'U', 0, 0, 0, 7, b'O'];
        bytes.extend(row(&[Some("1"), None, Some("long")]));
        bytes.push(b'N');
        bytes.extend(row(&[Some("1"), Some("x"), Some("…")]));
        let Ok(LogMessage::Change(change)) = message(&bytes) else { panic!("a change") };
        let (new, (old_row, old)) = (change.new.expect("new"), change.old.expect("old"));
        assert_eq!(
            (change.relation, change.operation, old_row),
            (7, Operation::Update, OldRow::Whole)
        );
        let texts = |places: &[Place]| -> Vec<_> { places.iter().map(|p| p.of(&bytes)).collect() };
        assert_eq!(texts(&old), [Some(&b"1"[..]), None, Some(b"long")]);
        assert_eq!(new[2], Place::Unchanged);
        for length in 0..bytes.len() {
            let cut = message(&bytes[..length]);
            let is_whole = matches!(&cut, Ok(LogMessage::Change(change)) if change.new.is_some());
            assert!(!is_whole, "{length} bytes");
        }
    }

    #[test]
    fn keep_alives_say_how_far_the_log_was_sent() {
        let mut bytes = vec![b'k'];
        bytes.extend_from_slice(&77u64.to_be_bytes());
        bytes.extend_from_slice(&0u64.to_be_bytes());
        bytes.push(1);
        assert!(matches!(part(&Bytes::from(bytes.clone())), Ok(Part::Reached(77, true))));
        assert!(part(&Bytes::from(bytes[..9].to_vec())).is_err());
    }
}
