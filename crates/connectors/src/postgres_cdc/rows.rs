//! Rows of chunks and of the log: where the delivered columns, and the key, lie in a message.

use bytes::Bytes;
use thalweg_core::{Error, Result, RowKind};

use super::pgoutput::{Place, Relation};
use super::position::{Key, Position, Seen};
use crate::postgres::catalog::ServerColumn;
use crate::postgres::connection::{Row, utf8};
use crate::postgres::failure::Outcome;

/// A row that is delivered.
pub struct ChangedRow {
    /// What it does.
    pub kind: RowKind,
    /// The message that holds it.
    body: Bytes,
    /// The places of the delivered columns, then those of the key.
    places: Box<[Place]>,
}

/// Rows that are delivered one behind the other.
pub struct Group {
    /// The rows.
    pub rows: Vec<ChangedRow>,
    /// When they were committed, in milliseconds since 1970.
    pub time_ms: i64,
    /// Where they come from.
    pub origin: GroupOrigin,
    /// The log was delivered up to here with them.
    pub reached: Option<u64>,
    /// Transactions whose changes were left out for a chunk to come.
    pub unseen: Vec<u64>,
}

/// Where rows come from.
pub enum GroupOrigin {
    /// Nowhere: reading begins here.
    Start(Box<Position>),
    /// A chunk of the table; whether the table ends with them.
    Chunk(Seen, bool),
    /// A transaction, named by its commit; how many of its rows came before.
    Log(u64, u64),
}

impl ChangedRow {
    /// A row of a message.
    pub fn new(kind: RowKind, body: Bytes, places: Box<[Place]>) -> ChangedRow {
        ChangedRow { kind, body, places }
    }

    /// A row of a result.
    pub fn of_result(row: &Row) -> ChangedRow {
        let body = row.bytes().clone();
        let start = body.as_ptr() as usize;
        let place = |value: Option<&[u8]>| match value {
            None => Place::Null,
            Some(value) => {
                let from = (value.as_ptr() as usize - start) as u32;
                Place::Text(from, from + value.len() as u32)
            }
        };
        let places = row.values().map(place).collect();
        ChangedRow { kind: RowKind::Insert, body, places }
    }

    /// The values of the delivered columns, of which there are `width`.
    pub fn values(&self, width: usize) -> impl Iterator<Item = Option<&[u8]>> {
        self.places[..width].iter().map(|place| place.of(&self.body))
    }

    /// The key, behind `width` delivered columns.
    ///
    /// # Errors
    /// If it is not there.
    pub fn key(&self, width: usize) -> Outcome<Key> {
        key_of(&self.body, &self.places[width..])
    }
}

/// The texts of a key.
///
/// # Errors
/// If a value is missing.
pub fn key_of(body: &[u8], places: &[Place]) -> Outcome<Key> {
    let text = |place: &Place| match place.of(body) {
        Some(value) => Ok(utf8(value)?.to_owned()),
        None => Err(Error::data("a change without the key of its row").into()),
    };
    places.iter().map(text).collect()
}

/// Where the columns that are needed stand in the messages of a table.
#[derive(Debug)]
pub struct ColumnPlaces {
    /// The delivered columns.
    delivered: Vec<usize>,
    /// The key.
    key: Vec<usize>,
    /// Names and types of both.
    types: Vec<(String, u32)>,
}

impl ColumnPlaces {
    /// Finds columns in a table of the log.
    ///
    /// # Errors
    /// If one is missing: the table was changed.
    pub fn find(
        relation: &Relation,
        delivered: &[ServerColumn],
        key: &[ServerColumn],
    ) -> Result<ColumnPlaces> {
        let find = |ServerColumn { name, .. }: &ServerColumn| {
            let mut columns = relation.columns.iter();
            columns.position(|(known, _)| known == name).ok_or_else(|| {
                Error::data(format!("the table was changed: column {name} is not there any more"))
                    .hint(
                        "take the column out of the declaration; if the table was changed back, start from scratch under \
                         another 'slot.name'",
                    )
            })
        };
        let delivered = delivered.iter().map(find).collect::<Result<Vec<usize>>>()?;
        let key = key.iter().map(find).collect::<Result<Vec<usize>>>()?;
        let types = delivered.iter().chain(&key).map(|&at| relation.columns[at].clone()).collect();
        Ok(ColumnPlaces { delivered, key, types })
    }

    /// Checks that the columns have the types that they had before.
    ///
    /// # Errors
    /// If one has another type.
    pub fn check_unchanged(&self, before: &ColumnPlaces) -> Result<()> {
        let mut pairs = self.types.iter().zip(&before.types);
        match pairs.find(|(now, before)| now.1 != before.1) {
            None => Ok(()),
            Some(((name, _), _)) => Err(Error::data(format!(
                "the table was changed: column {name} has another type"
            ))
            .hint(
                "check that the declaration still fits, and resume the job from its last snapshot",
            )),
        }
    }

    /// The places of a row: delivered columns, then the key. Values that did not change and are not
    /// there are taken from the row before.
    ///
    /// # Errors
    /// If a value is nowhere.
    pub fn select(&self, row: &[Place], before: Option<&[Place]>) -> Result<Box<[Place]>> {
        let wanted = self.delivered.iter().chain(&self.key).zip(&self.types);
        let place = |(&at, (name, _)): (&usize, &(String, u32))| match row.get(at) {
            Some(Place::Unchanged) => {
                let earlier = before.and_then(|before| before.get(at));
                let known = earlier.filter(|&&place| place != Place::Unchanged);
                known.copied().ok_or_else(|| unchanged(name))
            }
            place => Ok(place.copied().unwrap_or(Place::Null)),
        };
        wanted.map(place).collect()
    }
}

fn unchanged(column: &str) -> Error {
    Error::data(format!(
        "column {column}: the value did not change, is long (TOAST), and the log does not repeat it"
    ))
    .hint("ALTER TABLE … REPLICA IDENTITY FULL, then start from scratch; or leave the column out of the declaration")
}
