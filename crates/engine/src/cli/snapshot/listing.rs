//! Answers as tables for people and as lines of JSON for programs: the same rows in both.

use std::sync::Arc;
use std::time::Duration;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringViewArray};
use chrono_tz::Tz;
use thalweg_connectors::output::{Format, ResultWriter};
use thalweg_core::{Column, DataType, Result, TableSchema};

use super::super::units;

/// A value.
#[derive(Clone, Debug)]
pub enum Cell {
    /// There is none.
    Nothing,
    /// A text.
    Text(String),
    /// A count.
    Number(u64),
    /// A size in bytes.
    Bytes(u64),
    /// How long ago.
    Age(Duration),
}

impl Cell {
    /// A text.
    pub fn text(text: impl Into<String>) -> Cell {
        Cell::Text(text.into())
    }

    fn shown(&self) -> Option<String> {
        Some(match self {
            Cell::Nothing => return None,
            Cell::Text(text) => text.clone(),
            Cell::Number(number) => units::count(*number),
            Cell::Bytes(bytes) => units::bytes(*bytes as usize),
            Cell::Age(age) => units::age(*age),
        })
    }

    fn number(&self) -> Option<i64> {
        let number = match self {
            Cell::Nothing | Cell::Text(_) => return None,
            Cell::Number(number) | Cell::Bytes(number) => *number,
            Cell::Age(age) => age.as_secs(),
        };
        i64::try_from(number).ok()
    }
}

/// A heading for people, a name for programs, and what kind of value stands below it.
pub type Heading = (&'static str, &'static str, ColumnKind);

/// What kind of value a column has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnKind {
    /// Texts.
    Text,
    /// Numbers, sizes, ages.
    Number,
}

/// Prints rows on standard output.
///
/// # Errors
/// If standard output takes no more.
pub fn print_rows(format: Format, headings: &[Heading], rows: &[Vec<Cell>]) -> Result<()> {
    let is_typed = format != Format::Table;
    let (mut columns, mut arrays) = (Vec::new(), Vec::<ArrayRef>::new());
    for (place, (heading, name, kind)) in headings.iter().enumerate() {
        let cells = rows.iter().map(|row| row.get(place).unwrap_or(&Cell::Nothing));
        if is_typed && *kind == ColumnKind::Number {
            columns.push(Column::new(*name, DataType::BigInt.nullable()));
            arrays.push(Arc::new(cells.map(Cell::number).collect::<Int64Array>()));
        } else {
            let title = if is_typed { *name } else { *heading };
            columns.push(Column::new(title, DataType::STRING.nullable()));
            arrays.push(Arc::new(cells.map(Cell::shown).collect::<StringViewArray>()));
        }
    }
    let schema = TableSchema::new(columns);
    let batch = RecordBatch::try_new(schema.arrow(), arrays)?;
    let out = Box::new(std::io::stdout());
    let mut writer = ResultWriter::new(format, schema, "-".to_owned(), Tz::UTC, out);
    writer.write(&batch, None)?;
    writer.finish()
}
