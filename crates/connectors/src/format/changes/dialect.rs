//! What the objects of each dialect look like.

use regex::Regex;
use thalweg_core::RowKind;

use crate::format::avro::AvroOptions;
use crate::format::json::JsonOptions;

/// A tool that writes changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// `debezium-json`
    Debezium,
    /// `maxwell-json`
    Maxwell,
    /// `canal-json`
    Canal,
    /// `ogg-json`: Oracle GoldenGate.
    Ogg,
}

/// What an object says that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A row is there that was not.
    Insert,
    /// A row is another one.
    Update,
    /// A row is gone.
    Delete,
    /// Nothing that concerns rows.
    None,
}

/// How changes are read and written.
#[derive(Clone, Debug)]
pub struct ChangeOptions {
    /// Who writes them.
    pub dialect: Dialect,
    /// How the JSON is read and written.
    pub json: JsonOptions,
    /// How Avro is read and written, if that is what messages are: `debezium-avro-confluent`.
    pub avro: Option<AvroOptions>,
    /// True if the change stands in a key `payload`, next to its schema.
    pub has_schema: bool,
    /// The databases, of which changes are read; all if there is none.
    pub databases: Option<Regex>,
    /// The same for tables.
    pub tables: Option<Regex>,
}

impl Dialect {
    /// The key of what happened.
    pub fn kind_key(self) -> &'static str {
        match self {
            Dialect::Debezium => "op",
            Dialect::Maxwell | Dialect::Canal => "type",
            Dialect::Ogg => "op_type",
        }
    }

    /// The keys of what a row was, and of what it is.
    pub fn image_keys(self) -> (&'static str, &'static str) {
        match self {
            Dialect::Debezium | Dialect::Ogg => ("before", "after"),
            Dialect::Maxwell | Dialect::Canal => ("old", "data"),
        }
    }

    /// True if what a row was holds only what was different.
    pub fn has_differences(self) -> bool {
        matches!(self, Dialect::Maxwell | Dialect::Canal)
    }

    /// What a word means; `None` if it is not known.
    pub fn change(self, word: &str) -> Option<Change> {
        Some(match (self, word) {
            (Dialect::Debezium, "c" | "r") | (Dialect::Maxwell, "insert") => Change::Insert,
            (Dialect::Canal, "INSERT") | (Dialect::Ogg, "I") => Change::Insert,
            (Dialect::Debezium, "u") | (Dialect::Maxwell, "update") => Change::Update,
            (Dialect::Canal, "UPDATE") | (Dialect::Ogg, "U") => Change::Update,
            (Dialect::Debezium, "d") | (Dialect::Maxwell, "delete") => Change::Delete,
            (Dialect::Canal, "DELETE") | (Dialect::Ogg, "D") => Change::Delete,
            (Dialect::Canal, "CREATE") => Change::None,
            _ => return None,
        })
    }

    /// The word that is written for a row that is gone, or there.
    pub fn word(self, is_gone: bool) -> &'static str {
        match (self, is_gone) {
            (Dialect::Debezium, false) => "c",
            (Dialect::Debezium, true) => "d",
            (Dialect::Maxwell, false) => "insert",
            (Dialect::Maxwell, true) => "delete",
            (Dialect::Canal, false) => "INSERT",
            (Dialect::Canal, true) => "DELETE",
            (Dialect::Ogg, false) => "I",
            (Dialect::Ogg, true) => "D",
        }
    }
}

impl Change {
    /// The kinds of the rows that it makes.
    pub fn kinds(self) -> &'static [RowKind] {
        match self {
            Change::Insert => &[RowKind::Insert],
            Change::Update => &[RowKind::UpdateBefore, RowKind::UpdateAfter],
            Change::Delete => &[RowKind::Delete],
            Change::None => &[],
        }
    }
}

/// Where the parts of an object are among the columns that are read of it.
pub const BEFORE: usize = 0;
pub const AFTER: usize = 1;
pub const KIND: usize = 2;
