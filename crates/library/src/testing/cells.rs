//! Cells of a test's tables: their text, and the values that it stands for.
//!
//! An empty cell and `NULL` are NULL; text in single quotes is taken as it is (`''` is the empty
//! text, `'NULL'` a word). `\|`, `\\`, `\n`, `\r` and `\t` have their usual meaning. A value of a
//! scalar type is written as SQL casts it from text; arrays, maps and rows as JSON.

use std::sync::Arc;

use arrow_array::{ArrayRef, BinaryArray, RecordBatch, StringViewArray};
use thalweg_connectors::format::{Format, JsonOptions, RecordDecoder, RecordLayout, TextBlock};
use thalweg_core::quoting::quoted_text;
use thalweg_core::text::{
    TextColumn, parse_date, parse_time, parse_timestamp, parse_timestamp_iso,
};
use thalweg_core::{
    Column, ColumnType, DataType, Error, Result, TableSchema, Watermark, WatermarkBefore,
};
use thalweg_expr::{EvalContext, Expr, Session, build};

/// The day on which a test takes place that names none: 2026-01-01.
pub(super) const FIRST_MS: i64 = 20_454 * 86_400_000;

/// What a cell holds; `None` for NULL.
pub(super) type Cell = Option<String>;

/// The cells of a line, as they are written.
pub(super) fn split(line: &str) -> Vec<String> {
    let line = line.trim();
    let line = line.strip_prefix('|').unwrap_or(line);
    let mut cells = vec![String::new()];
    let mut is_escaped = false;
    for c in line.chars() {
        match (c, is_escaped) {
            ('|', false) => cells.push(String::new()),
            _ => cells.last_mut().expect("there is one").push(c),
        }
        is_escaped = c == '\\' && !is_escaped;
    }
    // Behind the last bar there is nothing.
    if cells.last().is_some_and(|last| last.trim().is_empty()) {
        cells.pop();
    }
    cells.iter().map(|cell| cell.trim().to_owned()).collect()
}

/// What a cell stands for.
pub(super) fn read(written: &str) -> Cell {
    if written.is_empty() || written == "NULL" {
        return None;
    }
    let text = unescaped(written);
    let quoted = text.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\''));
    Some(quoted.map_or(text.clone(), |quoted| quoted.replace("''", "'")))
}

fn unescaped(written: &str) -> String {
    let mut text = String::new();
    let mut chars = written.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            text.push(c);
            continue;
        }
        match chars.next() {
            Some('n') => text.push('\n'),
            Some('r') => text.push('\r'),
            Some('t') => text.push('\t'),
            Some(other @ ('|' | '\\')) => text.push(other),
            Some(other) => text.extend(['\\', other]),
            None => text.push('\\'),
        }
    }
    text
}

/// How a value is written into a cell.
pub(super) fn written(cell: &Cell) -> String {
    let Some(text) = cell else { return "NULL".to_owned() };
    let needs_quotes =
        text.is_empty() || text == "NULL" || text.trim() != text || text.starts_with('\'');
    let text = match needs_quotes {
        true => quoted_text(text),
        false => text.clone(),
    };
    let escapes = [("\\", "\\\\"), ("|", "\\|"), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t")];
    escapes.iter().fold(text, |text, (from, to)| text.replace(from, to))
}

/// The values of a column.
///
/// # Errors
/// The place of the first cell that is no value of the type, and why.
pub(super) fn values(
    cells: &[&Cell],
    column: &ColumnType,
    session: &Session,
) -> std::result::Result<ArrayRef, (usize, Error)> {
    if let Some(place) = cells.iter().position(|cell| cell.is_none() && !column.can_be_null()) {
        return Err((place, Error::plan(format!("NULL is no value of the type {column}"))));
    }
    let whole = column_of(cells, &column.data_type, session);
    whole.map_err(|error| {
        let is_wrong = |cell: &&Cell| column_of(&[cell], &column.data_type, session).err();
        let first = cells.iter().enumerate().find_map(|(at, cell)| Some((at, is_wrong(cell)?)));
        first.unwrap_or((0, error))
    })
}

fn column_of(cells: &[&Cell], data_type: &DataType, session: &Session) -> Result<ArrayRef> {
    match data_type {
        DataType::Array(_) | DataType::Map(..) | DataType::Row(_) => of_json(cells, data_type),
        DataType::Binary(_) | DataType::Varbinary(_) => of_bytes(cells),
        _ => of_text(cells, data_type, session),
    }
}

fn of_text(cells: &[&Cell], data_type: &DataType, session: &Session) -> Result<ArrayRef> {
    let texts = cells.iter().map(|cell| cell.as_deref()).collect::<StringViewArray>();
    let batch = RecordBatch::try_from_iter_with_nullable([("c", Arc::new(texts) as _, true)])?;
    let text = Expr::column(0, DataType::STRING.nullable());
    let value = build::cast(text, data_type.clone(), false, session)?;
    let watermark_before = &WatermarkBefore::All(Watermark::MIN);
    value.evaluate(&EvalContext { batch: &batch, watermark_before, wall_ms: 0 })
}

fn of_bytes(cells: &[&Cell]) -> Result<ArrayRef> {
    let bytes = |cell: &&Cell| {
        let Some(text) = cell else { return Ok(None) };
        let hex = text.strip_prefix("x'").and_then(|rest| rest.strip_suffix('\''));
        let Some(hex) = hex else { return Ok(Some(text.clone().into_bytes())) };
        let digits = |at: usize| u8::from_str_radix(hex.get(at..at + 2).unwrap_or(""), 16);
        let bytes = (0..hex.len()).step_by(2).map(digits).collect::<Result<Vec<_>, _>>();
        bytes.map(Some).map_err(|_| Error::plan(format!("'{text}' is no text of bytes")))
    };
    let values = cells.iter().map(bytes).collect::<Result<Vec<_>>>()?;
    Ok(Arc::new(values.iter().map(Option::as_deref).collect::<BinaryArray>()))
}

fn of_json(cells: &[&Cell], data_type: &DataType) -> Result<ArrayRef> {
    let schema = TableSchema::new(vec![Column::new("c", data_type.clone().nullable())]);
    let layout = RecordLayout::new("the test", schema, vec![0], false);
    let decoder = RecordDecoder::new(Format::Json(JsonOptions::default()), layout);
    let object = |cell: &&Cell| format!("{{\"c\":{}}}", cell.as_deref().unwrap_or("null"));
    let objects = BinaryArray::from_iter_values(cells.iter().map(object));
    let decoded = decoder.decode(&TextBlock::messages(&objects));
    let decoded = decoded.map_err(|wrong| Error::plan(wrong.error.message().to_owned()))?;
    Ok(Arc::clone(decoded.batch.column(0)))
}

/// The values of a batch, row by row.
pub(super) fn rows_of(
    batch: &RecordBatch,
    schema: &TableSchema,
    zone: chrono_tz::Tz,
) -> Vec<Vec<Cell>> {
    let columns: Vec<TextColumn<'_>> = batch
        .columns()
        .iter()
        .zip(&schema.columns)
        .map(|(array, column)| TextColumn::new(array.as_ref(), &column.column_type.data_type, zone))
        .collect();
    let cell = |column: &TextColumn<'_>, row: usize| {
        let mut text = String::new();
        (!column.is_null(row)).then(|| {
            column.append(&mut text, row);
            text
        })
    };
    (0..batch.num_rows())
        .map(|row| columns.iter().map(|column| cell(column, row)).collect())
        .collect()
}

/// A cell as a value of this type would be shown, so that `2` and `2.00` are one value of a
/// DECIMAL. What is no value of the type stays as it is.
pub(super) fn normalized(cell: &Cell, column: &ColumnType, session: &Session) -> Cell {
    let Ok(value) = values(&[cell], &column.data_type.clone().nullable(), session) else {
        return cell.clone();
    };
    let schema = TableSchema::new(vec![Column::new("c", column.data_type.clone().nullable())]);
    let batch = RecordBatch::try_new(schema.arrow(), vec![value]);
    match batch.map(|batch| rows_of(&batch, &schema, session.zone)) {
        Ok(mut rows) => rows.pop().and_then(|mut row| row.pop()).unwrap_or_else(|| cell.clone()),
        Err(_) => cell.clone(),
    }
}

/// Milliseconds since 1970 of a time; one without a date is on the day that `day_ms` is of.
pub(super) fn time_ms(text: &str, day_ms: i64) -> Option<i64> {
    let text = text.trim().trim_end_matches('Z');
    let whole = parse_timestamp(text, 3).or_else(|| parse_timestamp_iso(text, 3));
    let date = || parse_date(text).map(|days| i64::from(days) * DAY_MS);
    let of_day = |of_day_ms| day_ms.div_euclid(DAY_MS) * DAY_MS + i64::from(of_day_ms);
    let time = || parse_time(text, 3).map(of_day);
    whole.or_else(date).or_else(time)
}

const DAY_MS: i64 = 86_400_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        for text in ["tea", "", "NULL", " a ", "it's", "'", "a|b", "\\|", "line\nbreak\\n", "\t"] {
            let cell = Some(text.to_owned());
            let line = format!("| {} |", written(&cell));
            let cells = split(&line);
            assert_eq!((cells.len(), read(&cells[0])), (1, cell), "{line}");
        }
        assert_eq!((read(""), read("NULL"), written(&None)), (None, None, "NULL".to_owned()));
    }

    #[test]
    fn values_are_those_of_a_cast() {
        let session = Session::default();
        let cell = |text: &str| Some(text.to_owned());
        let shown = |text: &str, data_type: DataType| {
            normalized(&cell(text), &data_type.nullable(), &session).expect("a value")
        };
        assert_eq!(shown("2", DataType::Decimal(5, 2)), "2.00");
        assert_eq!(shown("2026-01-01 09:00", DataType::STRING), "2026-01-01 09:00");
        assert_eq!(shown("2026-01-01 09:00:00", DataType::Timestamp(3)), "2026-01-01 09:00:00.000");
        assert_eq!(shown("x'0aff'", DataType::Varbinary(10)), "x'0aff'");
        assert_eq!(shown("no number", DataType::Int), "no number");
        let cells = [cell("1"), None, cell("x")];
        let refs: Vec<&Cell> = cells.iter().collect();
        let (place, error) = values(&refs, &DataType::Int.nullable(), &session).expect_err("x");
        assert_eq!(place, 2, "{error}");
        let (place, _) = values(&refs, &DataType::Int.not_null(), &session).expect_err("NULL");
        assert_eq!(place, 1);
    }

    #[test]
    fn times_have_a_day() {
        let day = 20_454 * DAY_MS;
        assert_eq!(time_ms("09:00:05", day + 7), Some(day + 32_405_000));
        assert_eq!(time_ms("09:00", day), Some(day + 32_400_000));
        assert_eq!(time_ms("2026-01-01 00:00:00.25", 0), Some(day + 250));
        assert_eq!(time_ms("2026-01-01T00:00:00Z", 0), Some(day));
        assert_eq!(time_ms("2026-01-01", 0), Some(day));
        for wrong in ["", "soon", "25:00", "9", "09:00:61"] {
            assert_eq!(time_ms(wrong, day), None, "{wrong}");
        }
    }
}
