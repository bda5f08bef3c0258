//! How far the table and the log were read.
//!
//! The table is read in chunks, in the order of its primary key, and each chunk by a query of its
//! own. The log is read from one position on, all the time. How the two fit together:
//!
//! | a change of a row whose key is | |
//! |---|---|
//! | behind the last row that was read | is left out: a later chunk has it |
//! | in the newest chunk, by a transaction that its query saw | is left out: the chunk has it |
//! | anywhere else | is delivered |
//!
//! The log is read beyond all that the query of a chunk saw before the next chunk is read, so there
//! is one chunk at most whose changes must be distinguished ([`Seen`]).
//!
//! A change that was left out since a later chunk has it must be visible to the query of that
//! chunk. Its transaction is remembered ([`Position::unseen`]) until one sees it; a chunk whose
//! query does not is read again.

use serde_json::{Value, json};
use thalweg_core::Result;

use crate::saved::read_saved;

use super::lsn;
use super::rows::GroupOrigin;
use super::visibility::Visibility;

/// A key of the table: its values as text.
pub type Key = Vec<String>;

/// How far table and log were read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Position {
    /// All transactions of the log before it were delivered.
    pub lsn: u64,
    /// The commit of the transaction behind it of which rows were delivered; 0 for none.
    pub transaction: u64,
    /// How many of its rows.
    pub rows: u64,
    /// The key of the last row of the table that was delivered.
    pub done: Option<Key>,
    /// All of the table was delivered.
    pub is_complete: bool,
    /// The newest chunk, as long as the log has changes that its query saw.
    pub seen: Option<Seen>,
    /// Transactions whose changes were left out for a chunk to come.
    pub unseen: Vec<u64>,
}

/// The newest chunk of the table.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    /// It begins behind this key; `None` for the beginning of the table.
    pub from: Option<Key>,
    /// What its query saw.
    pub visibility: Visibility,
    /// The log has none of that from here on.
    pub until: u64,
}

impl Position {
    /// All rows of a group were delivered, or its first `rows`, the last of which has this
    /// key.
    pub fn follow(&mut self, origin: &GroupOrigin, rows: u64, last: Option<Key>, is_whole: bool) {
        match origin {
            GroupOrigin::Start(position) => self.clone_from(position),
            GroupOrigin::Chunk(seen, ends_table) => {
                let upto = if *ends_table && is_whole { None } else { last };
                if upto.is_some() || is_whole {
                    self.read_chunk(seen, upto);
                }
            }
            GroupOrigin::Log(transaction, before) if rows > 0 => {
                (self.transaction, self.rows) = (*transaction, before + rows);
            }
            GroupOrigin::Log(..) => {}
        }
    }

    /// The log was delivered up to here.
    pub fn reach(&mut self, reached: u64) {
        self.lsn = self.lsn.max(reached);
        (self.transaction, self.rows) = (0, 0);
        if self.seen.as_ref().is_some_and(|seen| seen.until <= self.lsn) {
            self.seen = None;
        }
    }

    /// Rows of a chunk were delivered, up to this key; `None` for all up to the end of the table.
    pub fn read_chunk(&mut self, seen: &Seen, upto: Option<Key>) {
        self.is_complete = upto.is_none();
        if upto.is_some() {
            self.done.clone_from(&upto);
        }
        self.seen = (seen.until > self.lsn).then(|| seen.clone());
    }

    /// As JSON.
    pub fn write(&self) -> String {
        let seen = self.seen.as_ref().map(|seen| {
            json!({
                "from": seen.from,
                "snapshot": seen.visibility.text(),
                "until": lsn::text(seen.until),
            })
        });
        json!({
            "lsn": lsn::text(self.lsn),
            "transaction": lsn::text(self.transaction),
            "rows": self.rows,
            "done": self.done,
            "complete": self.is_complete,
            "chunk": seen,
            "unseen": self.unseen,
        })
        .to_string()
    }

    /// From JSON.
    ///
    /// # Errors
    /// If it is none.
    pub fn read(text: &str) -> Result<Position> {
        read_saved("position in a log of PostgreSQL", text, Self::parse)
    }

    fn parse(value: &Value) -> Option<Position> {
        let place = |name: &str| lsn::parse(value.get(name)?.as_str()?);
        let seen = match value.get("chunk")? {
            Value::Null => None,
            seen => Some(Seen {
                from: key(seen.get("from")?)?,
                visibility: Visibility::parse(seen.get("snapshot")?.as_str()?)?,
                until: lsn::parse(seen.get("until")?.as_str()?)?,
            }),
        };
        let unseen = value.get("unseen")?.as_array()?;
        Some(Position {
            lsn: place("lsn")?,
            transaction: place("transaction")?,
            rows: value.get("rows")?.as_u64()?,
            done: key(value.get("done")?)?,
            is_complete: value.get("complete")?.as_bool()?,
            seen,
            unseen: unseen.iter().map(Value::as_u64).collect::<Option<_>>()?,
        })
    }
}

/// A key, or none; `None` if it is neither.
fn key(value: &Value) -> Option<Option<Key>> {
    match value {
        Value::Null => Some(None),
        Value::Array(values) => {
            let text = |value: &Value| value.as_str().map(str::to_owned);
            values.iter().map(text).collect::<Option<Key>>().map(Some)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_written_and_read() {
        let visibility = Visibility::parse("5:9:6").expect("a snapshot");
        let seen = Seen { from: None, visibility, until: 300 };
        let mut position = Position { lsn: 200, unseen: vec![7], ..Position::default() };
        position.read_chunk(&seen, Some(vec!["a".to_owned()]));
        (position.transaction, position.rows) = (250, 3);
        assert_eq!(Position::read(&position.write()).expect("a position"), position);
        position.read_chunk(&seen, None);
        assert!(position.is_complete && position.seen.is_some());
        assert_eq!(Position::read(&position.write()).expect("a position"), position);
        position.reach(300);
        assert_eq!((position.seen.clone(), position.rows), (None, 0));
        for damaged in ["", "{}", "{\"lsn\": \"0/1\"}"] {
            assert!(Position::read(damaged).is_err(), "{damaged}");
        }
    }
}
