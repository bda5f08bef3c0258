//! The order of keys: that of the server, which sorts the chunks.

use thalweg_core::Error;

use super::position::Key;
use crate::postgres::catalog::ServerColumn;
use crate::postgres::failure::Outcome;
use crate::postgres::session::Session;
use crate::postgres::{list, literal};

/// The order of the keys of a table.
pub enum KeyOrder {
    /// One integer.
    Integer,
    /// Any other: the server compares, by types and collations of these columns.
    Server(Vec<ServerColumn>),
}

impl KeyOrder {
    /// The order of these columns.
    pub fn of(columns: &[ServerColumn]) -> KeyOrder {
        match columns {
            [column] if ["smallint", "integer", "bigint"].contains(&column.type_name.as_str()) => {
                KeyOrder::Integer
            }
            columns => KeyOrder::Server(columns.to_vec()),
        }
    }

    /// Whether a key is behind each of these.
    ///
    /// # Errors
    /// If the server can't say.
    pub fn is_behind(
        &self,
        session: &mut Session,
        key: &Key,
        others: &[&Key],
    ) -> Outcome<Vec<bool>> {
        match self {
            KeyOrder::Integer => {
                let number = |key: &Key| {
                    let parsed = key.first().and_then(|text| text.parse::<i64>().ok());
                    parsed.ok_or_else(|| Error::data(format!("{key:?} is no integer key")))
                };
                let own = number(key)?;
                Ok(others
                    .iter()
                    .map(|&other| Ok(own > number(other)?))
                    .collect::<Result<_, Error>>()?)
            }
            KeyOrder::Server(columns) => {
                let own = row(columns, key);
                let compared = |other: &&Key| format!("{own} > {}", row(columns, other));
                let sql = format!("SELECT {}", list(others.iter().map(compared)));
                session.try_call(&mut |connection| {
                    let rows = connection.query(&sql)?;
                    let is_true = |value: Option<String>| value.as_deref() == Some("t");
                    Ok(rows.into_iter().flatten().map(is_true).collect())
                })
            }
        }
    }
}

fn row(columns: &[ServerColumn], key: &Key) -> String {
    let value = |(column, text): (&ServerColumn, &String)| {
        let collate =
            column.collation.as_ref().map_or(String::new(), |name| format!(" COLLATE {name}"));
        format!("{}::{}{collate}", literal(text), column.type_name)
    };
    format!("ROW({})", list(columns.iter().zip(key).map(value)))
}
