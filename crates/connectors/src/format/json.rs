//! JSON: one object a record (in files: a line), read by declared column names.
//!
//! Flink's rules: other keys are passed over, a missing key is NULL, a number in quotes is a
//! number, a fraction is cut off for integers, and an object or array where a string is declared
//! is its JSON text. Empty lines are skipped.

pub mod values;
pub mod writer;

use std::fmt;

use arrow_array::ArrayRef;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;
use thalweg_core::{Error, Result};

use self::values::{Cell, column};
use super::bad_data::{BadDataPolicy, BadFields, DecodeError, Rejected};
use super::records::{DecodedRecords, RecordLayout, Records, finish};
use super::text::{NOT_UTF8, Text, TextBlock};

/// How JSON is read and written.
#[derive(Clone, Copy, Debug, Default)]
pub struct JsonOptions {
    /// True if a value that cannot be read is NULL, and a record that cannot be read is skipped.
    pub ignore_parse_errors: bool,
    /// True if a missing key is an error.
    pub fail_on_missing_field: bool,
    /// True if timestamps have a `T` between date and time.
    pub iso_timestamps: bool,
}

/// The records that are objects.
#[derive(Default)]
struct Objects<'a> {
    /// Row after row, one value per column that is read.
    values: Vec<Option<Value>>,
    /// The number and the text of each.
    records: Vec<(u64, &'a str)>,
    broken: Option<DecodeError>,
}

impl Records for Objects<'_> {
    fn rows(&self) -> usize {
        self.records.len()
    }
    fn number(&self, row: usize) -> u64 {
        self.records[row].0
    }
    fn raw(&self, row: usize) -> &[u8] {
        let raw = self.records[row].1.as_bytes();
        raw.strip_suffix(b"\r").unwrap_or(raw)
    }
    fn error(&self, reason: &str, number: u64) -> DecodeError {
        bad_record(reason, number)
    }
    fn take_broken(&mut self) -> Option<DecodeError> {
        self.broken.take()
    }
}

/// Decodes a block.
pub(super) fn decode(
    options: JsonOptions,
    layout: &RecordLayout,
    block: &TextBlock<'_>,
) -> Result<DecodedRecords, DecodeError> {
    let source = block.text(layout.policy)?;
    let mut rejected = Vec::new();
    let mut objects = match block.as_messages() {
        None => {
            let lines = (block.number_at(0)..).zip(Lines { text: &source.text, start: 0 });
            objects(layout, &source, block, lines, &mut rejected)
        }
        Some(messages) => {
            let spans = messages.spans(source.text.len());
            let numbered = spans.map(|span| (block.number_at(span.0), span));
            objects(layout, &source, block, numbered, &mut rejected)
        }
    };
    let rows = objects.records.len();
    let read = layout.read().count();
    let mut bad = BadFields::new(layout.policy);
    let mut columns: Vec<ArrayRef> = Vec::with_capacity(read);
    for (slot, position) in layout.read().enumerate() {
        let declared = &layout.schema.columns[position];
        bad.begin(declared);
        let cell = |row: usize| Cell { row, value: objects.values[row * read + slot].as_ref() };
        let cells: Vec<Cell<'_>> = (0..rows).map(cell).collect();
        if options.fail_on_missing_field {
            cells.iter().filter(|cell| cell.value.is_none()).for_each(|cell| {
                bad.add_reason(cell.row, "the field is missing");
            });
        }
        let values = column(&cells, &declared.column_type.data_type, options, &mut bad)?;
        bad.refuse_nulls(&values, declared);
        columns.push(values);
    }
    finish(layout, block, &mut objects, columns, bad, rejected)
}

/// Where the lines of a text begin and end; behind the last line feed there is one more.
struct Lines<'t> {
    text: &'t str,
    start: usize,
}

impl Iterator for Lines<'_> {
    type Item = (usize, usize);
    fn next(&mut self) -> Option<(usize, usize)> {
        let start = self.start;
        let rest = self.text.as_bytes().get(start..)?;
        let end = memchr::memchr(b'\n', rest).map_or(self.text.len(), |at| start + at);
        self.start = end + 1;
        Some((start, end))
    }
}

fn objects<'a>(
    layout: &RecordLayout,
    source: &'a Text<'_>,
    block: &TextBlock<'_>,
    spans: impl Iterator<Item = (u64, (usize, usize))>,
    rejected: &mut Vec<Rejected>,
) -> Objects<'a> {
    let columns = &layout.schema.columns;
    let names: Vec<&str> = layout.read().map(|at| columns[at].name.as_str()).collect();
    let mut objects = Objects::default();
    for (number, (begin, end)) in spans {
        let record = &source.text[begin..end];
        if record.trim_ascii().is_empty() {
            continue;
        }
        let start = objects.values.len();
        objects.values.resize(start + names.len(), None);
        let row = RowSeed { names: &names, values: &mut objects.values[start..] };
        let mut deserializer = serde_json::Deserializer::from_str(record);
        let parsed = row.deserialize(&mut deserializer).and_then(|()| deserializer.end());
        let reason = match parsed {
            _ if source.is_foreign(begin, end) => NOT_UTF8.to_string(),
            Ok(()) => {
                objects.records.push((number, record));
                continue;
            }
            Err(e) => {
                let what = if block.as_messages().is_some() { "message" } else { "line" };
                format!("the {what} is not a JSON object: {}", without_place(&e))
            }
        };
        objects.values.truncate(start);
        match layout.policy {
            BadDataPolicy::Fail => {
                objects.broken = Some(bad_record(&reason, number));
                return objects;
            }
            BadDataPolicy::Null => {}
            BadDataPolicy::Reject => {
                let raw = &block.bytes()[begin..end];
                let raw = raw.strip_suffix(b"\r").unwrap_or(raw).to_vec();
                rejected.push(Rejected { number, reason, raw });
            }
        }
    }
    objects
}

fn bad_record(reason: &str, number: u64) -> DecodeError {
    let hint = "correct the line, or set 'bad-data' = 'drop' or 'dead-letter' \
                ('json.ignore-parse-errors' = 'true' makes bad fields NULL)";
    DecodeError::at(Error::data(reason).hint(hint), number)
}

/// The parser's message; its line is always 1 here, so only the column is kept.
fn without_place(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let message = text.split(" at line ").next().unwrap_or(&text).to_string();
    format!("{message} (character {})", error.column())
}

/// Takes the wanted values of one object; the others are skipped without being built.
struct RowSeed<'r> {
    names: &'r [&'r str],
    values: &'r mut [Option<Value>],
}

impl<'de> DeserializeSeed<'de> for RowSeed<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for RowSeed<'_> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(slot) = map.next_key_seed(KeySeed { names: self.names })? {
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
struct KeySeed<'k> {
    names: &'k [&'k str],
}

impl<'de> DeserializeSeed<'de> for KeySeed<'_> {
    type Value = Option<usize>;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<usize>, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for KeySeed<'_> {
    type Value = Option<usize>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }
    fn visit_str<E>(self, key: &str) -> Result<Option<usize>, E> {
        Ok(self.names.iter().position(|name| *name == key))
    }
}
