//! A client of PostgreSQL: what the connectors `jdbc` and `postgres-cdc` share.
//!
//! It speaks the protocol itself, since no crate has both ordinary sessions and the replication
//! protocol. Calls block; see [`crate::network`] for how they end. All values travel as text: it
//! is what every type of the server has, in a form that is the same in query results, in `COPY` and
//! in the stream of changes, so that there is one decoder and one encoder.
//!
//! | what | where |
//! |---|---|
//! | where a database is and who signs in | [`settings`] |
//! | what can go wrong | [`failure`] |
//! | messages over a connection | [`messages`] |
//! | who signs in, and how | [`sign_in`] |
//! | a session | [`connection`] |
//! | the same, opened again after it has broken | [`session`] |
//! | text of the server to columns | [`decode`] |
//! | columns to text for the server | [`encode`] |
//! | what the server knows of a table | [`catalog`] |

pub mod catalog;
pub mod connection;
pub mod decode;
pub mod encode;
pub mod failure;
pub mod messages;
pub mod session;
pub mod settings;
mod sign_in;

/// A name, quoted for SQL.
pub fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A text, quoted for SQL. Backslashes are ordinary characters: every session sees to that.
pub fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// A value, quoted for SQL.
fn literal_or_null(value: Option<&str>) -> String {
    value.map_or_else(|| "NULL".to_owned(), literal)
}

/// Things, separated by commas.
pub fn list(items: impl IntoIterator<Item = String>) -> String {
    items.into_iter().collect::<Vec<_>>().join(", ")
}

/// The values of a row as SQL, separated by commas.
pub fn literals(row: &[Option<String>]) -> String {
    list(row.iter().map(|value| literal_or_null(value.as_deref())))
}
