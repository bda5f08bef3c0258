//! NDJSON: one JSON object a line, read by declared column names.
//!
//! Flink's rules: other keys are passed over, a missing key is NULL, a number in quotes is a
//! number, a fraction is cut off for integers, and an object or array where a string is declared
//! is its JSON text. Empty lines are skipped.

pub mod values;
pub mod writer;

use std::fmt;
use std::sync::Arc;

use arrow_array::ArrayRef;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;
use thalweg_core::connector::{Origin, SourceBatch};
use thalweg_core::{Error, Result};

use self::values::{Cell, column};
use super::blocks::{Block, NOT_UTF8, Text};
use super::csv::values::{BadFields, OnBad};
use super::source::{Format, Reading, keep_good};
use crate::handover::{BadRow, Decoded, Emit, Task};

/// How JSON is read and written.
#[derive(Clone, Copy, Debug)]
pub struct JsonOptions {
    /// True if a value that cannot be read is NULL, and a line that cannot be read is skipped.
    pub ignore_parse_errors: bool,
    /// True if a missing key is an error.
    pub fail_on_missing_field: bool,
    /// True if timestamps have a `T` between date and time.
    pub iso_timestamps: bool,
}

/// Decodes one block.
pub struct JsonTask {
    /// The block.
    pub block: Block,
    /// What is wanted.
    pub reading: Arc<Reading>,
}

/// The lines that are objects.
#[derive(Default)]
struct Objects<'a> {
    /// Row after row, one value per wanted column.
    values: Vec<Option<Value>>,
    lines: Vec<(u64, &'a str)>,
    /// The first line that is none, which ends the block. A value in a line before it may be bad
    /// as well, and is then the first mistake of the file.
    broken: Option<Error>,
}

impl Task for JsonTask {
    fn run(self: Box<Self>, emit: &Emit<'_>) -> Result<()> {
        let Format::Json(options) = &self.reading.format else {
            return Err(Error::internal("a JSON block without JSON options"));
        };
        let decoded = self.decode(*options)?;
        // When the consumer has gone, there is nothing left to do anyway.
        let _ = emit.emit(decoded);
        Ok(())
    }
}

impl JsonTask {
    fn decode(&self, options: JsonOptions) -> Result<Decoded> {
        let source = self.block.text(self.reading.on_bad)?;
        let mut bad = Vec::new();
        let objects = self.objects(&source, &mut bad);
        let rows = objects.lines.len();
        let wanted = self.reading.wanted.len();
        let read = wanted + self.reading.checked.len();
        let mut bad_fields = BadFields::new(self.reading.on_bad);
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(read);
        let positions = self.reading.wanted.iter().chain(&self.reading.checked);
        for (slot, &position) in positions.enumerate() {
            let declared = &self.reading.schema.columns[position];
            bad_fields.begin(declared);
            let cell = |row: usize| Cell { row, value: objects.values[row * read + slot].as_ref() };
            let cells: Vec<Cell<'_>> = (0..rows).map(cell).collect();
            if options.fail_on_missing_field {
                cells.iter().filter(|cell| cell.value.is_none()).for_each(|cell| {
                    bad_fields.add_reason(cell.row, "the field is missing");
                });
            }
            let data_type = &declared.column_type.data_type;
            let values = column(&cells, data_type, options, &mut bad_fields)?;
            bad_fields.refuse_nulls(&values, declared);
            columns.push(values);
        }
        columns.truncate(wanted);
        let kinds = self.reading.take_kinds(&mut columns, &mut bad_fields)?;
        let bad_fields = bad_fields.into_rows();
        if let (OnBad::Fail, Some((row, reason))) = (self.reading.on_bad, bad_fields.first()) {
            return Err(self.bad_line(reason, objects.lines[*row].0));
        }
        if let Some(error) = objects.broken {
            return Err(error);
        }
        let mut batch = self.reading.batch(columns, kinds, rows, &self.block.file)?;
        if !bad_fields.is_empty() {
            batch = keep_good(&batch, bad_fields.iter().map(|(row, _)| *row))?;
            for (row, reason) in bad_fields {
                let (line, raw) = objects.lines[row];
                bad.push(self.dead(line, reason, raw));
            }
            bad.sort_by_key(|row| row.line);
        }
        let first_row = objects.lines.first().map_or(self.block.first_line, |line| line.0);
        let origin = Origin { file: self.block.file.label.clone(), first_row };
        Ok(Decoded {
            batch: SourceBatch { batch, origin: Some(origin) },
            bad,
            end: Some(self.block.end.clone()),
        })
    }

    fn objects<'a>(&self, source: &'a Text<'_>, bad: &mut Vec<BadRow>) -> Objects<'a> {
        let columns = &self.reading.schema.columns;
        let positions = self.reading.wanted.iter().chain(&self.reading.checked);
        let names: Vec<&str> = positions.map(|&at| columns[at].name.as_str()).collect();
        let mut objects = Objects::default();
        let mut end = 0;
        for (number, line) in (self.block.first_line..).zip(source.text.split('\n')) {
            let begin = end;
            end += line.len() + 1;
            if line.trim_ascii().is_empty() {
                continue;
            }
            let start = objects.values.len();
            objects.values.resize(start + names.len(), None);
            let row = Row { names: &names, values: &mut objects.values[start..] };
            let mut deserializer = serde_json::Deserializer::from_str(line);
            let parsed = row.deserialize(&mut deserializer).and_then(|()| deserializer.end());
            let reason = match parsed {
                _ if source.is_foreign(begin, end) => NOT_UTF8.to_string(),
                Ok(()) => {
                    objects.lines.push((number, line));
                    continue;
                }
                Err(e) => format!("the line is not a JSON object: {}", without_place(&e)),
            };
            objects.values.truncate(start);
            match self.reading.on_bad {
                OnBad::Fail => {
                    objects.broken = Some(self.bad_line(&reason, number));
                    return objects;
                }
                OnBad::Null => {}
                OnBad::Reject => bad.push(self.dead(number, reason, line)),
            }
        }
        objects
    }

    fn bad_line(&self, reason: &str, line: u64) -> Error {
        Error::data(reason).at_row(self.block.file.label.as_ref(), line).hint(
            "correct the line, or set 'bad-data' = 'drop' or 'dead-letter' \
             ('json.ignore-parse-errors' = 'true' makes bad fields NULL)",
        )
    }

    fn dead(&self, line: u64, reason: String, raw: &str) -> BadRow {
        let raw = raw.strip_suffix('\r').unwrap_or(raw).to_string();
        BadRow { file: self.block.file.label.clone(), line, reason, raw }
    }
}

/// The parser's message; its line is always 1 here, so only the column is kept.
fn without_place(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let message = text.split(" at line ").next().unwrap_or(&text).to_string();
    format!("{message} (character {})", error.column())
}

/// Takes the wanted values of one object; the others are skipped without being built.
struct Row<'r> {
    names: &'r [&'r str],
    values: &'r mut [Option<Value>],
}

impl<'de> DeserializeSeed<'de> for Row<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Row<'_> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(slot) = map.next_key_seed(Key { names: self.names })? {
            match slot {
                // Of keys that come twice the first one counts, as in Flink.
                Some(slot) if self.values[slot].is_none() => {
                    self.values[slot] = Some(map.next_value()?);
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

/// Finds a key among the wanted names without copying it.
struct Key<'k> {
    names: &'k [&'k str],
}

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = Option<usize>;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<usize>, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Key<'_> {
    type Value = Option<usize>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }
    fn visit_str<E>(self, key: &str) -> Result<Option<usize>, E> {
        Ok(self.names.iter().position(|name| *name == key))
    }
}
