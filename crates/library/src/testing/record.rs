//! A test that is made of rows which were seen.
//!
//! What tables gave becomes the inputs of a case; what is expected is what the statements make of
//! just these rows, found by running the case once.

use std::path::PathBuf;

use thalweg_core::text::format_timestamp_millis;
use thalweg_core::{Error, Result};
use thalweg_plan::ast::{CreateTable, StatementKind, TableColumnKind};
use thalweg_plan::parser::parse_script_with_notes;

use super::cells::Cell;
use super::markdown::{Table, TestFile};
use super::run::{TestOptions, run_case};
use crate::session::inserts_of;

/// Rows that are being recorded.
pub struct Recording {
    name: String,
    sql: String,
    inputs: Vec<Recorded>,
    /// The tables that are written, with their columns.
    outputs: Vec<(String, Vec<String>)>,
}

/// What a table has given.
struct Recorded {
    table: String,
    columns: Vec<String>,
    /// Which of them have come: others are not read.
    has_come: Vec<bool>,
    holds_changes: bool,
    rows: Vec<Vec<Cell>>,
}

/// A row that was seen.
pub struct SeenRow<'a> {
    /// The table that gave it.
    pub table: &'a str,
    /// When, in milliseconds since 1970.
    pub at_ms: i64,
    /// `+I`, `-U`, `+U` or `-D`.
    pub kind: &'a str,
    /// Its columns as text; `None` for NULL.
    pub values: Vec<(String, Option<String>)>,
}

impl Recording {
    /// Begins to record a job that has these statements, of what these tables give.
    ///
    /// # Errors
    /// If the statements cannot be parsed, or declare no such table.
    pub fn new(name: &str, sql: &str, tables: &[String]) -> Result<Recording> {
        let statements = parse_script_with_notes(sql)?.statements;
        let declared = |name: &str| {
            let mut tables = statements.iter().filter_map(|statement| match &statement.kind {
                StatementKind::CreateTable(table) => Some(table),
                _ => None,
            });
            tables.rfind(|table| table.name.text == name)
        };
        let input = |table: &String| {
            let columns = declared(table).map(read_columns).ok_or_else(|| {
                Error::plan(format!(
                    "the statements declare no table {table}, so its rows can't be recorded"
                ))
            })?;
            let (table, has_come) = (table.clone(), vec![false; columns.len()]);
            Ok(Recorded { table, columns, has_come, holds_changes: false, rows: Vec::new() })
        };
        let written = statements.iter().filter_map(inserts_of).flat_map(|(inserts, _)| inserts);
        let mut outputs: Vec<(String, Vec<String>)> = Vec::new();
        for insert in written {
            let name = &insert.table.text;
            if let Some(table) = declared(name)
                && !outputs.iter().any(|(known, _)| known == name)
            {
                outputs.push((name.clone(), read_columns(table)));
            }
        }
        Ok(Recording {
            name: name.to_owned(),
            sql: sql.to_owned(),
            inputs: tables.iter().map(input).collect::<Result<_>>()?,
            outputs,
        })
    }

    /// Adds a row. Rows of other tables are left out.
    pub fn add(&mut self, row: SeenRow<'_>) {
        let Some(input) = self.inputs.iter_mut().find(|input| input.table == row.table) else {
            return;
        };
        let value = |column: &String| {
            let found = row.values.iter().find(|(name, _)| name == column);
            found.and_then(|(_, value)| value.clone())
        };
        for (column, has_come) in input.columns.iter().zip(&mut input.has_come) {
            *has_come |= row.values.iter().any(|(name, _)| name == column);
        }
        let own = [Some(format_timestamp_millis(row.at_ms, 3)), Some(row.kind.to_owned())];
        input.holds_changes |= row.kind != "+I";
        input.rows.push(own.into_iter().chain(input.columns.iter().map(value)).collect());
    }

    /// How many rows were added.
    pub fn rows(&self) -> usize {
        self.inputs.iter().map(|input| input.rows.len()).sum()
    }

    /// The file.
    ///
    /// # Errors
    /// If the statements do not run on these rows.
    pub fn into_text(self) -> Result<String> {
        let text = self.without_expectations();
        let (name, folder) = (format!("{}.test.md", self.name), PathBuf::new());
        let file = TestFile::parse(name, folder, text)?;
        let options = TestOptions::default();
        let reports: Vec<_> =
            file.cases.iter().map(|case| run_case(&file, case, &options)).collect();
        if let Some((_, error, ..)) = reports.iter().find_map(|report| report.error.as_ref()) {
            return Err(error.clone());
        }
        Ok(file.updated(&reports).unwrap_or(file.text))
    }

    fn without_expectations(&self) -> String {
        let fence = "`".repeat(3);
        let mut text = format!(
            "# {}\n\nRecorded from the running job: what tables gave, and what comes of these rows alone.\n\n\
             {fence}sql\n{}\n{fence}\n",
            self.name,
            self.sql.trim_end()
        );
        for input in &self.inputs {
            text.push_str(&format!("\ninput {}\n\n{}", input.table, input.as_table()));
        }
        for (table, columns) in &self.outputs {
            let empty = Table { header: columns.clone(), ..Table::default() };
            text.push_str(&format!("\nexpect {table}\n\n{}", empty.with_rows(&[])));
        }
        text
    }
}

impl Recorded {
    fn as_table(&self) -> String {
        let marked = |name: &str| {
            let is_taken = self.columns.iter().any(|column| column == name);
            if is_taken { format!("@{name}") } else { name.to_owned() }
        };
        let own = [marked("at"), marked("op")];
        let header: Vec<String> = own.into_iter().chain(self.columns.iter().cloned()).collect();
        let is_shown = [true, self.holds_changes].into_iter().chain(self.has_come.iter().copied());
        let shown: Vec<usize> =
            is_shown.enumerate().filter(|(_, is_shown)| *is_shown).map(|(at, _)| at).collect();
        let row = |row: &Vec<Cell>| shown.iter().map(|&at| row[at].clone()).collect();
        let rows: Vec<Vec<Cell>> = self.rows.iter().map(row).collect();
        let header = shown.iter().map(|&at| header[at].clone()).collect();
        Table { header, ..Table::default() }.with_rows(&rows)
    }
}

/// The columns of a table that are read from outside, or written.
pub(super) fn read_columns(table: &CreateTable) -> Vec<String> {
    let is_read = |kind: &TableColumnKind| !matches!(kind, TableColumnKind::Computed(_));
    let columns = table.columns.iter().filter(|column| is_read(&column.kind));
    columns.map(|column| column.name.text.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_seen_becomes_a_test_that_passes() {
        let sql = "CREATE TABLE orders (item STRING, amount INT, at STRING, twice AS amount * 2)
             WITH ('connector' = 'datagen');
             CREATE TABLE totals (item STRING, total INT, PRIMARY KEY (item) NOT ENFORCED)
             WITH ('connector' = 'print');
             INSERT INTO totals SELECT item, SUM(twice) FROM orders GROUP BY item;";
        let mut recording = Recording::new("orders", sql, &["orders".to_owned()]).expect("begins");
        for (at_ms, item, amount) in
            [(1_000, Some("tea"), 2), (2_500, Some("salt"), 3), (2_500, Some("tea"), 4)]
        {
            let values = vec![
                ("amount".to_owned(), Some(amount.to_string())),
                ("item".to_owned(), item.map(str::to_owned)),
                ("twice".to_owned(), Some("0".to_owned())),
            ];
            recording.add(SeenRow { table: "orders", at_ms, kind: "+I", values });
            let values = Vec::new();
            recording.add(SeenRow { table: "another", at_ms, kind: "+I", values });
        }
        assert_eq!(recording.rows(), 3);
        let text = recording.into_text().expect("a test");
        assert!(text.contains("| @at                     | item | amount |\n"), "not read: {text}");
        assert!(text.contains("| 1970-01-01 00:00:01.000 | tea  | 2      |\n"), "{text}");
        assert!(text.contains("expect totals\n\n| item | total |\n"), "{text}");
        assert!(
            text.contains("| tea  | 12    |\n") && text.contains("| salt | 6     |\n"),
            "{text}"
        );
        let file = TestFile::parse("orders.test.md".to_owned(), PathBuf::new(), text);
        let file = file.expect("a test file");
        let report = run_case(&file, &file.cases[0], &TestOptions::default());
        assert!(report.has_passed(), "{report:?}");
        assert_eq!(report.variants, 4);
        let unknown = Recording::new("orders", sql, &["order".to_owned()]);
        assert!(unknown.is_err(), "no such table");
    }
}
