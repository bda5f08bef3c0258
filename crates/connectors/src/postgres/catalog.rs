//! What the server knows of a table.

use thalweg_core::connector::nearest_or_all;
use thalweg_core::{Error, Result, TableSchema};

use super::connection::Connection;
use super::failure::Outcome;
use super::session::Session;
use super::{identifier, list, literal};

/// A table of the database.
#[derive(Clone, Debug)]
pub struct ServerTable {
    /// Its number.
    pub oid: u32,
    /// Its schema.
    pub schema: String,
    /// Its name.
    pub name: String,
    /// Its columns, in order.
    pub columns: Vec<ServerColumn>,
    /// The names of the columns of its primary key, in order.
    pub key: Vec<String>,
}

/// A column of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerColumn {
    /// Its name.
    pub name: String,
    /// Its type, as SQL names it, without length or precision.
    pub type_name: String,
    /// How its texts are sorted, as SQL names it.
    pub collation: Option<String>,
}

/// How a name may be meant: as it is written, or in lower case.
fn spellings(table: &str) -> Vec<String> {
    let quoted = |text: &str| match text.split_once('.') {
        Some((schema, name)) => format!("{}.{}", identifier(schema), identifier(name)),
        None => identifier(text),
    };
    vec![quoted(table), quoted(&table.to_lowercase())]
}

impl ServerTable {
    /// The table of the server that a table of a job stands for.
    ///
    /// # Errors
    /// If the server can't be reached, or has none of this name.
    pub fn open(session: &mut Session, table: &str, named: &str) -> Result<ServerTable> {
        let found = session.try_call(&mut |connection| Self::find(connection, named));
        let found =
            found.map_err(|failure| session.explained(failure, &format!("table {table}")))?;
        found.ok_or_else(|| missing(table, named))
    }

    /// The table of this name, which may have its schema in front: as it is written, or else in
    /// lower case, which is what a name without quotes means.
    ///
    /// # Errors
    /// If the connection has broken. `None` if there is no such table.
    fn find(connection: &mut Connection, table: &str) -> Outcome<Option<ServerTable>> {
        for spelling in spellings(table) {
            let sql = format!("SELECT to_regclass({})::oid", literal(&spelling));
            if let Some(oid) = connection.query_value(&sql)? {
                return Self::read(connection, &oid).map(Some);
            }
        }
        Ok(None)
    }

    /// The table with this object identifier.
    ///
    /// # Errors
    /// If the connection has broken.
    pub fn read(connection: &mut Connection, oid: &str) -> Outcome<ServerTable> {
        let sql = format!(
            "SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
             WHERE c.oid = {oid}"
        );
        let row = connection.query(&sql)?.pop().unwrap_or_default();
        let mut texts = row.into_iter().map(Option::unwrap_or_default);
        let mut next = || texts.next().unwrap_or_default();
        let (schema, name) = (next(), next());
        let sql = format!(
            "SELECT attname, format_type(atttypid, -1), \
             (SELECT quote_ident(n.nspname) || '.' || quote_ident(c.collname) FROM pg_collation c \
             JOIN pg_namespace n ON n.oid = c.collnamespace WHERE c.oid = attcollation) FROM pg_attribute \
             WHERE attrelid = {oid} AND attnum > 0 AND NOT attisdropped ORDER BY attnum"
        );
        let column = |row: Vec<Option<String>>| {
            let mut texts = row.into_iter();
            let mut next = || texts.next().flatten();
            let (name, type_name) = (next().unwrap_or_default(), next().unwrap_or_default());
            ServerColumn { name, type_name, collation: next() }
        };
        let columns = connection.query(&sql)?.into_iter().map(column).collect();
        let sql = format!(
            "SELECT a.attname FROM pg_index i CROSS JOIN LATERAL unnest(i.indkey) WITH ORDINALITY AS k(attnum, place) \
             JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum \
             WHERE i.indrelid = {oid} AND i.indisprimary ORDER BY k.place"
        );
        let key = connection.query(&sql)?.into_iter().flatten().flatten().collect();
        let oid = oid.parse().unwrap_or_default();
        Ok(ServerTable { oid, schema, name, columns, key })
    }

    /// Its name in SQL.
    pub fn sql_name(&self) -> String {
        format!("{}.{}", identifier(&self.schema), identifier(&self.name))
    }

    /// Its name for people.
    pub fn shown(&self) -> String {
        format!("{}.{}", self.schema, self.name)
    }

    /// The columns that are declared, as the table has them: as they are written, or else in lower
    /// case.
    ///
    /// # Errors
    /// If the table lacks one.
    pub fn match_columns(&self, declared: &TableSchema) -> Result<Vec<ServerColumn>> {
        let find = |name: &str| self.columns.iter().find(|column| column.name == name);
        let matched = declared.columns.iter().map(|column| {
            find(&column.name).or_else(|| find(&column.name.to_lowercase())).cloned().ok_or_else(
                || {
                    let names = self.columns.iter().map(|column| column.name.as_str());
                    let shown = self.shown();
                    Error::data(format!("the table {shown} has no column {}", column.name))
                        .hint(nearest_or_all(&column.name, names, "it has"))
                },
            )
        });
        matched.collect()
    }
}

/// The names of columns in SQL, separated by commas.
pub fn column_list<'a>(columns: impl IntoIterator<Item = &'a ServerColumn>) -> String {
    list(columns.into_iter().map(|column| identifier(&column.name)))
}

/// The error of a table that is not there.
fn missing(table: &str, named: &str) -> Error {
    Error::io(format!("table {table}: the database has no table '{named}'"))
        .hint("check the name, with its schema: 'schema.table'; this user may also lack the right to see the schema")
}
