//! The statements that write a table.

use thalweg_core::{Result, TableSchema};

use crate::postgres::catalog::{ServerColumn, ServerTable, column_list};
use crate::postgres::{identifier, list, literals};

/// A row: its values as text.
pub type TextRow = Vec<Option<String>>;

/// The statements of a table that is written.
#[derive(Clone, Debug)]
pub struct Statements {
    /// The table in SQL.
    pub table: String,
    /// The columns that are written.
    pub columns: Vec<ServerColumn>,
    /// The places of the key among them; none for a table that only grows.
    pub key: Vec<usize>,
}

impl Statements {
    /// The statements for these declared columns of a table.
    ///
    /// # Errors
    /// If the table lacks a column.
    pub fn new(table: &ServerTable, declared: &TableSchema, key: &[usize]) -> Result<Self> {
        let columns = table.match_columns(declared)?;
        Ok(Statements { table: table.sql_name(), columns, key: key.to_vec() })
    }

    /// `COPY … FROM STDIN`.
    pub fn copy(&self) -> String {
        format!("COPY {} ({}) FROM STDIN", self.table, column_list(&self.columns))
    }

    /// `INSERT … ON CONFLICT` of these rows, of which no two have the same key.
    pub fn upsert<'r>(&self, rows: impl Iterator<Item = &'r TextRow>) -> String {
        let tuple = |row: &TextRow| format!("({})", literals(row));
        let rows = list(rows.map(tuple));
        format!("{} VALUES {rows} {}", self.insert(), self.on_conflict())
    }

    /// `DELETE` of the rows with these keys.
    pub fn delete<'r>(&self, keys: impl Iterator<Item = &'r TextRow>) -> String {
        format!("DELETE FROM {} WHERE {}", self.table, is_one_of(&self.key_columns(), keys))
    }

    /// `INSERT INTO table (columns)`.
    pub fn insert(&self) -> String {
        format!("INSERT INTO {} ({})", self.table, column_list(&self.columns))
    }

    /// What happens to rows whose key is there already.
    pub fn on_conflict(&self) -> String {
        if self.key.is_empty() {
            return String::new();
        }
        let key = column_list(self.key_columns());
        let is_other = |(place, _): &(usize, &ServerColumn)| !self.key.contains(place);
        let others = self.columns.iter().enumerate().filter(is_other);
        let set = list(others.map(|(_, column)| {
            let name = identifier(&column.name);
            format!("{name} = EXCLUDED.{name}")
        }));
        match set.is_empty() {
            true => format!("ON CONFLICT ({key}) DO NOTHING"),
            false => format!("ON CONFLICT ({key}) DO UPDATE SET {set}"),
        }
    }

    /// The columns of the key.
    pub fn key_columns(&self) -> Vec<&ServerColumn> {
        self.key.iter().map(|&place| &self.columns[place]).collect()
    }

    /// The key of a row.
    pub fn key_of(&self, row: &TextRow) -> TextRow {
        self.key.iter().map(|&place| row[place].clone()).collect()
    }
}

/// A condition: the columns have one of these values.
pub fn is_one_of<'r>(
    columns: &[&ServerColumn],
    values: impl Iterator<Item = &'r TextRow>,
) -> String {
    let names = column_list(columns.iter().copied());
    let tuple = |row: &TextRow| {
        let values = literals(row);
        if columns.len() == 1 { values } else { format!("({values})") }
    };
    format!("({names}) IN ({})", list(values.map(tuple)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statements(key: &[usize]) -> Statements {
        let column = |name: &str| ServerColumn {
            name: name.to_owned(),
            type_name: "text".to_owned(),
            collation: None,
        };
        let columns = vec![column("a"), column("B\"")];
        Statements { table: "\"s\".\"t\"".to_owned(), columns, key: key.to_vec() }
    }

    #[test]
    fn values_are_quoted() {
        let row = vec![Some("x'; DROP TABLE t; --\\".to_owned()), None];
        let expected = "INSERT INTO \"s\".\"t\" (\"a\", \"B\"\"\") VALUES ('x''; DROP TABLE t; --\\', NULL) \
                        ON CONFLICT (\"a\") DO UPDATE SET \"B\"\"\" = EXCLUDED.\"B\"\"\"";
        assert_eq!(statements(&[0]).upsert([&row].into_iter()), expected);
        assert_eq!(statements(&[0, 1]).on_conflict(), "ON CONFLICT (\"a\", \"B\"\"\") DO NOTHING");
        let key = vec![Some("1".to_owned())];
        let expected = "DELETE FROM \"s\".\"t\" WHERE (\"a\") IN ('1', '1')";
        assert_eq!(statements(&[0]).delete([&key, &key].into_iter()), expected);
    }
}
